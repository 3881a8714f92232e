"""The twin of continuous queries: examples worked by hand from the contract (api.md, section 6), and SQLite."""

from __future__ import annotations

import math
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.queries.condition import parse
from tests.helpers import naive, query_strategies
from tests.helpers import naive_queries as twin
from tests.helpers.naive_queries import (
    And,
    Arithmetic,
    Between,
    Change,
    Compare,
    In,
    IsNull,
    Name,
    Node,
    Not,
    Or,
    Query,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

X, Y = Name("x"), Name("y")
R, S, T, U = (Name("x", stream) for stream in ("r", "s", "t", "u"))
ANY = Value(value=True)
SECOND = 1_000_000
HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)


def _row(
    key: Any, time: int, stream: str = "left", weight: float | Fraction = 1, push: int = 0, **values: Any
) -> twin.Row:
    """A row, its time in seconds; one column may be a list of (value, weight)."""
    samples = [(values, Fraction(weight))]
    for name, value in values.items():
        if isinstance(value, list):
            samples = [({**values, name: x}, Fraction(weight) * Fraction(w)) for x, w in value]
    return twin.Row(stream, key, time, time * SECOND, tuple(samples), push=push)


def _rows(text: str, stream: str, *, by_arrival: bool = False) -> list[twin.Row]:
    """``a3`` is row a at second 3 with x = 3, ``a3/1`` comes in push 1."""
    found = []
    for word in text.split():
        time, _, push = word[1:].partition("/")
        one = _row(word[0], int(time), stream, push=int(push or 0), x=int(time))
        found.append(replace(one, by_arrival=by_arrival))
    return found


def _names(answers: Iterable[twin.Joined]) -> str:
    return " ".join(sorted("".join(answer.keys) for answer in answers))


def _joined(window: Any, *texts: str, condition: Node = ANY) -> str:
    streams = [_rows(text, name) for text, name in zip(texts, "rstu", strict=False)]
    return _names(twin.match_streams(streams, [Query(1, condition, window)]))


# --- selection queries ------------------------------------------------------------------------------------------


def _box(x: tuple[float, float], y: tuple[float, float]) -> Node:
    return And(tuple(Between(name, Value(low), Value(high)) for name, (low, high) in ((X, x), (Y, y))))


def test_the_example_of_the_paper() -> None:
    queries = [
        Query("q1", _box((0.1, 0.4), (0.2, 0.6))),
        Query("q2", _box((0.3, 0.9), (0.0, 0.3))),
        Query("q3", _box((0.0, 1.0), (0.5, 1.0))),
    ]
    rows = [_row("d1", 1, x=0.35, y=0.25), _row("d2", 2, x=0.2, y=0.55), _row("d3", 3, x=0.95, y=0.9)]
    found = {(query, key) for query, key, *_ in twin.match(rows, queries)}
    assert found == {("q1", "d1"), ("q2", "d1"), ("q1", "d2"), ("q3", "d2"), ("q3", "d3")}
    assert queries[0].text == "x BETWEEN 0.1 AND 0.4 AND y BETWEEN 0.2 AND 0.6"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Compare("=", X, Value(None)), None),
        (Compare("<>", X, Y), None),
        (Compare("=", Y, Y), True),
        (And((Compare("=", X, X), Compare("=", Y, Value(7)))), False),
        (And((Compare("=", X, X), Compare("=", Y, Value(1)))), None),
        (Or((Compare("=", X, X), Compare("=", Y, Value(1)))), True),
        (Not(Compare("=", X, X)), None),
        (Between(X, Value(0), Value(1)), None),
        (Between(Y, X, Value(0)), False),
        (Between(Y, X, Value(0), negated=True), True),
        (In(Y, (Value(1), Value(None))), True),
        (In(Y, (Value(2), Value(None))), None),
        (In(Y, (Value(2), Value(None)), negated=True), None),
        (IsNull(X), True),
        (IsNull(Compare("<", X, Y), negated=True), False),
        (IsNull(Arithmetic("/", Y, Value(0))), True),
        (Compare("=", Arithmetic("/", Y, Value(2)), Value(0.5)), True),
        (Compare("=", Arithmetic("+", Value(2**53), Y), Value(2**53 + 1)), True),
        (Compare("=", Value(2**53 + 1), Value(float(2**53))), False),
    ],
)
@pytest.mark.parametrize("null", [None, math.nan])
def test_truth_has_three_values(condition: Node, expected: bool | None, null: float | None) -> None:
    assert condition.of({"left": {"x": null, "y": 1}}) is expected
    matches = twin.match([_row("a", 0, x=null, y=1)], [Query(1, condition)])
    assert [match.probability for match in matches] == [1] * (expected is True)


