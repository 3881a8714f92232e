"""Quantiles of the newest so many rows that exist, over all possible worlds: the chances that rows decide.

The newest ``size`` rows of a window count wherever they exist, in whatever order they are looked at, as in `quantiles`.
An older row counts only where few enough newer ones exist. So older rows are taken in their order. From the newest row
on, the distribution of others that are absent, and above, is carried on to the row in question. From the oldest on
back, for each such state the chance is carried that the rest makes a row decide that is in the window. What both say
of one place is put together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.aggregates import TINY
from appulse.kernels.deciding_rows import Steps, descend, halves, level_after, pass_points, times_row
from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints


class _Window(NamedTuple):
    """Rows that may be in a window, oldest first. A *place* is a number of rows, from the newest on.

    A sum is the number of others that are absent, and of those that are above times ``stride``. Where fewer decide, it
    is of those that are below.
    """

    exist: Floats
    below: Floats  # of the rows older than the newest ``size``
    size: int
    absent: int  # at most
    stride: int
    critical: Ints  # so many others above decide, where so many rows exist
    least: int  # of these numbers
    counted: bool  # those above
    ahead: NDArray[np.float64]  # of each sum at a place, the chance that a row decides: two buffers
    at: Ints  # that place, and the buffer
    behind: NDArray[np.float64]  # the distribution of the sum at a place: two buffers
    products: Floats


@exact_kernel
def rows_of_newest(exist: Floats, size: int) -> tuple[int, int]:
    """How many rows, from the newest on, may be of the newest ``size`` that exist; of how many no more are absent."""
    rows, low, high, most, seen = len(exist), 0, 0, 0, 0
    band = np.zeros(rows + 2)  # of the number of absent rows, where fewer than ``size`` exist
    band[0] = 1.0
    while seen < rows and low <= high:
        p = exist[rows - 1 - seen]
        high += 1
        for a in range(high, low, -1):
            band[a] = band[a] * p + band[a - 1] * (1.0 - p)
        band[low] *= p
        seen += 1
        if seen - low == size:
            low += 1
        while low <= high and band[low] < TINY:
            low += 1
        while low <= high and band[high] < TINY:
            band[high] = 0.0
            high -= 1
        most = max(most, high)
    return seen, most


@exact_kernel
def newest_decide(
    owner: Ints, reach: Floats, exist: Floats, size: int, absent: int, part: int, whole: int, chance: Floats
) -> None:
    """The chance that the quantile moves to each point, where the newest ``size`` rows count that exist.

    There are more rows, of which at most so many are ``absent``.
    """
    rows = len(exist)
    first = rows - size  # of the newest
    rank = -(-part * size // whole)
    counted = size - rank < rank
    critical = np.zeros(size + 1, np.int64)
    for n in range(1, size + 1):
        rank = -(-part * n // whole)
        critical[n] = n - rank if counted else rank - 1
    least, most, stride = critical[max(1, rows - absent)], critical[size], absent + 2
    above, below = (stride, 0) if counted else (0, stride)
    # One absent row too many would be a row above: that sum has no chance.
    steps = Steps(1, above, below, stride, stride, (least - first) * stride, (most + 1) * stride, -stride, 0)
    ahead, behind = np.zeros((2, (most + 2) * stride)), np.empty((2, (most + 4) * stride))
    place, products = np.array([-1, 0]), np.empty((most + 2) * stride)
    window = _Window(
        exist, np.zeros(first), size, absent, stride, critical, least, counted, ahead, place, behind, products
    )
    # All older rows are one that is never open: where only they have points, the newest are settled.
    to = halves(np.where(owner < first, size, owner - first), size, steps, 0, (most + 2) * stride)
    k = level = 0
    while k < len(owner):
        level, end = descend(to, k, level, exist[first:], steps)
        begin, low, n, buffer = to.state[level]
        if n > 0 and to.many[level] > 0:
            decides = _total(window, to.chances[buffer, begin : begin + n], _look_ahead(window, size)[low:])
            pass_points(to, k, end, reach, decides, chance)
            k = end
        while k < end:
            i = owner[k]
            if i >= first:
                pass_points(to, k, k + 1, reach, 0.0, chance)
            else:
                if n > 0:
                    decides = _older_decides(window, i, to.chances[buffer], (begin, low, n), steps)
                    chance[k] = (reach[k] - window.below[i]) * decides
                window.below[i], to.coming[size] = reach[k], to.after[k]
                if place[0] < rows - i:
                    place[0] = -1  # what is known there has the row as it was
            k += 1
        level = level_after(to, end)


@exact_kernel
def _older_decides(window: _Window, i: int, chances: Floats, at: tuple[int, int, int], steps: Steps) -> float:
    """The chance that an older row decides, of the distribution of the newest ``size``."""
    stride, newest = window.stride, len(window.exist) - window.size
    ahead = _look_ahead(window, len(window.exist) - i)
    begin, low, n = at
    behind = window.behind[0]
    behind[begin - stride : begin + n + stride] = chances[begin - stride : begin + n + stride]
    for j in range(newest - 1, i, -1):
        # Where ``size`` rows exist already, the row in question is not one of them.
        for k in range(begin + (newest - 1 - j - low) % stride, begin + n, stride):
            behind[k] = 0.0
        other = window.behind[(newest - j) % 2]
        wanted = ((window.least - j + 1) * stride, steps.most)
        begin, low, n = times_row(behind, (begin, low, n), window.exist[j], window.below[j], steps, wanted, other)
        behind = other
    gone = min(max(0, (window.least - i) * stride - low), n)  # from there on it is known what is ahead
    return _total(window, behind[begin + gone : begin + n], ahead[low + gone :])


@exact_kernel
def _look_ahead(window: _Window, place: int) -> Floats:
    """Of each sum of the others at a place, the chance that a row decides that is among the rows up to there."""
    exist, stride, size, at = window.exist, window.stride, window.size, window.at
    rows, top = len(exist), window.critical[size] * stride
    if at[0] < place:
        at[0] = rows
        ahead = window.ahead[at[1]]
        ahead[:] = 0.0
        for absent in range(rows - size, min(window.absent, rows - 1) + 1):
            ahead[window.critical[rows - absent] * stride + absent] = 1.0
    while at[0] > place:
        at[0] -= 1
        at[1] = 1 - at[1]
        i = rows - 1 - at[0]
        known, ahead = window.ahead[1 - at[1]], window.ahead[at[1]]
        below, above, absent = window.below[i], exist[i] - window.below[i], 1.0 - exist[i]
        more, same = (above, below) if window.counted else (below, above)
        # Each of the i rows further back counts for one at most: with fewer than this it does not come to the least.
        low = max(0, window.least - i - 1) * stride
        known[low : max(0, window.least - i) * stride] = 0.0
        into, if_same, if_absent, if_more = ahead[low:], known[low:], known[low + 1 :], known[low + stride :]
        for k in range(top + stride - low):
            chance = same * if_same[k] + more * if_more[k] + absent * if_absent[k]
            into[k] = chance if chance > TINY else 0.0
        into[stride - 1 :: stride] = 0.0
        # Where ``size`` rows exist, the row that decides among them, those further back do not count.
        full = at[0] - size
        ahead[low + full : top : stride] = 0.0
        ahead[top + full] = 1.0
    found: Floats = window.ahead[at[1]]
    return found


@exact_kernel
def _total(window: _Window, chances: Floats, values: Floats) -> float:
    """The sum of products. Halves are added to each other, so that the compiler takes several at once."""
    n = len(chances)
    products = window.products[:n]
    for k in range(n):
        products[k] = chances[k] * values[k]
    while n > 1:
        half = n // 2
        rest = products[n - half : n]
        for k in range(half):
            products[k] += rest[k]
        n -= half
    total: float = products[0] if n > 0 else 0.0
    return total
