"""Jobs and the page that shows them: what a browser gets when it comes, and what each step adds."""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Any

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

__all__ = ["Board"]

#: Seconds between two looks at what a job holds, which takes a while.
_STATE_EVERY = 0.5
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
        self._clocks: list[Resident | None] = [None for _ in jobs]
        self._states: list[tuple[float, dict[str, int]]] = [(0.0, {}) for _ in jobs]
        self._lock = Lock()
        self.feed = Feed(self._first)

    def watcher(self, number: int, resident: Resident) -> Callable[[Step], None]:
        """What a job calls with each of its steps."""
        self._clocks[number] = resident

        def seen(step: Step) -> None:
            self._seen(number, step, resident)

        return seen

    def end(self, text: str) -> None:
        """Say that nothing more comes."""
        self.feed.publish({"type": "end", "text": text})

    def _seen(self, number: int, step: Step, resident: Resident) -> None:
        at, state = self._states[number]
        if time.monotonic() - at > _STATE_EVERY:
            state = resident.call.state()
            self._states[number] = time.monotonic(), state
        message = self._shown[number].step(step.rows, step.answers, step.rejects, resident.call.counted(), state)
        message |= {"type": "step", "job": number}
        with self._lock:
            things = self._things[number]
            for one in message["things"]:
                things[one[0], one[1]] = one
            while len(things) > _MOST_THINGS:
                del things[next(iter(things))]
            self._events[number] = [*self._events[number], *message["events"]][-_MOST_EVENTS:]
            self._last[number] = message
        self.feed.publish(message)

    def _hellos(self) -> list[Any]:
        """What there is to know of each job.

        ``clock`` is that of a replay: a time in milliseconds, when it was due (seconds since 1970), and the speed.
        """
        found = []
        for shown, resident in zip(self._shown, self._clocks, strict=True):
            sources = [] if resident is None else resident.sources
            paces = [source.pace for source in sources if isinstance(source, Recorded) and source.pace.waits]
            began = next(((pace.began, pace.speed) for pace in paces if pace.began is not None), None)
            clock = None if began is None else [began[0][0] / 1000, began[0][1], began[1]]
            found.append(shown.hello | {"clock": clock})
        return found

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
