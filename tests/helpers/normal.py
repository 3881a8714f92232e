"""Pr{a normal difference lies within epsilon}, by quadrature: the twin of `appulse.kernels.ellipses`.

Coordinates along the axes of the covariance are integrated one after the other, the narrowest first, by Gauss-Legendre
over many short pieces; those without error only make the ball smaller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_STEPS = np.array([0.0, 0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.5])


def within(gap: Sequence[float], covariance: Any, epsilon: float) -> float:
    """The probability, for the mean difference and its covariance matrix."""
    variances, axes = np.linalg.eigh(np.array(covariance, float))
    mean = np.abs(axes.T @ np.array(gap, float))
    some = variances > 1e-14 * variances.max()
    square = epsilon**2 - float((mean[~some] ** 2).sum())
    if square <= 0.0:
        return 0.0
    return float(_within(mean[some], np.sqrt(variances[some]), np.sqrt([square]))[0])


def _within(mean: Matrix, deviation: Matrix, radius: Matrix) -> Matrix:
    """The same for independent coordinates, the narrowest first, and for each of several radii."""
    if len(mean) == 1:
        found: Matrix = ndtr((radius - mean[0]) / deviation[0]) - ndtr((-radius - mean[0]) / deviation[0])
        return found
    # Angles, as the integrand is smooth in them up to the rim.
    wide = _angles((mean[0] + deviation[0] * np.r_[-_STEPS, _STEPS])[None, :], radius)
    far = np.linalg.norm(mean[1:]) + np.outer(deviation[1:], np.r_[-_STEPS, _STEPS]).ravel()
    rims = np.arccos(np.clip(far[None, :] / radius[:, None], 0.0, 1.0))
    cuts = np.sort(np.hstack([wide, np.clip(np.hstack([rims, -rims]), wide.min(1)[:, None], wide.max(1)[:, None])]), 1)
    middle, half = 0.5 * (cuts[:, 1:] + cuts[:, :-1]), 0.5 * (cuts[:, 1:] - cuts[:, :-1])
    theta = middle[:, :, None] + half[:, :, None] * _NODES
    weights = half[:, :, None] * _WEIGHTS
    v, h = radius[:, None, None] * np.sin(theta), radius[:, None, None] * np.cos(theta)
    density = np.exp(-0.5 * ((v - mean[0]) / deviation[0]) ** 2) / deviation[0] / np.sqrt(2.0 * np.pi)
    used = weights * density * h > 1e-17
    inner = np.zeros(v.shape)
    inner[used] = _within(mean[1:], deviation[1:], h[used])
    total: Matrix = (weights * density * h * inner).sum(axis=(1, 2))
    return total


def _angles(v: Matrix, radius: Matrix) -> Matrix:
    return np.arcsin(np.clip(v / radius[:, None], -1.0, 1.0))
