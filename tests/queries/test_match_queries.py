"""Continuous queries in process: answers are those of the slow twin, however rows and queries come."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.multi_queries.local import LocalWindowQueries
from appulse.engines.queries import rows
from appulse.operators import query_match
from appulse.operators.query_estimate import Forecast
from tests.helpers import naive_queries, query_strategies
from tests.spark.test_real_data import CABS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

STOCKS = "sp500_5yr/all_stocks_5yr.parquet"


@settings(max_examples=100)
@given(st.data())
def test_rows_match_the_queries_of_the_slow_twin(data: st.DataObject) -> None:
    """Any condition over any columns, certain rows and uncertain ones."""
    case = data.draw(query_strategies.selections())
    found = ap.match_queries(*case.framed(), case.query_table, probability=case.probability)
    naive_queries.assert_same(found, case.expected())


@settings(max_examples=60)
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


@settings(max_examples=100)
@given(st.data())
def test_window_joins_match_the_queries_of_the_slow_twin(data: st.DataObject) -> None:
    """Two to four streams, a window per query in time or in rows, certain rows and uncertain ones."""
    case = data.draw(query_strategies.joins(arity=(2, 3, 4)))
    found = ap.match_queries(*case.framed(), case.query_table, probability=case.probability, window=case.window)
    naive_queries.assert_same(found, case.expected())


def _pushed(case: query_strategies.Case, changing: query_strategies.Changing) -> tuple[list[pa.Table], ap.QueryMatch]:
    """The answers of each push, and of the drain."""
    by_hand = ap.QueryMatch(*case.streams, probability=case.probability, window=case.window)
    by_hand.change(case.query_table)
    by_hand.push(**case.frames({}))
    found = []
    for i, push in enumerate(changing.cut):
        if changing.changes[i]:
            by_hand.change(changing.change_table(i))
        found.append(by_hand.push(**case.frames(push)))
    return [*found, by_hand.drain()], by_hand


@settings(max_examples=60)
@given(st.data())
def test_window_joins_by_push_answer_as_the_slow_twin(data: st.DataObject) -> None:
    """Each push answers what its rows complete, under windows in rows what is complete by then; queries come and go.

    Rows stay as long as any window of queries that stood may ask for them, so a query sees what was there before it.
    """
    orders = data.draw(st.sampled_from((("time",), ("time",), ("arrival",))))
    case = data.draw(query_strategies.joins(arity=(2, 2, 3), lateness=True, orders=orders))
    if data.draw(st.booleans()):
        case = query_strategies.anchored(case)
        changing = data.draw(query_strategies.changing(case))
    else:  # windows are those of the queries alone, and so is what is held
        cut = tuple(data.draw(query_strategies.cuts(case)))
        changing = query_strategies.Changing(cut, ((),) * len(cut))
    found, _ = _pushed(case, changing)
    expected = case.expected_pushes(changing)
    for i, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        naive_queries.assert_same(ours, theirs, f"push {i}: ")


def _two(*queries: tuple[str, str], **settings: Any) -> ap.QueryMatch:
    """Queries over two streams r and s, three seconds late at most."""
    streams = [ap.Stream(None, key="id", time="ts", value=ap.Exact("x"), lateness=3, name=name) for name in "rs"]
    by_hand = ap.QueryMatch(*streams, **settings)
    names, texts = zip(*queries, strict=True)
    by_hand.change(pa.table({"query": names, "condition": texts}))
    return by_hand


def _engine(by_hand: ap.QueryMatch) -> LocalWindowQueries:
    assert isinstance(by_hand._engine, LocalWindowQueries)
    return by_hand._engine


def _at(*times: float) -> pa.Table:
    return pa.table({"id": pa.array(times, pa.float64()), "ts": pa.array(times, pa.float64()), "x": [1.0] * len(times)})


def test_rows_are_held_as_long_as_one_may_come_that_meets_them() -> None:
    """To the microsecond; after that they are forgotten, and what comes too late is told."""
    by_hand = _two(("time", "r.x = s.x WITHIN 5 SECONDS"), ("rows", "r.x = s.x WITHIN 2 ROWS"))
    by_hand.push(r=_at(0, 1), s=_at())
    assert len(by_hand.push(r=_at(8), s=_at(8))) == 1  # 8 and 8, in time
    found = by_hand.push(s=_at(5)).to_pylist()
    assert sorted((row["query"], row["left_key"], row["right_key"]) for row in found) == [
        ("time", 0.0, 5.0),
        ("time", 1.0, 5.0),
        ("time", 8.0, 5.0),
    ]
    rows = by_hand.push(r=_at(100), s=_at(100)).to_pylist()
    assert sorted((row["left_key"], row["right_key"]) for row in rows if row["query"] == "rows") == [
        (0.0, 5.0),
        (1.0, 5.0),
        (1.0, 8.0),
        (8.0, 5.0),
        (8.0, 8.0),
    ]
    assert [len(ticks) for _, ticks in _engine(by_hand).bucket.held.all()] == [
        3,
        3,
    ]  # the newest two of each, and what waits
    assert len(by_hand.push(s=_at(96.0, 97.0))) == 1  # 100 and 97
    told = by_hand.rejects().to_pylist()
    assert [(row["stream"], row["key"], row["reason"]) for row in told] == [("s", 96.0, "late")]
    assert "1.000000 seconds behind" in told[0]["detail"]


def test_queries_of_several_streams_have_an_end_and_bring_columns_along() -> None:
    """`until` is about the newest row of a choice, `select` names columns with their streams."""
    rows = [pa.table({"id": [1, 2], "ts": [1.0, 3.0], "x": [1.0, 2.0], "own": texts}) for texts in (["a", "b"],) * 2]
    streams = [ap.Stream(t, key="id", time="ts", value=ap.Exact("x"), name=n) for t, n in zip(rows, "rs", strict=True)]
    queries = pa.table(
        {
            "query": ["a", "b", "c", "d"],
            "condition": ["r.x <= s.x WITHIN 1 MINUTE"] * 4,
            "until": [1.0, 3.0, None, None],
            "select": ["r.own, s.x", None, "own", "nothing"],
        }
    )
    found = ap.match_queries(*streams, queries)
    told = [(row["query"], row["left_key"], row["right_key"], row["values"]) for row in found.to_pylist()]
    assert sorted(told) == [
        ("a", 1, 1, '{"r.own": "a", "s.x": 1.0}'),
        ("b", 1, 1, None),
        ("b", 1, 2, None),
        ("b", 2, 2, None),
    ]
    assert ["in several streams" in row["detail"] for row in ap.rejects(found).to_pylist()] == [True, False]
    by_hand = ap.QueryMatch(*[replace(stream, frame=None) for stream in streams])
    by_hand.change(queries)
    by_hand.push(r=rows[0])
    assert by_hand.push(s=rows[1]).equals(found)
    assert by_hand.explain_query("b")["matches"] == 3
    assert [by_hand.expire(2.0), by_hand.expire(4.0)] == [1, 1]
    with pytest.raises(ap.BadArgument, match="no such stream"):
        by_hand.push(t=rows[0])
    with pytest.raises(ap.BadArgument, match="takes one frame of a single stream"):
        by_hand.push(rows[0])


def test_joins_reach_no_further_than_the_queries_that_are_left() -> None:
    """Once many have gone: what they alone asked for is neither joined nor held."""
    by_hand = _two(*[(f"q{i}", f"r.x = s.x AND r.x > {i} WITHIN {i + 1} HOURS") for i in range(100)])
    by_hand.push(r=_at(0), s=_at(0))
    assert _engine(by_hand).queries.longest == {False: (100 * 3600 * 10**6,) * 2}
    by_hand.change(pa.table({"query": [f"q{i}" for i in range(10, 100)], "change": ["remove"] * 90}))
    assert _engine(by_hand).queries.longest == {False: (10 * 3600 * 10**6,) * 2}
    by_hand.push(r=_at(40_000), s=_at(40_000))
    assert [len(ticks) for _, ticks in _engine(by_hand).bucket.held.all()] == [1, 1]


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


def _last_year(file: Path) -> pa.Table:
    table = pq.read_table(file)
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


@pytest.mark.parametrize("names", [["a", None], [1.0, float("nan")]])
def test_queries_without_a_key_are_rejects(names: list[Any]) -> None:
    stream = ap.Stream(pa.table({"k": [1], "t": [0], "x": [1.0]}), key="k", time="t", value="x")
    found = ap.match_queries(stream, pa.table({"query": names, "condition": ["x > 0"] * 2}))
    assert found["query"].to_pylist() == names[:1]
    assert ap.rejects(found)["detail"].to_pylist() == ["the key is null"]


def test_samples_are_not_repeated_for_each_sample() -> None:
    table = pa.table(
        {"k": [1], "t": [0], "word": ["a"], "s": [[[float(i), 0.0] for i in range(50)]], "w": [[0.02] * 50]}
    )
    stream = ap.Stream(table, key="k", time="t", value=ap.Samples("s", weights="w", names=("x", "y")))
    queries = pa.table({"query": [1], "condition": ["x >= 25 AND word = 'a'"]})
    with mock.patch.object(rows, "match", wraps=query_match.match) as matched:
        found = ap.match_queries(stream, queries, probability=0.1)
    assert found["probability"].to_pylist() == [pytest.approx(0.5)]
    (call,) = matched.call_args_list
    assert sum(column.nbytes for column in call.args[1].columns.values()) < 10_000


def test_fences_over_san_francisco_hold_the_cabs_within(data: Callable[[str], Path]) -> None:
    _check_fences(_numbered(pq.read_table(data(CABS))))


def test_fences_over_a_generated_city_hold_the_cabs_within() -> None:
    _check_fences(_numbered(_fixes()))


def _check_fences(fixes: pa.Table) -> None:
    """Of many sizes, corners on fixes, some for occupied cabs alone: each fix in each fence, to the last bit."""
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


def test_alerts_on_stocks_tell_the_days_on_which_they_hold(data: Callable[[str], Path]) -> None:
    _check_alerts(_numbered(_last_year(data(STOCKS))))


def test_alerts_on_generated_prices_tell_the_days_on_which_they_hold() -> None:
    _check_alerts(_numbered(_days()))


def _check_alerts(days: pa.Table) -> None:
    """Levels passed within a day, large moves on much trade, dates, by stock; missing openings tell nothing."""
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
    with pytest.raises(ap.BadArgument, match="'t' was string in earlier pushes and is list"):
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


def _many(n: int, name: str | None = None) -> ap.Stream:
    table = pa.table({"k": np.arange(n), "t": np.arange(n) * 1e-3, "x": np.zeros(n)})
    return ap.Stream(table, key="k", time="t", value=ap.Exact("x"), name=name)


@pytest.mark.parametrize("window", ["1000 SECONDS", "600 ROWS"])
def test_many_answers_are_announced_before_they_are_made(window: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appulse.operators.output.MANY", 100_000)
    one = pa.table({"query": [1], "condition": [f"a.x = b.x WITHIN {window}"]})
    with pytest.warns(ap.ExplodingOutput, match=r"1,200 rows will have about 360,000 answers, 300 for each"):
        assert len(ap.match_queries(_many(600, "a"), _many(600, "b"), queries=one)) == 360_000


def test_few_answers_are_not_announced(recwarn: pytest.WarningsRecorder) -> None:
    """Nor many choices, most of which are none."""
    queries = pa.table({"query": [1, 2], "condition": ["a.k = b.k", "a.x > b.x"]})
    ap.match_queries(_many(3000, "a"), _many(3000, "b"), queries=queries, window=ap.TimeWindow(1000))
    assert not recwarn.list


@settings(max_examples=60)
@given(query_strategies.joins(arity=(2, 3), uncertain=False))
def test_an_estimate_of_few_choices_is_their_number(case: query_strategies.Case) -> None:
    """What is drawn is then all there is; and to look leaves no trace."""
    with (
        mock.patch("appulse.operators.query_estimate._ESTIMATED_FROM", 0),
        mock.patch.object(Forecast, "announce", autospec=True, side_effect=Forecast.announce) as announced,
    ):
        found = ap.match_queries(*case.framed(), case.query_table, probability=case.probability, window=case.window)
    naive_queries.assert_same(found, case.expected())
    forecast = announced.call_args.args[0]
    if all(stream.existence is None for stream in case.streams):
        assert forecast.latest.answers == pytest.approx(len(found))
