"""Windows of every kind in process: equal to the twin, in any order of arrival, and so are their changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.errors import BadArgument
from tests.helpers import hands, naive, sensing, strategies

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KINDS = ("count", "delta", "tumble", "uncertain", "uncertain-delta")
ALL = ("time", *KINDS)
_SIDES = ("left_stream", "left_key", "left_time", "right_stream", "right_key", "right_time")


# --- equal to the twin ------------------------------------------------------------------------------------------


def _check_twin(case: strategies.Case) -> None:
    result, expected = case.run(), case.expected()
    naive.assert_same_answers(result, expected.answers)
    naive.assert_same_rejects(ap.rejects(result), expected.rejects)
    naive.assert_same_changes(replace(case, emit="changes").run(), case.expected_changes())


@settings(max_examples=60)
@given(strategies.cases(windows=KINDS, most=8))
def test_answers_rejects_and_changes_are_those_of_the_twin(case: strategies.Case) -> None:
    """Count, delta and tumbling windows over one to four streams, in groups or not."""
    _check_twin(case)


@settings(max_examples=50)
@given(strategies.cases(most=6))
def test_changes_under_time_windows_are_those_of_the_twin(case: strategies.Case) -> None:
    """A pair leaves when the first of its rows does."""
    naive.assert_same_changes(replace(case, emit="changes").run(), case.expected_changes())


@pytest.mark.long
@settings(max_examples=4000)
@given(strategies.cases(windows=ALL, most=10))
def test_windows_are_those_of_the_twin_long(case: strategies.Case) -> None:
    """The same over many more joins."""
    _check_twin(case)


@given(strategies.cases(windows=KINDS, bad=False, most=8), st.sampled_from(("grid", "dense", "sorted")))
def test_the_index_never_changes_an_answer(case: strategies.Case, index: str) -> None:
    """A grid or a scan, bounds or none."""
    usual = naive.answers_of(case.run())
    naive.assert_same_answers(case.run(ap.Options(index=index)), usual)
    naive.assert_same_answers(case.run(ap.Options(index=index, bounds=frozenset())), usual)


# --- in pushes --------------------------------------------------------------------------------------------------


def _without_late(case: strategies.Case, cut: Sequence[dict[int, list[int]]]) -> tuple[strategies.Case, int]:
    """The case without the rows that come too late in these pushes, and how many those are."""
    rows, _ = naive.rows_of(case.rows, case.streams, case.d, case.different, case.attribute)
    late = naive.late_rows(cut, case.streams, rows)
    tables = [
        table.take(pa.array([i for i in range(len(table)) if (s, i) not in late], pa.int64()))
        for s, table in enumerate(case.tables)
    ]
    return replace(case, tables=tuple(tables)), len(late)


def _check_pushed(case: strategies.Case, cut: Sequence[dict[int, list[int]]]) -> None:
    in_time, late = _without_late(case, cut)
    joins = [replace(case, emit=emit).by_hand() for emit in ("matches", "changes")]
    found: list[list[pa.Table]] = [[], []]
    for push in [{}, *cut]:
        for join, tables in zip(joins, found, strict=True):
            tables.append(join.push(**case.frames(push)))
    for join, tables in zip(joins, found, strict=True):
        tables.append(join.drain())
    naive.assert_same_answers(pa.concat_tables(found[0]), in_time.expected().answers)
    naive.assert_same_changes(pa.concat_tables(found[1]), in_time.expected_changes())
    assert [row["reason"] for row in joins[0].rejects().to_pylist()].count("late") == late


@given(st.data())
def test_any_order_within_the_lateness_gives_the_same_answers(data: st.DataObject) -> None:
    """In pushes of any size, drained at the end; rows that come later leave once, as late."""
    case = data.draw(strategies.cases(windows=ALL, lateness=True, most=8))
    _check_pushed(case, data.draw(strategies.pushes(case, late=data.draw(st.booleans()))))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::appulse.LateRows")  # most rows may be late, by chance
@settings(max_examples=4000)
@given(st.data())
def test_any_order_within_the_lateness_gives_the_same_answers_long(data: st.DataObject) -> None:
    """The same over many more joins and orders."""
    case = data.draw(strategies.cases(windows=ALL, lateness=True, most=10))
    _check_pushed(case, data.draw(strategies.pushes(case, late=data.draw(st.booleans()))))


def _bag(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(str(row[name]) for name in _SIDES) for row in table.to_pylist())


def _odds(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((*(str(row[name]) for name in _SIDES), row["probability"]) for row in table.to_pylist())


@settings(max_examples=50)
@given(st.data())
def test_the_changes_so_far_add_up_to_what_stands(data: st.DataObject) -> None:
    """After any push, and at the end: the running sum of changes is the standing answer, from scratch too."""
    case = data.draw(strategies.cases(windows=ALL, lateness=True, bad=False, most=8))
    if data.draw(st.booleans()):
        case = replace(case, streams=tuple(replace(stream, order="arrival") for stream in case.streams))
    joins = [replace(case, emit=emit).by_hand() for emit in ("changes", "matches")]
    standing: Counter[tuple[Any, ...]] = Counter()
    for push in [{}, *data.draw(strategies.pushes(case, late=data.draw(st.booleans()))), None]:
        tables = [join.drain() if push is None else join.push(**case.frames(push)) for join in joins]
        for sign, change in ((1, 1), (-1, -1)):
            part = _bag(tables[0].filter(pa.compute.equal(tables[0]["change"], change)))
            standing.update(part) if sign > 0 else standing.subtract(part)
        told, scratch = (_odds(join.current()) for join in joins)
        assert min(standing.values(), default=0) >= 0
        assert Counter(pair[:-1] for pair in told) == +standing
        assert [pair[:-1] for pair in scratch] == [pair[:-1] for pair in told]
        assert [pair[-1] for pair in scratch] == pytest.approx([pair[-1] for pair in told], abs=1e-9)


def test_what_stands_in_order_of_arrival_is_what_was_answered() -> None:
    """Rows of an uncertain window are in it as they were when their pair was found, whatever their times."""
    for time in (0, 1, 2):
        stream: dict[str, Any] = {"key": "k", "time": "t", "value": ap.Exact("x"), "existence": "e", "order": "arrival"}
        join = hands.similarity_join(
            epsilon=1.0,
            probability=0.01,
            window=ap.UncertainCountWindow(1, 0.99),
            a=ap.Stream(None, **stream),
            b=ap.Stream(None, **stream),
        )
        pushes = ((["a1"], ["b1"], 1), (["a2", "a3"], ["b2"], time))
        answers = [
            join.push(**{name: _sure(keys, t, 0.5) for name, keys in (("a", a), ("b", b))}) for a, b, t in pushes
        ]
        assert _odds(join.current()) == _odds(pa.concat_tables(answers))


def _sure(keys: Sequence[str], time: int, existence: float) -> pa.Table:
    n = len(keys)
    return pa.table({"k": list(keys), "t": [time] * n, "x": [0.0] * n, "e": [existence] * n})


def test_a_pair_leaves_in_the_push_that_moves_the_frontier_beyond_it() -> None:
    """Under time windows, too."""
    streams: dict[str, Any] = {name: _stream() for name in ("a", "b")}
    join = hands.similarity_join(epsilon=1.0, probability=0.5, window=ap.TimeWindow(2), emit="changes", **streams)
    join.push(a=_points([1]), b=_points([1]))
    assert sorted(join.push(a=_points([10]), b=_points([10]))["change"].to_pylist()) == [-1, 1]
    assert _pairs(join.current()) == [("10", "10")]
    assert len(join.push(a=_points([13]))) == 0
    assert len(join.current()) == 1, "b may still bring a row of time 10"


@settings(max_examples=50)
@given(strategies.cases(windows=ALL, bad=False, most=6))
def test_what_stands_in_the_end_is_a_join_from_scratch(case: strategies.Case) -> None:
    """At the last tick."""
    join = case.by_hand()
    join.push(**case.frames({s: list(range(len(table))) for s, table in enumerate(case.tables)}))
    join.drain()
    rows, _ = naive.rows_of(case.rows, case.streams, case.d, case.different, case.attribute)
    last = max((row.micros for row in rows), default=0)
    naive.assert_same_answers(join.current(), case.expected_standing(last))


@given(strategies.cases(windows=ALL, bad=False, most=6))
def test_changes_add_up_at_every_tick(case: strategies.Case) -> None:
    """Under time windows a pair still holds at the time of its -1, under others it does not."""
    table = replace(case, emit="changes").run()
    unit = case.streams[0].unit
    changes = [(row.pop("change"), naive.micros_of(row.pop("time"), unit) or 0, row) for row in table.to_pylist()]
    holds = isinstance(case.window, ap.TimeWindow)
    rows, _ = naive.rows_of(case.rows, case.streams, case.d, case.different, case.attribute)
    for tick in sorted({row.micros for row in rows}):
        standing: Counter[str] = Counter()
        kept: dict[str, naive.Answer] = {}
        for change, micros, row in changes:
            if (micros <= tick) if change > 0 or not holds else (micros < tick):
                standing[str(row)] += change
                kept[str(row)] = naive.Answer(**row)
        found = [kept[text] for text, n in standing.items() for _ in range(n)]
        naive.assert_same_answers(found, case.expected_standing(tick))


# --- order of arrival, silence, the end -------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.data())
def test_in_order_of_arrival_every_push_comes_after_the_one_before(data: st.DataObject) -> None:
    """As if the times of each push were all later than those of the push before; nothing waits, nothing is late."""
    case = data.draw(strategies.cases(windows=("count", "delta"), bad=False, most=8))
    cut = data.draw(strategies.pushes(case, late=True))
    streams = tuple(replace(stream, order="arrival") for stream in case.streams)
    join = replace(case, streams=streams).by_hand()
    answers = pa.concat_tables([join.push(**case.frames(push)) for push in [{}, *cut]])
    assert len(join.rejects()) == 0
    assert len(join.drain()) == 0
    push_of = {(s, i): k for k, push in enumerate(cut) for s, numbers in push.items() for i in numbers}
    tables = []
    for s, table in enumerate(case.tables):
        micros = [naive.micros_of(time, "s") or 0 for time in table["ts"].to_pylist()]
        times = [push_of[s, i] * 1e4 + (t % 86_400_000_000) / 1e6 for i, t in enumerate(micros)]
        column = table.schema.get_field_index("ts")
        tables.append(table.set_column(column, "ts", pa.array(times, pa.float64())))
    expected = replace(case, tables=tuple(tables)).expected().answers
    sides = ("left_stream", "left_key", "right_stream", "right_key")
    found = Counter(tuple(str(row[name]) for name in sides) for row in answers.to_pylist())
    sure = Counter(tuple(str(getattr(a, name)) for name in sides) for a in expected if not a.doubtful)
    every = Counter(tuple(str(getattr(a, name)) for name in sides) for a in expected)
    if not any(answer.unordered for answer in expected):
        assert sure <= found <= every


def _points(times: Sequence[float]) -> pa.Table:
    return pa.table({"id": [f"{t:g}" for t in times], "ts": list(times), "x": [0.0] * len(times)})


def _stream(**settings: Any) -> ap.Stream:
    return ap.Stream(None, key="id", time="ts", value=ap.Exact("x"), **settings)


def _join(window: Any, **settings: Any) -> ap.SimilarityJoin:
    left, right = _stream(**settings), _stream(**settings)
    return hands.similarity_join(left=left, right=right, epsilon=1.0, probability=1.0, window=window)


def _pairs(table: pa.Table) -> list[tuple[str, str]]:
    return sorted(zip(table["left_key"].to_pylist(), table["right_key"].to_pylist(), strict=True))


def test_a_count_window_waits_until_the_tick_is_complete() -> None:
    """A row of the slowest stream's newest time completes all that was before it."""
    join = _join(ap.CountWindow(1))
    assert _pairs(join.push(left=_points([1, 2, 3]), right=_points([1]))) == []
    assert _pairs(join.push(right=_points([3]))) == [("1", "1"), ("2", "1")]
    assert _pairs(join.drain()) == [("3", "3")]


