"""Aggregates of queries over several streams: those of all possible worlds, in process and by push."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.kernels.means import expected_means
from tests.helpers import naive, naive_queries, query_strategies
from tests.helpers.naive_queries import Compare, Name, Or, Query, Value

if TYPE_CHECKING:
    from tests.helpers.naive_queries import Window
    from tests.helpers.query_strategies import Case

Found = dict[tuple[Any, ...], tuple[float, ...]]


def _uncertain(case: Case) -> int:
    return sum(not isinstance(s.value, ap.Exact) or s.existence is not None for s in case.streams)


def _asked(case: Case, column: Name) -> dict[str, Any]:
    named = f"{column.stream}.{column.column}"
    asked: dict[str, Any] = {"n": "count", "total": ("sum", named)}
    sure = {"half": ("median", named), "spread": ("std", named)} if not _uncertain(case) else {}
    return asked | ({"middle": ("mean", named)} if _uncertain(case) < 2 else {}) | sure


def _expected(case: Case, column: Name) -> Found:
    """What the slow twin says of all queries, at ticks at which something can match."""
    found: Found = {}
    rows = case.rows()
    for query in naive_queries.in_force(case.queries):
        if query.window is None and case.window is None:
            continue
        of = [naive_queries.aggregates(rows, query, how, column, case.window) for how in ("count", "sum")]
        there = ("mean", "median", "std")[: (3, 1)[_uncertain(case)] if _uncertain(case) < 2 else 0]
        of += [naive_queries.aggregates(rows, query, how, column, case.window) for how in there]
        for count, total, *others in zip(*of, strict=True):
            if count.value:
                key = naive.plain(query.name), *map(str, count.group), count.micros
                found[key] = (float(count.value), float(total.value or 0))
                for one in others:
                    found[key] += (np.nan if one.value is None else float(one.value), float(one.exists))
    return found


def _told(tables: list[pa.Table], case: Case) -> Found:
    found: Found = {}
    for table in tables:
        for row in table.to_pylist():
            query, *rest = row.values()
            by, values = rest[: len(case.streams[0].partitions)], rest[len(case.streams[0].partitions) + 1 :]
            key = naive.plain(query), *map(str, by), naive.micros_of(row["time"], case.streams[0].unit)
            assert key not in found
            found[key] = tuple(np.nan if value is None else value for value in values)
    return found


def _assert_same(ours: Found, theirs: Found) -> None:
    assert sorted(ours, key=repr) == sorted(theirs, key=repr)
    for key, values in theirs.items():
        np.testing.assert_allclose(ours[key], values, rtol=1e-9, atol=1e-9, err_msg=str(key))


@st.composite
def _rows(draw: st.DrawFn, *, uncertain: bool) -> pa.Table:
    """Rows of few values, most of them met by others."""
    row = st.fixed_dictionaries(
        {
            "id": st.integers(0, 9),
            "ts": st.integers(0, 6),
            "s": st.lists(st.integers(0, 2).map(float), min_size=1, max_size=2 if uncertain else 1),
            "exists": st.sampled_from((0.25, 0.5, 1.0)) if uncertain else st.just(1.0),
            "v": st.sampled_from((1, 2, 3, -5, None)),
            "p": st.integers(0, 1),
        }
    )
    rows = draw(st.lists(row, min_size=2, max_size=4, unique_by=lambda row: (row["id"], row["ts"])))
    values = [("s", pa.list_(pa.float64())), ("exists", pa.float64())]
    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64()), *values, ("v", pa.int64()), ("p", pa.int64())])
    table = pa.Table.from_pylist(rows, schema=schema)
    if uncertain:
        return table
    return table.set_column(2, "x", table["s"].combine_chunks().flatten())


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    """Two or three streams of which any may be uncertain, and queries that many choices satisfy for a while."""
    n = draw(st.sampled_from((2, 2, 3)))
    uncertain = [draw(st.booleans()) for _ in range(n)]
    by = draw(st.sampled_from((None, None, "p")))
    late = draw(st.sampled_from((0.0, 2.0)))
    models = [ap.Samples("s") if unsure else ap.Exact("x") for unsure in uncertain]
    streams = [
        ap.Stream(
            None,
            key="id",
            time="ts",
            value=model,
            existence="exists" if unsure else None,
            partition_by=by,
            lateness=late,
            name=name,
        )
        for model, unsure, name in zip(models, uncertain, "rst", strict=False)
    ]
    values = [Name("s" if unsure else "x", name) for unsure, name in zip(uncertain, "rst", strict=False)]
    attributes = [Name("v", name) for name in "rst"[:n]]
    queries = []
    for name in range(draw(st.integers(1, 2))):
        first, second = draw(st.permutations(values))[:2]
        condition: Any = Compare(draw(st.sampled_from(("=", "<=", "<>"))), first, second)
        if draw(st.booleans()):
            condition = Or((condition, Compare("=", draw(st.sampled_from(attributes)), Value(2))))
        length = draw(st.integers(1, 3))
        window: Window = ap.TimeWindow(length) if draw(st.booleans()) else ap.CountWindow(length)
        queries.append(Query(name, condition, window))
    return query_strategies.Case(
        tables=tuple(draw(_rows(uncertain=unsure)) for unsure in uncertain),
        streams=tuple(streams),
        queries=tuple(queries),
        columns=tuple([(name, "double") for name in values] + [(name, "int64") for name in attributes]),
    )


@settings(max_examples=50)
@given(st.data())
def test_aggregates_are_those_of_the_slow_twin(data: st.DataObject) -> None:
    """Count, sum and mean of each query at each tick, over possible worlds; at once, and by push."""
    case = data.draw(_cases())
    column = data.draw(st.sampled_from([name for name, _ in case.columns]))
    expected = _expected(case, column)
    asked = _asked(case, column)
    table = ap.match_queries(*case.framed(), case.query_table, window=case.window, aggregate=asked)
    _assert_same(_told([table], case), expected)
    by_hand = ap.QueryMatch(*case.streams, window=case.window, aggregate=asked)
    by_hand.change(case.query_table)
    by_hand.push(**case.frames({}))
    found = [by_hand.push(**case.frames(push)) for push in data.draw(query_strategies.cuts(case))]
    _assert_same(_told([*found, by_hand.drain()], case), expected)


def test_a_mean_of_many_is_as_exact_as_one_of_few() -> None:
    """Equal values have that mean, however many rows may exist; half of the worlds of one row have none."""
    for n in (1, 100, 300, 100_000):
        alike = np.zeros(n, np.int64), np.arange(n), np.ones(n, np.int64), np.full(n, 3.0), np.full(n, 0.5)
        mean, exists = expected_means(*alike)
        assert abs(mean[0] - 3.0) < 1e-11
        assert abs(exists[0] - (1.0 - 0.5**n)) < 1e-15


def test_aggregates_that_are_none_are_told() -> None:
    rows = pa.table({"id": [1], "ts": [1.0], "x": [1.0], "sure": [0.5], "name": ["a"]})
    r, s = (ap.Stream(rows, key="id", time="ts", value=ap.Exact("x"), name=name) for name in "rs")
    queries = pa.table({"query": [1], "condition": ["r.x = s.x WITHIN 1 MINUTE"]})

    def call(left: ap.Stream = r, right: ap.Stream = s, asked: Any = queries, **how: Any) -> pa.Table:
        table: pa.Table = ap.match_queries(left, right, asked, **how)
        return table

    assert call(aggregate={"n": "count"}).to_pylist() == [{"query": 1, "time": 1.0, "n": 1.0}]
    for given_, words in (
        ({"n": "most"}, "'most' is none"),
        ({"n": "sum"}, "give 'count'"),
        ({"n": ("count", "r.x")}, "give 'count'"),
        ({"n": ("sum", "r.name")}, "not a column of numbers"),
        ({"time": "count"}, "would be named 'time'"),
        ({}, "give a mapping"),
    ):
        with pytest.raises(ap.BadArgument, match=words):
            call(aggregate=given_)
    with pytest.raises(ap.BadArgument, match="Leave it out"):
        call(aggregate={"n": "count"}, probability=0.5)
    with pytest.raises(ap.BadArgument, match="'select'"):
        call(asked=queries.append_column("select", pa.array(["r.x"])), aggregate={"n": "count"})
    unsure = [replace(stream, existence="sure") for stream in (r, s)]
    with pytest.raises(ap.BadArgument, match="r and s are uncertain"):
        call(*unsure, aggregate={"m": ("mean", "r.x")})
    assert call(*unsure, aggregate={"v": ("sum", "r.x")}).to_pylist() == [{"query": 1, "time": 1.0, "v": 0.25}]
    with pytest.raises(ap.BadArgument, match="waits for none"):
        call(*[replace(stream, order="arrival") for stream in (r, s)], aggregate={"n": "count"})
    with pytest.raises(ap.BadArgument, match="aggregate= is for queries over several"):
        ap.match_queries(r, queries, aggregate={"n": "count"})
