"""Quantiles, extremes and frequent values of rows that certainly exist: each run by itself is the twin."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appulse.kernels.ordered_runs import certain_extremes, certain_frequent, certain_quantiles
from tests.helpers.runs import runs

if TYPE_CHECKING:
    from collections.abc import Callable

VALUES = st.one_of(st.sampled_from([0.0, -0.0, 1.0, np.inf, -np.inf]), st.floats(allow_nan=False))


@given(runs(VALUES), st.integers(1, 99))
def test_quantiles_are_those_of_each_run(some: tuple[list[int], list[int], list[float]], percent: int) -> None:
    begin, end, values = some
    out = np.zeros(len(begin))
    certain_quantiles(np.array(begin, np.int64), np.array(end, np.int64), np.array(values), percent, 100, out)
    for a, b, found in zip(begin, end, out.tolist(), strict=True):
        run = sorted(values[a:b])
        enough = [value for i, value in enumerate(run, 1) if Fraction(i, len(run)) >= Fraction(percent, 100)]
        assert (found == enough[0]) if run else np.isnan(found)


@pytest.mark.parametrize(("sign", "extreme"), [(1.0, max), (-1.0, min)])
@given(some=runs(VALUES))
def test_extremes_are_those_of_each_run(
    some: tuple[list[int], list[int], list[float]], sign: float, extreme: Callable[[list[float]], float]
) -> None:
    begin, end, values = some
    out = np.zeros(len(begin))
    certain_extremes(np.array(begin, np.int64), np.array(end, np.int64), np.array(values), sign, out)
    for a, b, found in zip(begin, end, out.tolist(), strict=True):
        assert (found == extreme(values[a:b])) if b > a else np.isnan(found)


@given(runs(VALUES), st.integers(1, 99))
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
