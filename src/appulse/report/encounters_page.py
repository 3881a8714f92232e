"""The page of encounters: two tracks on a map that plays, their errors, and the closest approach."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.errors import BadArgument
from appulse.model.columns import floats
from appulse.model.times import is_time
from appulse.report.chart import LEFT, RIGHT, WIDTH, Clock, Scale, svg, time_axis
from appulse.report.page import empty, notes, page, rounded
from appulse.report.phenomena import COLOURS, lanes
from appulse.report.readings import micros_of, plain_table
from appulse.report.tracks import Tracks, tracks_of

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["encounters_page"]

NEEDED = ("left_key", "right_key", "start", "end", "closest_time", "closest_distance", "probability")
MOST_ENCOUNTERS, MOST_READINGS = 300, 60_000
HEIGHT = 520.0
AROUND = 10  # of the usual interval between readings: what is shown before and after an encounter
SPEEDS = (1, 10, 60, 300, 1800)

_HELP = (
    "<p>A bar is an encounter, the darker the more probable. Circles: the error of a position, one standard deviation. "
    "Keys: space plays and stops, the arrows go from one encounter to the next, Escape shows the whole map.</p>"
)


@dataclass(frozen=True)
class Encounter:
    """A row of the results; times in microseconds, things by their place among the tracks."""

    left: int
    right: int
    begin: int
    end: int
    closest: int
    distance: float
    probability: float


def encounters_page(
    encounters: Any,
    left: Any,
    right: Any = None,
    *,
    title: str = "Encounters",
    note: str = "",
    key: str | None = None,
    time: str | None = None,
    place: tuple[str, str] | None = None,
    error: str | None = None,
    unit: str = "",
) -> str:
    """One HTML page, by itself: things that move on a map that plays, and a line between those that meet.

    ``encounters`` are the results of `appulse.encounters`; ``left`` and ``right`` the readings it was given: pyarrow,
    pandas or Polars. ``key``, ``time``, ``place`` (two columns) and ``error`` name columns of the readings; they are
    found where there are ``lat`` and ``lon`` in degrees, or ``x`` and ``y``, and ``sigma``, ``error`` or ``accuracy``.
    ``unit`` is that of the place as text, metres where it is in degrees. Shown are the 300 most probable encounters and
    the readings around them; the page reports what is left out. Raises `BadArgument` where columns are missing.
    """
    table = plain_table(encounters)
    if missing := [name for name in NEEDED if name not in table.column_names]:
        raise BadArgument(
            f"The encounters have no column {', '.join(missing)}. They have: {', '.join(table.column_names)}. Give the "
            'results of appulse.encounters(), of any emit but "legs".'
        )
    tracks = tracks_of([left] if right is None else [left, right], key, time, place, error)
    if len(table) and is_time(table.schema.field("start").type) != tracks.stamps:
        raise BadArgument("The times of encounters and readings are timestamps here and numbers there. Give one kind.")
    found, unknown = _encounters(table, tracks, two=right is not None)
    if not found:
        return empty(title, "There is nothing to show: no encounter of two things with a track.")
    shown = sorted(found, key=lambda one: (-one.probability, one.distance, one.begin))[:MOST_ENCOUNTERS]
    around = _around(tracks)
    rows = _rows(tracks, shown, around)
    while len(rows) > MOST_READINGS and len(shown) > 1:
        shown = shown[: len(shown) // 2]
        rows = _rows(tracks, shown, around)
    shown.sort(key=lambda one: (one.begin, one.closest, one.left, one.right))
    clock = Clock(tracks.stamps, tracks.zone)
    told = [
        f"Left out: {len(found) - len(shown):,} of {len(found):,} encounters, the least probable."
        if len(found) > len(shown)
        else "",
        f"Left out: {unknown:,} encounters of things without a track." if unknown else "",
        f"Left out: {tracks.unusable:,} readings without a key, time or place." if tracks.unusable else "",
    ]
    length = "m" if tracks.earth else unit
    body = notes([note, " ".join(part for part in told if part)]) + _body(shown, tracks, clock, length)
    return page(title, body, _data(shown, tracks, rows, clock, around, length), "encounters_page.js")


def _encounters(table: pa.Table, tracks: Tracks, *, two: bool) -> tuple[list[Encounter], int]:
    """The rows whose things have a track, and how many have not; of changes the first ones, unless replaced."""
    if "change" in table.column_names:
        table = table.filter(floats(table["change"]) > 0)
    things = {name: place for place, name in enumerate(tracks.names)}
    keys = [table[name].cast("string").to_pylist() for name in ("left_key", "right_key")]
    times = [micros_of(table, name)[0].tolist() for name in ("start", "end", "closest_time")]
    figures = [floats(table[name]).tolist() for name in ("closest_distance", "probability")]
    found = [
        Encounter(things[0, a], things[int(two), b], *rest)
        for a, b, *rest in zip(*keys, *times, *figures, strict=True)
        if (0, a) in things and (int(two), b) in things
    ]
    return found, len(table) - len(found)


def _around(tracks: Tracks) -> int:
    """How long before and after an encounter readings are shown, in microseconds."""
    gaps = np.diff(tracks.micros)[np.diff(tracks.thing) == 0]
    return max(1, AROUND * int(np.median(gaps))) if len(gaps) else 1


def _rows(tracks: Tracks, shown: list[Encounter], around: int) -> NDArray[np.int64]:
    """The readings around some encounters, and one more at each end."""
    kept = np.zeros(len(tracks.thing), bool)
    for one in shown:
        for thing in (one.left, one.right):
            mine = tracks.of(thing)
            first, last = np.searchsorted(tracks.micros[mine], (one.begin - around, one.end + around))
            kept[max(mine.start + first - 1, mine.start) : min(mine.start + last + 1, mine.stop)] = True
    return np.flatnonzero(kept)


def _data(
    shown: list[Encounter], tracks: Tracks, rows: NDArray[np.int64], clock: Clock, around: int, unit: str
) -> dict[str, Any]:
    """What the script reads: times in milliseconds from the first reading that is shown."""
    zero = int(tracks.micros[rows].min())
    seen: dict[int, int] = {}
    for one in shown:
        seen.setdefault(one.left, len(seen))
        seen.setdefault(one.right, len(seen))
    things = []
    for thing in seen:
        mine = rows[tracks.thing[rows] == thing]
        things.append(
            {
                "name": tracks.names[thing][1],
                "t": ((tracks.micros[mine] - zero) // 1000).tolist(),
                "x": rounded(tracks.at[mine, 0], 8),
                "y": rounded(tracks.at[mine, 1], 8),
                "e": rounded(tracks.error[mine], 4),
            }
        )
    at = tracks.at[rows]
    return {
        "zero": zero / 1000,
        "stamps": clock.stamps,
        "length": int(tracks.micros[rows].max() - zero) // 1000,
        "around": around // 1000,
        "unit": unit,
        "height": HEIGHT,
        "width": WIDTH,
        "box": rounded([*at.min(axis=0), *at.max(axis=0)], 8),
        "scale": [LEFT, WIDTH - RIGHT],
        "things": things,
        "encounters": [
            {
                "things": [seen[one.left], seen[one.right]],
                "times": [(when - zero) // 1000 for when in (one.begin, one.closest, one.end)],
                "distance": rounded([one.distance], 4)[0],
                "probability": rounded([one.probability], 4)[0],
                "colour": place % COLOURS,
            }
            for place, one in enumerate(shown)
        ],
    }


def _body(shown: list[Encounter], tracks: Tracks, clock: Clock, unit: str) -> str:
    speeds = "".join(f"<option{' selected' * (speed == 60)}>{speed}</option>" for speed in SPEEDS)
    items = "".join(
        f'<li><button type="button" data-row="{row}" style="border-color:var(--p{row % COLOURS})">'
        f"{escape(_text(one, tracks, clock, unit))}</button></li>\n"
        for row, one in enumerate(shown)
    )
    return f"""<div class="columns"><section aria-label="Map and timeline">
