"""Rows whose clock is ahead: which of them are from the future, so that they must not move time for all others.

The frontier of a stream follows its newest row. One device whose clock is a day ahead would make every row of the
others late for a day. So a row is from the future if it lies more than ``ahead`` past the wall clock (timestamps only),
or if a pause of more than ``ahead`` parts it from all rows before it. Four kinds of rows after a pause are in order:

* those of now: timestamps within ``ahead`` of the wall clock, whatever came before;
* those that a second key confirms; of a stream with a single key, a second row;
* those of a stream that is slow: a pause of up to 20 of its mean pauses; and
* those of a key that speaks alone, from its eighth row on: where most rows of a batch are its own.

A clock that was reset to 1970 says nothing of pauses: rows behind the newest have none, and of the pauses of a stream
up to three that are far longer than the others do not count.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.newest import key_numbers, newest_two
from appulse.model.times import MIN_TIME
from appulse.windows.clock import span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from appulse.kernels.arrays import Ints
    from appulse.model.strings import Bytes

# A slow stream's rows may come this many of its mean pauses after the others.
_PAUSES = 20
# So many pauses that are themselves that much longer than the others do not count, where at least so many others do.
_LONGEST = 3
_FEWEST = 8
# A key that speaks alone is believed from so many rows on.
_ALONE = 8
_OTHERS = "all other rows"
_ANY = 1 << 62
_HELD: ContextVar[int | None] = ContextVar("held clock", default=None)


def wall_clock() -> int:
    """Now, in microseconds since 1970, or when the clock is held at."""
    held = _HELD.get()
    return time.time_ns() // 1000 if held is None else held


@contextmanager
def clock_held(at: int | None) -> Iterator[None]:
    """Hold `wall_clock` at a time, for this thread: rows that are judged again are judged as they were. None: now."""
    before = _HELD.set(wall_clock() if at is None else at)
    try:
        yield
    finally:
        _HELD.reset(before)


@dataclass(frozen=True)
class Judged:
    """Rows of a batch that are from the future, with how far (microseconds) each is ahead, and of what."""

    rows: Ints
    by: Ints
    of: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def details(self) -> list[str]:
        """Why each is refused."""
        given = zip(self.by.tolist(), self.of, strict=True)
        return [
            f"{micros / 1e6:.6f} seconds ahead of {what}; a larger Stream(ahead=) admits it" for micros, what in given
        ]


_NONE = Judged(np.empty(0, np.int64), np.empty(0, np.int64), ())


@dataclass(frozen=True)
class FutureGuard:
    """What is known of the times of a stream. `judge` gives the next guard: nothing here changes.

    ``ahead`` is in microseconds, None: any. Times are compared with the wall clock where they are of the ``wall``.
    """

    ahead: int | None
    wall: bool
    newest: int = MIN_TIME
    key: int = 0  # of the newest row
    runner_up: int = MIN_TIME  # the newest time of any other key
    moves: int = 0  # how often the newest time moved on
    first: int = MIN_TIME  # the oldest time of the first rows
    refused: tuple[int, int, int] | None = None  # time and key of rows that another key may yet confirm; how many
    longest: tuple[int, ...] = ()  # pauses of more than ``ahead`` between newest times: a few

    def judge(self, time: Ints, key: Bytes, now: int | None = None) -> tuple[Judged, FutureGuard]:
        """Which rows are from the future, and what is known after them; ``now`` is by default this machine's."""
        if self.ahead is None or len(time) == 0:
            return _NONE, self
        if not self.wall:
            return self._among_others(time, key, None)
        now = wall_clock() if now is None else now
        beyond = time > now + self.ahead
        if not beyond.any():
            return self._among_others(time, key, now)
        rows, kept = np.flatnonzero(beyond), np.flatnonzero(~beyond)
        judged, after = self._among_others(time[kept], key.take(kept), now)
        by = np.concatenate([time[rows] - now, judged.by])
        of = ("the wall clock",) * len(rows) + judged.of
        return Judged(np.concatenate([rows, kept[judged.rows]]), by, of), after

    def _among_others(self, time: Ints, key: Bytes, now: int | None) -> tuple[Judged, FutureGuard]:
        if len(time) == 0:
            return _NONE, self
        assert self.ahead is not None  # noqa: S101 - else nothing is judged
        after = self._with(time, key)
        if after.newest - (self.newest if self.newest > MIN_TIME else span(time)[0]) <= self.ahead:
            return _NONE, after
        keys = np.empty(len(time), np.int64)
        key_numbers(key.offsets, key.data, keys)
        judged = self._apart(time, keys, now)
        if len(judged) == 0:
            return judged, replace(after, longest=self._longest(np.unique(time)))
        last = int(judged.rows[-1])  # the least ahead of them: the likeliest to be confirmed
        kept = np.setdiff1d(np.arange(len(time)), judged.rows)
        alone = self.refused is not None and self.refused[1] == keys[last] and len(kept) == 0
        count = int((keys[judged.rows] == keys[last]).sum()) + (self.refused[2] if alone and self.refused else 0)
        longest, refused = self._longest(np.unique(time[kept])), (int(time[last]), int(keys[last]), count)
        return judged, replace(self._with(time[kept], key.take(kept)), refused=refused, longest=longest)

    def _with(self, time: Ints, key: Bytes) -> FutureGuard:
        """With rows that are in order."""
        if len(time) == 0:
            return self
        known = np.array(self.known, np.int64)
        newest_two(time, key.offsets, key.data, known)
        return self.after(known.tolist(), span(time)[0])

    @property
    def limits(self) -> tuple[int, int]:
        """The latest time that rows may have, and how far past the others."""
        if self.ahead is None:
            return _ANY, _ANY
        return wall_clock() + self.ahead if self.wall else _ANY, self.ahead

    @property
    def known(self) -> tuple[int, int, int, int]:
        """What `newest_two` brings up to date."""
        return self.newest, self.key, self.runner_up, self.moves

    def after(self, known: Sequence[int], least: int) -> FutureGuard:
        """With rows that are in order, which had ``least`` as their first time, and made it ``known``."""
        if self.ahead is None:
            return self
        newest, number, runner_up, moves = known
        first = least if self.first == MIN_TIME else self.first
        refused = None if self.refused is not None and self.refused[0] <= newest else self.refused
        return FutureGuard(self.ahead, self.wall, newest, number, runner_up, moves, first, refused, self.longest)

    def _apart(self, time: Ints, keys: Ints, now: int | None) -> Judged:
        """Rows that a long pause parts from all before them, and that no second key confirms."""
        assert self.ahead is not None  # noqa: S101 - else nothing is judged
        known = [(self.newest, self.key), *([self.refused[:2]] if self.refused else [])]
        known = [(at, number) for at, number in known if at > MIN_TIME]
        # What is known stands behind the rows, and is never refused.
        times = np.concatenate([time, np.array([at for at, _ in known], np.int64)])
        numbers = np.concatenate([keys, np.array([number for _, number in known], np.int64)])
        one_key = self.runner_up == MIN_TIME and bool((numbers == numbers[0]).all())
        order = np.argsort(-times, kind="stable")
        ticks, ends = np.unique(time), np.flatnonzero(-np.diff(times[order]) > self.ahead)
        rows: list[int] = []
        by: list[int] = []
        begin = 0
        for end in ends.tolist():
            part = order[begin : end + 1]
            if int(times[part[-1]]) <= self.newest:
                break
            begin, voucher = end + 1, int(times[order[end + 1]])
            pause = int(times[part[-1]]) - voucher
            several = len(part) > 1 if one_key else len(np.unique(numbers[part])) > 1
            of_now = now is not None and int(times[part[0]]) >= now - self.ahead
            own = part[part < len(time)]
            alone = 2 * len(own) > len(time) and len(own) + (self.refused[2] if self.refused else 0) >= _ALONE
            if several or of_now or alone or pause <= self._usual(ticks, voucher):
                break
            rows += own.tolist()
            by += (times[own] - voucher).tolist()
        return Judged(np.array(rows, np.int64), np.array(by, np.int64), (_OTHERS,) * len(rows))

    def _usual(self, ticks: Ints, until: int) -> float:
        """How long a pause is nothing special, by the pauses there were until a time; ``ticks`` are this batch's."""
        ticks = np.union1d(ticks[ticks <= until], until)
        pauses = self.moves + len(ticks) - int(np.searchsorted(ticks, self.newest, "right")) - 1
        if pauses < 1:
            return np.inf
        passed = until - (int(ticks[0]) if self.first == MIN_TIME else self.first)
        for pause in reversed(self._longest(ticks)):
            if pauses <= _FEWEST or pause * (pauses - 1) <= _PAUSES * (passed - pause):
                break
            passed, pauses = passed - pause, pauses - 1
        return _PAUSES * passed / pauses

    def _longest(self, ticks: Ints) -> tuple[int, ...]:
        """The longest pauses between newest times, with those of a batch; the longest comes last."""
        assert self.ahead is not None  # noqa: S101 - else nothing is judged
        new = ticks[np.searchsorted(ticks, self.newest, "right") :]
        known = [self.newest] if self.newest > MIN_TIME else []
        found = np.diff(np.concatenate([np.array(known, np.int64), new]))
        found = np.sort(np.concatenate([np.array(self.longest, np.int64), found[found > self.ahead]]))
        return tuple(found[-_LONGEST:].tolist())
