"""From place to place on the Earth: at which azimuth and how far another lies, and where such a way leads.

A way is held as its metres east and north in the plane that touches the Earth where it starts; places, in such a plane,
are in the azimuthal equidistant projection. Up to 200 km its azimuth follows from the normal section, which differs
from the geodesic's by a term of the second order in the distance (Rapp 1991, Geometric Geodesy I, eq. 4.62); beyond,
and for where a way leads, by Vincenty's (1975) series.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from appulse.kernels.geodesic import Earth, excess, geodesic, vincenty
from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats

_NEAR = 2e5
_STEPS, _SHORT = 20, 1e-9


@exact_kernel
def on_surface(earth: Earth, x: float, y: float, z: float) -> tuple[float, float, float]:
    """The place on the Earth in the direction of a point from its centre."""
    a, b = earth.a, earth.b
    scale = 1.0 / math.sqrt((x * x + y * y) / (a * a) + z * z / (b * b))
    return x * scale, y * scale, z * scale


@exact_kernel
def way(earth: Earth, px: float, py: float, pz: float, qx: float, qy: float, qz: float) -> tuple[float, float]:
    """Metres east and north, at p, of the geodesic to q."""
    a, b = earth.a, earth.b
    metres = geodesic(earth, px, py, pz, qx, qy, qz)
    if metres == 0.0:
        return 0.0, 0.0
    flat = math.sqrt(px * px + py * py)
    cos_lon, sin_lon = (px / flat, py / flat) if flat > 0.0 else (1.0, 0.0)
    if metres > _NEAR:
        cos_p, cos_q = flat / a, math.hypot(qx, qy) / a
        turn = math.atan2(cos_lon * qy - sin_lon * qx, cos_lon * qx + sin_lon * qy)
        on_sphere = math.copysign(vincenty(earth, pz / b, cos_p, qz / b, cos_q, abs(turn))[1], turn)
        east = cos_q * math.sin(on_sphere)
        north = cos_p * (qz / b) - (pz / b) * cos_q * math.cos(on_sphere)
        length = math.hypot(east, north)
        return metres * east / length, metres * north / length
    # Upward is along (px / a^2, py / a^2, pz / b^2).
    tall, wide = pz / (b * b), flat / (a * a)
    up = math.sqrt(wide * wide + tall * tall)
    sin_lat, cos_lat = tall / up, wide / up
    x, y, z = qx - px, qy - py, qz - pz
    outward = cos_lon * x + sin_lon * y
    east, north = cos_lon * y - sin_lon * x, cos_lat * z - sin_lat * outward
    length = math.sqrt(east * east + north * north)
    if length == 0.0:
        return 0.0, 0.0
    east, north = east / length, north / length
    # By how much the geodesic leaves in another direction than the normal section.
    squeezed = (a * a - b * b) / (a * a)
    bend = squeezed / 6.0 * (metres * cos_lat / a) ** 2 * east * north
    return metres * (east - bend * north), metres * (north + bend * east)


@exact_kernel
def lead(earth: Earth, px: float, py: float, pz: float, east: float, north: float) -> tuple[float, float, float]:
    """Where a geodesic leads that starts at p, that many metres east and north."""
    metres = math.sqrt(east * east + north * north)
    if metres == 0.0:
        return px, py, pz
    a, b = earth.a, earth.b
    f = (a - b) / a
    sin_azimuth, cos_azimuth = east / metres, north / metres
    flat = math.sqrt(px * px + py * py)
    sin_1, cos_1 = pz / b, flat / a
    one = math.atan2(sin_1, cos_1 * cos_azimuth)
    sin_equator = cos_1 * sin_azimuth
    u = (1.0 - sin_equator * sin_equator) * (a * a - b * b) / (b * b)
    scale = 1.0 + u / 16384.0 * (4096.0 + u * (-768.0 + u * (320.0 - 175.0 * u)))
    k = u / 1024.0 * (256.0 + u * (-128.0 + u * (74.0 - 47.0 * u)))
    whole = metres / (b * scale)
    sigma = whole
    sin_s, cos_s, cos_2m = 0.0, 1.0, 1.0
    for _ in range(_STEPS):
        sin_s, cos_s, cos_2m = math.sin(sigma), math.cos(sigma), math.cos(2.0 * one + sigma)
        twice = 2.0 * cos_2m * cos_2m - 1.0
        last = k / 6.0 * cos_2m * (4.0 * sin_s * sin_s - 3.0) * (4.0 * cos_2m * cos_2m - 3.0)
        wanted = whole + k * sin_s * (cos_2m + k / 4.0 * (cos_s * twice - last))
        # Newton's step, by the slope of the leading term: k squared times the change is left. Sines follow a short one.
        change = (wanted - sigma) / (1.0 - k * math.cos(2.0 * (one + sigma)))
        sigma += change
        if abs(change) < _SHORT:
            sin_s, cos_s = sin_s + change * cos_s, cos_s - change * sin_s
            cos_2m = math.cos(2.0 * one + sigma)
            break
    inward = sin_1 * sin_s - cos_1 * cos_s * cos_azimuth
    sin_2, cos_2 = sin_1 * cos_s + cos_1 * sin_s * cos_azimuth, math.sqrt(sin_equator * sin_equator + inward * inward)
    turned = math.atan2(sin_s * sin_azimuth, cos_1 * cos_s - sin_1 * sin_s * cos_azimuth)
    turned -= excess(f, sin_equator, sigma, sin_s, cos_s, cos_2m)
    cos_lon, sin_lon = (px / flat, py / flat) if flat > 0.0 else (1.0, 0.0)
    x, y = math.cos(turned), math.sin(turned)
    return a * cos_2 * (cos_lon * x - sin_lon * y), a * cos_2 * (sin_lon * x + cos_lon * y), b * sin_2


@exact_kernel
def ways(earth: Earth, at: Floats, to: Floats, out: Floats) -> None:
    """The way (n, 2) from each place to another."""
    for i in range(at.shape[0]):
        out[i, 0], out[i, 1] = way(earth, at[i, 0], at[i, 1], at[i, 2], to[i, 0], to[i, 1], to[i, 2])


@exact_kernel
def leads(earth: Earth, at: Floats, ways: Floats, out: Floats) -> None:
    """Where each way leads from its place."""
    for i in range(at.shape[0]):
        out[i, 0], out[i, 1], out[i, 2] = lead(earth, at[i, 0], at[i, 1], at[i, 2], ways[i, 0], ways[i, 1])
