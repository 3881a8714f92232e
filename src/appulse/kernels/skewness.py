"""Which columns are skewed to the right, and the shifts by which their logarithms are least so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats

_SKEWED = 1.0  # skewness from which on logarithms are taken
_TAIL = 0.005  # of values, on either side: outliers do not count
_LEAST, _MOST = 32, 1024  # values to judge by
_LARGE = 1e75  # beyond that nothing is done


@exact_kernel
def least_skewed(rows: Floats, shifts: Floats) -> tuple[Floats, Floats, Floats]:
    """Of each column of rows (n, d) the least value, the shift, and log(twice the range + shift).

    ``shifts`` are tried, in units of the range and in order: the more is added, the more skewed are the logarithms. A
    column that is not skewed has 0, infinity, infinity. NaN is a missing value.
    """
    d = rows.shape[1]
    low, shift, high = np.zeros(d), np.full(d, np.inf), np.full(d, np.inf)
    for k in range(d):
        known = rows[~np.isnan(rows[:, k]), k]
        count = len(known)
        if count < _LEAST or not np.abs(known).max() < _LARGE:
            continue
        ordered = np.sort(known)
        first, last = _quantile(ordered, _TAIL), _quantile(ordered, 1.0 - _TAIL)
        inner = np.minimum(np.maximum(known[:: -(-count // _MOST)], first), last)
        if not inner.max() > inner.min() or _skewness(inner) < _SKEWED:
            continue
        off = inner - ordered[0]
        tried = shifts * off.max()
        below, above = 0, len(tried) - 1
        while above - below > 1:
            middle = (below + above) // 2
            if _skewness(np.log(off + tried[middle])) > 0.0:
                above = middle
            else:
                below = middle
        under, over = abs(_skewness(np.log(off + tried[below]))), abs(_skewness(np.log(off + tried[above])))
        low[k], shift[k] = ordered[0], tried[below if under <= over else above]
        high[k] = np.log(2.0 * (ordered[count - 1] - ordered[0]) + shift[k])
    return low, shift, high


@exact_kernel
def _quantile(ordered: Floats, share: float) -> float:
    place = share * (len(ordered) - 1)
    at = int(place)
    return float(ordered[at] + (place - at) * (ordered[min(at + 1, len(ordered) - 1)] - ordered[at]))


@exact_kernel
def _skewness(values: Floats) -> float:
    off = values - values.mean()
    squares = off * off
    return float(np.dot(squares, off) / len(off) / max(squares.mean() ** 1.5, 1e-300))
