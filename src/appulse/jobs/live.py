"""Jobs and the page that shows them: what a browser gets when it comes, and what each step adds."""

from __future__ import annotations

import time
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

from appulse.connect.page_server import Feed
from appulse.connect.recorded import Recorded
from appulse.errors import AppulseError
from appulse.jobs.by_hand import read_files
from appulse.model.regions import QUERY, REGION
from appulse.model.uncertainty import Position
from appulse.report.live import Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from appulse.jobs.job import Job
    from appulse.jobs.resident import Resident, Step

__all__ = ["Board", "Clock"]

#: Of a replay: the time of its first row (microseconds) and when that was due (seconds since 1970), and its speed.
Clock: TypeAlias = "tuple[tuple[int, float], float] | None"
#: Seconds between two looks at what a job holds, which takes a while.
_STATE_EVERY = 0.5
#: Seconds between two looks at where most things are.
_BOX_EVERY = 1.0
#: Things and events of a job that a browser gets when it comes.
_MOST_THINGS, _MOST_EVENTS = 5_000, 60


class Board:
    """What is known of jobs that run, for browsers that come at any time."""

    def __init__(self, jobs: Sequence[Job], title: str) -> None:
        self.title = title
        self._shown = [_shown(job) for job in jobs]
        self._things: list[dict[tuple[int, str], list[Any]]] = [{} for _ in jobs]
        self._events: list[list[Any]] = [[] for _ in jobs]
        self._last: list[dict[str, Any] | None] = [None for _ in jobs]
        self._boxed: list[tuple[float, dict[str, Any]]] = [(0.0, {}) for _ in jobs]
        self._late: list[float | None] = [None for _ in jobs]
        self._clocks: list[Callable[[], Clock] | None] = [None for _ in jobs]
        self._lock = Lock()
        self.feed = Feed(self._first)

    def watcher(self, number: int, resident: Resident) -> Callable[[Step], None]:
        """What a job in process calls with each of its steps."""
        self._clocks[number] = partial(_clock_of, resident)
        looked, state = 0.0, resident.call.state()

        def seen(step: Step) -> None:
            nonlocal looked, state
            if time.monotonic() - looked > _STATE_EVERY:
                looked, state = time.monotonic(), resident.call.state()
            rows = sum(map(len, step.rows.values())) + len(step.unreadable)
            rejects = 0 if step.rejects is None else len(step.rejects)
            counts = {"rows": rows, "answers": len(step.answers), "rejects": rejects}

            def message(shown: Shown) -> dict[str, Any]:
                shown.count(counts, step.counted)
                return shown.message(step.rows, step.answers, step.rejects, state)

            self.update(number, message)

        return seen

    def clocked(self, number: int, clock: Clock) -> None:
        """Say how a replay goes."""
        self._clocks[number] = lambda: clock

    def update(self, number: int, make: Callable[[Shown], dict[str, Any]]) -> None:
        """Publish the message that is made of what is shown of a job, which one thread at a time may change."""
        with self._lock:
            shown, things = self._shown[number], self._things[number]
            message = {"type": "step", "job": number, "sent": time.time(), **make(shown)}
            for one in message["things"]:
                things[one[0], one[1]] = one
            while len(things) > _MOST_THINGS:
                del things[next(iter(things))]
            if time.monotonic() - self._boxed[number][0] > _BOX_EVERY or not self._boxed[number][1]:
                self._boxed[number] = time.monotonic(), shown.boxes(things.values())
            message["boxes"] = self._boxed[number][1]
            message["figures"] = shown.figures(len(things), message["state"], self._behind(number, message))
            self._events[number] = [*self._events[number], *message["events"]][-_MOST_EVENTS:]
            self._last[number] = message
        self.feed.publish(message)

    def _behind(self, number: int, message: dict[str, Any]) -> float | None:
        """By how many seconds a replay is late with the rows of a message, or with those before; None for others."""
        clock = self._clocks[number]
        given = None if clock is None else clock()
        if message["now"] is not None and given is not None:
            (zero, since), speed = given
            due = since + (message["now"][0] * 1000 - zero) / 1e6 / speed
            self._late[number] = max(0.0, message["sent"] - due)
        return self._late[number]

    def end(self, text: str) -> None:
        """Say that nothing more comes."""
        self.feed.publish({"type": "end", "text": text})

    def _hellos(self) -> list[Any]:
        """What there is to know of each job.

        ``clock`` is that of a replay: a time in milliseconds, when it was due (seconds since 1970), and the speed.
        """
        clocks = [None if one is None else one() for one in self._clocks]
        return [
            shown.hello | {"clock": None if one is None else [one[0][0] / 1000, one[0][1], one[1]]}
            for shown, one in zip(self._shown, clocks, strict=True)
        ]

    def _first(self) -> list[Any]:
        """What a browser that comes gets."""
        with self._lock:
            hello = {"type": "hello", "title": self.title, "jobs": self._hellos()}
            known = [
                last | {"things": list(things.values()), "events": events}
                for last, things, events in zip(self._last, self._things, self._events, strict=True)
                if last is not None
            ]
        return [hello, *known]


def _clock_of(resident: Resident) -> Clock:
    paces = [source.pace for source in resident.sources if isinstance(source, Recorded) and source.pace.waits]
    return next(((pace.began, pace.speed) for pace in paces if pace.began is not None), None)


def _shown(job: Job) -> Shown:
    """What a page shows of a job."""
    table = job.table
    fences: pa.Table | None = None
    sensors = None
    if table.fence_events is not None:
        fences = table.fence_events.fences(job.place)
    elif table.match_queries is not None and table.match_queries.changes is None:
        fences = table.match_queries.queries(job.place)
    if fences is not None and not {QUERY, REGION} <= set(fences.column_names):
        fences = None
    if table.phenomena is not None and table.phenomena.locations is not None:
        (source,) = table.sources.values()
        given = None if table.phenomena.place is None else table.phenomena.place.build()
        place = given if isinstance(given, Position) else None
        try:
            locations = read_files(job, table.phenomena.locations, "phenomena.locations")
        except AppulseError:  # the job itself says so
            locations = None
        if locations is not None and source.key in locations.column_names:
            sensors = (locations, source.key, place)
    return Shown(job.file.stem, table.operator, table.streams(), fences, sensors)
