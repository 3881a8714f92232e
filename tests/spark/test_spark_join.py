"""On Spark: batch, streaming and in process answer alike, and like the naive twin."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException

import appulse as ap
from appulse.engines.options import Options
from appulse.engines.spark.checkpoint import Checkpoint
from appulse.engines.spark.installation import release
from tests.helpers.strategies import Case, cases, pushes
from tests.helpers.streaming import assume_rows, drained, drained_answers, few, read_stream, read_written
from tests.spark.test_tiles import WINDOWS, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

several = settings(few, max_examples=2)
many = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


def save_batches(folder: Path, case: Case, cut: list[dict[int, list[int]]]) -> None:
    """One file per stream and micro-batch, empty ones too, so that Spark takes the batches as they were cut."""
    shutil.rmtree(folder, ignore_errors=True)
    for s in range(len(case.tables)):
        (folder / str(s)).mkdir(parents=True)
    for i, push in enumerate(cut):
        for s, (name, table) in enumerate(case.frames(push).items()):
            path = folder / str(s) / f"{i:03}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))
            assert name == case.names[s]


def streams_of(case: Case, frames: list[Any]) -> list[ap.Stream]:
    """The streams of a case over Spark frames."""
    taken = iter(frames)
    return Case(case.tables, case.streams, case.d, 1, 1, case.window).framed(lambda _: next(taken))


def call_spark(case: Case, frames: list[Any], options: Options) -> DataFrame:
    call: Any = ap.self_join if case.self_join else ap.similarity_join
    result: DataFrame = call(*streams_of(case, frames), **case.settings, options=options)
    return result


options = st.builds(
    Options, partitions=st.sampled_from((1, 2, 3)), side=st.sampled_from((None, 0.7, 3.0)), index=st.just("auto")
)


@pytest.mark.every_version
@given(st.data())
@several
def test_batch_on_spark_answers_as_in_process(spark: SparkSession, tmp_path: Path, data: st.DataObject) -> None:
    """One answer, whatever the engine: rows, probabilities, types of keys and times, and rejects."""
    case = _drawn(data)
    save_batches(tmp_path / "in", case, [{s: list(range(len(t))) for s, t in enumerate(case.tables)}])
    frames = [spark.read.parquet(str(tmp_path / "in" / str(s))) for s in range(len(case.tables))]
    result = call_spark(case, frames, data.draw(options))
    expected = case.run()
    found = result.toArrow()
    assert rows_of([found]) == rows_of([expected])
    told = sorted(str(row["reason"]) for row in ap.rejects(result).toArrow().to_pylist())
    assert told == sorted(str(row["reason"]) for row in ap.rejects(expected).to_pylist())


def _drawn(data: st.DataObject, **settings: Any) -> Case:
    case = data.draw(cases(windows=WINDOWS, everywhere=True, most=6, **settings))
    assume_rows(case.tables)
    return replace(case, emit=data.draw(st.sampled_from(("matches", "changes"))))


def _check_streaming(spark: SparkSession, tmp_path: Path, data: st.DataObject, most: int) -> None:
    case = _drawn(data, lateness=True)
    cut = data.draw(pushes(case, late=data.draw(st.booleans()), most=most))
    save_batches(tmp_path / "in", case, cut)
    frames = [read_stream(spark, tmp_path / "in" / str(s)) for s in range(len(case.tables))]
    answers, rejects = drained(call_spark(case, frames, data.draw(options)), tmp_path / "out")
    join = case.by_hand()
    expected = [*(join.push(**case.frames(push)) for push in cut), join.drain()]
    refused = join.rejects()
    assert rows_of([answers]) == rows_of(expected)
    told = sorted((row["stream"], row["reason"], str(row["key"])) for row in rejects.to_pylist())
    assert told == sorted((row["stream"], row["reason"], str(row["key"])) for row in refused.to_pylist())


@given(st.data())
@several
def test_streaming_on_spark_answers_as_pushes_in_process(
    spark: SparkSession, tmp_path: Path, data: st.DataObject
) -> None:
    """Micro-batches, late rows among them, give what pushing the same batches in process gives.

    Three batches are enough for rows to meet, to be late and to be forgotten; played Spark has one for each row.
    """
    _check_streaming(spark, tmp_path, data, most=3)


@pytest.mark.long
@given(st.data())
@many
def test_streaming_on_spark_answers_as_pushes_in_process_at_length(
    spark: SparkSession, tmp_path: Path, data: st.DataObject
) -> None:
    """The same over many more cases, and more micro-batches."""
    _check_streaming(spark, tmp_path, data, most=1000)


@pytest.mark.every_version
@pytest.mark.parametrize("window", [ap.TimeWindow(8), ap.CountWindow(40)], ids=["time", "count"])
def test_a_query_goes_on_with_other_tiles_and_partitions(spark: SparkSession, tmp_path: Path, window: Any) -> None:
    """It loses no pair, doubles none, and says so in its checkpoint.

    A new version of the plan takes over; then Spark spreads the states over more partitions, where there are fewer than
    tiles, and rows go to tiles of either number. Spark before 4.2 cannot spread them.
    """
    most = 3 if release(spark.version) >= (4, 2) else 2
    rng = np.random.default_rng(5)
    n = 240
    tables = tuple(
        pa.table({"id": np.arange(n) + i * n, "ts": np.arange(n) / 10, "x": rng.random(n), "y": rng.random(n)})
        for i in range(2)
    )
    stream = ap.Stream(None, key="id", time="ts", value=ap.Exact("x", "y"))
    case = Case(tables, (stream, replace(stream)), 2, 0.1, 0.5, window)
    cut = [{s: list(range(k * 60, k * 60 + 60)) for s in range(2)} for k in range(4)]
    save_batches(tmp_path / "later", case, cut)
    for s in range(2):
        (tmp_path / "in" / str(s)).mkdir(parents=True)
    sink, checkpoint = ("parquet", {"path": str(tmp_path / "out")}), str(tmp_path / "checkpoint")
    for k, (side, tiles) in enumerate(((None, 2), (0.3, 2), (0.3, most), (0.3, 1))):
        for s in range(2):
            shutil.copy2(tmp_path / "later" / str(s) / f"{k:03}.parquet", tmp_path / "in" / str(s))
        frames = [read_stream(spark, tmp_path / "in" / str(s)) for s in range(2)]
        result = call_spark(case, frames, Options(side=side, partitions=2))
        drain = k == 3
        trigger = None if drain else {"availableNow": True}
        query = ap.start(result, sink, checkpoint=checkpoint, drain=drain, trigger=trigger, partitions=tiles)
        query.awaitTermination()
    assert rows_of([read_written(tmp_path / "out")]) == rows_of([case.run()])
    stored = json.loads((tmp_path / "checkpoint" / "appulse.json").read_text())
    versions = stored["tiles"]["versions"]
    assert [version["since"] for version in versions[1:2]] == [5_900_001]
    plans = [(version["plan"]["tiles"], version["plan"]["slots"]) for version in versions]
    assert plans == [(2, 2), (2, 2), *[(3, 3)] * (most == 3), (1, most)]


@pytest.mark.every_version
@pytest.mark.parametrize("window", [ap.TimeWindow(5), ap.CountWindow(3)], ids=["time", "count"])
def test_a_stream_that_falls_silent_holds_no_other_back(spark: SparkSession, tmp_path: Path, window: Any) -> None:
    """One of two streams may: the other one has a watermark of its own."""

    def table(*times: int) -> pa.Table:
        return pa.table({"id": [f"r{t}" for t in times], "ts": pa.array(times, pa.int64()), "x": [0.0] * len(times)})

    given = {"left": [table(10, 11), table(20, 60), table(15)], "right": [table(10), table(), table()]}
    for name, parts in given.items():
        for i, part in enumerate(parts):
            path = tmp_path / name / f"{i}.parquet"
            path.parent.mkdir(exist_ok=True)
            pq.write_table(part, path)
            os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))

    def streams(frame: Any) -> list[ap.Stream]:
        own: dict[str, Any] = {"key": "id", "time": "ts", "value": "x"}
        return [ap.Stream(frame("left"), **own), ap.Stream(frame("right"), **own, idle_after=5)]

    settings: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5, "window": window}
    result = ap.similarity_join(*streams(lambda name: read_stream(spark, tmp_path / name)), **settings)
    answers, rejects = drained(result, tmp_path / "out")
    join = ap.SimilarityJoin(*streams(lambda _: None), **settings)
    pushed = [join.push(left=left, right=right) for left, right in zip(*given.values(), strict=True)]
    assert rows_of([answers]) == rows_of([*pushed, join.drain()])
    assert [row["key"] for row in rejects.to_pylist()] == ["r15"] == join.rejects()["key"].to_pylist()


@pytest.mark.every_version
def test_a_sink_that_fails_now_and_then_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Each batch runs once in vain: its state was committed, and has to be written again."""
    n = 120
    table = pa.table({"id": np.arange(n), "ts": np.arange(n) / 10, "x": np.arange(n) % 7 / 2})
    stream = ap.Stream(None, key="id", time="ts", value=ap.Exact("x"))
    case = Case((table, table), (stream, replace(stream)), 1, 0.1, 0.5, ap.CountWindow(20))
    save_batches(tmp_path / "in", case, [{s: list(range(k * 60, k * 60 + 60)) for s in range(2)} for k in range(2)])
    found: dict[int, pa.Table] = {}
    failed: set[int] = set()

    def sink(frame: DataFrame, number: int) -> None:
        found[number] = frame.toArrow()
        if number > 0 and number not in failed:
            failed.add(number)
            raise RuntimeError("the sink is away")

    for _ in range(5):
        frames = [read_stream(spark, tmp_path / "in" / str(s)) for s in range(2)]
        query = ap.start(
            call_spark(case, frames, Options(partitions=2)), sink, checkpoint=str(tmp_path / "checkpoint"), drain=True
        )
        with suppress(StreamingQueryException):
            query.awaitTermination()
            break
    assert len(failed) == 2
    assert rows_of(list(found.values())) == rows_of([case.run()])


