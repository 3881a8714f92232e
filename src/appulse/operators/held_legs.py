"""The legs of one stream that may still be met, in parts that each have an index of their own.

New legs are put to the smallest part, and parts of about the same size together: a leg is moved a few times, whatever
is held. So are those that are over: a part is made anew once half of it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels import held_legs as kernel
from appulse.kernels import legs as kernels
from appulse.kernels.arrays import RowPairs
from appulse.model.batch import SHARED, Batch
from appulse.operators.held_parts import group_hashes
from appulse.operators.leg_search import MOST_ENTRIES, binned_pairs, found_in, joined, leg_index
from appulse.operators.legs import Legs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from appulse.kernels.arrays import Flags, Floats, Ints

NEVER = -(1 << 62)  # before every time
YOUNG = 512  # legs that are copied with each push
SMALLER = 4  # times that a part is smaller than the one before it, at least
_A_BIN = 8  # legs that are compared one by one in the time that a bin takes


@dataclass(frozen=True)
class Swept(Batch):
    """Legs, and where they are to be looked for: the columns of `swept`."""

    legs: Legs
    begin: Ints
    end: Ints
    at: Floats
    to: Floats
    reach: Floats
    margin: Floats
    side: Ints
    thing: Ints
    group: Ints
    fresh: Flags
    instant: bool = field(metadata=SHARED)

    @property
    def swept(self) -> kernels.Legs:
        """As kernels read it."""
        return kernels.Legs(*(getattr(self, name) for name in kernels.Legs._fields))


@dataclass
class _Part:
    """Some of the legs, and what finds them."""

    held: Swept
    epsilon: float

    def __len__(self) -> int:
        return len(self.held.swept.begin)

    @cached_property
    def ends(self) -> Ints:
        """When legs are over, in order."""
        return np.sort(self.held.swept.end)

    @cached_property
    def index(self) -> kernel.LegIndex:
        """The bins that the legs are in."""
        return leg_index(self.held.swept, self.epsilon)

    @cached_property
    def last(self) -> int:
        """When the last leg is over."""
        return int(self.held.swept.end.max())

    def since(self, time: int) -> int:
        """How many legs are over before a time."""
        return len(self) if time > self.last else int(self.ends.searchsorted(time))

    def stays(self, time: int) -> Flags:
        """Which are not."""
        mask: Flags = self.held.swept.end >= time
        return mask


class HeldLegs:
    """The legs of one stream. ``place`` says where legs are to be looked for, within ``epsilon``."""

    def __init__(self, place: Callable[[Legs], kernels.Legs], epsilon: float) -> None:
        self._place, self._epsilon = place, epsilon
        self._parts: list[_Part] = []
        self._since = NEVER  # legs that were over before this are left out
        self.compared = 0  # legs held that new ones were compared with, and those that were moved

    def __len__(self) -> int:
        return sum(len(part) - part.since(self._since) for part in self._parts)

    @property
    def nbytes(self) -> int:
        """Bytes held of legs."""
        return sum(part.held.legs.nbytes for part in self._parts)

    def placed(self, legs: Legs) -> Swept:
        """Legs with what says where they are."""
        swept = self._place(legs)
        return Swept(legs, *swept._replace(group=group_hashes(legs.rows.group, len(legs))))

    def all(self) -> Legs | None:
        """The legs in the order in which they came; None: there is none."""
        parts = [part.held.legs.filter(part.stays(self._since)) for part in self._parts if len(part)]
        legs = Legs.concat(parts) if parts else None
        return legs if legs is not None and len(legs) else None

    def add(self, fresh: Swept) -> None:
        """Keep legs."""
        last = self._parts.pop() if self._parts and len(self._parts[-1]) < YOUNG else None
        self._parts.append(_Part(fresh if last is None else Swept.concat([last.held, fresh]), self._epsilon))
        while len(self._parts) > 1 and YOUNG <= len(self._parts[-1]) > len(self._parts[-2]) // SMALLER:
            own = [self._filtered(part).held for part in self._parts[-2:]]
            self._parts[-2:] = [_Part(Swept.concat(own), self._epsilon)]

    def forget(self, since: int) -> None:
        """No leg to come begins before a time."""
        self._since = max(self._since, since)
        parts = [self._filtered(part) if 2 * part.since(self._since) > len(part) else part for part in self._parts]
        self._parts = [part for part in parts if len(part)]

    def _filtered(self, part: _Part) -> _Part:
        over = part.since(self._since)
        return part if not over else _Part(part.held.take(np.flatnonzero(part.stays(self._since))), self._epsilon)

    def near(self, fresh: Swept | None) -> Iterator[tuple[Ints, Swept]]:
        """Legs held that share a time with some that came, and may come within epsilon: of each which of these."""
        for part in self._parts if fresh is not None else ():
            assert fresh is not None  # noqa: S101 - there are some
            pairs = self._pairs(fresh.swept, part)
            if len(pairs.left):
                yield pairs.left, part.held.take(pairs.right)

    def _pairs(self, fresh: kernels.Legs, part: _Part) -> RowPairs:
        """Which of some legs, and which of a part."""
        held, one_by_one = part.held.swept, len(fresh.begin) * len(part)
        anew = _A_BIN * MOST_ENTRIES * (len(fresh.begin) + len(part))
        by_bins = np.inf
        if one_by_one > _A_BIN * YOUNG:
            by_bins = _A_BIN * kernels.entries(fresh, self._epsilon, part.index.bins)
        if one_by_one <= min(by_bins, anew):
            self.compared += one_by_one
            return found_in(
                lambda room: kernel.scan_held(fresh, held, self._epsilon, self._since, room), 4 * len(fresh.begin)
            )
        if by_bins > anew:
            return self._anew(fresh, part)
        looked = np.zeros(1, np.int64)
        pairs = found_in(
            lambda room: kernel.find_held(fresh, held, (self._epsilon, self._since), part.index, room, looked),
            4 * len(fresh.begin),
        )
        self.compared += int(looked[0])
        return pairs

    def _anew(self, fresh: kernels.Legs, part: _Part) -> RowPairs:
        """The same by bins that suit new legs, too, where these are far longer than those held."""
        both = joined([part.held.swept, fresh])
        own, first = np.arange(len(both.begin)), len(part)
        self.compared += len(own)
        found = binned_pairs(both._replace(thing=own, fresh=own >= first), self._epsilon, alone=True)
        some = (found.left < first) & (found.right >= first)
        left, right = found.left[some], found.right[some]
        there = part.held.swept.end[left] >= self._since
        return RowPairs(right[there] - first, left[there])
