"""Legs on the Earth: along geodesics at constant speed, compared in planes that touch the Earth where they are.

Of each pair, the four ends of the overlap are taken into the azimuthal equidistant plane at their mean. Legs of more
than 100 km are cut into equal shorter ones first, and a pair has the best of what its pieces have.

A leg is kept as its chord, which a geodesic leaves by less than that of the most curved circle of the Earth does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.capsule import segment_distance
from appulse.kernels.gaussian import tolerated
from appulse.kernels.jit import exact_kernel, kernel
from appulse.kernels.legs import Legs, Meetings, Near, overlap, place, widened
from appulse.kernels.swept import bound_on, swept_probability, together
from appulse.kernels.tangent import lead, on_surface, way
from appulse.kernels.time_near import Passing, share_near

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, RowPairs
    from appulse.kernels.geodesic import Earth

#: Metres of a leg that is compared in one plane.
PIECE = 1e5


class Routes(NamedTuple):
    """Of each leg: the way it takes (n, 2), and its altitude when it begins and ends."""

    way: Floats
    altitude: Floats  # (n, 2), or (n, 0)


class EarthLegs(NamedTuple):
    """Legs on an Earth, and the ways they take there."""

    earth: Earth
    legs: Legs
    routes: Routes


class Errors(NamedTuple):
    """Errors of legs when their readings were taken, and the growth of their variances a microsecond.

    Along the Earth they are deviations (n, 1), or upper triangles by east and north (n, 3), where the reading was.
    """

    flat: Floats
    steep: Floats  # variances of the altitude
    growth: Floats
    climbs: bool  # whether that of the altitude grows, too


class Wanted(NamedTuple):
    """What has to be near: by groups of dimensions, along the Earth and in altitude; and with what probability."""

    near: Near
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
def _spot(moving: EarthLegs, i: int, share: float) -> tuple[float, float, float]:
    """Where on the Earth a leg is."""
    earth, legs, routes = moving
    if share <= 0.0:
        return legs.at[i, 0], legs.at[i, 1], legs.at[i, 2]
    if share >= 1.0:
        return legs.to[i, 0], legs.to[i, 1], legs.to[i, 2]
    east, north = share * routes.way[i, 0], share * routes.way[i, 1]
    return lead(earth, legs.at[i, 0], legs.at[i, 1], legs.at[i, 2], east, north)


@exact_kernel
def _relative(
    moving: EarthLegs, i: int, j: int, first: float, last: float, path: Floats, spots: Floats
) -> tuple[float, float, float]:
    """The path (2, d) of one mean as seen from the other's from ``first`` to ``last``: in a plane, and in altitude.

    Returns where the plane touches the Earth. ``spots`` (4, 3) is room.
    """
    earth, legs, routes = moving
    for e, leg, time in ((0, i, first), (1, j, first), (2, i, last), (3, j, last)):
        spots[e, 0], spots[e, 1], spots[e, 2] = _spot(moving, leg, _share(legs, leg, time))
    x, y, z = 0.0, 0.0, 0.0
    for e in range(4):
        x, y, z = x + spots[e, 0], y + spots[e, 1], z + spots[e, 2]
    mx, my, mz = on_surface(earth, x, y, z)
    for end in range(2):
        one, other = 2 * end, 2 * end + 1
        east, north = way(earth, mx, my, mz, spots[one, 0], spots[one, 1], spots[one, 2])
        other_east, other_north = way(earth, mx, my, mz, spots[other, 0], spots[other, 1], spots[other, 2])
        path[end, 0], path[end, 1] = east - other_east, north - other_north
        if path.shape[1] > 2:
            time = last if end else first
            path[end, 2] = _height(legs, routes, i, time) - _height(legs, routes, j, time)
    return mx, my, mz


@exact_kernel
def _add_error(
    earth: Earth, legs: Legs, errors: Errors, leg: int, touch: tuple[float, float, float], covariance: Floats
) -> None:
    """Add a leg's error along the Earth, by east and north of a plane: ellipses are carried there by the geodesic."""
    d = 2 if covariance.shape[0] == 3 else 3
    if errors.flat.shape[1] == 1:
        variance = errors.flat[leg, 0] * errors.flat[leg, 0]
        covariance[0] += variance
        covariance[d] += variance
        return
    px, py, pz = legs.at[leg, 0], legs.at[leg, 1], legs.at[leg, 2]
    there_east, there_north = way(earth, touch[0], touch[1], touch[2], px, py, pz)
    east, north = way(earth, px, py, pz, touch[0], touch[1], touch[2])
    metres = math.hypot(east, north)
    cosine, sine = 1.0, 0.0
    if metres > 0.0:  # the way on from where the plane touches goes on as the way there
        cosine = -(east * there_east + north * there_north) / (metres * metres)
        sine = -(east * there_north - north * there_east) / (metres * metres)
    ee, en, nn = errors.flat[leg, 0], errors.flat[leg, 1], errors.flat[leg, 2]
    covariance[0] += ee * cosine * cosine - 2.0 * en * sine * cosine + nn * sine * sine
    covariance[1] += (ee - nn) * sine * cosine + en * (cosine * cosine - sine * sine)
    covariance[d] += ee * sine * sine + 2.0 * en * sine * cosine + nn * cosine * cosine


