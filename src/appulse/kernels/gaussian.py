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

import numpy as np

from appulse.kernels.jit import kernel

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(80)
# Beyond this many deviations a normal tail is below 1e-17.
_TAIL = 8.7
_SQRT_HALF = math.sqrt(0.5)


@kernel
def phi(x):
    """Standard normal distribution function."""
    return 0.5 * math.erfc(-x * _SQRT_HALF)


@kernel
def _interval(low, high):
    """Pr{low <= N <= high}, without cancellation in the far tails."""
    if low > 0.0:
        return 0.5 * (math.erfc(low * _SQRT_HALF) - math.erfc(high * _SQRT_HALF))
    return 0.5 * (math.erfc(-high * _SQRT_HALF) - math.erfc(-low * _SQRT_HALF))


@kernel
def ball_probability(distance, deviation, epsilon, d):
    """Probability that an isotropic Gaussian, its mean ``distance`` away, lies within ``epsilon`` of the origin.

    ``deviation`` > 0 is that of one coordinate; absolute error below 1e-12.
    """
    big_r = epsilon / deviation
    big_d = distance / deviation
    ahead = (epsilon - distance) / deviation  # not big_r - big_d: both may be huge
    if ahead < -_TAIL - 1.0:
        return 0.0
    if d == 1:
        return _interval(-big_r - big_d, ahead)
    degrees = d - 1
    # Across the line of centres nothing lies beyond this.
    top = math.sqrt(degrees) + _TAIL + 1.0
    angle = math.pi / 2 if top >= big_r else math.asin(top / big_r)
    log_norm = math.log(2.0) * (degrees / 2.0 - 1.0) + math.lgamma(degrees / 2.0)
    total = 0.0
    for i in range(_NODES.shape[0]):
        theta = 0.5 * angle * (_NODES[i] + 1.0)
        r = big_r * math.sin(theta)
        h = big_r * math.cos(theta)
        sunk = 2.0 * big_r * math.sin(0.5 * theta) ** 2  # big_r - h
        if r <= 0.0:
            density = math.exp(-log_norm) if degrees == 1 else 0.0
        else:
            density = math.exp((degrees - 1.0) * math.log(r) - 0.5 * r * r - log_norm)
        if h + big_d > _TAIL:
            inside = phi(ahead - sunk)
        else:
            inside = _interval(-h - big_d, ahead - sunk)
        total += _WEIGHTS[i] * density * inside * h
    return min(1.0, max(0.0, 0.5 * angle * total))


@kernel
def gaussian_pairs(
    left,
    right,
    epsilon,
    limit2,  # the squared epsilon with its tolerance, for pairs without deviation
    threshold,
    use_bounds,
    left_centre,
    left_mass,
    left_sigma,
    right_centre,
    right_mass,
    right_sigma,
    probability,
):
    """Probability of each pair of isotropic Gaussians; NaN where a half-space already bounds it below threshold."""
    d = left_centre.shape[1]
    for i in range(left.shape[0]):
        a = left[i]
        b = right[i]
        mass = left_mass[a] * right_mass[b]
        square = 0.0
        for k in range(d):
            gap = left_centre[a, k] - right_centre[b, k]
            square += gap * gap
        deviation = math.sqrt(left_sigma[a, 0] * left_sigma[a, 0] + right_sigma[b, 0] * right_sigma[b, 0])
        if mass < threshold:
            probability[i] = np.nan
        elif deviation == 0.0:
            probability[i] = mass if square <= limit2 else np.nan
        else:
            distance = math.sqrt(square)
            # The ball lies in a half-space whose border is epsilon away from its centre.
            if use_bounds and mass * phi((epsilon - distance) / deviation) < threshold - 1e-12:
                probability[i] = np.nan
            else:
                probability[i] = mass * ball_probability(distance, deviation, epsilon, d)
