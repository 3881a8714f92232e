"""How far uncertain values reach: the distance within which enough of their mass lies for a threshold."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats

__all__ = ["densest", "gaussian_reach", "margin_reach", "normal_quantile", "reach_quantile"]

_TOLERANCE = 1e-9


def reach_quantile(threshold: float) -> float:
    """Mass that the alpha-reach has to exceed: sqrt(1 - alpha), for a threshold with its tolerance taken off.

    Two objects farther apart than epsilon and both reaches match with probability below alpha: the masses attained
    within them multiply above 1 - alpha (Lian & Chen 2009, Eqs. 5, 6 and 9).
    """
    return math.sqrt(max(0.0, 1.0 - threshold))


def gaussian_reach(threshold: float) -> float:
    """Reach of an isotropic Gaussian among its like, in sigmas: Pr <= Phi((epsilon - D) / s) and s <= s1 + s2."""
    return max(0.0, normal_quantile(1.0 - threshold))


def margin_reach(margin: Floats, d: int, metric: str) -> Floats:
    """What margins add to reaches, which go straight: by Chebyshev's metric as far as the corners of a cube."""
    return margin * ((1.0 + _TOLERANCE) * (math.sqrt(d) if metric == "chebyshev" else 1.0))


def densest(threshold: float, d: int) -> tuple[float, float]:
    """Of a ball of radius 1, how far from it a normal mean may be whatever the deviation, and the largest deviation.

    The ball has at least ``threshold`` of the mass, and at most its volume times the greatest density within. With a
    deviation of s in each of ``d`` dimensions, and g from the mean to the ball, that is (v / s)^d exp(-(g / s)^2 / 2),
    which is largest where s is g / sqrt(d).
    """
    if threshold <= 0.0:
        return math.inf, math.inf
    largest = math.exp(-(math.log(threshold) + math.lgamma(0.5 * d + 1.0)) / d - 0.5 * math.log(2.0))
    return largest * math.sqrt(d / math.e), largest


def normal_quantile(p: float) -> float:
    """Where the standard normal distribution has a mass of ``p`` below; finite for 0 and 1, too."""
    return NormalDist().inv_cdf(min(max(p, 1e-300), 1.0 - 1e-16))
