"""window_aggregate on Spark: batch, streaming and in process answer alike; chains of operators; queries that go on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module

import appulse as ap
from appulse.engines.spark.results import result_of
from tests.helpers.streaming import drained, drained_answers, files, read_stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

N = 240


def _table() -> pa.Table:
    """Rows of three rooms, every fifth second with three of them, some bad."""
    rng = np.random.default_rng(4)
    load = rng.normal(5.0, 2.0, (N, 2))
    load[[17, 118], 0] = np.nan
    columns: dict[str, Any] = {"id": [f"r{i}" for i in range(N)], "ts": (np.arange(N) // 3 * 5 + 100) * 1_000_000}
    columns |= {"load": load.tolist(), "sure": rng.choice([0.25, 0.5, 1.0], N), "km": np.cumsum(rng.uniform(0, 1, N))}
    columns["room"] = [("a", "b", None if i == 200 else "c")[i % 3] for i in range(N)]
    table = pa.table(columns)
    return table.set_column(1, "ts", table["ts"].cast(pa.timestamp("us", "UTC")))


def _stream(frame: Any, **changes: Any) -> ap.Stream:
    value = ap.Samples("load")
    stream = ap.Stream(frame, key="id", time="ts", value=value, existence="sure", partition_by="room", name="loads")
    return replace(stream, **changes)


def _rows(table: pa.Table, *without: str) -> list[str]:
    """Every row to the last bit, in a fixed order."""
    kept = [name for name in table.column_names if name not in without]
    return sorted(map(repr, table.select(kept).to_pylist()))


@pytest.mark.every_version
@pytest.mark.parametrize(
    "settings",
    [
        {"window": ap.UncertainCountWindow(5, confidence=0.9), "distribution": True},
        {"window": ap.TumblingWindow("1 minute"), "distribution": False},
    ],
    ids=["uncertain", "blocks"],
)
def test_batch_streaming_and_in_process_answer_alike(
    spark: SparkSession, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Every row, its types, and the rows that cannot be used; none are late, whatever order they come in."""
    table = _table()
    aggregates = {"load": ["sum", "max", "count"]}
    expected = ap.window_aggregate(_stream(table), aggregates, **settings)
    rejected = _rows(ap.rejects(expected))
    assert len(rejected) == 3

    folder = files(tmp_path / "in", table.take(np.argsort(np.arange(N) + np.arange(N) % 7 * 4, kind="stable")), 120)
    batch = ap.window_aggregate(_stream(spark.read.parquet(str(folder))), aggregates, **settings)
    found = batch.toArrow()
    assert found.schema.names == expected.schema.names
    assert found.schema.field("time").type == pa.timestamp("us", "UTC")
    assert _rows(found) == _rows(expected)
    assert _rows(ap.rejects(batch).toArrow()) == rejected

    streamed = ap.window_aggregate(_stream(read_stream(spark, folder), lateness=60), aggregates, **settings)
    answers, rejects = drained(streamed, tmp_path / "out")
    assert _rows(answers) == _rows(expected)
    assert _rows(rejects) == rejected


