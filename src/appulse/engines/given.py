"""The columns that ``Stream(schema=)`` gives, of tables of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from appulse.engines.local import as_table
from appulse.errors import BadArgument, nearest
from appulse.model import ddl
from appulse.model.columns import is_list, is_text, plain_type
from appulse.model.defects import read_columns

if TYPE_CHECKING:
    from appulse.model.stream import Stream


def table_of(stream: Stream) -> pa.Table:
    """A stream's frame as a table, checked."""
    return as_given(as_table(stream.frame), stream)


def as_given(table: pa.Table, stream: Stream) -> pa.Table:
    """A table with the columns that its stream gives, if any; `BadArgument` where it has others."""
    if stream.schema is None:
        return table
    given, there = _arrow(stream.schema), table.schema
    for field in given:
        at = there.get_field_index(field.name)
        if at < 0:
            raise missing(stream, field.name, there.names)
        found = there.field(at).type
        if not pa.types.is_null(found) and _kind(found) != _kind(field.type):
            raise other(stream, field.name, str(field.type), str(found))
    names = read_columns(there.names, given.names)
    return table if names == there.names else table.select(names)


def missing(stream: Stream, column: str, there: list[str]) -> BadArgument:
    """A column is given and not there."""
    return BadArgument(
        f"{whose(stream)} schema= has a column {column!r}, which the frame has not.{nearest(column, there)}"
    )


def other(stream: Stream, column: str, given: str, found: str) -> BadArgument:
    """A column is of another type."""
    return BadArgument(
        f"{whose(stream)} schema= says that column {column!r} is {given}, and in the frame it is {found}. Correct "
        "one of them."
    )


def whose(stream: Stream) -> str:
    """How messages begin."""
    return f"Stream {stream.name or stream.key!r}:"


def _arrow(schema: Any) -> pa.Schema:
    if isinstance(schema, pa.Schema):
        return schema
    if isinstance(schema, str):
        return ddl.columns_of(schema)
    from appulse.engines.spark.tagged import arrow_schema  # one of Spark's own

    return arrow_schema(schema)


def _kind(kind: pa.DataType) -> pa.DataType:
    """The type without what Spark has no types for: large texts and lists, units of times, dictionaries."""
    kind = plain_type(kind)
    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type)
    if is_list(kind):
        return pa.list_(_kind(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _kind(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_kind(kind.key_type), _kind(kind.item_type))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if is_text(kind) and not pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return pa.date32() if pa.types.is_date(kind) else kind
