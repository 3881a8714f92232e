"""The page of encounters: two tracks on a map that plays, their errors, and the closest approach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from appulse.engines.local import as_table
from appulse.errors import BadArgument
from appulse.model.columns import floats
from appulse.model.times import is_time
from appulse.report.chart import Clock
from appulse.report.page import empty, isolated
from appulse.report.readings import micros_of
from appulse.report.tracks import tracks_of
from appulse.report.tracks_page import Happening, Wording, length_unit, tracks_page

if TYPE_CHECKING:
    import pyarrow as pa

    from appulse.report.tracks import Tracks

__all__ = ["encounters_page"]

NEEDED = ("left_key", "right_key", "start", "end", "closest_time", "closest_distance", "probability")
WORDING = Wording(
    "encounters",
    "A bar is an encounter, the darker the more probable.",
    ("things", "closest", "probability", "apart on the map"),
    "No two things meet at this moment.",
)


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
    the readings around them; the page reports what is left out. Raises `BadArgument` where columns are missing, and
    where no key of the encounters is in the column of keys.
    """
    table = as_table(encounters)
    if missing := [name for name in NEEDED if name not in table.column_names]:
        raise BadArgument(
            f"The encounters have no column {', '.join(missing)}. They have: {', '.join(table.column_names)}. Give the "
            'results of appulse.encounters(), of any emit but "legs".'
        )
    tracks = tracks_of([left] if right is None else [left, right], key, time, place, error)
    if len(table) and is_time(table.schema.field("start").type) != tracks.stamps:
        raise BadArgument("The times of encounters and readings are timestamps here and numbers there. Give one kind.")
    length = length_unit(tracks, unit)
    other = int(right is not None)
    found, unknown = _encounters(table, tracks, length, other)
    if not found:
        for side, name in ((0, "left_key"), (other, "right_key")):
            tracks.refuse_other_keys(side, table[name].cast("string").to_pylist(), "encounters")
        return empty(title, "There is nothing to show: no encounter of two things with a track.")
    remarks = [note, f"Left out: {unknown:,} encounters of things without a track." if unknown else ""]
    return tracks_page(tracks, found, WORDING, title=title, remarks=remarks, unit=length)


def _encounters(table: pa.Table, tracks: Tracks, unit: str, other: int) -> tuple[list[Happening], int]:
    """The rows whose things have a track, most probable and closest first, and how many have none."""
    if "change" in table.column_names:
        table = table.filter(floats(table["change"]) > 0)
    things = {name: place for place, name in enumerate(tracks.names)}
    clock = Clock(tracks.stamps, tracks.zone)
    keys = [table[name].cast("string").to_pylist() for name in ("left_key", "right_key")]
    times = [micros_of(table, name)[0].tolist() for name in ("start", "end", "closest_time")]
    figures = [floats(table[name]).tolist() for name in ("closest_distance", "probability")]
    found = []
    for a, b, begin, end, closest, distance, probability in zip(*keys, *times, *figures, strict=True):
        if (0, a) not in things or (other, b) not in things:
            continue
        apart = f"{distance:,.4g}{f' {unit}' if unit else ''}"
        both = f"{isolated(a)} and {isolated(b)}"
        text = f"{clock.text(closest)} · {both} · {apart} · probability {probability:.3g}"
        facts = (both, apart, f"{probability:.3g}")
        pair = (things[0, a], things[other, b])
        found.append((-probability, distance, Happening(pair, begin, closest, end, probability, text, facts)))
    found.sort(key=lambda one: (*one[:2], one[2].begin))
    return [one for *_, one in found], len(table) - len(found)
