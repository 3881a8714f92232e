"""The contestant of the paper: an interval binary search tree for each attribute, and counting (Hanson 1991).

A tree has a node for each end of an interval. A node bears three sets of marks: intervals that cover all its left
subtree ('<'), its value ('='), all its right subtree ('>'). The path to a value meets the mark of each interval that
contains it once. A query matches a row when as many of its intervals are met as it has predicates.

The trees are static and balanced: nodes are the ends in order, and a node's subtree is a range of them, so that paths
are binary searches and nothing but ends and marks is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints
    from benchmarks.query_sets import BoxQueries, Matrix

Numbers: TypeAlias = NDArray[np.int32]
Marks: TypeAlias = NDArray[np.uint32]  # queries, unsigned: to the compiler no place counted from the end
Small: TypeAlias = NDArray[np.uint8]
Pairs: TypeAlias = tuple[Numbers, Numbers]  # rows and the queries they match

_LEFT, _HERE, _RIGHT = range(3)  # the sets of a node
_NEVER = 255  # what is left of queries that are in no tree, and match without one


@kernel
def grown(array: Numbers, used: int, more: int) -> Numbers:
    """The array, or one of at least twice the size where ``more`` would not fit."""
    if used + more <= array.shape[0]:
        return array
    larger = np.empty(max(2 * array.shape[0], used + more), np.int32)
    larger[:used] = array[:used]
    return larger


@kernel
def filled(array: Numbers, begin: int, end: int, value: int) -> Numbers:
    """The array, grown if need be, with the value from ``begin`` to ``end``."""
    array = grown(array, begin, end - begin)
    for i in range(begin, end):
        array[i] = value
    return array


@kernel
def _put(place: int, query: int, at: Ints, marks: Marks) -> None:
    """Add a mark, or only count it while there is no room for marks."""
    if marks.shape[0]:
        marks[at[place]] = query
    at[place] += 1


@kernel
def _mark(nodes: int, first: int, last: int, query: int, at: Ints, marks: Marks) -> None:
    """The marks of an interval: node k is place 2 k, and what lies between it and the next one is place 2 k + 1."""
    low, high = first >> 1, (last + 1) >> 1  # the nodes of its ends
    begin, end = 0, nodes
    top = (begin + end) // 2
    while not low <= top <= high:  # down to the node where the paths to both ends part
        if high < top:
            end = top
        else:
            begin = top + 1
        top = (begin + end) // 2
    if first <= 2 * top <= last:
        _put(3 * top + _HERE, query, at, marks)
    left, right = begin, top
    while left < right:  # to the low end: all that is right of this path is inside
        node = (left + right) // 2
        if node < low:
            left = node + 1
            continue
        if first <= 2 * node:
            _put(3 * node + _HERE, query, at, marks)
        _put(3 * node + _RIGHT, query, at, marks)
        right = node if node > low else left
    left, right = top + 1, end
    while left < right:  # to the high end
        node = (left + right) // 2
        if node > high:
            right = node
            continue
        if 2 * node <= last:
            _put(3 * node + _HERE, query, at, marks)
        _put(3 * node + _LEFT, query, at, marks)
        left = node + 1 if node < high else right


@kernel
def _mark_all(nodes: int, queries: Numbers, first: Ints, last: Ints, at: Ints, marks: Marks) -> None:
    for i in range(queries.shape[0]):
        if first[i] <= last[i]:
            _mark(nodes, first[i], last[i], queries[i], at, marks)


@kernel
def stab(
    point: Floats,
    values: Floats,  # the nodes of all trees
    first: Ints,  # node of each tree
    starts: Ints,  # of the marks of each set
    marks: Marks,
    always: Numbers,  # queries without predicates
    left: Small,  # predicates of each query still to be met
    queries: Numbers,
    found: int,
) -> tuple[Numbers, int]:
    """Add the queries that a row matches; counts are as before when it is done.

    Only the trees before the last one count; at the last one a query has one predicate left, or does not match.
    """
    last = point.shape[0] - 1
    if found + always.shape[0] > queries.shape[0]:
        queries = grown(queries, found, always.shape[0])
    for i in range(always.shape[0]):
        queries[found] = always[i]
        found += 1
    for a in range(last + 1):
        begin, end = first[a], first[a + 1]
        while begin < end:
            node = (begin + end) // 2
            side = _HERE
            if point[a] < values[node]:
                side, end = _LEFT, node
            elif point[a] > values[node]:
                side, begin = _RIGHT, node + 1
            else:
                begin = end
            start, stop = starts[3 * node + side], starts[3 * node + side + 1]
            if found + stop - start > queries.shape[0]:
                queries = grown(queries, found, stop - start)
            for i in range(start, stop):
                queries[found] = marks[i]
                found += left[marks[i]] == 1
            if a < last:
                for i in range(start, stop):
                    left[marks[i]] -= 1
    _undo(point, values, first, starts, marks, left)
    return queries, found


@kernel
def _undo(point: Floats, values: Floats, first: Ints, starts: Ints, marks: Marks, left: Small) -> None:
    """Take back what all trees but the last one counted: the same paths again."""
    for a in range(point.shape[0] - 1):
        begin, end = first[a], first[a + 1]
        while begin < end:
            node = (begin + end) // 2
            side = _HERE
            if point[a] < values[node]:
                side, end = _LEFT, node
            elif point[a] > values[node]:
                side, begin = _RIGHT, node + 1
            else:
                begin = end
            for i in range(starts[3 * node + side], starts[3 * node + side + 1]):
                left[marks[i]] += 1


@kernel
def _stab_all(
    points: Matrix, values: Floats, first: Ints, starts: Ints, marks: Marks, always: Numbers, left: Small
) -> tuple[Numbers, Numbers]:
    rows, queries = np.empty(1024, np.int32), np.empty(1024, np.int32)
    found = 0
    for row in range(points.shape[0]):
        before = found
        queries, found = stab(points[row], values, first, starts, marks, always, left, queries, found)
        rows = filled(rows, before, found, row)
    return rows[:found], queries[:found]


class IBS:
    """Trees over a fixed set of queries. Rows are finite numbers."""

    def __init__(self, queries: BoxQueries) -> None:
        d = queries.attributes
        # Inside, queries are numbered along the first attribute: what its tree meets lies close together.
        self._number = np.argsort(queries.low[:, 0], kind="stable").astype(np.int32)
        queries = queries.take(self._number)
        has = queries.constrained
        need = has.sum(axis=1)
        self._left = np.where(need > 0, need, _NEVER).astype(np.uint8)
        self._always = np.flatnonzero(need == 0).astype(np.int32)
        trees = [_tree(queries, a, np.flatnonzero(has[:, a]).astype(np.int32)) for a in range(d)]
        values, counts, marks = zip(*trees, strict=True)
        self._first = np.cumsum([0, *map(len, values)])
        self._values = np.concatenate(values)
        self._starts = np.cumsum(np.concatenate([[0], *counts]))
        self._marks = np.concatenate(marks)

    @property
    def marks(self) -> int:
        """How many marks the trees bear."""
        return len(self._marks)

    @property
    def arrays(self) -> tuple[Floats, Ints, Ints, Marks, Numbers, Small]:
        """What `stab` takes after the row."""
        return self._values, self._first, self._starts, self._marks, self._always, self._left

    def match(self, points: Matrix) -> Pairs:
        """The matching pairs of row and query."""
        row, query = _stab_all(np.ascontiguousarray(points), *self.arrays)
        return row, self.names(query)

    def names(self, query: Numbers) -> Numbers:
        """The queries as they came, of numbers that `stab` found."""
        return self._number[query]


def _tree(queries: BoxQueries, a: int, numbers: Numbers) -> tuple[Floats, Ints, Marks]:
    """The nodes of one attribute's tree, the number of marks in each of their sets, and the marks."""
    low, high = queries.low[numbers, a], queries.high[numbers, a]
    values = np.unique(np.concatenate([low, high]))
    first = 2 * np.searchsorted(values, low) + queries.low_open[numbers, a]
    last = 2 * np.searchsorted(values, high) - queries.high_open[numbers, a]
    counts = np.zeros(3 * len(values), np.int64)
    _mark_all(len(values), numbers, first, last, counts, np.empty(0, np.uint32))
    marks = np.empty(int(counts.sum()), np.uint32)
    if len(marks):
        _mark_all(len(values), numbers, first, last, np.cumsum(counts) - counts, marks)
    return values, counts, marks