@exact_kernel
def _error_at(
    moving: EarthLegs, errors: Errors, i: int, j: int, touch: tuple[float, float, float], moment: float, out: Floats
) -> None:
    """The covariance of two legs' errors at a time, in a plane and in altitude."""
    d = 2 if out.shape[0] == 3 else 3
    out[:] = 0.0
    for leg in (i, j):
        _add_error(moving.earth, moving.legs, errors, leg, touch, out)
        grown = errors.growth[leg] * max(0.0, moment - moving.legs.begin[leg])
        out[0] += grown
        out[d] += grown
        if d > 2:
            out[5] += errors.steep[leg] + (grown if errors.climbs else 0.0)


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
def _far(legs: Legs, i: int, j: int, epsilon: float, first: int, last: int, room: Floats) -> bool:
    """Whether chords, and what geodesics leave them by, already say that a pair is too far apart."""
    for k in range(3):
        room[0, k] = place(legs, i, first, k) - place(legs, j, first, k)
        room[1, k] = place(legs, i, last, k) - place(legs, j, last, k)
    # ``reach`` has the bulge and the margin in it.
    reach = legs.reach[i] + legs.reach[j]
    return bool(segment_distance(room[0], room[1])[0] > tolerated(epsilon) + reach)


@kernel
def earth_meetings(moving: EarthLegs, errors: Errors, pairs: RowPairs, wanted: Wanted, found: Meetings) -> None:
    """Overlap, closest approach and probability of each pair; NaN where that is below the threshold for sure."""
    legs, routes = moving.legs, moving.routes
    d = 2 + min(1, routes.altitude.shape[1])
    path, spots, epsilon = np.empty((2, d)), np.empty((4, 3)), np.empty(wanted.near.epsilon.shape[0])
    begin, end = path[0], path[1]
    covariance = np.empty(d * (d + 1) // 2)
    for p in range(pairs.left.shape[0]):
        i, j = pairs.left[p], pairs.right[p]
        first, last = overlap(legs, i, j)
        found.begin[p], found.end[p], found.probability[p] = first, last, np.nan
        found.distance[p], found.within[p], found.closest_time[p] = np.inf, 0.0, first
        if _far(legs, i, j, wanted.near.epsilon[0], first, last, spots):
            continue
        widened(legs, i, j, wanted.near, epsilon)
        time = float(first)
        while True:
            until = _next_cut(legs, routes, j, time, _next_cut(legs, routes, i, time, float(last)))
            touch = _relative(moving, i, j, time, until, path, spots)
            distance, at = segment_distance(begin, end)
            moment = time + at * (until - time)
            if distance < found.distance[p]:
                found.distance[p], found.closest_time[p] = distance, moment
            start, stop = together(begin, end, wanted.near.group, epsilon)
            found.within[p] += max(0.0, stop - start) * (until - time)
            _error_at(moving, errors, i, j, touch, moment, covariance)
            if bound_on(begin, end, covariance, wanted.near.group, epsilon) >= wanted.threshold - 1e-12:
                chance = swept_probability(begin, end, covariance, wanted.near.group, epsilon)
                if not chance <= found.probability[p]:  # which may be NaN
                    found.probability[p] = chance
            time = until
            if time >= last:
                break


@kernel
def earth_times(moving: EarthLegs, errors: Errors, pairs: RowPairs, near: Near, out: Floats) -> None:
    """The microseconds that each pair is expected to be near."""
    legs, routes = moving.legs, moving.routes
    d = 2 + min(1, routes.altitude.shape[1])
    path, spots, epsilon = np.empty((2, d)), np.empty((4, 3)), np.empty(near.epsilon.shape[0])
    error, grown = np.empty(d * (d + 1) // 2), np.empty(d * (d + 1) // 2)
    for p in range(pairs.left.shape[0]):
        i, j = pairs.left[p], pairs.right[p]
        widened(legs, i, j, near, epsilon)
        first, last = overlap(legs, i, j)
        time, out[p] = float(first), 0.0
        while time < last:
            until = _next_cut(legs, routes, j, time, _next_cut(legs, routes, i, time, float(last)))
            touch = _relative(moving, i, j, time, until, path, spots)
            _error_at(moving, errors, i, j, touch, time, error)
            _error_at(moving, errors, i, j, touch, until, grown)
            share = share_near(Passing(path[0], path[1], error, grown, near.group, epsilon))
            out[p] += share * (until - time)
            time = until