def test_times_are_in_utc_and_texts_go_by_code_points() -> None:
    noon = datetime(2024, 1, 31, 12, tzinfo=UTC)
    zoned = noon.astimezone(tz=None)
    assert Compare("=", X, Value(noon, "'2024-01-31 12:00:00'")).of({"left": {"x": zoned}}) is True
    assert Compare("<", X, Y).of({"left": {"x": "\uffff", "y": "\U0001f600"}}) is True


def test_texts_of_conditions_have_the_brackets_they_need() -> None:
    one, two = Compare("=", X, Value(1)), Compare("<", Arithmetic("-", X, Arithmetic("-", Y, Value(-1))), Value("it's"))
    assert And((Or((one, two)), Not(And((one, one))))).sql == (
        "(x = 1 OR x - (y - -1) < 'it''s') AND NOT (x = 1 AND x = 1)"
    )
    assert Compare("=", Name("odd name"), Name("y", "or", "`")).sql == '"odd name" = "or".`y`'
    assert IsNull(one, negated=True).sql == "(x = 1) IS NOT NULL"
    assert Query(1, one, ap.TimeWindow(30)).text == "x = 1 WITHIN 30 SECONDS"
    assert Query(1, one, ap.CountWindow(2), lower=True).text == "x = 1 within 2 rows"


def test_an_uncertain_row_matches_with_the_weight_of_its_samples() -> None:
    rows = [_row("a", 0, x=[(1.0, 0.25), (2.0, 0.5), (2.0, 0.125)]), _row("b", 0, weight=0.5, x=2.0)]
    queries = [Query("two", Compare("=", X, Value(2))), Query("any", ANY)]
    found = {(query, key): probability for query, key, _, probability in twin.match(rows, queries, 1e-6)}
    assert found == {("two", "a"): 0.625, ("two", "b"): 0.5, ("any", "a"): 0.875, ("any", "b"): 0.5}


@pytest.mark.parametrize(("probability", "keys"), [(0.5, "ab"), (0.5 + 5e-10, "ab"), (0.5 + 2e-9, "b"), (0.75, "b")])
def test_the_threshold_counts_with_its_tolerance(probability: float, keys: str) -> None:
    rows = [_row("a", 0, weight=0.5, x=1), _row("b", 0, weight=0.75, x=1), _row("c", 0, x=2)]
    matches = twin.match(rows, [Query(1, Compare("=", X, Value(1)))], probability)
    assert "".join(match.key for match in matches) == keys


def test_a_name_of_samples_is_a_dimension_before_it_is_a_column() -> None:
    table: list[dict[str, Any]] = [
        {"id": 1, "ts": 0, "s": [1.0, 2.0, 3.0], "w": [0.5, 0.0, 0.25], "p": 0.5, "i": 2**53 + 1},
        {"id": None, "ts": 0, "s": [1.0], "w": [1.0], "p": 1.0, "i": 0},
    ]
    stream = ap.Stream(None, key="id", time="ts", value=ap.Samples("s", weights="w"), existence="p")
    (row,) = twin.rows_of(table, stream)
    assert twin.chance(Compare(">=", Name("s"), Value(2)), [row]) == Fraction(1, 8)
    assert twin.chance(Compare("=", Name("i"), Value(2**53 + 1)), [row]) == Fraction(3, 8)
    exact = ap.Stream(None, key="id", time="ts", value=ap.Exact("i"))
    (row,) = twin.rows_of(table, exact)
    assert twin.chance(Compare("=", Name("i"), Value(2**53 + 1)), [row]) == 1


