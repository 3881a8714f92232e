"""Delta windows under value uncertainty: how probably two rows' attributes lie more than a bound apart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints


@exact_kernel
def _below(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


@exact_kernel
def far_apart(a: int, b: int, bound: float, first: Ints, values: Floats, shares: Floats, sigma: Floats) -> float:
    """Pr(the attributes of rows a and b differ by more than the bound | both exist)."""
    if sigma[a] > 0.0 or sigma[b] > 0.0:
        deviation = math.hypot(sigma[a], sigma[b])
        gap = values[first[a]] - values[first[b]]
        return _below((-bound - gap) / deviation) + _below((gap - bound) / deviation)
    total = 0.0
    for i in range(first[a], first[a + 1]):
        far = 0.0
        for j in range(first[b], first[b + 1]):
            if abs(values[i] - values[j]) > bound:
                far += shares[j]
        total += shares[i] * far
    return total


@exact_kernel
def evict_far(
    windows: Ints,  # where each window's rows begin; they end where those of the next begin
    fresh: Ints,  # the first new row of each window, counted from its beginning
    tick_end: Flags,  # whether a row is the last of its tick
    bound: float,
    confidence: float,
    first: Ints,  # where each row's values begin
    values: Floats,
    shares: Floats,  # of values, given that the row exists
    sigma: Floats,  # of a row with one value, the mean of a normal one; else 0
    floor: Ints,
) -> None:
    """The position, within its window, of the oldest row that is kept at the tick of each row."""
    for w in range(windows.shape[0] - 1):
        start = windows[w]
        n = windows[w + 1] - start
        oldest = 0
        begin = fresh[w]
        while begin < n:
            newest = begin
            while not tick_end[start + newest]:
                newest += 1
            while oldest < newest and (
                far_apart(start + oldest, start + newest, bound, first, values, shares, sigma) >= confidence - 1e-9
            ):
                oldest += 1
            for row in range(begin, newest + 1):
                floor[start + row] = oldest
            begin = newest + 1
