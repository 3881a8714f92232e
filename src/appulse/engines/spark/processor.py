"""The stateful stage: one similarity join per tile, in `transformWithStateInPandas`."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from appulse.engines.call import JoinCall, late_rejects, to_table
from appulse.engines.spark.codec import pack, unpack
from appulse.engines.spark.state import TileState, blocks_of
from appulse.engines.spark.tiles import TileOwnership, TilePlan
from appulse.operators.similarity_join import SimilarityJoin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from appulse.model.objects import Objects

ANSWERS, REJECTS, METRICS = b"A", b"R", b"M"
_NO_TIMER = -1


def table_bytes(tag: bytes, table: pa.Table) -> bytes:
    """A table as one byte string behind its tag."""
    sink = pa.BufferOutputStream()
    sink.write(tag)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def make_operator(call: JoinCall, plan: TilePlan, tile: int) -> SimilarityJoin:
    """The operator of one tile."""
    lanes = 2 if tile >= plan.tiles else 1
    return SimilarityJoin(call.plan, lanes=lanes, ownership=TileOwnership(plan, tile))


def apply_payload(operator: SimilarityJoin, payload: bytes) -> None:
    """Take a delta into an operator."""
    operator.apply([unpack(block) for block in blocks_of(payload)])


class JoinProcessor(StatefulProcessor):
    """Answers each micro-batch's blocks against the tile's windows, and logs them as a delta."""

    def __init__(self, call: JoinCall, plan: TilePlan, keys: list[int]) -> None:
        self._call, self._plan = call, plan
        self._tile_of = {key: tile for tile, key in enumerate(keys)}
        self._fingerprint = f"{call.fingerprint()}-{plan.fingerprint()}"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = TileState(handle, self._fingerprint)

    def close(self) -> None:
        """Nothing to close: state is Spark's, caches outlive the task."""

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802,N803
        begun = time.perf_counter()
        tile = self._tile_of[int(key[0])]
        blobs = [bytes(blob) for frame in rows for blob in frame["block"]]
        out = [blob for blob in blobs if blob[:1] == REJECTS]
        limit = _limit(timerValues)
        self._state.bytes_read = 0
        cached, timer = self._state.load(
            self._cache_key(tile), lambda: make_operator(self._call, self._plan, tile), apply_payload
        )
        operator: SimilarityJoin = cached.operator
        if limit is not None:
            operator.advance(limit)
            self._state.trim(cached, limit - max(self._call.plan.windows))
        operator.counts.clear()
        kept, batches, late = self._admit([blob for blob in blobs if blob[:1] != REJECTS], tile, limit)
        answers = operator.push(batches)
        out += [table_bytes(REJECTS, table) for table in late]
        if len(answers):
            out.append(table_bytes(ANSWERS, to_table(answers, self._call)))
        written = 0
        if kept:
            newest = max(int(objects.time.max()) for _, _, objects in batches)
            timer = self._arm(timer, newest)
            written = self._state.save(self._cache_key(tile), cached, kept, newest, timer)
        else:
            self._state.forget(self._cache_key(tile), cached, -(1 << 62), timer)
        metrics = {
            **operator.counts,
            "rows": sum(len(objects) for _, _, objects in batches),
            "late": sum(len(table) for table in late),
            "state_rows": len(operator),
            "state_bytes": operator.nbytes,
            "state_bytes_read": self._state.bytes_read,
            "state_bytes_written": written,
            "seconds": time.perf_counter() - begun,
        }
        out.append(METRICS + json.dumps(metrics).encode())
        yield pd.DataFrame({"out": out})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802,N803
        tile = self._tile_of[int(key[0])]
        limit = _limit(timerValues)
        cached, _ = self._state.load(
            self._cache_key(tile), lambda: make_operator(self._call, self._plan, tile), apply_payload
        )
        timer = _NO_TIMER
        if limit is not None:
            cached.operator.advance(limit)
            before = limit - max(self._call.plan.windows)
            newest = max((entry[2] for entry in cached.live), default=before)
            if newest >= before:
                timer = self._arm(_NO_TIMER, newest)
            self._state.forget(self._cache_key(tile), cached, before, timer)
        else:
            self._state.forget(self._cache_key(tile), cached, -(1 << 62), timer)
        yield from ()

    def _admit(
        self, blobs: list[bytes], tile: int, limit: int | None
    ) -> tuple[list[bytes], list[tuple[int, int, Objects]], list[pa.Table]]:
        """Blocks to keep, their rows, and rejects for rows that came too late (told by one tile each)."""
        kept, batches, late = [], [], []
        for block in blobs:
            stream, lane, objects = unpack(block)
            if limit is not None and len(objects) and int(objects.time.min()) < limit:
                behind = objects.time < limit
                told = np.flatnonzero(behind & (self._plan.owners(objects) == tile))
                if len(told):
                    late.append(late_rejects(objects, told, limit, self._call.encodings[stream]))
                objects = objects.take(np.flatnonzero(~behind))
                block = pack(objects, stream, lane)  # noqa: PLW2901 - the block without its late rows
            if len(objects):
                kept.append(block)
                batches.append((stream, lane, objects))
        return kept, batches, late

    def _arm(self, timer: int, newest: int) -> int:
        """One timer per tile, at the time when all it holds has expired."""
        if timer != _NO_TIMER:
            return timer
        at = max(1, (newest + max(self._call.plan.windows)) // 1000 + 1)
        self._handle.registerTimer(at)
        return at

    def _cache_key(self, tile: int) -> tuple[str, ...]:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        return (query or "", self._fingerprint, str(tile))


def _limit(timer_values: Any) -> int | None:
    """Rows before this (microseconds) are late; None while there is no watermark."""
    watermark = int(timer_values.getCurrentWatermarkInMs())
    return watermark * 1000 if watermark > 0 else None
