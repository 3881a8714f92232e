"""Pairs of isotropic Gaussians, and how likely each is within epsilon."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.ball_table import looked_up
from appulse.kernels.gaussian import at_most, ball_probability, phi, tolerated
from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, RowPairs
    from appulse.kernels.ball_table import BallTable
    from appulse.kernels.gaussian import Gaussians, WithinBall


@kernel
def gaussian_pairs(
    pairs: RowPairs,
    within: WithinBall,
    one: Gaussians,
    other: Gaussians,
    table: BallTable,
    probability: Floats,
) -> None:
    """Probability of each pair of isotropic Gaussians; NaN where a bound is already below the threshold.

    Where there is a ``table``, it is that of the deviation of all pairs, and of their one epsilon.
    """
    if table.pieces.shape[0]:
        _pairs_by_table(pairs, within, one, other, table, probability)
        return
    left, right = pairs
    asked, limit2, margin, threshold, use_bounds = within
    epsilon = asked
    left_centre, left_mass, left_sigma = one
    right_centre, right_mass, right_sigma = other
    d = left_centre.shape[1]
    for i in range(left.shape[0]):
        a = left[i]
        b = right[i]
        if margin.shape[0] > 0:
            epsilon = asked + margin[i]
            limit2 = tolerated(epsilon) ** 2
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
            if use_bounds and mass * at_most(distance, deviation, epsilon, d) < threshold - 1e-12:
                probability[i] = np.nan
            else:
                probability[i] = mass * ball_probability(distance, deviation, epsilon, d)


@kernel
def _pairs_by_table(
    pairs: RowPairs,
    within: WithinBall,
    one: Gaussians,
    other: Gaussians,
    table: BallTable,
    probability: Floats,
) -> None:
    """As `gaussian_pairs`, where all pairs have one deviation: the half-space rules out all beyond one distance."""
    left, right = pairs
    threshold, use_bounds = within.threshold, within.use_bounds
    d = one.centre.shape[1]
    farthest = np.inf
    if use_bounds and threshold > 1e-12:
        # Of pairs that surely exist, so of all others, too.
        low, high = -40.0, 40.0
        while high - low > 1e-9:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if phi(middle) < threshold - 1e-12 else (low, middle)
        farthest = table.epsilon - low * table.deviation
    for i in range(left.shape[0]):
        a, b = left[i], right[i]
        mass = one.mass[a] * other.mass[b]
        square = 0.0
        for k in range(d):
            gap = one.centre[a, k] - other.centre[b, k]
            square += gap * gap
        distance = math.sqrt(square)
        far = (mass < threshold) | (distance > farthest)
        probability[i] = np.nan if far else mass * looked_up(table, distance)
