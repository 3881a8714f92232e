"""The last readings of things, which may yet start legs: in parts in order of time, each with an index by thing.

A push takes out the readings of the things that come with it, and those that wait no longer; what stays is not touched.
Parts of about the same size are put together: a reading is moved a few times, whatever is held.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.strings import hash_rows
from appulse.model.batch import Batch
from appulse.model.carried import split_carried

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.model.objects import Objects
    from appulse.model.strings import Labels

YOUNG = 512  # readings that are copied with each push
_SMALLER = 4  # times that a part is smaller than the one before it, at least
_FEW = 4  # times as many readings are held as come, at least, for some of them to be taken out


@dataclass(frozen=True)
class Pending(Batch):
    """The last reading of each key, where it may yet start a leg; ``led`` says whether a leg leads to it."""

    rows: Objects
    led: NDArray[np.bool_]


class Taken(NamedTuple):
    """Readings held that a push may be about, if any, and whether a leg leads to each.

    ``at`` says where they are in each part; None: they are all there is.
    """

    rows: list[Objects]
    led: NDArray[np.bool_]
    at: list[NDArray[np.int64]] | None


class _Part:
    """Some of the readings, in order of time, and which of them have not been taken out."""

    def __init__(self, held: Pending, *, carried: bool) -> None:
        self.held, self._carried = held, carried
        self.there, self.first, self.many = np.ones(len(held), bool), 0, len(held)

    @property
    def time(self) -> NDArray[np.int64]:
        """When the readings are from."""
        return self.held.rows.time

    @cached_property
    def _index(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Hashes of the things in order, and the reading of each."""
        hashes = hashes_of(self.held.rows, carried=self._carried)
        order = np.argsort(hashes)
        return hashes[order], order

    def about(self, hashes: NDArray[np.uint64], before: int) -> NDArray[np.int64]:
        """The readings of some things, by their hashes, and those from before a time."""
        known, order = self._index
        first, last = (known.searchsorted(hashes, side=side) for side in ("left", "right"))
        count = last - first
        found = order[np.arange(int(count.sum())) + np.repeat(first - np.cumsum(count) + count, count)]
        old = np.arange(self.first, max(self.first, int(self.time.searchsorted(before))))
        at = np.unique(np.concatenate([old, found]))
        return np.compress(self.there[at], at)

    def drop(self, at: NDArray[np.int64]) -> None:
        """Take readings out."""
        self.there[at] = False
        self.many -= len(at)
        self.first += int(self.there[self.first :].argmax())

    def standing(self) -> Pending:
        """The readings that are there."""
        return self.held.filter(self.there)


class HeldReadings:
    """The last readings of the things of one stream; keys have columns behind them, where some are ``carried``."""

    def __init__(self, *, carried: bool) -> None:
        self._parts: list[_Part] = []
        self._carried = carried

    def __len__(self) -> int:
        return sum(part.many for part in self._parts)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(part.held.nbytes for part in self._parts)

    @property
    def since(self) -> int | None:
        """The time of the first; None: there is none."""
        return min((int(part.time[part.first]) for part in self._parts if part.many), default=None)

    def all(self) -> Pending | None:
        """All of them in order; None: there is none."""
        parts = [part.standing() for part in self._parts if part.many]
        return Pending.concat(parts) if parts else None

    def set(self, held: Pending | None) -> None:
        """Hold these alone."""
        self._parts = []
        if held is not None and len(held):
            if (np.diff(held.rows.time) < 0).any():
                held = held.take(np.argsort(held.rows.time, kind="stable"))
            self._parts = [_Part(held, carried=self._carried)]

    def whole(self) -> Taken:
        """All of them, for a push that may be about any."""
        held = self.all()
        return Taken([], np.empty(0, bool), None) if held is None else Taken([held.rows], held.led, None)

    def about(self, rows: Sequence[Objects], before: int) -> Taken:
        """What is held of the things of some rows, and from before a time; all there is, where that costs no more."""
        came, held = [own for own in rows if len(own)], len(self)
        if held <= YOUNG or _FEW * sum(map(len, came)) >= held:
            return self.whole()
        if any(int(own.time.min()) < int(self._parts[-1].time[-1]) for own in came):  # not to be put behind
            return self.whole()
        hashes = [hashes_of(own, carried=self._carried) for own in came]
        wanted = np.unique(np.concatenate([np.empty(0, np.uint64), *hashes]))
        at = [part.about(wanted, before) for part in self._parts]
        some = [part.held.take(own) for part, own in zip(self._parts, at, strict=True) if len(own)]
        led = np.concatenate([np.empty(0, bool), *(own.led for own in some)])
        return Taken([own.rows for own in some], led, at)

    def put_back(self, taken: Taken, rows: NDArray[np.int64], given: Objects, led: NDArray[np.bool_]) -> None:
        """Hold some rows, in order, of those ``taken`` and others behind them, and of those taken no others."""
        if taken.at is None:
            self._parts = [_Part(Pending(given.take(rows), led), carried=self._carried)] if len(rows) else []
            return
        begin, stays = 0, np.zeros(len(given), bool)
        stays[rows] = True
        for part, own in zip(self._parts, taken.at, strict=True):
            part.drop(own[~stays[begin : begin + len(own)]])
            begin += len(own)
        self._parts = [self._tidied(part) for part in self._parts if part.many]
        new = rows >= begin
        if new.any():
            self._add(Pending(given.take(rows[new]), led[new]))

    def _tidied(self, part: _Part) -> _Part:
        return _Part(part.standing(), carried=self._carried) if 2 * part.many < len(part.there) else part

    def _add(self, fresh: Pending) -> None:
        parts = self._parts
        if parts and len(parts[-1].there) < YOUNG:
            fresh = Pending.concat([parts.pop().standing(), fresh])
        parts.append(_Part(fresh, carried=self._carried))
        while len(parts) > 1 and YOUNG <= len(parts[-1].there) > len(parts[-2].there) // _SMALLER:
            both = Pending.concat([part.standing() for part in parts[-2:]])
            parts[-2:] = [_Part(both, carried=self._carried)]


def hashes_of(rows: Objects, *, carried: bool) -> NDArray[np.uint64]:
    """A hash of the thing of each reading, the same for the same in every push."""
    keys = split_carried(rows.key)[0] if carried else rows.key
    hashes: NDArray[np.uint64] = hash_rows(keys.offsets, keys.data, group_hashes(rows.group, len(rows)))
    return hashes


def group_hashes(group: Labels | None, n: int) -> NDArray[np.int64]:
    """Numbers of groups that are the same for the same, in every push."""
    if group is None:
        return np.zeros(n, np.int64)
    compact = group.compact()
    return np.array([zlib.crc32(value) for value in compact.values], np.int64)[compact.codes]
