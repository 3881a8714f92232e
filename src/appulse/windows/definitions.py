"""Windows as users write them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from numbers import Integral, Real
from typing import TYPE_CHECKING

from appulse.errors import BadArgument, nearest
from appulse.model.times import duration

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class TimeWindow:
    """Rows at most ``length`` older than the tick (0 = the same tick only).

    ``length`` is text such as "10 seconds", a timedelta or a number of seconds; ``per_stream`` gives streams, by
    name, windows of their own.
    """

    length: float | str
    per_stream: Mapping[str, float | str] | None = None

    def __post_init__(self) -> None:
        duration(self.length, "TimeWindow")
        for name, length in (self.per_stream or {}).items():
            duration(length, f"TimeWindow(per_stream={{{name!r}: ...}})")

    def micros(self, streams: tuple[str, ...]) -> tuple[int, ...]:
        """Each stream's window in microseconds."""
        own = dict(self.per_stream or {})
        for name in own:
            if name not in streams:
                raise BadArgument(
                    f"TimeWindow(per_stream=) names {name!r}, which is no stream.{nearest(name, streams)}"
                )
        return tuple(duration(own.get(name, self.length), "TimeWindow") for name in streams)


@dataclass(frozen=True)
class CountWindow:
    """Of each stream its newest ``size`` rows, the newest included."""

    size: int

    def __post_init__(self) -> None:
        if not _is_whole(self.size) or self.size < 1:
            raise BadArgument(f"CountWindow({self.size!r}): give a whole number of rows, at least 1.")
        object.__setattr__(self, "size", int(self.size))


@dataclass(frozen=True)
class DeltaWindow:
    """Of each stream the newest rows whose ``column`` lies within ``bound`` of its newest row's.

    Once per tick, after its rows are in, the oldest row goes while its value lies more than ``bound`` away; once gone
    it never comes back. Dallachiesa et al. 2015, section 3.
    """

    column: str
    bound: float

    def __post_init__(self) -> None:
        named: object = self.column
        if not isinstance(named, str):
            raise BadArgument(f"DeltaWindow({self.column!r}, ...): give the name of a numeric column.")
        if not _is_real(self.bound) or not (math.isfinite(self.bound) and self.bound >= 0.0):
            raise BadArgument(f"DeltaWindow({self.column!r}, {self.bound!r}): give a finite bound, at least 0.")
        object.__setattr__(self, "bound", float(self.bound))


@dataclass(frozen=True)
class TumblingWindow:
    """Consecutive blocks: of ``length`` rows of each stream if that is a whole number, else of time.

    Blocks of time, such as "1 minute" or a timedelta, are counted from 1970-01-01T00:00 UTC (from 0 for numbers).
    """

    length: int | str | timedelta

    def __post_init__(self) -> None:
        if isinstance(self.length, str | timedelta):
            if duration(self.length, "TumblingWindow") == 0:
                raise BadArgument(f"TumblingWindow({self.length!r}): give a duration above 0.")
            return
        if not _is_whole(self.length) or self.length < 1:
            raise BadArgument(
                f"TumblingWindow({self.length!r}): give a whole number of rows, at least 1, or a duration such as "
                "'1 minute'."
            )
        object.__setattr__(self, "length", int(self.length))


Window = TimeWindow | CountWindow | DeltaWindow | TumblingWindow


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
