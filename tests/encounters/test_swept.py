"""The probability that groups of dimensions hold at one instant, against quadrature the other way round and draws."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appulse.kernels.capsule import capsule_probability
from appulse.kernels.swept import bound_on, swept_probability
from tests.helpers import naive_encounters as naive

numbers = st.floats(-4, 4)
places = st.tuples(numbers, numbers).map(np.array)


def _found(
    begin: np.ndarray, end: np.ndarray, rises: tuple[float, float], sigmas: tuple[float, float], epsilon: naive.Cylinder
) -> float:
    flat, steep = sigmas[0] ** 2, sigmas[1] ** 2
    covariance = np.array([flat, 0.0, 0.0, flat, 0.0, steep])
    path = np.append(begin, rises[0]), np.append(end, rises[1])
    return swept_probability(*path, covariance, np.array([0, 0, 1]), np.array(epsilon))


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


SHAPES = ((0, 0), (0, 1), (0, 0, 0), (0, 0, 1), (1, 0, 0), (0, 1, 0), (0, 1, 2))


def _case(chance: np.random.Generator, d: int, *, least: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    root = chance.normal(size=(d, d)) * 10.0 ** chance.uniform(-1, 0.5, (d, 1))
    begin, end = chance.normal(0.0, 2.0, (2, d))
    return begin, end, root @ root.T + least * np.eye(d)


def _triangle(covariance: np.ndarray) -> np.ndarray:
    found: np.ndarray = covariance[np.triu_indices(len(covariance))]
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_the_probability_is_that_of_lines_through_what_is_near(shape: tuple[int, ...], seed: int) -> None:
    chance, d, group = np.random.default_rng(seed), len(shape), np.array(shape)
    begin, end, covariance = _case(chance, d, least=0.3)
    end = begin if seed == 2 else end
    epsilon = chance.uniform(0.5, 3.0, group.max() + 1)
    groups = tuple((tuple(map(int, np.flatnonzero(group == g))), float(e)) for g, e in enumerate(epsilon))
    found = swept_probability(begin, end, _triangle(covariance), group, epsilon)
    panels, near = (400, 2e-7) if d == 2 else (8, 2e-5)
    assert found == pytest.approx(naive.swept(begin, end, covariance, groups, panels), abs=near)
    assert found <= bound_on(begin, end, _triangle(covariance), group, epsilon) + 1e-9


@pytest.mark.parametrize("d", [2, 3])
def test_any_order_of_the_dimensions_gives_the_same(d: int) -> None:
    """Another order integrates over other coordinates; matrices may have no inverse, or nearly none."""
    chance = np.random.default_rng(d)
    for i in range(60):
        begin, end, covariance = _case(chance, d, least=(0.0, 1e-6, 1.0)[i % 3])
        if i % 5 == 0:
            way = chance.normal(size=(d, 1))
            covariance = way @ way.T
        epsilon = chance.uniform(0.1, 3.0, d)
        end = begin if i % 7 == 0 else end
        found = []
        for order in permutations(range(d)):
            own = list(order)
            turned = _triangle(covariance[np.ix_(own, own)])
            found.append(swept_probability(begin[own], end[own], turned, np.arange(d), epsilon[own]))
        assert max(found) - min(found) < 1e-8


def test_errors_on_a_line_are_an_interval_of_it() -> None:
    """A ball, a disc and a cylinder around a path, of errors along one direction: against many points of it."""
    chance = np.random.default_rng(4)
    places = np.linspace(-9.0, 9.0, 10_001)
    density = np.exp(-0.5 * places**2) / np.sqrt(2.0 * np.pi) * (places[1] - places[0])
    for shape in SHAPES:
        group = np.array(shape)
        begin, end = chance.normal(0.0, 1.0, (2, len(shape)))
        way, epsilon = chance.normal(0.0, 2.0, len(shape)), chance.uniform(0.5, 2.0, group.max() + 1)
        near = np.zeros(len(places), bool)
        for share in np.linspace(0.0, 1.0, 1001):
            at = begin + share * (end - begin) + places[:, None] * way
            near |= np.all([np.linalg.norm(at[:, group == g], axis=1) <= e for g, e in enumerate(epsilon)], axis=0)
        covariance = _triangle(np.outer(way, way))
        assert swept_probability(begin, end, covariance, group, epsilon) == pytest.approx(density[near].sum(), abs=2e-3)


def test_alike_errors_of_one_group_are_a_capsule() -> None:
    chance = np.random.default_rng(5)
    for d in (1, 2, 3):
        begin, end = chance.normal(0.0, 2.0, (2, d))
        for more in (0.0, 1e-9):  # a little apart from alike takes the general way
            covariance = np.eye(d) * 0.49
            covariance[0, 0] += more
            found = swept_probability(begin, end, _triangle(covariance), np.zeros(d, np.int64), np.array([1.3]))
            assert found == pytest.approx(capsule_probability(begin, end, 0.7, 1.3), abs=1e-8)
