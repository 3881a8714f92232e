"""On Spark: one clock that is ahead must not make the rows of all others late, and a batch run again is the same."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import appulse as ap
from tests.helpers import hands
from tests.helpers.streaming import drained, read_stream
from tests.windows.test_future import reasons, stamped, track

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

STEP = 3000  # the row from the future comes in the second micro-batch of four


def written(folder: Path, table: pa.Table) -> None:
    """A file per micro-batch."""
    folder.mkdir()
    for i, begin in enumerate(range(0, len(table), STEP)):
        path = folder / f"{i:03}.parquet"
        pq.write_table(table.slice(begin, STEP), path)
        os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))


@pytest.mark.parametrize("window", [ap.TimeWindow(5), ap.CountWindow(30)], ids=["time", "count"])
def test_a_stream_goes_on_after_a_row_from_the_future(
    spark: SparkSession, tmp_path: Path, window: ap.TimeWindow
) -> None:
    table = stamped(track())
    times = table["t"].to_pylist()
    times[4_100] = times[4_100].replace(year=1970)  # a clock that was reset, in the micro-batch of the other
    table = table.set_column(table.column_names.index("t"), "t", pa.array(times, pa.timestamp("us")))
    written(tmp_path / "in", table)
    frame = read_stream(spark, tmp_path / "in")
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
    assert reasons(rejects) == reasons(by_hand.rejects()) == {"future": 1, "late": 1}


def test_readings_from_the_future_are_refused_in_streams(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path / "in", stamped(track()))
    frame = read_stream(spark, tmp_path / "in")
    alike = ap.sensor_join(ap.Stream(frame, key="id", time="t", value="v", lateness=10), window=1)
    assert reasons(drained(alike, tmp_path / "out")[1]) == {"future": 1}
