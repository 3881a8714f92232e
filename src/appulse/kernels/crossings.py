"""Legs that pass through regions between two readings.

The error of a leg is one displacement, the same all along it. So the leg passes through a region where the displacement
lies in what the region sweeps as it is moved back along the leg. With lengths in deviations and w across the leg, the
mass of that is an integral over w: the line at w has stretches in the region, each swept by the length of the leg.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.capsule import segment_distance, stretch_within
from appulse.kernels.gaussian import interval
from appulse.kernels.jit import exact_kernel, inlined_kernel
from appulse.kernels.near_regions import tallness
from appulse.kernels.region_index import RegionIndex, candidates
from appulse.kernels.regions import Regions, side
from appulse.kernels.swept import in_disc

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

# Beyond this many deviations a normal tail is below 1e-12.
_TAIL = 7.0
_PANEL = 0.25
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_NORM = 1.0 / math.sqrt(2.0 * math.pi)

# Both dimensions are in one group.
_PLANE = np.zeros(2, np.int64)


class Ways(NamedTuple):
    """Straight ways, ``begin`` and ``end`` (n, 2), each with the ``scale`` of `appulse.kernels.near_regions.Readings`.

    ``unit`` is how many units of radii a unit of x and y is; ``exists`` a probability; ``middles`` those of discs, by
    region. With ``turns`` x is an angle.
    """

    begin: Floats
    end: Floats
    scale: Floats
    unit: Floats
    exists: Floats
    middles: Floats
    turns: bool


@exact_kernel
def _meets(regions: Regions, i: int, ax: float, ay: float, bx: float, by: float) -> bool:
    """Whether a segment has a place in common with an edge of a region."""
    for b in range(regions.first[i], regions.first[i + 1]):
        west, south, east, north = regions.bounds[b]
        if max(ax, bx) < west or min(ax, bx) > east or max(ay, by) < south or min(ay, by) > north:
            continue
        for e in range(regions.start[b], regions.start[b + 1]):
            cx, cy, dx, dy = regions.edges[e]
            if max(ax, bx) < min(cx, dx) or min(ax, bx) > max(cx, dx):
                continue
            if max(ay, by) < min(cy, dy) or min(ay, by) > max(cy, dy):
                continue
            one, other = side(ax, ay, bx, by, cx, cy), side(ax, ay, bx, by, dx, dy)
            if (one > 0.0 and other > 0.0) or (one < 0.0 and other < 0.0):
                continue
            one, other = side(cx, cy, dx, dy, ax, ay), side(cx, cy, dx, dy, bx, by)
            if not ((one > 0.0 and other > 0.0) or (one < 0.0 and other < 0.0)):
                return True
    return False


@inlined_kernel
def _seen(x: float, y: float, scale: Floats) -> tuple[float, float]:
    """A difference of places in deviations."""
    return x * scale[0], y * scale[1] + x * scale[2]


@exact_kernel
def _swept(regions: Regions, i: int, ax: float, ay: float, bx: float, by: float, scale: Floats) -> float:
    """The mass of what a region sweeps."""
    begin, end = regions.start[regions.first[i]], regions.start[regions.first[i + 1]]
    vx, vy = _seen(bx - ax, by - ay, scale)
    length = math.hypot(vx, vy)
    ux, uy = (vx / length, vy / length) if length > 0.0 else (1.0, 0.0)
    n = end - begin
    places = np.empty((n, 4))  # of each edge, how far along and across the leg its ends are
    cuts, count = np.empty(n + 2), 0
    for e in range(n):
        for k in range(2):
            corner = regions.edges[begin + e, 2 * k : 2 * k + 2]
            px, py = _seen(corner[0] - ax, corner[1] - ay, scale)
            places[e, 2 * k], places[e, 2 * k + 1] = px * ux + py * uy, py * ux - px * uy
        if -_TAIL < places[e, 1] < _TAIL:
            cuts[count] = places[e, 1]
            count += 1
    cuts[count], cuts[count + 1] = -_TAIL, _TAIL
    cuts = np.sort(cuts[: count + 2])
    met, total = np.empty(n), 0.0
    for c in range(count + 1):
        low, high = cuts[c], cuts[c + 1]
        if high <= low:
            continue
        panels = math.ceil((high - low) / _PANEL)
        half = 0.5 * (high - low) / panels
        for p in range(panels):
            for k in range(len(_NODES)):
                w = low + (2 * p + 1 + _NODES[k]) * half
                total += half * _WEIGHTS[k] * _NORM * math.exp(-0.5 * w * w) * _line(places, w, length, met)
    return min(1.0, max(0.0, total))


@exact_kernel
def _line(places: Floats, w: float, length: float, met: Floats) -> float:
    """The normal mass, along the leg, of the stretches of a line in the region, each swept by the leg."""
    found = 0
    for e in range(places.shape[0]):
        if (places[e, 1] <= w) != (places[e, 3] <= w):
            share = (w - places[e, 1]) / (places[e, 3] - places[e, 1])
            met[found] = places[e, 0] + share * (places[e, 2] - places[e, 0])
            found += 1
    stretches, total, reached = np.sort(met[:found]), 0.0, -np.inf
    for k in range(0, found - 1, 2):
        low, high = max(reached, stretches[k] - length), stretches[k + 1]
        if high > low:
            total += interval(low, high)
            reached = high
    return total


@exact_kernel
def _gap(ways: Ways, n: int, regions: Regions, i: int) -> float:
    """How far a way is from the edges of a region, in deviations."""
    ax, ay = ways.begin[n]
    scale, least = ways.scale[n], np.inf
    vx, vy = _seen(ways.end[n, 0] - ax, ways.end[n, 1] - ay, scale)
    for e in range(regions.start[regions.first[i]], regions.start[regions.first[i + 1]]):
        cx, cy = _seen(regions.edges[e, 0] - ax, regions.edges[e, 1] - ay, scale)
        dx, dy = _seen(regions.edges[e, 2] - ax, regions.edges[e, 3] - ay, scale)
        one = vx * cy - vy * cx
        other = vx * dy - vy * dx
        turn = (dx - cx) * -cy - (dy - cy) * -cx
        back = (dx - cx) * (vy - cy) - (dy - cy) * (vx - cx)
        if one * other <= 0.0 and turn * back <= 0.0 and (one != 0.0 or other != 0.0):
            return 0.0
        least = min(least, _to(cx, cy, 0.0, 0.0, vx, vy), _to(dx, dy, 0.0, 0.0, vx, vy))
        least = min(least, _to(0.0, 0.0, cx, cy, dx, dy), _to(vx, vy, cx, cy, dx, dy))
    return float(least)


@exact_kernel
def _to(x: float, y: float, ax: float, ay: float, bx: float, by: float) -> float:
    """The distance of a place from a segment."""
    dx, dy = bx - ax, by - ay
    square = dx * dx + dy * dy
    share = min(1.0, max(0.0, ((x - ax) * dx + (y - ay) * dy) / square)) if square > 0.0 else 0.0
    return math.hypot(x - ax - share * dx, y - ay - share * dy)


@exact_kernel
def passing(ways: Ways, n: int, regions: Regions, i: int, least: float) -> float:
    """Probability that a way passes through a region; 0 where it is surely below ``least``."""
    ax, ay = ways.begin[n]
    bx, by = ways.end[n]
    exact, exists = ways.scale[n, 0] == np.inf, ways.exists[n]
    if not math.isnan(regions.radius[i]):
        begin, end = _to_centre(ways, n, i)
        radius = regions.radius[i]
        far, _ = segment_distance(begin, end)
        if exact:
            return exists if far <= radius + 1e-9 * max(1.0, radius) else 0.0
        xx, xy, yy = _covariance(ways, n)
        if far - radius > _TAIL * math.sqrt(xx + yy):
            return 0.0
        return float(in_disc((begin[0], begin[1]), (end[0], end[1]), (xx, xy, yy), radius) * exists)
    if exact:
        return exists if _meets(regions, i, ax, ay, bx, by) else 0.0
    gap = _gap(ways, n, regions, i)
    if math.exp(-0.5 * gap * gap) * exists < least:
        return 0.0
    return float(_swept(regions, i, ax, ay, bx, by, ways.scale[n]) * exists)


@exact_kernel
def _covariance(ways: Ways, n: int) -> tuple[float, float, float]:
    """The upper triangle of the covariance of the error, in the unit of radii."""
    across, along = ways.unit[n, 0] / ways.scale[n, 0], ways.unit[n, 1] / ways.scale[n, 1]
    tilt = ways.scale[n, 2] / ways.scale[n, 0]
    return across * across, -across * along * tilt, along * along * (1.0 + tilt * tilt)


@exact_kernel
def _to_centre(ways: Ways, n: int, i: int) -> tuple[Floats, Floats]:
    """A way seen from the middle of a disc, in the unit of its radius."""
    begin, end = np.empty(2), np.empty(2)
    x, y = ways.middles[i]
    if ways.turns:
        x += 360.0 * round((ways.begin[n, 0] - x) / 360.0)
    begin[0], begin[1] = (ways.begin[n, 0] - x) * ways.unit[n, 0], (ways.begin[n, 1] - y) * ways.unit[n, 1]
    end[0], end[1] = (ways.end[n, 0] - x) * ways.unit[n, 0], (ways.end[n, 1] - y) * ways.unit[n, 1]
    return begin, end


@exact_kernel
def middle(ways: Ways, n: int, regions: Regions, i: int) -> float:
    """Where on a way, from 0 to 1, the middle of its first stretch inside is; where it is closest if there is none."""
    if not math.isnan(regions.radius[i]):
        begin, end = _to_centre(ways, n, i)
        first, last = stretch_within(begin, end, _PLANE, 0, regions.radius[i])
        if first <= last:
            return 0.5 * (first + last)
        return float(segment_distance(begin, end)[1])
    ax, ay = ways.begin[n]
    across, along = ways.unit[n]
    vx, vy = (ways.end[n, 0] - ax) * across, (ways.end[n, 1] - ay) * along
    square = vx * vx + vy * vy
    if square == 0.0:
        return 0.5
    begin, end = regions.start[regions.first[i]], regions.start[regions.first[i + 1]]
    met, found, least, nearest = np.empty(end - begin), 0, np.inf, 0.5
    for e in range(begin, end):
        cx, cy = (regions.edges[e, 0] - ax) * across, (regions.edges[e, 1] - ay) * along
        dx, dy = (regions.edges[e, 2] - ax) * across, (regions.edges[e, 3] - ay) * along
        one, other = vx * cy - vy * cx, vx * dy - vy * dx
        if (one <= 0.0) != (other <= 0.0):
            share = one / (one - other)
            t = (vx * (cx + share * (dx - cx)) + vy * (cy + share * (dy - cy))) / square
            if 0.0 <= t <= 1.0:
                met[found] = t
                found += 1
        for k in range(4):
            if k < 2:  # an end of the edge, seen from the way
                px, py = (cx, cy) if k == 0 else (dx, dy)
                t = min(1.0, max(0.0, (px * vx + py * vy) / square))
                far = math.hypot(px - t * vx, py - t * vy)
            else:  # an end of the way, seen from the edge
                t = float(k - 2)
                far = _to(t * vx, t * vy, cx, cy, dx, dy)
            if far < least:
                least, nearest = far, t
    if found < 2:
        return float(met[0]) if found == 1 else nearest
    inside = np.sort(met[:found])
    return float(0.5 * (inside[0] + inside[1]))


@exact_kernel
def cross(index: RegionIndex, regions: Regions, ways: Ways, reach: float, least: float) -> tuple[Ints, Floats]:
    """Ways and the regions that they pass with at least that probability, as (way, region); the probability and shift.

    ``reach`` is in deviations. What turns also lies 360 to either side.
    """
    pairs, figures, found = np.empty((64, 2), np.int64), np.empty((64, 2)), 0
    near = np.empty(64, np.int64)
    for n in range(ways.begin.shape[0]):
        wide, high = reach / ways.scale[n, 0], reach * tallness(ways.scale[n])
        own_begin, own_end = ways.begin[n, 0], ways.end[n, 0]
        for turn in range(-1, 2):
            shift = 360.0 * turn
            low, top = min(own_begin, own_end) + shift - wide, max(own_begin, own_end) + shift + wide
            if turn != 0 and (not ways.turns or top < -180.0 or low > 180.0):
                continue
            x, y = 0.5 * (own_begin + own_end) + shift, 0.5 * (ways.begin[n, 1] + ways.end[n, 1])
            half, tall = 0.5 * abs(own_end - own_begin) + wide, 0.5 * abs(ways.end[n, 1] - ways.begin[n, 1]) + high
            count = candidates(index, regions, x - half, y - tall, x + half, y + tall, near)
            while count > near.shape[0]:
                near = np.empty(2 * count, np.int64)
                count = candidates(index, regions, x - half, y - tall, x + half, y + tall, near)
            ways.begin[n, 0], ways.end[n, 0] = own_begin + shift, own_end + shift
            for c in range(count):
                p = passing(ways, n, regions, near[c], least)
                if p >= least:
                    if found == pairs.shape[0]:
                        wider, deeper = np.empty((2 * found, 2), np.int64), np.empty((2 * found, 2))
                        wider[:found], deeper[:found] = pairs, figures
                        pairs, figures = wider, deeper
                    pairs[found, 0], pairs[found, 1] = n, near[c]
                    figures[found, 0], figures[found, 1] = p, shift
                    found += 1
            ways.begin[n, 0], ways.end[n, 0] = own_begin, own_end
    return pairs[:found], figures[:found]


@exact_kernel
def middles_of(ways: Ways, regions: Regions, ids: Ints) -> Floats:
    """`middle` of each way in its region."""
    out = np.empty(ids.shape[0])
    for n in range(ids.shape[0]):
        out[n] = middle(ways, n, regions, ids[n])
    return out
