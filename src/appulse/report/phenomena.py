"""Events of phenomena as what stands when: from each event to the next, with a colour of its own at any moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.errors import BadArgument
from appulse.report.page import isolated
from appulse.report.readings import micros_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

__all__ = ["Happening", "Phenomenon", "coloured", "lanes", "largest", "phenomena_of", "thinned"]

NEEDED = ("phenomenon", "time", "value", "sensors", "centroid", "hull", "velocity")
COLOURS = 5  # of the page's style; more at once are told apart by their dashes


@dataclass(frozen=True)
class Happening:
    """An event and what stands from it on; ``merged`` and ``split`` are numbers of other phenomena of the group."""

    time: int
    kind: str
    row: dict[str, Any]
    came: int = 0
    went: int = 0


@dataclass
class Phenomenon:
    """A phenomenon's life; ``end`` is None while it stands, ``value`` is that of its first event."""

    name: str
    value: Any
    events: list[Happening] = field(default_factory=list)
    end: int | None = None
    colour: int = 0

    @property
    def begin(self) -> int:
        return self.events[0].time

    @property
    def most(self) -> int:
        """Sensors at once."""
        return max(len(event.row["sensors"] or ()) for event in self.events)


def phenomena_of(events: pa.Table) -> list[Phenomenon]:
    """The phenomena of a table of events or of regions, by begin."""
    if missing := [name for name in NEEDED if name not in events.column_names]:
        raise BadArgument(
            f"The events have no column {', '.join(missing)}. They have: {', '.join(events.column_names)}. Give what "
            "appulse.phenomena() answers."
        )
    micros, timed = micros_of(events, "time")
    groups = [name for name in events.column_names if name not in (*NEEDED, "event", "merged", "split")]
    rows = [(int(micros[place]), row) for place, row in enumerate(events.to_pylist()) if timed[place]]
    rows.sort(key=lambda row: row[0])
    happened = _kinds(rows, groups) if "event" not in events.column_names else [(t, r["event"], r) for t, r in rows]
    found: dict[tuple[Any, ...], Phenomenon] = {}
    for time, kind, row in happened:
        group = [row[name] for name in groups]
        name = " ".join([*map(isolated, group), f"#{row['phenomenon']}"])
        one = found.setdefault((*group, row["phenomenon"]), Phenomenon(name, row["value"]))
        before = set(one.events[-1].row["sensors"] or ()) if one.events else set()
        now = set(row["sensors"] or ())
        one.events.append(Happening(time, kind, row, len(now - before), len(before - now)))
        one.end = time if kind == "disappears" else None
    return sorted(found.values(), key=lambda one: one.begin)


def _kinds(rows: list[tuple[int, dict[str, Any]]], groups: list[str]) -> list[tuple[int, str, dict[str, Any]]]:
    """Regions as events: what was not there a tick before appears, what is not there a tick later disappears."""
    ticks: dict[tuple[Any, ...], dict[int, dict[int, dict[str, Any]]]] = {}
    for time, row in rows:
        ticks.setdefault(tuple(row[name] for name in groups), {}).setdefault(time, {})[row["phenomenon"]] = row
    happened = []
    for of_group in ticks.values():
        before: dict[int, dict[str, Any]] = {}
        for time, now in of_group.items():
            happened += [(time, "disappears", row) for number, row in before.items() if number not in now]
            for number, row in now.items():
                if number not in before:
                    happened.append((time, "appears", row))
                elif row["sensors"] != before[number]["sensors"]:
                    happened.append((time, "moves", row))
            before = now
    return sorted(happened, key=lambda event: event[0])


def largest(phenomena: list[Phenomenon], most: int) -> list[Phenomenon]:
    """So many of them, those with most sensors at once, of two the earlier."""
    kept = {id(one) for one in sorted(phenomena, key=lambda one: (-one.most, one.begin))[:most]}
    return [one for one in phenomena if id(one) in kept]


def thinned(phenomena: list[Phenomenon], most: int) -> list[Phenomenon]:
    """The same with at most so many events, or two each: the first, the last, and others at even steps."""
    total = sum(len(one.events) for one in phenomena)
    if total <= most:
        return phenomena
    share = max(0.0, most - 2 * len(phenomena)) / total
    found = []
    for one in phenomena:
        steps = np.linspace(0, len(one.events) - 1, min(len(one.events), 2 + int(share * len(one.events))))
        kept = [one.events[step] for step in np.unique(steps.round().astype(int))]
        found.append(Phenomenon(one.name, one.value, kept, one.end))
    return found


def coloured(phenomena: list[Phenomenon]) -> None:
    """Give each a colour no other has while it stands, if possible the one that has been free for longest."""
    free_since: list[float] = [-np.inf] * COLOURS
    for one in phenomena:
        free = [place for place, since in enumerate(free_since) if since <= one.begin]
        one.colour = min(free, key=free_since.__getitem__, default=len(free_since))
        if one.colour == len(free_since):
            free_since.append(-np.inf)
        free_since[one.colour] = np.inf if one.end is None else one.end


def lanes(spans: Iterable[tuple[int, int | None]]) -> dict[int, int]:
    """By place of a span (begin and end; None: open) the lane in which it meets no other."""
    until: list[float] = []
    found = {}
    for place, (begin, end) in enumerate(spans):
        lane = next((lane for lane, last in enumerate(until) if last <= begin), len(until))
        until[lane:] = [np.inf if end is None else end, *until[lane + 1 :]]
        found[place] = lane
    return found
