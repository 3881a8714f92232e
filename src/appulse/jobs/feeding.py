"""Recordings for Spark: rows are written as files to a folder when they are due, and Spark reads the folder."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from appulse.errors import JobError, StorageError
from appulse.jobs.resident_io import recorded
from appulse.model.defects import UNDECODED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from appulse.connect.recorded import Recorded
    from appulse.connect.source import Unreadable
    from appulse.jobs.job import Job
    from appulse.jobs.sources import ReplayTable

__all__ = ["Feeder"]

#: In the checkpoint.
FOLDER = "appulse-replay"
#: Seconds between two files of a stream, and rows of a file at most.
_EVERY = 0.5
_ROWS = 1 << 19
_MESSAGE = pa.struct([("detail", pa.string()), ("payload", pa.string())])


class Feeder:
    """Recordings of a job, by stream. The name of a file has the offset behind its rows: the next one goes on there."""

    def __init__(self, job: Job, tables: Mapping[str, ReplayTable], checkpoint: str) -> None:
        if "://" in checkpoint:
            raise JobError(
                f"{job.file}: sources.{next(iter(tables))} is a replay, whose rows are kept in the checkpoint, and "
                f"{checkpoint} is not on this machine. Give a checkpoint that is."
            )
        self.folders = {name: Path(checkpoint) / FOLDER / name for name in tables}
        self._recorded: Recorded = recorded(job, tables, rows=_ROWS)
        self._stop = Event()
        self._thread: Thread | None = None
        offsets = {}
        for name, folder in self.folders.items():
            folder.mkdir(parents=True, exist_ok=True)
            there = [int(file.stem) for file in folder.glob("[0-9]*.parquet")]
            offsets[name] = max(there, default=0)
            if not there:  # Spark wants to know the columns
                self._put(name, self._recorded.schema(name).empty_table(), [], 0)
        self._recorded.begin(offsets)

    @property
    def clock(self) -> tuple[tuple[int, float], float] | None:
        """The time of the first row (microseconds) and when it was due, and the speed; None where rows do not wait."""
        pace = self._recorded.pace
        return None if pace.began is None or not pace.waits else (pace.began, pace.speed)

    def start(self, failed: Callable[[Exception], None]) -> None:
        """Write rows as they are due; ``failed`` gets the error where that fails."""
        self._thread = Thread(target=self._run, args=(failed,), name="appulse-replay", daemon=True)
        self._thread.start()

    def all(self) -> None:
        """Write all rows now."""
        self._recorded.pace.speed = float("inf")
        while not self._recorded.ended:
            self._write()

    def close(self) -> None:
        """Stop; what is written stays."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, failed: Callable[[Exception], None]) -> None:
        try:
            while not (self._recorded.ended or self._stop.is_set()):
                self._write()
                if self._recorded.pace.waits:
                    self._stop.wait(_EVERY)
        except Exception as error:  # noqa: BLE001 - who waits for the query raises it
            failed(error)

    def _write(self) -> None:
        for one in self._recorded.take(0.0):
            self._put(one.stream, one.rows, one.unreadable, one.offset)

    def _put(self, name: str, rows: pa.Table, unreadable: Sequence[Unreadable], offset: int) -> None:
        file = self.folders[name] / f"{offset:012d}.parquet"
        hidden = file.with_name(f".{file.name}")
        try:
            pq.write_table(
                _with_messages(rows, unreadable), hidden, coerce_timestamps="us", allow_truncated_timestamps=True
            )
            hidden.replace(file)
        except OSError as error:
            raise StorageError(f"The replay cannot be written to {file.parent}: {error}") from error


def _with_messages(rows: pa.Table, unreadable: Sequence[Unreadable]) -> pa.Table:
    """Rows, and those that could not be decoded, in the column of such messages."""
    rows = rows.append_column(UNDECODED, pa.nulls(len(rows), _MESSAGE))
    if not unreadable:
        return rows
    messages = [{"detail": bad.detail, "payload": bad.text} for bad in unreadable]
    bad = pa.table({UNDECODED: pa.array(messages, _MESSAGE)})
    return pa.concat_tables([rows, bad], promote_options="default")