# --- windows ----------------------------------------------------------------------------------------------------


def test_time_windows_reach_both_ways_and_their_ends_belong_to_them() -> None:
    assert _joined(ap.TimeWindow(2), "a3", "u0 v1 w3 x5 y6") == "av aw ax"
    assert _joined(ap.TimeWindow(0), "a3 b3", "u2 v3 w4") == "av bv"
    own = ap.TimeWindow(0, per_stream={"r": 2})  # rows of r wait for those of s, not the other way
    assert _joined(own, "a3", "u1 v3 w5 x6") == "av aw"


def test_count_windows_number_the_rows_of_a_tick_before_they_join() -> None:
    assert _joined(ap.CountWindow(1), "a1 b2", "u1 v3") == "au bu bv"
    assert _joined(ap.CountWindow(1), "a1 b1", "u1") == "bu"  # a is pushed out by its own tick
    assert _joined(ap.CountWindow(2), "a1 b2 c2", "u2 v3") == "bu bv cu cv"
    assert _joined(ap.CountWindow(1), "c1 a1 b1", "u0 v1") == "cv"  # the order of the table is no order


def test_rows_of_other_partitions_neither_meet_nor_count() -> None:
    r = [replace(_row(key, time, "r"), group=(g,)) for key, time, g in (("a", 1, 0), ("b", 2, 1))]
    s = [replace(_row(key, time, "s"), group=(g,)) for key, time, g in (("u", 3, 0), ("v", 3, 1))]
    assert _names(twin.match_windows(r, s, [Query(1, ANY, ap.CountWindow(1))])) == "au bv"


def test_each_query_has_its_own_window_or_the_default_or_is_rejected() -> None:
    r, s = _rows("a1 b4", "r"), _rows("u4", "s")
    queries = [Query(1, ANY, ap.TimeWindow(3)), Query(2, ANY), Query(3, ANY, ap.CountWindow(1)), Query(2, ANY)]
    found = twin.match_windows(r, s, queries, ap.TimeWindow(1))
    assert sorted(map(twin.flat, found)) == [(1, "a", 1, "u", 4, 1), (1, "b", 4, "u", 4, 1)] + [
        (query, "b", 4, "u", 4, 1) for query in (2, 3)
    ]
    assert {answer.query for answer in twin.match_windows(r, s, queries)} == {1, 3}
    assert twin.unwindowed(queries) == [2]
    assert twin.unwindowed(queries, ap.TimeWindow(1)) == []


def test_joins_multiply_what_is_uncertain() -> None:
    r = [_row("a", 0, "r", x=[(1, 0.5), (2, 0.25)])]
    s = [_row("u", 0, "s", weight=0.5, x=[(2, 0.5), (3, 0.5)])]
    query = Query(1, Or((Compare("=", R, S), Compare("=", S, Value(3)))), ap.TimeWindow(0))
    expected = QUARTER * QUARTER + Fraction(3, 4) * QUARTER
    assert [answer.probability for answer in twin.match_windows(r, s, [query], probability=0.2)] == [expected]
    assert twin.match_windows(r, s, [query], probability=0.26) == []


def test_three_and_four_streams_are_nested_loops() -> None:
    window, rising = ap.TimeWindow(2), And((Compare("<", R, S), Compare("<", S, T)))
    assert _joined(window, "a0 b1", "k1 l2", "u2 v3", condition=rising) == "aku blv"
    assert _joined(window, "a0 b1", "k1 l2", "u2 v3") == "aku alu bku bkv blu blv"
    assert _joined(ap.CountWindow(1), "a0 b1", "k1", "u2 v3") == "bku bkv"
    same = And((Compare("=", R, U), Compare("<=", S, T)))
    assert _joined(window, "a1 b2", "k1", "u1", "w1 x2 y9", condition=same) == "akuw bkux"


