"""Rows without a partner: each is reported once, as soon as no partner can come any more, and never earlier."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.join.local import LocalJoin
from tests.helpers import naive
from tests.helpers.strategies import Case, cases, pushes
from tests.spark.test_tiles import call_of

if TYPE_CHECKING:
    from collections.abc import Iterable

HOW = ("left", "right", "full", "left_anti")
WINDOWS = ("time", "time", "count", "delta", "tumble", "uncertain")
two: Any = cases(windows=WINDOWS).filter(lambda case: len(case.streams) == 2)


def alone(case: Case, how: str) -> Counter[tuple[Any, ...]]:
    """By the twin: the usable rows of the streams asked for that are in none of its pairs, as (side, key, time)."""
    rows, _ = naive.rows_of(case.rows, case.streams, case.d, None, case.attribute, naive.dimension_of(case.window))
    found = set()
    question = {name: value for name, value in case.question.items() if name not in ("self_join", "different")}
    last = max((row.micros for row in rows), default=0)
    for a, b, _, _, factor in naive.meetings(rows, case.names, case.window, last):
        if a.stream == b.stream:
            continue
        chance = naive.probability(a.value, b.value, question["epsilon"]) * factor
        if float(chance) >= question["probability"] - 1e-9:
            found |= {(a.stream, a.number), (b.stream, b.number)}
    told = {0: how != "right", 1: how in ("right", "full")}
    return Counter(
        (row.stream, naive.plain(row.key), row.micros)
        for row in rows
        if told[row.stream] and (row.stream, row.number) not in found
    )


def reported(tables: Iterable[pa.Table], case: Case) -> Counter[tuple[Any, ...]]:
    """The rows of answers that have nobody on the other side."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in pa.concat_tables(tables, promote_options="permissive").to_pylist():
        sides = [side for side in ("left", "right") if row.get(f"{side}_stream") is not None]
        if len(sides) == 2:
            assert row["probability"] is not None
            continue
        (side,) = sides
        assert row.get("distance") is None
        assert row.get("probability") is None
        i = case.names.index(row[f"{side}_stream"])
        micros = naive.micros_of(row[f"{side}_time"], case.streams[i].unit)
        found[i, naive.plain(row[f"{side}_key"]), micros] += 1
    return found


def call(case: Case, how: str, **settings: Any) -> pa.Table:
    asked: Any = case.settings | settings
    result: pa.Table = ap.similarity_join(*case.framed(), **asked, how=how)
    return result


@settings(max_examples=50)
@given(two, st.sampled_from(HOW))
def test_the_rows_without_a_partner_are_those_of_the_twin(case: Case, how: str) -> None:
    found = call(case, how)
    assert reported([found], case) == alone(case, how)
    inner = naive.answers_of(case.run())
    if how == "left_anti":
        assert found.column_names == ["left_stream", "left_key", "left_time"]
    else:
        naive.assert_same_answers(found.filter(pc.is_valid(found["probability"])), inner)


@settings(max_examples=40)
@given(st.data())
def test_each_comes_once_when_nobody_can_come_any_more(data: st.DataObject) -> None:
    """Pushed in any cut and order within the lateness: never before its window is over, never after the next push."""
    case = data.draw(cases(windows=WINDOWS, lateness=True).filter(lambda case: len(case.streams) == 2))
    how = data.draw(st.sampled_from(HOW))
    call = call_of(case)
    engine = LocalJoin(replace(call, plan=replace(call.plan, how=how)))
    tables, told = [], Counter[tuple[Any, ...]]()
    for push in data.draw(pushes(case)):
        tables.append(engine.push(case.frames(push)))
        told += reported(tables[-1:], case)
        if isinstance(case.window, ap.TimeWindow):
            _check_times(tables[-1], case, engine, told)
    tables.append(engine.drain())
    assert reported(tables, case) == alone(case, how)


def _check_times(table: pa.Table, case: Case, engine: LocalJoin, told: Counter[tuple[Any, ...]]) -> None:
    """Under a time window: what has come is over, and what is over and alone has come."""
    assert isinstance(case.window, ap.TimeWindow)
    windows, frontier = case.window.micros(tuple(case.names)), engine.bucket.complete
    for stream, _, micros in reported([table], case):
        assert micros + windows[stream] < frontier
    assert all(micros + windows[stream] < frontier for stream, _, micros in told)


