"""Coordinates that look like degrees, in a call whose distances look like metres."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Floats

_LATITUDE, _LONGITUDE = frozenset({"lat", "latitude"}), frozenset({"lon", "lng", "long", "longitude"})
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
#: Nobody means so many degrees by a distance (10 degrees of latitude are 1,100 km): it stands without other signs.
SURELY_METRES = 10.0
_PROJECT = "give them as ap.Position(lat, lon), with distances in metres"


def named_as_degrees(names: Sequence[str]) -> tuple[str, str] | None:
    """The columns that are latitude and longitude by their names, if there are both."""
    found = [
        next((name for name in names if known & {word.lower() for word in _WORD.findall(name)}), None)
        for known in (_LATITUDE, _LONGITUDE)
    ]
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def degrees_hint(
    names: Sequence[str],
    distance: float,
    least: Floats | None = None,
    most: Floats | None = None,
    *,
    what: str = "epsilon",
    exploding: bool = False,
) -> str:
    """What is likely wrong where a ``distance`` seems to be in metres, and coordinates in degrees; else empty.

    ``least`` and ``most`` are of each coordinate, where values are known. Names say degrees if one is of a latitude and
    one of a longitude, and values do not contradict. With them a distance above 10 is enough: a false alarm would need
    somebody who looks for neighbours 1,100 km away, or has metres in a column named ``lat`` that happen to lie
    within 90. Where the output is ``exploding`` a distance above 1 is enough, and with coordinates in two or three
    dimensions that all lie within 180, one of them within 90, names are not needed; they are then only suspected.
    """
    known = least is not None and most is not None and len(least) == len(names) and bool(np.isfinite(least).all())
    within = np.maximum(np.abs(least), np.abs(most)) if known and least is not None and most is not None else None
    pair = named_as_degrees(names)
    if pair is not None:
        fits = within is None or (within[names.index(pair[0])] <= 90.0 and within[names.index(pair[1])] <= 360.0)
        if fits and distance > (1.0 if exploding else SURELY_METRES):
            return (
                f"{pair[0]} and {pair[1]} look like degrees, and {what}={distance:g} is in the unit of the "
                f"coordinates: {_PROJECT}."
            )
        return ""
    if exploding and distance > 1.0 and within is not None and len(within) in (2, 3):
        flat = within[:2]
        if flat.max() <= 180.0 and flat.min() <= 90.0:
            return (
                f"All coordinates are within 180: if they are degrees, {what}={distance:g} is in degrees, too, and not "
                f"in metres; {_PROJECT}."
            )
    return ""
