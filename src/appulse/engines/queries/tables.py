"""Tables of queries and rows."""

from __future__ import annotations

import pyarrow as pa


def column_of(table: pa.Table, name: str) -> pa.Array:
    """A column in one piece."""
    column = table.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
