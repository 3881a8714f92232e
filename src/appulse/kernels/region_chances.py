"""Pr{inside}: the probability that a normal error leaves a place in a region.

Seen from the mean, with lengths in deviations (errors of any covariance become independent by a linear map of the
plane, which keeps edges straight), it is by Green's theorem

    1 / (2 pi) * integral of 1 - exp(-r^2 / 2) d theta  along the boundary

Far away that is the angle that edges span, of a chain of them the angle between its ends. Near, r^2 d theta is constant
along an edge, and the rest a smooth function of r^2 alone, (1 - exp(-r^2 / 2)) / r^2. Edges are cut into panels, short
enough for Gauss-Legendre quadrature by five nodes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.earth_ellipses import heading, turned_axes
from appulse.kernels.ellipses import plane_probability
from appulse.kernels.gaussian import ball_probability
from appulse.kernels.geodesic import geodesic
from appulse.kernels.jit import exact_kernel, inlined_kernel
from appulse.kernels.regions import covers
from appulse.kernels.simd import fma

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints
    from appulse.kernels.regions import Ground, Regions

# So many deviations away exp(-r^2 / 2) is below 3e-11, and taken for 0.
_FAR2 = 49.0
# Of panels up to this length in deviations five nodes are off by less than 1e-11 for each deviation, by the derivative
# of order 10 along any line.
_LENGTH = 1.119
# The nodes beside the middle of a panel, as shares of its length, and the weights of all.
_ONE, _TWO = (float(x) for x in 0.5 * np.polynomial.legendre.leggauss(5)[0][3:])
_MIDDLE, _FIRST, _SECOND = (float(w) for w in 0.5 * np.polynomial.legendre.leggauss(5)[1][2:])
# Panels that are summed at once, in an array that is small enough to be allocated quickly.
_PANELS = 32
# (1 - exp(-z)) / z for z = s / 64 as a polynomial of s, divided by 64.
_Q0, _Q1, _Q2, _Q3, _Q4, _Q5, _Q6 = ((-1.0) ** k / math.factorial(k + 1) / 64.0 ** (k + 1) for k in range(7))


@inlined_kernel
def _smooth(s: float) -> float:
    """(1 - exp(-s / 2)) / s to 4e-13.

    With e = exp(-s / 64), 1 - e^32 is (1 - e) (1 + e) (1 + e^2) ... (1 + e^16): nothing cancels.
    """
    q = fma(s, fma(s, fma(s, fma(s, fma(s, fma(s, _Q6, _Q5), _Q4), _Q3), _Q2), _Q1), _Q0)
    e = fma(-s, q, 1.0)
    q = fma(q, e, q)
    e *= e
    q = fma(q, e, q)
    e *= e
    q = fma(q, e, q)
    e *= e
    q = fma(q, e, q)
    e *= e
    return fma(q, e, q)


@exact_kernel
def _over(panels: Floats, n: int) -> float:
    """The integral over n panels.

    ``panels`` is r^2 in the middle of each, half its change along the panel there, the panel's squared length, and what
    r^2 d theta is over it.
    """
    middle, slope, length2, turn = panels[0], panels[1], panels[2], panels[3]
    # Four at a time: the last ones are filled up.
    full = (n + 3) & ~3
    panels[:, n:full] = 0.0
    for j in range(full):
        m, one, two = middle[j], 2.0 * _ONE * slope[j], 2.0 * _TWO * slope[j]
        first, second = fma(_ONE * _ONE, length2[j], m), fma(_TWO * _TWO, length2[j], m)
        total = _MIDDLE * _smooth(m)
        total = fma(_FIRST, _smooth(first - one) + _smooth(first + one), total)
        turn[j] *= fma(_SECOND, _smooth(second - two) + _smooth(second + two), total)
    found = 0.0
    for j in range(n):
        found += turn[j]
    return found


@inlined_kernel
def _passed(ay: float, by: float, left: bool) -> int:
    """Full turns to add to the angles of two places, on the ``left`` of the mean where they lie above and below it."""
    return 0 if not left or (ay < 0.0) == (by < 0.0) else 1 if by < 0.0 else -1


@exact_kernel
def mass(regions: Regions, i: int, x: float, y: float, across: float, along: float, tilt: float) -> float:
    """Pr{inside} of a place with normal errors, of the scale that `appulse.model.covariance.whitening` has."""
    return min(1.0, max(0.0, enclosed(regions, i, x, y, across, along, tilt)))


@exact_kernel
def enclosed(regions: Regions, i: int, x: float, y: float, across: float, along: float, tilt: float) -> float:
    """As `mass`, by the turns that the boundary makes: of what it has at its right, less by 1."""
    first, start, bounds, edges = regions.first, regions.start, regions.bounds, regions.edges
    panels, n, total, turns = np.empty((4, _PANELS)), 0, 0.0, 0
    # Where a chain of far edges ends, while one goes on. Corners at which chains begin or end are those of a ring: they
    # cancel, whatever the sign of a zero.
    far, qx, qy = False, 0.0, 0.0
    for b in range(first[i], first[i + 1]):
        begin, end = start[b], start[b + 1]
        bx = edges[begin, 0] - x
        by = (edges[begin, 1] - y) * along + bx * tilt
        bx *= across
        if far and (bx != qx or by != qy):  # another ring
            total, far = total + math.atan2(qy, qx), False
        west, east = (bounds[b, 0] - x) * across, (bounds[b, 2] - x) * across
        south, north = (bounds[b, 1] - y) * along, (bounds[b, 3] - y) * along
        if tilt != 0.0:
            one, other = (bounds[b, 0] - x) * tilt, (bounds[b, 2] - x) * tilt
            south, north = south + min(one, other), north + max(one, other)
        aside, above = max(west, -east, 0.0), max(south, -north, 0.0)
        if aside * aside + above * above > _FAR2:
            if not far:
                total, far, qx, qy = total - math.atan2(by, bx), True, bx, by
            bx = edges[end - 1, 2] - x
            by = (edges[end - 1, 3] - y) * along + bx * tilt
            bx *= across
            turns += _passed(qy, by, east < 0.0)
            qx, qy = bx, by
            continue
        bb = bx * bx + by * by
        for e in range(begin, end):
            ax, ay, aa = bx, by, bb
            bx = edges[e, 2] - x
            by = (edges[e, 3] - y) * along + bx * tilt
            bx *= across
            bb = bx * bx + by * by
            dx, dy = bx - ax, by - ay
            dd, turn = dx * dx + dy * dy, ax * dy - ay * dx
            nearest = -(ax * dx + ay * dy)
            if aa > _FAR2 and bb > _FAR2 and (nearest <= 0.0 or nearest >= dd or turn * turn >= _FAR2 * dd):
                if not far:
                    total, far, qx, qy = total - math.atan2(ay, ax), True, ax, ay
                turns += _passed(qy, by, (turn < 0.0) == (dy > 0.0))
                qx, qy = bx, by
                continue
            # The part of the edge that is near.
            low, high = 0.0, 1.0
            if aa > _FAR2 or bb > _FAR2:
                half = math.sqrt(max(0.0, _FAR2 * dd - turn * turn))
                low = max(0.0, (nearest - half) / dd) if aa > _FAR2 else 0.0
                high = min(1.0, (nearest + half) / dd) if bb > _FAR2 else 1.0
                if low > 0.0:
                    if not far:
                        total, far, qx, qy = total - math.atan2(ay, ax), True, ax, ay
                    px, py = ax + low * dx, ay + low * dy
                    turns += _passed(qy, py, (turn < 0.0) == (dy > 0.0))
                    qx, qy = px, py
            if far:
                total, far = total + math.atan2(qy, qx), False
            left, step = 1, high - low
            if step * step * dd > _LENGTH * _LENGTH:
                left = math.ceil(step * math.sqrt(dd) / _LENGTH)
                step /= left
            while left:
                if n == _PANELS:
                    total, n = total + _over(panels, n), 0
                t = high - (left - 0.5) * step
                px, py = ax + t * dx, ay + t * dy
                panels[0, n], panels[1, n] = px * px + py * py, step * (px * dx + py * dy)
                panels[2, n], panels[3, n] = step * step * dd, step * turn
                n, left = n + 1, left - 1
            if high < 1.0:
                px, py = ax + high * dx, ay + high * dy
                total, far = total - math.atan2(py, px), True
                turns += _passed(py, by, (turn < 0.0) == (dy > 0.0))
                qx, qy = bx, by
    total += _over(panels, n)
    if far:
        total += math.atan2(qy, qx)
    return total * (0.5 / math.pi) + turns


@exact_kernel
def from_centre(regions: Regions, i: int, at: Floats, place: Floats, r: int, ground: Ground) -> float:
    """How far row r is from the centre of a disc."""
    cx, cy, cz = regions.centre[i, 0], regions.centre[i, 1], regions.centre[i, 2]
    if ground.on_earth:
        return geodesic(ground.earth, place[r, 0], place[r, 1], place[r, 2], cx, cy, cz)
    return math.hypot(at[r, 0] - cx, at[r, 1] - cy)


@inlined_kernel
def reaches(radius: float, distance: float) -> bool:
    """Whether a disc has a place that far from its centre."""
    return distance <= radius + 1e-9 * max(1.0, radius)


@exact_kernel
def chance(
    regions: Regions, i: int, at: Floats, scale: Floats, place: Floats, spread: Floats, r: int, ground: Ground
) -> float:
    """Pr{inside} of row r: where it lies, and its errors, as of `Readings`."""
    x, y, across = at[r, 0], at[r, 1], scale[r, 0]
    if math.isnan(regions.radius[i]):
        if across == np.inf:
            return 1.0 if covers(regions, i, x, y) else 0.0
        return mass(regions, i, x, y, across, scale[r, 1], scale[r, 2])
    radius, distance = regions.radius[i], from_centre(regions, i, at, place, r, ground)
    if across == np.inf:
        return 1.0 if reaches(radius, distance) else 0.0
    if spread.shape[1] < 3:
        return ball_probability(distance, spread[r, 0], radius, 2)
    xx, xy, yy = spread[r, 0], spread[r, 1], spread[r, 2]
    cx, cy, cz = regions.centre[i, 0], regions.centre[i, 1], regions.centre[i, 2]
    if not ground.on_earth:
        return plane_probability(x - cx, y - cy, xx, xy, yy, radius)
    east, north = heading(ground.earth, place[r, 0], place[r, 1], place[r, 2], cx, cy, cz)
    xx, xy, yy = turned_axes(xx, xy, yy, east, north)
    return plane_probability(distance, 0.0, xx, xy, yy, radius)


@exact_kernel
def chances(
    regions: Regions, ids: Ints, at: Floats, scale: Floats, place: Floats, spread: Floats, ground: Ground, out: Floats
) -> None:
    """`chance` of each row in its region ``ids``."""
    for k in range(ids.shape[0]):
        out[k] = chance(regions, ids[k], at, scale, place, spread, k, ground)
