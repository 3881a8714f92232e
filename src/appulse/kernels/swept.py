"""Two things that move straight past each other: the probability that all thresholds hold at one instant.

Each group of dimensions has an epsilon. Where one group takes in all dimensions and errors are alike in every direction
that is the mass of a capsule (`capsule_mass`). Else one coordinate of the error is integrated over. Given it the others
are normal again, with a covariance that stays and a mean that moves along a line, and what is left is

* in the plane, for a disc: a chord of the capsule, so an interval along the path,
* for two groups of one dimension: the part of the path over which the first holds, so an interval of the second,
* for a group of one dimension beside a plane: the part of the path over which it holds, and the plane's problem there,
* for a ball in space: the capsule in a plane, with a radius that shrinks to the rim.

A group without error only cuts the path, beforehand. Integrals are adaptive (Gauss-Kronrod), over pieces that are cut
where the density peaks, where an end of the path is passed, and where the moving mean passes a rim: no peak falls
between the nodes. Absolute errors are below 1e-9 in the plane, and 1e-8 in space.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.capsule import capsule_mass, stretch_within
from appulse.kernels.ellipses import entry, plane_probability, space_probability
from appulse.kernels.gaussian import interval, phi, tolerated
from appulse.kernels.jit import exact_kernel, kernel
from appulse.kernels.quadrature import integral

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

    Place = tuple[float, float]
    Triangle = tuple[float, float, float]

# Beyond this many deviations a normal tail is below 1e-18.
_TAIL = 9.0
# Two rules that differ by this agree with the integral to some thousandth of it.
_INNER, _OUTER = 1e-10, 1e-9
# Of a variance, what rounding leaves of one that is zero.
_NOTHING = 1e-14
_INVERSE_ROOT = 1.0 / math.sqrt(2.0 * math.pi)
# Where pieces are cut around a place where something happens, in widths of it.
_STEPS = np.array([-1.0, 0.0, 1.0])
_SHARP = 6.0  # deviations beyond which a step is over
_MOST_CUTS = 80
# Thirds that leave 1e-10 of a range.
_THIRDS = 60


@exact_kernel
def _sharp(low: float, high: float, mean: float, variance: float) -> float:
    """The probability of an interval; of what has no error, whether it is in there."""
    if high < low:
        return 0.0
    if variance == 0.0:
        return 1.0 if low <= mean <= high else 0.0
    deviation = math.sqrt(variance)
    return interval((low - mean) / deviation, (high - mean) / deviation)


@exact_kernel
def _left(variance: float, of: float) -> float:
    """A variance, 0 where it is nothing but rounding."""
    return variance if variance > _NOTHING * of else 0.0


@exact_kernel
def _cut(cuts: Floats, count: int, at: float, width: float) -> int:
    """Cut at a place, and on both sides of it."""
    for step in _STEPS:
        cuts[count] = at + step * width
        count += 1
    return count


@exact_kernel
def _edges(cuts: Floats, count: int, low: float, high: float) -> Floats:
    """The sorted borders of the pieces from ``low`` to ``high``."""
    cuts[count], cuts[count + 1] = low, high
    return np.sort(np.minimum(np.maximum(cuts[: count + 2], low), high))


@exact_kernel
def _cut_entries(cuts: Floats, count: int, disc: bool, at: Place, by: Place, epsilon: Place, sharp: Place) -> int:
    """Cut where a place that moves from ``at`` by ``by`` enters and leaves a disc or a box around the origin."""
    if disc:
        square = by[0] * by[0] + by[1] * by[1]
        if square > 0.0:
            middle = -(at[0] * by[0] + at[1] * by[1]) / square
            aside = math.hypot(at[0] + middle * by[0], at[1] + middle * by[1])
            half = math.sqrt(max(0.0, (epsilon[0] - aside) * (epsilon[0] + aside)) / square)
            for side in (-1.0, 1.0):
                count = _cut(cuts, count, middle + side * half, math.hypot(sharp[0], sharp[1]) / math.sqrt(square))
        return count
    for start, step, near, wide in ((at[0], by[0], epsilon[0], sharp[0]), (at[1], by[1], epsilon[1], sharp[1])):
        if step != 0.0:
            for side in (-1.0, 1.0):
                count = _cut(cuts, count, (side * near - start) / step, wide / abs(step))
    return count


@exact_kernel
def together(begin: Floats, end: Floats, group: Ints, epsilon: Floats) -> tuple[float, float]:
    """From where to where on a segment, from 0 to 1, all groups are within their epsilon; the first larger: nowhere."""
    first, last = 0.0, 1.0
    for g in range(epsilon.shape[0]):
        low, high = stretch_within(begin, end, group, g, tolerated(epsilon[g]))
        first, last = max(first, low), min(last, high)
    return first, last


class _Line(NamedTuple):
    """A segment, a direction, and what of the segment lies across the direction, group by group."""

    begin: Floats
    step: Floats
    way: Floats
    begin_across: Floats
    end_across: Floats
    group: Ints
    epsilon: Floats


@exact_kernel
def _band(line: _Line, share: float) -> tuple[float, float]:
    """The multiples of the direction that are within epsilon of a place on the segment, in all groups."""
    low, high = -np.inf, np.inf
    for g in range(line.epsilon.shape[0]):
        square, along, across = 0.0, 0.0, 0.0
        for k in range(line.group.shape[0]):
            if line.group[k] == g:
                square += line.way[k] ** 2
                along += line.way[k] * (line.begin[k] + share * line.step[k])
                across += (line.begin_across[k] + share * (line.end_across[k] - line.begin_across[k])) ** 2
        if square > 0.0:
            half = math.sqrt(max(0.0, line.epsilon[g] ** 2 - across) / square)
            low, high = max(low, along / square - half), min(high, along / square + half)
    return low, high


@exact_kernel
def _best(line: _Line, first: float, last: float, below: float, above: float) -> float:
    """Where on a stretch the concave ``above * high - below * low`` of bands is largest, by thirds."""
    for _ in range(_THIRDS):
        one, other = first + (last - first) / 3.0, last - (last - first) / 3.0
        low, high = _band(line, one)
        next_low, next_high = _band(line, other)
        if above * high - below * low >= above * next_high - below * next_low:
            last = other
        else:
            first = one
    return 0.5 * (first + last)


@exact_kernel
def _on_line(begin: Floats, end: Floats, way: Floats, group: Ints, epsilon: Floats) -> tuple[float, float]:
    """The multiples of a direction that are near a segment at one place of it; the first is larger if there is none.

    For errors that lie on a line. What is near a segment is convex, so all its ends are found by thirds.
    """
    d, groups = begin.shape[0], epsilon.shape[0]
    line = _Line(begin, end - begin, way, begin.copy(), end.copy(), group, epsilon)
    for g in range(groups):
        square, at, to = 0.0, 0.0, 0.0
        for k in range(d):
            if group[k] == g:
                square += way[k] ** 2
                at += begin[k] * way[k]
                to += end[k] * way[k]
        for k in range(d):
            if group[k] == g and square > 0.0:
                line.begin_across[k] -= at / square * way[k]
                line.end_across[k] -= to / square * way[k]
    first, last = together(line.begin_across, line.end_across, group, epsilon)
    if first > last:
        return 1.0, 0.0
    if groups > 1:
        middle = _best(line, first, last, 1.0, 1.0)
        low, high = _band(line, middle)
        if low > high:
            return 1.0, 0.0
        borders = np.array([first, last])
        for b in range(2):
            out, inside = borders[b], middle
            low, high = _band(line, out)
            if low > high:
                for _ in range(_THIRDS):
                    half = 0.5 * (out + inside)
                    low, high = _band(line, half)
                    out, inside = (half, inside) if low > high else (out, half)
                borders[b] = inside
        first, last = borders[0], borders[1]
    low, high = np.inf, -np.inf
    for share in (first, last, _best(line, first, last, 1.0, 0.0), _best(line, first, last, 0.0, 1.0)):
        begins, ends = _band(line, share)
        low, high = min(low, begins), max(high, ends)
    return low, high


@exact_kernel
def _mass_on_line(a: Place, b: Place, slope: float, deviation: float, epsilon: tuple[float, ...]) -> float:
    """The same in the plane, as the mass of errors (u, slope u), of a ``deviation`` of u; in a disc, or a box."""
    group = np.zeros(2, np.int64) if len(epsilon) == 1 else np.arange(2)
    limits = np.array(epsilon)
    low, high = _on_line(np.array([a[0], a[1]]), np.array([b[0], b[1]]), np.array([1.0, slope]), group, limits)
    return _sharp(low, high, 0.0, deviation * deviation)


@kernel
def _chord(theta: float, given: tuple[float, float, float, float, float, float, float]) -> float:
    """What a coordinate across the path adds: ``h + epsilon sin(theta)``."""
    a, b, h, epsilon, deviation, slope, rest = given
    reach = epsilon * math.cos(theta)
    n = h + epsilon * math.sin(theta)
    z = n / deviation
    return reach * math.exp(-0.5 * z * z) * _sharp(a - reach, b + reach, slope * n, rest)


@kernel
def in_disc(a: Place, b: Place, c: Triangle, epsilon: float) -> float:
    """The mass within ``epsilon`` of a segment in the plane; ``c`` is the upper triangle of the covariance."""
    if epsilon <= 0.0:
        return 0.0
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = math.hypot(dx, dy)
    trace = c[0] + c[2]
    if trace > 0.0 and length == 0.0:
        return plane_probability(a[0], a[1], c[0], c[1], c[2], epsilon)
    ux, uy = (dx / length, dy / length) if length > 0.0 else (1.0, 0.0)
    begin, end, h = a[0] * ux + a[1] * uy, b[0] * ux + b[1] * uy, a[1] * ux - a[0] * uy
    if trace > 0.0 and abs(c[0] - c[2]) + abs(c[1]) <= 1e-13 * trace:
        deviation = math.sqrt(0.5 * trace)
        return capsule_mass(begin / deviation, end / deviation, abs(h) / deviation, epsilon / deviation, 2)
    along = c[0] * ux * ux + 2.0 * c[1] * ux * uy + c[2] * uy * uy
    across = _left(c[0] * uy * uy - 2.0 * c[1] * ux * uy + c[2] * ux * ux, trace)
    both = (c[2] - c[0]) * ux * uy + c[1] * (ux * ux - uy * uy)
    if across == 0.0:
        if abs(h) > tolerated(epsilon):
            return 0.0
        reach = math.sqrt(max(0.0, (epsilon - h) * (epsilon + h)))
        return _sharp(begin - reach, end + reach, 0.0, along)
    deviation, slope = math.sqrt(across), both / across
    rest = _left(along - both * slope, along)
    if rest == 0.0:  # the path runs along the first coordinate
        return _mass_on_line((h, begin), (h, end), slope, deviation, (epsilon,))
    low = math.asin(min(1.0, max(-1.0, (-_TAIL * deviation - h) / epsilon)))
    high = math.asin(min(1.0, max(-1.0, (_TAIL * deviation - h) / epsilon)))
    if low >= high:
        return 0.0
    cuts, count = np.empty(_MOST_CUTS), 0
    for step in (-3.0, 0.0, 3.0):
        cuts[count] = math.asin(min(1.0, max(-1.0, (step * deviation - h) / epsilon)))
        count += 1
    # Where the moving mean passes an end of the chord: epsilon cos(theta -+ turn) steep = what is left.
    steep, turn, width = epsilon * math.hypot(1.0, slope), math.atan(slope), _SHARP * math.sqrt(rest)
    for side, offset in ((-1.0, (slope * h - end) / steep), (1.0, (begin - slope * h) / steep)):
        angle = math.acos(min(1.0, max(-1.0, offset)))
        wide = min(width / max(steep * math.sin(angle), 1e-300), math.sqrt(2.0 * width / steep))
        count = _cut(cuts, count, side * turn - angle, wide)
        count = _cut(cuts, count, side * turn + angle, wide)
    given = begin, end, h, epsilon, deviation, slope, rest
    total = integral(_chord, given, _edges(cuts, count, low, high), _INVERSE_ROOT / deviation, _INNER)
    return min(1.0, max(0.0, total))


@exact_kernel
def _part(start: float, step: float, at: float, epsilon: float) -> tuple[float, float]:
    """From where to where, from 0 to 1, ``start + s step`` is within ``epsilon`` of a number."""
    if step == 0.0:
        return (0.0, 1.0) if abs(start - at) <= epsilon else (1.0, 0.0)
    one, other = (at - epsilon - start) / step, (at + epsilon - start) / step
    return max(0.0, min(one, other)), min(1.0, max(one, other))


@kernel
def _column(u: float, given: tuple[Place, Place, Place, float, float, float]) -> float:
    """What a first coordinate adds to `in_box`."""
    a, step, epsilon, deviation, slope, rest = given
    first, last = _part(a[0], step[0], u, epsilon[0])
    if first > last:
        return 0.0
    one, other = a[1] + first * step[1], a[1] + last * step[1]
    z = u / deviation
    inside = _sharp(min(one, other) - epsilon[1], max(one, other) + epsilon[1], slope * u, rest)
    return math.exp(-0.5 * z * z) * inside


@kernel
def in_box(a: Place, b: Place, c: Triangle, epsilon: Place) -> float:
    """The mass within a box, of half its width ``epsilon``, around a segment in the plane."""
    step = (b[0] - a[0], b[1] - a[1])
    if c[0] == 0.0:
        first, last = _part(a[0], step[0], 0.0, tolerated(epsilon[0]))
        if first > last:
            return 0.0
        one, other = a[1] + first * step[1], a[1] + last * step[1]
        return _sharp(min(one, other) - epsilon[1], max(one, other) + epsilon[1], 0.0, c[2])
    deviation, slope = math.sqrt(c[0]), c[1] / c[0]
    rest = _left(c[2] - c[1] * slope, c[2])
    if rest == 0.0 and c[2] > 0.0:
        return _mass_on_line(a, b, slope, deviation, epsilon)
    low = max(-_TAIL * deviation, min(a[0], b[0]) - epsilon[0])
    high = min(_TAIL * deviation, max(a[0], b[0]) + epsilon[0])
    if low >= high:
        return 0.0
    cuts = np.empty(_MOST_CUTS)
    count = _cut(cuts, 0, 0.0, 3.0 * deviation)
    width = _SHARP * math.sqrt(rest)
    for side in (-1.0, 1.0):
        cuts[count], cuts[count + 1] = a[0] + side * epsilon[0], b[0] + side * epsilon[0]
        count += 2
        for rim in (-1.0, 1.0):
            # A border of the second coordinate is that of an end of the path, or moves with the first one.
            if slope != 0.0:
                y = (a[1] if side < 0.0 else b[1]) + rim * epsilon[1]
                count = _cut(cuts, count, y / slope, width / abs(slope))
            if step[0] != 0.0:
                rise = step[1] / step[0]
                if rise != slope:
                    y = a[1] + rim * epsilon[1] + (side * epsilon[0] - a[0]) * rise
                    count = _cut(cuts, count, y / (slope - rise), width / abs(slope - rise))
    given = a, step, epsilon, deviation, slope, rest
    total = integral(_column, given, _edges(cuts, count, low, high), _INVERSE_ROOT / deviation, _INNER)
    return min(1.0, max(0.0, total))


@kernel
def _layer(
    v: float, given: tuple[bool, Place, Place, tuple[float, float, float], Place, Triangle, Place, float]
) -> float:
    """What a third coordinate adds to `beside_plane`."""
    disc, a, step, third, slope, rest, epsilon, deviation = given
    first, last = _part(third[0], third[1], v, third[2])
    if first > last:
        return 0.0
    x, y = a[0] - slope[0] * v, a[1] - slope[1] * v
    one, other = (x + first * step[0], y + first * step[1]), (x + last * step[0], y + last * step[1])
    z = v / deviation
    inside = in_disc(one, other, rest, epsilon[0]) if disc else in_box(one, other, rest, epsilon)
    return math.exp(-0.5 * z * z) * inside


@kernel
def beside_plane(begin: Floats, end: Floats, c: Floats, disc: bool, epsilon: tuple[float, float, float]) -> float:
    """Two coordinates in a disc (of the first ``epsilon``) or a box, and the third within the last ``epsilon``."""
    a, b, plane = (begin[0], begin[1]), (end[0], end[1]), (epsilon[0], epsilon[1])
    step = (b[0] - a[0], b[1] - a[1])
    rise, climb, height = begin[2], end[2] - begin[2], epsilon[2]
    deviation, slope = math.sqrt(c[5]), (c[2] / c[5], c[4] / c[5])
    moves = climb != 0.0 or slope[0] != 0.0 or slope[1] != 0.0
    if not moves:
        inside = _sharp(rise - height, rise + height, 0.0, c[5])
        rest = (c[0], c[1], c[3])
        return inside * (in_disc(a, b, rest, plane[0]) if disc else in_box(a, b, rest, plane))
    xx, yy = _left(c[0] - c[2] * slope[0], c[0]), _left(c[3] - c[4] * slope[1], c[3])
    rest = (xx, c[1] - c[2] * slope[1] if xx > 0.0 and yy > 0.0 else 0.0, yy)
    # Where errors would lie whose first coordinates are their means.
    group = np.array([0, 0, 1]) if disc else np.arange(3)
    limits = np.array([epsilon[0], height]) if disc else np.array([epsilon[0], epsilon[1], height])
    near, far = _on_line(begin, end, np.array([slope[0], slope[1], 1.0]), group, limits)
    if xx + yy == 0.0:
        return _sharp(near, far, 0.0, c[5])
    low = max(-_TAIL * deviation, min(rise, rise + climb) - height)
    high = min(_TAIL * deviation, max(rise, rise + climb) + height)
    if low >= high:
        return 0.0
    cuts = np.empty(_MOST_CUTS)
    count = _cut(cuts, 0, 0.0, 3.0 * deviation)
    sharp, along = (_SHARP * math.sqrt(xx), _SHARP * math.sqrt(yy)), (-slope[0], -slope[1])
    speed = math.hypot(slope[0], slope[1])
    for side in (-1.0, 1.0):
        cuts[count], cuts[count + 1] = rise + side * height, rise + climb + side * height
        count += 2
        if speed > 0.0:
            count = _cut_entries(cuts, count, disc, a if side < 0.0 else b, along, plane, sharp)
            if near <= far:
                count = _cut(cuts, count, near if side < 0.0 else far, math.hypot(sharp[0], sharp[1]) / speed)
        if climb != 0.0:  # an end of what the third coordinate leaves of the path
            share = (-side * height - rise) / climb
            at = (a[0] + share * step[0], a[1] + share * step[1])
            by = (step[0] / climb - slope[0], step[1] / climb - slope[1])
            count = _cut_entries(cuts, count, disc, at, by, plane, sharp)
    given = disc, a, step, (rise, climb, height), slope, rest, plane, deviation
    total = integral(_layer, given, _edges(cuts, count, low, high), _INVERSE_ROOT / deviation, _OUTER)
    return min(1.0, max(0.0, total))


@kernel
def _slice(theta: float, given: tuple[Place, Place, Triangle, Place, float, float]) -> float:
    """What a coordinate across the plane adds to `in_ball`: ``epsilon sin(theta)``."""
    a, b, rest, slope, epsilon, deviation = given
    v, reach = epsilon * math.sin(theta), epsilon * math.cos(theta)
    x, y, z = slope[0] * v, slope[1] * v, v / deviation
    inside = in_disc((a[0] - x, a[1] - y), (b[0] - x, b[1] - y), rest, reach)
    return reach * math.exp(-0.5 * z * z) * inside


@kernel
def in_ball(begin: Floats, end: Floats, c: Floats, epsilon: float) -> float:
    """The mass within ``epsilon`` of a segment in space, for any covariance that is not 0."""
    length, square = 0.0, 0.0
    for k in range(3):
        length += (end[k] - begin[k]) ** 2
    length = math.sqrt(length)
    if length == 0.0:
        return space_probability(begin, c, epsilon)
    axes = np.zeros((3, 3))  # along the path, to it from the origin, and across both
    first, last = 0.0, 0.0
    for k in range(3):
        axes[0, k] = (end[k] - begin[k]) / length
        first += begin[k] * axes[0, k]
        last += end[k] * axes[0, k]
    for k in range(3):
        axes[1, k] = begin[k] - first * axes[0, k]
        square += axes[1, k] ** 2
    h = math.sqrt(square)
    if h <= 1e-9 * (abs(first) + abs(last)):  # any direction across the path, rounded anew
        least = np.argmin(np.abs(axes[0]))
        square = 0.0
        for k in range(3):
            axes[1, k] = (1.0 if k == least else 0.0) - axes[0, least] * axes[0, k]
            square += axes[1, k] ** 2
    if c[0] == c[3] == c[5] and c[1] == c[2] == c[4] == 0.0:
        deviation = math.sqrt(c[0])
        return capsule_mass(first / deviation, last / deviation, h / deviation, epsilon / deviation, 3)
    for k in range(3):
        axes[1, k] /= math.sqrt(square)
    for k in range(3):
        one, other = (k + 1) % 3, (k + 2) % 3
        axes[2, k] = axes[0, one] * axes[1, other] - axes[0, other] * axes[1, one]
    matrix, trace = np.empty((3, 3)), c[0] + c[3] + c[5]
    matrix[0, 0], matrix[0, 1], matrix[0, 2] = c[0], c[1], c[2]
    matrix[1, 0], matrix[1, 1], matrix[1, 2] = c[1], c[3], c[4]
    matrix[2, 0], matrix[2, 1], matrix[2, 2] = c[2], c[4], c[5]
    turned = np.zeros((3, 3))
    for k in range(3):
        for m in range(3):
            for p in range(3):
                for q in range(3):
                    turned[k, m] += axes[k, p] * matrix[p, q] * axes[m, q]
    a, b = (first, h), (last, h)
    if _left(turned[2, 2], trace) == 0.0:
        return in_disc(a, b, (turned[0, 0], turned[0, 1], turned[1, 1]), epsilon)
    deviation = math.sqrt(turned[2, 2])
    slope = (turned[0, 2] / turned[2, 2], turned[1, 2] / turned[2, 2])
    xx = _left(turned[0, 0] - turned[0, 2] * slope[0], trace)
    yy = _left(turned[1, 1] - turned[1, 2] * slope[1], trace)
    rest = (xx, turned[0, 1] - turned[0, 2] * slope[1] if xx > 0.0 and yy > 0.0 else 0.0, yy)
    way, none = np.array([slope[0], slope[1], 1.0]), np.zeros(3, np.int64)
    near, far = _on_line(np.array([first, h, 0.0]), np.array([last, h, 0.0]), way, none, np.array([epsilon]))
    if xx + yy == 0.0:
        return _sharp(near, far, 0.0, turned[2, 2])
    cuts = np.empty(_MOST_CUTS)
    count = _cut(cuts, 0, 0.0, 3.0 * deviation)
    sharp, speed = _SHARP * math.sqrt(xx + yy), math.hypot(slope[0], slope[1])
    if speed > 0.0:
        for x in (first, last):
            by = (-slope[0], -slope[1])
            count = _cut_entries(
                cuts, count, disc=True, at=(x, h), by=by, epsilon=(epsilon, epsilon), sharp=(sharp, 0.0)
            )
    if near <= far:
        count = _cut(cuts, count, near, sharp / max(speed, 1e-3))
        count = _cut(cuts, count, far, sharp / max(speed, 1e-3))
    low, high = max(-epsilon, -_TAIL * deviation), min(epsilon, _TAIL * deviation)
    edges = np.arcsin(np.minimum(np.maximum(_edges(cuts, count, low, high) / epsilon, -1.0), 1.0))
    total = integral(_slice, (a, b, rest, slope, epsilon, deviation), edges, _INVERSE_ROOT / deviation, _OUTER)
    return min(1.0, max(0.0, total))


@exact_kernel
def bound_on(begin: Floats, end: Floats, c: Floats, group: Ints, epsilon: Floats) -> float:
    """A bound on the probability: what is near a segment lies in a half-space, by the line to its nearest place."""
    d, bound = begin.shape[0], 1.0
    for g in range(epsilon.shape[0]):
        square, along, trace = 0.0, 0.0, 0.0
        for k in range(d):
            if group[k] == g:
                square += (end[k] - begin[k]) ** 2
                along -= begin[k] * (end[k] - begin[k])
                trace += c[entry(k, k, d)]
        at = min(1.0, max(0.0, along / square)) if square > 0.0 else 0.0
        far, variance = 0.0, 0.0
        for k in range(d):
            if group[k] == g:
                x = begin[k] + at * (end[k] - begin[k])
                far += x * x
                for m in range(d):
                    if group[m] == g:
                        variance += x * c[entry(k, m, d)] * (begin[m] + at * (end[m] - begin[m]))
        distance = math.sqrt(far)
        if distance <= tolerated(epsilon[g]):
            continue
        deviation = math.sqrt(max(0.0, variance / far) + _NOTHING * trace)
        if deviation == 0.0:
            return 0.0
        bound = min(bound, phi((epsilon[g] - distance) / deviation))
    return bound


@kernel
def swept_probability(begin: Floats, end: Floats, c: Floats, group: Ints, epsilon: Floats) -> float:
    """Probability that at one instant each group of dimensions is within its ``epsilon``, in up to three dimensions.

    The path of the means goes from ``begin`` to ``end``; ``c`` is the upper triangle of the error's covariance,
    ``group`` has the group of each dimension.
    """
    d, groups = begin.shape[0], epsilon.shape[0]
    first, last = 0.0, 1.0
    order, n, uncertain = np.empty(3, np.int64), 0, 0
    for g in range(groups):
        variance, size = 0.0, 0
        for k in range(d):
            if group[k] == g:
                variance += c[entry(k, k, d)]
                size += 1
        if variance == 0.0:
            low, high = stretch_within(begin, end, group, g, tolerated(epsilon[g]))
            first, last = max(first, low), min(last, high)
            continue
        uncertain += 1
        if epsilon[g] <= 0.0:
            return 0.0
        # The larger groups come first.
        for k in range(d):
            if group[k] == g:
                order[n] = k
                n += 1
        if size == 2 and n == 3:
            order[0], order[1], order[2] = order[1], order[2], order[0]
    if first > last:
        return 0.0
    if n == 0:
        return 1.0
    one, other, part, at = np.empty(n), np.empty(n), np.empty(n * (n + 1) // 2), 0
    for k in range(n):
        start, step = begin[order[k]], end[order[k]] - begin[order[k]]
        one[k], other[k] = start + first * step, start + last * step
        for m in range(k, n):
            part[at] = c[entry(order[k], order[m], d)]
            at += 1
    e = (epsilon[group[order[0]]], epsilon[group[order[min(1, n - 1)]]], epsilon[group[order[n - 1]]])
    if n == 1:
        return _sharp(min(one[0], other[0]) - e[0], max(one[0], other[0]) + e[0], 0.0, part[0])
    if n == 2:
        a, b, plane = (one[0], one[1]), (other[0], other[1]), (part[0], part[1], part[2])
        return in_disc(a, b, plane, e[0]) if uncertain == 1 else in_box(a, b, plane, (e[0], e[1]))
    if uncertain == 1:
        return in_ball(one, other, part, e[0])
    return beside_plane(one, other, part, uncertain == 2, e)
