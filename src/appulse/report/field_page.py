"""The page of a field of sensors: an animated map of what they say and of the phenomena among them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.engines.local import as_table
from appulse.errors import BadArgument
from appulse.model.times import is_time
from appulse.report.chart import WIDTH, Clock, Scale, svg
from appulse.report.film import Film, film_data, map_scale
from appulse.report.flat import flattened
from appulse.report.page import empty, notes, page
from appulse.report.phenomena import Phenomenon, coloured, largest, phenomena_of, thinned
from appulse.report.readings import Readings, Sites, columns_of, film, fresh_for, readings_of, sites_of
from appulse.report.timeline import timeline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from appulse.kernels.arrays import Ints
    from appulse.model.uncertainty import Position

__all__ = ["phenomena_page"]

MOST_PHENOMENA, MOST_EVENTS, MOST_FRAMES, MOST_CELLS = 500, 4_000, 3_000, 600_000

_HELP = (
    "<p>Line: the sensors' median; band: from a tenth to nine tenths of them. A bar is a phenomenon, in the row of its "
    "first value. Keys: space plays and stops, the arrows go from moment to moment, Home and End to the ends.</p>"
)


def phenomena_page(
    events: Any,
    readings: Any,
    locations: Any,
    *,
    title: str = "Phenomena in a field of sensors",
    note: str = "",
    sensor: str | None = None,
    time: str | None = None,
    value: str | None = None,
    resolution: float | None = None,
    labels: Mapping[Any, str] | None = None,
    unit: str = "",
    value_unit: str = "",
    place: Position | None = None,
    frames: int = MOST_FRAMES,
) -> str:
    """One HTML page, by itself: the sensors on a map that plays through time, the phenomena outlined, their events.

    ``events`` are what `appulse.phenomena` answers (events, or regions); ``readings`` and ``locations`` the frames it
    was given: pyarrow, pandas or Polars. ``sensor``, ``time`` and ``value`` name columns of the readings, and may be
    left out where there is one choice. Phenomena are identified by their ``value``, by its bin if ``resolution`` gives
    the width of bins, or by ``labels``, texts by value. ``unit`` is that of the locations and ``value_unit`` that of
    the values, as text. With ``place``, as `appulse.phenomena` was given it, locations are degrees, and the map is
    flat: in kilometres, whatever ``unit`` is, around the middle of all sensors (azimuthal equidistant). At most
    ``frames`` moments are shown, the 500 largest phenomena, and 4,000 events; the page reports what is left out. Raises
    `BadArgument` where columns are missing.
    """
    tables = [as_table(frame) for frame in (events, readings, locations)]
    if place is not None:
        tables[0], tables[2] = flattened(tables[0], tables[2], place)
        unit = "km"
    columns = columns_of(tables[1], tables[2], sensor, time, value)
    sites = sites_of(tables[2], columns.sensor)
    known = readings_of(tables[1], columns, sites)
    found = phenomena_of(tables[0])
    stamps = [is_time(tables[0].schema.field("time").type), is_time(tables[1].schema.field(columns.time).type)]
    if len(found) and stamps[0] != stamps[1]:
        raise BadArgument("The times of events and readings are timestamps here and numbers there. Give one kind.")
    if not len(known.micros):
        return empty(title, "There is nothing to show: no reading has a time, a value and a sensor with a place.")
    shown = thinned(largest(found, MOST_PHENOMENA), MOST_EVENTS)
    coloured(shown)
    moments = np.union1d(known.micros, np.array([e.time for one in shown for e in one.events], np.int64))
    most = max(2, min(frames, MOST_CELLS // max(1, len(sites.names))))
    steps = _thinned(moments, most)
    zone = getattr(tables[1].schema.field(columns.time).type, "tz", None)
    clip = Film(
        Clock(stamps[1], "UTC" if zone else ""),
        steps,
        film(known, len(sites.names), steps),
        sites,
        known,
        shown,
        unit,
        resolution,
        labels or {},
    )
    said = f"{columns.value} in {value_unit}" if value_unit else columns.value
    remarks = [note, " ".join(_left_out(found, shown, moments, steps, known, sites)), clip.clock.remark]
    return page(title, notes(remarks) + _body(clip, said), film_data(clip), "field_page.js")


def _thinned(moments: Ints, most: int) -> Ints:
    """All moments, or so many of them at even steps, the first and last among them."""
    if len(moments) <= most:
        return moments
    return moments[np.linspace(0, len(moments) - 1, most).round().astype(np.int64)]


def _left_out(
    found: list[Phenomenon], shown: list[Phenomenon], moments: Ints, steps: Ints, readings: Readings, sites: Sites
) -> list[str]:
    remarks = []
    if len(found) > len(shown):
        remarks.append(f"Left out: {len(found) - len(shown):,} of {len(found):,} phenomena, those with fewest sensors.")
    total, listed = (sum(len(one.events) for one in some) for some in (found, shown))
    if total > listed:
        remarks.append(f"Shown are {listed:,} of {total:,} events; a region stays as it was until its next one.")
    if len(moments) > len(steps):
        remarks.append(f"Shown are {len(steps):,} of {len(moments):,} moments, at even steps.")
    for number, what in (
        (readings.unplaced, "readings of sensors without a place"),
        (readings.empty, "readings without a time or value"),
        (sites.unplaced, "rows of the locations: without a sensor or place, or a second place"),
    ):
        if number:
            remarks.append(f"Left out: {number:,} {what}.")
    if not found:
        remarks.append("No phenomenon was found; the map shows the readings.")
    return remarks


def _body(clip: Film, said: str) -> str:
    last = len(clip.frames) - 1
    speeds = "".join(f"<option{' selected' * (speed == 10)}>{speed}</option>" for speed in (2, 5, 10, 25))
    return f"""<div class="columns"><section aria-label="Map and timeline">
