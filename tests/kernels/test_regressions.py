"""Kernels of the regression in time, against NumPy and SciPy; its regression has a twin in test_imputers."""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from appulse.imputation.time_regression import _PENALTIES
from appulse.kernels.lines import errors_together, quantiles_of_errors
from appulse.kernels.regressions import Missing, Series, features, learnable, regressed, ridge
from appulse.kernels.similar_rows import nearest_rows

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints


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


@given(st.integers(0, 1000), st.integers(1, 25), st.integers(1, 2), st.integers(0, 3), st.integers(0, 3))
def test_rows_with_neighbours_and_their_lines(seed: int, n: int, m: int, back: int, ahead: int) -> None:
    chance = np.random.default_rng(seed)
    values, group = chance.normal(size=(n, 3)), np.sort(chance.integers(0, 2, n))
    values[chance.random((n, 3)) < 0.2] = np.nan
    time = np.cumsum(chance.integers(0, 3, n)).astype(float)  # several rows may have one time
    holes, there = np.arange(m), ~np.isnan(values)
    expected = with_neighbours(there, group, holes, back, ahead)
    at = np.array(expected, np.int64)
    whole, seen, size = np.nan_to_num(values), np.array([2]), np.ones((len(at), m), np.int64)
    lines, likeness = features(np.ascontiguousarray(whole.T), time, at, holes, seen, back * size, ahead * size)
    for i, row in enumerate(expected):
        low, high = whole[row - back], whole[row + ahead]
        span = time[row + ahead] - time[row - back]
        share = (time[row] - time[row - back]) / span if span > 0 else 0.0
        through = high if back == 0 else low if ahead == 0 else low + share * (high - low)
        line = [whole[row, 2] - through[2], whole[row, 2], *through[:m], *np.abs(high - low)[:m]]
        np.testing.assert_allclose(likeness[:, i], line, atol=1e-12)
        np.testing.assert_allclose(lines[:, i], through[:m], atol=1e-12)


def with_neighbours(there: Flags, group: Ints, holes: Ints, back: int, ahead: int) -> list[int]:
    """Rows with the values of all holes so many rows before and after, in their group."""
    n = len(group)
    return [
        i
        for i in range(back, n - ahead)
        if group[i - back] == group[i] == group[i + ahead]
        and there[i - back, holes].all()
        and there[i + ahead, holes].all()
    ]


def rounded(gap: int) -> int:
    """By its first two binary digits."""
    digits = max(gap.bit_length() - 2, 0)
    return gap >> digits << digits


