"""Quantiles of rows that may not exist, over all possible worlds.

The quantile q of a world is the least of its values that at least a share q of them are at most. With q = part / whole
that is a sum over rows: one that is at most x adds ``whole - part``, another one takes ``part`` away, one that is not
there does neither, and the quantile is at most x where the sum is not below 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.aggregates import UncertainRows, unit_of
from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints

_NOISE = 1e-15  # of a probability, by rounding


@exact_kernel
def uncertain(
    begin: Ints,
    end: Ints,
    held: UncertainRows,
    size: int,  # 0: no limit
    part: int,
    whole: int,
    out: NDArray[np.float64],
) -> tuple[Ints, Floats, Floats]:
    """Mean and deviation of the quantile, given that a row exists; ``out`` has a row of two per window.

    Returns the distributions, too, as `extremes` does. With ``size`` a world holds its newest so many rows.
    """
    exist, first, values, weights = held
    at = np.zeros(begin.shape[0] + 1, np.int64)
    most = 0
    for w in range(begin.shape[0]):
        most += first[end[w]] - first[begin[w]]
    found, chances = np.empty(most), np.empty(most)
    n = 0
    for w in range(begin.shape[0]):
        a, b = begin[w], end[w]
        seen = values[first[a] : first[b]]
        owner = np.empty(len(seen), np.int64)
        for i in range(a, b):
            owner[first[i] - first[a] : first[i + 1] - first[a]] = i - a
        below = np.zeros(b - a)
        order = np.argsort(seen, kind="mergesort")
        before, after, k = 0.0, np.inf, 0
        while k < len(order):
            value = seen[order[k]]
            while k < len(order) and seen[order[k]] == value:
                i = owner[order[k]]
                # Rounding may take a sum of weights beyond the existence that they sum to.
                below[i] = min(below[i] + weights[first[a] + order[k]], exist[a + i])
                k += 1
            if 0 < size < b - a:
                reached, beyond = _newest_reach(below, exist[a:b], size, part, whole)
            else:
                reached, beyond = _reach(below, exist[a:b], part, whole)
            # The difference of the smaller two loses the fewest digits.
            more = reached - before if reached < beyond or after == np.inf else after - beyond
            if more > _NOISE * min(reached, after):
                found[n], chances[n] = value, more
                n += 1
            before, after = reached, beyond
        at[w + 1] = n
        _moments(found[at[w] : n], chances[at[w] : n], out[w])
    return at, found[:n].copy(), chances[:n].copy()


@exact_kernel
def _moments(values: Floats, chances: Floats, out: Floats) -> None:
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
def _reach(below: Floats, exist: Floats, part: int, whole: int) -> tuple[float, float]:
    """The probability that there are rows, and a share of at least ``part / whole`` of them is below; or is not."""
    n = len(below)
    low, high = part * n, (whole - part) * n  # how far below and above 0 sums may be
    chance, new = np.zeros(low + high + 1), np.zeros(low + high + 1)  # of worlds that have a row
    none = 1.0
    for i in range(n):
        least, most = low - part * i, low + (whole - part) * i
        new[least - part : most + whole - part + 1] = 0.0
        absent, above = 1.0 - exist[i], exist[i] - below[i]
        for k in range(least, most + 1):
            own = chance[k]
            if own > 0.0:
                new[k] += own * absent
                new[k + whole - part] += own * below[i]
                new[k - part] += own * above
        new[low + whole - part] += none * below[i]
        new[low - part] += none * above
        none *= absent
        chance, new = new, chance
    return chance[low:].sum(), chance[:low].sum()


@exact_kernel
def _newest_reach(below: Floats, exist: Floats, size: int, part: int, whole: int) -> tuple[float, float]:
    """As `_reach`, of the newest ``size`` rows that exist."""
    chance = np.zeros((size + 1, size + 1))  # of so many rows, so many below
    chance[0, 0] = 1.0
    for i in range(len(below) - 1, -1, -1):
        above = exist[i] - below[i]
        for count in range(size - 1, -1, -1):
            for k in range(count, -1, -1):
                own = chance[count, k]
                if own > 0.0:
                    chance[count + 1, k + 1] += own * below[i]
                    chance[count + 1, k] += own * above
                    chance[count, k] = own * (1.0 - exist[i])
    reached = beyond = 0.0
    for count in range(1, size + 1):
        for k in range(count + 1):
            if k * whole >= part * count:
                reached += chance[count, k]
            else:
                beyond += chance[count, k]
    return reached, beyond
