"""One tile of the join at work: blocks in, answers, rejects and metrics out, state in between."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.engines.call import Call, JoinCall, late_rejects, to_table
from appulse.engines.spark.codec import pack, pack_presence, unpack, unpack_floors, unpack_presence
from appulse.engines.spark.routing import packed
from appulse.engines.spark.state import NO_TIMER, Cached, TileState, blocks_of, outgrown
from appulse.engines.spark.tiling import PlaceOwnership, Tiling
from appulse.errors import bad_rows
from appulse.operators.answers import Answers
from appulse.operators.output import Output
from appulse.operators.similarity_join import SimilarityJoin

if TYPE_CHECKING:
    from collections.abc import Callable

    from appulse.model.objects import Objects
    from appulse.operators.presence import Presence

#: What a byte string between stages is, by its first byte; blocks of rows begin with a letter of their own.
ANSWERS, REJECTS, METRICS, FLOORS, PRESENCE, END = b"A", b"R", b"M", b"F", b"P", b"E"
_ROWS = b"a"
_NOTHING_EXPIRED = -(1 << 62)
# A log may hold this much beside twice what its operator holds, before it is begun anew.
_SLACK = 1 << 16


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


def end_mark(newest: int) -> bytes:
    """The streams have ended, the newest row had this time."""
    return END + str(newest).encode()


def by_tag(blobs: list[bytes]) -> dict[bytes, list[bytes]]:
    """The blobs by what they are, in one order: a shuffle has none, and what a batch leaves in the log must have."""
    sorted_: dict[bytes, list[bytes]] = defaultdict(list)
    for blob in sorted(blobs):
        sorted_[blob[:1]].append(blob)
    return sorted_


def metrics_blob(**figures: float) -> bytes:
    """The figures of one key's micro-batch."""
    return METRICS + json.dumps(figures).encode()


def make_operator(call: JoinCall, tiling: Tiling, place: int) -> SimilarityJoin:
    """The operator of one tile; coarse tiles keep two lanes."""
    lanes = 2 if tiling.is_coarse(place) else 1
    return SimilarityJoin(call.plan, lanes=lanes, ownership=tiling.ownership(place))


def _apply(operator: SimilarityJoin, payload: bytes) -> None:
    """Take a delta of the log into an operator; what that answers was put out before."""
    operator.output = Output()
    _take(operator, blocks_of(payload))


def _take(operator: SimilarityJoin, delta: list[bytes]) -> None:
    blobs = by_tag(delta)
    blocks = [unpack(block) for tag, group in blobs.items() if tag not in (FLOORS, PRESENCE) for block in group]
    operator.apply(blocks, _presence(blobs[PRESENCE]))
    for blob in blobs[FLOORS]:
        operator.leave(unpack_floors(blob[1:]))


def _presence(blobs: list[bytes]) -> list[Presence]:
    return [unpack_presence(blob[1:]) for blob in blobs]


