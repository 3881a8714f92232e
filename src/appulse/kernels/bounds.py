"""Cheap bounds on the probability that two uncertain objects are close.

Means and covariances are probability-weighted and normalised by mass: with plain means the pair {0: .9, 4: .1} and
{-1: 1} at epsilon 1, which has probability .9, would be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints

REFINE, PRUNED_MASS, PRUNED_CANTELLI, PRUNED_MARKOV, ACCEPTED = 0, 1, 2, 3, 4


@kernel
def cantelli(distance: float, variance: float, epsilon: float) -> float:
    """Pr{close} is at most this, for mean distance, variance along the line of centres, and epsilon.

    Close objects are at most epsilon apart along that line too; Cantelli's inequality bounds that.
    """
    gap = distance - epsilon
    if gap <= 0.0:
        return 1.0
    return variance / (variance + gap * gap)


@kernel
def reverse_markov(mean_square: float, farthest: float, epsilon: float) -> float:
    """Pr{close} is at most this, for the mean of the squared distance and the largest distance there is."""
    room = farthest * farthest - epsilon * epsilon
    if room <= 1e-5 * farthest * farthest:  # too close to call: rounding would be magnified
        return 1.0
    return (farthest * farthest - mean_square) / room


@kernel
def judge(
    left: Ints,
    right: Ints,
    epsilon: float,  # with its tolerance
    threshold: float,
    use_moment: bool,
    use_accept: bool,
    left_centre: Floats,
    left_mass: Floats,
    left_radius: Floats,
    left_covariance: Floats,  # rows of the upper triangle
    right_centre: Floats,
    right_mass: Floats,
    right_radius: Floats,
    right_covariance: Floats,
    verdict: NDArray[np.int8],
) -> None:
    """One verdict per pair: to refine, pruned (by which bound), or accepted (then Pr is the product of masses)."""
    d = left_centre.shape[1]
    gap = np.empty(d, np.float64)
    for i in range(left.shape[0]):
        a = left[i]
        b = right[i]
        mass = left_mass[a] * right_mass[b]
        if mass < threshold:
            verdict[i] = PRUNED_MASS
            continue
        verdict[i] = REFINE
        square = 0.0
        magnitude = 0.0
        for k in range(d):
            gap[k] = left_centre[a, k] - right_centre[b, k]
            square += gap[k] * gap[k]
            magnitude += abs(left_centre[a, k]) + abs(right_centre[b, k])
        distance = np.sqrt(square)
        # Means carry the rounding of their coordinates; at 1e7 metres that is more than the tolerance.
        blur = 4e-16 * magnitude
        if use_accept and distance + left_radius[a] + right_radius[b] + blur <= epsilon:
            verdict[i] = ACCEPTED
            continue
        if not use_moment:
            continue
        along = 0.0
        trace = 0.0
        at = 0
        for k in range(d):
            c = left_covariance[a, at] + right_covariance[b, at]
            along += gap[k] * gap[k] * c
            trace += c
            at += 1
            for m in range(k + 1, d):
                along += 2.0 * gap[k] * gap[m] * (left_covariance[a, at] + right_covariance[b, at])
                at += 1
        if square > 0.0:
            variance = max(0.0, along / square) + blur * blur
            if mass * cantelli(distance - blur, variance, epsilon) < threshold - 1e-12:
                verdict[i] = PRUNED_CANTELLI
                continue
        farthest = distance + left_radius[a] + right_radius[b] + blur
        nearest_mean_square = max(0.0, distance - blur) ** 2 + trace * (1.0 - 1e-12)
        if mass * reverse_markov(nearest_mean_square, farthest, epsilon) < threshold - 1e-9:
            verdict[i] = PRUNED_MARKOV