def test_a_silent_stream_holds_the_others_back_for_ever_unless_told() -> None:
    """With ``idle_after`` the others go on once it has been silent for so long, by their time."""
    window = ap.CountWindow(2)
    patient, brisk = _join(window), _join(window, idle_after=5)
    for join in (patient, brisk):
        join.push(left=_points([1, 2]), right=_points([1]))
    assert _pairs(patient.push(left=_points([6, 20]))) == []
    assert _pairs(brisk.push(left=_points([6]))) == []
    assert _pairs(brisk.push(left=_points([20]))) == [("1", "1"), ("2", "1"), ("6", "1")]
    assert _pairs(brisk.push(right=_points([10, 21]))) == []
    assert [row["key"] for row in brisk.rejects().to_pylist()] == ["10"]
    assert _pairs(brisk.drain()) == [("20", "1"), ("20", "21"), ("6", "21")]


def test_a_stream_that_never_spoke_is_silent_since_the_first_row() -> None:
    """It has to be shown once, if empty: its columns tell the types."""
    join = _join(ap.CountWindow(2), idle_after=5)
    join.push(left=_points([1]), right=_points([]))
    assert len(join.push(left=_points([4]))) == 0
    assert len(join.push(left=_points([9]))) == 0
    assert len(join.push(left=_points([10]), right=_points([8, 9]))) == 0
    assert [row["key"] for row in join.rejects().to_pylist()] == ["8"]
    assert _pairs(join.drain()) == [("10", "9"), ("4", "9"), ("9", "9")]


