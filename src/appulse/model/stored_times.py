"""How files of results have times: whole, in microseconds, those with a zone in UTC. All engines write them so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["as_stored", "with_times"]


def as_stored(schema: pa.Schema) -> pa.Schema:
    """The schema with times as files have them. Nanoseconds stay, as other units would lose digits."""
    return with_times(schema, _in_micros)


def with_times(schema: pa.Schema, of: Callable[[Any], pa.DataType]) -> pa.Schema:
    """The schema with another type ``of`` each type of times, also within lists, structs and maps."""
    return pa.schema([_changed(field, of) for field in schema], metadata=schema.metadata)


def _in_micros(kind: Any) -> pa.DataType:
    return pa.timestamp("ns" if kind.unit == "ns" else "us", None if kind.tz is None else "UTC")


def _changed(field: pa.Field, of: Callable[[Any], pa.DataType]) -> pa.Field:
    kind: Any = field.type
    if pa.types.is_timestamp(kind):
        return field.with_type(of(kind))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_changed(kind.key_field, of), _changed(kind.item_field, of)))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_changed(one, of) for one in kind.fields]))
    if pa.types.is_fixed_size_list(kind):
        return field.with_type(pa.list_(_changed(kind.value_field, of), kind.list_size))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_changed(kind.value_field, of)))
    if pa.types.is_large_list(kind):
        return field.with_type(pa.large_list(_changed(kind.value_field, of)))
    return field
