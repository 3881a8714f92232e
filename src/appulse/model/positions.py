"""Positions on the Earth: from degrees to Earth-centred coordinates and back, and what is wrong with some."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.errors import BadArgument
from appulse.kernels.geodesic import Earth, to_centred
from appulse.kernels.regions import Ground
from appulse.model import defects as why
from appulse.model.columns import floats
from appulse.model.covariance import checked_deviations, checked_ellipses, whitening
from appulse.model.uncertainty import MOST_ERROR, Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.defects import Defects
    from appulse.model.uncertainty import Model

_NO_EARTH = Earth(1.0, 1.0)  # what kernels are given in a plane
_A, _FLATTENING = 6_378_137.0, 1.0 / 298.257223563
_RADIUS = 6_371_008.8
# Of a sphere on which an arc is as long as its angle in arc seconds.
_SKY = 648_000.0 / math.pi
EARTHS = {
    "wgs84": Earth(_A, _A * (1.0 - _FLATTENING)),
    "sphere": Earth(_RADIUS, _RADIUS),
    "sky": Earth(_SKY, _SKY),
}


def ground_of(earth: Earth | None) -> Ground:
    """What regions lie on: an Earth, or None for a plane."""
    return Ground(earth or _NO_EARTH, earth is not None)


def earth_of(models: Sequence[Model]) -> Earth | None:
    """The one Earth that the positions of a call lie on; None where values are no positions."""
    first = models[0]
    return EARTHS[first.earth] if isinstance(first, Position) else None


def check_positions(names: Sequence[str], models: Sequence[Model]) -> None:
    """Raise `BadArgument` where some streams are positions, on one Earth or with altitudes, and others not."""
    earths = [model.earth if isinstance(model, Position) else None for model in models]
    if len(set(earths)) == 1:
        flat = [name for name, one in zip(names, models, strict=True) if getattr(one, "altitude", None) is None]
        if 0 < len(flat) < len(names):
            raise BadArgument(
                f"Some streams of the call have an altitude, but not {' and '.join(map(repr, flat))}. Give all of them "
                "Position(altitude=), or none."
            )
        return
    if None in earths:
        others = [name for name, earth in zip(names, earths, strict=True) if earth is None]
        raise BadArgument(
            f"Some streams of the call are positions on the Earth, and {' and '.join(map(repr, others))} not. A "
            "distance needs ap.Position on both sides."
        )
    listed = ", ".join(f"{name} has earth={earth!r}" for name, earth in zip(names, earths, strict=True))
    raise BadArgument(f"The streams differ in their Earth: {listed}. A distance needs the same on both sides.")


def centred(lat: Floats, lon: Floats, earth: Earth) -> Floats:
    """Earth-centred coordinates (n, 3) in metres, of degrees."""
    out = np.empty((len(lat), 3))
    to_centred(earth, lat, lon, out)
    return out


def degrees_of(centre: Floats, earth: Earth) -> Floats:
    """Latitude and longitude (n, 2) of Earth-centred coordinates, and the altitude (n, 3) where there is one."""
    x, y, z = centre[:, 0], centre[:, 1], centre[:, 2]
    lat = np.arctan2(z * (earth.a / earth.b) ** 2, np.hypot(x, y))
    degrees: Floats = np.column_stack([np.degrees(lat), np.degrees(np.arctan2(y, x)), centre[:, 3:]])
    return degrees


def given_degrees(table: pa.Table, model: Model) -> Floats | None:
    """Longitude and latitude (n, 2) as they were given, longitudes from -180 to 180; None of what is no position."""
    if not isinstance(model, Position):
        return None
    return np.column_stack([plain_longitudes(floats(table[model.lon])), floats(table[model.lat])])


def plain_longitudes(lon: Floats) -> Floats:
    """Longitudes from -180 to 180; those that are stay as they are."""
    found: Floats = np.where(np.abs(lon) <= 180.0, lon, np.remainder(lon + 180.0, 360.0) - 180.0)
    return found


def metres_of_degrees(lat: Floats, earth: Earth) -> Floats:
    """Metres of a degree of longitude and of latitude (n, 2)."""
    at = np.radians(lat)
    curved = np.hypot(earth.a * np.cos(at), earth.b * np.sin(at))
    across = earth.a**2 / curved * np.maximum(np.cos(at), 1e-9)
    along = (earth.a * earth.b) ** 2 / curved**3
    metres: Floats = np.radians(np.column_stack([across, along]))
    return metres


def degree_scale(lat: Floats, spread: Floats, earth: Earth) -> Floats:
    """`whitening` of errors in metres, for longitudes and latitudes (n, 3)."""
    scale: Floats = whitening(spread) * metres_of_degrees(lat, earth)[:, [0, 1, 0]]
    return scale


def degrees_around(centre: Floats, offset: Floats, earth: Earth) -> Floats:
    """Degrees (n, m, 2) of ``m`` places around each centre, ``offset`` (n, m, 2) metres east and north.

    A place lies at the azimuth and distance of its offset, along a circle as curved as the Earth is there on average.
    Where there are altitudes, they and their offsets are the third of each.
    """
    n, m, width = offset.shape
    at = np.radians(degrees_of(centre, earth))[:, None, :]
    sin_lat, cos_lat, sin_lon, cos_lon = np.sin(at[..., 0]), np.cos(at[..., 0]), np.sin(at[..., 1]), np.cos(at[..., 1])
    east = np.stack([-sin_lon, cos_lon, np.zeros_like(sin_lon)], axis=-1)
    north = np.stack([-sin_lat * cos_lon, -sin_lat * sin_lon, cos_lat], axis=-1)
    up = np.stack([cos_lat * cos_lon, cos_lat * sin_lon, sin_lat], axis=-1)
    square = (earth.a * cos_lat) ** 2 + (earth.b * sin_lat) ** 2
    radius = (earth.a**2 * earth.b / square)[..., None]
    far = np.hypot(offset[..., 0], offset[..., 1])[..., None]
    along = np.sinc(far / radius / np.pi) * (offset[..., :1] * east + offset[..., 1:2] * north)
    places = centre[:, None, :3] + along - 2.0 * radius * np.sin(0.5 * far / radius) ** 2 * up
    places = np.concatenate([places, centre[:, None, 3:] + offset[..., 2:]], axis=-1)
    return degrees_of(places.reshape(n * m, -1), earth).reshape(n, m, width)


def checked_positions(table: pa.Table, model: Position, defects: Defects) -> tuple[Floats, Floats]:
    """Centres and deviations of rows; bad rows are marked."""
    columns = [floats(table[column]) for column in model.columns]
    finite = np.logical_and.reduce([np.isfinite(column) for column in columns])
    if not finite.all():
        given = np.column_stack(columns)
        defects.mark(~finite, why.NON_FINITE, lambda at: _listed(model.columns, given[at]))
        columns = [np.where(np.isfinite(column), column, 0.0) for column in columns]
    lat, lon = columns[0], columns[1]
    good = np.abs(lat) <= 90.0

    def outside(at: Ints) -> list[str]:
        swapped = (np.abs(lon[at]) <= 90.0) & (np.abs(lat[at]) <= 180.0)
        return [
            f"{model.lat} is {one}" + (f", {model.lon} is {other}: they may be swapped" if may else "")
            for one, other, may in zip(lat[at].tolist(), lon[at].tolist(), swapped.tolist(), strict=True)
        ]

    defects.mark(~good, why.BAD_LATITUDE, outside)
    spread = np.empty((len(table), 0))
    if not model.exact:
        most = MOST_ERROR, why.LARGE_ERROR_ON_SKY if model.earth == "sky" else why.LARGE_ERROR
        parts = [] if model.ellipse is None else [checked_ellipses(table, model.ellipse, defects, *most)]
        rest = model.errors[len(parts) * 3 :]
        spread = np.hstack([*parts, checked_deviations(table, rest, defects, *most)]) if rest else parts[0]
    places = centred(lat if good.all() else np.where(good, lat, 0.0), lon, EARTHS[model.earth])
    return (np.column_stack([places, *columns[2:]]) if columns[2:] else places), spread


def _listed(names: Sequence[str], values: Floats) -> list[str]:
    return [", ".join(f"{name} is {value}" for name, value in zip(names, row, strict=True)) for row in values.tolist()]
