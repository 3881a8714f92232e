"""Distances on the Earth: from points of an ellipsoid of revolution in Earth-centred coordinates to the geodesic.

Points are held as (x, y, z) in metres, so that poles and the 180th meridian are ordinary places. A chord is never
longer than the geodesic over it, which is all that an index needs.

Up to 200 km the geodesic follows from the chord. The normal section through two points p and q touches the ellipsoid
above their middle m in the direction of the chord w, as A m is at right angles to w (A = diag(a^-2, a^-2, b^-2)); there
its curvature is k = (w'Aw / w'w) sqrt(m'Am / m'A^2m), and an arc of that curvature over the chord is
2 / k asin(k |w| / 2). On a sphere that is the geodesic. On WGS 84 it differs from it by less than
3e-7 m up to 100 km and 1e-5 m up to 200 km.

Beyond, Vincenty's (1975) series, better than 0.1 mm. Where his iteration does not end, between points that are nearly
opposite, the azimuth at the first point is bisected, of which the longitude that the geodesic reaches is a monotone
function (Karney 2013, section 4).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.ball_table import BallTable, looked_up
from appulse.kernels.gaussian import Gaussians, at_most, ball_probability, tolerated
from appulse.kernels.jit import exact_kernel, kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, RowPairs

_NEAR = 2e5
# Vincenty's iteration gains some three digits a step, but between points that are nearly opposite.
_STEPS, _CLOSE = 20, 1e-14
_BISECTIONS = 64
# Places that are made coordinates of at once: their sines and cosines fit the cache.
_TOGETHER = 256
_RADIAN = math.pi / 180.0
# In place of a cosine or sine of zero, which would leave an azimuth open.
_TINY = 1e-100


class Earth(NamedTuple):
    """An ellipsoid of revolution: its equatorial and its polar radius, in metres."""

    a: float
    b: float


@exact_kernel
def _sines_and_cosines(degrees: Floats, sines: Floats, cosines: Floats) -> None:
    """Of angles; exact at multiples of 90 degrees.

    By the series of Sun's fdlibm, which are off by less than a rounding up to 45 degrees. Turns and signs are factors:
    without branches compilers take several angles at once.
    """
    for i in range(len(degrees)):
        quarters = np.floor(degrees[i] / 90.0 + 0.5)
        x = (degrees[i] - 90.0 * quarters) * _RADIAN
        z = x * x
        odds = z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10))
        odds = z * (8.33333333332248946124e-03 + z * (-1.98412698298579493134e-04 + odds))
        sine = x + x * z * (-1.66666666666666324348e-01 + odds)
        evens = z * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 - z * 1.13596475577881948265e-11))
        evens = z * (-1.38888888888741095749e-03 + z * (2.48015872894767294178e-05 + evens))
        cosine = 1.0 - (0.5 * z - z * z * (4.16666666666666019037e-02 + evens))
        turn, next_turn = quarters - 4.0 * np.floor(0.25 * quarters), quarters + 1.0
        next_turn -= 4.0 * np.floor(0.25 * next_turn)
        half, next_half = np.floor(0.5 * turn), np.floor(0.5 * next_turn)
        odd = turn - 2.0 * half
        sines[i] = (cosine * odd + sine * (1.0 - odd)) * (1.0 - 2.0 * half)
        cosines[i] = (sine * odd + cosine * (1.0 - odd)) * (1.0 - 2.0 * next_half)


@exact_kernel
def to_centred(earth: Earth, lat: Floats, lon: Floats, out: Floats) -> None:
    """Earth-centred coordinates of degrees: each pole, and the 180th meridian from either side, is one place."""
    a, b = earth.a, earth.b
    room = np.empty((5, _TOGETHER))
    for first in range(0, len(lat), _TOGETHER):
        n = min(_TOGETHER, len(lat) - first)
        sine, cosine, sideways, ahead, across = (room[0, :n], room[1, :n], room[2, :n], room[3, :n], room[4, :n])
        most = 0.0
        for i in range(n):
            across[i] = lon[first + i]
            most = max(most, abs(across[i]))
        if most > 1e6:
            for i in range(n):
                across[i] %= 360.0
        _sines_and_cosines(across, sideways, ahead)
        _sines_and_cosines(lat[first : first + n], sine, cosine)
        for i in range(n):
            across[i] = a * a / math.sqrt(a * cosine[i] * (a * cosine[i]) + b * sine[i] * (b * sine[i]))
        for i in range(n):
            row = first + i
            out[row, 0] = across[i] * cosine[i] * ahead[i]
            out[row, 1] = across[i] * cosine[i] * sideways[i]
            out[row, 2] = across[i] * (b / a) * (b / a) * sine[i]


@exact_kernel
def _arc(square: float, waw: float, mam: float, maam: float) -> float:
    """The arc over a chord of that squared length, as curved as the ellipsoid is above its middle."""
    t = waw * waw * mam / (4.0 * square * maam)  # the square of k c / 2
    return math.sqrt(square) * (1.0 + t * (1.0 / 6.0 + t * (3.0 / 40.0 + t * (15.0 / 336.0))))


@exact_kernel
def geodesic(earth: Earth, px: float, py: float, pz: float, qx: float, qy: float, qz: float) -> float:
    """The length of the shortest line between two points of the ellipsoid, in metres."""
    a, b = earth.a, earth.b
    x, y, z = px - qx, py - qy, pz - qz
    square = x * x + y * y + z * z
    if square == 0.0:
        return 0.0
    mx, my, mz = px + qx, py + qy, pz + qz
    if a == b:
        return 2.0 * a * math.atan2(math.sqrt(square), math.sqrt(mx * mx + my * my + mz * mz))
    if square <= _NEAR * _NEAR:
        aa, bb = 1.0 / (a * a), 1.0 / (b * b)
        across, along = 0.25 * aa * (mx * mx + my * my), 0.25 * bb * mz * mz
        return _arc(square, aa * (x * x + y * y) + bb * z * z, across + along, across * aa + along * bb)
    cos_p, cos_q = math.sqrt(px * px + py * py) / a, math.sqrt(qx * qx + qy * qy) / a
    longitude = abs(math.atan2(px * qy - py * qx, px * qx + py * qy))
    found = vincenty(earth, pz / b, cos_p, qz / b, cos_q, longitude)[0]
    return found if found >= 0.0 else _bisected(earth, pz / b, cos_p, qz / b, cos_q, longitude)


@exact_kernel
def excess(f: float, sin_azimuth: float, sigma: float, sin_s: float, cos_s: float, cos_2m: float) -> float:
    """How much longer the longitude is on the sphere that goes with the ellipsoid than on the ellipsoid."""
    square = 1.0 - sin_azimuth * sin_azimuth
    c = f / 16.0 * square * (4.0 + f * (4.0 - 3.0 * square))
    inner = cos_2m + c * cos_s * (2.0 * cos_2m * cos_2m - 1.0)
    return (1.0 - c) * f * sin_azimuth * (sigma + c * sin_s * inner)


@exact_kernel
def _length(earth: Earth, sin_azimuth: float, sigma: float, sin_s: float, cos_s: float, cos_2m: float) -> float:
    """Metres of an arc ``sigma`` of the great circle that crosses the equator at that azimuth."""
    a, b = earth.a, earth.b
    u = (1.0 - sin_azimuth * sin_azimuth) * (a * a - b * b) / (b * b)
    scale = 1.0 + u / 16384.0 * (4096.0 + u * (-768.0 + u * (320.0 - 175.0 * u)))
    k = u / 1024.0 * (256.0 + u * (-128.0 + u * (74.0 - 47.0 * u)))
    twice = 2.0 * cos_2m * cos_2m - 1.0
    last = k / 6.0 * cos_2m * (4.0 * sin_s * sin_s - 3.0) * (4.0 * cos_2m * cos_2m - 3.0)
    return b * scale * (sigma - k * sin_s * (cos_2m + k / 4.0 * (cos_s * twice - last)))


@exact_kernel
def vincenty(
    earth: Earth, sin_1: float, cos_1: float, sin_2: float, cos_2: float, longitude: float
) -> tuple[float, float]:
    """The geodesic between two reduced latitudes and a difference of longitude, and that difference on the sphere.

    The length is -1 where the iteration does not end.
    """
    f = (earth.a - earth.b) / earth.a
    turned = longitude
    for _ in range(_STEPS):
        sin_l, cos_l = math.sin(turned), math.cos(turned)
        east, north = cos_2 * sin_l, cos_1 * sin_2 - sin_1 * cos_2 * cos_l
        sin_s, cos_s = math.sqrt(east * east + north * north), sin_1 * sin_2 + cos_1 * cos_2 * cos_l
        if sin_s == 0.0:
            return -1.0, turned
        sigma = math.atan2(sin_s, cos_s)
        sin_azimuth = cos_1 * cos_2 * sin_l / sin_s
        square = 1.0 - sin_azimuth * sin_azimuth
        cos_2m = cos_s - 2.0 * sin_1 * sin_2 / square if square > 0.0 else 0.0
        before, turned = turned, longitude + excess(f, sin_azimuth, sigma, sin_s, cos_s, cos_2m)
        if turned > math.pi:
            return -1.0, turned
        if abs(turned - before) < _CLOSE * math.pi:
            return _length(earth, sin_azimuth, sigma, sin_s, cos_s, cos_2m), turned
    return -1.0, turned


@exact_kernel
def _bisected(earth: Earth, sin_1: float, cos_1: float, sin_2: float, cos_2: float, longitude: float) -> float:
    """The same by the azimuth at the first point, which is made the one farther from the equator, and in the south."""
    if abs(sin_1) < abs(sin_2):
        sin_1, sin_2, cos_1, cos_2 = sin_2, sin_1, cos_2, cos_1
    if sin_1 > 0.0:
        sin_1, sin_2 = -sin_1, -sin_2
    sin_1, cos_1, cos_2 = min(sin_1, -_TINY), max(cos_1, _TINY), max(cos_2, _TINY)
    f, found = (earth.a - earth.b) / earth.a, 0.0
    low, high = 0.0, math.pi
    for _ in range(_BISECTIONS):
        azimuth = 0.5 * (low + high)
        sin_a, cos_a = math.sin(azimuth) * cos_1, math.cos(azimuth) * cos_1
        ahead = math.sqrt(max(0.0, cos_a * cos_a + (cos_2 - cos_1) * (cos_2 + cos_1)))
        one, two = math.atan2(sin_1, cos_a), math.atan2(sin_2, ahead)
        sigma = two - one
        turned = math.atan2(sin_a * sin_2, ahead) - math.atan2(sin_a * sin_1, cos_a)
        sin_s, cos_s, cos_2m = math.sin(sigma), math.cos(sigma), math.cos(one + two)
        reached = turned - excess(f, sin_a, sigma, sin_s, cos_s, cos_2m)
        found = _length(earth, sin_a, sigma, sin_s, cos_s, cos_2m)
        if reached < longitude:
            low = azimuth
        else:
            high = azimuth
    return found


class Near(NamedTuple):
    """When two positions match: epsilon, with its tolerance for pairs without deviation, and the probability asked for.

    In a cylinder that is the horizontal one, and the vertical one has to hold, too. Where there is a ``table``, it is
    that of the deviation of all pairs. Each pair adds its ``margin`` to epsilon, where there are some.
    """

    epsilon: float
    limit: float
    vertical: float
    vertical_limit: float
    cylinder: bool
    threshold: float
    use_bounds: bool
    table: BallTable
    margin: Floats


@exact_kernel
def widened(near: Near, margin: float) -> Near:
    """What is asked of a pair with this margin."""
    epsilon = near.epsilon + margin
    return Near(
        epsilon,
        tolerated(epsilon),
        near.vertical,
        near.vertical_limit,
        near.cylinder,
        near.threshold,
        near.use_bounds,
        near.table,
        near.margin,
    )


@kernel
def earth_pairs(
    pairs: RowPairs,
    earth: Earth,
    near: Near,
    one: Gaussians,
    other: Gaussians,
    probability: Floats,
    distance: Floats,
) -> None:
    """Probability and distance of each pair of positions, NaN where the probability is below the threshold for sure.

    A pair's errors are normal in the plane tangent to the Earth, and add up. Rows without ``sigma`` have none.
    """
    left, right = pairs
    asked, limit, threshold, use_bounds = near.epsilon, near.limit, near.threshold, near.use_bounds
    epsilon, margins = asked, near.margin.shape[0] > 0
    left_sigma, right_sigma = one.sigma.shape[0] > 0, other.sigma.shape[0] > 0
    for i in range(left.shape[0]):
        a, b = left[i], right[i]
        mass = one.mass[a] * other.mass[b]
        px, py, pz = one.centre[a, 0], one.centre[a, 1], one.centre[a, 2]
        qx, qy, qz = other.centre[b, 0], other.centre[b, 1], other.centre[b, 2]
        chord = math.sqrt((px - qx) * (px - qx) + (py - qy) * (py - qy) + (pz - qz) * (pz - qz))
        variance = 0.0
        if left_sigma:
            variance += one.sigma[a, 0] * one.sigma[a, 0]
        if right_sigma:
            variance += other.sigma[b, 0] * other.sigma[b, 0]
        deviation = math.sqrt(variance)
        if margins:
            asked = epsilon + near.margin[i]
            limit = tolerated(asked)
        probability[i] = np.nan
        if mass < threshold or (deviation == 0.0 and chord > limit):
            continue
        # Along the Earth it is no shorter than the chord, and bounds only fall with the distance.
        if use_bounds and deviation > 0.0 and mass * at_most(chord, deviation, asked, 2) < threshold - 1e-12:
            continue
        distance[i] = geodesic(earth, px, py, pz, qx, qy, qz)
        if deviation == 0.0:
            probability[i] = mass if distance[i] <= limit else np.nan
        elif not use_bounds or mass * at_most(distance[i], deviation, asked, 2) >= threshold - 1e-12:
            if near.table.pieces.shape[0]:
                probability[i] = mass * looked_up(near.table, distance[i])
            else:
                probability[i] = mass * ball_probability(distance[i], deviation, asked, 2)