def test_a_delta_window_is_a_suffix_also_when_the_attribute_returns() -> None:
    """Once gone never back."""
    rows = pa.table({"id": list("abcd"), "ts": [1, 2, 3, 4], "x": [0.0] * 4, "km": [0.0, 100.0, 1.0, 0.0]})
    stream = ap.Stream(rows, key="id", time="ts", value=ap.Exact("x"))
    pairs = ap.self_join(stream, epsilon=1.0, probability=1.0, window=ap.DeltaWindow("km", 50.0))
    assert _pairs(pairs) == [("c", "d")]
    wider = ap.self_join(stream, epsilon=1.0, probability=1.0, window=ap.DeltaWindow("km", 100.0))
    assert len(wider) == 6


def test_orders_do_not_mix() -> None:
    """All inputs by time, or all by arrival."""
    left, right = _stream(order="arrival"), _stream()
    join = hands.similarity_join(left=left, right=right, epsilon=1.0, probability=1.0, window=ap.CountWindow(1))
    with pytest.raises(BadArgument, match="order differs"):
        join.push(left=_points([1]), right=_points([1]))


@pytest.mark.parametrize(
    "window",
    [
        lambda: ap.CountWindow(0),
        lambda: ap.CountWindow(2.5),  # type: ignore[arg-type]
        lambda: ap.CountWindow(True),
        lambda: ap.DeltaWindow("km", -1.0),
        lambda: ap.DeltaWindow("km", float("nan")),
        lambda: ap.DeltaWindow(3, 1.0),  # type: ignore[arg-type]
        lambda: ap.TumblingWindow(0),
        lambda: ap.TumblingWindow("0 seconds"),
        lambda: ap.TumblingWindow(1.5),  # type: ignore[arg-type]
    ],
)
def test_windows_that_make_no_sense_are_refused(window: Any) -> None:
    """With what to give instead."""
    with pytest.raises(BadArgument, match="give"):
        window()