@pytest.mark.every_version
def test_a_query_that_was_stopped_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """Stopped, failed in its sink, restarted: nothing is lost or doubled. Other jobs are refused."""
    table = _table()
    folder = files(tmp_path / "in", table.slice(0, N // 2), 60)
    checkpoint = str(tmp_path / "checkpoint")
    found: dict[int, pa.Table] = {}
    failed: list[int] = []

    def sink(frame: Any, number: int) -> None:
        if number == 1 and not failed:
            failed.append(number)
            raise RuntimeError("the sink is away")
        found[number] = frame.toArrow()

    def started(window: Any = None, **settings: Any) -> Any:
        stream = _stream(read_stream(spark, folder), lateness=20)
        window = window or ap.DeltaWindow("km", 4.0)
        return ap.start(
            ap.window_aggregate(stream, {"load": "mean"}, window=window), sink, checkpoint=checkpoint, **settings
        )

    with pytest.raises(StreamingQueryException, match="the sink is away"):
        started(trigger={"availableNow": True}, partitions=2).awaitTermination()
    query = started(trigger={"processingTime": "100 milliseconds"})
    query.processAllAvailable()
    query.stop()
    before = sum(map(len, found.values()))
    files(tmp_path / "later", table.slice(N // 2), 60)
    for file in sorted((tmp_path / "later").iterdir()):
        file.rename(folder / f"later-{file.name}")
    with pytest.raises(ap.CheckpointError, match="belongs to another job"):
        started(ap.DeltaWindow("km", 5.0))
    started(drain=True).awaitTermination()
    expected = ap.window_aggregate(_stream(table), {"load": "mean"}, window=ap.DeltaWindow("km", 4.0))
    assert _rows(pa.concat_tables(found.values())) == _rows(expected)
    assert 0 < before < len(expected)
    with pytest.raises(ap.CheckpointError, match="closed by a drain"):
        started(drain=True)


def _pairs(frames: list[Any]) -> Any:
    sides = [ap.filter(_stream(frame, name=None), "load > 2") for frame in frames]
    settings: dict[str, Any] = {"epsilon": 0.5, "probability": 0.1}
    return ap.similarity_join(*sides, window=ap.UncertainCountWindow(4, confidence=0.9), **settings)


def _totals(pairs: Any, **settings: Any) -> Any:
    value = ap.Exact("distance")
    stream = ap.Stream(pairs, key="left_key", time="right_time", value=value, existence="probability", **settings)
    aggregates = {"distance": ["sum", "max"]}
    return ap.window_aggregate(stream, aggregates, window=ap.UncertainCountWindow(6, confidence=0.95))


@pytest.mark.every_version
def test_a_chain_of_operators_is_that_in_process(spark: SparkSession, tmp_path: Path) -> None:
    """Filter, join, window, aggregate over pairs: in batch, and in one streaming query."""
    table = _table()
    tables = [table.slice(0, N // 2), table.slice(N // 2).set_column(1, "ts", table["ts"].slice(0, N // 2))]
    expected = _totals(_pairs(tables))
    folders = [files(tmp_path / str(i), part, 60) for i, part in enumerate(tables)]
    assert len(expected) > 20
    _assert_same_totals(_totals(_pairs([spark.read.parquet(str(folder)) for folder in folders])).toArrow(), expected)
    pairs = _pairs([read_stream(spark, folder) for folder in folders])
    with pytest.raises(ap.BadArgument, match=r"may be of any age. Give lateness="):
        _totals(pairs)
    found = drained_answers(_totals(pairs, lateness="10 minutes"), tmp_path / "out")
    _assert_same_totals(found, expected)


def _near(frames: Any, **settings: Any) -> Any:
    given = [ap.Stream(frame, key="id", time="ts", value=ap.Samples("load"), existence="sure") for frame in frames]
    named = [replace(stream, name=name, **settings) for stream, name in zip(given, "ab", strict=True)]
    return ap.similarity_join(*named, epsilon=0.5, probability=0.1, window="20 seconds")


def _meetings(pairs: Any) -> Any:
    """Pairs of pairs: the answers of one join are the rows of another."""
    stream = ap.Stream(pairs, key="left_key", time="left_time", value=ap.Exact("distance"), name="pairs")
    return ap.self_join(stream, epsilon=0.02, probability=1.0, window="30 seconds")


@pytest.mark.every_version
def test_the_answers_of_a_join_are_joined_in_the_same_query(spark: SparkSession, tmp_path: Path) -> None:
    """With rows out of order, over a restart: each pair of pairs once, and none late."""
    table = _table()
    tables = [table.slice(0, N // 2), table.slice(N // 2).set_column(1, "ts", table["ts"].slice(0, N // 2))]
    expected = _meetings(_near(tables))
    assert len(expected) > 50
    order = np.argsort(np.arange(N // 2) + np.arange(N // 2) % 5 * 2, kind="stable")
    folders = [files(tmp_path / str(i), part.take(order), 60) for i, part in enumerate(tables)]
    found: list[pa.Table] = []
    bad: list[pa.Table] = []

    def started(**settings: Any) -> Any:
        pairs = _near([read_stream(spark, folder) for folder in folders], lateness="1 minute")
        close = pairs.where("distance < 100")
        checkpoint = str(tmp_path / "checkpoint")
        sinks = (lambda frame, _: found.append(frame.toArrow())), (lambda frame, _: bad.append(frame.toArrow()))
        return ap.start(_meetings(close), *sinks, checkpoint=checkpoint, **settings)

    query = started(trigger={"processingTime": "100 milliseconds"})
    query.processAllAvailable()
    query.stop()
    before = sum(map(len, found))
    for folder, part in zip(folders, tables, strict=True):
        later = part.slice(0, 20).set_column(0, "id", pa.array([f"late{i}" for i in range(20)]))
        pq.write_table(later, folder / "later.parquet")
    started(drain=True).awaitTermination()
    assert before > 0
    assert _rows(pa.concat_tables(found)) == _rows(expected)
    assert bad is not None


def _near_queries(pairs: Any, **settings: Any) -> Any:
    """The pairs that match queries, which keep no state."""
    stream = ap.Stream(
        pairs, key="left_key", time="right_time", value=ap.Exact("distance"), existence="probability", **settings
    )
    queries = pa.table({"query": ["low", "high", "poor"], "condition": ["distance < 0.2", "distance >= 0.2", "x >"]})
    return ap.match_queries(stream, queries, probability=0.2)


def _per_query(matches: Any, **settings: Any) -> Any:
    stream = ap.Stream(matches, key="key", time="time", value=ap.Exact("probability"), partition_by="query", **settings)
    return ap.window_aggregate(stream, {"probability": ["sum", "count"]}, window=ap.CountWindow(5))


@pytest.mark.parametrize("last", ["queries", "aggregate"])
def test_a_chain_goes_through_queries_without_state(spark: SparkSession, tmp_path: Path, last: str) -> None:
    """The answers of a join under a count window are matched, and the matches aggregated: to the end of a drain."""
    table = _table()
    tables = [table.slice(0, N // 2), table.slice(N // 2).set_column(1, "ts", table["ts"].slice(0, N // 2))]

    def chained(frames: list[Any], **settings: Any) -> Any:
        matches = _near_queries(_pairs(frames))
        return matches if last == "queries" else _per_query(matches, **settings)

    expected = chained(tables)
    folders = [files(tmp_path / str(i), part, 120 if last == "queries" else 60) for i, part in enumerate(tables)]
    frames = [read_stream(spark, folder) for folder in folders]
    result = chained(frames, lateness="10 minutes")
    if last == "queries":
        found, rejects = drained(result, tmp_path / "out")
        assert "x >" in str(rejects.to_pylist())
    else:
        found = drained_answers(result, tmp_path / "out")
    assert len(expected) > 20
    assert _rows(found, "sum_probability") == _rows(expected, "sum_probability")


def _write(result: Any, folder: Path) -> None:
    checkpoint = str(folder.with_suffix(".checkpoint"))
    ap.start(result, ("parquet", {"path": str(folder)}), checkpoint=checkpoint, drain=True).awaitTermination()


def _assert_same_totals(found: pa.Table, expected: pa.Table) -> None:
    ours, theirs = (part.sort_by("time") for part in (found, expected))
    assert ours["time"].to_pylist() == theirs["time"].to_pylist()
    for name in expected.column_names[1:]:
        assert ours[name].to_pylist() == pytest.approx(theirs[name].to_pylist(), abs=1e-9)


@pytest.mark.every_version
def test_a_watermark_on_the_frame_is_its_lateness(spark: SparkSession, tmp_path: Path) -> None:
    frame = read_stream(spark, files(tmp_path / "in", _table(), N)).withWatermark("ts", "1 day 5 seconds")
    settings: dict[str, Any] = {"window": ap.CountWindow(2)}
    result = ap.window_aggregate(_stream(frame), {"load": "sum"}, **settings)
    assert result_of(result).call.lateness == (86_405_000_000,)
    with pytest.raises(ap.BadArgument, match="lateness=1 and a withWatermark on its frame, of 'ts'"):
        ap.window_aggregate(_stream(frame, lateness=1), {"load": "sum"}, **settings)
    watched = frame.observe("rows of a user", F.count("*").alias("n")).filter("load is not null")
    renamed = ap.window_aggregate(_stream(watched), {"load": "sum"}, **settings)
    assert result_of(renamed).call.lateness == (86_405_000_000,)
    expected = ap.window_aggregate(_stream(_table()), {"load": "sum"}, **settings)
    found = drained_answers(renamed, tmp_path / "out").select(expected.column_names)
    assert len(found) > 200
    assert _rows(found) == _rows(expected)
    with pytest.raises(ap.BadArgument, match="withWatermark below DeduplicateWithinWatermark"):
        ap.window_aggregate(_stream(frame.dropDuplicatesWithinWatermark(["ts"])), {"load": "sum"}, **settings)
