"""The nearest rows to each of some rows, by a tree of these.

Rows that look for others do so together: those whose place is in one leaf look into that leaf first, and then walk the
tree once, past nodes that lie beyond what all of them have found, or beyond their windows. The rows of a leaf are
compared 16 at once, and few need more than that. Boxes are of points as they are held. On the Earth these are Earth-
centred, and a chord is never longer than the geodesic over it, so that boxes bound geodesics, too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.curve import curve_codes
from appulse.kernels.geodesic import Earth, geodesic
from appulse.kernels.grid import SLACK
from appulse.kernels.jit import exact_kernel, inlined_kernel
from appulse.kernels.nearest_tree import BOXED, CODE, TIME, Tree
from appulse.kernels.simd import LANES, lowest, nearest_3

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints, RowPairs

# Places that walk the tree together.
_GROUP = 8
# Nanoseconds, measured on one machine: to compare a place with a leaf, and with a row that this leaves open; and a
# coordinate of such a row behind the third. The first places may cost a share of all there is to spend.
_PER_LEAF, _PER_ROW, _PER_COORDINATE, _FIRST = 8.0, 10.0, 0.6, 1.0 / 16.0


class Search(NamedTuple):
    """What is looked for: so many rows, no older or newer than that, no farther away than ``limit``, on an Earth.

    Distances are straight where the Earth has no radius. A search is given up that costs more nanoseconds than
    ``budget``, or seems to.
    """

    older: int
    newer: int
    k: int
    limit: float
    earth: Earth
    budget: float = math.inf


@exact_kernel
def _by_home(tree: Tree, place: Floats, time: Ints) -> tuple[Ints, Ints]:
    """The places in the order of the leaves in whose part of space and time they are, and where each leaf's begin."""
    n, leaves = place.shape[0], (tree.begin.shape[0] + 1) // 2
    homes, first, codes = np.empty(n, np.int64), np.zeros(leaves + 1, np.int64), np.empty(n, np.int64)
    curve_codes(tree.curve, place, time, codes)
    for i in range(n):
        node = 0
        while node < leaves - 1:
            column = tree.column[node]
            if column == CODE:
                value = np.float64(codes[i])
            else:
                value = np.float64(time[i]) if column == TIME else place[i, column]
            node = 2 * node + (1 if value < tree.cut[node] else 2)
        homes[i] = node - (leaves - 1)
        first[homes[i] + 1] += 1
    for leaf in range(leaves):
        first[leaf + 1] += first[leaf]
    free, order = first.copy(), np.empty(n, np.int64)
    for i in range(n):
        order[free[homes[i]]] = i
        free[homes[i]] += 1
    return order, first


@inlined_kernel
def _metres(earth: Earth, px: float, py: float, pz: float, qx: float, qy: float, qz: float, rise: float) -> float:
    """Along the Earth, and up."""
    metres: float = math.hypot(geodesic(earth, px, py, pz, qx, qy, qz), rise)
    return metres


@exact_kernel
def mean_distances(pairs: RowPairs, left: Floats, right: Floats, earth: Earth, out: Floats) -> None:
    """How far apart the rows of each pair are."""
    for p in range(pairs.left.shape[0]):
        i, j = pairs.left[p], pairs.right[p]
        if earth.a == 0.0:
            square = 0.0
            for c in range(left.shape[1]):
                gap = left[i, c] - right[j, c]
                square += gap * gap
            out[p] = math.sqrt(square)
        else:
            rise = left[i, 3] - right[j, 3] if left.shape[1] > BOXED else 0.0
            out[p] = _metres(earth, left[i, 0], left[i, 1], left[i, 2], right[j, 0], right[j, 1], right[j, 2], rise)


@inlined_kernel
def _beyond(boxes: Floats, node: int, low: Floats, high: Floats) -> float:
    """The square of how far a box is from a node's, at least."""
    x = max(boxes[node, 0] - high[0], low[0] - boxes[node, 3], 0.0)
    y = max(boxes[node, 1] - high[1], low[1] - boxes[node, 4], 0.0)
    z = max(boxes[node, 2] - high[2], low[2] - boxes[node, 5], 0.0)
    square: float = x * x + y * y + z * z
    return square