def with_own_gaps(series: Series, holes: Ints, known: Ints, gaps: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Rows with the values of each hole as far off as in the next of at most eight ``gaps``, in turn; and these."""
    m, turns, found = len(holes), cycle(gaps), []
    for row in known.tolist():
        for gap in islice(turns, min(8, len(gaps))):
            ends = [(row - b, row + a, hole) for b, a, hole in zip(gap[:m], gap[m:], holes.tolist(), strict=True)]
            if all(
                low >= 0
                and high < len(series.group)
                and series.group[low] == series.group[high]
                and series.known[low, hole]
                and series.known[high, hole]
                for low, high, hole in ends
            ):
                found.append((row, gap))
                break
    return [row for row, _ in found], [gap for _, gap in found]


def regressed_slowly(series: Series, missing: Missing, k: int) -> Floats:
    """What `regressed` fills, row by row: everything is learned anew for each of them."""
    rows, holes, gaps, sets, by, every_gap = missing
    m, n = len(holes), len(series.group)
    found = np.empty((len(rows), k, m))

    def to_learn_from(back: int, ahead: int, one: int) -> tuple[Ints, Ints]:
        at = with_neighbours(series.known, series.group, holes, back, ahead)
        return learnable(series.known, np.array(at, np.int64), holes, np.flatnonzero(sets[one]))

    for i, row in enumerate(rows.tolist()):
        back, ahead = (rounded(max(gap)) for gap in (gaps[i, :m].tolist(), gaps[i, m:].tolist()))
        fitting = [
            gap for gap in every_gap.tolist() if rounded(max(gap[:m])) == back and rounded(max(gap[m:])) == ahead
        ]
        for one in dict.fromkeys([int(by[i]), 0]):
            pool = fitting if m > 1 and one == 0 else [[back] * m + [ahead] * m]
            known, seen = to_learn_from(back, ahead, one)
            way, far = "lines", one == 0 and len(known) < 4 * (back + ahead)
            kept, there = with_own_gaps(
                series, holes, known, [[g if g < 64 else rounded(g) for g in of] for of in pool]
            )
            if 2 * len(kept) < len(known):
                kept, there = with_own_gaps(series, holes, known, [[rounded(g) for g in of] for of in pool])
            known = np.array(kept, np.int64)
            if (far or len(known) < 8 * (2 * len(seen) + m) + 16) and n > 64:
                every, of_all = to_learn_from(0, 0, one)
                if len(known) < 16 or (len(of_all) > 0 and len(every) >= 8 * len(of_all) + 16):
                    known, seen, way = every, of_all, "anywhere"
                    if one == 0 or (len(every) > 0 and len(every) >= 3 * len(of_all)):
                        break
                    continue
                seen = seen[:0]
            if len(known) >= 3 * (2 * len(seen) + m):
                break
        at = np.array([row])
        if way == "anywhere":
            given, asked = (np.ascontiguousarray(series.columns[np.ix_(seen, of)]) for of in (known, at))
            through, learned, p = np.zeros(m), np.zeros((m, len(known))), len(seen)
        else:
            same = np.array(there, np.int64).reshape(len(known), 2 * m)
            learned, given = features(
                series.columns, series.time, known, holes, seen, same[:, :m].copy(), same[:, m:].copy()
            )
            lines, asked = features(series.columns, series.time, at, holes, seen, gaps[[i], :m], gaps[[i], m:])
            through, p = lines[:, 0], 2 * len(seen) + m
        if len(known) == 0:
            found[i] = np.nan if way == "anywhere" else through
        else:
            p = p if len(known) >= 3 * p else 0
            wanted = series.columns[np.ix_(holes, known)] - learned
            weights, errors = ridge(given, p, wanted, _PENALTIES)
            near = np.arange(3 * k) * len(known) // (3 * k)
            if len(given):
                near = nearest_rows(given, asked, 3 * k)[0]
            chosen = errors.T[near][np.argsort(errors[0, near], kind="stable")][1::3]
            found[i] = through + weights[p] + asked[:p, 0] @ weights[:p] + chosen
        found[i][:, (gaps[i, :m] == 0) & (gaps[i, m:] == 0)] = np.nan
    return found


@given(st.integers(0, 10_000), st.integers(1, 150), st.integers(1, 3), st.sampled_from([0.1, 0.4, 0.8]))
def test_what_is_regressed_once_for_many_rows_is_what_each_says(seed: int, n: int, m: int, share: float) -> None:
    chance = np.random.default_rng(seed)
    columns, group = np.cumsum(chance.normal(size=(5, n)), axis=1), np.sort(chance.integers(0, 2, n))
    known = chance.random((n, 5)) >= share
    known[:, 4] &= chance.random(n) < 0.7
    holes, rows = np.arange(m), np.sort(chance.permutation(n)[:8])
    back, ahead = (np.minimum(chance.geometric(0.2, (len(rows), m)), end[:, None]) for end in (rows, n - 1 - rows))
    sets = np.ones((2, 5), bool)
    sets[:, :m], sets[0, 4] = False, False
    series = Series(columns, np.cumsum(chance.integers(0, 3, n)).astype(float), group, known)
    gaps = np.column_stack([back, ahead])
    missing = Missing(rows, holes, gaps, sets, chance.integers(0, 2, len(rows)), gaps)
    found = np.empty((len(rows), 4, m))
    regressed(series, missing, _PENALTIES, found)
    np.testing.assert_allclose(found, regressed_slowly(series, missing, 4), rtol=1e-9, atol=1e-9)


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
