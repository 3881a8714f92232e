"""Tables, schemas and Spark frames as HTML in notebooks: ``%load_ext appulse``."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["frame_html", "register", "schema_html", "table_html"]

MOST_ROWS = 10
_SPARK = ("pyspark.sql.classic.dataframe", "pyspark.sql.connect.dataframe")


def register(shell: Any) -> None:
    """Have a shell of IPython show tables, schemas and Spark frames as HTML."""
    html = shell.display_formatter.formatters["text/html"]
    html.for_type(pa.Table, table_html)
    html.for_type(pa.Schema, schema_html)
    for module in _SPARK:
        html.for_type_by_name(module, "DataFrame", frame_html)


def table_html(table: pa.Table) -> str:
    """The first rows of a table, how many there are, and how many rows the call rejected."""
    head = table.slice(0, MOST_ROWS).to_pylist()
    names = table.column_names
    shown = _table(names, ([_cell(row[name]) for name in names] for row in head))
    more = f"{len(table):,} rows" + (f", the first {MOST_ROWS}" if len(table) > MOST_ROWS else "")
    return f"{shown}<p>{more}{_rejected(table)}</p>"


def schema_html(schema: pa.Schema) -> str:
    """The columns of a schema with their types."""
    return _table(["column", "type"], ([field.name, str(field.type)] for field in schema))


def frame_html(frame: Any) -> str:
    """The columns of a Spark frame; nothing is computed."""
    columns = _table(["column", "type"], ([field.name, field.dataType.simpleString()] for field in frame.schema))
    hint = (
        "a streaming frame: <code>ap.start</code> runs it" if frame.isStreaming else "<code>show()</code> computes it"
    )
    return f"{columns}<p>{hint}</p>"


def _rejected(table: pa.Table) -> str:
    from appulse.api.results import rejects
    from appulse.errors import BadArgument

    try:
        count = len(rejects(table))
    except BadArgument:  # the table of somebody else
        return ""
    return f", {count:,} rejects" + (": <code>ap.rejects(...)</code>" if count else "")


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
