"""The imputation indexes of Ren et al. 2019, section 5.1: clusters in a tree, with a histogram in each node.

One tree for each attribute that may be missing, over the same complete rows. Clusters are what is left of halving the
rows: each cut is along the axis that lowers the cost of appendix B.2 most, the sum over clusters of their sizes times
the chance that a box around a random object touches them (re-derived: the text is lost). The rule that fills an
attribute is the first of the lattice's order with a match, and its nodes are kept, so that instances can be fetched
later on. A tree of one leaf is a scan, which is how DD+join fills.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.imputation.imputer import DependencyImputer
    from appulse.kernels.arrays import Flags, Floats, Ints

    Matrix = NDArray[np.float64]

LEAF = 64
MARGINAL = -1  # the rule of an attribute that nothing matches


class Index(NamedTuple):
    """Trees and lattices by attribute, arrays in order of the attributes along all axes.

    ``columns`` (d, d, n) are the rows as each tree has them; node k has the children 2 k + 1 and 2 k + 2, rows from
    ``begin[k]`` to ``end[k]`` and hulls ``bounds[a, k]``; ``histogram[a, k]`` counts its rows by buckets of attribute
    a, which begin at ``least[a]`` and are ``width[a]`` wide. Rules of attribute a: the first ``rules[a]`` of
    ``used[a]``, ``limits[a]``, ``ranges[a]``. Where none matches it has ``common[a]`` of the values ``marginal[a]``,
    with their shares.
    """

    columns: Floats
    begin: Ints
    end: Ints
    bounds: Floats
    histogram: Ints
    least: Floats
    width: Floats
    rules: Ints
    used: Flags
    limits: Floats
    ranges: Floats
    common: Ints
    marginal: Floats
    shares: Floats


def index_of(
    imputer: DependencyImputer, names: Sequence[str], *, buckets: int = 32, by_cost: bool = True, scan: bool = False
) -> Index:
    """The indexes for values with these attributes; ``by_cost`` off cuts along the axes by turns."""
    rows = np.ascontiguousarray(imputer.repository.matrix(names))
    d, n = rows.shape
    depth = 0 if scan else max(0, (-(-n // LEAF) - 1).bit_length())
    nodes = (2 << depth) - 1
    begin, end = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    columns, bounds = np.empty((d, d, n)), np.empty((d, nodes, d, 2))
    histogram, spread = np.zeros((d, nodes, buckets), np.int64), np.ptp(rows, axis=1)
    least, width = rows.min(axis=1), np.maximum(spread, 1e-300) / buckets
    lattices = [imputer.lattice((name,), tuple(names)) for name in names]
    most = max(1, *(len(lattice.constraints) for lattice in lattices))
    used, limits = np.zeros((d, most, d), bool), np.full((d, most, d), np.inf)
    ranges = np.stack([np.full((d, most, d), -np.inf), np.full((d, most, d), np.inf)], axis=-1)
    common, marginal, shares = np.zeros(d, np.int64), np.zeros((d, imputer.most_marginal)), None
    shares = np.zeros_like(marginal)
    for a, lattice in enumerate(lattices):
        places, count = [list(names).index(axis) for axis in lattice.axes], len(lattice.constraints)
        used[a, :count, places] = lattice.constraints.used.T
        limits[a, :count, places] = lattice.constraints.limits.T
        ranges[a, :count, places] = lattice.constraints.ranges.transpose(1, 0, 2)
        values, weights = lattice.marginal(imputer.most_marginal)
        common[a] = len(values)
        marginal[a, : len(values)], shares[a, : len(values)] = values[:, 0], weights
        # Half the sides of a box, in units of an axis' range: those of the tightest rule.
        halves = limits[a].min(axis=0) / np.maximum(spread, 1e-300)
        columns[a] = rows
        _arrange(columns[a], np.maximum(spread, 1e-300), halves, begin, end, by_cost=by_cost)
        describe(columns[a], a, least[a], width[a], begin, end, bounds[a], histogram[a])
    rules = np.array([len(lattice.constraints) for lattice in lattices])
    return Index(
        columns, begin, end, bounds, histogram, least, width, rules, used, limits, ranges, common, marginal, shares
    )


def cost(index: Index, attribute: int) -> float:
    """Rows of clusters that a random box touches (appendix B.2): sum of sizes times prod min(1, side + 2 half)."""
    leaves = slice(len(index.begin) // 2, None)
    spread = np.maximum(np.ptp(index.columns[attribute], axis=1), 1e-300)
    sides = np.ptp(index.bounds[attribute, leaves], axis=2) / spread
    halves = index.limits[attribute].min(axis=0) / spread
    sizes = index.end[leaves] - index.begin[leaves]
    return float((sizes * np.minimum(1.0, sides + 2.0 * halves).prod(axis=1)).sum())


def _arrange(columns: Matrix, spread: Matrix, halves: Matrix, begin: Ints, end: Ints, *, by_cost: bool) -> None:
    """Put rows in leaf order by halving them."""
    axes = np.flatnonzero(np.isfinite(halves)).tolist()
    begin[0], end[0] = 0, columns.shape[1]
    for k in range(len(begin) // 2):
        first, last = int(begin[k]), int(end[k])
        half = (last - first) // 2
        own = columns[:, first:last]
        cuts = axes if by_cost else axes[(k + 1).bit_length() % max(1, len(axes)) :][:1]
        ways = [np.argsort(own[axis], kind="stable") for axis in cuts]
        costs = [sum(_touched(own[:, part], axes, spread, halves) for part in (way[:half], way[half:])) for way in ways]
        if ways:
            columns[:, first:last] = own[:, ways[int(np.argmin(costs))]]
        begin[2 * k + 1], end[2 * k + 1] = first, first + half
        begin[2 * k + 2], end[2 * k + 2] = first + half, last


def _touched(rows: Matrix, axes: list[int], spread: Matrix, halves: Matrix) -> float:
    """The cost of one cluster."""
    sides = (rows[axes].max(axis=1) - rows[axes].min(axis=1)) / spread[axes] if rows.size else np.zeros(len(axes))
    return float(rows.shape[1] * np.minimum(1.0, sides + 2.0 * halves[axes]).prod())


@exact_kernel
def describe(
    columns: Floats, attribute: int, least: float, width: float, begin: Ints, end: Ints, bounds: Floats, histogram: Ints
) -> None:
    """Hulls and histograms of all nodes."""
    buckets = histogram.shape[1]
    for k in range(len(begin)):
        for c in range(len(columns)):
            bounds[k, c, 0], bounds[k, c, 1] = np.inf, -np.inf
            for i in range(begin[k], end[k]):
                bounds[k, c, 0] = min(bounds[k, c, 0], columns[c, i])
                bounds[k, c, 1] = max(bounds[k, c, 1], columns[c, i])
        for i in range(begin[k], end[k]):
            histogram[k, min(buckets - 1, int((columns[attribute, i] - least) / width))] += 1


@exact_kernel
def _box(index: Index, attribute: int, rule: int, row: Floats, low: Floats, high: Floats) -> bool:
    """The box around an object under a rule; whether the rule can be asked at all."""
    for c in range(len(row)):
        low[c], high[c] = -np.inf, np.inf
        if not index.used[attribute, rule, c]:
            continue
        least, most = index.ranges[attribute, rule, c, 0], index.ranges[attribute, rule, c, 1]
        # A hole is NaN, which lies in no range.
        if not least <= row[c] <= most:
            return False
        low[c] = max(row[c] - index.limits[attribute, rule, c], least)
        high[c] = min(row[c] + index.limits[attribute, rule, c], most)
    return True


@exact_kernel
def _inside(columns: Floats, i: int, low: Floats, high: Floats) -> bool:
    inside = True
    for c in range(len(columns)):
        inside = inside and low[c] <= columns[c, i] <= high[c]
    return inside


@exact_kernel
def nodes_of(index: Index, attribute: int, row: Floats, counts: Ints, found: Ints) -> tuple[int, int]:
    """The rule that fills an attribute, and how many nodes its box touches: in ``found``, whole ones as ``~k``.

    ``counts[0]`` gets how many nodes were looked at, ``counts[1]`` how many rows.
    """
    d, inner = len(row), len(index.begin) // 2
    low, high = np.empty(d), np.empty(d)
    stack, touched = np.empty(128, np.int64), np.empty(len(index.begin), np.int64)
    columns, bounds = index.columns[attribute], index.bounds[attribute]
    for rule in range(index.rules[attribute]):
        if not _box(index, attribute, rule, row, low, high):
            continue
        n, top, match = 0, 1, False
        stack[0] = 0
        while top > 0:
            top -= 1
            k = stack[top]
            counts[0] += 1
            apart, whole = index.begin[k] == index.end[k], True
            for c in range(d):
                least, most = bounds[k, c, 0], bounds[k, c, 1]
                apart = apart or least > high[c] or most < low[c]
                whole = whole and least >= low[c] and most <= high[c]
            if apart:
                continue
            if whole or k >= inner:
                touched[n] = ~k if whole else k
                match = match or whole
                n += 1
            else:
                stack[top], stack[top + 1] = 2 * k + 2, 2 * k + 1
                top += 2
        # Estimates never decide: the rule is taken if a row really matches it.
        for i in range(n):
            if match:
                break
            for j in range(index.begin[touched[i]], index.end[touched[i]]):
                counts[1] += 1
                if _inside(columns, j, low, high):
                    match = True
                    break
        if match:
            found[:n] = touched[:n]
            return rule, n
    return MARGINAL, 0


@exact_kernel
def hull_of(index: Index, attribute: int, rule: int, nodes: Ints) -> tuple[float, float]:
    """The buckets that the rows of some nodes lie in: from where to where."""
    if rule == MARGINAL:
        return index.marginal[attribute, 0], index.marginal[attribute, index.common[attribute] - 1]
    buckets = index.histogram.shape[2]
    first, last = buckets, -1
    for k in nodes:
        own = index.histogram[attribute, max(k, ~k)]
        for b in range(first):
            if own[b] > 0:
                first = b
                break
        for b in range(buckets - 1, last, -1):
            if own[b] > 0:
                last = b
                break
    least, width = index.least[attribute], index.width[attribute]
    slack = 1e-9 * width * buckets  # the rounding of what bucket a row is in
    return least + first * width - slack, least + (last + 1) * width + slack


@exact_kernel
def instances_of(index: Index, attribute: int, rule: int, nodes: Ints, row: Floats, counts: Ints, out: Floats) -> int:
    """The values that may stand in a hole, in order, and their probabilities, (2, values); how many there are."""
    if rule == MARGINAL:
        n = index.common[attribute]
        for i in range(n):
            out[0, i], out[1, i] = index.marginal[attribute, i], index.shares[attribute, i]
        return int(n)
    low, high = np.empty(len(row)), np.empty(len(row))
    _box(index, attribute, rule, row, low, high)
    columns = index.columns[attribute]
    size = 0
    for k in nodes:
        size += index.end[max(k, ~k)] - index.begin[max(k, ~k)]
    values, n = np.empty(size), 0
    for k in nodes:
        for i in range(index.begin[max(k, ~k)], index.end[max(k, ~k)]):
            values[n] = columns[attribute, i]
            if k < 0:
                n += 1
            else:
                counts[1] += 1
                n += _inside(columns, i, low, high)
    ordered = values[:n]
    ordered.sort()
    distinct = 0
    for i in range(n):
        if i == 0 or ordered[i] != ordered[i - 1]:
            out[0, distinct], out[1, distinct] = ordered[i], 0.0
            distinct += 1
        out[1, distinct - 1] += 1.0
    for i in range(distinct):
        out[1, i] /= n
    return distinct


@exact_kernel
def room_for(index: Index, rows: Floats) -> tuple[int, int]:
    """Of some objects, the most nodes that a hole's rule touches, and the most values that may stand in one."""
    most_nodes, most_values = 1, int(index.common.max())
    found, counts = np.empty(len(index.begin), np.int64), np.zeros(2, np.int64)
    low, high = np.empty(rows.shape[1]), np.empty(rows.shape[1])
    for i in range(len(rows)):
        for k in range(rows.shape[1]):
            if not np.isnan(rows[i, k]):
                continue
            rule, n = nodes_of(index, k, rows[i], counts, found)
            values = 0
            if rule != MARGINAL:
                _box(index, k, rule, rows[i], low, high)
            for place in range(n):
                node = max(found[place], ~found[place])
                for j in range(index.begin[node], index.end[node]):
                    values += _inside(index.columns[k], j, low, high)
            most_nodes, most_values = max(most_nodes, n), max(most_values, values)
    return most_nodes, most_values
