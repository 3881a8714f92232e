"""Closed form for two isotropic Gaussians: the non-central chi-square distribution.

The difference of two isotropic Gaussians in d dimensions is one more, with variance s1^2 + s2^2. With R and D the
radius and the distance in units of its deviation, Pr{|N(D, I)| <= R} is an integral over r, the part of the
difference that lies across the line of centres (chi-distributed, d - 1 degrees):

    integral of chi_{d-1}(r) * [Phi(h - D) - Phi(-h - D)] dr,   h = sqrt(R^2 - r^2)

which is smooth, so Gauss-Legendre converges fast whatever R and D are; a Poisson mixture of chi-squares would need
some D terms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel, kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats

#: Beyond this many deviations a normal tail is below 1e-17.
TAIL = 8.7
_SQRT_HALF = math.sqrt(0.5)
# Of which there are tables; beyond, pieces of an integral.
_MOST_DIMENSIONS = 16
_PIECES = 8
# By its deviation, the most mass of a normal distribution in a small ball, of each number of dimensions.
_DENSEST = np.array([0.5 ** (0.5 * d) / math.gamma(0.5 * d + 1.0) for d in range(_MOST_DIMENSIONS + 1)])
_LOG_NORM = np.array([math.log(2.0) * ((d - 1) / 2.0 - 1.0) + math.lgamma((d - 1) / 2.0) for d in range(2, 17)])

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(60)
_ANGLES = 0.25 * math.pi * (_NODES + 1.0)
_ANGLE_WEIGHTS = 0.25 * math.pi * _WEIGHTS
_SIN, _COS, _LOG_SIN = np.sin(_ANGLES), np.cos(_ANGLES), np.log(np.sin(_ANGLES))
_SIN_HALF_SQUARED = np.sin(0.5 * _ANGLES) ** 2


def _across(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes over r in [0, top], and their weights times the density of the chi distribution with d - 1 degrees.

    For all pairs alike whose ball is wider than top; then a node costs one erfc.
    """
    top = math.sqrt(d - 1) + TAIL + 1.0
    r = 0.5 * top * (_NODES + 1.0)
    return r, 0.5 * top * _WEIGHTS * np.exp((d - 2.0) * np.log(r) - 0.5 * r * r - _LOG_NORM[d - 2])


_WIDE = [_across(d) for d in range(2, _MOST_DIMENSIONS + 1)]
_R = np.stack([r for r, _ in _WIDE])
_DENSITY = np.stack([density for _, density in _WIDE])


@exact_kernel
def tolerated(epsilon: float) -> float:
    """A distance with its tolerance."""
    return epsilon + 1e-9 * max(1.0, epsilon)


@exact_kernel
def phi(x: float) -> float:
    """Standard normal distribution function."""
    return 0.5 * math.erfc(-x * _SQRT_HALF)


@exact_kernel
def interval(low: float, high: float) -> float:
    """Pr{low <= N <= high}, without cancellation in the far tails."""
    if low > 0.0:
        return 0.5 * (math.erfc(low * _SQRT_HALF) - math.erfc(high * _SQRT_HALF))
    return 0.5 * (math.erfc(-high * _SQRT_HALF) - math.erfc(-low * _SQRT_HALF))


@exact_kernel
def interval_masses(low: Floats, high: Floats, mean: Floats, sigma: Floats) -> Floats:
    """Pr{low <= N <= high} of normal values, pair by pair; with a deviation of 0, whether the mean is in between."""
    out = np.empty(low.shape[0])
    for i in range(low.shape[0]):
        if sigma[i] > 0.0:
            out[i] = interval((low[i] - mean[i]) / sigma[i], (high[i] - mean[i]) / sigma[i])
        else:
            out[i] = 1.0 if low[i] <= mean[i] <= high[i] else 0.0
    return out


@kernel
def _wide_ball(big_r: float, big_d: float, ahead: float, d: int) -> float:
    """The integral where the ball is wider than all that lies across the line of centres."""
    total = 0.0
    for i in range(_R.shape[1]):
        r = _R[d - 2, i]
        h = math.sqrt((big_r - r) * (big_r + r))
        sunk = r * r / (big_r + h)  # big_r - h
        if h + big_d > TAIL:
            total += _DENSITY[d - 2, i] * phi(ahead - sunk)
        else:
            total += _DENSITY[d - 2, i] * interval(-h - big_d, ahead - sunk)
    return min(1.0, max(0.0, total))