# --- query sets that change -------------------------------------------------------------------------------------


def test_changes_come_before_the_rows_of_their_push() -> None:
    rows = [_row("a", 0, x=1), _row("b", 0, push=1, x=1), _row("c", 0, push=2, x=1), _row("d", 0, push=3, x=1)]
    one, two = Query("q", Compare("=", X, Value(1))), Query("q", Compare("=", X, Value(2)))
    more = Query("p", ANY)
    changes = [[], [Change("add", more)], [Change("add", two), Change("remove", more)], [Change("add", one)]]
    found = twin.match_pushes(rows, [one], changes)
    assert [[(m.query, m.key) for m in push] for push in found] == [
        [("q", "a")],
        [("q", "b"), ("p", "b")],
        [],
        [("q", "d")],
    ]
    again = [Change("remove", one), Change("add", one), Change("remove", more)]
    assert list(twin.versions([], [again])[0].values()) == [(one, 0)]


def _pushed(window: Any, left: str, right: str, added: int, *, by_arrival: bool = False, **how: Any) -> list[str]:
    changes: list[list[Change]] = [[] for _ in range(3)]
    changes[added].append(Change("add", Query(1, ANY, window)))
    streams = [_rows(text, name, by_arrival=by_arrival) for text, name in ((left, "r"), (right, "s"))]
    return [_names(push) for push in twin.match_window_pushes(streams, [], changes, **how)]


def test_a_new_join_query_sees_its_push_and_if_asked_what_came_before() -> None:
    left, right = "a1/0 b2/1", "u2/1 v3/2"
    assert _pushed(ap.TimeWindow(9), left, right, 1) == ["", "au bu", "av bv", ""]
    assert _pushed(ap.TimeWindow(9), left, right, 1, history=False) == ["", "bu", "bv", ""]
    assert _pushed(ap.TimeWindow(1), left, right, 0) == ["", "au bu", "bv", ""]
    assert _pushed(ap.TimeWindow(1), "a1/1", "u2/0", 0) == ["", "au", "", ""]


def test_windows_that_count_answer_when_the_tick_is_complete() -> None:
    left, right = "a1/0 b4/1", "u1/0 v3/1 w9/2"
    assert _pushed(ap.CountWindow(1), left, right, 0) == ["", "au", "av", "bv bw"]
    # By the queries of that push: one that came after the rows of the tick answers it all the same.
    assert _pushed(ap.CountWindow(1), left, right, 1) == ["", "au", "av", "bv bw"]
    assert _pushed(ap.CountWindow(1), left, right, 1, history=False) == ["", "", "", "bv bw"]
    assert _pushed(ap.CountWindow(1), left, right, 1, lateness=[2 * SECOND, 0]) == ["", "au", "", "av bv bw"]
    late = "a5/0 b1/1", "u5/1"  # as they come a is pushed out by b, else b by a
    assert _pushed(ap.CountWindow(1), *late, 0, by_arrival=True) == ["", "bu", "", ""]
    assert _pushed(ap.CountWindow(1), *late, 0) == ["", "", "", "au"]


# --- aggregates -------------------------------------------------------------------------------------------------


def test_aggregates_of_certain_rows_are_those_of_sql() -> None:
    rows = [_row(i, time, x=x) for i, (time, x) in enumerate(((0, 1), (1, 5), (1, None), (2, 3), (5, 0)))]
    query = Query("q", Or((IsNull(X), Compare(">", X, Value(1)))), ap.TimeWindow(1))
    found = {how: [a.value for a in twin.aggregates([rows], query, how, X)] for how in ("count", "sum", "mean")}
    assert found == {"count": [0, 2, 3, 0], "sum": [0, 5, 8, 0], "mean": [None, 5, 4, None]}
    counted = replace(query, window=ap.CountWindow(2))  # of all rows, not of those that match
    assert [a.value for a in twin.aggregates([rows], counted, "count")] == [0, 2, 2, 1]


