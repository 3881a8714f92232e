"""Legs that pass through fences between two readings, both outside."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels import crossings as kernels
from appulse.kernels.disc_crossings import Flights, discs_passed
from appulse.kernels.fences import ENTER, EXIT, Events
from appulse.model.batch import Batch
from appulse.model.covariance import flat_part, flat_widest, whitening
from appulse.model.positions import degree_scale
from appulse.operators.leg_pieces import pieces_of, widened
from appulse.operators.legs import LegMaker, routes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.kernels.geodesic import Earth
    from appulse.model.motion import Straight
    from appulse.model.objects import Objects
    from appulse.model.regions import Regions, RegionSet
    from appulse.model.strings import Bytes
    from appulse.operators.legs import Legs
    from appulse.operators.pending import Pending

#: The kind of the event, after enter, dwell and exit.
CROSS = 3
_FOREVER = np.iinfo(np.int64).max


class Crossed(NamedTuple):
    """Crossings: the keys of the readings before, and an event for each."""

    key: Bytes
    events: Events


@dataclass(frozen=True)
class Passing(Batch):
    """Legs and fences, the probability that one passes through the other, and where on the leg, from 0 to 1."""

    leg: Ints
    fence: Ints
    probability: Floats
    at: Floats


class Crossings:
    """Makes legs, and finds those that pass through fences."""

    def __init__(
        self, motion: Straight, least: float, regions: RegionSet, earth: Earth | None, *, carried: bool = False
    ) -> None:
        self._least, self._regions, self._earth = least, regions, earth
        self._maker = LegMaker(motion, earth, carried=carried)

    def __len__(self) -> int:
        """Readings that may yet start a leg."""
        return len(self._maker)

    @property
    def nbytes(self) -> int:
        """Bytes held of them."""
        return self._maker.nbytes

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

    def of(self, legs: Legs, thing: Ints, stays: Ints) -> Crossed:
        """The crossings of legs whose ends are outside; ``stays`` are those of things, as `stays_of` has them."""
        found = self._passing(legs)
        free = _outside(thing[found.leg], found.fence, legs.rows.time[found.leg], legs.end[found.leg], stays)
        found = found.filter(free)
        time, zeros = legs.rows.time[found.leg], np.zeros(len(found), np.int64)
        when = time + np.floor(found.at * (legs.end[found.leg] - time)).astype(np.int64)
        which = np.column_stack([np.arange(len(zeros)), found.fence, zeros + CROSS, zeros]).astype(np.int32)
        events = Events(which, np.column_stack([when, time]), found.probability[:, None])
        return Crossed(legs.rows.key.take(found.leg), events)

    def _passing(self, legs: Legs) -> Passing:
        """What passes through what."""
        earth, regions = self._earth, self._regions.arrays
        begin, scale, place, spread = placed(legs.rows, earth)
        if earth is None:
            whole = np.arange(len(legs) + 1)
            ways = _ways(begin, legs.to, scale, np.ones((len(legs), 2)), legs.rows.mass, turns=False)
            found = self._likeliest(ways, whole[:-1])
            paths = kernels.Paths(ways, whole, np.tile([0.0, 1.0], (len(legs), 1)))
            return _at(paths, found, regions)
        route = routes(earth, place, legs.to[:, :3])
        pieces = pieces_of(earth, place, route, begin)
        mass = legs.rows.mass[pieces.owner]
        scale = pieces.scale(earth, place, route, spread)
        wide = widened(pieces, route, flat_widest(spread))
        found = self._likeliest(_ways(wide.at, wide.to, scale, pieces.unit(earth), mass, turns=True), pieces.owner)
        disc = ~np.isnan(regions.radius[found.fence])
        core = _ways(pieces.at, pieces.to, scale, pieces.unit(earth), mass, turns=True)
        first = np.searchsorted(pieces.owner, np.arange(len(legs) + 1))
        outlined = _at(kernels.Paths(core, first, pieces.share), found.filter(~disc), regions)
        flights = Flights(*map(np.ascontiguousarray, (place, route, whitening(spread), legs.rows.mass)))
        near, share = found.filter(disc), pieces.share[found.piece[disc]].mean(axis=1)
        probability, at = discs_passed(earth, flights, near.leg, share, regions, near.fence)
        passed = probability >= self._least
        both = Passing.concat([outlined, Passing(near.leg, near.fence, probability, at).filter(passed)])
        return both.take(np.lexsort((both.fence, both.leg)))

    def _likeliest(self, ways: kernels.Ways, owner: Ints) -> _Found:
        """Legs and fences, with the likeliest of the pieces of the leg, which belong to ``owner``."""
        reach = math.sqrt(max(0.0, -2.0 * math.log(self._least)))
        grid = self._regions.search.grid
        pairs, probability = kernels.cross(grid, self._regions.arrays, ways, reach, self._least)
        leg, fence = owner[pairs[:, 0]], pairs[:, 1]
        order = np.lexsort((-probability, fence, leg))
        new = np.ones(len(order), bool)
        new[1:] = (np.diff(leg[order]) != 0) | (np.diff(fence[order]) != 0)
        kept = order[new]
        return _Found(leg[kept], fence[kept], pairs[kept, 0], probability[kept])


@dataclass(frozen=True)
class _Found(Batch):
    """Legs and fences, with the likeliest piece of the leg."""

    leg: Ints
    fence: Ints
    piece: Ints
    probability: Floats


def _at(paths: kernels.Paths, found: _Found, regions: Regions) -> Passing:
    """With where on the legs that is."""
    at = kernels.middles_of(paths, found.leg, found.piece, regions, found.fence)
    return Passing(found.leg, found.fence, found.probability, at)


def _ways(*columns: Floats, turns: bool) -> kernels.Ways:
    """Arrays of one layout: for another one the kernels would be compiled again."""
    begin, end, scale, unit, mass = map(np.ascontiguousarray, columns)
    return kernels.Ways(begin, end, scale, unit, mass, turns)


def stays_of(visits: Ints, events: Events, thing: Ints) -> Ints:
    """Of visits before some events of things, and of those that enter by them: thing, fence, begin and end (n, 4)."""
    whole = np.column_stack([thing, events.which[:, 1:3], events.when])  # thing, fence, kind, time, begin
    entered, left = whole[whole[:, 2] == ENTER], whole[whole[:, 2] == EXIT]
    begun = np.vstack([visits[:, :3], entered[:, [0, 1, 3]]])
    ends = {tuple(row): end for row, end in zip(left[:, [0, 1, 4]].tolist(), left[:, 3].tolist(), strict=True)}
    end = [ends.get(tuple(row), _FOREVER) for row in begun.tolist()]
    return np.column_stack([begun, np.array(end, np.int64)])


def _outside(thing: Ints, fence: Ints, begin: Ints, end: Ints, stays: Ints) -> Flags:
    """Which legs have no stay in their fence at either end."""
    known: dict[tuple[int, int], list[tuple[int, int]]] = {}
    wanted = set(zip(thing.tolist(), fence.tolist(), strict=True))
    for who, where, since, until in stays.tolist() if wanted else []:
        if (who, where) in wanted:
            known.setdefault((who, where), []).append((since, until))
    rows = zip(thing.tolist(), fence.tolist(), begin.tolist(), end.tolist(), strict=True)
    free = [all(until <= a or since > b for since, until in known.get((who, where), ())) for who, where, a, b in rows]
    return np.array(free, bool)


def placed(rows: Objects, earth: Earth | None) -> tuple[Floats, ...]:
    """Of readings ``at``, ``scale``, ``place`` and ``spread`` of `appulse.kernels.near_regions.Readings`."""
    spread = flat_part(rows.spread)
    if earth is None:
        return rows.centre, whitening(spread), np.zeros((len(rows), 3)), spread
    assert rows.degrees is not None  # noqa: S101 - the encoding of a call asks for them
    return rows.degrees, degree_scale(rows.degrees[:, 1], spread, earth), rows.centre[:, :3], spread
