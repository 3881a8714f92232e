"""Moving things in a job file: how they move, and their encounters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from appulse.jobs.fields import CallTable, Duration, GroupedEpsilon, Number, Table, Text
from appulse.model.motion import Course, Motion, Straight, Velocity

__all__ = ["EncountersTable", "MotionTable"]

_Noise = Annotated[Number, Field(ge=0)]


class StraightTable(Table):
    """`appulse.Straight` as a table."""

    kind: Literal["Straight"]
    max_gap: Duration
    max_speed: Annotated[Number, Field(gt=0)] | None = None

    def build(self) -> Motion:
        """The motion."""
        return Straight(self.max_gap, self.max_speed)


class VelocityTable(Table):
    """`appulse.Velocity` as a table."""

    kind: Literal["Velocity"]
    columns: Annotated[list[Text], Field(min_length=1)]
    horizon: Duration
    noise: _Noise = 0.0

    def build(self) -> Motion:
        """The motion."""
        return Velocity(*self.columns, horizon=self.horizon, noise=self.noise)


class CourseTable(Table):
    """`appulse.Course` as a table."""

    kind: Literal["Course"]
    speed: Text
    course: Text
    horizon: Duration
    unit: Literal["m/s", "km/h", "knots", "mph"] = "m/s"
    noise: _Noise = 0.0

    def build(self) -> Motion:
        """The motion."""
        return Course(self.speed, self.course, self.horizon, self.unit, self.noise)


MotionTable = StraightTable | VelocityTable | CourseTable


class EncountersTable(CallTable):
    """The arguments of `appulse.encounters`."""

    epsilon: GroupedEpsilon
    probability: Annotated[Number, Field(gt=0, le=1)]
    gap: Duration = 0
    min_seconds: Duration = 0
    emit: Literal["closed", "changes", "legs"] = "closed"
    expected_seconds: bool = False
