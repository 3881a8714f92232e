"""The stage of operators over readings, one bucket at a time: it waits for ticks to be complete, and answers them.

The log has the readings that came, and with each micro-batch what the operator says of itself beyond them. Readings
leave it by time, for windows are of time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from appulse.engines.spark.codec import pack_arrays, unpack_arrays
from appulse.engines.spark.readings_codec import pack_readings, unpack_readings
from appulse.engines.spark.state import NO_TIMER, Cached, TileState, blocks_of
from appulse.engines.spark.ticks import armed, bucket_clock, clock_arrays, complete_before, set_clock
from appulse.engines.spark.tile_join import ANSWERS, END, REJECTS, by_tag, metrics_blob, read_table, table_bytes
from appulse.errors import bad_rows
from appulse.model.readings import late_readings
from appulse.operators.numbering import END as ALL
from appulse.operators.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from appulse.engines.readings import Operator, ReadingsCall
    from appulse.model.readings import Readings
    from appulse.windows.clock import Clock

READINGS = b"a"
_STEP = b"S"


@dataclass
class Bucket:
    """The state of some values, or groups: what waits, what windows hold, and how far the readings have come."""

    call: ReadingsCall
    operator: Operator = field(init=False)
    clock: Clock = field(init=False)
    waiting: Waiting = field(default_factory=Waiting)

    def __post_init__(self) -> None:
        self.operator = self.call.operator()
        self.clock = bucket_clock(self.call)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.operator.nbytes + 64 * len(self.waiting)

    def release(self, complete: int) -> list[Readings]:
        """The readings of ticks before ``complete``."""
        return self.waiting.release(None if complete == ALL else complete)

    def step(self, complete: int) -> bytes:
        """What a delta says beside the readings that came."""
        numbers = np.array([complete, *clock_arrays(self.clock)], np.int64)
        return _STEP + pack_arrays({"step": numbers, **self.operator.standing()})

    def apply(self, payload: bytes) -> None:
        """Take in a delta of the log."""
        given = by_tag(blocks_of(payload))
        for block in given[READINGS]:
            self.waiting.hold(unpack_readings(block))
        arrays = unpack_arrays(given[_STEP][0][1:])
        complete, *clock = arrays.pop("step").tolist()
        set_clock(self.clock, clock)
        self.operator.apply(self.release(complete))
        self.operator.restore(arrays)


@dataclass(frozen=True)
class ReadingsStage:
    """What every bucket of a query does."""

    call: ReadingsCall

    def answer(
        self, key: int, blobs: list[bytes], limit: int | None, state: TileState, arm: Callable[[int], None]
    ) -> list[bytes]:
        """Take in a micro-batch's blocks, and answer what they complete. ``limit`` is Spark's watermark."""
        begun = time.perf_counter()
        given = by_tag(blobs)
        cached, timer = state.load(key, self._fresh, Bucket.apply)
        bucket: Bucket = cached.operator
        came, late = self._admitted(given[READINGS], bucket.clock, limit)
        for readings in came:
            bucket.clock.see(0, readings)
            bucket.waiting.hold(readings)
        complete = complete_before(self.call, bucket.clock, limit, ended=bool(given[END]))
        answers = self._answers(bucket.operator, bucket.release(complete))
        timer = armed(bucket.waiting.due, timer, limit, arm)
        newest = max((int(readings.time.max()) for readings in came), default=complete)
        blocks = [bucket.step(complete), *map(pack_readings, came)]
        written = self._save(key, cached, blocks, min(newest, _MOST), complete, timer, state)
        out = given[REJECTS] + [table_bytes(REJECTS, table) for table in late]
        figures = {
            "tile": -1 - key,
            "rows": sum(map(_own, came)),
            "newest": bucket.clock.now or 0,
            "late": sum(map(len, late)),
            "rejected": sum(len(read_table(blob)) for blob in out),
            "answers": sum(map(len, answers)),
            "state_rows": len(bucket.operator) + len(bucket.waiting),
            "state_bytes": bucket.nbytes,
            "state_bytes_read": state.bytes_read,
            "state_bytes_written": written,
            "seconds": time.perf_counter() - begun,
        }
        return [*out, *(table_bytes(ANSWERS, table) for table in answers), metrics_blob(**figures)]

    def expire(self, key: int, limit: int | None, state: TileState, arm: Callable[[int], None]) -> list[bytes]:
        """Without readings: answer what Spark's watermark says is complete."""
        cached, _ = state.load(key, self._fresh, Bucket.apply)
        bucket: Bucket = cached.operator
        complete = complete_before(self.call, bucket.clock, limit, ended=False)
        answers = self._answers(bucket.operator, bucket.release(complete))
        timer = armed(bucket.waiting.due, NO_TIMER, limit, arm)
        self._save(key, cached, [bucket.step(complete)], complete, complete, timer, state)
        figures = metrics_blob(tile=-1 - key, answers=sum(map(len, answers)))
        return [*(table_bytes(ANSWERS, table) for table in answers), figures]

    def at_once(self, blobs: list[bytes]) -> list[pa.Table]:
        """Answer all there is: a batch query, in which every tick is complete."""
        parts = list(map(unpack_readings, by_tag(blobs)[READINGS]))
        return self._answers(self.call.operator(), parts)

    def _answers(self, operator: Operator, parts: list[Readings]) -> list[pa.Table]:
        operator.output = self.call.stage_output
        return list(self.call.tables(operator.push(parts)))

    def _fresh(self) -> Bucket:
        return Bucket(self.call)

    def _admitted(self, blobs: list[bytes], clock: Clock, limit: int | None) -> tuple[list[Readings], list[pa.Table]]:
        """Readings that came in time, and rejects for the others, each told by the bucket that would answer it."""
        known = [time for time in (limit, clock.frontier) if time is not None]
        came, late = [], []
        for blob in blobs:
            readings = unpack_readings(blob)
            if known and (readings.time < max(known)).any():
                behind = readings.time < max(known)
                told = np.flatnonzero(behind if readings.asks is None else behind & readings.asks)
                if len(told):
                    late.append(late_readings(readings.take(told), max(known), self.call.encoding))
                    if self.call.on_reject == "fail":
                        raise bad_rows(len(told), late[-1].slice(0, 1).to_pylist()[0])
                readings = readings.take(np.flatnonzero(~behind))
            if len(readings):
                came.append(readings)
        return came, late

    @staticmethod
    def _save(
        key: int, cached: Cached, blocks: list[bytes], newest: int, complete: int, timer: int, state: TileState
    ) -> int:
        bucket: Bucket = cached.operator
        before = min(complete, _MOST) - bucket.operator.span
        bucket.operator.forget(before)
        state.trim(cached, before)
        return state.save(key, cached, blocks, newest, timer)


# Times stay below this; the end of all ticks does not fit Spark's long once windows are added.
_MOST = 1 << 62


def _own(readings: Readings) -> int:
    return len(readings) if readings.asks is None else int(readings.asks.sum())
