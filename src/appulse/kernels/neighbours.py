"""Rows in boxes: a k-d tree of leaf blocks over the rows of a repository, and what is asked of it.

Rows stand in leaf order, a column each: ``columns`` is (width, n), of which the first ``axes`` split the tree; those
after them are what is looked up. The tree is complete: node k has the children 2 k + 1 and 2 k + 2, holds the rows from
``begin[k]`` to ``end[k]``, and ``bounds[k, c]`` are the least and greatest of its column c. Boxes are closed. A leaf is
scanned column by column, which compilers make SIMD of; a node that lies in a box whole is not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints, Whole

#: Rows of a leaf, at most.
LEAF = 64
_SAMPLE = 64  # rows that tell along which axis a node is widest


class Tree(NamedTuple):
    """The rows, and the nodes over them."""

    columns: Floats
    begin: Ints
    end: Ints
    bounds: Floats


class Conditions(NamedTuple):
    """What a match is by a rule, axis by axis; of a lattice, with an axis more in front."""

    used: Flags
    limits: Floats
    ranges: Floats


class Box(NamedTuple):
    """The bounded axes of a box are the first of ``axes``, so many as `_box` tells."""

    low: Floats
    high: Floats
    axes: Ints


class Codes(NamedTuple):
    """The values that are filled in, as numbers in their order: that of each row, and a zero for each."""

    of_row: Ints
    tally: Ints


class Distributions(NamedTuple):
    """Room for what rows are filled with, as `fill` reports it."""

    node: Ints
    first: Ints
    code: Ints
    times: Ints


class Choices(NamedTuple):
    """What holes may be filled with: part p of row i has ``counts[i, p]`` values from ``values[begins[i, p]]`` on."""

    begins: Ints
    counts: Ints
    columns: Ints  # of each part; -1: no more
    values: Floats
    shares: Floats


# --- building ---------------------------------------------------------------------------------------------------


@exact_kernel
def _swap(columns: Floats, order: Ints, i: int, j: int) -> None:
    for c in range(len(columns)):
        columns[c, i], columns[c, j] = columns[c, j], columns[c, i]
    order[i], order[j] = order[j], order[i]


@exact_kernel
def _select(columns: Floats, order: Ints, axis: int, begin: int, end: int, middle: int) -> None:
    """Put rows so that those before ``middle`` are no greater along the axis than those from it on (Hoare)."""
    keys = columns[axis]
    left, right = begin, end - 1
    while left < right:
        pivot = keys[(left + right) // 2]
        i, j = left, right
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                _swap(columns, order, i, j)
                i += 1
                j -= 1
        if middle <= j:
            right = j
        elif middle >= i:
            left = i
        else:
            return


@exact_kernel
def _widest(columns: Floats, scale: Floats, begin: int, end: int) -> int:
    """The axis to cut a node along: where its rows spread widest in units of ``scale``.

    The chance of a box with half sides h to touch a node is the product of min(1, side + 2 h) over the axes (Ren et
    al. 2019, appendix B.2, re-derived): to halve the side that is longest against h lowers it most.
    """
    n = min(_SAMPLE, end - begin)
    stride = (end - begin) / n
    sample = np.empty(n, np.float64)
    best, most = 0, -1.0
    for axis in range(len(scale)):
        for i in range(n):
            sample[i] = columns[axis, begin + int(i * stride)]
        ordered = np.sort(sample)
        # Without its outermost tenths, so that a few outliers do not decide.
        spread = (ordered[n - 1 - n // 10] - ordered[n // 10]) / scale[axis]
        if not np.isfinite(spread):
            spread = np.inf
        if spread > most:
            best, most = axis, spread
    return best


@exact_kernel
def arrange(columns: Floats, order: Ints, scale: Floats, begin: Ints, end: Ints, bounds: Floats) -> None:
    """Put the rows in leaf order, ``order`` with them, and describe the nodes; ``scale`` is (axes,), above 0."""
    nodes, width = len(begin), len(columns)
    inner = nodes // 2
    begin[0], end[0] = 0, columns.shape[1]
    for k in range(inner):
        middle = (begin[k] + end[k]) // 2
        _select(columns, order, _widest(columns, scale, begin[k], end[k]), begin[k], end[k], middle)
        begin[2 * k + 1], end[2 * k + 1] = begin[k], middle
        begin[2 * k + 2], end[2 * k + 2] = middle, end[k]
    for k in range(nodes - 1, -1, -1):
        for c in range(width):
            if k >= inner:
                low, high = np.inf, -np.inf
                for i in range(begin[k], end[k]):
                    low, high = min(low, columns[c, i]), max(high, columns[c, i])
            else:
                low = min(bounds[2 * k + 1, c, 0], bounds[2 * k + 2, c, 0])
                high = max(bounds[2 * k + 1, c, 1], bounds[2 * k + 2, c, 1])
            bounds[k, c, 0], bounds[k, c, 1] = low, high


# --- boxes ------------------------------------------------------------------------------------------------------


@exact_kernel
def _box(row: Floats, rule: Conditions, box: Box) -> tuple[int, bool]:
    """The box of an object under a node of the lattice: how many axes bound it, and whether its conditions hold."""
    used, limits, ranges = rule
    low, high, axes_of = box
    n = 0
    for axis in range(len(used)):
        if not used[axis]:
            continue
        x = row[axis]
        if not ranges[axis, 0] <= x <= ranges[axis, 1]:
            return n, False
        low[n] = max(x - limits[axis], ranges[axis, 0])
        high[n] = min(x + limits[axis], ranges[axis, 1])
        axes_of[n] = axis
        n += 1
    return n, True


@exact_kernel
def _runs(tree: Tree, box: Box, n: int, stack: Ints, runs: Ints) -> int:
    """The runs of rows that a box may hold, as nodes: whole ones as ``~k``, leaves to be scanned as ``k``."""
    begin, end, bounds = tree.begin, tree.end, tree.bounds
    low, high, axes_of = box
    found, top = 0, 1
    stack[0] = 0
    inner = len(begin) // 2
    while top > 0:
        top -= 1
        k = stack[top]
        whole, apart = True, begin[k] == end[k]
        for i in range(n):
            least, most = bounds[k, axes_of[i], 0], bounds[k, axes_of[i], 1]
            if least > high[i] or most < low[i]:
                apart = True
                break
            whole = whole and least >= low[i] and most <= high[i]
        if apart:
            continue
        if whole:
            runs[found] = ~k
            found += 1
        elif k >= inner:
            runs[found] = k
            found += 1
        else:
            stack[top], stack[top + 1] = 2 * k + 2, 2 * k + 1
            top += 2
    return found


@exact_kernel
def _scan(columns: Floats, first: Whole, last: Whole, box: Box, n: int, inside: Flags) -> None:
    """Which rows of a leaf a box holds."""
    low, high, axes_of = box
    inside[: last - first] = True
    for i in range(n):
        column, least, most = columns[axes_of[i]], low[i], high[i]
        for j in range(last - first):
            x = column[first + j]
            inside[j] &= (x >= least) & (x <= most)


@exact_kernel
def _gather(tree: Tree, runs: Ints, box: Box, n: int, codes: Ints, inside: Flags, out: Ints) -> int:
    """The codes of the rows that a box holds, into ``out``, which has room for all rows; how many."""
    columns, begin, end = tree.columns, tree.begin, tree.end
    total = 0
    for k in runs:
        if k < 0:
            for i in range(begin[~k], end[~k]):
                out[total] = codes[i]
                total += 1
            continue
        _scan(columns, begin[k], end[k], box, n, inside)
        for j in range(end[k] - begin[k]):
            out[total] = codes[begin[k] + j]
            total += inside[j]
    return total


@exact_kernel
def count(tree: Tree, rows: Floats, rule: Conditions, out: Ints) -> None:
    """How many rows of the repository each of ``rows`` (n, axes) matches: within the limits, all in the ranges."""
    columns, begin, end = tree.columns, tree.begin, tree.end
    axes = len(rule.used)
    box = Box(np.empty(axes), np.empty(axes), np.empty(axes, np.int64))
    stack, runs, inside = np.empty(128, np.int64), np.empty(len(begin), np.int64), np.empty(LEAF, np.bool_)
    for i in range(len(rows)):
        out[i] = 0
        n, holds = _box(rows[i], rule, box)
        if not holds:
            continue
        found = _runs(tree, box, n, stack, runs)
        for r in range(found):
            k = runs[r]
            if k < 0:
                out[i] += end[~k] - begin[~k]
            else:
                _scan(columns, begin[k], end[k], box, n, inside)
                out[i] += np.sum(inside[: end[k] - begin[k]])


@exact_kernel
def agree(
    tree: Tree, rows: Ints, rule: Conditions, dependent: int, within: float, close: Ints, good: Ints, other: Ints
) -> None:
    """Of each of the tree's own ``rows`` (places in leaf order): its matches, itself included, how many of them agree.

    To agree is to differ by at most ``within`` in the column ``dependent``; ``other`` is a match that does not, or -1.
    """
    columns, begin, end = tree.columns, tree.begin, tree.end
    axes = len(rule.used)
    box = Box(np.empty(axes), np.empty(axes), np.empty(axes, np.int64))
    stack, runs, inside = np.empty(128, np.int64), np.empty(len(begin), np.int64), np.empty(LEAF, np.bool_)
    row = np.empty(axes)
    value = columns[dependent]
    for i in range(len(rows)):
        close[i], good[i], other[i] = 0, 0, -1
        for axis in range(axes):
            row[axis] = columns[axis, rows[i]]
        n, holds = _box(row, rule, box)
        if not holds:
            continue
        own = value[rows[i]]
        found = _runs(tree, box, n, stack, runs)
        for r in range(found):
            k = runs[r]
            first, last = begin[max(k, ~k)], end[max(k, ~k)]
            for start in range(first, last, LEAF):
                stop = min(start + LEAF, last)
                if k < 0:
                    inside[: stop - start] = True
                else:
                    _scan(columns, start, stop, box, n, inside)
                # Sums in registers: the compiler makes SIMD of them.
                hits, same = 0, 0
                for j in range(stop - start):
                    hits += inside[j]
                    same += inside[j] & (abs(value[start + j] - own) <= within)
                close[i] += hits
                good[i] += same
                if same < hits:
                    for j in range(stop - start):
                        if inside[j] and not abs(value[start + j] - own) <= within:
                            other[i] = start + j


# --- filling ----------------------------------------------------------------------------------------------------


@exact_kernel
def _merged(codes: Ints, n: int, tally: Ints, at: int, out_code: Ints, out_count: Ints) -> int:
    """Equal codes put together, in order; up to where ``out`` is filled. ``tally`` is zero, and is left so."""
    if len(tally) <= 8 * n:
        low, high = codes[0], codes[0]
        for i in range(n):
            tally[codes[i]] += 1
            low, high = min(low, codes[i]), max(high, codes[i])
        for code in range(low, high + 1):
            if tally[code] > 0:
                out_code[at], out_count[at] = code, tally[code]
                tally[code] = 0
                at += 1
        return at
    ordered = np.sort(codes[:n])
    i = 0
    while i < n:
        j = i
        while j < n and ordered[j] == ordered[i]:
            j += 1
        out_code[at], out_count[at] = ordered[i], j - i
        at += 1
        i = j
    return at


@exact_kernel
def fill(
    tree: Tree,
    codes: Codes,
    rows: Floats,
    nodes: Ints,
    rules: Conditions,
    start: int,
    out: Distributions,
    found_codes: Ints,
) -> int:
    """The distributions of ``rows`` (n, axes), from row ``start`` on; up to which row there was room.

    Each takes the first of the lattice's ``nodes`` (in offline order) with at least one match in the repository:
    ``out.node[i]`` is its place among them, -1 if there is none. Row i is filled with ``out.code`` from
    ``out.first[i]`` to ``out.first[i + 1]``, each as often as ``out.times`` says. ``rules`` are those of all nodes.
    ``found_codes`` has room for all rows.
    """
    begin, (of_row, tally) = tree.begin, codes
    used, limits, ranges = rules
    out_node, out_first, out_code, out_times = out
    axes = used.shape[1]
    box = Box(np.empty(axes), np.empty(axes), np.empty(axes, np.int64))
    stack, runs, inside = np.empty(128, np.int64), np.empty(len(begin), np.int64), np.empty(LEAF, np.bool_)
    for i in range(start, len(rows)):
        out_node[i], out_first[i + 1] = -1, out_first[i]
        for place in range(len(nodes)):
            v = nodes[place]
            n, holds = _box(rows[i], Conditions(used[v], limits[v], ranges[v]), box)
            if not holds:
                continue
            found = _runs(tree, box, n, stack, runs)
            total = _gather(tree, runs[:found], box, n, of_row, inside, found_codes)
            if total == 0:
                continue
            if out_first[i] + min(total, len(tally)) > len(out_code):
                return i
            out_node[i] = place
            out_first[i + 1] = _merged(found_codes, total, tally, out_first[i], out_code, out_times)
            break
    return len(rows)


@exact_kernel
def hulls(tree: Tree, rows: Floats, nodes: Ints, rules: Conditions, lows: Floats, highs: Floats) -> None:
    """Boxes around what `fill` would fill in, (n, dependents), from the leaves' least and greatest alone.

    Leaves are scanned only until the first match. Where no node matches they are the hull of the repository.
    """
    columns, begin, end, bounds = tree
    used, limits, ranges = rules
    axes, width = used.shape[1], len(columns)
    box = Box(np.empty(axes), np.empty(axes), np.empty(axes, np.int64))
    stack, runs, inside = np.empty(128, np.int64), np.empty(len(begin), np.int64), np.empty(LEAF, np.bool_)
    for i in range(len(rows)):
        for c in range(axes, width):
            lows[i, c - axes], highs[i, c - axes] = bounds[0, c, 0], bounds[0, c, 1]
        for place in range(len(nodes)):
            v = nodes[place]
            n, holds = _box(rows[i], Conditions(used[v], limits[v], ranges[v]), box)
            if not holds:
                continue
            found = _runs(tree, box, n, stack, runs)
            some = False
            for r in range(found):
                k = runs[r]
                if k < 0:
                    some = True
                else:
                    _scan(columns, begin[k], end[k], box, n, inside)
                    some = bool(np.any(inside[: end[k] - begin[k]]))
                if some:
                    break
            if not some:
                continue
            for c in range(axes, width):
                least, most = np.inf, -np.inf
                for r in range(found):
                    k = max(runs[r], ~runs[r])
                    least, most = min(least, bounds[k, c, 0]), max(most, bounds[k, c, 1])
                lows[i, c - axes], highs[i, c - axes] = least, most
            break


@exact_kernel
def thin(begins: Ints, counts: Ints, shares: Floats, most: int, places: Ints, weights: Floats, sizes: Ints) -> None:
    """At most ``most`` values of each distribution, at evenly spaced quantiles: their places and weights.

    Distribution i has ``counts[i]`` values from ``begins[i]`` on, in order; the picks go to ``places[i]`` and
    ``weights[i]``, shape (n, most), and there are ``sizes[i]``.
    """
    for i in range(len(begins)):
        if counts[i] <= most:
            for k in range(counts[i]):
                places[i, k], weights[i, k] = begins[i] + k, shares[begins[i] + k]
            sizes[i] = counts[i]
            continue
        at, passed, n = begins[i], shares[begins[i]], 0
        for k in range(most):
            wanted = (k + 0.5) / most
            while passed < wanted and at < begins[i] + counts[i] - 1:
                at += 1
                passed += shares[at]
            if n > 0 and places[i, n - 1] == at:
                weights[i, n - 1] += 1.0 / most
            else:
                places[i, n], weights[i, n] = at, 1.0 / most
                n += 1
        sizes[i] = n


@exact_kernel
def product(rows: Floats, holes: Choices, place: Ints, out: Floats, weights: Floats) -> None:
    """All choices of one value for each hole: samples of rows (n, d), those of row i from ``out[place[i]]`` on.

    The holes of all rows are in parts. A choice weighs the product of its shares (Ren et al. 2019, Definition 2.4).
    """
    begins, counts, columns, values, shares = holes
    parts = begins.shape[1]
    digits = np.zeros(parts, np.int64)
    for i in range(len(rows)):
        digits[:] = 0
        total = 1
        for p in range(parts):
            total *= counts[i, p]
        for s in range(place[i], place[i] + total):
            weight = 1.0
            for c in range(rows.shape[1]):
                out[s, c] = rows[i, c]
            for p in range(parts):
                at = begins[i, p] + digits[p]
                weight *= shares[at]
                for c in range(columns.shape[1]):
                    if columns[p, c] >= 0:
                        out[s, columns[p, c]] = values[at, c]
            weights[s] = weight
            for p in range(parts - 1, -1, -1):
                digits[p] += 1
                if digits[p] < counts[i, p]:
                    break
                digits[p] = 0
