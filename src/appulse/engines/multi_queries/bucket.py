"""The bucket of queries over several streams: rows held, how far the streams have come, and the queries.

The log has the rows that came, the changes of the queries, and how far windows reached; replay takes the same steps
without matching.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.engines.bucket import LAST, NEVER, Bucket
from appulse.engines.multi_queries.queries import WindowQueries
from appulse.engines.multi_queries.rows import BufferedRows, WindowRows, rows_of
from appulse.engines.queries.call import last_changes
from appulse.engines.spark.tables import packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from appulse.engines.bucket import Blobs
    from appulse.engines.multi_queries.call import WindowCall
    from appulse.engines.multi_queries.rows import Longest

#: Byte strings between stages and in logs: rows of a stream, and changes of the queries, numbered in their order.
ROWS, CHANGES = b"r", b"q"
_HELD = b"h"
_TICK = "\0tick"
_LONGEST = {False: "microseconds", True: "rows"}


def changes_block(number: int, table: pa.Table) -> bytes:
    """Changes of the queries on their way to a bucket; those of a micro-batch are taken in by their number."""
    return CHANGES + number.to_bytes(8, "big") + packed(table)


class WindowBucket(Bucket[WindowRows]):
    """The state of some groups. A bucket has queries of its own, or is given a set that does not change.

    Where several buckets take in the same changes, one of them ``reports`` the queries that cannot be used.
    """

    call: WindowCall
    rows_tag = ROWS

    def __init__(self, call: WindowCall, *, keeps_history: bool = True) -> None:
        super().__init__(call)
        self._keeps_history = keeps_history
        self.held = BufferedRows(call.streams, arrival=call.arrival)
        self.queries = WindowQueries(call)
        self.reports = self._own = True
        self._changes: list[bytes] = []
        self._history: list[pa.Table] = []
        self._version = 0  # steps that have changed the queries
        self._frontier = NEVER
        self._longest: Longest = {}

    def __len__(self) -> int:
        return len(self.held)

    @property
    def nbytes(self) -> int:
        own = self.queries.queries.nbytes if self._own else 0
        return self.held.nbytes + own + sum(int(table.nbytes) for table in self._history)

    @property
    def due(self) -> int | None:
        """The oldest tick that answers wait for."""
        return self.held.due if self.queries.waits else None

    def levels(self) -> Mapping[str, float]:
        """How many queries there are, and how often they have changed."""
        return {"queries": len(self.queries), "query_version": self._version}

    def ask(self, queries: WindowQueries) -> None:
        """Match a set of queries that others share, and that does not change."""
        self.queries, self._own = queries, False

    def change(self, table: pa.Table) -> pa.Table:
        """Take in changes of the queries, in order; those that cannot be used. What raises has changed nothing."""
        changed = self.queries.change(table)
        if self._keeps_history:
            self._history.append(changed.usable)
        return changed.rejects

    def receive(self, given: Blobs) -> None:
        """Take in changes of the queries, before rows."""
        self._changes = given[CHANGES]
        refused = [self.change(unpacked(block[9:])) for block in self._changes]
        self._version += bool(refused)
        if self.reports:
            self.rejected += refused

    def answer(self, *, ended: bool) -> list[pa.Table]:  # noqa: ARG002 - all ticks are complete then
        """The choices of rows that satisfy queries from now on."""
        reached = self.clock.tick() if self.call.arrival else self.clock.frontier
        self._frontier = NEVER if reached is None else reached
        shown = self.held.push(_by_stream(self.came), min(self.complete, LAST), self.queries.links)
        answers, self._longest = self.queries.answers(shown, self.output), self.queries.longest
        self.held.forget(shown, self._frontier, self._longest)
        self.rejected.append(self.queries.failed())
        return [answers] if len(answers) else []

    # --- the log

    def step(self) -> tuple[list[int], Mapping[str, NDArray[Any]]]:
        """Ticks before ``complete`` were there, and windows so long."""
        longest = {_LONGEST[rows]: np.array(own) for rows, own in self._longest.items()}
        return [min(self.complete, LAST), self._frontier], longest

    def blocks(self, batches: Iterable[tuple[int, WindowRows]]) -> list[bytes]:
        """Rows and changes as blocks."""
        rows = [self.pack(stream, rows) for stream, rows in _by_stream(batches).items() if len(rows)]
        return sorted([*self._changes, *rows])

    def redo(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:
        """Take the same step without matching."""
        self._replay_changes(given)
        complete, frontier = numbers
        shown = self.held.push(_by_stream(map(self.unpack, given[ROWS])), complete)
        self.held.forget(shown, frontier, {k: tuple(arrays[n].tolist()) for k, n in _LONGEST.items() if n in arrays})

    def whole(self) -> tuple[list[int], Mapping[str, NDArray[Any]], list[bytes]]:
        """Rows held, and the queries."""
        held = [
            _HELD + bytes([i]) + packed(rows.table.append_column(_TICK, pa.array(ticks)))
            for i, (rows, ticks) in enumerate(self.held.all())
        ]
        changes = [changes_block(0, last_changes(pa.concat_tables(self._history)))] if self._history else []
        return [self.held.complete, self.held.ticked, self._version], {}, [*held, *changes]

    def resume(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:  # noqa: ARG002
        self._replay_changes(given)
        self.held.complete, self.held.ticked, self._version = numbers
        for block in given[_HELD]:
            stream, table = block[1], unpacked(block[2:])
            rows = rows_of(self.call.streams[stream], table.drop_columns([_TICK]))[0]
            self.held.set(stream, rows, table[_TICK].to_numpy())

    def pack(self, stream: int, rows: WindowRows) -> bytes:
        """Rows as a block."""
        return rows_block(stream, rows.table)

    def unpack(self, block: bytes) -> tuple[int, WindowRows]:
        return block[1], rows_of(self.call.streams[block[1]], unpacked(block[2:]))[0]

    def _replay_changes(self, given: Blobs) -> None:
        for block in given[CHANGES]:
            self.change(unpacked(block[9:]))
        self._version += bool(given[CHANGES])


def rows_block(stream: int, table: pa.Table) -> bytes:
    """Rows of a stream on their way to a bucket."""
    return ROWS + bytes([stream]) + packed(table)


def _by_stream(batches: Iterable[tuple[int, WindowRows]]) -> dict[int, WindowRows]:
    parts: dict[int, list[WindowRows]] = defaultdict(list)
    for stream, rows in batches:
        parts[stream].append(rows)
    return {stream: WindowRows.concat(given) for stream, given in parts.items()}
