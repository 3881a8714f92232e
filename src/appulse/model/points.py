"""The fixed points at which a Gaussian or a ball is sampled where no closed form applies."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats


def _uniform(n: int, d: int) -> Floats:
    """A low-discrepancy sequence in the unit cube (Roberts' generalised golden ratio), shape (n, d)."""
    ratio = 2.0
    for _ in range(64):
        ratio = (1.0 + ratio) ** (1.0 / (d + 1))
    steps = ratio ** -np.arange(1.0, d + 1)
    points: Floats = (0.5 + np.outer(np.arange(1.0, n + 1), steps)) % 1.0
    return points


def _mirrored(points: Floats, n: int) -> Floats:
    """The points and their opposites, so that the mean is the centre; the centre itself if ``n`` is odd."""
    middle = np.zeros((n % 2, points.shape[1]))
    return np.concatenate([points, -points, middle])


@cache
def normal_points(n: int, d: int) -> Floats:
    """``n`` points in d dimensions with mean 0 and, where ``n`` > 2 d, covariance exactly the identity; (n, d)."""
    from scipy.special import ndtri

    points = _mirrored(ndtri(_uniform(n // 2, d)), n)
    if n > 2 * d:
        spread = points.T @ points / n
        points = np.linalg.solve(np.linalg.cholesky(spread), points.T).T
    points.setflags(write=False)
    return points


@cache
def ball_points(n: int, d: int) -> Floats:
    """``n`` points in the unit ball in d dimensions, their mean the centre; (n, d)."""
    from scipy.special import ndtri

    uniform = _uniform(n // 2, d + 1)
    directions = ndtri(uniform[:, :d])
    directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-300)
    points = _mirrored(directions * uniform[:, d:] ** (1.0 / d), n)
    points.setflags(write=False)
    return points
