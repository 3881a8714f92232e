"""Regions in conditions: of which columns they are, and whether places lie in them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from appulse.kernels.region_chances import chances
from appulse.model.covariance import whitening
from appulse.model.positions import EARTHS, centred, ground_of, plain_longitudes
from appulse.model.regions import Regions, regions_of
from appulse.model.uncertainty import Position, names
from appulse.queries.columns import Values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.kernels.geodesic import Earth
    from appulse.model.regions import RegionSet
    from appulse.model.uncertainty import Model

#: The axes of a row's place: x and y, or longitude and latitude.
PLACE_X, PLACE_Y = "\0x", "\0y"
_PLANE = 2
_KEPT = 4096  # regions of conditions that are asked row by row


class Place(NamedTuple):
    """The columns that are the coordinates of a stream's value; ``earth`` names the Earth that they are degrees on."""

    x: str
    y: str
    earth: str | None = None


def place_of(model: Model, d: int | None) -> Place | None:
    """The place of a value; None where it has none."""
    if isinstance(model, Position):
        return Place(model.lon, model.lat, model.earth)
    return Place(*names(model, d)) if d == _PLANE else None


def trouble_of(text: str, radius: float | None = None, *, earth: str | None = None) -> str:
    """What keeps WKT from being a region; empty if nothing does."""
    bad = _one(text, radius, earth).bad
    return bad[0].why if bad else ""


@lru_cache(_KEPT)
def _one(text: str, radius: float | None, earth: str | None) -> RegionSet:
    return regions_of([text], [radius], EARTHS[earth] if earth else None)


def covered(parts: Sequence[Values], earth: str | None) -> Values:
    """Whether places lie in regions: ``parts`` are x, y, WKT, and perhaps distances, of each row or of all."""
    n = max((value.data.size for value in parts if value.data.ndim), default=1)
    valid = np.logical_and.reduce([np.broadcast_to(value.valid, n) for value in parts])
    x, y = (np.broadcast_to(value.data, n) for value in parts[:2])
    given = list(zip(*(np.broadcast_to(value.data, n).tolist() for value in parts[2:]), strict=True))
    inside = np.zeros(n, bool)
    known: dict[Any, list[int]] = {}
    for i in np.flatnonzero(valid).tolist():
        known.setdefault(given[i], []).append(i)
    for (text, *radius), rows in known.items():
        found = _one(text, *map(float, radius), *[None] * (1 - len(radius)), earth)
        if found.bad:
            valid[rows] = False
            continue
        at = np.column_stack([x[rows], y[rows]]).astype(float)
        if earth:
            at[:, 0] = plain_longitudes(at[:, 0])
        inside[rows] = membership(found.arrays, np.zeros(len(rows), np.int64), at, EARTHS[earth] if earth else None)
    return Values.truth(inside & valid, ~inside & valid)


def membership(regions: Regions, ids: Ints, at: Floats, earth: Earth | None) -> Flags:
    """Whether exact places (n, 2) lie in regions, pair by pair; on an Earth longitudes of -180 and 180 are one."""
    exact = np.zeros((len(at), 1))
    inside = mass(regions, ids, at, whitening(exact), exact, earth) > 0.5
    turned = np.flatnonzero(np.abs(at[:, 0]) == 180.0) if earth is not None else np.empty(0, np.int64)
    if len(turned):
        exact, beside = exact[turned], at[turned] * (-1.0, 1.0)
        inside[turned] |= mass(regions, ids[turned], beside, whitening(exact), exact, earth) > 0.5
    return inside


def mass(regions: Regions, ids: Ints, at: Floats, scale: Floats, spread: Floats, earth: Earth | None) -> Floats:
    """Pr{inside} of places with normal errors, pair by pair; ``scale`` and ``spread`` as of `Readings`."""
    place = np.zeros((len(at), 3)) if earth is None else centred(at[:, 1], at[:, 0], earth)
    out = np.empty(len(at))
    chances(regions, ids, at, scale, place, spread, ground_of(earth), out)
    return out
