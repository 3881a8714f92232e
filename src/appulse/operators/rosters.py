"""The sensors of one field, by number: those that it has readings of, or all that have a place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.identities import Place
from appulse.operators.names import Names
from appulse.operators.sensor_order import ranks

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Ints
    from appulse.model.strings import Bytes

# So many sensors have room at first: there may be a hundred thousand fields of few each.
_FEW = 4
_NONE = np.empty(0, np.int64)


class Roster:
    """Sensors without places, in the order they came in; 0 is nobody's number. All of them are neighbours."""

    kept = False  # whether all sensors are known for good

    def __init__(self) -> None:
        self.names = Names(_FEW)  # by which events name sensors
        self._place: Place | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def nbytes(self) -> int:
        """Bytes held for this field alone."""
        return self.names.nbytes

    @property
    def strings(self) -> Bytes:
        """The sensors by number."""
        return self.names.strings

    @property
    def place(self) -> Place:
        """Where the sensors are, and their order."""
        if self._place is None or len(self._place.rank) != len(self):
            self._place = self._found_place()
        return self._place

    def of(self, sensors: Bytes) -> Ints:
        """The number of each sensor; new ones are numbered as they come."""
        return self.names.of(sensors)

    def reported(self, numbers: Ints) -> Ints:
        """The numbers by which ``names`` has these sensors."""
        return numbers

    def keep(self, used: Flags) -> Ints:
        """Forget all other sensors: fresh numbers by former ones."""
        strings, numbers = self.strings, np.zeros(len(used), np.int64)
        some = np.flatnonzero(used)
        self._begin_anew()
        numbers[some] = self.of(strings.take(some))
        return numbers

    def _begin_anew(self) -> None:
        self.names, self._place = Names(_FEW), None

    def _found_place(self) -> Place:
        return Place(_NONE, _NONE, np.empty((len(self), 0)), ranks(self.strings))


class Everywhere(Roster):
    """All sensors that have a place, for every field."""

    kept = True

    def __init__(self, names: Names, place: Place) -> None:
        self.names, self._place = names, place

    @property
    def nbytes(self) -> int:
        return 0


class Somewhere(Roster):
    """Those of many sensors that have a place of which a field has readings, and which of them are neighbours."""

    def __init__(self, everywhere: Everywhere) -> None:
        self.names, self._everywhere = everywhere.names, everywhere
        self._begin_anew()

    def __len__(self) -> int:
        return len(self._own)

    @property
    def nbytes(self) -> int:
        place = 0 if self._place is None else sum(array.nbytes for array in self._place)
        return self._own.nbytes + place

    @property
    def strings(self) -> Bytes:
        return self._own.strings

    def of(self, sensors: Bytes) -> Ints:
        return self._own.of(sensors)

    def reported(self, numbers: Ints) -> Ints:
        found: Ints = self.place.rank[numbers]
        return found

    def _begin_anew(self) -> None:
        self._own, self._place = Names(_FEW), None

    def _found_place(self) -> Place:
        whole, strings = self._everywhere.place, self.strings
        mine = np.concatenate([np.zeros(1, np.int64), self.names.of(strings.slice(1, len(strings)))])
        begin, many = whole.near_first[mine], whole.near_first[mine + 1] - whole.near_first[mine]
        at = np.repeat(begin - np.cumsum(many) + many, many) + np.arange(many.sum())
        owner, near, order = np.repeat(np.arange(len(mine)), many), whole.near[at], np.argsort(mine)
        place = np.minimum(np.searchsorted(mine[order], near), len(mine) - 1)
        known = mine[order][place] == near
        owner, near = owner[known], order[place][known]
        first = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(owner, minlength=len(mine)))])
        return Place(first, near[np.lexsort((near, owner))], whole.at[mine], mine)
