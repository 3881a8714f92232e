"""Rows that come in this process: which are from the future, which are late, and a warning where most are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from appulse.errors import warn_late, warn_unit
from appulse.model.times import is_time, likelier_unit, shown_time
from appulse.windows.clock import span
from appulse.windows.future import FutureGuard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Ints
    from appulse.model.encoding import Encoding
    from appulse.model.readings import ReadingsEncoding
    from appulse.model.strings import Bytes
    from appulse.windows.clock import Clock
    from appulse.windows.future import Judged

#: Lateness is judged over at least so many rows: one says little.
FEWEST_ROWS = 20


class Arrivals:
    """The guards of streams, and how many of their last rows were late.

    What `judge` has learnt since `begin` counts once it is settled: a push that raises has changed nothing.
    """

    def __init__(self, encodings: Sequence[Encoding | ReadingsEncoding], ahead: Sequence[int | None]) -> None:
        self._encodings = encodings
        self.guards = [
            FutureGuard(limit, wall=is_time(encoding.time_type))
            for encoding, limit in zip(encodings, ahead, strict=True)
        ]
        self._next: dict[int, FutureGuard] = {}
        self._rows = self._late = 0
        self.unseen = {*range(len(self.guards))}  # streams of which no row has come

    def begin(self) -> None:
        """Rows come: forget what a push that raised has shown."""
        self._next.clear()

    def judge(self, stream: int, time: Ints, key: Bytes, now: int | None = None) -> Judged:
        """Which rows of a stream are from the future; ``now`` is by default this machine's."""
        judged, self._next[stream] = self.guards[stream].judge(time, key, now)
        return judged

    def settle(self) -> None:
        """The rows are taken in: what they showed of the streams' times counts."""
        for stream, guard in self._next.items():
            self.guards[stream] = guard
        self._next.clear()

    def look(self, stream: int, time: Ints) -> None:
        """The first rows of a stream have come: warn if their times are likely in another unit."""
        if not len(time):
            return
        self.unseen.remove(stream)
        encoding = self._encodings[stream]
        found = None if is_time(encoding.time_type) else likelier_unit(*span(time), encoding.unit)
        if found is not None:
            warn_unit(encoding.name, encoding.unit, *found)

    def count(self, rows: int, late: int, clock: Clock) -> None:
        """Warn if most of the last rows, these among them, were late."""
        self._rows, self._late = self._rows + rows, self._late + late
        if self._rows < FEWEST_ROWS:
            return
        rows, late, self._rows, self._late = self._rows, self._late, 0, 0
        if 2 * late > rows:
            warn_late(late, rows, self._because(clock))

    def _because(self, clock: Clock) -> str:
        """Which row moved the clock past the others."""
        encoding, newest = self._encodings[clock.slowest], clock.newest[clock.slowest]
        if newest is None or clock.frontier is None:
            return "The frontier is past them."
        kind, unit = encoding.time_type, encoding.unit
        frontier, row = shown_time(clock.frontier, kind, unit), shown_time(newest, kind, unit)
        return f"The frontier is at {frontier}, because stream {encoding.name!r} has a row of {row}."
