"""Long windows that are asked push after push how many of their rows exist: what was added up for them is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels import poisson_binomial as kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.kernels.poisson_binomial import CountRule, Entries, Stacks
    from appulse.model.strings import Labels
    from appulse.windows.frames import Rule

LONG = 1024  # rows of a window, at least, on average
MOST = 32  # windows
_FEW = 4  # times as many rows are held as come, at least


class LongWindow:
    """A window of a stream of a ``group``: the existence probabilities of its rows, which are numbered from ``base``.

    Rows that have left stay until there is no room for further ones: then all is added up anew, which is seldom.
    """

    def __init__(self, group: int, stream: int, base: int, exist: Floats) -> None:
        self.group, self.stream = group, stream
        self._begin(base, exist, 0)

    def _begin(self, base: int, exist: Floats, more: int) -> None:
        room = 2 * (len(exist) + more)
        self.base, self._n, self._exist, self._sums = base, 0, np.empty(room), np.zeros((room + 1, 4))
        # Rows are evicted at later ticks than those that are asked about then: two pairs of stacks.
        self._work: list[tuple[Stacks, Entries]] = [(kernels.stacks_of(room), kernels.no_entries()) for _ in range(2)]
        self._added = kernels.nothing_added()
        self._append(exist)

    def _append(self, exist: Floats) -> None:
        begin, self._n = self._n, self._n + len(exist)
        self._exist[begin : self._n] = exist
        kernels.add_sums(self._exist[: self._n], begin, self._sums)

    @property
    def end(self) -> int:
        """The number of the next row."""
        return self.base + self._n

    @property
    def nbytes(self) -> int:
        tables = sum(part.nbytes for _, entries in self._work for part in entries)
        return self._exist.nbytes + self._sums.nbytes + tables

    @property
    def _known(self) -> kernels.Known:
        return kernels.Known(self._exist[: self._n], self._sums[: self._n + 1])

    def evict(self, oldest: int, exist: Floats, tick_end: Flags, rule: CountRule) -> tuple[Ints, int]:
        """Rows come: the number of the oldest row that is kept at the tick of each, and how many `max_rows` cost.

        ``oldest`` is the number of the oldest row before.
        """
        if self._n + len(exist) > len(self._exist):
            self._begin(oldest, self._exist[oldest - self.base : self._n], len(exist))
        begin, floor = self._n, np.empty(len(exist), np.int64)
        self._append(exist)
        came = kernels.Fresh(oldest - self.base, begin, tick_end, floor)
        stacks, entries = self._work[0]
        entries, capped = kernels.evict_one(self._known, came, rule, stacks, entries, self._added)
        self._work[0] = stacks, entries
        return floor + self.base, capped

    def inside(self, row: Ints, newest: Ints, partner: Ints, rule: Rule) -> Floats:
        """The probability that each row is in the window, by the numbers of rows; asked for as the kernel has it."""
        of, out = np.zeros(len(row), np.int64), np.empty(len(row))
        partner = np.where(partner < 0, partner, partner - self.base)
        asked = kernels.Questions(of, row - self.base, newest - self.base, partner)
        stacks, entries = self._work[1]
        entries = kernels.membership_in(self._known, rule.size, rule.method, asked, stacks, entries, out)
        self._work[1] = stacks, entries
        return out


@dataclass(frozen=True)
class RunningPresence:
    """Windows of groups and streams, in place of a table of what may not exist."""

    group: Labels | None
    stream: Ints
    running: LongWindows


class LongWindows:
    """Those of the last pushes; each goes on where no other way has had rows of it since. No state has them in it."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], LongWindow] = {}
        self.last: list[LongWindow] = []  # those that were asked for last

    @property
    def nbytes(self) -> int:
        return sum(window.nbytes for window in self._known.values())

    def clear(self) -> None:
        """Rows are withdrawn, or others are held now."""
        self._known, self.last = {}, []

    def of(self, group: Ints, stream: Ints, end: Ints, held: Callable[[], Iterable[Floats]]) -> list[LongWindow]:
        """Those of groups and streams, whose next rows have the numbers ``end``; ``held`` is their rows' existence."""
        asked = list(zip(group.tolist(), stream.tolist(), strict=True))
        found = [self._known.get(window) for window in asked]
        if not all(window and window.end == n for window, n in zip(found, end.tolist(), strict=True)):
            fresh = [
                LongWindow(*window, n - len(exist), exist)
                for window, n, exist in zip(asked, end.tolist(), held(), strict=True)
            ]
            self._known = ({} if len(self._known) > MOST else self._known) | dict(zip(asked, fresh, strict=True))
        self.last = [self._known[window] for window in asked]
        return self.last


def run_on(held: Ints, came: int) -> bool:
    """Whether windows that hold so many rows each are worth to be kept from push to push."""
    many = int(held.sum())
    return len(held) <= MOST and many >= LONG * len(held) and _FEW * came <= many
