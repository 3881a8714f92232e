"""Messages decoded as rows, the same way on each engine: a JSON object each, with values of their columns' types."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.json as pj

from appulse.errors import BadArgument
from appulse.model.defects import UNDECODED

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MESSAGE", "check_readable", "decoded"]

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
    lines, why = [], {}
    for i, payload in enumerate(payloads):
        try:
            lines.append(_line(payload, schema))
        except (ValueError, TypeError, RecursionError) as error:
            lines.append(_NOTHING)
            why[i] = f"the message cannot be read: {error}"
    rows = pa.concat_tables([schema.empty_table(), *_fitting(lines, schema, 0, why)])
    places = messages.select(["topic", "partition", "offset"]).take(pa.array(sorted(why), pa.int64())).to_pylist()
    bad: list[dict[str, Any] | None] = [None] * len(payloads)
    for place, i in zip(places, sorted(why), strict=True):
        where = ", ".join(f"{name} {value}" for name, value in place.items())
        bad[i] = {**place, **_shown(payloads[i]), "detail": f"{where}: {why[i]}"}
    return rows.append_column(UNDECODED, pa.array(bad, MESSAGE))


def _line(payload: bytes, schema: pa.Schema) -> bytes:
    """A message on one line; raises `ValueError` or `TypeError` if it is no JSON object, or has bytes not as base64."""
    found = json.loads(payload.decode())
    if not isinstance(found, dict):
        raise TypeError("it is no JSON object")
    for name, kind in zip(schema.names, schema.types, strict=True):
        if isinstance(given := found.get(name), str):
            if pa.types.is_timestamp(kind):
                found[name] = _TOO_FINE.sub(r"\1", given)
            elif pa.types.is_binary(kind):
                b64decode(given, validate=True)
    return json.dumps(found).encode()


def _fitting(lines: Sequence[bytes], schema: pa.Schema, first: int, why: dict[int, str]) -> list[pa.Table]:
    """Lines as rows, with a row of nulls for those that do not fit, which are named in ``why``."""
    if not lines:
        return []
    try:
        return [_rows(lines, schema)]
    except pa.ArrowInvalid as error:
        if len(lines) == 1:
            why[first] = f"the message does not fit: {error}"
            return [_rows([_NOTHING], schema)]
    half = len(lines) // 2
    return [*_fitting(lines[:half], schema, first, why), *_fitting(lines[half:], schema, first + half, why)]


def _rows(lines: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    block = max(_BLOCK, *map(len, lines)) + 1
    as_text = [pa.string() if pa.types.is_date(kind) or pa.types.is_binary(kind) else kind for kind in schema.types]
    found: pa.Table = pj.read_json(
        BytesIO(b"\n".join(lines)),
        read_options=pj.ReadOptions(block_size=block),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema(list(zip(schema.names, as_text, strict=True))), unexpected_field_behavior="ignore"
        ),
    )
    return pa.table([_of_type(found[field.name], field.type) for field in schema], schema=schema)


def _of_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """A column in its type, where it was read as text: bytes are base64, as in JSON of Spark."""
    if pa.types.is_binary(kind):
        return pa.array([None if text is None else b64decode(text) for text in column.to_pylist()], kind)
    return column.cast(kind)


def _shown(payload: bytes) -> dict[str, Any]:
    """A payload: text as it is, other bytes as base64."""
    try:
        return {"payload": payload.decode(), "base64": False}
    except ValueError:
        return {"payload": b64encode(payload).decode(), "base64": True}
