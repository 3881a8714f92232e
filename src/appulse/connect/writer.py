"""What is written together: the answers and rejects of about a second, by a thread of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from appulse.connect.checkpoint import Record, table_blob, table_of
from appulse.connect.source import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from appulse.connect.checkpoint import CheckpointFolder
    from appulse.connect.ledger import Addition
    from appulse.connect.sinks import Sink

__all__ = ["Epoch", "Writer", "clocks_of", "pushes_of", "record_of"]

#: Epochs that wait to be written at most: then the job waits, too.
_WAITING = 4


class _Step(Protocol):
    @property
    def rows(self) -> Mapping[str, pa.Table]: ...
    @property
    def answers(self) -> pa.Table: ...
    @property
    def rejects(self) -> pa.Table | None: ...
    @property
    def unreadable(self) -> Sequence[tuple[str, Unreadable]]: ...
    @property
    def clock(self) -> int | None: ...


@dataclass
class Epoch:
    """The steps between two writes.

    For a checkpoint there are the rows of each step and the wall clock by which they were judged, how far the streams
    had come ``before``, the ``offsets`` behind them, and what the log has of these (``kept``, with ``additions`` to
    other files), all that is held after them, if it is to be saved, and before which number the log is not needed any
    more. ``written`` is called, in the thread that writes, once all is on disk.
    """

    keeps: bool = False
    before: Mapping[str, Any] | None = None
    offsets: Mapping[str, Any] | None = None
    kept: Mapping[str, Any] | None = None
    additions: Sequence[Addition] = ()
    pushes: list[tuple[Mapping[str, pa.Table], Sequence[tuple[str, Unreadable]]]] = field(default_factory=list)
    clocks: list[int | None] = field(default_factory=list)
    drained: bool = False
    meaning: str = ""
    state: Record | None = None
    needless: int | None = None
    written: Callable[[], object] | None = None
    answers: list[pa.Table] = field(default_factory=list)
    rejects: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    steps: int = 0

    def add(self, step: _Step) -> None:
        """One step more."""
        self.steps += 1
        self.rows += sum(map(len, step.rows.values())) + len(step.unreadable)
        if self.keeps:
            self.pushes.append((step.rows, step.unreadable))
            self.clocks.append(step.clock)
        if step.answers.num_columns:  # pushes that are held have none
            self.answers.append(step.answers)
        if step.rejects is not None:
            self.rejects.append(step.rejects)

    def __bool__(self) -> bool:
        return self.steps > 0


class Writer:
    """Writes epochs in order, in a thread of its own, so that nobody waits for a disk; `put` raises what it met."""

    def __init__(
        self, answers: Sink, rejects: Sink | None, log: CheckpointFolder | None = None, first: int = 0
    ) -> None:
        self._sinks, self._log = (answers, rejects), log
        self.safe: Mapping[str, Any] = {}  # offsets behind the rows that are written
        self.logged = 0  # bytes of the log since the last state
        self._number, self._shown = first, [False, False]
        self._failed: BaseException | None = None
        self._broken = False  # what follows a failure is not written, and is asked for again
        self._queue: Queue[tuple[int, Epoch] | None] = Queue(_WAITING)
        for sink in self._sinks:
            if sink is not None:
                sink.begin(first)
        self._thread = Thread(target=self._run, name="appulse-writer", daemon=True)
        self._thread.start()

    @property
    def next(self) -> int:
        """The number of the next epoch."""
        return self._number

    def put(self, epoch: Epoch) -> None:
        """Give an epoch to be written."""
        self._check()
        number, self._number = self._number, self._number + 1
        self._queue.put((number, epoch))

    def close(self) -> None:
        """Wait until all is written; raises what went wrong."""
        self._queue.put(None)
        self._thread.join()
        for sink in self._sinks:
            if sink is not None:
                sink.close()
        self._check()

    def _check(self) -> None:
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    def _run(self) -> None:
        while (given := self._queue.get()) is not None:
            if self._broken:
                continue
            try:
                self._write(*given)
            except BaseException as error:  # noqa: BLE001 - raised by the thread that gives epochs
                self._failed, self._broken = error, True

    def _write(self, number: int, epoch: Epoch) -> None:
        if self._log is not None:
            for addition in epoch.additions:
                addition.write()
            self.logged += self._log.append(record_of(number, epoch), epoch.needless)
            for addition in epoch.additions:
                addition.written()
        self._write_rows(number, epoch)
        if self._log is not None:
            self._log.settle(number)
        if self._log is not None and epoch.state is not None:
            self._log.save(epoch.state)
            self._log.forget(number + 1)
            self.logged = 0
        elif self._log is not None and epoch.needless is not None:
            self._log.forget(epoch.needless)
        self.safe = epoch.offsets or self.safe
        if epoch.written is not None:
            epoch.written()

    def write_again(self, number: int, epoch: Epoch) -> None:
        """Write the last epoch of the log, unless that has been done."""
        if self._log is not None and self._log.is_settled(number):
            self._shown = [bool(epoch.answers), bool(epoch.rejects)]
            return
        self._write_rows(number, epoch)
        if self._log is not None:
            self._log.settle(number)

    def _write_rows(self, number: int, epoch: Epoch) -> None:
        """Write the answers and rejects of an epoch."""
        for i, (sink, parts) in enumerate(zip(self._sinks, (epoch.answers, epoch.rejects), strict=True)):
            if sink is None or not parts:
                continue
            rows = pa.concat_tables(parts, promote_options="permissive")
            if len(rows) or not self._shown[i]:  # the first file shows the columns
                sink.write(number, rows)
                self._shown[i] = True


def record_of(number: int, epoch: Epoch) -> Record:
    """What the log has of an epoch."""
    steps = [[list(rows), [[stream, *bad] for stream, bad in unreadable]] for rows, unreadable in epoch.pushes]
    head: dict[str, Any] = {"steps": steps, "before": epoch.before, "offsets": epoch.kept, "drained": epoch.drained}
    head |= {"meaning": epoch.meaning, "walls": epoch.clocks}
    return Record(number, head, [table_blob(table) for rows, _ in epoch.pushes for table in rows.values()])


def pushes_of(record: Record) -> Iterator[tuple[dict[str, pa.Table], list[tuple[str, Unreadable]], int | None]]:
    """The rows of each step of a record, by stream, what could not be read, and the wall clock of the step."""
    blobs = iter(record.blobs)
    for (streams, unreadable), clock in zip(record.head["steps"], clocks_of(record), strict=False):
        yield (
            {name: table_of(next(blobs)) for name in streams},
            [(stream, Unreadable(*bad)) for stream, *bad in unreadable],
            clock,
        )


def clocks_of(record: Record) -> list[int | None]:
    """The wall clock of each step, and of the end of the streams; None where an early version kept none."""
    known: list[int | None] = record.head.get("walls") or [None] * (len(record.head["steps"]) + 1)
    return known
