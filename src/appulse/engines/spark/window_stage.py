"""The stage of queries over several streams, one bucket of groups at a time: rows and changes in, answers out.

The log has the rows that came, the changes of the set of queries, and how far windows reached; whoever replays it takes
the same steps without matching. Once it is more than twice as long as what it began with, it begins anew with all there
is.
"""

from __future__ import annotations

import time
import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.engines.queries import last_changes
from appulse.engines.spark.codec import pack_arrays, unpack_arrays
from appulse.engines.spark.state import NO_TIMER, Cached, TileState, blocks_of, outgrown
from appulse.engines.spark.tables import packed, unpacked
from appulse.engines.spark.ticks import NEVER, armed, bucket_clock, clock_arrays, complete_before, set_clock
from appulse.engines.spark.tile_join import ANSWERS, END, REJECTS, by_tag, metrics_blob, read_table, table_bytes
from appulse.engines.window_queries import WindowQueries
from appulse.engines.window_rows import END as ALL
from appulse.engines.window_rows import HeldRows, WindowRows, taken_in
from appulse.errors import bad_rows
from appulse.operators.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from appulse.engines.window_call import WindowCall
    from appulse.engines.window_rows import Longest
    from appulse.windows.clock import Clock

#: Byte strings between stages and in logs: rows of a stream, and changes of the queries, by how-manieth they are.
ROWS, CHANGES = b"r", b"q"
_STEP, _HELD = b"S", b"h"
_TICK = "\0tick"
_LONGEST = {False: "microseconds", True: "rows"}
# A log may hold this much beside twice what it began with, before it is begun anew.
_SLACK = 1 << 18
# The set of queries that this worker process holds for calls whose set does not change, by what it says.
_KEPT: dict[tuple[str, bytes], WindowQueries] = {}


def rows_block(stream: int, table: pa.Table) -> bytes:
    """Rows of a stream on their way to a bucket."""
    return ROWS + bytes([stream]) + packed(table)


def changes_block(number: int, table: pa.Table) -> bytes:
    """Changes of the queries on their way to a bucket; those of a micro-batch are taken in by their number."""
    return CHANGES + number.to_bytes(8, "big") + packed(table)


@dataclass
class Bucket:
    """The state of some groups: rows held, how far the streams have come, and the queries, if they change."""

    call: WindowCall
    held: HeldRows = field(init=False)
    clock: Clock = field(init=False)
    own: WindowQueries = field(init=False)
    history: list[pa.Table] = field(default_factory=list)
    version: int = 0  # micro-batches that have changed the queries

    def __post_init__(self) -> None:
        self.held, self.clock, self.own = HeldRows(self.call), bucket_clock(self.call), WindowQueries(self.call)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.held.nbytes + self.own.queries.nbytes + sum(int(table.nbytes) for table in self.history)

    def change(self, blocks: Sequence[bytes]) -> pa.Table:
        """Take in changes of the queries; those that cannot be used."""
        rejects = [self.own.call.reject_schema.empty_table()]
        for block in blocks:
            changed = self.own.change(unpacked(block[9:]))
            self.history.append(changed.usable)
            rejects.append(changed.rejects)
        self.version += bool(blocks)
        return pa.concat_tables(rejects)

    def step(self, complete: int, frontier: int, longest: Longest) -> bytes:
        """What a delta says beside what came: ticks before ``complete`` were there, and windows so long."""
        arrays = {"step": np.array([complete, frontier, *clock_arrays(self.clock)], np.int64)}
        return _STEP + pack_arrays(arrays | {_LONGEST[rows]: np.array(own) for rows, own in longest.items()})

    def whole(self) -> list[bytes]:
        """All there is, as blocks for a delta."""
        held = self.held
        numbers = np.array([held.complete, held.ticked, self.version, *clock_arrays(self.clock)], np.int64)
        blocks = [_STEP + pack_arrays({"whole": numbers})]
        for i, (rows, ticks) in enumerate(zip(held.rows, held.ticks, strict=True)):
            blocks.append(_HELD + bytes([i]) + packed(rows.table.append_column(_TICK, pa.array(ticks))))
        if self.history:
            blocks.append(changes_block(0, last_changes(pa.concat_tables(self.history))))
        return blocks

    def apply(self, payload: bytes) -> None:
        """Take in a delta of the log."""
        self.take(blocks_of(payload))

    def take(self, blocks: list[bytes]) -> None:
        """Take in the blocks of a delta."""
        given = by_tag(blocks)
        arrays = unpack_arrays(given[_STEP][0][1:])
        self.change(given[CHANGES])
        if "step" in arrays:
            complete, frontier, *clock = arrays["step"].tolist()
            set_clock(self.clock, clock)
            shown = self.held.push(self.came(given[ROWS], None)[0], complete)
            longest = {rows: tuple(arrays[name].tolist()) for rows, name in _LONGEST.items() if name in arrays}
            self.held.forget(shown, frontier, longest)
            return
        self.held.complete, self.held.ticked, self.version, *clock = arrays["whole"].tolist()
        set_clock(self.clock, clock)
        for block in given[_HELD]:
            table = unpacked(block[2:])
            self.held.rows[block[1]] = taken_in(self.call, block[1], table.drop_columns([_TICK]))[0]
            self.held.ticks[block[1]] = table[_TICK].to_numpy()

    def came(self, blocks: Sequence[bytes], limit: int | None) -> tuple[dict[int, WindowRows], list[pa.Table]]:
        """Rows by stream, and rejects for those before ``limit``."""
        parts: dict[int, list[WindowRows]] = defaultdict(list)
        late: list[pa.Table] = []
        for block in blocks:
            rows, rejects = taken_in(self.call, block[1], unpacked(block[2:]), limit)
            parts[block[1]].append(rows)
            late += rejects
        return {stream: WindowRows.concat(given) for stream, given in parts.items()}, late


