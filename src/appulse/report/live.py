"""What a page shows of a job while it runs: rows, answers and rejects of each step as short messages in plain JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.errors import BadArgument
from appulse.model.columns import floats, is_numeric
from appulse.model.geometries import geometries_of, read, shapely_module
from appulse.model.regions import QUERY, REGION, radii_of
from appulse.model.times import is_time, to_micros
from appulse.model.uncertainty import Ball, Exact, Gaussian, Position
from appulse.report.live_figures import Rates, boxes, clock_text, figures
from appulse.report.meridian import MapMiddle, near, put_together
from appulse.report.page import isolated, plain, rounded
from appulse.report.tracks import DEGREE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.stream import Stream

__all__ = ["BINS", "MOST_THINGS", "Shown", "outlines_of", "place_columns"]

#: Of the histogram of probabilities.
BINS = 20
_POLE = 90.0  # degrees
MOST_EVENTS, MOST_REJECTS, MOST_THINGS, MOST_FENCES = 60, 10, 2_000, 5_000
_TIMES = ("time", "closest_time", "end", "left_time", "right_time", "start")
_FACTS = (("distance", "{:.4g}{}"), ("closest_distance", "{:.4g}{}"), ("seconds_within", "{:.0f} s within"))


@dataclass
class Shown:
    """One job on a page: ``name`` and ``operator`` are text; ``fences`` have columns query and region."""

    name: str
    operator: str
    streams: Sequence[Stream]
    fences: pa.Table | None = None
    sensors: tuple[pa.Table, str, Position | None] | None = None  # places, the column of keys, and what degrees are
    _totals: dict[str, int] = field(default_factory=lambda: {"rows": 0, "answers": 0, "rejects": 0})
    _histogram: Ints = field(default_factory=lambda: np.zeros(BINS, np.int64))
    _counted: dict[str, int] = field(default_factory=dict)
    _rates: Rates = field(default_factory=Rates)
    _middle: MapMiddle = field(default_factory=MapMiddle)

    @property
    def earth(self) -> bool:
        """Whether places are in degrees."""
        if self.sensors is not None:
            return self.sensors[2] is not None
        return any(isinstance(stream.value, Position) for stream in self.streams)

    @cached_property
    def hello(self) -> dict[str, Any]:
        """What a page has to know before the first step."""
        message: dict[str, Any] = {
            "name": self.name,
            "operator": self.operator.replace("_", " "),
            "streams": [stream.name for stream in self.streams],
            "earth": self.earth,
            "fences": [] if self.fences is None else outlines_of(self.fences, earth=self.earth),
            "sensors": [] if self.sensors is None else self._sensors(*self.sensors),
        }
        if self.earth:
            self._middle.longitude = put_together(message["fences"], message["sensors"])
        return message

    @cached_property
    def _known(self) -> Floats:
        """The least and the greatest corner of fences and sensors; empty without any."""
        corners = [corner for fence in self.hello["fences"] for ring in fence["rings"] for corner in ring]
        places = np.array([*corners, *(place for _, *place in self.hello["sensors"])], np.float64).reshape(-1, 2)
        return np.stack([places.min(axis=0), places.max(axis=0)]) if len(places) else places

    def _beside(self, longitudes: Any) -> Floats:
        """Longitudes where the map has them: around the middle of fences and sensors, else around that of things."""
        return near(longitudes, self._middle.longitude)

    def boxes(self, things: Iterable[Sequence[Any]]) -> dict[str, Any]:
        """What a map shows at first, and the longitude in its middle; ``things`` are those of messages."""
        places, known = np.array([one[2:4] for one in things], np.float64).reshape(-1, 2), self._known
        if not self.earth:
            return boxes(places, known) | {"middle": None}
        if not len(known):
            self._middle.follow(places[:, 0])
        places[:, 0] = self._beside(places[:, 0])
        return boxes(places, known) | {"middle": self._middle.longitude}

    def figures(self, things: int, state: Mapping[str, int], behind: float | None) -> list[tuple[str, str]]:
        """The sums so far, with rates, as texts."""
        rates = self._rates.add(self._totals["rows"], self._totals["answers"])
        return figures(self._totals, rates, things, self._counted, state, behind)

    def count(self, more: Mapping[str, int], counted: Mapping[str, int] | None = None) -> None:
        """Add to the sums: of rows, answers and rejects, and of what was counted as pairs were looked for."""
        for totals, given in ((self._totals, more), (self._counted, counted or {})):
            for name, count in given.items():
                totals[name] = totals.get(name, 0) + count

    def message(
        self,
        rows: Mapping[str, pa.Table],
        answers: pa.Table | None = None,
        rejects: pa.Table | None = None,
        state: Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        """What a page shows of rows by stream, answers and rejects, with the sums so far."""
        if answers is not None and "probability" in answers.column_names and len(answers):
            chance = floats(answers["probability"])
            chance = chance[np.isfinite(chance)]
            self._histogram += np.histogram(chance, BINS, (0.0, 1.0))[0]
        return {
            "things": [one for stream in self.streams if stream.name in rows for one in self._things(stream, rows)],
            "now": (now := self._now(rows)),
            "clock": None if now is None else clock_text(now[0], stamped=now[1]),
            "events": [] if answers is None else self._events(answers),
            "rejects": [] if rejects is None else _some(rejects, MOST_REJECTS),
            "totals": dict(self._totals),
            "histogram": self._histogram.tolist(),
            "counted": dict(self._counted),
            "state": dict(state or {}),
        }

    def _now(self, rows: Mapping[str, pa.Table]) -> Any:
        """The newest time of some rows, in milliseconds, and whether it is one of a clock; None without rows."""
        newest = None
        for stream in self.streams:
            table = rows.get(str(stream.name))
            if table is None or not len(table) or stream.time not in table.column_names:
                continue
            micros, null, strange = to_micros(table[stream.time].combine_chunks(), stream.unit)
            known = micros[~(null | strange)]
            if len(known):
                newest = max(int(known.max()), newest or int(known.max()))
        stamped = any(is_time(t.schema.field(s.time).type) for s in self.streams if (t := rows.get(str(s.name))))
        return None if newest is None else [newest // 1000, stamped]

    def _things(self, stream: Stream, rows: Mapping[str, pa.Table]) -> list[list[Any]]:
        """The newest place of each thing of some rows: its number of stream, key, x, y and error."""
        found = _places(stream, rows[str(stream.name)])
        if found is None:
            return []
        keys, (x, y, error) = found
        there = np.isfinite(x) & np.isfinite(y)
        if isinstance(stream.value, Position):
            there &= np.abs(y) <= _POLE  # other rows are rejects
        last = {key: i for i, key in enumerate(keys) if key is not None and there[i]}
        at = list(last.values())[-MOST_THINGS:]
        place = [str(one.name) for one in self.streams].index(str(stream.name))
        columns = rounded(x[at], 8), rounded(y[at], 8), rounded(error[at], 4)
        return [[place, keys[i], *spot] for i, *spot in zip(at, *columns, strict=True)]

    def _events(self, answers: pa.Table) -> list[dict[str, Any]]:
        """Answers in words, with the things, the fence or the region that they are about; the newest ones."""
        return [self._event(row) for row in _some(answers, MOST_EVENTS)]

    def _event(self, row: dict[str, Any]) -> dict[str, Any]:
        names = [str(stream.name) for stream in self.streams]
        time = next((row[name] for name in _TIMES if row.get(name) is not None), None)
        if "closest_time" not in row and time is not None and time == row.get("left_time"):
            time = max(time, row.get("right_time") or time)  # of a pair the later row
        fields: dict[str, Any] = {"p": row.get("probability"), "time": time, "change": row.get("change")}
        if "left_key" in row:
            sides = [(row.get(f"{side}_stream"), row.get(f"{side}_key")) for side in ("left", "right")]
            numbers = [names.index(str(own)) if own in names else -1 for own, _ in sides]
            numbers = [min(i, len(names) - 1) if number < 0 else number for i, number in enumerate(numbers)]
            pairs = [(number, key) for number, (_, key) in zip(numbers, sides, strict=True) if key is not None]
            fields["things"] = [[number, str(key)] for number, key in pairs]
            fields["past"] = "closest_time" in row and row.get("change") != 1  # where they met, they are no more
            fields["text"] = " and ".join(isolated(key) for _, key in pairs)
        elif "phenomenon" in row:
            hull = row.get("hull")
            if hull and self.hello["earth"]:  # which knows where sensors are
                hull = [[x, y] for x, (_, y) in zip(self._beside([x for x, _ in hull]).tolist(), hull, strict=True)]
            fields |= {"region": row["phenomenon"], "hull": hull, "ends": row.get("event") in ("disappears", "merges")}
            fields["things"] = [[0, str(key)] for key in row.get("sensors") or []]
            fields["text"] = f"region {row['phenomenon']} {row.get('event', '')}, value {isolated(row.get('value'))}"
        else:
            key = row.get("key")
            fields["things"] = [] if key is None else [[0, str(key)]]
            fields["fence"] = None if row.get("query") is None else str(row["query"])
            text = [key, row.get("event") or ("matches" if "query" in row else None), row.get("query")]
            fields["text"] = " ".join(isolated(part) for part in text if part is not None) or _all_of(row)
        unit = " m" if self.earth else ""
        facts = [form.format(row[name], unit) for name, form in _FACTS if row.get(name) is not None]
        fields["facts"] = " · ".join(facts)
        fields["when"] = _short(time)
        chance = fields["p"]
        facts_shown = [str(fields["text"]), *facts, *([] if chance is None else [f"probability {chance:.3g}"])]
        fields["line"] = {1: "+ ", -1: "− "}.get(fields["change"], "") + " · ".join(facts_shown)  # noqa: RUF001 - it is a minus
        shown: dict[str, Any] = plain(fields)
        return shown

    @staticmethod
    def _sensors(table: pa.Table, key: str, place: Position | None) -> list[list[Any]]:
        """Where sensors are: key, x and y."""
        if place is not None:
            names = [place.lon, place.lat]
        else:
            names = [field.name for field in table.schema if field.name != key and is_numeric(field.type)][:2]
        if len(names) < 2 or any(name not in table.column_names for name in names):
            return []
        x, y = (rounded(floats(table[name]), 8) for name in names)
        return [[str(one), *spot] for one, *spot in zip(table[key].to_pylist(), x, y, strict=True)]


def place_columns(stream: Stream) -> list[str]:
    """The columns of a stream that a map shows: its key, its time, and where a row is; empty where it is nowhere."""
    value = stream.value
    if isinstance(value, Position) and value.geography is None:
        named: list[Any] = [value.lon, value.lat, value.sigma]
    elif isinstance(value, Exact | Gaussian | Ball) and len(value.columns) >= 2:
        error = value.radius if isinstance(value, Ball) else getattr(value, "sigma", None)
        named = [*value.columns[:2], *(error[:1] if isinstance(error, tuple | list) else [error])]
    else:
        return []
    return list(dict.fromkeys([stream.key, stream.time, *(name for name in named if isinstance(name, str))]))


def _places(stream: Stream, table: pa.Table) -> tuple[list[str | None], tuple[Floats, ...]] | None:
    """Keys, x, y and error of rows; None where values are no places."""
    value = stream.value
    names: tuple[str, str]
    error: Any
    if isinstance(value, Position) and value.geography is None:
        names, error = (value.lon, value.lat), value.sigma
    elif isinstance(value, Exact | Gaussian | Ball) and len(value.columns) >= 2:
        names = value.columns[0], value.columns[1]
        error = value.radius if isinstance(value, Ball) else getattr(value, "sigma", None)
    else:
        return None
    if any(name not in table.column_names or not is_numeric(table.schema.field(name).type) for name in names):
        return None
    error = error[0] if isinstance(error, tuple | list) and error else error
    if isinstance(error, str) and error in table.column_names and is_numeric(table.schema.field(error).type):
        spread = floats(table[error])
    else:
        spread = np.full(len(table), float(error) if isinstance(error, int | float) else 0.0)
    keys = pc.cast(table[stream.key], pa.string()).to_pylist()
    x, y = (floats(table[name]) for name in names)
    return keys, (x, y, spread)


def _some(table: pa.Table, most: int) -> list[dict[str, Any]]:
    """The last rows of a table."""
    some: list[dict[str, Any]] = table.slice(max(0, len(table) - most)).to_pylist()
    return [{name: str(value) if is_odd(value) else value for name, value in row.items()} for row in some]


def _short(time: Any) -> str:
    """A time of an answer without parts of seconds, if it is one of a clock."""
    return "" if time is None else str(time)[:19] if isinstance(time, str) else f"{time:.15g}"


def is_odd(value: Any) -> bool:
    """Whether JSON has no such values."""
    return not isinstance(value, str | int | float | bool | list | dict | type(None))


def _all_of(row: dict[str, Any]) -> str:
    return ", ".join(f"{isolated(name)} {isolated(value)}" for name, value in row.items() if value is not None)[:200]


def outlines_of(fences: pa.Table, *, earth: bool) -> list[dict[str, Any]]:
    """Name and rings of each fence, as given: in degrees, longitude first, or in units; radii are drawn around.

    Of fences with one name the last stands.
    """
    if REGION not in fences.column_names or QUERY not in fences.column_names:
        return []
    try:
        shapely = shapely_module()
    except BadArgument:  # fences are drawn where it is installed
        return []
    some = fences.slice(0, MOST_FENCES)
    shapes, wrong = read(shapely, geometries_of(some))
    names = some[QUERY].cast(pa.string()).to_pylist()
    found: dict[str | None, dict[str, Any]] = {}
    for i, (name, shape, radius) in enumerate(zip(names, shapes, radii_of(some, "fences"), strict=True)):
        if i in wrong:
            continue
        flat = shapely.force_2d(shape)
        if radius is not None and np.isfinite(radius) and radius > 0:
            flat = _widened(shapely, flat, float(radius), earth=earth)
        parts = [
            ring for part in shapely.get_parts(flat) for ring in (shapely.get_rings(part) if part.area else [part])
        ]
        rings = [[rounded(corner, 8) for corner in shapely.get_coordinates(ring)[:400]] for ring in parts[:20]]
        found[name] = {"name": name, "rings": rings}
    return list(found.values())


def _widened(shapely: Any, shape: Any, radius: float, *, earth: bool) -> Any:
    if not earth:
        return shapely.buffer(shape, radius, quad_segs=8)
    south, north = shape.bounds[1], shape.bounds[3]
    each = np.array([DEGREE * max(0.01, float(np.cos(np.radians((south + north) / 2)))), DEGREE])
    plane = shapely.transform(shape, lambda at: at * each)
    return shapely.transform(shapely.buffer(plane, radius, quad_segs=8), lambda at: at / each)
