"""What a job in this process does, step by step, and between two writes: by the names that figures have on Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from appulse.engines.join.call import JoinCall
from appulse.engines.local import Local
from appulse.engines.measured import LEVELS, METRICS
from appulse.model import defects
from appulse.model.times import to_micros

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from appulse.connect.source import Unreadable
    from appulse.model.stream import Stream

__all__ = ["Figures", "Step", "Summary"]

#: Counts of a call that are figures; the others are taken from what it gave.
_COUNTED = frozenset(METRICS) - LEVELS - {"tile", "newest", "rows", "late", "rejected", "answers", "left", "seconds"}
#: Times before 1971 are numbers that count from something else: no clock on a wall.
_OF_OUR_DAYS = 365 * 86_400_000_000


@dataclass(frozen=True)
class Step:
    """What one push of rows did."""

    rows: Mapping[str, pa.Table]
    answers: pa.Table
    rejects: pa.Table | None
    seconds: float
    unreadable: Sequence[tuple[str, Unreadable]] = ()
    clock: int | None = None  # the wall clock by which the rows were judged, in microseconds since 1970
    counted: Mapping[str, int] = field(default_factory=dict)  # by the call: candidates, and what decided about them


@dataclass(frozen=True)
class Summary:
    """What was written together: counts since the write before, and what is held.

    ``newest`` is the newest event time of these rows, in ISO 8601; ``lag`` is how many seconds it is behind the clock.
    """

    number: int
    rows: int
    answers: int
    rejected: int
    seconds: float
    state: Mapping[str, int]
    figures: Mapping[str, int]
    newest: str | None
    lag: float | None


@dataclass
class Figures:
    """Sums of steps, and the newest time among their rows: no row from the future."""

    streams: Mapping[str, Stream]
    sums: Counter[str] = field(default_factory=Counter)
    newest: int | None = None  # microseconds since 1970
    clock: int | None = None  # the wall clock of the latest step

    def add(self, step: Step, engine: Any) -> None:
        """Take in a step of an engine."""
        self.sums.update({name: count for name, count in step.counted.items() if name in _COUNTED})
        self.sums["late"] += _many(step.rejects, "reason", defects.LATE)
        self.clock = step.clock
        known = [time for name, rows in step.rows.items() if (time := self._newest(name, rows)) is not None]
        if isinstance(engine, Local):
            if isinstance(engine.call, JoinCall) and engine.call.emits_changes:
                self.sums["left"] += _many(step.answers, "change", -1)
            now = engine.bucket.clock.now  # which no row from the future moves
            known = [] if now is None else [min(time, now) for time in known]
        if known:
            self.newest = max(known if self.newest is None else [*known, self.newest])

    def taken(self) -> tuple[dict[str, int], str | None, float | None]:
        """The sums, the newest time in ISO 8601 and how many seconds it is behind; what follows is counted anew."""
        sums = {name: count for name, count in self.sums.items() if count or name == "late"}
        newest = None if self.newest is None else _iso(self.newest)
        lag = None
        if self.newest is not None and newest is not None and self.newest >= _OF_OUR_DAYS and self.clock is not None:
            lag = (self.clock - self.newest) / 1e6
        self.sums, self.newest = Counter(), None
        return sums, newest, lag

    def _newest(self, name: str, rows: pa.Table) -> int | None:
        """The newest time of rows of a stream, in microseconds; None where there is none."""
        stream = self.streams[name]
        if stream.time not in rows.column_names or not len(rows):
            return None
        micros, null, strange = to_micros(pa.repeat(pc.max(rows[stream.time]), 1), stream.unit)
        return None if null[0] or strange[0] else int(micros[0])


def _many(table: pa.Table | None, name: str, value: Any) -> int:
    """How many rows have this value."""
    if table is None or name not in table.column_names or not len(table):
        return 0
    return int(pc.sum(pc.equal(table[name], value)).as_py() or 0)


def _iso(micros: int) -> str | None:
    """A time as Spark reports it; None outside its years."""
    try:
        text = datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return None
    return text.replace("+00:00", "Z")