@dataclass(frozen=True)
class WindowStage:
    """What every bucket does. ``queries`` is the set as bytes, None if it changes; ``first`` tells what is refused."""

    call: WindowCall
    queries: bytes | None
    first: int = 0

    def answer(
        self, key: int, blobs: list[bytes], limit: int | None, state: TileState, arm: Callable[[int], None]
    ) -> list[bytes]:
        """Take in a micro-batch's blocks, and answer what they complete. ``limit`` is Spark's watermark."""
        begun = time.perf_counter()
        given = by_tag(blobs)
        cached, timer = state.load(key, self._fresh, Bucket.apply)
        bucket: Bucket = cached.operator
        refused = bucket.change(given[CHANGES])
        known = [at for at in (limit, bucket.clock.frontier) if at is not None and not self.call.arrival]
        came, late = bucket.came(given[ROWS], max(known, default=None))
        for stream, rows in came.items():
            bucket.clock.see(stream, rows)
        blocks = sorted([*given[CHANGES], *(rows_block(i, rows.table) for i, rows in came.items() if len(rows))])
        answers, timer, written = self._advance(
            key, cached, came, blocks, limit, timer, state, arm, ended=bool(given[END])
        )
        queries = self._queries(bucket)
        rejects = [*([refused] if key == self.first else []), *late, queries.failed()]
        self._fail_if_asked(rejects)
        out = given[REJECTS] + [table_bytes(REJECTS, table) for table in rejects if len(table)]
        figures = {
            "tile": -1 - key,
            "rows": sum(map(len, came.values())),
            "newest": bucket.clock.now or 0,
            "late": sum(map(len, late)),
            "rejected": sum(len(read_table(blob)) for blob in out),
            "answers": len(answers),
            "queries": len(queries),
            "query_version": bucket.version,
            "state_rows": len(bucket.held),
            "state_bytes": bucket.nbytes,
            "state_bytes_read": state.bytes_read,
            "state_bytes_written": written,
            "seconds": time.perf_counter() - begun,
        }
        return [*out, *_answered(answers), metrics_blob(**figures)]

    def expire(self, key: int, limit: int | None, state: TileState, arm: Callable[[int], None]) -> list[bytes]:
        """Without rows: answer what Spark's watermark says is complete."""
        cached, _ = state.load(key, self._fresh, Bucket.apply)
        answers, *_ = self._advance(key, cached, {}, [], limit, NO_TIMER, state, arm, ended=False)
        bucket: Bucket = cached.operator
        figures = {"queries": len(self._queries(bucket)), "query_version": bucket.version, "answers": len(answers)}
        return [*_answered(answers), metrics_blob(tile=-1 - key, **figures)]

    def at_once(self, blobs: list[bytes]) -> pa.Table:
        """Answer all there is: a batch query, in which every tick is complete."""
        bucket = self._fresh()
        came, _ = bucket.came(by_tag(blobs)[ROWS], None)
        queries = self._queries(bucket)
        answers = queries.answers(bucket.held.push(came, ALL), Output(self.call.max_output))
        for failed in queries.failed().to_pylist():  # the rejects of a batch are known without its answers
            warnings.warn(f"A query was removed: {failed['values']}: {failed['detail']}", stacklevel=2)
        return answers

    def _advance(
        self,
        key: int,
        cached: Cached,
        came: dict[int, WindowRows],
        blocks: list[bytes],
        limit: int | None,
        timer: int,
        state: TileState,
        arm: Callable[[int], None],
        *,
        ended: bool,
    ) -> tuple[pa.Table, int, int]:
        """The answers of rows and of ticks that are complete now, with the timer and the bytes written."""
        bucket: Bucket = cached.operator
        queries = self._queries(bucket)
        complete = complete_before(self.call, bucket.clock, limit, ended=ended)
        reached = bucket.clock.tick() if self.call.arrival else bucket.clock.frontier
        frontier = NEVER if reached is None else reached
        shown = bucket.held.push(came, min(complete, ALL))
        # The queries may be those of another call that says the same, with another limit.
        answers, longest = queries.answers(shown, Output(self.call.max_output)), queries.longest
        bucket.held.forget(shown, frontier, longest)
        timer = armed(bucket.held.due if queries.waits else None, timer, limit, arm)
        step = [bucket.step(min(complete, ALL), frontier, longest), *blocks]
        if whole := outgrown(cached, step, _SLACK):
            step = bucket.whole()
            # From now on as one who reads it: what is written next must not depend on who lived through what.
            cached.operator = self._fresh()
            cached.operator.take(step)
        return answers, timer, state.save(key, cached, step, 0, timer, whole=whole)

    def _fresh(self) -> Bucket:
        return Bucket(self.call)

    def _queries(self, bucket: Bucket) -> WindowQueries:
        return bucket.own if self.queries is None else standing_windows(self.call, self.queries)

    def _fail_if_asked(self, rejects: Sequence[pa.Table]) -> None:
        for table in rejects:
            if len(table) and self.call.on_reject == "fail":
                raise bad_rows(len(table), table.slice(0, 1).to_pylist()[0])


def standing_windows(call: WindowCall, queries: bytes) -> WindowQueries:
    """A set of queries that does not change, indexed; a worker process keeps the last one."""
    key = call.fingerprint(), queries
    if key not in _KEPT:
        _KEPT.clear()
        _KEPT[key] = WindowQueries(call)
        _KEPT[key].change(unpacked(queries))
        _KEPT[key].queries.settle()
    return _KEPT[key]


def _answered(answers: pa.Table) -> list[bytes]:
    return [table_bytes(ANSWERS, answers)] if len(answers) else []
