"""The stage that aggregates, one bucket of groups at a time: it waits for ticks to be complete, and answers them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from appulse.engines.aggregate import AggregateCall, aggregate_table
from appulse.engines.spark.codec import pack_arrays, unpack, unpack_arrays
from appulse.engines.spark.routing import packed
from appulse.engines.spark.state import NO_TIMER, Cached, TileState, blocks_of, outgrown
from appulse.engines.spark.ticks import (
    admitted,
    armed,
    bucket_clock,
    clock_arrays,
    complete_before,
    set_clock,
)
from appulse.engines.spark.tile_join import ANSWERS, END, REJECTS, by_tag, metrics_blob, read_table, table_bytes
from appulse.model.objects import concat
from appulse.operators.output import Output
from appulse.operators.relational import AggregateState, WindowAggregate

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from appulse.windows.clock import Clock

_ROWS = b"a"
_STATE = b"S"
# The lanes of blocks in a log: rows that came, and rows that windows hold.
_CAME, _HELD = 0, 1
# A log may hold this much beside twice what it began with, before it is begun anew.
_SLACK = 1 << 18


@dataclass
class Bucket:
    """The state of some groups: what waits, what windows hold, and how far the stream has come."""

    call: AggregateCall
    operator: WindowAggregate = field(init=False)
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.operator = WindowAggregate(self.call.plan)
        self.clock = bucket_clock(self.call)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.operator.nbytes

    def step(self, complete: int, *, ended: bool) -> bytes:
        """What a delta says beside the blocks that came: all ticks before ``complete`` were there."""
        numbers = np.array([complete, ended, *clock_arrays(self.clock)], np.int64)
        return _STATE + pack_arrays({"step": numbers})

    def whole(self) -> list[bytes]:
        """All there is, as blocks for a delta."""
        state = self.operator.state()
        numbers = np.array([state.newest, *clock_arrays(self.clock)], np.int64)
        blocks = [_STATE + pack_arrays({"whole": numbers, **state.numbering})]
        for part in state.waiting:
            blocks += [block for block, _ in packed(part, 0, _CAME)]
        if state.held is not None:
            blocks += [block for block, _ in packed(state.held, 0, _HELD)]
        return blocks

    def apply(self, payload: bytes) -> None:
        """Take in a delta of the log."""
        self.take(blocks_of(payload))

    def take(self, blocks: list[bytes]) -> None:
        """Take in the blocks of a delta."""
        given = by_tag(blocks)
        arrays = unpack_arrays(given[_STATE][0][1:])
        rows = [(lane, objects) for _, lane, objects in map(unpack, given[_ROWS])]
        came = [objects for lane, objects in rows if lane == _CAME]
        if "step" in arrays:
            complete, ended, *clock = arrays["step"].tolist()
            set_clock(self.clock, clock)
            self.operator.apply(came, complete, ended=bool(ended))
            return
        newest, *clock = arrays.pop("whole").tolist()
        set_clock(self.clock, clock)
        held = [objects for lane, objects in rows if lane == _HELD]
        self.operator.restore(AggregateState(came, concat(held) if held else None, newest, arrays))


@dataclass(frozen=True)
class AggregateStage:
    """What every bucket of a query does."""

    call: AggregateCall

    def answer(
        self, key: int, blobs: list[bytes], limit: int | None, state: TileState, arm: Callable[[int], None]
    ) -> list[bytes]:
        """Take in a micro-batch's blocks, and answer what they complete. ``limit`` is Spark's watermark."""
        begun = time.perf_counter()
        given = by_tag(blobs)
        cached, timer = state.load(key, self._fresh, Bucket.apply)
        bucket: Bucket = cached.operator
        capped = bucket.operator.capped
        batches, late = admitted(given[_ROWS], self.call, bucket.clock, limit)
        ended = bool(given[END])
        complete = complete_before(self.call, bucket.clock, limit, ended=ended)
        # Rows as the log will have them, in its order: a worker that replays it has to come to the same.
        came = sorted(block for _, objects in batches for block, _ in packed(objects, 0, _CAME))
        rows = [unpack(block)[2] for block in came]
        bucket.operator.output = Output(self.call.max_output)
        answers = aggregate_table(bucket.operator.push(rows, complete, ended=ended), self.call)
        timer = armed(bucket.operator.due, timer, limit, arm)
        written = self._save(key, cached, [bucket.step(complete, ended=ended), *came], timer, state)
        out = given[REJECTS] + [table_bytes(REJECTS, table) for table in late]
        figures = {
            "tile": -1 - key,
            "rows": sum(map(len, rows)),
            "newest": bucket.clock.now or 0,
            "late": sum(map(len, late)),
            "rejected": sum(len(read_table(blob)) for blob in out),
            "answers": len(answers),
            "capped": bucket.operator.capped - capped,
            "state_rows": len(bucket.operator),
            "state_bytes": bucket.nbytes,
            "state_bytes_read": state.bytes_read,
            "state_bytes_written": written,
            "seconds": time.perf_counter() - begun,
        }
        return [*out, *self._answered(answers), metrics_blob(**figures)]

    def expire(self, key: int, limit: int | None, state: TileState, arm: Callable[[int], None]) -> list[bytes]:
        """Without rows: answer what Spark's watermark says is complete."""
        cached, _ = state.load(key, self._fresh, Bucket.apply)
        bucket: Bucket = cached.operator
        complete = complete_before(self.call, bucket.clock, limit, ended=False)
        bucket.operator.output = Output(self.call.max_output)
        answers = aggregate_table(bucket.operator.push([], complete), self.call)
        timer = armed(bucket.operator.due, NO_TIMER, limit, arm)
        self._save(key, cached, [bucket.step(complete, ended=False)], timer, state)
        return [*self._answered(answers), metrics_blob(tile=-1 - key, answers=len(answers))]

    def at_once(self, blobs: list[bytes]) -> pa.Table:
        """Aggregate all there is: a batch query, in which every tick is complete."""
        rows = [objects for _, _, objects in map(unpack, by_tag(blobs)[_ROWS])]
        operator = self._fresh().operator
        operator.output = Output(self.call.max_output)
        return aggregate_table(operator.push(rows, ended=True), self.call)

    def _fresh(self) -> Bucket:
        return Bucket(self.call)

    @staticmethod
    def _answered(answers: pa.Table) -> list[bytes]:
        return [table_bytes(ANSWERS, answers)] if len(answers) else []

    def _save(self, key: int, cached: Cached, step: list[bytes], timer: int, state: TileState) -> int:
        if whole := outgrown(cached, step, _SLACK):
            step = cached.operator.whole()
            # From now on as one who reads it: what is written next must not depend on who lived through what.
            cached.operator = self._fresh()
            cached.operator.take(step)
        return state.save(key, cached, step, 0, timer, whole=whole)
