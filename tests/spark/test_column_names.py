"""Columns whose names Spark would read as more than a name: every call answers as in process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import appulse as ap
from appulse import jobs
from tests.engines.test_alerts import hook
from tests.helpers.streaming import drained, files, read_stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

KEY, TIME, X, Y, SIGMA, SURE, GROUP, NOTE = "thing.id", "at`utc", "pos.x", "pos`y", "s.d", "p`.", "grp.`1", "no.te"
N = 60
YARD = pa.table({"query": ["yard"], "region": ["POLYGON ((0 0, 6 0, 6 6, 0 6, 0 0))"]})
ALL = pa.table({"query": ["all"], "condition": [f'"{X}" > 3 AND `{NOTE}` < 9']})
WINDOW: dict[str, Any] = {"window": 40}


def rows_table() -> pa.Table:
    """Five things in two groups; one row is bad."""
    rng = np.random.default_rng(4)
    columns: dict[str, Any] = {KEY: [f"k{i % 5}" for i in range(N)], TIME: np.arange(N) * 5}
    columns |= {X: rng.uniform(0, 9, N).round(3), Y: rng.uniform(0, 9, N).round(3), SIGMA: np.full(N, 0.3)}
    columns |= {SURE: np.full(N, 0.9), GROUP: np.arange(N) % 2, NOTE: np.arange(N) % 11}
    columns[X][7] = np.nan
    # What a name with a dot would be a part of, read as Spark reads it.
    return pa.table(columns).append_column("pos", pa.array([{"x": -1.0}] * N))


def stream(frame: Any, **more: Any) -> ap.Stream[Any]:
    own: dict[str, Any] = {"value": ap.Gaussian(X, Y, sigma=SIGMA), "existence": SURE, "partition_by": GROUP}
    return ap.Stream(frame, key=KEY, time=TIME, **{**own, "lateness": 20, **more})


def joined(frame: Any) -> Any:
    return ap.self_join(stream(frame, carry=[NOTE]), epsilon=3.0, probability=0.2, different=KEY, **WINDOW)


def nearest(frame: Any) -> Any:
    given = stream(frame, carry=[NOTE], name="left"), stream(frame, name="right")
    return ap.nearest(*given, k=2, epsilon=5.0, **WINDOW)


def assigned(frame: Any) -> Any:
    given = stream(frame, carry=[NOTE], name="left"), stream(frame, name="right")  # each is nearest to itself
    return ap.assign(*given, epsilon=5.0, probability=0.1, window="tick")


def met(frame: Any) -> Any:
    exact = stream(frame, value=ap.Exact(X, Y), existence=None, partition_by=(), motion=ap.Straight(30))
    return ap.encounters(exact, epsilon=3.0, probability=0.5)


def aggregated(frame: Any) -> Any:
    exact = stream(frame, value=ap.Exact(X, Y), existence=None)
    return ap.window_aggregate(exact, {X: "mean", Y: ["min", "max"]}, window=ap.CountWindow(5))


def fenced(frame: Any) -> Any:
    exact = stream(frame, value=ap.Exact(X, Y), existence=None, partition_by=(), carry=[NOTE])
    return ap.fence_events(exact, YARD, enter=0.9, leave=0.1)


def matched(frame: Any) -> Any:
    return ap.match_queries(stream(frame, carry=[NOTE], partition_by=()), ALL, probability=0.3)


def outlying(frame: Any) -> Any:
    return ap.outliers(stream(frame), epsilon=1.0, fewer_than=3, probability=0.5, **WINDOW)


def sensed(frame: Any) -> Any:
    return ap.sensor_join(
        stream(frame, value=X, existence=None, carry=[NOTE]), resolution=1.0, window=ap.TimeWindow(40)
    )


def seen(frame: Any) -> Any:
    return ap.phenomena(stream(frame, value=X, existence=None), resolution=9.0, strength=1, span=40)


def chained(frame: Any) -> Any:
    pairs = ap.Stream(joined(frame), key="left_key", time="left_time", value=f"left_{NOTE}", lateness=100)
    return ap.window_aggregate(pairs, {f"left_{NOTE}": "mean"}, window=ap.TumblingWindow(50))


def filled(frame: Any) -> Any:
    holes = stream(frame, value=ap.Incomplete(X, Y), existence=None, partition_by=(), carry=[NOTE])
    return ap.self_join(
        ap.impute(holes, ap.MeanImputer(pa.table({X: [4.0], Y: [4.0]}))), epsilon=3.0, probability=0.2, **WINDOW
    )


def filled_around(frame: Any) -> Any:
    holes = stream(frame, value=ap.Incomplete(X, Y), existence=None, partition_by=(), carry=[NOTE])
    return ap.self_join(ap.impute(holes, ap.LastValueImputer()), epsilon=3.0, probability=0.2, **WINDOW)


def in_parts(frame: Any) -> Any:
    options = ap.Options(partitions=2) if hasattr(frame, "sparkSession") else None
    queries = pa.concat_tables([ALL, pa.table({"query": ["low"], "condition": [f'"{X}" < 2']})])
    return ap.match_queries(stream(frame, partition_by=()), queries, probability=0.3, options=options)


def over_windows(frame: Any) -> Any:
    given = [stream(frame, name=name, existence=None, value=ap.Exact(X), carry=[NOTE]) for name in ("a", "b")]
    condition = f'a."{X}" > b.`{X}` + 5'
    return ap.match_queries(*given, pa.table({"query": ["q"], "condition": [condition]}), **WINDOW)


JOB = """\
engine = "spark"
checkpoint = "checkpoint"
sample = 30
[sources.things]
format = "parquet"
path = "in"
key = "thing.id"
time = "at`utc"
value = { model = "Gaussian", columns = ["pos.x", "pos`y"], sigma = "s.d" }
carry = ["no.te"]
[self_join]
epsilon = 3.0
probability = 0.2
different = "thing.id"
window = 40
[sink]
format = "parquet"
path = "out"
"""
CALLS = [joined, nearest, assigned, met, aggregated, fenced, matched, outlying, sensed, seen, chained, filled]
CALLS += [filled_around, in_parts, over_windows]
STREAMED = (joined, matched, chained, filled_around)


def rows_of(table: pa.Table) -> list[str]:
    """Rows in no order, numbers rounded to what engines agree on."""
    rows = [{n: round(v, 8) if isinstance(v, float) else v for n, v in row.items()} for row in table.to_pylist()]
    return sorted(map(repr, rows))


@pytest.mark.parametrize("call", CALLS)
def test_any_call_answers_as_in_process(spark: SparkSession, tmp_path: Path, call: Callable[[Any], Any]) -> None:
    inside = call(rows_table())
    assert len(inside)
    folder = files(tmp_path / "in", rows_table(), 30)
    batch = call(spark.read.parquet(str(folder)))
    assert batch.columns == inside.column_names
    assert rows_of(batch.toArrow()) == rows_of(inside)
    assert rows_of(ap.rejects(batch).toArrow()) == rows_of(ap.rejects(inside))
    if call not in STREAMED:
        return
    answers, rejects = drained(call(read_stream(spark, folder)), tmp_path / "out")
    assert answers.column_names == inside.column_names
    assert rows_of(answers) == rows_of(inside)
    assert rows_of(rejects) == rows_of(ap.rejects(inside)) or call is chained  # of whose calls the first has them


def test_queries_that_are_a_stream_answer_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    folder, asked = files(tmp_path / "in", rows_table(), N), files(tmp_path / "asked", ALL, 1)
    result = ap.match_queries(
        stream(read_stream(spark, folder), partition_by=()), read_stream(spark, asked), probability=0.3
    )
    answers, rejects = drained(result, tmp_path / "out")
    inside = ap.match_queries(stream(rows_table(), partition_by=()), ALL, probability=0.3)
    assert rows_of(answers) == rows_of(inside)
    assert rows_of(rejects) == rows_of(ap.rejects(inside))
    (bad,) = rejects.to_pylist()
    assert f'"{X}"' in bad["values"]


def test_columns_that_spark_takes_for_one_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], "t": [1, 2], "x": [0.0, 0.5], "X": [5.0, 9.0], "ID": [7, 8], "note": [1, 1]})
    folder = files(tmp_path / "in", table, 2)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        frame = spark.read.schema("id LONG, t LONG, x DOUBLE, X DOUBLE, note LONG").parquet(str(folder))

        def found(frame: Any) -> Any:
            given = ap.Stream(frame, key="id", time="t", value=ap.Exact("x"))
            return ap.self_join(given, epsilon=1, probability=1, window=5)

        assert rows_of(found(frame).toArrow()) == rows_of(found(table))
        spark.conf.set("spark.sql.caseSensitive", "false")
        with pytest.raises(ap.BadArgument, match="has the columns 'x' and 'X', and this session takes them for one"):
            found(frame)
        holes = ap.Stream(frame, key="id", time="t", value=ap.Incomplete("note"))
        with pytest.raises(ap.BadArgument, match="Rename one of them where the frame is made"):
            ap.impute(holes, ap.MeanImputer(pa.table({"note": [4.0]})))
        carried = ap.Stream(frame.withColumnRenamed("note", "KEY"), key="id", time="t", value="x", carry="KEY")
        with pytest.raises(ap.BadArgument, match="would have the columns 'left_key' and 'left_KEY', and this session"):
            ap.self_join(carried, epsilon=1, probability=1, window=5)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_alerts_choose_by_such_columns(spark: SparkSession, tmp_path: Path) -> None:
    rows = read_stream(spark, files(tmp_path / "in", rows_table(), N))
    result = ap.match_queries(stream(rows, carry=[GROUP], partition_by=()), ALL, probability=0.3)
    sink = "parquet", {"path": str(tmp_path / "out")}
    with hook(lambda *_: (200, {})) as server:
        alert = "webhook", {"url": server.url, "only": {GROUP: [1]}}
        ap.start(result, sink, alerts=[alert], checkpoint=str(tmp_path / "checkpoint"), drain=True).awaitTermination()
        assert {body[GROUP] for body in server.bodies.values()} == {1}


def test_a_job_with_a_sample_answers_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(rows_table(), tmp_path / "in" / "rows.parquet")
    (tmp_path / "job.toml").write_text(JOB)
    found = jobs.build(jobs.load(tmp_path / "job.toml"), spark, streaming=False).toArrow()
    given = stream(rows_table(), carry=[NOTE], existence=None, partition_by=(), name="things")
    inside = ap.self_join(given, epsilon=3.0, probability=0.2, different=KEY, window=40)
    assert rows_of(found) == rows_of(inside)
