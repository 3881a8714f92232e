"""Where the sensors of phenomena are: in a plane, or on the Earth, and which of them are neighbours."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.engines.thresholds import TOLERANCE
from appulse.errors import BadArgument, shown_scalar, warn_exploding
from appulse.kernels.arrays import RowPairs
from appulse.kernels.nearest import mean_distances
from appulse.kernels.tangent import on_surface, ways
from appulse.model import geography
from appulse.model.columns import chunk, decoded_type, floats, is_numeric, plain_types
from appulse.model.defects import Defects
from appulse.model.degrees import degrees_hint
from appulse.model.positions import EARTHS, checked_positions
from appulse.model.strings import encode, widest
from appulse.model.uncertainty import columns
from appulse.operators.happenings import Sites

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints
    from appulse.kernels.geodesic import Earth
    from appulse.model.uncertainty import Position


_SHOWN = 3  # sensors in a message
_NO_PAIRS = np.empty((0, 2), np.int64)


def sites_of(locations: pa.Table, sensor: str, kind: pa.DataType, reach: float | None) -> Sites:
    """Where sensors are, in the order of their names, and which are neighbours."""
    from scipy.spatial import cKDTree

    if sensor not in locations.column_names:
        raise BadArgument(f"locations= has no column {sensor!r}. It has: {', '.join(locations.column_names)}.")
    others = [name for name in locations.column_names if name != sensor]
    if len(others) != 2 or not all(is_numeric(locations.schema.field(name).type) for name in others):
        raise BadArgument(
            f"locations= has the columns {', '.join(others)} beside {sensor!r}. Give two of numbers: where each sensor "
            "is, in the unit of reach."
        )
    at = np.column_stack([floats(locations[name]) for name in others])
    named, order = _named(locations, sensor, kind)
    lost = np.flatnonzero(~np.isfinite(at).all(axis=1))
    if len(lost):
        raise BadArgument(
            f"locations= has no place of {_listed(locations, sensor, lost)}: {' or '.join(others)} is null, NaN or "
            "infinite. Give finite numbers, or leave such rows out."
        )
    at = at[order]
    if reach is None:
        return Sites(named, at, *_neighbours(_NO_PAIRS, len(at)))
    hint = degrees_hint(others, reach, at.min(axis=0), at.max(axis=0), what="reach") if len(at) else ""
    if hint:
        warn_exploding(hint)
    limit = reach + TOLERANCE * max(1.0, reach)
    pairs = cKDTree(at).query_pairs(limit * (1.0 + 1e-9), output_type="ndarray") if len(at) else _NO_PAIRS
    pairs = pairs[((at[pairs[:, 0]] - at[pairs[:, 1]]) ** 2).sum(axis=1) <= limit * limit]
    return Sites(named, at, *_neighbours(pairs, len(at)))


def places_of(locations: pa.Table, sensor: str, kind: pa.DataType, reach: float | None, place: Position) -> Sites:
    """The same of places on the Earth: neighbours by geodesic, coordinates in the plane around the middle of all."""
    if not place.exact or place.altitude is not None:
        raise BadArgument("place= says where sensors stand, without errors and altitudes. Leave these out.")
    for name in (sensor, *columns(place)):
        if name not in locations.column_names:
            raise BadArgument(f"locations= has no column {name!r}. It has: {', '.join(locations.column_names)}.")
    table, defects, earth = plain_types(locations.combine_chunks()), Defects(len(locations)), EARTHS[place.earth]
    if place.geography is not None:
        geography.check(table.schema.field(place.geography).type, place.geography, "locations")
        table = geography.opened(table, place, defects)
    centre = checked_positions(table, place, defects)[0]
    if defects.bad.any():
        row, reason, detail = (column[0].as_py() for column in defects.columns())
        who = _listed(table, sensor, np.array([row]))
        raise BadArgument(f"locations= has a row ({row + 1}, {who}) that is not a place: {reason}: {detail}.")
    named, order = _named(table, sensor, kind)
    centre = np.ascontiguousarray(centre[order])
    pairs = _NO_PAIRS if reach is None or not len(centre) else _near_on_earth(centre, reach, earth)
    origin = on_surface(earth, *(centre.mean(axis=0).tolist() if len(centre) else (earth.a, 0.0, 0.0)))
    at = np.empty((len(centre), 2))
    ways(earth, np.tile(origin, (len(centre), 1)), centre, at)
    return Sites(named, at, *_neighbours(pairs, len(at)), (earth, origin))


def linked(sites: Sites | None, neighbours: pa.Table, kind: pa.DataType) -> Sites:
    """Sensors whose neighbours are listed as pairs: those of some sites, or else those that are in the pairs."""
    if neighbours.num_columns != 2:
        raise BadArgument(
            f"neighbours= has the columns {', '.join(neighbours.column_names)}. Give two, with a pair of sensors in "
            "each row."
        )
    sides = []
    for name in neighbours.column_names:
        column = chunk(neighbours[name])
        if column.null_count:
            raise BadArgument(f"neighbours= has a row without a sensor in column {name!r}. Remove it.")
        sides.append(_keys_of(column, kind, f"neighbours= has sensors in column {name!r}"))
    if sites is None:
        named = tuple(sorted({*sides[0], *sides[1]}))
        sites = Sites(named, np.empty((len(named), 0)), *_neighbours(_NO_PAIRS, len(named)))
    number = {sensor: i for i, sensor in enumerate(sites.sensors)}
    for name, side in zip(neighbours.column_names, sides, strict=True):
        row = next((i for i, sensor in enumerate(side) if sensor not in number), None)
        if row is not None:
            raise BadArgument(
                f"neighbours= names the sensor {neighbours[name][row].as_py()!r}, which locations= do not have. "
                "Add it there."
            )
    pairs = np.array([[number[sensor] for sensor in side] for side in sides], np.int64).reshape(2, -1).T
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    first, near = _neighbours(pairs[pairs[:, 0] < pairs[:, 1]], len(sites.sensors))
    return replace(sites, first=first, near=near, listed=True)


def _near_on_earth(centre: Floats, reach: float, earth: Earth) -> Ints:
    from scipy.spatial import cKDTree

    limit = reach + TOLERANCE * max(1.0, reach)
    # A chord is never longer than the geodesic.
    near = cKDTree(centre).query_pairs(limit * (1.0 + 1e-9), output_type="ndarray")
    pairs = np.ascontiguousarray(near.astype(np.int64))
    metres = np.empty(len(pairs))
    mean_distances(RowPairs(pairs[:, 0].copy(), pairs[:, 1].copy()), centre, centre, earth, metres)
    return pairs[metres <= limit]


def _named(locations: pa.Table, sensor: str, kind: pa.DataType) -> tuple[tuple[bytes, ...], list[int]]:
    """The sensors by name, and the order of their rows."""
    names = chunk(locations[sensor])
    nameless = np.flatnonzero(names.is_null().to_numpy(zero_copy_only=False))
    if len(nameless):
        rows = _first([f"row {row + 1}" for row in nameless[:_SHOWN].tolist()], len(nameless))
        raise BadArgument(
            f"locations= has no sensor in column {sensor!r} of {rows}. Name the sensors, or leave such rows out."
        )
    named = _keys_of(names, kind, f"locations= has sensors in column {sensor!r}")
    count = Counter(named)
    if len(count) < len(named):
        first = {one: row for row, one in reversed(list(enumerate(named)))}
        twice = np.array(sorted(first[one] for one, n in count.items() if n > 1))
        raise BadArgument(f"locations= has more than one row of {_listed(locations, sensor, twice)}. Keep one of each.")
    order = sorted(range(len(named)), key=named.__getitem__)
    return tuple(named[row] for row in order), order


def _keys_of(names: pa.Array, kind: pa.DataType, what: str) -> list[bytes]:
    """Sensors as the stream has them, whose keys are of a ``kind``: also those beyond its range, without readings."""
    try:
        return encode(names if pa.types.is_null(kind) else names.cast(widest(kind))).to_list()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadArgument(
            f"{what} that are {decoded_type(names.type)}, those of the stream are {kind}, and not all convert: "
            f"{str(error).rstrip('.')}. Convert one of the columns."
        ) from error


def _listed(locations: pa.Table, sensor: str, rows: Ints) -> str:
    """The sensors of the first of some rows, and how many more there are."""
    return "sensor " + _first([repr(shown_scalar(locations[sensor][row])) for row in rows[:_SHOWN].tolist()], len(rows))


def _first(shown: list[str], of: int) -> str:
    more = of - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def _neighbours(pairs: Ints, n: int) -> tuple[Ints, Ints]:
    """Of each sensor where its neighbours begin, and these."""
    both = np.concatenate([pairs, pairs[:, ::-1]]).astype(np.int64)
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    return np.searchsorted(both[:, 0], np.arange(n + 1)), np.ascontiguousarray(both[:, 1])
