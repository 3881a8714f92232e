"""Rows that are withdrawn, on Spark: whatever workers forget and whenever they fail, as in process."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.bucket import Bucket
from appulse.engines.join.call import JoinCall, JoinSettings, resolve
from appulse.engines.join.local import LocalJoin
from appulse.engines.spark.join.tile_bucket import Tile
from appulse.engines.spark.tiles import TilePlan, hashed_plan
from appulse.operators import join_windows
from tests.helpers import naive_withdrawals as twin
from tests.helpers import strategies
from tests.helpers.fake_spark import FakeSpark
from tests.helpers.streaming import drained, files, read_stream, read_written
from tests.operators import test_withdrawals_of_held_pairs as held
from tests.spark.test_tiles import plans, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.helpers.strategies import Case

TWO = ap.Options(partitions=2)
WINDOWS = ("time", "time", "count", "delta", "tumble", "uncertain")


def call_of(case: Case) -> JoinCall:
    """The resolved call of a corrected case."""
    return resolve(
        twin.corrected(case),
        [table.append_column("op", pa.array(["add"] * len(table), pa.string())).schema for table in case.tables],
        JoinSettings(
            epsilon=case.epsilon,
            probability=case.probability,
            window=case.window,
            different=case.different,
            emit=case.emit,
        ),
    )


def _reasons(tables: list[pa.Table]) -> list[tuple[str, ...]]:
    return sorted(
        tuple(str(row[n]) for n in ("stream", "key", "time", "reason")) for t in tables for row in t.to_pylist()
    )


def _check(case: Case, steps: list[twin.Step], data: st.DataObject) -> None:
    call, bare = call_of(case), data.draw(st.booleans())
    plan, random = data.draw(plans(case)), Random(data.draw(st.integers(0, 1 << 30)))
    played, local, rejected = FakeSpark(call, plan, random), LocalJoin(call), []
    slack = data.draw(st.sampled_from((-(1 << 40), 1 << 18)))  # logs begun anew often, and never
    with patch.object(Tile, "slack", slack), patch.object(Bucket, "slack", slack):
        for step in steps:
            tables = twin.frames(case, step, bare=bare)
            answers, rejects = played.batch(tables)
            # Buckets know time from their own rows, and from Spark's watermark, which is a micro-batch behind.
            more, others = played.batch({})
            assert rows_of([*answers, *more]) == rows_of([local.push(tables)])
            rejected += others
            rejected += rejects
            if data.draw(st.integers(0, 5)) == 0:
                played.replan(data.draw(plans(case, plan.tiles)))
        answers, rejects = played.end()
    assert rows_of(answers) == rows_of([local.drain()])
    assert _reasons([*rejected, *rejects]) == _reasons([local.rejects()])


@settings(max_examples=25)
@given(st.data())
def test_a_played_spark_withdraws_as_one_process_does(data: st.DataObject) -> None:
    """Tiles and buckets that forget, lag and fail, under every window, with changes and without."""
    case = data.draw(strategies.cases(windows=WINDOWS, lateness=True, bad=False, most=8))
    if not isinstance(case.window, ap.UncertainCountWindow):
        case = replace(case, emit=data.draw(st.sampled_from(("matches", "changes"))))
    _check(case, data.draw(twin.steps(case)), data)


@given(st.data())
def test_rows_behind_a_withdrawn_one_move_up_in_tiles(data: st.DataObject) -> None:
    """Withdrawals of rows that windows hold, with rows before and after them; and of rows that never came."""
    case = data.draw(twin.small())
    if not isinstance(case.window, ap.UncertainCountWindow):
        case = replace(case, emit=data.draw(st.sampled_from(("matches", "changes"))))
    steps = data.draw(twin.one_by_one(case))
    never = {i for i in range(len(case.tables[0])) if data.draw(st.integers(0, 5)) == 0}
    steps = [
        replace(step, added={s: [i for i in own if i not in never] for s, own in step.added.items()}) for step in steps
    ]
    _check(case, steps, data)


@pytest.mark.parametrize("seed", range(2))
def test_tiles_that_forget_groups_own_the_pairs_of_others(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups come and go, and tiles forget them at different times: each pair is still of one tile."""
    monkeypatch.setattr(join_windows, "_LABELS", 8)
    chance = Random(seed)
    rows = [
        {"g": f"g{i // 4}", "k": i % 4, "t": i // 4 + 100, "x": float(chance.randrange(3)), "op": "add"}
        for i in range(240)
    ]
    schema = pa.schema({"g": pa.string(), "k": pa.int64(), "t": pa.int64(), "x": pa.float64(), "op": pa.string()})
    stream = ap.Stream(None, key="k", time="t", value=ap.Exact("x"), partition_by="g", change="op", name="s")
    asked: Any = {"epsilon": 1.0, "probability": 1.0, "window": ap.TimeWindow(3.0), "emit": "changes"}
    call = resolve([stream], [schema], JoinSettings(**asked))
    played, local = FakeSpark(call, hashed_plan(call.plan, 4, None, 0.5), chance), LocalJoin(call)
    for begin in range(0, len(rows), 10):
        new = rows[begin : begin + 10]
        gone = [{**row, "op": "remove"} for row in rows[max(0, begin - 10) : begin] if chance.random() < 0.2]
        tables = {"s": pa.Table.from_pylist([*new, *gone], schema)}
        found = [table for given in (tables, {}) for table in played.batch(given)[0]]
        assert rows_of(found) == rows_of([local.push(tables)])
    assert rows_of(played.end()[0]) == rows_of([local.drain()])


_FIRST = [(i, i, float(i % 5), "add") for i in range(40)]
_GONE = [(i, i, float(i % 5), "remove") for i in range(0, 40, 3)] + [
    (i, i, float(i % 4), "add") for i in range(0, 40, 6)
]
_BATCHES: tuple[list[tuple[Any, ...]], ...] = (
    _FIRST,
    _GONE,
    [(i, i, float(i % 5), "add") for i in range(40, 80)] + [(99, 12, None, "remove")],
)


#: A row that a condition leaves out is created anew; and one is, twice in one batch.
_FEEDS: tuple[list[tuple[Any, ...]], ...] = (
    [(70, 41, 9.0, "c"), (71, 41, 1.0, "c")],
    [(70, 41, None, "d"), (71, 41, None, "d"), (71, 41, 2.0, "c"), (71, 41, None, "d"), (71, 41, 3.0, "c")],
    [(70, 41, 2.0, "c")],
)
_LEFT = [(70, 41, 2.0, "add"), (71, 41, 3.0, "add")]


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    kinds = {"k": pa.int64(), "t": pa.float64(), "x": pa.float64(), "op": pa.string()}
    columns = dict(zip(kinds, zip(*rows, strict=True), strict=True))
    return pa.table({name: pa.array(columns[name], kind) for name, kind in kinds.items()})


def _joined(frame: Any, window: Any, **settings: Any) -> Any:
    stream = ap.Stream(frame, key="k", time="t", value="x", change="op", lateness="1 minute")
    return ap.self_join(ap.filter(stream, "x < 5"), epsilon=1.0, probability=0.5, window=window, **settings)


def _standing(table: pa.Table) -> list[tuple[int, ...]]:
    """The pairs that changes add up to, but for those that time ended."""
    count: Counter[tuple[int, ...]] = Counter()
    for row in table.to_pylist():
        over = row["change"] < 0 and row["time"] > max(row["left_time"], row["right_time"])
        count[row["left_key"], row["right_key"]] += 0 if over else row["change"]
    return sorted((+count).elements())


def _pairs(table: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(table["left_key"].to_pylist(), table["right_key"].to_pylist(), strict=True))


def test_a_restart_of_spark_withdraws_rows_of_before(spark: SparkSession, tmp_path: Path) -> None:
    """Three starts of a query, each with a batch more: the changes add up to a join of the rows that stand."""
    batches = [[*batch, *feed] for batch, feed in zip(_BATCHES, _FEEDS, strict=True)]
    whole = _table([row for batch in batches for row in batch])
    expected = _pairs(_joined(_table([row for batch in (*_BATCHES, _LEFT) for row in batch]), 12.5))
    assert _pairs(_joined(whole, 12.5)) == expected
    assert _pairs(_joined(spark.createDataFrame(whole), 12.5, options=TWO).toArrow()) == expected
    (tmp_path / "in").mkdir()
    sinks = [("parquet", {"path": str(tmp_path / name)}) for name in ("answers", "rejects")]
    for i, batch in enumerate(batches):
        pq.write_table(_table(batch), tmp_path / "in" / f"{i}.parquet")
        result = _joined(read_stream(spark, tmp_path / "in"), 12.5, emit="changes", options=TWO)
        drain = i == len(_BATCHES) - 1
        trigger: Any = {} if drain else {"trigger": {"availableNow": True}}
        ap.start(result, *sinks, checkpoint=str(tmp_path / "checkpoint"), drain=drain, **trigger).awaitTermination()
    found, rejects = (read_written(tmp_path / name) for name in ("answers", "rejects"))
    assert _standing(found) == expected
    assert [(row["key"], row["reason"]) for row in rejects.to_pylist()] == [(99, "no such row")]


def test_a_batch_of_spark_rejects_what_withdraws_no_row(spark: SparkSession) -> None:
    whole = _table([*_FIRST, (99, 12, None, "remove"), (3, 3, None, "drop")])
    for window in (12, ap.CountWindow(5)):
        found = _joined(spark.createDataFrame(whole), window, options=TWO)
        told = [(row["key"], row["reason"]) for row in ap.rejects(found).toArrow().to_pylist()]
        assert sorted(told) == [(3, "bad change"), (99, "no such row")]
        assert _pairs(found.toArrow()) == _pairs(_joined(whole, window))


def _outliers(frame: Any, **more: Any) -> Any:
    stream = ap.Stream(frame, key="k", time="t", value=ap.Exact("x"), change="op", lateness="1 minute")
    return ap.outliers(stream, epsilon=1.0, fewer_than=12, probability=0.7, window=12, **more)


def test_a_batch_of_spark_withdraws_pairs_that_wait(spark: SparkSession) -> None:
    whole = _table([row for batch in _BATCHES for row in batch])
    found = _outliers(spark.createDataFrame(whole), options=TWO).toArrow()
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, _outliers(whole).to_pylist()))


