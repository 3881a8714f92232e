"""A call of `sensor_join`: its arguments checked, carried out in this process, and its answers as tables."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import pyarrow as pa

from appulse.arguments import Kind, Unfit, one_of
from appulse.engines.carrying import refuse_repeated
from appulse.engines.meaning import READINGS, of_call, of_readings, of_similarity, types_of_readings
from appulse.engines.options import options_of
from appulse.engines.sensors.readings import ReadingsCall, ReadingsSettings, encoding_of_readings, typed
from appulse.errors import BadArgument
from appulse.kernels.sensor_join import expand
from appulse.model.columns import as_array
from appulse.model.meaning import digest_of, seconds, without_defaults
from appulse.model.readings import ReadingsEncoding, values_of
from appulse.model.strings import Bytes, Labels, decode, encode, label_parts, widest
from appulse.model.times import DURATION, duration, from_micros
from appulse.model.uncertainty import columns
from appulse.operators.output import Output, Watch
from appulse.operators.properties import KINDS, Property
from appulse.operators.sensor_join import SensorJoin, SensorPlan
from appulse.windows.definitions import TimeWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from appulse.kernels.arrays import Ints
    from appulse.model.meaning import Meaning
    from appulse.model.stream import Stream
    from appulse.operators.names import Names
    from appulse.operators.sensor_join import Matches

#: Elements of a product that are held at once.
_ELEMENTS = 1 << 16
# From here on, a number is shown by its order of magnitude.
_READABLE = 1e15
_NO_WINDOW = {"length": None, "per_sensor": None}
_TAKEN = ("value", "sensor", "time", "matches", "times")


def _window(value: Any) -> Any:
    if isinstance(value, TimeWindow):
        return value
    if isinstance(value, str):
        with suppress(Unfit):
            return TimeWindow(DURATION.take(value))
        return value
    if isinstance(value, Mapping):
        lengths = {sensor: own.length if isinstance(own, TimeWindow) else own for sensor, own in value.items()}
        return {sensor: DURATION.take(length) for sensor, length in lengths.items()}
    return DURATION.take(value)


SensorWindow: TypeAlias = Annotated[
    Any,
    Kind(
        "a duration such as '10 seconds', a mapping from sensors to durations (None: all others), or the name of a "
        "column that holds each sensor's window in seconds",
        _window,
    ),
]
Similar: TypeAlias = Annotated[str, one_of("value", *KINDS)]


@dataclass(frozen=True)
class SensorCall(ReadingsCall):
    """A checked call without its frame: travels to workers."""

    plan: SensorPlan
    carried: tuple[tuple[str, pa.DataType], ...]
    expand: bool
    resolution: float | None = None  # as asked for
    within: float | None = None

    @property
    def grouped(self) -> bool:
        """Readings are apart by value, if by nothing else."""
        return True

    @property
    def match_type(self) -> pa.DataType:
        """Of the column ``matches`` in factorised form."""
        sensor = pa.field("sensor", self.key_type)
        lists = [(name, pa.list_(kind)) for name, kind in self.carried]
        return pa.list_(pa.struct([sensor, ("times", pa.list_(self.time_type)), *lists]))

    @property
    def element_type(self) -> pa.DataType:
        """Of the column ``matches`` of an element of the product."""
        return pa.list_(pa.struct([("sensor", self.key_type), ("time", self.time_type), *self.carried]))

    @property
    def factorised_schema(self) -> pa.Schema:
        """Columns of the answers in factorised form."""
        own = [("value", self.plan.value_type), ("sensor", self.key_type), ("time", self.time_type)]
        return pa.schema([*self.partitions, *own, *self.carried, ("matches", self.match_type)])

    @property
    def answer_schema(self) -> pa.Schema:
        factorised = self.factorised_schema
        return (
            factorised.set(len(factorised) - 1, pa.field("matches", self.element_type)) if self.expand else factorised
        )

    @property
    def stage_schema(self) -> pa.Schema:
        """Columns of what a bucket puts out: products are expanded behind it."""
        return self.factorised_schema

    @property
    def stage_output(self) -> Output:
        """What counts the rows that a bucket puts out: of products, their elements are counted behind it."""
        return Output(None if self.expand else self.max_output)

    def operator(self) -> SensorJoin:
        return SensorJoin(self.plan)

    def tables(self, found: Sequence[Matches]) -> Iterator[pa.Table]:
        """Factorised answers."""
        names = SensorNames(self.key_type)
        return (table_of(part, names, self) for part in found)

    @property
    def finishes(self) -> bool:
        """Whether the elements of products are asked for."""
        return self.expand

    def finishing(self) -> Callable[[pa.Table], Iterable[pa.Table]]:
        """What makes answers of tables: with the elements of products, if they are asked for."""
        if not self.expand:
            return lambda table: (table,)
        output, watch = Output(self.max_output), Watch(0, _elements)

        def finish(given: pa.Table) -> Iterator[pa.Table]:
            table = given.cast(self.factorised_schema)
            made = elements_of(table)
            watch.given += len(table)
            watch.add(made)
            output.add(made)
            return expanded(table, self)

        return finish

    def meaning(self) -> Meaning:
        arguments = of_readings(self.encoding, self.lateness[0])
        arguments |= of_similarity(self.resolution, self.within, self.plan.by)
        arguments |= {
            "window": _window_meaning(self.encoding),
            "carry": list(self.encoding.carry),
            "expand": self.expand,
            "types": types_of_readings(self.encoding, [*self.partitions, *self.carried]),
        }
        return of_call("sensor_join", arguments, READINGS | {"expand": False})


@dataclass(frozen=True, kw_only=True)
class SensorSettings(ReadingsSettings):
    """The arguments of a sensor join."""

    window: Any = None
    expand: bool = False


def resolve_sensors(readings: Stream, schema: pa.Schema, settings: SensorSettings) -> SensorCall:
    """Check a call against the columns there are, and settle everything that follows from its arguments."""
    options = options_of(settings.options, "sensor_join")
    settings.check()
    _check_carried(readings.carry, (readings.key, readings.time, *readings.partitions))
    key_type, value_type = (kind for _, kind in typed((readings.key, *columns(readings.value)), schema, readings))
    length, lengths = _windows(settings.window, schema, key_type)
    reach = settings.apart
    width = settings.resolution if reach is None else 3.0 * reach
    by = property_of(settings.similar, settings.over, width, value_type)
    encoding = encoding_of_readings(
        readings,
        schema,
        carry=readings.carry,
        width=width if by is None else None,
        numeric=by is not None,
        length=length,
        lengths=lengths,
    )
    known = [own for _, own in lengths] if not isinstance(lengths, str) else []
    plan = SensorPlan(
        span=max([*known, *([] if length is None else [length])], default=0),
        value_type=value_type if by is None else by.result_type,
        own=bool(lengths),
        reach=reach,
        width=width or 1.0,
        by=by,
        carries=bool(readings.carry),
        sweep=options.sweep,
    )
    call = SensorCall(
        encoding,
        typed(readings.partitions, schema, readings),
        plan,
        typed(readings.carry, schema, readings),
        settings.expand,
        *(None if given is None else float(given) for given in (settings.resolution, settings.within)),
        lateness=(readings.lateness_micros,),
        ahead=(readings.ahead_micros,),
        on_reject=settings.on_reject,
        max_output=options.max_output,
    )
    refuse_repeated(call.answer_schema)
    return call


def _window_meaning(encoding: ReadingsEncoding) -> Meaning:
    """The windows of sensors: a column, one for all, and those that sensors have of their own."""
    if isinstance(encoding.lengths, str):
        return {"column": encoding.lengths}
    own = {"sensors": len(encoding.lengths), "digest": digest_of(_length_bytes(encoding.lengths))}
    length = None if encoding.length is None else seconds(encoding.length)
    return without_defaults({"length": length, "per_sensor": own if encoding.lengths else None}, _NO_WINDOW)


def _length_bytes(lengths: Sequence[tuple[bytes, int]]) -> Iterator[bytes]:
    for sensor, length in lengths:
        yield sensor
        yield length.to_bytes(8, "little")


def property_of(similar: str, over: Any, width: float | None, value_type: pa.DataType) -> Property | None:
    """The property that readings match by; None: their values."""
    if similar == "value":
        if over is not None:
            raise BadArgument(
                "over= applies only to similar='summary', 'slope' and 'pattern'; remove it for similar='value'."
            )
        return None
    if over is None:
        raise BadArgument(f"similar={similar!r} looks back over some time: give over='1 minute', say.")
    if similar == "summary" and width is None:
        raise BadArgument("similar='summary' matches means and spreads in one bin each: give resolution=.")
    if similar == "pattern" and width is not None:
        raise BadArgument("similar='pattern' matches equal signs: leave out resolution= and within=.")
    return Property(similar, duration(over, "over"), width, value_type)


def _check_carried(carried: Sequence[str], others: Sequence[str]) -> None:
    for column in carried:
        if column in _TAKEN or column in others or list(carried).count(column) > 1:
            raise BadArgument(
                f"carry= names {column!r}, which is a column of the answers already. Rename it before the call."
            )


def _windows(
    window: Any, schema: pa.Schema, sensor_type: pa.DataType
) -> tuple[int | None, tuple[tuple[bytes, int], ...] | str]:
    """The window of all sensors, and those that sensors have of their own: a mapping, or a column of seconds."""
    if isinstance(window, TimeWindow):
        own = _by_sensor(window.per_stream or {}, sensor_type)
        return duration(window.length, "TimeWindow"), own
    if isinstance(window, Mapping):
        if not window:
            raise BadArgument("window={} has a window of no sensor. Name sensors, or give one duration for all.")
        rest = window.get(None)
        own = _by_sensor({sensor: own for sensor, own in window.items() if sensor is not None}, sensor_type)
        return None if rest is None else duration(rest, "window"), own
    if isinstance(window, str) and window in schema.names:
        return None, window
    return duration(window, "window"), ()


def _by_sensor(windows: Mapping[Any, Any], kind: pa.DataType) -> tuple[tuple[bytes, int], ...]:
    if not windows or pa.types.is_null(kind):  # there is no sensor yet
        return ()
    wrong = f"window= names sensors that are no {kind}, as the sensors are."
    # A job file knows texts alone: they stand for whatever sensors are.
    named = all(isinstance(sensor, str) for sensor in windows)
    sensors = as_array(list(windows), None if named else kind, wrong)
    try:
        sensors = sensors.cast(kind)
    except pa.ArrowException as error:
        raise BadArgument(f"{wrong} ({error})") from None
    lengths = (duration(length, "window") for length in windows.values())
    return tuple(sorted(zip(encode(sensors).to_list(), lengths, strict=True)))


class SensorNames:
    """Sensors by number, in the type they came in; each is decoded once, also those beyond it, without readings."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._names: Names | None = None
        self._known = pa.array([], widest(kind))

    def take(self, numbers: Ints, sensors: Names) -> pa.Array:
        """The sensors behind numbers."""
        if sensors is not self._names or len(sensors) > len(self._known) + 1:
            self._names = sensors
            self._known = decode(sensors.strings.slice(1, len(sensors)), widest(self._kind))
        found = self._known.take(pa.array(numbers - 1))
        return found if found.type == self._kind else found.cast(self._kind)


