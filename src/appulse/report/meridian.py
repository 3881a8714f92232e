"""Longitudes beside each other, also where the 180th meridian is between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from appulse.kernels.arrays import Floats

__all__ = ["MapMiddle", "longitude_middle", "near", "put_together"]

TURN = 360.0  # degrees
_STAYS = 45.0  # degrees that the middle of what moves may be from that of the map
_EVEN = 0.1  # below it places are all around the Earth, and have no middle


def near(longitudes: Any, other: Any) -> Floats:
    """The same longitudes, at most half a turn from others."""
    at = np.asarray(longitudes, np.float64)
    with np.errstate(invalid="ignore"):
        found: Floats = at - TURN * np.round((at - other) / TURN)
    return found


def longitude_middle(longitudes: Floats) -> float:
    """The middle of longitudes, by which `near` puts them side by side; 0 of none. What is not finite is left out."""
    turn = _turn(longitudes)
    return float(np.degrees(np.angle(turn)))


def _turn(longitudes: Floats) -> complex:
    known = longitudes[np.isfinite(longitudes)]
    return complex(np.exp(1j * np.radians(known)).mean()) if len(known) else 0j


class MapMiddle:
    """The longitude in the middle of a map of things that come one after another."""

    def __init__(self) -> None:
        self.longitude = 0.0

    def follow(self, longitudes: Floats) -> float:
        """The middle for things as they are now: the one so far, unless most have gone far from it."""
        turn, middle = _turn(longitudes), longitude_middle(longitudes)
        if abs(turn) > _EVEN and abs(float(near(middle, self.longitude)) - self.longitude) > _STAYS:
            self.longitude = middle
        return self.longitude


def put_together(fences: Iterable[dict[str, Any]], sensors: Sequence[list[Any]]) -> float:
    """Move fences (``rings`` of corners), each ring as a whole, and sensors (key, x, y) around their middle: that."""
    rings = [ring for fence in fences for ring in fence["rings"]]
    sides = [[corner[0] for corner in ring if corner[0] is not None] or [np.nan] for ring in rings]
    middles = np.array([(min(side) + max(side)) / 2 for side in sides], np.float64)
    places = np.array([one[1] for one in sensors], np.float64)
    middle = longitude_middle(np.concatenate([middles, places]))
    for ring, turn in zip(rings, (near(middles, middle) - middles).tolist(), strict=True):
        ring[:] = [[None if corner[0] is None else corner[0] + turn, *corner[1:]] for corner in ring]
    for one, x in zip(sensors, near(places, middle).tolist(), strict=True):
        one[1] = None if one[1] is None else x
    return middle
