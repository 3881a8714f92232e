"""All change feeds of one row, up to five operations, cut into pushes in all ways: what is left is what a table has.

A feed creates, updates and deletes its row. Each case has a row of its own; a call takes all of them together.
"""

from __future__ import annotations

from itertools import combinations, pairwise, permutations, product
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pytest

import appulse as ap
from appulse.engines.aggregates.call import resolve_aggregate
from appulse.engines.bucket import Bucket
from appulse.engines.collecting.call import CollectBucket, CollectSettings, resolve_collect
from appulse.engines.join.call import JoinSettings, resolve
from appulse.engines.options import CallSettings
from appulse.engines.spark.join.tile_bucket import Tile
from appulse.engines.spark.tiles import TilePlan, hashed_plan
from appulse.engines.surviving import SurvivingCall, bucket_of, resolve_surviving
from tests.api.test_survivors import FakeSurviving
from tests.helpers.fake_spark import FakeAggregate, FakeSpark
from tests.operators.test_collecting import FakeCollect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MOST = 5
#: A condition of columns, and the same one here.
FILTER, LOW, HIGH = "v > 1.5 AND v < 3.5", 1.5, 3.5
KINDS = {"k": pa.int64(), "t": pa.int64(), "x": pa.float64(), "v": pa.float64(), "op": pa.string()}


class Row(NamedTuple):
    """A row of a feed: a case, and what is done to its row."""

    case: int
    value: float | None
    op: str


def feeds() -> Iterator[str]:
    """Each that a table may have: its row is created if it is not there, else updated or deleted."""
    for n in range(1, MOST + 1):
        for ops in product("cud", repeat=n):
            there = [False, *(op != "d" for op in ops)]
            if all((op == "c") is not before for op, before in zip(ops, there, strict=False)):
                yield "".join(ops)