def test_a_row_is_reported_in_the_push_that_ends_its_window() -> None:
    """The first push after which no partner can come, not a later one."""
    join = ap.SimilarityJoin(
        ap.Stream(None, key="k", time="t", value=ap.Exact("x"), name="a", carry=["note"]),
        ap.Stream(None, key="k", time="t", value=ap.Exact("x"), name="b"),
        epsilon=1,
        probability=0.5,
        window=10,
        how="left",
    )
    a = pa.table({"k": ["lone", "paired"], "t": [0.0, 0.0], "x": [5.0, 0.0], "note": ["why", "ok"]})
    assert join.push(a=a, b=pa.table({"k": ["p"], "t": [1.0], "x": [0.5]}))["left_key"].to_pylist() == ["paired"]
    later = pa.table({"k": ["c"], "t": [10.0], "x": [50.0], "note": [None]})
    assert len(join.push(a=later, b=pa.table({"k": ["q"], "t": [10.0], "x": [90.0]}))) == 0  # one at 10 may still come
    later = pa.table({"k": ["d"], "t": [10.5], "x": [70.0], "note": [None]})
    (row,) = join.push(a=later, b=pa.table({"k": ["r"], "t": [10.5], "x": [90.0]})).to_pylist()
    assert row == {
        "left_stream": "a",
        "left_key": "lone",
        "left_time": 0.0,
        "right_stream": None,
        "right_key": None,
        "right_time": None,
        "distance": None,
        "probability": None,
        "left_note": "why",
    }
    assert sorted(join.drain()["left_key"].to_pylist()) == ["c", "d"]


def test_a_stream_without_rows_leaves_all_of_the_other_alone() -> None:
    join = ap.SimilarityJoin(
        ap.Stream(None, key="k", time="t", value=ap.Exact("x")),
        ap.Stream(None, key="k", time="t", value=ap.Exact("x")),
        epsilon=1,
        probability=0.5,
        window=10,
        how="left_anti",
    )
    rows = pa.table({"k": [1, 2], "t": [0.0, 0.0], "x": [5.0, 0.0]})
    join.push(left=rows)
    with pytest.raises(ap.BadArgument, match="Push every stream first, if only an empty frame"):
        join.drain()
    join = ap.SimilarityJoin(*join._streams.values(), epsilon=1, probability=0.5, window=10, how="left_anti")
    join.push(left=rows, right=rows.slice(0, 0))
    assert join.drain().to_pylist() == [
        {"left_stream": "left", "left_key": 1, "left_time": 0.0},
        {"left_stream": "left", "left_key": 2, "left_time": 0.0},
    ]


def test_bounds_imputers_and_existence_go_along() -> None:
    """Rows that a lazy imputer would never fill are reported all the same."""
    rows = pa.table({"k": [1, 2, 3], "t": [0.0] * 3, "x": [0.0, None, 50.0], "y": [0.0, 1.0, 50.0]})
    left = ap.Stream(rows, key="k", time="t", value=ap.Incomplete("x", "y"), name="holes")
    right = ap.Stream(rows.slice(0, 1), key="k", time="t", value=ap.Exact("x", "y"), name="whole")
    asked: Any = {"epsilon": 2, "probability": 0.5, "window": 1}
    found = ap.similarity_join(left, right, **asked, how="full", imputer=ap.ZeroFill())
    assert sorted(found["left_key"].to_pylist()) == [1, 2, 3]
    assert found.sort_by("left_key")["left_filled"].to_pylist()[1:] == [[{"attribute": "x", "rule": "zero"}], []]
    bounded = ap.similarity_join(left, right, **asked, how="left", imputer=ap.ZeroFill(), probabilities="bounds")
    assert sorted(bounded["left_key"].to_pylist()) == [1, 2, 3]
    assert bounded["probability_upper"].null_count == bounded["probability"].null_count == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"how": "outer"}, "inner"),
        ({"how": "left", "emit": "changes"}, "emit='changes'"),
        ({"how": "left", "values": True}, "values=True"),
    ],
)
def test_what_makes_no_sense_is_an_error(settings: dict[str, Any], words: str) -> None:
    rows = pa.table({"k": [1], "t": [0.0], "x": [0.0]})
    join: Any = ap.similarity_join
    streams: Any = [ap.Stream(rows, key="k", time="t", value=ap.Exact("x"), name=name) for name in "abc"]
    asked: Any = {"epsilon": 1, "probability": 0.5, "window": 1}
    with pytest.raises(ap.BadArgument, match=words):
        join(*streams[:2], **asked, **settings)
    with pytest.raises(ap.BadArgument, match="of two streams"):
        join(*streams, **asked, how="left")
    with pytest.raises(ap.BadArgument, match="of two streams"):
        join(streams[0], streams[0], **asked, how="left")
