"""The contestants of the benchmarks of sensor joins against the slow twin, and the fields they are measured on."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import sensor_fields as fields
from benchmarks.mjoin import DistributedMJoin, FlinkMultiJoin, JoinTree, MJoin
from benchmarks.sensor_rivals import DuckDB, spark_chain
from tests.helpers import naive_sensors as naive
from tests.helpers.naive_sensors import Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.mjoin import Contestant

pytestmark = pytest.mark.rivals
STREAMS = 5
MAKERS: dict[str, Callable[[Any], Any]] = {
    "MJoin": lambda window: MJoin(STREAMS, window, 2),
    "distributed MJoin": lambda window: DistributedMJoin(STREAMS, window, np.array([1, 0, 2, 0, 1]), 2),
    "Flink": lambda window: FlinkMultiJoin(STREAMS, window),
    "balanced tree": lambda window: JoinTree(STREAMS, window, 3),
    "left-deep tree": lambda window: JoinTree(STREAMS, window, 3, "left-deep"),
    "DuckDB": lambda window: DuckDB(STREAMS, window),
}
WINDOWS = st.lists(st.integers(0, 9), min_size=STREAMS, max_size=STREAMS)
ROWS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, STREAMS - 1), st.integers(-1, 1)), max_size=40)


def sorted_readings(rows: list[tuple[int, int, int]]) -> list[Reading]:
    return [Reading(sensor, time, float(value)) for time, sensor, value in sorted(rows, key=lambda row: row[:2])]


def pushed(contestant: Any, readings: list[Reading], cuts: Iterable[int]) -> list[naive.Answer]:
    """The answers of all batches, as the twin gives them."""
    bounds, answers = [0, *sorted(min(cut, len(readings)) for cut in cuts), len(readings)], []
    for begin, end in pairwise(bounds):
        part = readings[begin:end]
        found = contestant.push(
            np.array([r.time for r in part], np.int64),
            np.array([r.sensor for r in part], np.int64),
            np.array([r.value for r in part]).astype(np.int64),
        )
        for k, probe in enumerate(found.probe.tolist()):
            matches = [
                (int(found.sensor[g]), found.time[found.begin[g] : found.begin[g + 1]].tolist())
                for g in range(found.first[k], found.first[k + 1])
            ]
            answers.append(naive.Answer(begin + probe, matches))
    return answers


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=15)
@given(rows=ROWS, window=WINDOWS, cuts=st.lists(st.integers(0, 40), max_size=2))
def test_every_contestant_gives_the_answers_of_the_twin(
    name: str, rows: list[tuple[int, int, int]], window: list[int], cuts: list[int]
) -> None:
    readings = sorted_readings(rows)
    expected = naive.sensor_join(readings, dict(enumerate(window)))
    assert pushed(MAKERS[name](window), readings, cuts) == expected


def test_contestants_agree_where_rings_and_rooms_grow() -> None:
    """Thousands of readings, many matches a reading, one bin hot."""
    field = fields.synthetic(60, 30, 3)
    some = field.bins() % 40
    makers: list[Contestant] = [
        MJoin(60, fields.WINDOW),
        DistributedMJoin(60, fields.WINDOW, np.arange(60) // 7),
        FlinkMultiJoin(60, fields.WINDOW),
        JoinTree(60, fields.WINDOW, 40),
        JoinTree(60, fields.WINDOW, 40, "left-deep"),
        DuckDB(60, fields.WINDOW),
    ]
    for begin in range(0, len(field), 700):
        part = slice(begin, begin + 700)
        found = [one.push(field.time[part], field.sensor[part], some[part]) for one in makers]
        assert len(found[0].probe) > 500 or begin + 700 > len(field)
        for other in found[1:]:
            for one, same in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(one, same)


def test_trees_say_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="balanced"):
        JoinTree(2000, 1, 1000, "left-deep")
    with pytest.raises(ValueError, match="1 bins, and there are 2"):
        JoinTree(2, 1, 1).push(np.arange(2), np.arange(2), np.arange(2))


def test_a_chain_of_joins_on_spark(spark: SparkSession) -> None:
    """Two sensors at one instant, a match on the edge of the window, one reading without any."""
    readings = [Reading(0, 1, 7), Reading(0, 3, 7), Reading(2, 3, 7), Reading(2, 2, 7)]
    readings += [Reading(1, 3, 7), Reading(1, 12, 5), Reading(1, 13, 7), Reading(1, 14, 7)]
    streams: list[DataFrame] = []
    for sensor in range(3):
        some = [r for r in readings if r.sensor == sensor]
        time = pa.array([r.time * 1_000_000 for r in some], pa.timestamp("us", "UTC"))
        streams.append(spark.createDataFrame(pa.table({"time": time, "value": [r.value for r in some]})))
    order = sorted(readings, key=lambda r: (r.time, r.sensor))
    expected = {
        (order[answer.probe].time, *sorted(chosen))
        for answer in naive.sensor_join(order, 10)
        if order[answer.probe].sensor == 1
        for chosen in naive.expand(answer)
    }
    found = set()
    for row in spark_chain(streams, 1, 10).collect():
        times = {i: round(row[f"time_{i}"].timestamp()) for i in range(3) if row[f"time_{i}"] is not None}
        if len(times) > 1:
            found.add((times[1], *((i, t) for i, t in times.items() if i != 1)))
    assert found == expected


# --- fields ---------------------------------------------------------------------------------------------------------


def met(field: fields.Readings) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How many sensors each reading meets, once windows are full."""
    found = FlinkMultiJoin(field.sensors, fields.WINDOW).push(field.time, field.sensor, field.bins())
    sensors = np.zeros(len(field), np.int64)
    sensors[found.probe] = np.diff(found.first)
    return sensors[field.time >= fields.WINDOW]


