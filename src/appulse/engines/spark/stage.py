"""The stage of an operator on Spark: what every key does with a micro-batch, and with the log of its bucket."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from appulse.engines.bucket import LAST
from appulse.engines.spark.blobs import ANSWERS, END, METRICS, REJECTS, by_tag, metrics_blob, read_table, table_bytes
from appulse.engines.spark.state import NO_TIMER, Cached, TileState, blocks_of, outgrown
from appulse.errors import warn
from appulse.model.defects import NO_SUCH_ROW, SAME_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa
    from pyspark import Accumulator

    from appulse.engines.base import Call
    from appulse.engines.bucket import Bucket

Sent = list[tuple[int, bytes]]


class Seen(NamedTuple):
    """How many rows would lie in a region with latitude and longitude swapped, and how many answers there are."""

    swapped: int = 0
    answers: int = 0


@dataclass(frozen=True)
class Buckets:
    """The buckets of a call by key; travels to workers."""

    call: Call[Any]

    def make(self, key: int) -> Bucket[Any]:
        """The empty bucket of a key."""
        raise NotImplementedError

    def follow(self, bucket: Bucket[Any], key: int) -> None:
        """Bring a bucket up to date that a worker has kept since another start."""

    def plan(self, key: int) -> str:  # noqa: ARG002 - one is as another
        """What the state of a key depends on beside the call."""
        return ""

    def label(self, key: int) -> int:
        """The key in metrics."""
        return -1 - key

    @property
    def onward(self) -> list[int]:
        """The keys of the next stage, for what a bucket passes on; none behind the last one."""
        return []


@dataclass(frozen=True)
class GroupBuckets(Buckets):
    """Buckets of groups, made by ``kind``."""

    kind: Callable[[Any], Bucket[Any]]

    def make(self, key: int) -> Bucket[Any]:  # noqa: ARG002 - one is as another
        bucket = self.kind(self.call)
        if self.call.grouped:
            # A stream that sends nothing here may well do so elsewhere: Spark's watermark knows which one is silent.
            bucket.clock.idle_after = [None] * len(self.call.lateness)
        return bucket


@dataclass(frozen=True)
class Stage:
    """What every key of a query does; ``name`` is that of its state.

    ``lag`` is how far (microseconds) Spark's watermark is ahead of what the stages before this one have sent on.
    """

    buckets: Buckets
    name: str
    lag: int = 0
    timed: bool = False  # whether it goes by time, though it is not the first
    first: bool = True  # rejects that come from another stage were counted there
    seen: Accumulator[Seen] | None = None  # where a batch query reports what looks wrong

    @property
    def call(self) -> Call[Any]:
        """The call that it serves."""
        return self.buckets.call

    def run(
        self,
        key: int,
        blobs: list[bytes] | None,
        watermark: int | None,
        state: TileState,
        arm: Callable[[int], None],
    ) -> Sent:
        """Take in a micro-batch's blobs (None: only time has moved on), and answer what they complete.

        Rows before the watermark (microseconds) are late; ``arm`` sets the key's timer (milliseconds). What comes back
        has the key of the next stage, -1 behind the last one.
        """
        begun = time.perf_counter()
        given = by_tag(blobs or [])
        limit = None if watermark is None else watermark - self.lag
        cached, timer = self._load(key, state)
        bucket: Bucket[Any] = cached.operator
        bucket.admit(map(bucket.unpack, given[bucket.rows_tag]), limit)
        bucket.receive(given)
        answers = bucket.advance(limit, max((int(blob[1:]) for blob in given[END]), default=None))
        timer = self._armed(bucket.due, NO_TIMER if blobs is None else timer, watermark, arm)
        own = [table_bytes(REJECTS, table) for table in bucket.rejected if len(table)]
        passed = given[REJECTS] + own
        figures = {
            "rejected": sum(len(read_table(blob)) for blob in (passed if self.first else own)),
            "newest": bucket.newest,
            "state_rows": len(bucket),
            "state_bytes": bucket.nbytes,
            "state_bytes_read": state.bytes_read,
            **bucket.counts,
            **bucket.levels(),
        }
        written = self._save(key, cached, timer, state)
        figures |= {"tile": self.buckets.label(key), "state_bytes_written": written}
        metrics = metrics_blob(**figures, seconds=time.perf_counter() - begun)
        out = [
            *passed,
            *given[METRICS],
            metrics,
            *given[ANSWERS],
            *(table_bytes(ANSWERS, table) for table in answers if len(table)),
        ]
        return [*bucket.sent, *self.onward(out)]

    def onward(self, blobs: Iterable[bytes]) -> Sent:
        """What any key of the next stage may pass on, under many of them, so that there is no hot spot."""
        keys = self.buckets.onward or [-1]
        if len(keys) == 1:
            return [(keys[0], blob) for blob in blobs]
        return [(keys[crc32(blob) % len(keys)], blob) for blob in blobs]

    def at_once(self, key: int, blobs: list[bytes], newest: int | None = None) -> tuple[list[pa.Table], Sent]:
        """The answers of all there is, and what goes to the next stage: a batch query, whose streams have ended."""
        bucket, answers = self._ended(key, blobs, newest)
        if self.seen is not None:
            self.seen.add(Seen(int(bucket.levels().get("swapped", 0)), sum(map(len, answers))))
        for rejects in bucket.rejected:  # rows are never late in a batch, and its rejects are read apart
            for row in rejects.to_pylist():
                if row["reason"] not in (SAME_TIME, NO_SUCH_ROW):
                    warn(f"A query was removed: {row['values']}: {row['detail']}")
        return [*map(read_table, by_tag(blobs)[ANSWERS]), *answers], bucket.sent

    def refused(self, key: int, blobs: list[bytes]) -> list[pa.Table]:
        """The good rows that a batch query refuses all the same."""
        return [table for table in self._ended(key, blobs, None)[0].rejected if len(table)]

    def _ended(self, key: int, blobs: list[bytes], newest: int | None) -> tuple[Bucket[Any], list[pa.Table]]:
        """A bucket whose streams have ended, and its answers."""
        given = by_tag(blobs)
        bucket = self.buckets.make(key)
        bucket.admit(map(bucket.unpack, given[bucket.rows_tag]))
        bucket.receive(given)
        return bucket, bucket.advance(None, bucket.newest if newest is None else newest)

    def _load(self, key: int, state: TileState) -> tuple[Cached, int]:
        if plan := self.buckets.plan(key):
            state.serves(plan)

        def restore(bucket: Bucket[Any], delta: bytes) -> None:
            self.buckets.follow(bucket, key)  # the rows of later starts go by what these asked for
            bucket.restore(blocks_of(delta))

        cached, timer = state.load(key, lambda: self.buckets.make(key), restore)
        self.buckets.follow(cached.operator, key)
        cached.operator.settled = cached.settled
        return cached, timer

    def _save(self, key: int, cached: Cached, timer: int, state: TileState) -> int:
        """Write what the step did to the log, and forget what has no effect any more."""
        bucket: Bucket[Any] = cached.operator
        cached.settled = bucket.settled
        horizon = bucket.forget()
        if horizon is not None:
            state.trim(cached, horizon)
        whole = bucket.brief
        delta = ([], min(bucket.complete, LAST)) if whole else bucket.delta()
        if delta is None:
            return state.save(key, cached, [], None, timer)
        blocks, newest = delta
        whole = whole or (horizon is None and outgrown(cached, blocks, bucket.slack))
        if whole:
            blocks = bucket.snapshot()
            # From now on as one who reads it: what is written next must not depend on who lived through what.
            cached.operator = self.buckets.make(key)
            cached.operator.restore(blocks)
        return state.save(key, cached, blocks, newest, timer, whole=whole)

    def _armed(self, due: int | None, timer: int, watermark: int | None, arm: Callable[[int], None]) -> int:
        """The timer, set so that what is due at a time is not forgotten."""
        if due is None:
            return timer
        wanted = max((due + self.lag) // 1000 + 1, 1 if watermark is None else watermark // 1000 + 1)
        if timer == NO_TIMER or wanted < timer:
            arm(wanted)
            return wanted
        return timer
