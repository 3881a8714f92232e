"""The twins of sensor joins and phenomena against what can be worked out by hand, and a second way to the same."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import naive_sensors as naive
from tests.helpers.naive_sensors import Answer, Event, Reading


def readings_of(*rows: tuple[float, Any, int]) -> list[Reading]:
    """From (value, sensor, time), as the paper writes them."""
    return [Reading(sensor, time, value) for value, sensor, time in rows]


EXAMPLE = readings_of((7, "A", 1), (7, "B", 3), (5, "C", 4), (7, "A", 6), (7, "C", 8), (7, "B", 14))
FEW = st.lists(
    st.builds(Reading, st.sampled_from("ABCD"), st.integers(0, 12), st.integers(0, 2).map(float)), max_size=14
)


def test_the_worked_example_of_the_paper() -> None:
    """Five results under a window of 10, and as many under 8, which keeps A6 at 14."""
    expected = [
        Answer(1, [("A", [1])]),
        Answer(3, [("B", [3])]),
        Answer(4, [("A", [6, 1]), ("B", [3])]),
        Answer(5, [("C", [8]), ("A", [6])]),
    ]
    for window in (10, 8):
        answers = naive.sensor_join(EXAMPLE, window)
        assert answers == expected
        assert sum(len(list(naive.expand(answer))) for answer in answers) == 5
    assert list(naive.expand(expected[2])) == [(("A", 6), ("B", 3)), (("A", 1), ("B", 3))]
    assert naive.sensor_join(EXAMPLE, 7)[-1] == Answer(5, [("C", [8])])


def test_the_stored_readings_window_counts() -> None:
    answers = naive.sensor_join(EXAMPLE, {"A": 0, "B": 100, "C": 100})
    assert answers == [Answer(3, [("B", [3])]), Answer(4, [("B", [3])]), Answer(5, [("C", [8])])]


def test_ties_come_out_once_newest_first_and_doubles_stay() -> None:
    """At one instant the greater sensor probes, and stands first."""
    readings = readings_of((1, "C", 5), (1, "A", 5), (1, "B", 5), (1, "A", 5), (1, "A", 4))
    assert naive.sensor_join(readings, 0) == [Answer(2, [("A", [5, 5])]), Answer(0, [("B", [5]), ("A", [5, 5])])]
    assert naive.sensor_join(readings, 1)[0] == Answer(2, [("A", [5, 5, 4])])


def test_bins_are_floors_in_float64() -> None:
    readings = readings_of((0.3, "A", 0), (0.2, "B", 1), (-0.05, "C", 2), (-0.1, "D", 3))
    # 0.3 / 0.1 is 2.9999999999999996 in float64: it shares the bin of 0.2.
    assert naive.sensor_join(readings, 10, resolution=0.1) == [Answer(1, [("A", [0])]), Answer(3, [("C", [2])])]
    assert naive.sensor_join(readings, 10) == []
    assert naive.sensor_join(readings_of((0.0, "A", 0), (-0.0, "B", 1)), 10) == [Answer(1, [("A", [0])])]


def test_within_has_the_tolerance_of_the_house() -> None:
    readings = readings_of((0.1, "A", 0), (0.3, "B", 1), (0.3 + 2e-9, "C", 2))
    assert naive.sensor_join(readings, 10, within=0.2) == [Answer(1, [("A", [0])]), Answer(2, [("B", [1])])]


@given(FEW, st.integers(0, 8))
def test_the_structures_of_the_paper_say_the_same(readings: list[Reading], window: int) -> None:
    """Fig. 4: occurrences of a value, newest first, swept; here in order of time and sensor."""
    occurrences: dict[float, list[Reading]] = defaultdict(list)
    found = []
    for i in naive.order(readings):
        probe = readings[i]
        sublists: dict[Any, list[int]] = {}
        for stored in occurrences[probe.value]:
            if probe.time - stored.time > window:
                break
            if stored.sensor != probe.sensor:
                sublists.setdefault(stored.sensor, []).append(stored.time)
        occurrences[probe.value].insert(0, probe)
        if sublists:
            found.append(Answer(i, list(sublists.items())))
    assert naive.sensor_join(readings, window) == found


@given(FEW, st.integers(0, 8), st.sampled_from("ABCD"))
def test_sensors_that_come_and_go_change_nothing_between_others(
    readings: list[Reading], window: int, gone: str
) -> None:
    others = [reading for reading in readings if reading.sensor != gone]

    def pairs(some: list[Reading]) -> set[tuple[Any, ...]]:
        return {
            (some[answer.probe], sensor, time)
            for answer in naive.sensor_join(some, window)
            for sensor, times in answer.matches
            for time in times
            if gone not in {some[answer.probe].sensor, sensor}
        }

    assert pairs(others) == pairs(readings)


@given(FEW, st.integers(0, 8), st.randoms(use_true_random=False))
def test_order_of_arrival_does_not_matter(readings: list[Reading], window: int, random: Any) -> None:
    shuffled = list(readings)
    random.shuffle(shuffled)

    def told(some: list[Reading]) -> list[tuple[Reading, Any]]:
        return sorted((some[answer.probe], answer.matches) for answer in naive.sensor_join(some, window))

    assert told(shuffled) == told(readings)


@given(FEW, st.integers(0, 8))
def test_every_pair_is_found_from_one_side(readings: list[Reading], window: int) -> None:
    found = sum(len(times) for answer in naive.sensor_join(readings, window) for _, times in answer.matches)
    assert found == sum(
        a.sensor != b.sensor and a.value == b.value and abs(a.time - b.time) <= window
        for a, b in combinations(readings, 2)
    )


# --- phenomena ------------------------------------------------------------------------------------------------------

LINE = {sensor: (float(i),) for i, sensor in enumerate("ABCDEF")}


def field(*ticks: str) -> list[Reading]:
    """Tick by tick the sensors that read 1; those that do not read 0, each its own time so that nothing else holds."""
    return [Reading(sensor, time, 1.0) for time, sensors in enumerate(ticks) for sensor in sensors] + [
        Reading("Z", time, 0.0) for time, sensors in enumerate(ticks) if not sensors
    ]


def events(*ticks: str, reach: float = 1.0, **more: Any) -> list[Event]:
    return naive.phenomena(field(*ticks), 1, 0, locations={**LINE, "Z": (99.0,)}, reach=reach, **more)


def test_a_phenomenon_appears_moves_and_disappears() -> None:
    assert events("AB", "ABC", "BC", "BC", "C", "") == [
        Event(0, 1.0, 0, "appears", ("A", "B")),
        Event(1, 1.0, 0, "moves", ("A", "B", "C")),
        Event(2, 1.0, 0, "moves", ("B", "C")),
        Event(4, 1.0, 0, "disappears", ("B", "C")),
    ]


def test_merging_keeps_the_id_that_shares_most_then_the_older() -> None:
    found = events("ABDE", "ABCDE", "ABDE")
    assert found == [
        Event(0, 1.0, 0, "appears", ("A", "B")),
        Event(0, 1.0, 1, "appears", ("D", "E")),
        Event(1, 1.0, 0, "moves", ("A", "B", "C", "D", "E")),
        Event(1, 1.0, 1, "disappears", ("D", "E"), merged=(0,)),
        Event(2, 1.0, 0, "moves", ("A", "B")),
        Event(2, 1.0, 2, "appears", ("D", "E"), split=(0,)),
    ]
    assert events("ABDEF", "ABCDEF")[-2:] == [
        Event(1, 1.0, 0, "disappears", ("A", "B"), merged=(1,)),
        Event(1, 1.0, 1, "moves", tuple("ABCDEF")),
    ]


def test_strength_counts_readings_of_the_closed_span() -> None:
    readings = readings_of((1, "A", 0), (1, "A", 5), (1, "B", 0), (1, "B", 5), (1, "C", 5), (0, "A", 6))
    assert naive.phenomena(readings, 2, 5) == [
        Event(5, 1.0, 0, "appears", ("A", "B")),
        Event(6, 1.0, 0, "disappears", ("A", "B")),
    ]
    assert naive.phenomena(readings, 2, 4) == []
    assert naive.phenomena(readings, 2, 5, min_sensors=3) == []


@pytest.mark.parametrize(("distance", "regions"), [(1.0, 1), (1.0 + 2e-9, 2)])
def test_reach_has_the_tolerance_of_the_house(distance: float, regions: int) -> None:
    readings = readings_of((1, "A", 0), (1, "B", 0))
    located = {"A": (0.0, 0.0), "B": (0.6 * distance, 0.8 * distance)}
    found = naive.phenomena(readings, 1, 0, min_sensors=1, locations=located, reach=1.0)
    assert len(found) == regions


def test_numbers_go_by_tick_bin_and_first_sensor() -> None:
    readings = readings_of((2, "A", 0), (2, "B", 0), (1, "E", 0), (1, "F", 0), (1, "B", 0), (1, "C", 0))
    found = naive.phenomena(readings, 1, 0, locations=LINE, reach=1.0)
    assert [(event.bin, event.phenomenon, event.sensors[0]) for event in found] == [
        (1, 0, "B"),
        (1, 1, "E"),
        (2, 2, "A"),
    ]
    assert math.isfinite(found[0].bin)
