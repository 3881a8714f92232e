"""Messages of a broker as a source of a job in this process: JSON in their payloads, one object each."""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.json as pj

from appulse.connect.source import Taken, Unreadable
from appulse.model.defects import NOT_DECODED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from appulse.api.mqtt import MqttReader

__all__ = ["Messages"]

_MOST = 10_000


class Messages:
    """What a reader of MQTT has, as rows with a schema; what cannot be decoded is kept apart."""

    def __init__(self, stream: str, reader: MqttReader, schema: pa.Schema, most: int | None) -> None:
        self._stream, self._reader, self._schema, self._most = stream, reader, schema, most or _MOST
        self._at = reader.begin

    @property
    def streams(self) -> Sequence[str]:
        """The name of its stream."""
        return (self._stream,)

    @property
    def ended(self) -> bool:
        """Sensors do not end."""
        return False

    @property
    def pending(self) -> bool:
        """Whether there are messages that have not been taken."""
        return self._reader.end > self._at

    def begin(self, offsets: Mapping[str, Any]) -> None:
        """Go on behind an offset, with what the broker has kept."""
        self._reader.backlog()
        self._at = int(offsets.get(self._stream, self._reader.begin))

    def take(self, wait: float) -> Sequence[Taken]:
        """The messages that have come."""
        for end, table in self._reader.batches(self._at, most=self._most, wait=wait):
            self._at = end
            rows, unreadable = decoded(table["value"].to_pylist(), self._schema)
            return [Taken(self._stream, rows, end, unreadable)]
        return []

    def settle(self, offsets: Mapping[str, Any]) -> None:
        """Messages up to here are safe."""
        if self._stream in offsets:
            self._reader.settle(int(offsets[self._stream]))

    def close(self) -> None:
        """The job has ended; the broker keeps what comes."""
        self._reader.close()


def decoded(payloads: Sequence[bytes], schema: pa.Schema) -> tuple[pa.Table, list[Unreadable]]:
    """Payloads as rows, and those that are no JSON object of such columns."""
    lines, unreadable = [], []
    for payload in payloads:
        try:
            found = json.loads(payload)
            if not isinstance(found, dict):
                raise TypeError(f"a {type(found).__name__}, and no object")  # noqa: TRY301 - one place for all
            lines.append(json.dumps(found).encode())
        except (ValueError, TypeError, RecursionError) as error:
            unreadable.append(Unreadable(NOT_DECODED, f"the message is no JSON: {error}", _text(payload)))
    try:
        return _rows(lines, schema), unreadable
    except pa.ArrowInvalid:  # one of them does not fit: which?
        good = []
        for line in lines:
            try:
                _rows([line], schema)
                good.append(line)
            except pa.ArrowInvalid as error:
                unreadable.append(Unreadable(NOT_DECODED, f"the message does not fit: {error}", _text(line)))
        return _rows(good, schema), unreadable


def _rows(lines: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    if not lines:
        return schema.empty_table()
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    found: pa.Table = pj.read_json(BytesIO(b"\n".join(lines)), parse_options=options)
    return found.select(schema.names)


def _text(payload: bytes) -> str:
    return payload.decode("utf-8", "backslashreplace")
