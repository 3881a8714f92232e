"""Fields of groups: each is there from its first reading until it is over, when nothing of it is left to end."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from appulse.kernels.identities import FREE, HEAD, NUMBERS, SLOTS, TAIL

if TYPE_CHECKING:
    from appulse.kernels.arrays import Ints
    from appulse.kernels.identities import Known
    from appulse.operators.rosters import Roster

#: A field of no more rows than that is not worth to be made smaller.
FEW = 8
#: Room for so many times what there is, is given back.
_SPARE = 8


class Fresh(NamedTuple):
    """Fresh numbers of sensors and of keys, by former ones; none: they stay."""

    sensors: Ints
    keys: Ints


SAME = Fresh(np.empty(0, np.int64), np.empty(0, np.int64))


class Sensing(Protocol):
    """The field of a group."""

    roster: Roster
    awaited: bool  # whether it is known when to look whether it is over

    @property
    def known(self) -> Known: ...
    @property
    def newest(self) -> int: ...  # the time of its last reading in the span
    @property
    def room(self) -> int: ...  # rows, sensors and the like that there is room for, whichever are most
    @property
    def nbytes(self) -> int: ...
    def tidy(self) -> Fresh: ...
    def rest(self) -> Fresh: ...


F = TypeVar("F", bound=Sensing)


def held(field: Sensing) -> int:
    """Readings in a field's span, as far as is known."""
    counts = field.known.counts
    return int(counts[HEAD] - counts[TAIL])


def stands(field: Sensing) -> bool:
    """Whether there is a phenomenon in a field."""
    counts = field.known.counts
    return bool(counts[SLOTS] > counts[FREE])


class Fields(Generic[F]):
    """The fields of groups, by their labels. Of those that are over stays how many phenomena they have had."""

    def __init__(self, span: int) -> None:
        self._span = span
        self._fields: dict[bytes, F] = {}
        self._numbers: dict[bytes, int] = {}
        self._ends: list[tuple[int, bytes]] = []  # a heap: before when there is no need to look at a field

    def __len__(self) -> int:
        return sum(map(held, self._fields.values()))

    def __contains__(self, group: bytes) -> bool:
        return group in self._fields

    def __getitem__(self, group: bytes) -> F:
        return self._fields[group]

    @property
    def nbytes(self) -> int:
        return sum(field.nbytes for field in self._fields.values())

    @property
    def over(self) -> dict[bytes, int]:
        """How many phenomena there have been in groups that are over."""
        return self._numbers

    @property
    def labels(self) -> list[bytes]:
        """All groups of which something is known, in order."""
        return sorted(self._fields.keys() | self._numbers.keys())

    def put(self, group: bytes, field: F) -> F:
        """The first reading of a group, perhaps after it was over."""
        self._fields[group] = field
        field.known.counts[NUMBERS] = self._numbers.pop(group, 0)
        return field

    def number(self, group: bytes, numbers: int) -> None:
        """So many phenomena there have been in a group."""
        if group in self._fields:
            self._fields[group].known.counts[NUMBERS] = numbers
        elif numbers:
            self._numbers[group] = numbers

    def wait(self, group: bytes) -> None:
        """Look at a field once its readings are over."""
        field = self._fields[group]
        if not field.awaited:
            field.awaited = True
            heappush(self._ends, (field.newest + self._span, group))

    def settled(self, group: bytes, before: int) -> Fresh | None:
        """After ticks of a group: room that is not needed is given back. None: the group is over, and forgotten."""
        field = self._fields[group]
        if field.newest + self._span >= before:
            self.wait(group)
            return field.tidy() if field.room > _SPARE * max(FEW, held(field)) else SAME
        if stands(field):
            return field.rest()
        counts = field.known.counts
        if counts[NUMBERS]:
            self._numbers[group] = int(counts[NUMBERS])
        del self._fields[group]
        return None

    def ended(self, before: int) -> list[bytes]:
        """Groups whose readings may be over by now."""
        found = []
        while self._ends and self._ends[0][0] < before:
            _, group = heappop(self._ends)
            field = self._fields.get(group)
            if field is not None and field.awaited:
                field.awaited = False
                found.append(group)
        return found


def sizes(arrays: Any) -> int:
    """Bytes of arrays."""
    return sum(array.nbytes for array in arrays)
