"""Where a place with a large error may be: evenly likely places, each at its azimuth and distance from the mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyproj
from scipy.special import ndtri

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RADIUS = 6_371_008.8
GEODS = {
    "wgs84": pyproj.Geod(ellps="WGS84"),
    "sphere": pyproj.Geod(a=_RADIUS, b=_RADIUS),
    "sky": pyproj.Geod(a=648_000 / np.pi, b=648_000 / np.pi),
}


def likely_places(
    lat: float, lon: float, ellipse: tuple[float, float, float], steps: int = 300, earth: str = "wgs84"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Longitudes from -180 to 180, and latitudes, of ``steps`` squared places."""
    one = ndtri((np.arange(steps) + 0.5) / steps)
    along, across = (part.ravel() for part in np.meshgrid(ellipse[0] * one, ellipse[1] * one))
    turn = np.radians(ellipse[2])
    east, north = along * np.sin(turn) + across * np.cos(turn), along * np.cos(turn) - across * np.sin(turn)
    ways = np.degrees(np.arctan2(east, north)), np.hypot(east, north)
    at, up, _ = GEODS[earth].fwd(np.full(len(east), lon), np.full(len(east), lat), *ways)
    return np.asarray(at), np.asarray(up)
