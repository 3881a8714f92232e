"""The index of a window: it finds the stored rows that a new row can meet.

Rows of a window are kept in order of arrival, each with its *rank*: its time, or its number where windows go by rows.
A grid over at most three dimensions threads them on chains, newest first; a walk ends where every older row has left
(the running maximum of ranks tells), so eviction never touches a chain. Rows too large for the grid
hang on one extra chain. A dense scan over the same columns serves small windows and rows that reach everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import inlined_kernel, kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints, Whole

# Relative slack of distance bounds: far above float64 rounding, far below anything a user can see.
SLACK = 1e-12
OVERFLOW = -1
END = -1
# A variance that rules nothing out.
UNKNOWN = 1e300
# The largest cell coordinate; a double as well as a whole number.
RIM = 1 << 61


@kernel
def cell_coordinate(position: float, inverse_side: float) -> Whole:
    """Grid coordinate of a position, clamped: monotone, so ranges of cells stay ranges."""
    scaled = np.floor(position * inverse_side)
    if scaled >= RIM:
        return RIM
    if scaled <= -RIM:
        return -RIM
    return np.int64(scaled)


@kernel
def cell_limit(n_dims: int) -> int:
    """Largest coordinate such that all cells up to it in ``n_dims`` dimensions have codes of their own in one int64."""
    if n_dims == 1:
        return (1 << 61) - 1
    if n_dims == 2:
        return (1 << 30) - 1
    return (1 << 19) - 1


@inlined_kernel
def _turned(coordinate: Whole, limit: int) -> Whole:
    """A coordinate from 0 on: beyond the limit it begins anew, as on a ring."""
    if -limit <= coordinate <= limit:
        return coordinate + limit
    return (coordinate + limit) % (2 * limit + 1)


@kernel
def pack_cell(x: Whole, y: Whole, z: Whole, n_dims: int) -> Whole:
    """One int64 for up to three coordinates, that is not negative: cells of one code are a million cells apart, or one.

    So the grid has no rim where all rows beyond it would crowd, however small its cells. A row that is found in a cell
    far away is judged by where it is, as all are.
    """
    limit = cell_limit(n_dims)
    width = 2 * limit + 1
    if n_dims == 1:
        return _turned(x, limit)
    if n_dims == 2:
        return _turned(x, limit) * width + _turned(y, limit)
    return (_turned(x, limit) * width + _turned(y, limit)) * width + _turned(z, limit)


@kernel
def bucket_of(cell: Whole, group: Whole, mask: int) -> Whole:
    """Bucket of a group's cell code (Fibonacci hashing on the high bits)."""
    mixed = (np.uint64(cell) + np.uint64(group) * np.uint64(0xD1342543DE82EF95)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((mixed >> np.uint64(32)) & np.uint64(mask))


class Grid(NamedTuple):
    """Rows on chains, and the chains; row r is known on them as ``base + r``."""

    base: int
    centre: Floats
    size: Floats  # how large each row is to the grid: its radius, or its variance
    group: Ints
    cell: Ints
    following: Ints
    heads: Ints  # empty: there is no grid
    dims: Ints
    inverse_side: float
    size_cap: float
    by_variance: bool


@inlined_kernel
def link(row: int, grid: Grid) -> None:
    """Put stored row ``row`` at the head of its chain. ``heads`` has one bucket more than the mask: the overflow."""
    cell, heads, dims, inverse_side = grid.cell, grid.heads, grid.dims, grid.inverse_side
    n_dims = dims.shape[0]
    if grid.size[row] > grid.size_cap:
        bucket = heads.shape[0] - 1
        cell[row] = OVERFLOW
    else:
        x = cell_coordinate(grid.centre[row, dims[0]], inverse_side)
        y = cell_coordinate(grid.centre[row, dims[1]], inverse_side) if n_dims > 1 else np.int64(0)
        z = cell_coordinate(grid.centre[row, dims[2]], inverse_side) if n_dims > 2 else np.int64(0)
        cell[row] = pack_cell(x, y, z, n_dims)
        bucket = bucket_of(cell[row], grid.group[row], heads.shape[0] - 2)
    grid.following[row] = heads[bucket]
    heads[bucket] = grid.base + row


@kernel
def relink(linked: int, grid: Grid) -> None:
    """Build the chains of the first ``linked`` rows anew, for a new number of buckets or a new side."""
    grid.heads[:] = END
    for row in range(linked):
        link(row, grid)


@kernel
def link_rest(linked: int, grid: Grid) -> None:
    """Put all rows from ``linked`` on in the index."""
    for row in range(linked, grid.centre.shape[0]):
        link(row, grid)


@kernel
def squared_distances(left: Ints, right: Ints, left_centre: Floats, right_centre: Floats) -> Floats:
    """Squared distance between the centres of each pair."""
    out = np.empty(left.shape[0], np.float64)
    for i in range(left.shape[0]):
        total = 0.0
        for k in range(left_centre.shape[1]):
            gap = left_centre[left[i], k] - right_centre[right[i], k]
            total += gap * gap
        out[i] = total
    return out
