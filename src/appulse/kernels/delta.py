"""Delta windows under value uncertainty: how probably two rows' attributes lie more than a bound apart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from appulse.kernels.gaussian import phi
from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints
    from appulse.kernels.poisson_binomial import Ticks


class Attributes(NamedTuple):
    """What rows are compared by: values of row i from ``first[i]`` to ``first[i + 1]``."""

    first: Ints
    values: Floats
    shares: Floats  # of values, given that the row exists
    sigma: Floats  # of a row with one value, the mean of a normal one; else 0


@exact_kernel
def far_apart(a: int, b: int, bound: float, attributes: Attributes) -> float:
    """Pr(the attributes of rows a and b differ by more than the bound | both exist)."""
    first, values, shares, sigma = attributes
    if sigma[a] > 0.0 or sigma[b] > 0.0:
        deviation = math.hypot(sigma[a], sigma[b])
        gap = values[first[a]] - values[first[b]]
        return phi((-bound - gap) / deviation) + phi((gap - bound) / deviation)
    total = 0.0
    for i in range(first[a], first[a + 1]):
        far = 0.0
        for j in range(first[b], first[b + 1]):
            if abs(values[i] - values[j]) > bound:
                far += shares[j]
        total += shares[i] * far
    return total


@exact_kernel
def evict_far(windows: Ticks, bound: float, confidence: float, attributes: Attributes, floor: Ints) -> None:
    """The position, within its window, of the oldest row that is kept at the tick of each row."""
    first, fresh, tick_end = windows
    for w in range(first.shape[0] - 1):
        start = first[w]
        n = first[w + 1] - start
        oldest = 0
        begin = fresh[w]
        while begin < n:
            newest = begin
            while not tick_end[start + newest]:
                newest += 1
            while oldest < newest and far_apart(start + oldest, start + newest, bound, attributes) >= confidence - 1e-9:
                oldest += 1
            for row in range(begin, newest + 1):
                floor[start + row] = oldest
            begin = newest + 1
