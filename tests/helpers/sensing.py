"""Calls over readings whose arguments tests have in one mapping: those of the stream among those of the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import appulse as ap
from appulse.engines.sensors.call import SensorCall, SensorSettings, resolve_sensors
from appulse.engines.sensors.phenomena import PhenomenaCall, PhenomenaSettings, resolve_phenomena

if TYPE_CHECKING:
    import pyarrow as pa

_OF_STREAMS = (
    "key",
    "time",
    "value",
    "partition_by",
    "lateness",
    "ahead",
    "unit",
    "name",
    "carry",
    "where",
    "idle_after",
)


def split(frame: Any, arguments: dict[str, Any]) -> tuple[ap.Stream[Any], dict[str, Any]]:
    """The stream that some of the arguments describe, and the others; ``sensor`` is the stream's key."""
    arguments = {"key" if name == "sensor" else name: given for name, given in arguments.items()}
    described = {name: arguments.pop(name) for name in _OF_STREAMS if name in arguments}
    return ap.Stream(frame, **described), arguments


def sensor_join(frame: Any, **arguments: Any) -> Any:
    """`appulse.sensor_join`."""
    stream, others = split(frame, arguments)
    return ap.sensor_join(stream, **others)


def phenomena(frame: Any, **arguments: Any) -> Any:
    """`appulse.phenomena`."""
    stream, others = split(frame, arguments)
    return ap.phenomena(stream, **others)


def by_hand(make: Any, **arguments: Any) -> Any:
    """`appulse.SensorJoin` or `appulse.Phenomena`."""
    stream, others = split(None, arguments)
    return make(stream, **others)


def resolved_sensors(table: pa.Table, **arguments: Any) -> SensorCall:
    """A checked sensor join of a table."""
    stream, others = split(table, arguments)
    return resolve_sensors(stream, table.schema, SensorSettings(**others))


def resolved_phenomena(table: pa.Table, **arguments: Any) -> PhenomenaCall:
    """Checked phenomena of a table."""
    stream, others = split(table, arguments)
    return resolve_phenomena(stream, table.schema, PhenomenaSettings(**others, idle_after=stream.idle_after))
