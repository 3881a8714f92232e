"""Rows that replace others (Debezium's ``u``): in the order of a table, in any pushes, and where no order is known."""

from __future__ import annotations

from itertools import pairwise, permutations
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.aggregates.call import AggregateBucket, resolve_aggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

ASKED = {"x": ["sum", "count"]}


def table(rows: Sequence[tuple[int, float | None, str]]) -> pa.Table:
    """Rows of a key, a value and a change, all at one time."""
    ids, values, changes = ([row[i] for row in rows] for i in range(3))
    columns = {"id": pa.array(ids, pa.int64()), "t": pa.array([5] * len(rows), pa.int64())}
    return pa.table(columns | {"x": pa.array(values, pa.float64()), "op": pa.array(changes, pa.string())})


def stream(frame: Any) -> ap.Stream:
    return ap.Stream(frame, key="id", time="t", value="x", change="op", lateness=100)


@st.composite
def feeds(draw: st.DrawFn) -> list[tuple[int, float | None, str]]:
    """Changes of a table's rows: created or updated, updated again, deleted."""
    rows: list[tuple[int, float | None, str]] = []
    there: set[int] = set()
    gone: set[int] = set()
    for _ in range(draw(st.integers(0, 12))):
        key, value = draw(st.integers(0, 2)), draw(st.sampled_from([1.0, 2.0, 3.0]))
        if key in gone:
            continue
        change = draw(st.sampled_from("uud")) if key in there else draw(st.sampled_from("ccu"))
        (gone if change == "d" else there).add(key)
        rows.append((key, None if change == "d" else value, change))
    return rows


def held(rows: Sequence[tuple[int, float | None, str]], below: float = 9.9) -> tuple[float, int]:
    """Sum and count of what the table holds in the end, of values below some number."""
    values: dict[int, float] = {}
    for key, value, change in rows:
        if change == "d":
            values.pop(key, None)
        else:
            assert value is not None
            values[key] = value
    kept = [value for value in values.values() if value < below]
    return sum(kept), len(kept)


def last(answers: pa.Table) -> tuple[float, int]:
    found = answers.select(["x_sum", "x_count"]).to_pylist()
    return (found[-1]["x_sum"], found[-1]["x_count"]) if found else (0.0, 0)


@given(feeds(), st.data())
@settings(max_examples=150, deadline=None)
def test_pushes_do_not_matter(rows: list[tuple[int, float | None, str]], data: st.DataObject) -> None:
    """One push, many, or a call on the table: what the feed's table holds in the end."""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)))))
    hand = ap.WindowAggregate(stream(None), aggregates=ASKED, window=0)
    found = [hand.push(table(rows[a:b])) for a, b in pairwise([0, *cuts, len(rows)])]
    found.append(hand.drain())
    assert last(pa.concat_tables(found)) == held(rows)
    assert last(ap.window_aggregate(stream(table(rows)), ASKED, window=0)) == held(rows)


@given(feeds(), st.data())
@settings(max_examples=150, deadline=None)
def test_an_update_that_a_condition_leaves_out_withdraws_its_row(
    rows: list[tuple[int, float | None, str]], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)))))
    hand = ap.WindowAggregate(ap.filter(stream(None), "x < 2.5"), aggregates=ASKED, window=0)
    found = [hand.push(table(rows[a:b])) for a, b in pairwise([0, *cuts, len(rows)])]
    found.append(hand.drain())
    assert last(pa.concat_tables(found)) == held(rows, below=2.5)
    whole = ap.window_aggregate(ap.filter(stream(table(rows)), "x < 2.5"), ASKED, window=0)
    assert last(whole) == held(rows, below=2.5)


@given(feeds())
@settings(max_examples=50, deadline=None)
def test_joins_have_the_same(rows: list[tuple[int, float | None, str]]) -> None:
    """The rows that stand, and one more that is always there."""
    _, count = held(rows)
    changed = stream(table([*rows, (9, 0.0, "c")]))
    pairs = ap.self_join(changed, epsilon=9.0, probability=0.5, window=1)
    assert len(pairs) == count * (count + 1) / 2


@given(feeds())
@settings(max_examples=50, deadline=None)
def test_calls_that_wait_have_the_same(rows: list[tuple[int, float | None, str]]) -> None:
    """Also where what is deleted was created again: a row without values means the one before it."""
    rows = [*rows, (5, 2.0, "c"), (5, None, "d"), (5, 3.0, "c")]
    conditions = pa.table({"query": [1.0, 2.0, 3.0], "condition": [f"x = {value}" for value in (1, 2, 3)]})
    found = ap.match_queries(stream(table(rows)), conditions)["query"].to_pylist()
    assert (sum(found), len(found)) == held(rows)


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("first", ["c", "u"])
def test_where_no_order_is_known_an_update_stays(order: Sequence[int], first: str) -> None:
    """Blocks of one micro-batch: the last in canonical order, never the row as it was created."""
    rows = [(1, 9.0, "c"), (1, 3.0, "u"), (1, 2.0, "u")] if first == "c" else [(1, v, "u") for v in (1.0, 3.0, 2.0)]
    given_: dict[str, Any] = {"distribution": False, "single_valued": False, "on_reject": "collect"}
    call = resolve_aggregate(stream(table(rows)), table(rows), ASKED, window=ap.TimeWindow(0), **given_)
    bucket = AggregateBucket(call)
    bucket.admit([(0, call.encode(0, table([rows[i]]))[0]) for i in order])
    assert last(pa.concat_tables(bucket.advance(ended=99 << 20))) == (3.0, 1)


def test_several_rows_that_stand_are_left_to_the_rule() -> None:
    """A withdrawal without values prefers a row of an earlier push; then the row before it in its own."""
    hand = ap.WindowAggregate(stream(None), aggregates=ASKED, window=0)
    hand.push(table([(1, 5.0, "add")]))
    hand.push(table([(1, 1.0, "add"), (1, None, "remove")]))
    assert last(hand.drain()) == (1.0, 1)
    twice = table([(1, 1.0, "add"), (1, None, "remove"), (1, 2.0, "add")])
    assert last(ap.window_aggregate(stream(twice), ASKED, window=0)) == (2.0, 1)


def test_an_update_that_cannot_be_used_changes_nothing() -> None:
    hand = ap.WindowAggregate(stream(None), aggregates=ASKED, window=0)
    hand.push(table([(1, 1.0, "c"), (1, None, "u")]))
    assert last(hand.drain()) == (1.0, 1)
    assert [row["reason"] for row in hand.rejects().to_pylist()] == ["non-finite value"]
