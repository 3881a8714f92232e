"""Cheap bounds on the probability that two uncertain objects are close: O(d^2) a pair.

Means and covariances are probability-weighted and normalised by mass: with plain means the pair {0: .9, 4: .1} and
{-1: 1} at epsilon 1, which has probability .9, would be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import fused_kernel, kernel
from appulse.kernels.simd import prefetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Moments, RowPairs, Whole

REFINE, PRUNED_MASS, PRUNED_CANTELLI, PRUNED_MARKOV, ACCEPTED, PRUNED_SQUARE, LIKELY = 0, 1, 2, 3, 4, 5, 6
_AHEAD = 8  # pairs that are prepared before their turn


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
def rounding(far: float, blur: float) -> tuple[float, float]:
    """How wrong a mean of the squared distance may be, and its variance, at most.

    ``far`` bounds all distances, ``blur`` is the rounding of a difference of two means. A thousand times what sums of
    products of such numbers lose, and far below what a threshold can tell.
    """
    return 4.0 * far * blur + 1e-12 * far * far, far * far * (40.0 * far * blur + 1e-12 * far * far) + 1e-300


@kernel
def cantelli_on_square(
    distance: float,
    trace: float,  # of the covariance of the difference
    along: float,  # its variance along the line of centres
    skew: float,  # along that line, of w |w|^2, for the difference w from its mean
    spread: float,  # variance of |w|^2
    far: float,
    blur: float,
    epsilon: float,
) -> float:
    """Pr{close} is at most this: Cantelli's inequality on the best of squared distances from points beyond the centre.

    With z the difference of two objects and D its mean, f = |z|^2 + 2 s z.D / |D| is, but for a constant, the squared
    distance from a point s behind the origin, seen from D. Close pairs have f <= epsilon^2 + 2 s epsilon. s = 0 is the
    squared distance itself, s without end the line of centres; in between the gap is linear in s and the variance
    quadratic, so that the best s is known.
    """
    slack, blunt = rounding(far, blur)
    gap = distance * distance + trace - epsilon * epsilon
    step = 2.0 * (distance - epsilon)
    variance = 4.0 * distance * (distance * along + skew) + spread
    tilt = 4.0 * (2.0 * distance * along + skew)
    curve = 4.0 * along
    bend = step * tilt - 2.0 * gap * curve
    s = 0.0
    if bend != 0.0:
        s = min(max(0.0, (gap * tilt - 2.0 * step * variance) / bend), 16.0 * far)
    wide = 1.0 + s / far if far > 0.0 else 1.0
    gap += step * s - slack * wide
    if not gap > 0.0:
        return 1.0
    variance = max(0.0, variance + s * (tilt + s * curve)) + blunt * wide * wide
    return variance / (variance + gap * gap)


class Limits(NamedTuple):
    """When pairs match, and which bounds decide about them."""

    epsilon: float  # with its tolerance
    of_pairs: Floats  # that of each pair, or empty
    threshold: float
    moment: bool
    square: bool
    accept: bool
    early: bool  # bounds will do: `LIKELY` are pairs that reach the threshold, and `at_least` tells by how much


@fused_kernel
def fetch_place(mass: Floats, radius: Floats, centre: Floats, row: Whole) -> None:
    """Have where a row is, and how large, on its way."""
    prefetch(mass, row)
    prefetch(radius, row)
    prefetch(centre, row * centre.shape[1])


@fused_kernel
def fetch_spread(covariance: Floats, shape: Floats, row: Whole) -> None:
    """The same of higher moments."""
    prefetch(covariance, row * covariance.shape[1])
    prefetch(covariance, (row + 1) * covariance.shape[1] - 1)  # it lies in two lines mostly
    prefetch(shape, row * shape.shape[1])


@kernel
def judge(
    pairs: RowPairs,
    limits: Limits,
    one: Moments,
    other: Moments,
    verdict: NDArray[np.int8],
    at_least: Floats,
) -> None:
    """One verdict per pair: to refine, pruned (by which bound), or accepted (then Pr is the product of masses)."""
    left, right = pairs
    epsilon, of_pairs, threshold, use_moment, use_square, use_accept, early = limits
    left_mass, left_centre, left_radius, left_covariance, left_shape = one
    right_mass, right_centre, right_radius, right_covariance, right_shape = other
    d = left_centre.shape[1]
    gap = np.empty(d, np.float64)
    for i in range(left.shape[0]):
        a = left[i]
        b = right[i]
        if of_pairs.shape[0] > 0:
            epsilon = of_pairs[i]
        if i + _AHEAD < left.shape[0]:
            # Partners lie anywhere in the window: have what is read of later ones on its way.
            later = right[i + _AHEAD]
            fetch_place(right_mass, right_radius, right_centre, later)
            if use_moment or use_square:
                fetch_spread(right_covariance, right_shape, later)
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
        if not (use_moment or use_square or early):
            continue
        along = 0.0
        trace = 0.0
        product = 0.0  # the trace of the product of both covariances
        at = 0
        for k in range(d):
            own, other = left_covariance[a, at], right_covariance[b, at]
            along += gap[k] * gap[k] * (own + other)
            trace += own + other
            product += own * other
            at += 1
            for m in range(k + 1, d):
                own, other = left_covariance[a, at], right_covariance[b, at]
                along += 2.0 * gap[k] * gap[m] * (own + other)
                product += 2.0 * own * other
                at += 1
        along = max(0.0, along / square) if square > 0.0 else 0.0
        farthest = distance + left_radius[a] + right_radius[b] + blur
        skew = 0.0
        for k in range(d):
            skew += gap[k] * (left_shape[a, k] - right_shape[b, k])
        skew = skew / distance if distance > 0.0 else 0.0
        spread = left_shape[a, d] + right_shape[b, d] + 4.0 * product
        if early:
            # Cantelli's inequality from the other side.
            slack, blunt = rounding(farthest, blur)
            room = epsilon * epsilon - square - trace - slack
            variance = max(0.0, 4.0 * distance * (distance * along + skew)) + spread + blunt
            at_least[i] = mass * room * room / (variance + room * room) if room > 0.0 else 0.0
            if at_least[i] >= threshold + 1e-12:
                verdict[i] = LIKELY
                continue
        if use_moment:
            if square > 0.0 and mass * cantelli(distance - blur, along + blur * blur, epsilon) < threshold - 1e-12:
                verdict[i] = PRUNED_CANTELLI
                continue
            nearest_mean_square = max(0.0, distance - blur) ** 2 + trace * (1.0 - 1e-12)
            if mass * reverse_markov(nearest_mean_square, farthest, epsilon) < threshold - 1e-9:
                verdict[i] = PRUNED_MARKOV
                continue
        if use_square:
            bound = cantelli_on_square(distance, trace, along, skew, spread, farthest, blur, epsilon)
            if mass * bound < threshold - 1e-12:
                verdict[i] = PRUNED_SQUARE
