"""Contestants of the uncertain windows, compiled: other ways to a CDF, and the join that compares everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from appulse.kernels.jit import exact_kernel, kernel
from appulse.kernels.poisson_binomial import approximate, sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints

_LEAF = 128


@kernel
def rf1(exist: Floats, most: int) -> float:
    """Pr(at most ``most`` exist) by the recursion RF1 (Eq. 10): n steps over most + 1 counts."""
    n = exist.shape[0]
    if most >= n:
        return 1.0
    before = np.zeros(most + 2)
    after = np.zeros(most + 2)
    before[0] = 1.0
    for j in range(n):
        p = exist[j]
        q = 1.0 - p
        top = min(j + 1, most)
        after[0] = before[0] * q
        for k in range(1, top + 1):
            after[k] = before[k] * q + before[k - 1] * p
        before, after = after, before
    return float(before[: most + 1].sum())


@kernel
def dynamic_programming(exist: Floats) -> NDArray[np.float64]:
    """The whole mass function, a row at a time: n^2 steps."""
    n = exist.shape[0]
    before = np.zeros(n + 1)
    after = np.zeros(n + 1)
    before[0] = 1.0
    for j in range(n):
        p = exist[j]
        q = 1.0 - p
        after[0] = before[0] * q
        for k in range(1, j + 2):
            after[k] = before[k] * q + before[k - 1] * p
        before, after = after, before
    return before


def divide_and_conquer(exist: NDArray[np.float64]) -> NDArray[np.float64]:
    """The whole mass function: halves multiplied by FFT, small ones by dynamic programming."""
    if len(exist) <= _LEAF:
        return dynamic_programming(exist)
    half = len(exist) // 2
    left, right = divide_and_conquer(exist[:half]), divide_and_conquer(exist[half:])
    n = len(exist) + 1
    size = next_fast_len(n, real=True)
    product: NDArray[np.float64] = irfft(rfft(left, size) * rfft(right, size), size)[:n]
    return np.maximum(product, 0.0)


@kernel
def cdf_by_approximation(method: int, exist: Floats, most: int) -> float:
    """Pr(at most ``most`` exist) by an approximation, its sums included."""
    mean = variance = third = 0.0
    for p in exist:
        v = p * (1.0 - p)
        mean += p
        variance += v
        third += v * (1.0 - 2.0 * p)
    return approximate(method, most, mean, variance, third)


@kernel
def cdfs_by_approximation(method: int, exist: Floats) -> NDArray[np.float64]:
    """Pr(at most k exist) by an approximation, for k from 0 to n."""
    out = np.empty(exist.shape[0] + 1)
    for k in range(out.shape[0]):
        out[k] = cdf_by_approximation(method, exist, k)
    return out


@kernel
def slide_by_rf1(exist: Floats, begin: int, end: int, size: int, confidence: float, floors: Ints, out: Floats) -> int:
    """Arrivals ``begin`` to ``end`` (exclusive): what is evicted, and the membership of each live row, by RF1.

    ``floors`` gets the oldest live row at each arrival, ``out`` the memberships, one arrival after the other; those
    that are certain because too few rows came since take no time. Returns how many there are.
    """
    oldest = 0
    asked = 0
    for newest in range(begin, end):
        inside = 1.0
        while newest - oldest >= size:
            inside = rf1(exist[oldest + 1 : newest + 1], size - 1)
            if 1.0 - inside < confidence - 1e-9:
                break
            oldest += 1
        floors[newest - begin] = oldest
        for row in range(oldest, newest + 1):
            if newest - row < size:
                inside = 1.0
            elif row > oldest:
                inside = rf1(exist[row + 1 : newest + 1], size - 1)
            out[asked] = inside
            asked += 1
    return asked


@kernel
def slide_by_approximation(
    method: int, exist: Floats, begin: int, end: int, size: int, confidence: float, floors: Ints, out: Floats
) -> int:
    """As `slide_by_rf1`, by an approximation over running sums."""
    known = sums(exist)
    oldest = 0
    asked = 0
    for newest in range(begin, end):
        inside = 1.0
        while newest - oldest >= size:
            inside = _between(method, known, oldest, newest, size)
            if 1.0 - inside < confidence - 1e-9:
                break
            oldest += 1
        floors[newest - begin] = oldest
        for row in range(oldest, newest + 1):
            if newest - row < size:
                inside = 1.0
            elif row > oldest:
                inside = _between(method, known, row, newest, size)
            out[asked] = inside
            asked += 1
    return asked


@kernel
def _between(method: int, known: NDArray[np.float64], row: int, newest: int, size: int) -> float:
    mean = known[newest + 1, 0] - known[row + 1, 0]
    variance = known[newest + 1, 1] - known[row + 1, 1]
    third = known[newest + 1, 2] - known[row + 1, 2]
    return approximate(method, size - 1, mean, variance, third)


@exact_kernel
def questions(
    floors: Ints, begin: int, end: int, size: int, where: Ints, row: Ints, newest: Ints, out: NDArray[np.float64]
) -> int:
    """The memberships that are not certain at the arrivals ``begin`` to ``end``, and their places in ``out``.

    The others are written there at once.
    """
    asked = 0
    at = 0
    for t in range(begin, end):
        for r in range(floors[t - begin], t + 1):
            if t - r < size:
                out[at] = 1.0
            else:
                where[asked], row[asked], newest[asked] = at, r, t
                asked += 1
            at += 1
    return asked


@kernel
def _close(mine: Floats, theirs: Floats, limit: float) -> int:
    close = 0
    for x in mine:
        for y in theirs:
            close += abs(x - y) <= limit
    return close


@kernel
def all_pairs(
    own: Floats,
    own_mass: Floats,
    other: Floats,
    other_mass: Floats,
    k: int,
    newest: Ints,  # of the other stream, at the arrival of each own row; -1 before there is one
    floor: Ints,
    limit: float,
    threshold: float,
    probability: Floats,
) -> None:
    """The baseline of the paper: each arriving tuple against every tuple of the other window, all pairs of samples.

    ``probability`` gets the match of each pair, or NaN where it stays below the threshold, one arrival after the other.
    """
    at = 0
    for i in range(own_mass.shape[0]):
        mine = own[i * k : (i + 1) * k]
        for j in range(floor[i], newest[i] + 1):
            close = _close(mine, other[j * k : (j + 1) * k], limit)
            match = (close / (k * k)) * (own_mass[i] * other_mass[j])
            probability[at] = match if match >= threshold else np.nan
            at += 1


@kernel
def all_pairs_by_columns(
    own: Floats,
    own_mass: Floats,
    other: Floats,  # first samples of all rows, then second ones, and so on
    other_mass: Floats,
    k: int,
    newest: Ints,
    floor: Ints,
    limit: float,
    threshold: float,
    probability: Floats,
) -> None:
    """As `all_pairs`, in the order that suits SIMD: each pair of sample numbers, over all tuples of the window."""
    at = 0
    n = other_mass.shape[0]
    counts = np.zeros(n, np.int64)
    for i in range(own_mass.shape[0]):
        rows = newest[i] + 1 - floor[i]
        if rows <= 0:
            continue
        close = counts[:rows]
        close[:] = 0
        for s in range(k):
            x = own[i * k + s]
            for t in range(k):
                theirs = other[t * n + floor[i] : t * n + floor[i] + rows]
                for j in range(rows):
                    close[j] += abs(x - theirs[j]) <= limit
        for j in range(rows):
            match = (close[j] / (k * k)) * (own_mass[i] * other_mass[floor[i] + j])
            probability[at] = match if match >= threshold else np.nan
            at += 1