@pytest.mark.long
def test_a_restart_of_spark_withdraws_pairs_that_wait(spark: SparkSession, tmp_path: Path) -> None:
    """Three starts of a query: rows and pairs of before a stop are withdrawn after it."""
    expected = _outliers(_table([row for batch in _BATCHES for row in batch])).to_pylist()
    (tmp_path / "in").mkdir()
    for i, batch in enumerate(_BATCHES):
        pq.write_table(_table(batch), tmp_path / "in" / f"{i}.parquet")
        drain = i == len(_BATCHES) - 1
        trigger: Any = {} if drain else {"trigger": {"availableNow": True}}
        sink = "parquet", {"path": str(tmp_path / "answers")}
        result = _outliers(read_stream(spark, tmp_path / "in"), options=TWO)
        ap.start(result, sink, checkpoint=str(tmp_path / "checkpoint"), drain=drain, **trigger).awaitTermination()
    assert 0 < len(expected) < 73  # all that stand
    assert sorted(map(str, read_written(tmp_path / "answers").to_pylist())) == sorted(map(str, expected))


@pytest.mark.long
def test_a_restart_of_spark_withdraws_rows_of_windows(spark: SparkSession, tmp_path: Path) -> None:
    """Aggregates over two starts of a query, and of a batch: those of the rows that stand."""
    whole = _table([row for batch in _BATCHES for row in batch])

    def aggregated(frame: Any) -> Any:
        stream = ap.Stream(frame, key="k", time="t", value="x", change="op", lateness="1 minute")
        return ap.window_aggregate(stream, {"x": ["sum", "count"]}, window=ap.CountWindow(5))

    expected = aggregated(whole).to_pylist()
    assert sorted(aggregated(spark.createDataFrame(whole)).toArrow().to_pylist(), key=str) == sorted(expected, key=str)
    (tmp_path / "in").mkdir()
    sinks = [("parquet", {"path": str(tmp_path / name)}) for name in ("answers", "rejects")]
    for i, batch in enumerate((_BATCHES[0], _BATCHES[1] + _BATCHES[2])):
        pq.write_table(_table(batch), tmp_path / "in" / f"{i}.parquet")
        result, last = aggregated(read_stream(spark, tmp_path / "in")), i == 1
        trigger: Any = {} if last else {"trigger": {"availableNow": True}}
        ap.start(result, *sinks, checkpoint=str(tmp_path / "checkpoint"), drain=last, **trigger).awaitTermination()
    found, rejects = (read_written(tmp_path / name) for name in ("answers", "rejects"))
    assert sorted(found.to_pylist(), key=str) == sorted(expected, key=str)
    assert [(row["key"], row["reason"]) for row in rejects.to_pylist()] == [(99, "no such row")]


