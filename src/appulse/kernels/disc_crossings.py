"""Legs that pass through discs on the Earth.

A leg is seen in the azimuthal equidistant projection around its place closest to the middle of the disc: there the leg
is straight, its lengths are true, and so is how far that place is from the middle.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.crossings import middle_in_disc, through_disc
from appulse.kernels.jit import exact_kernel
from appulse.kernels.tangent import lead, way

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints
    from appulse.kernels.geodesic import Earth
    from appulse.kernels.regions import Regions

# Steps to the closest place, which are ten times shorter each at least, and the radians of one that is the last.
_STEPS, _SHORT = 20, 1e-13


class Flights(NamedTuple):
    """Legs on the Earth: from a ``place`` (n, 3) along ``route`` (n, 2), metres east and north.

    ``scale`` is what makes errors independent, of deviation 1, as `appulse.kernels.near_regions.Readings` has it, but
    in metres. ``exists`` is a probability.
    """

    place: Floats
    route: Floats
    scale: Floats
    exists: Floats


@exact_kernel
def _passed(earth: Earth, flights: Flights, n: int, centre: Floats, radius: float, share: float) -> tuple[float, float]:
    """Probability that a leg passes through a disc, and where; ``share`` is where the search begins."""
    px, py, pz = flights.place[n]
    east, north = flights.route[n]
    length = math.hypot(east, north)
    begin, end = np.empty(2), np.empty(2)
    if length == 0.0:
        x, y = way(earth, px, py, pz, centre[0], centre[1], centre[2])
        begin[0], begin[1] = -x, -y
        return through_disc(begin, begin, flights.scale[n], radius) * flights.exists[n], 0.5
    to = lead(earth, px, py, pz, east, north)
    about, at = math.sqrt(earth.a * earth.b), share * length
    ux, uy, x, y = 1.0, 0.0, 0.0, 0.0
    for _ in range(_STEPS):
        here = lead(earth, px, py, pz, at / length * east, at / length * north)
        if at < 0.5 * length:
            ux, uy = way(earth, here[0], here[1], here[2], to[0], to[1], to[2])
        else:
            ux, uy = way(earth, here[0], here[1], here[2], px, py, pz)
            ux, uy = -ux, -uy
        ahead = math.hypot(ux, uy)
        ux, uy = ux / ahead, uy / ahead
        x, y = way(earth, here[0], here[1], here[2], centre[0], centre[1], centre[2])
        far = math.hypot(x, y)
        cosine = (x * ux + y * uy) / far if far > 0.0 else 0.0
        # As on a sphere.
        step = about * math.atan2(math.sin(far / about) * cosine, math.cos(far / about))
        step = min(length - at, max(-at, step))
        if abs(step) <= _SHORT * about:
            break
        at += step
    # The leg seen from the middle, along and across it, then east and north as its errors are at its start.
    along, across = -(x * ux + y * uy), x * uy - y * ux
    cosine, sine = east / length, north / length
    begin[0], begin[1] = (along - at) * cosine - across * sine, (along - at) * sine + across * cosine
    end[0], end[1] = begin[0] + east, begin[1] + north
    mass = through_disc(begin, end, flights.scale[n], radius)
    return mass * flights.exists[n], middle_in_disc(begin, end, radius)


@exact_kernel
def discs_passed(
    earth: Earth, flights: Flights, legs: Ints, share: Floats, regions: Regions, ids: Ints
) -> tuple[Floats, Floats]:
    """Of each leg the probability that it passes through its disc, and where, from 0 to 1.

    That is the middle of the stretch inside, or the place that is closest. ``share`` is near it.
    """
    probability, at = np.empty(ids.shape[0]), np.empty(ids.shape[0])
    for k in range(ids.shape[0]):
        i = ids[k]
        probability[k], at[k] = _passed(earth, flights, legs[k], regions.centre[i], regions.radius[i], share[k])
    return probability, at
