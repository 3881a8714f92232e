"""Whole tables in order of their cells: rows that are near each other lie near each other in memory.

Each row has the code of its cell, a whole number in which the last coordinate runs fastest, and rows are sorted by it.
The rows that one row can meet lie in a few *strips*, three cells long, one for each neighbour along the other
coordinates. As the left rows are gone through in order, each strip moves forward through the right rows: there is no
directory of cells, so rows may be spread in any way, and memory is read in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.grid import SLACK
from appulse.kernels.jit import inlined_kernel, kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints, Whole

# Bits of a code that are sorted in one pass: the counters fit the first cache.
_DIGIT = 11
# Rows that stay in the nearest cache while each of their coordinates is looked at.
_BLOCK = 1 << 10
# Rows near to one row for which there is room at first.
_NEAR = 1 << 10


class Layout(NamedTuple):
    """Where cells are: coordinates ``dims`` from ``low`` on, ``width`` of them each, ``rim`` empty ones at each end.

    Slots of time and groups come before them; a ``slot`` of 0 is none.
    """

    dims: Ints
    low: Floats
    inverse_side: Floats
    width: Ints
    first_time: int
    slot: int
    slots: int
    rim: int


class CellRows(NamedTuple):
    """The rows of a table, sorted by the codes of their cells."""

    code: Ints
    time: Ints
    centre: Floats
    extent: Floats
    differ: Ints


class CloseRule(NamedTuple):
    """Which rows are candidates: centres within ``limit`` and both extents, times apart as windows have it."""

    limit: float
    before: int  # how much older the right row may be
    after: int
    own: bool  # rows of one table, each pair once
    points: bool  # no row of either side has an extent
    check_differ: bool


@kernel
def extremes(centre: Floats, low: Floats, high: Floats) -> None:
    """The least and the greatest of each coordinate.

    In blocks of rows that stay in the nearest cache, one coordinate after another, each in two registers.
    """
    n, d = centre.shape
    for k in range(d):
        low[k] = high[k] = centre[0, k]
    for begin in range(0, n, _BLOCK):
        for k in range(d):
            least, most = low[k], high[k]
            for i in range(begin, min(n, begin + _BLOCK)):
                least, most = min(least, centre[i, k]), max(most, centre[i, k])
            low[k], high[k] = least, most


@kernel
def cell_codes(layout: Layout, centre: Floats, time: Ints, group: Ints, out: Ints) -> None:
    """The code of each row's cell."""
    dims, low, inverse_side, width, first_time, slot, slots, rim = layout
    for i in range(len(out)):
        code = group[i]
        if slot > 0:
            code = code * slots + (time[i] - first_time) // slot + 1
        for k in range(len(dims)):
            at = np.int64((centre[i, dims[k]] - low[k]) * inverse_side[k])
            # Every coordinate keeps clear of the rim, so that no strip reaches the next line's cells.
            code = code * width[k] + min(max(at, 0), width[k] - 2 * rim - 1) + rim
        out[i] = code


@kernel
def packed_order(code: Ints, bits: int, index_bits: int) -> tuple[Ints, Ints]:
    """Codes of so many ``bits`` in order, and where each was; equal ones stay in order. Least digits first."""
    return packed_order_in(code, bits, index_bits, np.empty(len(code), np.int64), np.empty(len(code), np.int64))


@kernel
def packed_order_in(code: Ints, bits: int, index_bits: int, words: Ints, other: Ints) -> tuple[Ints, Ints]:
    """The same, in two arrays that are given.

    A code and a place share a word, so that half as much memory moves.
    """
    n = len(code)
    for i in range(n):
        words[i] = (code[i] << index_bits) | i
    begin = np.empty(1 << _DIGIT, np.int64)
    mask = (1 << _DIGIT) - 1
    for shift in range(index_bits, index_bits + bits, _DIGIT):
        begin[:] = 0
        for i in range(n):
            begin[(words[i] >> shift) & mask] += 1
        total = 0
        for digit in range(len(begin)):
            many = begin[digit]
            begin[digit] = total
            total += many
        for i in range(n):
            digit = (words[i] >> shift) & mask
            other[begin[digit]] = words[i]
            begin[digit] += 1
        words, other = other, words
    low = (1 << index_bits) - 1
    for i in range(n):
        other[i] = words[i] & low
        words[i] >>= index_bits
    return words, other


