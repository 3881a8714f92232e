"""Longitudes beside each other, also where the 180th meridian is between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["longitude_middle", "near"]

TURN = 360.0  # degrees


def near(longitudes: Any, other: Any) -> NDArray[np.float64]:
    """The same longitudes, at most half a turn from others."""
    at = np.asarray(longitudes, np.float64)
    with np.errstate(invalid="ignore"):
        found: NDArray[np.float64] = at - TURN * np.round((at - other) / TURN)
    return found


def longitude_middle(longitudes: NDArray[np.float64]) -> float:
    """The middle of longitudes, by which `near` puts them side by side; 0 of none. What is not finite is left out."""
    turn = _turn(longitudes)
    return float(np.degrees(np.angle(turn)))


def _turn(longitudes: NDArray[np.float64]) -> complex:
    known = longitudes[np.isfinite(longitudes)]
    return complex(np.exp(1j * np.radians(known)).mean()) if len(known) else 0j
