"""The regions of a set of queries, which come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from appulse.model.positions import EARTHS
from appulse.model.regions import NO_REGIONS, joined, regions_of, taken
from appulse.queries.index import MOST, NULL
from appulse.queries.keys import double_keys
from appulse.queries.places import PLACE_X, PLACE_Y, membership

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.model.regions import Regions, RegionSet
    from appulse.queries.keys import Range
    from appulse.queries.places import Place
    from appulse.queries.rows import Rows


class GivenRegions(NamedTuple):
    """A geometry and a radius for each query, None where there is none."""

    shapes: Sequence[Any]
    radii: Sequence[float | None]

    def take(self, rows: NDArray[np.int64]) -> GivenRegions:
        """Those of some rows."""
        at = rows.tolist()
        return GivenRegions([self.shapes[i] for i in at], [self.radii[i] for i in at])


class QueryRegions:
    """The regions of a set of queries by slot, -1 where one has none; new ones are added at the end."""

    def __init__(self, place: Place | None) -> None:
        self.earth = None if place is None or place.earth is None else EARTHS[place.earth]
        self._parts: list[Regions] = []
        self._size = 0
        self._of_slot = np.empty(0, np.int64)

    def __bool__(self) -> bool:
        return self._size > 0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for part in self._parts for array in part)

    @property
    def arrays(self) -> Regions:
        """All of them."""
        self._parts = [joined(self._parts)]
        return self._parts[0]

    def read(self, shapes: Sequence[Any], radii: Sequence[float | None]) -> RegionSet:
        """Geometries as regions."""
        return regions_of(shapes, radii, self.earth) if len(shapes) else NO_REGIONS

    def add(self, regions: RegionSet, rows: NDArray[np.int64], n: int) -> dict[str, Range]:
        """Take regions in, those of queries by row; the bounds of all n queries along the axes of places."""
        if not len(rows):
            return {}
        self._parts.append(regions.arrays)
        self._size += len(rows)
        # Parts double, so that no region is copied often.
        while len(self._parts) > 1 and len(self._parts[-2].radius) < 2 * len(self._parts[-1].radius):
            last = self._parts.pop()
            self._parts[-1] = joined([self._parts[-1], last])
        box, radius = regions.arrays.box, np.nan_to_num(regions.arrays.radius, nan=-1.0)
        # The rim of a disc is as exact as distances are.
        slack = np.where(radius >= 0.0, 2e-9 * np.maximum(1.0, radius), 0.0)
        around = {}
        for name, k in ((PLACE_X, 0), (PLACE_Y, 1)):
            low, high = np.full(n, NULL), np.full(n, MOST)
            low[rows], high[rows] = double_keys(box[:, k] - slack), double_keys(box[:, k + 2] + slack)
            around[name] = low, high
        return around

    def number(self, slots: NDArray[np.int64], size: int) -> None:
        """The regions last added are those of these slots, of so many; none of a slot that is -1."""
        known = self._of_slot
        if not self._size:
            return
        self._of_slot = np.concatenate([known, np.full(size - len(known), -1)])
        there = np.flatnonzero(slots >= 0)
        self._of_slot[slots[there]] = self._size - len(slots) + there

    def keep(self, slots: NDArray[np.int32]) -> None:
        """Have these slots alone, in this order."""
        if not self._size:
            return
        numbers = self._of_slot[slots]
        has = np.flatnonzero(numbers >= 0)
        self._parts, self._size = [taken(self.arrays, numbers[has])], len(has)
        numbers[has] = np.arange(len(has))
        self._of_slot = numbers

    def of(self, slots: NDArray[np.int32]) -> NDArray[np.int64]:
        """The numbers of the regions of queries; -1 where there is none."""
        return self._of_slot[slots] if self._size else np.full(len(slots), -1)

    def hold(self, slots: NDArray[np.int32], rows_of: Rows, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Whether exact rows lie in the regions of queries, pair by pair; in those that have none they do."""
        number = self.of(slots)
        lies, asked = np.ones(len(slots), bool), np.flatnonzero(number >= 0)
        if len(asked):
            lies[asked] = membership(self.arrays, number[asked], rows_of.place[rows[asked]], self.earth)
        return lies

    def described(self, slot: int) -> dict[str, Any]:
        """What is known of the region of a query that has one."""
        number = int(self.of(np.array([slot], np.int32))[0])
        if number < 0:
            return {}
        regions = self.arrays
        edges = int(regions.start[regions.first[number + 1]] - regions.start[regions.first[number]])
        radius, box = float(regions.radius[number]), regions.box[number].tolist()
        found = {"edges": edges} if np.isnan(radius) else {"radius": radius}
        return {"region": {**found, "box": box}}
