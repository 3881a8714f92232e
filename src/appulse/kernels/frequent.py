"""Values that make up much of a window: how many of its rows have each, in the mean over all possible worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel
from appulse.kernels.poisson_binomial import curve

if TYPE_CHECKING:
    from appulse.kernels.aggregates import UncertainRows
    from appulse.kernels.arrays import Floats, Ints

# Of the number of rows: a value at exactly the share makes it.
_TOLERANCE = 1e-9


@exact_kernel
def frequent(
    begin: Ints,
    end: Ints,
    held: UncertainRows,
    size: int,  # 0: no limit
    share: float,
) -> tuple[Ints, Floats, Floats]:
    """Of each window the values that at least a ``share`` of its rows have, most frequent first.

    Those of window w are from ``at[w]`` on, with their number of rows: the mean over the worlds. A row counts as far as
    it exists and is among the newest ``size`` that do.
    """
    exist, first, values, weights = held
    at = np.zeros(begin.shape[0] + 1, np.int64)
    found, counts = np.empty(256), np.empty(256)
    n = 0
    for w in range(begin.shape[0]):
        a, b = begin[w], end[w]
        offset, many = first[a], first[b] - first[a]
        chance = weights[first[a] : first[b]].copy()
        if 0 < size < b - a:
            inside = curve(exist[a:b], size)
            for i in range(a, b):
                chance[first[i] - offset : first[i + 1] - offset] *= inside[i - a]
        own = values[first[a] : first[b]]
        least = chance.sum() * (share - _TOLERANCE)
        order = np.argsort(own, kind="mergesort")
        start, k = n, 0
        while k < many:
            value, total = own[order[k]], 0.0
            while k < many and own[order[k]] == value:
                total += chance[order[k]]
                k += 1
            if total >= least and total > 0.0:
                if n == found.shape[0]:
                    found, counts = np.append(found, np.empty(n)), np.append(counts, np.empty(n))
                found[n], counts[n] = value, total
                n += 1
        ranked = np.argsort(-counts[start:n], kind="mergesort")
        found[start:n], counts[start:n] = found[start:n][ranked], counts[start:n][ranked]
        at[w + 1] = n
    return at, found[:n].copy(), counts[:n].copy()
