"""Rows without a partner on Spark: whichever tiles find the pairs, the rows of one process, once each."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from tests.helpers.fake_spark import FakeSpark
from tests.helpers.strategies import Case, cases, pushes
from tests.helpers.streaming import assume_rows, drained_answers, few, read_stream, read_written, reopen
from tests.operators.test_partners import (
    HOW,
    WINDOWS,
    Push,
    alone,
    check_when_alone,
    reported,
    sides_of,
    streamed,
)
from tests.spark.test_spark_join import save_batches, streams_of
from tests.spark.test_tiles import call_of, plans, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

TWO = ap.Options(partitions=2)


def asked(case: Case, how: str) -> Any:
    """The call on Spark, whose keys tell all rows apart."""
    call = call_of(case)
    apart = tuple(replace(encoding, kept_apart=True) for encoding in call.encodings)
    return replace(call, plan=replace(call.plan, how=how), streams=apart)


@given(st.data())
def test_tiles_report_the_rows_that_one_process_does(data: st.DataObject) -> None:
    """Any plan, any cut into batches, lost caches and failed attempts, and a new plan on the way."""
    some = cases(windows=WINDOWS, everywhere=True, lateness=True, most=8)
    case = data.draw(some.filter(lambda case: len(case.streams) == 2))
    how = data.draw(st.sampled_from(HOW))
    call = asked(case, how)
    spark = FakeSpark(call, data.draw(plans(case)), Random(data.draw(st.integers(0, 1 << 30))))
    found = []
    for push in data.draw(pushes(case)):
        found += spark.batch(case.frames(push))[0]
        if data.draw(st.integers(0, 5)) == 0:
            spark.replan(data.draw(plans(case)))
    answers, _ = spark.end()
    found += answers
    assert reported([call.no_answers, *found], case) == alone(case, how)


@settings(max_examples=8)
@given(streamed(), st.data())
def test_tiles_report_a_row_alone_when_no_row_that_may_still_come_is_its_partner(
    given: tuple[Case, list[Push]], data: st.DataObject
) -> None:
    """As in one process, with lost caches and failed attempts, and the watermark of the batch before."""
    case, cut = given
    call, plan, seed = asked(case, "full"), data.draw(plans(case, 2)), data.draw(st.integers(0, 1 << 30))

    def played(more: list[Push]) -> tuple[FakeSpark, list[pa.Table], list[pa.Table]]:
        spark = FakeSpark(call, plan, Random(seed))
        batches = [spark.batch(push) for push in [*cut, {}, *more]]  # one without rows sees what all rows completed
        answers, rejects = ([table for both in batches for table in both[i]] for i in range(2))
        return spark, answers, rejects

    def paired_after(more: list[Push]) -> set[tuple[str, int]]:
        spark, answers, _ = played(more)
        return sides_of([call.no_answers, *answers, *spark.end()[0]])[1]

    spark, answers, rejects = played([])
    late = [row for table in rejects for row in table.to_pylist()]
    single, _ = sides_of([call.no_answers, *answers])
    check_when_alone(cut, late, single, spark._watermark() or 0, paired_after)


def on_spark(case: Case, how: str, frames: list[Any]) -> DataFrame:
    asked: Any = case.settings
    result: DataFrame = ap.similarity_join(
        *streams_of(case, frames), **asked, how=how, options=ap.Options(partitions=2)
    )
    return result


@few
@given(st.data())
def test_spark_reports_them_at_once_and_batch_by_batch(
    spark: SparkSession, tmp_path: Path, data: st.DataObject
) -> None:
    """The same rows from whole files and from micro-batches with late rows, once drained."""
    some = cases(windows=("time", "count", "delta"), everywhere=True, lateness=True, most=6)
    case = data.draw(some.filter(lambda case: len(case.streams) == 2))
    assume_rows(case.tables)
    how = data.draw(st.sampled_from(HOW))
    cut = data.draw(pushes(case, most=3))
    save_batches(tmp_path / "in", case, cut)
    folders = [tmp_path / "in" / str(s) for s in range(2)]
    expected = alone(case, how)
    whole = on_spark(case, how, [spark.read.parquet(str(folder)) for folder in folders]).toArrow()
    assert reported([whole], case) == expected
    answers = drained_answers(on_spark(case, how, [read_stream(spark, folder) for folder in folders]), tmp_path / "out")
    assert reported([answers], case) == expected
    if how != "left_anti":
        pairs = [table.filter(pc.is_valid(table["probability"])) for table in (whole, answers)]
        assert rows_of(pairs[:1]) == rows_of(pairs[1:])


def test_a_restart_reports_no_row_twice_and_forgets_none(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that had a partner before a stop are not alone after it; workers start with empty caches."""
    n, chance = 60, Random(0)
    lefts, rights = (
        pa.table(
            {"k": range(n), "t": [float(i) for i in range(n)], "x": [float(chance.randint(0, 9)) for _ in range(n)]}
        )
        for _ in range(2)
    )
    value = ap.Exact("x")
    for window in (ap.TimeWindow(6), ap.CountWindow(5)):
        asked: Any = {"epsilon": 0.25, "probability": 0.5, "window": window, "how": "full"}
        expected = ap.similarity_join(*(ap.Stream(t, key="k", time="t", value=value) for t in (lefts, rights)), **asked)
        root = tmp_path / type(window).__name__
        sink = "parquet", {"path": str(root / "answers")}
        for part in (0, 1, 1):
            folders = []
            for name, table in (("left", lefts), ("right", rights)):
                folder = root / name
                folder.mkdir(parents=True, exist_ok=True)
                pq.write_table(table.slice(part * 30, 30), folder / f"{part}.parquet")
                folders.append(folder)
            streams = [ap.Stream(read_stream(spark, f), key="k", time="t", value=value) for f in folders]
            result: Any = ap.similarity_join(*streams, **asked, options=ap.Options(partitions=2))
            drain = part == 1
            trigger: Any = {} if drain else {"trigger": {"availableNow": True}}
            query = ap.start(result, sink, checkpoint=str(root / "checkpoint"), drain=drain, **trigger)
            query.awaitTermination()
            if drain:
                reopen(root / "checkpoint")
        found = read_written(root / "answers")
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))
        assert found["right_key"].null_count > 5
        assert found["left_key"].null_count > 5
