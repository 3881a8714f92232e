"""Rows without a partner: each is reported once, as soon as no partner can come any more, and never earlier."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.join.local import LocalJoin
from tests.helpers import naive
from tests.helpers.strategies import Case, cases, pushes
from tests.spark.test_tiles import call_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
    with pytest.raises(ap.BadArgument, match=r"Push every stream first \(an empty frame is enough\)"):
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


# Windows of rows that all exist, so that who is in a window when is certain.
CERTAIN: Any = st.one_of(
    st.integers(0, 4).map(ap.TimeWindow),
    st.tuples(st.integers(0, 4), st.integers(0, 4)).map(
        lambda widths: ap.TimeWindow(widths[0], per_stream={"b": widths[1]})
    ),
    st.integers(1, 3).map(ap.CountWindow),
    st.integers(2, 5).map(ap.TumblingWindow),
)
_PLACE, _TIME, _LATE = st.integers(0, 5), st.integers(1, 12), 3
Push = dict[str, pa.Table]


def rows_at(rows: list[tuple[int, int]], first: int = 0) -> pa.Table:
    """Rows by place and time; keys count from ``first``."""
    keys = range(first, first + len(rows))
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "ts": pa.array([t for _, t in rows], pa.int64()),
            "x0": pa.array([float(x) for x, _ in rows], pa.float64()),
        }
    )


@st.composite
def streamed(draw: st.DrawFn) -> tuple[Case, list[Push]]:
    """Two streams of exact rows, and pushes of them in which rows come late."""
    cut: list[Push] = []
    for first in range(0, 100 * draw(st.integers(1, 4)), 100):
        rows = [draw(st.lists(st.tuples(_PLACE, _TIME), max_size=5)) for _ in range(2)]
        cut.append({name: rows_at(own, first) for name, own in zip("ab", rows, strict=True)})
    assume(any(len(table) for push in cut for table in push.values()))
    streams = tuple(
        ap.Stream(None, key="id", time="ts", value=ap.Exact("x0"), name=name, lateness=_LATE) for name in "ab"
    )
    tables = tuple(pa.concat_tables([push[name] for push in cut]) for name in "ab")
    return Case(tables, streams, 1, 0.25, 0.5, draw(CERTAIN)), cut


def sides_of(tables: Iterable[pa.Table]) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """The rows that answers report alone, and those of pairs, as (stream, key)."""
    single: set[tuple[str, int]] = set()
    paired: set[tuple[str, int]] = set()
    for row in pa.concat_tables(tables, promote_options="permissive").to_pylist():
        own = {(row[f"{side}_stream"], row[f"{side}_key"]) for side in ("left", "right") if row[f"{side}_stream"]}
        (paired if len(own) == 2 else single).update(own)
    return single, paired


def check_when_alone(
    cut: list[Push],
    rejected: Iterable[dict[str, Any]],
    reported_alone: set[tuple[str, int]],
    complete: int,
    paired_after: Callable[[list[Push]], set[tuple[str, int]]],
) -> None:
    """Try a partner of each row, as early as one may come: a row that was reported gets none, all others do.

    Rows of that very time may push others out, which are reported once it is over.
    """
    paired, now = paired_after([]), max(0, complete // 1_000_000)
    out = paired | {(one["stream"], one["key"]) for one in rejected}
    for stream, other in ("ab", "ba"):
        rows = [row for push in cut for row in push[stream].to_pylist() if (stream, row["id"]) not in out]
        at_once = any(row["ts"] == now for push in cut for row in push[stream].to_pylist())
        for place in {row["x0"] for row in rows}:
            partner = {stream: rows_at([]), other: rows_at([(int(place), now)], 1000)}
            gets_one = paired_after([partner])
            for row in rows:
                who = stream, row["id"]
                if who in reported_alone:
                    assert row["ts"] < now
                    assert who not in gets_one
                elif row["x0"] == place and row["ts"] < now and not at_once:
                    assert who in gets_one


@settings(max_examples=25)
@given(streamed())
def test_a_row_is_reported_alone_when_no_row_that_may_still_come_is_its_partner(
    given: tuple[Case, list[Push]],
) -> None:
    """After any push: a row that has been reported gets no partner, whatever comes; one that has not can get one."""
    case, cut = given
    call = call_of(case)
    call = replace(call, plan=replace(call.plan, how="full"))

    def paired_after(more: list[Push]) -> set[tuple[str, int]]:
        engine = LocalJoin(call)
        tables = [engine.push(push) for push in [*cut, *more]]
        return sides_of([*tables, engine.drain()])[1]

    engine = LocalJoin(call)
    single, _ = sides_of([engine.push(push) for push in cut])
    check_when_alone(cut, engine.rejects().to_pylist(), single, engine.bucket.complete, paired_after)