@kernel
def wide_order(code: Ints, bits: int) -> tuple[Ints, Ints]:
    """As `packed_order`, of codes too wide to share a word with a place."""
    n, mask = len(code), (1 << _DIGIT) - 1
    codes, order = code.copy(), np.arange(n)
    other_codes, other_order = np.empty(n, np.int64), np.empty(n, np.int64)
    begin = np.empty(1 << _DIGIT, np.int64)
    for shift in range(0, bits, _DIGIT):
        begin[:] = 0
        for i in range(n):
            begin[(codes[i] >> shift) & mask] += 1
        total = 0
        for digit in range(len(begin)):
            many = begin[digit]
            begin[digit] = total
            total += many
        for i in range(n):
            digit = (codes[i] >> shift) & mask
            other_codes[begin[digit]], other_order[begin[digit]] = codes[i], order[i]
            begin[digit] += 1
        codes, other_codes, order, other_order = other_codes, codes, other_order, order
    return codes, order


@kernel
def take_triples(rows: Floats, order: Ints, out: Floats) -> None:
    """Rows of three coordinates in another order; NumPy copies each by a call."""
    for i in range(len(order)):
        row = order[i]
        out[i, 0], out[i, 1], out[i, 2] = rows[row, 0], rows[row, 1], rows[row, 2]


@inlined_kernel
def move_on(code: Whole, strips: Ints, rim: int, codes: Ints, at: Ints, until: Ints) -> int:
    """Move the strips on to a cell, ``rim`` cells to either side of it.

    Where each begins and ends among the right rows, and how many rows are in all.
    """
    total = 0
    for s in range(len(strips)):
        low = code + strips[s] - rim
        at[s] = _first_from(low, codes, at[s])
        until[s] = _first_from(low + 2 * rim + 1, codes, at[s])
        total += until[s] - at[s]
    return total


@inlined_kernel
def _first_from(low: Whole, codes: Ints, at: Whole) -> Whole:
    """The first of the codes from ``at`` on that is not below ``low``.

    Where few rows share a cell it is one of the next few, and which cannot be foreseen: they are counted, as a wrong
    guess costs more than four comparisons.
    """
    if at + 4 <= len(codes):
        below = (codes[at] < low) + (codes[at + 1] < low) + (codes[at + 2] < low) + (codes[at + 3] < low)
        at += below
        if below < 4:
            return at
    while at < len(codes) and codes[at] < low:
        at += 1
    return at


@kernel
def close_rows(
    begin: Whole,
    end: Whole,
    strips: Ints,
    rule: CloseRule,
    left: CellRows,
    right: CellRows,
    to_left: Ints,
    to_right: Ints,
) -> tuple[Whole, int, int]:
    """The pairs of left rows from ``begin`` to ``end`` with right rows in the ``strips`` that are candidates.

    Returns the left row to go on with, before ``end`` where there is no room left; how many pairs there are; and how
    many rows were looked at.
    """
    limit, before, after, own, points, check_differ = rule
    square_limit = limit * limit * (1.0 + SLACK)
    capacity, d = len(to_left), left.centre.shape[1]
    count = looked = 0
    at, until = np.empty(len(strips), np.int64), np.empty(len(strips), np.int64)
    for s in range(len(strips)):
        at[s] = np.searchsorted(right.code, left.code[begin] + strips[s] - 1)
    known, total = np.int64(-1), 0
    for p in range(begin, end):
        code = left.code[p]
        if code != known:
            known, total = code, move_on(code, strips, 1, right.code, at, until)
        if count + total >= capacity:
            return p, count, looked
        time = left.time[p]
        oldest, newest = time - before, time + after
        for s in range(len(strips)):
            b = max(at[s], p + 1) if own and strips[s] == 0 else at[s]
            e = until[s]
            looked += max(0, e - b)
            first = count
            # Without branches: which rows are near cannot be foreseen, a wrong guess costs more than three writes.
            if points and d == 1:
                x = left.centre[p, 0]
                # Nor can be whether there are rows at all: two are looked at anyway.
                for r in range(b, max(e, min(b + 2, len(right.code)))):
                    u = x - right.centre[r, 0]
                    to_left[count], to_right[count] = p, r
                    t = right.time[r]
                    count += (r < e) & (u * u <= square_limit) & (t >= oldest) & (t <= newest)
            elif points and d == 2:
                x, y = left.centre[p, 0], left.centre[p, 1]
                for r in range(b, e):
                    u, v = x - right.centre[r, 0], y - right.centre[r, 1]
                    to_left[count], to_right[count] = p, r
                    t = right.time[r]
                    count += (u * u + v * v <= square_limit) & (t >= oldest) & (t <= newest)
            elif points and d == 3:
                x, y, z = left.centre[p, 0], left.centre[p, 1], left.centre[p, 2]
                for r in range(b, e):
                    u, v, w = x - right.centre[r, 0], y - right.centre[r, 1], z - right.centre[r, 2]
                    to_left[count], to_right[count] = p, r
                    t = right.time[r]
                    count += (u * u + v * v + w * w <= square_limit) & (t >= oldest) & (t <= newest)
            else:
                for r in range(b, e):
                    square = 0.0
                    for k in range(d):
                        gap = left.centre[p, k] - right.centre[r, k]
                        square += gap * gap
                    far = limit
                    if not points:
                        far = limit + left.extent[p] + right.extent[r]
                    to_left[count], to_right[count] = p, r
                    t = right.time[r]
                    count += (square <= far * far * (1.0 + SLACK)) & (t >= oldest) & (t <= newest)
            if check_differ:
                kept = first
                for i in range(first, count):
                    mine, theirs = left.differ[p], right.differ[to_right[i]]
                    to_right[kept] = to_right[i]
                    kept += (mine != 0) & (theirs != 0) & (mine != theirs)
                count = kept
    return end, count, looked


