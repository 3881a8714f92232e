"""What a position is and how far two are apart, by pyproj: the twin of `appulse.kernels.geodesic`."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest

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
