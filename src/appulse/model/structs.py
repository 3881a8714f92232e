"""Samples as lists of structs: how operators put out distributions, and pairs of samples, to be streams again.

A struct is one sample: its numbers, and the lists of numbers in it, are the coordinates in order; a field ``weight``
or ``probability`` is its weight.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.errors import BadArgument
from appulse.model.columns import floats, lengths, nulls
from appulse.model.times import is_number

if TYPE_CHECKING:
    from appulse.model.uncertainty import Samples

_WEIGHTS = ("weight", "probability")


def is_samples(kind: pa.DataType) -> bool:
    """Whether this is a list of structs."""
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(listed and pa.types.is_struct(kind.value_type))


def check(kind: pa.DataType, model: Samples, stream: str) -> None:
    """Raise `BadArgument` where structs hold what is no sample."""
    odd = [f.name for f in kind.value_type if not (is_number(f.type) or _is_list_of_numbers(f.type))]
    if odd or not _coordinate_fields(kind.value_type):
        raise BadArgument(
            f"Samples({model.column!r}) of stream {stream!r} is {kind}. Its structs need numbers or lists of numbers, "
            "and a field 'weight' or 'probability' if they weigh differently."
        )
    if model.weights is not None and _weight_field(kind.value_type) is not None:
        raise BadArgument(
            f"Samples({model.column!r}, weights={model.weights!r}) of stream {stream!r} has weights in its structs, "
            "too. Leave out weights=."
        )


def dimensions(kind: pa.DataType) -> int | None:
    """Number of coordinates of a struct, where its type alone shows it."""
    fields = _coordinate_fields(kind.value_type)
    return len(fields) if all(is_number(field.type) for field in fields) else None


def opened(table: pa.Table, model: Samples) -> tuple[pa.Table, Samples]:
    """The table with samples and weights as lists of their own, and the model that reads them."""
    column = table[model.column].combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    at = table.schema.get_field_index(model.column)
    weight = _weight_field(column.type.value_type)
    if weight is not None:
        name = f"{model.column}.{weight}"
        given = pc.struct_field(column.flatten(), weight)
        weights = _like(column, pa.array(floats(given), mask=nulls(given)))
        table, model = table.append_column(name, weights), replace(model, weights=name)
    return table.set_column(at, model.column, coordinates(column)), model


def coordinates(column: Any) -> pa.Array:
    """The coordinates of each struct of a list column, as lists of lists."""
    samples = column.flatten()
    n = len(samples)
    widths, parts = [], []
    for field in _coordinate_fields(column.type.value_type):
        values = pc.struct_field(samples, field.name)
        if is_number(field.type):
            widths.append(np.ones(n, np.int64))
            parts.append(floats(values))
        else:
            widths.append(lengths(values))
            parts.append(floats(values.flatten()))
    total = np.sum(widths, axis=0)
    offsets = np.concatenate([[0], np.cumsum(total)])
    flat, begin = np.empty(int(offsets[-1])), offsets[:-1].copy()
    for width, part in zip(widths, parts, strict=True):
        first = np.concatenate([[0], np.cumsum(width)])
        flat[np.repeat(begin - first[:-1], width) + np.arange(int(first[-1]))] = part
        begin += width
    return _like(column, pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(flat)))


def _like(column: Any, values: pa.Array) -> pa.Array:
    """A list column with the lengths and nulls of another, over other values."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths(column))]), pa.int64())
    return pa.LargeListArray.from_arrays(offsets, values, mask=column.is_null())


def _weight_field(struct: Any) -> str | None:
    named = [field.name for field in struct if field.name in _WEIGHTS]
    return named[0] if named and len(struct) > 1 else None


def _coordinate_fields(struct: Any) -> list[Any]:
    weight = _weight_field(struct)
    return [field for field in struct if field.name != weight]


def _is_list_of_numbers(kind: pa.DataType) -> bool:
    return bool((pa.types.is_list(kind) or pa.types.is_large_list(kind)) and is_number(kind.value_type))
