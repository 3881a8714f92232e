"""How far the streams of a call have come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Ints


class Timed(Protocol):
    """Rows with times in microseconds."""

    @property
    def time(self) -> Ints: ...
    def __len__(self) -> int: ...


class Waits(Protocol):
    """What says how long streams are waited for, in microseconds."""

    @property
    def lateness(self) -> tuple[int, ...]: ...
    @property
    def idle_after(self) -> tuple[int | None, ...]: ...


# Times up to so many take Python less time than NumPy.
_FEW = 64


def span(time: Ints) -> tuple[int, int]:
    """The least and the greatest of some times."""
    if len(time) > _FEW:
        return int(time.min()), int(time.max())
    few = time.tolist()
    return min(few), max(few)


@dataclass
class Clock:
    """How far the streams of a call have come: what makes a tick complete, and a row late.

    Each stream is as far as its newest row less its lateness, the call as far as its slowest stream. A stream silent
    for its ``idle_after``, by the time of the others, is left out. In whole milliseconds, rounded so that no row
    within its lateness is ever late: what Spark's watermark does.
    """

    lateness: Sequence[int]
    idle_after: Sequence[int | None]
    newest: list[int | None]
    first: int | None = None
    frontier: int | None = None
    slowest: int = field(default=0, compare=False)  # the stream that the frontier waited for

    @staticmethod
    def of(call: Waits) -> Clock:
        return Clock(call.lateness, call.idle_after, [None] * len(call.lateness))

    def see(self, stream: int, rows: Timed) -> None:
        """Take note of rows that came in time."""
        if len(rows) == 0:
            return
        self.reach(stream, *span(rows.time))

    def reach(self, stream: int, least: int, most: int) -> None:
        """Take note of the least and the greatest time of rows that came in time."""
        known = self.newest[stream]
        self.newest[stream] = most if known is None else max(known, most)
        self.first = least if self.first is None else min(self.first, least)

    @property
    def now(self) -> int | None:
        """The newest time seen, of any stream."""
        return max((time for time in self.newest if time is not None), default=None)

    def tick(self) -> int | None:
        """Ticks before this (microseconds) are complete; None while a stream is awaited. It never goes back."""
        now, reached = self.now, []
        if now is None or self.first is None:
            return self.frontier
        for stream, newest in enumerate(self.newest):
            silent, idle = now - (self.first if newest is None else newest), self.idle_after[stream]
            if idle is not None and silent > idle:
                continue
            if newest is None:
                return self.frontier
            reached.append(((newest // 1000 - -(-self.lateness[stream] // 1000)) * 1000, stream))
        least, slowest = min(reached)
        if self.frontier is None or least > self.frontier:
            self.frontier, self.slowest = least, slowest
        return self.frontier
