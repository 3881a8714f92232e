"""The tables of a job file over the readings of sensors: their join, and their phenomena."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import BeforeValidator, Field, model_validator

from appulse.engines.sensors.call import SensorSettings, resolve_sensors
from appulse.engines.sensors.phenomena import PhenomenaSettings, resolve_phenomena
from appulse.jobs.fields import CallTable, Duration, Number, Text
from appulse.jobs.sources import DataTable, PositionTable
from appulse.jobs.windows import WindowTable, as_window
from appulse.model.stream import Stream
from appulse.model.uncertainty import columns
from appulse.windows.definitions import TimeWindow

__all__ = ["PhenomenaTable", "SensorJoinTable"]

# Stand for the columns of the source, which is another table's.
_SENSOR, _TIME, _VALUE = "its sensor", "its time", "its value"
_STREAM = Stream(None, key=_SENSOR, time=_TIME, value=_VALUE)


class SensorsTable(CallTable):
    """What calls over readings have in common."""

    resolution: Annotated[Number, Field(gt=0)] | None = None
    within: Annotated[Number, Field(ge=0)] | None = None
    similar: Literal["value", "summary", "slope", "pattern"] = "value"
    over: Duration | None = None


def _presumed(*numbers: str | None) -> pa.Schema:
    """Columns as they should be, by which arguments can be checked before there is a source."""
    known = dict.fromkeys([name for name in numbers if name], pa.float64())
    return pa.schema(known | {_VALUE: pa.float64(), _SENSOR: pa.string(), _TIME: pa.timestamp("us")})


class SensorJoinTable(SensorsTable):
    """The arguments of `appulse.sensor_join`; ``window_column`` is that of windows in seconds."""

    _apart = ("window_column",)

    window: Annotated[WindowTable | None, BeforeValidator(as_window)] = None
    window_column: Text | None = None
    expand: bool = False

    @model_validator(mode="after")
    def _is_a_call(self) -> SensorJoinTable:
        if (self.window is None) == (self.window_column is None):
            raise ValueError("a sensor join has a window: give window or window_column, one of them.")
        if self.window is not None and not isinstance(self.window.build(), TimeWindow):
            raise ValueError("window is one of time: text such as '10 seconds', or { time = ..., per_stream = ... }.")
        resolve_sensors(_STREAM, _presumed(self.window_column), SensorSettings(**self.settings()))
        return self

    def settings(self) -> dict[str, Any]:
        return super().settings() | ({"window": self.window_column} if self.window is None else {})


class LocationsTable(DataTable):
    """Where sensors are: files with the key of the source and two columns of coordinates."""


class NeighboursTable(DataTable):
    """Which sensors are neighbours: files with two columns of sensors, a pair a row."""


class PhenomenaTable(SensorsTable):
    """The arguments of `appulse.phenomena`."""

    _apart = ("locations", "neighbours")

    strength: Annotated[int, Field(ge=1)]
    span: Duration
    min_sensors: Annotated[int, Field(ge=1)] = 2
    locations: LocationsTable | None = None
    place: PositionTable | None = None
    reach: Annotated[Number, Field(ge=0)] | None = None
    neighbours: NeighboursTable | None = None
    emit: Literal["events", "regions"] = "events"

    @model_validator(mode="after")
    def _is_a_call(self) -> PhenomenaTable:
        at: dict[str, Any] = {"east": [0.0], "north": [0.0]}
        if self.place is not None:  # a geometry is read from a list of two numbers, too
            at = {name: [[0.0, 0.0]] if name == self.place.geography else [0.0] for name in columns(self.place.build())}
        somewhere = None if self.locations is None else pa.table({_SENSOR: [""], **at})
        pairs = None if self.neighbours is None else pa.table({"one": [""], "other": [""]})
        resolve_phenomena(_STREAM, _presumed(), PhenomenaSettings(**self.settings_with(somewhere, pairs)))
        return self

    def settings_with(self, locations: Any, neighbours: Any) -> dict[str, Any]:
        """The keyword arguments of a call, with the frames of locations and of neighbours."""
        return self.settings() | {"locations": locations, "neighbours": neighbours}
