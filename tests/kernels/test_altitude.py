"""Two positions with an altitude in a ball: the integral against adaptive quadrature."""

from __future__ import annotations

import numpy as np
import pytest

from appulse.kernels.altitude import ball_and_height
from tests.helpers.geodesics import in_ball


def test_the_probability_is_that_of_adaptive_quadrature() -> None:
    """Deviations from a hundredth of epsilon to ten times it, and one far less than the other."""
    chance = np.random.default_rng(0)
    worst = 0.0
    for _ in range(60):
        epsilon = 10.0 ** chance.uniform(-1.0, 4.0)
        flat, steep = epsilon * 10.0 ** chance.uniform(-2.0, 1.0, 2)
        distance, rise = epsilon * chance.uniform(0.0, 1.6), epsilon * chance.uniform(0.0, 1.6)
        distance, rise = distance * (chance.random() > 0.1), rise * (chance.random() > 0.1)
        found = ball_and_height(distance, flat, rise, steep, epsilon)
        worst = max(worst, abs(found - in_ball(distance, flat, rise, steep, epsilon)))
    assert worst < 1e-9


@pytest.mark.parametrize("sharp", [1e-4, 1e-7])
def test_a_deviation_that_is_nearly_nothing_is_as_nothing(sharp: float) -> None:
    """Where the rim passes the mean within a tiny part of the range, that part is not stepped over."""
    for distance, rise in ((3.0, 1.0), (3.0, 4.0), (0.5, 4.9), (4.99, 0.1)):
        exact = ball_and_height(distance, 0.0, rise, 2.0, 5.0)
        assert ball_and_height(distance, sharp, rise, 2.0, 5.0) == pytest.approx(exact, abs=500 * sharp**2 + 1e-9)
        exact = ball_and_height(distance, 2.0, rise, 0.0, 5.0)
        assert ball_and_height(distance, 2.0, rise, sharp, 5.0) == pytest.approx(exact, abs=500 * sharp**2 + 1e-9)


def test_equal_deviations_are_those_of_a_gaussian_in_space() -> None:
    for distance, rise in ((0.0, 0.0), (3.0, 1.0), (2.0, 6.0)):
        close = ball_and_height(distance, 2.0, rise, 2.0 * (1.0 + 1e-9), 5.0)
        assert ball_and_height(distance, 2.0, rise, 2.0, 5.0) == pytest.approx(close, abs=1e-8)
