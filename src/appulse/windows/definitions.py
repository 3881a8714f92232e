"""Windows as users write them."""

from __future__ import annotations

from dataclasses import dataclass
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
