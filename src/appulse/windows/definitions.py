"""Windows as users write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, TypeAlias

from appulse.arguments import (
    ANYTHING,
    Kind,
    Name,
    NotNegative,
    Probability,
    Unfit,
    checked,
    mapping,
    one_of,
    shown,
    whole,
)
from appulse.errors import BadArgument, nearest
from appulse.model.times import DURATION, Duration, as_micros, duration

METHODS = ("exact", "refined-normal", "normal", "poisson")

_Size: TypeAlias = Annotated[int, whole(1, of="rows")]
_PerStream: TypeAlias = Annotated[
    Mapping[Any, Duration],
    mapping(ANYTHING, DURATION, "a mapping from names to durations, such as {'vans': '1 minute'}"),
]


def _block(value: Any) -> Any:
    if not isinstance(value, str | timedelta):
        return whole(1, of="rows").take(value)
    if as_micros(value) == 0:
        raise Unfit("give a duration above 0.")
    return value


_Block: TypeAlias = Annotated[
    int | str | timedelta, Kind("a whole number of rows, at least 1, or a duration such as '1 minute'", _block)
]


@checked
@dataclass(frozen=True)
class TimeWindow:
    """Rows at most ``length`` older than the tick.

    Arguments:
    * ``length``: text such as "10 seconds", a timedelta or a number of seconds; 0 means the same tick only.
    * ``per_stream``: a mapping from streams (for `sensor_join` from sensors) to lengths of their own; ``length``
      applies to all others.

    Pass it as ``window``; a duration alone is a window of that length.

    Raises `BadArgument` for a wrong argument; a call raises it for an unknown stream.

    >>> ap.TimeWindow("10 seconds")
    TimeWindow(length='10 seconds', per_stream=None)
    >>> ap.TimeWindow(60, per_stream={"radar": 5}).per_stream
    {'radar': 5}
    """

    length: Duration
    per_stream: _PerStream | None = None

    def micros(self, streams: tuple[str, ...]) -> tuple[int, ...]:
        """Each stream's window in microseconds."""
        own = dict(self.per_stream or {})
        for name in own:
            if name not in streams:
                raise BadArgument(
                    f"TimeWindow(per_stream=) names {shown(name)}, which is not a stream.{nearest(str(name), streams)}"
                )
        return tuple(duration(own.get(name, self.length), "TimeWindow") for name in streams)


@checked
@dataclass(frozen=True)
class CountWindow:
    """The newest ``size`` rows of each stream.

    Arguments:
    * ``size``: a number of rows, at least 1.

    Pass it as ``window``.

    Raises `BadArgument` for a wrong argument.

    >>> rows = pa.table({"id": [1, 2, 3], "t": [0, 1, 2], "x": [0.0, 5.0, 0.0]})
    >>> stream = ap.Stream(rows, key="id", time="t", value="x")
    >>> ap.self_join(stream, epsilon=1, probability=1, window=ap.CountWindow(2)).num_rows  # 1 is gone when 3 comes
    0
    >>> ap.self_join(stream, epsilon=1, probability=1, window=ap.CountWindow(3)).num_rows
    1
    """

    size: _Size


@checked
@dataclass(frozen=True)
class UncertainCountWindow:
    """As many of the newest rows of each stream as needed for ``size`` of them to exist with ``confidence``.

    Arguments:
    * ``size``: a number of rows, at least 1.
    * ``confidence``: a probability in (0, 1]. With 1 it holds rows until ``size`` of them are certain.
    * ``method``: how the probability is computed: ``"exact"``, or by the approximations ``"refined-normal"``,
      ``"normal"`` and ``"poisson"``.
    * ``max_rows``: the greatest number of rows, at least ``size``. None: no limit.

    Pass it as ``window``.

    Raises `BadArgument` for a wrong argument.

    Dallachiesa et al. 2015, Eq. 4.

    >>> window = ap.UncertainCountWindow(2, confidence=0.95, max_rows=100)
    >>> window.size, window.confidence
    (2, 0.95)
    """

    size: _Size
    confidence: Probability
    method: Annotated[str, one_of(*METHODS)] = "exact"
    max_rows: _Size | None = None

    def __post_init__(self) -> None:
        if self.max_rows is not None and self.max_rows < self.size:
            raise BadArgument(
                f"UncertainCountWindow(max_rows={self.max_rows}): give a whole number of rows, at least the size "
                f"{self.size}."
            )


@checked
@dataclass(frozen=True)
class DeltaWindow:
    """The newest rows of each stream whose ``column`` is within ``bound`` of that of the newest row.

    Once per tick, after its rows have been added, the oldest row is removed while its value is more than ``bound``
    away. A removed row does not come back.

    Arguments:
    * ``column``: without ``confidence`` a numeric column without error; with it a dimension of the uncertain value. It
      has the same name in every stream.
    * ``bound``: the largest difference, in the unit of the column; at least 0.
    * ``confidence``: a probability in (0, 1]: the oldest row is removed while it is more than ``bound`` away with at
      least this probability, given that both rows exist.

    Pass it as ``window``.

    Raises `BadArgument` for a wrong argument; a call raises it for a missing column.

    Dallachiesa et al. 2015, section 3 and future work.

    >>> rows = pa.table({"id": [1, 2, 3], "t": [0, 1, 2], "km": [0.0, 40.0, 160.0], "x": [0.0, 0.0, 0.0]})
    >>> stream = ap.Stream(rows, key="id", time="t", value="x")
    >>> pairs = ap.self_join(stream, epsilon=1, probability=1, window=ap.DeltaWindow("km", 100.0))
    >>> pairs.select(["left_key", "right_key"]).to_pylist()
    [{'left_key': 1, 'right_key': 2}]
    """

    column: Name
    bound: NotNegative
    confidence: Probability | None = None


@checked
@dataclass(frozen=True)
class TumblingWindow:
    """Consecutive blocks, of rows or of time.

    Arguments:
    * ``length``: a whole number of rows of each stream, or a duration, as text such as "1 minute" or a timedelta; above
      0. Blocks of time start at 1970-01-01T00:00 UTC (at 0 for numbers).

    Pass it as ``window``.

    Raises `BadArgument` for a wrong argument.

    >>> rows = pa.table({"id": [1, 2, 3], "t": [10, 50, 70], "x": [0.0, 0.0, 0.0]})
    >>> stream = ap.Stream(rows, key="id", time="t", value="x")
    >>> ap.self_join(stream, epsilon=1, probability=1, window=ap.TumblingWindow("1 minute")).num_rows  # 1 and 2
    1
    """

    length: _Block


Window = TimeWindow | CountWindow | UncertainCountWindow | DeltaWindow | TumblingWindow


def as_window(value: Any) -> Window:
    """A window, or a duration as a time window of that length."""
    return value if isinstance(value, Window) else TimeWindow(DURATION.take(value))


#: As an argument.
GivenWindow: TypeAlias = Annotated[
    Window | float | str | timedelta,
    Kind("a window such as ap.CountWindow(100), or a duration such as '5 minutes'", as_window),
]
