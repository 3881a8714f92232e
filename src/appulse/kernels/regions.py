"""Regions: which of them hold a place.

A region is the directed edges of its rings, the inside at their left, or a disc. Whether a place lies in one is decided
by exact signs: an edge's side that rounding leaves open is computed from exact products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel, inlined_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Hashes, Ints
    from appulse.kernels.geodesic import Earth

# Cells of a raster along each dimension.
CELLS = 16
# Words of a raster.
RASTER = 9
# Edges of a block.
BLOCK = 16
# Above this times its largest product, the sign of an orientation is that of its rounded value (Shewchuk 1997).
SURE = 3.4e-16


class Ground(NamedTuple):
    """What regions and places lie on: an Earth, coordinates then are longitudes and latitudes, or a plane."""

    earth: Earth
    on_earth: bool


class Regions(NamedTuple):
    """Regions: of region i the blocks ``first[i]`` to ``first[i + 1]``, of which b is ``edges[start[b]:start[b + 1]]``.

    An edge leads from (x, y) to (x, y), and in a block to where the next one begins. ``bounds`` of a block and ``box``
    of a region are the least and the most of each, x first. A ``radius`` that is no NaN makes a disc of a region,
    around ``centre``: (x, y), or on an Earth the Earth-centred place.

    ``raster`` has two bits for each of 16 x 16 cells of the box, 256 bits of each kind: whether an edge may have a part
    in it, and, if none has, whether it is inside. Most places are in such a cell, and no edge is looked at. The last
    word of nine is 1 for a convex region. A raster without an edge has not been filled in, and says nothing.
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
            regions.raster[i, RASTER - 1] = _is_convex(regions, begin, end)


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


@exact_kernel
def _is_convex(regions: Regions, begin: int, end: int) -> bool:
    """Whether edges are one ring, which nowhere turns to the right; as no ring crosses itself, it is convex.

    Where one ring ends and another begins at the same corner, one of both turns is to the right.
    """
    edges, before = regions.edges, end - 1
    for e in range(begin, end):
        ax, ay, bx, by = edges[before, 0], edges[before, 1], edges[e, 0], edges[e, 1]
        goes_on = edges[before, 2] == bx and edges[before, 3] == by
        if not goes_on or side(ax, ay, bx, by, edges[e, 2], edges[e, 3]) < 0.0:
            return False
        before = e
    return True


@inlined_kernel
def is_convex(regions: Regions, i: int) -> bool:
    """Whether a region is known to be convex."""
    return bool(regions.raster[i, RASTER - 1])


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
