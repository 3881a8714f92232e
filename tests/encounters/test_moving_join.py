"""Joins of things that move, against every pair of rows moved to the time of the later one."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.bucket import Bucket
from appulse.engines.encounters.joining import resolve_moving
from appulse.engines.join.call import JoinSettings
from appulse.engines.spark.tiles import TilePlan
from tests.encounters.test_encounters import LOOSE, Case, FakeEncounters, cases, loose
from tests.helpers import naive_encounters as naive
from tests.helpers.streaming import drained, files, read_stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

WINDOWS = st.sampled_from((0.0, 1.0, 4.0, 20.0))


def _streams(case: Case, tables: Sequence[Any], *, still: bool, **changes: Any) -> list[ap.Stream[Any]]:
    streams = [case.stream(table, "ab"[i], **changes) for i, table in enumerate(tables)]
    return [replace(stream, motion=None) if still and i else stream for i, stream in enumerate(streams)]


def _asked(case: Case, window: float | ap.TimeWindow) -> dict[str, Any]:
    return {"epsilon": case.epsilon, "probability": case.asked.probability, "window": window}


def _found(case: Case, window: float, *, still: bool) -> pa.Table:
    streams = _streams(case, case.tables, still=still)
    join = ap.self_join if len(streams) == 1 else ap.similarity_join
    return join(*streams, **_asked(case, window))


@given(cases(), WINDOWS, st.booleans())
def test_pairs_are_those_of_the_twin(case: Case, window: float, still: bool) -> None:
    expected = naive.joined(case.streams, replace(case.asked, probability=1e-9), window, still=still)
    least = case.asked.probability
    near = LOOSE if loose(case) else 1e-7
    if any(abs(row["probability"] - least) < near and row["probability"] < 1.0 for row in expected):
        return  # rounding decides
    expected = [row for row in expected if row["probability"] >= least - 1e-9]
    found = _found(case, window, still=still).to_pylist()

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["left_key"], row["left_time"], row["right_key"], row["right_time"]

    assert sorted(map(place, found)) == sorted(map(place, expected))
    for row in found:
        same = [one for one in expected if place(one) == place(row)]
        assert any(
            row["distance"] == pytest.approx(one["distance"], abs=1e-9)
            and row["probability"] == pytest.approx(one["probability"], abs=LOOSE if loose(case) else 1e-8)
            for one in same
        )


@given(cases(), WINDOWS, st.booleans(), st.integers(1, 7), st.integers(0, 1000))
def test_pushes_and_a_played_spark_give_what_whole_tables_give(
    case: Case, window: float, still: bool, cut: int, seed: int
) -> None:
    """In any order and cut, in any tiles, with attempts that fail."""
    expected = _found(case, window, still=still)
    streams = _streams(case, [None, None][: len(case.streams)], still=still, lateness=100)
    rows = [(i, row) for i, own in enumerate(case.streams) for row in own]
    chance = Random(seed)
    chance.shuffle(rows)
    join = ap.SimilarityJoin(*streams, **_asked(case, window))
    settings = JoinSettings(**_asked(case, ap.TimeWindow(window)))
    call = resolve_moving(streams, [table.schema for table in case.tables], settings)
    plan = TilePlan(chance.randint(1, 4), chance.choice((0.7, 5.0)), 0.0, 0.0)
    spark = FakeEncounters(call, plan, chance, slot=chance.choice((1 << 20, 1 << 23)))
    pushed, played = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bucket, "slack", chance.choice((-(1 << 40), 1 << 18)))
        for at in range(0, len(rows), cut):
            given_rows = rows[at : at + cut]
            tables = {
                encoding.name: case.table([row for s, row in given_rows if s == i])
                for i, encoding in enumerate(call.encodings)
            }
            pushed.append(join.push(**tables))
            played += spark.batch(tables)[0]
        played += spark.end()[0]
    pushed.append(join.drain())
    if rows:
        assert _rows(pushed) == _rows([expected])
    assert _rows(played) == _rows([expected])


def test_a_car_is_where_it_is_when_a_camera_sees_it() -> None:
    """Readings as they are put the car 20 m off; between its readings it passes the camera's place."""
    cars = pa.table({"car": ["a", "a"], "at": [0.0, 4.0], "x": [0.0, 40.0], "y": [0.0, 0.0]})
    seen = pa.table({"plate": ["?"], "at": [2.0], "x": [20.5], "y": [0.0]})
    sight = ap.Stream(seen, key="plate", time="at", value=ap.Exact("x", "y"))
    still = ap.Stream(cars, key="car", time="at", value=ap.Exact("x", "y"))
    asked: dict[str, Any] = {"epsilon": 1.0, "probability": 1.0, "window": 10}
    assert len(ap.similarity_join(still, sight, **asked)) == 0
    (row,) = ap.similarity_join(replace(still, motion=ap.Straight(5)), sight, **asked).to_pylist()
    assert (row["left_time"], row["right_time"], row["distance"]) == (0.0, 2.0, 0.5)


