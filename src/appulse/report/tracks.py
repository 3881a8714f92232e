"""Tracks of moving things for a map: their readings in metres or units, around the times that matter."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.engines.local import as_table
from appulse.errors import BadArgument
from appulse.model.columns import chunk, floats, is_numeric
from appulse.model.times import is_number, is_time
from appulse.report.meridian import longitude_middle, near
from appulse.report.readings import micros_of, only

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints

__all__ = ["Tracks", "tracks_of"]

EARTH = 6_371_008.8  # metres
DEGREE = EARTH * np.pi / 180.0  # along a meridian
FARTHEST = 89.9  # degrees from the equator, beyond which the plane has no end
LATITUDES, LONGITUDES = ("lat", "latitude"), ("lon", "lng", "long", "longitude")
ERRORS = ("sigma", "error", "accuracy")
MOST_NAMED = 5  # keys in a message


@dataclass(frozen=True)
class Tracks:
    """Readings in order of thing, then time.

    ``at`` and ``error`` are as given, or, on Earth, in the plane of the map: Mercator's, whose unit is a metre at the
    latitude of ``centre``.
    """

    names: list[tuple[int, str]]  # the frame a thing is of, and its key
    thing: Ints
    micros: Ints
    at: Floats
    error: Floats
    centre: tuple[float, float] | None
    stamps: bool
    zone: str
    unusable: int
    columns: list[tuple[str, list[str]]]  # of each frame: the one of its keys, and all

    @property
    def earth(self) -> bool:
        """Whether places were given in degrees."""
        return self.centre is not None

    def plane(self, at: Floats) -> Floats:
        """Places as given in the plane of the map: in degrees longitude first, half a turn from its middle at most."""
        return at if self.centre is None else _mercator(at, *self.centre)

    def together(self, at: Floats, rings: list[Floats]) -> list[Floats]:
        """Some places of the plane and rings around their middle, each ring as a whole: over the edge of the plane."""
        if self.centre is None:
            return [at, *rings]
        degree = np.radians(EARTH * np.cos(np.radians(self.centre[1])))
        middle = longitude_middle(at[:, 0] / degree)
        sides = [at[:, :1], *(np.array([[one[:, 0].min() + one[:, 0].max()]]) / 2 for one in rings)]
        turns = [near(side / degree, middle) - side / degree for side in sides]
        return [one + turn * [degree, 0.0] for one, turn in zip((at, *rings), turns, strict=True)]

    def longer(self, at: Floats) -> Floats:
        """How long a metre (a unit) is drawn at places as given."""
        return np.ones(len(at)) if self.centre is None else _stretch(at, self.centre[1])

    def refuse_other_keys(self, side: int, keys: Iterable[str | None], results: str) -> None:
        """Raise `BadArgument` where no key of the results is a thing of a frame, but for results without any."""
        wanted = sorted({key for key in keys if key is not None})
        known = sorted(name for frame, name in self.names if frame == side)
        if not wanted or set(wanted) & set(known):
            return
        column, columns = self.columns[side]
        frame = "readings" if len(self.columns) == 1 else f"{('left', 'right')[side]} readings"
        raise BadArgument(
            f"No key of the {results} ({_some(wanted)}) is in column {column!r} of the {frame} ({_some(known)}). They "
            f"have: {', '.join(columns)}. Name the column of keys: key=, or --key of appulse report."
        )

    def of(self, thing: int) -> slice:
        """The readings of one thing."""
        first, last = np.searchsorted(self.thing, (thing, thing + 1))
        return slice(int(first), int(last))


def tracks_of(
    frames: Sequence[Any],
    key: str | None = None,
    time: str | None = None,
    place: tuple[str, str] | None = None,
    error: str | None = None,
) -> Tracks:
    """The tracks of one or two frames of readings.

    Columns that are not named are found: the one of times, ``lat`` and ``lon`` (degrees) or ``x`` and ``y``, and
    ``sigma``, ``error`` or ``accuracy``. Raises `BadArgument` where one is not clear.
    """
    names: dict[tuple[int, str], int] = {}
    parts: list[tuple[NDArray[Any], ...]] = []
    all_columns: list[tuple[str, list[str]]] = []
    stamps, zone, earth, unusable = False, "", False, 0
    for side, frame in enumerate(frames):
        table = as_table(frame)
        columns = _columns(table, key, time, place, error)
        all_columns.append((columns[0], table.column_names))
        earth = _says(columns[2], LATITUDES) and _says(columns[3], LONGITUDES)
        stamps = is_time(table.schema.field(columns[1]).type)
        zone = "UTC" if getattr(table.schema.field(columns[1]).type, "tz", None) else ""
        micros, timed = micros_of(table, columns[1])
        first, second = (floats(table[name]) for name in columns[2:4])
        deviation = floats(table[columns[4]]) if columns[4] else np.zeros(len(table))
        keyed = chunk(table[columns[0]]).cast(pa.string()).to_pylist()
        good = timed & np.isfinite(first) & np.isfinite(second) & np.array([name is not None for name in keyed], bool)
        thing = np.array([names.setdefault((side, str(name)), len(names)) for name in keyed], np.int64)
        unusable += int((~good).sum())
        at = np.column_stack([second, first] if earth else [first, second])
        parts.append((thing[good], micros[good], at[good], np.nan_to_num(deviation[good])))
    thing, micros, at, deviation = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((micros, thing))
    centre = _centre(at) if earth else None
    if centre is not None:
        at[:, 0] = near(at[:, 0], centre[0])
    return Tracks(
        list(names),
        thing[order],
        micros[order],
        at[order] if centre is None else _mercator(at[order], *centre),
        deviation[order] if centre is None else deviation[order] * _stretch(at[order], centre[1]),
        centre,
        stamps,
        zone,
        unusable,
        all_columns,
    )


def _some(names: Sequence[str]) -> str:
    """The first names, and whether there are others."""
    return ", ".join(names[:MOST_NAMED]) + ", ..." * (len(names) > MOST_NAMED) if names else "no row"


def _says(name: str, words: Sequence[str]) -> bool:
    """Whether one of the words stands in the name of a column, as in ``Latitude_degrees``."""
    return any(part in words for part in re.split(r"[^a-z]+", name.lower()))


def _columns(
    table: pa.Table, key: str | None, time: str | None, place: tuple[str, str] | None, error: str | None
) -> tuple[str, str, str, str, str]:
    """Key, time, the two of the place, and that of the error, which may be empty."""
    names = table.column_names
    stamps = [field.name for field in table.schema if is_time(field.type)]
    numbers = [field.name for field in table.schema if field.name in ("time", "ts") and is_number(field.type)]
    time = only(time, stamps or numbers, "time", "columns of times", names)
    if place is None:
        lower = {name.lower(): name for name in names}
        found = [[lower[name] for name in some if name in lower] for some in (LATITUDES, LONGITUDES)]
        both = found if all(found) else [[name for name in (axis,) if name in lower] for axis in "xy"]
        if not all(both):
            raise BadArgument(
                f"The readings have no columns lat and lon, nor x and y. They have: {', '.join(names)}. Name two: "
                "place=, or --place A,B of appulse report."
            )
        place = both[0][0], both[1][0]
    if _says(place[0], LONGITUDES) and _says(place[1], LATITUDES):
        raise BadArgument(f"place={place!r}: the latitude comes first. Give {place[1]!r}, then {place[0]!r}.")
    for name in place:
        if name not in names or not is_numeric(table.schema.field(name).type):
            raise BadArgument(f"place={place!r}: {name!r} is not a column of numbers. They have: {', '.join(names)}.")
    if error is None:
        error = next((name for name in ERRORS if name in names and is_numeric(table.schema.field(name).type)), "")
    elif error not in names:
        raise BadArgument(f"error={error!r}: the readings have no such column. They have: {', '.join(names)}.")
    texts = [name for name in names if name not in (time, *place, error)]
    key = only(key, [name for name in texts if name == "key"] or texts[:1], "key", "other columns", names)
    return key, time, *place, error


def _centre(at: Floats) -> tuple[float, float]:
    """The middle of longitudes and latitudes, also across the 180th meridian."""
    if not len(at):
        return 0.0, 0.0
    latitude = float((at[:, 1].min() + at[:, 1].max()) / 2)
    return longitude_middle(at[:, 0]), min(max(latitude, -FARTHEST), FARTHEST)


def _mercator(at: Floats, longitude: float, latitude: float) -> Floats:
    """Longitudes and latitudes in a plane in which small things have their shape wherever they are."""
    unit = EARTH * float(np.cos(np.radians(latitude)))
    return np.column_stack([np.radians(at[:, 0] - longitude) * unit, (_up(at[:, 1]) - _up(latitude)) * unit])


def _up(latitude: Any) -> Any:
    return np.arcsinh(np.tan(np.radians(np.clip(latitude, -FARTHEST, FARTHEST))))


def _stretch(at: Floats, latitude: float) -> Floats:
    """How many units of the plane a metre has at each place."""
    found: Floats = np.cos(np.radians(latitude)) * np.cosh(_up(at[:, 1]))
    return found
