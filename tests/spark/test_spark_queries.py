"""Continuous queries on Spark: batch, streaming and in process answer alike, and tell the same rejects, once."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import types as T  # noqa: N812 - as in the engine

import appulse as ap
from tests.helpers import naive_queries, query_strategies
from tests.helpers.streaming import assume_rows, drained, drained_answers, few, read_stream, read_written

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

N = 300


def _table() -> pa.Table:
    """Rows of certain values, three of them bad, with a text and a sampled value beside."""
    rng = np.random.default_rng(11)
    x = rng.normal(0, 2, N)
    x[[5, 120]] = np.nan
    columns: dict[str, Any] = {"id": [None if i == 200 else f"r{i}" for i in range(N)], "ts": np.arange(N) * 1_000_000}
    columns |= {"x": x, "kind": rng.choice(["a", "b", "it's"], N), "sampled": rng.normal(0, 2, (N, 3)).tolist()}
    table = pa.table(columns)
    return table.set_column(1, "ts", table["ts"].cast(pa.timestamp("us", "UTC")))


def _queries() -> pa.Table:
    """Some hundred ranges, an exact rest, several boxes, and two that are no conditions."""
    rng = np.random.default_rng(12)
    texts = [f"x BETWEEN {low!r} AND {low + 0.5!r}" for low in rng.normal(0, 2, 100).tolist()]
    texts += ["kind = 'it''s' AND x + x > 1", "x < -1 OR x > 1 OR kind = 'a'", "x >", "y > 1"]
    return pa.table({"query": [f"q{i}" for i in range(len(texts))], "condition": texts})


def _stream(frame: Any, **changes: Any) -> ap.Stream:
    return replace(ap.Stream(frame, key="id", time="ts", value=ap.Exact("x"), name="rows"), **changes)


def _files(folder: Path, tables: list[pa.Table]) -> Path:
    """A file per micro-batch, in their order, empty ones too."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for i, table in enumerate(tables):
        path = folder / f"{i:03}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))
    return folder


def _rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def _figures(progress: Any) -> dict[str, Any]:
    (figures,) = progress.observedMetrics.values()
    return dict(figures.asDict())


def _frames(spark: SparkSession, folder: Path) -> tuple[DataFrame, DataFrame]:
    """A folder as a batch, and as a stream."""
    return spark.read.parquet(str(folder)), read_stream(spark, folder)


