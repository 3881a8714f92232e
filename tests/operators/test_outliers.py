"""Rows with few partners: those of possible worlds, whatever the window and the cut into pushes."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.join.local import LocalJoin
from appulse.engines.join.outliers import LEAST, OutlierSettings, resolve_outliers
from appulse.kernels.few_partners import fewer_than
from tests.helpers import naive
from tests.helpers.strategies import Case, pushes, wider

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from appulse.engines.join.call import JoinCall
    from tests.helpers.naive import Row

WINDOWS = ("time", "time", "time", "count", "delta", "tumble", "uncertain")
Found = Counter[tuple[Any, ...]]


@st.composite
def questions(draw: st.DrawFn, /, **kinds: Any) -> tuple[Case, dict[str, Any]]:
    """A case of a stream, or of one and a reference, and what is asked beside it."""
    case = draw(wider(**({"windows": WINDOWS} | kinds)).filter(lambda case: len(case.streams) < 3))
    asked = {"epsilon": case.epsilon, "window": case.window, "fewer_than": draw(st.integers(1, 4) | st.just(65))}
    return case, asked | {"probability": draw(st.sampled_from([case.probability, 0.5, 0.05]))}


def expected(case: Case, asked: dict[str, Any]) -> Found:
    """By the twin, of all rows."""
    rows, _ = naive.rows_of(case.rows, case.streams, case.d, None, case.attribute, naive.dimension_of(case.window))
    last = max((row.micros for row in rows), default=0)
    return expected_of(rows, naive.meetings(rows, case.names, case.window, last), case, asked)


def expected_of(rows: Sequence[Row], meetings: Sequence[naive.Meeting], case: Case, asked: dict[str, Any]) -> Found:
    """By the twin: the distribution of how many partners each row has, as exact fractions where chances are exact."""
    chances, within = defaultdict(list), naive.groups_by_number(asked["epsilon"], case.streams, case.d)
    for a, b, _, _, factor in meetings:
        if len(case.streams) == 2 and a.stream == b.stream:
            continue
        chance = Fraction(naive.probability(a.value, b.value, within) * factor)
        if chance >= LEAST:
            for row in (a, b):
                chances[row].append(min(Fraction(1), chance / row.value.mass))
    found: Found = Counter()
    for row in rows:
        few = naive.at_most(asked["fewer_than"] - 1, chances[row])
        if row.stream == 0 and few >= naive.threshold_of(asked["probability"]):
            told = _rounded(float(sum(chances[row]))), _rounded(float(few))
            found[naive.plain(row.key), row.micros, *told] += 1
    return found


def reported(tables: Iterable[pa.Table], case: Case) -> Found:
    found: Found = Counter()
    for row in pa.concat_tables(tables).to_pylist():
        micros = naive.micros_of(row["time"], case.streams[0].unit)
        found[naive.plain(row["key"]), micros, _rounded(row["expected"]), _rounded(row["probability"])] += 1
    return found


def _rounded(value: float) -> float:
    """To six digits, and no number of few digits is halfway between two."""
    return round(value + 3e-8, 6)


def call_of(case: Case, asked: dict[str, Any]) -> JoinCall:
    streams = [replace(s, name=name) for s, name in zip(case.streams, case.names, strict=True)]
    schemas = [table.schema for table in case.tables]
    return resolve_outliers(streams, schemas, OutlierSettings(**asked))


@settings(max_examples=60)
@given(questions())
def test_the_rows_with_few_partners_are_those_of_the_twin(question: tuple[Case, dict[str, Any]]) -> None:
    case, asked = question
    found: pa.Table = ap.outliers(*case.framed(), **asked)
    assert reported([found], case) == expected(case, asked)


@given(st.data())
def test_pushed_in_any_cut_a_row_is_reported_once_its_window_is_over(data: st.DataObject) -> None:
    case, asked = data.draw(questions(lateness=True))
    engine = LocalJoin(call_of(case, asked))
    tables = []
    for push in data.draw(pushes(case)):
        tables.append(engine.push(case.frames(push)))
        if isinstance(case.window, ap.TimeWindow):
            window, frontier = case.window.micros(tuple(case.names))[0], engine.bucket.complete
            assert all(micros + window < frontier for _, micros, _, _ in reported(tables[-1:], case))
    tables.append(engine.drain())
    assert reported(tables, case) == expected(case, asked)
    assert engine.bucket.pairs is None or len(engine.bucket.pairs) == 0


@given(st.lists(st.fractions(0, 1), max_size=9), st.integers(1, 6) | st.just(1 << 60))
def test_few_of_some_events_as_in_all_worlds(chances: list[Fraction], n: int) -> None:
    few, total = np.empty(1), np.empty(1)
    fewer_than(np.array(chances, float), np.array([0, len(chances)]), n, few, total)
    worlds = Fraction(0)
    for world in product((False, True), repeat=len(chances)):
        if sum(world) < n:
            worlds += prod(p if comes else 1 - p for p, comes in zip(chances, world, strict=True))
    assert few[0] == pytest.approx(float(worlds), abs=1e-12)
    assert total[0] == pytest.approx(float(sum(chances)), abs=1e-12)


def test_many_partners_leave_no_rounding_behind() -> None:
    """10,000 partners of which each is unlikely: the Poisson limit, relative to its size."""
    n, p = 10_000, 1e-4
    few, total = np.empty(1), np.empty(1)
    fewer_than(np.full(n, p), np.array([0, n]), 3, few, total)
    terms = [(1 - p) ** n, n * p * (1 - p) ** (n - 1), n * (n - 1) / 2 * p**2 * (1 - p) ** (n - 2)]
    assert few[0] == pytest.approx(sum(terms), rel=1e-12)


def _stream(k: list[Any], x: list[float], **more: Any) -> ap.Stream[pa.Table]:
    columns = {"k": k, "t": [0.0] * len(k), "x": x}
    settings = {name: more[name] for name in ("carry", "name") if name in more}
    columns |= {name: more[name] for name in more if name not in settings}
    existence = "p" if "p" in more else None
    return ap.Stream(pa.table(columns), key="k", time="t", value=ap.Exact("x"), existence=existence, **settings)


def test_a_mote_unlike_its_neighbours_is_named_with_what_it_carries() -> None:
    stream = _stream(["a", "b", "c", "odd"], [20.0, 20.5, 21.0, 35.0], room=["x", "x", "x", "cellar"], carry=["room"])
    found = ap.outliers(stream, epsilon=2, fewer_than=2, probability=0.9, window=1)
    assert found.to_pylist() == [{"key": "odd", "time": 0.0, "expected": 0.0, "probability": 1.0, "room": "cellar"}]


@pytest.mark.parametrize("name", ["key", "time", "expected", "probability"])
def test_a_column_that_is_carried_has_a_name_of_its_own(name: str) -> None:
    stream = _stream(["a", "odd"], [20.0, 35.0], **{name: [1.0, 2.0]}, carry=[name])
    with pytest.raises(ap.BadArgument, match=f"two columns '{name}'"):
        ap.outliers(stream, epsilon=2, fewer_than=2, probability=0.9, window=1)


@pytest.mark.parametrize("name", ["stream", "distance", "left_key"])
def test_a_column_may_have_a_name_that_only_pairs_have(name: str) -> None:
    stream = _stream(["a", "odd"], [20.0, 35.0], **{name: [1.0, 2.0]}, carry=[name])
    assert ap.outliers(stream, epsilon=2, fewer_than=1, probability=0.9, window=1)[name].to_pylist() == [1.0, 2.0]


def test_the_probability_is_that_of_a_row_that_exists() -> None:
    """Whether the row itself exists says nothing about its partners; theirs does."""
    stream = _stream(["a", "b"], [0.0, 0.5], p=[0.25, 0.5])
    found = ap.outliers(stream, epsilon=1, fewer_than=1, probability=0.1, window=1)
    assert found.sort_by("key").to_pylist() == [
        {"key": "a", "time": 0.0, "expected": 0.5, "probability": 0.5},
        {"key": "b", "time": 0.0, "expected": 0.25, "probability": 0.75},
    ]
    reference = _stream(["r"], [0.2], p=[0.125], name="reference")
    found = ap.outliers(stream, reference, epsilon=1, fewer_than=1, probability=0.1, window=1)
    assert found["probability"].to_pylist() == [0.875, 0.875]


def test_rows_that_are_alike_in_all_are_partners_of_each_other() -> None:
    found = ap.outliers(_stream(["a"] * 3, [1.0] * 3), epsilon=1, fewer_than=3, probability=0.9, window=1)
    assert found["expected"].to_pylist() == [2.0] * 3
    assert len(ap.outliers(_stream(["a"] * 3, [1.0] * 3), epsilon=1, fewer_than=2, probability=0.9, window=1)) == 0


def test_by_hand_rows_are_told_when_their_window_is_over() -> None:
    by_hand = ap.Outliers(
        ap.Stream(None, key="k", time="t", value=ap.Exact("x"), name="s"),
        epsilon=1,
        fewer_than=1,
        probability=0.5,
        window=10,
    )
    assert len(by_hand.push(s=pa.table({"k": [1, 2], "t": [0.0, 1.0], "x": [0.0, 9.0]}))) == 0
    assert by_hand.push(s=pa.table({"k": [3], "t": [10.5], "x": [9.5]}))["key"].to_pylist() == [1]
    assert by_hand.drain()["key"].to_pylist() == []
    with pytest.raises(ap.BadArgument, match="Give one, or one and a reference"):
        ap.Outliers(
            *(ap.Stream(None, key="k", time="t", value=ap.Exact("x"), name=name) for name in "abc"),
            epsilon=1,
            fewer_than=1,
            probability=0.5,
            window=10,
        )


def test_what_makes_no_sense_is_an_error() -> None:
    asked: dict[str, Any] = {"epsilon": 1, "fewer_than": 1, "probability": 0.5, "window": 1}
    rows = _stream(["a"], [1.0])
    with pytest.raises(ap.BadArgument, match="fewer_than"):
        ap.outliers(rows, **asked | {"fewer_than": 0})
    with pytest.raises(ap.BadArgument, match="probability"):
        ap.outliers(rows, **asked | {"probability": 0})
    with pytest.raises(ap.BadArgument, match="given twice"):
        ap.outliers(rows, rows, **asked)
    with pytest.raises(ap.BadArgument, match="needs whole values"):
        ap.outliers(ap.Stream(rows.frame, key="k", time="t", value=ap.Incomplete("x")), **asked)