@dataclass(frozen=True)
class TileJoin:
    """What every tile of a query does; Spark knows tiles by the keys of the tiling."""

    call: JoinCall
    tiling: Tiling

    def answer(
        self, key: int, blobs: list[bytes], limit: int | None, state: TileState, arm: Callable[[int], None]
    ) -> list[bytes]:
        """Answer a micro-batch. Rows before ``limit`` (microseconds) are late; ``arm`` sets the tile's timer."""
        begun = time.perf_counter()
        tile = self.tiling.place(key)
        given = by_tag(blobs)
        cached, timer = self._load(tile, state)
        cached.operator.counts.clear()
        cached.operator.output = self._output()
        blocks = given[_ROWS]
        if self.call.plan.rule is not None:
            answers, rows, late, written = self._answer_numbered(tile, cached, given, state)
        else:
            answers, rows, late, written = self._answer_timed(
                tile, cached, blocks, given[END], limit, timer, state, arm
            )
        out = given[REJECTS] + given[METRICS] + [table_bytes(REJECTS, table) for table in late]
        return [*out, *self._told(tile, cached, answers, rows, late, out, written, state, begun)]

    def at_once(self, key: int, blobs: list[bytes], newest: int | None) -> Answers:
        """Answer all there is: a batch query, with the time of its newest row where that is needed."""
        operator = make_operator(self.call, self.tiling, self.tiling.place(key))
        operator.output = self._output()
        given = by_tag(blobs)
        found = [operator.push([unpack(blob) for blob in given[_ROWS]], _presence(given[PRESENCE]))]
        found += [operator.leave(unpack_floors(blob[1:])) for blob in given[FLOORS]]
        return Answers.concat(found if newest is None else [*found, operator.advance(newest)])

    def expire(self, key: int, limit: int | None, state: TileState, arm: Callable[[int], None]) -> list[bytes]:
        """Without rows: forget what has expired, tell what that ends, and set the timer again for the rest."""
        begun = time.perf_counter()
        tile = self.tiling.place(key)
        cached, _ = self._load(tile, state)
        cached.operator.counts.clear()
        cached.operator.output = self._output()
        before = _NOTHING_EXPIRED if limit is None else limit - max(self.call.plan.windows)
        left = self._advance(cached, limit)
        newest = max((entry[2] for entry in cached.live), default=before)
        timer = NO_TIMER
        if newest >= before:
            timer = max(self._wake_at(cached, newest), 1 if limit is None else limit // 1000 + 1)
            arm(timer)
        state.trim(cached, before)
        written = state.save(tile, cached, [], None, timer)
        return self._told(tile, cached, left, 0, [], [], written, state, begun) if len(left) else []

    def _output(self) -> Output:
        return Output(self.call.options.max_output)

    def _load(self, tile: int, state: TileState) -> tuple[Cached, int]:
        state.serves(self.tiling.fingerprint(tile))
        cached, timer = state.load(tile, lambda: make_operator(self.call, self.tiling, tile), _apply)
        operator: SimilarityJoin = cached.operator
        if not isinstance(operator.ownership, PlaceOwnership) or operator.ownership.tiling != self.tiling:
            # Kept by a worker since before the last version of the plan.
            operator.ownership = self.tiling.ownership(tile)
        return cached, timer

    def _answer_timed(
        self,
        tile: int,
        cached: Cached,
        blobs: list[bytes],
        ends: list[bytes],
        limit: int | None,
        timer: int,
        state: TileState,
        arm: Callable[[int], None],
    ) -> tuple[Answers, int, list[pa.Table], int]:
        """Under time windows whatever comes within the lateness is answered at once."""
        operator: SimilarityJoin = cached.operator
        left = [self._advance(cached, limit)]
        if limit is not None:
            state.trim(cached, limit - max(self.call.plan.windows))
        kept, batches, late = self._admit(blobs, tile, limit)
        answers = operator.push(batches)
        left += [self._advance(cached, int(blob[1:])) for blob in ends]
        newest = max((int(objects.time.max()) for _, _, objects in batches), default=None)
        if newest is not None:
            wanted = self._wake_at(cached, newest)
            if timer == NO_TIMER or wanted < timer:
                timer = wanted
                arm(timer)
        written = state.save(tile, cached, kept, newest, timer)
        rows = sum(int((self.tiling.owners(objects) == tile).sum()) for _, _, objects in batches)
        return Answers.concat([*left, answers]), rows, late, written

    def _answer_numbered(
        self, tile: int, cached: Cached, given: dict[bytes, list[bytes]], state: TileState
    ) -> tuple[Answers, int, list[pa.Table], int]:
        """Windows that go by rows: these come numbered, in the order of ticks, and with what has left."""
        operator: SimilarityJoin = cached.operator
        changes, notes = self.call.plan.changes, given[FLOORS]
        # Pairs that stand are state: what made them is kept, too.
        reasons = given[PRESENCE] if changes else []
        batches = [unpack(blob) for blob in given[_ROWS]]
        answers = operator.push(batches, _presence(given[PRESENCE]))
        left = [operator.leave(unpack_floors(blob[1:])) for blob in notes]
        kept = []
        for stream, lane, objects in batches:
            stay = operator.holds(stream, objects)
            if stay.any():
                keep = objects.take(np.flatnonzero(stay))
                kept.append(pack(keep if reasons else replace(keep, frame=None), stream, lane))
        written = 0
        if not kept and not notes:
            state.keep(tile, cached)
        else:
            delta = [*kept, *reasons, *notes]
            if whole := outgrown(cached, delta, _SLACK):
                delta = self._whole(operator) + notes
                # From now on as one who reads it: what is written next must not depend on who lived through what.
                cached.operator = make_operator(self.call, self.tiling, tile)
                _take(cached.operator, delta)
                cached.operator.counts.update(operator.counts)
            written = state.save(tile, cached, delta, 0, NO_TIMER, whole=whole)
        return Answers.concat([*left, answers]), 0, [], written

    def _whole(self, operator: SimilarityJoin) -> list[bytes]:
        """All that a tile of numbered rows holds, as blocks for a delta."""
        changes, known = self.call.plan.changes, operator.presence
        blocks = [
            block
            for stream, lane, objects in operator.live()
            for block, _ in packed(objects if changes else replace(objects, frame=None), stream, lane)
        ]
        return blocks + ([PRESENCE + pack_presence(known)] if changes and known is not None else [])

    def _advance(self, cached: Cached, limit: int | None) -> Answers:
        """Move time on to ``limit``; what others have told already is not told again."""
        operator: SimilarityJoin = cached.operator
        if self.call.plan.changes:
            counted, operator.output = operator.output, Output()
            operator.advance(cached.settled)
            operator.output = counted
        if limit is None:
            return Answers.concat([])
        cached.settled = max(cached.settled, limit)
        return operator.advance(limit)

    def _told(
        self,
        tile: int,
        cached: Cached,
        answers: Answers,
        rows: int,
        late: list[pa.Table],
        rejects: list[bytes],
        written: int,
        state: TileState,
        begun: float,
    ) -> list[bytes]:
        """Answers and metrics."""
        operator: SimilarityJoin = cached.operator
        out = [table_bytes(ANSWERS, to_table(answers, self.call))] if len(answers) else []
        figures = {
            **operator.counts,
            "tile": tile,
            "rows": rows,
            "late": sum(len(table) for table in late),
            "rejected": sum(len(read_table(blob)) for blob in rejects if blob[:1] == REJECTS),
            "left": len(answers) - operator.counts["answers"],
            "newest": 0 if self.call.plan.rule is not None else max((e[2] for e in cached.live), default=0),
            "state_rows": len(operator),
            "state_bytes": operator.nbytes,
            "state_bytes_read": state.bytes_read,
            "state_bytes_written": written,
            "seconds": time.perf_counter() - begun,
        }
        return [*out, metrics_blob(**figures)]

    def _admit(
        self, blobs: list[bytes], tile: int, limit: int | None
    ) -> tuple[list[bytes], list[tuple[int, int, Objects]], list[pa.Table]]:
        """Blocks to keep, their rows, and rejects for rows that came too late (told by one tile each)."""
        kept, batches, late = [], [], []
        for blob in blobs:
            block = blob
            stream, lane, objects = unpack(block)
            if limit is not None and len(objects) and int(objects.time.min()) < limit:
                behind = objects.time < limit
                told = np.flatnonzero(behind & (self.tiling.owners(objects) == tile))
                if len(told):
                    late.append(checked_late(self.call, stream, objects, told, limit))
                objects = objects.take(np.flatnonzero(~behind))
                block = pack(objects, stream, lane)
            if len(objects):
                kept.append(block)
                batches.append((stream, lane, objects))
        return kept, batches, late

    def _wake_at(self, cached: Cached, newest: int) -> int:
        """When rows up to ``newest`` have all expired, or the next pair leaves, in milliseconds."""
        end = cached.operator.standing.next_end if self.call.plan.changes else None
        expiry = newest + max(self.call.plan.windows)
        return max(1, min(expiry, expiry if end is None else end) // 1000 + 1)


def checked_late(call: Call, stream: int, objects: Objects, rows: np.ndarray, limit: int) -> pa.Table:
    """Rejects for the rows, which came too late; or `BadInput` where the call asks to fail."""
    table = late_rejects(objects.take(rows), limit, call.encodings[stream])
    if call.on_reject == "fail":
        raise bad_rows(len(table), table.slice(0, 1).to_pylist()[0])
    return table
