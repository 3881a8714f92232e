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


METHODS = ("exact", "refined-normal", "normal", "poisson")


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
class UncertainCountWindow:
    """Of each stream the fewest newest rows of which ``size`` exist with probability at least ``confidence``.

    ``method`` tells how that is computed: "exact", or by the approximations "refined-normal", "normal" and "poisson".
    ``max_rows`` caps the window. With ``confidence=1`` nothing short of ``size`` certain rows will do. Dallachiesa et
    al. 2015, Eq. 4.
    """

    size: int
    confidence: float
    method: str = "exact"
    max_rows: int | None = None

    def __post_init__(self) -> None:
        if not _is_whole(self.size) or self.size < 1:
            raise BadArgument(f"UncertainCountWindow({self.size!r}): give a whole number of rows, at least 1.")
        _check_confidence(self.confidence, "UncertainCountWindow")
        if self.method not in METHODS:
            raise BadArgument(f"UncertainCountWindow(method={self.method!r}).{nearest(str(self.method), METHODS)}")
        most: object = self.max_rows
        if most is not None and not (_is_whole(most) and int(str(most)) >= self.size):
            raise BadArgument(
                f"UncertainCountWindow(max_rows={most!r}): give a whole number of rows, at least the size {self.size}."
            )
        object.__setattr__(self, "size", int(self.size))
        object.__setattr__(self, "confidence", float(self.confidence))


@dataclass(frozen=True)
class DeltaWindow:
    """Of each stream the newest rows whose ``column`` lies within ``bound`` of its newest row's.

    Once per tick, after its rows are in, the oldest row goes while its value lies more than ``bound`` away; once gone
    it never comes back. Where ``column`` is a dimension of the stream's uncertain value, ``confidence`` is needed: it
    goes while that is so with at least this probability, given that both rows exist. Dallachiesa et al. 2015, section
    3 and future work.
    """

    column: str
    bound: float
    confidence: float | None = None

    def __post_init__(self) -> None:
        if self.confidence is not None:
            _check_confidence(self.confidence, "DeltaWindow")
            object.__setattr__(self, "confidence", float(self.confidence))
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


Window = TimeWindow | CountWindow | UncertainCountWindow | DeltaWindow | TumblingWindow


def _check_confidence(confidence: object, what: str) -> None:
    if not _is_real(confidence) or not 0.0 < float(str(confidence)) <= 1.0:
        raise BadArgument(f"{what}(confidence={confidence!r}): give a probability above 0, at most 1.")


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
