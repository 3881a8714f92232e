"""Legs that pass through fences between two readings, both outside."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels import crossings as kernels
from appulse.kernels.fences import ENTER, EXIT, Events
from appulse.kernels.tangent import leads
from appulse.model.covariance import flat_part, whitening
from appulse.model.positions import degree_scale, degrees_of, metres_of_degrees
from appulse.operators.legs import LegMaker, routes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.kernels.geodesic import Earth
    from appulse.model.motion import Straight
    from appulse.model.objects import Objects
    from appulse.model.regions import RegionSet
    from appulse.model.strings import Bytes
    from appulse.operators.legs import Legs, Pending

#: The kind of the event, after enter, dwell and exit.
CROSS = 3
# Metres of a geodesic that is straight in degrees, to some metres.
_PIECE = 10_000.0
_FOREVER = np.iinfo(np.int64).max


class Crossed(NamedTuple):
    """Crossings: the keys of the readings before, and an event for each."""

    key: Bytes
    events: Events


class Passing(NamedTuple):
    """Legs and fences, the probability that one passes through the other, and where on the leg, from 0 to 1."""

    leg: NDArray[np.int64]
    fence: NDArray[np.int64]
    probability: NDArray[np.float64]
    at: NDArray[np.float64]


class Crossings:
    """Makes legs, and finds those that pass through fences."""

    def __init__(
        self, motion: Straight, least: float, regions: RegionSet, earth: Earth | None, *, carried: bool = False
    ) -> None:
        self._least, self._regions, self._earth = least, regions, earth
        self._maker = LegMaker(motion, earth, carried=carried)
        arrays = regions.arrays
        self._middles = arrays.centre[:, :2] if earth is None else degrees_of(arrays.centre, earth)[:, ::-1]

    @property
    def pending(self) -> Pending | None:
        """The last reading of each key, where it may yet start a leg."""
        return self._maker.pending

    @pending.setter
    def pending(self, held: Pending) -> None:
        self._maker.pending = held

    def legs(self, rows: Sequence[Objects], complete: int, *, ended: bool) -> Legs | None:
        """The legs that are known now, of some length."""
        made = self._maker.push(rows, complete, ended=ended)
        return None if made is None else made.legs.filter(made.legs.end > made.legs.rows.time)

    def of(self, legs: Legs, thing: NDArray[np.int64], stays: NDArray[np.int64]) -> Crossed:
        """The crossings of legs whose ends are outside; ``stays`` are those of things, as `stays_of` has them."""
        found = self._passing(legs)
        free = _outside(thing[found.leg], found.fence, legs.rows.time[found.leg], legs.end[found.leg], stays)
        found = Passing(found.leg[free], found.fence[free], found.probability[free], found.at[free])
        time, zeros = legs.rows.time[found.leg], np.zeros(len(found.leg), np.int64)
        when = time + np.floor(found.at * (legs.end[found.leg] - time)).astype(np.int64)
        which = np.column_stack([np.arange(len(zeros)), found.fence, zeros + CROSS, zeros]).astype(np.int32)
        events = Events(which, np.column_stack([when, time]), found.probability[:, None])
        return Crossed(legs.rows.key.take(found.leg), events)

    def _ways(self, *columns: NDArray[np.float64]) -> kernels.Ways:
        """Arrays of one layout: for another one the kernels would be compiled again."""
        begin, end, scale, unit, mass, middles = map(np.ascontiguousarray, (*columns, self._middles))
        return kernels.Ways(begin, end, scale, unit, mass, middles, self._earth is not None)

    def _passing(self, legs: Legs) -> Passing:
        """What passes through what."""
        least, earth = self._least, self._earth
        begin, scale, place, _ = placed(legs.rows, earth)
        owner = np.arange(len(legs))
        if earth is None:
            end, unit = legs.to, np.ones((len(legs), 2))
            whole = pieces = self._ways(begin, end, scale, unit, legs.rows.mass)
        else:
            route = routes(earth, place, legs.to[:, :3])
            parts = np.ceil(np.hypot(route[:, 0], route[:, 1]) / _PIECE).astype(np.int64).clip(1)
            owner = np.repeat(owner, parts)
            share = (np.arange(len(owner)) - np.repeat(np.cumsum(parts) - parts, parts)) / parts[owner]
            at = _along(earth, place[owner], route[owner], share, begin[owner])
            to = _along(earth, place[owner], route[owner], share + 1.0 / parts[owner], at)
            unit = metres_of_degrees(at[:, 1], earth)
            pieces = self._ways(at, to, scale[owner], unit, legs.rows.mass[owner])
            first, last = np.cumsum(parts) - parts, np.cumsum(parts) - 1
            whole = self._ways(at[first], to[last], scale, unit[first], legs.rows.mass)
        reach = math.sqrt(max(0.0, -2.0 * math.log(least)))
        pairs, figures = kernels.cross(self._regions.search.grid, self._regions.arrays, pieces, reach, least)
        leg, fence = owner[pairs[:, 0]], pairs[:, 1]
        # Of several pieces of a leg, or of a region that is cut, the one that is likeliest counts.
        order = np.lexsort((-figures[:, 0], fence, leg))
        new = np.ones(len(order), bool)
        new[1:] = (np.diff(leg[order]) != 0) | (np.diff(fence[order]) != 0)
        kept = order[new]
        leg, fence, shift = leg[kept], fence[kept], np.column_stack([figures[kept, 1], np.zeros(len(kept))])
        moved = whole._replace(
            begin=whole.begin[leg] + shift, end=whole.end[leg] + shift, scale=whole.scale[leg], unit=whole.unit[leg]
        )
        return Passing(leg, fence, figures[kept, 0], kernels.middles_of(moved, self._regions.arrays, fence))


def _along(
    earth: Earth,
    place: NDArray[np.float64],
    route: NDArray[np.float64],
    share: NDArray[np.float64],
    near: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Longitude and latitude of places on routes, longitudes as those ``near`` go on."""
    to = place.copy()
    leads(earth, place, route * share[:, None], to)
    degrees = degrees_of(to, earth)[:, ::-1]
    degrees[:, 0] += 360.0 * np.round((near[:, 0] - degrees[:, 0]) / 360.0)
    return degrees