def test_aggregates_of_uncertain_rows_are_over_possible_worlds() -> None:
    rows = [_row("a", 0, x=[(2, 0.5), (4, 0.5)]), _row("b", 0, weight=0.5, x=6)]
    query = Query("q", Compare(">", X, Value(2)), ap.TimeWindow(0))
    (count,), (total,), (mean,) = (twin.aggregates([rows], query, how, X) for how in ("count", "sum", "mean"))
    assert count.value == 1
    assert count.distribution == {Fraction(0): QUARTER, Fraction(1): HALF, Fraction(2): QUARTER}
    assert total.value == 5
    assert total.exists == 1
    assert mean.exists == Fraction(3, 4)
    assert mean.value == 5  # 4, 5 and 6, one as likely as the other
    pairs = twin.aggregates([[replace(row, stream="r") for row in rows], [_row("u", 1, "s", weight=0.5)]],
                            Query(1, Compare(">", R, Value(2)), ap.TimeWindow(1)), "sum", R)  # fmt: skip
    assert [a.value for a in pairs] == [0, Fraction(5, 2)]


@given(query_strategies.joins(uncertain=True, most=2, most_queries=2))
def test_the_mean_of_a_count_is_the_sum_of_the_probabilities(case: query_strategies.Case) -> None:
    streams = case.rows()
    for query in case.queries:
        for found in twin.aggregates(streams, query, "count", None, case.window):
            window = query.window or case.window
            assert window is not None
            past = [[row for row in s if row.group == found.group and row.micros <= found.micros] for s in streams]
            now = [row for stream in past for row in stream if row.micros == found.micros][:1]
            standing = [
                pair
                for pair in product(*past)
                if all(twin._held(row, now[0].tick, s, window) for row, s in zip(pair, past, strict=True))
            ]
            assert found.value == sum((twin.chance(query.condition, pair) for pair in standing), Fraction(0))


# --- against others ---------------------------------------------------------------------------------------------


def _in_sqlite(text: str) -> str:
    """Times as SQLite knows them, and a division that is one of doubles."""

    def padded(found: re.Match[str]) -> str:
        return f"'{datetime.fromisoformat(found[1]).isoformat(timespec='microseconds')}'"

    return re.sub(r"(?:DATE |TIMESTAMP )?'(2024-[^']*)'", padded, text).replace(" / ", " * 1.0 / ")


def _modest(row: twin.Row) -> twin.Row:
    """The row with small numbers: SQLite has no whole ones beyond 64 bits, and rounds large ones among doubles."""

    def small(value: Any) -> Any:
        return 3 if isinstance(value, int | float) and math.isfinite(value) and abs(value) > 100 else value

    samples = [({name: small(value) for name, value in values.items()}, weight) for values, weight in row.samples]
    return replace(row, samples=tuple(samples))


def _load(base: sqlite3.Connection, rows: Sequence[twin.Row], columns: Sequence[str]) -> None:
    """A table of the certain values of a stream's rows, and their times and partitions."""
    fields = ", ".join(f'"{name}"' for name in ("micros", "part", *columns))
    base.execute(f'CREATE TABLE "{rows[0].stream}" ({fields})')
    marks = ", ".join("?" * (len(columns) + 2))
    for row in rows:
        values = [twin.plain(row.samples[0][0][name]) for name in columns]
        cells = [v.isoformat(timespec="microseconds") if isinstance(v, datetime) else v for v in values]
        base.execute(f'INSERT INTO "{row.stream}" VALUES ({marks})', (row.micros, repr(row.group), *cells))  # noqa: S608


