"""Positions with an altitude: the probability that two lie in a ball, or in a cylinder, around each other.

The errors of a pair are normal: with one deviation in each horizontal direction, and one of the altitude. In a cylinder
the two are asked for apart. In a ball, the vertical difference v leaves a disc of radius sqrt(epsilon^2 - v^2):

    integral over v of density(v) * Pr{horizontal difference within that disc}

The disc's probability is smooth in v, but changes within a few horizontal deviations of where its rim passes the mean;
so the range is cut there, and each part is integrated adaptively (Gauss-Kronrod, 15 nodes).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.gaussian import Gaussians, at_most, ball_probability, interval, phi
from appulse.kernels.geodesic import Earth, Near, geodesic, widened
from appulse.kernels.jit import kernel
from appulse.kernels.quadrature import integral

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, RowPairs

# Beyond this many deviations a normal tail is below 1e-18.
_TAIL = 9.0
# Two rules that differ by this agree with the integral to some thousandth of it.
_ERROR = 1e-8
# Rims sharper than that may lie between all nodes.
_SHARP = 0.25


@kernel
def _disc(distance: float, deviation: float, radius: float) -> float:
    """The probability that a horizontal difference is at most ``radius``."""
    if radius <= 0.0:
        return 0.0
    if deviation == 0.0:
        return 1.0 if distance <= radius else 0.0
    return ball_probability(distance, deviation, radius, 2)


@kernel
def _slice(v: float, given: tuple[float, float, float, float, float]) -> float:
    """What a vertical difference adds."""
    distance, flat, rise, steep, epsilon = given
    z = (v - rise) / steep
    return math.exp(-0.5 * z * z) * _disc(distance, flat, math.sqrt(max(0.0, (epsilon - v) * (epsilon + v))))


@kernel
def ball_and_height(distance: float, flat: float, rise: float, steep: float, epsilon: float) -> float:
    """The probability that two positions are within ``epsilon``; absolute error below 1e-10.

    Their means are ``distance`` apart along the Earth and ``rise`` in altitude; ``flat`` and ``steep`` are the
    deviations of these, not both 0.
    """
    apart = math.hypot(distance, rise)
    if apart + _TAIL * max(flat, steep) <= epsilon:
        return 1.0
    if steep == 0.0:
        return _disc(distance, flat, math.sqrt(max(0.0, (epsilon - rise) * (epsilon + rise))))
    if flat == 0.0:
        if distance > epsilon:
            return 0.0
        reach = math.sqrt((epsilon - distance) * (epsilon + distance))
        return interval((-reach - rise) / steep, (reach - rise) / steep)
    if flat == steep:
        return ball_probability(apart, flat, epsilon, 3)
    first, last = max(-epsilon, rise - _TAIL * steep), min(epsilon, rise + _TAIL * steep)
    if first >= last:
        return 0.0
    cuts = np.full(9, last)
    cuts[0], cuts[1] = first, min(max(rise, first), last)
    count = 2
    for k in range(3):
        rim = distance + (k - 1) * _TAIL * flat
        if flat < _SHARP * steep and 0.0 < rim < epsilon:
            v = math.sqrt((epsilon - rim) * (epsilon + rim))
            cuts[count], cuts[count + 1] = min(max(-v, first), last), min(max(v, first), last)
            count += 2
    scale = 1.0 / (steep * math.sqrt(2.0 * math.pi))
    total = integral(_slice, (distance, flat, rise, steep, epsilon), np.sort(cuts), scale, _ERROR)
    return min(1.0, max(0.0, total))


@kernel
def _deviation(sigma: Floats, row: int, other: Floats, other_row: int, k: int) -> float:
    variance = 0.0
    if sigma.shape[0] > 0:
        variance += sigma[row, k] * sigma[row, k]
    if other.shape[0] > 0:
        variance += other[other_row, k] * other[other_row, k]
    return math.sqrt(variance)


@kernel
def _at_most(distance: float, rise: float, flat: float, steep: float, near: Near) -> float:
    """A bound on the probability of a pair, which only falls with its distance: of a half-space for each direction."""
    if near.cylinder:
        bound = 1.0 if distance <= near.limit else 0.0
        if flat > 0.0:
            bound = at_most(distance, flat, near.epsilon, 2)
        if steep > 0.0:
            return min(bound, phi((near.vertical - rise) / steep))
        return bound if rise <= near.vertical_limit else 0.0
    apart, deviation = math.hypot(distance, rise), max(flat, steep)
    if deviation == 0.0:
        return 1.0 if apart <= near.limit else 0.0
    return phi((near.epsilon - apart) / deviation)


@kernel
def _inside(distance: float, rise: float, flat: float, steep: float, near: Near) -> float:
    """The probability of a pair whose rows exist."""
    if near.cylinder:
        if steep > 0.0:
            within = interval((-near.vertical - rise) / steep, (near.vertical - rise) / steep)
        else:
            within = 1.0 if rise <= near.vertical_limit else 0.0
        return within * _disc(distance, flat, near.epsilon if flat > 0.0 else near.limit)
    if flat == 0.0 and steep == 0.0:
        return 1.0 if math.hypot(distance, rise) <= near.limit else 0.0
    return ball_and_height(distance, flat, rise, steep, near.epsilon)


@kernel
def altitude_pairs(
    pairs: RowPairs,
    earth: Earth,
    near: Near,
    one: Gaussians,
    other: Gaussians,
    probability: Floats,
    distance: Floats,
) -> None:
    """As `earth_pairs`, of rows whose fourth coordinate is an altitude."""
    left, right = pairs
    for i in range(left.shape[0]):
        a, b = left[i], right[i]
        asked = widened(near, near.margin[i]) if near.margin.shape[0] > 0 else near
        mass = one.mass[a] * other.mass[b]
        px, py, pz = one.centre[a, 0], one.centre[a, 1], one.centre[a, 2]
        qx, qy, qz = other.centre[b, 0], other.centre[b, 1], other.centre[b, 2]
        rise = abs(one.centre[a, 3] - other.centre[b, 3])
        chord = math.sqrt((px - qx) * (px - qx) + (py - qy) * (py - qy) + (pz - qz) * (pz - qz))
        flat = _deviation(one.sigma, a, other.sigma, b, 0)
        steep = _deviation(one.sigma, a, other.sigma, b, 1)
        probability[i] = np.nan
        if mass < near.threshold:
            continue
        if near.use_bounds and mass * _at_most(chord, rise, flat, steep, asked) < near.threshold - 1e-12:
            continue
        metres = geodesic(earth, px, py, pz, qx, qy, qz)
        distance[i] = math.hypot(metres, rise)
        if not near.use_bounds or mass * _at_most(metres, rise, flat, steep, asked) >= near.threshold - 1e-12:
            probability[i] = mass * _inside(metres, rise, flat, steep, asked)
