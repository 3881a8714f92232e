"""How things move between their readings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias

import numpy as np

from appulse.arguments import Name, Positive, checked, number, one_of
from appulse.errors import BadArgument
from appulse.model.columns import floats
from appulse.model.times import Duration, duration

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from appulse.kernels.arrays import Flags, Floats

#: Metres a second.
SPEEDS = {"m/s": 1.0, "km/h": 1.0 / 3.6, "knots": 1852.0 / 3600.0, "mph": 0.44704}
#: Nothing that reports a course is faster, in metres a second.
FASTEST = 3000.0
_Speed: TypeAlias = Annotated[str, one_of(*SPEEDS)]
# Its square has to be a double.
_Noise: TypeAlias = Annotated[float, number(least=0.0, most=1e150)]


@checked
@dataclass(frozen=True)
class Straight:
    """Straight and at constant speed from one reading of a key to the next; on Earth, along the geodesic.

    Arguments:
    * ``max_gap``: the longest time between two connected readings: text, a timedelta, or seconds; above 0. A reading
      that is not connected to another counts only for its own time.
    * ``max_speed``: keeps outliers out: two readings that imply a higher speed are not connected. In the value's unit
      per second, above 0. None: any speed.

    Pass it as ``Stream(motion=)``.

    Raises `BadArgument` for a wrong argument.

    >>> fixes = {"id": ["a", "a", "b", "b"], "t": [0, 60, 0, 60]}
    >>> fixes |= {"x": [0.0, 600.0, 600.0, 0.0], "y": [0.0, 0.0, 30.0, 30.0]}
    >>> motion = ap.Straight(max_gap="5 minutes")
    >>> stream = ap.Stream(pa.table(fixes), key="id", time="t", value=ap.Exact("x", "y"), motion=motion)
    >>> ap.encounters(stream, epsilon=50, probability=1)["closest_distance"].to_pylist()
    [30.0]
    """

    max_gap: Duration
    max_speed: Positive | None = None

    def __post_init__(self) -> None:
        if duration(self.max_gap, "max_gap") == 0:
            raise BadArgument("max_gap=0: no two readings of a key have one time. Give a duration above 0.")

    @property
    def longest(self) -> int:
        """The most that a leg lasts, in microseconds."""
        return duration(self.max_gap, "max_gap")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return ()

    noise = 0.0


@checked
@dataclass(frozen=True, init=False)
class Velocity:
    """At the velocity of each reading, until the next reading of the key or for ``horizon``, whichever is first.

    Arguments:
    * ``columns``: the velocities along the dimensions of the value, one column each, in its unit a second; of a
      `Position` those east and north, and up if there is an altitude, in metres a second (on the
      sky arc seconds a second). A row without a finite velocity is a reject.
    * ``horizon``: how long a reading is valid at most: text, a timedelta, or seconds; above 0.
    * ``noise``: the variance of the error grows by its square per second; with a vertical epsilon, that of the
      horizontal error.

    Pass it as ``Stream(motion=)``.

    Raises `BadArgument` for a wrong argument.

    >>> rows = pa.table({"id": ["a", "b"], "t": [0, 0], "x": [0.0, 10.0], "vx": [1.0, -1.0]})
    >>> motion = ap.Velocity("vx", horizon="10 seconds", noise=0.1)
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Gaussian("x", sigma=0.2), motion=motion)
    >>> ap.encounters(stream, epsilon=1, probability=0.5)["closest_time"].to_pylist()
    [5.0]
    """

    columns: tuple[str, ...]
    horizon: Duration
    noise: float

    def __init__(self, *columns: Name, horizon: Duration, noise: _Noise = 0.0) -> None:
        if not columns:
            raise BadArgument("Velocity got no columns. Name one for each dimension, e.g. Velocity('vx', 'vy', ...).")
        vars(self).update(columns=columns, horizon=horizon, noise=noise)
        _check_horizon(horizon)

    @property
    def longest(self) -> int:
        """The most that a leg lasts, in microseconds."""
        return duration(self.horizon, "horizon")

    def velocities(self, table: pa.Table, mark: Mark) -> Floats:
        """The velocity of each row (n, d); ``mark`` gets the rows that have none."""
        found = np.column_stack([floats(table[name]) for name in self.columns])
        _mark_unless_finite(found, self.columns, mark)
        return found


@checked
@dataclass(frozen=True)
class Course:
    """At a constant speed and course, until the next reading of the key or for ``horizon``, whichever is first.

    The value is a `Position`, or has two dimensions, in metres; an altitude stays as it is.

    Arguments:
    * ``speed``: the column of the speed, in ``unit``; one that is not finite, negative or above 3,000 m/s is a reject.
    * ``course``: the column of the course, in degrees clockwise from north, which is +y; outside [0, 360] it is a
      reject.
    * ``horizon``: how long a reading is valid at most: text, a timedelta, or seconds; above 0.
    * ``unit``: the unit of the speed: ``"m/s"``, ``"km/h"``, ``"knots"`` or ``"mph"``.
    * ``noise``: the variance of the error grows by its square per second.

    Pass it as ``Stream(motion=)``.

    Raises `BadArgument` for a wrong argument.

    >>> fixes = {"id": ["a", "b"], "t": [0, 0], "x": [0.0, 0.0], "y": [0.0, 900.0]}
    >>> fixes |= {"knots": [10.0, 10.0], "to": [0.0, 180.0]}  # head on
    >>> motion = ap.Course(speed="knots", course="to", horizon="5 minutes", unit="knots")
    >>> stream = ap.Stream(pa.table(fixes), key="id", time="t", value=ap.Exact("x", "y"), motion=motion)
    >>> round(ap.encounters(stream, epsilon=50, probability=1)["closest_time"][0].as_py())
    87
    """

    speed: Name
    course: Name
    horizon: Duration
    unit: _Speed = "m/s"
    noise: _Noise = 0.0

    def __post_init__(self) -> None:
        _check_horizon(self.horizon)

    @property
    def longest(self) -> int:
        """The most that a leg lasts, in microseconds."""
        return duration(self.horizon, "horizon")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return self.speed, self.course

    def velocities(self, table: pa.Table, mark: Mark) -> Floats:
        """The velocity of each row (n, 2), in metres a second; ``mark`` gets the rows that have none."""
        given = np.column_stack([floats(table[name]) for name in self.columns])
        _mark_unless_finite(given, self.columns, mark)
        speed, course = given[:, 0] * SPEEDS[self.unit], given[:, 1]
        mark((course < 0.0) | (course > 360.0), lambda i: f"column {self.course!r} is {course[i]}, wanted 0 to 360")
        mark(
            (speed < 0.0) | (speed > FASTEST),
            lambda i: f"column {self.speed!r} is {speed[i]:g} m/s, wanted 0 to {FASTEST:g}",
        )
        angle = np.radians(course)
        with np.errstate(invalid="ignore"):  # of rows that are marked
            return np.column_stack([speed * np.sin(angle), speed * np.cos(angle)])


@dataclass(frozen=True)
class Still:
    """Where each reading was: of a stream that does not say, beside one that moves."""

    longest = 0
    columns: tuple[str, ...] = ()
    noise = 0.0


Motion = Straight | Velocity | Course
LegMotion = Motion | Still
Mark: TypeAlias = "Callable[[Flags | np.bool_, Callable[[int], str]], None]"


def _check_horizon(horizon: Duration) -> None:
    if duration(horizon, "horizon") == 0:
        raise BadArgument("horizon=0: a leg would last no time. Give a duration above 0.")


def _mark_unless_finite(values: Floats, columns: tuple[str, ...], mark: Mark) -> None:
    def detail(i: int) -> str:
        return ", ".join(f"column {c!r} is {v}" for c, v in zip(columns, values[i], strict=True) if not np.isfinite(v))

    mark(~np.isfinite(values).all(axis=1), detail)
