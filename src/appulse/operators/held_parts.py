"""Rows that are held by thing, in parts that each have an index: a push takes out those that it is about.

What comes is put to the smallest part, and parts of about the same size together: a row is moved a few times, whatever
is held. So are rows that were taken out: a part is made anew once half of it is.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from appulse.kernels.strings import hash_rows
from appulse.model.batch import Batch
from appulse.model.carried import split_carried

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from appulse.kernels.arrays import Flags, Hashes, Ints
    from appulse.model.strings import Bytes, Labels

YOUNG = 512  # rows that are copied with each push
_SMALLER = 4  # times that a part is smaller than the one before it, at least
_FEW = 4  # times as many rows are held as a push is about, at least, for some of them to be taken out
_NEVER = -(1 << 62)  # before every time
_NONE: Hashes = np.empty(0, np.uint64)

B = TypeVar("B", bound=Batch)


@dataclass(frozen=True)
class Taken(Generic[B]):
    """Rows held that a push may be about, in order; ``at`` is where they are in each part, None: they are all held."""

    rows: list[B]
    at: list[Ints] | None

    def __len__(self) -> int:
        return sum(map(len, self.rows))


class _Part(Generic[B]):
    """Some of the rows, and which of them have not been taken out."""

    def __init__(self, rows: B, by: HeldParts[B]) -> None:
        self.rows, self.by = rows, by
        self.there, self.many = np.ones(len(rows), bool), len(rows)
        self._first = 0  # of the rows in order of when they are due: those before are out

    @cached_property
    def hashes(self) -> Hashes:
        """Those of the rows' things."""
        return self.by.hashes(self.rows)

    @cached_property
    def _index(self) -> tuple[Hashes, Ints]:
        order = np.argsort(self.hashes, kind="stable")
        return self.hashes[order], order

    @cached_property
    def _dues(self) -> tuple[Ints, Ints]:
        due = self.by.due(self.rows)
        order = np.argsort(due, kind="stable")
        return due[order], order

    @property
    def first_due(self) -> int:
        """When the first of those that are there is due."""
        due, order = self._dues
        while not self.there[order[self._first]]:
            self._first += 1
        return int(due[self._first])

    def due_at(self, before: int) -> Ints:
        """The rows that are due before a time, as they are due."""
        due, order = self._dues
        at = order[self._first : int(due.searchsorted(before))] if self.first_due < before else order[:0]
        return np.compress(self.there[at], at)

    def of(self, hashes: Hashes) -> Ints:
        """The rows of some things, by their hashes, which are in order."""
        if _FEW * len(hashes) >= len(self.there):
            return np.flatnonzero(self.there & np.isin(self.hashes, hashes))
        known, order = self._index
        first = known.searchsorted(hashes)
        count = known.searchsorted(hashes, side="right") - first
        at = np.sort(order[np.arange(int(count.sum())) + np.repeat(first - np.cumsum(count) + count, count)])
        return np.compress(self.there[at], at)

    def drop(self, at: Ints) -> None:
        """Take rows out."""
        self.there[at] = False
        self.many -= len(at)

    def standing(self) -> B:
        """The rows that are there."""
        return self.rows.filter(self.there)


class HeldParts(Generic[B]):
    """The rows, in the order in which they came; ``hashes`` of their things, and when each is ``due``."""

    def __init__(self, hashes: Callable[[B], Hashes], due: Callable[[B], Ints] | None = None) -> None:
        self.hashes = hashes
        self.due: Callable[[B], Ints] = _undue if due is None else due
        self._parts: list[_Part[B]] = []
        self._anew = False  # rows were set since the last push

    def __len__(self) -> int:
        return sum(part.many for part in self._parts)

    @property
    def nbytes(self) -> int:
        return sum(part.rows.nbytes for part in self._parts)

    @property
    def first_due(self) -> int | None:
        """When the first row is due; None: there is none."""
        return min((part.first_due for part in self._parts), default=None)

    @property
    def last(self) -> B | None:
        """The rows that came last, some of which may have been taken out; None: there is none."""
        return self._parts[-1].rows if self._parts else None

    def all(self) -> B | None:
        """All rows; None: there is none."""
        parts = [part.standing() for part in self._parts]
        return type(parts[0]).concat(parts) if parts else None

    def set(self, rows: B | None, *, anew: bool = True) -> None:
        """Hold these alone; ``anew``: perhaps so before each push, and no index is worth it."""
        self._anew = anew
        self._parts = [_Part(rows, self)] if rows is not None and len(rows) else []

    def whole(self) -> Taken[B]:
        """All rows."""
        held = self.all()
        return Taken([] if held is None else [held], None)

    def about(self, came: Sequence[Batch], hashes: Callable[[Any], Hashes], before: int | None) -> Taken[B]:
        """Rows of the things that came, and of those due before a time (None: all); all where that costs no more."""
        held = len(self)
        if before is None or self._anew or held <= YOUNG or _FEW * sum(map(len, came)) >= held:
            return self.whole()
        return self.of(np.concatenate([_NONE, *map(hashes, came)]), before)

    def of(self, hashes: Hashes, before: int = _NEVER) -> Taken[B]:
        """The rows of things, by their hashes, and of those due before a time."""
        due = [part.hashes[part.due_at(before)] for part in self._parts] if before > _NEVER else []
        wanted = np.unique(np.concatenate([hashes, *due]))
        at = [part.of(wanted) for part in self._parts]
        return Taken([part.rows.take(own) for part, own in zip(self._parts, at, strict=True) if len(own)], at)

    def put_back(self, taken: Taken[B], stays: Flags) -> None:
        """Of the rows taken some stay where they are, the others go."""
        begin = 0
        for part, own in zip(self._parts, taken.at or [], strict=True):
            part.drop(own[~stays[begin : begin + len(own)]])
            begin += len(own)
        self._parts = [
            _Part(part.standing(), self) if 2 * part.many < len(part.there) else part
            for part in self._parts
            if part.many
        ]

    def forget(self, before: int) -> None:
        """Forget the rows that are due before a time."""
        at = [part.due_at(before) for part in self._parts]
        self.put_back(Taken([], at), np.zeros(sum(map(len, at)), bool))

    def add(self, fresh: B) -> None:
        """Hold rows behind those that there are."""
        if not len(fresh):
            return
        parts = self._parts
        if parts and len(parts[-1].there) < YOUNG:
            fresh = type(fresh).concat([parts.pop().standing(), fresh])
        parts.append(_Part(fresh, self))
        while len(parts) > 1 and YOUNG <= len(parts[-1].there) > len(parts[-2].there) // _SMALLER:
            parts[-2:] = [_Part(type(fresh).concat([part.standing() for part in parts[-2:]]), self)]


def _undue(rows: Batch) -> Ints:
    return np.zeros(len(rows), np.int64)


def things_hashed(key: Bytes, group: Labels | None, *, carried: bool) -> Hashes:
    """A hash of each row's key and group, the same for the same in every push."""
    own = split_carried(key)[0] if carried else key
    hashes: Hashes = hash_rows(own.offsets, own.data, group_hashes(group, len(own)))
    return hashes


def group_hashes(group: Labels | None, n: int) -> Ints:
    """Numbers of groups that are the same for the same, in every push."""
    if group is None:
        return np.zeros(n, np.int64)
    compact = group.compact()
    return np.array([zlib.crc32(value) for value in compact.values], np.int64)[compact.codes]