def test_fields_are_in_order_and_the_same_for_a_seed() -> None:
    makers: list[Callable[[int], fields.Readings]] = [
        lambda seed: fields.synthetic(100, 20, seed),
        lambda seed: fields.dealt(4000, 3000, seed),
        lambda seed: fields.board(seed, 2.0),
        lambda seed: fields.coming_and_going(200, 3, seed)[0],
    ]
    for make in makers:
        field, again, other = make(1), make(1), make(2)
        assert np.array_equal(np.lexsort((field.sensor, field.time)), np.arange(len(field)))
        assert field.sensor.min() >= 0
        assert field.sensor.max() < field.sensors
        assert np.array_equal(field.value, again.value)
        assert not np.array_equal(field.value[:1000], other.value[:1000])


def test_a_reading_meets_5_to_25_sensors() -> None:
    sensors = met(fields.synthetic(2000, 25, 1))
    assert 5 <= np.median(sensors) <= 25
    assert ((sensors >= 5) & (sensors <= 25)).mean() > 0.75


def test_the_synthetic_field_is_the_papers() -> None:
    field = fields.synthetic(300, 50, 2)
    assert (np.bincount(field.sensor) == 50).all()
    assert np.diff(np.sort(field.time[field.sensor == 5])).mean() / 1e6 == pytest.approx(1.0, abs=0.4)
    assert set(field.value) <= set(range(fields.DOMAIN))


def test_fields_of_any_size_have_the_same_rate_and_selectivity() -> None:
    matches = []
    for sensors in (200, 2000, 20_000):
        field = fields.dealt(sensors, 40_000, 5)
        assert field.sensors == sensors
        assert field.time[-1] / 1e6 == pytest.approx(20.0, rel=0.05)
        found = FlinkMultiJoin(sensors, fields.WINDOW).push(field.time, field.sensor, field.bins())
        matches.append(len(found.time))
    assert max(matches) < 1.15 * min(matches)


def test_the_boards_heat_moves() -> None:
    field = fields.board(1, 40.0)
    value = field.value.reshape(-1, 25)
    assert len(value) == 4000
    assert len(set(value[::200].argmax(axis=1).tolist())) > 3
    assert 10.0 < value.max() < 25.0


def test_sensors_come_and_go_by_the_minute() -> None:
    field, changes = fields.coming_and_going(300, 4, 1)
    assert {int(time) for time, _, _ in changes} == {60_000_000, 120_000_000, 180_000_000}
    there = np.arange(300) < 150
    for minute in range(4):
        for time, sensor, change in changes:
            if time == minute * 60_000_000:
                assert there[sensor] == (change < 0)
                there[sensor] = change > 0
        part = field.sensor[field.time // 60_000_000 == minute]
        assert set(part.tolist()) <= set(np.flatnonzero(there).tolist())
