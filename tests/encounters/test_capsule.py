"""The mass of a capsule against dense quadrature, against balls, and against draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appulse.kernels.capsule import capsule_probability, segment_distance, stretch_within
from appulse.kernels.gaussian import ball_probability
from tests.helpers import naive_encounters as naive

numbers = st.floats(-6, 6)


@given(st.integers(1, 3), st.data(), st.sampled_from((0.05, 1.0, 30.0)), st.sampled_from((0.1, 1.0, 8.0)))
def test_the_mass_is_that_of_dense_quadrature(d: int, data: st.DataObject, deviation: float, epsilon: float) -> None:
    begin, end = (np.array(data.draw(st.tuples(*[numbers] * d)), float) for _ in range(2))
    found = capsule_probability(begin, end, deviation, epsilon)
    assert found == pytest.approx(naive.capsule(begin, end, deviation, epsilon), abs=1e-7 if deviation < 1 else 1e-8)


@given(st.integers(1, 3), st.data(), st.sampled_from((0.01, 0.5, 3.0)))
def test_a_segment_of_no_length_is_a_ball(d: int, data: st.DataObject, deviation: float) -> None:
    at = np.array(data.draw(st.tuples(*[numbers] * d)), float)
    expected = ball_probability(float(np.linalg.norm(at)), deviation, 2.0, d)
    assert capsule_probability(at, at, deviation, 2.0) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_mass_is_the_share_of_draws(d: int) -> None:
    chance = np.random.default_rng(d)
    begin, end = np.array([2.0, 1.0, -1.0])[:d], np.array([-1.0, 2.0, 2.0])[:d]
    drawn = chance.normal(0.0, 1.5, (100_000, d))
    step = end - begin
    share = np.clip(-((begin + drawn) @ step) / (step @ step), 0.0, 1.0)
    near = np.linalg.norm(begin + drawn + share[:, None] * step, axis=1) <= 1.2
    assert capsule_probability(begin, end, 1.5, 1.2) == pytest.approx(near.mean(), abs=0.006)


@given(st.data(), st.floats(0, 5))
def test_the_path_is_as_near_and_as_long_within_as_its_points(data: st.DataObject, epsilon: float) -> None:
    begin, end = (np.array(data.draw(st.tuples(numbers, numbers))) for _ in range(2))
    points = np.linalg.norm(begin + np.linspace(0.0, 1.0, 4001)[:, None] * (end - begin), axis=1)
    distance, at = segment_distance(begin, end)
    assert distance == pytest.approx(points.min(), abs=0.01)
    assert np.linalg.norm(begin + at * (end - begin)) == pytest.approx(distance, abs=1e-9)
    if abs(distance - epsilon) > 0.02:
        first, last = stretch_within(begin, end, np.zeros(2, np.int64), 0, epsilon)
        assert max(0.0, last - first) == pytest.approx(np.mean(points <= epsilon), abs=0.02)
