"""Messages of a broker as a source of a job in this process: JSON in their payloads, one object each."""

from __future__ import annotations

import json
import time
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
        self._at, self._until = reader.begin, -1  # where to end; -1: nowhere

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
        return (self._reader.end if self._until < 0 else self._until) > self._at

    def begin(self, offsets: Mapping[str, Any], *, once: bool = False) -> None:
        """Go on behind an offset; with ``once`` up to what the broker has kept, and no further."""
        if (place := self._place(offsets)) is not None:
            self._at = place["offset"]
            self._reader.check(self._at, place.get("spool"))
        if once:
            self._until = self._reader.backlog()

    def take(self, wait: float) -> Sequence[Taken]:
        """The messages that have come."""
        most = self._most if self._until < 0 else min(self._most, self._until - self._at)
        if most == 0:
            time.sleep(wait)
            return []
        for end, table in self._reader.batches(self._at, most=most, wait=wait):
            self._at = end
            rows, unreadable = decoded(table["value"].to_pylist(), self._schema)
            offset = {"offset": end, "spool": self._reader.spool_id}
            return [Taken(self._stream, rows, offset, unreadable)]
        return []

    def settle(self, offsets: Mapping[str, Any]) -> None:
        """Messages up to here are safe."""
        if (place := self._place(offsets)) is not None:
            self._reader.settle(place["offset"])

    def _place(self, offsets: Mapping[str, Any]) -> dict[str, Any] | None:
        """Where its stream is: an offset of a spool, whose name early checkpoints did not write down."""
        given = offsets.get(self._stream)
        return {"offset": given} if isinstance(given, int) else given

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
