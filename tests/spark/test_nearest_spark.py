"""The nearest rows on Spark: whichever tiles find the pairs, those of one process."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from tests.helpers.fake_spark import FakeSpark
from tests.helpers.strategies import pushes
from tests.helpers.streaming import assume_rows, drained_answers, few, read_stream, read_written
from tests.operators.test_nearest import NEAREST, call_of, expected, questions, reported, stream, table
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
    assert reported(found, case, asked["by"]) == expected(case, asked)


@few
@given(st.data())
def test_spark_finds_them_at_once_and_batch_by_batch(spark: SparkSession, tmp_path: Path, data: st.DataObject) -> None:
    """The same rows from whole files, with and without a limit, and from micro-batches with late rows, once drained."""
    some = questions(windows=("time", "count", "delta"), everywhere=True, lateness=True, most=6)
    case, asked = data.draw(some)
    assume_rows(case.tables)
    save_batches(tmp_path / "in", case, data.draw(pushes(case, most=3)))
    folders = [tmp_path / "in" / str(s) for s in range(2)]

    def on_spark(frames: list[Any], **more: Any) -> DataFrame:
        settings: dict[str, Any] = asked | more
        result: DataFrame = NEAREST(*streams_of(case, frames), **settings, options=TWO)
        return result

    whole = [spark.read.parquet(str(folder)) for folder in folders]
    assert reported([on_spark(whole).toArrow()], case, asked["by"]) == expected(case, asked)
    if isinstance(case.window, ap.TimeWindow):
        unlimited: dict[str, Any] = {"epsilon": None, "by": "distance", "probability": 0.0}
        found = on_spark(whole, **unlimited).toArrow()
        assert reported([found], case, "distance") == expected(case, asked | unlimited)
    answers = drained_answers(on_spark([read_stream(spark, folder) for folder in folders]), tmp_path / "out")
    assert reported([answers], case, asked["by"]) == expected(case, asked)


def test_a_restart_loses_no_pair(spark: SparkSession, tmp_path: Path) -> None:
    """Pairs found before a stop are the nearest after it; workers start with empty caches."""
    n, chance = 60, Random(0)
    lefts, rights = (
        table(list(range(n)), [float(i) for i in range(n)], [float(chance.randint(0, 99)) for _ in range(n)])
        for _ in range(2)
    )
    for window in (ap.TimeWindow(12), ap.CountWindow(8)):
        asked: dict[str, Any] = {"k": 2, "epsilon": 30.0, "window": window, "how": "left"}
        expected = ap.nearest(stream(lefts), stream(rights), **asked)
        root = tmp_path / type(window).__name__
        sink = "parquet", {"path": str(root / "answers")}
        for part in range(2):
            folders = []
            for name, rows in (("left", lefts), ("right", rights)):
                folder = root / name
                folder.mkdir(parents=True, exist_ok=True)
                pq.write_table(rows.slice(part * 30, 30), folder / f"{part}.parquet")
                folders.append(folder)
            result: Any = ap.nearest(*(stream(read_stream(spark, f)) for f in folders), **asked, options=TWO)
            drain = part == 1
            trigger: Any = {} if drain else {"trigger": {"availableNow": True}}
            query = ap.start(result, sink, checkpoint=str(root / "checkpoint"), drain=drain, **trigger)
            query.awaitTermination()
        found = read_written(root / "answers")
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))
        assert len(found) > n


def test_a_table_too_large_to_travel_is_brought_to_each_worker_once(spark: SparkSession) -> None:
    n, chance = 20_000, Random(1)
    rows = [table(list(range(n)), [0.0] * n, [chance.random() for _ in range(n)]) for _ in range(2)]
    expected = ap.nearest(stream(rows[0]), stream(rows[1]), epsilon=None, window=1)
    frames = [stream(spark.createDataFrame(one.to_pandas())) for one in rows]
    found = ap.nearest(*frames, epsilon=None, window=1).toArrow()
    order = [("left_key", "ascending")]
    assert (
        found.sort_by(order)
        .select(["left_key", "right_key", "distance"])
        .equals(expected.sort_by(order).select(["left_key", "right_key", "distance"]))
    )


def test_without_a_limit_rows_are_a_table(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(table([1], [0.0], [0.0]), tmp_path / "0.parquet")
    frames: Any = [stream(read_stream(spark, tmp_path)) for _ in range(2)]
    with pytest.raises(ap.BadArgument, match="whole tables"):
        ap.nearest(*frames, epsilon=None, window=1)
    bad = pa.table({"k": [1, 2], "t": [0.0, 0.0], "x": [0.0, None]})
    frames = [stream(spark.createDataFrame(one.to_pandas())) for one in (table([1], [0.0], [0.0]), bad)]
    result: Any = ap.nearest(*frames, epsilon=None, window=1)
    assert result.toArrow()["right_key"].to_pylist() == [1]
    assert ap.rejects(result).toArrow()["reason"].to_pylist() == ["non-finite value"]
    with pytest.raises(ap.BadInput):
        ap.nearest(*frames, epsilon=None, window=1, on_reject="fail")
