"""Samples compared in single precision: the same counts as a comparison of all pairs of samples by doubles."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appulse.kernels.arrays import Moments, RowPairs, Sampled, Samples
from appulse.kernels.moments import Summaries, shapes, summarise
from appulse.kernels.refine import refine
from appulse.kernels.single_precision import Goal, refine_narrow

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats

_FEWEST = 16
_NEVER = np.iinfo(np.int64).max


class _Case(NamedTuple):
    """Objects of both sides, each its samples (n, d), and what is asked."""

    left: list[Floats]
    right: list[Floats]
    mass: tuple[Floats, Floats]
    limit: float
    threshold: float


def _sampled(objects: list[Floats], mass: Floats) -> Sampled:
    d, n = objects[0].shape[1], len(objects)
    first = np.cumsum([0] + [len(o) for o in objects])
    rows, none = np.concatenate(objects), np.empty(0)
    out = Summaries(mass.copy(), np.empty((n, d)), np.empty((n, d * (d + 1) // 2)), np.empty(n), np.empty(n))
    values, shape = np.empty(rows.size), np.empty((n, d + 1))
    summarise(first, rows, none, 0.5, False, out, values)
    shapes(first, values, none, out.centre, shape)
    begin, length = first[:-1] * d, np.diff(first) * d
    samples = Samples(out.mass, values, begin, length, 0, none, first[:-1], 0)
    return Sampled(samples, Moments(out.mass, out.centre, out.radius, out.covariance, shape))


def _share(one: Floats, other: Floats, limit: float) -> float:
    gaps = one[:, None, :] - other[None, :, :]
    return int(((gaps * gaps).sum(axis=2) <= limit * limit).sum()) / (len(one) * len(other))


@st.composite
def _cases(draw: st.DrawFn) -> _Case:
    d = draw(st.sampled_from((2, 3)))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    offset = draw(st.sampled_from((0.0, 0.0, -1e3 / 3, 1e7, 1e12)))
    # Quarters are exact: many distances are the limit itself.
    on_grid, wide = draw(st.booleans()), draw(st.sampled_from((0.3, 1.0, 3.0, 30.0)))

    def side(n: int) -> list[Floats]:
        objects = []
        for _ in range(n):
            centre, spread = random.normal(size=d) * wide, random.choice([0.05, 0.5, 2.0])
            points = centre + random.normal(size=(int(random.integers(10, 70)), d)) * spread
            points = np.round(points * 4.0) / 4.0 if on_grid else points
            objects.append(points + offset)
        return objects

    left, right = side(draw(st.integers(1, 3))), side(draw(st.integers(1, 12)))
    mass = random.integers(1, 5, len(left)) / 4, random.integers(1, 5, len(right)) / 4
    limit = draw(st.sampled_from((0.25, 0.5, 1.0, 1.25, 2.0)))
    return _Case(left, right, mass, limit, draw(st.sampled_from((0.01, 0.1, 0.25, 0.5, 0.9))) - 1e-9)


def _check(case: _Case) -> int:
    """Every pair, exactly; how many were taken."""
    left, right = _sampled(case.left, case.mass[0]), _sampled(case.right, case.mass[1])
    n, m = len(case.left), len(case.right)
    pairs = RowPairs(np.repeat(np.arange(n), m), np.tile(np.arange(m), n))
    doubles, found, most = np.empty(n * m), np.empty(n * m), np.empty(n * m)
    refine(pairs, case.limit, -1.0, _NEVER, left, right, doubles, most[:0])
    done, goal = np.empty(n * m, bool), Goal(case.limit, case.threshold, _FEWEST)
    refine_narrow(pairs, goal, left, right, found, most[:0], done)
    for i, (a, b) in enumerate(zip(pairs.left, pairs.right, strict=True)):
        one, other = case.left[a], case.right[b]
        mass = case.mass[0][a] * case.mass[1][b]
        assert doubles[i] == pytest.approx(_share(one, other, case.limit) * mass, abs=1e-13)
        if not done[i]:
            far = np.linalg.norm(left.moments.centre[a] - right.moments.centre[b])
            far += left.moments.radius[a] + right.moments.radius[b]
            assert min(len(one), len(other)) < _FEWEST or far > 60.0 * case.limit
        elif np.isnan(found[i]):
            assert doubles[i] < case.threshold
        else:
            assert found[i] == doubles[i] >= case.threshold - 1e-12
    taken = int(done.sum())
    refine_narrow(pairs, goal, left, right, found, most, done)
    for p, upper, q in zip(found[done], most[done], doubles[done], strict=True):
        if np.isnan(p):
            assert q < case.threshold
        else:
            assert p - 1e-13 <= q <= upper + 1e-13
            assert (p >= case.threshold) == (q >= case.threshold)
    return taken


@settings(max_examples=100)
@given(_cases())
def test_counts_are_those_of_doubles(case: _Case) -> None:
    """Whatever was decided early, and however many distances are the limit itself."""
    _check(case)


@pytest.mark.long
@settings(max_examples=5000)
@given(_cases())
def test_counts_are_those_of_doubles_long(case: _Case) -> None:
    """The same over many more pairs."""
    _check(case)


@pytest.mark.parametrize("offset", [0.0, 1e7 / 3, 1e9 + 1 / 3])
@pytest.mark.parametrize("far", [3.0, 1.02, 1.0001, 1.0 + 1e-8])
@pytest.mark.parametrize("n", [16, 50, 1000])
@pytest.mark.parametrize("d", [2, 3])
def test_the_tightest_case_of_cantelli_is_kept(d: int, n: int, far: float, offset: float) -> None:
    """Half at the limit, half farther: the bound equals the probability, and rounding must not lower it."""
    points, point = np.full((n, d), offset), np.full((16, d), offset)
    points[: n // 2, 0] += 1.0
    points[n // 2 :, 0] += far
    mass = np.ones(1)
    limit = 1.0 + 1e-9
    for left, right in ((points, point), (point, points)):
        assert _check(_Case([left], [right], (mass, mass), limit, 0.5 - 1e-9)) == 1


@pytest.mark.parametrize("ulps", [-2, -1, 0, 1, 2])
def test_distances_a_rounding_from_the_limit_are_distinguished(ulps: int) -> None:
    """Far below the resolution of single precision."""
    limit = 1.0
    edge = 1.0 + ulps * 2.0**-52
    random = np.random.default_rng(3)
    right = np.zeros((40, 3))
    left = np.zeros((40, 3))
    left[:, 0] = np.where(random.random(40) < 0.5, edge, 0.25)
    mass = np.ones(1)
    assert _check(_Case([left], [right], (mass, mass), limit, 0.1)) == 1
