"""Fence events against their slow twin: in process, by pushes in any order, in a played Spark, and on Spark."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.fences.bucket import FenceBucket
from appulse.engines.fences.call import FenceCall, FenceSettings, resolve_fences
from appulse.engines.spark import shared
from appulse.engines.spark.routing import ToThings, bucket_keys
from appulse.engines.spark.stage import GroupBuckets, Stage
from appulse.engines.spark.tiles import TilePlan
from tests.helpers import naive_fences as naive
from tests.helpers.fake_spark import FakeQuery
from tests.helpers.streaming import drained, files, read_stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from appulse.engines.spark.pipeline import Routing
    from appulse.engines.spark.tiling import Tiling


@dataclass(frozen=True)
class Case:
    rows: tuple[naive.Reading, ...]
    shapes: tuple[Any, ...]
    radii: tuple[float | None, ...]
    exact: bool
    enter: float
    leave: float
    dwell: float | None
    carry: tuple[str, ...] = ()

    @property
    def table(self) -> pa.Table:
        return table_of(self.rows)

    @property
    def fences(self) -> pa.Table:
        names = [f"f{i}" for i in range(len(self.shapes))]
        wkb = [shapely.to_wkb(shape) for shape in self.shapes]
        return pa.table(
            {"query": names, "region": pa.array(wkb, pa.binary()), "radius": pa.array(self.radii, pa.float64())}
        )

    def stream(self, frame: Any, **changes: Any) -> ap.Stream[Any]:
        value: Any = ap.Exact("x", "y") if self.exact else ap.Gaussian("x", "y", sigma="sigma")
        if any(row.thin != 1.0 for row in self.rows):
            value = ap.Gaussian("x", "y", ellipse=("sigma", "minor", "angle"))
        return ap.Stream(frame, key="key", time="time", value=value, carry=self.carry, **changes)

    def is_carried(self, event: dict[str, Any], upto: float) -> bool:
        """Whether the event has what the last reading of its key until then carries."""
        last = max((row for row in self.rows if row.key == event["key"] and row.time <= upto), key=lambda row: row.time)
        return all(event[name] == getattr(last, name) for name in self.carry)

    @property
    def asked(self) -> dict[str, Any]:
        return {"enter": self.enter, "leave": self.leave, "dwell": self.dwell}

    def chances(self) -> list[tuple[str, Any]]:
        each = enumerate(zip(self.shapes, self.radii, strict=True))
        return [(f"f{i}", partial(naive.chance, shape, radius)) for i, (shape, radius) in each]

    def sure(self) -> bool:
        """Whether no probability is so near a threshold that rounding decides."""
        if self.exact:
            return True
        found = [inside(row) for _, inside in self.chances() for row in self.rows]
        return all(abs(p - border) > 1e-7 for p in found for border in (self.enter, self.leave))


def table_of(rows: Sequence[naive.Reading]) -> pa.Table:
    names = ("time", "x", "y", "sigma", "angle")
    columns = {name: pa.array([getattr(row, name) for row in rows], pa.float64()) for name in names}
    columns["minor"] = pa.array([row.thin * row.sigma for row in rows], pa.float64())
    texts = {name: pa.array([getattr(row, name) for row in rows], pa.string()) for name in ("key", "tag")}
    return pa.table({**texts, **columns})


HALVES = st.integers(-6, 6).map(lambda i: i / 2)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    error = draw(st.sampled_from(("exact", "circle", "ellipse")))
    exact = error == "exact"
    reading = st.builds(
        naive.Reading,
        key=st.sampled_from("abc"),
        time=st.integers(0, 40).map(float),
        x=HALVES,
        y=HALVES,
        sigma=st.just(0.0) if exact else st.sampled_from((0.3, 1.0)),
        tag=st.sampled_from("uv"),
        thin=st.sampled_from((0.9, 0.2)) if error == "ellipse" else st.just(1.0),
        angle=st.sampled_from((0.0, 30.0, 90.0, 135.0)) if error == "ellipse" else st.just(0.0),
    )
    rows = draw(st.lists(reading, max_size=25, unique_by=lambda row: (row.key, row.time)))
    shapes, radii = [], []
    for _ in range(draw(st.integers(1, 4))):
        x, y = draw(HALVES), draw(HALVES)
        kind = draw(st.sampled_from(("box", "disc", "ring", "two", "corner")))
        radii.append(draw(st.sampled_from((0.5, 2.0))) if kind == "disc" else None)
        box = shapely.box(x, y, x + 3.0, y + 2.0)
        if kind == "disc":
            box = shapely.Point(x, y)
        elif kind == "ring":
            box = box.difference(shapely.box(x + 1.0, y + 0.5, x + 2.0, y + 1.5))
        elif kind == "two":
            box = shapely.MultiPolygon([box, shapely.box(x + 4.0, y, x + 5.0, y + 3.0)])
        elif kind == "corner":
            box = shapely.Polygon([(x, y), (x + 3.0, y), (x + 1.0, y + 1.0), (x, y + 3.0)])
        shapes.append(box)
    enter = draw(st.sampled_from((0.9, 0.6, 0.3)))
    return Case(
        tuple(rows),
        tuple(shapes),
        tuple(radii),
        exact,
        enter,
        min(enter, draw(st.sampled_from((0.5, 0.1, 0.9)))),
        draw(st.sampled_from((None, 5.0, 20.0))),
        draw(st.sampled_from(((), ("tag", "x")))),
    )


def rows_of(tables: Sequence[pa.Table]) -> list[str]:
    return sorted(repr(row) for table in tables for row in table.to_pylist())


@settings(deadline=None)
@given(cases())
def test_events_are_those_of_the_twin(case: Case) -> None:
    if not case.sure():
        return
    expected = naive.events(case.rows, case.chances(), case.enter, case.leave, case.dwell)
    found = ap.fence_events(case.stream(case.table), case.fences, **case.asked).to_pylist()
    order = ("query", "key", "time", "event")
    found.sort(key=lambda row: [row[name] for name in order])
    expected.sort(key=lambda event: [getattr(event, name) for name in order])
    assert len(found) == len(expected)
    for row, event in zip(found, expected, strict=True):
        reported = {name: row[name] for name in ("query", "key", "event", "time", "since")}
        assert reported == {name: getattr(event, name) for name in reported}
        assert row["probability"] == pytest.approx(event.probability, abs=1e-8)
        assert case.is_carried(row, row["time"])


@settings(deadline=None)
@given(cases(), st.integers(1, 8), st.integers(0, 99))
def test_pushes_in_any_order_give_what_a_whole_table_gives(case: Case, cut: int, seed: int) -> None:
    expected = ap.fence_events(case.stream(case.table), case.fences, **case.asked)
    by_hand = ap.FenceEvents(case.stream(None, lateness=100), case.fences, **case.asked)
    rows = list(case.rows)
    Random(seed).shuffle(rows)
    parts = [by_hand.push(table_of(rows[at : at + cut])) for at in range(0, len(rows), cut)]
    last = by_hand.drain()
    if rows:
        assert rows_of([*parts, last]) == rows_of([expected])


@settings(deadline=None)
@given(cases(), st.integers(1, 5))
def test_pushes_in_order_report_as_time_goes_on(case: Case, cut: int) -> None:
    """What has dwelt is reported once the clock has passed that time, though its key is silent."""
    rows = sorted(case.rows, key=lambda row: row.time)
    expected = ap.fence_events(case.stream(case.table), case.fences, **case.asked)
    by_hand = ap.FenceEvents(case.stream(None), case.fences, **case.asked)
    parts, reported = [], 0
    for at in range(0, len(rows), cut):
        parts.append(by_hand.push(table_of(rows[at : at + cut])))
        before = max(row.time for row in rows[: at + cut])
        reported += len(parts[-1])
        assert reported == sum(row["time"] < before for row in expected.to_pylist())
    parts.append(by_hand.drain())
    if rows:
        assert rows_of(parts) == rows_of([expected])


@settings(deadline=None)
@given(cases(), st.integers(1, 5), st.sampled_from(("events", "visits")))
def test_threads_make_no_difference(case: Case, cut: int, emit: str) -> None:
    found = []
    for threads in (1, 3):
        options = ap.Options(threads=threads)
        by_hand = ap.FenceEvents(case.stream(None), case.fences, **case.asked, emit=emit, options=options)
        rows = sorted(case.rows, key=lambda row: row.time)
        parts = [by_hand.push(table_of(rows[at : at + cut])) for at in range(0, len(rows), cut)]
        found.append([*parts, by_hand.drain()])
    assert found[0] == found[1]


@given(cases())
def test_visits_are_the_events_that_end(case: Case) -> None:
    events = ap.fence_events(case.stream(case.table), case.fences, **case.asked).to_pylist()
    visits = ap.fence_events(case.stream(case.table), case.fences, **case.asked, emit="visits").to_pylist()
    exits = sorted((row["query"], row["key"], row["since"], row["time"]) for row in events if row["event"] == "exit")
    assert sorted((row["query"], row["key"], row["start"], row["end"]) for row in visits) == exits
    inside = dict(case.chances())
    for row in visits:
        own = [one for one in case.rows if one.key == row["key"] and row["start"] <= one.time < row["end"]]
        assert row["readings"] == len(own)
        assert row["probability"] == pytest.approx(max(inside[row["query"]](one) for one in own), abs=1e-8)
        assert case.is_carried(row, row["end"])


@dataclass
class FakeFences(FakeQuery):
    """Fence events on a played Spark."""

    call: FenceCall

    def _routing(self, tiling: Tiling) -> Routing:
        return ToThings(bucket_keys(tiling, grouped=self.call.grouped), self.call.encodings[:1])

    def _stages(self, tiling: Tiling) -> Sequence[Stage]:  # noqa: ARG002 - whatever the tiling
        return [Stage(GroupBuckets(self.call, FenceBucket), "fences")]


@settings(deadline=None)
@given(cases(), st.integers(1, 9), st.integers(1, 3), st.sampled_from((-(1 << 40), 1 << 18)))
def test_a_played_spark_answers_as_in_process(case: Case, cut: int, buckets: int, slack: int) -> None:
    """Workers that forget, attempts that fail, logs that begin anew."""
    expected = ap.fence_events(case.stream(case.table), case.fences, **case.asked)
    call = resolve_fences(case.stream(None, lateness=100), case.table.schema, case.fences, FenceSettings(**case.asked))
    spark = FakeFences(call, TilePlan(buckets, 1.0, 0.0, 0.0), Random(cut))
    found: list[pa.Table] = []
    rows = list(case.rows)
    Random(cut).shuffle(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FenceBucket, "slack", slack)
        for at in range(0, len(rows), cut):
            found += spark.batch({call.encoding.name: table_of(rows[at : at + cut])})[0]
        found += spark.end()[0]
    assert rows_of(found) == rows_of([expected])


def _walk(n: int, seed: int) -> pa.Table:
    """Things that wander around Lausanne."""
    chance = np.random.default_rng(seed)
    key = chance.integers(0, 8, n)
    time = np.sort(chance.choice(36_000, n, replace=False)).astype(float)
    start, speed = chance.uniform(-2000, 2000, (8, 2)), chance.normal(0, 0.2, (8, 2))
    place = start[key] + speed[key] * time[:, None] + chance.normal(0, 30, (n, 2))
    lat = 46.52 + place[:, 1] / 111_200.0
    lon = 6.63 + place[:, 0] / (111_320.0 * math.cos(math.radians(46.52)))
    micros = pa.array((time * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC"))
    return pa.table({"id": [f"v{i}" for i in key], "at": micros, "lat": lat, "lon": lon})


def _zones() -> pa.Table:
    chance = np.random.default_rng(7)
    shapes = []
    for _ in range(30):
        x, y = 6.63 + chance.uniform(-0.03, 0.03), 46.52 + chance.uniform(-0.02, 0.02)
        angles = np.sort(chance.uniform(0, 2 * math.pi, 9))
        shapes.append(shapely.Polygon(np.column_stack([x + 0.01 * np.cos(angles), y + 0.007 * np.sin(angles)])))
    radius = [None] * 30 + [400.0]
    wkt = [shape.wkt for shape in shapes] + ["POINT (6.63 46.52)", "POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))"]
    return pa.table({"query": pa.array(range(32), pa.int64()), "region": wkt, "radius": [*radius, None]})


CIRCLE = ap.Position("lat", "lon", sigma=25)
ELLIPSE = ap.Position("lat", "lon", ellipse=(30, 10, 60))


def _moving(frame: Any, value: ap.Position = CIRCLE, **changes: Any) -> ap.Stream[Any]:
    return ap.Stream(frame, key="id", time="at", value=value, carry="lat", **changes)


def test_spark_answers_as_in_process(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fences go to the workers as a file, too many of them to travel with each task."""
    monkeypatch.setattr(shared, "SMALL", 0)
    table = _walk(2000, 1)
    asked: dict[str, Any] = {"enter": 0.8, "leave": 0.4, "dwell": "10 minutes"}
    expected = ap.fence_events(_moving(table, ELLIPSE), _zones(), **asked)
    assert {row["event"] for row in expected.to_pylist()} == {"enter", "dwell", "exit"}
    folder = files(tmp_path / "in", table, 1000)
    batch = ap.fence_events(_moving(spark.read.parquet(str(folder)), ELLIPSE), _zones(), **asked).toArrow()
    assert batch.schema.names == expected.schema.names
    assert rows_of([batch]) == rows_of([expected])
    bad = ap.rejects(expected).to_pylist()
    assert [row["reason"] for row in bad] == ["bad region"]
    streamed = ap.fence_events(_moving(read_stream(spark, folder), ELLIPSE, lateness=5), _zones(), **asked)
    found, rejects = drained(streamed, tmp_path / "out")
    assert rows_of([found]) == rows_of([expected])
    assert rejects.select(["reason", "detail"]).to_pylist() == [{k: bad[0][k] for k in ("reason", "detail")}]


