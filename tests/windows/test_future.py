"""Rows from the future: one clock that is ahead must not make the rows of all others late."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.saving import clocks, set_clocks
from appulse.errors import LateRows
from appulse.model.strings import Bytes
from appulse.windows.future import FutureGuard
from tests.helpers import hands

HOUR = 3_600_000_000
SECOND = 1_000_000


def judged(guard: FutureGuard, rows: list[tuple[float, str]], now: int | None = None) -> tuple[list[int], FutureGuard]:
    """The places of the rows (seconds, key) that are from the future, and the guard after them."""
    times = np.array([round(at * SECOND) for at, _ in rows], np.int64)
    found, after = guard.judge(times, Bytes.of([key.encode() for _, key in rows]), now)
    assert len(found.details) == len(found)
    return sorted(found.rows.tolist()), after


def guard() -> FutureGuard:
    return FutureGuard(HOUR, wall=False)


STEADY = [(float(i), f"k{i % 7}") for i in range(100)]


def test_a_clock_a_day_ahead_is_refused_in_one_batch() -> None:
    assert judged(guard(), [*STEADY[:50], (90_000.0, "bad"), *STEADY[50:]])[0] == [50]


def test_a_clock_a_day_ahead_is_refused_row_by_row_and_moves_nothing() -> None:
    known = guard()
    for i, row in enumerate([*STEADY[:50], (90_000.0, "bad"), *STEADY[50:]]):
        found, known = judged(known, [row])
        assert found == ([0] if i == 50 else [])
    assert known.newest == 99 * SECOND


def test_a_device_that_stays_ahead_and_two_that_differ_are_refused_each_time() -> None:
    known = judged(guard(), STEADY)[1]
    for i in range(10):
        rows = [(100.0 + i, "k1"), (90_000.0 + i, "bad"), (120_000.0 + 9 * i, "worse")]
        found, known = judged(known, rows)
        assert found == [1, 2]


def test_a_key_that_goes_on_alone_is_in_order() -> None:
    """One cab at night: an hour and more past all others, but not past its own rows."""
    known = judged(guard(), STEADY)[1]
    for i in range(1, 100):
        found, known = judged(known, [(99.0 + i * 600.0, "k1")])
        assert found == []


def test_a_key_that_comes_back_alone_is_believed_from_its_eighth_row_on() -> None:
    known = judged(guard(), STEADY)[1]
    refused = 0
    for i in range(20):
        found, known = judged(known, [(30_000.0 + i, "k1")])
        refused += len(found)
    assert refused == 7
    known = judged(guard(), STEADY)[1]
    assert judged(known, [(30_000.0 + i, "k1") for i in range(20)])[0] == []


def test_after_a_pause_of_all_only_the_first_row_alone_is_refused() -> None:
    known = judged(guard(), STEADY)[1]
    assert judged(known, [(30_000.0, "k1"), (30_001.0, "k2")])[0] == []
    found, known = judged(known, [(30_000.0, "k1")])
    assert found == [0]
    assert judged(known, [(30_001.0, "k2")])[0] == []


def test_a_slow_stream_has_no_row_from_the_future() -> None:
    known = guard()
    chance = np.random.default_rng(5)
    for i, at in enumerate(np.cumsum(chance.exponential(4 * 3600, 500)).tolist()):
        found, known = judged(known, [(at, f"quake {i}")])
        assert found == []


@pytest.mark.parametrize("size", [1, 10, 1000])
@pytest.mark.parametrize("at", [0, 1, 60], ids=["first", "second", "late"])
def test_a_clock_reset_to_1970_lets_no_other_clock_go_ahead(at: int, size: int) -> None:
    start = 1_700_000_000.0
    rows = [(start + i, f"k{i % 7}") for i in range(80)]
    ahead = [(start + 86_400.0, "bad"), (start + 120_000.0, "worse")]
    rows = [*rows[:at], (0.0, "reset"), *rows[at:60], *ahead, *rows[60:]]
    known, refused = guard(), []
    for begin in range(0, len(rows), size):
        found, known = judged(known, rows[begin : begin + size])
        refused += [rows[begin + i][1] for i in found]
    assert refused == ["bad", "worse"]
    assert known.newest == round((start + 79) * SECOND)


def test_rows_behind_the_newest_are_not_from_the_future_beside_rows_of_1970() -> None:
    start = 1_700_000_000.0
    known = judged(guard(), [(start + at, key) for at, key in STEADY])[1]
    rows = [(0.0, "reset"), (1.0, "reset"), (start + 86_400.0, "bad"), (start + 98.0, "k1"), (start + 99.0, "k1")]
    assert judged(known, rows)[0] == [2]


def test_a_slow_stream_with_a_clock_reset_to_1970_has_no_row_from_the_future() -> None:
    chance = np.random.default_rng(5)
    times = 1.7e9 + np.cumsum(chance.exponential(4 * 3600, 500))
    known = judged(guard(), [(0.0, "reset")])[1]
    for i, at in enumerate(times.tolist()):
        found, known = judged(known, [(at, f"quake {i}")])
        assert found == []


def test_a_stream_of_one_key_is_compared_with_its_other_rows() -> None:
    one = [(at, "only") for at, _ in STEADY]
    assert judged(guard(), [*one[:50], (90_000.0, "only"), *one[50:]])[0] == [50]
    known = judged(guard(), one)[1]
    found, known = judged(known, [(90_000.0, "only")])
    assert found == [0]
    assert judged(known, [(101.0, "only")])[0] == []


def test_rows_of_now_are_in_order_whatever_came_before() -> None:
    known = FutureGuard(HOUR, wall=True)
    now = 10**15
    _, known = judged(known, STEADY, now)
    at = now / SECOND
    assert judged(known, [(at, "k1")], now)[0] == []
    assert judged(known, [(at - 3 * 3600, "k1")], now)[0] == [0]
    assert judged(known, [(at, "k1"), (at + 2 * 3600, "k2"), (at + 2 * 3600, "k3")], now)[0] == [1, 2]


def test_without_a_limit_nothing_is_from_the_future() -> None:
    assert judged(FutureGuard(None, wall=True), [(1.0, "a"), (1e9, "b")])[0] == []


@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from("abc")), min_size=1, max_size=30),
    st.lists(st.integers(1, 29), max_size=4),
)
def test_within_the_limit_no_cut_of_a_stream_has_rows_from_the_future(
    rows: list[tuple[int, str]], cuts: list[int]
) -> None:
    known = guard()
    edges = [0, *sorted(cuts), len(rows)]
    for begin, end in pairwise(edges):
        found, known = judged(known, [(float(at), key) for at, key in rows[begin:end]])
        assert found == []
    assert known.newest == max(at for at, _ in rows) * SECOND


@pytest.mark.parametrize("several", [False, True])
def test_the_newest_of_two_keys_is_that_of_a_scan(several: bool) -> None:
    chance = np.random.default_rng(11)
    for _ in range(200):
        keys = [f"{chance.integers(3 if several else 1)}" for _ in range(12)]
        times = [float(at) for at in chance.integers(0, 9, 12)]
        known = guard()
        for begin in (0, 5):
            known = judged(known, list(zip(times, keys, strict=True))[begin : begin + (5 if begin == 0 else 7)])[1]
        top = max(times)
        assert known.newest == top * SECOND
        first = [key for at, key in zip(times, keys, strict=True) if at == top]
        others = {key: max(at for at, own in zip(times, keys, strict=True) if own == key) for key in set(keys)}
        expected = top if len(set(first)) > 1 else max((at for k, at in others.items() if k != first[0]), default=None)
        assert known.runner_up == (-(1 << 62) if expected is None else expected * SECOND)


# Through the calls: 40 devices report for half an hour; after ten minutes one row is a day ahead.


def track(ahead_at: int | None = 4_000, n: int = 12_000, start: float = 0.0) -> pa.Table:
    """Rows of 40 devices, four a second, and perhaps one whose clock is a day ahead."""
    chance = np.random.default_rng(3)
    time = start + np.arange(n) * 0.15 + chance.uniform(0.0, 2.0, n)
    if ahead_at is not None:
        time[ahead_at] += 86_400.0
    device = chance.integers(0, 40, n)
    return pa.table({"id": device, "t": time, "x": chance.uniform(0, 1000, n), "v": np.rint(chance.uniform(0, 9, n))})


def stamped(table: pa.Table) -> pa.Table:
    """With timestamps of long ago."""
    times = pa.array((np.asarray(table["t"]) * 1e6).astype(np.int64) + 1_700_000_000_000_000).view(pa.timestamp("us"))
    return table.set_column(table.schema.get_field_index("t"), "t", times)


def stream(name: str | None = None, **settings: Any) -> ap.Stream:
    given = {"key": "id", "time": "t", "value": ap.Exact("x"), "lateness": "2 minutes", "name": name, **settings}
    return ap.Stream(None, **given)


def reasons(rejects: pa.Table) -> dict[str, int]:
    return {row["values"]: row["counts"] for row in rejects["reason"].value_counts().to_pylist()}


JOIN: dict[str, Any] = {"epsilon": 0.1, "probability": 0.5, "window": ap.TimeWindow(5)}


@pytest.mark.parametrize("step", [1, 40, 1000])
@pytest.mark.parametrize("of_time", [False, True])
def test_a_self_join_by_hand_loses_the_bad_row_alone(step: int, of_time: bool) -> None:
    n = 12_000 if step > 1 else 1_200
    table = track(ahead_at=n // 3, n=n)
    table = stamped(table) if of_time else table
    join = hands.similarity_join(rows=stream(), **JOIN)
    for begin in range(0, n, step):
        join.push(rows=table.slice(begin, step))
    join.drain()
    rejects = join.rejects()
    assert reasons(rejects) == {"future": 1}
    assert rejects["key"].to_pylist() == [table["id"][n // 3].as_py()]
    assert "ahead of all other rows" in rejects["detail"][0].as_py()


def test_answers_are_those_without_the_bad_row() -> None:
    table = track()
    good = table.take(np.delete(np.arange(len(table)), 4_000))
    found = []
    for given_rows in (table, good):
        join = hands.similarity_join(rows=stream(), **JOIN)
        parts = [join.push(rows=given_rows.slice(begin, 1000)) for begin in range(0, len(given_rows), 1000)]
        found.append(sorted(map(str, pa.concat_tables([*parts, join.drain()]).to_pylist())))
    assert found[0] == found[1]
    assert len(found[0]) > 50


def test_two_streams_each_with_a_bad_row_go_on() -> None:
    one, other = track(), track(ahead_at=5_000)
    for window in (ap.TimeWindow(5), ap.CountWindow(40)):
        join = hands.similarity_join(one=stream(), other=stream(), **(JOIN | {"window": window}))
        for begin in range(0, len(one), 1000):
            join.push(one=one.slice(begin, 1000), other=other.slice(begin, 1000))
        assert reasons(join.rejects()) == {"future": 2}


def test_every_row_is_admitted_on_request_and_the_damage_is_announced() -> None:
    table = track()
    join = hands.similarity_join(rows=stream(ahead=float("inf")), **JOIN)

    def push_all() -> None:
        for begin in range(0, len(table), 1000):
            join.push(rows=table.slice(begin, 1000))

    with pytest.warns(LateRows, match=r"1,000 of the last 1,000 rows came late.*has a row of 8") as caught:
        push_all()
    assert len(caught) == 7
    assert reasons(join.rejects())["late"] == 7000


def test_a_few_late_rows_are_not_announced() -> None:
    table = track(ahead_at=None)
    join = hands.similarity_join(rows=stream(lateness=1), **JOIN)
    join.push(rows=table)
    join.push(rows=pa.concat_tables([table.slice(0, 40), stamped_later(table, 60)]))
    assert reasons(join.rejects()) == {"late": 40}


def stamped_later(table: pa.Table, n: int) -> pa.Table:
    later = pa.array(np.asarray(table["t"])[:n] + 1_900.0)
    return table.slice(0, n).set_column(table.schema.get_field_index("t"), "t", later)


def test_a_saved_guard_goes_on_as_if_it_had_not_been_saved() -> None:
    rows = [(0.0, "reset"), *((1.7e9 + i, f"k{i % 7}") for i in range(50)), (1.7e9 + 86_400.0, "bad")]
    table = pa.table({"id": [key for _, key in rows], "t": [at for at, _ in rows], "x": [0.0] * len(rows)})
    join = ap.SimilarityJoin(stream(), **JOIN)
    join.push(table)
    saved = json.loads(json.dumps(clocks(join._engine)))
    other = ap.SimilarityJoin(stream(), **JOIN)
    other.push(table.slice(1, 2))
    set_clocks(other._engine, saved)
    assert clocks(other._engine) == clocks(join._engine)
    assert json.loads(json.dumps(clocks(other._engine))) == saved
    other.push(pa.table({"id": ["worse"], "t": [1.7e9 + 120_000.0], "x": [0.0]}))
    assert reasons(other.rejects()) == {"future": 1}
    for guard_of_before in saved["guards"]:
        del guard_of_before["longest"]
    set_clocks(other._engine, saved)
    assert [known["longest"] for known in clocks(other._engine)["guards"]] == [()]


def test_tables_have_no_future() -> None:
    table = track()
    result = ap.self_join(ap.Stream(table, key="id", time="t", value=ap.Exact("x")), **JOIN)
    assert len(ap.rejects(result)) == 0


def test_sensors_and_queries_over_windows_have_the_same_guard() -> None:
    table = track()
    sensors = ap.SensorJoin(ap.Stream(None, key="id", time="t", value="v", lateness=10), window=2)
    queries = ap.QueryMatch(stream("a"), stream("b"), probability=1.0)
    queries.change(pa.table({"query": [1], "condition": ["a.x = b.x WITHIN 5 SECONDS"]}))
    for begin in range(0, len(table), 1000):
        part = table.slice(begin, 1000)
        sensors.push(part)
        queries.push(a=part, b=part)
    assert reasons(sensors.rejects()) == {"future": 1}
    assert reasons(queries.rejects()) == {"future": 2}


def test_a_wrong_limit_is_refused() -> None:
    for wrong in ("soon", -1, float("nan"), float("-inf"), [1]):
        with pytest.raises(ap.BadArgument, match="ahead"):
            stream(ahead=wrong)