def test_many_groups() -> None:
    """A hundred thousand groups, all at one place, each with windows of its own."""
    n = 100_000
    rng = np.random.default_rng(1)
    group = np.concatenate([rng.permutation(n) for _ in range(3)])
    table = pa.table({"id": np.arange(3 * n), "ts": np.arange(3 * n), "x": np.zeros(3 * n), "g": group})
    stream = ap.Stream(table, key="id", time="ts", value=ap.Exact("x"), partition_by="g")
    pairs = ap.self_join(stream, epsilon=1.0, probability=1.0, window=ap.CountWindow(2))
    assert len(pairs) == 2 * n
    left, right = (pairs[f"{side}_key"].to_numpy() for side in ("left", "right"))
    assert (group[left] == group[right]).all()


def test_a_window_of_a_million_rows() -> None:
    """One row a second on either side: the same pairs as under a time window as long."""
    n, size = 1_300_000, 1_000_000
    rng = np.random.default_rng(3)
    tables = [
        pa.table({"id": np.arange(n), "ts": np.arange(n), "x": rng.random(n) * 1e6, "y": rng.random(n) * 1e3})
        for _ in range(2)
    ]
    sides = [ap.Stream(table, key="id", time="ts", value=ap.Exact("x", "y")) for table in tables]
    found = []
    for window in (ap.CountWindow(size), ap.TimeWindow(size - 1)):
        pairs = ap.similarity_join(*sides, epsilon=5.0, probability=1.0, window=window)
        order = pa.compute.sort_indices(pairs, [("left_key", "ascending"), ("right_key", "ascending")])
        found.append(pairs.take(order))
    assert len(found[0]) > 10_000
    assert found[0].equals(found[1])


