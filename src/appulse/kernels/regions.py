"""Regions: which of them hold a place, and the probability that a normal error leaves it inside.

A region is the directed edges of its rings, the inside at their left, or a disc. Whether a place lies in one is decided
by exact signs: an edge's side that rounding leaves open is computed from exact products.

A place with a normal error, taken as the origin with lengths in deviations, lies inside with the probability

    integral of Phi(x) phi(y) dy  along the boundary

(errors of any covariance become independent by a linear map of the plane, which keeps edges straight)

by Green's theorem. Edges are short or cut into short panels, over which Gauss-Legendre quadrature is exact to 1e-11.
Far to the right Phi is 1, and the integral needs only where a chain of edges begins and ends; far to the left, above
and below it is 0. So edges are in blocks with a box each, of which most are done with at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.earth_ellipses import heading, turned_axes
from appulse.kernels.ellipses import plane_probability
from appulse.kernels.gaussian import ball_probability
from appulse.kernels.geodesic import geodesic
from appulse.kernels.jit import exact_kernel, inlined_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Hashes, Ints
    from appulse.kernels.geodesic import Earth

# Beyond this many deviations a normal tail is below 1e-10.
_TAIL = 6.5
# Bounds look this far, and beyond the second take the distribution function for 1.
_NEAR, _FAR = 4.0, 5.5
# What a bound may be off by: for what lies beyond, for each edge, and for each deviation along an edge.
_OFF_TAIL, _OFF_EDGE, _OFF_LENGTH = 1.3e-4, 2e-8, 3.1e-5
# Cells of a raster along each dimension.
CELLS = 16
# Edges of a block.
BLOCK = 16
# A panel of such a length in deviations takes so many nodes, for an error below 1e-11 for each deviation, by the
# derivative of order 2 n of Phi(x) phi(y) along any line; longer edges are cut.
_LENGTHS = (0.0137, 0.122, 0.378, 0.763, 1.236, 1.765, 2.324, 2.898, 3.477, 4.052, 4.621)
_COUNTS = range(2, 13)
# The same of bounds, where k + 1 nodes are off by less than _OFF_LENGTH.
_COARSE = (0.042, 0.57, 1.47, 2.44)
_RULES = [np.polynomial.legendre.leggauss(n) for n in _COUNTS]
_NODES = np.array([np.pad(0.5 * (1.0 + x), (0, 12 - len(x))) for x, _ in _RULES])
_WEIGHTS = np.array([np.pad(0.5 * w, (0, 12 - len(w))) for _, w in _RULES])
_COARSE_NODES = np.array([[0.5, 0.0, 0.0, 0.0], *_NODES[:3, :4]])
_COARSE_WEIGHTS = np.array([[1.0, 0.0, 0.0, 0.0], *_WEIGHTS[:3, :4]])
# Above this times its largest product, the sign of an orientation is that of its rounded value (Shewchuk 1997).
SURE = 3.4e-16
# The normal distribution function and its density at every 1/32.
_STEPS = 32.0
_GRID = np.arange(-8.0, 8.0 + 0.5 / _STEPS, 1.0 / _STEPS)
_BELOW = np.array([0.5 * math.erfc(-x * math.sqrt(0.5)) for x in _GRID.tolist()])
_DENSITY = np.exp(-0.5 * _GRID**2) / math.sqrt(2.0 * math.pi)


class Regions(NamedTuple):
    """Regions: of region i the blocks ``first[i]`` to ``first[i + 1]``, of which b is ``edges[start[b]:start[b + 1]]``.

    An edge leads from (x, y) to (x, y), and in a block to where the next one begins. ``bounds`` of a block and ``box``
    of a region are the least and the most of each, x first. A ``radius`` that is no NaN makes a disc of a region,
    around ``centre``: (x, y), or on an Earth the Earth-centred place.

    ``raster`` has two bits for each of 16 x 16 cells of the box, 256 bits of each kind: whether an edge may have a part
    in it, and, if none has, whether it is inside. Most places are in such a cell, and no edge is looked at. A raster
    without an edge has not been filled in, and says nothing.
    """

    first: Ints
    start: Ints
    bounds: Floats
    edges: Floats
    box: Floats
    radius: Floats
    centre: Floats
    raster: Hashes


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
    if abs(found) > SURE * (abs(one) + abs(other)):
        return found
    parts = np.empty(12)
    _product(ax, by, parts, 0)
    _product(-ax, y, parts, 2)
    _product(-x, by, parts, 4)
    _product(-ay, bx, parts, 6)
    _product(ay, x, parts, 8)
    _product(y, bx, parts, 10)
    return _sum_sign(parts)


@inlined_kernel
def raster_step(low: float, high: float) -> float:
    """The cells of a raster to a unit along a dimension."""
    return CELLS / (high - low) if high > low else 0.0


@inlined_kernel
def raster_cell(low: float, step: float, x: float) -> int:
    """The cell of a raster along a dimension. It never falls as x grows, however it is rounded."""
    return min(CELLS - 1, max(0, int((x - low) * step)))


@exact_kernel
def rasterise(regions: Regions, first: int) -> None:
    """Fill in ``raster`` of regions from ``first`` on, where that was not done."""
    for i in range(first, regions.first.shape[0] - 1):
        begin, end = regions.start[regions.first[i]], regions.start[regions.first[i + 1]]
        if begin < end and not is_rasterised(regions, i):
            _mark_edges(regions, i, begin, end)
            _mark_inside(regions, i)


@inlined_kernel
def is_rasterised(regions: Regions, i: int) -> bool:
    """Whether the raster of a region with edges is filled in."""
    raster = regions.raster
    return bool(raster[i, 0] | raster[i, 1] | raster[i, 2] | raster[i, 3])


@exact_kernel
def first_without_raster(regions: Regions) -> int:
    """The first region with edges whose raster is not filled in; how many there are if there is none."""
    n = len(regions.first) - 1
    for i in range(n):
        if regions.first[i] < regions.first[i + 1] and not is_rasterised(regions, i):
            return i
    return n


@exact_kernel
def _mark_edges(regions: Regions, i: int, begin: int, end: int) -> None:
    """Mark all cells that edges may have a part in, column by column."""
    west, south, east, north = regions.box[i]
    slack = 1e-12 * (abs(south) + abs(north))
    across, up, wide = raster_step(west, east), raster_step(south, north), (east - west) / CELLS
    for e in range(begin, end):
        ax, ay, bx, by = regions.edges[e, 0], regions.edges[e, 1], regions.edges[e, 2], regions.edges[e, 3]
        first, last = raster_cell(west, across, min(ax, bx)), raster_cell(west, across, max(ax, bx))
        low, high = min(ay, by), max(ay, by)
        if first == last:
            for row in range(raster_cell(south, up, low), raster_cell(south, up, high) + 1):
                regions.raster[i, row >> 2] |= np.uint64(1) << np.uint64((row & 3) * CELLS + first)
            continue
        slope = (by - ay) / (bx - ax)
        for column in range(first, last + 1):
            # Where the edge is between the sides of the column, and a little more.
            one = ay + slope * (west + (column - 0.001) * wide - ax)
            other = ay + slope * (west + (column + 1.001) * wide - ax)
            under, over = max(low, min(one, other)) - slack, min(high, max(one, other)) + slack
            for row in range(raster_cell(south, up, under), raster_cell(south, up, over) + 1):
                regions.raster[i, row >> 2] |= np.uint64(1) << np.uint64((row & 3) * CELLS + column)


@exact_kernel
def _mark_inside(regions: Regions, i: int) -> None:
    """Of cells without edges, mark those inside; neighbours are the same."""
    west, south, east, north = regions.box[i]
    for row in range(CELLS):
        known, inside = False, False
        for column in range(CELLS):
            bit, below = row * CELLS + column, (row - 1) * CELLS + column
            if _has(regions, i, 0, bit):
                known = False
                continue
            if not known and row > 0 and not _has(regions, i, 0, below):
                known, inside = True, _has(regions, i, 4, below)
            if not known:
                x, y = west + (column + 0.5) * (east - west) / CELLS, south + (row + 0.5) * (north - south) / CELLS
                known, inside = True, _covers(regions, i, x, y)
            if inside:
                regions.raster[i, 4 + (bit >> 6)] |= np.uint64(1) << np.uint64(bit & 63)


@inlined_kernel
def _has(regions: Regions, i: int, kind: int, bit: int) -> bool:
    """A bit of a raster, of those from word ``kind`` on."""
    return bool((regions.raster[i, kind + (bit >> 6)] >> np.uint64(bit & 63)) & np.uint64(1))


@exact_kernel
def covers(regions: Regions, i: int, x: float, y: float) -> bool:
    """Whether a place lies in a region of edges, its boundary included."""
    west, south, east, north = regions.box[i, 0], regions.box[i, 1], regions.box[i, 2], regions.box[i, 3]
    if not (west <= x <= east and south <= y <= north):
        return False
    row, column = raster_cell(south, raster_step(south, north), y), raster_cell(west, raster_step(west, east), x)
    bit = row * CELLS + column
    word, shift = bit >> 6, np.uint64(bit & 63)
    if (regions.raster[i, word] >> shift) & np.uint64(1) or not is_rasterised(regions, i):
        return _covers(regions, i, x, y)
    return bool((regions.raster[i, 4 + word] >> shift) & np.uint64(1))


@exact_kernel
def _covers(regions: Regions, i: int, x: float, y: float) -> bool:
    """The same by edges, for a place in the box.

    Signs of rounded values first, without a branch; where one of them is not sure, edge by edge.
    """
    edges = regions.edges
    crossings, unsure = 0, 0
    for b in range(regions.first[i], regions.first[i + 1]):
        if y < regions.bounds[b, 1] or y > regions.bounds[b, 3] or x > regions.bounds[b, 2]:
            continue
        begin, end = regions.start[b], regions.start[b + 1]
        if x < regions.bounds[b, 0]:
            # A ray to the right crosses a chain by where it begins and ends.
            crossings += (edges[begin, 1] <= y) != (edges[end - 1, 3] <= y)
            continue
        for e in range(begin, end):
            ax, ay, bx, by = edges[e, 0] - x, edges[e, 1], edges[e, 2] - x, edges[e, 3]
            one, other = ax * (by - y), (ay - y) * bx
            turn = one - other
            # Of an edge's ends only the lower one is its own.
            crossings += ((ay <= y) != (by <= y)) & ((turn > 0.0) == (by > ay))
            sure = abs(turn) > SURE * (abs(one) + abs(other))
            unsure += (not sure) & (min(ay, by) <= y) & (y <= max(ay, by))
    if unsure:
        return _covers_exactly(regions, i, x, y)
    return crossings % 2 == 1


@exact_kernel
def _covers_exactly(regions: Regions, i: int, x: float, y: float) -> bool:
    edges, inside = regions.edges, False
    for e in range(regions.start[regions.first[i]], regions.start[regions.first[i + 1]]):
        ax, ay, bx, by = edges[e]
        if y < min(ay, by) or y > max(ay, by) or x > max(ax, bx):
            continue
        if ay == y and by == y:
            if min(ax, bx) <= x:
                return True
            continue
        left = side(ax, ay, bx, by, x, y) if x >= min(ax, bx) else (1.0 if by > ay else -1.0)
        if left == 0.0:
            return True
        if (ay <= y < by and left > 0.0) or (by <= y < ay and left < 0.0):
            inside = not inside
    return inside


@exact_kernel
def below(x: float) -> float:
    """The standard normal distribution function for |x| <= 8, to 1e-13: by Taylor from the next place in a table.

    A quarter of the time of ``erfc``.
    """
    k = np.uint64((x + 8.0) * _STEPS + 0.5)
    c = _GRID[k]
    d, cc = x - c, c * c
    high = (cc - 1.0) * (1.0 / 6.0) - d * c * (cc - 3.0) * (1.0 / 24.0)
    high += (d * d) * ((cc - 6.0) * cc + 3.0) * (1.0 / 120.0)
    return float(_BELOW[k] + _DENSITY[k] * (d * (1.0 - 0.5 * c * d + (d * d) * high)))


@inlined_kernel
def _beyond(x: float, tail: float) -> float:
    return float(below(min(tail, max(-tail, x))))


@exact_kernel
def density(x: float) -> float:
    """The standard normal density for |x| <= 8, to 1e-13, in the same way."""
    k = np.uint64((x + 8.0) * _STEPS + 0.5)
    c = _GRID[k]
    d = x - c
    u = -d * (c + 0.5 * d)
    uu = u * u
    power = (1.0 + u) + uu * ((0.5 + u * (1.0 / 6.0)) + uu * (1.0 / 24.0 + u * (1.0 / 120.0) + uu * (1.0 / 720.0)))
    return float(_DENSITY[k] * power)


@inlined_kernel
def _roughly(x: float, y: float) -> float:
    """``below(x) * density(y)`` to 1e-6, by shorter Taylor polynomials."""
    k, m = np.uint64((x + 8.0) * _STEPS + 0.5), np.uint64((y + 8.0) * _STEPS + 0.5)
    d, e = x - _GRID[k], y - _GRID[m]
    u = e * (_GRID[m] + 0.5 * e)
    return float((_BELOW[k] + _DENSITY[k] * d * (1.0 - 0.5 * _GRID[k] * d)) * _DENSITY[m] * (1.0 - u + 0.5 * u * u))


@exact_kernel
def _along(ax: float, ay: float, dx: float, dy: float, tail: float, far: float, rough: bool) -> tuple[float, float]:
    """The integral over an edge from (ax, ay) by (dx, dy), and how long the part is that quadrature was needed for."""
    low, high, total = 0.0, 1.0, 0.0
    bx, by = ax + dx, ay + dy
    if min(ax, bx) < -tail or max(abs(ay), abs(by)) > tail:
        # Only what is neither above nor below nor at the left counts.
        if dy != 0.0:
            one, other = (-tail - ay) / dy, (tail - ay) / dy
            low, high = max(low, min(one, other)), min(high, max(one, other))
        if dx != 0.0:
            cut = (-tail - ax) / dx
            low, high = (max(low, cut), high) if dx > 0.0 else (low, min(high, cut))
        if high <= low:
            return 0.0, 0.0
    if max(ax, bx) > far and dx != 0.0:
        # Far to the right only the ends count.
        cut = min(high, max(low, (far - ax) / dx))
        begin, end = (cut, high) if dx > 0.0 else (low, cut)
        total = _beyond(ay + end * dy, tail) - _beyond(ay + begin * dy, tail)
        low, high = (low, cut) if dx > 0.0 else (cut, high)
    length = math.sqrt(dx * dx + dy * dy) * (high - low)
    rule, panels, quadrature = 0, 1, 0.0
    if rough:
        while rule < len(_COARSE) - 1 and length > _COARSE[rule]:
            rule += 1
        if length > _COARSE[-1]:
            panels = math.ceil(length / _COARSE[-1])
        step = (high - low) / panels
        for p in range(panels):
            for k in range(rule + 1):
                t = low + (p + _COARSE_NODES[rule, k]) * step
                quadrature += _COARSE_WEIGHTS[rule, k] * _roughly(min(_TAIL, ax + t * dx), ay + t * dy)
        return total + quadrature * step * dy, length
    while rule < len(_LENGTHS) - 1 and length > _LENGTHS[rule]:
        rule += 1
    if length > _LENGTHS[-1]:
        panels = math.ceil(length / _LENGTHS[-1])
    step = (high - low) / panels
    for p in range(panels):
        for k in range(rule + 2):
            t = low + (p + _NODES[rule, k]) * step
            quadrature += _WEIGHTS[rule, k] * below(min(_TAIL, ax + t * dx)) * density(ay + t * dy)
    return total + quadrature * step * dy, length


@exact_kernel
def _around(
    regions: Regions, i: int, x: float, y: float, scale: Floats, tail: float, far: float, rough: bool
) -> tuple[float, float]:
    """The integral along the boundary of a region, and the length of what quadrature was needed for, in deviations."""
    edges, total, length = regions.edges, 0.0, 0.0
    across, along, tilt = scale[0], scale[1], scale[2]
    for b in range(regions.first[i], regions.first[i + 1]):
        bounds = regions.bounds[b]
        low, high = (bounds[1] - y) * along, (bounds[3] - y) * along
        if tilt != 0.0:
            one, other = (bounds[0] - x) * tilt, (bounds[2] - x) * tilt
            low, high = low + min(one, other), high + max(one, other)
        if (bounds[2] - x) * across < -tail or low > tail or high < -tail:
            continue
        begin, end = regions.start[b], regions.start[b + 1]
        if (bounds[0] - x) * across > far:
            last = (edges[end - 1, 3] - y) * along + (edges[end - 1, 2] - x) * tilt
            total += _beyond(last, tail) - _beyond((edges[begin, 1] - y) * along + (edges[begin, 0] - x) * tilt, tail)
            continue
        for e in range(begin, end):
            ax, bx = edges[e, 0] - x, edges[e, 2] - x
            ay, by = (edges[e, 1] - y) * along + ax * tilt, (edges[e, 3] - y) * along + bx * tilt
            ax, bx = ax * across, bx * across
            if ay == by or (ax < -tail and bx < -tail) or min(ay, by) > tail or max(ay, by) < -tail:
                continue
            if ax > far and bx > far:
                total += _beyond(by, tail) - _beyond(ay, tail)
            else:
                part, long = _along(ax, ay, bx - ax, by - ay, tail, far, rough)
                total += part
                length += long
    return total, length


@exact_kernel
def mass(regions: Regions, i: int, x: float, y: float, scale: Floats) -> float:
    """Pr{inside} of a place with normal errors; ``scale`` as `appulse.model.covariance.whitening` has it."""
    total, _ = _around(regions, i, x, y, scale, _TAIL, _TAIL, False)  # noqa: FBT003
    return min(1.0, max(0.0, total))


@exact_kernel
def mass_bounds(regions: Regions, i: int, x: float, y: float, scale: Floats) -> tuple[float, float]:
    """A lower and an upper bound on `mass`, some 1e-3 apart, in less than half of its time.

    Nodes are fewer, and what lies beyond 4 deviations is left out: both by known errors.
    """
    total, length = _around(regions, i, x, y, scale, _NEAR, _FAR, True)  # noqa: FBT003
    edges = regions.start[regions.first[i + 1]] - regions.start[regions.first[i]]
    off = _OFF_TAIL + _OFF_EDGE * edges + _OFF_LENGTH * length
    return max(0.0, total - off), min(1.0, total + off)


@exact_kernel
def chance(
    regions: Regions,
    i: int,
    x: float,
    y: float,
    scale: Floats,
    place: Floats,
    spread: Floats,
    earth: Earth,
    on_earth: bool,
) -> float:
    """Pr{inside} of a row: where it lies, what its errors are in units of x and y (infinite: exact), and of radii.

    ``spread`` is one deviation, or the upper triangle of a covariance.
    """
    if math.isnan(regions.radius[i]):
        if scale[0] == np.inf:
            return 1.0 if covers(regions, i, x, y) else 0.0
        return mass(regions, i, x, y, scale)
    centre, radius = regions.centre[i], regions.radius[i]
    if on_earth:
        distance = geodesic(earth, place[0], place[1], place[2], centre[0], centre[1], centre[2])
    else:
        distance = math.hypot(x - centre[0], y - centre[1])
    if scale[0] == np.inf:
        return 1.0 if distance <= radius + 1e-9 * max(1.0, radius) else 0.0
    if spread.shape[0] < 3:
        return ball_probability(distance, spread[0], radius, 2)
    xx, xy, yy = spread[0], spread[1], spread[2]
    if not on_earth:
        return plane_probability(x - centre[0], y - centre[1], xx, xy, yy, radius)
    east, north = heading(earth, place[0], place[1], place[2], centre[0], centre[1], centre[2])
    xx, xy, yy = turned_axes(xx, xy, yy, east, north)
    return plane_probability(distance, 0.0, xx, xy, yy, radius)


@exact_kernel
def chances(
    regions: Regions,
    ids: Ints,
    at: Floats,
    scale: Floats,
    place: Floats,
    spread: Floats,
    earth: Earth,
    on_earth: bool,
    out: Floats,
) -> None:
    """`chance` of each row in its region ``ids``."""
    for k in range(ids.shape[0]):
        out[k] = chance(regions, ids[k], at[k, 0], at[k, 1], scale[k], place[k], spread[k], earth, on_earth)
