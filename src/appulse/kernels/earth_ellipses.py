"""Positions with elliptic errors: each ellipse is carried along the geodesic, which keeps its angle to it.

At both ends the covariance is taken into the axes along and across the geodesic, and the two are added. The azimuth is
that of the normal section, by the chord in the plane tangent to the ellipsoid, less what it differs from the
geodesic's (Rapp 1991, section 4.2): better than 3e-9 radians up to 200 km, and 1e-7 up to 1,000 km.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.ellipses import plane_probability, space_probability
from appulse.kernels.gaussian import interval, phi
from appulse.kernels.geodesic import Earth, Near, geodesic, widened
from appulse.kernels.jit import exact_kernel, kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, RowPairs
    from appulse.kernels.gaussian import Gaussians

# Of the largest variance, what rounding may take from the one along the geodesic.
_SPARE = 1e-15
# Beyond this many deviations a normal tail is below 1e-18.
_TAIL = 9.0


@exact_kernel
def heading(earth: Earth, px: float, py: float, pz: float, qx: float, qy: float, qz: float) -> tuple[float, float]:
    """The direction in which a geodesic leaves p for q: east and north, of length 1; north where they are one place."""
    polar = earth.a * earth.a / (earth.b * earth.b) * pz
    size, across = math.sqrt(px * px + py * py + polar * polar), math.hypot(px, py)
    cos_lat, sin_lat = across / size, polar / size
    cos_lon, sin_lon = (px / across, py / across) if across > 0.0 else (1.0, 0.0)
    x, y, z = qx - px, qy - py, qz - pz
    east, north = y * cos_lon - x * sin_lon, z * cos_lat - sin_lat * (x * cos_lon + y * sin_lon)
    length = math.hypot(east, north)
    if length == 0.0:
        return 0.0, 1.0
    east, north = east / length, north / length
    if earth.a == earth.b:
        return east, north
    second = (earth.a / earth.b) ** 2 - 1.0
    radius = earth.a * math.sqrt(1.0 + second * cos_lat * cos_lat) / math.sqrt(1.0 + second)
    radius = earth.a * earth.a / radius  # of the normal section from east to west
    s = math.sqrt(x * x + y * y + z * z) / radius
    turn = second / 6.0 * s * s * cos_lat * east * (cos_lat * north - 0.25 * s * sin_lat)
    cosine = 1.0 - 0.5 * turn * turn  # below 1e-5 up to 1,000 km
    return east * cosine - north * turn, north * cosine + east * turn


@exact_kernel
def turned_axes(ee: float, en: float, nn: float, east: float, north: float) -> tuple[float, float, float]:
    """Variance along a direction, covariance, and variance across it."""
    return (
        ee * east * east + 2.0 * en * east * north + nn * north * north,
        (ee - nn) * east * north + en * (north * north - east * east),
        ee * north * north - 2.0 * en * east * north + nn * east * east,
    )


@exact_kernel
def turned(spread: Floats, row: int, east: float, north: float) -> tuple[float, float, float]:
    """`turned_axes` of a row; ``spread`` may be empty, or have no ellipse."""
    if spread.shape[0] == 0:
        return 0.0, 0.0, 0.0
    if spread.shape[1] < 3:
        variance = spread[row, 0] * spread[row, 0]
        return variance, 0.0, variance
    return turned_axes(spread[row, 0], spread[row, 1], spread[row, 2], east, north)


@exact_kernel
def _trace(spread: Floats, row: int) -> float:
    """The sum of the variances along and across any direction."""
    if spread.shape[0] == 0:
        return 0.0
    first = spread[row, 0]
    return float(2.0 * first * first if spread.shape[1] < 3 else first + spread[row, 2])


@exact_kernel
def above_of(spread: Floats, row: int) -> float:
    """The variance of the altitude: the last column of two or four."""
    if spread.shape[0] == 0:
        return 0.0
    last = spread.shape[1] - 1
    return spread[row, last] * spread[row, last] if last % 2 == 1 else 0.0


@exact_kernel
def _bound(apart: float, variance: float, epsilon: float, limit: float) -> float:
    """The half-space that holds all within ``epsilon`` along a line, ``apart`` from the mean."""
    if variance == 0.0:
        return 1.0 if apart <= limit else 0.0
    return phi((epsilon - apart) / math.sqrt(variance))


@kernel
def ellipse_pairs(
    pairs: RowPairs,
    earth: Earth,
    near: Near,
    one: Gaussians,
    other: Gaussians,
    probability: Floats,
    distance: Floats,
) -> None:
    """As `earth_pairs` and `altitude_pairs`, of rows whose ``sigma`` may be an ellipse: variances by east and north."""
    left, right = pairs
    high = one.centre.shape[1] > 3
    gap, covariance = np.zeros(3), np.zeros(6)
    for i in range(left.shape[0]):
        a, b = left[i], right[i]
        asked = widened(near, near.margin[i]) if near.margin.shape[0] > 0 else near
        probability[i] = np.nan
        mass = one.mass[a] * other.mass[b]
        if mass < asked.threshold:
            continue
        px, py, pz = one.centre[a, 0], one.centre[a, 1], one.centre[a, 2]
        qx, qy, qz = other.centre[b, 0], other.centre[b, 1], other.centre[b, 2]
        rise = abs(one.centre[a, 3] - other.centre[b, 3]) if high else 0.0
        above = above_of(one.sigma, a) + above_of(other.sigma, b)
        trace = _trace(one.sigma, a) + _trace(other.sigma, b)
        if asked.use_bounds:  # whichever way the ellipses lie
            chord = math.sqrt((px - qx) * (px - qx) + (py - qy) * (py - qy) + (pz - qz) * (pz - qz))
            most = _bound(chord, trace + above, asked.epsilon, asked.limit) if chord > asked.limit else 1.0
            if mass * most < asked.threshold - 1e-12:
                continue
        metres = geodesic(earth, px, py, pz, qx, qy, qz)
        apart = math.hypot(metres, rise)
        distance[i] = apart
        if not high and metres + _TAIL * math.sqrt(trace) <= asked.epsilon:
            probability[i] = mass
            continue
        east, north = heading(earth, px, py, pz, qx, qy, qz)
        along, both, across = turned(one.sigma, a, east, north)
        east, north = heading(earth, qx, qy, qz, px, py, pz)
        more_along, more_both, more_across = turned(other.sigma, b, -east, -north)
        along, both, across = along + more_along, both + more_both, across + more_across
        if asked.use_bounds:
            spare = _SPARE * (along + across)
            if asked.cylinder or not high:
                most = _bound(metres, along + spare, asked.epsilon, asked.limit)
                if asked.cylinder:
                    most = min(most, _bound(rise, above, asked.vertical, asked.vertical_limit))
            else:
                line = 1.0
                if apart > 0.0:
                    line = (metres * metres * (along + spare) + rise * rise * above) / (apart * apart)
                most = _bound(apart, line, asked.epsilon, asked.limit)
            if apart > 0.0 and mass * most < asked.threshold - 1e-12:
                continue
        if high and not asked.cylinder:
            gap[0], gap[2] = metres, rise
            covariance[0], covariance[1], covariance[3], covariance[5] = along, both, across, above
            if along + across + above == 0.0:
                inside = 1.0 if apart <= asked.limit else 0.0
            else:
                inside = space_probability(gap, covariance, asked.epsilon)
        else:
            if along + across == 0.0:
                inside = 1.0 if metres <= asked.limit else 0.0
            else:
                inside = plane_probability(metres, 0.0, along, both, across, asked.epsilon)
            if asked.cylinder:
                if above > 0.0:
                    steep = math.sqrt(above)
                    inside *= interval((-asked.vertical - rise) / steep, (asked.vertical - rise) / steep)
                elif rise > asked.vertical_limit:
                    inside = 0.0
        probability[i] = mass * inside if inside > 0.0 else np.nan