<div class="controls">
<button id="play" type="button" aria-label="Play">Play</button>
<input id="scrub" type="range" min="0" max="10000" value="0" aria-label="Moment" style="min-width:140px">
<output id="now" for="scrub"></output>
<label>speed <select id="speed" aria-label="Times the speed of the tracks">{speeds}</select> x</label>
<button id="whole" type="button">Whole map</button>
</div>
{svg('<g id="view"></g>', HEIGHT, f"Map of {len(tracks.names)} moving things and their encounters", name="map")}
<h2>Encounters over time</h2>
{_timeline(shown, clock)}
{_HELP}
</section><section aria-label="Encounters">
<h2>Now</h2>
<div id="standing" class="standing" aria-live="polite"></div>
<h2 id="events-title">Encounters: {len(shown):,}</h2>
<ol id="events" aria-labelledby="events-title">
{items}</ol>
</section></div>"""


def _text(one: Encounter, tracks: Tracks, clock: Clock, unit: str) -> str:
    names = " and ".join(tracks.names[thing][1] for thing in (one.left, one.right))
    distance = f"{one.distance:,.4g}{f' {unit}' if unit else ''}"
    return f"{clock.text(one.closest)} · {names} · {distance} · probability {one.probability:.3g}"


def _timeline(shown: list[Encounter], clock: Clock) -> str:
    """A bar an encounter; a line of bars where they do not overlap."""
    x = Scale(float(min(one.begin for one in shown)), float(max(one.end for one in shown)), LEFT, WIDTH - RIGHT)
    lane_of = lanes([(one.begin, one.end) for one in shown])
    number = 1 + max(lane_of.values())
    height = max(3.0, min(12.0, 120.0 / number))
    bottom = 10 + number * height
    told = [
        f'<rect class="life" x="{x(float(one.begin))}" y="{8 + lane_of[row] * height:.1f}" '
        f'width="{max(x(float(one.end)) - x(float(one.begin)), 2):.2f}" height="{height - 1:.1f}" '
        f'style="fill:var(--p{row % COLOURS});fill-opacity:{0.25 + 0.75 * one.probability:.2f}"/>'
        for row, one in enumerate(shown)
    ]
    cursor = f'<path id="cursor" class="cursor" d="M0 4V{bottom:g}"/>'
    content = time_axis(clock, x, bottom, 8) + "\n".join(told) + cursor
    return svg(content, bottom + 20, "When things met, over time", name="timeline")