def test_positions_have_the_mass_of_their_tangent_plane() -> None:
    table = _walk(300, 3)
    found = ap.fence_events(_moving(table), _zones(), enter=0.01, leave=0.01).to_pylist()
    shapes = dict(enumerate(shapely.from_wkt(_zones()["region"].to_pylist())))
    at = {(row["id"], row["at"]): (row["lon"], row["lat"]) for row in table.to_pylist()}
    entered = [row for row in found if row["event"] == "enter" and row["query"] < 30]
    assert len(entered) > 20
    a, b = 6378137.0, 6356752.314245179
    for row in entered:
        lon, lat = at[row["key"], row["time"]]
        cosine, sine = math.cos(math.radians(lat)), math.sin(math.radians(lat))
        curved = math.hypot(a * cosine, b * sine)
        across, along = a * a / curved * cosine * math.pi / 180, (a * b) ** 2 / curved**3 * math.pi / 180
        expected = naive.mass(shapes[row["query"]], lon, lat, 25 / across, 25 / along)
        assert row["probability"] == pytest.approx(expected, abs=1e-8)


def test_degrees_that_are_swapped_are_noticed() -> None:
    """Once, and only where no row lies in a region."""
    table = _walk(50, 1)
    swapped = table.rename_columns({"lat": "lon", "lon": "lat"})
    both = pa.concat_tables([table, swapped.select(table.column_names)])
    for warns, rows in ((True, swapped), (False, table), (False, both)):
        call = ap.FenceEvents(_moving(None), _zones())
        standing = ap.QueryMatch(_moving(None), probability=0.5)
        standing.change(_zones())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for part in (rows, rows.slice(0, 5)):
                standing.push(part)
                call.push(part)
            ap.fence_advice(_moving(rows), _zones(), draws=1)
        assert [one.category for one in caught if one.category is ap.SwappedPlaces] == 3 * warns * [ap.SwappedPlaces]


