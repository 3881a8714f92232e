"""Continuous queries in process: answers are those of the slow twin, however rows and queries come."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from tests import naive_queries, query_strategies
from tests.test_real_data import CABS, DATA

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

STOCKS = DATA / "sp500_5yr" / "all_stocks_5yr.parquet"


@settings(max_examples=200)
@given(st.data())
def test_rows_match_the_queries_of_the_slow_twin(data: st.DataObject) -> None:
    """Any condition over any columns, certain rows and uncertain ones."""
    case = data.draw(query_strategies.selections())
    found = ap.match_queries(*case.framed(), case.query_table, probability=case.probability)
    naive_queries.assert_same(found, case.expected())


@settings(max_examples=100)
@given(st.data())
def test_a_set_that_changes_answers_push_by_push(data: st.DataObject) -> None:
    """Queries come and go between pushes, and see all rows of the push that brings them."""
    case = data.draw(query_strategies.selections())
    changing = data.draw(query_strategies.changing(case))
    join = ap.QueryMatch(case.streams[0], probability=case.probability)
    join.change(case.query_table)
    for i, (push, expected) in enumerate(zip(changing.cut, case.expected_pushes(changing), strict=True)):
        if changing.changes[i]:
            join.change(changing.change_table(i))
        name = case.streams[0].name or "stream"
        frames = case.frames(push)
        naive_queries.assert_same(join.push(frames.get(name, next(iter(frames.values())))), expected)


@settings(max_examples=200)
@given(st.data())
def test_window_joins_match_the_queries_of_the_slow_twin(data: st.DataObject) -> None:
    """Two to four streams, a window per query in time or in rows, certain rows and uncertain ones."""
    case = data.draw(query_strategies.joins(arity=(2, 3, 4)))
    found = ap.match_queries(*case.framed(), case.query_table, probability=case.probability, window=case.window)
    naive_queries.assert_same(found, case.expected())


# --- real data, and generated twins that always run -------------------------------------------------------------


def _fixes() -> pa.Table:
    """Cabs that wander, occupied or not, with whole degrees among the fixes that fences end at."""
    random = np.random.default_rng(5)
    n = 8000
    columns = {
        "latitude": np.round(37.76 + random.normal(0, 0.03, n), 4),
        "longitude": np.round(-122.42 + random.normal(0, 0.03, n), 4),
        "occupancy": random.integers(0, 2, n),
        "time": 1_211_000_000 + np.arange(n),
    }
    return pa.table(columns)


def _days() -> pa.Table:
    """Prices of fifty stocks, some openings of which nobody knows."""
    random = np.random.default_rng(6)
    n = 8000
    close = np.round(np.exp(random.normal(4, 1, n)), 2)
    opened = np.round(close * random.normal(1, 0.02, n), 2)
    columns = {"date": pa.array(17_000 + np.arange(n) // 50, pa.int32()).cast(pa.date32()), "close": close}
    columns |= {"open": pa.array(opened, mask=random.random(n) < 0.01), "volume": random.integers(0, 10**7, n)}
    return pa.table(columns | {"Name": [f"STOCK_{i % 50:02}" for i in range(n)]})


def _last_year() -> pa.Table:
    table = pq.read_table(STOCKS)
    return table.filter(pc.greater_equal(table["date"], pa.scalar(17_167, pa.int32()).cast(pa.date32())))


def _numbered(table: pa.Table) -> pa.Table:
    return table.append_column("row", pa.array(np.arange(len(table))))


def _assert_pairs(found: pa.Table, expected: list[NDArray[np.int64]]) -> None:
    """``expected`` has the rows of each query."""
    query, row = found["query"].to_numpy(), found["key"].to_numpy()
    order = np.lexsort((row, query))
    assert query[order].tolist() == np.repeat(np.arange(len(expected)), list(map(len, expected))).tolist()
    assert (row[order] == np.concatenate(expected)).all()
    assert (found["probability"].to_numpy() == 1.0).all()


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(
            lambda: pq.read_table(CABS),
            marks=pytest.mark.skipif(not CABS.exists(), reason=f"there is no {CABS}"),
            id="san_francisco",
        ),
        pytest.param(_fixes, id="generated"),
    ],
)
def test_fences_over_a_city_hold_the_cabs_within(read: Callable[[], pa.Table]) -> None:
    """Of many sizes, corners on fixes, some for occupied cabs alone: each fix in each fence, to the last bit."""
    fixes = _numbered(read())
    latitude, longitude, occupied = (fixes[name].to_numpy() for name in ("latitude", "longitude", "occupancy"))
    random = np.random.default_rng(1)
    corners = random.integers(0, len(fixes), 300)
    sides = 10.0 ** random.uniform(-4, -1.5, (300, 2))
    texts, expected = [], []
    for i, (corner, (height, width)) in enumerate(zip(corners.tolist(), sides.tolist(), strict=True)):
        south, west = float(latitude[corner]), float(longitude[corner])
        north, east = south + height, west + width
        within = (latitude >= south) & (latitude <= north) & (longitude >= west) & (longitude <= east)
        text = f"latitude BETWEEN {south} AND {north} AND longitude BETWEEN {west} AND {east}"
        if i % 3 == 1:
            within, text = within & (occupied == 1), f"{text} AND occupancy = 1"
        if i % 3 == 2:
            within, text = ~within & (latitude > north), f"NOT ({text}) AND latitude > {north}"
            within, text = within & (longitude < west - 0.02), f"{text} AND longitude < {west - 0.02}"
        texts.append(text)
        expected.append(np.flatnonzero(within))
    stream = ap.Stream(fixes, key="row", time="time", value=ap.Exact("latitude", "longitude"))
    _assert_pairs(ap.match_queries(stream, pa.table({"query": np.arange(300), "condition": texts})), expected)


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(
            _last_year, marks=pytest.mark.skipif(not STOCKS.exists(), reason=f"there is no {STOCKS}"), id="sp500"
        ),
        pytest.param(_days, id="generated"),
    ],
)
def test_price_alerts_tell_the_days_on_which_they_hold(read: Callable[[], pa.Table]) -> None:
    """Levels passed within a day, large moves on much trade, dates, by stock; missing openings tell nothing."""
    days = _numbered(read())
    close, opened = (days[name].to_numpy() for name in ("close", "open"))
    volume, date = days["volume"].to_numpy(), days["date"].cast(pa.int32()).to_numpy()
    name = np.array(days["Name"].to_pylist())
    order = np.argsort(name, kind="stable")
    names = name[order]
    random = np.random.default_rng(2)
    texts, expected = [], []
    for i, at in enumerate(random.integers(0, len(days), 400).tolist()):
        stock, level, when = str(name[at]), float(close[at]), str(days["date"][at])
        first, last = (np.searchsorted(names, stock, side) for side in ("left", "right"))
        own = order[first:last]
        if i % 4 == 0:
            text, holds = f"close >= {level}", close[own] >= level
        elif i % 4 == 1:
            text, holds = f"open < {level} AND close >= {level}", (opened[own] < level) & (close[own] >= level)
        elif i % 4 == 2:
            text = f"(close - open > 1.5 OR open > close + 1.5) AND volume > {int(volume[at])}"
            holds = ((close[own] - opened[own] > 1.5) | (opened[own] > close[own] + 1.5)) & (volume[own] > volume[at])
        else:
            text, holds = f"date > DATE '{when}' AND close < {level}", (date[own] > date[at]) & (close[own] < level)
        texts.append(f"Name = '{stock}' AND {text}")
        expected.append(np.sort(own[holds]))
    stream = ap.Stream(days, key="row", time="date", value=ap.Exact("close"))
    _assert_pairs(ap.match_queries(stream, pa.table({"query": np.arange(400), "condition": texts})), expected)


def test_a_query_holds_until_its_time() -> None:
    """The last row it is asked of has that time; without one it holds for ever, and the past is no matter."""
    rows = pa.table({"id": [1, 2, 3], "ts": [10.0, 20.0, 30.0], "x": [1.0, 1.0, 1.0]})
    stream = ap.Stream(None, key="id", time="ts", value=ap.Exact("x"))
    queries = pa.table({"query": ["a", "b", "c"], "condition": ["x > 0"] * 3, "until": [20.0, None, 9.5]})
    by_hand = ap.QueryMatch(stream)
    by_hand.change(queries)
    found = by_hand.push(rows)
    told = sorted(zip(found["query"].to_pylist(), found["key"].to_pylist(), strict=True))
    assert told == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3)]
    assert by_hand.expire(20) == 1
    assert by_hand.expire(20.5) == 1
    assert by_hand.push(rows)["query"].to_pylist() == ["b", "b", "b"]
    by_hand.change(pa.table({"query": ["b"], "condition": ["x > 0"], "until": [float("inf")]}))
    assert by_hand.rejects()["detail"].to_pylist() == ["until is not a finite time in range"]


def test_queries_that_can_never_match_are_told() -> None:
    """They stand all the same; and with on_reject="fail" they are no failure."""
    rows = pa.table({"id": [1], "ts": [10.0], "x": [1.0]})
    stream = ap.Stream(rows, key="id", time="ts", value=ap.Exact("x"))
    queries = pa.table({"query": ["a", "b"], "condition": ["x > 2 AND x < 1", "x = 1"]})
    for how in ("collect", "fail"):
        found = ap.match_queries(stream, queries, on_reject=how)
        assert found["query"].to_pylist() == ["b"]
        told = ap.rejects(found).to_pylist()
        assert [(row["stream"], row["reason"]) for row in told] == [("queries", "can never match")]


def test_what_raises_changes_nothing() -> None:
    """A frame with a bad condition adds none of its queries where bad input is to fail."""
    by_hand = ap.QueryMatch(ap.Stream(None, key="id", time="ts", value=ap.Exact("x")), on_reject="fail")
    by_hand.change(pa.table({"query": ["a"], "condition": ["x > 0"]}))
    rows = pa.table({"id": [1], "ts": [10.0], "x": [1.0]})
    assert len(by_hand.push(rows)) == 1
    with pytest.raises(ap.BadInput, match="position 4"):
        by_hand.change(pa.table({"query": ["b", "c"], "condition": ["x > 0", "x >"]}))
    assert by_hand.push(rows)["query"].to_pylist() == ["a"]


def test_the_least_whole_number_is_told_from_the_next() -> None:
    """Keys of rows leave no room for it; order and equality of columns do not go by them."""
    least = -(1 << 63)
    rows = pa.table({"id": [1, 2], "ts": [1.0, 2.0], "i": [least, least + 1], "j": [least + 1, least + 1]})
    queries = pa.table({"query": ["<", "="], "condition": ["i < j", "i = j"]})
    found = ap.match_queries(ap.Stream(rows, key="id", time="ts", value=ap.Exact("id")), queries)
    assert sorted(zip(found["query"].to_pylist(), found["key"].to_pylist(), strict=True)) == [("<", 1), ("=", 2)]
    left, right = (ap.Stream(rows, key="id", time="ts", value=ap.Exact("id"), name=name) for name in ("left", "right"))
    asked = pa.table({"query": [1], "condition": ["left.i = right.j WITHIN 1 MINUTE"]})
    joined = ap.match_queries(left, right, asked)
    assert sorted(zip(joined["left_key"].to_pylist(), joined["right_key"].to_pylist(), strict=True)) == [(2, 1), (2, 2)]


def test_later_pushes_come_in_the_types_of_the_first() -> None:
    """Whole numbers are cast where doubles came before; what does not fit is an error, never another answer."""
    by_hand = ap.QueryMatch(ap.Stream(None, key="id", time="ts", value=ap.Exact("x")))
    by_hand.change(pa.table({"query": ["a"], "condition": ["x > 1"]}))
    first = pa.table({"id": [1], "ts": [1.0], "x": [1.5], "t": ["u"]})
    assert len(by_hand.push(first)) == 1
    assert len(by_hand.push(first.set_column(2, "x", pa.array([2])))) == 1
    with pytest.raises(ap.BadArgument, match="'t' was string in the first push and is list"):
        by_hand.push(first.set_column(3, "t", pa.array([[1]])))
    with pytest.raises(ap.BadArgument, match="no column 't', which earlier"):
        by_hand.push(first.drop_columns(["t"]))
    by_hand.change(pa.table({"query": ["a"], "change": ["remove"]}))
    assert len(by_hand.push(first)) == 0


def test_times_are_told_as_the_stream_has_them() -> None:
    """Numbers beside numbers, timestamps beside timestamps."""
    by_hand = ap.QueryMatch(ap.Stream(None, key="id", time="ts", value=ap.Exact("x")))
    by_hand.change(pa.table({"query": ["a"], "condition": ["x > 1"], "until": [3.0]}))
    by_hand.push(pa.table({"id": [1], "ts": [1.0], "x": [1.5]}))
    assert [by_hand.expire(3.0), by_hand.expire(3.5)] == [0, 1]
    with pytest.raises(ap.BadArgument, match="as the stream has them"):
        by_hand.expire(float("nan"))
    with pytest.raises(ap.BadArgument, match="the stream's times are double"):
        by_hand.change(pa.table({"query": ["a"], "condition": ["x > 1"], "until": pa.array([3], pa.timestamp("us"))}))


def test_windows_that_are_none_are_told() -> None:
    """Each with what is wrong; and streams with partitions of different number are refused."""
    rows = pa.table({"id": [1], "ts": [1.0], "x": [1.0]})
    left, right = (ap.Stream(rows, key="id", time="ts", value=ap.Exact("x"), name=name) for name in "rs")
    texts = ["r.x = s.x", "r.x = s.x WITHIN 0 ROWS", "r.x = s.x WITHIN 1.5 ROWS", "r.x = s.x WITHIN 1 WEEK"]
    found = ap.match_queries(left, right, pa.table({"query": range(4), "condition": texts}))
    told = ap.rejects(found)["detail"].to_pylist()
    assert ["no window" in told[0], "at least 1" in told[1], "at least 1" in told[2], "DAYS" in told[3]] == [True] * 4
    with pytest.raises(ap.BadArgument, match="partition_by differs"):
        ap.match_queries(replace(left, partition_by="id"), right, pa.table({"query": [1], "condition": ["r.x = s.x"]}))
