"""A job that runs in this process: rows from its sources, answers and rejects to its sinks, without Spark."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from appulse.connect.folder import Folder
from appulse.connect.writer import Epoch, Writer
from appulse.errors import CheckpointError, StateLimit, no_warnings
from appulse.jobs.by_hand import by_hand
from appulse.jobs.checked import refusal
from appulse.jobs.figures import Figures, Step, Summary
from appulse.jobs.in_process import only_on_spark
from appulse.jobs.resident_io import sinks_of, sources_of
from appulse.jobs.saver import Saver
from appulse.model.defects import NOT_DECODED
from appulse.windows.future import clock_held, wall_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from appulse.connect.source import Source, Taken, Unreadable
    from appulse.jobs.job import Job

__all__ = ["Resident", "Step", "Summary"]

#: Seconds between two writes: what came in between is one file of a sink.
COMMIT_EVERY = 1.0
#: Rows that come between two writes at most.
COMMIT_ROWS = 1 << 18
#: Seconds that a job waits for rows before it looks whether it is to stop.
WAIT = 0.05


@dataclass
class Resident:
    """A job in this process. ``on_step`` gets each `Step` as it happens, ``on_write`` a `Summary` of what was written.

    ``on_write`` is called in another thread, once the files are there; all such calls have ended when `run` returns.
    With a ``checkpoint``, by default the job's, it goes on where the last one ended, also after a crash.
    """

    job: Job
    on_step: Callable[[Step], object] | None = None
    on_write: Callable[[Summary], object] | None = None
    checkpoint: str | None = None
    commit_every: float = COMMIT_EVERY
    totals: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)  # of rejects

    def __post_init__(self) -> None:
        if problems := only_on_spark(self.job, self.checkpoint):
            raise refusal(self.job.file, problems)
        self.job.check_folders(self.checkpoint)
        self.checkpoint = self.checkpoint or self.job.checkpoint
        self.call = by_hand(self.job)
        self.sources = sources_of(self.job)
        self._unreadable: list[tuple[str, Unreadable]] = []
        self._figures = Figures(self.call.streams)
        self._unseen: dict[str, pa.Table] = {}  # no rows of the streams that have shown none, where columns are known
        self._offsets: dict[str, Any] = {}  # behind the rows that came in this run

    def run(self, stop: Event | None = None, *, once: bool = False, drain: bool = False, stay: bool = False) -> None:
        """Run until asked to ``stop``, or to the end of the sources.

        ``once`` takes the rows that are there now, ``drain`` also ends the streams; ``stay`` goes on when all sources
        have ended, for those who look at what there is. Raises what a source, the call or a sink raises.
        """
        stop = Event() if stop is None else stop
        saver = None if self.checkpoint is None else Saver(self.checkpoint, self.call, uuid.uuid4().hex[:8])
        try:
            writer, offsets, ended = self._begun(saver)
            if ended:
                writer.close()
                self._check_nothing_came(offsets, drain=drain)
                return
            try:
                self._begin_sources(offsets, once=once or drain)
                self._unseen = _without_rows(self.sources, offsets)
                self._loop(writer, saver, stop, once=once, drain=drain, stay=stay)
            finally:
                writer.close()
        finally:
            try:
                for source in self.sources:
                    source.close()
            finally:
                if saver is not None:
                    saver.close()

    def _begin_sources(self, offsets: Mapping[str, Any], *, once: bool) -> None:
        for source in self.sources:
            own = {name: offset for name, offset in offsets.items() if name in source.streams}
            source.begin(own, once=once)

    def _check_nothing_came(self, offsets: Mapping[str, Any], *, drain: bool) -> None:
        """Raise `CheckpointError` unless this drains once more what was drained, with nothing new in the sources."""
        if not drain:
            raise CheckpointError(
                f"The checkpoint {self.checkpoint} was drained: its streams have ended. Start with a new one."
            )
        self._begin_sources(offsets, once=True)
        if came := sorted({one.stream for one in self._take()}):
            raise CheckpointError(
                f"The checkpoint {self.checkpoint} was drained: its streams have ended, and {', '.join(came)} has new "
                "rows. Start with a new one."
            )

    def _begun(self, saver: Saver | None) -> tuple[Writer, dict[str, Any], bool]:
        """The writer, the offsets to go on from, and whether the streams have ended."""
        sinks = sinks_of(self.job, uuid.uuid4().hex[:8] if saver is None else saver.run)
        if saver is None:
            return Writer(*sinks), {}, False
        return saver.resume(lambda first: Writer(*sinks, saver.log, first), self._again)

    def _loop(self, writer: Writer, saver: Saver | None, stop: Event, *, once: bool, drain: bool, stay: bool) -> None:
        def fresh() -> Epoch:
            return Epoch() if saver is None else saver.begin()

        epoch, written = fresh(), time.monotonic()
        while not stop.is_set():
            taken = self._take()
            if taken:
                epoch.add(self._step(taken))
            self._offsets |= {one.stream: one.offset for one in taken}
            if saver is not None:
                saver.taken(self._offsets)
            over = not taken and self._over(once=once or drain)
            if over or epoch.rows >= COMMIT_ROWS or time.monotonic() - written >= self.commit_every:
                if epoch:
                    self._write(writer, saver, epoch, time.monotonic() - written)
                    epoch = fresh()
                written = time.monotonic()
            if over and not stay:
                break
        if drain and not stop.is_set():
            if self._unseen and len(self.call.streams) > 1:
                epoch.add(self._step(()))
            epoch.add(self._ended())
            epoch.pushes, epoch.drained = epoch.pushes[:-1], True
        if epoch:
            self._write(writer, saver, epoch, time.monotonic() - written)

    def _again(
        self, rows: Mapping[str, pa.Table] | None, unreadable: Sequence[tuple[str, Unreadable]], clock: int | None
    ) -> Step:
        """A step of the log, or the end of the streams, once more, at the wall clock it had: nobody is shown it."""
        self._unreadable += unreadable
        with clock_held(clock), no_warnings():
            answers = self.call.drain() if rows is None else self.call.push(**rows)
        self.call.counted()  # what follows is counted from here
        return Step(rows or {}, answers, self._rejects(), 0.0, unreadable)

    def _take(self) -> list[Taken]:
        """Rows of all sources; where none has any, what the first has a little later."""
        found = [one for source in self.sources for one in source.take(0.0)]
        return found or [*self.sources[0].take(WAIT)]

    def _over(self, *, once: bool) -> bool:
        """Whether nothing more comes, or, with ``once``, nothing that is there now."""
        return all(source.ended or (once and not source.pending) for source in self.sources)

    def _step(self, taken: Sequence[Taken]) -> Step:
        begun = time.perf_counter()
        rows: dict[str, pa.Table] = {}
        unreadable = [(one.stream, bad) for one in taken for bad in one.unreadable]
        self._unreadable += unreadable
        for one in taken:
            before = rows.get(one.stream)
            rows[one.stream] = one.rows if before is None else pa.concat_tables([before, one.rows])
        rows, self._unseen = self._unseen | rows, {}
        clock = wall_clock()
        with clock_held(clock):
            answers = self.call.push(**rows)
        self._check_state()
        took, counted = time.perf_counter() - begun, self.call.counted()
        return self._done(Step(rows, answers, self._rejects(), took, unreadable, clock, counted))

    def _ended(self) -> Step:
        begun = time.perf_counter()
        clock = wall_clock()
        with clock_held(clock):
            answers = self.call.drain()
        took, counted = time.perf_counter() - begun, self.call.counted()
        return self._done(Step({}, answers, self._rejects(), took, clock=clock, counted=counted))

    def _check_state(self) -> None:
        """Raise `StateLimit` where more rows are held than the job's limits say; the step is not written."""
        limits = self.job.table.limits
        most = None if limits is None else limits.state_rows
        if most is not None and (held := self.call.state()["state_rows"]) > most:
            raise StateLimit(
                f"{self.job.file} holds {held:,} rows, and [limits] has state_rows = {most:,}. Shorten windows or "
                "lateness, or raise it, and start again."
            )

    def _done(self, step: Step) -> Step:
        self.totals["rows"] += sum(map(len, step.rows.values())) + len(step.unreadable)
        self.totals["answers"] += len(step.answers)
        if step.rejects is not None:
            self.reasons.update(step.rejects["reason"].to_pylist())
        self._figures.add(step, self.call.engine)
        if self.on_step is not None:
            self.on_step(step)
        return step

    def _rejects(self) -> pa.Table | None:
        """The rejects of a step, with what could not be read; None until their types are known."""
        found = self.call.take_rejects()
        if found is None or not self._unreadable:
            return found
        n, unreadable = len(self._unreadable), self._unreadable
        columns: dict[str, Any] = {
            "stream": [stream for stream, _ in unreadable],
            "key": pa.nulls(n, found.schema.field("key").type),
            "time": pa.nulls(n, found.schema.field("time").type),
            "reason": [bad.reason or NOT_DECODED for _, bad in unreadable],
            "detail": [bad.detail for _, bad in unreadable],
            "values": [bad.text for _, bad in unreadable],
        }
        self._unreadable = []
        return pa.concat_tables([found, pa.table(columns, schema=found.schema)])

    def _write(self, writer: Writer, saver: Saver | None, epoch: Epoch, seconds: float) -> None:
        epoch.offsets = dict(self._offsets)
        if saver is not None:
            saver.finish(epoch, writer.next, writer.logged)
        if self.on_write is not None:
            counts = epoch.rows, sum(map(len, epoch.answers)), sum(map(len, epoch.rejects))
            done = Summary(writer.next, *counts, seconds, self.call.state(), *self._figures.taken())
            epoch.written = partial(self.on_write, done)
        writer.put(epoch)
        for source in self.sources:
            source.settle(writer.safe)


def _without_rows(sources: Sequence[Source], offsets: Mapping[str, Any]) -> dict[str, pa.Table]:
    """An empty table of each stream whose columns are known and of which nothing was read: a call wants all streams."""
    known = {source.streams[0]: source.columns for source in sources if isinstance(source, Folder)}
    return {name: one.empty_table() for name, one in known.items() if one is not None and name not in offsets}
