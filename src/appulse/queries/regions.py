"""The regions of a set of queries, which come and go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from appulse.kernels.near_regions import Reach, Readings
from appulse.kernels.region_matches import matches
from appulse.model.batch import Batch
from appulse.model.covariance import whitening
from appulse.model.growing_regions import GrowingRegions
from appulse.model.positions import EARTHS, centred, ground_of
from appulse.model.regions import NO_REGIONS, regions_of, taken
from appulse.queries.index import MOST, NULL
from appulse.queries.keys import double_keys
from appulse.queries.places import PLACE_X, PLACE_Y, membership

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Flags, Floats, Ints, Ints32
    from appulse.kernels.geodesic import Earth
    from appulse.model.regions import Regions, RegionSet
    from appulse.queries.keys import Range
    from appulse.queries.places import Place
    from appulse.queries.rows import Rows


class GivenRegions(NamedTuple):
    """A geometry and a radius for each query, None where there is none."""

    shapes: Sequence[Any]
    radii: Sequence[float | None]

    def take(self, rows: Ints) -> GivenRegions:
        """Those of some rows."""
        at = rows.tolist()
        return GivenRegions([self.shapes[i] for i in at], [self.radii[i] for i in at])


@dataclass(frozen=True, slots=True)
class Found(Batch):
    """Rows, by slot the queries in whose regions each lies, and with what probability."""

    row: Ints32
    slot: Ints32
    probability: Floats


class QueryRegions:
    """The regions of a set of queries by slot, -1 where one has none; new ones are added at the end."""

    def __init__(self, place: Place | None) -> None:
        self.earth = None if place is None or place.earth is None else EARTHS[place.earth]
        self._held = GrowingRegions(NO_REGIONS.arrays)
        self._of_slot = np.empty(0, np.int64)
        self._slots = np.empty(0, np.int32)

    def __bool__(self) -> bool:
        return len(self._held) > 0

    @property
    def nbytes(self) -> int:
        return self._held.nbytes

    @property
    def arrays(self) -> Regions:
        """All of them."""
        return self._held.arrays

    def read(self, shapes: Sequence[Any], radii: Sequence[float | None]) -> RegionSet:
        """Geometries as regions."""
        return regions_of(shapes, radii, self.earth, digested=False, rasterised=False) if len(shapes) else NO_REGIONS

    def add(self, regions: RegionSet, rows: Ints, n: int) -> dict[str, Range]:
        """Take regions in, those of queries by row; the bounds of all n queries along the axes of places."""
        if not len(rows):
            return {}
        self._held.add(regions.arrays)
        around = {}
        for name, (low, high) in _bounds(regions.arrays, self.earth).items():
            around[name] = np.full(n, NULL), np.full(n, MOST)
            around[name][0][rows], around[name][1][rows] = low, high
        return around

    def number(self, slots: Ints, size: int) -> None:
        """The regions last added are those of these slots, of so many."""
        known = self._of_slot
        if not self:
            return
        self._of_slot = np.concatenate([known, np.full(size - len(known), -1)])
        self._of_slot[slots] = len(self._held) - len(slots) + np.arange(len(slots))
        self._slots = np.concatenate([self._slots, slots.astype(np.int32)])

    def keep(self, slots: Ints32) -> None:
        """Have these slots alone, in this order."""
        if not self:
            self._of_slot = self._of_slot[:0]
            return
        numbers = self._of_slot[slots]
        has = np.flatnonzero(numbers >= 0)
        self._held = GrowingRegions(taken(self.arrays, numbers[has]))
        numbers[has] = np.arange(len(has))
        self._slots = has.astype(np.int32)
        self._of_slot = numbers

    def of(self, slots: Ints32) -> Ints:
        """The numbers of the regions of queries; -1 where there is none."""
        return self._of_slot[slots] if self else np.full(len(slots), -1)

    def are_cut(self, slots: Ints32) -> Flags:
        """Whether the mass of what queries ask for is known within ranges of places: not of discs on an Earth."""
        number = self.of(slots)
        found = np.ones(len(number), bool)
        there = np.flatnonzero(number >= 0)
        if len(there) and self.earth is not None:
            found[there] = np.isnan(self.arrays.radius[number[there]])
        return found

    def bounds(self, slots: Ints32) -> dict[str, Range]:
        """The bounds of queries that have regions along the axes of places."""
        at = self.of(slots)
        return {name: (low[at], high[at]) for name, (low, high) in _bounds(self.arrays, self.earth).items()}

    def expect(self, readings: int) -> None:
        """So many readings are about to be looked up, perhaps by several threads."""
        if self:
            self._held.expect(readings)
            self._held.search  # noqa: B018 - made here, once

    def covering(self, at: Floats) -> Found:
        """Exact places (n, 2) and the queries whose regions cover them."""
        return self.around(_exact_readings(at, self.earth), 1.0, 0.0)

    def around(self, readings: Readings, least: float | None, reach: float, *, turns: bool = False) -> Found:
        """Readings and the queries in whose regions they lie with a probability of ``least`` (None: any above 0).

        ``reach``, in deviations, is how far the box of a region may be from the mean. ``turns`` is whether readings at
        the 180th meridian lie on both its sides.
        """
        asked = -1.0 if least is None else least
        free = 0.0 if least is None or not 0.0 < least < 1.0 else np.sqrt(-2.0 * np.log(least))
        around, ground = Reach(reach, min(reach, free) + 0.01), ground_of(self.earth)
        row, region, probability = matches(self.arrays, self._held.search, readings, asked, around, ground, turns)
        return Found(row, self._slots[region], probability)

    def hold(self, slots: Ints32, rows_of: Rows, rows: Ints32) -> Flags:
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


def covered_rows(regions: RegionSet, at: Floats, earth: Earth | None) -> Ints32:
    """The exact places (n, 2) that some region covers, once for each."""
    readings, turns = _exact_readings(at, earth), False
    return matches(regions.arrays, regions.search, readings, 1.0, Reach(0.0, 0.01), ground_of(earth), turns)[0]


def _exact_readings(at: Floats, earth: Earth | None) -> Readings:
    n, none = len(at), np.empty(0, np.int64)
    place = np.zeros((n, 3)) if earth is None else centred(at[:, 1], at[:, 0], earth)
    at, error = np.ascontiguousarray(at, float), np.zeros((n, 1))
    return Readings(none, none, at, whitening(error), place, error, np.ones(n))


def _bounds(regions: Regions, earth: Earth | None) -> dict[str, Range]:
    """The boxes of regions along the axes of places; at the 180th meridian those of places at either end."""
    box, radius = regions.box, np.nan_to_num(regions.radius, nan=-1.0)
    if earth is not None:
        box, turned = box.copy(), (box[:, 0] <= -180.0) | (box[:, 2] >= 180.0)
        box[turned, 0], box[turned, 2] = -180.0, 180.0
    # The rim of a disc is as exact as distances are.
    slack = np.where(radius >= 0.0, 2e-9 * np.maximum(1.0, radius), 0.0)
    axes = ((PLACE_X, 0), (PLACE_Y, 1))
    return {name: (double_keys(box[:, k] - slack), double_keys(box[:, k + 2] + slack)) for name, k in axes}
