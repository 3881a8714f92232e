"""Rows as JSON and CSV, with each value as Spark writes it."""

from __future__ import annotations

import json
from base64 import b64encode
from json.encoder import encode_basestring
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from appulse.errors import StorageError
from appulse.model.columns import chunk, is_bytes, is_text, single_digits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["for_csv", "json_lines"]

_Texts: TypeAlias = list[str | None]


def json_lines(rows: pa.RecordBatch) -> list[str]:
    """Each row as a JSON object, without what is null: times in ISO 8601, bytes in base64, ``NaN`` as a text."""
    return [_object(row) for row in zip(*_fields(rows.schema.names, map(_plain, rows.columns)), strict=True)]


def for_csv(rows: pa.Table) -> pa.Table:
    """Rows with columns that Arrow writes as CSV; raises `StorageError` for lists and the like."""
    return pa.table([_csv_column(name, rows[name]) for name in rows.column_names], rows.column_names)


def _csv_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    array = _plain(column.combine_chunks())
    kind = array.type
    if pa.types.is_nested(kind):
        raise StorageError(
            f"The column {name} is {kind}, for which CSV has no form. Give the sink format = "
            "'parquet' or 'json', and go on from the same checkpoint."
        )
    if pa.types.is_timestamp(kind):
        return _times(array)
    if is_bytes(kind):
        return pa.array([None if value is None else f"[{value.hex(' ').upper()}]" for value in array.to_pylist()])
    if pa.types.is_floating(kind) and pc.all(pc.is_finite(array)).as_py() is False:
        return pa.array([None if text is None else text.strip('"') for text in _texts(array)], pa.string())
    known = pa.types.is_primitive(kind) or is_text(kind)
    return array if known else pa.array(_each(array, str), pa.string())


def _plain(column: pa.Array) -> pa.Array:
    """Values as they are, not by their places among others."""
    array = chunk(column)
    array = array.storage if isinstance(array, pa.ExtensionArray) else array
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _texts(column: pa.Array) -> _Texts:
    """Each value as JSON, None where it is null."""
    column = _plain(column)
    kind = column.type
    if pa.types.is_struct(kind):
        return _structs(column)
    if pa.types.is_map(kind):
        return _maps(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(column)
    if pa.types.is_timestamp(kind):
        return _each(_times(column), '"{}"'.format)
    if pa.types.is_date(kind):
        return _each(column.cast(pa.date32()).cast(pa.string()), '"{}"'.format)
    if pa.types.is_float32(kind) or pa.types.is_float16(kind):
        return _singles(column)
    return _each(column, _said_by(kind))


def _said_by(kind: pa.DataType) -> Callable[[Any], str]:
    if pa.types.is_float64(kind):
        return lambda value: repr(value) if isfinite(value) else _special(value)
    if pa.types.is_boolean(kind):
        return lambda value: "true" if value else "false"
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return str
    if is_text(kind):
        return encode_basestring
    if is_bytes(kind):
        return lambda value: f'"{b64encode(value).decode()}"'
    return lambda value: json.dumps(str(value))


def _each(column: pa.Array, said: Callable[[Any], str]) -> _Texts:
    return [None if value is None else said(value) for value in column.to_pylist()]


def _special(value: float) -> str:
    return '"NaN"' if isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _singles(column: pa.Array) -> _Texts:
    every = zip(column.to_pylist(), single_digits(column), strict=True)
    return [None if value is None else text if isfinite(value) else _special(value) for value, text in every]


def _structs(column: pa.StructArray) -> _Texts:
    there = column.is_valid().to_pylist()
    if not column.type.num_fields:
        return ["{}" if one else None for one in there]
    rows = zip(*_fields([field.name for field in column.type], column.flatten()), strict=True)
    return [_object(row) if one else None for row, one in zip(rows, there, strict=True)]


def _fields(names: Iterable[str], columns: Iterable[pa.Array]) -> list[_Texts]:
    """The members of objects, column by column."""
    found = []
    for name, column in zip(names, columns, strict=True):
        begin = f"{encode_basestring(name)}:"
        found.append([None if text is None else begin + text for text in _texts(column)])
    return found


def _object(members: Iterable[str | None]) -> str:
    return "{" + ",".join(filter(None, members)) + "}"


def _lists(column: pa.Array) -> _Texts:
    every = iter(_texts(column.flatten()))
    lengths = pc.list_value_length(column).to_pylist()
    return [None if n is None else f"[{','.join(next(every) or 'null' for _ in range(n))}]" for n in lengths]


def _maps(column: pa.MapArray) -> _Texts:
    """Maps as objects, whose names are the keys: times and dates as the numbers that Spark holds."""
    offsets = column.offsets.to_pylist()
    first = offsets[0]
    keys, values = (part.slice(first, offsets[-1] - first) for part in (column.keys, column.items))
    if pa.types.is_timestamp(keys.type):
        keys = keys.cast(pa.timestamp("us", keys.type.tz), safe=False).cast(pa.int64())
    elif pa.types.is_date(keys.type):
        keys = keys.cast(pa.date32()).cast(pa.int32())
    names = [text if text.startswith('"') else f'"{text}"' for text in map(str, _texts(keys))]
    every = [f"{name}:{value or 'null'}" for name, value in zip(names, _texts(values), strict=True)]
    parts = zip(offsets, offsets[1:], column.is_valid().to_pylist(), strict=False)
    return ["{" + ",".join(every[begin - first : end - first]) + "}" if there else None for begin, end, there in parts]


def _times(column: pa.Array) -> pa.Array:
    """Times as text, whole, in UTC: ``2026-05-04T09:00:30.123456Z``, without ``Z`` if they have no zone."""
    kind = column.type
    unit = "ns" if kind.unit == "ns" else "us"
    plain = column.cast(pa.timestamp(unit, kind.tz)).cast(pa.int64()).cast(pa.timestamp(unit))
    text = pc.strftime(plain, "%Y-%m-%dT%H:%M:%S")  # with the digits of the unit
    return text if kind.tz is None else pc.binary_join_element_wise(text, "Z", "")
