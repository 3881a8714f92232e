"""Quantiles and frequent values of rows that certainly exist: each run by itself is the twin."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from appulse.kernels.ordered_runs import certain_frequent, certain_quantiles

VALUES = st.one_of(st.sampled_from([0.0, -0.0, 1.0, np.inf, -np.inf]), st.floats(allow_nan=False))


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[int], list[int], list[float]]:
    """Runs that slide by few rows or by many, stand still, go back, or begin again further on."""
    values = draw(st.lists(VALUES, max_size=60).map(lambda some: some * draw(st.integers(1, 3))))
    place = st.integers(0, len(values))
    ends = draw(st.lists(st.tuples(place, place).map(sorted), max_size=12))
    if draw(st.booleans()):
        ends = [list(pair) for pair in zip(*(sorted(side) for side in zip(*ends, strict=True)), strict=True)]
    return [a for a, _ in ends], [b for _, b in ends], values


@given(runs(), st.integers(1, 99))
def test_quantiles_are_those_of_each_run(some: tuple[list[int], list[int], list[float]], percent: int) -> None:
    begin, end, values = some
    out = np.zeros(len(begin))
    certain_quantiles(np.array(begin, np.int64), np.array(end, np.int64), np.array(values), percent, 100, out)
    for a, b, found in zip(begin, end, out.tolist(), strict=True):
        run = sorted(values[a:b])
        enough = [value for i, value in enumerate(run, 1) if Fraction(i, len(run)) >= Fraction(percent, 100)]
        assert (found == enough[0]) if run else np.isnan(found)


@given(runs(), st.integers(1, 99))
def test_frequent_values_are_those_of_each_run(some: tuple[list[int], list[int], list[float]], percent: int) -> None:
    begin, end, values = some
    share = percent / 100
    at, found, counts = certain_frequent(np.array(begin, np.int64), np.array(end, np.int64), np.array(values), share)
    for a, b, (first, last) in zip(begin, end, pairwise(at.tolist()), strict=True):
        often = [(v, n) for v, n in Counter(values[a:b]).items() if Fraction(n, b - a) >= Fraction(percent, 100)]
        often.sort(key=lambda one: (-one[1], one[0]))
        assert list(zip(found[first:last].tolist(), counts[first:last].tolist(), strict=True)) == often


def test_runs_that_slide_over_many_rows() -> None:
    """Beyond what random runs reach: long ones, of which few rows leave at once."""
    rng = np.random.default_rng(1)
    values = rng.integers(0, 40, 3000).astype(np.float64)
    end = np.cumsum(rng.integers(0, 40, 150))
    begin = np.maximum(end - 700, 0) + np.sort(rng.integers(0, 300, 150)) * (end > 700)
    out = np.zeros(len(begin))
    certain_quantiles(begin, end, values, 9, 10, out)
    assert out[end > begin].tolist() == [
        np.quantile(values[a:b], 0.9, method="inverted_cdf") for a, b in zip(begin, end, strict=True) if b > a
    ]
