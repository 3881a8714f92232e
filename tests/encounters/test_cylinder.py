"""The probability to meet in a cylinder, against quadrature the other way round, and against draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appulse.kernels.cylinder import cylinder_probability
from tests.helpers import naive_encounters as naive

numbers = st.floats(-4, 4)
places = st.tuples(numbers, numbers).map(np.array)


def _found(
    begin: np.ndarray, end: np.ndarray, rises: tuple[float, float], sigmas: tuple[float, float], epsilon: naive.Cylinder
) -> float:
    return cylinder_probability(begin, end, rises[0], rises[1] - rises[0], *sigmas, epsilon, epsilon)


@settings(max_examples=40, deadline=None)
@given(
    places,
    places,
    st.tuples(numbers, numbers),
    st.sampled_from((0.0, 0.2, 1.0, 5.0)),
    st.sampled_from((0.0, 0.2, 1.0, 5.0)),
    st.sampled_from(((1.0, 1.0), (2.5, 0.5), (0.3, 3.0))),
)
def test_the_probability_is_that_of_quadrature_the_other_way_round(
    begin: np.ndarray,
    end: np.ndarray,
    rises: tuple[float, float],
    flat: float,
    steep: float,
    epsilon: naive.Cylinder,
) -> None:
    expected = naive.cylinder(begin, end, rises, (flat, steep), epsilon)
    # The twin's own quadrature jumps where the altitude has no error.
    near = 1e-3 if flat and not steep else 3e-6
    assert _found(begin, end, rises, (flat, steep), epsilon) == pytest.approx(expected, abs=near)


def test_the_probability_is_the_share_of_draws() -> None:
    chance = np.random.default_rng(1)
    begin, end, rises, epsilon = np.array([-3.0, 0.5]), np.array([2.0, 1.5]), (-2.0, 1.0), (1.2, 0.6)
    n = 40_000
    drawn, heights = chance.normal(0.0, 0.8, (n, 2)), chance.normal(0.0, 0.4, n)
    met = np.zeros(n, bool)
    for t in np.linspace(0.0, 1.0, 1001):
        at, rise = begin + t * (end - begin) + drawn, rises[0] + t * (rises[1] - rises[0]) + heights
        met |= (np.linalg.norm(at, axis=1) <= epsilon[0]) & (np.abs(rise) <= epsilon[1])
    assert _found(begin, end, rises, (0.8, 0.4), epsilon) == pytest.approx(met.mean(), abs=0.01)


def test_level_flight_is_a_capsule_times_an_interval() -> None:
    begin, end = np.array([-3.0, 0.5]), np.array([2.0, 1.5])
    level = naive.capsule(begin, end, 0.8, 1.2)
    found = _found(begin, end, (0.5, 0.5), (0.8, 0.4), (1.2, 0.6))
    assert found == pytest.approx(level * (0.5987063256829237 - 0.0029797632350545556), abs=1e-9)
