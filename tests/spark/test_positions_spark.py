"""Positions on Spark: tiles of the Earth in all three coordinates, and answers as in process."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.join.local import LocalJoin
from appulse.engines.options import Options
from appulse.engines.spark.tiles import TilePlan, hashed_plan, planned
from appulse.model.encode import encode
from tests.helpers.fake_spark import FakeSpark
from tests.helpers.strategies import ALTITUDES, PLACES, Case, cases, pushes
from tests.helpers.streaming import assume_rows, drained_answers, few, read_stream
from tests.spark.test_spark_join import call_spark, save_batches
from tests.spark.test_tiles import call_of, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

WINDOWS = ("time", "count", "tumble", "uncertain")
PLACES_AND_ALTITUDES: list[dict[str, Any]] = [
    {"models": models, "dimensions": (d,), "windows": WINDOWS, "everywhere": True}
    for models, d in ((PLACES, 2), (ALTITUDES, 3))
]


@st.composite
def plans(draw: st.DrawFn, case: Case) -> TilePlan:
    """Plans with cells of many sides, made from the rows or not."""
    call = call_of(case)
    tiles, side = draw(st.sampled_from((1, 2, 3, 8))), draw(st.sampled_from((None, 300.0, 3000.0)))
    if draw(st.booleans()):
        sample = [encode(table, e)[0] for table, e in zip(case.tables, call.encodings, strict=True)]
        return planned(call.plan, tiles, sample, max(call.plan.windows, default=1 << 60), side)
    plan = hashed_plan(call.plan, tiles, call.encodings[0].gaussian_reach, side)
    return replace(plan, coarse_side=plan.side * draw(st.sampled_from((0.0, 4.0))))


@given(st.data())
def test_tiles_answer_as_one_process_does(data: st.DataObject) -> None:
    """Any plan, any cut into batches, lost caches and failed attempts."""
    case = data.draw(st.sampled_from(PLACES_AND_ALTITUDES).flatmap(lambda kinds: cases(**kinds, lateness=True, most=8)))
    case = replace(case, emit=data.draw(st.sampled_from(("matches", "changes"))))
    call = call_of(case)
    spark = FakeSpark(call, data.draw(plans(case)), Random(data.draw(st.integers(0, 1 << 30))))
    local, expected, found = LocalJoin(call), [], []
    for push in data.draw(pushes(case, late=data.draw(st.booleans()))):
        expected.append(local.push(case.frames(push)))
        found += spark.batch(case.frames(push))[0]
    expected.append(local.drain())
    found += spark.end()[0]
    assert rows_of(found) == rows_of(expected)


def test_north_and_south_are_cells_of_their_own() -> None:
    """Places that lie on top of each other seen from above the pole."""
    north = pa.table({"id": range(200), "ts": [0.0] * 200, "lat": np.linspace(30, 31, 200), "lon": [10.0] * 200})
    south = north.set_column(2, "lat", pa.array(-north["lat"].to_numpy()))
    stream = ap.Stream(None, key="id", time="ts", value=ap.Position("lat", "lon"))
    call = call_of(Case((north,), (stream,), 2, 1000.0, 1.0, ap.TimeWindow(1), self_join=True))
    plan = hashed_plan(call.plan, 64, None)
    tiles = [set(plan.owners(encode(table, call.encodings[0])[0]).tolist()) for table in (north, south)]
    assert tiles[0] != tiles[1]
    assert TilePlan.of(plan.meaning()) == plan


@given(st.data())
@few
def test_batch_on_spark_answers_as_in_process(spark: SparkSession, tmp_path: Path, data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(PLACES_AND_ALTITUDES).flatmap(lambda kinds: cases(**kinds, most=6)))
    assume_rows(case.tables)
    save_batches(tmp_path / "in", case, [{s: list(range(len(t))) for s, t in enumerate(case.tables)}])
    frames = [spark.read.parquet(str(tmp_path / "in" / str(s))) for s in range(len(case.tables))]
    result, expected = call_spark(case, frames, Options(partitions=2)), case.run()
    assert rows_of([result.toArrow()]) == rows_of([expected])
    told = sorted(str(row["reason"]) for row in ap.rejects(result).toArrow().to_pylist())
    assert told == sorted(str(row["reason"]) for row in ap.rejects(expected).to_pylist())


@given(st.data())
@few
def test_streaming_on_spark_answers_as_pushes_in_process(
    spark: SparkSession, tmp_path: Path, data: st.DataObject
) -> None:
    case = data.draw(st.sampled_from(PLACES_AND_ALTITUDES).flatmap(lambda kinds: cases(**kinds, lateness=True, most=6)))
    assume_rows(case.tables)
    cut = data.draw(pushes(case, late=data.draw(st.booleans()), most=2))
    save_batches(tmp_path / "in", case, cut)
    frames = [read_stream(spark, tmp_path / "in" / str(s)) for s in range(len(case.tables))]
    answers = drained_answers(call_spark(case, frames, Options(partitions=2)), tmp_path / "out")
    join = case.by_hand()
    assert rows_of([answers]) == rows_of([*(join.push(**case.frames(push)) for push in cut), join.drain()])


@pytest.mark.parametrize("sigma", [0.0, "acc"])
def test_more_places_than_a_tile_holds(spark: SparkSession, tmp_path: Path, sigma: Any) -> None:
    """Over a pole and the 180th meridian, with a plan from a sample."""
    chance, n = np.random.default_rng(3), 400
    lat = np.where(np.arange(n) < n // 2, 90.0 - chance.uniform(0.0, 0.5, n), chance.uniform(-0.5, 0.5, n))
    lon = np.where(np.arange(n) < n // 2, chance.uniform(-180.0, 180.0, n), 180.0 + chance.uniform(-0.5, 0.5, n))
    table = pa.table({"id": np.arange(n), "ts": np.zeros(n), "lat": lat, "lon": lon, "acc": chance.uniform(0, 2e3, n)})
    stream = ap.Stream(None, key="id", time="ts", value=ap.Position("lat", "lon", sigma=sigma))
    case = Case((table,), (stream,), 2, 5e3, 0.5, ap.TimeWindow(1), self_join=True)
    save_batches(tmp_path / "in", case, [{0: list(range(n))}])
    frame = spark.read.parquet(str(tmp_path / "in" / "0"))
    found = call_spark(case, [frame], Options(partitions=4, sample=table)).toArrow()
    expected = case.run()
    assert len(expected) > 300
    assert rows_of([found]) == rows_of([expected])


@pytest.mark.parametrize("sigma", [0.0, "acc"])
def test_queries_on_spark_answer_as_in_process(spark: SparkSession, sigma: Any) -> None:
    """Certain coordinates as columns, uncertain ones by their points."""
    chance, n = np.random.default_rng(4), 60
    lat, lon = chance.uniform(50.0, 50.1, n), chance.uniform(179.9, 180.0, n)
    table = pa.table({"id": np.arange(n), "ts": np.zeros(n), "lat": lat, "lon": lon, "acc": chance.uniform(0, 2e3, n)})
    queries = pa.table({"query": [0, 1, 2], "condition": ["lat > 50.05", "lon BETWEEN 179.95 AND 180", "lon < 0"]})

    def found(frame: Any) -> list[tuple[Any, ...]]:
        stream = ap.Stream(frame, key="id", time="ts", value=ap.Position("lat", "lon", sigma=sigma))
        answers: Any = ap.match_queries(stream, queries, probability=0.25)
        answers = answers if isinstance(answers, pa.Table) else answers.toArrow()
        return sorted(tuple(row.values()) for row in answers.to_pylist())

    expected = found(table)
    assert len(expected) > n // 2
    assert found(spark.createDataFrame(table.to_pandas())) == expected
