"""The stage that aggregates, in a played Spark: whatever is cut, forgotten or tried twice, it answers as pushes do."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.aggregates.call import AggregateBucket, AggregateCall, aggregate_table, resolve_aggregate
from appulse.engines.bucket import NEVER
from appulse.engines.spark.blobs import METRICS
from appulse.engines.spark.pipeline import blocks_of_task
from appulse.engines.spark.routing import ToGroups
from appulse.engines.spark.stage import GroupBuckets, Stage
from appulse.engines.spark.state import Cache, TileState
from appulse.engines.spark.tiles import TilePlan
from appulse.model.encode import encode
from appulse.operators.numbering import END
from appulse.operators.relational import WindowAggregate
from appulse.windows.clock import Clock
from tests.helpers.fake_spark import FakeAggregate, FakeHandle
from tests.operators.test_relational import ALL, SCHEMA, Case, cases

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LATER = 10  # seconds: Spark's watermark begins in 1970, and some rows are older


class Pushed:
    """The same call by hand, without buckets, logs and timers."""

    def __init__(self, call: AggregateCall) -> None:
        self.call, self.rejects = call, list[dict[str, Any]]()
        self._operator, self._clock = WindowAggregate(call.plan), Clock.of(call)

    def push(self, table: pa.Table) -> pa.Table:
        objects, rejects = encode(table, self.call.encoding)
        frontier = self._clock.frontier
        late = (objects.time < frontier) if frontier is not None and not self.call.arrival else objects.time > END
        told = self.call.late(0, objects.take(late.nonzero()[0]), frontier or 0)
        self.rejects += rejects.to_pylist() + told.to_pylist()
        objects = objects.take((~late).nonzero()[0])
        self._clock.see(0, objects)
        complete = END if self.call.arrival else self._clock.tick()
        return self._answers([objects], NEVER if complete is None else complete, ended=False)

    def drain(self) -> pa.Table:
        return self._answers([], END, ended=True)

    def _answers(self, rows: Sequence[Any], complete: int, *, ended: bool) -> pa.Table:
        return aggregate_table(self._operator.push(rows, complete, ended=ended), self.call)


def call_of(case: Case, *, distribution: bool = False, **changes: Any) -> AggregateCall:
    """The resolved call of a case; ``changes`` are of its stream."""
    return resolve_aggregate(
        replace(case.stream, name="one", **changes),
        case.table,
        {"x": [*ALL, *(["frequent25"] if case.model in ("exact", "samples", "weighted") else [])]},
        window=case.window,
        distribution=distribution,
        single_valued=False,
        on_reject="collect",
    )


def played(call: AggregateCall, partitions: int, seed: int) -> FakeAggregate:
    return FakeAggregate(call=call, plan=TilePlan(partitions, 1.0, 0.0, 0.0), random=Random(seed))


def _later(case: Case) -> Case:
    rows = (row | {"ts": None if row["ts"] is None else row["ts"] + LATER} for row in case.rows)
    return replace(case, rows=tuple(rows))


def rows_of(tables: Iterable[pa.Table]) -> list[str]:
    """Every row to the last bit, in a fixed order."""
    return sorted(repr(row) for table in tables for row in table.to_pylist())


@st.composite
def cut(draw: st.DrawFn, case: Case) -> list[pa.Table]:
    """The rows in any order, or roughly in that of time, in pushes of any size."""
    rows = draw(st.permutations(case.rows))
    if draw(st.booleans()):
        rows = sorted(rows, key=lambda row: (row["ts"] or 0) + draw(st.integers(0, 2)))
    parts: list[list[dict[str, Any]]] = [[]]
    for row in rows:
        if draw(st.integers(0, 2)) == 0:
            parts.append([])
        parts[-1].append(row)
    return [pa.Table.from_pylist(part, schema=SCHEMA) for part in parts]


def _check(data: st.DataObject) -> None:
    case = _later(data.draw(cases(most=8, bad=True)))
    order = data.draw(st.sampled_from(("time", "time", "arrival")))
    call = call_of(
        case,
        distribution=data.draw(st.booleans()),
        lateness=data.draw(st.sampled_from((None, 1.0, 4.0))),
        order=order,
    )
    spark = played(call, data.draw(st.sampled_from((1, 2, 3))), data.draw(st.integers(0, 1 << 30)))
    local = Pushed(call)
    expected, found, rejects = [], [], []
    with patch.object(AggregateBucket, "slack", data.draw(st.sampled_from((-(1 << 40), -2000, 1 << 18)))):
        for table in data.draw(cut(case)):
            expected.append(local.push(table))
            answers, refused = spark.batch({"one": table})
            found += answers
            rejects += refused
            if not case.grouped:
                assert rows_of(answers) == rows_of(expected[-1:])
        expected.append(local.drain())
        found += spark.end()[0]
    assert rows_of(found) == rows_of(expected)
    assert rows_of(rejects) == sorted(map(repr, local.rejects))


@settings(max_examples=80)
@given(st.data())
def test_buckets_answer_as_pushes_do(data: st.DataObject) -> None:
    _check(data)


@pytest.mark.long
@settings(max_examples=5000)
@given(st.data())
def test_buckets_answer_as_pushes_do_long(data: st.DataObject) -> None:
    _check(data)


def _many(n: int = 3000) -> pa.Table:
    rng = np.random.default_rng(1)
    group = np.array(["a", "b", "c" * 50])[rng.integers(0, 3, n)]
    columns: dict[str, Any] = {"id": range(n), "ts": np.arange(n) // 3 + LATER, "g": group}
    columns |= {"x": np.arange(n) / 50 + rng.normal(size=n), "p": rng.uniform(0.1, 1.0, n)}
    return pa.table(columns | {"m": np.cumsum(rng.uniform(0, 1, n))})


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(
    "window",
    [
        ap.CountWindow(50),
        ap.TimeWindow(20),
        ap.UncertainCountWindow(20, confidence=0.9),
        ap.DeltaWindow("m", 9.0),
        ap.DeltaWindow("x", 1.0, confidence=0.9),
        ap.TumblingWindow(100),
        ap.TumblingWindow("20 seconds"),
    ],
    ids=str,
)
def test_logs_begin_anew_with_all_there_is(window: Any, grouped: bool) -> None:
    """Long enough that rows leave, and that what workers hold was restored from different deltas."""
    table = _many()
    uncertain = isinstance(window, ap.DeltaWindow) and window.confidence is not None
    stream = ap.Stream(
        table,
        key="id",
        time="ts",
        value=ap.Gaussian("x", sigma=0.5) if uncertain else ap.Exact("x"),
        existence="p",
        partition_by="g" if grouped else None,
        lateness=3,
        name="one",
    )
    settings: dict[str, Any] = {"distribution": False, "single_valued": False, "on_reject": "collect"}
    call = resolve_aggregate(stream, table, {"x": ["sum", "count"]}, window=window, **settings)
    spark, local = played(call, 2, seed=3), Pushed(call)
    expected, found, longest = [], [], 0
    with patch.object(AggregateBucket, "slack", 1 << 12):
        for at in range(0, len(table), 100):
            part = table.slice(at, 100)
            expected.append(local.push(part))
            found += spark.batch({"one": part})[0]
            longest = max(longest, *(len(store["log"]) for store in spark.stores.values()))
    assert rows_of([*found, *spark.end()[0]]) == rows_of([*expected, local.drain()])
    first = [store["version"][1] for store in spark.stores.values()]
    assert min(first) > 1
    assert longest < 20


def test_an_attempt_leaves_the_same_state_in_whatever_order_its_blocks_come() -> None:
    """After a crash Spark may join the snapshot of one attempt with the change logs of another."""
    table = _many(30)
    case = Case((), "exact", True, True, ap.CountWindow(4))
    call = call_of(case)
    filled = pa.Table.from_pylist(table.to_pylist(), schema=SCHEMA)
    parts = [filled.slice(at, 10).to_batches() for at in (0, 10, 20)]
    blobs = [
        blob for part in parts for out in blocks_of_task(part, call, ToGroups([0]), 0) for blob in out[1].to_pylist()
    ]
    assert len(blobs) == 3
    stores: list[dict[str, Any]] = [{}, {}]
    for store, order in zip(stores, (blobs, blobs[::-1]), strict=True):
        handle: Any = FakeHandle(store)
        state = TileState(handle, "bucket", Cache(1 << 20))
        Stage(GroupBuckets(call, AggregateBucket), "bucket").run(0, order, 15_000_000, state, lambda _at: None)
    assert stores[0] == stores[1]


def _rows(*rows: tuple[int, str]) -> pa.Table:
    filled = [{"id": i, "ts": ts, "x": 1.0, "g": group} for i, (ts, group) in enumerate(rows)]
    return pa.Table.from_pylist(filled, schema=SCHEMA)


def test_a_block_ends_by_the_watermark_alone() -> None:
    """In a bucket that gets no rows any more: a timer wakes it, once, when the block is over."""
    call = call_of(Case((), "exact", False, True, ap.TumblingWindow("10 seconds")))
    spark = played(call, 8, seed=0)
    assert spark.batch({"one": _rows((1, "a"), (12, "a"), (12, "b"))})[0][0]["time"].to_pylist() == [10]
    spark.batch({"one": _rows((19, "b"))})
    assert spark.batch({"one": _rows((20, "b"))})[0][0]["x_sum"].to_pylist() == [2.0]  # b, by its own clock
    (woken,) = spark.batch({})[0]
    assert [(row["g"], row["time"], row["x_sum"]) for row in woken.to_pylist()] == [("a", 20, 1.0)]
    assert spark.batch({})[0] == []
    assert spark.end()[0][0]["g"].to_pylist() == ["b"]


def test_rows_taken_as_they_come_wake_nobody() -> None:
    """And a group's window depends on no other group's rows."""
    call = call_of(Case((), "exact", False, True, ap.TumblingWindow("10 seconds")), order="arrival")
    spark = played(call, 8, seed=0)
    spark.batch({"one": _rows((1, "a"), (1, "b"))})
    spark.batch({"one": _rows((100, "b"))})
    assert spark.timers == {}
    spark.batch({"one": _rows((2, "a"))})
    ended = [row for table in spark.end()[0] for row in table.to_pylist()]
    assert sorted((row["g"], row["time"], row["x_count"]) for row in ended) == [("a", 10, 2.0), ("b", 110, 1.0)]


def test_figures_of_a_bucket() -> None:
    """Rows are counted once, and state is what waits and what windows hold."""
    call = call_of(Case((), "exact", False, False, ap.CountWindow(2)), lateness=1.0)
    spark = played(call, 1, seed=0)
    spark.random.random = lambda: 1.0  # type: ignore[method-assign]  # nothing is lost, nothing fails
    figures: list[dict[str, Any]] = []
    for rows in (_rows((10, "a"), (11, "a"), (13, "a")), _rows((11, "a"), (20, "a"))):
        limit = spark._watermark()
        out = spark._run(spark._shuffled({"one": rows}), limit)
        figures += [json.loads(blob[1:]) for blob in out if blob[:1] == METRICS]
    names = ("rows", "late", "rejected", "answers", "state_rows")
    figures = [told for told in figures if "rows" in told]  # a bucket that is woken tells of answers alone
    assert [tuple(told[name] for name in names) for told in figures] == [(3, 0, 0, 2, 3), (1, 1, 1, 1, 3)]
    assert all(told["state_bytes"] > 0 < told["state_bytes_written"] for told in figures)
    assert figures[1]["state_bytes_read"] == 0
