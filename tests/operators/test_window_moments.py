"""Means over windows in which many rows exist: by quadrature as by the numbers of rows that are absent."""

from __future__ import annotations

import numpy as np
import pytest

from appulse.kernels.aggregates import CountedRows, counted
from appulse.operators.window_moments import means


@pytest.mark.parametrize(("n", "least", "most"), [(66, 0.98, 1.0), (100, 0.6, 0.7), (400, 0.1, 0.4), (7000, 0.0, 0.02)])
@pytest.mark.parametrize("kind", ["normal", "large", "far", "by existence", "one"])
def test_long_windows_have_the_means_of_the_counts_of_rows(n: int, least: float, most: float, kind: str) -> None:
    chance = np.random.default_rng([n, len(kind)])
    exist = chance.uniform(least, most, n)
    exist[chance.integers(0, n, 5)] = 1.0
    mean = chance.normal(size=n) * (1e200 if kind == "large" else 1.0)
    if kind == "far":
        mean += 1e7
    if kind == "by existence":
        mean = exist * 100.0
    if kind == "one":
        mean = np.where(np.arange(n) == n // 2, 1e6, 0.0)
    deviation = np.abs(mean) * chance.uniform(0.0, 0.1, n)
    rows = CountedRows(exist, mean, np.zeros(n), deviation)
    begin, end = np.array([0, 1, n - 2]), np.array([n, n, n])  # the last is short
    wanted = np.empty((3, 6))
    counted(begin, end, *rows, 0, wanted)
    found = means(begin, end, rows)
    assert exist.sum() > 64.0
    assert (np.abs(found[:, 0] - wanted[:, 2]) <= 1e-12 * wanted[:, 3]).all()
    assert found[:, 1] == pytest.approx(wanted[:, 3], rel=1e-12)


@pytest.mark.parametrize("absent", [1e-3, 1e-6, 1e-9])
def test_rows_that_are_hardly_ever_absent_hardly_move_a_mean(absent: float) -> None:
    n = 100
    rows = CountedRows(np.full(n, 1.0 - absent), np.random.default_rng(1).normal(size=n), np.zeros(n), np.zeros(n))
    begin, end, wanted = np.array([0]), np.array([n]), np.empty((1, 6))
    counted(begin, end, *rows, 0, wanted)
    assert means(begin, end, rows)[0, 1] == pytest.approx(wanted[0, 3], rel=1e-9, abs=0.0)


def test_a_mean_of_equal_values_is_that_value() -> None:
    value = np.full(199, 0.7)
    rows = CountedRows(np.ones(199), value, np.zeros(199), np.zeros(199))
    assert (means(np.zeros(199, np.int64), np.arange(1, 200), rows)[:, 0] == 0.7).all()
