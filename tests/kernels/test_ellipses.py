"""Normal differences of any covariance: closed forms and adaptive integrals against quadrature of many short pieces."""

from __future__ import annotations

import math

import numpy as np
import pytest

from appulse.kernels.ellipses import along_axes, plane_probability, space_probability
from tests.helpers import naive, normal


def turned(chance: np.random.Generator, deviations: np.ndarray) -> np.ndarray:
    """A covariance of these deviations along axes of any direction."""
    axes, _ = np.linalg.qr(chance.normal(size=(len(deviations), len(deviations))))
    matrix: np.ndarray = axes @ np.diag(deviations**2) @ axes.T
    return matrix


@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
def test_in_the_plane_the_probability_is_that_of_quadrature(spread: float) -> None:
    """Deviations up to six orders of magnitude apart, and means at the rim, where the integrand is steepest."""
    chance = np.random.default_rng(3)
    worst = 0.0
    for i in range(400):
        epsilon = 10.0 ** chance.uniform(-2.0, 2.0)
        covariance = turned(chance, epsilon * 10.0 ** chance.uniform(-spread, spread, 2))
        gap = chance.normal(size=2) * epsilon
        if i % 3 == 0:
            gap *= epsilon / np.linalg.norm(gap)
        found = plane_probability(gap[0], gap[1], covariance[0, 0], covariance[0, 1], covariance[1, 1], epsilon)
        worst = max(worst, abs(found - normal.within(gap, covariance, epsilon)))
    assert worst < 1e-10


def test_every_number_of_nodes_is_enough_up_to_where_it_serves() -> None:
    """Epsilon from a tenth of the smaller deviation to thousands of it, in steps that pass every rule's end."""
    worst = 0.0
    for epsilon in np.r_[0.1, 0.5, 1.0, np.arange(2.0, 40.0, 0.499), 50.0, 97.0, 200.0, 1e3, 1e4]:
        for ratio in (1.001, 1.5, 4.0, 30.0):
            for angle in (0.0, 0.4, 0.9, math.pi / 2):
                for far in (0.0, 0.7, 1.0, 1.1):
                    gap = far * epsilon * math.cos(angle), far * epsilon * math.sin(angle)
                    found = along_axes(*gap, ratio, 1.0, epsilon)
                    truth = normal.within(gap, ((ratio**2, 0.0), (0.0, 1.0)), epsilon)
                    worst = max(worst, abs(found - truth))
    assert worst < 1e-10


def test_in_space_the_probability_is_that_of_quadrature() -> None:
    chance = np.random.default_rng(4)
    worst = 0.0
    for i in range(40):
        epsilon = 10.0 ** chance.uniform(-1.0, 1.0)
        covariance = turned(chance, epsilon * 10.0 ** chance.uniform(-1.0, 0.7, 3))
        gap = chance.normal(size=3) * epsilon * (0.3 if i % 2 else 1.0)
        found = space_probability(gap, covariance[np.triu_indices(3)], epsilon)
        worst = max(worst, abs(found - normal.within(gap, covariance, epsilon)))
    assert worst < 1e-9


def test_one_deviation_for_all_is_the_closed_form() -> None:
    for distance in (0.0, 0.5, 1.7):
        truth = naive.gaussian_probability(distance, 0.8, 1.3, 2)
        assert plane_probability(distance, 0.0, 0.64, 0.0, 0.64, 1.3) == pytest.approx(truth, abs=1e-12)
        assert plane_probability(0.0, distance, 0.64, 1e-13, 0.64, 1.3) == pytest.approx(truth, abs=1e-11)
        truth = naive.gaussian_probability(distance, 0.8, 1.3, 3)
        space = np.array([0.64, 0.0, 0.0, 0.64, 0.0, 0.64])
        assert space_probability(np.array([0.0, distance, 0.0]), space, 1.3) == pytest.approx(truth, abs=1e-12)


def test_errors_along_a_line_leave_a_chord() -> None:
    """A covariance of rank one: perfectly correlated errors."""
    chord = math.sqrt(1.0 - 0.36)
    expected = naive.gaussian_probability(0.2, 0.5, chord, 1)
    assert plane_probability(0.2, 0.6, 0.25, 0.0, 0.0, 1.0) == pytest.approx(expected, abs=1e-12)
    sine = math.sqrt(0.5)
    x, y = sine * (0.2 - 0.6), sine * (0.2 + 0.6)
    assert plane_probability(x, y, 0.125, 0.125, 0.125, 1.0) == pytest.approx(expected, abs=1e-9)
    line = np.array([0.0, 0.0, 0.0, 0.25, 0.0, 0.0])
    assert space_probability(np.array([0.0, 0.2, 0.6]), line, 1.0) == pytest.approx(expected, abs=1e-12)
