"""``appulse discover``: which columns of a table determine which, and which imputer fills it best."""

from __future__ import annotations

import json as js
import time as clock
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from appulse.cli.console import errors_reported, span
from appulse.errors import BadArgument, JobError

if TYPE_CHECKING:
    import pyarrow as pa

    from appulse.imputation.discovery import Discovery
    from appulse.imputation.repository import Repository

_ENDINGS = (".csv", ".parquet")


def discover(
    file: Annotated[
        Path, typer.Argument(metavar="TABLE", help="A .csv or .parquet file; incomplete rows are left out.")
    ],
    columns: Annotated[
        str | None,
        typer.Option(help="Columns to use, separated by commas; default: all numeric ones.", show_default=False),
    ] = None,
    confidence: Annotated[float, typer.Option(help="The share of close rows that must agree.")] = 0.95,
    out: Annotated[
        Path | None, typer.Option(help="Write the rules to this .toml file; default: stdout.", show_default=False)
    ] = None,
    conditional: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--conditional", help="Also find rules that hold only in a range of a column.")
    ] = False,
    json: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--json", help="The rules as a JSON list, in place of TOML on stdout.")
    ] = False,
    score: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--score", help="Also compare imputers on held-out values.")
    ] = False,
) -> None:
    """Find differential dependencies in a table of complete rows."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    begin = clock.perf_counter()
    with errors_reported(console):
        from appulse.imputation.dependencies import to_toml
        from appulse.imputation.discovery import discovered
        from appulse.imputation.repository import Repository

        if out is not None and out.suffix.lower() != ".toml":
            raise BadArgument(f"{out} does not end in .toml.")
        table = _complete(_read(file), columns, console)
        repository = Repository(table)
        found = discovered(
            repository,
            None,
            confidence,
            lambda message: console.print(message, markup=False),
            conditional=conditional,
        )
        text = to_toml([one.rule for one in found])
        if json:
            typer.echo(js.dumps([_plain(one) for one in found]))
        elif out is None:
            typer.echo(text)
        else:
            _write(out, text)
        console.print(_described(found))
        if score:
            console.print(_scores(repository))
        console.print(
            f"Done: {len(found)} rules from {len(repository):,} rows in {span(clock.perf_counter() - begin)}."
        )


def _read(file: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv, parquet

    from appulse.engines.local import as_table

    if file.suffix.lower() not in _ENDINGS:
        raise BadArgument(f"{file} ends in {file.suffix or 'nothing'!r}. Known: {', '.join(_ENDINGS)}.")
    try:
        table = parquet.read_table(file) if file.suffix.lower() == ".parquet" else csv.read_csv(file)
    except (OSError, pa.ArrowException) as error:
        raise JobError(f"{file} cannot be read: {error}") from error
    if "" in table.column_names:
        number = table.column_names.index("") + 1
        raise JobError(f"Column {number} of {file} has no name. Name it; pandas writes none with to_csv(index=False).")
    return as_table(table, str(file))


def _complete(table: pa.Table, columns: str | None, console: Console) -> pa.Table:
    """The columns asked for, or those of numbers, and the rows that have all of them."""
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    from appulse.errors import nearest

    names = [name.strip() for name in columns.split(",")] if columns is not None else []
    for name in names:
        if name not in table.schema.names:
            raise BadArgument(f"The table has no column {name!r}.{nearest(name, table.schema.names)}")
    names = names or [f.name for f in table.schema if kinds.is_integer(f.type) or kinds.is_floating(f.type)]
    table = table.select(names)
    whole = table
    for name in names:
        if kinds.is_floating(table.schema.field(name).type):
            whole = whole.filter(pc.is_finite(whole[name]))
        else:
            whole = whole.filter(pc.is_valid(whole[name]))
    if len(whole) < len(table):
        console.print(f"{len(table) - len(whole):,} of {len(table):,} rows lack a value and are left out.")
    return whole


def _plain(one: Discovery) -> dict[str, Any]:
    rule = asdict(one.rule)
    figures = {"support": one.support, "agreement": one.confidence, "tightness": one.tightness}
    return rule | figures


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise JobError(f"{out} cannot be written: {error}") from error


def _described(found: list[Discovery]) -> Table:
    table = Table("rule", "support", "confidence", "tightness")
    for one in found:
        table.add_row(str(one.rule), f"{one.support:.3g}", f"{one.confidence:.3f}", f"{one.tightness:.3g}")
    return table


def _scores(repository: Repository) -> Table:
    """Imputers by how they fill a tenth of the rows, which they have not seen, in the order of the file."""
    import numpy as np
    import pyarrow as pa

    from appulse.imputation.choosing import AutoImputer
    from appulse.imputation.repository import Repository
    from appulse.imputation.scores import mask, scored

    names = repository.names
    rows = repository.matrix(names).T
    out = np.arange(len(rows)) % 10 == 5
    seen = Repository(pa.table(dict(zip(names, rows[~out].T, strict=True))))
    truth, seconds = rows[out], np.flatnonzero(out) * 1_000_000
    masked = mask(truth, 0.5, 1, 0)
    table = Table("imputer", "CRPS", "error", "calibration", "values")
    for name, make in AutoImputer(seen).candidates(names, seen).items():
        found = scored(make(), names, truth, masked, seconds)
        table.add_row(name, f"{found.crps:.4f}", f"{found.error:.4f}", f"{found.calibration:.4f}", f"{found.holes:,}")
    return table
