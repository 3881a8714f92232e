"""Two things that move straight past each other in space: the probability that one meets a cylinder around the other.

Horizontally the relative path of the means is a segment in a plane, and the altitude changes along it at a constant
rate. Horizontal and vertical threshold have to hold at one instant. The vertical error v leaves a stretch of the path,

    |rise(t) + v| <= vertical,   t from 0 to 1

and the horizontal error the mass of the capsule over that stretch, so the probability is the integral

    integral over v of density(v) * capsule(stretch(v))

which is smooth in v but where an end of the stretch passes an end of the path, or nears the closest approach: the range
is cut there, and each part is integrated adaptively.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.capsule import capsule_probability, segment_distance, stretch_within
from appulse.kernels.gaussian import interval
from appulse.kernels.jit import exact_kernel
from appulse.kernels.quadrature import COARSE, FINE, NODES

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats

# Beyond this many deviations a normal tail is below 1e-18.
_TAIL = 9.0
_ERROR = 1e-9
_MOST_PARTS = 64


@exact_kernel
def rising_within(rise: float, climb: float, vertical: float) -> tuple[float, float]:
    """From where to where, from 0 to 1, the altitudes ``rise + t climb`` are within ``vertical`` of 0."""
    if climb == 0.0:
        return (0.0, 1.0) if abs(rise) <= vertical else (1.0, 0.0)
    one, other = (-vertical - rise) / climb, (vertical - rise) / climb
    return max(0.0, min(one, other)), min(1.0, max(one, other))


@exact_kernel
def _stretch_mass(begin: Floats, end: Floats, first: float, last: float, flat: float, epsilon: float) -> float:
    """The mass of the capsule over a stretch of the path."""
    if first > last:
        return 0.0
    low, high = np.empty(2), np.empty(2)
    for k in range(2):
        step = end[k] - begin[k]
        low[k], high[k] = begin[k] + first * step, begin[k] + last * step
    return capsule_probability(low, high, flat, epsilon)


@exact_kernel
def cylinder_probability(
    begin: Floats,
    end: Floats,
    rise: float,
    climb: float,
    flat: float,
    steep: float,
    epsilon: tuple[float, float],
    limit: tuple[float, float],
) -> float:
    """Probability that both thresholds hold at one instant; absolute error below 1e-8.

    The path goes from ``begin`` to ``end`` in the plane, and from ``rise`` to ``rise + climb`` in altitude. ``flat`` is
    the deviation of each horizontal coordinate, ``steep`` that of the altitude. ``epsilon`` is the horizontal and the
    vertical threshold, ``limit`` these with their tolerance, for what has no error.
    """
    if flat == 0.0:
        first, last = stretch_within(begin, end, limit[0])
        distance, at = segment_distance(begin, end)
        if distance <= limit[0] and first > last:  # the limit just touches the path
            first, last = at, at
        if first > last:
            return 0.0
        low = min(rise + first * climb, rise + last * climb)
        high = max(rise + first * climb, rise + last * climb)
        if steep == 0.0:
            return 1.0 if low <= limit[1] and high >= -limit[1] else 0.0
        return interval((-epsilon[1] - high) / steep, (epsilon[1] - low) / steep)
    if steep == 0.0:
        first, last = rising_within(rise, climb, limit[1])
        return _stretch_mass(begin, end, first, last, flat, epsilon[0])
    if climb == 0.0:
        height = interval((-epsilon[1] - rise) / steep, (epsilon[1] - rise) / steep)
        return height * capsule_probability(begin, end, flat, epsilon[0])
    return _over_heights(begin, end, rise, climb, flat, steep, epsilon)


@exact_kernel
def _over_heights(
    begin: Floats, end: Floats, rise: float, climb: float, flat: float, steep: float, epsilon: tuple[float, float]
) -> float:
    """The integral over the vertical error."""
    vertical = epsilon[1]
    low = max(-_TAIL * steep, -vertical - max(rise, rise + climb))
    high = min(_TAIL * steep, vertical - min(rise, rise + climb))
    if low >= high:
        return 0.0
    length = math.hypot(end[0] - begin[0], end[1] - begin[1])
    at = segment_distance(begin, end)[1]
    cuts = np.full(18, high)
    cuts[0], cuts[1], cuts[2], cuts[3] = low, 0.0, -_TAIL / 3.0 * steep, _TAIL / 3.0 * steep
    count = 4
    near = (epsilon[0] + _TAIL * flat) / length if length > 0.0 else 1.0
    for share in (0.0, 1.0, at, at - near, at + near):
        for border in (-vertical, vertical):
            cuts[count] = border - (rise + min(1.0, max(0.0, share)) * climb)
            count += 1
    for c in range(count):
        cuts[c] = min(max(cuts[c], low), high)
    cuts = np.sort(cuts)
    total = 0.0
    lows, highs = np.empty(_MOST_PARTS), np.empty(_MOST_PARTS)
    for c in range(cuts.shape[0] - 1):
        lows[0], highs[0] = cuts[c], cuts[c + 1]
        left = 1 if cuts[c + 1] > cuts[c] else 0
        while left > 0:
            left -= 1
            first, last = lows[left], highs[left]
            fine, coarse = _part(first, last, begin, end, rise, climb, flat, steep, epsilon)
            if abs(fine - coarse) <= _ERROR or left + 2 > _MOST_PARTS or last - first <= 1e-12 * (high - low):
                total += fine
            else:
                middle = 0.5 * (first + last)
                lows[left], highs[left], lows[left + 1], highs[left + 1] = first, middle, middle, last
                left += 2
    return min(1.0, max(0.0, total))


@exact_kernel
def _part(
    low: float,
    high: float,
    begin: Floats,
    end: Floats,
    rise: float,
    climb: float,
    flat: float,
    steep: float,
    epsilon: tuple[float, float],
) -> tuple[float, float]:
    """The integral from ``low`` to ``high``, by two rules."""
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    fine, coarse = 0.0, 0.0
    for i in range(NODES.shape[0]):
        v = middle + half * NODES[i]
        first, last = rising_within(rise + v, climb, epsilon[1])
        z = v / steep
        value = math.exp(-0.5 * z * z) * _stretch_mass(begin, end, first, last, flat, epsilon[0])
        fine += FINE[i] * value
        coarse += COARSE[i] * value
    scale = half / (steep * math.sqrt(2.0 * math.pi))
    return fine * scale, coarse * scale
