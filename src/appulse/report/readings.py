"""Readings of sensors as frames of a film: of each sensor what it said last, for as long as that is news."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.errors import BadArgument
from appulse.model.columns import chunk, floats, is_numeric
from appulse.model.times import is_number, is_time, to_micros

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints

__all__ = [
    "Columns",
    "Readings",
    "Sites",
    "columns_of",
    "film",
    "fresh_for",
    "micros_of",
    "only",
    "readings_of",
    "sites_of",
]

FRESH = 1.5  # median intervals between a sensor's readings for which the last one is shown


@dataclass(frozen=True)
class Columns:
    """The columns of the readings that matter."""

    sensor: str
    time: str
    value: str


@dataclass(frozen=True)
class Sites:
    """Where the sensors are, in the order of the locations."""

    names: list[str]
    at: Floats
    axes: tuple[str, str]
    unplaced: int


@dataclass(frozen=True)
class Readings:
    """Readings in order of sensor, then time; ``classes`` are the values where they are no numbers."""

    sensor: Ints
    micros: Ints
    value: Floats
    classes: list[str]
    unplaced: int
    empty: int


def columns_of(
    readings: pa.Table, locations: pa.Table, sensor: str | None, time: str | None, value: str | None
) -> Columns:
    """The columns as named, or as there is only one choice."""
    names = readings.column_names
    both = [name for name in names if name in locations.column_names]
    sensor = only(sensor, both, "sensor", "columns that readings and locations share", names)
    rest = [field for field in readings.schema if field.name != sensor]
    stamps = [field.name for field in rest if is_time(field.type)]
    times = stamps or [field.name for field in rest if field.name in ("time", "ts") and is_number(field.type)]
    time = only(time, times, "time", "columns of times", names)
    others = [field for field in rest if field.name != time]
    numbers = [field.name for field in others if is_numeric(field.type)]
    value = only(value, numbers or [field.name for field in others], "value", "columns of values", names)
    return Columns(sensor, time, value)


def only(given: str | None, found: list[str], what: str, which: str, names: list[str]) -> str:
    """The column that was named, or the one that was found."""
    if given is not None:
        if given not in names:
            raise BadArgument(f"{what}={given!r}: the readings have no such column. They have: {', '.join(names)}.")
        return given
    if len(found) != 1:
        raise BadArgument(
            f"The readings' column of the {what} is not clear: {which} are {', '.join(found) or 'none'}, of "
            f"{', '.join(names)}. Name it: {what}=, or --{what} of appulse report."
        )
    return found[0]


def micros_of(table: pa.Table, name: str) -> tuple[Ints, Flags]:
    """Times in microseconds, numbers being seconds, and which of them there are."""
    micros, null, strange = to_micros(chunk(table[name]), "s")
    return micros, ~(null | strange)


def sites_of(locations: pa.Table, sensor: str) -> Sites:
    """The sensors that have a name and a place; the first place, where there are several."""
    if sensor not in locations.column_names:
        raise BadArgument(f"The locations have no column {sensor!r}. They have: {', '.join(locations.column_names)}.")
    axes = [name for name in locations.column_names if name != sensor and is_numeric(locations.schema.field(name).type)]
    if len(axes) != 2:
        raise BadArgument(
            f"The locations' numeric columns beside {sensor!r} are {', '.join(axes) or 'none'}. Give two: where "
            "sensors are."
        )
    names = locations[sensor].to_pylist()
    at = np.column_stack([floats(locations[name]) for name in axes])
    placed: dict[str, int] = {}
    for row, name in enumerate(names):
        if name is not None and np.isfinite(at[row]).all():
            placed.setdefault(str(name), row)
    return Sites(list(placed), at[list(placed.values())], (axes[0], axes[1]), len(names) - len(placed))


def readings_of(table: pa.Table, columns: Columns, sites: Sites) -> Readings:
    """The readings of sensors with a place that have a time and a value."""
    place = {name: row for row, name in enumerate(sites.names)}
    named = chunk(table[columns.sensor]).dictionary_encode()
    rows = np.array([place.get(str(name), -1) for name in named.dictionary.to_pylist()] + [-1], np.int64)
    sensor = rows[np.asarray(named.indices.fill_null(len(rows) - 1)).astype(np.int64)]
    micros, timed = micros_of(table, columns.time)
    value, classes = _values(table[columns.value])
    good = timed & np.isfinite(value)
    kept = np.flatnonzero(good & (sensor >= 0))
    kept = kept[np.lexsort((micros[kept], sensor[kept]))]
    unplaced = int((good & (sensor < 0)).sum())
    return Readings(sensor[kept], micros[kept], value[kept], classes, unplaced, int((~good).sum()))


def _values(column: pa.ChunkedArray) -> tuple[Floats, list[str]]:
    """Numbers; of other values the place in their order."""
    if is_numeric(column.type):
        return floats(column), []
    texts = chunk(column).cast(pa.string()) if not pa.types.is_string(column.type) else chunk(column)
    encoded = texts.dictionary_encode()
    classes = encoded.dictionary.to_pylist()
    order = np.array([sorted(classes).index(name) for name in classes] + [np.nan])
    return order[np.asarray(encoded.indices.fill_null(len(classes))).astype(np.int64)], sorted(classes)


def film(readings: Readings, sensors: int, frames: Ints) -> Floats:
    """What each sensor said last, by frame and sensor; NaN where it has said nothing for one and a half intervals."""
    shown = np.full((len(frames), sensors), np.nan)
    first = np.searchsorted(readings.sensor, np.arange(sensors + 1))
    hold = fresh_for(readings, frames)
    for sensor in range(sensors):
        mine = slice(first[sensor], first[sensor + 1])
        times, values = readings.micros[mine], readings.value[mine]
        last = np.searchsorted(times, frames, side="right") - 1
        updates = np.flatnonzero(last >= 0)
        updates = updates[frames[updates] - times[last[updates]] <= hold]
        shown[updates, sensor] = values[last[updates]]
    return shown


def fresh_for(readings: Readings, frames: Ints) -> float:
    """For how many microseconds a reading is shown: no less than from one frame to the next."""
    gaps = np.diff(readings.micros)[np.diff(readings.sensor) == 0]
    usual = float(np.median(gaps)) if len(gaps) else 0.0
    between = float(np.median(np.diff(frames))) if len(frames) > 1 else 0.0
    return FRESH * max(usual, between)
