"""Files of readings, played again at the speed of their own times, or a multiple of it."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from appulse.arguments import POSITIVE, Count, Name, checked, either, one_of, whole
from appulse.errors import BadArgument
from appulse.model.columns import arrow_table, chunk
from appulse.model.crs import of_geoparquet
from appulse.model.geography import with_points
from appulse.model.stored_types import miscased, unlike
from appulse.model.stream import Unit
from appulse.model.times import to_micros

if TYPE_CHECKING:
    from collections.abc import Callable

    from appulse.kernels.arrays import Ints

__all__ = ["ENDINGS", "MAX", "Pace", "Recording", "read_recording", "replay"]

MAX = "max"
ENDINGS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "ipc",
    ".ipc": "ipc",
    ".feather": "ipc",
    ".orc": "orc",
}
#: Seconds between two batches at least: rows that come one by one are given out together.
BETWEEN = 0.01
_GRAIN = 1e-6  # seconds: what is due so soon is due
_Speed: TypeAlias = Annotated[float | Literal["max"], either(POSITIVE, one_of(MAX))]
_Skip: TypeAlias = Annotated[int, whole(0)]


@checked
def replay(
    frame: Any,
    *,
    time: Name,
    unit: Unit = "s",
    speed: _Speed = 1.0,
    rows: Count = 65_536,
    skip: _Skip = 0,
) -> Iterator[pa.RecordBatch]:
    """Replay rows at the pace of their own times, as batches.

    Arguments:
    * ``frame``: a path to a file or to a folder of files (Parquet, CSV, lines of JSON, Arrow, ORC, by their endings),
      or a pyarrow, pandas or Polars table; it is held in memory.
    * ``time``: the column that rows are ordered by; equal times keep the order of the file. A row without a time comes
      with the row before it.
    * ``unit``: the unit of times that are plain numbers.
    * ``speed``: a multiple of the rows' clock: 60 plays an hour in a minute, and ``"max"`` does not wait. A slow
      consumer gets more rows in the next batch: nothing is dropped.
    * ``rows``: the greatest number of rows in a batch.
    * ``skip``: the number of rows to leave out at the start; the next one is due at once.

    Yields `pyarrow.RecordBatch` objects with the columns of the frame. Raises `BadArgument` for a file that cannot be
    read, or without the column.

    >>> rows = pa.table({"mmsi": [1, 2, 1], "t": [0, 1, 2], "x": [0.0, 0.5, 9.0]})
    >>> ships = ap.Stream(None, key="mmsi", time="t", value="x")
    >>> join = ap.SimilarityJoin(ships, epsilon=1, probability=1, window="1 minute", different="mmsi")
    >>> sum(join.push(pa.table(batch)).num_rows for batch in ap.replay(rows, time="t", speed="max"))
    1
    """
    recording = Recording.of(frame, time, unit)
    return _batches(recording, Pace(speed), rows, skip)


def _batches(recording: Recording, pace: Pace, rows: int, at: int) -> Iterator[pa.RecordBatch]:
    if at < len(recording):
        pace.begin(int(recording.due[at]))
    while at < len(recording):
        pace.wait_for(int(recording.due[at]))
        part = recording.until(at, max(pace.now(), int(recording.due[at])), rows)
        at += len(part)
        yield from part.combine_chunks().to_batches()


@dataclass(frozen=True)
class Recording:
    """Rows in order of time; ``due`` are their times in microseconds."""

    table: pa.Table
    due: Ints

    def __len__(self) -> int:
        return len(self.due)

    @staticmethod
    def of(frame: Any, time: str, unit: str) -> Recording:
        """The rows of a path or a table; raises `BadArgument`."""
        table = read_recording(Path(frame)) if isinstance(frame, str | Path) else arrow_table(with_points(frame))
        if table is None:
            kind = f"{type(frame).__module__}.{type(frame).__name__}"
            raise BadArgument(f"replay() got a {kind}. Give a path, or a pyarrow, pandas or Polars table.")
        if time not in table.column_names:
            raise BadArgument(f"There is no column {time!r} of times. There are: {', '.join(table.column_names)}.")
        micros, null, strange = to_micros(chunk(table[time]), unit)
        timed = ~(null | strange)
        if not timed.all():  # with the row before; the first ones with the first that has a time
            known = np.flatnonzero(timed)
            before = np.searchsorted(known, np.arange(len(micros)), "right") - 1
            micros = micros[known[np.maximum(before, 0)]] if len(known) else np.zeros(len(micros), np.int64)
        if (np.diff(micros) < 0).any():
            order = np.argsort(micros, kind="stable")
            table, micros = table.take(pa.array(order)), micros[order]
        return Recording(table, micros)

    def until(self, at: int, now: int, most: int) -> pa.Table:
        """The rows from one on that are due, at most so many."""
        end = int(np.searchsorted(self.due, now, "right"))
        return self.table.slice(at, max(0, min(end - at, most)))


class Pace:
    """Which of the times of rows is now. ``sleep`` and ``watch`` (in seconds) are for tests."""

    def __init__(
        self,
        speed: float | str,
        sleep: Callable[[float], object] = clock.sleep,
        watch: Callable[[], float] = clock.monotonic,
    ) -> None:
        self.speed = float("inf") if isinstance(speed, str) else speed
        self._sleep, self._watch = sleep, watch
        self._zero, self._since, self._last = 0, 0.0, -1.0
        self.began: tuple[int, float] | None = None  # the time of the first row, and when it was due, since 1970

    @property
    def waits(self) -> bool:
        """Whether rows wait until they are due."""
        return self.speed < float("inf")

    def begin(self, micros: int) -> None:
        """A row of this time is due now."""
        self._zero, self._since, self._last = micros, self._watch(), -1.0
        self.began = micros, clock.time()

    def now(self) -> int:
        """Rows up to this time (microseconds) are due."""
        if not self.waits:
            return 1 << 62
        passed = self._watch() - self._since
        return self._zero + int(min(passed * self.speed * 1e6, 2.0**61))

    def until(self, micros: int) -> float:
        """Seconds until a row of a time is due; 0 if it is."""
        if not self.waits:
            return 0.0
        return max(0.0, (micros - self._zero) / (self.speed * 1e6) - (self._watch() - self._since))

    def wait_for(self, micros: int) -> None:
        """Sleep until a row of this time is due, and not less than a batch's time after the last one."""
        if not self.waits:
            return
        rest = max(self.until(micros), self._last + BETWEEN - self._watch() if self._last >= 0 else 0.0)
        if rest > 0:
            self._sleep(rest)
        while (rest := self.until(micros)) > _GRAIN:  # sleep may end early
            self._sleep(rest)
        self._last = self._watch()


def read_recording(path: Path) -> pa.Table:
    """The rows of a file, or of the files of a folder in the order of their names; raises `BadArgument`."""
    import pyarrow.dataset as ds

    path = path.expanduser()
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        files = [file for file in files if file.is_file() and not file.name.startswith(("_", "."))]
        endings = {ENDINGS.get(file.suffix.lower(), "") for file in files}
        if len(endings) != 1 or "" in endings:
            there = ", ".join(sorted({file.suffix or file.name for file in files})[:8]) or "no files"
            raise BadArgument(f"{path} has {there}, wanted files of one kind. Known: {', '.join(ENDINGS)}.")
        kind = endings.pop()
        found = ds.dataset([str(file) for file in files], format=kind)
        for fragment in found.get_fragments() if kind in ("parquet", "orc") else ():
            stored = fragment.physical_schema
            if wrong := unlike(stored, found.schema, kind=kind) or miscased(stored, found.schema):
                raise BadArgument(f"{fragment.path} cannot be read: {wrong}")
        table = found.to_table().replace_schema_metadata(of_geoparquet(found.schema))
        table.validate(full=True)  # text is UTF-8
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise BadArgument(f"{path} cannot be read: {error}") from None
    return table