def test_a_fence_over_the_180th_meridian_is_one() -> None:
    """Cut as GeoJSON has it: a track that crosses it stays inside, and a reading on it is as likely in as beside it."""
    both = shapely.MultiPolygon([shapely.box(179.9, -18.0, 180.0, -17.0), shapely.box(-180.0, -18.0, -179.9, -17.0)])
    fences = pd.DataFrame({"query": ["Fiji"], "region": [both]})
    lon = [179.8, 179.95, 179.9999, 180.0, -179.9999, -179.95, -179.8]
    table = pa.table({"key": ["a"] * 7, "time": np.arange(7.0), "lat": [-17.5] * 7, "lon": lon})
    stream = ap.Stream(table, key="key", time="time", value=ap.Position("lat", "lon", sigma=200.0))
    found = ap.fence_events(stream, fences, enter=0.99, leave=0.98).to_pylist()
    assert [(row["event"], row["time"]) for row in found] == [("enter", 1.0), ("exit", 6.0)]


def test_errors_at_the_border_do_not_flicker() -> None:
    """A thing that stands at the border of a fence: point in polygon toggles, the band does not."""
    chance = np.random.default_rng(5)
    x = 2.0 + chance.normal(0.0, 5.0, 500)
    table = pa.table({"key": ["a"] * 500, "time": np.arange(500.0), "x": x, "y": np.full(500, 50.0)})
    fences = pa.table({"query": ["yard"], "region": [shapely.box(0, 0, 100, 100).wkt]})
    plain = ap.Stream(table, key="key", time="time", value=ap.Exact("x", "y"))
    sure = ap.Stream(table, key="key", time="time", value=ap.Gaussian("x", "y", sigma=5.0))
    assert len(ap.fence_events(plain, fences)) > 200
    assert len(ap.fence_events(sure, fences, enter=0.95, leave=0.01)) <= 2


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("s"), pa.timestamp("ms")])
def test_the_time_of_a_dwell_is_cut_to_the_type_of_times(kind: pa.DataType) -> None:
    ticks = 1_000 if kind == pa.timestamp("ms") else 1
    times = pa.array([0, 4 * ticks, 8 * ticks], kind)
    rows = pa.table({"id": [1] * 3, "ts": times, "x": [0.0] * 3, "y": [0.0] * 3})
    fences = pa.table({"query": [1], "region": ["POINT(0 0)"], "radius": [2.0]})
    stream = ap.Stream(rows, key="id", time="ts", value=ap.Exact("x", "y"))
    found = ap.fence_events(stream, fences, dwell="1500 milliseconds")
    assert found["event"].to_pylist() == ["enter", "dwell"]
    assert found["time"].type == kind
    assert found["time"].cast(pa.int64()).to_pylist() == [0, int(1.5 * ticks)]


