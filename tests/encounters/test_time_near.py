"""How long two are expected to be near: against quadrature in time, and over errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appulse.kernels.time_near import Passing, share_near
from tests.helpers import naive_encounters as naive

NUMBERS = st.floats(-4, 4)
SHAPES = ((0,), (0, 0), (0, 1), (0, 0, 0), (0, 0, 1), (1, 0, 0), (0, 1, 2))


def _share(
    begin: np.ndarray, end: np.ndarray, matrices: tuple[np.ndarray, np.ndarray], group: tuple[int, ...], epsilon: object
) -> float:
    error, grown = (matrix[np.triu_indices(len(matrix))] for matrix in matrices)
    return share_near(Passing(begin, end, error, grown, np.array(group), np.array(epsilon, float)))


@given(
    st.integers(1, 3).flatmap(lambda d: st.tuples(*[st.tuples(*[NUMBERS] * d).map(np.array)] * 2)),
    st.sampled_from((0.01, 0.1, 1.0, 20.0)),
    st.sampled_from((0.0, 0.5, 3.0)),
    st.sampled_from((0.03, 1.0, 5.0)),
)
def test_errors_alike_in_all_directions_are_those_of_quadrature_in_time(
    path: tuple[np.ndarray, np.ndarray], sigma: float, growth: float, epsilon: float
) -> None:
    begin, end = path
    d, grown = len(begin), math.hypot(sigma, growth)
    found = _share(begin, end, (np.eye(d) * sigma**2, np.eye(d) * grown**2), (0,) * d, [epsilon])
    assert found == pytest.approx(naive.share_near(begin, end, (sigma, grown), epsilon), abs=1e-7)


@given(st.integers(0, 1 << 30), st.sampled_from(SHAPES), st.sampled_from((0.2, 1.0, 3.0)))
def test_other_errors_are_those_of_draws(seed: int, shape: tuple[int, ...], wide: float) -> None:
    chance = np.random.default_rng(seed)
    d = len(shape)
    root = chance.normal(size=(d, d)) * 10.0 ** chance.uniform(-1, 0.5, (d, 1))
    if d > 1 and chance.random() < 0.3:
        root[chance.integers(d)] = 0.0  # a coordinate that is known
    begin, end = chance.normal(0.0, 2.0, (2, d))
    epsilon = wide * chance.uniform(0.5, 1.5, max(shape) + 1)
    groups = tuple((tuple(k for k in range(d) if shape[k] == g), epsilon[g]) for g in range(max(shape) + 1))
    expected = naive.share_drawn(begin, end, root @ root.T, groups)
    assert _share(begin, end, (root @ root.T,) * 2, shape, epsilon) == pytest.approx(expected, abs=0.005)


def test_errors_along_a_line_are_met_far_from_the_nearest_place() -> None:
    """The way passes a line of errors, two wide and a thousand long, where it is far from the origin."""
    along, across = np.array([1.0, 1.0]) / math.sqrt(2.0), np.array([1.0, -1.0]) / math.sqrt(2.0)
    covariance = 1e6 * np.outer(along, along) + np.outer(across, across)
    begin, end = np.array([-20_000.0, 600.0]), np.array([20_000.0, 600.0])
    found = _share(begin, end, (covariance, covariance), (0, 0), [1.0])
    # A disc passes over the density: its area times the integral of that along the way.
    x = np.linspace(500.0, 700.0, 200_001)
    density = np.exp(-0.5 * ((x + 600.0) ** 2 / 2e6 + (x - 600.0) ** 2 / 2.0)) / (2.0 * math.pi * 1000.0)
    assert found == pytest.approx(math.pi * density.mean() * 200.0 / 40_000.0, rel=0.01)


def test_what_is_known_is_exact() -> None:
    nothing = np.zeros((2, 2))
    found = _share(np.array([-5.0, 3.0]), np.array([5.0, 3.0]), (nothing, nothing), (0, 0), [5.0])
    assert found == pytest.approx(0.8)
    assert _share(np.array([0.0, 0.0]), np.array([0.0, 0.0]), (np.eye(2), np.eye(2)), (0, 0), [0.0]) == 0.0
