"""Which regions readings lie in, with at least some probability: bounds first, then the integral."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.kernels.curved_regions import curved_mass, is_curved
from appulse.kernels.jit import exact_kernel, inlined_kernel
from appulse.kernels.near_regions import TAIL, Near, Reach, Readings, Search, nearby
from appulse.kernels.region_chances import chance, mass
from appulse.kernels.regions import is_convex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats
    from appulse.kernels.regions import Ground, Regions

# Readings that are held against regions at once: at first, at most, and for how many matches there is room.
_FEW, _MANY, _ROOM = 1 << 13, 1 << 20, 1 << 23
# By so much a bound has to clear a threshold: more than the error of a probability.
_CLEAR = 1e-9
_HALF = math.sqrt(0.5)


@exact_kernel
def place_chance(regions: Regions, fence: int, readings: Readings, r: int, ground: Ground, turns: bool) -> float:
    """Pr{inside} of a reading; with ``turns`` also of its copies beyond the 180th meridian."""
    at, scale = readings.at, readings.scale
    across = scale[r, 0]
    if across == np.inf or not math.isnan(regions.radius[fence]):
        total = chance(regions, fence, at, scale, readings.place, readings.spread, r, ground)
        return float(total * readings.exists[r])
    x, y, along, tilt = at[r, 0], at[r, 1], scale[r, 1], scale[r, 2]
    if ground.on_earth and is_curved(y, scale[r], ground.earth):
        return float(curved_mass(regions, fence, y, scale[r], readings.place[r], ground.earth) * readings.exists[r])
    total = mass(regions, fence, x, y, across, along, tilt)
    if turns and x + TAIL / across >= 180.0:
        total += mass(regions, fence, x - 360.0, y, across, along, tilt)
    if turns and x - TAIL / across <= -180.0:
        total += mass(regions, fence, x + 360.0, y, across, along, tilt)
    return float(min(1.0, total) * readings.exists[r])


@inlined_kernel
def at_most(free: float, most: float, convex: bool) -> float:
    """A bound on Pr{inside} of a mean ``free`` deviations from the boundary, below 0 outside.

    The boundary does not cross the disc of that radius, which has a mass of 1 - exp(-free^2 / 2). A convex region lies
    at one side of a line that far away, unless that is only known to be ``most`` or more.
    """
    beside = 0.5 * math.erfc(-free * _HALF) if convex and free < most else 1.0
    return min(beside, math.exp(-0.5 * free * free)) if free < 0.0 else beside


@inlined_kernel
def decided_by(free: float, most: float, convex: bool, exists: float, least: float) -> int:
    """Whether Pr{inside} of such a reading, which ``exists``, is ``least`` or more: 1 or 0, -1 if open."""
    if free == np.inf:
        return 1 if exists >= least else 0
    if free >= 0.0 and (1.0 - math.exp(-0.5 * free * free)) * exists - _CLEAR >= least:
        return 1
    return 0 if at_most(free, most, convex) * exists + _CLEAR < least else -1


@exact_kernel
def next_readings(n: int, before: int, near: Near) -> int:
    """How many readings to look at next, after ``before`` of them."""
    if n <= _FEW:
        return n
    return _FEW if before == 0 else max(_FEW >> 4, min(_MANY, _ROOM // (1 + near.region.shape[0] // before)))


@exact_kernel
def matches(
    regions: Regions, search: Search, readings: Readings, least: float, reach: Reach, ground: Ground, turns: bool
) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
    """Readings, regions each lies in with a probability above 0 and of ``least`` or more, and that, by reading.

    ``turns``: whether a reading at the 180th meridian lies on both its sides.
    """
    n, begin, upto, found = readings.at.shape[0], 0, 0, 0
    room = 64 + min(_MANY, 2 * n)
    row, region, probability = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room)
    near = nearby(regions, search, readings, 0, 0, reach, ground)
    while upto < n:
        begin, upto = upto, min(n, upto + next_readings(n, upto - begin, near))
        near = nearby(regions, search, readings, begin, upto, reach, ground)
        while found + near.region.shape[0] > row.shape[0]:
            row, region = np.concatenate((row, row)), np.concatenate((region, region))
            probability = np.concatenate((probability, probability))
        owner = np.empty(near.region.shape[0], np.int32)
        for k in range(upto - begin):
            owner[near.begin[k] : near.begin[k] + near.many[k]] = k
        # Those of a group stand together, and ask the same regions.
        for at in range(near.region.shape[0]):
            i: Any = np.int64(near.region[at])  # 64 bits wide, as all numbers of regions: the kernels are compiled once
            r = begin + owner[at]
            exists = readings.exists[r]
            if near.free[at] == np.inf:
                near.free[at] = exists
            elif decided_by(near.free[at], reach.free, is_convex(regions, i), exists, least) == 0:
                near.free[at] = 0.0
            else:
                near.free[at] = place_chance(regions, i, readings, r, ground, turns)
        for k in range(upto - begin):
            for at in range(near.begin[k], near.begin[k] + near.many[k]):
                p = near.free[at]
                if p > 0.0 and p >= least:
                    row[found], region[found], probability[found] = begin + k, near.region[at], p
                    found += 1
    return row[:found], region[:found], probability[:found]
