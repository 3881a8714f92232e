"""A bucket: the state of some keys of a call, free of any engine.

Rows come in by `admit`, wait until their ticks are complete, and are answered by `advance`. In process a call is one
bucket. On Spark each key has one, and its stage keeps a log: `delta` and `snapshot` write it, `restore` reads it. A
bucket is deterministic: the same rows in the same order give the same answers and the same bytes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from appulse.engines.base import R
from appulse.engines.spark.codec import pack_arrays, unpack_arrays
from appulse.errors import bad_rows
from appulse.model.workers import Workers
from appulse.operators.numbering import END
from appulse.operators.output import Output
from appulse.windows.clock import Clock, span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from appulse.engines.base import Call

#: What a byte string in a log is, by its first byte: what a step did, and rows (the first letter of a block's format).
STATE, ROWS = b"S", b"a"
#: Before every tick, and after all but the end.
NEVER, LAST = -(1 << 62), 1 << 62
Blobs = dict[bytes, list[bytes]]


class Bucket(Generic[R]):
    """The state of some keys of a call.

    An operator has a subclass, which implements `hold`, `answer`, and for a log `pack`, `unpack` and `redo`; where
    rows leave in no order of time also `whole` and `resume`.
    """

    rows_tag = ROWS
    workers = Workers()  # in process a call may have several; on Spark each task has one
    slack = 1 << 18  # bytes that a log may hold beside twice what it began with, before it is begun anew

    def __init__(self, call: Call[R]) -> None:
        self.call = call
        self.clock = Clock.of(call)
        self.complete = NEVER  # ticks before this have been answered
        self.settled = 0  # up to when what time brings about has been answered, where no delta says so
        # Of the step at hand: rows that came in time, what goes to another stage, by its keys, rejects, figures, and
        # what counts the answers.
        self.came: list[tuple[int, R]] = []
        self.sent: list[tuple[int, bytes]] = []
        self.rejected: list[pa.Table] = []
        self.counts: Counter[str] = Counter()
        self.output = Output()

    # --- a step: rows come in, and what they complete is answered

    def begin(self, limit: int | None = None) -> None:  # noqa: ARG002 - for subclasses
        """Begin a step."""
        self.counts.clear()
        self.came, self.sent, self.rejected, self.output = [], [], [], Output(self.call.max_output)

    def admit(self, batches: Iterable[tuple[int, R]], limit: int | None = None) -> None:
        """Begin a step with rows by stream. Those before ``limit`` or the frontier are late: ``rejected``.

        What raises has changed nothing.
        """
        self.begin(limit)
        before = self.late_before(limit)
        came = []
        for stream, given in batches:
            rows = self.added(stream, given)
            if before is not None and len(rows) and span(rows.time)[0] < before:
                behind = rows.time < before
                self.rejected.append(self.late(stream, rows.filter(behind), before))
                rows = rows.filter(~behind)
            if len(rows):
                came.append((stream, rows))
        fail_if_asked(self.call, self.rejected)
        self.came = came
        for stream, rows in came:
            self.clock.see(stream, rows)
            self.hold(stream, rows)
        self.counts["rows"] += sum(self.own(rows) for _, rows in came)
        self.counts["late"] += sum(map(len, self.rejected))

    def advance(self, limit: int | None = None, ended: int | None = None) -> list[pa.Table]:
        """The answers of ticks that are complete now. ``limit``: no row before it is to come, of any stream.

        ``ended`` is the newest time of all, once the streams have ended.
        """
        self.complete = self._complete_before(limit, ended)
        answers = self.answer(ended=ended is not None)
        self.counts["answers"] += sum(map(len, answers))
        fail_if_asked(self.call, self.rejected)
        return answers

    def added(self, stream: int, rows: R) -> R:  # noqa: ARG002 - for subclasses
        """The rows without those that withdraw others."""
        return rows

    def receive(self, given: Blobs) -> None:
        """Take in what a micro-batch brings beside rows, after `admit`."""

    def late_before(self, limit: int | None) -> int | None:
        """Rows before this are late: behind a tick that was answered, or could have been."""
        # The answers of another call come behind the limit that completed them, and never behind the one before.
        known = [time for time in (None if self.call.chained else limit, self.clock.frontier) if time is not None]
        return max(known) if known and not self.call.arrival else None

    def late(self, stream: int, rows: R, before: int) -> pa.Table:
        """Rows that came too late, as rejects."""
        return self.call.late(stream, rows, before)

    def own(self, rows: R) -> int:
        """How many of the rows no other bucket counts."""
        return len(rows)

    def _complete_before(self, limit: int | None, ended: int | None) -> int:
        if self.call.arrival:
            return END
        if ended is not None:
            now = self.clock.now
            self.clock.frontier = None if now is None else now + 1  # rows after the end are late
            return END
        # Answers of another call come in no order of their own: what is complete, only the limit says.
        own = self.clock.frontier if self.call.chained else self.clock.tick()
        known = [time for time in (own, limit) if time is not None]
        if not known:
            return NEVER
        # Rows behind what the limit let go are late from now on, here too.
        self.clock.frontier = max(known)
        return max(known)

    # --- what an operator says

    def hold(self, stream: int, rows: R) -> None:
        """Take in rows that came in time; by default `answer` finds them in ``came``."""

    def answer(self, *, ended: bool) -> list[pa.Table]:
        """The answers of ticks before ``complete``, and of all there is once the streams have ``ended``."""
        raise NotImplementedError

    @property
    def due(self) -> int | None:
        """The least time that ticks have to be complete beyond for anything to be answered; None: nothing waits."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Rows held."""
        raise NotImplementedError

    @property
    def newest(self) -> int:
        """The newest time seen; 0: none."""
        return self.clock.now or 0

    def levels(self) -> Mapping[str, float]:
        """Further figures of what stands after a step."""
        return {}

    # --- the log of a bucket

    def forget(self) -> int | None:
        """Drop what has no effect any more; the log needs no rows before the time returned (None: times do not say)."""
        return None

    @property
    def brief(self) -> bool:
        """Whether all there is is clearly less than what this step did, and goes into the log in its place."""
        return False

    def delta(self) -> tuple[list[bytes], int] | None:
        """What this step did, as blocks for the log, and the newest time among them; None: nothing worth a record."""
        newest = max((int(rows.time.max()) for _, rows in self.logged), default=self.complete)
        return [self._state("step", *self.step()), *self.blocks(self.logged)], min(newest, LAST)

    @property
    def logged(self) -> list[tuple[int, R]]:
        """The rows of this step that go into the log."""
        return self.came

    def snapshot(self) -> list[bytes]:
        """All there is, as blocks for the log."""
        numbers, arrays, blocks = self.whole()
        return [self._state("whole", numbers, arrays), *blocks]

    def restore(self, blocks: Sequence[bytes]) -> None:
        """Take in a delta, or a snapshot into an empty bucket."""
        given: Blobs = defaultdict(list)
        for block in blocks:
            given[block[:1]].append(block)
        arrays = unpack_arrays(given[STATE][0][1:])
        kind = "step" if "step" in arrays else "whole"
        numbers = arrays.pop(kind).tolist()
        cut = len(numbers) - 2 - len(self.clock.newest)
        set_clock(self.clock, numbers[cut:])
        (self.redo if kind == "step" else self.resume)(numbers[:cut], arrays, given)

    def step(self) -> tuple[list[int], Mapping[str, NDArray[Any]]]:
        """What a delta has beside rows: numbers and arrays for `redo`."""
        return [self.complete], {}

    def redo(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:
        """Take the same step without evaluating it."""
        raise NotImplementedError

    def whole(self) -> tuple[list[int], Mapping[str, NDArray[Any]], list[bytes]]:
        """What a snapshot has: numbers and arrays for `resume`, and blocks."""
        raise NotImplementedError

    def resume(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:
        """Go on from a snapshot."""
        raise NotImplementedError

    def blocks(self, batches: Iterable[tuple[int, R]]) -> list[bytes]:
        """Rows by stream as blocks."""
        return [self.pack(stream, rows) for stream, rows in batches if len(rows)]

    def pack(self, stream: int, rows: R) -> bytes:
        """Rows as a block, which begins with ``rows_tag``."""
        raise NotImplementedError

    def unpack(self, block: bytes) -> tuple[int, R]:
        """What `pack` packed."""
        raise NotImplementedError

    def _state(self, kind: str, numbers: list[int], arrays: Mapping[str, NDArray[Any]]) -> bytes:
        return STATE + pack_arrays({kind: np.array([*numbers, *clock_numbers(self.clock)], np.int64), **arrays})


def clock_numbers(clock: Clock) -> list[int]:
    """The clock as numbers."""
    return [NEVER if time is None else time for time in (clock.first, clock.frontier, *clock.newest)]


def set_clock(clock: Clock, numbers: list[int]) -> None:
    """Take in what `clock_numbers` gave."""
    clock.first, clock.frontier, *clock.newest = (None if time == NEVER else time for time in numbers)


def fail_if_asked(call: Call[Any], rejects: Iterable[pa.Table]) -> None:
    """Raise `BadInput` if there are rejects, and the call asks to fail."""
    if call.on_reject != "fail":
        return
    for table in rejects:
        if len(table):
            raise bad_rows(table)
