"""Sums of runs of rows are exact, whatever rows came before: `math.fsum` and fractions are the twins."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from appulse.kernels.exact_sums import deviations, doubles, roots, run_means, run_sums
from tests.helpers.runs import runs

DOUBLES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1e3, 1e3),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, 1.0 + 2.0**-52, 2.0**-53, -(2.0**53), 5e-324, 1.5e308, -1e308]),
)
Runs = tuple[list[int], list[int], list[float]]


def _places(some: Runs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    begin, end, values = some
    return np.array(begin, np.int64), np.array(end, np.int64), np.array(values)


def _double(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _root(exact: Fraction) -> float:
    """The root of what may be no double."""
    if exact == 0:
        return 0.0
    half = (exact.numerator.bit_length() - exact.denominator.bit_length()) // 2
    return math.sqrt(exact / Fraction(4) ** half) * 2.0**half


@given(runs(DOUBLES))
@example(([0], [3], [1.0, 2.0**-53, 5e-324]))  # next to a half, and above it
@example(([0, 0], [2, 3], [1.0, 2.0**-53, -(2.0**-1074)]))
def test_sums_are_the_doubles_next_to_them(some: Runs) -> None:
    begin, end, values = _places(some)
    for a, b, found in zip(begin, end, doubles(*run_sums(begin, end, values)).tolist(), strict=True):
        assert found == _double(sum(map(Fraction, values[a:b].tolist()), Fraction(0)))


def test_equal_values_have_their_value_for_a_mean() -> None:
    """A sum that was rounded, divided, is the number next to it for one in ten."""
    for value in np.random.default_rng(1).normal(size=50).tolist():
        ends = np.arange(1, 200)
        _, mean, shift = run_means(np.zeros(199, np.int64), ends, np.full(199, value))
        assert (doubles(mean, shift) == value).all()


@given(runs(st.tuples(st.floats(0.0, 1e300), st.integers(-2100, 2100))))  # type: ignore[arg-type]
def test_roots_of_sums_that_are_no_doubles(some: tuple[list[int], list[int], list[tuple[float, int]]]) -> None:
    begin, end, pairs = some
    values, shifts = np.array([v for v, _ in pairs]), np.array([k for _, k in pairs], np.int64)
    value, shift = run_sums(np.array(begin, np.int64), np.array(end, np.int64), values, shifts)
    for a, b, v, k in zip(begin, end, value.tolist(), shift.tolist(), strict=True):
        exact = sum((Fraction(x) * Fraction(2) ** s for x, s in pairs[a:b]), Fraction(0))
        assert abs(Fraction(v) * Fraction(2) ** k - exact) <= exact * Fraction(2) ** -53
    assert roots(np.array([2.0, 4.5]), np.array([-1, 2])).tolist() == [1.0, math.sqrt(18.0)]


@given(runs(DOUBLES))
@example(([0, 1], [40, 41], [1e9 + 1e-6 * i for i in range(41)]))
@example(([0], [6], [1.0, 1.0 + 2.0**-52] * 3))
@example(([0], [4], [1e300, -1e300, 1.5e308, -1.5e308]))
def test_deviations_are_those_of_each_run(some: Runs) -> None:
    begin, end, values = _places(some)
    out = np.zeros(len(begin))
    deviations(begin, end, values, out)
    for a, b, found in zip(begin, end, out.tolist(), strict=True):
        run = list(map(Fraction, values[a:b].tolist()))
        if len(run) < 2:
            assert math.isnan(found)
            continue
        mean = sum(run, Fraction(0)) / len(run)
        exact = _root(sum(((x - mean) ** 2 for x in run), Fraction(0)) / (len(run) - 1))
        assert abs(found - exact) <= 4e-16 * exact + 5e-324
