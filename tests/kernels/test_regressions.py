"""Kernels of the regression in time, against NumPy and SciPy; its regression has a twin in test_imputers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from appulse.imputation.time_regression import _PENALTIES
from appulse.kernels.lines import errors_together, quantiles_of_errors
from appulse.kernels.regressions import ridge
from appulse.kernels.similar_rows import nearest_rows


@given(st.integers(0, 1000), st.integers(1, 120), st.integers(1, 4), st.integers(1, 60))
def test_nearest_rows_are_those_of_a_tree(seed: int, n: int, p: int, k: int) -> None:
    chance = np.random.default_rng(seed)
    known, asked = chance.normal(size=(n, p)), chance.normal(size=(3, p))
    found = nearest_rows(np.ascontiguousarray(known.T), np.ascontiguousarray(asked.T), k)
    scale, most = np.maximum(known.std(axis=0), 1e-12), min(k, n)
    expected = cKDTree(known / scale).query(asked / scale, k=np.arange(1, most + 1))[1]
    assert [sorted(row[:most]) for row in found.tolist()] == [sorted(row) for row in expected.tolist()]
    assert (found == found[:, np.arange(k) % most]).all()


@given(st.integers(0, 1000), st.integers(2, 80), st.integers(0, 18), st.integers(1, 2))
def test_a_ridge_regression_is_that_of_numpy(seed: int, n: int, p: int, m: int) -> None:
    """With columns that are sums of others, and ones that never vary; each error is of a regression without the row."""
    chance = np.random.default_rng(seed)
    columns = chance.normal(size=(p, n)) * 10.0 ** chance.integers(-3, 4, (p, 1)) + chance.normal(size=(p, 1))
    for j in range(2, p, 3):
        columns[j] = columns[j - 1] - columns[j - 2]
    columns[4::6] = 7.0
    wanted = chance.normal(size=(m, n)) + (columns[:1].sum(axis=0) if seed % 2 else 0.0)
    weights, errors = ridge(columns, len(columns), wanted, _PENALTIES)
    centre, spread = columns.mean(axis=1, keepdims=True), columns.std(axis=1, keepdims=True)
    varies = spread > 1e-9 * np.abs(centre)
    unit = np.where(varies, (columns - centre) / np.where(varies, spread, 1.0), 0.0)
    off = wanted - wanted.mean(axis=1, keepdims=True)
    tried = []
    for penalty in _PENALTIES.tolist():
        inverse = np.zeros((p, p)) if np.isinf(penalty) else np.linalg.inv(unit @ unit.T / n + penalty * np.eye(p))
        hat = unit.T @ inverse @ unit / n
        leverage = np.minimum(np.diag(hat) + 1.0 / n, 0.9)
        tried.append((off - off @ hat) / (1.0 - leverage))
    costs = [float((each**2).sum()) for each in tried]
    best = int(np.argmin([np.abs(errors - each).max() for each in tried]))
    assert costs[best] <= min(costs) * (1.0 + 1e-9)
    np.testing.assert_allclose(errors, tried[best], rtol=1e-6, atol=1e-9)
    inside = weights[:p].T @ columns + weights[p][:, None]
    hats = np.zeros((n, n))
    if not np.isinf(_PENALTIES[best]):
        hats = unit.T @ np.linalg.inv(unit @ unit.T / n + _PENALTIES[best] * np.eye(p)) @ unit / n
    np.testing.assert_allclose(inside, wanted.mean(axis=1, keepdims=True) + off @ hats, rtol=1e-6, atol=1e-6)


@given(st.integers(0, 1000), st.integers(1, 600), st.sampled_from([1, 3, 1000]))
def test_quantiles_of_errors_are_those_of_all_in_order(seed: int, n: int, power: int) -> None:
    """Of errors with many equal ones, with a few far off, and over so many orders that most of them seem equal."""
    chance = np.random.default_rng(seed)
    column = np.round(chance.normal(size=n + 1), 1) ** (power % 7)
    column[chance.random(n + 1) < 0.01] *= 10.0 ** (power // 4)
    group, time = np.zeros(n + 1, np.int64), np.arange(n + 1.0)
    one, none = np.ones(1, np.int64), np.zeros(1, np.int64)
    found, count = quantiles_of_errors(column, time, group, one, none, 5, 2 * n)
    assert count[0] == n
    np.testing.assert_allclose(found[0], np.quantile(np.diff(column), (np.arange(5) + 0.5) / 5), rtol=1e-12, atol=1e-9)


@given(st.integers(0, 1000), st.integers(2, 60), st.integers(1, 2), st.integers(1, 20))
def test_errors_of_lines_are_those_of_every_row(seed: int, n: int, m: int, most: int) -> None:
    chance = np.random.default_rng(seed)
    columns, group = chance.normal(size=(m, n)), np.sort(chance.integers(0, 2, n))
    columns[chance.random((m, n)) < 0.2] = np.nan
    time = np.cumsum(chance.integers(0, 3, n)).astype(float)
    back, ahead = chance.integers(0, 4, (1, m)), chance.integers(0, 4, (1, m))
    made = []
    for at in range(n):
        errors = []
        for column, b, a in zip(columns, back[0].tolist(), ahead[0].tolist(), strict=True):
            if at < b or at + a >= n or b + a == 0 or group[at - b] != group[at] or group[at + a] != group[at]:
                continue
            low, high, first, last = column[at - b], column[at + a], time[at - b], time[at + a]
            middle = low + (time[at] - first) / (last - first if last > first else 1.0) * (high - low)
            errors.append(column[at] - (high if b == 0 else low if a == 0 else middle))
        if len(errors) == m and np.isfinite(errors).all():
            made.append(errors)
    kept = np.array(made).reshape(-1, m)[:: max(1, len(made) // most)]
    shares = (np.arange(3) + 0.5) / 3
    if m == 1:
        found, counts = quantiles_of_errors(columns[0], time, group, back[:, 0], ahead[:, 0], 3, most)
        assert counts[0] == len(made)
        np.testing.assert_allclose(found[0], np.quantile(kept[:, 0], shares) if made else np.zeros(3), atol=1e-12)
    together, enough = errors_together(columns, time, group, back, ahead, 3, 4, most)
    assert enough[0] == (len(made) >= 4)
    if enough[0]:
        order = np.argsort(kept[:, np.argmax(np.ptp(kept, axis=0))], kind="stable")
        np.testing.assert_allclose(together[0], kept[order[[len(kept) * q // 6 for q in (1, 3, 5)]]], atol=1e-12)
