"""Quantiles of rows that may not exist, over all possible worlds.

The quantile q of a world is the least of its values that at least a share q of them are at most. As x rises over the
values of all rows, one row after the other comes to be at most x. The quantile comes to be at most x, too, where the
row *decides*: where the others are such that it is if the row is, and is not if the row is not. So the chance of each
value is that of its row to have it, times the chance of the others to be so. Nothing is taken from anything: small
chances have as many digits as large ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.aggregates import UncertainRows, unit_of
from appulse.kernels.deciding_rows import Steps, descend, halves, level_after, pass_points
from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints


@exact_kernel
def uncertain(
    begin: Ints,
    end: Ints,
    held: UncertainRows,
    part: int,
    whole: int,
    out: NDArray[np.float64],
    keep: bool,
) -> tuple[Ints, Floats, Floats]:
    """Mean and deviation of the quantile, given that a row exists; ``out`` has a row of two per window.

    Returns the distributions, too, as `extremes` does, where they are to be kept: of many windows they are much larger
    than the rows.
    """
    exist, first, values, weights = held
    at = np.zeros(begin.shape[0] + 1, np.int64)
    found, chances = np.empty(256), np.empty(256)
    for w in range(begin.shape[0]):
        a, b = begin[w], end[w]
        own = exist[a:b]
        seen, owner, reach = _points(first[a : b + 1], values, weights, own)
        chance = np.zeros(len(seen))
        _decide(owner, reach, own, part, whole, chance)
        start = n = at[w]
        if n + len(seen) > len(found):
            more = np.empty(n + len(seen))
            found, chances = np.append(found, more), np.append(chances, more)
        k = 0
        while k < len(seen):
            value, total = seen[k], 0.0
            while k < len(seen) and seen[k] == value:
                total += chance[k]
                k += 1
            if total > 0.0:
                found[n], chances[n] = value, total
                n += 1
        moments_of(found[start:n], chances[start:n], out[w])
        at[w + 1] = n if keep else 0
    return at, found[: at[-1]].copy(), chances[: at[-1]].copy()


@exact_kernel
def _points(first: Ints, values: Floats, weights: Floats, exist: Floats) -> tuple[Floats, Ints, Floats]:
    """Samples in order of value: the values, their rows, and the chances that the row is at most that."""
    n = 0
    for s in range(first[0], first[-1]):
        n += weights[s] > 0.0
    seen, owner, weight, left = np.empty(n), np.empty(n, np.int64), np.empty(n), np.zeros(len(exist), np.int64)
    n = 0
    for i in range(len(exist)):
        for s in range(first[i], first[i + 1]):
            if weights[s] > 0.0:
                seen[n], owner[n], weight[n] = values[s], i, weights[s]
                left[i] += 1
                n += 1
    order = np.argsort(seen, kind="mergesort")
    reach, below = np.empty(n), np.zeros(len(exist))
    for k in range(n):
        i = owner[order[k]]
        left[i] -= 1
        # Rounding takes a sum of weights beyond the existence that they sum to, or leaves something of it.
        below[i] = min(below[i] + weight[order[k]], exist[i]) if left[i] > 0 else exist[i]
        reach[k] = below[i]
    return seen[order], owner[order], reach


@exact_kernel
def moments_of(values: Floats, chances: Floats, out: Floats) -> None:
    """Mean and deviation of values with chances; NaN of none."""
    out[:] = np.nan
    total = chances.sum()
    if total > 0.0:
        unit = unit_of(values)
        start = values[0] / unit
        mean = squares = 0.0
        for i in range(len(values)):
            mean += chances[i] / total * (values[i] / unit - start)
        for i in range(len(values)):
            squares += chances[i] / total * (values[i] / unit - start - mean) ** 2
        out[0], out[1] = (start + mean) * unit, math.sqrt(squares) * unit


@exact_kernel
def _least_line(part: int, whole: int, least: int, most: int) -> tuple[int, int, int]:
    """The part, the least whole and a shift that give the same ranks of the quantile in ``least`` to ``most`` rows.

    Of n rows the rank is part / whole of n, rounded up. A line of smaller numbers may round to the same ranks: where
    all rows exist that is 0 / 1 of n, and the rank itself as a shift.
    """
    for other in range(1, whole):
        for slope in range(part * other // whole, part * other // whole + 2):
            low, high = -(1 << 60), 1 << 60
            for n in range(least, most + 1):
                # (slope n + shift) / other is above the rank less 1, and at most the rank.
                top = -(-part * n // whole) * other - slope * n
                low, high = max(low, top - other + 1), min(high, top)
                if low > high:
                    break
            if low <= high:
                return slope, other, high
    return part, whole, 0


@exact_kernel
def _decide(owner: Ints, reach: Floats, exist: Floats, part: int, whole: int, chance: Floats) -> None:
    """The chance that the quantile moves to each point, where all rows count that exist.

    With a share of part / whole a row that is at most x adds whole - part to a sum, another one takes part away, and
    the quantile is at most x where the sum is not below 0. The sum has as many values as rows times whole, so that is
    made small first.
    """
    rows, certain = len(exist), 0
    for p in exist:
        certain += p == 1.0
    down, whole, shift = _least_line(part, whole, max(1, certain), rows)
    steps = Steps(down, whole - down)
    to = halves(owner, rows, steps, -shift, rows * whole // 2 + 1)
    k = level = 0
    while k < len(owner):
        level, end = descend(to, k, level, exist, steps)
        begin, _, n, buffer = to.state[level]
        pass_points(to, k, end, reach, to.chances[buffer, begin : begin + n].sum(), chance)
        k, level = end, level_after(to, end)
