"""A field of sensors: their join and their phenomena, by call and by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from appulse.api.by_hand import Bare, ByHand
from appulse.api.calls import settings_of
from appulse.api.results import Framed, is_spark
from appulse.api.survivors import answers_over_survivors
from appulse.arguments import Count, NotNegative, OnReject, Positive, checked
from appulse.engines.carrying import refuse_carry
from appulse.engines.options import Options
from appulse.engines.sensors.call import SensorWindow, Similar
from appulse.engines.sensors.phenomena import EmitPhenomena, Reach
from appulse.errors import BadArgument
from appulse.model.stream import Result, Stream
from appulse.model.times import Duration
from appulse.model.uncertainty import Exact, Position, columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from appulse.api.by_hand import Frames, Types
    from appulse.engines.local import Local
    from appulse.model.readings import Readings


_PAIRS = ("sensor_join", "SensorJoin")
#: What readings have no use for, and why: they are certain values of one stream.
_USELESS = {
    "existence": "each reading exists",
    "order": "a reading meets those before it in time",
    "margin": "values are compared, not places",
}


def check_readings(readings: Stream, call: str) -> None:
    """Raise `BadArgument` for what a stream of readings cannot have."""
    value = readings.value
    if not isinstance(value, Exact) or len(value.columns) > 1:
        raise BadArgument(
            f"{call}() compares single values as they are, and the value of its stream is {value!r}. Give the name of "
            "a column: ap.Stream(..., value='celsius')."
        )
    for setting, reason in _USELESS.items():
        given = getattr(readings, setting)
        if given not in (None, (), "time", 0.0):
            raise BadArgument(f"{call}() has no use for Stream({setting}={given!r}): {reason}. Leave it out.")
    if call in _PAIRS and readings.idle_after is not None:
        raise BadArgument(
            f"{call}() has no use for Stream(idle_after={readings.idle_after!r}): one stream waits for no other. Leave "
            "it out."
        )
    if call not in _PAIRS:
        refuse_carry([readings], call, "an event is about many readings")


@checked
def sensor_join(
    readings: Framed[Result],
    *,
    resolution: Positive | None = None,
    within: NotNegative | None = None,
    window: SensorWindow,
    expand: bool = False,
    similar: Similar = "value",
    over: Duration | None = None,
    on_reject: OnReject = "collect",
    options: Options | None = None,
) -> Result:
    """Which sensors agree: each reading with the similar readings of any number of other sensors.

    A reading meets readings that come before it in the order (time, sensor, number) and are in their window.

    Arguments:
    * ``readings``: one stream of all sensors: its key is the sensor, its value the name of a column of any type.
    * ``resolution``: values are similar if they are in one bin ``floor(value / resolution)``.
    * ``within``: values are similar if they are at most that far apart. Without either they are if they are equal.
    * ``window``: a duration or a `TimeWindow` (``per_stream`` names sensors), a mapping from sensors to durations
      (None: all others), or the name of a column with each sensor's window in seconds.
    * ``similar``: compares what sensors did in the time ``over`` up to a reading, which is ``value`` then:
      ``"summary"``, the mean and standard deviation, each in a bin of ``resolution``; ``"slope"``, a second, by least
      squares, by ``resolution`` or ``within``, else by its sign; ``"pattern"``, the signs of the steps, such as "+0-".
    * ``expand``: a row for each combination of readings, one a sensor.
    * ``on_reject``: ``"collect"`` keeps bad rows for `rejects`, ``"fail"`` raises `BadInput` at the first.
    * ``options``: speed and output size; see `Options`.

    Returns a Spark frame for Spark frames (streaming if they are), else a `pyarrow.Table`, with the columns of
    ``partition_by``, then ``value, sensor, time`` of each reading that met others, those that ``readings`` carries, and
    ``matches``, a list of (sensor, times, carried values): sensors by their newest reading, newest first, and so are
    the times of each. That is the Cartesian product of the sensors' readings in factorised form; with ``expand=True``
    there is a row for each of its elements, whose ``matches`` are (sensor, time, carried values).

    Raises `BadArgument` for a wrong argument, `BadInput` with ``on_reject="fail"``, and `OutputLimit` beyond
    ``Options(max_output=)``.

    Ali et al. 2007, Definition 1 and section 4.1.

    >>> readings = pa.table({"mote": [1, 2, 3], "t": [0, 1, 2], "celsius": [20.1, 20.3, 27.0]})
    >>> stream = ap.Stream(readings, key="mote", time="t", value="celsius")
    >>> ap.sensor_join(stream, resolution=0.5, window="10 seconds", expand=True).to_pylist()
    [{'value': 20.3, 'sensor': 2, 'time': 1, 'matches': [{'sensor': 1, 'time': 0}]}]
    """
    settings = settings_of("sensor_join", locals())
    check_readings(readings, "sensor_join")

    def on_spark(streams: Sequence[Stream]) -> Any:
        from appulse.engines.sensors.call import SensorSettings
        from appulse.engines.spark.sensors.call import spark_sensors

        return spark_sensors(streams[0], SensorSettings(**settings))

    return answers_over_survivors((readings,), "readings", settings, _joined, on_spark)


def _joined(readings: Sequence[Stream], schemas: Sequence[pa.Schema], settings: Mapping[str, Any]) -> Local[Readings]:
    from appulse.engines.local import Local
    from appulse.engines.sensors.call import SensorSettings, resolve_sensors
    from appulse.engines.sensors.readings import ReadingsBucket

    return Local(ReadingsBucket(resolve_sensors(readings[0], schemas[0], SensorSettings(**settings))))


@checked
def phenomena(
    readings: Framed[Result],
    *,
    resolution: Positive | None = None,
    within: NotNegative | None = None,
    strength: Count,
    span: Duration,
    min_sensors: Count = 2,
    locations: Any = None,
    place: Position | None = None,
    reach: Reach | None = None,
    neighbours: Any = None,
    similar: Similar = "value",
    over: Duration | None = None,
    emit: EmitPhenomena = "events",
    on_reject: OnReject = "collect",
    options: Options | None = None,
) -> Result:
    """Regions of sensors that hold a value: where they appear, how they move, and when they disappear.

    A sensor is active in a value while it has produced it at least ``strength`` times within ``span`` of the tick at
    hand. A phenomenon is a value and a connected region of at least ``min_sensors`` active sensors. Ticks are the times
    of readings; of a stream with conditions (`filter`) they are those of all its rows, so that a region ends once its
    sensors have other values. With the stream's ``idle_after`` the regions of a group end when it had no reading for so
    long, by the time of all rows.

    Arguments:
    * ``readings``: one stream of all sensors, as in `sensor_join`.
    * ``resolution, similar``: which values are one, as in `sensor_join`; ``over`` is by default ``span``.
    * ``within``, in place of bins: a reading counts if at least ``strength`` readings of its sensor in the span, itself
      among them, are at most that far from it. Those of one sensor, or of neighbours, that are at most that far apart
      hang together, and a phenomenon is all that does. So its values may spread wider than ``within``, and drift; it
      goes on in what has readings of its sensors that near to those they had.
    * ``strength``: how many readings make a sensor active.
    * ``span``: within which time: text, a timedelta, or seconds.
    * ``min_sensors``: how many active sensors a region has at least.
    * ``locations``: a frame with the stream's key and two columns of coordinates.
    * ``reach``: how far apart neighbours are at most, in the unit of the locations.
    * ``place``: ``ap.Position("lat", "lon")`` says that locations are degrees. ``reach`` is then metres along the
      Earth; centroids and hulls are longitude and latitude, taken in the plane around the middle of all sensors
      (azimuthal equidistant), and ``velocity`` is metres a second east and north there.
    * ``neighbours``: in place of locations, a frame with two columns of sensors, such as those along roads or pipes.
      Without either all sensors are neighbours.
    * ``emit``: ``"events"``, or ``"regions"``: all regions there are at each tick that changed any of them.
    * ``on_reject``: ``"collect"`` keeps bad rows for `rejects`, among them those of sensors without a location;
      ``"fail"`` raises `BadInput` at the first.
    * ``options``: output size and partitions; see `Options`. On Spark groups are spread, and each is one task's.

    Returns a Spark frame for Spark frames (streaming if they are), else a `pyarrow.Table`, with the columns of
    ``partition_by``, ``phenomenon`` (a number, kept while the region changes), ``event`` ("appears", "moves",
    "disappears", at the first tick at which that is so), ``time``, ``value`` (the lower end of the bin; with ``within``
    the mean of the readings when the sensors last changed), ``sensors``, ``centroid``, ``hull`` (its corners),
    ``velocity`` (units of the locations a second, by least squares over the last 8 centroids); ``merged``, the
    phenomena that one which disappears goes on in, and ``split``, those that one which appears comes from. A region
    that joins others takes the number of that with which it shares most sensors, the older of two.

    Raises `BadArgument` for a wrong argument, `BadInput` with ``on_reject="fail"``, and `OutputLimit` beyond
    ``Options(max_output=)``.

    Ali et al. 2005 and 2007.

    >>> readings = pa.table({"mote": [1, 2, 1, 2], "t": [0, 1, 2, 3], "celsius": [20.1, 20.3, 20.2, 20.4]})
    >>> stream = ap.Stream(readings, key="mote", time="t", value="celsius")
    >>> events = ap.phenomena(stream, resolution=0.5, strength=2, span="10 seconds")
    >>> events.select(["event", "time", "sensors"]).to_pylist()
    [{'event': 'appears', 'time': 3, 'sensors': [1, 2]}]
    """
    settings = _settings_of_phenomena(readings, locals())
    check_readings(readings, "phenomena")

    def on_spark(streams: Sequence[Stream]) -> Any:
        from appulse.engines.sensors.phenomena import PhenomenaSettings
        from appulse.engines.spark.sensors.call import spark_phenomena

        return spark_phenomena(streams[0], PhenomenaSettings(**settings))

    return answers_over_survivors((readings,), "readings", settings, _watched, on_spark)


def _watched(readings: Sequence[Stream], schemas: Sequence[pa.Schema], settings: Mapping[str, Any]) -> Local[Readings]:
    from appulse.engines.local import Local
    from appulse.engines.sensors.phenomena import PhenomenaSettings, resolve_phenomena
    from appulse.engines.sensors.readings import ReadingsBucket

    return Local(ReadingsBucket(resolve_phenomena(readings[0], schemas[0], PhenomenaSettings(**settings))))


class _OverReadings(ByHand["Local[Readings]"]):
    """An operator over readings by hand."""

    _withdraws_before = True

    def __init__(self, readings: Stream, settings: dict[str, Any]) -> None:
        check_readings(readings, type(self).__name__)
        self._settings = settings
        super().__init__((readings,), "readings")

    def _identity(self, name: str) -> tuple[str, ...]:
        return *super()._identity(name), *columns(self._streams[name].value)

    def _make(self, held: Sequence[Frames], types: Types) -> tuple[Local[Readings], Types]:
        engine, types = super()._make(held, types)
        ((name, stream),) = self._streams.items()
        if types[name].knows(self._identity(name)):  # what is carried stays without a type if it had none
            types = {name: types[name].and_rather(dict.fromkeys(stream.carry, pa.null()))}
        return engine, types


@checked
class SensorJoin(_OverReadings):
    """`sensor_join` without Spark, push by push: push readings as they arrive, and get the answers they complete.

    ``readings`` has ``frame=None``; other arguments are as in `sensor_join`. A reading waits until its tick is
    complete: until a later one has come, by more than ``lateness``.

    >>> readings = pa.table({"mote": [1, 2, 3], "t": [0, 1, 2], "celsius": [20.1, 20.3, 27.0]})
    >>> stream = ap.Stream(None, key="mote", time="t", value="celsius")
    >>> call = ap.SensorJoin(stream, resolution=0.5, window="10 seconds")
    >>> call.push(readings)["sensor"].to_pylist()  # the last tick may not be over
    [2]
    >>> call.drain()["sensor"].to_pylist()
    []
    """

    _engine_of = staticmethod(_joined)

    def __init__(
        self,
        readings: Bare,
        *,
        resolution: Positive | None = None,
        within: NotNegative | None = None,
        window: SensorWindow,
        expand: bool = False,
        similar: Similar = "value",
        over: Duration | None = None,
        on_reject: OnReject = "collect",
        options: Options | None = None,
    ) -> None:
        super().__init__(readings, settings_of("sensor_join", locals()))


@checked
class Phenomena(_OverReadings):
    """`phenomena` without Spark, push by push: push readings as they arrive, and get the events they complete.

    ``readings`` has ``frame=None``; other arguments are as in `phenomena`. A reading waits until its tick is
    complete: until a later one has come, by more than ``lateness``.

    >>> readings = pa.table({"mote": [1, 2, 1, 2], "t": [0, 1, 2, 3], "celsius": [20.1, 20.3, 20.2, 20.4]})
    >>> stream = ap.Stream(None, key="mote", time="t", value="celsius")
    >>> call = ap.Phenomena(stream, resolution=0.5, strength=2, span="10 seconds")
    >>> call.push(readings).num_rows
    0
    >>> call.drain()["event"].to_pylist()
    ['appears']
    """

    _engine_of = staticmethod(_watched)

    def __init__(
        self,
        readings: Bare,
        *,
        resolution: Positive | None = None,
        within: NotNegative | None = None,
        strength: Count,
        span: Duration,
        min_sensors: Count = 2,
        locations: Any = None,
        place: Position | None = None,
        reach: Reach | None = None,
        neighbours: Any = None,
        similar: Similar = "value",
        over: Duration | None = None,
        emit: EmitPhenomena = "events",
        on_reject: OnReject = "collect",
        options: Options | None = None,
    ) -> None:
        super().__init__(readings, _settings_of_phenomena(readings, locals()))


def _settings_of_phenomena(readings: Stream, arguments: Mapping[str, Any]) -> dict[str, Any]:
    frames = {name: _table_of(name, arguments[name]) for name in ("locations", "neighbours")}
    return settings_of("phenomena", arguments) | frames | {"idle_after": readings.idle_after}


def _table_of(name: str, frame: Any) -> pa.Table | None:
    from appulse.engines.local import as_table

    if frame is None:
        return None
    return as_table(frame.toArrow() if is_spark(frame) else frame, f"The frame of {name}")