def cases() -> list[list[list[Row]]]:
    """Every feed in every cut, with values that rise, fall and come again; all deletions have values, none, or some."""
    found: list[list[list[Row]]] = []
    rises, falls, again = (1, 2, 3, 4, 5), (5, 4, 3, 2, 1), (2, 1, 2, 1, 2)
    for ops, (values, valued) in product(feeds(), ((rises, 0), (falls, 0), (again, 1), (rises, 2), (falls, 3))):
        for cut in range(len(ops)):
            for at in combinations(range(1, len(ops)), cut):
                rows, last = [], None
                for i, (op, value) in enumerate(zip(ops, values, strict=False)):
                    last = last if op == "d" else float(value)
                    bare = op == "d" and not valued & (1 if i < MOST // 2 else 2)
                    rows.append(Row(len(found), None if bare else last, op))
                found.append([rows[a:b] for a, b in pairwise((0, *at, len(ops)))])
    return found


CASES = cases()
PUSHES = [[row for case in CASES if len(case) > i for row in case[i]] for i in range(MOST)]


def table(rows: Sequence[Row]) -> pa.Table:
    values = [row.value for row in rows]
    place = [None if row.value is None else 10.0 * row.case + row.value for row in rows]
    columns = [[row.case for row in rows], [5] * len(rows), place, values, [row.op for row in rows]]
    return pa.table({name: pa.array(own, KINDS[name]) for name, own in zip(KINDS, columns, strict=True)})


def left(*, filtered: bool) -> pa.Table:
    """The row that each case leaves."""
    last = [case[-1][-1] for case in CASES]
    stand = [row for row in last if row.value is not None and row.op != "d"]
    return table([row for row in stand if not filtered or LOW < (row.value or 0) < HIGH])


def stream(frame: Any = None, *, filtered: bool = False, change: str | None = "op", **more: Any) -> ap.Stream:
    own = ap.Stream(frame, key="k", time="t", value="x", name="a", change=change, lateness=100, **more)
    return ap.filter(own, FILTER) if filtered else own


#: A row beside each case.
SEEN = pa.table({"k": range(len(CASES)), "t": [6] * len(CASES), "x": [10.0 * i + 3 for i in range(len(CASES))]})


def seen(frame: Any = None) -> ap.Stream:
    return ap.Stream(frame, key="k", time="t", value="x", name="b", lateness=100)


NEAR: dict[str, Any] = {"epsilon": 3.0, "probability": 0.5, "window": 3}
LEFT: dict[str, Any] = NEAR | {"how": "left"}
NEAREST: dict[str, Any] = {"k": 1, "epsilon": 3.0, "window": 3}
ASSIGN: dict[str, Any] = NEAR | {"window": ap.TumblingWindow("10 seconds"), "how": "full", "by": "distance"}
OUTLIERS: dict[str, Any] = {"epsilon": 3.0, "fewer_than": 2, "window": 3, "probability": 0.5}
QUERIES = pa.table({"query": ["any"], "condition": ["x > -1"]})
ASKED: dict[str, Any] = {"aggregates": {"x": ["sum", "count"]}, "window": 3}


def queried(a: ap.Stream, **more: Any) -> ap.QueryMatch:
    call = ap.QueryMatch(a, probability=0.5, **more)
    call.change(QUERIES)
    return call


#: The calls on tables, by hand, what the streams have, and whether there are two.
CALLS: dict[str, tuple[Callable[..., pa.Table], Callable[..., Any], dict[str, Any], bool]] = {
    "join": (lambda a, b: ap.similarity_join(a, b, **NEAR), lambda a, b: ap.SimilarityJoin(a, b, **NEAR), {}, True),
    "rows": (
        lambda a, b: ap.similarity_join(a, b, **NEAR | {"window": ap.CountWindow(5000)}),
        lambda a, b: ap.SimilarityJoin(a, b, **NEAR | {"window": ap.CountWindow(5000)}),
        {},
        True,
    ),
    "left": (lambda a, b: ap.similarity_join(a, b, **LEFT), lambda a, b: ap.SimilarityJoin(a, b, **LEFT), {}, True),
    "nearest": (lambda a, b: ap.nearest(b, a, **NEAREST), lambda a, b: ap.Nearest(b, a, **NEAREST), {}, True),
    "assign": (lambda a, b: ap.assign(a, b, **ASSIGN), lambda a, b: ap.Assign(a, b, **ASSIGN), {}, True),
    "outliers": (lambda a: ap.outliers(a, **OUTLIERS), lambda a: ap.Outliers(a, **OUTLIERS), {}, False),
    "encounters": (
        lambda a, b: ap.encounters(a, b, epsilon=3.0, probability=0.5),
        lambda a, b: ap.Encounters(a, b, epsilon=3.0, probability=0.5),
        {"motion": ap.Straight(max_gap=4)},
        True,
    ),
    "aggregate": (lambda a: ap.window_aggregate(a, **ASKED), lambda a: ap.WindowAggregate(a, **ASKED), {}, False),
    "samples": (
        lambda a: ap.collect_samples(a, every=5),
        lambda a: ap.SampleCollector(a, every=5),
        {"value": ap.Exact("x")},
        False,
    ),
    "queries": (
        lambda a: ap.match_queries(a, QUERIES, probability=0.5),
        queried,
        {"carry": ["x"]},
        False,
    ),
    "sensors": (
        lambda a: ap.sensor_join(a, resolution=3.0, window=5, expand=True),
        lambda a: ap.SensorJoin(a, resolution=3.0, window=5, expand=True),
        {},
        False,
    ),
}


def rows_of(found: pa.Table) -> list[str]:
    return sorted(map(str, found.to_pylist()))


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_pushes_and_tables_leave_what_the_feed_leaves(name: str, filtered: bool) -> None:
    """The twin: a call over the rows that are left."""
    call, by_hand, own, two = CALLS[name]
    expected = rows_of(call(*streams(left(filtered=filtered), two, own, change=None)))
    engine = by_hand(*streams(None, two, own, filtered=filtered))
    other = {"b": SEEN.slice(0, 0)} if two else {}
    found = [engine.push(a=table(rows), **other) for rows in PUSHES]
    found += [engine.push(b=SEEN)] if two else []
    found.append(engine.drain())
    assert rows_of(pa.concat_tables([part for part in found if part.num_columns])) == expected
    assert not len(engine.rejects())
    whole = table([row for case in CASES for push in case for row in push])
    answered = call(*streams(whole, two, own, filtered=filtered))
    assert rows_of(answered) == expected
    assert not len(ap.rejects(answered))


def streams(frame: Any, two: bool, own: dict[str, Any], **more: Any) -> list[ap.Stream]:
    given = {name: value for name, value in own.items() if name != "value"}
    first = stream(frame, **given, **more)
    if not two:
        return [first]
    second = seen(None if frame is None else SEEN)
    return [first, ap.Stream(second.frame, "k", "t", "x", name="b", lateness=100, **given)]


@pytest.mark.parametrize("filtered", [False, True])
def test_changes_of_queries_add_up_to_what_the_feed_leaves(filtered: bool) -> None:
    engine = queried(stream(filtered=filtered, carry=["x"]), emit="changes")
    held: dict[str, int] = {}
    for rows in PUSHES:
        for row in engine.push(table(rows)).to_pylist():
            name = str({column: row[column] for column in row if column != "change"})
            held[name] = held.get(name, 0) + row["change"]
    twin = ap.match_queries(stream(left(filtered=filtered), change=None, carry=["x"]), QUERIES, probability=0.5)
    assert sorted(name for name, count in held.items() for _ in range(count)) == rows_of(twin)
    assert min(held.values()) >= 0


class OneTask(Random):
    """Chance that leaves each micro-batch to one task."""

    def randint(self, a: int, b: int) -> int:  # noqa: ARG002 - the last row of the first task
        return a


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("slack", [-(1 << 40), 1 << 18])
@pytest.mark.parametrize("name", ["aggregate", "samples", "join", "queries"])
def test_a_played_spark_leaves_the_same(name: str, slack: int, filtered: bool) -> None:
    """Workers forget, attempts fail, and logs begin anew."""
    changed, schema, plan = stream(filtered=filtered), table([]).schema, TilePlan(2, 1.0, 0.0, 0.0)
    call: Any
    if name == "aggregate":
        given: dict[str, Any] = {"distribution": False, "single_valued": False, "on_reject": "collect"}
        asked: Any = {"x": ["sum", "count"]}
        call = resolve_aggregate(changed, table([]), asked, window=ap.TimeWindow(3), **given)
        played: Any = FakeAggregate(call=call, plan=plan, random=OneTask(7))
    elif name == "samples":
        call = resolve_collect(changed, schema, CollectSettings(every=5))
        played = FakeCollect(call=call, plan=plan, random=OneTask(7))
    elif name == "join":
        call = resolve([changed, seen()], [schema, SEEN.schema], JoinSettings(**NEAR | {"window": ap.TimeWindow(3)}))
        played = FakeSpark(call, hashed_plan(call.plan, 3, 0.0, 40.0), OneTask(7))
    else:
        call = resolve_surviving(changed, schema, CallSettings())
        played = FakeSurviving(call=call, plan=plan, random=OneTask(7))
    found, rejected = [call.answer_schema.empty_table()], []
    few = {case for case in range(len(CASES)) if case % 5 == 0}
    last = {"b": SEEN.filter(pa.array([k in few for k in range(len(CASES))]))} if name == "join" else {}
    with patch.object(Bucket, "slack", slack), patch.object(Tile, "slack", slack):
        batches = [{"a": table([row for row in rows if row.case in few])} for rows in PUSHES]
        for answers, rejects in [*map(played.batch, [*batches, last]), played.end()]:
            found += answers
            rejected += rejects
    twin = left(filtered=filtered and name != "queries")
    twin = twin.filter(pa.array([k in few for k in twin["k"].to_pylist()]))
    plain = stream(twin, change=None)
    if name == "queries":
        expected = twin.drop_columns("op")
    elif name == "join":
        expected = ap.similarity_join(plain, seen(last["b"]), **NEAR)
    else:
        expected = CALLS[name][0](plain)
    assert rows_of(pa.concat_tables(found)) == rows_of(expected)
    assert not any(map(len, rejected))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_calls_agree_where_no_order_is_known(order: Sequence[int]) -> None:
    """Blocks of one micro-batch: the last in canonical order stays, in calls that hold rows and in those that wait."""
    schema = table([]).schema
    kept = resolve_collect(stream(), schema, CollectSettings(every=5))
    waits = [resolve_surviving(stream(), schema, CallSettings(), signed=signed) for signed in (False, True)]
    for values in ((1.0, 9.0, 2.0), (-5.0, -7.0, 3.0), (-5.0, -7.0, -6.0)):
        buckets: list[Any] = [CollectBucket(kept), *map(bucket_of, waits)]
        shown = []
        for bucket in buckets:
            first = bucket.call.encode(0, table([Row(0, 5.0, "c")]))[0]
            blocks = [bucket.call.encode(0, table([Row(0, value, "u")]))[0] for value in values]
            answers = []
            for blocks_, ended in (([first], None), ([blocks[i] for i in order], None), ([], 99 << 20)):
                bucket.begin()
                bucket.admit([(0, block) for block in blocks_])
                answers += bucket.advance(ended=ended)
            shown.append(pa.concat_tables(answers))
        assert shown[0]["samples"].to_pylist() == [[max(values)]]
        assert shown[1]["v"].to_pylist() == [max(values)]
        signs = [(row["v"], row["change"]) for row in shown[2].to_pylist()]
        assert signs == [(5.0, 1), (5.0, -1), (max(values), 1)]


@pytest.mark.parametrize("filtered", [False, True])
def test_where_no_order_is_known_calls_leave_what_some_order_leaves(filtered: bool) -> None:
    """The first part of each feed in one micro-batch, and the others in the next one, each of its own partition."""
    schema, settings = table([]).schema, CallSettings()
    calls: list[Any] = [resolve_collect(stream(filtered=filtered), schema, CollectSettings(every=5))]
    calls.append(resolve_surviving(stream(), schema, settings))
    found = []
    for call, make, reverse in product(calls, (CollectBucket, bucket_of), (False, True)):
        if (make is bucket_of) is not isinstance(call, SurvivingCall):
            continue
        bucket: Any = make(call)
        answers = []
        for parts, ended in ((PUSHES[:1], None), (PUSHES[1:], None), ([], 99 << 20)):
            bucket.begin()
            bucket.admit([(0, call.encode(0, table(rows))[0]) for rows in (parts[::-1] if reverse else parts)])
            answers += bucket.advance(ended=ended)
        whole = pa.concat_tables(answers)
        if make is bucket_of:
            found.append(sorted((row["k"], row["x"]) for row in whole.to_pylist()))
        else:
            found.append(sorted((row["key"], x) for row in whole.to_pylist() for x in row["samples"]))
    if filtered:
        found = [[(k, x) for k, x in own if LOW < x - 10 * k < HIGH] for own in found]
    else:
        stand = {k: x - 10 * k for k, x in found[0]}
        assert len(stand) == len(found[0])
        for k, (first, *rest) in enumerate(CASES):
            assert stand.get(k) in possible(rest, None if first[-1].op == "d" else first[-1].value)
    assert all(own == found[0] for own in found)


def possible(parts: Sequence[Sequence[Row]], held: float | None) -> set[float | None]:
    """What a table may hold after changes that came in parts, in any order of these that it allows."""
    if not any(parts):
        return {held}
    found: set[float | None] = set()
    for i, part in enumerate(parts):
        _, value, op = part[0] if part else (0, None, "")
        if not op or (op == "c") is not (held is None) or (op == "d" and value not in (None, held)):
            continue
        found |= possible([*parts[:i], part[1:], *parts[i + 1 :]], None if op == "d" else value)
    return found


def test_a_row_that_cannot_be_used_may_be_withdrawn() -> None:
    """It is a reject; what withdraws it means no other row."""
    engine = ap.WindowAggregate(stream(), {"x": "count"}, window=3)
    for rows in ([Row(0, None, "c")], [Row(0, None, "d")], [Row(0, 2.0, "c")]):
        engine.push(table(rows))
    assert engine.drain()["x_count"].to_pylist() == [1.0]
    assert [row["reason"] for row in engine.rejects().to_pylist()] == ["non-finite value"]
