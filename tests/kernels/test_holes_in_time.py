"""Kernels that fill holes by regressions in time, against the same done row by row."""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from appulse.imputation.time_regression import _PENALTIES
from appulse.kernels.holes_in_time import Lacking, Missing, Series, regressed
from appulse.kernels.regressions import features, learnable, ridge
from appulse.kernels.similar_rows import nearest_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from appulse.kernels.arrays import Flags, Floats, Ints


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


def filled_slowly(series: Series, missing: Missing, k: int) -> Floats:
    """What is filled into rows with the same holes, row by row: everything is learned anew for each of them."""
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


def sets_beside(lacking: Lacking, rows: Ints) -> tuple[Flags, Ints]:
    """The four kinds that most rows are of, after none of the columns; and the largest of them within each row's."""
    kinds = lacking.kind[rows].tolist()
    often = sorted(set(kinds), key=lambda kind: (-kinds.count(kind), kind))[:4]
    kept = [np.zeros(lacking.beside.shape[1], bool), *lacking.beside[often]]
    by = []
    for kind in kinds:
        within = [j for j, columns in enumerate(kept) if (columns <= lacking.beside[kind]).all()]
        by.append(max(within, key=lambda j: (kept[j].sum(), -j)))
    return np.array(kept), np.array(by)


def regressed_slowly(series: Series, lacking: Lacking, most: int, k: int) -> Iterator[Floats]:
    """Of each set of holes what is filled in, row by row."""
    d = lacking.holes.shape[1]
    for i, missing in enumerate(lacking.holes):
        holes, rows = np.flatnonzero(missing), lacking.rows[lacking.first[i] : lacking.first[i + 1]]
        every = lacking.every[lacking.every_first[i] : lacking.every_first[i + 1]]
        sets, by = sets_beside(lacking, rows)
        sets[:, :d] = ~missing
        for able in sets:
            if len(lacking.likeness):
                order = sorted(np.flatnonzero(able), key=lambda j: -lacking.likeness[holes, j].max())
                able[order[most:]] = False
        gaps = lacking.gaps[:, [*holes, *(holes + d)]]
        yield filled_slowly(series, Missing(rows, holes, gaps[rows], sets, by, gaps[every]), k)


@given(
    st.integers(0, 10_000),
    st.integers(2, 150),
    st.integers(1, 3),
    st.sampled_from([0.1, 0.4, 0.8]),
    st.sampled_from([0, 2, 4]),
)
def test_what_is_regressed_once_for_many_rows_is_what_each_says(
    seed: int, n: int, m: int, share: float, most: int
) -> None:
    chance, d = np.random.default_rng(seed), 4
    columns, group = np.cumsum(chance.normal(size=(6, n)), axis=1), np.sort(chance.integers(0, 2, n))
    known = chance.random((n, 6)) >= share
    known[:, 5] &= chance.random(n) < 0.7
    series = Series(columns, np.cumsum(chance.integers(0, 3, n)).astype(float), group, known)
    rows, ends = chance.permutation(n)[:12], np.arange(n)[:, None]
    back, ahead = (np.minimum(chance.geometric(0.2, (n, d)), end) for end in (ends, n - 1 - ends))
    beside = np.zeros((4, 6), bool)
    beside[1:, 4:] = [[True, False], [False, True], [True, True]]
    likeness = chance.random((6, 6)) if most else np.empty((0, 0))
    lacking = Lacking(
        np.arange(d) < np.array([[m], [1]]),
        rows,
        np.array([0, len(rows) // 2, len(rows)]),
        np.sort(rows),
        np.array([0, len(rows), len(rows)]) - [0, 1, 0],
        np.column_stack([back, ahead]),
        beside,
        chance.integers(0, 4, n),
        likeness,
    )
    expected = [part.ravel() for part in regressed_slowly(series, lacking, most, 4)]
    found = np.empty(sum(map(len, expected)))
    regressed(series, lacking, _PENALTIES, most, 4, found)
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-9, atol=1e-9)
