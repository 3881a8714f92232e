"""Regions: which of them hold a place, and the probability that a normal error leaves it inside.

A region is the directed edges of its rings, the inside at their left, or a disc. Whether a place lies in one is decided
by exact signs: an edge's side that rounding leaves open is computed from exact products.

A place with a normal error, taken as the origin with lengths in deviations, lies inside with the probability

    W - sum over edges of s [T(h, b / h) - T(h, a / h)]

W is the winding number of the region around the mean, h the distance of an edge's line, on the side s, from a to b the
edge on it, and T is Owen's function (Owen 1956): each term is the mass of the wedge beyond an edge. Edges that are
farther than the normal tail have none.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.gaussian import ball_probability, phi
from appulse.kernels.geodesic import geodesic
from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Hashes, Ints
    from appulse.kernels.geodesic import Earth

# Beyond this many deviations a normal tail is below 1e-18.
_TAIL = 9.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
# Above this times its largest product, the sign of an orientation is that of its rounded value (Shewchuk 1997).
_SURE = 3.4e-16


class Regions(NamedTuple):
    """Regions: the edges of region i are ``edges[first[i]:first[i + 1]]``, each from (x, y) to (x, y).

    ``box`` is the least and the most of each, x first. A ``radius`` that is no NaN makes a disc of it, around
    ``centre``: (x, y), or on an Earth the Earth-centred place.
    """

    first: Ints
    edges: Floats
    box: Floats
    radius: Floats
    centre: Floats


@exact_kernel
def owens_t(h: float, a: float) -> float:
    """Owen's T function, for h >= 0; absolute error below 1e-13."""
    if a < 0.0:
        return -owens_t(h, -a)
    if a > 1.0:
        if h == 0.0:
            return 0.25 - math.atan(1.0 / a) / (2.0 * math.pi)
        far = a * h
        one, other = phi(-h), phi(-far)
        return 0.5 * (one + other) - one * other - (_below_one(far, 1.0 / a) if far < _TAIL else 0.0)
    return _below_one(h, a)


@exact_kernel
def _below_one(h: float, a: float) -> float:
    """The same for 0 <= a <= 1, by the integral over x from 0 to a."""
    if h > _TAIL:
        return 0.0
    top = min(a, _TAIL / h) if h > 0.0 else a
    panels = 1 if h * top < 4.0 else 2
    total = 0.0
    for p in range(panels):
        half = 0.5 * top / panels
        for i in range(_NODES.shape[0]):
            x = half * (2.0 * p + 1.0 + _NODES[i])
            total += half * _WEIGHTS[i] * math.exp(-0.5 * h * h * x * x) / (1.0 + x * x)
    return math.exp(-0.5 * h * h) * total / (2.0 * math.pi)


@exact_kernel
def _sum_sign(parts: Floats) -> float:
    """The sign of the exact sum of numbers: they are added up without loss, the error of each addition kept."""
    n = parts.shape[0]
    held = np.zeros(n)
    m = 0
    for i in range(n):
        rest, kept = parts[i], 0
        for k in range(m):
            total = rest + held[k]
            back = total - rest
            error = (rest - (total - back)) + (held[k] - back)
            if error != 0.0:
                held[kept] = error
                kept += 1
            rest = total
        if rest != 0.0:
            held[kept] = rest
            kept += 1
        m = kept
    return held[m - 1] if m > 0 else 0.0


@exact_kernel
def _product(x: float, y: float, out: Floats, at: int) -> None:
    """A product as two numbers whose sum it is (Dekker 1971)."""
    p = x * y
    big = 134217729.0 * x
    x1 = big - (big - x)
    x2 = x - x1
    big = 134217729.0 * y
    y1 = big - (big - y)
    y2 = y - y1
    out[at] = ((x1 * y1 - p) + x1 * y2 + x2 * y1) + x2 * y2
    out[at + 1] = p


