"""Mean differences within distributions, for scores of many of them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints


@exact_kernel
def mean_differences(values: Floats, shares: Floats, first: Ints, truth: Floats, off: Floats, spread: Floats) -> None:
    """Write E|X - y| into ``off`` and E|X - X'| into ``spread``, of the distribution from ``first[i]`` on and y.

    In order of values, each is above all before it: their weight and moment are enough for the second.
    """
    for i in range(len(truth)):
        x, w = values[first[i] : first[i + 1]], shares[first[i] : first[i + 1]]
        order = np.argsort(x)
        apart, within, weight, moment = 0.0, 0.0, 0.0, 0.0
        for k in range(len(order)):
            at = order[k]
            apart += w[at] * abs(x[at] - truth[i])
            within += w[at] * (x[at] * weight - moment)
            weight += w[at]
            moment += w[at] * x[at]
        off[i], spread[i] = apart, 2.0 * within
