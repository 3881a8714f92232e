"""Legs that pass through regions between two readings.

The error of a leg is one displacement, the same all along it. So the leg passes through a region where the displacement
lies in what the region sweeps as it is moved back along the leg. With lengths in deviations and w across the leg, the
mass of that is an integral over w: the line at w has stretches in the region, each swept by the length of the leg.

On an Earth a leg is seen in pieces, straight in degrees. Regions are cut at the 180th meridian: a piece near it sees
them again 360 degrees to either side, all at once, so that parts on both sides of the cut go on into each other.
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
from appulse.kernels.regions import Regions, covers, side
from appulse.kernels.swept import in_disc

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

# Beyond this many deviations a normal tail is below 1e-12.
_TAIL = 7.0
_PANEL = 0.25
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_NORM = 1.0 / math.sqrt(2.0 * math.pi)

_TURN = 360.0
# What a piece of a leg may be off from the geodesic, in degrees along a meridian, and more.
_SLACK = 1e-4
# Places on a leg that differ by less of it are one.
_SAME = 1e-12
# Both dimensions are in one group.
_PLANE = np.zeros(2, np.int64)


class Ways(NamedTuple):
    """Straight ways, ``begin`` and ``end`` (n, 2), each with the ``scale`` of `appulse.kernels.near_regions.Readings`.

    ``unit`` is how many units of length a unit of x and y is; ``exists`` a probability. With ``turns`` x is an angle.
    """

    begin: Floats
    end: Floats
    scale: Floats
    unit: Floats
    exists: Floats
    turns: bool


class Paths(NamedTuple):
    """Legs as pieces: those of leg k are the ways from ``first[k]`` on; ``share`` (n, 2) is where on it each lies."""

    ways: Ways
    first: Ints
    share: Floats


@exact_kernel
def _turns(ways: Ways, n: int) -> tuple[int, int]:
    """The first and the last turn of a way that may bring it near something."""
    if not ways.turns:
        return 0, 0
    wide = min(_TURN, _TAIL / ways.scale[n, 0]) + _SLACK
    west, east = min(ways.begin[n, 0], ways.end[n, 0]) - wide, max(ways.begin[n, 0], ways.end[n, 0]) + wide
    first = max(-1, math.ceil((-180.0 - east) / _TURN))
    return first, max(first, min(1, math.floor((180.0 - west) / _TURN)))


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
def _swept(ways: Ways, way: int, regions: Regions, i: int, turns: tuple[int, int]) -> float:
    """The mass of what a region sweeps."""
    begin, end = regions.start[regions.first[i]], regions.start[regions.first[i + 1]]
    ax, ay, scale = ways.begin[way, 0], ways.begin[way, 1], ways.scale[way]
    vx, vy = _seen(ways.end[way, 0] - ax, ways.end[way, 1] - ay, scale)
    length = math.hypot(vx, vy)
    ux, uy = (vx / length, vy / length) if length > 0.0 else (1.0, 0.0)
    own = end - begin
    n = own * (turns[1] - turns[0] + 1)
    places = np.empty((n, 4))  # of each edge, how far along and across the leg its ends are
    cuts, count = np.empty(n + 2), 0
    for e in range(n):
        edge, back = regions.edges[begin + e % own], _TURN * (turns[0] + e // own)
        for side_of in range(2):
            px, py = _seen(edge[2 * side_of] - back - ax, edge[2 * side_of + 1] - ay, scale)
            places[e, 2 * side_of], places[e, 2 * side_of + 1] = px * ux + py * uy, py * ux - px * uy
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
def _gap(ways: Ways, n: int, regions: Regions, i: int, back: float) -> float:
    """How far a way is from the edges of a region that is moved back, in deviations."""
    ax, ay = ways.begin[n, 0] + back, ways.begin[n, 1]
    scale, least = ways.scale[n], np.inf
    vx, vy = _seen(ways.end[n, 0] + back - ax, ways.end[n, 1] - ay, scale)
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
def _covers(ways: Ways, n: int, regions: Regions, i: int, share: float) -> bool:
    """Whether a place on a way lies in a region."""
    x = ways.begin[n, 0] + share * (ways.end[n, 0] - ways.begin[n, 0])
    if ways.turns:
        x -= _TURN * round(x / _TURN)
    return covers(regions, i, x, ways.begin[n, 1] + share * (ways.end[n, 1] - ways.begin[n, 1]))


@exact_kernel
def _is_disc(regions: Regions, i: int) -> bool:
    return not math.isnan(regions.radius[i])


@exact_kernel
def passing(ways: Ways, n: int, regions: Regions, i: int, least: float) -> float:
    """Probability that a way passes through a region; 0 where it is surely below ``least``."""
    exact, exists = ways.scale[n, 0] == np.inf, ways.exists[n]
    if _is_disc(regions, i):
        begin, end = _to_centre(ways, n, regions, i)
        return float(through_disc(begin, end, ways.scale[n], regions.radius[i]) * exists)
    first, last = _turns(ways, n)
    if exact:
        for turn in range(first, last + 1):
            ax, bx = ways.begin[n, 0] + _TURN * turn, ways.end[n, 0] + _TURN * turn
            if _meets(regions, i, ax, ways.begin[n, 1], bx, ways.end[n, 1]):
                return float(exists)
        return 0.0
    gap = np.inf
    for turn in range(first, last + 1):
        gap = min(gap, _gap(ways, n, regions, i, _TURN * turn))
    if math.exp(-0.5 * gap * gap) * exists < least and not _covers(ways, n, regions, i, 0.0):
        return 0.0
    return float(_swept(ways, n, regions, i, (first, last)) * exists)


@exact_kernel
def through_disc(begin: Floats, end: Floats, scale: Floats, radius: float) -> float:
    """The probability that a way, seen from the middle of a disc, passes through it; ``scale`` is as in `Ways`."""
    far, _ = segment_distance(begin, end)
    if scale[0] == np.inf:
        return 1.0 if far <= radius + 1e-9 * max(1.0, radius) else 0.0
    # The upper triangle of the covariance of the error.
    across, along, tilt = 1.0 / scale[0], 1.0 / scale[1], scale[2] / scale[0]
    xx, xy, yy = across * across, -across * along * tilt, along * along * (1.0 + tilt * tilt)
    if far - radius > _TAIL * math.sqrt(xx + yy):
        return 0.0
    return float(in_disc((begin[0], begin[1]), (end[0], end[1]), (xx, xy, yy), radius))


@exact_kernel
def middle_in_disc(begin: Floats, end: Floats, radius: float) -> float:
    """Where on such a way, from 0 to 1, the middle of the stretch inside is; where it is closest if there is none."""
    first, last = stretch_within(begin, end, _PLANE, 0, radius)
    return 0.5 * (first + last) if first <= last else float(segment_distance(begin, end)[1])


@exact_kernel
def _to_centre(ways: Ways, n: int, regions: Regions, i: int) -> tuple[Floats, Floats]:
    """A way seen from the middle of a disc."""
    begin, end = np.empty(2), np.empty(2)
    for k in range(2):
        begin[k], end[k] = ways.begin[n, k] - regions.centre[i, k], ways.end[n, k] - regions.centre[i, k]
    return begin, end


@exact_kernel
def _nearest(ways: Ways, n: int, regions: Regions, i: int, back: float) -> tuple[float, float]:
    """How near a way comes to the edges of a region, and where on it that is, from 0 to 1."""
    ax, ay, across, along = ways.begin[n, 0] + back, ways.begin[n, 1], ways.unit[n, 0], ways.unit[n, 1]
    vx, vy = (ways.end[n, 0] + back - ax) * across, (ways.end[n, 1] - ay) * along
    square, least, at = vx * vx + vy * vy, np.inf, 0.5
    for e in range(regions.start[regions.first[i]], regions.start[regions.first[i + 1]]):
        cx, cy = (regions.edges[e, 0] - ax) * across, (regions.edges[e, 1] - ay) * along
        dx, dy = (regions.edges[e, 2] - ax) * across, (regions.edges[e, 3] - ay) * along
        for k in range(4):
            if k < 2:  # an end of the edge, seen from the way
                px, py = (cx, cy) if k == 0 else (dx, dy)
                t = min(1.0, max(0.0, (px * vx + py * vy) / square)) if square > 0.0 else 0.5
                far = math.hypot(px - t * vx, py - t * vy)
            else:  # an end of the way, seen from the edge
                t = float(k - 2)
                far = _to(t * vx, t * vy, cx, cy, dx, dy)
            if far < least:
                least, at = far, t
    return least, at


@exact_kernel
def _cuts(paths: Paths, n: int, regions: Regions, i: int, out: Floats, found: int) -> int:
    """Where on its leg a way meets edges of a region; the number so far (written as far as there is room)."""
    ways, (first, last), box = paths.ways, _turns(paths.ways, n), regions.box[i]
    ay, by = ways.begin[n, 1], ways.end[n, 1]
    for turn in range(first, last + 1):
        ax, bx = ways.begin[n, 0] + _TURN * turn, ways.end[n, 0] + _TURN * turn
        if max(ax, bx) < box[0] or min(ax, bx) > box[2] or max(ay, by) < box[1] or min(ay, by) > box[3]:
            continue
        across, along = ways.unit[n]
        vx, vy = (bx - ax) * across, (by - ay) * along
        square = vx * vx + vy * vy
        for e in range(regions.start[regions.first[i]], regions.start[regions.first[i + 1]]):
            cx, cy = (regions.edges[e, 0] - ax) * across, (regions.edges[e, 1] - ay) * along
            dx, dy = (regions.edges[e, 2] - ax) * across, (regions.edges[e, 3] - ay) * along
            one, other = vx * cy - vy * cx, vx * dy - vy * dx
            if (one <= 0.0) != (other <= 0.0):
                share = one / (one - other)
                t = (vx * (cx + share * (dx - cx)) + vy * (cy + share * (dy - cy))) / square
                if -_SAME <= t <= 1.0 + _SAME:
                    if found < out.shape[0]:
                        out[found] = paths.share[n, 0] + t * (paths.share[n, 1] - paths.share[n, 0])
                    found += 1
    return found


@exact_kernel
def middle(paths: Paths, leg: int, likeliest: int, regions: Regions, i: int) -> float:
    """Where on a leg, from 0 to 1, the middle of its first stretch inside is; where it is closest if there is none.

    ``likeliest`` is the way of the leg that passes with the highest probability.
    """
    ways = paths.ways
    if _is_disc(regions, i):
        begin, end = _to_centre(ways, likeliest, regions, i)
        return middle_in_disc(begin, end, regions.radius[i])
    begin, end = paths.first[leg], paths.first[leg + 1]
    cuts, found = np.empty(64), 0
    for n in range(begin, end):
        before, found = found, _cuts(paths, n, regions, i, cuts, found)
        if found + 2 > cuts.shape[0]:
            wider = np.empty(2 * found + 2)
            wider[:before] = cuts[:before]
            cuts, found = wider, _cuts(paths, n, regions, i, wider, before)
    cuts[found], cuts[found + 1] = 0.0, 1.0
    cuts = np.sort(cuts[: found + 2])
    entered, n = -1.0, begin
    for k in range(found + 1):
        if cuts[k + 1] - cuts[k] <= _SAME:
            continue
        at = 0.5 * (cuts[k] + cuts[k + 1])
        while n < end - 1 and paths.share[n, 1] < at:
            n += 1
        since, until = paths.share[n]
        if _covers(ways, n, regions, i, (at - since) / (until - since)):
            entered = cuts[k] if entered < 0.0 else entered
        elif entered >= 0.0:
            return float(0.5 * (entered + cuts[k]))
    if entered >= 0.0:
        return float(0.5 * (entered + 1.0))
    if found > 0:  # it touches the region
        return float(min(1.0, max(0.0, cuts[1])))
    least, nearest = np.inf, 0.5
    for n in range(max(begin, likeliest - 1), min(end, likeliest + 2)):
        first, last = _turns(ways, n)
        for turn in range(first, last + 1):
            far, t = _nearest(ways, n, regions, i, _TURN * turn)
            if far < least:
                least, nearest = far, paths.share[n, 0] + t * (paths.share[n, 1] - paths.share[n, 0])
    return float(nearest)


@exact_kernel
def cross(index: RegionIndex, regions: Regions, ways: Ways, reach: float, least: float) -> tuple[Ints, Floats]:
    """Ways and the regions that they pass with at least that probability, as (way, region); the probability.

    ``reach`` is in deviations. What turns also lies 360 to either side, and of discs near it the probability is NaN.
    """
    pairs, figures, found = np.empty((64, 2), np.int64), np.empty(64), 0
    near = np.empty(64, np.int64)
    slack = _SLACK if ways.turns else 0.0
    for n in range(ways.begin.shape[0]):
        own_begin, own_end = ways.begin[n, 0], ways.end[n, 0]
        high = reach * tallness(ways.scale[n]) + slack
        wide = reach / ways.scale[n, 0]
        if ways.turns:
            wide = min(_TURN, wide + slack * ways.unit[n, 1] / ways.unit[n, 0])
        south, north = min(ways.begin[n, 1], ways.end[n, 1]) - high, max(ways.begin[n, 1], ways.end[n, 1]) + high
        first, last = (-1, 1) if ways.turns else (0, 0)
        count = 0
        for turn in range(first, last + 1):
            west, east = min(own_begin, own_end) - wide + _TURN * turn, max(own_begin, own_end) + wide + _TURN * turn
            if ways.turns and (east < -180.0 or west > 180.0):
                continue
            more = candidates(index, regions, west, south, east, north, near[count:])
            if count + more > near.shape[0]:
                wider = np.empty(2 * (count + more), np.int64)
                wider[:count], near = near[:count], wider
                candidates(index, regions, west, south, east, north, near[count:])
            count += more
        if ways.turns and count > 1:  # one that reaches around is found from both sides
            near[:count] = np.sort(near[:count])
        for c in range(count):
            if c > 0 and near[c] == near[c - 1]:
                continue
            p = np.nan if ways.turns and _is_disc(regions, near[c]) else passing(ways, n, regions, near[c], least)
            if p < least:
                continue
            if found == pairs.shape[0]:
                longer, deeper = np.empty((2 * found, 2), np.int64), np.empty(2 * found)
                longer[:found], deeper[:found] = pairs, figures
                pairs, figures = longer, deeper
            pairs[found, 0], pairs[found, 1], figures[found] = n, near[c], p
            found += 1
    return pairs[:found], figures[:found]


@exact_kernel
def middles_of(paths: Paths, legs: Ints, likeliest: Ints, regions: Regions, ids: Ints) -> Floats:
    """`middle` of each leg in its region."""
    out = np.empty(ids.shape[0])
    for k in range(ids.shape[0]):
        out[k] = middle(paths, legs[k], likeliest[k], regions, ids[k])
    return out
