"""The probability that a place with normal errors lies in the part of a disc that is within ranges of x and y.

Along x it is an integral of the density times what a chord holds of the distribution of y, which is known in closed
form: y depends on x by a straight line, the ridge. By the angle at which a chord meets the rim, the integrand is
smooth but where the rim passes a range; it changes fast where the ridge, as wide as y varies about it, enters the part
or leaves it. It is cut at all of these, and each piece is integrated adaptively.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.gaussian import interval
from appulse.kernels.jit import kernel
from appulse.kernels.quadrature import integral

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats

# Beyond this many deviations a normal tail is below 1e-18.
_TAIL = 9.0
# Two rules that differ by this agree with the integral to some thousandth of it.
_ERROR = 1e-9
_INVERSE_ROOT = 1.0 / math.sqrt(2.0 * math.pi)


@kernel
def _chord(theta: float, given: tuple[float, float, float, Floats, float, float]) -> float:
    """What the chord at an angle adds."""
    centre_x, centre_y, radius, scale, south, north = given
    x, h = centre_x + radius * math.sin(theta), radius * math.cos(theta)
    low, high = max(south, centre_y - h), min(north, centre_y + h)
    if low >= high:
        return 0.0
    u, tilt = x * scale[0], x * scale[2]
    return h * math.exp(-0.5 * u * u) * interval(low * scale[1] + tilt, high * scale[1] + tilt)


@kernel
def clipped_disc(x: float, y: float, radius: float, ranges: Floats, scale: Floats) -> float:
    """Pr{in the disc around (x, y) and in ranges} of a normal place at 0, absolute error below 1e-10.

    ``ranges`` are west, south, east and north. ``scale`` is (a, b, c): x a, and y b + x c, are independent and of
    deviation 1.
    """
    far = _TAIL / scale[0]
    west, east = max(x - radius, ranges[0], -far), min(x + radius, ranges[2], far)
    south, north = ranges[1], ranges[3]
    if west >= east or south >= north or radius <= 0.0:
        return 0.0
    # Where x is when the integrand begins, peaks or bends, and ends.
    bends = np.full(19, west)
    bends[1], bends[2], at = east, 0.0, 3
    for side in (south, north):
        if abs(side - y) < radius:
            half = math.sqrt((radius - (side - y)) * (radius + (side - y)))
            bends[at], bends[at + 1] = x - half, x + half
            at += 2
    slope = -scale[2] / scale[1]
    for k in range(-1, 2):
        shift = k * _TAIL / scale[1]  # the ridge, and as far above and below as it reaches
        if slope != 0.0:
            for side in (south, north):
                if abs(side) < np.inf:
                    bends[at] = (side - shift) / slope
                    at += 1
        across, along, up = 1.0 + slope * slope, x + slope * (y - shift), y - shift
        inner = along * along - across * (x * x + up * up - radius * radius)
        if inner > 0.0:
            bends[at], bends[at + 1] = (along - math.sqrt(inner)) / across, (along + math.sqrt(inner)) / across
            at += 2
    angles = np.empty(bends.shape[0])
    for i in range(bends.shape[0]):
        angles[i] = math.asin(min(1.0, max(-1.0, (min(east, max(west, bends[i])) - x) / radius)))
    given = (x, y, radius, scale, south, north)
    total = integral(_chord, given, np.sort(angles), scale[0] * _INVERSE_ROOT, _ERROR)
    return min(1.0, max(0.0, total))


@kernel
def clipped_discs(at: Floats, centre: Floats, radius: Floats, ranges: Floats, scale: Floats, out: Floats) -> None:
    """The same of places ``at`` (n, 2), row by row."""
    moved = np.empty(4)
    for i in range(out.shape[0]):
        x, y = at[i, 0], at[i, 1]
        moved[0], moved[1], moved[2], moved[3] = ranges[i, 0] - x, ranges[i, 1] - y, ranges[i, 2] - x, ranges[i, 3] - y
        out[i] = clipped_disc(centre[i, 0] - x, centre[i, 1] - y, radius[i], moved, scale[i])
