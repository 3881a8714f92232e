"""``appulse compact``: the many small files of a sink as few large ones."""

from __future__ import annotations

import json as js
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from appulse.cli.console import errors_reported

__all__ = ["compact"]


def compact(
    folder: Annotated[Path, typer.Argument(help="The folder of a Parquet sink.", show_default=False)],
    size: Annotated[int, typer.Option(min=1, help="Megabytes of a file that is large enough.")] = 128,
    *,
    json: Annotated[bool, typer.Option("--json", help="How many files became how many, as JSON.")] = False,
) -> None:
    """Merge small files of a Parquet sink, also while its job runs; see docs/deployment.md."""
    console = Console(highlight=False, soft_wrap=True)
    with errors_reported(console):
        from appulse.connect.compacting import compact as merge

        done = merge(folder, size * 10**6)
    if json:
        typer.echo(js.dumps(done._asdict()))
        return
    console.print(f"{done.files:,} files with {done.rows:,} rows are {done.into:,} now: {folder}", markup=False)
