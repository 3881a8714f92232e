"""Pr{inside} on the Earth where degrees are not as those of a plane: of large errors, and near the poles.

A region's boundary is taken into the plane that touches the Earth at the mean, each point at its azimuth and distance:
edges that are straight in degrees are curves there, and are cut into pieces that are straight enough.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel, inlined_kernel
from appulse.kernels.region_chances import enclosed
from appulse.kernels.regions import Regions
from appulse.kernels.tangent import lead, way

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints
    from appulse.kernels.geodesic import Earth

#: Errors are large from this share of the Earth's polar radius on.
CURVED = 1e-3
# Up to this latitude, whose tangent is below 1.74, no error is whose deviations of longitude and of latitude sum to so
# many degrees at most: most places need no closer look.
_LOW, _SMALL = 60.0, 0.99 * math.degrees(CURVED) / 1.74
# Degrees of a piece at most, and how far it may lie off a straight line, in deviations, if it is near.
_LONGEST, _OFF, _NEAR = 5.0, 1e-6, 7.5
# Around the antipode no piece is short: so far away, in deviations and in half turns of the Earth, this share of one
# is short enough.
_FAR, _OPPOSITE, _SHORTEST = 100.0, 0.9, 1e-3
# No piece is so far off, in deviations, unless it passes the antipode; the way around the mean is then so long.
_JUMP, _AROUND = 1.0, 8.0
# Ways of 200 km are computed in another way than shorter ones: a piece that is in between stays as it is.
_LEAST = 1e-9
# A probability is as exact as this. One so close to 0 or 1 is what most of some places say, in deviations from the
# mean: the mean itself may be in a region that has no area.
_EXACT = 1e-6
_PLACES = ((0.137, 0.211), (-0.323, 0.119), (0.071, -0.287))
_MOST = 2
_DEGREE = math.pi / 180.0


@inlined_kernel
def _metres_of_degrees(lat: float, earth: Earth) -> tuple[float, float]:
    """Of longitude and latitude, as `appulse.model.positions.metres_of_degrees` has them."""
    flat = math.cos(lat * _DEGREE)
    curved = math.hypot(earth.a * flat, earth.b * math.sin(lat * _DEGREE))
    across = earth.a * earth.a / curved * max(flat, 1e-9)
    return across * _DEGREE, (earth.a * earth.b) ** 2 / curved**3 * _DEGREE


@exact_kernel
def widest(lat: float, scale: Floats, earth: Earth) -> float:
    """The largest deviation of a place in metres, by what makes its errors in degrees independent."""
    x, y = _metres_of_degrees(lat, earth)
    a, b, c = scale[0] / x, scale[1] / y, scale[2] / x
    xx, xy, yy = 1.0 / (a * a), -c / (a * a * b), (1.0 + c * c / (a * a)) / (b * b)
    return math.sqrt(0.5 * (xx + yy) + math.hypot(0.5 * (xx - yy), xy))


@exact_kernel
def is_curved(lat: float, scale: Floats, earth: Earth) -> bool:
    """Whether the errors of a place are too large, or it is too near a pole, for degrees to be as those of a plane."""
    tilt = scale[2] / scale[0]
    if abs(lat) <= _LOW and 1.0 / scale[0] + math.sqrt(1.0 + tilt * tilt) / scale[1] <= _SMALL:
        return False
    return scale[0] < np.inf and widest(lat, scale, earth) * max(1.0, abs(math.tan(lat * _DEGREE))) > CURVED * earth.b


@exact_kernel
def degrees_reached(lat: float, metres: float, earth: Earth) -> tuple[float, float]:
    """At least how many degrees of longitude and of latitude a circle around a place reaches."""
    far = metres / earth.b * 1.01
    tall = far / _DEGREE
    if abs(lat) + tall >= 90.0:
        return 360.0, min(tall, 180.0)
    return math.asin(min(1.0, math.sin(far) / math.cos(lat * _DEGREE))) / _DEGREE, tall


@exact_kernel
def _in_plane(
    x: float, y: float, place: Floats, scale: tuple[float, float, float], earth: Earth
) -> tuple[float, float]:
    """Degrees in the plane at a place, in deviations."""
    y = min(90.0, max(-90.0, y))  # rounded beyond a pole, it were on the other side of it
    sin, cos = math.sin(y * _DEGREE), math.cos(y * _DEGREE)
    curved = math.hypot(earth.a * cos, earth.b * sin)
    flat = earth.a * earth.a / curved * cos
    lon = x * _DEGREE
    tall = earth.b * earth.b / curved * sin
    east, north = way(earth, place[0], place[1], place[2], flat * math.cos(lon), flat * math.sin(lon), tall)
    return east * scale[0], north * scale[1] + east * scale[2]


@inlined_kernel
def _beyond(u: float, v: float, scale: tuple[float, float, float], earth: Earth) -> bool:
    """Whether deviations lead to the other side of the Earth; a hundred along the short axis may be near."""
    east = u / scale[0]
    metres = math.hypot(east, (v - east * scale[2]) / scale[1])
    return math.hypot(u, v) > _FAR and metres > _OPPOSITE * math.pi * earth.b


@inlined_kernel
def _passes(ax: float, ay: float, bx: float, by: float) -> bool:
    """Whether a straight line from a to b comes near to the mean."""
    dx, dy = bx - ax, by - ay
    share = min(1.0, max(0.0, -(ax * dx + ay * dy) / max(dx * dx + dy * dy, 1e-300)))
    return math.hypot(ax + share * dx, ay + share * dy) < _NEAR


@exact_kernel
def _outline(
    regions: Regions, i: int, place: Floats, scale: tuple[float, float, float], earth: Earth
) -> tuple[Ints, Floats, Floats]:
    """The boundary of a region in the plane: ``start, bounds, edges`` of its blocks."""
    begin, end = regions.first[i], regions.first[i + 1]
    start, bounds = np.zeros(end - begin + 1, np.int64), np.empty((end - begin, 4))
    edges, n = np.empty((256, 4)), 0
    for b in range(begin, end):
        for e in range(regions.start[b], regions.start[b + 1]):
            x, y = regions.edges[e, 0], regions.edges[e, 1]
            dx, dy = regions.edges[e, 2] - x, regions.edges[e, 3] - y
            longest = min(1.0, _LONGEST / max(abs(dx), abs(dy), 1e-300))
            px, py = _in_plane(x, y, place, scale, earth)
            t, step = 0.0, longest
            while t < 1.0:
                step = min(step, 1.0 - t)
                while True:
                    to = min(1.0, t + step)
                    half = 0.5 * (t + to)
                    mx, my = _in_plane(x + half * dx, y + half * dy, place, scale, earth)
                    qx, qy = _in_plane(x + to * dx, y + to * dy, place, scale, earth)
                    length = max(math.hypot(px - mx, py - my), math.hypot(qx - mx, qy - my))
                    off = math.hypot(mx - 0.5 * (px + qx), my - 0.5 * (py + qy))
                    away = math.hypot(mx, my)
                    far = away > _NEAR + 1.5 * length or (step < _SHORTEST * longest and _beyond(mx, my, scale, earth))
                    if off <= _OFF or far or step < _LEAST:
                        break
                    step *= 0.5
                if n + 2 > edges.shape[0]:
                    edges = np.concatenate((edges, np.empty_like(edges)))
                if (far or off > _JUMP) and _passes(px, py, qx, qy):
                    # Beyond the antipode. Which way far edges lead around the mean changes only whole turns.
                    mx, my = _AROUND * (py - qy), _AROUND * (qx - px)
                    if mx * (px + qx) + my * (py + qy) < 0.0:  # that would pass near the mean
                        mx, my = -mx, -my
                    edges[n, 0], edges[n, 1], edges[n, 2], edges[n, 3] = px, py, mx, my
                    n, px, py = n + 1, mx, my
                edges[n, 0], edges[n, 1], edges[n, 2], edges[n, 3] = px, py, qx, qy
                n, t, px, py = n + 1, to, qx, qy
                step = min(longest, 2.0 * step)
        k = b - begin
        start[k + 1] = n
        bounds[k, :2], bounds[k, 2:] = np.inf, -np.inf
        for e in range(start[k], n):
            for c in range(2):
                bounds[k, c] = min(bounds[k, c], edges[e, c], edges[e, 2 + c])
                bounds[k, 2 + c] = max(bounds[k, 2 + c], edges[e, c], edges[e, 2 + c])
    return start, bounds, edges


@exact_kernel
def _holds(regions: Regions, i: int, place: Floats, scale: tuple[float, float, float], earth: Earth) -> bool:
    """Whether a region holds most of some places around the mean, by how often its boundary goes around each."""
    begin, end, found = regions.start[regions.first[i]], regions.start[regions.first[i + 1]], 0
    for u, v in _PLACES:
        east = u / scale[0]
        x, y, z = lead(earth, place[0], place[1], place[2], east, (v - east * scale[2]) / scale[1])
        lon = math.atan2(y, x) / _DEGREE
        lat = math.atan2(z * (earth.a / earth.b) ** 2, math.hypot(x, y)) / _DEGREE
        inside = False
        for aside in (lon, lon - 360.0, lon + 360.0):
            turns = 0
            for e in range(begin, end):
                ax, ay, bx, by = regions.edges[e]
                if (ay <= lat) != (by <= lat) and ax + (lat - ay) / (by - ay) * (bx - ax) > aside:
                    turns += 1 if by > ay else -1
            inside |= turns != 0
        found += inside
    return found >= _MOST


@exact_kernel
def curved_mass(regions: Regions, i: int, lat: float, scale: Floats, place: Floats, earth: Earth) -> float:
    """Pr{inside} of a place with normal errors in the plane that touches the Earth there."""
    x, y = _metres_of_degrees(lat, earth)
    metres = scale[0] / x, scale[1] / y, scale[2] / x
    start, bounds, edges = _outline(regions, i, place, metres, earth)
    first = np.array([0, len(bounds)])
    outline = Regions(first, start, bounds, edges, regions.box, regions.radius, regions.centre, regions.raster)
    found = enclosed(outline, 0, 0.0, 0.0, 1.0, 1.0, 0.0)
    # The plane has no antipode: a region that holds it has a boundary the other way round.
    found -= math.floor(found + _EXACT)
    if _EXACT < found < 1.0 - _EXACT:
        return found
    return 1.0 if _holds(regions, i, place, metres, earth) else 0.0


@exact_kernel
def curved_masses(regions: Regions, ids: Ints, lat: Floats, scale: Floats, place: Floats, earth: Earth) -> Floats:
    """`curved_mass` of each row in its region ``ids``."""
    out = np.empty(ids.shape[0])
    for k in range(ids.shape[0]):
        out[k] = curved_mass(regions, ids[k], lat[k], scale[k], place[k], earth)
    return out


@exact_kernel
def tail_degrees(lat: Floats, scale: Floats, earth: Earth) -> Floats:
    """Degrees of longitude and of latitude (n, 2) beyond which each place has no part."""
    out = np.empty((lat.shape[0], 2))
    for k in range(lat.shape[0]):
        out[k, 0], out[k, 1] = degrees_reached(lat[k], _NEAR * widest(lat[k], scale[k], earth), earth)
    return out
