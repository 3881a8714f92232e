"""Rows in rings around others, in the order of cells: the near ones first, the rest only of rows that still need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.ball_table import BallTable, looked_up
from appulse.kernels.cells import CellRows, CloseRule, move_on
from appulse.kernels.grid import SLACK
from appulse.kernels.jit import inlined_kernel, kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints, Whole

# Rows near to one row for which there is room at first.
_NEAR = 1 << 10


class Ring(NamedTuple):
    """Which rows are wanted of each left row: beyond ``inner`` and within ``outer``, the own row left out.

    Where ``outer`` is below 0 it is the rule's limit and both extents, or of ``joint`` ones, which are multiples of
    deviations, their root of squares. Strips reach ``rim`` cells to either side. A row
    is ``cut`` short once it has at least ``most``, at the end of a strip.
    """

    inner: Floats  # squared, of each row; below 0 for none
    outer: float  # squared
    joint: bool
    rim: int
    most: int
    cut: Flags


@kernel
def ring_rows(
    begin: Whole,
    rows: Ints,
    strips: Ints,
    rule: CloseRule,
    ring: Ring,
    sides: tuple[CellRows, CellRows],
    to_left: Ints,
    to_right: Ints,
) -> tuple[Whole, int, int]:
    """The pairs of some left rows, in order, from the one at ``begin`` on, with right rows of their rings.

    Returns the row to go on with, before the end where there is no room left; how many pairs there are; and how many
    rows were looked at.
    """
    limit, before, after, own, _, _ = rule
    inner, outer, joint, rim, most, cut = ring
    left, right = sides
    capacity, d = len(to_left), left.centre.shape[1]
    count = looked = 0
    at, until = np.empty(len(strips), np.int64), np.empty(len(strips), np.int64)
    for s in range(len(strips)):
        at[s] = np.searchsorted(right.code, left.code[rows[begin]] + strips[s] - rim)
    known, total = np.int64(-1), 0
    for i in range(begin, len(rows)):
        p = rows[i]
        code = left.code[p]
        if code != known:
            known, total = code, move_on(code, strips, rim, right.code, at, until)
        if count + total > capacity:
            return i, count, looked
        time, first, least = left.time[p], count, inner[i]
        oldest, newest = time - before, time + after
        itself = p if own else -1
        cut[i] = False
        for s in range(len(strips)):
            looked += until[s] - at[s]
            # Without branches, as in `close_rows`.
            if outer >= 0.0 and d == 2:
                x, y = left.centre[p, 0], left.centre[p, 1]
                for r in range(at[s], until[s]):
                    u, v = x - right.centre[r, 0], y - right.centre[r, 1]
                    square = u * u + v * v
                    to_left[count], to_right[count] = p, r
                    t = right.time[r]
                    near = (square <= outer) & (square > least) & (r != itself)
                    count += near & (t >= oldest) & (t <= newest)
            else:
                for r in range(at[s], until[s]):
                    square = 0.0
                    for k in range(d):
                        gap = left.centre[p, k] - right.centre[r, k]
                        square += gap * gap
                    far = outer
                    if outer < 0.0:
                        a, b = left.extent[p], right.extent[r]
                        reach = limit + (np.sqrt(a * a + b * b) if joint else a + b)
                        far = reach * reach * (1.0 + SLACK)
                    to_left[count], to_right[count] = p, r
                    t = right.time[r]
                    near = (square <= far) & (square > least) & (r != itself)
                    count += near & (t >= oldest) & (t <= newest)
            if count - first >= most and s + 1 < len(strips):
                cut[i] = True
                break
    return len(rows), count, looked


class Counting(NamedTuple):
    """Which partners count: ``inner < square <= outer``, right rows up to ``before`` older and ``after`` newer.

    With ``both`` they are of one table, each pair is met once, and counts for both. A row is ``certain`` to have many
    partners once few are less likely than that. Pairs less likely than ``least`` do not count.
    """

    inner: float
    outer: float
    before: int
    after: int
    rim: int
    both: bool
    least: float
    certain: float


class Tally(NamedTuple):
    """What is counted of each row, which rows are still open, and partners of rows of other parts."""

    counts: Floats
    open: Flags
    row: Ints
    chance: Floats


@inlined_kernel
def _add(tally: Tally, row: Whole, chance: float, certain: float) -> None:
    """One more partner of a row."""
    counts, n = tally.counts, tally.counts.shape[1] - 1
    p, few = min(1.0, chance), 0.0
    for k in range(n - 1, 0, -1):
        counts[row, k] = counts[row, k] * (1.0 - p) + counts[row, k - 1] * p
        few += counts[row, k]
    counts[row, 0] *= 1.0 - p
    counts[row, n] += p
    tally.open[row] &= few + counts[row, 0] >= certain


@kernel
def count_close(
    begin: Whole,
    rows: Ints,
    strips: Ints,
    rule: Counting,
    table: BallTable,
    sides: tuple[CellRows, CellRows],
    mass: tuple[Floats, Floats],
    tally: Tally,
) -> tuple[Whole, int, int, int]:
    """Count the partners of ``rows``, which follow each other if they count for both, from the one at ``begin`` on.

    All pairs have one deviation, that of the ``table``; without it they are points. Returns the row to go on with,
    before the end where there is no room for partners of other parts; how many of these there are; how many rows were
    looked at; and how many pairs were evaluated.
    """
    inner, outer, before, after, rim, both, least, certain = rule
    left, right = sides
    d, end = left.centre.shape[1], rows[-1] + 1
    near, squares = np.empty(_NEAR, np.int64), np.empty(_NEAR, np.float64)
    spilled = looked = evaluated = 0
    at, until = np.empty(len(strips), np.int64), np.empty(len(strips), np.int64)
    for s in range(len(strips)):
        at[s] = np.searchsorted(right.code, left.code[rows[begin]] + strips[s] - rim)
    known, total = np.int64(-1), 0
    for i in range(begin, len(rows)):
        p = rows[i]
        code = left.code[p]
        if code != known:
            known, total = code, move_on(code, strips, rim, right.code, at, until)
        if spilled + total > len(tally.row):
            return i, spilled, looked, evaluated
        looked += total
        if total > len(near):
            near, squares = np.empty(2 * total, np.int64), np.empty(2 * total, np.float64)
        time, many = left.time[p], 0
        oldest, newest = time - before, time + after
        for s in range(len(strips)):
            first = max(at[s], p + 1) if both and strips[s] == 0 else at[s]
            # Without branches: which rows are near cannot be foreseen.
            if d == 2:
                x, y = left.centre[p, 0], left.centre[p, 1]
                for r in range(first, until[s]):
                    u, v = x - right.centre[r, 0], y - right.centre[r, 1]
                    square = u * u + v * v
                    near[many], squares[many] = r, square
                    t = right.time[r]
                    many += (square <= outer) & (square > inner) & (t >= oldest) & (t <= newest)
            else:
                for r in range(first, until[s]):
                    square = 0.0
                    for k in range(d):
                        gap = left.centre[p, k] - right.centre[r, k]
                        square += gap * gap
                    near[many], squares[many] = r, square
                    t = right.time[r]
                    many += (square <= outer) & (square > inner) & (t >= oldest) & (t <= newest)
        own, wanted = mass[0][p], tally.open[p]
        if both and not wanted:
            kept = 0
            for e in range(many):
                near[kept], squares[kept] = near[e], squares[e]
                kept += near[e] >= end or tally.open[near[e]]
            many = kept
        elif not wanted:
            many = 0
        evaluated += many
        # One look-up does not wait for the other.
        for e in range(many):
            squares[e] = looked_up(table, np.sqrt(squares[e])) if table.pieces.shape[0] else 1.0
        for e in range(many):
            r, chance = near[e], squares[e]
            other = mass[1][r]
            if chance * own * other < least:
                continue
            if wanted:
                _add(tally, p, chance * other, certain)
            if both and r >= end:
                tally.row[spilled], tally.chance[spilled] = r, chance * own
                spilled += 1
            elif both and tally.open[r]:
                _add(tally, r, chance * own, certain)
            elif not both and not tally.open[p]:
                break
    return len(rows), spilled, looked, evaluated
