"""A nearly balanced tree of rows, whose nodes know their boxes and their times.

Rows are sorted along a curve that fills space (`appulse.kernels.curve`), and a node is cut where the curve goes from
one large cell into another, not far from the middle of its rows. So boxes overlap little, as in a k-d tree, at a third
of what that costs. Rows of one cell of the finest, or all rows where too many crowd in a few cells, are halved by the
coordinate along which they spread most, and before that by time, until those of a node are no farther apart than a
window. Below some node, each part of the tree is made by itself, in any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.curve import Curve, along, curve_of
from appulse.kernels.jit import exact_kernel, inlined_kernel
from appulse.kernels.simd import LANES

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

# Rows of a leaf, at most where none is cut aside of its middle: as many as are compared at once.
_LEAF = LANES
#: Coordinates that boxes have; those of fewer are filled up with zeros. On the Earth a fourth is the altitude.
BOXED = 3
# Rows of a cell of the curve from which on they crowd there, and the share of all rows that may.
_CROWD, _SHARE = 32, 0.05
#: By what a node is cut: one of the coordinates, the time, or the code of the curve.
TIME, CODE = 3, 4
# How far from its middle a node may be cut, as a share of its rows: farther, and leaves differ more than boxes gain.
_ASIDE = 0.15


class Tree(NamedTuple):
    """Rows in the order of leaves, and what each node spans; below node i are 2 i + 1 and 2 i + 2.

    ``rows`` are the numbers of the rows, ``places`` (3, n) their first coordinates, with room behind them, and ``rest``
    those behind the third. ``boxes`` are the least of x, y and z, and the greatest. Rows of the first half of a node
    have no more than ``cut`` in ``column`` (3: the time, 4: the code of the ``curve``), those of the other no less.
    """

    rows: Ints
    places: Floats
    rest: Floats
    time: Ints
    begin: Ints
    end: Ints
    boxes: Floats
    oldest: Ints
    newest: Ints
    column: Ints
    cut: Floats
    curve: Curve


@exact_kernel
def _crowded(codes: Ints) -> bool:
    """Whether too many rows lie where the curve does not tell them apart."""
    crowded = first = 0
    for i in range(1, len(codes) + 1):
        if i == len(codes) or codes[i] != codes[first]:
            crowded += i - first if i - first > _CROWD else 0
            first = i
    return crowded > _SHARE * len(codes)


@exact_kernel
def plant(curve: Curve, codes: Ints, order: Ints, d: int) -> Tree:
    """The tree of rows in the order of their codes, with nothing but a root; where they crowd, codes become zeros."""
    n, depth = len(order), 0
    while n > _LEAF << depth:
        depth += 1
    nodes = (2 << depth) - 1
    if _crowded(codes):
        codes[:] = 0
    begin, end = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    end[0] = n
    return Tree(
        order,
        np.empty((BOXED, n + LANES)),
        np.empty((n, max(0, d - BOXED))),
        np.empty(n, np.int64),
        begin,
        end,
        np.empty((nodes, 2 * BOXED)),
        np.empty(nodes, np.int64),
        np.empty(nodes, np.int64),
        np.empty(nodes, np.int64),
        np.empty(nodes),
        curve,
    )


@exact_kernel
def depth_of(tree: Tree, root: int = 0) -> int:
    """Levels of nodes below one."""
    depth, nodes = 0, len(tree.begin)
    while 2 * root + 1 < nodes:
        root, depth = 2 * root + 1, depth + 1
    return depth


@exact_kernel
def _halve(order: Ints, keys: Floats, begin: int, end: int) -> None:
    """Put the rows with the lesser half of some keys before the others."""
    middle, low, high = (begin + end) // 2, begin, end - 1
    while low < high:
        # The median of three, so that rows in order are no bad case.
        a, b, c = keys[low], keys[(low + high) // 2], keys[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                order[i], order[j] = order[j], order[i]
                i, j = i + 1, j - 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return


@exact_kernel
def _span(tree: Tree, node: int, points: Floats, time: Ints) -> None:
    """The box and the times of a node, by its rows; those of no rows are beyond everything."""
    old, new = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    boxes, first, last = tree.boxes, tree.begin[node], tree.end[node]
    for c in range(BOXED):
        known = c < points.shape[1] or last == first
        boxes[node, c], boxes[node, c + BOXED] = (np.inf, -np.inf) if known else (0.0, 0.0)
    for i in range(first, last):
        row = tree.rows[i]
        old, new = min(old, time[row]), max(new, time[row])
        for c in range(min(points.shape[1], BOXED)):
            boxes[node, c] = min(boxes[node, c], points[row, c])
            boxes[node, c + BOXED] = max(boxes[node, c + BOXED], points[row, c])
    tree.oldest[node], tree.newest[node] = old, new


@exact_kernel
def _border(codes: Ints, first: int, last: int) -> int:
    """Where the largest cell begins of those that begin near the middle of some rows."""
    middle, aside = (first + last) // 2, int((last - first) * _ASIDE)
    low, high = max(middle - aside, first + 1), min(middle + aside, last - 1)
    if low >= high or codes[low] == codes[high]:
        return middle
    differing, bit = codes[low] ^ codes[high], np.int64(1)
    while differing > 1:
        differing, bit = differing >> 1, bit << 1
    begin: int = low + np.searchsorted(codes[low : high + 1], codes[high] & ~(bit - 1))
    return begin


@exact_kernel
def split(tree: Tree, root: int, levels: int, codes: Ints, points: Floats, time: Ints, span: int) -> None:
    """Cut the rows of a node in two, and these again, so many times."""
    rows, _, _, _, begin, end, boxes, oldest, newest, column, cut, _ = tree
    room = np.empty(end[root] - begin[root])
    for level in range(levels):
        for node in range(((root + 1) << level) - 1, ((root + 2) << level) - 1):
            first, last, widest, middle = begin[node], end[node], CODE, (begin[node] + end[node]) // 2
            if last > first and codes[first] != codes[last - 1]:
                middle = _border(codes, first, last)
                cut[node] = codes[middle]
            else:
                widest = 0
                if node == 0 or column[(node - 1) // 2] == CODE:
                    _span(tree, node, points, time)
                # By what is left of that box, as to look at the rows once more would cost as much as to halve them.
                for c in range(1, min(points.shape[1], BOXED)):
                    if boxes[node, c + BOXED] - boxes[node, c] > boxes[node, widest + BOXED] - boxes[node, widest]:
                        widest = c
                if last > first and np.float64(newest[node]) - np.float64(oldest[node]) > span:
                    widest = TIME
                some, keys = rows[first:last], room[: last - first]
                for i in range(last - first):
                    keys[i] = np.float64(time[some[i]]) if widest == TIME else points[some[i], widest]
                _halve(some, keys, 0, last - first)
                cut[node] = keys[middle - first] if middle < last else 0.0
            column[node] = widest
            for child in (2 * node + 1, 2 * node + 2):
                lower = child == 2 * node + 1
                begin[child], end[child] = (first, middle) if lower else (middle, last)
                if widest == CODE:
                    continue
                boxes[child], oldest[child], newest[child] = boxes[node], oldest[node], newest[node]
                if widest < BOXED:
                    boxes[child, widest + (BOXED if lower else 0)] = cut[node]
                elif lower:
                    newest[child] = np.int64(cut[node])
                else:
                    oldest[child] = np.int64(cut[node])


@exact_kernel
def around(tree: Tree, root: int, levels: int) -> None:
    """The boxes and the times of a node and those so many levels below it, but the last, by those of their halves."""
    boxes, oldest, newest = tree.boxes, tree.oldest, tree.newest
    for level in range(levels - 1, -1, -1):
        for node in range(((root + 1) << level) - 1, ((root + 2) << level) - 1):
            left, right = 2 * node + 1, 2 * node + 2
            oldest[node], newest[node] = min(oldest[left], oldest[right]), max(newest[left], newest[right])
            for c in range(BOXED):
                boxes[node, c] = min(boxes[left, c], boxes[right, c])
                boxes[node, c + BOXED] = max(boxes[left, c + BOXED], boxes[right, c + BOXED])


@inlined_kernel
def _extremes(values: Floats) -> tuple[float, float]:
    """The least and the greatest of some values."""
    least, most = np.inf, -np.inf
    for i in range(len(values)):
        least, most = min(least, values[i]), max(most, values[i])
    return least, most


@exact_kernel
def _take(rows: Ints, points: Floats, time: Ints, places: Floats, rest: Floats, when: Ints) -> None:
    """What leaves have of some rows, one after the other."""
    d = points.shape[1]
    for i in range(len(rows)):
        row = rows[i]
        when[i], places[0, i] = time[row], points[row, 0]
        places[1, i] = points[row, 1] if d > 1 else 0.0
        places[2, i] = points[row, 2] if d > 2 else 0.0
        for c in range(BOXED, d):
            rest[i, c - BOXED] = points[row, c]


@exact_kernel
def fill(tree: Tree, root: int, codes: Ints, points: Floats, time: Ints, span: int) -> None:
    """Cut the rows of a node down to leaves, and put in what these have."""
    rows, places, rest, when, begin, end, boxes, oldest, newest, _, _, _ = tree
    levels = depth_of(tree, root)
    split(tree, root, levels, codes, points, time, span)
    first, last = ((root + 1) << levels) - 1, ((root + 2) << levels) - 1
    # Parts are indexed from 0. Numbers that might be negative, as Numba sees it, are checked at each access.
    own = slice(begin[first], end[last - 1])
    _take(rows[own], points, time, places[:, own], rest[own], when[own])
    for node in range(first, last):
        own = slice(begin[node], end[node])
        for c in range(BOXED):
            boxes[node, c], boxes[node, c + BOXED] = _extremes(places[c, own])
        old, new = np.iinfo(np.int64).max, np.iinfo(np.int64).min
        for i in range(begin[node], end[node]):
            old, new = min(old, when[i]), max(new, when[i])
        oldest[node], newest[node] = old, new
    around(tree, root, levels)


@exact_kernel
def grow(points: Floats, time: Ints, span: int) -> Tree:
    """The tree of some rows, of which those more than ``span`` apart in time never meet the same place."""
    curve = curve_of(points, time, span)
    codes, order = along(curve, points, time)
    tree = plant(curve, codes, order, points.shape[1])
    fill(tree, 0, codes, points, time, span)
    return tree
