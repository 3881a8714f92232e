"""Normal errors of any covariance: the probability that a difference lies within epsilon of the origin.

In the axes of the difference's covariance its coordinates are independent. In two dimensions, with deviations s1 >= s2,
a coordinate v along the minor axis leaves a chord of half-length h = sqrt(epsilon^2 - v^2) along the major one:

    integral over v of density((v - m2) / s2) / s2 * [Phi((h - m1) / s1) - Phi((-h - m1) / s1)]

With v = epsilon sin(theta) and h = epsilon cos(theta) the integrand is analytic and has a period of half a turn, so the
midpoint rule converges exponentially: to 1e-11 once its nodes are some .7 s2 apart (the test sweeps that).

Where that asks for too many, and the mean is off the rim along one of the axes, that axis is integrated over as far as
its density reaches, by equal steps: short beside the deviation, and beside how fast the bracket changes. Else the range
is cut at the density's peak and where h passes the mean, and each part is integrated adaptively: the density is one
bump, and the bracket only rises with h. In three dimensions the coordinate along the minor axis leaves a disc, for
which the same holds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.gaussian import ball_probability, interval, phi, tolerated
from appulse.kernels.jit import exact_kernel, kernel
from appulse.kernels.quadrature import integral

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, RowPairs
    from appulse.kernels.gaussian import Gaussians, WithinBall

# Beyond this many deviations a normal tail is below 1e-18.
_TAIL = 9.0
# Two rules that differ by this agree with the integral to some thousandth of it.
_ERROR = 1e-9
# Of the largest variance, what rounding leaves of one that is zero.
_NOTHING = 1e-15
# Variances along a line that are a smaller share of all are mostly rounding; and what that does to others at most.
_THIN, _ROUNDED = 1e-9, 1.0 + 1e-4
_INVERSE_ROOT = 1.0 / math.sqrt(2.0 * math.pi)
# Nodes of the midpoint rule, and up to which epsilon, in minor deviations, they serve.
_COUNTS, _SERVES = np.array([16, 32, 64, 128]), np.array([3.0, 8.0, 15.0, 30.0])


def _angles(count: int) -> np.ndarray:
    """Midpoints of half a turn, filled up to the length of the longest rule."""
    return np.resize(np.pi * ((np.arange(count) + 0.5) / count - 0.5), _COUNTS[-1])


_SIN = np.sin([_angles(count) for count in _COUNTS])
_COS = np.cos([_angles(count) for count in _COUNTS])
# Along one axis: beyond so many deviations the density is below 1e-17; steps are this share of what changes fastest.
_REACH, _STEP, _MOST_STEPS = 8.5, 0.4, 160.0
# Sweeps of rotations that make a matrix of three rows diagonal; each squares what is left.
_SWEEPS = 12


@exact_kernel
def _sine_of(v: float, epsilon: float) -> float:
    """The angle whose sine is v / epsilon, at most a right one."""
    return math.asin(min(1.0, max(-1.0, v / epsilon)))


@kernel
def _range(mean: float, deviation: float, rim: float, epsilon: float, cuts: Floats) -> None:
    """Angles at which the range of the minor coordinate begins, is cut, and ends."""
    cuts[0], cuts[4] = (
        _sine_of(mean - _TAIL * deviation, epsilon),
        _sine_of(mean + _TAIL * deviation, epsilon),
    )
    edge = math.acos(min(1.0, rim / epsilon))
    first, second, third = min(max(_sine_of(mean, epsilon), cuts[0]), cuts[4]), -edge, edge
    second, third = min(max(second, cuts[0]), cuts[4]), min(max(third, cuts[0]), cuts[4])
    cuts[1], cuts[3] = min(first, second), max(first, third)
    cuts[2] = first + second + third - cuts[1] - cuts[3]


@kernel
def _chord(theta: float, given: tuple[float, float, float, float, float]) -> float:
    """What the chord at an angle adds."""
    m1, m2, s1, s2, epsilon = given
    h = epsilon * math.cos(theta)
    z = (epsilon * math.sin(theta) - m2) / s2
    return h * math.exp(-0.5 * z * z) * interval((-h - m1) / s1, (h - m1) / s1)


@kernel
def _by_midpoints(rule: int, m1: float, m2: float, s1: float, s2: float, epsilon: float) -> float:
    total = 0.0
    for i in range(_COUNTS[rule]):
        h = epsilon * _COS[rule, i]
        z = (epsilon * _SIN[rule, i] - m2) / s2
        total += h * math.exp(-0.5 * z * z) * interval((-h - m1) / s1, (h - m1) / s1)
    return float(min(1.0, total * math.pi / _COUNTS[rule] * _INVERSE_ROOT / s2))


@exact_kernel
def _steps(mean: float, own: float, other: float, epsilon: float) -> float:
    """How many steps over an axis do, by the deviations along it and across; without end near the rim."""
    q = (mean + _REACH * own) / epsilon
    if q >= 1.0:
        return np.inf
    return 2.0 * _REACH / _STEP * max(1.0, own * q / (other * math.sqrt((1.0 - q) * (1.0 + q))))


@kernel
def _by_steps(steps: int, mean: float, own: float, across: float, other: float, epsilon: float) -> float:
    """The integral over an axis with this mean and deviation; ``across`` and ``other`` are those of the other axis."""
    step = 2.0 * _REACH / steps
    total = 0.0
    for i in range(steps):
        z = (i + 0.5) * step - _REACH
        v = mean + z * own
        h = math.sqrt((epsilon - v) * (epsilon + v))
        total += math.exp(-0.5 * z * z) * interval((-h - across) / other, (h - across) / other)
    return float(min(1.0, total * step * _INVERSE_ROOT))


@kernel
def along_axes(m1: float, m2: float, s1: float, s2: float, epsilon: float) -> float:
    """Probability that independent normal coordinates lie within ``epsilon``; absolute error below 1e-10.

    ``s1`` >= ``s2`` >= 0 are their deviations, the first not 0; means are not negative.
    """
    if s2 == 0.0:
        if m2 > epsilon:
            return 0.0
        h = math.sqrt((epsilon - m2) * (epsilon + m2))
        return interval((-h - m1) / s1, (h - m1) / s1)
    if s1 - s2 <= _NOTHING * s1:
        return ball_probability(math.hypot(m1, m2), s1, epsilon, 2)
    if m2 - _TAIL * s2 > epsilon or m1 - _TAIL * s1 > epsilon:
        return 0.0
    if math.hypot(m1 + _TAIL * s1, m2 + _TAIL * s2) <= epsilon:
        return 1.0
    for rule in range(_COUNTS.shape[0]):
        if epsilon <= _SERVES[rule] * s2:
            return _by_midpoints(rule, m1, m2, s1, s2, epsilon)
    over_minor, over_major = _steps(m2, s2, s1, epsilon), _steps(m1, s1, s2, epsilon)
    if min(over_minor, over_major) <= _MOST_STEPS:
        if over_minor <= over_major:
            return _by_steps(math.ceil(over_minor), m2, s2, m1, s1, epsilon)
        return _by_steps(math.ceil(over_major), m1, s1, m2, s2, epsilon)
    cuts = np.empty(5)
    _range(m2, s2, m1, epsilon, cuts)
    total = integral(_chord, (m1, m2, s1, s2, epsilon), cuts, _INVERSE_ROOT / s2, _ERROR)
    return min(1.0, max(0.0, total))


@kernel
def _section(theta: float, given: tuple[Floats, Floats, float]) -> float:
    """What the disc at an angle adds."""
    mean, deviation, epsilon = given
    h = epsilon * math.cos(theta)
    z = (epsilon * math.sin(theta) - mean[2]) / deviation[2]
    return h * math.exp(-0.5 * z * z) * along_axes(mean[0], mean[1], deviation[0], deviation[1], h)


@kernel
def along_three_axes(mean: Floats, deviation: Floats, epsilon: float) -> float:
    """`along_axes` in three dimensions: deviations from the largest on, means that are not negative."""
    s1, s2, s3 = deviation[0], deviation[1], deviation[2]
    if epsilon == 0.0:
        return 0.0
    if s3 == 0.0:
        if mean[2] > epsilon:
            return 0.0
        return along_axes(mean[0], mean[1], s1, s2, math.sqrt((epsilon - mean[2]) * (epsilon + mean[2])))
    square = mean[0] * mean[0] + mean[1] * mean[1] + mean[2] * mean[2]
    if s1 - s3 <= _NOTHING * s1:
        return ball_probability(math.sqrt(square), s1, epsilon, 3)
    far = 0.0
    for k in range(3):
        if mean[k] - _TAIL * deviation[k] > epsilon:
            return 0.0
        far += (mean[k] + _TAIL * deviation[k]) ** 2
    if math.sqrt(far) <= epsilon:
        return 1.0
    cuts = np.empty(5)
    _range(mean[2], s3, math.hypot(mean[0], mean[1]), epsilon, cuts)
    total = integral(_section, (mean, deviation, epsilon), cuts, _INVERSE_ROOT / s3, _ERROR)
    return min(1.0, max(0.0, total))


@exact_kernel
def plane_probability(x: float, y: float, sxx: float, sxy: float, syy: float, epsilon: float) -> float:
    """Probability that a normal difference in the plane lies within ``epsilon``: its mean, its covariance, not 0."""
    half, turned = 0.5 * (sxx - syy), 0.5 * math.atan2(2.0 * sxy, sxx - syy)
    most = 0.5 * (sxx + syy) + math.hypot(half, sxy)
    least = (sxx * syy - sxy * sxy) / most
    least = least if least > _NOTHING * most else 0.0
    cosine, sine = math.cos(turned), math.sin(turned)
    along, across = abs(cosine * x + sine * y), abs(cosine * y - sine * x)
    return along_axes(along, across, math.sqrt(most), math.sqrt(least), epsilon)


@exact_kernel
def _diagonal(matrix: Floats, axes: Floats) -> None:
    """Rotate a symmetric matrix of three rows until it is diagonal (Jacobi); ``axes`` has its axes as columns."""
    axes[:] = 0.0
    for k in range(3):
        axes[k, k] = 1.0
    for _ in range(_SWEEPS):
        for p in range(2):
            for q in range(p + 1, 3):
                rest = matrix[p, q]
                if abs(rest) <= 1e-300 + 1e-17 * (abs(matrix[p, p]) + abs(matrix[q, q])):
                    continue
                theta = 0.5 * (matrix[q, q] - matrix[p, p]) / rest
                t = 1.0 / (abs(theta) + math.sqrt(theta * theta + 1.0))
                t = -t if theta < 0.0 else t
                cosine = 1.0 / math.sqrt(t * t + 1.0)
                sine = t * cosine
                matrix[p, p] -= t * rest
                matrix[q, q] += t * rest
                matrix[p, q] = 0.0
                matrix[q, p] = 0.0
                r = 3 - p - q
                one, two = matrix[r, p], matrix[r, q]
                matrix[r, p] = cosine * one - sine * two
                matrix[p, r] = matrix[r, p]
                matrix[r, q] = sine * one + cosine * two
                matrix[q, r] = matrix[r, q]
                for k in range(3):
                    one, two = axes[k, p], axes[k, q]
                    axes[k, p] = cosine * one - sine * two
                    axes[k, q] = sine * one + cosine * two


@exact_kernel
def space_probability(gap: Floats, covariance: Floats, epsilon: float) -> float:
    """The same in three dimensions; ``covariance`` is the upper triangle, row by row."""
    matrix, axes = np.empty((3, 3)), np.empty((3, 3))
    at = 0
    for k in range(3):
        for m in range(k, 3):
            matrix[k, m] = covariance[at]
            matrix[m, k] = covariance[at]
            at += 1
    _diagonal(matrix, axes)
    mean, deviation = np.empty(3), np.empty(3)
    most = max(matrix[0, 0], matrix[1, 1], matrix[2, 2])
    for k in range(3):
        variance = matrix[k, k] if matrix[k, k] > _NOTHING * most else 0.0
        deviation[k] = math.sqrt(variance)
        mean[k] = abs(gap[0] * axes[0, k] + gap[1] * axes[1, k] + gap[2] * axes[2, k])
    for k in range(2):
        for m in range(2 - k):
            if deviation[m] < deviation[m + 1]:
                deviation[m], deviation[m + 1] = deviation[m + 1], deviation[m]
                mean[m], mean[m + 1] = mean[m + 1], mean[m]
    return along_three_axes(mean, deviation, epsilon)


@exact_kernel
def entry(k: int, m: int, d: int) -> int:
    """Where a pair of dimensions stands in an upper triangle."""
    low, high = min(k, m), max(k, m)
    return low * d - low * (low - 1) // 2 + high - low


@exact_kernel
def add_covariance(spread: Floats, row: int, d: int, out: Floats) -> None:
    """Add the covariance of a row to ``out``: it has none, one deviation, or an upper triangle."""
    if spread.shape[1] == 1:
        variance = spread[row, 0] * spread[row, 0]
        at = 0
        for k in range(d):
            out[at] += variance
            at += d - k
    else:
        for k in range(spread.shape[1]):
            out[k] += spread[row, k]


@kernel
def normal_pairs(
    pairs: RowPairs,
    within: WithinBall,
    one: Gaussians,
    other: Gaussians,
    probability: Floats,
) -> None:
    """Probability of each pair of normal rows, two of 1 to 3 dimensions or two with one deviation each.

    NaN where a half-space already bounds it below the threshold. Rows without ``sigma`` have no error; ``sigma`` of
    several columns is the upper triangle of a covariance.
    """
    left, right = pairs
    asked, limit2, margin, threshold, use_bounds = within
    epsilon = asked
    d = one.centre.shape[1]
    full = one.sigma.shape[1] > 1 or other.sigma.shape[1] > 1
    gap, covariance = np.empty(d), np.zeros(d * (d + 1) // 2)
    for i in range(left.shape[0]):
        a, b = left[i], right[i]
        mass = one.mass[a] * other.mass[b]
        probability[i] = np.nan
        if mass < threshold:
            continue
        if margin.shape[0] > 0:
            epsilon = asked + margin[i]
            limit2 = tolerated(epsilon) ** 2
        covariance[:] = 0.0
        add_covariance(one.sigma, a, d, covariance)
        add_covariance(other.sigma, b, d, covariance)
        square, along, trace, at = 0.0, 0.0, 0.0, 0
        for k in range(d):
            gap[k] = one.centre[a, k] - other.centre[b, k]
            square += gap[k] * gap[k]
        for k in range(d):
            trace += covariance[at]
            along += gap[k] * gap[k] * covariance[at]
            at += 1
            for m in range(k + 1, d):
                along += 2.0 * gap[k] * gap[m] * covariance[at]
                at += 1
        if trace == 0.0:
            probability[i] = mass if square <= limit2 else np.nan
            continue
        distance = math.sqrt(square)
        if use_bounds and distance > epsilon:
            # The ball lies in a half-space whose border is epsilon away from its centre, and between two.
            deviation = math.sqrt(max(0.0, along / square) + _NOTHING * trace)
            most = phi((epsilon - distance) / deviation)
            if deviation > 2.0 * epsilon and along > _THIN * square * trace:
                most = interval((-epsilon - distance) / deviation, (epsilon - distance) / deviation) * _ROUNDED
            if mass * most < threshold - 1e-12:
                continue
        if not full or d == 1:
            probability[i] = mass * ball_probability(distance, math.sqrt(covariance[0]), epsilon, d)
        elif d == 2:
            probability[i] = mass * plane_probability(
                gap[0], gap[1], covariance[0], covariance[1], covariance[2], epsilon
            )
        else:
            probability[i] = mass * space_probability(gap, covariance, epsilon)