<div class="controls">
<button id="play" type="button" aria-label="Play">Play</button>
<input id="scrub" type="range" min="0" max="{last}" value="0" aria-label="Moment" style="min-width:140px">
<output id="now" for="scrub"></output>
<label>speed <select id="speed" aria-label="Frames a second">{speeds}</select> /s</label>
<label><input id="past" type="checkbox"> tracks of those that ended</label>
</div>
{_map(clip)}
{_legend(clip, said)}
<h2>{escape(said)} over time, and when phenomena stood</h2>
{timeline(clip)}
{_HELP}
</section><section aria-label="What stands and what happened">
<h2>Standing now</h2>
<div id="standing" class="standing" aria-live="polite"></div>
<h2 id="events-title">Events: {sum(len(one.events) for one in clip.phenomena):,}</h2>
<ol id="events" aria-labelledby="events-title"></ol>
</section></div>"""


def _map(clip: Film) -> str:
    each, across, up, height = map_scale(clip.sites)
    size = float(np.clip(34 / np.sqrt(len(clip.sites.names)), 2.0, 7.0))
    sensors = "".join(
        f'<circle class="sensor" cx="{across + each * x:.2f}" cy="{up - each * y:.2f}" r="{size:.1f}"><title></title>'
        "</circle>\n"
        for x, y in clip.sites.at
    )
    content = f"{_bar(clip, each, height)}<g id='tracks'></g><g id='regions'></g>\n{sensors}<g id='names'></g>"
    axes = " and ".join(clip.sites.axes)
    return svg(content, height, f"Map of {len(clip.sites.names)} sensors by {axes}, and of the phenomena", name="map")


def _bar(clip: Film, each: float, height: float) -> str:
    """A bar of a round length, and which way the axes go."""
    length = next(size for size in Scale(0, 160 / each, 0, 1).ticks(3)[::-1] if size > 0)
    y, (first, second) = height - 12, clip.sites.axes
    unit = f" {clip.unit}" if clip.unit else ""
    return (
        f'<path class="grid" style="stroke:var(--quiet);stroke-width:2" d="M12 {y:.1f}h{each * length:.1f}"/>'
        f'<text class="axis" x="12" y="{y - 6:.1f}">{length:g}{escape(unit)}</text>'
        f'<text class="axis" x="{WIDTH - 10}" y="{y:.1f}" text-anchor="end">{escape(first)} →</text>'
        f'<text class="axis" x="10" y="18">{escape(second)} ↑</text>\n'
    )


def _legend(clip: Film, said: str) -> str:
    hold = fresh_for(clip.readings, clip.frames) / 1e6
    sizes = ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s"))
    size, name = next((pair for pair in sizes if hold >= 2 * pair[0]), (1, "s"))
    text = f"{hold / size:.3g} {name}"
    return (
        f'<div class="legend"><span>{escape(said)}</span><span id="ramp"></span><span>hollow, dashed: no reading for '
        f"{text}</span><span>outline: the sensors of a phenomenon; line: the track of its centroid</span></div>"
    )