def table_of(matches: Matches, names: SensorNames, call: SensorCall) -> pa.Table:
    """Answers in factorised form, in the types the user gave."""
    times = from_micros(matches.time, call.time_type, call.encoding.unit)
    begin = pa.array(matches.begin, pa.int32())
    lists = [times] if matches.carried is None else [times, *_one_piece(matches.carried)]
    inner = call.match_type.value_type
    columns = [pa.ListArray.from_arrays(begin, part).cast(inner.field(k + 1).type) for k, part in enumerate(lists)]
    sensors = names.take(matches.sensor, matches.sensors)
    groups = pa.StructArray.from_arrays([sensors, *columns], fields=list(inner))
    found = pa.ListArray.from_arrays(pa.array(matches.first, pa.int32()), groups).cast(call.match_type)
    return pa.Table.from_arrays([*_own_columns(matches, call), found], schema=call.factorised_schema)


def _own_columns(matches: Matches, call: SensorCall) -> list[pa.Array]:
    """What an answer says of the reading that probed."""
    asked = matches.readings.take(matches.probe)
    return [
        *group_columns(asked.group, call.partitions),
        values_of(asked.bits, asked.label, call.plan.value_type),
        decode(asked.sensor, call.key_type),
        from_micros(asked.time, call.time_type, call.encoding.unit),
        *([] if asked.carry is None else _one_piece(asked.carry)),
    ]


