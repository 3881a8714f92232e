"""What the claims of the sensor join are measured with: the queue, updates, shedding, and what shows each feature."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import sensor_changes as changing
from benchmarks import sensor_claims as claims
from benchmarks import sensor_fields as fields
from benchmarks.sensor_laps import CONTESTANTS, Given, Lap, lap, updates
from benchmarks.sensor_ours import Ours
from benchmarks.sensor_uses import FEATURES, features

pytestmark = pytest.mark.rivals
ROOT = Path(__file__).resolve().parents[2]
S = fields.SECOND


def given_of(rows: list[tuple[float, int, int]]) -> Given:
    """Readings of (seconds, sensor, value)."""
    time, sensor, value = (np.array(column) for column in zip(*rows, strict=True))
    return Given.of(
        fields.Readings(int(sensor.max()) + 1, sensor, (time * S).astype(np.int64), value.astype(np.float64))
    )


def lap_of(kept: list[int], sets: list[int]) -> Lap:
    return Lap(np.ones(1), np.array(kept), np.ones(len(kept), np.int64), np.array(sets, np.uint64))


def test_the_queue_by_hand() -> None:
    """Three at once wait for one another; the next finds the server busy, the last one idle."""
    times = np.array([0, 0, 0, 2, 10]) * S
    assert claims.delay(times, 1.0) == pytest.approx((1 + 2 + 3 + 2 + 1) / 5)


@pytest.mark.parametrize("service", [0.1, 0.9, 1.3])
def test_the_queue_is_that_of_a_loop(service: float) -> None:
    times = np.cumsum(np.random.default_rng(1).exponential(S, 200)).astype(np.int64)
    free, total = 0.0, 0.0
    for at in times / S:
        free = max(free, at) + service
        total += free - at
    assert claims.delay(times, service) == pytest.approx(total / len(times))


def test_updates_are_answers_of_other_sensors() -> None:
    """By value, in order of time; before what is measured none counts; right are those that nothing shed would give."""
    given = given_of([(19, 0, 1), (20, 0, 1), (21, 1, 2), (22, 0, 1), (23, 1, 1), (24, 1, 2), (25, 0, 2)])
    whole = lap_of(list(range(7)), [9, 5, 8, 5, 6, 8, 0])
    assert updates(given, whole, whole) == (3, 3)
    # Of value 1: 5, then 4, which is wrong, and is 6 in truth; of value 2: 8.
    assert updates(given, lap_of([1, 4, 5], [5, 4, 8]), whole) == (3, 2)
    assert updates(given, lap_of([6], [0]), whole) == (0, 0)


def test_a_smaller_share_is_a_part_of_a_larger_one() -> None:
    given = claims.board(5, 1)
    few, many = given.thinned(0.2), given.thinned(0.7)
    assert set(few.tolist()) < set(many.tolist())
    assert len(few) / len(given.field) == pytest.approx(0.2, abs=0.02)


def test_contestants_agree_and_those_that_are_too_slow_shed() -> None:
    """With a CPU of a hundredth of what any needs all shed nearly everything; with plenty none sheds."""
    given = claims.synthetic(100, 1)
    given = Given.of(given.field.until(45.0))
    whole = claims.timed_laps(given, dict.fromkeys(CONTESTANTS, given.thinned(1.0)))
    claims.agree(whole)
    dearest = given.rate * max(one.cost for one in whole.values())
    plenty, little = (claims.measured(given, whole, limit) for limit in (100 * dearest, dearest / 100))
    for name in CONTESTANTS:
        assert plenty[name]["drops"] == 0
        assert plenty[name]["right"] == plenty[name]["updates"] > little[name]["updates"]
        assert little[name]["drops"] > 50
        assert little[name]["delay"] > plenty[name]["delay"]
    wrong = {**whole, "MJoin": lap(Ours(1), given, given.thinned(1.0))}
    with pytest.raises(RuntimeError, match="MJoin tells other answers"):
        claims.agree(wrong)


def test_all_agree_while_sensors_come_and_go() -> None:
    readings, changes = fields.coming_and_going(60, changing.MINUTES, 1, most=20)
    given = Given.of(readings)
    found = {name: changing.minutes(name, given) for name in CONTESTANTS}
    for one in found.values():
        np.testing.assert_array_equal(one.met, found["ours"].met)
    assert len(changes)
    assert found["ours"].rebuilding == 0 < found["HMJ tree"].rebuilding
    assert changing.kept_share("HMJ tree", 1.0, 1.0) == 0.5
    assert changing.kept_share("MJoin", 1.0, 0.25) == 0.75


def test_each_feature_is_shown_by_something() -> None:
    for path in (path for row in FEATURES for path in row.shown_by):
        file, _, test = path.partition("::")
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8") if test else (ROOT / file).exists()
    assert features().count("\n| ") == len(FEATURES) + 1
