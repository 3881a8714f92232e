"""What a position is and how far two are apart, by pyproj: the twin of `appulse.kernels.geodesic`."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2, ncx2, norm

#: Semi-axes of each Earth.
AXES = {"wgs84": (6378137.0, 6378137.0 * (1.0 - 1.0 / 298.257223563)), "sphere": (6371008.8, 6371008.8)}


@cache
def geod(earth: str) -> Any:
    """The `pyproj.Geod` of an Earth; the test is skipped where there is no pyproj."""
    pyproj = pytest.importorskip("pyproj")
    a, b = AXES[earth]
    return pyproj.Geod(a=a, b=b)


def distance(earth: str, one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Metres between two places, as (latitude, longitude) in degrees."""
    (lat, lon), (lat_2, lon_2) = one, other
    found = float(geod(earth).inv(lon, lat, lon_2, lat_2)[2])
    # At a pole, and over the 180th meridian, it may not see that two places are one.
    return 0.0 if found < 1e-8 else found


def headings(earth: str, one: tuple[float, ...], other: tuple[float, ...]) -> tuple[Any, Any]:
    """At each end of a geodesic, the turn from (east, north) to (along, across) it, on the way to the other place."""
    (lat, lon), (lat_2, lon_2) = one, other
    leaves, back, _ = geod(earth).inv(lon, lat, lon_2, lat_2)
    turns = []
    for azimuth in (math.radians(leaves), math.radians(back + 180.0)):
        east, north = math.sin(azimuth), math.cos(azimuth)
        turns.append(np.array([[east, north], [north, -east]]))
    return turns[0], turns[1]


def centred(earth: str, place: tuple[float, ...]) -> tuple[float, float, float]:
    """Earth-centred coordinates of a place."""
    a, b = AXES[earth]
    lat, lon = (math.radians(angle) for angle in place)
    across = a * a / math.hypot(a * math.cos(lat), b * math.sin(lat))
    return (
        across * math.cos(lat) * math.cos(lon),
        across * math.cos(lat) * math.sin(lon),
        across * (b / a) ** 2 * math.sin(lat),
    )


def in_ball(distance: float, flat: float, rise: float, steep: float, epsilon: float) -> float:
    """Pr{horizontal^2 + vertical^2 <= epsilon^2} by quadrature over the vertical difference."""

    if steep == 0.0:
        left = ((epsilon - rise) * (epsilon + rise)) / flat**2
        return float(ncx2.cdf(left, 2, (distance / flat) ** 2) if distance else chi2.cdf(left, 2)) if left > 0 else 0.0
    if flat == 0.0:
        reach = math.sqrt(max(0.0, (epsilon - distance) * (epsilon + distance)))
        return (
            float(norm.cdf((reach - rise) / steep) - norm.cdf((-reach - rise) / steep)) if distance <= epsilon else 0.0
        )

    def value(v: float) -> float:
        left = (epsilon - v) * (epsilon + v) / flat**2
        disc = chi2.cdf(left, 2) if distance == 0.0 else ncx2.cdf(left, 2, (distance / flat) ** 2)
        return float(disc) * math.exp(-0.5 * ((v - rise) / steep) ** 2) / steep / math.sqrt(2.0 * math.pi)

    low, high = max(-epsilon, rise - 9.0 * steep), min(epsilon, rise + 9.0 * steep)
    if low >= high:
        return 0.0
    rims = [distance + k * flat for k in (-8, -4, -2, -1, 0, 1, 2, 4, 8)]
    cuts = [math.sqrt((epsilon - rim) * (epsilon + rim)) for rim in rims if 0.0 < rim < epsilon]
    ends = sorted({low, high, *(v for c in (*cuts, rise) for v in (c, -c) if low < v < high)})
    return float(sum(quad(value, a, b, epsabs=1e-13, epsrel=1e-12, limit=200)[0] for a, b in pairwise(ends)))
