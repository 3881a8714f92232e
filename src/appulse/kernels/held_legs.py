"""Legs that came, against legs that are held in bins: what `appulse.kernels.legs` finds in one go, in two.

The bins of held legs are made once, and stay as they are: new legs are looked for in the bins that their own swept box
has a part in. What says which bin a leg is in, and which of several a pair is taken in, is as there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel
from appulse.kernels.legs import Bins, Legs, bin_range, mixed, swept_box

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Hashes, Ints, RowPairs


class LegIndex(NamedTuple):
    """Legs by bin: ``hashes`` in order, with the leg of each; those of one ``bucket`` are from ``first`` of it on."""

    bins: Bins
    hashes: Hashes
    owner: Ints
    first: Ints
    shift: int  # what of a hash is not its bucket, in bits


@exact_kernel
def _touch(fresh: Legs, i: int, held: Legs, j: int, epsilon: float, box: Floats) -> bool:
    """Whether a leg and one that is held share a group and a time, and their boxes touch."""
    if held.end[j] < fresh.begin[i] or held.begin[j] > fresh.end[i] or held.group[j] != fresh.group[i]:
        return False
    for k in range(fresh.at.shape[1]):
        low, high = swept_box(held, j, k, epsilon)
        if low > box[2 * k + 1] or high < box[2 * k]:
            return False
    return True


@exact_kernel
def _box_of(legs: Legs, i: int, epsilon: float, box: Floats) -> None:
    for k in range(legs.at.shape[1]):
        box[2 * k], box[2 * k + 1] = swept_box(legs, i, k, epsilon)


@exact_kernel
def scan_held(fresh: Legs, held: Legs, epsilon: float, since: int, pairs: RowPairs) -> int:
    """Pairs of a leg that came and one held that overlap in time and may come within epsilon; how many there are.

    Legs that were over before ``since`` are left out. Of pairs beyond the room in ``pairs`` none are written.
    """
    found, box = 0, np.empty(2 * fresh.at.shape[1])
    for i in range(fresh.begin.shape[0]):
        _box_of(fresh, i, epsilon, box)
        for j in range(held.begin.shape[0]):
            if held.end[j] >= since and _touch(fresh, i, held, j, epsilon, box):
                if found < pairs.left.shape[0]:
                    pairs.left[found], pairs.right[found] = i, j
                found += 1
    return found


@exact_kernel
def _is_least(held: Legs, j: int, epsilon: float, bins: Bins, low: Ints, at: Ints) -> bool:
    """Whether a bin is the least of those that a leg held is in, and one whose own begin at ``low``."""
    if at[0] != max(low[0], bin_range(held, j, -1, epsilon, bins)[0]):
        return False
    for k in range(min(held.at.shape[1], 3)):
        if at[1 + k] != max(low[1 + k], bin_range(held, j, k, epsilon, bins)[0]):
            return False
    return True


@exact_kernel
def find_held(
    fresh: Legs, held: Legs, limits: tuple[float, int], index: LegIndex, pairs: RowPairs, looked: Ints
) -> int:
    """As `scan_held`, with epsilon and since as ``limits``, by bins; ``looked`` is how many held were compared."""
    d, found, epsilon, since = min(fresh.at.shape[1], 3), 0, limits[0], limits[1]
    looked[0] = 0
    low, high, at = np.zeros(4, np.int64), np.zeros(4, np.int64), np.zeros(4, np.int64)
    box, bins, shift = np.empty(2 * fresh.at.shape[1]), index.bins, np.uint64(index.shift)
    for i in range(fresh.begin.shape[0]):
        _box_of(fresh, i, epsilon, box)
        for k in range(-1, d):
            low[1 + k], high[1 + k] = bin_range(fresh, i, k, epsilon, bins)
        for s in range(low[0], high[0] + 1):
            for x in range(low[1], high[1] + 1):
                for y in range(low[2], high[2] + 1):
                    for z in range(low[3], high[3] + 1):
                        at[0], at[1], at[2], at[3] = s, x, y, z
                        value = mixed(np.uint64(fresh.group[i]), np.uint64(s))
                        value = mixed(mixed(mixed(value, np.uint64(x)), np.uint64(y)), np.uint64(z))
                        bucket = np.int64(value >> shift)
                        for p in range(index.first[bucket], index.first[bucket + 1]):
                            if index.hashes[p] != value:
                                continue
                            looked[0] += 1
                            j = index.owner[p]
                            if held.end[j] < since or not _touch(fresh, i, held, j, epsilon, box):
                                continue
                            if not _is_least(held, j, epsilon, bins, low, at):
                                continue
                            if found < pairs.left.shape[0]:
                                pairs.left[found], pairs.right[found] = i, j
                            found += 1
    return found
