"""The extreme value of windows of rows that may not exist, over all possible worlds.

Few rows of a long window can hold its extreme: those that may be beyond what other rows are likely to have. So the best
and the worst value of each row are known first, and of a window only the samples of such rows are put in order.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.aggregates import TINY, UncertainRows, mixture
from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints

# Extremes are looked for until less than this part of the probability is left.
_REST = 1e-15
# Logarithms of the chance that no row reaches a value. Below the first, worse values change no double. A limit for
# values is chosen at the third, and kept as long as its chance is between the second and the fourth.
_NOTHING, _LITTLE, _WANTED, _FAR = -40.0, -45.0, -80.0, -160.0


@exact_kernel
def extremes(
    begin: Ints,
    end: Ints,
    held: UncertainRows,
    size: int,  # 0: no limit
    sign: float,  # 1: the greatest, -1: the least
    out: NDArray[np.float64],
) -> tuple[Ints, Floats, Floats]:
    """Mean and deviation of the extreme existing value, given that there is one; ``out`` has a row of two per window.

    Returns the distributions, too: of window w the values, from the extreme on, and probabilities from ``at[w]`` on.
    Values are scanned until what is left is nothing; the probability that none is beyond is a product, or, where the
    window holds only the newest existing rows, a sum over how many there are.
    """
    exist, first, values, _ = held
    best, worst, absent = _reaches(exist, first, values, sign)
    at = np.zeros(begin.shape[0] + 1, np.int64)
    found, chances = np.empty(256), np.empty(256)
    n = 0
    enough = -np.inf
    for w in range(begin.shape[0]):
        a, b = begin[w], end[w]
        limited = 0 < size < b - a
        # A row that certainly is in the window bars whatever lies beyond its worst value.
        bar = -np.inf
        for i in range(max(a, b - size) if size > 0 else a, b):
            if exist[i] == 1.0:
                bar = max(bar, worst[i])
        if bar == -np.inf and not limited:
            bar = enough = _reached(worst[a:b], absent[a:b], enough)
        seen, owner, chance = _candidates(a, b, held, best, bar, sign)
        order = np.argsort(seen, kind="mergesort")
        exists = _exists(absent[a:b])
        above = np.zeros(b - a)
        band = np.empty(b - a + 2 if limited else 0)
        none, before = 0.0, 0.0
        k = 0
        while k < len(seen) and exists - before > _REST * exists and none > _NOTHING:
            value, least = seen[order[k]], none
            while k < len(seen) and seen[order[k]] == value:
                i = owner[order[k]]
                # Rounding may take a sum of weights beyond the existence that they sum to.
                more = min(above[i] + chance[order[k]], exist[a + i])
                if not limited and more > above[i]:
                    none += math.log1p(-more) - math.log1p(-above[i])
                above[i] = more
                k += 1
            if limited:
                part = _above(a, b, exist, above, size, band) - before
            else:
                part = -math.expm1(none - least) * math.exp(least)
            if part > 0.0:
                before += part
                if n == found.shape[0]:
                    found, chances = np.append(found, np.empty(n)), np.append(chances, np.empty(n))
                found[n], chances[n] = -sign * value, part
                n += 1
        at[w + 1] = n
        out[w] = np.nan
        if n > at[w]:
            chances[at[w] : n] /= chances[at[w] : n].sum()
            out[w, 0], _, out[w, 1] = mixture(found[at[w] : n], chances[at[w] : n])
    return at, found[:n], chances[:n]


@exact_kernel
def _reaches(exist: Floats, first: Ints, values: Floats, sign: float) -> tuple[Floats, Floats, Floats]:
    """Of each row its best and its worst value, and the logarithm of the chance that it is absent."""
    rows = exist.shape[0]
    best, worst, absent = np.full(rows, -np.inf), np.full(rows, np.inf), np.empty(rows)
    for i in range(rows):
        for s in range(first[i], first[i + 1]):
            best[i], worst[i] = max(best[i], sign * values[s]), min(worst[i], sign * values[s])
        absent[i] = math.log1p(-exist[i]) if exist[i] < 1.0 else -np.inf
    return best, worst, absent


@exact_kernel
def _reached(worst: Floats, absent: Floats, before: float) -> float:
    """A value that some row surely reaches, but for a chance of nothing: ``before`` if it is one, and not too far."""
    none = 0.0
    for i in range(len(worst)):
        if worst[i] >= before:
            none += absent[i]
    if (none <= _LITTLE or before == -np.inf) and none >= _FAR:
        return before
    order = np.argsort(-worst, kind="mergesort")
    none = 0.0
    for i in order:
        none += absent[i]
        if none <= _WANTED:
            return float(worst[i])
    return -np.inf


@exact_kernel
def _candidates(
    a: int, b: int, held: UncertainRows, best: Floats, bar: float, sign: float
) -> tuple[Floats, Ints, Floats]:
    """The samples of rows ``a`` to ``b`` that reach the bar: their values, the best least, their rows and weights."""
    _, first, values, weights = held
    count = 0
    for i in range(a, b):
        if best[i] >= bar:
            count += first[i + 1] - first[i]
    seen, owner, chance = np.empty(count), np.empty(count, np.int64), np.empty(count)
    count = 0
    for i in range(a, b):
        if best[i] >= bar:
            for s in range(first[i], first[i + 1]):
                if sign * values[s] >= bar:
                    seen[count], owner[count], chance[count] = -sign * values[s], i - a, weights[s]
                    count += 1
    return seen[:count], owner[:count], chance[:count]


@exact_kernel
def _exists(absent: Floats) -> float:
    """The chance that a row exists; ``absent`` has the logarithms of the chances that they do not."""
    none = 0.0
    for i in range(len(absent) - 1, -1, -1):
        none += absent[i]
        if none < _NOTHING:
            return 1.0
    return -math.expm1(none)


@exact_kernel
def _above(begin: int, end: int, exist: Floats, above: Floats, size: int, band: Floats) -> float:
    """The probability that one of the newest ``size`` existing rows is above; ``above`` is that of each row."""
    low = high = 0
    band[0] = 1.0
    found = 0.0
    for i in range(end - 1, begin - 1, -1):
        over = above[i - begin]
        below, absent = exist[i] - over, 1.0 - exist[i]
        for a in range(low, high + 1):
            found += band[a] * over
        if absent > 0.0:
            high += 1
            band[high] = 0.0
        for a in range(high, low, -1):
            band[a] = band[a] * below + band[a - 1] * absent
        band[low] *= below
        # Where nobody was absent but so few, the window is full: nothing more can be found in these worlds.
        if end - i - low == size:
            low += 1
        while low <= high and band[low] < TINY:
            low += 1
        while low <= high and band[high] < TINY:
            high -= 1
        if low > high:
            break
    return found
