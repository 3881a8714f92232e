"""The page of things that move: their tracks on a map that plays, and what happens between them or in regions."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.report.chart import LEFT, RIGHT, WIDTH, Clock, Scale, svg, time_axis
from appulse.report.page import notes, page, rounded
from appulse.report.phenomena import COLOURS, lanes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from appulse.kernels.arrays import Floats, Ints
    from appulse.report.tracks import Tracks

__all__ = ["MOST_HAPPENINGS", "Happening", "Wording", "length_unit", "tracks_page"]

MOST_HAPPENINGS, MOST_READINGS = 300, 60_000
HEIGHT = 520.0
AROUND = 10  # of the usual interval between readings: what is shown before and after a happening
SPEEDS = (1, 10, 60, 300, 1800)

_HELP = (
    "Circles: the error of a position, one standard deviation. Keys: space plays and stops, the arrows go from one to "
    "the next, Escape shows the whole map."
)


@dataclass(frozen=True)
class Happening:
    """Something of one thing or between two, by their places among the tracks; times in microseconds.

    ``mark`` is the moment that a click leads to, ``facts`` the cells of the table of what stands, ``region`` the place
    of its outline.
    """

    things: tuple[int, ...]
    begin: int
    mark: int
    end: int
    probability: float
    text: str
    facts: tuple[str, ...]
    region: int | None = None


@dataclass(frozen=True)
class Wording:
    """What a page calls its happenings: many of them, its bars, the columns of what stands, and nothing of it."""

    many: str
    bars: str
    head: tuple[str, ...]
    none: str


def tracks_page(
    tracks: Tracks,
    found: list[Happening],
    wording: Wording,
    *,
    title: str,
    remarks: list[str],
    unit: str,
    outlines: Mapping[int, list[Floats]] | None = None,
) -> str:
    """One HTML page, by itself: ``found`` are in order of importance, ``remarks`` is said above the map."""
    around = _around(tracks)
    shown = found[:MOST_HAPPENINGS]
    rows = _rows(tracks, shown, around)
    while len(rows) > MOST_READINGS and len(shown) > 1:
        shown = shown[: len(shown) // 2]
        rows = _rows(tracks, shown, around)
    if len(found) > len(shown):
        remarks = [
            *remarks,
            f"Left out: {len(found) - len(shown):,} of {len(found):,} {wording.many}, the least probable.",
        ]
    if tracks.unusable:
        remarks = [*remarks, f"Left out: {tracks.unusable:,} readings without a key, time or place."]
    shown = sorted(shown, key=lambda one: (one.begin, one.mark, one.things))
    clock = Clock(tracks.stamps, tracks.zone)
    body = notes([*remarks, clock.remark]) + _body(shown, tracks, clock, wording)
    return page(title, body, _data(shown, tracks, rows, around, wording, unit, outlines or {}), "tracks_page.js")


def length_unit(tracks: Tracks, unit: str) -> str:
    """The unit of the map: metres on Earth."""
    return "m" if tracks.earth else unit


def _around(tracks: Tracks) -> int:
    """How long before and after a happening readings are shown, in microseconds."""
    gaps = np.diff(tracks.micros)[np.diff(tracks.thing) == 0]
    return max(1, AROUND * int(np.median(gaps))) if len(gaps) else 1


def _rows(tracks: Tracks, shown: list[Happening], around: int) -> Ints:
    """The readings around some happenings, and one more at each end."""
    kept = np.zeros(len(tracks.thing), bool)
    for one in shown:
        for thing in one.things:
            mine = tracks.of(thing)
            first, last = np.searchsorted(tracks.micros[mine], (one.begin - around, one.end + around))
            kept[max(mine.start + first - 1, mine.start) : min(mine.start + last + 1, mine.stop)] = True
    return np.flatnonzero(kept)


def _data(
    shown: list[Happening],
    tracks: Tracks,
    rows: Ints,
    around: int,
    wording: Wording,
    unit: str,
    outlines: Mapping[int, list[Floats]],
) -> dict[str, Any]:
    """What the script reads: times in milliseconds from the first reading that is shown."""
    zero = int(tracks.micros[rows].min())
    seen: dict[int, int] = {}
    for one in shown:
        for thing in one.things:
            seen.setdefault(thing, len(seen))
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
    drawn = {region: place for place, region in enumerate(dict.fromkeys(one.region for one in shown))}
    rings = [ring for region in drawn if region is not None for ring in outlines[region] if len(ring)]
    places, *corners = tracks.together(tracks.at[rows], rings)
    return {
        "zero": zero / 1000,
        "stamps": tracks.stamps,
        "length": int(tracks.micros[rows].max() - zero) // 1000,
        "around": around // 1000,
        "unit": unit,
        "latitude": None if tracks.centre is None else np.radians(tracks.centre[1]),
        "head": wording.head,
        "none": wording.none,
        "height": HEIGHT,
        "width": WIDTH,
        "box": rounded(_box(places, corners), 8),
        "scale": [LEFT, WIDTH - RIGHT],
        "things": things,
        "regions": [
            [[rounded(corner, 8) for corner in ring] for ring in outlines[region]]
            for region in drawn
            if region is not None
        ],
        "happenings": [
            {
                "things": [seen[thing] for thing in one.things],
                "times": [(when - zero) // 1000 for when in (one.begin, one.mark, one.end)],
                "facts": one.facts,
                "region": None if one.region is None else drawn[one.region],
                "colour": place % COLOURS,
            }
            for place, one in enumerate(shown)
        ],
    }


def _box(at: Floats, outlines: list[Floats]) -> list[float]:
    """Around places and outlines, as far as these do not make it more than three times as wide."""
    low, high = at.min(axis=0), at.max(axis=0)
    wide = max(high - low)
    if outlines:
        corners = np.concatenate(outlines)
        low = np.minimum(low, np.maximum(corners.min(axis=0), low - wide))
        high = np.maximum(high, np.minimum(corners.max(axis=0), high + wide))
    return [*low.tolist(), *high.tolist()]


def _body(shown: list[Happening], tracks: Tracks, clock: Clock, wording: Wording) -> str:
    speeds = "".join(f"<option{' selected' * (speed == 60)}>{speed}</option>" for speed in SPEEDS)
    many = wording.many.capitalize()
    items = "".join(
        f'<li><button type="button" style="border-color:var(--p{row % COLOURS})">{escape(one.text)}</button></li>\n'
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
{svg('<g id="view"></g>', HEIGHT, f"Map of {len(tracks.names)} moving things and their {wording.many}", name="map")}
<h2>{many} over time</h2>
{_timeline(shown, clock, many)}
<p>{escape(wording.bars)} {_HELP}</p>
</section><section aria-label="{many}">
<h2>Now</h2>
<div id="standing" class="standing" aria-live="polite"></div>
<h2 id="events-title">{many}: {len(shown):,}</h2>
<ol id="events" aria-labelledby="events-title">
{items}</ol>
</section></div>"""


def _timeline(shown: list[Happening], clock: Clock, many: str) -> str:
    """A bar each, on as many lines as overlap."""
    x = Scale(float(min(one.begin for one in shown)), float(max(one.end for one in shown)), LEFT, WIDTH - RIGHT)
    lane_of = lanes((one.begin, one.end) for one in shown)
    number = 1 + max(lane_of.values())
    height = max(3.0, min(12.0, 120.0 / number))
    bottom = 10 + number * height
    bars = [
        f'<rect class="life" x="{x(float(one.begin))}" y="{8 + lane_of[row] * height:.1f}" '
        f'width="{max(x(float(one.end)) - x(float(one.begin)), 2):.2f}" height="{height - 1:.1f}" '
        f'style="fill:var(--p{row % COLOURS});fill-opacity:{0.25 + 0.75 * one.probability:.2f}"/>'
        for row, one in enumerate(shown)
    ]
    cursor = f'<path id="cursor" class="cursor" d="M0 4V{bottom:g}"/>'
    content = time_axis(clock, x, bottom, 8) + "\n".join(bars) + cursor
    return svg(content, bottom + 20, f"{many} over time", name="timeline")
