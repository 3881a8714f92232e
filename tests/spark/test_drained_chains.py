"""Chains that are drained: the end of the streams is that of the first call's rows, whatever the last one has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import appulse as ap
from tests.helpers.streaming import drained, drained_answers, files, read_stream, read_written, reopen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

N = 30
ALL = pa.table({"query": ["all"], "condition": ["probability >= 0"]})
CHANGED = pa.table({"query": ["all"], "condition": ["change >= 0"]})
YARD = pa.table({"query": ["yard"], "region": ["POLYGON ((0 0, 1 0, 1 1, 0 1, 0 0))"]})


def rows_table() -> pa.Table:
    """One of three things comes into the yard, and is silent from then on; the others stay outside."""
    return pa.table(
        {
            "id": ["a" if i < 3 else "bc"[i % 2] for i in range(N)],
            "t": [5 * i for i in range(N)],
            "x": [0.5 if i in (1, 2) else 5.0 + (i * i % 7) / 2 for i in range(N)],
            "y": [0.5] * N,
        }
    )


def _stream(frame: Any, **more: Any) -> ap.Stream:
    return ap.Stream(frame, key="id", time="t", value=ap.Exact("x", "y"), lateness=200, **more)


def dwelling(frame: Any) -> Any:
    """The thing in the yard has been there for long when the others are read, and not before."""
    return ap.fence_events(_stream(frame), YARD, enter=1, leave=1, dwell=60)


def joined(frame: Any) -> Any:
    return ap.self_join(_stream(frame), epsilon=1, probability=0.5, window=30, emit="changes")


def joined_by_rows(frame: Any) -> Any:
    return ap.self_join(_stream(frame), epsilon=1, probability=0.5, window=ap.CountWindow(4), emit="changes")


def alone(frame: Any) -> Any:
    return ap.outliers(_stream(frame), epsilon=1, fewer_than=2, probability=0.5, window=30)


def _matched(found: Any) -> Any:
    names = found.columns if hasattr(found, "sparkSession") else found.column_names
    carry = [name for name in names if name not in ("query", "key", "left_key", "time", "probability")]
    key = "key" if "key" in names else "left_key"
    return ap.match_queries(ap.Stream(found, key=key, time="time", value="probability", carry=carry), ALL)


def _sorted(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


@pytest.mark.parametrize(
    ("call", "rejecting"),
    [
        (dwelling, False),
        (dwelling, True),
        (joined, False),
        (joined_by_rows, True),
        pytest.param(joined, True, marks=pytest.mark.long),
        pytest.param(joined_by_rows, False, marks=pytest.mark.long),
    ],
)
def test_a_call_before_the_last_ends_as_in_process(
    spark: SparkSession, tmp_path: Path, call: Callable[[Any], Any], rejecting: bool
) -> None:
    expected = _matched(call(rows_table()))
    stream = _matched(call(read_stream(spark, files(tmp_path / "in", rows_table(), 15))))
    found = drained(stream, tmp_path / "out")[0] if rejecting else drained_answers(stream, tmp_path / "out")
    assert _sorted(found) == _sorted(expected)


@pytest.mark.parametrize("call", [joined, alone])
def test_a_drain_of_a_later_start_ends_as_in_process(
    spark: SparkSession, tmp_path: Path, call: Callable[[Any], Any]
) -> None:
    """So does one more, should it be interrupted before it has closed the checkpoint."""
    folder, sink = files(tmp_path / "in", rows_table(), 15), ("parquet", {"path": str(tmp_path / "out")})
    for drain in (False, True, True):
        result = _matched(call(read_stream(spark, folder)))
        settings = {"drain": True} if drain else {"trigger": {"availableNow": True}}
        ap.start(result, sink, checkpoint=str(tmp_path / "checkpoint"), **settings).awaitTermination()
        if drain:
            reopen(tmp_path / "checkpoint")
    assert _sorted(read_written(tmp_path / "out")) == _sorted(_matched(call(rows_table())))


def test_queries_that_take_answers_back_are_drained(spark: SparkSession, tmp_path: Path) -> None:
    table = rows_table().append_column("op", pa.array(["add"] * N))
    withdrawn = table.slice(4, 1).set_column(4, "op", pa.array(["remove"]))
    table = pa.concat_tables([table.slice(0, 10), withdrawn, table.slice(10)])
    queries = pa.table({"query": ["far"], "condition": ["x > 1"]})
    stream = _stream(read_stream(spark, files(tmp_path / "in", table, 10)), change="op")
    found = drained_answers(ap.match_queries(stream, queries, emit="changes"), tmp_path / "out").to_pylist()
    assert [(row["key"], row["time"]) for row in found if row["change"] == -1] == [("b", 20)]
    entered = [(row["key"], row["time"]) for row in found if row["change"] == 1]
    assert len(entered) == len(set(entered)) == N - 2


def test_a_column_of_the_user_may_be_named_as_that_of_changes(spark: SparkSession, tmp_path: Path) -> None:
    table = rows_table().append_column("change", pa.array([float(i) for i in range(N)]))

    def summed(frame: Any, *, matched: bool) -> Any:
        found = ap.fence_events(_stream(frame, carry=["change"]), YARD, enter=1, leave=1)
        if matched:
            found = ap.match_queries(
                ap.Stream(found, key="key", time="time", value="change", carry=["change"]), CHANGED
            )
        stream = ap.Stream(found, key="key", time="time", value="change", lateness=200)
        return ap.window_aggregate(stream, {"change": "sum"}, window=100)

    read = read_stream(spark, files(tmp_path / "in", table, 15))
    for matched in (False, True):
        found = drained_answers(summed(read, matched=matched), tmp_path / "out")
        assert len(found)
        assert _sorted(found) == _sorted(summed(table, matched=matched))


@pytest.mark.parametrize("matched", [False, True])
def test_no_call_with_state_follows_changes(spark: SparkSession, tmp_path: Path, matched: bool) -> None:
    found = joined(read_stream(spark, files(tmp_path / "in", rows_table(), 15)))
    key = "key" if matched else "left_key"
    with pytest.raises(ap.BadArgument, match=r"answers that come and go .* no call with state can follow"):
        ap.window_aggregate(
            ap.Stream(_matched(found) if matched else found, key=key, time="time", value="change"),
            {"change": "sum"},
            window=100,
        )


def test_a_call_over_encounters_says_why_it_needs_lateness(spark: SparkSession, tmp_path: Path) -> None:
    moving = _stream(read_stream(spark, files(tmp_path / "in", rows_table(), 15)), motion=ap.Straight(max_gap=20))
    met = ap.encounters(moving, epsilon=2, probability=0.5)
    with pytest.raises(ap.BadArgument, match=r"Give lateness=, .* An encounter and a visit come when they have ended"):
        ap.window_aggregate(ap.Stream(met, key="left_key", time="start", value="legs"), {"legs": "sum"}, window=100)
