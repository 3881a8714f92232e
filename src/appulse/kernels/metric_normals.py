"""Normal rows by other distances than one Euclidean one, in up to three dimensions.

Where the errors of two groups of dimensions are independent, their probabilities multiply. Else one coordinate is
integrated over: given it the others are normal again, with a covariance that stays and a mean that moves along a line.
A sum of two absolute differences is the larger of |x + y| and |x - y|, so a diamond is a square in these coordinates.

Integrals are adaptive (Gauss-Kronrod, 15 nodes), over pieces cut where the density peaks and where the moving mean
passes a rim. The absolute error is below 1e-9.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.ellipses import add_covariance, entry, plane_probability, space_probability
from appulse.kernels.gaussian import ball_probability, interval, phi, tolerated
from appulse.kernels.jit import exact_kernel, kernel
from appulse.kernels.quadrature import integral

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints, RowPairs
    from appulse.kernels.gaussian import Gaussians
    from appulse.kernels.metrics import Within

    Point = tuple[float, float, float]

# What two coordinates have to lie in: a rectangle, a diamond, a disc.
RECTANGLE, DIAMOND, DISC = 0, 1, 2
# Beyond this many deviations a normal tail is below 1e-18.
_TAIL = 9.0
_ERROR, _COARSE_ERROR = 1e-11, 1e-10
# Of a variance, what rounding leaves of one that is zero.
_NOTHING = 1e-14
_INVERSE_ROOT = 1.0 / math.sqrt(2.0 * math.pi)
# Where pieces are cut, in deviations from where something happens.
_STEPS = np.array([-6.0, -2.0, 0.0, 2.0, 6.0])
_MOST_CUTS = 40


@exact_kernel
def on_line(mean: float, variance: float, epsilon: float) -> float:
    """Probability that a normal number lies within ``epsilon`` of zero."""
    if variance == 0.0:
        return 1.0 if abs(mean) <= tolerated(epsilon) else 0.0
    deviation = math.sqrt(variance)
    return interval((-epsilon - mean) / deviation, (epsilon - mean) / deviation)


@exact_kernel
def _cut(cuts: Floats, count: int, at: float, width: float) -> int:
    """Cut around a place."""
    for step in _STEPS:
        cuts[count] = at + step * width
        count += 1
    return count


@exact_kernel
def _left(variance: float, of: float) -> float:
    """A variance, 0 where it is nothing but rounding."""
    return variance if variance > _NOTHING * of else 0.0


@kernel
def _along(x: float, given: tuple[float, float, float, float, float, float]) -> float:
    """What a first coordinate adds to `in_rectangle`."""
    mx, s, my, slope, rest, ey = given
    z = (x - mx) / s
    return math.exp(-0.5 * z * z) * on_line(my + slope * (x - mx), rest, ey)


@kernel
def _strip(low: float, high: float, mx: float, s: float, my: float, slope: float, rest: float, ey: float) -> float:
    """`in_rectangle` from ``low`` to ``high`` along the first coordinate; the second is left with ``rest``."""
    cuts = np.empty(_MOST_CUTS)
    count = _cut(cuts, 0, mx, s)
    width = math.sqrt(rest) / abs(slope)
    count = _cut(cuts, count, mx + (ey - my) / slope, width)
    count = _cut(cuts, count, mx + (-ey - my) / slope, width)
    cuts[count], cuts[count + 1] = low, high
    edges = np.sort(np.minimum(np.maximum(cuts[: count + 2], low), high))
    total = integral(_along, (mx, s, my, slope, rest, ey), edges, _INVERSE_ROOT / s, _ERROR)
    return min(1.0, max(0.0, total))


@kernel
def in_rectangle(mx: float, my: float, sxx: float, sxy: float, syy: float, ex: float, ey: float) -> float:
    """Probability that two normal coordinates lie within ``ex`` and ``ey`` of zero: their means, their covariance."""
    if sxx == 0.0 or syy == 0.0 or sxy == 0.0:
        return on_line(mx, sxx, ex) * on_line(my, syy, ey)
    s, slope = math.sqrt(sxx), sxy / sxx
    rest = _left(syy - sxy * slope, syy)
    low, high = max(-ex, mx - _TAIL * s), min(ex, mx + _TAIL * s)
    if rest == 0.0:  # both move as one
        one, two = mx + (ey - my) / slope, mx + (-ey - my) / slope
        low, high = max(low, min(one, two)), min(high, max(one, two))
        return interval((low - mx) / s, (high - mx) / s) if high > low else 0.0
    return _strip(low, high, mx, s, my, slope, rest, ey) if high > low else 0.0


@kernel
def in_plane(shape: int, mx: float, my: float, sxx: float, sxy: float, syy: float, ex: float, ey: float) -> float:
    """The same for any shape; of a diamond and a disc ``ex`` is the radius."""
    if ex < 0.0:
        return 0.0
    if shape == RECTANGLE:
        return in_rectangle(mx, my, sxx, sxy, syy, ex, ey)
    if shape == DIAMOND:
        sum_, difference, of = sxx + 2.0 * sxy + syy, sxx - 2.0 * sxy + syy, sxx + syy
        return in_rectangle(mx + my, mx - my, _left(sum_, of), sxx - syy, _left(difference, of), ex, ex)
    if sxx + syy == 0.0:
        return 1.0 if math.hypot(mx, my) <= tolerated(ex) else 0.0
    return plane_probability(mx, my, sxx, sxy, syy, ex)


@kernel
def _above(v: float, given: tuple[int, Point, Point, Point, tuple[float, float], bool]) -> float:
    """What a third coordinate adds to `in_space`: its mean and deviation, the slopes and what is left of the others."""
    shape, mean, rest, line, epsilon, shrinks = given
    gap = v - mean[2]
    z = gap / line[2]
    radius = epsilon[0] - abs(v) if shrinks else epsilon[0]
    x, y = mean[0] + line[0] * gap, mean[1] + line[1] * gap
    return math.exp(-0.5 * z * z) * in_plane(shape, x, y, rest[0], rest[1], rest[2], radius, epsilon[1])


@kernel
def in_space(shape: int, mean: Floats, c: Floats, ex: float, ey: float, ez: float, shrinks: bool) -> float:
    """The first two of three coordinates in a shape, the third within ``ez``; ``c`` is the upper triangle.

    Where the shape ``shrinks``, the absolute third coordinate is taken off its radius.
    """
    mx, my, mz = mean[0], mean[1], mean[2]
    sxx, sxy, sxz, syy, syz, szz = c[0], c[1], c[2], c[3], c[4], c[5]
    if szz == 0.0:
        if abs(mz) > tolerated(ez):
            return 0.0
        return in_plane(shape, mx, my, sxx, sxy, syy, ex - abs(mz) if shrinks else ex, ey)
    s, slope_x, slope_y = math.sqrt(szz), sxz / szz, syz / szz
    if slope_x == 0.0 and slope_y == 0.0 and not shrinks:
        return on_line(mz, szz, ez) * in_plane(shape, mx, my, sxx, sxy, syy, ex, ey)
    rest_x, rest_y = _left(sxx - sxz * slope_x, sxx), _left(syy - syz * slope_y, syy)
    both = sxy - sxz * slope_y if rest_x > 0.0 and rest_y > 0.0 else 0.0
    low, high = max(-ez, mz - _TAIL * s), min(ez, mz + _TAIL * s)
    if high <= low:
        return 0.0
    cuts = np.empty(_MOST_CUTS)
    count = _cut(cuts, 0, mz, s)
    for m, slope, rest, e in ((mx, slope_x, rest_x, ex), (my, slope_y, rest_y, ey)):
        if slope != 0.0:
            width = math.sqrt(rest) / abs(slope)
            count = _cut(cuts, count, mz + (e - m) / slope, width)
            count = _cut(cuts, count, mz + (-e - m) / slope, width)
    cuts[count], cuts[count + 1], cuts[count + 2] = low, high, 0.0
    edges = np.sort(np.minimum(np.maximum(cuts[: count + 3], low), high))
    given = shape, (mx, my, mz), (rest_x, both, rest_y), (slope_x, slope_y, s), (ex, ey), shrinks
    total = integral(_above, given, edges, _INVERSE_ROOT / s, _COARSE_ERROR)
    return min(1.0, max(0.0, total))


@kernel
def _reordered(order: Ints, gap: Floats, covariance: Floats, mean: Floats, out: Floats) -> None:
    """The difference in some dimensions, in this order: its mean and its upper triangle."""
    n, d, at = order.shape[0], gap.shape[0], 0
    for k in range(n):
        mean[k] = gap[order[k]]
        for m in range(k, n):
            out[at] = covariance[entry(order[k], order[m], d)]
            at += 1


@kernel
def _in_group(own: Ints, absolute: bool, gap: Floats, covariance: Floats, epsilon: float) -> float:
    """The probability of one group of dimensions."""
    n = own.shape[0]
    if n > 3:  # one deviation for all
        square = 0.0
        for k in own:
            square += gap[k] * gap[k]
        if covariance[0] == 0.0:
            return 1.0 if math.sqrt(square) <= tolerated(epsilon) else 0.0
        return ball_probability(math.sqrt(square), math.sqrt(covariance[0]), epsilon, n)
    mean, part = np.zeros(3), np.zeros(6)
    _reordered(own, gap, covariance, mean, part)
    if n == 1:
        return on_line(mean[0], part[0], epsilon)
    if n == 2:
        shape = DIAMOND if absolute else DISC
        return in_plane(shape, mean[0], mean[1], part[0], part[1], part[2], epsilon, epsilon)
    if absolute:
        return in_space(DIAMOND, mean, part, epsilon, epsilon, epsilon, shrinks=True)
    if part[0] + part[3] + part[5] == 0.0:
        return 1.0 if math.sqrt((mean * mean).sum()) <= tolerated(epsilon) else 0.0
    return space_probability(mean, part, epsilon)


@kernel
def _in_all(within: Within, gap: Floats, covariance: Floats, epsilon: Floats) -> float:
    """The probability that all groups hold."""
    d, groups = gap.shape[0], epsilon.shape[0]
    apart = True
    if d <= 3:
        for k in range(d):
            for m in range(k + 1, d):
                if within.group[k] != within.group[m] and covariance[entry(k, m, d)] != 0.0:
                    apart = False
    if apart:
        total = 1.0
        for g in range(groups):
            if total > 0.0:
                total *= _in_group(np.flatnonzero(within.group == g), within.absolute, gap, covariance, epsilon[g])
        return total
    if d == 2:
        e, f = epsilon[within.group[0]], epsilon[within.group[1]]
        return in_rectangle(gap[0], gap[1], covariance[0], covariance[1], covariance[2], e, f)
    order, shape = np.arange(3), RECTANGLE
    if groups == 2:  # the one that is alone comes last
        shape = DIAMOND if within.absolute else DISC
        first = np.flatnonzero(within.group == within.group[0])
        pair = first if first.shape[0] == 2 else np.flatnonzero(within.group != within.group[0])
        order[0], order[1], order[2] = pair[0], pair[1], 3 - pair[0] - pair[1]
    mean, part = np.zeros(3), np.zeros(6)
    _reordered(order, gap, covariance, mean, part)
    e, f, last = epsilon[within.group[order[0]]], epsilon[within.group[order[1]]], epsilon[within.group[order[2]]]
    return in_space(shape, mean, part, e, f, last, shrinks=False)


@kernel
def _at_most(within: Within, gap: Floats, covariance: Floats, epsilon: Floats) -> float:
    """A bound: each group lies in a half-space whose border is its epsilon away, along the line of centres."""
    d, bound = gap.shape[0], 1.0
    for g in range(epsilon.shape[0]):
        square, along, trace = 0.0, 0.0, 0.0
        for k in range(d):
            if within.group[k] != g:
                continue
            square += gap[k] * gap[k]
            if d > 3:
                along += gap[k] * gap[k] * covariance[0]
                trace += covariance[0]
                continue
            trace += covariance[entry(k, k, d)]
            for m in range(d):
                if within.group[m] == g:
                    along += gap[k] * gap[m] * covariance[entry(k, m, d)]
        distance = math.sqrt(square)
        if distance > tolerated(epsilon[g]):
            deviation = math.sqrt(max(0.0, along / square) + _NOTHING * trace)
            bound = min(bound, phi((epsilon[g] - distance) / deviation) if deviation > 0.0 else 0.0)
    return bound


@kernel
def normal_pairs_within(
    pairs: RowPairs,
    within: Within,
    threshold: float,
    use_bounds: bool,
    one: Gaussians,
    other: Gaussians,
    probability: Floats,
) -> None:
    """Probability of each pair of normal rows, of up to three dimensions or with one deviation each.

    NaN where a half-space already bounds it below the threshold. Rows without ``sigma`` have no error; ``sigma`` of
    several columns is the upper triangle of a covariance.
    """
    d, groups = one.centre.shape[1], within.epsilon.shape[0]
    gap, covariance, epsilon = np.empty(d), np.zeros(d * (d + 1) // 2), np.empty(groups)
    for i in range(pairs.left.shape[0]):
        a, b = pairs.left[i], pairs.right[i]
        probability[i] = np.nan
        mass = one.mass[a] * other.mass[b]
        if mass < threshold:
            continue
        for g in range(groups):
            epsilon[g] = within.epsilon[g] + (within.margin[i] if within.margin.shape[0] > 0 else 0.0)
        covariance[:] = 0.0
        add_covariance(one.sigma, a, d, covariance)
        add_covariance(other.sigma, b, d, covariance)
        for k in range(d):
            gap[k] = one.centre[a, k] - other.centre[b, k]
        if use_bounds and mass * _at_most(within, gap, covariance, epsilon) < threshold - 1e-12:
            continue
        inside = _in_all(within, gap, covariance, epsilon)
        probability[i] = mass * inside if inside > 0.0 else np.nan
