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
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a Parquet sink.", show_default=False)],
    size: Annotated[int, typer.Option(min=1, help="Target size of files in megabytes.")] = 128,
    *,
    json: Annotated[bool, typer.Option("--json", help="The numbers of files and rows, as JSON.")] = False,
) -> None:
    """Merge small files of a Parquet sink, also while its job runs, but not if a streaming query reads the folder.

    Such a query would read the merged rows again; see docs/deployment.md.
    """
    console = Console(stderr=json, highlight=False, soft_wrap=True)
    with errors_reported(console):
        from appulse.connect.compacting import compact as merge

        done = merge(folder, size * 10**6)
    if json:
        typer.echo(js.dumps(done._asdict()))
        return
    console.print(f"{done.files:,} files with {done.rows:,} rows are {done.into:,} now: {folder}", markup=False)
    if done.files:
        console.print("A streaming query that reads this folder, also one that is stopped, gets their rows again.")
    if done.unknown:
        console.print(
            f"{done.unknown:,} Parquet files stay: they are of no sink of appulse, or _appulse_staging is not there. "
            "Merge a copy of them by a batch query, spark.read and write."
        )
    if done.waiting:
        console.print(
            f"{done.waiting:,} Parquet files stay: an earlier version wrote them, and the latest batch, with times of "
            "another type. Run it again when the query has written a batch."
        )
