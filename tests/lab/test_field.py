"""What phenomena are good for: memberships, what is going on, guided sampling, tagged readings, compression."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

import appulse as ap
from tests.helpers import sensing
from tests.operators.test_phenomena import LATER, LINE, Case, cases, table_of


def _events(case: Case) -> pa.Table:
    return sensing.phenomena(case.table, **case.arguments())


def _members_at(events: pa.Table, time: int) -> dict[int, tuple[float, set[str]]]:
    """Who is in what after a tick, by replaying events."""
    now: dict[int, tuple[float, set[str]]] = {}
    for row in events.to_pylist():
        if row["time"] <= time:
            now[row["phenomenon"]] = row["value"], set(row["sensors"])
            if row["event"] == "disappears":
                del now[row["phenomenon"]]
    return now


@given(cases())
def test_memberships_are_the_events_by_sensor(case: Case) -> None:
    events = _events(case)
    rows = ap.lab.field.memberships(events).to_pylist()
    for time in {row[1] for row in case.rows}:
        wanted = {(n, value, s) for n, (value, sensors) in _members_at(events, time).items() for s in sensors}
        found = {
            (row["phenomenon"], row["value"], row["sensor"])
            for row in rows
            if row["since"] <= time and (row["until"] is None or time < row["until"])
        }
        assert found == wanted


@given(cases())
def test_readings_are_tagged_with_what_they_are_part_of(case: Case) -> None:
    events = _events(case)
    result = ap.lab.field.tagged(
        case.table, events, sensor="mote", time="ts", value="v", resolution=case.resolution
    ).to_pylist()
    for row in result:
        lower = row["v"]
        if case.resolution is not None:
            lower = math.floor(float(lower) / case.resolution) * case.resolution
        mine = [
            number
            for number, (value, sensors) in _members_at(events, row["ts"]).items()
            if row["mote"] in sensors and value == pytest.approx(lower)
        ]
        assert row["phenomenon"] == (mine[0] if mine else None)


@given(cases())
def test_what_is_going_on(case: Case) -> None:
    events = _events(case)
    for time in (LATER + 3, LATER + 8, None):
        standing = ap.lab.field.going_on(events, time).to_pylist()
        wanted = _members_at(events, time or LATER + 100)
        assert {row["phenomenon"]: (row["value"], set(row["sensors"])) for row in standing} == wanted
        for row in standing:
            assert row["since"] == min(e["time"] for e in events.to_pylist() if e["phenomenon"] == row["phenomenon"])


def _front() -> tuple[pa.Table, pa.Table]:
    """a, b and c are warm, d and ee cold, f is far away from all."""
    rows = [
        (sensor, LATER + t, 30.0 if sensor in "abc" else 10.0, "x")
        for t in range(5)
        for sensor in LINE["mote"].to_pylist()
    ]
    table = table_of(rows)
    arguments: dict[str, Any] = {"sensor": "mote", "time": "ts", "value": "v", "resolution": 5.0}
    return table, sensing.phenomena(table, **arguments, strength=2, span=3, locations=LINE, reach=1.2)


def test_sensors_away_from_boundaries_may_rest() -> None:
    _, events = _front()
    rows = ap.lab.field.guided_sampling(events, LINE, "mote", 1.2).to_pylist()
    assert {row["sensor"]: (row["role"], row["may_rest"]) for row in rows} == {
        "a": ("inside", True),
        "b": ("inside", True),
        "c": ("boundary", False),
        "d": ("boundary", False),
        "ee": ("inside", True),
        "f": ("outside", False),
    }


def test_boundaries_in_place_of_readings() -> None:
    table, events = _front()
    saved = ap.lab.field.compression(table, events, sensor="mote", time="ts", value="v", resolution=5.0)
    inside = 5 * 4  # of five sensors, from the second tick on
    assert saved.share == pytest.approx(inside / 30)
    assert saved.error == saved.worst == 2.5
    corners = sum(len(row["hull"]) for row in events.to_pylist())
    assert saved.ratio == pytest.approx(24 * 30 / (24 * 10 + 24 * len(events) + 8 * corners))


def test_conditions_asked_only_where_a_phenomenon_is() -> None:
    """The same answers as from all readings, which know what they are part of."""
    table, events = _front()
    known = ap.lab.field.tagged(table, events, sensor="mote", time="ts", value="v", resolution=5.0)
    queries = pa.table({"query": ["hot", "cold"], "condition": ["v > 20", "v <= 20"]})
    everywhere = queries.set_column(
        1, "condition", pa.array(["phenomenon IS NOT NULL AND v > 20", "phenomenon IS NOT NULL AND v <= 20"])
    )
    few = known.filter(pa.compute.is_valid(known["phenomenon"]))
    assert 0 < len(few) < len(known)
    answers = [
        ap.match_queries(ap.Stream(rows, key="mote", time="ts", value=ap.Exact("v")), asked)
        for rows, asked in ((few, queries), (known, everywhere))
    ]
    assert answers[0].to_pylist() == answers[1].to_pylist()
    assert len(answers[0]) == len(few)


def test_events_of_one_group_are_asked_for() -> None:
    with pytest.raises(ap.BadArgument, match="no column 'event'"):
        ap.lab.field.memberships(pa.table({"phenomenon": [1]}))
    rows = [(sensor, LATER, 1.0, room) for sensor in "ab" for room in "xy"]
    events = ap.phenomena(
        ap.Stream(table_of(rows), key="mote", time="ts", value="v", partition_by="room"), strength=1, span=1
    )
    with pytest.raises(ap.BadArgument, match="several groups"):
        ap.lab.field.going_on(events)


def test_misspelt_columns_are_told_with_the_nearest() -> None:
    table, events = _front()
    names: dict[str, Any] = {"sensor": "mote", "time": "ts", "value": "v", "resolution": 5.0}
    for call in (ap.lab.field.tagged, ap.lab.field.compression):
        for argument, wrong, near in (("sensor", "moet", "mote"), ("time", "tz", "ts"), ("value", "vv", "v")):
            with pytest.raises(ap.BadArgument, match=f"{wrong}.*{near}"):
                call(table, events, **(names | {argument: wrong}))
    with pytest.raises(ap.BadArgument, match=r"moet.*mote"):
        ap.lab.field.guided_sampling(events, LINE, "moet", 1.2)


def test_readings_are_tagged_once() -> None:
    readings = pa.table({"mote": [1, 2, 1, 2], "ts": [0.0, 1.0, 2.0, 3.0], "v": [7.0, 7.0, 7.0, 7.0]})
    stream = ap.Stream(readings, key="mote", time="ts", value="v")
    events = ap.phenomena(stream, resolution=1.0, strength=2, span=60)
    names: dict[str, Any] = {"sensor": "mote", "time": "ts", "value": "v", "resolution": 1.0}
    tagged = ap.lab.field.tagged(readings, events, **names)
    with pytest.raises(ap.BadArgument, match="'phenomenon', and the readings have one already"):
        ap.lab.field.tagged(tagged, events, **names)
