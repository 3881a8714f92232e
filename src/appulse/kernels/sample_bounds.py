"""Bounds of single samples: how much of an object can be close to each sample of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.bounds import rounding
from appulse.kernels.grid import SLACK
from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Moments, SampleRun


@kernel
def _leaning(one: SampleRun, other: Moments, row: int, out: NDArray[np.float64], square: NDArray[np.float64]) -> None:
    """g.(C g + t) and |g|^2 of the gaps g to a centre, for a covariance C and a skew t; both are added."""
    samples, begin, n, d = one.values, one.at, one.n, other.centre.shape[1]
    centre, covariance, shape = other.centre, other.covariance, other.shape
    gaps, lean = np.empty((d, n), np.float64), np.empty(n, np.float64)
    for k in range(d):
        own = samples[begin + k * n :][:n]
        for s in range(n):
            gap = centre[row, k] - own[s]
            gaps[k, s] = gap
            square[s] += gap * gap
    at = 0
    for k in range(d):
        lean[:] = shape[row, k]
        for m in range(k, d):
            share = covariance[row, at] * (1.0 if m == k else 2.0)
            at += 1
            for s in range(n):
                lean[s] += share * gaps[m, s]
        for s in range(n):
            out[s] += gaps[k, s] * lean[s]


@kernel
def sample_bounds(
    one: SampleRun,  # whose samples are judged
    other: Moments,
    row: int,  # of the other
    limit: float,
    far: float,
    blur: float,
    share: NDArray[np.float64],
    square: NDArray[np.float64],
) -> None:
    """What share of one object is close to each sample of another, at most; -1 and -2 where all is, and where none is.

    By the ball around the other object, and by Cantelli's inequality on the squared distance from the sample: its mean
    and variance follow from the moments (`cantelli_on_square` with s = 0).
    """
    samples, begin, n, d = one.values, one.at, one.n, other.centre.shape[1]
    centre, radius, covariance, shape = other.centre, other.radius, other.covariance, other.shape
    slack, blunt = rounding(far, blur)
    inside = limit - radius[row] - blur
    inside = inside * inside * (1.0 - SLACK) if inside > 0.0 else -1.0
    outside = (limit + radius[row] + blur) ** 2 * (1.0 + SLACK)
    trace = 0.0
    at = 0
    for k in range(d):
        trace += covariance[row, at]
        at += d - k
    least, spread = trace - limit * limit - slack, shape[row, d] + blunt
    if d == 3:
        # In one loop, as it is the dimension of most that is sampled.
        x, y, z = centre[row, 0], centre[row, 1], centre[row, 2]
        xx, xy, xz = 4.0 * covariance[row, 0], 8.0 * covariance[row, 1], 8.0 * covariance[row, 2]
        yy, yz, zz = 4.0 * covariance[row, 3], 8.0 * covariance[row, 4], 4.0 * covariance[row, 5]
        u, v, w = 4.0 * shape[row, 0], 4.0 * shape[row, 1], 4.0 * shape[row, 2]
        own_x, own_y, own_z = samples[begin:][:n], samples[begin + n :][:n], samples[begin + 2 * n :][:n]
        for s in range(n):
            a, b, c = x - own_x[s], y - own_y[s], z - own_z[s]
            apart = a * a + b * b + c * c
            tilt = a * (u + xx * a + xy * b + xz * c) + b * (v + yy * b + yz * c) + c * (w + zz * c)
            above = apart + least
            variance = max(0.0, tilt) + spread
            bound = variance / (variance + above * above) if above > 0.0 else 1.0
            bound = -1.0 if apart <= inside else bound
            share[s] = -2.0 if apart > outside else bound
        return
    share[:n] = 0.0
    square[:n] = 0.0
    _leaning(one, other, row, share, square)
    for s in range(n):
        above = square[s] + least
        variance = max(0.0, 4.0 * share[s]) + spread
        bound = variance / (variance + above * above) if above > 0.0 else 1.0
        bound = -1.0 if square[s] <= inside else bound
        share[s] = -2.0 if square[s] > outside else bound
