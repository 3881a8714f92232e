"""The probability that normal coordinates of any covariance lie in ranges, in up to three dimensions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.ellipses import entry
from appulse.kernels.gaussian import interval
from appulse.kernels.jit import kernel
from appulse.kernels.metric_normals import RECTANGLE, in_rectangle, in_space

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats

# Beyond this many deviations a normal tail is below 1e-20.
_TAIL = 9.5


@kernel
def box_mass(low: Floats, high: Floats, mean: Floats, covariance: Floats) -> float:
    """Pr{all coordinates in their ranges}, absolute error below 1e-9; ``covariance`` is the upper triangle.

    A coordinate without error is in its range or not; one whose range has no end counts for nothing.
    """
    d = low.shape[0]
    own, n = np.empty(3, np.int64), 0
    offset, half = np.empty(3), np.empty(3)
    for k in range(d):
        variance = covariance[entry(k, k, d)]
        if variance == 0.0:
            if not low[k] <= mean[k] <= high[k]:
                return 0.0
            continue
        far = _TAIL * math.sqrt(variance)
        begin, end = max(low[k] - mean[k], -far), min(high[k] - mean[k], far)
        if begin >= end:
            return 0.0
        if begin > -far or end < far:
            own[n], offset[n], half[n] = k, -0.5 * (begin + end), 0.5 * (end - begin)
            n += 1
    part, at = np.empty(6), 0
    for k in range(n):
        for m in range(k, n):
            part[at] = covariance[entry(own[k], own[m], d)]
            at += 1
    if n == 0:
        return 1.0
    if n == 1:
        s = math.sqrt(part[0])
        return interval((-half[0] - offset[0]) / s, (half[0] - offset[0]) / s)
    if n == 2:
        return in_rectangle(offset[0], offset[1], part[0], part[1], part[2], half[0], half[1])
    return in_space(RECTANGLE, offset, part, half[0], half[1], half[2], False)  # noqa: FBT003


@kernel
def box_masses(low: Floats, high: Floats, mean: Floats, covariance: Floats, out: Floats) -> None:
    """`box_mass` of each row."""
    for i in range(out.shape[0]):
        out[i] = box_mass(low[i], high[i], mean[i], covariance[i])
