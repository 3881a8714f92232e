"""Rows with few partners on Spark: whichever tiles find the pairs, those of one process."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.join.outliers import OutlierSettings, resolve_outliers
from appulse.engines.spark.tiles import hashed_plan
from tests.helpers.fake_spark import FakeSpark
from tests.helpers.strategies import pushes
from tests.helpers.streaming import assume_rows, drained_answers, few, read_stream, read_written
from tests.operators.test_outliers import call_of, expected, questions, reported
from tests.spark.test_spark_join import save_batches, streams_of
from tests.spark.test_tiles import plans

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

TWO = ap.Options(partitions=2)


@given(st.data())
def test_tiles_find_what_one_process_does(data: st.DataObject) -> None:
    """Any plan, any cut into batches, lost caches and failed attempts, and a new plan on the way."""
    case, asked = data.draw(questions(everywhere=True, lateness=True, most=8))
    call = call_of(case, asked)
    spark = FakeSpark(call, data.draw(plans(case)), Random(data.draw(st.integers(0, 1 << 30))))
    found = [call.no_answers]
    for push in data.draw(pushes(case)):
        found += spark.batch(case.frames(push))[0]
        if data.draw(st.integers(0, 5)) == 0:
            spark.replan(data.draw(plans(case)))
    found += spark.end()[0]
    assert reported(found, case) == expected(case, asked)


def test_an_attempt_at_the_end_that_fails_takes_no_row_with_it() -> None:
    """Time has come to the newest row before, so the time does not show what the attempt reported."""
    table = pa.table({"id": [1, 2], "ts": [1.0, 2.0], "x": [0.0, 9.0]})
    stream = ap.Stream(None, key="id", time="ts", value=ap.Exact("x"), name="a")
    asked = OutlierSettings(epsilon=1.0, fewer_than=1, probability=0.5, window=ap.TimeWindow(0.5))
    call = resolve_outliers([stream], [table.schema], asked)
    for seed in range(20):
        spark = FakeSpark(call, hashed_plan(call.plan, 1, None), Random(seed), workers=1)
        found = spark.batch({"a": table})[0] + spark.batch({})[0] + spark.end()[0]
        assert [row["key"] for part in found for row in part.to_pylist()] == [1, 2]


@few
@given(st.data())
def test_spark_finds_them_at_once_and_batch_by_batch(spark: SparkSession, tmp_path: Path, data: st.DataObject) -> None:
    """The same rows from whole files, and from micro-batches with late rows, once drained."""
    case, asked = data.draw(questions(windows=("time", "count", "delta"), everywhere=True, lateness=True, most=6))
    assume_rows(case.tables)
    save_batches(tmp_path / "in", case, data.draw(pushes(case, most=3)))
    folders = [tmp_path / "in" / str(s) for s in range(len(case.streams))]

    def on_spark(frames: list[Any]) -> DataFrame:
        result: DataFrame = ap.outliers(*streams_of(case, frames), **asked, options=TWO)
        return result

    whole = on_spark([spark.read.parquet(str(folder)) for folder in folders]).toArrow()
    assert reported([whole], case) == expected(case, asked)
    answers = drained_answers(on_spark([read_stream(spark, folder) for folder in folders]), tmp_path / "out")
    assert reported([answers], case) == expected(case, asked)


def test_a_restart_forgets_no_partner(spark: SparkSession, tmp_path: Path) -> None:
    """Partners found before a stop count after it; workers start with empty caches."""
    n, chance = 60, Random(0)
    columns = {
        "k": list(range(n)),
        "t": [float(i) for i in range(n)],
        "x": [float(chance.randint(0, 9)) for _ in range(n)],
    }
    rows = pa.table(columns)
    asked: dict[str, Any] = {"epsilon": 1.0, "fewer_than": 4, "probability": 0.7, "window": 12}

    def stream(frame: Any) -> ap.Stream[Any]:
        return ap.Stream(frame, key="k", time="t", value=ap.Gaussian("x", sigma=0.4), carry=["x"])

    expected = ap.outliers(stream(rows), **asked)
    sinks = [("parquet", {"path": str(tmp_path / name)}) for name in ("answers", "rejects")]
    (tmp_path / "in").mkdir()
    for part in range(2):
        pq.write_table(rows.slice(part * 30, 30), tmp_path / "in" / f"{part}.parquet")
        result: Any = ap.outliers(stream(read_stream(spark, tmp_path / "in")), **asked, options=TWO)
        drain = part == 1
        trigger: Any = {} if drain else {"trigger": {"availableNow": True}}
        query = ap.start(result, *sinks, checkpoint=str(tmp_path / "checkpoint"), drain=drain, **trigger)
        query.awaitTermination()
    found = read_written(tmp_path / "answers")
    assert 0 < len(expected) < n
    # One process adds partners up as they come, a stage of Spark in order of their probabilities.
    ours, theirs = (table.sort_by("key").to_pylist() for table in (found, expected))
    assert [row["key"] for row in ours] == [row["key"] for row in theirs]
    assert all(row == pytest.approx(other, abs=1e-12) for row, other in zip(ours, theirs, strict=True))
