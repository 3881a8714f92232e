"""Which tiles hold a row, and which one reports a pair.

Space is cut into cells; a cell belongs to a tile by its hash, or as a plan says. A row goes to every tile that its
reach touches. Two rows that can match overlap in their reaches; the lower corner of the overlap lies in one cell,
and the tile of that cell alone reports the pair. Everything here is computed from the same doubles in every
process, hence the exact kernels.

A *hot* cell is cut once more, by hash of its rows: each row draws one of k classes, and each pair of classes has a
tile of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Hashes, Ints, RowPairs, Whole

# A row that touches more cells than this is coarse: it lives in a grid of larger cells.
MOST_CELLS = 16
_FAR = 2.0**61


@exact_kernel
def _half_width(position: float, reach: float, margin: float) -> float:
    """Reach around one coordinate, with room for the rounding of the comparison."""
    wide = (reach + margin) * (1.0 + 1e-12)
    return wide + (abs(position) + wide) * 1e-15


@exact_kernel
def cell_at(position: float, side: float) -> Whole:
    """Cell coordinate, clamped to what an int64 holds: monotone, so ranges stay ranges."""
    return np.int64(min(max(np.floor(position / side), -_FAR), _FAR))


@exact_kernel
def _mix(value: np.uint64) -> np.uint64:
    """A good 64-bit hash of a 64-bit number (splitmix64)."""
    z = np.uint64(value) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@exact_kernel
def cell_hash(x: int, y: int, z: int, lane: int, group_hash: np.uint64) -> np.uint64:
    """Hash of a cell of a lane of a group; ``z`` is 0 where there are two dimensions."""
    h = _mix(np.uint64(x) ^ np.uint64(group_hash))
    h = _mix(h ^ np.uint64(y) ^ (np.uint64(lane) << np.uint64(62)))
    return h if z == 0 else _mix(h ^ np.uint64(z))


class Hot(NamedTuple):
    """Hot cells by their hashes, in order; pairs of classes have tiles from ``first`` on."""

    cells: Hashes
    classes: Ints
    first: Ints
    tiles: Ints


class Cut(NamedTuple):
    """How space is cut into cells, and these given to tiles."""

    margin: float
    dims: Ints
    side: float
    coarse_side: float  # 0: no coarse lane
    tiles: int
    hot: Hot


class Placed(NamedTuple):
    """Where rows are, how far they reach, and their hashes."""

    centre: Floats
    reach: Floats
    row_hash: Hashes


@exact_kernel
def _touched(centre: Floats, reach: float, margin: float, dims: Ints, side: float, low: Ints, high: Ints) -> int:
    """Ranges of cells that a row's reach touches; how many cells (capped)."""
    cells = 1
    for k in range(dims.shape[0]):
        wide = _half_width(centre[dims[k]], reach, margin)
        low[k] = cell_at(centre[dims[k]] - wide, side)
        high[k] = cell_at(centre[dims[k]] + wide, side)
        cells *= min(high[k] - low[k] + 1, np.int64(1) << 20)
    return cells


