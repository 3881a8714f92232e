"""Places on the Earth as a flat map: kilometres east and north of the middle of all sensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.errors import BadArgument
from appulse.kernels.tangent import on_surface, ways
from appulse.model.columns import chunk, floats
from appulse.model.positions import EARTHS, centred

if TYPE_CHECKING:
    from collections.abc import Callable

    from appulse.kernels.arrays import Floats
    from appulse.model.uncertainty import Position

__all__ = ["flattened"]

_METRES = 1000.0  # of a kilometre
_PLACES = ("centroid", "hull")


def flattened(events: pa.Table, locations: pa.Table, place: Position) -> tuple[pa.Table, pa.Table]:
    """Events and locations in kilometres, whose degrees are those of ``place``; columns that are missing stay so."""
    if place.geography is not None or place.earth == "sky":
        raise BadArgument(f"place={place!r}: a page takes columns of latitude and longitude on the Earth.")
    for name in (place.lat, place.lon):
        if name not in locations.column_names:
            raise BadArgument(f"The locations have no column {name!r}. They have: {', '.join(locations.column_names)}.")
    earth = EARTHS[place.earth]
    degrees = np.column_stack([floats(locations[place.lon]), floats(locations[place.lat])])
    known = degrees[np.isfinite(degrees).all(axis=1)]
    middle = centred(known[:, 1], known[:, 0], earth).mean(axis=0).tolist() if len(known) else (earth.a, 0.0, 0.0)
    origin = on_surface(earth, *middle)

    def flat(at: Floats) -> Floats:
        found = np.empty((len(at), 2))
        ways(earth, np.tile(origin, (len(at), 1)), centred(at[:, 1], at[:, 0], earth), found)
        return found / _METRES

    for name, column in zip(("km east", "km north"), flat(degrees).T, strict=True):
        locations = locations.append_column(name, pa.array(column))
    for name, change in (*((name, flat) for name in _PLACES), ("velocity", lambda way: way / _METRES)):
        if name in events.column_names:
            at = events.column_names.index(name)
            events = events.set_column(at, name, _changed(chunk(events[name]), change))
    return events, locations.drop_columns([place.lat, place.lon])


def _changed(column: pa.Array, change: Callable[[Floats], Floats]) -> pa.Array:
    """A column of pairs of numbers, or of lists of such, with other numbers."""
    if pa.types.is_null(column.type):
        return column
    first, inner = np.concatenate([[0], np.cumsum(pc.list_value_length(column).fill_null(0))]), column.flatten()
    if pa.types.is_list(inner.type):
        values = _changed(inner, change)
    else:
        values = pa.array(change(floats(pa.chunked_array([inner])).reshape(-1, 2)).ravel())
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(pa.array(first, pa.int32()), values, mask=mask)