def test_a_point_among_fences_is_soon_looked_up() -> None:
    """Of cells as small as a point there are more than anyone can look through, where errors are large."""
    rows = pa.table({"id": [0] * 3, "at": [0.0, 1.0, 2.0], "x": [-90.0, 0.0, 90.0], "y": [0.0] * 3})
    fences = pa.table({"query": ["point", "square"], "region": ["POINT (0 0)", shapely.box(-10, -10, 10, 10).wkt]})
    stream = ap.Stream(rows, key="id", time="at", value=ap.Gaussian("x", "y", sigma=5.0))
    found = ap.fence_events(stream, fences, enter=0.6, leave=0.1)
    assert [(row["query"], row["event"], row["time"]) for row in found.to_pylist()] == [
        ("square", "enter", 1.0),
        ("square", "exit", 2.0),
    ]


def test_what_is_no_region_is_a_reject() -> None:
    table = pa.table({"key": ["a"], "time": [0.0], "lat": [1.0], "lon": [1.0]})
    stream = ap.Stream(table, key="key", time="time", value=ap.Position("lat", "lon"))
    shapes = {
        "crossed": "POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))",
        "empty": "POLYGON EMPTY",
        "several": "GEOMETRYCOLLECTION (POINT (1 1))",
        "swapped": "POLYGON ((10 50, 10 120, 20 120, 20 50, 10 50))",
        "text": "a circle",
        "good": "POLYGON ((0 0, 2 0, 2 2, 0 2, 0 0))",
        "null": None,
    }
    fences = pa.table({"query": list(shapes), "region": list(shapes.values())})
    found = ap.fence_events(stream, fences, enter=1.0)
    assert [(row["query"], row["event"]) for row in found.to_pylist()] == [("good", "enter")]
    reported = {row["values"].split('"')[3]: row["detail"] for row in ap.rejects(found).to_pylist()}
    assert set(reported) == set(shapes) - {"good"}
    assert "Self-intersection" in reported["crossed"]
    assert "empty" in reported["empty"]
    assert "not a point, line or polygon" in reported["several"]
    assert "latitude" in reported["swapped"]
    with pytest.raises(ap.BadInput, match="bad region"):
        ap.fence_events(stream, fences, on_reject="fail")