@exact_kernel
def _class_tile(a: Whole, b: Whole, k: int, first: int, hot_tiles: Ints) -> Whole:
    """Tile of a pair of classes of a hot cell: the upper triangle, row by row."""
    low = min(a, b)
    high = max(a, b)
    return int(hot_tiles[first + low * k - low * (low - 1) // 2 + (high - low)])


@exact_kernel
def _find(hot: Hashes, h: np.uint64) -> int:
    """Position of ``h`` in the sorted hashes of hot cells; -1 if it is none."""
    low = 0
    high = hot.shape[0]
    while low < high:
        middle = (low + high) // 2
        if hot[middle] < h:
            low = middle + 1
        else:
            high = middle
    return low if low < hot.shape[0] and hot[low] == h else -1


@exact_kernel
def _mark(h: np.uint64, row_hash: np.uint64, tiles: int, hot: Hot, offset: int, marked: Flags) -> None:
    """Mark the tiles of one cell for one row."""
    at = _find(hot.cells, h)
    if at < 0:
        marked[offset + np.int64(h % np.uint64(tiles))] = True
        return
    k = hot.classes[at]
    own = np.int64(row_hash % np.uint64(k))
    for other in range(k):
        marked[offset + _class_tile(own, other, k, hot.first[at], hot.tiles)] = True


@exact_kernel
def assign(rows: Placed, group_hash: Hashes, cut: Cut) -> tuple[Ints, NDArray[np.int32], NDArray[np.int8]]:
    """Copies of rows for tiles, as arrays (row, tile, lane).

    Tiles 0 to ``tiles`` - 1 are of the fine grid; as many again of the coarse one, where rows of lane 0 are there
    only to meet coarse rows, of lane 1. In the fine grid every row has lane 0.
    """
    centre, reach, row_hash = rows
    margin, dims, side, coarse_side, tiles, hot = cut
    n = centre.shape[0]
    capacity = 2 * n + 64
    out_rows = np.empty(capacity, np.int64)
    out_tiles = np.empty(capacity, np.int32)
    lanes = np.empty(capacity, np.int8)
    count = 0
    low = np.zeros(3, np.int64)
    high = np.zeros(3, np.int64)
    marked = np.zeros(2 * tiles, np.bool_)
    for i in range(n):
        cells = _touched(centre[i], reach[i], margin, dims, side, low, high)
        coarse = coarse_side > 0.0 and cells > MOST_CELLS
        if not coarse:
            if cells > 8 * tiles:
                marked[:tiles] = True
            else:
                for x in range(low[0], high[0] + 1):
                    for y in range(low[1], high[1] + 1):
                        for z in range(low[2], high[2] + 1):
                            h = cell_hash(x, y, z, 0, group_hash[i])
                            _mark(h, row_hash[i], tiles, hot, 0, marked)
        if coarse_side > 0.0:
            cells = _touched(centre[i], reach[i], margin, dims, coarse_side, low, high)
            if cells > 8 * tiles:
                marked[tiles:] = True
            else:
                for x in range(low[0], high[0] + 1):
                    for y in range(low[1], high[1] + 1):
                        for z in range(low[2], high[2] + 1):
                            h = cell_hash(x, y, z, 1, group_hash[i])
                            _mark(h, row_hash[i], tiles, hot, tiles, marked)
        for t in range(2 * tiles):
            if marked[t]:
                marked[t] = False
                if count == capacity:
                    capacity *= 2
                    out_rows = _grown(out_rows, capacity)
                    out_tiles = _grown(out_tiles, capacity)
                    lanes = _grown(lanes, capacity)
                out_rows[count] = i
                out_tiles[count] = t
                lanes[count] = 1 if coarse else 0
                count += 1
    return out_rows[:count], out_tiles[:count], lanes[:count]


@exact_kernel
def _grown(array: NDArray[Any], capacity: int) -> NDArray[Any]:
    out = np.empty(capacity, array.dtype)
    out[: array.shape[0]] = array
    return out


@exact_kernel
def _is_coarse(centre: Floats, reach: float, cut: Cut, low: Ints, high: Ints) -> bool:
    return cut.coarse_side > 0.0 and _touched(centre, reach, cut.margin, cut.dims, cut.side, low, high) > MOST_CELLS


@exact_kernel
def _owner(h: np.uint64, a_hash: np.uint64, b_hash: np.uint64, cut: Cut, offset: int) -> Whole:
    hot = cut.hot
    at = _find(hot.cells, h)
    if at < 0:
        return offset + np.int64(h % np.uint64(cut.tiles))
    k = hot.classes[at]
    a = np.int64(a_hash % np.uint64(k))
    b = np.int64(b_hash % np.uint64(k))
    return offset + np.int64(_class_tile(a, b, k, hot.first[at], hot.tiles))


@exact_kernel
def pair_owners(
    pairs: RowPairs,
    one: Placed,
    other: Placed,
    group_hash: Hashes,  # of each pair, as are the row hashes here
    cut: Cut,
) -> NDArray[np.int32]:
    """The tile that reports each pair."""
    left, right = pairs
    left_centre, left_reach, left_hash = one
    right_centre, right_reach, right_hash = other
    margin, dims = cut.margin, cut.dims
    out = np.empty(left.shape[0], np.int32)
    low = np.zeros(3, np.int64)
    high = np.zeros(3, np.int64)
    for i in range(left.shape[0]):
        a = left[i]
        b = right[i]
        coarse = _is_coarse(left_centre[a], left_reach[a], cut, low, high) or _is_coarse(
            right_centre[b], right_reach[b], cut, low, high
        )
        side = cut.coarse_side if coarse else cut.side
        for k in range(dims.shape[0]):
            c = left_centre[a, dims[k]]
            e = right_centre[b, dims[k]]
            corner = max(c - _half_width(c, left_reach[a], margin), e - _half_width(e, right_reach[b], margin))
            low[k] = cell_at(corner, side)
        h = cell_hash(low[0], low[1], low[2], 1 if coarse else 0, group_hash[i])
        out[i] = _owner(h, left_hash[i], right_hash[i], cut, cut.tiles if coarse else 0)
    return out


@exact_kernel
def row_owners(rows: Placed, group_hash: Hashes, cut: Cut) -> NDArray[np.int32]:
    """One tile for each row, among those that hold it: the one that speaks for it."""
    centre, reach, row_hash = rows
    dims = cut.dims
    out = np.empty(centre.shape[0], np.int32)
    low = np.zeros(3, np.int64)
    high = np.zeros(3, np.int64)
    for i in range(centre.shape[0]):
        coarse = _is_coarse(centre[i], reach[i], cut, low, high)
        side = cut.coarse_side if coarse else cut.side
        for k in range(dims.shape[0]):
            low[k] = cell_at(centre[i, dims[k]], side)
        h = cell_hash(low[0], low[1], low[2], 1 if coarse else 0, group_hash[i])
        out[i] = _owner(h, row_hash[i], row_hash[i], cut, cut.tiles if coarse else 0)
    return out
