"""Standing queries of a job: conditions in the file, or in one of their own; and how files of them are read.

Conditions are read by the parser of conditions, and nothing else is done with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pyarrow as pa
from pydantic import BeforeValidator, Field, model_validator

from appulse.errors import BadArgument, JobError, nearest
from appulse.jobs.fields import CallTable, Number, Place, Text
from appulse.jobs.regions import GEOJSON, GEOMETRY, TABLES, ending_of, read_fences, read_table
from appulse.jobs.sources import DataTable
from appulse.jobs.windows import WindowTable, as_window
from appulse.model.regions import QUERY, REGION
from appulse.windows.definitions import CountWindow, TimeWindow

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["QueriesTable", "conditions", "ending_of", "read_queries", "read_table"]

# What in SQL may hold a `;` that ends nothing, and the `;` that does.
_HOLDS_OR_ENDS = re.compile(r"--[^\n]*|/\*.*?\*/|'[^']*'|\"[^\"]*\"|`[^`]*`|;", re.DOTALL)
_LINE = re.compile(r"^[^\S\n]*(?!--|\s).*$", re.MULTILINE)
_REST_OF_LINE = re.compile(r"[^\S\n]*--[^\n]*")
_COLUMN = Annotated[list[Text], Field(min_length=2, max_length=2)]


class ChangesTable(DataTable):
    """Queries that are a stream: files with the columns ``query``, ``condition`` and ``change``."""


class QueriesTable(CallTable):
    """The arguments of `appulse.match_queries`."""

    _apart = ("conditions", "path", "changes")

    conditions: dict[str, Text] | None = None
    path: Place | None = None
    changes: ChangesTable | None = None
    probability: Annotated[Number, Field(gt=0, le=1)] | None = None
    window: Annotated[WindowTable | None, BeforeValidator(as_window)] = None
    aggregate: Annotated[dict[str, Literal["count"] | _COLUMN], Field(min_length=1)] | None = None
    emit: Literal["matches", "changes"] = "matches"

    @model_validator(mode="after")
    def _has_queries_once(self) -> QueriesTable:
        given = [name for name in ("conditions", "path", "changes") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"has {' and '.join(given) or 'no queries'}. Give one of: conditions, a table of names and texts; "
                "path, a .sql, .csv, .parquet or .geojson file; changes, files that are a stream."
            )
        if self.window is not None and not isinstance(self.window.build(), TimeWindow | CountWindow):
            raise ValueError("window is one of time or count, for queries that have none of their own.")
        if self.path is not None:
            ending_of(Path(self.path), (*TABLES, *GEOJSON, ".sql"))
        return self

    def queries(self, place: Callable[[str], str]) -> pa.Table:
        """The queries, where they are no stream."""
        if self.conditions is not None:
            return _table_of(list(self.conditions.items()))
        return read_queries(Path(place(self.path or "")))

    def settings(self) -> dict[str, Any]:
        asked = {n: how if isinstance(how, str) else tuple(how) for n, how in (self.aggregate or {}).items()}
        return super().settings() | {"aggregate": asked or None}


def read_queries(file: Path, name: str = QUERY) -> pa.Table:
    """The queries of a .sql, .csv, .parquet or .geojson file; ``name`` is the column or property that names them."""
    ending = ending_of(file, (*TABLES, *GEOJSON, ".sql"))
    if ending in GEOJSON:
        return read_fences(file, name)
    if ending != ".sql":
        table = read_table(file, ("condition", "select", "change", REGION))
        known = table.column_names
        if name not in known and name != QUERY:
            raise BadArgument(f"{file} has no column {name!r}.{nearest(name, known)}")
        if name != QUERY and QUERY in known:
            raise BadArgument(f"{file} has a column {QUERY!r} beside {name!r}. Leave --query out, or that column.")
        renamed = {name: QUERY} | ({} if REGION in known else {GEOMETRY: REGION})
        # Arrow forgets the metadata as it renames, and those of GeoParquet say what edges are.
        renaming = table.rename_columns([renamed.get(one, one) for one in known])
        return renaming.replace_schema_metadata(table.schema.metadata)
    try:
        found = list(conditions(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{file} cannot be read: {error}") from error
    names = [name for name, _ in found]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise BadArgument(f"{file} names two conditions {twice[0]!r}. Give each a name of its own: -- name, above it.")
    return _table_of(found)


def conditions(text: str) -> Iterator[tuple[str, str]]:
    """The conditions of a SQL file, each with its name.

    They end with ``;`` if there is any, else with their lines. The line above, ``-- name``, names a condition; else its
    number does, from 1.
    """
    ends = [piece.span() for piece in _HOLDS_OR_ENDS.finditer(text) if piece[0] == ";"]
    ends = ends or [(line.end(), line.end()) for line in _LINE.finditer(text)]
    begin = number = 0
    for end, following in [*ends, (len(text), len(text))]:
        part, begin = text[begin:end], following
        if rest := _REST_OF_LINE.match(part):  # a comment on what went before
            part = part[rest.end() :] if number else part
        name, lines = None, part.split("\n")
        while lines and (not lines[0].strip() or lines[0].lstrip().startswith("--")):
            name = lines.pop(0).strip().lstrip("-").strip() or None
        if lines:
            number += 1
            yield name or str(number), "\n".join(lines).strip()


def _table_of(named: list[tuple[str, str]]) -> pa.Table:
    columns = {"query": [name for name, _ in named], "condition": [text for _, text in named]}
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
