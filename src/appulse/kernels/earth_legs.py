"""Legs on the Earth: along geodesics at constant speed, compared in planes that touch the Earth where they are.

Of each pair, the four ends of the overlap are taken into the azimuthal equidistant plane at their mean. Legs of more
than 100 km are cut into equal shorter ones first, and a pair has the best of what its pieces have.

A leg is kept as its chord, which a geodesic leaves by less than that of the most curved circle of the Earth does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.capsule import capsule_probability, segment_distance, share_within, stretch_within
from appulse.kernels.cylinder import cylinder_probability, rising_within
from appulse.kernels.jit import exact_kernel
from appulse.kernels.legs import Legs, Meetings, overlap, place, widened
from appulse.kernels.tangent import lead, on_surface, way

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, RowPairs
    from appulse.kernels.geodesic import Earth

#: Metres of a leg that is compared in one plane.
PIECE = 1e5


class Routes(NamedTuple):
    """Of each leg: the way it takes (n, 2), and its altitude when it begins and ends."""

    way: Floats
    altitude: Floats  # (n, 2), or (n, 0)


class Errors(NamedTuple):
    """Variances of legs when their readings were taken, horizontal and of the altitude, and their growth a microsecond.

    The growth is of all directions, or in a cylinder of the horizontal ones.
    """

    flat: Floats
    steep: Floats
    growth: Floats


class Wanted(NamedTuple):
    """Epsilon, horizontal and vertical, without and with its tolerance, and the probability to be reached."""

    epsilon: tuple[float, float]
    limit: tuple[float, float]
    cylinder: bool
    threshold: float


@exact_kernel
def bulges(earth: Earth, at: Floats, to: Floats, out: Floats) -> None:
    """How far at most a geodesic is from its chord."""
    radius = earth.b * earth.b / earth.a
    for i in range(at.shape[0]):
        square = 0.0
        for k in range(3):
            square += (to[i, k] - at[i, k]) ** 2
        out[i] = radius - math.sqrt(max(0.0, radius * radius - 0.25 * square)) + 1e-6 if square > 0.0 else 0.0


@exact_kernel
def _share(legs: Legs, i: int, time: float) -> float:
    length = legs.end[i] - legs.begin[i]
    return min(1.0, (time - legs.begin[i]) / length) if length > 0 else 0.0


@exact_kernel
def _spot(earth: Earth, legs: Legs, routes: Routes, i: int, share: float) -> tuple[float, float, float]:
    """Where on the Earth a leg is."""
    if share <= 0.0:
        return legs.at[i, 0], legs.at[i, 1], legs.at[i, 2]
    if share >= 1.0:
        return legs.to[i, 0], legs.to[i, 1], legs.to[i, 2]
    east, north = share * routes.way[i, 0], share * routes.way[i, 1]
    return lead(earth, legs.at[i, 0], legs.at[i, 1], legs.at[i, 2], east, north)


@exact_kernel
def _relative(
    earth: Earth, legs: Legs, routes: Routes, i: int, j: int, first: float, last: float, begin: Floats, end: Floats
) -> None:
    """The path of one mean as seen from the other's from ``first`` to ``last``: in a plane, and in altitude."""
    ends = np.empty((4, 3))
    ends[0] = _spot(earth, legs, routes, i, _share(legs, i, first))
    ends[1] = _spot(earth, legs, routes, j, _share(legs, j, first))
    ends[2] = _spot(earth, legs, routes, i, _share(legs, i, last))
    ends[3] = _spot(earth, legs, routes, j, _share(legs, j, last))
    x, y, z = 0.0, 0.0, 0.0
    for e in range(4):
        x, y, z = x + ends[e, 0], y + ends[e, 1], z + ends[e, 2]
    mx, my, mz = on_surface(earth, x, y, z)
    plane = np.empty((4, 2))
    for e in range(4):
        plane[e] = way(earth, mx, my, mz, ends[e, 0], ends[e, 1], ends[e, 2])
    for k in range(2):
        begin[k], end[k] = plane[0, k] - plane[1, k], plane[2, k] - plane[3, k]
    if begin.shape[0] > 2:
        begin[2] = _height(legs, routes, i, first) - _height(legs, routes, j, first)
        end[2] = _height(legs, routes, i, last) - _height(legs, routes, j, last)


@exact_kernel
def _height(legs: Legs, routes: Routes, i: int, time: float) -> float:
    low, high = routes.altitude[i, 0], routes.altitude[i, 1]
    return float(low + _share(legs, i, time) * (high - low))


@exact_kernel
def _next_cut(legs: Legs, routes: Routes, i: int, time: float, last: float) -> float:
    """When the piece of a leg ends that it is on at a time, at most ``last``."""
    pieces = math.ceil(math.hypot(routes.way[i, 0], routes.way[i, 1]) / PIECE)
    if pieces <= 1:
        return last
    # A piece that has a millionth left is over: it would be an instant.
    done = math.floor(_share(legs, i, time) * pieces + 1e-6) + 1
    return min(last, float(legs.begin[i] + (legs.end[i] - legs.begin[i]) * (done / pieces)))