@exact_kernel
def nearest(tree: Tree, place: Floats, time: Ints, when: Ints, search: Search, found: Ints, distance: Floats) -> int:
    """For each place the nearest rows, of equal ones the first, and how far away they are; -1 where there are none.

    Returns how often two rows of one time (``when``, by their numbers) were equally far away; -1 where it gave up.
    """
    rows, places, rest, times, begins, ends, boxes, oldests, newests, _, _, _ = tree
    older, newer, k, limit, earth, budget = search
    d, nodes, straight = place.shape[1], begins.shape[0], earth.a == 0.0
    leaves, ties, stride, flat = (nodes + 1) // 2, 0, places.shape[1], places.ravel()
    order, first = _by_home(tree, place, time)
    waiting, bounds = np.empty(128, np.int64), np.empty(128)
    low, high, points = np.empty(BOXED), np.empty(BOXED), np.zeros(BOXED * _GROUP)
    old, new, counts = np.empty(_GROUP, np.int64), np.empty(_GROUP, np.int64), np.empty(_GROUP, np.int64)
    worst, best, who = np.empty(_GROUP), np.empty((_GROUP, k)), np.empty((_GROUP, k), np.int64)
    spent, per_row = 0.0, _PER_ROW + _PER_COORDINATE * max(0, d - BOXED)
    for leaf in range(leaves):
        home = leaf + leaves - 1
        for begin in range(first[leaf], first[leaf + 1], _GROUP):
            if spent > budget * (begin / place.shape[0] + _FIRST):
                return -1
            members = min(_GROUP, first[leaf + 1] - begin)
            low[:], high[:] = np.inf, -np.inf
            oldest, newest = np.iinfo(np.int64).max, np.iinfo(np.int64).min
            for g in range(members):
                i = order[begin + g]
                old[g], new[g], counts[g], worst[g] = time[i] - older, time[i] + newer, 0, limit
                oldest, newest = min(oldest, old[g]), max(newest, new[g])
                for c in range(BOXED):
                    value = place[i, c] if c < d else 0.0
                    points[c * _GROUP + g] = value
                    low[c], high[c] = min(low[c], value), max(high[c], value)
            # The home leaf comes first, and once more in its turn, where it is passed over.
            waiting[0], bounds[0], waiting[1], bounds[1], top, bound, at_home = 0, 0.0, home, 0.0, 2, np.inf, True
            while top > 0:
                top -= 1
                node = waiting[top]
                if bounds[top] > bound or newests[node] < oldest or oldests[node] > newest:
                    at_home = False
                    continue
                if 2 * node + 2 < nodes:
                    near, far = 2 * node + 1, 2 * node + 2
                    a, b = _beyond(boxes, near, low, high), _beyond(boxes, far, low, high)
                    if b < a:
                        near, far, a, b = far, near, b, a
                    waiting[top], bounds[top], waiting[top + 1], bounds[top + 1] = far, b, near, a
                    top += 2
                    continue
                if node == home and not at_home:
                    continue
                at_home = False
                most = 0.0
                for g in range(members):
                    own, count = worst[g], counts[g]
                    square_own = own * own * (1.0 + SLACK)
                    spent += _PER_LEAF
                    for first_row in range(begins[node], ends[node], LANES):
                        left = (1 << min(LANES, ends[node] - first_row)) - 1
                        while left:
                            # The nearest first: of most leaves no row is near enough, of the others mostly one.
                            bits = nearest_3(points, g, _GROUP, flat, first_row, stride, square_own, left)
                            if bits == 0:
                                break
                            lane = lowest(bits)
                            left &= ~(1 << lane)
                            spent += per_row
                            j = first_row + lane
                            if times[j] < old[g] or times[j] > new[g]:
                                continue
                            px, py, pz = points[g], points[_GROUP + g], points[2 * _GROUP + g]
                            qx, qy, qz = places[0, j], places[1, j], places[2, j]
                            x, y, z = px - qx, py - qy, pz - qz
                            square = x * x + y * y + z * z
                            rise = 0.0
                            for c in range(BOXED, d):
                                rise = place[order[begin + g], c] - rest[j, c - BOXED]
                                square += rise * rise
                            away = math.sqrt(square) if straight else _metres(earth, px, py, pz, qx, qy, qz, rise)
                            row = rows[j]
                            if away > own:
                                continue
                            for at in range(count - 1, -1, -1):
                                if best[g, at] < away:
                                    break
                                ties += 1 if best[g, at] == away and when[who[g, at]] == times[j] else 0
                            if count == k and away == own and row > who[g, k - 1]:
                                continue
                            at = min(count, k - 1)
                            while at > 0 and (
                                best[g, at - 1] > away or (best[g, at - 1] == away and who[g, at - 1] > row)
                            ):
                                best[g, at], who[g, at] = best[g, at - 1], who[g, at - 1]
                                at -= 1
                            best[g, at], who[g, at] = away, row
                            count = min(count + 1, k)
                            if count == k:
                                own = best[g, k - 1]
                                square_own = own * own * (1.0 + SLACK)
                    counts[g], worst[g] = count, own
                    most = max(most, own)
                bound = most * most * (1.0 + SLACK)
            for g in range(members):
                i = order[begin + g]
                for at in range(k):
                    there = at < counts[g]
                    found[i, at], distance[i, at] = who[g, at] if there else -1, best[g, at] if there else np.nan
    return ties