def group_columns(group: Labels | None, partitions: Sequence[tuple[str, pa.DataType]]) -> Iterator[pa.Array]:
    """The columns of ``partition_by``."""
    if group is None:
        return
    group = group.compact()
    parts = [label_parts(value) for value in group.values]
    for i, (_, kind) in enumerate(partitions):
        yield decode(Bytes.of([part[i] for part in parts]), kind).take(pa.array(group.codes))


def expanded(table: pa.Table, call: SensorCall) -> Iterator[pa.Table]:
    """One row per element of the products of factorised answers, a bounded number at a time."""
    if len(table) == 0:
        return
    found = table.column("matches").combine_chunks()
    found = found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
    groups = found.flatten()
    times = groups.field("times")
    first, begin = _offsets(found), _offsets(times)
    owner = np.repeat(np.arange(len(groups)), np.diff(begin))
    lists = [groups.field(k).flatten() for k in range(1, groups.type.num_fields)]
    digits, rows = np.zeros(int(np.diff(first).max()), np.int64), np.empty(_ELEMENTS, np.int64)
    starts, picks = np.empty(_ELEMENTS + 1, np.int64), np.empty(len(digits) + 8 * _ELEMENTS, np.int64)
    fields, others = list(call.element_type.value_type), table.drop_columns(["matches"])
    probe = 0
    while probe < len(table):
        probe, n = map(int, expand(first, begin, probe, digits, rows, starts, picks))
        at = picks[: starts[n]]
        parts = [groups.field("sensor").take(pa.array(owner[at])), *(part.take(pa.array(at)) for part in lists)]
        elements = pa.StructArray.from_arrays(parts, fields=fields)
        matches = pa.ListArray.from_arrays(pa.array(starts[: n + 1], pa.int32()), elements).cast(call.element_type)
        yield others.take(pa.array(rows[:n])).append_column("matches", matches).cast(call.answer_schema)


def elements_of(table: pa.Table) -> float:
    """How many rows `expanded` makes of factorised answers; infinity where a double does not hold it."""
    total = 0.0
    for found in table.column("matches").chunks:
        sizes = np.diff(_offsets(found.flatten().field("times"))).astype(np.float64)
        first = _offsets(found)[:-1]
        if len(first):
            with np.errstate(over="ignore"):
                total += float(np.multiply.reduceat(sizes, first).sum())
    return total


def _elements(made: float) -> str:
    number = f"{made:,.0f}" if made < _READABLE else f"{made:.1e}"
    return (
        f"The Cartesian products of the matches have {number} elements by now, a row each. Leave out expand=True: the "
        "factorised form holds the same in a row per reading. Or give a shorter window, or a finer resolution."
    )


def _offsets(lists: pa.Array) -> Ints:
    """Where each list begins in the flattened column, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(np.diff(np.asarray(lists.offsets)))]).astype(np.int64)


def _one_piece(table: pa.Table) -> list[pa.Array]:
    return [column.chunk(0) for column in table.combine_chunks().columns]