@pytest.mark.parametrize(
    "changes",
    [{}, pytest.param({"value": ap.Samples("sampled")}, marks=pytest.mark.every_version), {"existence": "sure"}],
    ids=["exact", "samples", "existence"],
)
def test_batch_streaming_and_in_process_answer_alike(
    spark: SparkSession, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Answers with their types, and the rejects of rows and of queries, each once."""
    table, queries = _table(), _queries()
    if "existence" in changes:
        table = table.append_column("sure", pa.array(np.resize([0.25, 0.5, 1.0], N)))
    if "value" in changes:
        conditions = queries["condition"].to_pylist()
        queries = queries.set_column(1, "condition", [[text.replace("x", "sampled") for text in conditions]])
    probability = 0.5 if changes else None
    expected = ap.match_queries(_stream(table, **changes), queries, probability=probability)
    rejected = _rows(ap.rejects(expected))
    assert len(expected) > 300
    assert len(rejected) == (3 if "value" in changes else 5)

    folder = _files(tmp_path / "in", [table.slice(at, 100) for at in range(0, N, 100)])
    batch, streaming = _frames(spark, folder)
    result = ap.match_queries(_stream(batch, **changes), queries, probability=probability)
    found = result.toArrow()
    assert found.schema.names == expected.schema.names
    assert found.schema.field("time").type == pa.timestamp("us", "UTC")
    assert _rows(found) == _rows(expected)
    assert _rows(ap.rejects(result).toArrow()) == rejected

    apart = ap.match_queries(
        _stream(batch, **changes), queries, probability=probability, options=ap.Options(partitions=3)
    )
    assert _rows(apart.toArrow()) == _rows(expected)

    given = spark.createDataFrame(queries)
    spread = 3 if changes else None
    streamed = ap.match_queries(
        _stream(streaming, **changes), given, probability=probability, options=ap.Options(partitions=spread)
    )
    assert streamed.isStreaming
    answers, rejects = drained(streamed, tmp_path / "out")
    assert _rows(answers) == _rows(expected)
    assert _rows(rejects) == rejected


@given(st.data())
@few
def test_any_case_is_answered_as_by_the_slow_twin(spark: SparkSession, tmp_path: Path, data: st.DataObject) -> None:
    """Any conditions over any columns, certain rows and uncertain ones, bad ones among them."""
    case = data.draw(query_strategies.selections(bad=True))
    assume_rows(case.tables)
    table, [stream] = case.tables[0], case.streams
    rejected = sorted(row["reason"] for row in ap.rejects(_local(case)).to_pylist())
    batch, streaming = _frames(spark, _files(tmp_path / "in", [table.slice(0, 3), table.slice(3)]))
    result = ap.match_queries(replace(stream, frame=batch), case.query_table, probability=case.probability)
    naive_queries.assert_same(result.toArrow(), case.expected(), "batch: ")
    assert sorted(row["reason"] for row in ap.rejects(result).toArrow().to_pylist()) == rejected
    streamed = ap.match_queries(replace(stream, frame=streaming), case.query_table, probability=case.probability)
    answers, rejects = drained(streamed, tmp_path / "out")
    naive_queries.assert_same(answers, case.expected(), "streaming: ")
    assert sorted(row["reason"] for row in rejects.to_pylist()) == rejected


def _local(case: query_strategies.Case) -> pa.Table:
    result: pa.Table = ap.match_queries(*case.framed(), case.query_table, probability=case.probability)
    return result


def test_keys_and_times_keep_their_types(spark: SparkSession, tmp_path: Path) -> None:
    """Of queries and of rows; what is selected comes along; queries may be a pandas frame."""
    table = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int32()),
            "ts": pa.array([date(2024, 1, day) for day in (1, 2, 3)]),
            "x": pa.array([0.5, 1.5, 2.5], pa.float32()),
            "name": ["a", None, "c"],
        }
    )
    queries = pa.table(
        {
            "query": pa.array([7, 8], pa.int16()),
            "condition": ["x > 1", "ts = '2024-01-01'"],
            "select": ["name, x", None],
        }
    )
    local = ap.match_queries(_stream(table), queries)
    folder = _files(tmp_path / "in", [table])
    for frame, asked in ((_frames(spark, folder)[0], queries), (_frames(spark, folder)[0], queries.to_pandas())):
        result = ap.match_queries(_stream(frame), asked)
        kinds = [field.dataType for field in result.schema]
        wanted = [T.ShortType(), T.IntegerType(), T.DateType(), T.DoubleType(), T.StringType()]
        assert kinds == wanted
        assert _rows(result.toArrow()) == _rows(local)
    assert [field.dataType for field in ap.rejects(result).schema][1:3] == [T.IntegerType(), T.DateType()]
    answers = drained_answers(ap.match_queries(_stream(_frames(spark, folder)[1]), queries), tmp_path / "out")
    assert _rows(answers) == _rows(local)
    assert ap.ask(_stream(_frames(spark, folder)[0]), queries).count() == 3


def test_on_reject_fail_fails(spark: SparkSession, tmp_path: Path) -> None:
    """Queries that cannot be used at the call, rows where they are met."""
    batch, streaming = _frames(spark, _files(tmp_path / "in", [_table()]))
    with pytest.raises(ap.BadInput, match="x >"):
        ap.match_queries(_stream(batch), _queries(), on_reject="fail")
    fine = _queries().slice(0, 3)
    with pytest.raises(PythonException, match="BadInput"):
        ap.match_queries(_stream(batch), fine, on_reject="fail").toArrow()
    with pytest.raises(ap.BadInput, match="3 rows of stream 'rows' cannot be used; the first, key 'r5'"):
        drained(ap.match_queries(_stream(streaming), fine, on_reject="fail"), tmp_path / "out")


def test_what_is_not_built_is_told(spark: SparkSession, tmp_path: Path) -> None:
    batch, streaming = _frames(spark, _files(tmp_path / "in", [_table()]))
    asked = read_stream(spark, _files(tmp_path / "queries", [_queries()]))
    with pytest.raises(ap.BadArgument, match="the rows are not"):
        ap.match_queries(_stream(batch), asked)
    query = ap.match_queries(_stream(streaming), asked).writeStream.format("noop")
    with pytest.raises(StreamingQueryException, match=r"ap\.start"):
        query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    with pytest.raises(ap.BadArgument, match="mixes streaming and batch frames"):
        ap.match_queries(_stream(streaming), _stream(batch, name="others"), queries=_queries())
    with pytest.raises(ap.BadArgument, match="the rows are not"):
        ap.match_queries(_stream(batch), _stream(batch, name="others"), queries=asked)
    with pytest.raises(ap.BadArgument, match="no column 'query'"):
        ap.match_queries(_stream(batch), _queries().select(["condition"]))
    with pytest.raises(ap.BadArgument, match=r"ap\.start"):
        ap.rejects(ap.match_queries(_stream(streaming), _queries()))


def test_a_query_that_was_stopped_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """Each row once, and refused queries once; the micro-batches tell what they did."""
    table, queries = _table(), _queries()
    folder = _files(tmp_path / "in", [table.slice(0, 100), table.slice(100, 100)])
    sinks = [("parquet", {"path": str(tmp_path / name)}) for name in ("answers", "rejects")]

    def run(**how: Any) -> Any:
        frame = spark.readStream.schema(spark.read.parquet(str(folder)).schema).parquet(str(folder))
        query = ap.start(
            ap.match_queries(_stream(frame), queries), *sinks, checkpoint=str(tmp_path / "checkpoint"), **how
        )
        query.awaitTermination()
        return query

    first = run(trigger={"availableNow": True})
    told = [_figures(progress) for progress in first.recentProgress]
    assert sum(metrics["rows"] for metrics in told) == 198
    assert sum(metrics["rejected"] for metrics in told) == 2
    pq.write_table(table.slice(200), folder / "later.parquet")
    run(drain=True)
    expected = ap.match_queries(_stream(table), queries)
    answers, rejects = (read_written(tmp_path / name) for name in ("answers", "rejects"))
    assert _rows(answers) == _rows(expected)
    assert _rows(rejects) == _rows(ap.rejects(expected))


def _changes(rng: np.random.Generator, batches: int) -> list[pa.Table]:
    """Queries that come, change, go and are wrong, a table a micro-batch; one brings none."""
    tables = []
    for batch in range(batches):
        n = 0 if batch == 2 else 12
        names = rng.integers(0, 20, n)
        kinds = rng.choice(["add", "remove", "ADD"], n, p=[0.5, 0.3, 0.2])
        texts = [f"x > {low!r} AND kind <> 'b'" for low in rng.normal(0, 2, n).tolist()]
        columns: dict[str, Any] = {"query": [f"q{name}" for name in names.tolist()], "condition": texts}
        if batch == 1:  # refused: what stands under this name stays
            columns["condition"][3] = "x >"
            kinds[3] = "add"
        tables.append(pa.table({**columns, "change": pa.array(kinds.tolist(), pa.string())}))
    return tables


@pytest.mark.every_version
def test_queries_that_are_a_stream_answer_batch_by_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One version a batch, also after a crash between the change and its answers, and after changes became one."""
    from appulse.engines.spark.file_sink import FileSink
    from appulse.engines.spark.queries import call as engine

    monkeypatch.setattr(engine, "_MOST_CHANGES", 2)
    batches = 7
    changes = _changes(np.random.default_rng(3), batches)
    pushes = [_table().slice(at * 40, 40) for at in range(batches)]
    by_hand = ap.QueryMatch(_stream(None))
    expected = []
    for change, push in zip(changes, pushes, strict=True):
        by_hand.change(change)
        expected += by_hand.push(push).to_pylist()
    assert len(expected) > 100
    sinks = [("parquet", {"path": str(tmp_path / name)}) for name in ("answers", "rejects")]
    heard: list[dict[str, Any]] = []

    def run(until: int, **how: Any) -> None:
        rows = read_stream(spark, _files(tmp_path / "rows", pushes[:until]))
        asked = read_stream(spark, _files(tmp_path / "queries", changes[:until]))
        result = ap.match_queries(_stream(rows), asked)
        ap.start(result, *sinks, checkpoint=str(tmp_path / "checkpoint"), **how).awaitTermination()

    with monkeypatch.context() as patched:
        patched.setattr(FileSink, "write", _failing_at(4, FileSink.write))
        with pytest.raises(StreamingQueryException, match="crash"):
            run(5, trigger={"availableNow": True})
    with ap.listen(spark, heard.append):
        run(5, trigger={"availableNow": True})
        run(batches, drain=True)
    told = [(metrics["batch_id"], metrics["query_version"]) for metrics in heard]
    assert told == [(1, 2), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)]  # the third batch brought no changes
    assert sum(metrics["answers"] for metrics in heard) < len(expected)
    assert heard[-1]["queries"] == len(by_hand.busiest(1000))
    answers, rejects = (read_written(tmp_path / name) for name in ("answers", "rejects"))
    assert _rows(answers) == sorted(map(repr, expected))
    assert _rows(rejects) == _rows(by_hand.rejects())
    assert len(list((tmp_path / "checkpoint" / "appulse-queries").glob("0*"))) <= 4


