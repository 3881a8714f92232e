"""Phenomena by nearness of values against their slow twin; and that spread values, and quiet ticks, cost little."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.kernels.chains import JOINED, LOOKED
from appulse.operators import phenomena_within as operator
from tests.helpers import sensing
from tests.operators.test_phenomena import (
    LATER,
    LINE,
    Case,
    cases,
    check_order,
    check_released,
    check_stage,
    expected,
    regions_of,
    table_of,
    told,
)
from tests.operators.test_sensor_join import judged

WITHIN = (0.0, 0.25, 0.5, 1.0, 3.0)


@st.composite
def near(draw: st.DrawFn) -> Case:
    """Cases of values on a grid, so that many lie just within reach, and of any."""
    case = draw(cases())
    rows = case.rows
    if draw(st.booleans()):
        rows = tuple((sensor, time, round(4 * value) / 4, room) for sensor, time, value, room in rows)
    return replace(case, rows=rows, resolution=None, within=draw(st.sampled_from(WITHIN)))


@given(near())
@settings(max_examples=150, deadline=None)
def test_equals_the_twin(case: Case) -> None:
    assert told(sensing.phenomena(case.table, **case.arguments())) == expected(case)


@pytest.mark.long
@given(near())
@settings(max_examples=5000, deadline=None)
def test_equals_the_twin_long(case: Case) -> None:
    assert told(sensing.phenomena(case.table, **case.arguments())) == expected(case)


@given(near(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_no_order_or_batch_changes_an_event(case: Case, chance: Any) -> None:
    check_order(case, chance, operator)


@given(st.data())
def test_buckets_tell_the_same(data: st.DataObject) -> None:
    check_stage(data, data.draw(near()))


@given(st.data())
def test_what_has_left_the_log_is_told_all_the_same(data: st.DataObject) -> None:
    check_released(data, data.draw(near()))


@pytest.mark.long
@given(st.data())
@settings(max_examples=2000, deadline=None)
def test_in_a_played_spark_long(data: st.DataObject) -> None:
    check_stage(data, data.draw(near()))
    check_released(data, data.draw(near()))


@given(near())
def test_regions_are_what_events_add_up_to(case: Case) -> None:
    regions = sensing.phenomena(case.table, **case.arguments(), emit="regions").to_pylist()
    found = [(row["time"], row["phenomenon"], row["value"], tuple(row["sensors"])) for row in regions]
    assert found == regions_of(told(sensing.phenomena(case.table, **case.arguments())))


@given(near())
def test_regions_of_like_slopes(case: Case) -> None:
    case = replace(case, where=None)
    readings = judged(case.rows, "slope", 6, 0.0)
    rows = [(reading.sensor, reading.time // 10**6, reading.value, "x") for reading in readings]
    result = sensing.phenomena(case.table, **case.arguments(), similar="slope", over=6)
    assert told(result) == expected(case, rows)


def _field(values: Any) -> pa.Table:
    """A reading of each sensor a second, of values (seconds, sensors)."""
    motes = LINE["mote"].to_pylist()
    return table_of(
        [(mote, LATER + t, float(v), "x") for t, row in enumerate(values) for mote, v in zip(motes, row, strict=True)]
    )


SETTINGS: dict[str, Any] = {"sensor": "mote", "time": "ts", "value": "v", "strength": 2, "span": 2}


def test_a_region_warms_up_and_keeps_its_number() -> None:
    """All rise by 0.3 a second, far beyond any bin: nothing else is told, until two part from the others."""
    values = np.arange(40)[:, None] * 0.3 + np.array([0.0, 0.5, 1.0, 1.5, 2.0, 2.5])
    values[30:, :2] = 30.0 + 0.1 * np.arange(10)[:, None]
    events = told(sensing.phenomena(_field(values), **SETTINGS, within=0.7))
    assert [event[:3] + event[4:] for event in events] == [
        (0, "appears", LATER + 1, tuple(LINE["mote"].to_pylist()), None, ()),
        (0, "moves", LATER + 31, ("c", "d", "ee", "f"), None, None),
        (1, "appears", LATER + 31, ("a", "b"), None, ()),
    ]
    assert [event[3] for event in events[::2]] == pytest.approx([0.15 + 1.25, 30.05])
    binned = told(sensing.phenomena(_field(values), **SETTINGS, resolution=0.7))
    assert len(binned) > 20


def test_a_plan_says_what_is_near() -> None:
    told_ = str(ap.explain(sensing.phenomena(_field(np.zeros((3, 6))), **SETTINGS, within=0.5)))
    assert "strong: readings with 2 of their sensor within 2 seconds, at most 0.5 apart" in told_


def test_regions_at_one_value_are_apart_if_their_sensors_are() -> None:
    values = np.tile([5.0, 5.2, 9.0, 5.1, 5.3, 5.0], (4, 1))
    events = sensing.phenomena(_field(values), **SETTINGS, within=0.25, locations=LINE, reach=1.2).to_pylist()
    assert [row["sensors"] for row in events] == [["a", "b"], ["d", "ee"]]
    assert [row["value"] for row in events] == pytest.approx([5.1, 5.2])
    assert events[0]["centroid"] == [0.5, 0.25]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"within": -1}, "at least 0"),
        ({"within": float("nan")}, "at least 0"),
        ({"within": True}, "at least 0"),
        ({"within": 1, "resolution": 1}, "given both"),
        ({"within": 1, "similar": "summary"}, "give resolution="),
        ({"within": 1, "similar": "pattern"}, "leave out resolution= and within="),
        ({"within": 1, "value": "mote"}, "not a number"),
    ],
)
def test_errors_say_what_to_do(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ap.BadArgument, match=message):
        sensing.phenomena(table_of([("a", 0, 1.0, "x")]), **(SETTINGS | change))


def test_huge_values_have_a_mean() -> None:
    values = np.tile([1e308, 1.1e308, 1.2e308, -1e308, -1e308, 0.0], (3, 1))
    events = sensing.phenomena(_field(values), **SETTINGS, within=1.05e307).to_pylist()
    assert [row["value"] for row in events] == pytest.approx([1.1e308, -1e308])


@st.composite
def steady(draw: st.DrawFn) -> Case:
    """Sensors that read about the same again and again, so that chains stay and only their ends go to and fro."""
    chance = draw(st.randoms(use_true_random=False))
    base = {sensor: chance.choice((0.0, 0.5, 1.0, 1.5)) for sensor in "abcd"}
    ticks = range(LATER, LATER + chance.randint(6, 14))
    rows = [(s, t, base[s] + chance.choice((0.0, 0.0, 0.25, 0.5)), "x") for t in ticks for s in base]
    rows = [row for row in rows if chance.random() < 0.8]
    reach = chance.choice((None, 1.12, 2.0))
    return Case(tuple(rows), chance.choice((1, 1, 2)), chance.randint(2, 5), chance.choice((1, 2)), reach, None, 0.5)


@given(steady())
@settings(max_examples=100, deadline=None)
def test_ties_that_ends_undo_are_told(case: Case) -> None:
    assert told(sensing.phenomena(case.table, **case.arguments())) == expected(case)


def test_a_tie_is_lost_and_found_by_ends_alone() -> None:
    """a reads 1.5 once, among 1.0: while it counts, b at 2.0 is near."""
    rows = [("a", LATER + t, 1.5 if t == 3 else 1.0, "x") for t in range(12)]
    rows += [("b", LATER + t, 2.0, "x") for t in range(12)]
    settings_ = SETTINGS | {"strength": 1, "min_sensors": 1}
    events = told(sensing.phenomena(table_of(rows), **settings_, within=0.5))
    assert [(event[1], event[2] - LATER, event[4]) for event in events] == [
        ("appears", 0, ("a",)),
        ("appears", 0, ("b",)),
        ("moves", 3, ("a", "b")),
        ("disappears", 3, ("b",)),
        ("moves", 6, ("a",)),
        ("appears", 6, ("b",)),
    ]


@st.composite
def long(draw: st.DrawFn) -> Case:
    """Few sensors with many readings in the span, so that a reading changes little of what its sensor has."""
    chance = draw(st.randoms(use_true_random=False))
    kind, n = chance.choice(("grid", "any", "far")), chance.randint(30, 90)
    rows, time = [], LATER
    for _ in range(n):
        time += chance.choice((0, 1, 1))
        value = {
            "grid": chance.choice((0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 2.25)),
            "any": chance.uniform(0.0, 3.0),
            "far": chance.uniform(0.0, 1.0) * chance.choice((1, 1, 9)),
        }[kind]
        rows.append((chance.choice("ab"), time, value, "x"))
    reach = chance.choice((None, None, 1.12))
    return Case(tuple(rows), chance.choice((1, 1, 2, 3)), chance.choice((20, 40, 90)), 1, reach, None, 0.25)


@given(long())
@settings(max_examples=60, deadline=None)
def test_many_readings_in_the_span_equal_the_twin(case: Case) -> None:
    assert told(sensing.phenomena(case.table, **case.arguments())) == expected(case)


def test_a_reading_is_looked_at_with_few_others() -> None:
    """However many a sensor has in the span: for each that came all of them were looked at, and sorted."""
    n, values = 6_000, np.random.default_rng(0).uniform(0.0, 10.0, 6_000)
    call = ap.Phenomena(ap.Stream(None, key="id", time="t", value="v"), within=0.1, strength=3, span=n // 2)
    call.push(pa.table({"id": np.arange(n) % 2, "t": np.arange(n), "v": values}))
    assert call._engine is not None
    held = vars(call._engine.bucket)["operator"]
    assert isinstance(held, operator.PhenomenaWithin)
    assert held.fields[b""].known.counts[LOOKED] < 50 * n


@pytest.mark.parametrize("placed", [False, True])
def test_a_region_that_changes_is_found_anew_with_few_others(placed: bool) -> None:
    """Of 500 regions of two sensors one comes or goes in each tick: for each, all chains were joined anew."""
    pairs = 500
    sensor, level = np.arange(2 * pairs), np.repeat(np.arange(pairs), 2).astype(np.float64)
    places = pa.table({"id": sensor, "x": 10.0 * level, "y": np.zeros(2 * pairs)})
    where: dict[str, Any] = {"locations": places, "reach": 1.0} if placed else {}
    call = ap.Phenomena(ap.Stream(None, key="id", time="t", value="v"), within=0.1, strength=1, span=pairs, **where)
    call.push(pa.table({"id": sensor, "t": np.repeat(np.arange(pairs), 2), "v": level}))
    call.push(pa.table({"id": sensor, "t": pairs + np.repeat(np.arange(pairs), 2), "v": level + 0.3}))
    assert call._engine is not None
    held = vars(call._engine.bucket)["operator"]
    assert isinstance(held, operator.PhenomenaWithin)
    assert held.fields[b""].known.counts[JOINED] < 10 * 2 * pairs
