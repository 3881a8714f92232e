"""``appulse validate``: what is wrong with a job file, found without running it."""

from __future__ import annotations

import json as js
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from appulse.cli.console import MISUSED

__all__ = ["validate"]


def validate(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.", show_default=False)],
    *,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Check a job file without running it."""
    from appulse.jobs import load
    from appulse.jobs import validate as problems_of

    console = Console(highlight=False)
    problems = problems_of(job, here=True)
    if json:
        right = None if problems else load(job)
        missing, warnings = ([], []) if right is None else (right.missing(), right.doubtful())
        said = {"job": str(job), "problems": list(map(str, problems)), "missing": list(map(str, missing))}
        said |= {"warnings": warnings}
        typer.echo(js.dumps(said))
        raise typer.Exit(MISUSED if problems else 0)
    if problems:
        console.print(f"[bold red]{escape(str(job))} cannot run:[/]", soft_wrap=True)
        for problem in problems:
            console.print(f"  {escape(str(problem))}", soft_wrap=True)
        raise typer.Exit(MISUSED)
    checked = load(job)
    table = checked.table
    console.print(
        escape(f"{job} is a job: {table.operator} of {', '.join(table.sources)} into {checked.answers}"),
        soft_wrap=True,
    )
    for warning in checked.doubtful():
        console.print(f"  [yellow]warning:[/] {escape(warning)}", soft_wrap=True)
    for gap in checked.missing():
        console.print(f"  not yet there: {escape(str(gap))}", soft_wrap=True)
