"""``appulse plan``: what a job will need, before it runs."""

from __future__ import annotations

import json as js
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from appulse.cli.console import NO_ROOM, errors_reported
from appulse.errors import BadArgument

__all__ = ["plan"]


def plan(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.", show_default=False)],
    *,
    rate: Annotated[
        list[str] | None,
        typer.Option(metavar="ROWS|NAME=ROWS", help="Expected rows per second, of all sources or of one."),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Available memory, such as '8 GB'.", show_default=False)
    ] = None,
    cores: Annotated[int | None, typer.Option(min=1, help="Available cores.", show_default=False)] = None,
    sample: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="A file of typical rows of a source without files, such as a topic."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="spark or process; default: the engine of the job.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The plan as one JSON object on stdout.")] = False,
) -> None:
    """Estimate the rows, state, memory and cores that a job needs; exit code 3 if it does not fit."""
    console = Console(file=sys.stderr if json else sys.stdout, highlight=False)
    with errors_reported(console):
        from appulse.engines.planning import ENGINES
        from appulse.jobs import load
        from appulse.jobs.limits import bytes_of
        from appulse.jobs.planning import plan_job

        if engine is not None and engine not in ENGINES:
            raise BadArgument(f"--engine {engine}: give one of {', '.join(ENGINES)}.")
        try:
            room = None if memory is None else bytes_of(memory)
        except ValueError as error:
            raise BadArgument(f"--memory {error}") from None
        files = {name: Path(file) for name, file in (_named(one, "--sample", "NAME=FILE") for one in sample or [])}
        found = plan_job(load(job), samples=files, rate=_rates(rate or []), memory=room, cores=cores, engine=engine)
    if json:
        typer.echo(js.dumps(found.as_dict()))
    else:
        table = Table("what it needs", "", title=f"{job} ({found.call})", title_justify="left")
        for what, text in found.lines():
            table.add_row(what, text)
        console.print(table)
        for note in found.notes:
            console.print(f"Note: {note}.", soft_wrap=True, markup=False)
    for why in found.refusals:
        console.print(f"[bold red]Does not fit:[/] {why}.", soft_wrap=True)
    if not found.fits:
        raise typer.Exit(NO_ROOM)


def _named(given: str, option: str, wanted: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not name or not value:
        raise BadArgument(f"{option} {given}: give {option} {wanted}.")
    return name, value


def _rates(given: list[str]) -> float | dict[str, float] | None:
    """Rows a second of all sources, or of some by name."""
    if not given:
        return None
    try:
        if len(given) == 1 and "=" not in given[0]:
            rate = float(given[0])
            found: float | dict[str, float] = rate
            least = rate
        else:
            found = {name: float(value) for name, value in (_named(one, "--rate", "NAME=ROWS") for one in given)}
            least = min(found.values())
    except ValueError:
        raise BadArgument(f"--rate {' '.join(given)}: give rows a second, such as 5000 or vans=5000.") from None
    if not 0 < least < float("inf"):
        raise BadArgument(f"--rate {' '.join(given)}: give rows a second above 0.")
    return found
