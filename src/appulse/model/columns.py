"""Columns of a user's table: as one array, as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
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
