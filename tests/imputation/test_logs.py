"""Skewed attributes, filled by their logarithms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.imputation.logs import _SHIFTS, InLogs, Logs
from appulse.imputation.repository import Repository
from appulse.imputation.scores import judged
from appulse.kernels.skewness import least_skewed

Matrix = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def skewed(seed: int, n: int, unit: float = 1.0) -> Matrix:
    """A normal attribute, and two whose logarithms are about normal and go together."""
    chance = np.random.default_rng(seed)
    base = chance.normal(size=n)
    return np.column_stack([chance.normal(size=n), np.exp(base), unit * np.exp(base + 0.2 * chance.normal(size=n))])


@given(st.integers(0, 1000), st.sampled_from([1e-9, 1.0, 1e9]))
def test_logarithms_lead_back(seed: int, unit: float) -> None:
    rows = skewed(seed, 200, unit)
    rows[::7, 1] = np.nan
    logs = Logs.of(rows)
    assert logs is not None
    assert np.isinf(logs.shift[0])
    assert np.isfinite(logs.shift[1:]).all()
    taken = logs.taken(rows)
    np.testing.assert_array_equal(taken[:, 0], rows[:, 0])
    np.testing.assert_allclose(logs.back(taken), rows, rtol=1e-9, atol=1e-9 * np.nanmax(rows, axis=0).min())
    order = np.argsort(rows[:, 2], kind="stable")
    assert (np.diff(taken[order, 2]) >= 0.0).all()


def least_skewed_slowly(column: Matrix) -> tuple[float, float, float]:
    """By NumPy: the least value, the shift, and the greatest logarithm."""

    def skewness(values: Matrix) -> float:
        off = values - values.mean()
        return float((off**3).mean() / max((off**2).mean() ** 1.5, 1e-300))

    known = column[~np.isnan(column)]
    nothing = 0.0, np.inf, np.inf
    if len(known) < 32:
        return nothing
    inner = np.clip(known, *np.quantile(known, [0.005, 0.995]))[:: -(-len(known) // 1024)]
    if not np.ptp(inner) > 0.0 or skewness(inner) < 1.0:
        return nothing
    off = inner - known.min()
    low, high = 0, len(_SHIFTS) - 1
    shifts = _SHIFTS * off.max()
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if skewness(np.log(off + shifts[middle])) > 0.0 else (middle, high)
    best = min(shifts[low], shifts[high], key=lambda shift: abs(skewness(np.log(off + shift))))
    return float(known.min()), float(best), float(np.log(2.0 * np.ptp(known) + best))


@given(st.integers(0, 1000), st.integers(20, 2500), st.sampled_from([0.3, 1.0, 3.0]))
def test_shifts_leave_the_least_skewness(seed: int, n: int, power: float) -> None:
    chance = np.random.default_rng(seed)
    rows = np.exp(power * chance.normal(size=(n, 3))) - 5.0
    rows[chance.random((n, 3)) < 0.2] = np.nan
    found = np.array(least_skewed(rows, _SHIFTS)).T
    np.testing.assert_allclose(found, [least_skewed_slowly(column) for column in rows.T], rtol=1e-12)


def test_logarithms_are_of_skewed_attributes_alone() -> None:
    chance = np.random.default_rng(0)
    assert Logs.of(chance.normal(size=(500, 3))) is None
    assert Logs.of(-np.exp(chance.normal(size=(500, 2)))) is None  # to the left
    assert Logs.of(np.exp(chance.normal(size=(20, 2)))) is None  # too few
    assert Logs.of(np.full((500, 1), 3.0)) is None
    assert Logs.of(np.exp(chance.normal(size=(500, 1))) * 1e200) is None
    glitch = chance.normal(size=(1000, 1))
    glitch[5] = 1e6
    assert Logs.of(glitch) is None


def test_what_is_filled_is_not_far_beyond_what_is_known() -> None:
    rows = skewed(1, 500)
    logs = Logs.of(rows)
    assert logs is not None
    beyond = logs.back(np.full((1, 3), 1e9))[0]
    span = np.ptp(rows, axis=0)
    assert (beyond[1:] <= rows.min(axis=0)[1:] + 2.0 * span[1:] * (1 + 1e-9)).all()
    below = logs.taken(np.full((1, 3), -1e9))
    assert np.isfinite(below).all()


def test_errors_are_as_large_as_the_values_they_are_of() -> None:
    """Small values are filled by narrow distributions, and observed ones stay what they are to the bit."""
    rows = skewed(2, 1200)
    masked = rows.copy()
    masked[::3, 2] = np.nan
    known = Repository.with_holes(dict(zip("abc", masked.T, strict=True)))
    logs = Logs.of(masked)
    assert logs is not None
    plain = ap.RegressionImputer(known, 24)
    ours = InLogs(ap.RegressionImputer(logs.repository(known, "abc"), 24), logs)
    fill = ours.bind("abc")
    assert fill.describe(0) == "regression"
    nothing = np.zeros(len(rows), np.int64)
    found = fill.fill(masked, nothing, nothing)
    given_rows = np.repeat(masked, np.diff(found.first), axis=0)
    there = ~np.isnan(given_rows)
    assert (found.rows[there] == given_rows[there]).all()
    said, straight = (judged(one, "abc", rows, masked) for one in (ours, plain))
    small = said.truth < np.quantile(said.truth, 0.1)
    ours_there, theirs_there = ((one.off - one.spread / 2)[small].mean() for one in (said, straight))
    assert ours_there < 0.8 * theirs_there
    assert said.spread[small].sum() == pytest.approx(said.off[small].sum(), rel=0.15)
    assert straight.spread[small].sum() > 1.25 * straight.off[small].sum()


def test_auto_fills_skewed_attributes_by_logarithms() -> None:
    rows = skewed(3, 800)
    masked = rows.copy()
    masked[::5, 2] = np.nan
    nothing = np.zeros(len(rows), np.int64)
    at = 1_000_000 * np.arange(len(rows))
    meanings = []
    for unit in (1.0, 1024.0):
        auto = ap.AutoImputer()
        fill = auto.chosen("abc", masked * unit, at, nothing).bind("abc")
        meanings.append(str(fill.meaning()))
        assert auto.best().startswith("regression")
    assert all("InLogs" in one for one in meanings)
