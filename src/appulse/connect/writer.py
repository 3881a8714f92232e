"""What is written together: the answers and rejects of about a second, by a thread of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

    from appulse.connect.sinks import Sink

__all__ = ["Epoch", "Writer"]

#: Epochs that wait to be written at most: then the job waits, too.
_WAITING = 4


class _Step(Protocol):
    @property
    def rows(self) -> Mapping[str, pa.Table]: ...
    @property
    def answers(self) -> pa.Table: ...
    @property
    def rejects(self) -> pa.Table | None: ...


@dataclass
class Epoch:
    """The steps between two writes."""

    answers: list[pa.Table] = field(default_factory=list)
    rejects: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    steps: int = 0

    def add(self, step: _Step) -> None:
        """One step more."""
        self.steps += 1
        self.rows += sum(map(len, step.rows.values()))
        if step.answers.num_columns:  # pushes that are held have none
            self.answers.append(step.answers)
        if step.rejects is not None:
            self.rejects.append(step.rejects)

    def __bool__(self) -> bool:
        return self.steps > 0

    @property
    def answer_rows(self) -> int:
        """How many answers there are."""
        return sum(map(len, self.answers))

    @property
    def rejected_rows(self) -> int:
        """How many rejects there are."""
        return sum(map(len, self.rejects))


class Writer:
    """Writes epochs in order, in a thread of its own, so that nobody waits for a disk; `put` raises what it met."""

    def __init__(self, answers: Sink, rejects: Sink | None, first: int = 0) -> None:
        self._sinks = answers, rejects
        self._number, self._shown = first, [False, False]
        self._failed: BaseException | None = None
        self._queue: Queue[tuple[int, Epoch] | None] = Queue(_WAITING)
        self._thread = Thread(target=self._run, name="appulse-writer", daemon=True)
        self._thread.start()

    def put(self, epoch: Epoch) -> int:
        """Give an epoch to be written; its number."""
        self._check()
        number, self._number = self._number, self._number + 1
        self._queue.put((number, epoch))
        return number

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
            if self._failed is not None:
                continue  # what follows a failure is not written, and asked for again
            try:
                self._write(*given)
            except BaseException as error:  # noqa: BLE001 - raised by the thread that gives epochs
                self._failed = error

    def _write(self, number: int, epoch: Epoch) -> None:
        for i, (sink, parts) in enumerate(zip(self._sinks, (epoch.answers, epoch.rejects), strict=True)):
            if sink is None or not parts:
                continue
            rows = pa.concat_tables(parts, promote_options="permissive")
            if len(rows) or not self._shown[i]:  # the first file shows the columns
                sink.write(number, rows)
                self._shown[i] = True
