"""The stage of queries over several streams, in a played Spark: whatever is cut, shuffled or lost, answers stay."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.spark import window_stage
from appulse.engines.spark.tables import packed
from appulse.engines.spark.tiles import TilePlan
from appulse.engines.window_call import WindowCall, resolve_window_queries
from tests import naive_queries, query_strategies
from tests.fake_spark import FakeWindows

if TYPE_CHECKING:
    from tests.query_strategies import Case, Changing

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


@settings(max_examples=60)
@given(st.data())
def test_buckets_answer_as_the_slow_twin(data: st.DataObject) -> None:
    """A set that stands: the answers over all batches are those of all rows, and bad rows are told once."""
    case = _later(data.draw(query_strategies.joins(arity=(2, 2, 3), lateness=True, bad=True)))
    spark = _spark(case, packed(case.query_table), data)
    found, rejects = [], []
    for push in data.draw(query_strategies.cuts(case)):
        answers, refused = spark.batch(case.frames(push))
        found += answers
        rejects += refused
    found += spark.end()[0]
    naive_queries.assert_same(_told(found, spark.call), case.expected())
    expected = ap.rejects(ap.match_queries(*case.framed(), case.query_table, **case.settings)).to_pylist()
    own = [row for row in expected if row["stream"] != "queries"]
    assert sorted(map(repr, pa.concat_tables(rejects).to_pylist() if rejects else [])) == sorted(map(repr, own))


@settings(max_examples=60)
@given(st.data())
def test_queries_that_change_are_answered_batch_by_batch(data: st.DataObject) -> None:
    """By the set of the micro-batch, in one bucket; with rows that were held before a query came. Logs begin anew."""
    case = query_strategies.anchored(_later(data.draw(query_strategies.joins(arity=(2,), lateness=True))))
    case = replace(case, streams=tuple(replace(stream, partition_by=None) for stream in case.streams))
    changing = data.draw(query_strategies.changing(case))
    spark = _spark(case, None, data)
    slack, window_stage._SLACK = window_stage._SLACK, data.draw(st.sampled_from((0, 1 << 18)))
    try:
        found = []
        for i, push in enumerate(changing.cut):
            found.append(spark.changed(case.frames(push), _changes(case, changing, i))[0])
        found.append(spark.end()[0])
    finally:
        window_stage._SLACK = slack
    for i, (ours, theirs) in enumerate(zip(found, case.expected_pushes(changing), strict=True)):
        naive_queries.assert_same(_told(ours, spark.call), theirs, f"push {i}: ")
