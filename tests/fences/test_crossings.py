"""Crossings: legs that pass through fences between two readings, against shapely and quadrature."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.fences.bucket import FenceBucket
from appulse.engines.fences.call import FenceSettings, resolve_fences
from appulse.engines.spark.tiles import TilePlan
from tests.fences.test_fence_events import FakeFences, cases, rows_of, table_of
from tests.helpers import naive_fences as naive

if TYPE_CHECKING:
    from tests.fences.test_fence_events import Case

GAP, LEAST = 12.0, 0.5
MOTION = ap.Straight(max_gap=GAP)


def _found(case: Case, frame: Any = None, **changes: Any) -> Any:
    stream = case.stream(case.table if frame is None else frame, motion=MOTION, **changes)
    return ap.fence_events(stream, case.fences, **case.asked, crossing=LEAST)


def _expected(case: Case, least: float) -> list[naive.Crossing]:
    events = naive.events(case.rows, case.chances(), case.enter, case.leave, case.dwell)
    fences = [(f"f{i}", *one) for i, one in enumerate(zip(case.shapes, case.radii, strict=True))]
    return naive.crossings(case.rows, fences, events, GAP, least)


@settings(deadline=None, max_examples=25)
@given(cases())
def test_crossings_are_those_of_the_twin(case: Case) -> None:
    if not case.sure():
        return
    expected = _expected(case, LEAST - 1e-3)
    table = _found(case)
    plain = ap.fence_events(case.stream(case.table), case.fences, **case.asked)
    events = table.to_pylist()
    assert rows_of([plain]) == rows_of([table.filter(pa.compute.not_equal(table["event"], "cross"))])
    if any(abs(one.probability - LEAST) < 1e-3 for one in expected):
        return
    found = {(row["query"], row["key"], row["time"]): row for row in events if row["event"] == "cross"}
    assert len(found) == len(expected)
    for one in expected:
        leg = one.begin.time, one.end.time
        own = [row for (*who, at), row in found.items() if who == [one.query, one.key] and leg[0] <= at <= leg[1]]
        row = min(own, key=lambda row: abs(row["probability"] - one.probability))
        assert row["probability"] == pytest.approx(one.probability, abs=5e-4)
        assert row["since"] is None
        assert case.is_carried(row, one.begin.time)
        share = (row["time"] - leg[0]) / (leg[1] - leg[0])
        way = shapely.LineString([(one.begin.x, one.begin.y), (one.end.x, one.end.y)])
        at = shapely.line_interpolate_point(way, share, normalized=True)
        index = int(one.query[1:])
        far = shapely.distance(case.shapes[index], at) - (case.radii[index] or 0.0)
        assert max(0.0, far) == pytest.approx(one.distance, abs=1e-5)


@settings(deadline=None, max_examples=15)
@given(cases(), st.integers(1, 9), st.integers(1, 3), st.sampled_from((-(1 << 40), 1 << 18)))
def test_however_they_come_the_answers_are_the_same(case: Case, cut: int, buckets: int, slack: int) -> None:
    """By hand in any cut and order, and on a played Spark whose workers forget and fail."""
    if not case.rows:
        return
    expected, rows = rows_of([_found(case)]), list(case.rows)
    Random(cut).shuffle(rows)
    parts = [table_of(rows[at : at + cut]) for at in range(0, len(rows), cut)]
    by_hand = ap.FenceEvents(case.stream(None, motion=MOTION, lateness=100), case.fences, **case.asked, crossing=LEAST)
    assert rows_of([*map(by_hand.push, parts), by_hand.drain()]) == expected
    settings = FenceSettings(**case.asked, crossing=LEAST)
    stream = case.stream(None, motion=MOTION, lateness=100)
    call = resolve_fences(stream, case.table.schema, case.fences, settings)
    spark = FakeFences(call, TilePlan(buckets, 1.0, 0.0, 0.0), Random(cut))
    found: list[pa.Table] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FenceBucket, "slack", slack)
        for part in parts:
            found += spark.batch({call.encoding.name: part})[0]
        found += spark.end()[0]
    assert rows_of(found) == expected


@pytest.mark.parametrize("lon", [8.0, 179.98, -179.98])
def test_on_earth_a_way_may_be_long_and_pass_the_180th_meridian(lon: float) -> None:
    """An aircraft passes a sector of an airspace and the disc around a beacon between two reports."""
    end = (lon + 0.4 + 180.0) % 360.0 - 180.0
    track = pa.table({"key": ["a", "a"], "time": [0.0, 60.0], "lat": [47.0, 47.0], "lon": [lon, end]})
    fences = pa.table(
        {
            "query": ["sector", "beacon", "far"],
            "region": [
                shapely.box(lon + 0.1, 46.9, lon + 0.2, 47.1).wkt,
                f"POINT ({lon + 0.3 if lon < 179 else lon + 0.3 - 360} 47.005)",
                shapely.box(lon + 0.1, 47.1, lon + 0.2, 47.2).wkt,
            ],
            "radius": [None, 900.0, None],
        }
    )
    stream = ap.Stream(
        track, key="key", time="time", value=ap.Position("lat", "lon", sigma=50.0), motion=ap.Straight("2 minutes")
    )
    found = {row["query"]: row for row in ap.fence_events(stream, fences, crossing=0.9).to_pylist()}
    assert set(found) == {"sector", "beacon"}
    assert found["sector"]["time"] == pytest.approx(60 * 0.15 / 0.4, abs=0.5)
    assert found["beacon"]["time"] == pytest.approx(60 * 0.3 / 0.4, abs=0.5)


def test_a_leg_that_keeps_inside_without_being_sure_of_it_at_either_end() -> None:
    """Each reading is inside with less than is needed to enter; that one of all places between is, is sure."""
    table = pa.table({"key": ["a", "a"], "time": [0.0, 10.0], "x": [0.6, 9.4], "y": [5.0, 5.0]})
    fences = pa.table({"query": ["q"], "region": ["POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"]})
    stream = ap.Stream(table, key="key", time="time", value=ap.Gaussian("x", "y", sigma=1.0), motion=MOTION)
    (event,) = ap.fence_events(stream, fences, crossing=0.9).to_pylist()
    assert (event["event"], event["time"]) == ("cross", pytest.approx(5.0, abs=1e-6))
    assert event["probability"] == pytest.approx(1.0, abs=1e-5)


def test_bad_arguments() -> None:
    table = pa.table({"key": ["a"], "time": [0.0], "x": [1.0], "y": [1.0]})
    fences = pa.table({"query": ["q"], "region": ["POLYGON ((0 0, 2 0, 2 2, 0 2, 0 0))"]})
    still = ap.Stream(table, key="key", time="time", value=ap.Exact("x", "y"))
    with pytest.raises(ap.BadArgument, match=r"Give motion=ap\.Straight"):
        ap.fence_events(still, fences, crossing=0.9)
    with pytest.raises(ap.BadArgument, match="emit='visits'"):
        ap.fence_events(replace(still, motion=MOTION), fences, crossing=0.9, emit="visits")


def test_a_disc_of_two_deviations_has_the_mass_of_an_ellipse() -> None:
    """Errors that differ east and north: the disc is not seen as a circle."""
    table = pa.table({"key": ["a"], "time": [0.0], "x": [1.0], "y": [0.0]})
    disc = pa.table({"query": ["q"], "region": ["POINT (0 0)"], "radius": [2.0]})
    stream = ap.Stream(table, key="key", time="time", value=ap.Gaussian("x", "y", sigma=(0.5, 3.0)))
    (event,) = ap.fence_events(stream, disc, enter=0.1, leave=0.1).to_pylist()
    expected = naive.mass(shapely.buffer(shapely.Point(0, 0), 2.0, quad_segs=400), 1.0, 0.0, 0.5, 3.0)
    assert event["probability"] == pytest.approx(expected, abs=1e-5)