def test_on_the_earth_a_course_leads_along_it_and_noise_grows() -> None:
    """A ship that goes east for a minute, seen by a radar; its error has grown by then."""
    ship = pa.table({"id": ["s"], "t": [0.0], "lat": [50.0], "lon": [-1.0], "sog": [20.0], "cog": [90.0]})
    metres = 20.0 * 1852.0 / 3600.0 * 60.0
    lon = -1.0 + metres / (111_320.0 * math.cos(math.radians(50.0)) * 1.00224)
    radar = pa.table({"id": ["r"], "t": [60.0], "lat": [50.0], "lon": [lon]})
    course = ap.Course("sog", "cog", horizon="10 minutes", unit="knots", noise=2.0)
    left = ap.Stream(ship, "id", "t", ap.Position("lat", "lon", sigma=10.0), motion=course)
    right = ap.Stream(radar, "id", "t", ap.Position("lat", "lon", sigma=5.0))
    (row,) = ap.similarity_join(left, right, epsilon=30.0, probability=0.5, window=120).to_pylist()
    assert row["distance"] < 5.0
    variance = 10.0**2 + 5.0**2 + 2.0**2 * 60.0
    assert row["probability"] == pytest.approx(1.0 - math.exp(-(30.0**2) / (2.0 * variance)), abs=0.01)


def test_errors_grow_beyond_the_horizon() -> None:
    """In a plane and on the Earth; what stands may have moved."""
    here = pa.table({"k": ["a"], "t": [0.0], "x": [0.0], "y": [0.0], "still": [0.0]})
    later = pa.table({"k": ["b"], "t": [20.0], "x": [0.0], "y": [0.0]})
    for value in ap.Gaussian("x", "y", sigma=1.0), ap.Position("y", "x", sigma=1.0):
        motion = ap.Velocity("still", "still", horizon=1, noise=2.0)
        moves = ap.Stream(here, "k", "t", value, motion=motion)
        stands = ap.Stream(later, "k", "t", value)
        (row,) = ap.similarity_join(moves, stands, epsilon=7.0, probability=0.1, window=60).to_pylist()
        variance = 1.0 + 1.0 + 2.0**2 * 20.0
        assert row["probability"] == pytest.approx(1.0 - math.exp(-(7.0**2) / (2.0 * variance)), abs=1e-6)


def test_what_is_not_built_is_an_error() -> None:
    table = pa.table({"k": ["a"], "t": [0.0], "x": [0.0]})
    stream = ap.Stream(table, "k", "t", ap.Exact("x"), motion=ap.Straight(5))
    asked: dict[str, Any] = {"epsilon": 1.0, "probability": 1.0, "window": 10}
    other = replace(stream, motion=None)
    for more in ({"how": "left"}, {"emit": "changes"}, {"values": True}, {"window": ap.CountWindow(3)}):
        with pytest.raises(ap.NotBuilt):
            ap.similarity_join(stream, other, **asked | more)
    with pytest.raises(ap.NotBuilt, match="different"):
        ap.self_join(stream, different="x", **asked)
    with pytest.raises(ap.NotBuilt, match="join two"):
        ap.similarity_join(stream, other, replace(stream), **asked)
    with pytest.raises(ap.NotBuilt, match="not built for this call"):
        ap.nearest(stream, other, k=1, epsilon=1.0, window=10)
    with pytest.raises(ap.NotBuilt, match="current"):
        ap.SimilarityJoin(replace(stream, frame=None), **asked).current()
    twice = pa.concat_tables([table, table])
    assert [row["reason"] for row in ap.rejects(ap.self_join(replace(stream, frame=twice), **asked)).to_pylist()] == [
        "same time"
    ]


def test_spark_answers_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    chance = Random(3)
    n, start = 240, [chance.uniform(0, 30) for _ in range(30)]
    keys = [i % 30 for i in range(n)]
    time = [i / 10 for i in range(n)]
    x = [start[k] + 0.2 * t for k, t in zip(keys, time, strict=True)]
    table = pa.table({"key": [f"k{k}" for k in keys], "t": time, "x": x, "y": [float(k % 3) for k in keys]})
    stream = ap.Stream(table, "key", "t", ap.Gaussian("x", "y", sigma=0.2), motion=ap.Straight(8), carry=["x"])
    asked: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5, "window": 2}
    expected = ap.self_join(stream, **asked)
    assert len(expected) > 40
    folder = files(tmp_path / "in", table, 130)
    batch = ap.self_join(replace(stream, frame=spark.read.parquet(str(folder))), **asked).toArrow()
    assert batch.schema.names == expected.schema.names
    assert _rows([batch]) == _rows([expected])
    found, rejects = drained(ap.self_join(replace(stream, frame=read_stream(spark, folder)), **asked), tmp_path / "out")
    assert _rows([found]) == _rows([expected])
    assert len(rejects) == 0


def _rows(tables: Sequence[pa.Table]) -> list[str]:
    return sorted(repr(row) for table in tables for row in table.to_pylist())