@exact_kernel
def side(ax: float, ay: float, bx: float, by: float, x: float, y: float) -> float:
    """Above 0 where a place lies at the left of the line from a to b, 0 on it; its sign is exact."""
    one, other = (ax - x) * (by - y), (ay - y) * (bx - x)
    found = one - other
    if abs(found) > _SURE * (abs(one) + abs(other)):
        return found
    parts = np.empty(12)
    _product(ax, by, parts, 0)
    _product(-ax, y, parts, 2)
    _product(-x, by, parts, 4)
    _product(-ay, bx, parts, 6)
    _product(ay, x, parts, 8)
    _product(y, bx, parts, 10)
    return _sum_sign(parts)


@exact_kernel
def covers(regions: Regions, i: int, x: float, y: float) -> bool:
    """Whether a place lies in a region of edges, its boundary included."""
    if not (regions.box[i, 0] <= x <= regions.box[i, 2] and regions.box[i, 1] <= y <= regions.box[i, 3]):
        return False
    edges = regions.edges
    inside = False
    for e in range(regions.first[i], regions.first[i + 1]):
        ay, by = edges[e, 1], edges[e, 3]
        if (ay > y and by > y) or (ay < y and by < y):
            continue
        ax, bx = edges[e, 0], edges[e, 2]
        if ay == y and by == y:
            if min(ax, bx) <= x <= max(ax, bx):
                return True
            continue
        if x > max(ax, bx):
            continue
        left = side(ax, ay, bx, by, x, y) if x >= min(ax, bx) else (1.0 if by > ay else -1.0)
        if left == 0.0:
            return True
        # Of an edge's ends only the lower one is its own.
        if (ay <= y < by and left > 0.0) or (by <= y < ay and left < 0.0):
            inside = not inside
    return inside


@exact_kernel
def mass(regions: Regions, i: int, x: float, y: float, across: float, along: float) -> float:
    """Pr{inside} of a place with normal errors; ``across`` and ``along`` are deviations in a unit of x and of y."""
    edges = regions.edges
    winding, beyond = 0, 0.0
    for e in range(regions.first[i], regions.first[i + 1]):
        ax, ay = (edges[e, 0] - x) * across, (edges[e, 1] - y) * along
        bx, by = (edges[e, 2] - x) * across, (edges[e, 3] - y) * along
        cross = ax * by - ay * bx
        level = ay == 0.0 and by == 0.0
        # A mean on an edge counts as at its left, here and below.
        left = cross >= 0.0 if not level else bx >= ax
        if ay <= 0.0 < by and left:
            winding += 1
        elif by <= 0.0 < ay and not left:
            winding -= 1
        if min(ax, bx) > _TAIL or max(ax, bx) < -_TAIL or min(ay, by) > _TAIL or max(ay, by) < -_TAIL:
            continue
        length = math.hypot(bx - ax, by - ay)
        if length == 0.0:
            continue
        h = abs(cross) / length
        if h > _TAIL:
            continue
        one, other = (ax * (bx - ax) + ay * (by - ay)) / length, (bx * (bx - ax) + by * (by - ay)) / length
        if (one == 0.0 or other == 0.0) and h == 0.0:
            # The mean is a corner, where wedges have no angle: as good as any place next to it.
            return mass(regions, i, x + 1.7e-12 / across, y + 2.3e-12 / along, across, along)
        wedge = owens_t(h, other / h) - owens_t(h, one / h) if h > 0.0 else 0.5 * (one < 0.0 < other)
        beyond += wedge if left else -wedge
    return min(1.0, max(0.0, winding - beyond))


@exact_kernel
def chance(
    regions: Regions,
    i: int,
    x: float,
    y: float,
    across: float,
    along: float,
    place: Floats,
    sigma: float,
    earth: Earth,
    on_earth: bool,
) -> float:
    """Pr{inside} of a row: where it lies, its deviation in units of x and y (infinite: exact), and in metres."""
    if math.isnan(regions.radius[i]):
        if across == np.inf:
            return 1.0 if covers(regions, i, x, y) else 0.0
        return mass(regions, i, x, y, across, along)
    centre, radius = regions.centre[i], regions.radius[i]
    if on_earth:
        distance = geodesic(earth, place[0], place[1], place[2], centre[0], centre[1], centre[2])
    else:
        distance = math.hypot(x - centre[0], y - centre[1])
    if sigma == 0.0:
        return 1.0 if distance <= radius + 1e-9 * max(1.0, radius) else 0.0
    return ball_probability(distance, sigma, radius, 2)


