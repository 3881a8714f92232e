"""On Spark: one clock that is ahead must not make the rows of all others late, and a batch run again is the same."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import appulse as ap
from tests import hands
from tests.test_future import reasons, stamped, track

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

STEP = 1500


def written(folder: Path, table: pa.Table) -> None:
    """A file per micro-batch."""
    folder.mkdir()
    for i, begin in enumerate(range(0, len(table), STEP)):
        path = folder / f"{i:03}.parquet"
        pq.write_table(table.slice(begin, STEP), path)
        os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))


def read_stream(spark: SparkSession, folder: Path, files: int) -> DataFrame:
    """So many files in each micro-batch."""
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(str(folder))


def drained(result: DataFrame, folder: Path) -> tuple[pa.Table, pa.Table]:
    sinks = [("parquet", {"path": str(folder / name)}) for name in ("answers", "rejects")]
    ap.start(result, *sinks, checkpoint=str(folder / "checkpoint"), drain=True).awaitTermination()
    spark = result.sparkSession
    return tuple(spark.read.parquet(str(folder / name)).toArrow() for name in ("answers", "rejects"))


@pytest.mark.parametrize("window", [ap.TimeWindow(5), ap.CountWindow(30)], ids=["time", "count"])
def test_a_stream_goes_on_after_a_row_from_the_future(
    spark: SparkSession, tmp_path: Path, window: ap.TimeWindow
) -> None:
    table = stamped(track())
    written(tmp_path / "in", table)
    frame = read_stream(spark, tmp_path / "in", 1)
    model = ap.Exact("x")
    stream = ap.Stream(frame, key="id", time="t", value=model, lateness="2 minutes", name="rows")
    settings: dict[str, Any] = {"epsilon": 0.1, "probability": 0.5, "window": window}
    answers, rejects = drained(ap.self_join(stream, **settings), tmp_path / "out")
    by_hand = hands.similarity_join(
        rows=ap.Stream(None, key="id", time="t", value=model, lateness="2 minutes"), **settings
    )
    parts = [by_hand.push(rows=table.slice(begin, STEP)) for begin in range(0, len(table), STEP)]
    expected = pa.concat_tables([*parts, by_hand.drain()])
    names = ["left_key", "right_key", "distance"]
    assert sorted(map(str, answers.select(names).to_pylist())) == sorted(map(str, expected.select(names).to_pylist()))
    assert reasons(rejects) == reasons(by_hand.rejects()) == {"future": 1}


def test_readings_from_the_future_are_refused_in_streams(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path / "in", stamped(track()))
    frame = read_stream(spark, tmp_path / "in", 2)
    alike = ap.sensor_join(ap.Stream(frame, key="id", time="t", value="v", lateness=10), window=1)
    assert reasons(drained(alike, tmp_path / "out")[1]) == {"future": 1}
