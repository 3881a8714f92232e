"""Phenomena against their slow twin: values, regions, identities, merging and splitting, ticks in any batches."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import ConvexHull

import appulse as ap
from appulse.engines.spark.sensors.routing import GroupRouting
from appulse.engines.spark.tiles import TilePlan
from appulse.operators import phenomena as operator
from tests.helpers import naive_sensors as naive
from tests.helpers import sensing
from tests.helpers.fake_spark import FakeReadings
from tests.operators.test_sensor_join import judged

SENSORS = ["a", "b", "c", "d", "ee", "f"]
LATER = 10_000
LINE = pa.table({"mote": SENSORS, "x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0.0, 0.5, 0.0, 0.5, 0.0, 9.0]})
DOUBLE = pa.float64()


@dataclass(frozen=True)
class Case:
    """Readings as rows (sensor, time in seconds, value, group), and how they are looked at."""

    rows: tuple[tuple[str, int, float, str], ...]
    strength: int
    span: int
    least: int
    reach: float | None
    resolution: float | None
    within: float | None = None
    where: float | None = None  # readings are rows of at least this value
    idle: int | None = None
    links: tuple[tuple[str, str], ...] | None = None
    kind: pa.DataType = DOUBLE

    @property
    def table(self) -> pa.Table:
        return table_of(self.rows, self.kind)

    def arguments(self) -> dict[str, Any]:
        place: dict[str, Any] = {} if self.reach is None else {"locations": LINE, "reach": self.reach}
        if self.links is not None:
            place = {"locations": LINE, "neighbours": links_of(self.links)}
        return {
            **({} if self.where is None else {"where": f"v >= {self.where}"}),
            **({} if self.idle is None else {"idle_after": self.idle}),
            "sensor": "mote",
            "time": "ts",
            "value": "v",
            "strength": self.strength,
            "span": self.span,
            "min_sensors": self.least,
            **({"resolution": self.resolution} if self.within is None else {"within": self.within}),
            **place,
        }


def links_of(links: Any) -> pa.Table:
    return pa.table({side: pa.array([pair[i] for pair in links], pa.string()) for i, side in enumerate(("a", "b"))})


def table_of(rows: Any, value: pa.DataType = DOUBLE) -> pa.Table:
    names, kinds = ["mote", "ts", "v", "room"], [pa.string(), pa.int64(), pa.float64(), pa.string()]
    columns = list(map(list, zip(*rows, strict=True))) or [[]] * 4
    table = pa.table({n: pa.array(c, k) for n, c, k in zip(names, columns, kinds, strict=True)})
    return table.set_column(2, "v", table["v"].cast(value))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    value = st.one_of(st.sampled_from([0.0, 1.0, -1.0]), st.floats(-2, 2, width=16))
    row = st.tuples(
        st.sampled_from(SENSORS), st.integers(0, 14).map(LATER.__add__), value, st.sampled_from(["x", "x", "y"])
    )
    rows = draw(st.lists(row, max_size=60))
    kind = draw(st.sampled_from([DOUBLE, pa.decimal128(20, 3)]))
    if pa.types.is_decimal(kind):
        rows = [(sensor, time, round(value, 3), room) for sensor, time, value, room in rows]
    return Case(
        tuple(rows),
        draw(st.integers(1, 3)),
        draw(st.integers(0, 8)),
        draw(st.integers(1, 3)),
        draw(st.sampled_from([None, 0.0, 1.12, 2.0, 50.0])),
        draw(st.sampled_from([None, 1.0, 0.7, 10.0])),
        None,
        draw(st.sampled_from([None, None, -0.5])),
        draw(st.sampled_from([None, None, 1, 5])),
        draw(st.sampled_from([None, None, (), (("a", "b"), ("c", "a"), ("c", "c"), ("b", "a"), ("ee", "f"))])),
        kind,
    )


def expected(case: Case, rows: Any = None) -> list[tuple[Any, ...]]:
    rows = case.rows if rows is None else rows
    kept = [row for row in rows if case.where is None or row[2] >= case.where]
    readings = [naive.Reading(sensor, time * 10**6, value) for sensor, time, value, _ in kept]
    clock = naive.Clock(
        tuple(row[1] * 10**6 for row in rows),
        None if case.idle is None else max(case.idle, case.span) * 10**6,
        max((row[1] * 10**6 for row in case.rows), default=0),
    )
    locations: Any = {row["mote"]: (row["x"], row["y"]) for row in LINE.to_pylist()}
    reach: Any = math.inf if case.reach is None else case.reach
    reach = reach if case.links is None else frozenset(case.links)
    locations = None if case.reach is None and case.links is None else locations
    where = (case.least, locations, reach)
    if case.within is None:
        events = naive.phenomena(readings, case.strength, case.span * 10**6, *where, case.resolution, clock)
    else:
        events = naive.phenomena_within(readings, case.strength, case.span * 10**6, case.within, *where, clock)
    return [
        (
            event.phenomenon,
            event.event,
            event.time // 10**6,
            event.bin * (case.resolution or 1.0) if case.within is None else pytest.approx(event.bin, abs=1e-12),
            event.sensors,
            event.merged if event.event == "disappears" else None,
            event.split if event.event == "appears" else None,
        )
        for event in events
    ]


def told(result: pa.Table) -> list[tuple[Any, ...]]:
    return [
        (
            row["phenomenon"],
            row["event"],
            row["time"],
            float(row["value"]) if isinstance(row["value"], Decimal) else row["value"],
            tuple(row["sensors"]),
            *(None if row[name] is None else tuple(row[name]) for name in ("merged", "split")),
        )
        for row in result.to_pylist()
    ]


@given(cases())
@settings(max_examples=100, deadline=None)
def test_equals_the_twin(case: Case) -> None:
    assert told(sensing.phenomena(case.table, **case.arguments())) == expected(case)


@given(cases(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_no_order_or_batch_changes_an_event(case: Case, chance: Any) -> None:
    check_order(case, chance, operator)


def check_order(case: Case, chance: Any, module: Any) -> None:
    """In any order and in batches of any size as the twin."""
    rows = list(case.rows)
    chance.shuffle(rows)
    field = sensing.by_hand(ap.Phenomena, **case.arguments(), lateness=15)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SLICE", chance.choice([1, 4, 1 << 14]))
        while rows:
            n = chance.randint(1, 9)
            found += told(field.push(table_of(rows[:n], case.kind)))
            rows = rows[n:]
        if case.rows:
            found += told(field.drain())
    assert found == expected(case)


def check_stage(data: st.DataObject, case: Case) -> None:
    """In a played Spark, group by group as in process, and as the twin."""
    emit = data.draw(st.sampled_from(("events", "regions")))
    by = data.draw(st.sampled_from(({}, {}, {"similar": "slope", "over": 5})))
    settings_ = case.arguments() | by | {"partition_by": ("room",), "emit": emit}
    call = sensing.resolved_phenomena(case.table, **settings_, lateness=15)
    buckets = data.draw(st.sampled_from((1, 2, 3)))
    spark = FakeReadings(
        call=call,
        plan=TilePlan(buckets, 1.0, 0.0, 0.0),
        random=Random(data.draw(st.integers(0, 1 << 30))),
        by=GroupRouting(buckets),
    )
    rows = list(data.draw(st.permutations(case.rows)))
    found: list[pa.Table] = []
    while rows:
        n = data.draw(st.integers(1, 9))
        found += spark.batch({"readings": table_of(rows[:n], case.kind)})[0]
        rows = rows[n:]
    answers = pa.concat_tables([call.answer_schema.empty_table(), *found, *spark.end()[0]])
    inside = sensing.phenomena(case.table, **settings_)
    for room in ("x", "y"):
        mine, theirs = (table.filter(pa.compute.equal(table["room"], room)) for table in (answers, inside))
        assert mine.to_pylist() == theirs.to_pylist()
        if emit == "events" and not by:
            assert told(mine) == expected(case, [row for row in case.rows if row[3] == room])


def check_released(data: st.DataObject, case: Case) -> None:
    """As `check_stage`, with ticks that are complete soon: so logs are cut, and groups fall silent."""
    emit = data.draw(st.sampled_from(("events", "regions")))
    far = data.draw(st.sampled_from((1, 1, 7)))
    rows = [(sensor, LATER + far * (time - LATER), value, room) for sensor, time, value, room in sorted(case.rows)]
    rows.sort(key=lambda row: row[1] + data.draw(st.integers(0, 2)))
    table = table_of(rows, case.kind)
    settings_ = case.arguments() | {"partition_by": ("room",), "emit": emit}
    call = sensing.resolved_phenomena(table, **settings_, lateness=2)
    buckets = data.draw(st.sampled_from((1, 2)))
    spark = FakeReadings(
        call=call,
        plan=TilePlan(buckets, 1.0, 0.0, 0.0),
        random=Random(data.draw(st.integers(0, 1 << 30))),
        by=GroupRouting(buckets),
    )
    found: list[pa.Table] = []
    while rows:
        n = data.draw(st.integers(1, 4))
        found += spark.batch({"readings": table_of(rows[:n], case.kind)})[0]
        rows = rows[n:]
    answers = pa.concat_tables([call.answer_schema.empty_table(), *found, *spark.end()[0]])
    inside = sensing.phenomena(table, **settings_)
    for room in ("x", "y"):
        mine, theirs = (part.filter(pa.compute.equal(part["room"], room)) for part in (answers, inside))
        assert mine.to_pylist() == theirs.to_pylist()


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_what_has_left_the_log_is_told_all_the_same(data: st.DataObject) -> None:
    check_released(data, data.draw(cases()))


@pytest.mark.long
@settings(max_examples=3000, deadline=None)
@given(st.data())
def test_what_has_left_the_log_is_told_all_the_same_long(data: st.DataObject) -> None:
    check_released(data, data.draw(cases()))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_buckets_tell_the_same(data: st.DataObject) -> None:
    """In a played Spark: whatever is cut, forgotten or tried twice."""
    check_stage(data, data.draw(cases()))


@pytest.mark.long
@settings(max_examples=3000, deadline=None)
@given(st.data())
def test_buckets_tell_the_same_long(data: st.DataObject) -> None:
    check_stage(data, data.draw(cases()))


@given(cases(), st.sampled_from([None, 0.3]))
def test_regions_of_like_slopes(case: Case, resolution: float | None) -> None:
    case = replace(case, where=None)
    readings = judged(case.rows, "slope", 6, resolution)
    rows = [(reading.sensor, reading.time // 10**6, reading.value, "x") for reading in readings]
    arguments = case.arguments() | {"resolution": resolution}
    result = sensing.phenomena(case.table, **arguments, similar="slope", over=6)
    assert told(result) == expected(replace(case, resolution=resolution), rows)


@given(cases())
def test_regions_are_what_events_add_up_to(case: Case) -> None:
    regions = sensing.phenomena(case.table, **case.arguments(), emit="regions").to_pylist()
    found = [(row["time"], row["phenomenon"], row["value"], tuple(row["sensors"])) for row in regions]
    assert found == regions_of(expected(case))


def regions_of(events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """All that stand at each time of an event."""
    standing: dict[int, Any] = {}
    wanted = []
    for k, (number, event, time, value, sensors, *_) in enumerate(events):
        standing[number] = (value, sensors)
        if event == "disappears":
            del standing[number]
        if k + 1 == len(events) or events[k + 1][2] != time:
            wanted += [(time, number, *standing[number]) for number in sorted(standing)]
    return wanted


def test_a_tick_at_which_much_ends_is_told_at_once() -> None:
    """A reading after a silence ends all regions at one tick: more than are told at a time."""
    rows = [(f"{i % 2}{i}", LATER, float(i // 2), "x") for i in range(6000)] + [("a", LATER + 9, -1.0, "x")]
    settings_: dict[str, Any] = {"sensor": "mote", "time": "ts", "value": "v", "strength": 1, "span": 1}
    events = told(sensing.phenomena(table_of(rows), **settings_))
    regions = sensing.phenomena(table_of(rows), **settings_, emit="regions").to_pylist()
    found = [(row["time"], row["phenomenon"], row["value"], tuple(row["sensors"])) for row in regions]
    assert len(events) == 6000
    assert found == regions_of(events)
    assert len(found) == 3000


def test_a_front_that_moves() -> None:
    """A warm spot goes along the line, a sensor every ten seconds: it keeps its number, and its speed is told."""
    rows = []
    for t in range(60):
        for i, sensor in enumerate(SENSORS[:5]):
            warm = i in (t // 10, t // 10 + 1)
            rows.append((sensor, LATER + t, 30.0 if warm else float(i), "x"))
    result = ap.phenomena(
        ap.Stream(table_of(rows), key="mote", time="ts", value="v"),
        strength=2,
        span=2,
        min_sensors=2,
        locations=LINE,
        reach=1.2,
    ).to_pylist()
    events = [row for row in result if row["value"] == 30.0]
    assert {row["phenomenon"] for row in events} == {events[0]["phenomenon"]}
    assert events[0]["event"] == "appears"
    assert events[0]["velocity"] is None
    centres = [row["centroid"][0] for row in events if row["event"] != "disappears"]
    assert centres == sorted(centres)
    last = [row for row in events if row["event"] == "moves"][-1]
    assert last["velocity"][0] == pytest.approx(0.1, rel=0.2)


def test_merging_and_splitting_are_told() -> None:
    """a and c hold the value, then b between them, then b no more."""
    rows = [(sensor, LATER + t, 1.0, "x") for t in range(6) for sensor in ("a", "c")]
    rows += [("b", LATER + 2, 1.0, "x"), ("b", LATER + 3, 1.0, "x"), ("b", LATER + 5, 0.0, "x")]
    arguments: dict[str, Any] = {
        "sensor": "mote",
        "time": "ts",
        "value": "v",
        "strength": 1,
        "span": 1,
        "min_sensors": 1,
    }
    events = told(sensing.phenomena(table_of(rows), **arguments, locations=LINE, reach=1.2))
    assert [event[:3] + event[4:] for event in events if event[3] == 1.0] == [
        (0, "appears", LATER, ("a",), None, ()),
        (1, "appears", LATER, ("c",), None, ()),
        (0, "moves", LATER + 2, ("a", "b", "c"), None, None),
        (1, "disappears", LATER + 2, ("c",), (0,), None),
        (0, "moves", LATER + 5, ("a",), None, None),
        (3, "appears", LATER + 5, ("c",), None, (0,)),
    ]


def test_velocity_is_that_of_a_straight_line() -> None:
    rng = np.random.default_rng(4)
    n = 40
    at = rng.uniform(0, 10, (n, 2))
    where = pa.table({"mote": range(n), "x": at[:, 0], "y": at[:, 1]})
    rows = [(int(s), t, 5.0) for t in range(12) for s in rng.choice(n, 25, replace=False)]
    table = pa.table(dict(zip(("mote", "ts", "v"), map(list, zip(*rows, strict=True)), strict=True)))
    events = ap.phenomena(
        ap.Stream(table, key="mote", time="ts", value="v"), strength=1, span=0, locations=where, reach=20.0
    ).to_pylist()
    track = []
    for row in events:
        members = np.array(row["sensors"])
        track.append((row["time"], *at[members].mean(axis=0)))
        assert row["centroid"] == pytest.approx(track[-1][1:])
        hull = ConvexHull(at[members])
        assert {tuple(corner) for corner in row["hull"]} == {tuple(at[members[k]]) for k in hull.vertices}
        if len(track) < 3:
            continue
        time, *place = np.array(track[-8:]).T
        slopes = [np.polyfit(time, along, 1)[0] for along in place]
        assert row["velocity"] == pytest.approx(slopes, abs=1e-9)


def test_sensors_without_a_place_are_rejects() -> None:
    table = table_of([("a", LATER, 1.0, "x"), ("z", LATER, 1.0, "x")])
    result = ap.phenomena(
        ap.Stream(table, key="mote", time="ts", value="v"), strength=1, span=1, locations=LINE, reach=1
    )
    assert [(row["key"], row["reason"]) for row in ap.rejects(result).to_pylist()] == [("z", "no location")]


def at(column: str, row: int, value: Any) -> pa.Table:
    """The line with another value at one place."""
    rows = LINE.to_pylist()
    rows[row] |= {column: value}
    return pa.Table.from_pylist(rows, LINE.schema)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strength": 0}, "at least 1"),
        ({"min_sensors": 1.5}, "whole number"),
        ({"reach": None}, "go together"),
        ({"reach": -1}, "at least 0"),
        ({"locations": LINE.drop_columns(["y"])}, "Give two"),
        ({"locations": LINE.rename_columns(["m", "x", "y"])}, "no column 'mote'"),
        ({"locations": pa.concat_tables([LINE, LINE])}, r"more than one row of sensor 'a', 'b', 'c' and 3 more\."),
        ({"locations": pa.concat_tables([LINE, LINE.slice(2, 1)])}, r"more than one row of sensor 'c'\. Keep"),
        ({"locations": at("mote", 4, None)}, r"no sensor in column 'mote' of row 5\."),
        ({"locations": at("y", 3, None)}, r"no place of sensor 'd': x or y is null, NaN or infinite"),
        ({"locations": at("x", 1, math.nan)}, r"no place of sensor 'b': x or y"),
        ({"emit": "event"}, "events"),
        ({"resolution": 0}, "above 0"),
    ],
)
def test_errors_say_what_to_do(change: dict[str, Any], message: str) -> None:
    given_: dict[str, Any] = {"sensor": "mote", "time": "ts", "value": "v", "strength": 1, "span": 1}
    given_ |= {"locations": LINE, "reach": 1.0}
    with pytest.raises(ap.BadArgument, match=message):
        sensing.phenomena(table_of([("a", 0, 1.0, "x")]), **(given_ | change))


def test_locations_of_other_sensors_than_those_of_the_stream_are_an_error() -> None:
    readings = table_of([("a", 0, 1.0, "x")]).set_column(0, "mote", pa.array([1]))
    given_: dict[str, Any] = {"sensor": "mote", "time": "ts", "value": "v", "strength": 1, "span": 1}
    with pytest.raises(ap.BadArgument, match="'mote' that are string, those of the stream are int64, and not all"):
        sensing.phenomena(readings, **given_, locations=LINE, reach=1.0)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.decimal128(5, 2), pa.decimal256(3, 0), pa.float32()])
def test_locations_may_have_sensors_beyond_the_type_of_the_streams(kind: pa.DataType) -> None:
    readings = table_of([("1", 0, 1.0, "x"), ("2", 0, 1.0, "x")])
    readings = readings.set_column(0, "mote", pa.array([1, 2]).cast(pa.decimal128(21, 2)).cast(kind))
    given_: dict[str, Any] = {"sensor": "mote", "time": "ts", "value": "v", "strength": 1, "span": 1}
    for names in ([1, 2, 300_000], ["1", "2", "300000"]):
        places = pa.table({"mote": names, "x": [0.0, 1.0, 2.0], "y": [0.0] * 3})
        links = pa.table({"from": names[:2], "to": names[1:]})
        for near in ({"locations": places, "reach": 1.0}, {"neighbours": links}):
            result = sensing.phenomena(readings, **given_, **near)
            assert result["sensors"].to_pylist() == [readings["mote"].to_pylist()]


def test_values_that_are_words() -> None:
    rows = [("a", 0, "up"), ("b", 0, "up"), ("a", 1, "down"), ("b", 1, "down")]
    table = pa.table(dict(zip(("mote", "ts", "v"), map(list, zip(*rows, strict=True)), strict=True)))
    events = told(ap.phenomena(ap.Stream(table, key="mote", time="ts", value="v"), strength=1, span=0))
    assert [event[:4] for event in events] == [
        (0, "appears", 0, "up"),
        (1, "appears", 1, "down"),
        (0, "disappears", 1, "up"),
    ]


def test_regions_of_like_means_and_spreads() -> None:
    """Two sensors that are steady, two that swing about the same mean, and all along the line."""
    rows = [(s, LATER + t, 5.0 if s in "ab" else 5.0 + 3.0 * (-1) ** t, "x") for t in range(20) for s in "abcd"]
    events = ap.phenomena(
        ap.Stream(table_of(rows), key="mote", time="ts", value="v"),
        similar="summary",
        resolution=2.0,
        over=9,
        strength=5,
        span=8,
        locations=LINE,
        reach=1.2,
    ).to_pylist()
    steady, swinging = [row for row in events if row["time"] == LATER + 19 or row["event"] == "appears"][:2]
    assert (steady["value"], steady["sensors"]) == ({"mean": 4.0, "spread": 0.0}, ["a", "b"])
    assert swinging["sensors"] == ["c", "d"]
    assert swinging["value"]["spread"] == 2.0


def test_a_region_ends_when_its_sensors_read_something_else() -> None:
    """Not when the next reading comes that satisfies the condition: there is none."""
    rows = [(sensor, LATER + t, 31.0 if t < 3 else 20.0, "x") for t in range(9) for sensor in ("a", "b")]
    hot = {"sensor": "mote", "time": "ts", "value": "v", "strength": 1, "span": 2, "within": 5.0}
    events = told(sensing.phenomena(table_of(rows), **hot, where="v > 30"))
    assert [(event, time - LATER) for _, event, time, *_ in events] == [("appears", 0), ("disappears", 5)]
    assert "where v > 30" in str(ap.explain(sensing.phenomena(table_of(rows), **hot, where="v > 30")))
    filtered = table_of([row for row in rows if row[2] > 30])
    assert [event for _, event, *_ in told(sensing.phenomena(filtered, **hot))] == ["appears"]
    stream = ap.filter(ap.Stream(None, key="mote", time="ts", value="v"), "v > 30")
    field = ap.Phenomena(stream, strength=1, span=2, within=5.0)
    assert len(field.push(table_of(rows))) == 2


def test_a_group_that_falls_silent_ends_by_the_time_of_others() -> None:
    rows = [(sensor, LATER + t, 1.0, "x") for t in range(3) for sensor in ("a", "b")]
    rows += [("c", LATER + t, 1.0, "y") for t in range(20)]
    hot = {"sensor": "mote", "time": "ts", "value": "v", "strength": 1, "span": 1, "partition_by": "room"}
    assert len(sensing.phenomena(table_of(rows), **hot)) == 1
    field = sensing.by_hand(ap.Phenomena, **hot, idle_after=5)
    found = [told(field.push(table_of([row for row in rows if row[1] == LATER + t]))) for t in range(20)]
    assert [(t, row[1], row[2] - LATER) for t, part in enumerate(found) for row in part] == [
        (1, "appears", 0),
        (8, "disappears", 7),
    ]


def test_neighbours_that_are_listed() -> None:
    """Without locations there are neighbours, and no centroids; sensors that no pair names are rejects."""
    rows = [(sensor, LATER, 1.0, "x") for sensor in SENSORS]
    given_: dict[str, Any] = {"sensor": "mote", "time": "ts", "value": "v", "strength": 1, "span": 1}
    pairs = links_of([("a", "c"), ("c", "ee"), ("b", "d")])
    result = sensing.phenomena(table_of(rows), **given_, neighbours=pairs)
    assert [(row["sensors"], row["centroid"], row["hull"]) for row in result.to_pylist()] == [
        (["a", "c", "ee"], None, None),
        (["b", "d"], None, None),
    ]
    assert ap.rejects(result)["key"].to_pylist() == ["f"]
    result = sensing.phenomena(table_of(rows), **given_, neighbours=pairs, locations=LINE)
    assert result["centroid"].to_pylist() == [[2.0, 0.0], [2.0, 0.5]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reach": 1.0}, "Give one"),
        ({"neighbours": LINE}, "Give two"),
        ({"neighbours": links_of([("a", "z")])}, "names the sensor 'z'"),
        ({"neighbours": links_of([("a", None)])}, "without a sensor"),
        ({"neighbours": pa.table({"a": [[1]], "b": [[2]]})}, "sensors in column 'a' that are list"),
    ],
)
def test_errors_about_neighbours(change: dict[str, Any], message: str) -> None:
    given_: dict[str, Any] = {"sensor": "mote", "time": "ts", "value": "v", "strength": 1, "span": 1}
    given_ |= {"locations": LINE, "neighbours": links_of([("a", "b")])}
    with pytest.raises(ap.BadArgument, match=message):
        sensing.phenomena(table_of([("a", 0, 1.0, "x")]), **(given_ | change))