def test_a_fence_too_small_for_the_errors_is_reported() -> None:
    """The least that can be entered is not, and nothing that it reports is ever entered."""
    chance = np.random.default_rng(4)
    table = pa.table(
        {"key": ["a"] * 400, "time": np.arange(400.0), "x": chance.normal(0, 2, 400), "y": chance.normal(0, 2, 400)}
    )
    shapes = ["POINT (0 0)", "LINESTRING (0 0, 1 1)", "POINT (0 0)", "POINT (0 0)", shapely.box(-1, -1, 1, 1).wkt]
    radii = [None, None, 1.3, 1.5, None]
    fences = pa.table({"query": list("abcde"), "region": shapes, "radius": pa.array(radii, pa.float64())})
    for value, sigma in ((ap.Gaussian("x", "y", sigma=1.0), 1.0), (ap.Gaussian("x", "y", sigma=0.5), 0.5)):
        stream = ap.Stream(table, key="key", time="time", value=value)
        found = ap.fence_events(stream, fences, enter=0.6)
        never = {row["values"].split('"')[3] for row in ap.rejects(found).to_pylist()}
        assert never == ({"a", "b", "c", "e"} if sigma == 1.0 else {"a", "b"})
        assert not never & set(found["query"].to_pylist())
    assert "can never be entered with errors like these" in ap.rejects(found)["detail"][0].as_py()
    table = pa.table({"key": ["a"], "time": [0.0], "lat": [47.0], "lon": [8.0]})
    meadow = pa.table(
        {"query": ["m"], "region": ["POLYGON ((8 47, 8.0002 47, 8.0002 47.0002, 8 47.0002, 8 47))"]}
    )  # 15 by 22 m
    for error, reported in ((5.0, 0), (15.0, 1)):
        stream = ap.Stream(table, key="key", time="time", value=ap.Position("lat", "lon", sigma=error))
        assert len(ap.rejects(ap.fence_events(stream, meadow, enter=0.6))) == reported


