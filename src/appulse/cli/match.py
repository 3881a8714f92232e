"""``appulse match``: standing queries from a file over the rows of another."""

from __future__ import annotations

import json as js
import sys
import time as clock
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from appulse.cli.console import errors_reported, span
from appulse.errors import BadArgument, JobError

if TYPE_CHECKING:
    import pyarrow as pa

    from appulse.model.uncertainty import Exact, Gaussian, Position

__all__ = ["match"]

_MOST_REPORTED = 10
# The value of rows without a column of numbers that is there in every row: their numbers.
_NUMBER = "row number"


def match(
    queries: Annotated[
        Path,
        typer.Argument(
            metavar="QUERIES",
            help="CSV or (Geo)Parquet with columns query, condition and region; GeoJSON; or a .sql file.",
            show_default=False,
        ),
    ],
    rows: Annotated[Path, typer.Argument(metavar="ROWS", help="CSV or Parquet.", show_default=False)],
    *,
    query: Annotated[str, typer.Option(help="The column or property that names a query.")] = "query",
    key: Annotated[str, typer.Option(help="The column that names a row.")] = "key",
    time: Annotated[str, typer.Option(help="The column of times.")] = "time",
    value: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns of the value, separated by commas; rows without them are rejects.",
            show_default=False,
        ),
    ] = None,
    position: Annotated[
        str | None,
        typer.Option(metavar="LAT,LON", help="Columns of a place on Earth; --sigma is metres.", show_default=False),
    ] = None,
    sigma: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|COLUMN", help="The standard deviation of a normal error of the value.", show_default=False
        ),
    ] = None,
    existence: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The probability that a row exists.", show_default=False)
    ] = None,
    probability: Annotated[
        float | None, typer.Option(help="The threshold for uncertain rows.", show_default=False)
    ] = None,
    max_output: Annotated[
        int | None, typer.Option(metavar="ROWS", help="Stop if there are more answers than this.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write answers to this .csv or .parquet; default: CSV on stdout.")
    ] = None,
    rejects: Annotated[
        Path | None, typer.Option(help="Write rejects to this .csv or .parquet.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Answers as lines of JSON on stdout.")] = False,
) -> None:
    """Find which rows of a file satisfy which of many queries."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    begin = clock.perf_counter()
    with errors_reported(console):
        import numpy as np

        import appulse as ap
        from appulse.engines.options import Options
        from appulse.jobs.queries import read_queries
        from appulse.jobs.regions import TABLES, ending_of, read_table
        from appulse.model.stream import Stream

        for file in (out, rejects):
            if file is not None:
                ending_of(file, TABLES)
        asked, given = read_queries(queries, query), read_table(rows)
        model = _model(given, value, position, sigma, (key, time, existence))
        if list(model.columns) == [_NUMBER]:
            given = given.append_column(_NUMBER, [np.arange(len(given))])
        stream = Stream(given, key=key, time=time, value=model, existence=existence, name="rows")
        answers = ap.match_queries(stream, asked, probability=probability, options=Options(max_output=max_output))
        refused = ap.rejects(answers)
        if json and out is None:
            for answer in answers.to_pylist():
                typer.echo(js.dumps(answer, default=str))
        else:
            _write(answers, out)
        if rejects is not None:
            _write(refused, rejects)
    _report(console, refused, rejects)
    took = span(clock.perf_counter() - begin)
    matched = len(answers["query"].unique())
    console.print(
        f"Done: {len(given):,} rows, {len(asked):,} queries of which {matched:,} matched, {len(answers):,} answers, "
        f"{len(refused):,} rejects, in {took}." + (f" Answers: {out}" if out is not None else ""),
        markup=False,
    )


def _model(
    table: pa.Table, value: str | None, position: str | None, sigma: str | None, others: tuple[str | None, ...]
) -> Exact | Gaussian | Position:
    import pyarrow.types as kinds

    from appulse.model.uncertainty import Exact, Gaussian, Position

    error = _number(sigma)
    if position is not None:
        lat, _, lon = position.partition(",")
        if value is not None or not lon:
            raise BadArgument("--position takes two columns, latitude and longitude, and the place of --value.")
        return Position(lat.strip(), lon.strip(), sigma=error or 0.0)
    if value is not None:
        columns = [name.strip() for name in value.split(",")]
    elif sigma is not None:
        raise BadArgument("--sigma needs --value or --position: the columns that have this error.")
    else:
        # Any column will do where rows are exact: conditions may name all of them, whatever the value is.
        numbers = [
            field.name for field in table.schema if kinds.is_integer(field.type) or kinds.is_floating(field.type)
        ]
        numbers = [name for name in numbers if name not in others and not _lacks_some(table[name])]
        columns = numbers[:1] or [_NUMBER]
    return Exact(*columns) if error is None else Gaussian(*columns, sigma=error)


def _number(text: str | None) -> str | float | None:
    """A number where it is one, else a column."""
    try:
        return text if text is None else float(text)
    except ValueError:
        return text


def _lacks_some(column: pa.ChunkedArray) -> bool:
    import pyarrow.compute as pc

    return bool(column.null_count or not pc.all(pc.is_finite(column), min_count=0).as_py())


def _write(table: pa.Table, file: Path | None) -> None:
    from pyarrow import csv, parquet

    if file is None:
        csv.write_csv(table, sys.stdout.buffer)
        sys.stdout.flush()
        return
    try:
        if file.suffix.lower() == ".csv":
            csv.write_csv(table, file)
        else:
            parquet.write_table(table, file)
    except OSError as error:
        raise JobError(f"{file} cannot be written: {error}") from error


def _report(console: Console, refused: pa.Table, file: Path | None) -> None:
    """The first of what could not be used."""
    for one in refused.slice(0, _MOST_REPORTED).to_pylist():
        who = f"row {one['key']}"
        if one["stream"] == "queries":
            who = f"query {js.loads(one['values'])['query']}"
        console.print(f"{who}: {one['reason']}: {one['detail']}", markup=False)
    if len(refused) > _MOST_REPORTED:
        more = "" if file is not None else " --rejects FILE writes all of them."
        console.print(f"... and {len(refused) - _MOST_REPORTED:,} more.{more}")