# --- an index: cells of several sizes, each region in those of its own size


class RegionIndex(NamedTuple):
    """Hashed cells: of slot s, ``cells[s]`` (0: none), and its regions ``owners[begin[s]:end[s]]``.

    ``levels`` are those that have any; a cell of level l is ``2^l`` wide.
    """

    cells: Hashes
    begin: Ints
    end: Ints
    owners: Ints
    levels: Ints


@exact_kernel
def cell_hash(level: int, x: int, y: int) -> np.uint64:
    """The hash of a cell; never 0."""
    value = np.uint64(level + 1024) * np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ np.uint64(x)) * np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(31)
    value = (value ^ np.uint64(y)) * np.uint64(0x94D049BB133111EB)
    value ^= value >> np.uint64(29)
    return value | np.uint64(1)


@exact_kernel
def entries(regions: Regions, level: Ints, hashes: Hashes, owners: Ints) -> int:
    """The cells of each region; how many there are (none are written beyond the room there is)."""
    total = 0
    for i in range(level.shape[0]):
        size = 2.0 ** level[i]
        for cx in range(math.floor(regions.box[i, 0] / size), math.floor(regions.box[i, 2] / size) + 1):
            for cy in range(math.floor(regions.box[i, 1] / size), math.floor(regions.box[i, 3] / size) + 1):
                if total < hashes.shape[0]:
                    hashes[total], owners[total] = cell_hash(level[i], cx, cy), i
                total += 1
    return total


@exact_kernel
def fill_slots(sorted_hashes: Hashes, cells: Hashes, begin: Ints, end: Ints) -> None:
    """Enter runs of equal hashes into slots, which are a power of two and at least twice as many."""
    last = np.uint64(cells.shape[0] - 1)
    at = 0
    while at < sorted_hashes.shape[0]:
        after = at
        while after < sorted_hashes.shape[0] and sorted_hashes[after] == sorted_hashes[at]:
            after += 1
        slot = (sorted_hashes[at] >> np.uint64(1)) & last
        while cells[slot] != 0:
            slot = (slot + np.uint64(1)) & last
        cells[slot], begin[slot], end[slot] = sorted_hashes[at], at, after
        at = after


@exact_kernel
def candidates(index: RegionIndex, regions: Regions, x: float, y: float, wide: float, high: float, out: Ints) -> int:
    """Regions whose box has a part within (wide, high) of a place; their number (written as far as there is room)."""
    last = np.uint64(index.cells.shape[0] - 1)
    found = 0
    for k in range(index.levels.shape[0]):
        level = index.levels[k]
        size = 2.0**level
        low_x, low_y = math.floor((x - wide) / size), math.floor((y - high) / size)
        for cx in range(low_x, math.floor((x + wide) / size) + 1):
            for cy in range(low_y, math.floor((y + high) / size) + 1):
                value = cell_hash(level, cx, cy)
                slot = (value >> np.uint64(1)) & last
                while index.cells[slot] != 0 and index.cells[slot] != value:
                    slot = (slot + np.uint64(1)) & last
                if index.cells[slot] == 0:
                    continue
                for p in range(index.begin[slot], index.end[slot]):
                    i = index.owners[p]
                    box = regions.box[i]
                    if x + wide < box[0] or x - wide > box[2] or y + high < box[1] or y - high > box[3]:
                        continue
                    # Of the cells that both are in, in the first alone.
                    first_x, first_y = math.floor(box[0] / size), math.floor(box[1] / size)
                    if cx != max(first_x, low_x) or cy != max(first_y, low_y):
                        continue
                    if found < out.shape[0]:
                        out[found] = i
                    found += 1
    return found
