"""The stage over readings, in a played Spark: whatever is cut, copied or forgotten, answers stay."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appulse.engines.spark.readings_codec import pack_readings, unpack_readings
from appulse.engines.spark.sensors.routing import value_routing
from appulse.engines.spark.tiles import TilePlan
from appulse.model.readings import encode_readings
from tests.helpers import sensing
from tests.helpers.fake_spark import FakeReadings
from tests.operators.test_sensor_join import SENSORS, Case, cases, expected, table_of, told

LATER = 10_000  # seconds: Spark's watermark begins in 1970


def _later(case: Case) -> Case:
    rows = ((sensor, time + LATER, *rest) for sensor, time, *rest in case.rows)
    return replace(case, rows=tuple(rows))


@st.composite
def cut(draw: st.DrawFn, case: Case) -> list[pa.Table]:
    rows = list(draw(st.permutations(case.rows)))
    parts: list[Any] = [[]]
    for row in rows:
        if draw(st.integers(0, 2)) == 0:
            parts.append([])
        parts[-1].append(row)
    return [table_of(part, case.kind) for part in parts]


def _check(data: st.DataObject) -> None:
    case = _later(data.draw(cases()))
    buckets = data.draw(st.sampled_from((1, 2, 3, 5)))
    grouped = data.draw(st.booleans())
    where = data.draw(st.sampled_from(("v > -9e99", "v >= 0")))
    kept = [row for row in case.rows if where == "v > -9e99" or row[2] >= 0]
    call = sensing.resolved_sensors(
        case.table,
        **case.arguments(),
        lateness=13,
        partition_by=("room",) if grouped else None,
        carry=["note"],
        where=where,
    )
    sample = encode_readings(case.table.slice(0, 12), call.encoding)[0].counting() if data.draw(st.booleans()) else None
    spark = FakeReadings(
        call=call,
        plan=TilePlan(buckets, 1.0, 0.0, 0.0),
        random=Random(data.draw(st.integers(0, 1 << 30))),
        by=value_routing(call.plan, buckets, sample),
    )
    found, rejects = [], []
    for table in data.draw(cut(case)):
        answers, refused = spark.batch({"readings": table})
        found += answers
        rejects += refused
    found += spark.end()[0]
    answers = pa.concat_tables([call.answer_schema.empty_table(), *found])
    assert not rejects
    if not grouped:
        assert told(answers) == expected(case, kept)
        return
    for room in ("x", "y"):
        mine = answers.filter(pa.compute.equal(answers["room"], room))
        assert told(mine) == expected(case, [row for row in kept if row[3] == room])


def _check_released(data: st.DataObject) -> None:
    """With ticks that are complete soon, so that logs are cut; windows of sensors, or in a column of the readings."""
    case = _later(data.draw(cases()))
    window: Any = data.draw(st.sampled_from((case.window, "note")))
    by = data.draw(st.sampled_from(({}, {}, {"similar": "pattern", "over": 4})))
    alike = {} if by else case.alike()
    arguments: dict[str, Any] = {"sensor": "mote", "time": "ts", "value": "v", "window": window, **alike, **by}
    rows = sorted(case.rows, key=lambda row: row[1] + data.draw(st.integers(0, 2)))
    call = sensing.resolved_sensors(case.table, **arguments, lateness=2)
    buckets = 1 if by else data.draw(st.sampled_from((1, 2, 3)))
    spark = FakeReadings(
        call=call,
        plan=TilePlan(buckets, 1.0, 0.0, 0.0),
        random=Random(data.draw(st.integers(0, 1 << 30))),
        by=value_routing(call.plan, buckets, None),
    )
    found: list[pa.Table] = []
    while rows:
        n = data.draw(st.integers(1, 4))
        found += spark.batch({"readings": table_of(rows[:n], case.kind)})[0]
        rows = rows[n:]
    answers = pa.concat_tables([call.answer_schema.empty_table(), *found, *spark.end()[0]])
    assert told(answers) == told(sensing.sensor_join(case.table, **arguments))


@settings(max_examples=70, deadline=None)
@given(st.data())
def test_what_has_left_the_log_met_all_it_could(data: st.DataObject) -> None:
    _check_released(data)


@pytest.mark.long
@settings(max_examples=3000, deadline=None)
@given(st.data())
def test_what_has_left_the_log_met_all_it_could_long(data: st.DataObject) -> None:
    _check_released(data)


@settings(max_examples=70, deadline=None)
@given(st.data())
def test_buckets_answer_as_the_twin(data: st.DataObject) -> None:
    _check(data)


@pytest.mark.long
@settings(max_examples=3000, deadline=None)
@given(st.data())
def test_buckets_answer_as_the_twin_long(data: st.DataObject) -> None:
    _check(data)


def test_a_log_is_as_long_as_its_window() -> None:
    """Readings leave the log by time; a worker that knows nothing reads no more than a window."""
    schema = table_of([]).schema
    call = sensing.resolved_sensors(schema.empty_table(), sensor="mote", time="ts", value="v", window=20)
    spark = FakeReadings(
        call=call, plan=TilePlan(1, 1.0, 0.0, 0.0), random=Random(1), by=value_routing(call.plan, 1, None)
    )
    for t in range(200):
        rows = [(sensor, LATER + t, 1.0, "x", 0) for sensor in SENSORS]
        spark.batch({"readings": table_of(rows)})
    (store,) = spark.stores.values()
    assert 20 <= len(store["log"]) <= 45  # a timer adds a step now and then


def test_a_value_that_most_sensors_hold_is_answered_by_all_buckets() -> None:
    """Split, and neither lost nor doubled: each reading is answered once, by one of them."""
    rng = np.random.default_rng(2)
    rows = [(SENSORS[rng.integers(5)], LATER + t // 4, 1.0 if t % 10 else float(t), "x", t) for t in range(400)]
    case = Case(tuple(rows), 5, None, None)
    call = sensing.resolved_sensors(case.table, **case.arguments())
    readings = encode_readings(case.table, call.encoding)[0]
    plain, split = (dict(value_routing(call.plan, 4, sample).parts(readings)) for sample in (None, readings))
    assert max(map(len, plain.values())) > 350
    answered = [int(part.asks.sum()) for part in split.values() if part.asks is not None]
    assert sum(answered) == 400
    assert max(answered) < 130
    spark = FakeReadings(
        call=call,
        plan=TilePlan(4, 1.0, 0.0, 0.0),
        random=Random(3),
        by=value_routing(call.plan, 4, readings),
    )
    found = [table for at in range(0, 400, 50) for table in spark.batch({"readings": case.table.slice(at, 50)})[0]]
    assert told(pa.concat_tables([*found, *spark.end()[0]])) == expected(case)


@given(cases())
def test_blocks_say_what_was_packed(case: Case) -> None:
    call = sensing.resolved_sensors(case.table, **case.arguments(), partition_by=("room",), carry=["note"])
    readings = encode_readings(case.table, call.encoding)[0]
    if len(readings) == 0:
        return
    packed = pack_readings(readings)
    read = unpack_readings(packed)
    assert (read.time == readings.time).all()
    assert (read.key is None) is (readings.key is None)
    assert read.key is None or np.array_equal(read.key, np.asarray(readings.key))
    assert read.carry == readings.carry
    assert read.sensor.to_list() == readings.sensor.to_list()
    assert pack_readings(read) == packed
