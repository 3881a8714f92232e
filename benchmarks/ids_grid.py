"""The epsilon-grid of Ren et al. 2019, section 5.1: cells in a hash table, in each a queue for every stream.

An object stands in the queues of all cells that its box meets. Cells that hold something are on a list, which a probe
goes through: in ten dimensions a box has 59,049 cells around it, and a window far fewer objects. The side of a cell is
lost in the text; it is epsilon here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

SLACK = 1e-9  # of a cell's side and of distances, for the rounding of the tests on them


class Grid(NamedTuple):
    """Cells, and entries, one object in one cell each. The last of ``active`` and of ``free`` is their number."""

    at: Ints  # (cells, d) coordinates
    heads: Ints  # (cells, streams) first entry of each queue
    held: Ints  # (cells) entries
    bucket: Ints  # (buckets) first cell
    chain: Ints  # (cells) next cell of the bucket
    active: Ints  # (cells + 1)
    place: Ints  # (cells) where in `active`
    free_cells: Ints  # (cells + 1)
    slot: Ints  # (entries) whose it is
    cell: Ints  # (entries)
    following: Ints  # (entries) in the queue
    before: Ints  # (entries)
    same: Ints  # (entries) next of the same object
    free: Ints  # (entries + 1)
    first: Ints  # (slots) first entry of an object


def grid_of(slots: int, streams: int, d: int, entries: int) -> Grid:
    """An empty grid with room for so many entries."""
    buckets = 1 << max(6, entries.bit_length())
    spare = np.append(np.arange(entries), entries)
    return Grid(
        at=np.zeros((entries, d), np.int64),
        heads=np.full((entries, streams), -1, np.int64),
        held=np.zeros(entries, np.int64),
        bucket=np.full(buckets, -1, np.int64),
        chain=np.full(entries, -1, np.int64),
        active=np.zeros(entries + 1, np.int64),
        place=np.zeros(entries, np.int64),
        free_cells=spare.copy(),
        slot=np.zeros(entries, np.int64),
        cell=np.zeros(entries, np.int64),
        following=np.full(entries, -1, np.int64),
        before=np.full(entries, -1, np.int64),
        same=np.full(entries, -1, np.int64),
        free=spare,
        first=np.full(slots, -1, np.int64),
    )


@kernel
def _bucket_of(grid: Grid, at: Ints) -> int:
    mixed = np.uint64(0)
    for k in range(at.shape[0]):
        mixed = (mixed + np.uint64(at[k])) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return int(np.int64(mixed & np.uint64(grid.bucket.shape[0] - 1)))


@kernel
def _cell(grid: Grid, at: Ints) -> int:
    """The cell with these coordinates, a new one if need be."""
    bucket = _bucket_of(grid, at)
    cell = grid.bucket[bucket]
    while cell >= 0:
        same = True
        for k in range(at.shape[0]):
            same = same and grid.at[cell, k] == at[k]
        if same:
            return int(cell)
        cell = grid.chain[cell]
    spare = grid.free_cells[-1] - 1
    cell = grid.free_cells[spare]
    grid.free_cells[-1] = spare
    for k in range(at.shape[0]):
        grid.at[cell, k] = at[k]
    for stream in range(grid.heads.shape[1]):
        grid.heads[cell, stream] = -1
    grid.held[cell] = 0
    grid.chain[cell] = grid.bucket[bucket]
    grid.bucket[bucket] = cell
    grid.place[cell] = grid.active[-1]
    grid.active[grid.active[-1]] = cell
    grid.active[-1] += 1
    return int(cell)


@kernel
def _drop_cell(grid: Grid, cell: int) -> None:
    bucket = _bucket_of(grid, grid.at[cell])
    if grid.bucket[bucket] == cell:
        grid.bucket[bucket] = grid.chain[cell]
    else:
        other = grid.bucket[bucket]
        while grid.chain[other] != cell:
            other = grid.chain[other]
        grid.chain[other] = grid.chain[cell]
    grid.active[-1] -= 1
    last = grid.active[grid.active[-1]]
    grid.active[grid.place[cell]] = last
    grid.place[last] = grid.place[cell]
    grid.free_cells[grid.free_cells[-1]] = cell
    grid.free_cells[-1] += 1


@kernel
def put(grid: Grid, slot: int, stream: int, low: Floats, high: Floats, side: float) -> None:
    """Put an object at the end of its stream's queue in each cell that its box meets."""
    d = low.shape[0]
    begin, at = np.empty(d, np.int64), np.empty(d, np.int64)
    for k in range(d):
        begin[k] = math.floor(low[k] / side)
        at[k] = begin[k]
    while True:
        cell = _cell(grid, at)
        entry = grid.free[grid.free[-1] - 1]
        grid.free[-1] -= 1
        grid.slot[entry] = slot
        grid.cell[entry] = cell
        head = grid.heads[cell, stream]
        grid.following[entry] = head
        grid.before[entry] = -1
        if head >= 0:
            grid.before[head] = entry
        grid.heads[cell, stream] = entry
        grid.held[cell] += 1
        grid.same[entry] = grid.first[slot]
        grid.first[slot] = entry
        k = 0
        while k < d:
            at[k] += 1
            if at[k] * side <= high[k]:
                break
            at[k] = begin[k]
            k += 1
        if k == d:
            return


@kernel
def take(grid: Grid, slot: int, stream: int) -> None:
    """Take an object from all its queues."""
    entry = grid.first[slot]
    while entry >= 0:
        cell, before, following = grid.cell[entry], grid.before[entry], grid.following[entry]
        if before >= 0:
            grid.following[before] = following
        else:
            grid.heads[cell, stream] = following
        if following >= 0:
            grid.before[following] = before
        grid.held[cell] -= 1
        if grid.held[cell] == 0:
            _drop_cell(grid, cell)
        grid.free[grid.free[-1]] = entry
        grid.free[-1] += 1
        entry = grid.same[entry]
    grid.first[slot] = -1


@kernel
def far(grid: Grid, cell: int, low: Floats, high: Floats, side: float, limit: float) -> bool:
    """Whether a cell is further than ``limit`` from a box: Lemma 4.1 or 4.2 for all that lies in the cell."""
    square = 0.0
    for k in range(low.shape[0]):
        least = grid.at[cell, k] * side
        gap = max(least - high[k], low[k] - (least + side), 0.0) - SLACK * side
        if gap > 0.0:
            square += gap * gap
    return square > limit * limit * (1.0 + SLACK)
