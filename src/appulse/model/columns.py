"""Columns of a user's table: as one array, as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.arguments import shown
from appulse.errors import BadArgument, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if column.num_chunks
        else (pa.array([], column.type))
    )


def as_array(values: Sequence[Any], kind: pa.DataType | None, wrong: str) -> pa.Array:
    """What a user gave as a column of a type; a `BadArgument` that says what is ``wrong`` where Arrow cannot."""
    try:
        return pa.array(values, kind)
    except Exception as error:  # noqa: BLE001 - values of any type, and Arrow's errors are of many
        raise BadArgument(f"{wrong} ({type(error).__name__}: {error})") from None


def column(table: pa.Table, name: str, what: str) -> pa.Array:
    """A column of a user's frame; `BadArgument` if there is none."""
    if name not in table.column_names:
        raise BadArgument(f"{what} have no column {shown(name)}.{nearest(name, table.column_names)}")
    return chunk(table[name])


def number_column(table: pa.Table, name: str, what: str) -> NDArray[np.float64]:
    """A column of numbers of a user's frame, null as NaN; `BadArgument` if it is none."""
    found = column(table, name, what)
    if not is_numeric(found.type):
        raise BadArgument(f"Column {shown(name)} of the {what.lower()} is {found.type}. Give numbers.")
    return floats(found)


def floats(column: pa.ChunkedArray | pa.Array) -> NDArray[np.float64]:
    """As float64, null as NaN."""
    array = chunk(column)
    if pa.types.is_null(array.type):
        return np.full(len(array), np.nan)
    return np.asarray(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def is_numeric(kind: pa.DataType) -> bool:
    """Whether a column of this type holds numbers, or nothing at all."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    )


def without_views(table: pa.Table) -> pa.Table:
    """Text and bytes in the layouts that Arrow can pick rows from."""
    for i, field in enumerate(table.schema):
        if pa.types.is_string_view(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pa.large_string()))
        elif pa.types.is_binary_view(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pa.large_binary()))
    return table


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )
