"""How likely the difference of two normal rows is: the logarithm of its density, in the unit of the coordinates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.earth_ellipses import above_of, heading, turned
from appulse.kernels.ellipses import add_covariance
from appulse.kernels.geodesic import Earth, geodesic
from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, RowPairs
    from appulse.kernels.gaussian import Gaussians

_LOG_TWO_PI = math.log(2.0 * math.pi)


@exact_kernel
def log_density(gap: Floats, covariance: Floats) -> float:
    """Of a normal difference with an upper triangle of a covariance; NaN where it has no density."""
    d = gap.shape[0]
    factor, rest = np.zeros((d, d)), np.empty(d)
    square, determinant, at = 0.0, 0.0, 0
    matrix = np.empty((d, d))
    for k in range(d):
        for m in range(k, d):
            matrix[m, k] = covariance[at]
            at += 1
    for k in range(d):  # Cholesky, and the difference in the axes that it leaves
        own = matrix[k, k]
        value = gap[k]
        for m in range(k):
            own -= factor[k, m] * factor[k, m]
            value -= factor[k, m] * rest[m]
        if own <= 1e-15 * matrix[k, k]:
            return float(np.nan)
        factor[k, k] = math.sqrt(own)
        rest[k] = value / factor[k, k]
        square += rest[k] * rest[k]
        determinant += math.log(own)
        for m in range(k + 1, d):
            left = matrix[m, k]
            for j in range(k):
                left -= factor[m, j] * factor[k, j]
            factor[m, k] = left / factor[k, k]
    return float(-0.5 * (square + determinant + d * _LOG_TWO_PI))


@exact_kernel
def log_densities(pairs: RowPairs, one: Gaussians, other: Gaussians, out: Floats) -> None:
    """Of each pair of normal rows in a plane or in space; rows without ``sigma`` have no error."""
    left, right = pairs
    d = one.centre.shape[1]
    gap, covariance = np.empty(d), np.empty(d * (d + 1) // 2)
    for i in range(left.shape[0]):
        a, b = left[i], right[i]
        covariance[:] = 0.0
        add_covariance(one.sigma, a, d, covariance)
        add_covariance(other.sigma, b, d, covariance)
        for k in range(d):
            gap[k] = one.centre[a, k] - other.centre[b, k]
        out[i] = log_density(gap, covariance)


@exact_kernel
def log_densities_on_earth(pairs: RowPairs, earth: Earth, one: Gaussians, other: Gaussians, out: Floats) -> None:
    """Of each pair of positions: along the geodesic, across it, and in altitude where there is one."""
    left, right = pairs
    high = one.centre.shape[1] > 3
    gap, flat = np.zeros(2), np.empty(3)
    for i in range(left.shape[0]):
        a, b = left[i], right[i]
        px, py, pz = one.centre[a, 0], one.centre[a, 1], one.centre[a, 2]
        qx, qy, qz = other.centre[b, 0], other.centre[b, 1], other.centre[b, 2]
        east, north = heading(earth, px, py, pz, qx, qy, qz)
        along, both, across = turned(one.sigma, a, east, north)
        east, north = heading(earth, qx, qy, qz, px, py, pz)
        more_along, more_both, more_across = turned(other.sigma, b, -east, -north)
        flat[0], flat[1], flat[2] = along + more_along, both + more_both, across + more_across
        gap[0] = geodesic(earth, px, py, pz, qx, qy, qz)
        out[i] = log_density(gap, flat)
        if high:
            above = above_of(one.sigma, a) + above_of(other.sigma, b)
            rise = one.centre[a, 3] - other.centre[b, 3]
            if above > 0.0:
                out[i] -= 0.5 * (rise * rise / above + math.log(above) + _LOG_TWO_PI)
            else:
                out[i] = np.nan