def _failing_at(call: int, function: Any) -> Any:
    """The function, failing at one call."""
    calls = []

    def wrapped(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == call:
            raise RuntimeError("crash")
        return function(*given)

    return wrapped


@few
@given(data=st.data())
def test_window_joins_answer_as_in_process(spark: SparkSession, tmp_path: Path, data: st.DataObject) -> None:
    """Batch frames of two or three streams: answers and rejects are those in process."""
    case = data.draw(query_strategies.joins(arity=(2, 3)))
    assume_rows(case.tables)
    settings: dict[str, Any] = {"probability": case.probability, "window": case.window}
    expected = ap.match_queries(*case.framed(), case.query_table, **settings)
    folders = [_files(tmp_path / str(i), [table]) for i, table in enumerate(case.tables)]
    frames = [spark.read.parquet(str(folder)) for folder in folders]
    streams = [replace(stream, frame=frame) for stream, frame in zip(case.streams, frames, strict=True)]
    found = ap.match_queries(*streams, case.query_table, **settings)
    naive_queries.assert_same(found.toArrow(), case.expected())
    told = sorted((row["stream"], row["reason"]) for row in ap.rejects(found).toArrow().to_pylist())
    assert told == sorted((row["stream"], row["reason"]) for row in ap.rejects(expected).to_pylist())


def test_window_joins_of_streams_answer_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    """A set that stands over uncertain rows in groups, one of which falls silent; rejects are told once."""
    rng = np.random.default_rng(9)
    tables = []
    for _ in "rs":
        x = rng.normal(0, 1, 40)
        x[3] = np.nan
        groups = np.where(np.arange(40) < 30, rng.integers(0, 4, 40), 0)
        tables.append(pa.table({"id": np.arange(40), "ts": 1000 + np.arange(40) // 3, "x": x, "p": groups}))
    streams = [
        ap.Stream(t, key="id", time="ts", value=ap.Gaussian("x", sigma=0.5, samples=4), partition_by="p", name=name)
        for t, name in zip(tables, "rs", strict=True)
    ]
    texts = ["r.x - s.x BETWEEN -1 AND 1 WITHIN 2 SECONDS", "r.x < s.x WITHIN 2 ROWS", "r.x > WITHIN 2 ROWS"]
    asked = pa.table({"query": [1, 2, 3], "condition": texts, "select": [None, "r.p, s.id", None]})
    expected = ap.match_queries(*streams, asked, probability=0.25)
    assert len(expected) > 100
    frames = [read_stream(spark, _files(tmp_path / n, [t[:25], t[25:]])) for n, t in zip("rs", tables, strict=True)]
    given = [replace(stream, frame=frame) for stream, frame in zip(streams, frames, strict=True)]
    answers, rejects = drained(ap.match_queries(*given, asked, probability=0.25), tmp_path / "out")
    assert _rows(answers) == _rows(expected)
    assert _rows(rejects) == _rows(ap.rejects(expected))


def test_aggregates_over_streams_answer_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    """Counts, sums and means of groups, over windows in time and in rows; one group falls silent, some rows are bad."""
    rng = np.random.default_rng(11)
    tables = []
    for _ in "rs":
        x = rng.integers(0, 6, 45).astype(float)
        x[7] = np.nan
        groups = np.where(np.arange(45) < 30, rng.integers(0, 3, 45), 0)
        tables.append(pa.table({"id": np.arange(45), "ts": 1000 + np.arange(45) // 3, "x": x, "p": groups}))
    models: tuple[Any, ...] = (ap.Gaussian("x", sigma=0.5, samples=3), ap.Exact("x"))
    streams = [
        ap.Stream(t, key="id", time="ts", value=model, partition_by="p", name=name, lateness=2)
        for t, model, name in zip(tables, models, "rs", strict=True)
    ]
    texts = ["r.x - s.x BETWEEN -1 AND 1", "r.x < s.x WITHIN 2 ROWS", "r.x >", "r.x = 9 AND s.x = 9 WITHIN 1 SECOND"]
    asked = pa.table({"query": ["near", "less", "bad", "none"], "condition": texts})
    settings: dict[str, Any] = {
        "window": ap.TimeWindow(3),
        "aggregate": {"n": "count", "total": ("sum", "s.x"), "middle": ("mean", "r.x")},
    }
    expected = ap.match_queries(*streams, asked, **settings)
    assert set(expected["query"].to_pylist()) == {"near", "less"}
    frames = [read_stream(spark, _files(tmp_path / n, [t[:20], t[20:]])) for n, t in zip("rs", tables, strict=True)]
    given = [replace(stream, frame=frame) for stream, frame in zip(streams, frames, strict=True)]
    answers, rejects = drained(ap.match_queries(*given, asked, **settings), tmp_path / "out")
    assert answers.schema.names == expected.schema.names
    found, wanted = (sorted(table.to_pylist(), key=repr) for table in (answers, expected))
    ids, values = list(expected.schema.names[:3]), list(expected.schema.names[3:])
    assert [[row[name] for name in ids] for row in found] == [[row[name] for name in ids] for row in wanted]
    assert len(found) > 40
    ours, theirs = (np.array([[row[name] for name in values] for row in rows], float) for rows in (found, wanted))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    assert _rows(rejects) == _rows(ap.rejects(expected))


@pytest.mark.every_version
def test_window_joins_go_on_from_a_checkpoint_by_the_queries_of_each_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Queries that are a stream, over two streams: each micro-batch answers by its own set, which its metrics tell."""
    rng = np.random.default_rng(5)
    streams = [ap.Stream(None, key="id", time="ts", value=ap.Exact("x"), name=name, lateness=2) for name in "rs"]
    pushes = [
        {
            name: pa.table(
                {"id": np.arange(20) + 20 * k, "ts": 1000 + 5 * k + np.arange(20) // 4, "x": rng.integers(0, 5, 20)}
            )
            for name in "rs"
        }
        for k in range(5)
    ]
    texts = ["r.x = s.x WITHIN 3 SECONDS", "r.x < s.x WITHIN 2 ROWS", "r.x >", "r.x = s.x AND r.x > 2 WITHIN 1 SECOND"]
    changes = [
        pa.table({"query": [1, 2, 3], "condition": texts[:3], "change": ["add"] * 3}),
        pa.table({"query": [4, 1], "condition": [texts[3], None], "change": ["add", "remove"]}),
        *[pa.table({"query": [k], "condition": [texts[0]], "change": ["add"]}) for k in (5, 6, 7)],
    ]
    by_hand = ap.QueryMatch(*streams)
    expected = []
    for change, push in zip(changes, pushes, strict=True):
        by_hand.change(change)
        expected += by_hand.push(**push).to_pylist()
    expected += by_hand.drain().to_pylist()
    assert len(expected) > 300

    def run(until: int, **how: Any) -> Any:
        frames = [read_stream(spark, _files(tmp_path / name, [push[name] for push in pushes[:until]])) for name in "rs"]
        asked = read_stream(spark, _files(tmp_path / "queries", changes[:until]))
        given = [replace(stream, frame=frame) for stream, frame in zip(streams, frames, strict=True)]
        sinks = [("parquet", {"path": str(tmp_path / name)}) for name in ("answers", "rejects")]
        result = ap.match_queries(*given, queries=asked)
        query = ap.start(result, *sinks, checkpoint=str(tmp_path / "checkpoint"), **how)
        query.awaitTermination()
        return query

    first = run(3, trigger={"availableNow": True})
    told = [_figures(progress) for progress in first.recentProgress if progress.numInputRows]
    assert [metrics["query_version"] for metrics in told] == [1, 2, 3]
    assert [metrics["queries"] for metrics in told] == [2, 2, 3]
    run(5, drain=True)
    answers, rejects = (read_written(tmp_path / name) for name in ("answers", "rejects"))
    assert _rows(answers) == sorted(map(repr, expected))
    assert _rows(rejects) == _rows(by_hand.rejects())
