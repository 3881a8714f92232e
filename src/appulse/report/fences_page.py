"""The page of visits to regions: tracks and regions on a map that plays, and who was where for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.engines.local import as_table
from appulse.errors import BadArgument
from appulse.model.columns import floats
from appulse.model.geometries import REGION, geometries_of, read, shapely_module
from appulse.model.regions import radii_of
from appulse.model.times import is_time
from appulse.report.chart import Clock
from appulse.report.meridian import near
from appulse.report.page import empty, isolated
from appulse.report.readings import micros_of
from appulse.report.tracks import tracks_of
from appulse.report.tracks_page import MOST_HAPPENINGS, Happening, Wording, length_unit, tracks_page

if TYPE_CHECKING:
    import pyarrow as pa

    from appulse.kernels.arrays import Floats
    from appulse.report.tracks import Tracks

__all__ = ["fences_page"]

EVENTS = ("query", "key", "event", "time", "probability", "since")
VISITS = ("query", "key", "start", "end", "probability")
WORDING = Wording(
    "visits",
    "A bar is a visit, the darker the more probable.",
    ("thing", "fence", "since", "probability"),
    "Nobody is in a fence at this moment.",
)


def fences_page(
    events: Any,
    fences: Any,
    readings: Any,
    *,
    title: str = "Visits to fences",
    note: str = "",
    key: str | None = None,
    time: str | None = None,
    place: tuple[str, str] | None = None,
    error: str | None = None,
    unit: str = "",
) -> str:
    """One HTML page, by itself: things that move on a map that plays, and the regions that they enter and leave.

    ``events`` are the results of `appulse.fence_events`, of either emit; ``fences`` and ``readings`` what it was given:
    pyarrow, pandas or Polars. A visit without an exit lasts to the thing's last reading; a crossing is a visit of no
    length. ``key``, ``time``, ``place`` (two columns) and ``error`` name columns of the readings; they are found where
    there are ``lat`` and ``lon`` in degrees, or ``x`` and ``y``, and ``sigma``, ``error`` or ``accuracy``. ``unit`` is
    that of the place as text, metres where it is in degrees. Shown are the 300 most probable visits, their regions and
    the readings around them; the page reports what is left out. Raises `BadArgument` where columns are missing,
    and where no key of the events is in the column of keys.
    """
    table, areas = as_table(events), as_table(fences)
    needed = VISITS if "start" in table.column_names else EVENTS
    if missing := [name for name in needed if name not in table.column_names]:
        raise BadArgument(
            f"The events have no column {', '.join(missing)}. They have: {', '.join(table.column_names)}. Give the "
            "results of appulse.fence_events()."
        )
    if missing := [name for name in ("query", REGION) if name not in areas.column_names]:
        raise BadArgument(
            f"The fences have no column {', '.join(missing)}. They have: {', '.join(areas.column_names)}. Give what "
            "appulse.fence_events() was given."
        )
    tracks = tracks_of([readings], key, time, place, error)
    if len(table) and is_time(table.schema.field("start" if needed is VISITS else "time").type) != tracks.stamps:
        raise BadArgument("The times of events and readings are timestamps here and numbers there. Give one kind.")
    spans = _visits(table) if needed is VISITS else _spans(table, tracks)
    places = {str(query): row for row, query in enumerate(areas["query"].to_pylist())}
    things = {name: thing for thing, (_, name) in enumerate(tracks.names)}
    known = [one for one in spans if one[0] in places and one[1] in things]
    if not known:
        tracks.refuse_other_keys(0, (one[1] for one in spans), "visits")
        return empty(title, "There is nothing to show: no visit of a thing with a track to a known fence.")
    clock = Clock(tracks.stamps, tracks.zone)
    found = [
        Happening(
            (things[thing],),
            begin,
            begin,
            end,
            chance,
            f"{clock.text(begin)} · {isolated(thing)} in {isolated(query)} · "
            f"{_lasting(end - begin)}{' so far' * still} · probability {chance:.3g}",
            (thing, query, clock.text(begin), f"{chance:.3g}"),
            places[query],
        )
        for query, thing, begin, end, chance, still in known
    ]
    found.sort(key=lambda one: (-one.probability, one.begin - one.end, one.begin, one.things))
    shown = sorted({one.region for one in found[:MOST_HAPPENINGS] if one.region is not None})
    outlines = dict(zip(shown, _outlines(areas.take(shown), tracks), strict=True))
    lost = len(spans) - len(known)
    remarks = [note, f"Left out: {lost:,} visits of things without a track, or to unknown fences." if lost else ""]
    return tracks_page(
        tracks, found, WORDING, title=title, remarks=remarks, unit=length_unit(tracks, unit), outlines=outlines
    )


def _visits(table: pa.Table) -> list[tuple[str, str, int, int, float, bool]]:
    """Fence, thing, start, end, probability, and whether it goes on, of a row each."""
    names = [table[name].cast("string").to_pylist() for name in ("query", "key")]
    times = [micros_of(table, name)[0].tolist() for name in ("start", "end")]
    chances = floats(table["probability"]).tolist()
    return list(zip(*names, *times, chances, [False] * len(table), strict=True))


def _spans(table: pa.Table, tracks: Tracks) -> list[tuple[str, str, int, int, float, bool]]:
    """The same of events: from an entry to its exit, or to the last reading; the probability of the entry."""
    last = {name: int(tracks.micros[tracks.of(thing)][-1]) for thing, (_, name) in enumerate(tracks.names)}
    names = [table[name].cast("string").to_pylist() for name in ("query", "key", "event")]
    times = [micros_of(table, name)[0].tolist() for name in ("time", "since")]
    found: dict[tuple[str, str, int], tuple[int, float, bool]] = {}
    for query, thing, event, when, since, chance in zip(
        *names, *times, floats(table["probability"]).tolist(), strict=True
    ):
        if event == "cross":
            found[query, thing, when] = when, chance, False
        elif event == "enter":
            found.setdefault((query, thing, when), (max(when, last.get(thing, when)), chance, True))
        elif event == "exit":
            entered = found.get((query, thing, since))
            found[query, thing, since] = when, chance if entered is None else entered[1], False
    return [(*visit, *known) for visit, known in found.items()]


def _lasting(micros: int) -> str:
    """How long, in the largest unit of which it is two."""
    size, name = next((unit for unit in ((3600e6, "h"), (60e6, "min")) if micros >= 2 * unit[0]), (1e6, "s"))
    return f"{micros / size:.3g} {name}"


def _beside(shapely: Any, shape: Any, longitude: float) -> Any:
    """A region in degrees, each of its parts as a whole half a turn from a longitude at most."""
    parts = shapely.get_parts(shape)
    middles = shapely.bounds(parts)[:, ::2].mean(axis=1)
    turns = (middles - near(middles, longitude)).tolist()
    moved = [
        shapely.transform(part, lambda at, turn=turn: at - [turn, 0.0]) for part, turn in zip(parts, turns, strict=True)
    ]
    return shapely.geometrycollections(moved)


def _outlines(areas: pa.Table, tracks: Tracks) -> list[list[Floats]]:
    """The lines and rings of each region in the plane of the map; none where it is no geometry."""
    shapely = shapely_module()
    shapes, wrong = read(shapely, geometries_of(areas))
    radii = radii_of(areas, "fences")
    found: list[list[Floats]] = []
    for row, (shape, radius) in enumerate(zip(shapes, radii, strict=True)):
        if row in wrong:
            found.append([])
            continue
        beside = shapely.force_2d(shape)
        if tracks.centre is not None:
            beside = _beside(shapely, beside, tracks.centre[0])
        drawn = shapely.transform(beside, tracks.plane)
        if radius is not None and np.isfinite(radius):
            drawn = shapely.buffer(drawn, radius * tracks.longer(shapely.get_coordinates(shape)).mean())
        parts = [
            ring for part in shapely.get_parts(drawn) for ring in (shapely.get_rings(part) if part.area else [part])
        ]
        found.append([shapely.get_coordinates(part) for part in parts])
    return found