def test_windows_that_are_cut_tell_so() -> None:
    """Rows that `max_rows` alone pushed out are counted."""
    rows = pa.table({"id": [1, 2, 3], "ts": [1.0, 2.0, 3.0], "x": [0.0] * 3, "p": [0.5] * 3})
    stream = ap.Stream(rows, key="id", time="ts", value=ap.Exact("x"), existence="p")
    window = ap.UncertainCountWindow(1, confidence=1.0, max_rows=2)
    with pytest.warns(ap.CappedWindow, match="1 rows left an UncertainCountWindow"):
        ap.self_join(stream, epsilon=1.0, probability=1e-6, window=window)


@pytest.mark.parametrize("window", ["2 seconds", 2, 2.0, timedelta(seconds=2)])
def test_a_duration_is_a_time_window(window: Any) -> None:
    """In every call that takes a window."""
    table = pa.table({"k": ["a", "b", "a"], "t": [0, 1, 3], "x": [0.0, 0.0, 0.0]})
    streams = [ap.Stream(table, key="k", time="t", value=ap.Exact("x"), name=name) for name in ("r", "s")]
    joined = pa.table({"query": [1], "condition": ["r.x = s.x"]})
    settings: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5}
    sensors: dict[str, Any] = {"sensor": "k", "time": "t", "value": "x"}
    calls: list[Callable[[Any], pa.Table]] = [
        lambda w: ap.similarity_join(*streams, window=w, **settings),
        lambda w: ap.self_join(streams[0], window=w, **settings),
        lambda w: ap.match_queries(*streams, queries=joined, window=w),
        lambda w: ap.window_aggregate(streams[0], {"x": "count"}, window=w),
        lambda w: sensing.sensor_join(table, window=w, **sensors),
        lambda w: sensing.by_hand(ap.SensorJoin, window=w, **sensors).push(table),
    ]
    for call in calls:
        assert call(window).equals(call(ap.TimeWindow(2)))