@given(query_strategies.joins(arity=(1, 2, 3), uncertain=False), st.data())
def test_joins_over_time_are_those_of_sqlite(case: query_strategies.Case, data: st.DataObject) -> None:
    """Conditions as SQL alone judges them: how their text is read, their truth, and which rows are in the window."""
    if not all(streams := case.rows()):
        return
    condition = data.draw(query_strategies.queries(case.columns, 1, st.none())).condition
    seconds = data.draw(st.sampled_from((0, 1, 2, 100)))
    if any(f" {operator} " in condition.sql for operator in "+-*/"):
        streams = [[_modest(row) for row in rows] for rows in streams]
    names = [rows[0].stream for rows in streams]
    numbers, times, parts = (
        ", ".join(f'"{name}".{column}' for name in names) for column in ("rowid - 1", "micros", "part")
    )
    # Of one value the least and greatest are aggregates.
    near = f"max({times}) - min({times}) <= {seconds * SECOND} AND min({parts}) = max({parts})"
    where = f"({_in_sqlite(condition.sql)}) AND {near if len(names) > 1 else 'TRUE'}"
    tables = ", ".join(f'"{name}"' for name in names)
    with closing(sqlite3.connect(":memory:")) as base:
        for name, rows in zip(names, streams, strict=True):
            columns = [column.column for column, _ in case.columns if column.stream == name]
            _load(base, rows, list(dict.fromkeys(columns)))
        found = base.execute(f"SELECT {numbers} FROM {tables} WHERE {where}").fetchall()  # noqa: S608
    expected = [[rows[i] for rows, i in zip(streams, ids, strict=True)] for ids in found]
    answers = twin.match_streams(streams, [Query(1, condition, ap.TimeWindow(seconds))])
    assert sorted((answer.keys, answer.times) for answer in answers) == sorted(
        (tuple(row.key for row in rows), tuple(row.time for row in rows)) for rows in expected
    )


@given(query_strategies.selections(uncertain=False))
def test_conditions_can_be_read_and_hold_where_they_are_true(case: query_strategies.Case) -> None:
    table, rows = case.tables[0], case.rows()[0]
    for query in case.queries:
        condition = parse(query.text)
        condition.check({field.name: field.type for field in table.schema})
        read = {name: table[name].combine_chunks() for name in condition.columns}
        held = condition.holds(read, len(table)).tolist()
        assert [twin.chance(query.condition, [row]) for row in rows] == [int(held[row.number]) for row in rows]


@given(query_strategies.joins(most=6), query_strategies.windows())
def test_rows_stand_together_where_the_twin_of_joins_lets_them_meet(case: query_strategies.Case, window: Any) -> None:
    tables = [table.to_pylist() for table in case.tables]
    names = naive.stream_names(case.streams)
    usable = [
        replace(row, stream=s)
        for s, (table, stream) in enumerate(zip(tables, case.streams, strict=True))
        for row in naive.rows_of([table], [stream], len(case.rows()[s][0].centre) if case.rows()[s] else 1)[0]
    ]
    last = max((row.micros for row in usable), default=0)
    met = {
        tuple(row.number for row in sorted((meeting.a, meeting.b), key=lambda row: row.stream))
        for meeting in naive.meetings(usable, names, window, last)
        if meeting.a.stream != meeting.b.stream
    }
    left, right = case.rows()
    stood = {
        (a.number, b.number)
        for a, b in product(left, right)
        if a.group == b.group and twin.stand((a, b), (left, right), window)
    }
    assert stood == met


@given(query_strategies.joins(uncertain=True, most=2, most_queries=1))
def test_chances_are_those_of_possible_worlds(case: query_strategies.Case) -> None:
    """Each row is one of its samples, or not there."""
    for query, pair in product(case.queries, product(*case.rows())):
        total = Fraction(0)
        absent = [(None, 1 - sum((w for _, w in row.samples), Fraction(0))) for row in pair]
        for world in product(*([*row.samples, nothing] for row, nothing in zip(pair, absent, strict=True))):
            present = {row.stream: values for row, (values, _) in zip(pair, world, strict=True) if values is not None}
            if len(present) == 2 and query.condition.of(present) is True:
                total += world[0][1] * world[1][1]
        assert twin.chance(query.condition, pair) == total


