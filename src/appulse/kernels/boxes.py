"""Boxes packed into a tree of blocks, and the points that lie in them.

A block holds 16 boxes side by side, as many lanes as two vector registers compare at once: axis by axis the lows of
all 16, then their highs. Above the leaves a block holds the hulls of 16 blocks. Boxes are closed, between keys of 64
bits in order; what is compared first is their upper part (`coarse`), the lower part (`fine`) only where those tie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import kernel
from appulse.kernels.simd import LANES, lowest, meeting, prefetch

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Ints, Whole

    Coarse: TypeAlias = NDArray[np.int32]
    Fine: TypeAlias = NDArray[np.uint32]
    Units: TypeAlias = NDArray[np.float32]

#: The key of no value; every value's key is greater.
NULL = np.int64(-(1 << 63))
#: Coarse keys: of no value, of values before and after all bounds. Those of bounds lie between.
NO_VALUE, BEFORE, AFTER = np.int32(-(1 << 31)), np.int32(-(1 << 31) + 1), np.int32((1 << 31) - 2)
#: The low of lanes that hold nothing: beyond all keys, so that not even the hull of all there is meets them.
_NOWHERE = np.int32((1 << 31) - 1)
#: How far coarse keys may spread, so that none is one of these.
SPREAD = np.uint64((1 << 32) - 8)
_FIRST = np.int64(-(1 << 31) + 2)
_SAMPLE = 96  # boxes that show which axis splits a node best
_TOGETHER = 512  # clusters that go down the tree side by side
_AHEAD = 8  # look-ups between asking for memory and using it


@kernel
def coarsen(keys: Ints, base: np.int64, top: np.int64, shift: np.uint64, coarse: Coarse, fine: Fine) -> None:
    """Split keys into parts, relative to the least and greatest of the bounds; in their order, and exactly."""
    mask = (np.uint64(1) << shift) - np.uint64(1)
    for i in range(len(keys)):
        key = keys[i]
        fine[i] = np.uint32(0)
        if key == NULL:
            coarse[i] = NO_VALUE
        elif key < base:
            coarse[i] = BEFORE
        elif key > top:
            coarse[i] = AFTER
        else:
            past = np.uint64(key) - np.uint64(base)
            coarse[i] = np.int32(np.int64(past >> shift) + _FIRST)
            fine[i] = np.uint32(past & mask)


# --- building ---------------------------------------------------------------------------------------------------


@kernel
def _select(order: Coarse, begin: int, end: int, middle: int, keys: Units) -> None:
    """Order entries so that those before ``middle`` have keys no greater than those from it on (Hoare's selection)."""
    left, right = begin, end - 1
    while left < right:
        pivot = keys[order[(left + right) // 2]]
        i, j = left, right
        while i <= j:
            while keys[order[i]] < pivot:
                i += 1
            while keys[order[j]] > pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            right = j
        elif middle >= i:
            left = i
        else:
            return


@kernel
def _best_corner(order: Coarse, begin: int, end: int, middle: int, corners: Units, sample: Units) -> int:
    """The corner coordinate to split a node by: fewest boxes to look at for a point that may lie anywhere."""
    axes = len(corners) // 2
    n = min(_SAMPLE, end - begin)
    stride = (end - begin) / n
    cut = max(1, min(n - 1, int(n * (middle - begin) / (end - begin))))
    best, least = 0, np.inf
    chosen = np.empty(n, np.int64)
    for i in range(n):
        chosen[i] = order[begin + int(i * stride)]
    for corner in range(2 * axes):
        for i in range(n):
            sample[i] = corners[corner, chosen[i]]
        by = np.argsort(sample[:n])
        if sample[by[0]] == sample[by[n - 1]]:
            continue
        cost = 0.0
        for half in range(2):
            first, last = (0, cut) if half == 0 else (cut, n)
            share = 1.0
            for axis in range(axes):
                low, high = 2.0, -1.0
                for i in range(first, last):
                    entry = chosen[by[i]]
                    low = min(low, float(corners[2 * axis, entry]))
                    high = max(high, float(corners[2 * axis + 1, entry]))
                share *= max(0.0, high - low) + 1e-4
            cost += share * (last - first)
        if cost < least:
            best, least = corner, cost
    return best


@kernel
def arrange(corners: Units, order: Coarse) -> None:
    """Order the boxes so that consecutive ones, 16 at a time and 16 times that, lie close to each other.

    ``corners[2 a]`` and ``corners[2 a + 1]`` are the lows and highs along axis ``a``, between 0 and 1. Nodes are cut
    in two by one of the 2n coordinates of the corner space (Song et al. 1999), at full blocks.
    """
    n = len(order)
    begins, ends, sizes = np.empty(4096, np.int64), np.empty(4096, np.int64), np.empty(4096, np.int64)
    sample = np.empty(_SAMPLE, np.float32)
    size = LANES
    while size < n:
        size *= LANES
    begins[0], ends[0], sizes[0] = 0, n, size
    waiting = 1
    while waiting > 0:
        waiting -= 1
        begin, end, size = begins[waiting], ends[waiting], sizes[waiting]
        if size <= LANES:
            continue
        part = size // LANES
        parts = -(-(end - begin) // part)
        if parts <= 1:
            begins[waiting], ends[waiting], sizes[waiting] = begin, end, part
            waiting += 1
            continue
        middle = begin + (parts + 1) // 2 * part
        corner = _best_corner(order, begin, end, middle, corners, sample)
        _select(order, begin, end, middle, corners[corner])
        begins[waiting], ends[waiting], sizes[waiting] = begin, middle, size
        begins[waiting + 1], ends[waiting + 1], sizes[waiting + 1] = middle, end, size
        waiting += 2


@kernel
def fill(order: Coarse, bounds: Coarse, offsets: Ints, blocks: Coarse) -> None:
    """Lay out the blocks: leaves with the bounds (axes x 2, boxes) in order, then the hulls, level by level."""
    sides = len(bounds)
    for side in range(0, sides, 2):
        blocks[:, side, :] = _NOWHERE
        blocks[:, side + 1, :] = NO_VALUE
    for i in range(len(order)):
        for side in range(sides):
            blocks[i // LANES, side, i % LANES] = bounds[side, order[i]]
    for level in range(1, len(offsets) - 1):
        for child in range(offsets[level - 1], offsets[level]):
            place = child - offsets[level - 1]
            block, lane = offsets[level] + place // LANES, place % LANES
            for side in range(0, sides, 2):
                low, high = _NOWHERE, NO_VALUE
                for i in range(LANES):
                    if blocks[child, side, i] <= blocks[child, side + 1, i]:
                        low = min(low, blocks[child, side, i])
                        high = max(high, blocks[child, side + 1, i])
                blocks[block, side, lane] = low
                blocks[block, side + 1, lane] = high


# --- looking up -------------------------------------------------------------------------------------------------


@kernel
def _fetch(blocks: Coarse, block: Whole, axes: int) -> None:
    """Have a block on its way; its first axes, as the others often are not looked at."""
    at = block * axes * 2 * LANES
    for line in range(min(2 * axes, 8)):
        prefetch(blocks, at + line * LANES)


@kernel
def _hits(blocks: Coarse, block: Whole, axes: int, lows: Coarse, highs: Coarse, i: int) -> np.uint32:
    """Which of a block's boxes meet the i-th box: a bit per lane."""
    found = np.uint32(0xFFFF)
    at = block * axes * 2 * LANES
    for axis in range(axes):
        found &= meeting(blocks, at + axis * 2 * LANES, lows[i, axis], highs[i, axis])
        if found == 0:
            break
    return found


@kernel
def _inside(
    blocks: Coarse, rests: Fine, block: Whole, lane: int, axes: int, points: Coarse, point_rests: Fine, row: int
) -> bool:
    """Whether a point whose coarse keys lie in a box does so to the last bit."""
    for axis in range(axes):
        at, rest = points[row, axis], point_rests[row, axis]
        if at == blocks[block, 2 * axis, lane] and rest < rests[block, 2 * axis, lane]:
            return False
        if at == blocks[block, 2 * axis + 1, lane] and rest > rests[block, 2 * axis + 1, lane]:
            return False
    return True


@kernel
def _within(blocks: Coarse, block: Whole, tight: Flags, points: Coarse, row: int) -> np.uint32:
    """Which of a block's boxes a point does not only meet, but lies in by its coarse keys alone: a bit per lane.

    Along axes that are not ``tight`` coarse keys say everything.
    """
    axes = len(tight)
    found = np.uint32(0xFFFF)
    at = block * axes * 2 * LANES
    for axis in range(axes):
        if tight[axis]:
            x = points[row, axis]
            if x in (NO_VALUE, AFTER):
                return np.uint32(0)
            found &= meeting(blocks, at + axis * 2 * LANES, np.int32(x + 1), np.int32(x - 1))
    return found


@kernel
def hulls(points: Coarse, first: Ints, lows: Coarse, highs: Coarse) -> None:
    """The hull of the points from ``first[i]`` up to ``first[i + 1]``, cluster by cluster."""
    for cluster in range(len(first) - 1):
        for axis in range(points.shape[1]):
            low, high = points[first[cluster], axis], points[first[cluster], axis]
            for i in range(first[cluster] + 1, first[cluster + 1]):
                low, high = min(low, points[i, axis]), max(high, points[i, axis])
            lows[cluster, axis], highs[cluster, axis] = low, high


@kernel
def _descend(
    offsets: Ints, blocks: Coarse, lows: Coarse, highs: Coarse, begin: int, end: int, front: Coarse
) -> tuple[int, int]:
    """The leaves that clusters ``begin`` to ``end`` meet, as pairs in two rows of ``front``: how many, and which rows.

    Level by level for all of them at once, so that no look-up waits for the memory of the one before. -1 if there is
    no room for the pairs.
    """
    axes, side = lows.shape[1], 0
    top = len(offsets) - 2
    roots = offsets[top + 1] - offsets[top]
    if (end - begin) * roots > front.shape[1]:
        return -1, 0
    width = 0
    for cluster in range(begin, end):
        for root in range(roots):
            front[0, width], front[1, width] = cluster, offsets[top] + root
            width += 1
    for level in range(top, 0, -1):
        n, other = 0, 2 - side
        for i in range(width):
            if i + _AHEAD < width:
                _fetch(blocks, np.int64(front[side + 1, i + _AHEAD]), axes)
            cluster, block = front[side, i], np.int64(front[side + 1, i])
            hits = _hits(blocks, block, axes, lows, highs, cluster)
            if n + LANES > front.shape[1]:
                return -1, 0
            first = offsets[level - 1] + (block - offsets[level]) * LANES
            while hits != 0:
                front[other, n], front[other + 1, n] = cluster, first + lowest(hits)
                hits &= hits - np.uint32(1)
                n += 1
        width, side = n, other
    return width, side


class Tree(NamedTuple):
    """A tree of boxes; ``offsets`` says where levels begin, leaves first."""

    offsets: Ints
    blocks: Coarse
    rests: Fine
    entries: Coarse
    tight: Flags  # the axes along which coarse keys do not say everything


class Clusters(NamedTuple):
    """Points in clusters: cluster i are those from ``first[i]`` to ``first[i + 1]``."""

    points: Coarse  # (n, axes)
    rests: Fine
    first: Ints
    lows: Coarse  # (clusters, axes): their hulls
    highs: Coarse


@kernel
def match(
    tree: Tree, clusters: Clusters, begin: int, front: Coarse, found_points: Coarse, found_entries: Coarse
) -> tuple[int, int]:
    """The boxes each point lies in, from cluster ``begin`` on: up to which cluster, and how many pairs.

    Stops before clusters whose pairs no longer fit: there are none if those of one alone do not, and -1 if there is no
    room to go down for it.
    ``front`` is room, (4, m) with m >= 16 and as many as the top level has blocks.

    The spatial join window of a cluster (Lim et al. 2006) is what its hull meets.
    """
    offsets, blocks, rests, entries, tight = tree
    points, point_rests, first, lows, highs = clusters
    axes, pairs, some = points.shape[1], 0, _TOGETHER
    while begin < len(first) - 1:
        end = min(begin + some, len(first) - 1)
        width, side = _descend(offsets, blocks, lows, highs, begin, end, front)
        if width < 0:
            if some == 1:
                return begin, pairs if pairs > 0 else -1
            some = max(1, some // 4)
            continue
        before, full = pairs, False
        for i in range(width):
            if full:
                break
            if i + _AHEAD < width:
                _fetch(blocks, np.int64(front[side + 1, i + _AHEAD]), axes)
                prefetch(entries, np.int64(front[side + 1, i + _AHEAD]) * LANES)
            cluster, block = front[side, i], np.int64(front[side + 1, i])
            within = _hits(blocks, block, axes, lows, highs, cluster)
            if within == 0:
                continue
            for point in range(first[cluster], first[cluster + 1]):
                if pairs + LANES > len(found_points):
                    full = True
                    break
                alone = first[cluster + 1] - first[cluster] == 1
                hits = within if alone else _hits(blocks, block, axes, points, points, point) & within
                sure = _within(blocks, block, tight, points, point) if hits != 0 else hits
                while hits != 0:
                    lane = lowest(hits)
                    hits &= hits - np.uint32(1)
                    if sure >> np.uint32(lane) & np.uint32(1) or _inside(
                        blocks, rests, block, lane, axes, points, point_rests, point
                    ):
                        found_points[pairs], found_entries[pairs] = point, entries[block * LANES + lane]
                        pairs += 1
        if not full:
            begin = end
        elif before > 0 or some == 1:
            return begin, before
        else:
            pairs, some = 0, max(1, some // 4)
    return begin, pairs


@kernel
def meet(
    tree: Tree, lows: Coarse, highs: Coarse, begin: int, front: Coarse, found_rows: Coarse, found_leaves: Coarse
) -> tuple[int, int]:
    """The boxes that rows, themselves boxes of coarse keys (n, axes), meet, as (row, place among the leaves) pairs.

    Up to which row from ``begin`` on, and how many pairs, as `match`. Fine keys are not looked at, so some of them may
    not meet.
    """
    offsets, blocks, entries = tree.offsets, tree.blocks, tree.entries
    axes, pairs = lows.shape[1], 0
    while begin < len(lows):
        width, side = _descend(offsets, blocks, lows, highs, begin, begin + 1, front)
        if width < 0:
            return begin, pairs if pairs > 0 else -1
        if pairs + width * LANES > len(found_rows):
            return begin, pairs
        for i in range(width):
            block = np.int64(front[side + 1, i])
            hits = _hits(blocks, block, axes, lows, highs, begin)
            while hits != 0:
                place = block * LANES + lowest(hits)
                hits &= hits - np.uint32(1)
                if entries[place] >= 0:
                    found_rows[pairs], found_leaves[pairs] = begin, place
                    pairs += 1
        begin += 1
    return begin, pairs


@kernel
def work(offsets: Ints, blocks: Coarse, first: Ints, lows: Coarse, highs: Coarse, front: Coarse) -> tuple[int, int]:
    """What `match` would look at: blocks met by a cluster's hull, and by each of its points."""
    met, alone = 0, 0
    axes, top = lows.shape[1], len(offsets) - 2
    for begin in range(len(first) - 1):
        width, side = _descend(offsets, blocks, lows, highs, begin, begin + 1, front)
        met += max(width, 0) + top
        for i in range(width):
            if _hits(blocks, np.int64(front[side + 1, i]), axes, lows, highs, begin) != 0:
                alone += first[begin + 1] - first[begin]
    return met, alone


@kernel
def hilbert_keys(ranks: NDArray[np.uint32], bits: int) -> Ints:
    """The place of each point of (n, axes) ranks of so many bits along the Hilbert curve (Skilling 2004)."""
    n, axes = ranks.shape
    keys = np.empty(n, np.int64)
    x = np.empty(axes, np.uint32)
    one = np.uint32(1)
    for i in range(n):
        for a in range(axes):
            x[a] = ranks[i, a]
        q = one << np.uint32(bits - 1)
        while q > one:
            p = q - one
            for a in range(axes):
                if x[a] & q:
                    x[0] ^= p
                else:
                    t = (x[0] ^ x[a]) & p
                    x[0] ^= t
                    x[a] ^= t
            q >>= one
        for a in range(1, axes):
            x[a] ^= x[a - 1]
        t = np.uint32(0)
        q = one << np.uint32(bits - 1)
        while q > one:
            if x[axes - 1] & q:
                t ^= q - one
            q >>= one
        key = np.int64(0)
        for bit in range(bits - 1, -1, -1):
            for a in range(axes):
                key = (key << 1) | np.int64(((x[a] ^ t) >> np.uint32(bit)) & one)
        keys[i] = key
    return keys
