"""Pairs found, and the pairs that stand: what a join reports when asked for changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from appulse.model.batch import Batch
from appulse.model.strings import Bytes
from appulse.operators.window_starts import NUMBERS
from appulse.operators.withdrawals import expanded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.batch import Ragged
    from appulse.operators.pairings import Pairings
    from appulse.operators.window_starts import WindowStarts, Withdrawn


@dataclass(frozen=True)
class Answers(Batch):
    """Pairs found, as columns.

    Where changes are reported, ``change`` is +1 for a pair that enters and -1 for one that leaves, ``at`` when it does,
    and ``at_stream`` the stream whose row decided that. ``pairings`` are the samples that match, where asked for, and
    ``upper`` what a probability is at most, where ``probability`` is what it is at least. ``ratio`` is the logarithm
    of a likelihood ratio, where asked for. Where the nearest rows are, ``left_rank`` is the rank of the left row, and
    ``place`` of the right one among them; where rows may be withdrawn ranks are numbers that never change, and there is
    a ``right_rank``, too. ``margin`` is what an assignment loses without the pair.
    """

    left_stream: Ints
    left_key: Bytes
    left_time: Ints
    right_stream: Ints
    right_key: Bytes
    right_time: Ints
    distance: Floats
    probability: Floats
    change: Ints | None = None
    at: Ints | None = None
    at_stream: Ints | None = None
    pairings: Ragged[Pairings] | None = None
    upper: Floats | None = None
    ratio: Floats | None = None
    left_rank: Ints | None = None
    right_rank: Ints | None = None
    place: Ints | None = None
    margin: Floats | None = None

    def entering(self) -> Answers:
        """The same pairs as entering the answer at their first tick."""
        later = np.where(self.left_time > self.right_time, self.left_stream, self.right_stream)
        at = np.maximum(self.left_time, self.right_time)
        return replace(self, change=np.ones(len(self), np.int64), at=at, at_stream=later)

    def leaving(self, at: Ints, at_stream: Ints) -> Answers:
        """The same pairs as leaving it."""
        return replace(self, change=np.full(len(self), -1), at=at, at_stream=at_stream)

    @classmethod
    def concat(cls, parts: Sequence[Answers]) -> Answers:
        """The pairs of the parts, one part after the other; no part at all is no pair."""
        return super().concat(parts) if parts else NO_ANSWERS


_NONE, _NO_KEYS = np.empty(0, np.int64), Bytes.of([])
NO_ANSWERS = Answers(_NONE, _NO_KEYS, _NONE, _NONE, _NO_KEYS, _NONE, np.empty(0), np.empty(0))


class _Part:
    """Pairs that entered one after the other, which of them stand, and how many do not.

    ``ends`` say when a pair leaves and of which stream the row is that does (time windows), or its group (windows of
    rows); and its rows: by numbers that never change, or by those in their windows.
    """

    def __init__(self, pairs: Answers, ends: Ints) -> None:
        self.pairs, self.ends = pairs, ends
        self.stands = np.ones(len(pairs), bool)
        self.gone = 0
        self.first = int(ends[:, 0].min(initial=_NEVER))
        self._by_row: tuple[Ints, Ints] | None = None

    def __len__(self) -> int:
        return len(self.pairs) - self.gone

    def drop(self, gone: Ints) -> Answers:
        """These leave."""
        self.stands[gone] = False
        self.gone += len(gone)
        return self.pairs.take(gone)

    def of_rows(self, rows: Ints) -> Ints:
        """The pairs of some rows, each once, by numbers that never change; the part is sorted by them once."""
        if self._by_row is None:
            both = self.ends[:, 2:].ravel(order="F")
            order = np.argsort(both)
            self._by_row = both[order], order
        numbers, order = self._by_row
        begin, end = (np.searchsorted(numbers, rows, side) for side in ("left", "right"))
        return np.unique(order[expanded(begin, end)] % max(1, len(self.pairs)))

    def kept(self) -> _Part:
        """Those that stand alone."""
        if not self.gone:
            return self
        at = np.flatnonzero(self.stands)
        return _Part(self.pairs.take(at), self.ends[at])


_NEVER = np.iinfo(np.int64).max


class OpenPairs:
    """The pairs that entered and have not left yet.

    In parts, each at least twice as large as the next one: what comes and goes costs what it is, not all that stands.
    """

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def nbytes(self) -> int:
        keys = (key for part in self._parts for key in (part.pairs.left_key, part.pairs.right_key))
        return sum(len(part.pairs) for part in self._parts) * 13 * 8 + sum(key.data.nbytes for key in keys)

    @property
    def next_end(self) -> int | None:
        """When the next pair leaves, of time windows."""
        some = [int(part.ends[part.stands, 0].min()) for part in self._parts if len(part)]
        return min(some, default=None)

    def add_timed(self, pairs: Answers, ends: tuple[Ints, Ints], rows: Ints) -> None:
        """Pairs under time windows, when each row leaves, and their rows (n, 2)."""
        stream = np.where(ends[0] <= ends[1], pairs.left_stream, pairs.right_stream)
        self._add(pairs, np.column_stack([np.minimum(*ends), stream, rows]))

    def add_ranked(self, pairs: Answers, group: Ints, left: Ints, right: Ints) -> None:
        """Pairs under windows of rows, and the rows' numbers."""
        self._add(pairs, np.column_stack([group, np.zeros(len(group), np.int64), left, right]))

    def _add(self, pairs: Answers, ends: Ints) -> None:
        if len(pairs):
            self._parts.append(_Part(pairs, ends))
            self._settle()

    def _settle(self) -> None:
        """Put parts together that are of like size, and leave out what is gone where that is much."""
        self._parts = [part if 4 * part.gone < len(part.pairs) else part.kept() for part in self._parts if len(part)]
        while len(self._parts) > 1 and len(self._parts[-2].pairs) < 2 * len(self._parts[-1].pairs):
            several = [part.kept() for part in self._parts[-2:]]
            ends = np.vstack([part.ends for part in several])
            self._parts[-2:] = [_Part(Answers.concat([part.pairs for part in several]), ends)]

    @property
    def pairs(self) -> Answers:
        """All of them."""
        return Answers.concat([part.kept().pairs for part in self._parts])

    def until(self, frontier: int) -> Answers:
        """Pairs whose time is over before ``frontier``: they held until the time reported."""
        found = []
        for part in self._parts:
            if part.first < frontier:
                gone = np.flatnonzero(part.stands & (part.ends[:, 0] < frontier))
                found.append(part.drop(gone).leaving(part.ends[gone, 0], part.ends[gone, 1]))
        return self._dropped(found)

    def below(self, floor: Ints, groups: Ints, floors: WindowStarts) -> Answers:
        """Pairs of which a row lies below the floor (group, stream), with the tick that pushed it out.

        ``floors`` are the news, ``groups`` their numbers.
        """
        found = []
        for part in self._parts:
            group, streams = part.ends[:, 0], (part.pairs.left_stream, part.pairs.right_stream)
            over = [part.ends[:, 2 + side] < floor[group, stream] for side, stream in enumerate(streams)]
            gone = np.flatnonzero(part.stands & (over[0] | over[1]))
            if not len(gone):
                continue
            own = [stream[gone] for stream in streams]
            ticks = [_tick_of(group[gone], own[k], part.ends[gone, 2 + k], groups, floors) for k in (0, 1)]
            stream = np.where(ticks[0] <= ticks[1], *own)
            found.append(part.drop(gone).leaving(np.minimum(*ticks), stream))
        return self._dropped(found)

    def without(self, rows: Ints) -> Answers:
        """Under time windows, the pairs of rows that are withdrawn: they stood for no time."""
        rows = np.sort(rows)
        return self._withdrawn([part.of_rows(rows) for part in self._parts])

    def renumbered(self, withdrawn: Withdrawn) -> Answers:
        """Under windows of rows, the pairs of rows that are withdrawn; the rows of others are renumbered."""
        gone = []
        for part in self._parts:
            ends, mine = part.ends.copy(), np.zeros(len(part.ends), bool)
            for column, stream in ((2, part.pairs.left_stream), (3, part.pairs.right_stream)):
                own, ends[:, column] = withdrawn.renumber(ends[:, 0], stream, ends[:, column])
                mine |= own
            part.ends = ends
            gone.append(np.flatnonzero(mine))
        return self._withdrawn(gone)

    def _withdrawn(self, gone: Sequence[Ints]) -> Answers:
        standing = [mine[part.stands[mine]] for part, mine in zip(self._parts, gone, strict=True)]
        found = [part.drop(at) for part, at in zip(self._parts, standing, strict=True) if len(at)]
        entered = self._dropped(found).entering()
        assert entered.at is not None and entered.at_stream is not None  # noqa: S101, PT018 - a moment ago
        return entered.leaving(entered.at, entered.at_stream)

    def _dropped(self, found: Sequence[Answers]) -> Answers:
        found = [pairs for pairs in found if len(pairs)]
        if found:
            self._settle()
        return Answers.concat(found)


def _tick_of(group: Ints, stream: Ints, number: Ints, groups: Ints, floors: WindowStarts) -> Ints:
    """The tick at which each row fell below its window's floor; the end of time where no update says it."""
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
    known_windows = (windows[own] == wanted) & (at < len(order)) & (known[order[inside]] == own)
    return np.where(known_windows, floors.tick[order[inside]], never)
