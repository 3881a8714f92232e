"""Kernels of the regression in time, against NumPy and SciPy; its regression has a twin in test_imputers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from appulse.kernels.lines import errors_together, quantiles_of_errors
from appulse.kernels.regressions import features, nearest_rows, with_neighbours


@given(st.integers(0, 1000), st.integers(1, 40), st.integers(1, 4), st.integers(1, 50))
def test_nearest_rows_are_those_of_a_tree(seed: int, n: int, p: int, k: int) -> None:
    chance = np.random.default_rng(seed)
    known, asked = chance.normal(size=(n, p)), chance.normal(size=(3, p))
    found = nearest_rows(known, asked, k)
    scale, most = np.maximum(known.std(axis=0), 1e-12), min(k, n)
    expected = cKDTree(known / scale).query(asked / scale, k=np.arange(1, most + 1))[1]
    assert [sorted(row[:most]) for row in found.tolist()] == [sorted(row) for row in expected.tolist()]
    assert (found == found[:, np.arange(k) % most]).all()


@given(st.integers(0, 1000), st.integers(1, 25), st.integers(1, 2), st.integers(0, 3), st.integers(0, 3))
def test_rows_with_neighbours_and_their_lines(seed: int, n: int, m: int, back: int, ahead: int) -> None:
    chance = np.random.default_rng(seed)
    values, group = chance.normal(size=(n, 3)), np.sort(chance.integers(0, 2, n))
    values[chance.random((n, 3)) < 0.2] = np.nan
    time = np.cumsum(chance.integers(0, 3, n)).astype(float)  # several rows may have one time
    holes, there = np.arange(m), ~np.isnan(values)
    at = with_neighbours(there, group, holes, np.full(m, back), np.full(m, ahead), np.arange(n))
    expected = [
        i
        for i in range(n)
        if i >= back
        and i + ahead < n
        and group[i - back] == group[i] == group[i + ahead]
        and there[i - back, :m].all()
        and there[i + ahead, :m].all()
    ]
    assert at.tolist() == expected
    whole, seen, size = np.nan_to_num(values), np.array([2]), np.ones((len(at), m), np.int64)
    lines, alike = features(np.ascontiguousarray(whole.T), time, at, holes, seen, back * size, ahead * size)
    for i, row in enumerate(expected):
        low, high = whole[row - back], whole[row + ahead]
        span = time[row + ahead] - time[row - back]
        share = (time[row] - time[row - back]) / span if span > 0 else 0.0
        through = high if back == 0 else low if ahead == 0 else low + share * (high - low)
        told = [whole[row, 2] - through[2], whole[row, 2], *through[:m], *np.abs(high - low)[:m]]
        np.testing.assert_allclose(alike[i], told, atol=1e-12)
        np.testing.assert_allclose(lines[i], through[:m], atol=1e-12)


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
