"""Pairs found, and the pairs that stand: what a join reports when asked for changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from appulse.model.batch import Batch
from appulse.model.strings import Bytes
from appulse.operators.numbering import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.model.batch import Ragged
    from appulse.operators.numbering import WindowStarts, Withdrawn
    from appulse.operators.pairings import Pairings


@dataclass(frozen=True)
class Answers(Batch):
    """Pairs found, as columns.

    Where changes are reported, ``change`` is +1 for a pair that enters and -1 for one that leaves, ``at`` when it does,
    and ``at_stream`` the stream whose row decided that. ``pairings`` are the samples that match, where asked for, and
    ``upper`` what a probability is at most, where ``probability`` is what it is at least. ``ratio`` is the logarithm
    of a likelihood ratio, where asked for. Where the nearest rows are, ``left_rank`` is the rank of the left row, and
    ``place`` of the right one among them. ``margin`` is what an assignment loses without the pair.
    """

    left_stream: NDArray[np.int64]
    left_key: Bytes
    left_time: NDArray[np.int64]
    right_stream: NDArray[np.int64]
    right_key: Bytes
    right_time: NDArray[np.int64]
    distance: NDArray[np.float64]
    probability: NDArray[np.float64]
    change: NDArray[np.int64] | None = None
    at: NDArray[np.int64] | None = None
    at_stream: NDArray[np.int64] | None = None
    pairings: Ragged[Pairings] | None = None
    upper: NDArray[np.float64] | None = None
    ratio: NDArray[np.float64] | None = None
    left_rank: NDArray[np.int64] | None = None
    place: NDArray[np.int64] | None = None
    margin: NDArray[np.float64] | None = None

    def entering(self) -> Answers:
        """The same pairs as entering the answer at their first tick."""
        later = np.where(self.left_time > self.right_time, self.left_stream, self.right_stream)
        at = np.maximum(self.left_time, self.right_time)
        return replace(self, change=np.ones(len(self), np.int64), at=at, at_stream=later)

    def leaving(self, at: NDArray[np.int64], at_stream: NDArray[np.int64]) -> Answers:
        """The same pairs as leaving it."""
        return replace(self, change=np.full(len(self), -1), at=at, at_stream=at_stream)

    @classmethod
    def concat(cls, parts: Sequence[Answers]) -> Answers:
        """The pairs of the parts, one part after the other; no part at all is no pair."""
        return super().concat(parts) if parts else NO_ANSWERS


_NONE, _NO_KEYS = np.empty(0, np.int64), Bytes.of([])
NO_ANSWERS = Answers(_NONE, _NO_KEYS, _NONE, _NONE, _NO_KEYS, _NONE, np.empty(0), np.empty(0))


class OpenPairs:
    """The pairs that entered and have not left yet."""

    def __init__(self) -> None:
        self._pairs, self._fresh = NO_ANSWERS, []  # type: Answers, list[Answers]
        # When a pair leaves and of which stream the row is that does (time windows), or its group (windows of rows);
        # and its rows: by numbers that never change, or by those in their windows.
        self._ends = np.empty((0, 4), np.int64)
        self._fresh_ends: list[NDArray[np.int64]] = []

    def __len__(self) -> int:
        return len(self._pairs) + sum(map(len, self._fresh))

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        keys = self._pairs.left_key.data.nbytes + self._pairs.right_key.data.nbytes
        return len(self) * 13 * 8 + keys

    @property
    def next_end(self) -> int | None:
        """When the next pair leaves, of time windows."""
        self._settle()
        return int(self._ends[:, 0].min()) if len(self) else None

    def add_timed(
        self, pairs: Answers, ends: tuple[NDArray[np.int64], NDArray[np.int64]], rows: NDArray[np.int64]
    ) -> None:
        """Pairs under time windows, when each row leaves, and their rows (n, 2)."""
        stream = np.where(ends[0] <= ends[1], pairs.left_stream, pairs.right_stream)
        self._add(pairs, np.column_stack([np.minimum(*ends), stream, rows]))

    def add_ranked(
        self, pairs: Answers, group: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64]
    ) -> None:
        """Pairs under windows of rows, and the rows' numbers."""
        self._add(pairs, np.column_stack([group, np.zeros(len(group), np.int64), left, right]))

    def _add(self, pairs: Answers, ends: NDArray[np.int64]) -> None:
        if len(pairs):
            self._fresh.append(pairs)
            self._fresh_ends.append(ends)

    def _settle(self) -> None:
        if self._fresh:
            self._pairs = Answers.concat([self._pairs, *self._fresh])
            self._ends = np.vstack([self._ends, *self._fresh_ends])
            self._fresh, self._fresh_ends = [], []

    @property
    def pairs(self) -> Answers:
        """All of them."""
        self._settle()
        return self._pairs

    def until(self, frontier: int) -> Answers:
        """Pairs whose time is over before ``frontier``: they held until the time told."""
        self._settle()
        gone = self._ends[:, 0] < frontier
        if not np.count_nonzero(gone):
            return NO_ANSWERS
        ends, pairs = self._ends[gone], self._drop(gone)
        return pairs.leaving(ends[:, 0], ends[:, 1])

    def below(self, floor: NDArray[np.int64], groups: NDArray[np.int64], floors: WindowStarts) -> Answers:
        """Pairs of which a row lies below the floor (group, stream), with the tick that pushed it out.

        ``floors`` are the news, ``groups`` their numbers.
        """
        self._settle()
        sides = [(self._pairs.left_stream, self._ends[:, 2]), (self._pairs.right_stream, self._ends[:, 3])]
        group = self._ends[:, 0]
        gone = np.zeros(len(self), bool)
        for stream, number in sides:
            gone |= number < floor[group, stream]
        if not gone.any():
            return NO_ANSWERS
        ticks = [_tick_of(group[gone], stream[gone], number[gone], groups, floors) for stream, number in sides]
        first = np.minimum(*ticks)
        stream = np.where(ticks[0] <= ticks[1], self._pairs.left_stream[gone], self._pairs.right_stream[gone])
        return self._drop(gone).leaving(first, stream)

    def without(self, rows: NDArray[np.int64]) -> Answers:
        """Under time windows, the pairs of rows that are withdrawn: they stood for no time."""
        self._settle()
        return self._withdrawn(np.isin(self._ends[:, 2], rows) | np.isin(self._ends[:, 3], rows))

    def renumbered(self, withdrawn: Withdrawn) -> Answers:
        """Under windows of rows, the pairs of rows that are withdrawn; the rows of others are renumbered."""
        self._settle()
        group, gone = self._ends[:, 0], np.zeros(len(self), bool)
        ends = self._ends.copy()
        for column, stream in ((2, self._pairs.left_stream), (3, self._pairs.right_stream)):
            own, ends[:, column] = withdrawn.renumber(group, stream, ends[:, column])
            gone |= own
        self._ends = ends
        return self._withdrawn(gone)

    def _withdrawn(self, gone: NDArray[np.bool_]) -> Answers:
        if not gone.any():
            return NO_ANSWERS
        entered = self._drop(gone).entering()
        assert entered.at is not None and entered.at_stream is not None  # noqa: S101, PT018 - a moment ago
        return entered.leaving(entered.at, entered.at_stream)

    def _drop(self, gone: NDArray[np.bool_]) -> Answers:
        leaving = self._pairs.take(np.flatnonzero(gone))
        self._pairs, self._ends = self._pairs.take(np.flatnonzero(~gone)), self._ends[~gone]
        return leaving


def _tick_of(
    group: NDArray[np.int64],
    stream: NDArray[np.int64],
    number: NDArray[np.int64],
    groups: NDArray[np.int64],
    floors: WindowStarts,
) -> NDArray[np.int64]:
    """The tick at which each row fell below its window's floor; the end of time where the news do not tell."""
    never = np.full(len(group), np.iinfo(np.int64).max)
    if len(floors) == 0:
        return never
    wide = int(max(stream.max(), floors.stream.max())) + 1
    windows, known = np.unique(groups * wide + floors.stream, return_inverse=True)
    place = known * NUMBERS + floors.floor
    order = np.argsort(place)
    wanted = group * wide + stream
    own = np.minimum(np.searchsorted(windows, wanted), len(windows) - 1)
    # The first floor above the number, of the same window.
    at = np.searchsorted(place[order], own * NUMBERS + number, side="right")
    inside = np.minimum(at, len(order) - 1)
    told = (windows[own] == wanted) & (at < len(order)) & (known[order[inside]] == own)
    return np.where(told, floors.tick[order[inside]], never)
