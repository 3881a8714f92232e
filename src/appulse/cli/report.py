"""``appulse report``: a page of a run's results, in one file."""

from __future__ import annotations

import json as js
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from appulse.cli.console import errors_reported
from appulse.errors import BadArgument, StorageError
from appulse.model.sizes import size

__all__ = ["report"]


def report(
    directory: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the results.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; default: report.html in the folder.", show_default=False)
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="The title; default: the folder's name.", show_default=False)
    ] = None,
    unit: Annotated[str, typer.Option(help="The unit of coordinates.", show_default=False)] = "",
    time: Annotated[
        str | None, typer.Option(help="The column of the readings that has times.", show_default=False)
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="Encounters and fences: the column of the readings that has keys.", show_default=False),
    ] = None,
    place: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Two columns. Encounters and fences: lat,lon or x,y of the readings. Phenomena on Earth: "
            "lat,lon of the locations.",
            show_default=False,
        ),
    ] = None,
    sensor: Annotated[
        str | None, typer.Option(help="Phenomena: the column of the readings that has sensors.", show_default=False)
    ] = None,
    value: Annotated[
        str | None, typer.Option(help="Phenomena: the column of the readings that has values.", show_default=False)
    ] = None,
    value_unit: Annotated[str, typer.Option(help="Phenomena: the unit of the values.", show_default=False)] = "",
    resolution: Annotated[float | None, typer.Option(help="Phenomena: the width of bins.", show_default=False)] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Phenomena: VALUE=TEXT, the name of a value; may be repeated.", show_default=False),
    ] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="The page's path and size as JSON.")] = False,
) -> None:
    """Write results as one HTML page: phenomena, encounters, visits to fences, or a similarity join."""
    console = Console(stderr=json, highlight=False, soft_wrap=True)
    with errors_reported(console):
        from appulse.report.directory import Shown, page_file
        from appulse.report.directory import report as page_of

        both = None if place is None else _both(place)
        shown = Shown(unit, value, value_unit, resolution, _labels(label or []), time, sensor, key, both)
        page = page_of(directory, title=title, shown=shown)
        file = out or page_file(directory)
        try:
            file.write_text(page, encoding="utf-8")
        except OSError as error:
            raise StorageError(f"{file} cannot be written: {error.strerror}. Name another with --out.") from error
        if json:
            typer.echo(js.dumps({"page": str(file), "bytes": len(page.encode())}))
            return
        console.print(f"The page, {size(len(page.encode()))}: {file}", markup=False)


def _both(given: str) -> tuple[str, str]:
    first, comma, second = given.partition(",")
    if not (first and comma and second):
        raise BadArgument(f"--place takes two columns, as in lat,lon, and got {given!r}.")
    return first, second


def _labels(given: list[str]) -> dict[str, str]:
    found = {}
    for one in given:
        value, equals, text = one.partition("=")
        if not (value and equals and text):
            raise BadArgument(f"--label takes VALUE=TEXT, as in 3=warm, and got {one!r}.")
        found[value] = text
    return found
