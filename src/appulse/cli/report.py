"""``appulse report``: a page of a run's results, in one file."""

from __future__ import annotations

import json as js
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from appulse.cli.console import errors_reported
from appulse.errors import StorageError
from appulse.model.sizes import size

__all__ = ["report"]


def report(
    directory: Annotated[Path, typer.Argument(help="The folder of the results.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="The page; default: report.html in the folder.", show_default=False)
    ] = None,
    title: Annotated[str | None, typer.Option(help="Default: the folder's name.", show_default=False)] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="The page's path and size as JSON.")] = False,
) -> None:
    """Write a self-contained HTML page of phenomena, encounters, visits to fences, or of a similarity join's run."""
    console = Console(highlight=False, soft_wrap=True)
    with errors_reported(console):
        from appulse.report.directory import place
        from appulse.report.directory import report as page_of

        page = page_of(directory, title=title)
        file = out or place(directory)
        try:
            file.write_text(page, encoding="utf-8")
        except OSError as error:
            raise StorageError(f"{file} cannot be written: {error.strerror}. Name another with --out.") from error
        if json:
            typer.echo(js.dumps({"page": str(file), "bytes": len(page.encode())}))
            return
        console.print(f"The page, {size(len(page.encode()))}: {file}", markup=False)
