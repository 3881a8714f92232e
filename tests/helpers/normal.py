"""Pr{a normal difference lies within epsilon}, by quadrature: the twin of `appulse.kernels.ellipses`.

Coordinates along the axes of the covariance are integrated one after the other, the narrowest first, by Gauss-Legendre
over many short pieces; those without error only make the ball smaller.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)  # of pieces no longer than a deviation or so
_MORE_NODES, _MORE_WEIGHTS = np.polynomial.legendre.leggauss(24)
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
    which, piece = np.nonzero(cuts[:, 1:] > cuts[:, :-1])
    begin, end = cuts[which, piece, None], cuts[which, piece + 1, None]
    theta = 0.5 * (end + begin) + 0.5 * (end - begin) * _NODES
    v, h = radius[which, None] * np.sin(theta), radius[which, None] * np.cos(theta)
    density = np.exp(-0.5 * ((v - mean[0]) / deviation[0]) ** 2) / deviation[0] / np.sqrt(2.0 * np.pi)
    weights = 0.5 * (end - begin) * _WEIGHTS * density * h
    used = weights > 1e-17
    inner = np.zeros(v.shape)
    inner[used] = _within(mean[1:], deviation[1:], h[used])
    total: Matrix = np.bincount(which, (weights * inner).sum(axis=1), len(radius)).astype(float)
    return total


def _angles(v: Matrix, radius: Matrix) -> Matrix:
    return np.arcsin(np.clip(v / radius[:, None], -1.0, 1.0))


def inside(gap: Sequence[float], covariance: Any, groups: Sequence[tuple[Sequence[int], float]], metric: str) -> float:
    """The probability that in each group of dimensions a normal difference is within a distance, by nested quadrature.

    One coordinate after the other, each given those before; what is left of the distances shrinks. Coordinates are
    taken in the order of the groups, so that the last one is in closed form.
    """
    order = [k for dimensions, _ in groups for k in dimensions]
    group = [g for g, (dimensions, _) in enumerate(groups) for _ in dimensions]
    mean, matrix = np.array(gap, float)[order], np.array(covariance, float)[np.ix_(order, order)]
    return _inside(mean, matrix, group, [epsilon for _, epsilon in groups], absolute=metric == "manhattan")


def _inside(mean: Matrix, matrix: Matrix, group: list[int], room: list[float], *, absolute: bool) -> float:
    """``room`` is what is left of each group's distance."""
    reach, variance, rest = room[group[0]], matrix[0, 0], slice(1, None)
    if reach < 0.0:
        return 0.0

    def given(x: float) -> float:
        if len(mean) == 1:
            return 1.0
        left = reach - abs(x) if absolute else math.sqrt(max(0.0, reach * reach - x * x))
        own = [left if g == group[0] else epsilon for g, epsilon in enumerate(room)]
        return _inside(mean[rest] + slope * (x - mean[0]), below, group[1:], own, absolute=absolute)

    if variance <= 1e-14 * max(1.0, float(matrix.trace())):
        slope, below = np.zeros(len(mean) - 1), matrix[rest, rest]
        return given(float(mean[0])) if abs(mean[0]) <= reach + 1e-9 * max(1.0, reach) else 0.0
    deviation = math.sqrt(variance)
    low, high = max(-reach, mean[0] - 9.0 * deviation), min(reach, mean[0] + 9.0 * deviation)
    if high <= low:
        return 0.0
    if len(mean) == 1:
        return float(_last(mean[0], variance, reach))
    slope = matrix[rest, 0] / variance
    below = matrix[rest, rest] - np.outer(slope, matrix[0, rest])
    below[np.abs(below) < 1e-13 * max(1.0, float(np.abs(matrix).max()))] = 0.0
    moving = [(m, k, room[g]) for m, k, g in zip(mean[rest], slope, group[1:], strict=True) if k]
    rims = [mean[0] + (rim - m) / k for m, k, left in moving for rim in (-left, left)]
    peak = mean[0] + deviation * np.r_[-_STEPS, _STEPS]
    cuts = np.array(sorted({low, high, *(x for x in (0.0, *peak, *rims) if low < x < high)}))
    # Angles, as what is left of a distance is smooth in them up to the rim.
    angles = np.arcsin(np.clip(cuts / reach, -1.0, 1.0))[:, None]
    theta = (0.5 * (angles[:-1] + angles[1:]) + 0.5 * (angles[1:] - angles[:-1]) * _MORE_NODES).ravel()
    x = reach * np.sin(theta)
    density = np.exp(-0.5 * ((x - mean[0]) / deviation) ** 2) / deviation / math.sqrt(2.0 * math.pi)
    weights = (0.5 * (angles[1:] - angles[:-1]) * _MORE_WEIGHTS).ravel() * density * reach * np.cos(theta)
    used = weights > 1e-16
    x, weights = x[used], weights[used]
    if len(mean) > 2:
        return float(sum(weight * given(float(v)) for weight, v in zip(weights, x, strict=True)))
    left = reach - np.abs(x) if absolute else np.sqrt(np.maximum(0.0, reach * reach - x * x))
    own = left if group[1] == group[0] else np.full(len(x), room[group[1]])
    return float(weights @ _last(mean[1] + slope[0] * (x - mean[0]), below[0, 0], own))


def _last(mean: Any, variance: float, reach: Any) -> Any:
    """The same for one coordinate, of each of several means and reaches."""
    if variance <= 1e-14 * max(1.0, variance):
        return (reach >= 0.0) & (np.abs(mean) <= reach + 1e-9 * np.maximum(1.0, reach))
    deviation = math.sqrt(variance)
    low, high = np.maximum(-reach, mean - 9.0 * deviation), np.minimum(reach, mean + 9.0 * deviation)
    return np.maximum(0.0, ndtr((high - mean) / deviation) - ndtr((low - mean) / deviation))