def stays_of(visits: NDArray[np.int64], events: Events, thing: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of visits before some events of things, and of those that enter by them: thing, fence, begin and end (n, 4)."""
    whole = np.column_stack([thing, events.which[:, 1:3], events.when])  # thing, fence, kind, time, begin
    entered, left = whole[whole[:, 2] == ENTER], whole[whole[:, 2] == EXIT]
    begun = np.vstack([visits[:, :3], entered[:, [0, 1, 3]]])
    ends = {tuple(row): end for row, end in zip(left[:, [0, 1, 4]].tolist(), left[:, 3].tolist(), strict=True)}
    end = [ends.get(tuple(row), _FOREVER) for row in begun.tolist()]
    return np.column_stack([begun, np.array(end, np.int64)])


def _outside(
    thing: NDArray[np.int64],
    fence: NDArray[np.int64],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    stays: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which legs have no stay in their fence at either end."""
    known: dict[tuple[int, int], list[tuple[int, int]]] = {}
    wanted = set(zip(thing.tolist(), fence.tolist(), strict=True))
    for who, where, since, until in stays.tolist() if wanted else []:
        if (who, where) in wanted:
            known.setdefault((who, where), []).append((since, until))
    rows = zip(thing.tolist(), fence.tolist(), begin.tolist(), end.tolist(), strict=True)
    free = [all(until <= a or since > b for since, until in known.get((who, where), ())) for who, where, a, b in rows]
    return np.array(free, bool)


def placed(rows: Objects, earth: Earth | None) -> tuple[NDArray[np.float64], ...]:
    """Of readings ``at``, ``scale``, ``place`` and ``spread`` of `appulse.kernels.near_regions.Readings`."""
    spread = flat_part(rows.spread)
    if earth is None:
        return rows.centre, whitening(spread), np.zeros((len(rows), 3)), spread
    assert rows.degrees is not None  # noqa: S101 - the encoding of a call asks for them
    return rows.degrees, degree_scale(rows.degrees[:, 1], spread, earth), rows.centre[:, :3], spread
