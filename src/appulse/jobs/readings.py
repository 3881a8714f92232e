"""The tables of a job file over the readings of sensors: their join, and their phenomena."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import pyarrow as pa
from pydantic import BeforeValidator, Field, model_validator

from appulse.engines.phenomena import resolve_phenomena
from appulse.engines.sensors import resolve_sensors
from appulse.jobs.fields import Ahead, Duration, Number, OneOrMore, Table, Text
from appulse.jobs.sources import DataTable
from appulse.jobs.windows import WindowTable, as_window
from appulse.windows.definitions import TimeWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PhenomenaTable", "SensorJoinTable"]


class SensorsTable(Table):
    """What calls over readings have in common."""

    sensor: Text
    time: Text
    value: Text
    unit: str = "s"
    resolution: Annotated[Number, Field(gt=0)] | None = None
    within: Annotated[Number, Field(ge=0)] | None = None
    similar: Literal["value", "summary", "slope", "pattern"] = "value"
    over: Duration | None = None
    lateness: Duration | None = None
    ahead: Ahead = "1 hour"
    partition_by: Annotated[list[Text], OneOrMore] = []
    on_reject: Literal["collect", "fail"] = "collect"

    def shared(self) -> dict[str, Any]:
        """The keyword arguments that both calls have."""
        names = ("sensor", "time", "value", "unit", "resolution", "within", "similar", "over", "lateness", "ahead")
        given = {name: getattr(self, name) for name in (*names, "on_reject")}
        return {**given, "partition_by": tuple(self.partition_by)}

    def presumed(self, *numbers: str | None, texts: Sequence[str] = ()) -> pa.Schema:
        """Columns as they should be, by which arguments can be checked before there are files."""
        known = dict.fromkeys((*texts, *self.partition_by), pa.string())
        known |= dict.fromkeys([name for name in numbers if name], pa.float64())
        return pa.schema(known | {self.value: pa.float64(), self.sensor: pa.string(), self.time: pa.timestamp("us")})


class SensorJoinTable(SensorsTable):
    """The arguments of `appulse.sensor_join`; ``window_column`` is that of windows in seconds."""

    window: Annotated[WindowTable | None, BeforeValidator(as_window)] = None
    window_column: Text | None = None
    carry: Annotated[list[Text], OneOrMore] = []
    expand: bool = False

    @model_validator(mode="after")
    def _is_a_call(self) -> SensorJoinTable:
        if (self.window is None) == (self.window_column is None):
            raise ValueError("a sensor join has a window: give window or window_column, one of them.")
        if self.window is not None and not isinstance(self.window.build(), TimeWindow):
            raise ValueError("window is one of time: text such as '10 seconds', or { time = ..., per_stream = ... }.")
        resolve_sensors(self.presumed(self.window_column, texts=self.carry), **self.settings())
        return self

    def settings(self) -> dict[str, Any]:
        """The keyword arguments of a call."""
        window = self.window_column if self.window is None else self.window.build()
        return {**self.shared(), "window": window, "carry": tuple(self.carry), "expand": self.expand}


class LocationsTable(DataTable):
    """Where sensors are: files with the column of sensors and two of coordinates."""


class PhenomenaTable(SensorsTable):
    """The arguments of `appulse.phenomena`."""

    strength: Annotated[int, Field(ge=1)]
    span: Duration
    min_sensors: Annotated[int, Field(ge=1)] = 2
    locations: LocationsTable | None = None
    reach: Annotated[Number, Field(ge=0)] | None = None
    horizon: Duration | None = None
    emit: Literal["events", "regions"] = "events"

    @model_validator(mode="after")
    def _is_a_call(self) -> PhenomenaTable:
        somewhere = None if self.locations is None else pa.table({self.sensor: [""], "east": [0.0], "north": [0.0]})
        resolve_phenomena(self.presumed(), **self.settings(somewhere))
        return self

    def settings(self, locations: Any) -> dict[str, Any]:
        """The keyword arguments of a call, with the frame of locations."""
        names = ("strength", "span", "min_sensors", "reach", "horizon", "emit")
        return {**self.shared(), **{name: getattr(self, name) for name in names}, "locations": locations}