class PairColumns(NamedTuple):
    """Room for pairs: eight bytes of each side's key and time, as they are, and the distance."""

    left_key: Ints
    left_time: Ints
    right_key: Ints
    right_time: Ints
    distance: Floats


class Labelled(NamedTuple):
    """What stands for a row in pairs: eight bytes of its key and of its time, in the order of the cells."""

    key: Ints
    time: Ints


@kernel
def close_points(
    begin: Whole,
    end: Whole,
    strips: Ints,
    rule: CloseRule,
    sides: tuple[CellRows, CellRows],
    labels: tuple[Labelled, Labelled],
    out: PairColumns,
) -> tuple[Whole, int, int]:
    """As `close_rows`, of points that exist: a pair within the limit is an answer, and is written as such at once.

    Columns that are written while a pair is at hand need not be gathered later from all over the tables.
    """
    limit, before, after, _, _, _ = rule
    left, right = sides
    own, other = labels
    capacity, d = len(out.distance), left.centre.shape[1]
    square_limit = limit * limit
    near, squares = np.empty(_NEAR, np.int64), np.empty(_NEAR, np.float64)
    count = looked = 0
    at, until = np.empty(len(strips), np.int64), np.empty(len(strips), np.int64)
    for s in range(len(strips)):
        at[s] = np.searchsorted(right.code, left.code[begin] + strips[s] - 1)
    known, total = np.int64(-1), 0
    for p in range(begin, end):
        code = left.code[p]
        if code != known:
            known, total = code, move_on(code, strips, 1, right.code, at, until)
        if count + total > capacity:
            return p, count, looked
        looked += total
        if total > len(near):
            near, squares = np.empty(2 * total, np.int64), np.empty(2 * total, np.float64)
        time, many = left.time[p], 0
        oldest, newest = time - before, time + after
        for s in range(len(strips)):
            # Without branches, as in `close_rows`.
            if d == 2:
                x, y = left.centre[p, 0], left.centre[p, 1]
                for r in range(at[s], until[s]):
                    u, v = x - right.centre[r, 0], y - right.centre[r, 1]
                    square = u * u + v * v
                    near[many], squares[many] = r, square
                    t = right.time[r]
                    many += (square <= square_limit) & (t >= oldest) & (t <= newest)
            elif d == 1:
                x = left.centre[p, 0]
                for r in range(at[s], until[s]):
                    u = x - right.centre[r, 0]
                    near[many], squares[many] = r, u * u
                    t = right.time[r]
                    many += (u * u <= square_limit) & (t >= oldest) & (t <= newest)
            else:
                for r in range(at[s], until[s]):
                    square = 0.0
                    for k in range(d):
                        gap = left.centre[p, k] - right.centre[r, k]
                        square += gap * gap
                    near[many], squares[many] = r, square
                    t = right.time[r]
                    many += (square <= square_limit) & (t >= oldest) & (t <= newest)
        for i in range(many):
            r = near[i]
            out.left_key[count], out.left_time[count] = own.key[p], own.time[p]
            out.right_key[count], out.right_time[count] = other.key[r], other.time[r]
            out.distance[count] = np.sqrt(squares[i])
            count += 1
    return end, count, looked
