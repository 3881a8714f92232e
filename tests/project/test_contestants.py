"""The contestants of the benchmark of uncertain windows: their data, their CDFs, their answers."""

from __future__ import annotations

import numpy as np
import pytest
from fast_poibin.pmf import calc_pmf

from appulse.kernels import poisson_binomial
from appulse.operators.plan import INDEXES
from benchmarks.contestants import (
    cdf_by_approximation,
    divide_and_conquer,
    dynamic_programming,
    rf1,
    slide_by_approximation,
    slide_by_rf1,
)
from benchmarks.existence import DISTRIBUTIONS, Tuples, epsilon_for, errors, existence
from benchmarks.tables import Curves, estimate, sweep
from benchmarks.window_joins import Join, floors_of, memberships
from benchmarks.zorder import all_pairs, compared, ours, points, sorted_runs

pytestmark = pytest.mark.rivals


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("sd", [0.025, 0.1, 0.25])
def test_existence_has_the_deviation_asked_for(distribution: str, sd: float) -> None:
    exist = existence(np.random.default_rng(1), 100_000, sd, distribution)
    assert len(exist) == 100_000
    assert exist.std() == pytest.approx(sd, rel=0.02)
    assert exist.min() > 0.0
    assert 1.0 - 0.01 * sd < exist.max() <= 1.0


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_errors_have_mean_zero_and_the_deviation_asked_for(distribution: str) -> None:
    found = errors(np.random.default_rng(2), (10_000, 10), 0.5, distribution)
    assert found.mean() == pytest.approx(0.0, abs=0.01)
    assert found.std() == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize("n", [10, 129, 300])
def test_exact_contestants_agree(n: int) -> None:
    exist = existence(np.random.default_rng(3), n, 0.2)
    exact = dynamic_programming(exist)
    np.testing.assert_allclose(divide_and_conquer(exist), exact, rtol=0, atol=1e-12)
    np.testing.assert_allclose(calc_pmf(exist), exact, rtol=0, atol=1e-12)
    for most in (0, n // 2, n - 1, n):
        assert rf1(exist, most) == pytest.approx(exact[: most + 1].sum(), abs=1e-12)
    near = cdf_by_approximation(poisson_binomial.REFINED_NORMAL, exist, n // 2)
    assert near == pytest.approx(exact[: n // 2 + 1].sum(), abs=0.05)


def test_contestants_slide_as_ours_does() -> None:
    size, confidence, begin = 40, 0.95, 100
    exist = existence(np.random.default_rng(4), 140, 0.15)
    exist = exist[floors_of(exist, size, confidence)[begin] :]
    begin, end = len(exist) - 30, len(exist)
    wanted = floors_of(exist, size, confidence)[begin:]
    row = np.concatenate([np.arange(low, t + 1) for low, t in zip(wanted, range(begin, end), strict=True)])
    newest = np.repeat(np.arange(begin, end), np.arange(begin, end) - wanted + 1)
    floor, out = np.empty(30, np.int64), np.empty(30 * end)
    n = slide_by_rf1(exist, begin, end, size, confidence, floor, out)
    np.testing.assert_array_equal(floor, wanted)
    np.testing.assert_allclose(out[:n], memberships(exist, size, row, newest), rtol=0, atol=1e-12)
    method = poisson_binomial.REFINED_NORMAL
    n = slide_by_approximation(method, exist, begin, end, size, confidence, floor, out)
    np.testing.assert_array_equal(floor, floors_of(exist, size, confidence, method=method)[begin:])
    assert n == (np.arange(begin, end) - floor + 1).sum()


def test_the_baselines_answer_as_ours_does() -> None:
    rng = np.random.default_rng(5)
    left, right = (
        Tuples(existence(rng, 700, 0.1), rng.normal(size=(700, 1)) + errors(rng, (700, 6), 0.3)) for _ in range(2)
    )
    join = Join(left, right, epsilon_for(rng, left, right, share=0.05), size=60)
    expected = join.baseline()
    assert len(expected.pairs) > 1000
    assert join.baseline(by_columns=True).agrees(expected)
    assert all(join.ours(index).agrees(expected) for index in INDEXES)
    assert not join.ours(method="poisson").agrees(expected)


@pytest.mark.parametrize("d", [2, 3])
def test_sorted_runs_in_z_order_answer_as_ours_does(d: int) -> None:
    rng = np.random.default_rng(7)
    join = Join(points(rng, 300, d, 6), points(rng, 300, d, 6), epsilon=1.3, size=60)
    expected = ours(join)
    assert len(expected.pairs) > 500
    assert compared(join, all_pairs).agrees(expected)
    assert all(sorted_runs(join, cells).agrees(expected) for cells in (1.0, 0.1))


def test_epsilon_gives_the_share_of_pairs_asked_for() -> None:
    rng = np.random.default_rng(6)
    left, right = (Tuples(existence(rng, 300, 0.1), rng.normal(size=(300, 5))) for _ in range(2))
    epsilon = epsilon_for(rng, left, right, share=0.1)
    close = np.abs(left.samples[:, None, :, None] - right.samples[None, :, None, :]) <= epsilon
    match = close.mean(axis=(2, 3)) * left.exist[:, None] * right.exist[None, :]
    assert (match >= 0.5).mean() == pytest.approx(0.1, abs=0.02)


def test_runs_become_a_table_with_intervals() -> None:
    assert str(estimate([1.0, 2.0, 3.0])) == "2 ± 2"
    assert str(estimate([0.25])) == "0.25"
    lines = sweep((10, 20), 3, 1, lambda _, i: {"a": float(i), "b": 7.0})
    text = Curves("name", "Title", "n", "things", (10, 20), lines).markdown("name.svg")
    assert "| n | a | b |" in text
    assert "| 20 | 1 | 7 |" in text
    assert "![Title](name.svg)" in text
