"""``appulse pack``: an archive for the workers of a cluster."""

from __future__ import annotations

import json as js
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from rich.console import Console

from appulse.cli.console import errors_reported
from appulse.engines.spark.installation import need_spark

__all__ = ["pack"]


def pack(
    out: Annotated[Path, typer.Argument(metavar="ARCHIVE.tar.gz", help="The file to write.", show_default=False)],
    *,
    json: Annotated[bool, typer.Option("--json", help="Size and settings as one JSON object on stdout.")] = False,
) -> None:
    """Pack appulse, its dependencies and compiled kernels for the workers of a cluster; see docs/deployment.md."""
    from appulse.engines.packing import pack as write
    from appulse.engines.packing import settings_of

    console = Console(highlight=False, stderr=json)
    with errors_reported(console):
        need_spark()  # a part of the archive
        size = write(out)
    if json:
        typer.echo(js.dumps({"archive": str(out), "bytes": size, "conf": settings_of(out)}))
        return
    console.print(f"{out}: {size / 2**20:.0f} MiB. Give the session of a cluster:", soft_wrap=True, markup=False)
    for name, value in settings_of(out).items():
        console.print(f"  --conf {quote(f'{name}={value}')}", soft_wrap=True, markup=False)
