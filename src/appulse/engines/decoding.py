"""Messages decoded as rows, the same way on each engine: a JSON object each, with values of their columns' types."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from decimal import Decimal, InvalidOperation
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.json as pj

from appulse.errors import BadArgument
from appulse.model.defects import UNDECODED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["MESSAGE", "check_readable", "decoded", "fitting", "read_each", "read_json"]

#: A message that could not be decoded, and why.
MESSAGE = pa.struct(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "payload": pa.string(),
        "base64": pa.bool_(),
        "detail": pa.string(),
    }
)
_NOTHING = b"{}"
_TOO_FINE = re.compile(r"(\.\d{6})\d+")  # what sensors send of a nanosecond
_BLOCK = 1 << 20  # bytes, of which a message needs to be within one


def check_readable(schema: pa.Schema) -> None:
    """Raise `BadArgument` for columns that JSON is not read into."""
    try:
        _rows([_NOTHING], schema)
    except pa.ArrowNotImplementedError as error:
        raise BadArgument(f"The schema of messages has a column that is not read from JSON: {error}") from error


def decoded(messages: pa.Table, schema: pa.Schema) -> pa.Table:
    """A row for each message, with `UNDECODED`: null, or the message where it is no row of the ``schema``."""
    payloads = messages["value"].to_pylist()
    rows, why = read_each(payloads, schema)
    places = messages.select(["topic", "partition", "offset"]).take(pa.array(sorted(why), pa.int64())).to_pylist()
    bad: list[dict[str, Any] | None] = [None] * len(payloads)
    for place, i in zip(places, sorted(why), strict=True):
        where = ", ".join(f"{name} {value}" for name, value in place.items())
        bad[i] = {**place, **_shown(payloads[i]), "detail": f"{where}: the message {why[i]}"}
    return rows.append_column(UNDECODED, pa.array(bad, MESSAGE))


def read_each(
    payloads: Sequence[bytes], schema: pa.Schema, *, as_text: bool = False
) -> tuple[pa.Table, dict[int, str]]:
    """A row for each JSON object, of nulls where it is none of the ``schema``, and by its number why it is none.

    ``as_text`` is whether a number, say, is taken as text where the schema has text, as Spark takes it.
    """
    exact = _exact if any(_has_decimals(kind) for kind in schema.types) else None
    lines, why = [], {}
    for i, payload in enumerate(payloads):
        try:
            lines.append(_line(payload, schema, exact, as_text=as_text))
        except (ValueError, TypeError, RecursionError) as error:
            lines.append(_NOTHING)
            why[i] = f"cannot be read: {error}"
    return fitting(lines, schema, lambda some: _rows(some, schema), why), why


def _exact(number: str) -> Decimal | float:
    try:
        return Decimal(number)
    except InvalidOperation:  # its exponent has too many digits
        return float(number)


def _has_decimals(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) or any(_has_decimals(kind.field(i).type) for i in range(kind.num_fields))


def _line(
    payload: bytes, schema: pa.Schema, parse_float: Callable[[str], Any] | None, *, as_text: bool = False
) -> bytes:
    """A message on one line; raises `ValueError` or `TypeError` if it is no JSON object, or has bytes not as base64."""
    found = json.loads(payload.decode(), parse_float=parse_float)
    if not isinstance(found, dict):
        raise TypeError("it is not a JSON object")
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name in found:
            found[name] = _fit_for(found[name], kind, as_text=as_text)
    return json.dumps(found, default=float).encode()


def _fit_for(given: Any, kind: pa.DataType, *, as_text: bool) -> Any:
    """A value as Arrow reads it into a type: times without nanoseconds, decimals as text, with all digits."""
    if isinstance(given, dict) and pa.types.is_struct(kind):
        own = {f.name: _fit_for(given[f.name], f.type, as_text=as_text) for f in kind if f.name in given}
        return given | own
    if isinstance(given, list) and pa.types.is_list(kind):
        return [_fit_for(one, kind.value_type, as_text=as_text) for one in given]
    if as_text and pa.types.is_string(kind) and not (given is None or isinstance(given, str)):
        return json.dumps(given, ensure_ascii=False, separators=(",", ":"), default=float)
    if isinstance(given, Decimal) and pa.types.is_decimal(kind):
        return str(given)
    if isinstance(given, str) and pa.types.is_timestamp(kind):
        return _TOO_FINE.sub(r"\1", given)
    if isinstance(given, str) and pa.types.is_binary(kind):
        b64decode(given, validate=True)
    return given


def fitting(
    lines: Sequence[bytes], schema: pa.Schema, read: Callable[[Sequence[bytes]], pa.Table], why: dict[int, str]
) -> pa.Table:
    """What ``read`` makes of lines, with a row of nulls for those that do not fit, which are named in ``why``."""

    def among(first: int, end: int) -> list[pa.Table]:
        if first == end:
            return []
        try:
            return [read(lines[first:end])]
        except pa.ArrowInvalid as error:
            if end - first == 1:
                why[first] = f"does not fit: {error}"
                return [pa.table([pa.nulls(1, kind) for kind in schema.types], schema=schema)]
        half = (first + end) // 2
        return [*among(first, half), *among(half, end)]

    return pa.concat_tables([schema.empty_table(), *among(0, len(lines))]).combine_chunks()


def _rows(lines: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    return read_json(b"\n".join(lines), schema, block=max(_BLOCK, *map(len, lines)) + 1)


def read_json(data: bytes, schema: pa.Schema, *, block: int = _BLOCK, threads: bool = False) -> pa.Table:
    """The rows of JSON objects one after the other, each within a block of bytes; raises `pyarrow.ArrowInvalid`."""
    read = [(field.name, _as_text(field.type, pa.types.is_date, pa.types.is_binary)) for field in schema]
    found: pa.Table = pj.read_json(
        BytesIO(data),
        read_options=pj.ReadOptions(block_size=block, use_threads=threads),
        parse_options=pj.ParseOptions(explicit_schema=pa.schema(read), unexpected_field_behavior="ignore"),
    )
    return pa.table([_of_type(found[field.name], field.type) for field in schema], schema=schema)


def _as_text(kind: pa.DataType, *which: Callable[[pa.DataType], bool]) -> pa.DataType:
    """A type with text in place of some, also within others."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _as_text(field.type, *which)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_as_text(kind.value_type, *which))
    return pa.string() if any(one(kind) for one in which) else kind


def _of_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """A column in its type, where it was read as text: bytes are base64, as in JSON of Spark."""
    dated = column.cast(_as_text(kind, pa.types.is_binary))
    return dated if dated.type == kind else pa.array([_with_bytes(one, kind) for one in dated.to_pylist()], kind)


def _with_bytes(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _with_bytes(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_with_bytes(one, kind.value_type) for one in value]
    return b64decode(value) if pa.types.is_binary(kind) else value


def _shown(payload: bytes) -> dict[str, Any]:
    """A payload: text as it is, other bytes as base64."""
    try:
        return {"payload": payload.decode(), "base64": False}
    except ValueError:
        return {"payload": b64encode(payload).decode(), "base64": True}
