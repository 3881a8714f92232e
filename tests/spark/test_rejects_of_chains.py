"""Rejects of the calls before the last one: each is written and counted, in whichever micro-batch it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import appulse as ap
from appulse.cli.progress import batch_of
from appulse.engines.spark.file_sink import FileSink
from appulse.engines.spark.plans import observed_now
from tests.helpers.streaming import files, read_stream, read_written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

BATCHES, BAD = 3, (1, 2)  # micro-batches, and those with a row that has no key
TIMES = [100 * number + 1 for number in BAD]
BOTH, ALONE = ["answers", "rejects"], ["answers"]  # the sinks of a start


def rows_table() -> pa.Table:
    """Three rows a micro-batch; the first one has no bad row."""
    rows = [
        {
            "id": None if i == 1 and n in BAD else f"{n}{i}",
            "t": 100 * n + i,
            "x": 1.0,
            "y": None if n == i == 2 else 1.0,
        }
        for n in range(BATCHES)
        for i in range(3)
    ]
    return pa.Table.from_pylist(rows)


def _stream(frame: Any, *values: str) -> ap.Stream:
    value = ap.Incomplete("x", "y") if values else "x"
    return ap.Stream(frame, key="id", time="t", value=value, lateness=10)


def _join(stream: ap.Stream, **more: Any) -> Any:
    return ap.self_join(stream, epsilon=1, probability=0.5, window=10, **more)


def _pairs(frame: Any) -> ap.Stream:
    return ap.Stream(_join(_stream(frame)), key="left_key", time="right_time", value="distance")


def _conditions(column: str) -> pa.Table:
    return pa.table({"query": [1], "condition": [f"{column} >= 0"]})


def filled_join(frame: Any) -> Any:
    return _join(_stream(frame, "x", "y"), imputer=ap.LastValueImputer(wait=20))


def filled_by_speed(frame: Any) -> Any:
    return _join(_stream(frame, "x", "y"), imputer=ap.SpeedImputer({"y": 0.5}, wait=20))


def filled_aggregate(frame: Any) -> Any:
    filled = ap.impute(_stream(frame, "x", "y"), ap.LastValueImputer(wait=20))
    return ap.window_aggregate(filled, {"x": "mean"}, window=10)


def pairs_counted(frame: Any) -> Any:
    return ap.window_aggregate(_pairs(frame), {"distance": "count"}, window=30)


def pairs_joined(frame: Any) -> Any:
    """No call of it waits for the end, so nothing has the plan made anew."""
    return _join(_pairs(frame))


def pairs_matched(frame: Any) -> Any:
    """The last call has no state."""
    return ap.match_queries(_pairs(frame), _conditions("distance"))


def matches_counted(frame: Any) -> Any:
    """The first call has no state."""
    matches = ap.match_queries(_stream(frame), _conditions("x"))
    stream = ap.Stream(matches, key="key", time="time", value="query", lateness=10)
    return ap.window_aggregate(stream, {"query": "count"}, window=10)


def run(result: Any, folder: Path, names: Sequence[str] = ("answers", "rejects")) -> Any:
    query = begun(result, folder, names)
    query.awaitTermination()
    return query


def begun(result: Any, folder: Path, names: Sequence[str]) -> Any:
    sinks = [("parquet", {"path": str(folder / name)}) for name in names]
    return ap.start(result, *sinks, checkpoint=str(folder / "c"), trigger={"availableNow": True})


def refused_times(folder: Path) -> list[int]:
    return sorted(int(time) for time in read_written(folder / "rejects")["time"].to_pylist())


def reject_files(folder: Path) -> list[int]:
    """The micro-batches of the files of rejects."""
    return [int(name.split("/")[-1].split("-")[2]) for name in ds.dataset(folder / "rejects").files]


def rejected(query: Any) -> list[int]:
    """What the progress of each micro-batch says, of all calls; those that time alone started say 0."""
    return [sum(int(of["rejected"]) for of in one.observedMetrics.values()) for one in query.recentProgress]


@pytest.mark.every_version
@pytest.mark.parametrize(
    "call",
    [
        filled_join,
        filled_aggregate,
        pairs_counted,
        pairs_matched,
        matches_counted,
        *(pytest.param(call, marks=pytest.mark.long) for call in (filled_by_speed, pairs_joined)),
    ],
)
def test_later_batches_lose_no_reject(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[Any], Any]
) -> None:
    """A micro-batch is one job, and one more where there are rejects; the first writes theirs for the columns."""
    monkeypatch.setattr(FileSink, "counts_always", False)  # as on one machine
    query = run(call(read_stream(spark, files(tmp_path / "in", rows_table(), 3))), tmp_path)
    assert refused_times(tmp_path) == TIMES
    assert rejected(query)[:BATCHES] == [int(number in BAD) for number in range(BATCHES)]
    assert sum(rejected(query)) == len(BAD)
    said = [batch for one in query.recentProgress if (batch := batch_of(one)) is not None]
    assert [sum(of) for of in zip(*((one.rows, one.metrics["rejected"]) for one in said), strict=True)] == [9, len(BAD)]
    assert [one.rows for one in said][:BATCHES] == [3] * BATCHES  # though the plan reads the source two or three times
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId))
    assert len(jobs) == len(query.recentProgress) + 1 + len(BAD)
    assert sorted(reject_files(tmp_path)) == [0, *BAD]  # one each, by one task


@pytest.mark.parametrize("settings", [{"how": "full"}, {"window": ap.CountWindow(3)}], ids=["partners", "numbers"])
def test_calls_of_several_stages_count_a_reject_once(
    spark: SparkSession, tmp_path: Path, settings: dict[str, Any]
) -> None:
    frames = [read_stream(spark, files(tmp_path / name, rows_table(), 3)) for name in "ab"]
    asked = {"epsilon": 1, "probability": 0.5, "window": 10} | settings
    query = run(ap.similarity_join(*map(_stream, frames), **asked), tmp_path)
    assert refused_times(tmp_path) == sorted(2 * TIMES)
    assert rejected(query)[:BATCHES] == [2 * int(number in BAD) for number in range(BATCHES)]
    assert sum(rejected(query)) == 2 * len(BAD)


def test_a_start_between_batches_loses_no_reject(spark: SparkSession, tmp_path: Path) -> None:
    """It makes the calls anew, as another process does; here of no plan that is made anew by then."""
    table = rows_table()
    given = files(tmp_path / "in", table.slice(0, 3), 3)
    run(pairs_joined(read_stream(spark, given)), tmp_path)
    assert refused_times(tmp_path) == []
    for file in sorted(files(tmp_path / "later", table.slice(3), 3).iterdir()):
        file.rename(given / f"later-{file.name}")
    again = run(pairs_joined(read_stream(spark, given)), tmp_path)
    assert refused_times(tmp_path) == TIMES
    assert sum(rejected(again)) == len(BAD)


OTHERS = (pairs_counted, pairs_joined, pairs_matched)


@pytest.mark.parametrize(
    ("call", "first"),
    [
        (filled_aggregate, BOTH),
        (matches_counted, ALONE),
        *(pytest.param(call, BOTH, marks=pytest.mark.long) for call in (matches_counted, *OTHERS)),
        *(pytest.param(call, ALONE, marks=pytest.mark.long) for call in OTHERS),
    ],
)
def test_a_chain_goes_on_with_rejects_as_it_was_started(
    spark: SparkSession, tmp_path: Path, call: Callable[[Any], Any], first: list[str]
) -> None:
    table = rows_table()
    given = files(tmp_path / "in", table.slice(0, 3), 3)
    run(call(read_stream(spark, given)), tmp_path, first)
    assert first == ALONE or refused_times(tmp_path) == []
    for file in sorted(files(tmp_path / "later", table.slice(3), 3).iterdir()):
        file.rename(given / f"later-{file.name}")
    other = BOTH if first == ALONE else ALONE
    query = begun(call(read_stream(spark, given)), tmp_path, other)
    for wait in (query.processAllAvailable, query.awaitTermination):
        with pytest.raises(ap.CheckpointError, match=r"read \d sources, and now it reads \d\. Start it .* rejects="):
            wait()
    again = run(call(read_stream(spark, given)), tmp_path, first)
    assert first == ALONE or refused_times(tmp_path) == TIMES
    assert sum(rejected(again)) == len(BAD)


def test_rejects_that_spark_did_not_count_are_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that is not known is not 0."""

    def own_alone(spark: SparkSession, query: str, names: Sequence[str]) -> Any:
        return observed_now(spark, query, names[:1])

    monkeypatch.setattr("appulse.engines.spark.batch_writer.observed_now", own_alone)
    run(pairs_joined(read_stream(spark, files(tmp_path / "in", rows_table(), 3))), tmp_path)
    assert refused_times(tmp_path) == TIMES
    assert set(reject_files(tmp_path)) == {0, *BAD}
