"""What the page of a field plays: sensors and phenomena by frame, as plain data for its script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.report.chart import LEFT, RIGHT, WIDTH, Clock, Scale
from appulse.report.page import isolated, rounded
from appulse.report.phenomena import COLOURS, Phenomenon

if TYPE_CHECKING:
    from collections.abc import Mapping

    from appulse.kernels.arrays import Floats, Ints
    from appulse.report.readings import Readings, Sites

__all__ = ["Film", "film_data", "map_scale", "time_scale"]

MARGIN = 34  # of the map, in its own units
KINDS = {"appears": "appears", "moves": "moves", "disappears": "ends"}


@dataclass(frozen=True)
class Film:
    """All that is shown, before it is put on a page."""

    clock: Clock
    frames: Ints
    values: Floats
    sites: Sites
    readings: Readings
    phenomena: list[Phenomenon]
    unit: str
    width: float | None
    labels: Mapping[Any, str]

    def frame(self, time: int | None) -> int:
        """The first frame at or after a time; past the end where there is none."""
        return len(self.frames) if time is None else int(np.searchsorted(self.frames, time))

    def value_text(self, value: Any) -> str:
        """The value of a phenomenon: its label, or its bin where the width of bins is known."""
        if value in self.labels:
            return isolated(self.labels[value])
        if not isinstance(value, int | float) or isinstance(value, bool):
            return isolated(value)
        return f"{value:.6g}" if self.width is None else f"{value:.6g} to {value + self.width:.6g}"


def map_scale(sites: Sites) -> tuple[float, float, float, float]:
    """Units of the page per unit of the locations, where their origin lies, and the height of the map."""
    (west, south), (east, north) = sites.at.min(axis=0), sites.at.max(axis=0)
    wide, high = max(east - west, 1e-12), max(north - south, 1e-12)
    height = float(np.clip((WIDTH - 2 * MARGIN) * high / wide + 2 * MARGIN, 300, 600))
    each = min((WIDTH - 2 * MARGIN) / wide, (height - 2 * MARGIN) / high)
    if len(sites.names) == 1:
        each = 1.0
    across, up = (WIDTH - each * (west + east)) / 2, (height + each * (south + north)) / 2
    return float(each), float(across), float(up), height


def film_data(clip: Film) -> dict[str, Any]:
    """What the script reads."""
    each, across, up, _height = map_scale(clip.sites)
    known = clip.values[np.isfinite(clip.values)]
    low, high = (float(end) for end in np.quantile(known, (0.02, 0.98))) if len(known) else (0.0, 1.0)
    if clip.readings.classes:
        low, high = 0.0, float(max(len(clip.readings.classes) - 1, 1))
    place = {name: row for row, name in enumerate(clip.sites.names)}
    events = sorted((event.time, number) for number, one in enumerate(clip.phenomena) for event in one.events)
    seen: dict[int, int] = {}
    listed = []
    for time, number in events:
        seen[number] = seen.get(number, -1) + 1
        text = _event_text(clip, clip.phenomena[number], seen[number])
        listed.append([min(clip.frame(time), len(clip.frames) - 1), number, text])
    return {
        "frames": [clip.clock.text(time) for time in clip.frames.tolist()],
        "at": [round(x, 2) for x in _time_places(clip)],
        "values": [rounded(row, 5) for row in clip.values],
        "range": rounded([low, high]),
        "classes": [isolated(name) for name in clip.readings.classes],
        "sensors": [isolated(name) for name in clip.sites.names],
        "axes": f"along {', '.join(clip.sites.axes)}",
        "map": rounded([each, across, up]),
        "phenomena": [_phenomenon(clip, one, place) for one in clip.phenomena],
        "events": listed,
    }


def _phenomenon(clip: Film, one: Phenomenon, place: dict[str, int]) -> dict[str, Any]:
    """A phenomenon and its states.

    A state is: frames from and until, places of sensors, centroid, hull, speed, speed by axis, value.
    """
    ends = [event.time for event in one.events[1:]]
    states = []
    for event, until in zip(one.events, [*ends, one.end], strict=True):
        if event.kind == "disappears":
            continue
        row = event.row
        sensors = [place[str(name)] for name in row["sensors"] or () if str(name) in place]
        states.append(
            [
                clip.frame(event.time),
                clip.frame(until),
                sensors,
                rounded(row["centroid"] or (), 5),
                [rounded(corner, 5) for corner in row["hull"] or ()],
                *_speed(clip, row["velocity"]),
                clip.value_text(row["value"]),
            ]
        )
    return {
        "name": one.name,
        "colour": one.colour % COLOURS,
        "dash": one.colour // COLOURS,
        "states": states,
    }


def _speed(clip: Film, velocity: list[float] | None) -> tuple[str, str]:
    """How fast, and along each axis, per hour, minute or second, as the frames are far apart."""
    if velocity is None:
        return "", ""
    gap = float(np.median(np.diff(clip.frames))) / 1e6 if len(clip.frames) > 1 else 0.0
    seconds, name = (3600, "h") if gap >= 600 else (60, "min") if gap >= 10 else (1, "s")
    along = [part * seconds for part in velocity]
    size = float(np.linalg.norm(along))
    return f"{size:.2g} {clip.unit or 'units'}/{name}", ", ".join(f"{part:+.2g}" for part in along)


def _event_text(clip: Film, one: Phenomenon, place: int) -> str:
    event = one.events[place]
    number = len(event.row["sensors"] or ())
    parts = [
        f"{clip.clock.text(event.time)} {one.name} {KINDS.get(event.kind, event.kind)}",
        clip.value_text(event.row["value"]),
    ]
    if event.kind != "disappears":
        change = f" (+{event.came} -{event.went})" if event.kind == "moves" else ""
        parts.append(f"{number} sensor{'s' if number != 1 else ''}{change}")
    for name, what in (("merged", "goes on in"), ("split", "from")):
        if others := event.row.get(name):
            parts.append(f"{what} {', '.join(f'#{other}' for other in others)}")
    return " · ".join(parts)


def time_scale(clip: Film) -> Scale:
    """Across the timeline."""
    return Scale(float(clip.frames[0]), float(clip.frames[-1]), LEFT, WIDTH - RIGHT)


def _time_places(clip: Film) -> list[float]:
    x = time_scale(clip)
    return [x(float(time)) for time in clip.frames.tolist()]
