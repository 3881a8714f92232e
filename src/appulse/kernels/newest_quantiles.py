"""Quantiles of the newest so many rows that exist, over all possible worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel
from appulse.kernels.quantiles import moments_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.aggregates import UncertainRows
    from appulse.kernels.arrays import Floats, Ints

_NOISE = 1e-15  # of a probability, by rounding


@exact_kernel
def newest(
    begin: Ints,
    end: Ints,
    held: UncertainRows,
    size: int,
    part: int,
    whole: int,
    out: NDArray[np.float64],
) -> tuple[Ints, Floats, Floats]:
    """As `uncertain`, of the newest ``size`` rows that exist in each world; anew for each value."""
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
            reached, beyond = _newest_reach(below, exist[a:b], min(size, b - a), part, whole)
            # The difference of the smaller two loses the fewest digits.
            more = reached - before if reached < beyond or after == np.inf else after - beyond
            if more > _NOISE * min(reached, after):
                found[n], chances[n] = value, more
                n += 1
            before, after = reached, beyond
        at[w + 1] = n
        moments_of(found[at[w] : n], chances[at[w] : n], out[w])
    return at, found[:n].copy(), chances[:n].copy()


@exact_kernel
def _newest_reach(below: Floats, exist: Floats, size: int, part: int, whole: int) -> tuple[float, float]:
    """The chance that of the newest ``size`` rows that exist a share of ``part / whole`` is below; or is not."""
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
