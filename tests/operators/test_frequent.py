"""Frequent values of windows, against possible worlds."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from tests.helpers import naive_relational as naive
from tests.operators.test_relational import answers_of, cases

if TYPE_CHECKING:
    from tests.operators.test_relational import Case


def counts(window: naive.Window) -> dict[float, Fraction]:
    """How many existing rows of a window have each value, in the mean over the worlds."""
    found: dict[float, Fraction] = defaultdict(Fraction)
    for world in product(*([(None, 1 - row.mass), *row.samples] for row in window.rows)):
        chance = Fraction(1)
        for _, weight in world:
            chance *= weight
        values = [value for value, _ in world if value is not None]
        for value in values if window.size is None else values[-window.size :]:
            found[value + 0.0] += chance
    return found


@settings(max_examples=150)
@given(cases(most=6), st.sampled_from([1, 20, 25, 50, 99]), st.data())
def test_counts_are_those_of_the_possible_worlds(case: Case, percent: int, data: st.DataObject) -> None:
    """Under every window; by hand as at once."""
    if case.model in ("gaussian", "ball"):
        return
    name = f"frequent{percent}"
    result = ap.window_aggregate(case.stream, {"x": name}, window=case.window)
    found = answers_of(result)
    expected: dict[tuple[Any, int], list[naive.Window]] = defaultdict(list)
    for window in naive.windows(case.naive_rows, case.window):
        expected[window.group, window.time].append(window)
    assert found.keys() == expected.keys()
    for at, windows in expected.items():
        for row, window in zip(found[at], windows, strict=True):
            check(row[f"x_{name}"], counts(window), Fraction(percent, 100))
    stream = ap.Stream(
        None,
        key="id",
        time="ts",
        value=case.stream.value,
        existence=case.stream.existence,
        partition_by=case.stream.partition_by,
    )
    hand = ap.WindowAggregate(stream, {"x": name}, window=case.window)
    rows = sorted(case.rows, key=lambda row: row["ts"])
    cut = data.draw(st.integers(0, len(rows)))
    parts = [hand.push(pa.Table.from_pylist(part, schema=case.table.schema)) for part in (rows[:cut], rows[cut:])]
    parts = [part for part in (*parts, hand.drain()) if part.num_columns]
    by_hand = answers_of(pa.concat_tables(parts)) if parts else {}
    if not isinstance(case.window, ap.TumblingWindow):
        assert by_hand == found


def check(listed: list[dict[str, float]], exact: dict[float, Fraction], share: Fraction) -> None:
    total = sum(exact.values(), Fraction(0))
    least = [value for value, count in exact.items() if count >= total * (share - Fraction(1, 10**12)) and count]
    assert sorted(row["value"] for row in listed) == sorted(least)
    for row in listed:
        assert row["count"] == pytest.approx(float(exact[row["value"]]), rel=1e-12)
    order = [(-row["count"], row["value"]) for row in listed]
    assert all(a[0] <= b[0] + 1e-12 for a, b in pairwise(order))


@pytest.mark.parametrize("window", [ap.TimeWindow(3000.0), ap.UncertainCountWindow(2000, confidence=0.95)])
def test_large_windows_are_exact(window: Any) -> None:
    """Thousands of rows: a walk from the newest one back, with the mass function of how many of those so far exist."""
    chance = np.random.default_rng(3)
    n = 4000
    value, p = np.floor(chance.exponential(2.0, n)), chance.uniform(0.5, 1.0, n)
    rows = pa.table({"id": np.arange(n), "ts": np.arange(n), "x": value, "p": p})
    stream = ap.Stream(rows, key="id", time="ts", value="x", existence="p")
    last = ap.window_aggregate(stream, {"x": "frequent5"}, window=window).slice(n - 1).to_pylist()[0]["x_frequent5"]
    counts = dict.fromkeys(range(20), 0.0)
    few = np.zeros(2000)  # of an uncertain window: fewer rows than it is long
    few[0] = 1.0
    for i in range(n - 1, -1, -1):
        inside = float(i >= n - 3001)
        if isinstance(window, ap.UncertainCountWindow):
            inside = few.sum()
            if 1.0 - inside >= 0.95 - 1e-9:
                break
            few = few * (1.0 - p[i]) + np.append(0.0, few[:-1]) * p[i]
        counts[int(value[i])] += inside * p[i]
    expected = {v: count for v, count in counts.items() if count >= 0.05 * sum(counts.values())}
    assert {row["value"]: row["count"] for row in last} == pytest.approx(expected, rel=1e-9)
    assert list(expected) == [row["value"] for row in last]


def test_certain_rows_are_counted() -> None:
    rows = pa.table({"id": range(6), "ts": range(6), "x": [5, 7, 5, 5, 9, 7]})
    stream = ap.Stream(rows, key="id", time="ts", value="x")
    found = ap.window_aggregate(stream, {"x": ["frequent33", "max"]}, window=ap.TumblingWindow(6))
    assert found.column_names == ["time", "x_frequent33", "x_max", "x_max_std", "x_max_exists"]
    assert found["x_frequent33"].to_pylist() == [[{"value": 5.0, "count": 3.0}, {"value": 7.0, "count": 2.0}]]


@pytest.mark.parametrize("value", [ap.Gaussian("x", sigma=1.0), ap.Ball("x", radius=1.0)])
def test_values_that_are_spread_have_none(value: Any) -> None:
    stream = ap.Stream(pa.table({"id": [1], "ts": [1], "x": [1.0]}), key="id", time="ts", value=value)
    with pytest.raises(ap.BadArgument, match="Frequent values are of rows whose values are listed"):
        ap.window_aggregate(stream, {"x": "frequent5"}, window=5)


def test_a_stream_without_rows_has_no_answers() -> None:
    rows = pa.table({"id": pa.array([], pa.int64()), "ts": pa.array([], pa.int64()), "x": pa.array([], pa.float64())})
    found = ap.window_aggregate(ap.Stream(rows, key="id", time="ts", value="x"), {"x": "frequent5"}, window=5)
    assert found.num_rows == 0
