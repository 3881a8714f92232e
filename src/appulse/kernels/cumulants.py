"""How many of many rows exist: from a few cumulants, nearly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats

#: Below this variance rows are not so many that a few cumulants say nearly all.
LEAST_VARIANCE = 100.0


@exact_kernel
def add_cumulants(exist: Floats, first: int, last: int, times: float, out: Floats) -> None:
    """Add the fourth to sixth cumulant of the rows ``first`` to ``last`` (exclusive), so many ``times``."""
    for row in range(first, last):
        p = exist[row]
        v = p * (1.0 - p)
        out[0] += times * v * (1.0 - 6.0 * v)
        out[1] += times * v * (1.0 - 2.0 * p) * (1.0 - 12.0 * v)
        out[2] += times * v * (1.0 - 30.0 * v + 120.0 * v * v)


@exact_kernel
def nearly(most: int, three: Floats, more: Floats) -> tuple[float, float]:
    """Pr(at most ``most`` exist), and more than it is off by: from six cumulants, of a variance from 100 on.

    By the inversion of the characteristic function (Gil-Pelaez 1951), whose logarithm is a series in the cumulants. The
    seventh, over 7!, is less than a 5,000th of the variance: what is left out of the exponent at t / deviation is less
    than t^7 / 5000 / deviation^5, where the function has fallen to about exp(-t^2 / 2).
    """
    mean, variance, third = three[0], three[1], three[2]
    deviation = math.sqrt(variance)
    step, gap, total = math.pi / (10.0 * deviation), most + 0.5 - mean, 0.0
    for k in range(48):
        t = (k + 0.5) * step
        u = t * t
        size = math.exp(u * (-variance / 2.0 + u * (more[0] / 24.0 - u * more[2] / 720.0)))
        total += size * math.sin(t * (u * (-third / 6.0 + u * more[1] / 120.0) - gap)) / math.sin(0.5 * t)
    return 0.5 - total * step / (2.0 * math.pi), 1.0 / deviation**5 + 1e-10
