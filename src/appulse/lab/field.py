"""Uses of phenomena: what is going on, where to sample, what to leave out, and what to ask.

Everything here goes by the events of `phenomena`, of one group, in this process: pyarrow, pandas or Polars. Ali et al.
2005 name the uses: a description of the field, guided acquisition, compression, prediction (by the velocity of events),
and queries asked only where a phenomenon is.

>>> rows = {"mote": [1, 2, 1, 2, 3], "t": [0, 1, 2, 3, 4], "celsius": [20.1, 20.3, 20.2, 20.4, 27.0]}
>>> stream = ap.Stream(pa.table(rows), key="mote", time="t", value="celsius")
>>> events = ap.phenomena(stream, resolution=0.5, strength=2, span="10 seconds")
>>> ap.lab.field.memberships(events)["sensor"].to_pylist()
[1, 2]
>>> ap.lab.field.going_on(events)["sensors"].to_pylist()
[[1, 2]]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.arguments import Name, Positive, checked, shown
from appulse.engines.local import as_table
from appulse.engines.sensors.phenomena import Reach
from appulse.errors import BadArgument, nearest
from appulse.kernels.bins import bin_floors, bin_keys
from appulse.model.columns import as_array, chunk, column, floats, is_list, is_numeric, number_column
from appulse.model.times import is_time

if TYPE_CHECKING:
    from appulse.kernels.arrays import Ints

_NEEDED = ("phenomenon", "event", "time", "value", "sensors")
_TYPES = {"phenomenon": pa.types.is_integer, "time": lambda kind: is_time(kind) or is_numeric(kind), "sensors": is_list}


def _events(frame: Any) -> pa.Table:
    """Events of one group, as a table; `BadArgument` for anything else."""
    events = as_table(frame)
    for name in _NEEDED:
        if name not in events.column_names:
            raise BadArgument(
                f"The events have no column {name!r}.{nearest(name, events.column_names)} "
                "Give what ap.phenomena(..., emit='events') returned."
            )
    for name, fits in _TYPES.items():
        kind = events.schema.field(name).type
        if not fits(kind):
            raise BadArgument(
                f"Column {name!r} of the events is {kind}. Give what ap.phenomena(..., emit='events') returned."
            )
    for name in ("value", "sensors"):
        kind = events.schema.field(name).type
        if pa.types.is_nested(kind.value_type if name == "sensors" and is_list(kind) else kind):
            raise BadArgument(f"The events have {name} of type {kind}. Cast the column of the readings to text first.")
    first = events.schema.get_field_index("phenomenon")
    if first > 0 and any(len(pc.unique(events.column(i))) > 1 for i in range(first)):
        raise BadArgument("The events are of several groups, each with numbers of its own. Filter one of them first.")
    return events


def memberships(events: Any) -> pa.Table:
    """Who was in which phenomenon, and when: ``phenomenon, value, sensor, since, until``, in order of ``since``.

    ``until`` is the first tick at which that was over; null where it is not.
    """
    events = _events(events)
    held: dict[tuple[int, Any], Any] = {}
    rows: list[tuple[int, Any, Any, Any, Any]] = []
    now: dict[int, set[Any]] = {}
    for number, event, time, value, sensors in zip(*(events[name].to_pylist() for name in _NEEDED), strict=True):
        members = set() if event == "disappears" else set(sensors)
        before = now.get(number, set())
        rows += [(number, value, sensor, held.pop((number, sensor)), time) for sensor in sorted(before - members)]
        for sensor in sorted(members - before):
            held[number, sensor] = time
        now[number] = members
    values = dict(zip(events["phenomenon"].to_pylist(), events["value"].to_pylist(), strict=True))
    rows += [(number, values[number], sensor, since, None) for (number, sensor), since in held.items()]
    rows.sort(key=lambda row: (row[3], row[0], row[2]))
    kinds = [pa.int64(), events.schema.field("value").type, events.schema.field("sensors").type.value_type]
    kinds += [events.schema.field("time").type] * 2
    names = ("phenomenon", "value", "sensor", "since", "until")
    columns = zip(*rows, strict=True) if rows else [()] * 5
    return pa.table({n: pa.array(list(c), k) for n, c, k in zip(names, columns, kinds, strict=True)})


def going_on(events: Any, at: Any = None) -> pa.Table:
    """The phenomena that stand at a time (default: at the end): their last event until then, and ``since`` when."""
    events = _events(events)
    if at is not None:
        kind = events.schema.field("time").type
        until = as_array([at], kind, f"going_on(at={shown(at)}): give a time as the events have them, {kind}.")
        events = events.filter(pc.less_equal(events["time"], until[0]))
    numbers = np.asarray(events["phenomenon"])
    last = {int(number): row for row, number in enumerate(numbers)}
    kinds = events["event"].to_pylist()
    standing = sorted(row for row in last.values() if kinds[row] != "disappears")
    first: dict[int, int] = {}
    for row, number in enumerate(numbers.tolist()):
        first.setdefault(number, row)
    since = events["time"].take(pa.array([first[int(numbers[row])] for row in standing], pa.int64()))
    kept = [name for name in events.column_names if name not in ("event", "merged", "split")]
    return events.select(kept).take(pa.array(standing, pa.int64())).append_column("since", since)


@checked
def guided_sampling(events: Any, locations: Any, sensor: Name, reach: Reach, at: Any = None) -> pa.Table:
    """Which sensors may sample less at a time (default: at the end): ``sensor, role, may_rest``.

    A sensor whose neighbours, at most ``reach`` away, are in the same phenomena as itself is ``inside`` of them, or
    ``outside`` of all, and says nothing that they do not: it may rest. One with a neighbour that is not is on a
    ``boundary``, where things happen. A sensor without neighbours may not rest.
    """
    from scipy.spatial import cKDTree

    locations = as_table(locations)
    places = column(locations, sensor, "The locations")
    if pa.types.is_nested(places.type):
        raise BadArgument(f"sensor={sensor!r} is {places.type}. Cast it to text, here and in the readings.")
    names = places.to_pylist()
    others = [name for name in locations.column_names if name != sensor]
    at_all = np.column_stack([number_column(locations, name, "Locations") for name in others])
    standing = going_on(events, at)
    member: dict[Any, frozenset[int]] = {name: frozenset() for name in names}
    for number, sensors in zip(standing["phenomenon"].to_pylist(), standing["sensors"].to_pylist(), strict=True):
        for name in sensors:
            member[name] = member.get(name, frozenset()) | {number}
    near = cKDTree(at_all).query_ball_point(at_all, reach)
    roles, rests = [], []
    for i, name in enumerate(names):
        neighbours = [names[k] for k in near[i] if k != i]
        uniform = all(member[other] == member[name] for other in neighbours)
        roles.append("boundary" if not uniform else "inside" if member[name] else "outside")
        rests.append(uniform and bool(neighbours))
    return pa.table({"sensor": places, "role": roles, "may_rest": rests})


@checked
def tagged(
    readings: Any, events: Any, *, sensor: Name, time: Name, value: Name, resolution: Positive | None
) -> pa.Table:
    """The readings with ``phenomenon``: that which their sensor was in with their value, at their time; else null.

    Raises `BadArgument` for a column that the readings do not have, or whose type is not that of the events, and where
    they have a column ``phenomenon``.
    """
    readings, members = as_table(readings), memberships(events)
    if "phenomenon" in readings.column_names:
        raise BadArgument("tagged() adds a column 'phenomenon', and the readings have one already. Rename that.")
    code, held = _codes(column(readings, sensor, "The readings"), members["sensor"], f"sensor={sensor!r}")
    values = column(readings, value, "The readings")
    if resolution is not None and not (is_numeric(values.type) and is_numeric(members["value"].type)):
        raise BadArgument(f"resolution= is for numbers, and value={value!r} holds {values.type}. Leave it out.")
    bins, kinds = _bins(values, resolution), _bins(members["value"], resolution, of_bins=True)
    same, known = _codes(bins, kinds, f"value={value!r}")
    wide = int(known.max(initial=0)) + 1
    when, begin = _times(column(readings, time, "The readings"), f"time={time!r}"), _times(members["since"], "since")
    end = np.where(np.asarray(members["until"].is_null()), np.iinfo(np.int64).max, _times(members["until"], "until"))
    place = held * wide + known
    order = np.lexsort((begin, place))
    place, begin, end = place[order], begin[order], end[order]
    asked = np.where((code >= 0) & (same >= 0), code * wide + same, -1)
    # The last membership of a sensor in a value that began by then: they do not overlap.
    at = _last(place, begin, asked, when)
    inside = (at >= 0) & (asked >= 0)
    inside[inside] = (place[at[inside]] == asked[inside]) & (when[inside] < end[at[inside]])
    numbers = np.asarray(members["phenomenon"])[order]
    found = np.where(inside, numbers[np.where(inside, at, 0)] if len(numbers) else 0, 0)
    return readings.append_column("phenomenon", pa.array(found, pa.int64(), mask=~inside))


def _last(place: Ints, begin: Ints, asked: Ints, when: Ints) -> Any:
    """For each (asked, when) the last row of (place, begin), in order, that is not beyond it; -1 without one."""
    both = np.lexsort(
        (
            np.concatenate([np.zeros(len(place), np.int64), np.ones(len(asked), np.int64)]),
            np.concatenate([begin, when]),
            np.concatenate([place, asked]),
        )
    )
    rows = np.maximum.accumulate(np.where(both < len(place), both, -1)) if len(both) else both
    # Rows stand in their own order already, so the largest so far is the last so far.
    found = np.empty(len(asked), np.int64)
    mine = both >= len(place)
    found[both[mine] - len(place)] = rows[mine]
    return found


def _codes(values: pa.ChunkedArray | pa.Array, known: pa.ChunkedArray | pa.Array, what: str) -> Any:
    """Numbers of values, and of those known: equal ones alike; -1 for a value that is not known."""
    known, values = (
        part.cast(pa.float32()) if pa.types.is_float16(part.type) else part for part in (chunk(known), chunk(values))
    )
    names = known.unique()
    try:
        values = values if values.type == names.type else values.cast(names.type)
    except pa.ArrowException:
        raise BadArgument(f"{what} holds {values.type}, and the events {names.type}. Cast one of them.") from None
    return [
        np.asarray(pc.fill_null(pc.index_in(some, value_set=names), -1)).astype(np.int64) for some in (values, known)
    ]


def _bins(values: pa.ChunkedArray, resolution: float | None, *, of_bins: bool = False) -> pa.Array:
    """What makes values alike; ``of_bins``: they are lower ends of bins already."""
    if resolution is None:
        array = chunk(values)
        return pa.array(floats(array) + 0.0) if pa.types.is_floating(array.type) else array  # -0.0 is 0.0
    numbers = floats(values)
    if of_bins:
        return pa.array(np.rint(numbers / resolution))
    keys, lower = np.empty(len(numbers), np.int64), np.empty(len(numbers))
    bin_keys(numbers, resolution, keys)
    bin_floors(keys, lower)
    return pa.array(lower)


def _times(given: pa.ChunkedArray | pa.Array, what: str) -> Ints:
    array = chunk(given)
    if not (is_time(array.type) or is_numeric(array.type)):
        raise BadArgument(f"{what} holds {array.type}. Give a column of timestamps, dates or numbers.")
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", array.type.tz)).view(pa.int64())
    elif is_numeric(array.type):
        array = pc.multiply(array.cast(pa.float64()), 1e6).cast(pa.int64(), safe=False)
    return np.asarray(array.fill_null(0)).astype(np.int64)


@dataclass(frozen=True)
class Compression:
    """A field as boundaries in place of readings.

    ``ratio`` is the bytes of all readings over those of what is sent: boundaries as they change, and readings outside.
    ``share`` is that of readings inside; ``error`` the root mean square, ``worst`` the largest difference between them
    and the middle of their phenomenon's bin, at most half of it.
    """

    ratio: float
    share: float
    error: float
    worst: float


@checked
def compression(
    readings: Any, events: Any, *, sensor: Name, time: Name, value: Name, resolution: Positive
) -> Compression:
    """What is saved, and lost, by sending the boundaries of phenomena in place of the readings inside them.

    A reading is taken for 24 bytes (sensor, time, value), a corner of a boundary for 8 (the sensor that stands there),
    an event for 24 besides (number, time, value).
    """
    events = _events(events)
    readings = as_table(readings)
    known = tagged(readings, events, sensor=sensor, time=time, value=value, resolution=resolution)
    inside = np.asarray(known["phenomenon"].is_valid())
    corners = events["hull"] if "hull" in events.column_names else events["sensors"]
    if chunk(corners).null_count == len(events):
        corners = events["sensors"]
    sent = 24 * int((~inside).sum()) + 24 * len(events)
    sent += 8 * int(pc.sum(pc.fill_null(pc.list_value_length(chunk(corners)), 0)).as_py() or 0)
    numbers = floats(known[value])[inside]
    off = np.abs(numbers - (np.floor(numbers / resolution) + 0.5) * resolution)
    return Compression(
        ratio=24 * len(known) / max(sent, 1),
        share=float(inside.mean()) if len(inside) else 0.0,
        error=float(np.sqrt((off**2).mean())) if len(off) else 0.0,
        worst=float(off.max(initial=0.0)),
    )
