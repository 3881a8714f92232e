"""Which tiles hold a leg, and which one reports a pair of legs.

Time is cut into slots and space into cells; a slot of a cell belongs to a tile by its hash. A leg goes to every tile of
those that its swept box touches. The boxes of two legs that can meet overlap; the lower corner of the overlap lies in
one slot and one cell, and their tile alone reports the pair. All of it is computed from the same doubles in every
process, hence the exact kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel
from appulse.kernels.legs import Legs, mixed, swept_box
from appulse.kernels.tiles import cell_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Hashes, Ints, RowPairs, Whole


class LegCut(NamedTuple):
    """How time and space are cut, and given to tiles."""

    epsilon: float
    slot: int  # microseconds
    side: float
    tiles: int


@exact_kernel
def _tile(low: Ints, group_hash: np.uint64, tiles: int) -> Whole:
    value = group_hash
    for k in range(4):
        value = mixed(value, np.uint64(low[k]))
    return np.int64((value >> np.uint64(16)) % np.uint64(tiles))


@exact_kernel
def _mark(low: Ints, high: Ints, group_hash: np.uint64, tiles: int, marked: Flags) -> None:
    """Mark the tiles of a leg; all of them, where it touches many more cells than there are tiles."""
    cells = 1.0
    for k in range(4):
        cells *= 1.0 + float(high[k]) - float(low[k])
    if cells > 8.0 * tiles:
        marked[:] = True
        return
    at = low.copy()
    for slot in range(low[0], high[0] + 1):
        at[0] = slot
        for x in range(low[1], high[1] + 1):
            at[1] = x
            for y in range(low[2], high[2] + 1):
                at[2] = y
                for z in range(low[3], high[3] + 1):
                    at[3] = z
                    marked[_tile(at, group_hash, tiles)] = True


@exact_kernel
def leg_tiles(legs: Legs, group_hash: Hashes, cut: LegCut) -> tuple[Ints, Ints]:
    """Copies of legs for tiles, as (leg, tile)."""
    rows, tiles = [np.int64(0) for _ in range(0)], [np.int64(0) for _ in range(0)]
    low, high = np.zeros(4, np.int64), np.zeros(4, np.int64)
    marked = np.zeros(cut.tiles, np.bool_)
    for i in range(legs.begin.shape[0]):
        low[0], high[0] = legs.begin[i] // cut.slot, legs.end[i] // cut.slot
        for k in range(min(legs.at.shape[1], 3)):
            least, most = swept_box(legs, i, k, cut.epsilon)
            low[1 + k], high[1 + k] = cell_at(least, cut.side), cell_at(most, cut.side)
        _mark(low, high, group_hash[i], cut.tiles, marked)
        for t in range(cut.tiles):
            if marked[t]:
                marked[t] = False
                rows.append(np.int64(i))
                tiles.append(np.int64(t))
    return np.array(rows, dtype=np.int64), np.array(tiles, dtype=np.int64)


@exact_kernel
def leg_pair_owners(legs: Legs, pairs: RowPairs, group_hash: Hashes, cut: LegCut) -> NDArray[np.int64]:
    """The tile that reports each pair."""
    owners = np.empty(pairs.left.shape[0], np.int64)
    low = np.zeros(4, np.int64)
    for p in range(pairs.left.shape[0]):
        i, j = pairs.left[p], pairs.right[p]
        low[0] = max(legs.begin[i], legs.begin[j]) // cut.slot
        for k in range(min(legs.at.shape[1], 3)):
            corner: float = max(swept_box(legs, i, k, cut.epsilon)[0], swept_box(legs, j, k, cut.epsilon)[0])
            low[1 + k] = cell_at(corner, cut.side)
        owners[p] = _tile(low, group_hash[i], cut.tiles)
    return owners
