"""An index of regions: hashed cells of several sizes, each region in those of its own size.

Regions are only ever added. An index from before an addition shares its cells with the one after it, and passes over
all that is newer than itself.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Hashes, Ints
    from appulse.kernels.regions import Regions

# So many cells are looked up however few regions have their size.
_FEW_CELLS = 16


class RegionIndex(NamedTuple):
    """Hashed cells: of slot s ``cells[s]`` (0: none) and its newest entry; of an entry, its region and the one before.

    ``level`` is that of each region, and ``stands`` is 0 for those to pass over. ``levels`` are those that have
    regions; a cell of level l is ``2^l`` wide. ``sized`` has of each of them the newest region and how many there are,
    and ``before`` the one of the same level before each region. Where none is before, it is -1.
    """

    cells: Hashes
    newest: Ints
    entries: Ints
    level: Ints
    before: Ints
    stands: NDArray[np.uint8]
    levels: Ints
    sized: Ints


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
def cells_of(box: Floats, level: Ints, first: int, hashes: Hashes, owners: Ints) -> int:
    """The cells of regions from ``first`` on, at most four of each; how many there are."""
    total = 0
    for i in range(first, level.shape[0]):
        size = 2.0 ** level[i]
        for cx in range(math.floor(box[i, 0] / size), math.floor(box[i, 2] / size) + 1):
            for cy in range(math.floor(box[i, 1] / size), math.floor(box[i, 3] / size) + 1):
                hashes[total], owners[total] = cell_hash(level[i], cx, cy), i
                total += 1
    return total


@exact_kernel
def enter(index: RegionIndex, hashes: Hashes, owners: Ints, held: int) -> None:
    """Add entries behind those ``held``; slots are a power of two and at least twice as many."""
    last = np.uint64(index.cells.shape[0] - 1)
    for k in range(hashes.shape[0]):
        slot = (hashes[k] >> np.uint64(1)) & last
        while index.cells[slot] != 0 and index.cells[slot] != hashes[k]:
            slot = (slot + np.uint64(1)) & last
        if index.cells[slot] == 0:
            index.cells[slot], index.newest[slot] = hashes[k], -1
        index.entries[held + k, 0], index.entries[held + k, 1] = owners[k], index.newest[slot]
        index.newest[slot] = held + k


@exact_kernel
def count_levels(index: RegionIndex, first: int) -> None:
    """Add regions from ``first`` on to those of their levels."""
    for i in range(first, index.level.shape[0]):
        k = np.searchsorted(index.levels, index.level[i])
        index.before[i] = index.sized[k, 0]
        index.sized[k, 0], index.sized[k, 1] = i, index.sized[k, 1] + 1


@exact_kernel
def candidates(
    index: RegionIndex, regions: Regions, west: float, south: float, east: float, north: float, out: Ints
) -> int:
    """Regions whose box meets a box; their number (written as far as there is room)."""
    last, known = np.uint64(index.cells.shape[0] - 1), index.stands.shape[0]
    found = 0
    for k in range(index.levels.shape[0]):
        level = index.levels[k]
        size = 2.0**level
        if ((east - west) / size + 1.0) * ((north - south) / size + 1.0) > index.sized[k, 1] + _FEW_CELLS:
            # More cells than regions: of a level far below the size of the box.
            i = index.sized[k, 0]
            while i >= 0:
                box = regions.box[i]
                if index.stands[i] and not (east < box[0] or west > box[2] or north < box[1] or south > box[3]):
                    if found < out.shape[0]:
                        out[found] = i
                    found += 1
                i = index.before[i]
            continue
        low_x, low_y = math.floor(west / size), math.floor(south / size)
        for cx in range(low_x, math.floor(east / size) + 1):
            for cy in range(low_y, math.floor(north / size) + 1):
                value = cell_hash(level, cx, cy)
                slot = (value >> np.uint64(1)) & last
                while index.cells[slot] != 0 and index.cells[slot] != value:
                    slot = (slot + np.uint64(1)) & last
                if index.cells[slot] == 0:
                    continue
                entry = index.newest[slot]
                while entry >= 0:
                    i, entry = index.entries[entry, 0], index.entries[entry, 1]
                    if i >= known or not index.stands[i]:
                        continue
                    box = regions.box[i]
                    if east < box[0] or west > box[2] or north < box[1] or south > box[3]:
                        continue
                    # Of the cells that both are in, in the first alone.
                    first_x, first_y = math.floor(box[0] / size), math.floor(box[1] / size)
                    if cx != max(first_x, low_x) or cy != max(first_y, low_y):
                        continue
                    if found < out.shape[0]:
                        out[found] = i
                    found += 1
    return found
