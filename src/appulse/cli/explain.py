"""``appulse explain``: how a job will be carried out, found without running it."""

from __future__ import annotations

import dataclasses
import json as js
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from appulse.cli.console import errors_reported, refused

__all__ = ["explain"]


def explain(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.", show_default=False)],
    *,
    rows: Annotated[int, typer.Option(help="The number of rows to read from each source.", min=0)] = 1000,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show how a job will be carried out, from the first rows of its files or the schema of its messages.

    No Spark is started, nothing is read from a broker, and nothing is written.
    """
    console = Console(stderr=json, highlight=False, soft_wrap=True)
    with errors_reported(console):
        from appulse.connect.files import undecoded
        from appulse.jobs import load
        from appulse.jobs.by_hand import by_hand, dataset_of
        from appulse.jobs.resident_io import no_rows

        checked = load(job)
        call = by_hand(checked)
        data = checked.table.data
        places = {name: f"sources.{name}" for name in call.streams}
        read = {name: dataset_of(checked, data[place], place) for name, place in places.items() if place in data}
        heads = {name: read[name].head(rows) if name in read else no_rows(checked, name) for name in places}
        lost = {name: lines for name, files in read.items() if (lines := getattr(files, "unreadable", []))}
        call.push(**heads)
        call.drain()
        explanation = call.explain()
        reasons = Counter(call.rejects()["reason"].to_pylist())
    if json:
        found = dataclasses.asdict(explanation) | {"job": str(job), "rows": {n: len(t) for n, t in heads.items()}}
        undecodable = {name: {"lines": len(lines), "first": lines[0].detail} for name, lines in lost.items()}
        typer.echo(js.dumps(found | {"rejects": reasons.total(), "undecoded": undecodable}))
        return
    looked = ", ".join(f"{len(table):,} of {name}" for name, table in heads.items())
    console.print(f"{job}: {explanation.call} into {checked.answers}", markup=False)
    console.print(f"rows looked at: {looked}; {refused(reasons)}", markup=False)
    for name, lines in lost.items():
        console.print(f"{name}: {undecoded(lines)}", markup=False)
    console.print(str(explanation), markup=False)