@settings(max_examples=60)
@given(st.sampled_from([*held.CALLS, "reference"]), st.integers(0, 3), st.data())
def test_pairs_that_wait_are_withdrawn_with_their_rows(name: str, lateness: int, data: st.DataObject) -> None:
    """Tiles that forget, lag and fail, and whose plan changes; the twin is a batch over what stands as rows leave."""
    call, by_hand, more = held.CALLS["outliers" if name == "reference" else name]
    sides = held.SIDES[: 1 if name == "outliers" else 2]
    engine = by_hand(*(held.stream(side, change="op", lateness=lateness) for side in sides), **held.ASKED, **more)
    engine.push(**{side: held.table([], "add") for side in sides})
    tiles = data.draw(st.integers(1, 4))
    asked: JoinCall = engine._engine.call

    def plan(side: float | None) -> TilePlan:
        return hashed_plan(asked.plan, tiles, asked.encodings[0].gaussian_reach, side)

    played = FakeSpark(asked, plan(None), Random(data.draw(st.integers(0, 1 << 30))))
    stand: dict[str, list[held.Row]] = {side: [] for side in sides}
    time, over = 1 if len(call(*map(_empty, sides), **held.ASKED, **more).column_names) == 4 else 2, -1
    slack = data.draw(st.sampled_from((-(1 << 40), 1 << 18)))
    with patch.object(Tile, "slack", slack), patch.object(Bucket, "slack", slack):
        for push in [*data.draw(held.stories(len(sides), first=1000)), None]:
            limit = max(over, (played._watermark() or -1) // 1_000_000) if push is not None else 1 << 40
            whole = {side: held.table(rows, "add") for side, rows in stand.items()}
            expected = call(*(held.stream(side, rows) for side, rows in whole.items()), **held.ASKED, **more)
            leave = [row for row in held.rows_of(expected) if over <= row[time] + 3 < limit]
            if push is None:
                answers = played.end()[0]
            else:
                answers = played.batch(held.frames_of(push))[0]
                for side, (added, gone) in push.items():
                    stand[side] += added
                    for row in gone:
                        if row["t"] + 3 >= limit:  # else it has left its window
                            stand[side].remove(row)
            assert held.rows_of(pa.concat_tables([expected.schema.empty_table(), *answers])) == leave
            over = limit
            if data.draw(st.integers(0, 5)) == 0:
                played.replan(plan(data.draw(st.sampled_from((1.0, 3.0)))))


def _empty(side: str) -> ap.Stream:
    return held.stream(side, held.table([], "add"))


def test_updates_of_one_file_are_in_its_order(spark: SparkSession, tmp_path: Path) -> None:
    """In a batch and in a micro-batch: the last update of a row stays."""
    rows = pa.table({"id": [1, 1, 1, 2], "t": [5] * 4, "x": [1.0, 3.0, 2.0, 7.0], "op": ["c", "u", "u", "u"]})
    folder = files(tmp_path / "in", rows, len(rows))
    for frame in (rows, spark.read.parquet(str(folder)), read_stream(spark, folder)):
        stream = ap.Stream(frame, key="id", time="t", value="x", change="op", lateness=9)
        found = ap.window_aggregate(stream, aggregates={"x": ["sum", "count"]}, window=0)
        if frame is rows:
            answers = found
        else:
            answers = drained(found, tmp_path / "out")[0] if frame.isStreaming else found.toArrow()
        assert answers.select(["x_sum", "x_count"]).to_pylist() == [{"x_sum": 9.0, "x_count": 2.0}]