# --- pushes -----------------------------------------------------------------------------------------------------


def _counted(answers: Iterable[Any]) -> list[str]:
    return sorted(map(repr, answers))


@given(st.one_of(query_strategies.selections(), query_strategies.joins(lateness=True)), st.data())
def test_a_set_that_stays_answers_alike_however_it_is_cut(case: query_strategies.Case, data: st.DataObject) -> None:
    cut = tuple(data.draw(query_strategies.cuts(case)))
    found = case.expected_pushes(query_strategies.Changing(cut, ((),) * len(cut)))
    assert _counted(answer for push in found for answer in push) == _counted(case.expected())


@given(query_strategies.joins(lateness=True, orders=("time", "arrival")).map(query_strategies.anchored), st.data())
def test_a_set_that_changes_answers_by_the_set_of_the_push(case: query_strategies.Case, data: st.DataObject) -> None:
    changing = data.draw(query_strategies.changing(case))
    found = case.expected_pushes(changing)
    sets = twin.versions(case.queries, changing.changes)
    for push, standing in zip(found, sets, strict=False):
        assert {naive.plain(twin.flat(answer)[0]) for answer in push} <= set(standing)
    for push, less in zip(found, case.expected_pushes(changing, history=False), strict=True):
        assert not set(_counted(less)) - set(_counted(push))
    assert changing.change_table(0).column_names == ["query", "condition", "change"]


# --- the tools --------------------------------------------------------------------------------------------------


def test_answers_compare_by_query_key_time_and_probability() -> None:
    expected = [twin.Match("q", 1, 0, HALF), twin.Match("q", 1, 0, QUARTER)]
    found = pa.table({"query": ["q", "q"], "key": [1, 1], "time": [0, 0], "probability": [0.25, 0.5]})
    twin.assert_same(found, expected)
    for wrong in (found.slice(1), pa.concat_tables([found, found]), found.set_column(1, "key", pa.array([1, 2]))):
        with pytest.raises(AssertionError):
            twin.assert_same(wrong, expected)
    with pytest.raises(AssertionError):
        twin.assert_same(found.set_column(3, "probability", pa.array([0.25, 0.51])), expected)
    time = datetime(2024, 1, 1, tzinfo=UTC)
    pair = twin.Joined(1, ("a", "b"), (time, time + timedelta(1)), Fraction(1))
    table = pa.table({name: [value] for name, value in zip("qabcd", twin.flat(pair)[:-1], strict=True)})
    twin.assert_same(table.append_column("p", pa.array([1.0])).append_column("values", pa.array(["x"])), [pair])


@pytest.mark.parametrize(
    "cases",
    [query_strategies.selections(), query_strategies.joins(), query_strategies.joins(arity=(3, 4), most=3)],
    ids=["selections", "joins", "many"],
)
def test_drawn_cases_have_answers_and_what_is_left_out(cases: Any) -> None:
    """Strategies whose queries hold nowhere, or everywhere, would prove nothing."""
    some, others, seen = 0, 0, 0

    @given(cases)
    def count(case: query_strategies.Case) -> None:
        nonlocal some, others, seen
        rows = math.prod(map(len, case.rows()))
        if case.queries and rows:
            seen += 1
            some += len(case.expected()) > 0
            others += len(case.expected()) < rows * len(case.queries)
        assert case.query_table.column_names == ["query", "condition"]

    run: Callable[[], None] = count
    run()
    assert seen >= 15
    assert some >= seen // 4
    assert others >= seen // 4


@given(query_strategies.selections(bad=True))
def test_bad_rows_are_not_there(case: query_strategies.Case) -> None:
    bad = [
        row["id"] is None or row["ts"] is None or row.get("s", 0) is None or ("s" not in row and row["x"] is None)
        for row in case.tables[0].to_pylist()
    ]
    assert [row.number for row in case.rows()[0]] == [i for i, spoiled in enumerate(bad) if not spoiled]