def test_bad_arguments() -> None:
    table = pa.table({"key": ["a"], "time": [0.0], "x": [1.0], "y": [1.0]})
    stream = ap.Stream(table, key="key", time="time", value=ap.Exact("x", "y"))
    fences = pa.table({"query": ["q"], "region": ["POLYGON ((0 0, 2 0, 2 2, 0 2, 0 0))"]})
    for changes, message in (
        ({"enter": 0.5, "leave": 0.6}, "would leave as it enters"),
        ({"dwell": 0}, "above 0"),
    ):
        with pytest.raises(ap.BadArgument, match=message):
            ap.fence_events(stream, fences, **changes)
    with pytest.raises(ap.BadArgument, match="no column 'region'"):
        ap.fence_events(stream, fences.drop_columns(["region"]))
    with pytest.raises(ap.BadArgument, match="column 'areas'"):
        ap.fence_events(stream, fences.append_column("areas", fences["region"]))
    one = ap.Stream(table, key="key", time="time", value=ap.Exact("x"))
    with pytest.raises(ap.BadArgument, match="places in a plane or on the Earth"):
        ap.fence_events(one, fences)


SQUARE = "POLYGON (({0} 0, {1} 0, {1} 10, {0} 10, {0} 0))"
WALK = pa.table({"van": ["a", "a"], "t": [0, 10], "x": [5.0, 50.0], "y": [5.0, 5.0]})


@pytest.mark.parametrize("names", [[None, "a", None], [float("nan"), 1.0, None]])
@pytest.mark.parametrize("condition", [False, True])
def test_fences_without_a_name_are_rejects(names: list[Any], *, condition: bool) -> None:
    """As queries without a key are; also those that come later."""
    regions = [SQUARE.format(0, 10), SQUARE.format(40, 60), "none"]
    fences = pa.table({"query": names, "region": regions})
    if condition:
        fences = fences.append_column("condition", pa.array(["x >", "x > 0", "x > 0"]))
    walk = ap.Stream(WALK, key="van", time="t", value=ap.Exact("x", "y"))
    found = ap.fence_events(walk, fences, enter=1, leave=1)
    assert found.select(["query", "event", "time"]).to_pylist() == [{"query": names[1], "event": "enter", "time": 10}]
    wrong = ap.rejects(found).select(["reason", "detail"]).to_pylist()
    assert wrong == [{"reason": "bad region", "detail": "query is null"}] * 2
    with pytest.raises(ap.BadInput, match="query is null"):
        ap.fence_events(walk, fences, enter=1, leave=1, on_reject="fail")
    by_hand = ap.FenceEvents(replace(walk, frame=None), fences, enter=1, leave=1)
    by_hand.change(fences.slice(0, 1).append_column("change", pa.array(["add"])))
    assert by_hand.push(WALK.slice(0, 1)).num_rows + by_hand.push(WALK.slice(1)).num_rows + len(by_hand.drain()) == 1
    assert len(by_hand.rejects()) == 3


@pytest.mark.parametrize("none", [pd.DataFrame(columns=["query", "region"]), pd.DataFrame({"query": [], "region": []})])
@pytest.mark.parametrize("pushed", [False, True])
@pytest.mark.parametrize("name", ["yard", 7])
def test_fences_may_begin_with_none(none: Any, name: Any, *, pushed: bool) -> None:
    call = ap.FenceEvents(ap.Stream(None, key="van", time="t", value=ap.Exact("x", "y")), none, enter=1, leave=1)
    if pushed:
        call.push(WALK.slice(0, 0))
    call.change(pd.DataFrame({"query": [name], "region": [SQUARE.format(0, 10)]}))
    found = pa.concat_tables([call.push(WALK), call.drain()])
    assert found["event"].to_pylist() == ["enter", "exit"]
    assert found["query"].to_pylist() == [name] * 2