@kernel
def _narrow_ball(big_r: float, big_d: float, ahead: float, d: int) -> float:
    """The integral over the angle, r = R sin(theta): smooth up to the rim, where h is zero."""
    log_r = math.log(big_r)
    half_square = 0.5 * big_r * big_r
    total = 0.0
    for i in range(_SIN.shape[0]):
        h = big_r * _COS[i]
        density = math.exp((d - 2.0) * (log_r + _LOG_SIN[i]) - half_square * _SIN[i] * _SIN[i] - _LOG_NORM[d - 2])
        sunk = 2.0 * big_r * _SIN_HALF_SQUARED[i]  # big_r - h
        if h + big_d > TAIL:
            total += _ANGLE_WEIGHTS[i] * density * phi(ahead - sunk) * h
        else:
            total += _ANGLE_WEIGHTS[i] * density * interval(-h - big_d, ahead - sunk) * h
    return min(1.0, max(0.0, total))


@kernel
def _in_many_dimensions(big_r: float, big_d: float, ahead: float, d: int) -> float:
    """As `_narrow_ball`, piece by piece where the chi distribution is: it is narrow beside its mean."""
    middle = math.sqrt(d - 1)
    low, top = max(0.0, middle - TAIL - 1.0), middle + TAIL + 1.0
    if big_r <= low:
        return 0.0
    begin, end = math.asin(low / big_r), math.asin(min(1.0, top / big_r))
    step = (end - begin) / _PIECES
    log_norm = math.log(2.0) * ((d - 1) / 2.0 - 1.0) + math.lgamma((d - 1) / 2.0)
    total = 0.0
    for piece in range(_PIECES):
        for i in range(_NODES.shape[0]):
            angle = begin + step * (piece + 0.5 * (_NODES[i] + 1.0))
            r, h = big_r * math.sin(angle), big_r * math.cos(angle)
            density = math.exp((d - 2.0) * math.log(r) - 0.5 * r * r - log_norm)
            sunk = 2.0 * big_r * math.sin(0.5 * angle) ** 2  # big_r - h
            total += 0.5 * step * _WEIGHTS[i] * density * interval(-h - big_d, ahead - sunk) * h
    return min(1.0, max(0.0, total))


@kernel
def ball_probability(distance: float, deviation: float, epsilon: float, d: int) -> float:
    """Probability that an isotropic Gaussian, its mean ``distance`` away, lies within ``epsilon`` of the origin.

    ``deviation`` > 0 is that of one coordinate; absolute error below 1e-12.
    """
    big_r = epsilon / deviation
    big_d = distance / deviation
    ahead = (epsilon - distance) / deviation  # not big_r - big_d: both may be huge
    if ahead < -TAIL - 1.0:
        return 0.0
    if d == 1:
        return interval(-big_r - big_d, ahead)
    # Across the line of centres nothing lies beyond this.
    top = math.sqrt(d - 1) + TAIL + 1.0
    if ahead > top:
        return 1.0
    if d > _MOST_DIMENSIONS:
        return _in_many_dimensions(big_r, big_d, ahead, d)
    if big_r > top:
        return _wide_ball(big_r, big_d, ahead, d)
    return _narrow_ball(big_r, big_d, ahead, d)


@kernel
def at_most(distance: float, deviation: float, epsilon: float, d: int) -> float:
    """A bound on `ball_probability`.

    The ball lies in a half-space whose border is epsilon away from its centre. Beside a large deviation it is small,
    and has no more than its volume times the greatest density within.
    """
    beyond = (distance - epsilon) / deviation
    if deviation < 2.0 * epsilon or d > _MOST_DIMENSIONS:
        return phi(-beyond)
    falls: float = math.exp(-0.5 * max(0.0, beyond) ** 2) * (1.0 + 1e-9)
    return falls * float(_DENSEST[d]) * (epsilon / deviation) ** d


class WithinBall(NamedTuple):
    """When pairs match: how near they have to be, and with what probability."""

    epsilon: float
    limit2: float  # the squared epsilon with its tolerance, for pairs without error
    margin: Floats  # what each pair adds to epsilon, or empty
    threshold: float
    use_bounds: bool


class Gaussians(NamedTuple):
    """Isotropic Gaussians, one a row; ``sigma`` has one column."""

    centre: Floats
    mass: Floats
    sigma: Floats
