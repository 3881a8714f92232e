"""Readings in order of value against sorted lists; and that few are looked at to find a place."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from appulse.kernels.value_order import AFTER, BEFORE, HELD, LESS, MORE, OWNER, ROOT, first_from, put_in, take_out

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints


class Order(NamedTuple):
    """Readings of some sensors, and nothing else."""

    ring: Ints
    value: Floats
    sensors: Ints


def _order(readings: int, sensors: int) -> Order:
    known = np.full((sensors, 2), -1, np.int64)
    known[:, HELD] = 0
    return Order(np.zeros((readings, 6), np.int64), np.zeros(readings), known)


def _put(order: Order, number: int, sensor: int, value: float) -> None:
    at = number % len(order.ring)
    order.ring[at, OWNER], order.value[at] = sensor, value
    put_in(order, number)


def _walked(order: Order, number: int, link: int) -> list[tuple[float, int]]:
    found = []
    while number >= 0:
        at = number % len(order.ring)
        found.append((float(order.value[at]), number))
        number = int(order.ring[at, link])
    return found


def _deepest(order: Order, number: int) -> int:
    if number < 0:
        return 0
    row = order.ring[number % len(order.ring)]
    return 1 + max(_deepest(order, int(row[LESS])), _deepest(order, int(row[MORE])))


@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0.0, 0.5, 1.0, -2.0]) | st.floats(-3, 3)), max_size=60),
    st.integers(1, 16),
)
def test_equals_sorted_lists(readings: list[tuple[int, float]], most: int) -> None:
    """The newest readings, of two sensors, in a ring that goes round."""
    order, known = _order(16, 2), [list[tuple[float, int]](), list[tuple[float, int]]()]
    for number, (sensor, value) in enumerate(readings):
        if number >= most:
            owner, old = readings[number - most]
            take_out(order, number - most)
            known[owner].remove((old, number - most))
        _put(order, number, sensor, value)
        insort(known[sensor], (value, number))
        for s in (0, 1):
            assert order.sensors[s, HELD] == len(known[s])
            assert _walked(order, int(first_from(order, s, -np.inf)), AFTER) == known[s]
            if known[s]:
                assert _walked(order, known[s][-1][1], BEFORE) == known[s][::-1]
        place = bisect_left(known[sensor], (value, -1))
        assert first_from(order, sensor, value) == known[sensor][place][1]
    for s in (0, 1):
        assert first_from(order, s, 4.0) == -1


def test_a_tree_is_not_deep() -> None:
    """Not for values that rise, nor for equal ones."""
    for values in (np.arange(4096.0), np.zeros(4096), np.random.default_rng(0).normal(size=4096)):
        order = _order(4096, 1)
        for number, value in enumerate(values):
            _put(order, number, 0, float(value))
        assert _deepest(order, int(order.sensors[0, ROOT])) < 60
        for number in range(2048):
            take_out(order, number)
        assert _deepest(order, int(order.sensors[0, ROOT])) < 60
