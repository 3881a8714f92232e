"""Messages of a broker as a source of a job in this process: JSON in their payloads, one object each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from appulse.connect.source import Taken, Unreadable
from appulse.engines.decoding import decoded
from appulse.model.defects import NOT_DECODED, UNDECODED, as_text

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
            rows = decoded(table, self._schema)
            good = pc.is_null(rows[UNDECODED])
            bad = rows[UNDECODED].filter(pc.invert(good)).to_pylist()
            unreadable = [Unreadable(NOT_DECODED, message["detail"], as_text(message)) for message in bad]
            offset = {"offset": end, "spool": self._reader.spool_id}
            return [Taken(self._stream, rows.filter(good).drop_columns([UNDECODED]), offset, unreadable)]
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