@pytest.mark.parametrize("window", [ap.TimeWindow(3), ap.CountWindow(3)], ids=["time", "count"])
def test_rows_of_a_megabyte(spark: SparkSession, tmp_path: Path, window: Any) -> None:
    """Each its own number of samples, in three dimensions: blocks are cut so that each travels."""
    rng = np.random.default_rng(7)
    n, most = 16, 43_691
    tables = []
    for i in range(2):
        lengths = rng.integers(most // 2, most, n)
        lengths[:4] = (most, 1, 7, most)
        samples = [(rng.integers(0, 2, 3) * 10 + rng.random((size, 3))).tolist() for size in lengths.tolist()]
        tables.append(pa.table({"id": np.arange(n) + i * n, "ts": np.arange(n) // 2, "samples": samples}))
    stream = ap.Stream(None, key="id", time="ts", value=ap.Samples("samples", names=("x", "y", "z")))
    # The bounds decide every pair: refining two such rows takes two thousand million distances.
    case = Case(tuple(tables), (stream, replace(stream)), 3, 2.0, 0.2, window)
    save_batches(tmp_path / "in", case, [{s: list(range(k * 8, k * 8 + 8)) for s in range(2)} for k in range(2)])
    frames = [read_stream(spark, tmp_path / "in" / str(s)) for s in range(2)]
    answers = drained_answers(call_spark(case, frames, Options(partitions=2)), tmp_path / "out")
    expected = case.run()
    assert 0 < len(expected) < n * n / 4
    assert rows_of([answers]) == rows_of([expected])


def test_a_drain_that_failed_is_made_up_for(spark: SparkSession, tmp_path: Path, monkeypatch: Any) -> None:
    """After its mark was read and before the checkpoint was closed: the next one takes what came since, and ends."""
    (tmp_path / "in").mkdir()
    table = pa.table({"id": [f"r{i}" for i in range(6)], "ts": range(6), "x": [0.0] * 6})

    def drained_run() -> Any:
        frame = spark.readStream.schema("id string, ts long, x double").parquet(str(tmp_path / "in"))
        stream = ap.Stream(frame, key="id", time="ts", value=ap.Exact("x"), lateness=10)
        pairs = ap.self_join(stream, epsilon=1.0, probability=1.0, window=ap.CountWindow(2))
        sink = ("parquet", {"path": str(tmp_path / "out")})
        return ap.start(pairs, sink, checkpoint=str(tmp_path / "checkpoint"), drain=True)

    def crash(*_: Any) -> None:
        raise RuntimeError("crash")

    pq.write_table(table.slice(0, 3), tmp_path / "in" / "0.parquet")
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "close", crash)
        with pytest.raises(RuntimeError, match="crash"):
            drained_run().awaitTermination()
    pq.write_table(table.slice(3), tmp_path / "in" / "1.parquet")
    drained_run().awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "out")).select("left_key", "right_key").collect()
    assert sorted((row[0], row[1]) for row in rows) == [(f"r{i}", f"r{i + 1}") for i in range(5)]
    with pytest.raises(ap.CheckpointError, match="closed by a drain"):
        drained_run()
