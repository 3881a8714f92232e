"""One tile of the join at work: blocks in, answers, rejects and metrics out, state in between."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.engines.call import JoinCall, late_rejects, to_table
from appulse.engines.spark.codec import pack, unpack
from appulse.engines.spark.state import NO_TIMER, TileState, blocks_of
from appulse.engines.spark.tiles import TileOwnership, TilePlan
from appulse.errors import bad_rows
from appulse.operators.similarity_join import SimilarityJoin

if TYPE_CHECKING:
    from collections.abc import Callable

    from appulse.model.objects import Objects

ANSWERS, REJECTS, METRICS = b"A", b"R", b"M"
_NOTHING_EXPIRED = -(1 << 62)


def table_bytes(tag: bytes, table: pa.Table) -> bytes:
    """A table as one byte string behind its tag."""
    sink = pa.BufferOutputStream()
    sink.write(tag)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def read_table(blob: bytes) -> pa.Table:
    """The table behind a tag."""
    return pa.ipc.open_stream(pa.py_buffer(blob)[1:]).read_all()


def make_operator(call: JoinCall, plan: TilePlan, tile: int) -> SimilarityJoin:
    """The operator of one tile; coarse tiles keep two lanes."""
    return SimilarityJoin(call.plan, lanes=2 if tile >= plan.tiles else 1, ownership=TileOwnership(plan, tile))


def _apply(operator: SimilarityJoin, payload: bytes) -> None:
    """Take a delta of the log into an operator."""
    operator.apply([unpack(block) for block in blocks_of(payload)])


@dataclass(frozen=True)
class TileJoin:
    """What every tile of a query does; ``keys[tile]`` is the number by which Spark knows the tile."""

    call: JoinCall
    plan: TilePlan
    keys: tuple[int, ...]

    def answer(
        self, key: int, blobs: list[bytes], limit: int | None, state: TileState, arm: Callable[[int], None]
    ) -> list[bytes]:
        """Answer a micro-batch. Rows before ``limit`` (microseconds) are late; ``arm`` sets the tile's timer."""
        begun = time.perf_counter()
        tile = self.keys.index(key)
        out = [blob for blob in blobs if blob[:1] == REJECTS]
        cached, timer = state.load(tile, lambda: make_operator(self.call, self.plan, tile), _apply)
        operator: SimilarityJoin = cached.operator
        if limit is not None:
            operator.advance(limit)
            state.trim(cached, limit - max(self.call.plan.windows))
        operator.counts.clear()
        kept, batches, late = self._admit([blob for blob in blobs if blob[:1] != REJECTS], tile, limit)
        answers = operator.push(batches)
        out += [table_bytes(REJECTS, table) for table in late]
        if len(answers):
            out.append(table_bytes(ANSWERS, to_table(answers, self.call)))
        newest = max((int(objects.time.max()) for _, _, objects in batches), default=None)
        if newest is not None and timer == NO_TIMER:
            timer = self._expiry(newest)
            arm(timer)
        written = state.save(tile, cached, kept, newest, timer)
        metrics = {
            **operator.counts,
            "tile": tile,
            "rows": sum(int((self.plan.owners(objects) == tile).sum()) for _, _, objects in batches),
            "late": sum(len(table) for table in late),
            "rejected": sum(len(read_table(blob)) for blob in out if blob[:1] == REJECTS),
            "state_rows": len(operator),
            "state_bytes": operator.nbytes,
            "state_bytes_read": state.bytes_read,
            "state_bytes_written": written,
            "seconds": time.perf_counter() - begun,
        }
        return [*out, METRICS + json.dumps(metrics).encode()]

    def expire(self, key: int, limit: int | None, state: TileState, arm: Callable[[int], None]) -> None:
        """Without rows: forget what has expired, and set the timer again for the rest."""
        tile = self.keys.index(key)
        cached, _ = state.load(tile, lambda: make_operator(self.call, self.plan, tile), _apply)
        before = _NOTHING_EXPIRED if limit is None else limit - max(self.call.plan.windows)
        if limit is not None:
            cached.operator.advance(limit)
        newest = max((entry[2] for entry in cached.live), default=before)
        timer = NO_TIMER
        if newest >= before:
            timer = max(self._expiry(newest), 1 if limit is None else limit // 1000 + 1)
            arm(timer)
        state.trim(cached, before)
        state.save(tile, cached, [], None, timer)

    def _admit(
        self, blobs: list[bytes], tile: int, limit: int | None
    ) -> tuple[list[bytes], list[tuple[int, int, Objects]], list[pa.Table]]:
        """Blocks to keep, their rows, and rejects for rows that came too late (told by one tile each)."""
        kept, batches, late = [], [], []
        for blob in blobs:
            block = blob
            stream, lane, objects = unpack(block)
            encoding = self.call.encodings[stream]
            if limit is not None and len(objects) and int(objects.time.min()) < limit:
                behind = objects.time < limit
                told = np.flatnonzero(behind & (self.plan.owners(objects) == tile))
                if len(told) and self.call.on_reject == "fail":
                    raise bad_rows(len(told), late_rejects(objects, told[:1], limit, encoding).to_pylist()[0])
                if len(told):
                    late.append(late_rejects(objects, told, limit, encoding))
                objects = objects.take(np.flatnonzero(~behind))
                block = pack(objects, stream, lane)
            if len(objects):
                kept.append(block)
                batches.append((stream, lane, objects))
        return kept, batches, late

    def _expiry(self, newest: int) -> int:
        """When rows up to ``newest`` have all expired, in milliseconds."""
        return max(1, (newest + max(self.call.plan.windows)) // 1000 + 1)
