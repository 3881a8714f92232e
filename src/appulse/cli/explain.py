"""``appulse explain``: how a job will be carried out, found without running it."""

from __future__ import annotations

import dataclasses
import json as js
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from appulse.cli.console import errors_reported

__all__ = ["explain"]


def explain(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.", show_default=False)],
    *,
    rows: Annotated[int, typer.Option(help="How many of the first rows of each source to look at.", min=0)] = 1000,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show how a job will be carried out, by the first rows of its files, or by the schema of messages.

    No Spark is started, nothing is read from a broker, and nothing is written.
    """
    console = Console(stderr=json, highlight=False, soft_wrap=True)
    with errors_reported(console):
        from appulse.jobs import load
        from appulse.jobs.by_hand import by_hand, dataset_of
        from appulse.jobs.resident_io import no_rows

        checked = load(job)
        call = by_hand(checked)
        data = checked.table.data
        places = {name: f"sources.{name}" for name in call.streams}
        heads = {
            name: dataset_of(checked, data[place], place).head(rows) if place in data else no_rows(checked, name)
            for name, place in places.items()
        }
        call.push(**heads)
        call.drain()
        explanation = call.explain()
        refused = len(call.rejects())
    if json:
        found = dataclasses.asdict(explanation) | {"job": str(job), "rows": {n: len(t) for n, t in heads.items()}}
        typer.echo(js.dumps(found | {"rejects": refused}))
        return
    read = ", ".join(f"{len(table):,} of {name}" for name, table in heads.items())
    console.print(f"{job}: {explanation.call} into {checked.answers}", markup=False)
    console.print(f"rows looked at: {read}; {refused:,} rejects", markup=False)
    console.print(str(explanation), markup=False)
