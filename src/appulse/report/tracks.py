"""Tracks of moving things for a map: their readings in metres or units, around the times that matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.errors import BadArgument
from appulse.model.columns import chunk, floats, is_numeric
from appulse.model.times import is_number, is_time
from appulse.report.readings import micros_of, only, plain_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Tracks", "tracks_of"]

DEGREE = 111_195.0  # metres, along a meridian
LATITUDES, LONGITUDES = ("lat", "latitude"), ("lon", "lng", "long", "longitude")
ERRORS = ("sigma", "error", "accuracy")


@dataclass(frozen=True)
class Tracks:
    """Readings in order of thing, then time; ``at`` in metres from a middle where ``earth``, else as given."""

    names: list[tuple[int, str]]  # the frame a thing is of, and its key
    thing: NDArray[np.int64]
    micros: NDArray[np.int64]
    at: NDArray[np.float64]
    error: NDArray[np.float64]
    earth: bool
    stamps: bool
    zone: str
    unusable: int

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

    Columns that are not named are found: the one of times, ``lat`` and ``lon`` (degrees, drawn in an equirectangular
    plane) or ``x`` and ``y``, and ``sigma``, ``error`` or ``accuracy``. Raises `BadArgument` where one is not clear.
    """
    names: dict[tuple[int, str], int] = {}
    parts: list[tuple[NDArray[Any], ...]] = []
    stamps, zone, earth, unusable = False, "", False, 0
    for side, frame in enumerate(frames):
        table = plain_table(frame)
        columns = _columns(table, key, time, place, error)
        earth = columns[2].lower() in LATITUDES
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
    return Tracks(
        list(names),
        thing[order],
        micros[order],
        _in_metres(at[order]) if earth else at[order],
        deviation[order],
        earth,
        stamps,
        zone,
        unusable,
    )


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
                "place=."
            )
        place = both[0][0], both[1][0]
    for name in place:
        if name not in names or not is_numeric(table.schema.field(name).type):
            raise BadArgument(f"place={place!r}: {name!r} is no column of numbers. They have: {', '.join(names)}.")
    if error is None:
        error = next((name for name in ERRORS if name in names and is_numeric(table.schema.field(name).type)), "")
    elif error not in names:
        raise BadArgument(f"error={error!r}: the readings have no such column. They have: {', '.join(names)}.")
    texts = [name for name in names if name not in (time, *place, error)]
    key = only(key, [name for name in texts if name == "key"] or texts[:1], "key", "other columns", names)
    return key, time, *place, error


def _in_metres(at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Longitudes and latitudes in a plane that is right in the middle of them, also across the 180th meridian."""
    if not len(at):
        return at
    turns = np.exp(1j * np.radians(at[:, 0]))
    middle = float(np.degrees(np.angle(turns.mean())))
    across = (at[:, 0] - middle + 180.0) % 360.0 - 180.0
    latitude = float((at[:, 1].min() + at[:, 1].max()) / 2)
    narrow = float(np.cos(np.radians(latitude)))
    return np.column_stack([across * DEGREE * narrow, (at[:, 1] - latitude) * DEGREE])
