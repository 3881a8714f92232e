"""The stage of queries over several streams, in a played Spark: whatever is cut, shuffled or lost, answers stay."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.multi_queries.bucket import WindowBucket
from appulse.engines.multi_queries.call import WindowCall, resolve_window_queries
from appulse.engines.spark.tables import packed
from appulse.engines.spark.tiles import TilePlan
from tests.helpers import naive_queries, query_strategies
from tests.helpers.fake_spark import FakeWindows

if TYPE_CHECKING:
    from tests.helpers.query_strategies import Case, Changing

LATER = 10_000  # seconds: Spark's watermark begins in 1970


def _later(case: Case) -> Case:
    """The case with numbers as times after 1970."""
    moved = []
    for table in case.tables:
        if pa.types.is_integer(table.schema.field("ts").type):
            at = table.schema.get_field_index("ts")
            table = table.set_column(at, "ts", pa.compute.add(table["ts"], LATER))  # noqa: PLW2901
        moved.append(table)
    return replace(case, tables=tuple(moved))


def _call(case: Case) -> WindowCall:
    return resolve_window_queries(
        case.streams, case.tables, case.query_table.schema, **case.settings, on_reject="collect"
    )


def _spark(case: Case, queries: bytes | None, data: st.DataObject) -> FakeWindows:
    call = _call(case)
    buckets = data.draw(st.sampled_from((1, 2, 3))) if call.grouped else 1
    random = Random(data.draw(st.integers(0, 1 << 30)))
    return FakeWindows(call=call, plan=TilePlan(buckets, 1.0, 0.0, 0.0), random=random, queries=queries)


def _told(tables: list[pa.Table], call: WindowCall) -> pa.Table:
    return pa.concat_tables([call.answer_schema.empty_table(), *tables])


def _changes(case: Case, changing: Changing, push: int) -> list[pa.Table]:
    given = [case.query_table.append_column("change", pa.array(["add"] * len(case.queries), pa.string()))]
    own = [changing.change_table(push)] if changing.changes[push] else []
    return [*(given if push == 0 else []), *own]


@given(st.data())
def test_buckets_answer_as_the_slow_twin(data: st.DataObject) -> None:
    """A set that stands: the answers over all batches are those of all rows, and bad rows are told once."""
    case = _later(data.draw(query_strategies.joins(arity=(2, 2, 3), lateness=True, bad=True)))
    spark = _spark(case, packed(case.query_table), data)
    found, rejects = [], []
    with mock.patch.object(WindowBucket, "slack", data.draw(st.sampled_from((0, 1 << 18)))):
        for push in data.draw(query_strategies.cuts(case)):
            answers, refused = spark.batch(case.frames(push))
            found += answers
            rejects += refused
    found += spark.end()[0]
    naive_queries.assert_same(_told(found, spark.call), case.expected())
    expected = ap.rejects(ap.match_queries(*case.framed(), case.query_table, **case.settings)).to_pylist()
    own = [row for row in expected if row["stream"] != "queries"]
    assert sorted(map(repr, pa.concat_tables(rejects).to_pylist() if rejects else [])) == sorted(map(repr, own))


def _in_one_bucket(data: st.DataObject) -> Case:
    case = _later(data.draw(query_strategies.joins(arity=(2,), lateness=True)))
    return replace(case, streams=tuple(replace(stream, partition_by=None) for stream in case.streams))


def _played(case: Case, changing: Changing, data: st.DataObject, slack: int) -> list[pa.Table]:
    """The answers of each micro-batch, and of the end."""
    spark = _spark(case, None, data)
    with mock.patch.object(WindowBucket, "slack", slack):
        found = [
            spark.changed(case.frames(push), _changes(case, changing, i))[0] for i, push in enumerate(changing.cut)
        ]
        return [_told(answers, spark.call) for answers in (*found, spark.end()[0])]


@settings(max_examples=50)
@given(st.data())
def test_queries_that_change_are_answered_batch_by_batch(data: st.DataObject) -> None:
    """By the set of the micro-batch, in one bucket; with rows that were held before a query came. Logs begin anew."""
    case = query_strategies.anchored(_in_one_bucket(data))
    changing = data.draw(query_strategies.changing(case))
    found = _played(case, changing, data, data.draw(st.sampled_from((0, 1 << 18))))
    for i, (ours, theirs) in enumerate(zip(found, case.expected_pushes(changing), strict=True)):
        naive_queries.assert_same(ours, theirs, f"push {i}: ")


@settings(max_examples=50)
@given(st.data())
def test_what_is_forgotten_is_what_is_forgotten_in_process(data: st.DataObject) -> None:
    """Also by workers that replay the log: windows reach as far as they did then, whatever queries came since."""
    case = _in_one_bucket(data)
    changing = data.draw(query_strategies.changing(case))
    found = _played(case, changing, data, 1 << 18)
    by_hand = ap.QueryMatch(*case.streams, probability=case.probability, window=case.window)
    by_hand.change(case.query_table)
    by_hand.push(**case.frames({}))
    expected = []
    for i, push in enumerate(changing.cut):
        if changing.changes[i]:
            by_hand.change(changing.change_table(i))
        expected.append(by_hand.push(**case.frames(push)))
    for ours, theirs in zip(found, [*expected, by_hand.drain()], strict=True):
        assert sorted(map(repr, ours.to_pylist())) == sorted(map(repr, theirs.to_pylist()))


def test_a_worker_that_replays_the_log_forgets_what_was_forgotten() -> None:
    """By the windows there were then: a query with a longer one, added later, meets no more rows than elsewhere."""

    def rows(*times: int) -> pa.Table:
        return pa.table({"id": times, "ts": times, "x": [1.0] * len(times)}, schema=schema)

    def added(name: int, seconds: int) -> pa.Table:
        return pa.table({"query": [name], "condition": [f"r.x = s.x WITHIN {seconds} SECONDS"], "change": ["add"]})

    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("x", pa.float64())])
    streams = [ap.Stream(None, key="id", time="ts", value=ap.Exact("x"), name=name) for name in "rs"]
    settings: dict[str, Any] = {"probability": None, "window": None, "on_reject": "collect"}
    call = resolve_window_queries(streams, [rows(), rows()], added(1, 1).schema, **settings)
    spark = FakeWindows(call=call, plan=TilePlan(1, 1.0, 0.0, 0.0), random=Random(1), queries=None)
    spark.changed({"r": rows(LATER), "s": rows()}, [added(1, 5)])
    spark.changed({"r": rows(LATER + 50), "s": rows(LATER + 50)}, [])
    for cache in spark.caches:
        cache.clear()
    answers, _ = spark.changed({"r": rows(), "s": rows(LATER + 51)}, [added(2, 100)])
    found = [(row["query"], row["left_key"]) for table in answers for row in table.to_pylist()]
    assert sorted(found) == [(1, LATER + 50), (2, LATER + 50)]