@exact_kernel
def _far(legs: Legs, i: int, j: int, wanted: Wanted, first: int, last: int) -> bool:
    """Whether chords, and what geodesics leave them by, already say that a pair is too far apart."""
    begin, end = np.empty(3), np.empty(3)
    for k in range(3):
        begin[k] = place(legs, i, first, k) - place(legs, j, first, k)
        end[k] = place(legs, i, last, k) - place(legs, j, last, k)
    # ``reach`` has the bulge in it.
    reach = legs.reach[i] + legs.reach[j]
    return bool(segment_distance(begin, end)[0] > wanted.limit[0] + reach)


@exact_kernel
def _at_most(begin: Floats, end: Floats, distance: float, flat: float, steep: float, wanted: Wanted) -> float:
    """A bound on the probability: that of a half-space that contains all where the two meet."""
    bound = 1.0
    if flat > 0.0:
        bound = 0.5 * math.erfc((distance - wanted.epsilon[0]) / flat * math.sqrt(0.5))
    elif distance > wanted.limit[0]:
        return 0.0
    if wanted.cylinder:
        low, high = min(begin[2], end[2]), max(begin[2], end[2])
        apart = max(0.0, low, -high)
        if steep > 0.0:
            bound = min(bound, 0.5 * math.erfc((apart - wanted.epsilon[1]) / steep * math.sqrt(0.5)))
        elif apart > wanted.limit[1]:
            return 0.0
    return bound


@exact_kernel
def earth_meetings(
    earth: Earth, legs: Legs, routes: Routes, errors: Errors, pairs: RowPairs, wanted: Wanted, found: Meetings
) -> None:
    """Overlap, closest approach and probability of each pair; NaN where that is below the threshold for sure."""
    d = 2 + min(1, routes.altitude.shape[1])
    begin, end = np.empty(d), np.empty(d)
    for p in range(pairs.left.shape[0]):
        i, j = pairs.left[p], pairs.right[p]
        first, last = overlap(legs, i, j)
        found.begin[p], found.end[p], found.probability[p] = first, last, np.nan
        found.distance[p], found.within[p], found.closest_time[p] = np.inf, 0.0, first
        if _far(legs, i, j, wanted, first, last):
            continue
        epsilon, limit = widened(legs, i, j, wanted.epsilon[0])
        asked = Wanted((epsilon, wanted.epsilon[1]), (limit, wanted.limit[1]), wanted.cylinder, wanted.threshold)
        time = float(first)
        while True:
            until = _next_cut(legs, routes, j, time, _next_cut(legs, routes, i, time, float(last)))
            _relative(earth, legs, routes, i, j, time, until, begin, end)
            _meet(legs, errors, i, j, asked, begin, end, time, until, p, found)
            time = until
            if time >= last:
                break


@exact_kernel
def _meet(
    legs: Legs,
    errors: Errors,
    i: int,
    j: int,
    wanted: Wanted,
    begin: Floats,
    end: Floats,
    first: float,
    last: float,
    p: int,
    found: Meetings,
) -> None:
    """What a piece adds to what is known of its pair."""
    distance, at = segment_distance(begin, end)
    moment = first + at * (last - first)
    if distance < found.distance[p]:
        found.distance[p], found.closest_time[p] = distance, moment
    flat, steep = 0.0, 0.0
    for leg in (i, j):
        grown = errors.growth[leg] * max(0.0, min(moment, float(legs.end[leg])) - legs.begin[leg])
        flat += errors.flat[leg] + grown
        steep += errors.steep[leg]
    flat, steep = math.sqrt(flat), math.sqrt(steep)
    if wanted.cylinder:
        low, high = stretch_within(begin[:2], end[:2], wanted.limit[0])
        bottom, top = rising_within(begin[2], end[2] - begin[2], wanted.limit[1])
        found.within[p] += max(0.0, min(high, top) - max(low, bottom)) * (last - first)
        distance = segment_distance(begin[:2], end[:2])[0]
    else:
        found.within[p] += share_within(begin, end, wanted.limit[0]) * (last - first)
    if _at_most(begin, end, distance, flat, steep, wanted) < wanted.threshold - 1e-12:
        return
    if wanted.cylinder:
        rise, climb = begin[2], end[2] - begin[2]
        chance = cylinder_probability(begin[:2], end[:2], rise, climb, flat, steep, wanted.epsilon, wanted.limit)
    elif flat > 0.0:
        chance = capsule_probability(begin, end, flat, wanted.epsilon[0])
    else:
        chance = 1.0 if distance <= wanted.limit[0] else 0.0
    if not chance <= found.probability[p]:  # which may be NaN
        found.probability[p] = chance
