"""What a micro-batch costs and leaves: answers by the stage that makes them, one job, state that is written once."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module
from pyspark.sql.pandas.types import from_arrow_schema

import appulse as ap
from appulse.engines.measured import METRICS as FIGURES
from appulse.engines.spark.blobs import ANSWERS, METRICS, REJECTS, metrics_blob, table_bytes
from appulse.engines.spark.file_sink import FileSink
from appulse.engines.spark.frames import TaggedFrames, frames_of
from appulse.engines.spark.processor import StageProcessor
from appulse.engines.spark.results import result_of
from appulse.engines.spark.sinks import Sink, sink_of
from appulse.engines.spark.tagged import arrow_schema, select_tag, spark_type, tagged_schema
from tests.helpers import sensing
from tests.helpers.streaming import files, read_stream, read_written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from appulse.engines.spark.stage import Sent

N = 160
ENDS = [
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    dt.datetime(2024, 3, 31, 1, 30, 0, 7, tzinfo=dt.UTC),
]


def every_type() -> pa.Table:
    """Columns of each type that answers may have, with nulls, the ends of their ranges, NaN, and the like nested."""
    inner = pa.struct([("n", pa.int64()), ("x", pa.float64()), ("t", pa.timestamp("us", "UTC")), ("b", pa.binary())])
    item = {"n": 2**62 + 1, "x": float("nan"), "t": ENDS[2], "b": b"\0\xff"}
    columns: dict[str, Any] = {
        f"int{bits}": pa.array([-(1 << (bits - 1)), (1 << (bits - 1)) - 1, 0, None], getattr(pa, f"int{bits}")())
        for bits in (8, 16, 32, 64)
    }
    columns |= {
        "float": pa.array([0.1, float("nan"), float("-inf"), None], pa.float32()),
        "double": pa.array([0.1, float("nan"), 5e-324, None]),
        "text": pa.array(["", "é\0", "x" * 70_000, None]),
        "bytes": pa.array([b"", b"\0\xff", b"x", None]),
        "truth": pa.array([True, False, True, None]),
        "date": pa.array([*(time.date() for time in ENDS), None]),
        "utc": pa.array([*ENDS, None], pa.timestamp("us", "UTC")),
        "ntz": pa.array([*ENDS, None], pa.timestamp("us", "UTC")).cast(pa.timestamp("us")),
        "decimal": pa.array([Decimal("-1." + "2" * 20), Decimal(10) ** 17, Decimal(0), None], pa.decimal128(38, 20)),
        "duration": pa.array([dt.timedelta.max // 10_000, dt.timedelta(microseconds=-1), dt.timedelta(0), None]),
        "list": pa.array([[1.5, None, float("nan")], [], [0.0], None], pa.list_(pa.float64())),
        "struct": pa.array([item, {**item, "t": None}, {}, None], inner),
        "pairs": pa.array([[item, None], [], [{}], None], pa.list_(inner)),
        "deep": pa.array([[[ENDS[0], None]], [], [None], None], pa.list_(pa.list_(pa.timestamp("us", "UTC")))),
        "map": pa.array([[("a", 1), ("b", None)], [], [("", 0)], None], pa.map_(pa.string(), pa.int16())),
        "nothing": pa.nulls(4, pa.list_(inner)),
    }
    return pa.table(columns)


class _Call:
    def fingerprint(self) -> str:
        return "call"


@dataclass(frozen=True)
class Says:
    """A stage that says the same of every key and micro-batch."""

    blobs: tuple[bytes, ...]
    name: str = "says"
    call: Any = None

    def run(self, key: int, *_: Any) -> Sent:  # noqa: ARG002 - every key is as another
        return [(-1, blob) for blob in self.blobs]


def as_it_is() -> Callable[[pa.Table], tuple[pa.Table]]:
    return lambda table: (table,)


@pytest.mark.every_version
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_every_type_leaves_a_stage_as_it_was(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    """Bit by bit, NaN and null apart, in whatever time zone the session is."""
    answers, rejects = every_type(), pa.table({"reason": ["late", None]})
    figures = {name: float(i) for i, name in enumerate(FIGURES)}
    stage: Any = Says(
        (metrics_blob(**figures), table_bytes(REJECTS, rejects), table_bytes(ANSWERS, answers)), call=_Call()
    )
    schema = from_arrow_schema(answers.schema, prefer_timestamp_ntz=True)
    refused = from_arrow_schema(rejects.schema)
    tagged = tagged_schema(schema, refused)
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"tile": pa.array([1], pa.int32()), "block": [b""]}), tmp_path / "in" / "0.parquet")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", str(zone))
    try:
        rows = (
            spark.readStream.schema("tile int, block binary")
            .parquet(str(tmp_path / "in"))
            .groupBy("tile")
            .transformWithStateInPandas(
                StageProcessor(stage, TaggedFrames(arrow_schema(tagged), as_it_is)),
                outputStructType=tagged,
                outputMode="append",
                timeMode="none",
            )
        )
        found: list[dict[str, pa.Table]] = []

        def keep(batch: DataFrame, _: int) -> None:
            batch.persist()
            parts = {tag: select_tag(batch, tag).toArrow() for tag in ("answer", "reject")}
            own = batch.where("tag = 'metric'").select(*[F.col("metric")[i].alias(n) for i, n in enumerate(FIGURES)])
            found.append({**parts, "metric": own.toArrow()})

        writer = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    (out,) = found
    assert repr(out["answer"].to_pylist()) == repr(answers.to_pylist())
    assert [spark_type(kind) for kind in out["answer"].schema.types] == [spark_type(t) for t in answers.schema.types]
    assert out["reject"].to_pylist() == rejects.to_pylist()
    assert out["metric"].to_pylist() == [figures]


def test_small_batches_leave_together_and_large_ones_alone() -> None:
    """A frame is the same rows, in order; one of no rows is none."""
    sizes = [0, 3, 0, 4, 200_000, 0, 1, 200_000, 150_000, 5, 0]
    batches = [pa.record_batch({"n": pa.array(range(i, i + n), pa.int64())}) for i, n in enumerate(sizes)]
    frames = list(frames_of(batches))
    assert [len(frame) for frame in frames] == [200_000, 200_000, 150_000, 13]
    told = sorted(tuple(frame["n"]) for frame in frames)
    assert sum(map(sum, told)) == sum(sum(batch.column(0).to_pylist()) for batch in batches)
    assert not list(frames_of(batches[:1]))


def test_a_stage_says_what_its_blobs_say() -> None:
    """All tags in one frame; and what finishes answers is made once for all keys of a task."""
    made: list[int] = []

    def finishing() -> Any:
        made.append(1)
        return lambda table: (table.slice(0, 1), table.slice(1, 0), table.slice(1))

    schema = from_arrow_schema(pa.schema([("n", pa.int64())]))
    frames = TaggedFrames(arrow_schema(tagged_schema(schema, schema)), finishing)
    sent = [
        (-1, table_bytes(ANSWERS, pa.table({"n": [1, 2, 3]}))),
        (-1, METRICS + b'{"rows": 4}'),
        (-1, table_bytes(REJECTS, pa.table({"n": [7]}))),
    ]
    for _ in range(2):
        (frame,) = frames(sent)
        assert list(frame["tag"]) == ["answer", "answer", "metric", "reject"]
        assert [[one["n"] for one in own] for own in frame["answer"][:2]] == [[1], [2, 3]]
        assert (frame["metric"][2][FIGURES.index("rows")], frame["reject"][3][0]["n"]) == (4.0, 7)
    assert made == [1]


def rows_table(bad: bool = False) -> pa.Table:
    x = np.arange(N) % 7 / 2
    return pa.table({"id": np.arange(N), "ts": np.arange(N) / 10, "x": np.where((np.arange(N) == 50) & bad, np.nan, x)})


def join(frame: Any, window: Any = None, **more: Any) -> Any:
    stream = ap.Stream(frame, key="id", time="ts", value=ap.Exact("x"), name="rows")
    return ap.self_join(stream, epsilon=0.1, probability=0.5, window=window or ap.TimeWindow(2), **more)


def alike(frame: Any) -> Any:
    settings: dict[str, Any] = {"sensor": "id", "time": "ts", "value": "x", "resolution": 1.0, "expand": True}
    return sensing.sensor_join(frame, window=ap.TimeWindow("2 s"), lateness=0, **settings)


@pytest.mark.every_version
@pytest.mark.parametrize(
    ("call", "stages"),
    [(join, 1), (partial(join, window=ap.CountWindow(20)), 2), (alike, 1)],
    ids=["time", "count", "elements"],
)
def test_no_worker_only_decodes(spark: SparkSession, tmp_path: Path, call: Any, stages: int) -> None:
    """Of Python a plan has an encoder, and its stages: what the last one puts out goes on within the JVM."""
    result = result_of(call(read_stream(spark, files(tmp_path, rows_table(), N))))
    nodes = [
        name for name in _nodes(result.rows) if "In" in name and ("Arrow" in name or "Py" in name or "Pan" in name)
    ]
    assert all("TransformWithState" in name for name in nodes[:stages])
    assert nodes[stages:] == ["MapInArrow"]


def _nodes(frame: DataFrame) -> list[str]:
    """The names of the nodes of a plan, from the top."""

    def below(node: Any) -> Iterator[str]:
        yield str(node.nodeName())
        children = node.children()
        for i in range(children.size()):
            yield from below(children.apply(i))

    return list(below(frame._jdf.queryExecution().analyzed()))


def keys_of(table: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(table["left_key"].to_pylist(), table["right_key"].to_pylist(), strict=True))


def started(result: Any, folder: Path, *, rejects: bool) -> Any:
    sinks = [("parquet", {"path": str(folder / name)}) for name in ("answers", "rejects")[: 1 + rejects]]
    query = ap.start(result, *sinks, checkpoint=str(folder / "c"), trigger={"availableNow": True})
    query.awaitTermination()
    return query


def jobs_of(spark: SparkSession, query: Any) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId)))


@pytest.mark.every_version
@pytest.mark.parametrize("rejects", [False, True], ids=["answers", "rejects"])
def test_a_micro_batch_is_one_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rejects: bool
) -> None:
    """One more where there are rejects to write: those of the first batch, for its columns, and of any bad row."""
    monkeypatch.setattr(FileSink, "counts_always", False)  # as on one machine
    table = rows_table(bad=True)
    query = started(join(read_stream(spark, files(tmp_path / "in", table, 40))), tmp_path / "out", rejects=rejects)
    batches = len(query.recentProgress)
    assert batches >= 4
    assert jobs_of(spark, query) == batches + 2 * rejects
    assert keys_of(read_written(tmp_path / "out" / "answers")) == keys_of(join(table))
    if rejects:
        (bad,) = read_written(tmp_path / "out" / "rejects").to_pylist()
        assert bad["key"] == 50
    newest = [int(path.name) for path in (tmp_path / "out" / "c" / "appulse-newest").glob("[0-9]*")]
    assert newest == [15_900_000]


@pytest.mark.every_version
def test_batches_without_answers_leave_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """But for the first, which leaves the columns."""
    table = rows_table().slice(0, 120)
    apart = table.set_column(2, "x", pa.array(np.arange(120) * 10.0))
    query = started(join(read_stream(spark, files(tmp_path / "in", apart, 40))), tmp_path / "out", rejects=False)
    written = [path.name for path in (tmp_path / "out" / "answers").glob("*.parquet")]
    assert len(query.recentProgress) >= 3
    assert {name.split("-")[2] for name in written} == {"0000000000"}
    assert spark.read.parquet(str(tmp_path / "out" / "answers")).columns == join(apart).column_names


@pytest.mark.every_version
@pytest.mark.parametrize("window", [ap.TimeWindow(2), ap.CountWindow(20)], ids=["time", "count"])
def test_a_task_that_fails_after_its_state_was_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: Any
) -> None:
    """It works its batch out again, in the job that writes: nothing is lost, doubled or counted twice."""
    table = rows_table(bad=True)
    folder = str(tmp_path)

    def fragile(sink: Any, role: str, query: str, **how: Any) -> Sink:
        own = sink_of(sink, role, query, **how)

        def write(frame: DataFrame, number: int, *asked: Any) -> object:
            return own.write(frame.mapInArrow(failing_once(folder, number), frame.schema), number, *asked)

        return Sink(write, own.once)

    monkeypatch.setattr("appulse.engines.spark.start.sink_of", fragile)
    result = join(read_stream(spark, files(tmp_path / "in", table, 60)), window=window)
    query = started(result, tmp_path / "out", rejects=False)
    assert list(tmp_path.glob("failed-1-*"))
    written = read_written(tmp_path / "out" / "answers")
    complete = [row for row in join(table, window=window).to_pylist() if row["right_time"] < 15.9]
    assert set(keys_of(written)) >= {(row["left_key"], row["right_key"]) for row in complete}
    assert len(set(keys_of(written))) == len(written)
    figures = [next(iter(progress.observedMetrics.values())) for progress in query.recentProgress]
    assert sum(one["answers"] for one in figures) == len(written)
    assert sum(one["rows"] for one in figures) == N - 1


def failing_once(folder: str, number: int) -> Any:
    """Fails once in each task of the second batch, after all rows came through."""

    def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pathlib import Path

        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        assert context is not None
        mark = Path(folder) / f"failed-{number}-{context.partitionId()}"
        if number == 1 and not mark.exists():
            mark.touch()
            raise OSError("the disk is gone for a moment")

    return passing


def test_a_function_may_read_a_batch_as_it_likes(spark: SparkSession, tmp_path: Path) -> None:
    """Not at all, in part or twice: the batch is worked out once, and is given only if it has answers."""
    table = rows_table()
    counts: list[int] = []

    def sink(frame: DataFrame, number: int) -> None:
        if number % 3 == 1:
            frame.limit(1).collect()
        if number % 3 == 2:
            counts.extend([frame.count(), frame.count()])

    result = join(read_stream(spark, files(tmp_path / "in", table, 20)))
    query = ap.start(result, sink, checkpoint=str(tmp_path / "c"), trigger={"availableNow": True})
    query.awaitTermination()
    figures = [next(iter(progress.observedMetrics.values())) for progress in query.recentProgress]
    assert counts == [int(one["answers"]) for one in figures[2::3] for _ in range(2) if one["answers"]]
    assert sum(one["answers"] for one in figures) == len(join(table))
