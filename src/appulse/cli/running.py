"""Run a job and watch it: show its batches, keep Spark's own output in a log, stop cleanly on Ctrl-C and SIGTERM."""

from __future__ import annotations

import io
import shlex
import signal
import sys
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from appulse.cli.progress import Batch, Totals, batch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from pyspark.sql.streaming.query import StreamingQuery

    from appulse.jobs import Job

__all__ = ["RotatingLog", "StopSignal", "Stretch", "interrupts", "log_file", "same_command", "stderr_to", "watch"]

#: Settings of Spark that have an option of their own.
_SHORT = {"spark.master": "master", "spark.jars.packages": "packages", "spark.jars": "jars"}

_LOOK_EVERY = 0.2  # seconds
_MOST_BYTES = 64 << 20  # of a log, after which it goes on in a new file


class Stretch(NamedTuple):
    """What of its streams a run covers: from a checkpoint on; by ``once`` what is there, by ``drain`` to their end."""

    once: bool = False
    drain: bool = False
    checkpoint: str | None = None  # in place of the job's


def same_command(
    jobs: Sequence[Job], stretch: Stretch, options: Mapping[str, Any], settings: Mapping[str, Any] | None = None
) -> str:
    """The command by which jobs go on, with options and settings of Spark; secrets are left out."""
    from appulse.jobs.fields import is_secret

    settings, served = settings or {}, options["port"] is not None or len(jobs) > 1
    given = {_SHORT[name]: value for name, value in settings.items() if name in _SHORT}
    given |= {name: value for name, value in (stretch._asdict() | dict(options)).items() if value}
    given |= {"no-page": True} if served and options["port"] is None else {}
    parts = ["appulse", "serve" if served else "run", *(str(job.file) for job in jobs)]
    for name, value in given.items():
        parts += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    for name, value in settings.items():
        if name not in _SHORT:
            parts += ["--conf", f"{name}={'...' if is_secret(name) else value}"]
    return shlex.join(parts)


def log_file(checkpoint: str) -> Path:
    """Where the log of a run goes: beside its checkpoint if that is on this machine."""
    if "://" in checkpoint:
        return Path(tempfile.gettempdir()) / "appulse.log"
    folder = Path(checkpoint)
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder.with_name(f"{folder.name}.log")


class RotatingLog(io.TextIOBase):
    """A log that goes on in a new file once it is large, and keeps the one before."""

    def __init__(self, path: Path, most: int = _MOST_BYTES) -> None:
        self._path, self._most, self._lock = path, most, Lock()
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def write(self, text: str, /) -> int:
        """Write text; several threads may."""
        with self._lock:
            if self._file.tell() > self._most:
                self._file.close()
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
                self._file = self._path.open("a", encoding="utf-8", buffering=1)
            return self._file.write(text)

    def flush(self) -> None:
        """Nothing is held back for longer than a line."""
        if not self._file.closed:
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


@contextmanager
def stderr_to(log: Path) -> Iterator[None]:
    """Send to a log what Spark, its workers and libraries print on stderr."""
    before = sys.stderr
    with RotatingLog(log) as file:
        file.write(f"--- {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n")
        sys.stderr = file
        try:
            yield
        finally:
            sys.stderr = before


@contextmanager
def gone_with_its_jvm() -> Iterator[None]:
    """Let pass that a JVM has ended before it was asked to: systemd signals all processes of a service at once."""
    try:
        yield
    except Exception as error:
        gone = type(error).__name__ == "Py4JNetworkError" or isinstance(error, ConnectionError)
        if not gone and "stopped SparkContext" not in str(error):
            raise


class StopSignal(Event):
    """Set by the first signal that asks to stop, whose number it keeps."""

    number = 0

    @property
    def exit_code(self) -> int:
        """That of a program which the signal ended."""
        return 128 + self.number


@contextmanager
def interrupts() -> Iterator[StopSignal]:
    """An event that the first Ctrl-C or SIGTERM sets, in place of an exception; the second raises.

    SIGTERM is how `kill`, systemd, Docker and Kubernetes ask a program to end.
    """
    asked = StopSignal()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt(number)
        asked.number = number
        asked.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def watch(query: StreamingQuery, show: Callable[[Batch], object], asked_to_stop: Event) -> Totals:
    """Follow a query to its end, or stop it when asked to; raises what it failed with."""
    totals = Totals()
    seen = -1

    def report() -> None:
        nonlocal seen
        for batch in _since(seen, query):
            seen = batch.number
            totals.add(batch)
            show(batch)

    while True:
        active = query.isActive  # asked first, so that nothing is missed at the end
        report()
        if asked_to_stop.is_set():
            _stop(query)
            return totals
        if not active:
            query.awaitTermination()
            report()  # a drain answers in a run of its own what was held until the end
            return totals
        asked_to_stop.wait(_LOOK_EVERY)


def _stop(query: StreamingQuery) -> None:
    """Stop a query, unless it has ended with its JVM."""
    with gone_with_its_jvm():
        query.stop()


def _since(seen: int, query: StreamingQuery) -> list[Batch]:
    """The batches after ``seen`` that the query has reported of."""
    last: Any = query.lastProgress
    newest = None if last is None else batch_of(last)
    if newest is None or newest.number > seen + 1:
        batches = [batch_of(progress) for progress in query.recentProgress]
        return [batch for batch in batches if batch is not None and batch.number > seen]
    return [newest] if newest.number > seen else []
