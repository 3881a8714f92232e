"""Which regions readings are in or near, and by how much: found for groups of readings that lie near each other.

Readings are sorted along a Z-curve. A group of neighbours shares one look-up of the index; a region whose raster has no
edge in the group's box is decided for all of them at once, and an edge is held against all of them by SIMD.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.cells import packed_order
from appulse.kernels.curved_regions import degrees_reached, is_curved, widest
from appulse.kernels.jit import exact_kernel, inlined_kernel
from appulse.kernels.region_chances import from_centre, reaches
from appulse.kernels.region_index import RegionIndex, candidates
from appulse.kernels.regions import SURE, Regions, covers, is_rasterised, raster_cell, raster_step
from appulse.kernels.simd import lowest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints
    from appulse.kernels.regions import Ground

#: Readings of a group.
GROUP = 32
# Beyond this many deviations a normal tail is below 1e-12.
TAIL = 7.0
# Bits of a place on the curve, along each coordinate.
_BITS = 20


class Near(NamedTuple):
    """The regions near each of some readings, by level and number: of r those ``begin[r]`` to ``begin[r] + many[r]``.

    Near to an exact reading are those that cover it. ``free`` is how far it is from the boundary, in deviations: below
    0 outside, and not more than ``Reach.free``; infinite of exact readings; NaN of discs, at the 180th meridian, and
    where the Earth is curved.
    """

    begin: Ints
    many: Ints
    region: NDArray[np.int32]
    free: Floats


class Reach(NamedTuple):
    """In deviations: how far the box of a near region may be from the mean, and how far boundaries matter."""

    box: float
    free: float


class Readings(NamedTuple):
    """Readings, those of a thing together and in order of time.

    ``at`` is (x, y), or longitude and latitude; ``scale`` what makes errors independent, of deviation 1, as
    `appulse.model.covariance.whitening` has it: infinite for exact ones. ``place`` is Earth-centred, ``spread`` in the
    unit of radii, one deviation or the upper triangle of a covariance; ``exists`` a probability.
    """

    thing: Ints
    time: Ints
    at: Floats
    scale: Floats
    place: Floats
    spread: Floats
    exists: Floats


class Curve(NamedTuple):
    """A Z-curve through a box, ``step`` cells a unit; of a group of readings all but the last ``shift`` bits agree."""

    low: Floats
    high: Floats
    step: float
    shift: int


class Group(NamedTuple):
    """Some readings, filled up by the last: where they are, their ``scale``, and room for what is found of each.

    ``wide`` and ``tall`` are the deviations of x and of y; ``box`` is that of all, west, south, east, north, and then
    the largest of either.
    """

    x: Floats
    y: Floats
    across: Floats
    along: Floats
    tilt: Floats
    wide: Floats
    tall: Floats
    parity: Ints
    unsure: Ints
    least: Floats
    box: Floats


class Search(NamedTuple):
    """What finds the regions near readings."""

    grid: RegionIndex
    curve: Curve


@exact_kernel
def tallness(scale: Floats) -> float:
    """The deviation of y, by what makes errors independent."""
    tilt = scale[2] / scale[0]
    return float(math.sqrt(1.0 + tilt * tilt) / scale[1])


@exact_kernel
def curve_of(regions: Regions, level: Ints) -> Curve:
    """A curve through all regions; groups are at most as wide as most of them, or as small ones four times over."""
    low, high = np.array([np.inf, np.inf]), np.array([-np.inf, -np.inf])
    for i in range(regions.box.shape[0]):
        for k in range(2):
            low[k], high[k] = min(low[k], regions.box[i, k]), max(high[k], regions.box[i, 2 + k])
    if not level.shape[0]:
        return Curve(low, high, 1.0, 0)
    step = (1 << _BITS) / max(high[0] - low[0], high[1] - low[1], 1e-300)
    by_size = np.sort(level)
    side = min(np.median(by_size.astype(np.float64)), by_size[by_size.shape[0] // 100] + 2.0)
    return Curve(low, high, step, 2 * max(0, math.floor(side + math.log2(step))))


@exact_kernel
def _codes(curve: Curve, readings: Readings, first: int, reach: float, ground: Ground, out: Ints, count: Ints) -> None:
    """The place of each reading on the curve, from 1 on, exact ones first; 0: it is far from all regions.

    Those of the 180th meridian, and where the Earth is curved, have a ``count`` of -1 and a code of 0.
    """
    most = (1 << _BITS) - 1
    low, high, step = curve.low, curve.high, curve.step
    for k in range(out.shape[0]):
        r = first + k
        x, y, across = readings.at[r, 0], readings.at[r, 1], readings.scale[r, 0]
        wide, tall = reach / across, reach * tallness(readings.scale[r])
        out[k], count[k] = 0, 0
        over = ground.on_earth and abs(x) + TAIL / across >= 180.0
        if over or (ground.on_earth and is_curved(y, readings.scale[r], ground.earth)):
            count[k] = -1
        elif low[0] - wide <= x <= high[0] + wide and low[1] - tall <= y <= high[1] + tall:
            column = min(most, int(max(0.0, (x - low[0]) * step)))
            row = min(most, int(max(0.0, (y - low[1]) * step)))
            out[k] = 1 + (_spread(column) | (_spread(row) << 1)) + ((across < np.inf) << 2 * _BITS)


@inlined_kernel
def _spread(value: int) -> int:
    """The bits of a number with a gap behind each."""
    value = (value | (value << 16)) & 0x0000FFFF0000FFFF
    value = (value | (value << 8)) & 0x00FF00FF00FF00FF
    value = (value | (value << 4)) & 0x0F0F0F0F0F0F0F0F
    value = (value | (value << 2)) & 0x3333333333333333
    return (value | (value << 1)) & 0x5555555555555555


@exact_kernel
def nearby(
    regions: Regions, search: Search, readings: Readings, first: int, last: int, reach: Reach, ground: Ground
) -> Near:
    """The regions near readings ``first`` to ``last``, at most 2^20."""
    index, curve, n = search.grid, search.curve, last - first
    begin, count, code = np.zeros(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    _codes(curve, readings, first, reach.box, ground, code, count)
    code, order = packed_order(code, 2 * _BITS + 2, _BITS)
    region, free, total = np.empty(8 * n + 64, np.int32), np.empty(8 * n + 64), 0
    group = _room()
    near, inside = np.empty(64, np.int64), np.empty(64, np.uint32)
    margins = np.empty((64, GROUP))
    g = 0
    while g < n and code[g] == 0:
        g += 1
    while g < n:
        m, cell = 1, (code[g] - 1) >> curve.shift
        while m < GROUP and g + m < n and ((code[g + m] - 1) >> curve.shift) == cell:
            m += 1
        rows = order[g : g + m]
        _gather(group, readings, first, rows)
        exact = readings.scale[first + rows[0], 0] == np.inf
        wide, tall = reach.box * group.box[4], reach.box * group.box[5]
        west, south, east, north = group.box[0] - wide, group.box[1] - tall, group.box[2] + wide, group.box[3] + tall
        found = candidates(index, regions, west, south, east, north, near)
        while found > near.shape[0]:
            near, inside = np.empty(2 * found, np.int64), np.empty(2 * found, np.uint32)
            margins = np.empty((2 * found, GROUP))
            found = candidates(index, regions, west, south, east, north, near)
        by_level(near, found, index.level)
        most = 0
        for c in range(found):
            i = near[c]
            bits = _within(regions, i, group, reach.box) & np.uint32((1 << m) - 1)
            if bits and not math.isnan(regions.radius[i]):
                margins[c] = np.nan
                if exact:
                    bits = _in_disc(regions, i, readings, first, rows, bits, ground)
            elif bits and exact:
                bits = _inside(regions, i, group, bits)
            elif bits:
                _margins(regions, i, group, reach.free, margins[c])
            inside[c] = bits
            while bits:
                count[rows[lowest(bits)]] += 1
                bits &= bits - np.uint32(1)
                most += 1
        if total + most > region.shape[0]:
            region, free = _more_room(region, free, total, most)
        for f in range(m):
            r = rows[f]
            begin[r] = total
            total += count[r]
            count[r] = 0
        for c in range(found):
            bits = inside[c]
            while bits:
                f = lowest(bits)
                r = rows[f]
                at = begin[r] + count[r]
                region[at], free[at] = near[c], np.inf if exact else margins[c, f]
                count[r] += 1
                bits &= bits - np.uint32(1)
        g += m
    for k in range(n):
        if count[k] < 0:
            found = _alone(index, regions, readings, first + k, reach.box, ground, near)
            while found > near.shape[0]:
                near = np.empty(2 * found, np.int64)
                found = _alone(index, regions, readings, first + k, reach.box, ground, near)
            if total + found > region.shape[0]:
                region, free = _more_room(region, free, total, found)
            begin[k] = total
            exact = readings.scale[first + k, 0] == np.inf
            for c in range(found):
                if not exact or _covers_turned(regions, near[c], readings, first + k, ground):
                    region[total], free[total] = near[c], np.inf if exact else np.nan
                    total += 1
            count[k] = total - begin[k]
    return Near(begin, count, region[:total], free[:total])


@exact_kernel
def _covers_turned(regions: Regions, i: int, readings: Readings, r: int, ground: Ground) -> bool:
    """Whether a region covers an exact reading at the 180th meridian, which lies at both ends of all longitudes."""
    if not math.isnan(regions.radius[i]):
        return bool(reaches(regions.radius[i], from_centre(regions, i, readings.at, readings.place, r, ground)))
    x, y = readings.at[r, 0], readings.at[r, 1]
    return bool(covers(regions, i, x, y) or covers(regions, i, -x, y))


@exact_kernel
def _alone(
    index: RegionIndex, regions: Regions, readings: Readings, r: int, reach: float, ground: Ground, out: Ints
) -> int:
    """The regions near a reading at the 180th meridian, or where the Earth is curved; their number."""
    x, y, scale = readings.at[r, 0], readings.at[r, 1], readings.scale[r]
    wide, tall = min(360.0, reach / scale[0]), min(180.0, reach * tallness(scale))
    if is_curved(y, scale, ground.earth):
        wide, tall = degrees_reached(y, TAIL * widest(y, scale, ground.earth), ground.earth)
    found = 0
    for aside in (x, x - 360.0, x + 360.0):
        room = out[min(found, out.shape[0]) :]
        found += candidates(index, regions, aside - wide, y - tall, aside + wide, y + tall, room)
    if found > out.shape[0]:
        return found
    by_level(out, found, index.level)
    once = 0
    for c in range(found):  # one that reaches around is found from both sides
        if c == 0 or out[c] != out[c - 1]:
            out[once] = out[c]
            once += 1
    return once


@exact_kernel
def _room() -> Group:
    """Of a group."""
    ints, x = np.empty((2, GROUP), np.int64), np.empty((8, GROUP))
    return Group(x[0], x[1], x[2], x[3], x[4], x[5], x[6], ints[0], ints[1], x[7], np.empty(6))


@exact_kernel
def _more_room(region: NDArray[np.int32], free: Floats, total: int, most: int) -> tuple[NDArray[np.int32], Floats]:
    wider, freer = np.empty(2 * (total + most), np.int32), np.empty(2 * (total + most))
    wider[:total], freer[:total] = region[:total], free[:total]
    return wider, freer


@exact_kernel
def _gather(group: Group, readings: Readings, first: int, rows: Ints) -> None:
    for f in range(GROUP):
        r = first + rows[min(f, rows.shape[0] - 1)]
        group.x[f], group.y[f] = readings.at[r, 0], readings.at[r, 1]
        group.across[f], group.along[f], group.tilt[f] = readings.scale[r]
        group.wide[f], group.tall[f] = 1.0 / readings.scale[r, 0], tallness(readings.scale[r])
    box, x, y = group.box, group.x, group.y
    box[0], box[1], box[2], box[3] = x.min(), y.min(), x.max(), y.max()
    box[4], box[5] = group.wide.max(), group.tall.max()


@inlined_kernel
def _within(regions: Regions, i: int, group: Group, reach: float) -> np.uint32:
    """Which of a group are within reach of the box of a region, a bit for each."""
    west, south, east, north = regions.box[i, 0], regions.box[i, 1], regions.box[i, 2], regions.box[i, 3]
    x, y = group.x, group.y
    found = np.uint32(0)
    for f in range(GROUP):
        wide, tall = reach * group.wide[f], reach * group.tall[f]
        meets = (west <= x[f] + wide) & (x[f] - wide <= east) & (south <= y[f] + tall) & (y[f] - tall <= north)
        found |= np.uint32(meets) << np.uint32(f)
    return found


@exact_kernel
def _in_disc(
    regions: Regions, i: int, readings: Readings, first: int, rows: Ints, bits: np.uint32, ground: Ground
) -> np.uint32:
    """Those bits of a group whose places, which are exact, lie in a disc."""
    left = bits
    while left:
        f = lowest(left)
        r, bit = first + rows[f], np.uint32(1) << np.uint32(f)
        if not reaches(regions.radius[i], from_centre(regions, i, readings.at, readings.place, r, ground)):
            bits &= ~bit
        left &= ~bit
    return bits


@inlined_kernel
def by_level(near: Ints, found: int, level: Ints) -> None:
    """Sort regions by level and number."""
    for c in range(1, found):
        one, k = near[c], c
        while k > 0 and (level[near[k - 1]] > level[one] or (level[near[k - 1]] == level[one] and near[k - 1] > one)):
            near[k] = near[k - 1]
            k -= 1
        near[k] = one


@exact_kernel
def _inside(regions: Regions, i: int, group: Group, within: np.uint32) -> np.uint32:
    """Which places of a group a region covers, of those ``within`` its box: a bit for each."""
    west, south, east, north = group.box[0], group.box[1], group.box[2], group.box[3]
    x, y, parity, unsure = group.x, group.y, group.parity, group.unsure
    box = regions.box[i]
    across, up = raster_step(box[0], box[2]), raster_step(box[1], box[3])
    first, last = raster_cell(box[0], across, west), raster_cell(box[0], across, east)
    low, high = raster_cell(box[1], up, south), raster_cell(box[1], up, north)
    columns, edges = np.uint64((2 << last) - (1 << first)), np.uint64(0)
    for row in range(low, high + 1):
        edges |= (regions.raster[i, row >> 2] >> np.uint64(16 * (row & 3))) & columns
    if not edges and is_rasterised(regions, i):
        # Cells that touch, none with an edge, are all of one kind.
        word = regions.raster[i, 4 + (low >> 2)] >> np.uint64(16 * (low & 3) + first)
        return within if word & np.uint64(1) else np.uint32(0)
    parity[:], unsure[:] = 0, 0
    for b in range(regions.first[i], regions.first[i + 1]):
        bounds = regions.bounds[b]
        if north < bounds[1] or south > bounds[3] or west > bounds[2]:
            continue
        start, end = regions.start[b], regions.start[b + 1]
        if east < bounds[0]:
            _pass_chain(group, regions.edges[start, 1], regions.edges[end - 1, 3])
            continue
        for e in range(start, end):
            ax, ay, bx, by = regions.edges[e, 0], regions.edges[e, 1], regions.edges[e, 2], regions.edges[e, 3]
            lower, upper = min(ay, by), max(ay, by)
            if upper < south or lower > north or max(ax, bx) < west:
                continue
            rises = by > ay
            for f in range(GROUP):
                one, other = (ax - x[f]) * (by - y[f]), (ay - y[f]) * (bx - x[f])
                turn = one - other
                # Of an edge's ends only the lower one is its own.
                parity[f] ^= ((ay <= y[f]) != (by <= y[f])) & ((turn > 0.0) == rises)
                sure = abs(turn) > SURE * (abs(one) + abs(other))
                unsure[f] |= (not sure) & (lower <= y[f]) & (y[f] <= upper)
    found, open_ = np.uint32(0), np.uint32(0)
    for f in range(GROUP):
        found |= np.uint32(parity[f]) << np.uint32(f)
        open_ |= np.uint32(unsure[f]) << np.uint32(f)
    open_ &= within
    while open_:
        f = lowest(open_)
        bit = np.uint32(1) << np.uint32(f)
        found = (found | bit) if covers(regions, i, x[f], y[f]) else (found & ~bit)
        open_ ^= bit
    return found & within


@inlined_kernel
def _pass_chain(group: Group, ay: float, by: float) -> None:
    """A ray to the right crosses a chain of edges beyond the group by where it begins and ends."""
    y, parity = group.y, group.parity
    for f in range(GROUP):
        parity[f] ^= (ay <= y[f]) != (by <= y[f])


@exact_kernel
def _margins(regions: Regions, i: int, group: Group, most: float, out: Floats) -> None:
    """How far the means of a group are from the boundary of a region, in deviations: below 0 outside; ``most`` at most.

    Rounded, unlike `_inside`, but a mean of which the side is open is at 0.
    """
    west, south, east, north = group.box[0], group.box[1], group.box[2], group.box[3]
    x, y, across, along, tilt = group.x, group.y, group.across, group.along, group.tilt
    parity, least = group.parity, group.least
    parity[:], least[:] = 0, most * most
    wide, tall = most * group.box[4], most * group.box[5]
    for b in range(regions.first[i], regions.first[i + 1]):
        bounds = regions.bounds[b]
        start, end = regions.start[b], regions.start[b + 1]
        meets = north >= bounds[1] and south <= bounds[3]
        if meets and east < bounds[0]:
            _pass_chain(group, regions.edges[start, 1], regions.edges[end - 1, 3])
            meets = False
        if bounds[0] > east + wide or bounds[2] < west - wide or bounds[1] > north + tall or bounds[3] < south - tall:
            continue
        for e in range(start, end):
            ax, ay, bx, by = regions.edges[e, 0], regions.edges[e, 1], regions.edges[e, 2], regions.edges[e, 3]
            dx, dy, rises = bx - ax, by - ay, by > ay
            if meets and max(ax, bx) >= west:
                for f in range(GROUP):
                    turn = (ax - x[f]) * (by - y[f]) - (ay - y[f]) * (bx - x[f])
                    parity[f] ^= ((ay <= y[f]) != (by <= y[f])) & ((turn > 0.0) == rises)
            near = min(ax, bx) <= east + wide and max(ax, bx) >= west - wide
            if near and min(ay, by) <= north + tall and max(ay, by) >= south - tall:
                for f in range(GROUP):
                    px, py = (ax - x[f]) * across[f], (ay - y[f]) * along[f] + (ax - x[f]) * tilt[f]
                    ex, ey = dx * across[f], dy * along[f] + dx * tilt[f]
                    share = min(1.0, max(0.0, -(px * ex + py * ey) / max(ex * ex + ey * ey, 1e-300)))
                    px, py = px + share * ex, py + share * ey
                    least[f] = min(least[f], px * px + py * py)
    for f in range(GROUP):
        out[f] = math.sqrt(least[f]) if parity[f] else -math.sqrt(least[f])
