"""Quantiles over all possible worlds, beside a recount of the worlds at every value."""

from __future__ import annotations

from fractions import Fraction
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appulse.kernels import quantiles
from appulse.kernels.aggregates import UncertainRows
from appulse.kernels.newest_quantiles import newest

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHARES = [(1, 2), (9, 10), (99, 100), (37, 100), (1, 100), (3, 4)]
EXISTENCES = ["certain", "mostly", "half", "seldom", "hardly"]
Found = tuple[list[float], list[float], list[float]]


def _rows(n: int, samples: int, existence: str, *, apart: bool = False, digits: int = 2) -> UncertainRows:
    chance = np.random.default_rng([n, samples, len(existence)])
    values = (100.0 if apart else 1.0) * chance.normal(size=(n, 1)) + chance.normal(size=(n, samples))
    exist = {
        "certain": np.ones(n),
        "mostly": np.where(chance.random(n) < 0.1, chance.uniform(0.2, 1.0, n), 1.0),
        "half": chance.uniform(0.5, 1.0, n),
        "seldom": chance.uniform(0.01, 0.5, n),
        "hardly": np.full(n, 1e-6),
    }[existence]
    share = chance.dirichlet(np.ones(samples), n)
    weights = (share * exist[:, None]).ravel()
    return UncertainRows(exist, np.arange(n + 1) * samples, np.round(values, digits).ravel(), weights)


def _found(rows: UncertainRows, share: tuple[int, int], size: int = 0) -> Found:
    """Mean and deviation; values and their chances."""
    out, begin, end = np.empty((1, 2)), np.array([0]), np.array([len(rows.exist)])
    if size:
        _, values, chances = newest(begin, end, rows, size, *share, out)
    else:
        _, values, chances = quantiles.uncertain(begin, end, rows, *share, out, True)
    return out[0].tolist(), values.tolist(), chances.tolist()


def _recounted(rows: UncertainRows, size: int, share: tuple[int, int]) -> tuple[NDArray[np.float64], Any]:
    """The values, and the chance that the quantile is at most each: worlds by their rows, and by those at most that."""
    part, whole = share
    n = len(rows.exist)
    size = size or n
    at = np.unique(rows.values)
    chance = np.zeros((len(at), size + 1, size + 1))
    chance[:, 0, 0] = 1.0
    for i in range(n - 1, -1, -1):
        own = slice(rows.first[i], rows.first[i + 1])
        below = ((rows.values[own] <= at[:, None]) * rows.weights[own]).sum(axis=1)[:, None, None]
        new = chance * (1.0 - rows.exist[i])
        new[:, size] = chance[:, size]
        new[:, 1:, 1:] += chance[:, :-1, :-1] * below
        new[:, 1:, :] += chance[:, :-1, :] * (rows.exist[i] - below)
        chance = new
    count, most = np.indices((size + 1, size + 1))
    reached = (count > 0) & (most * whole >= part * count)
    return at, chance[:, reached].sum(axis=1)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("existence", EXISTENCES)
@pytest.mark.parametrize(
    ("n", "samples", "size"), [(1, 3, 0), (2, 3, 1), (7, 3, 0), (7, 3, 3), (30, 4, 0), (40, 4, 25), (101, 1, 0)]
)
def test_quantiles_are_those_of_worlds_recounted_at_each_value(
    n: int, samples: int, size: int, existence: str, apart: bool
) -> None:
    rows = _rows(n, samples, existence, apart=apart)
    for share in SHARES if n < 40 else SHARES[2:3]:
        at, expected = _recounted(rows, size, share)
        (mean, deviation), values, chances = _found(rows, share, size)
        exists = expected[-1]
        reached = np.append(0.0, np.cumsum(chances))[np.searchsorted(values, at, side="right")]
        assert np.abs(reached - expected).max() <= 1e-13 * exists, share
        chance = np.diff(expected, prepend=0.0) / exists
        middle = (chance * at).sum()
        width = at[-1] - at[0] + 1.0
        assert abs(mean - middle) <= 1e-12 * width
        assert abs(deviation**2 - (chance * (at - middle) ** 2).sum()) <= 1e-12 * width**2


@given(st.integers(0, 1 << 30), st.sampled_from(SHARES))
def test_newest_rows_of_long_windows_are_recounted_too(seed: int, share: tuple[int, int]) -> None:
    """Windows of many more rows than count, of which about half certainly exist."""
    chance = np.random.default_rng(seed)
    n, size = int(chance.integers(30, 130)), int(chance.integers(5, 50))
    exist = np.where(chance.random(n) < 0.5, 1.0, chance.uniform(0.05, 1.0, n))
    rows = UncertainRows(exist, np.arange(n + 1), chance.normal(size=n), exist.copy())
    at, expected = _recounted(rows, size, share)
    (mean, _), values, chances = _found(rows, share, size)
    reached = np.append(0.0, np.cumsum(chances))[np.searchsorted(values, at, side="right")]
    assert np.abs(reached - expected).max() <= 1e-12
    assert abs(mean - (np.diff(expected, prepend=0.0) * at).sum() / expected[-1]) <= 1e-11


@st.composite
def few(draw: st.DrawFn) -> list[list[tuple[int, Fraction]]]:
    """Rows of values with weights, some very small."""
    weight = st.sampled_from([Fraction(1, 2), Fraction(1, 4), Fraction(1, 2**30), Fraction(1, 16), Fraction(0)])
    row = st.lists(st.tuples(st.integers(-3, 3), weight), min_size=1, max_size=2)
    certain = st.integers(-3, 3).map(lambda value: [(value, Fraction(1))])
    split = st.tuples(st.integers(-3, 3), st.integers(-3, 3), weight).map(lambda x: [(x[0], x[2]), (x[1], 1 - x[2])])
    return draw(st.lists(st.one_of(row, certain, split), min_size=1, max_size=6))


@given(few(), st.sampled_from(SHARES))
def test_each_chance_has_all_its_digits(given_: list[list[tuple[int, Fraction]]], share: tuple[int, int]) -> None:
    """However small: none is a difference of large numbers. By fractions."""
    exist = np.array([float(sum(weight for _, weight in row)) for row in given_])
    first = np.append(0, np.cumsum([len(row) for row in given_]))
    flat = [one for row in given_ for one in row]
    rows = UncertainRows(
        exist, first, np.array([float(v) for v, _ in flat]), np.array([float(weight) for _, weight in flat])
    )
    _, values, chances = _found(rows, share)
    expected = _by_fractions(given_, *share)
    assert set(values) == {value for value, chance in expected.items() if chance}
    for value, chance in zip(values, chances, strict=True):
        assert chance == pytest.approx(float(expected[int(value)]), rel=1e-14)


def _by_fractions(given_: list[list[tuple[int, Fraction]]], part: int, whole: int) -> dict[int, Fraction]:
    """The chance of each value."""
    found, before = {}, Fraction(0)
    for x in range(-3, 4):
        worlds = {(0, 0): Fraction(1)}
        for row in given_:
            below = sum((weight for value, weight in row if value <= x), Fraction(0))
            above = sum((weight for _, weight in row), Fraction(0)) - below
            new: dict[tuple[int, int], Fraction] = {}
            for (count, most), chance in worlds.items():
                for more, own, weight in ((0, 0, 1 - above - below), (1, 1, below), (1, 0, above)):
                    to = count + more, most + own
                    new[to] = new.get(to, Fraction(0)) + chance * weight
            worlds = new
        reached = sum((c for (n, most), c in worlds.items() if n and most * whole >= part * n), Fraction(0))
        found[x], before = reached - before, reached
    return found


@pytest.mark.parametrize("existence", EXISTENCES)
def test_windows_have_the_same_bits_alone_and_beside_others(existence: str) -> None:
    """Whatever was in memory before."""
    rows = _rows(60, 5, existence)
    begin, end = np.array([0, 5, 30, 0, 20]), np.array([25, 29, 31, 60, 60])
    for share in SHARES:
        out, again, own = np.empty((5, 2)), np.empty((5, 2)), np.empty((1, 2))
        at, values, chances = quantiles.uncertain(begin, end, rows, *share, out, True)
        none, *nothing = quantiles.uncertain(begin, end, rows, *share, again, False)
        assert (again == out).all()
        assert [none.any(), *map(len, nothing)] == [False, 0, 0]
        for w in range(5):
            _, value, chance = quantiles.uncertain(begin[w : w + 1], end[w : w + 1], rows, *share, own, True)
            assert own[0].tolist() == out[w].tolist()
            assert value.tolist() == values[at[w] : at[w + 1]].tolist()
            assert chance.tolist() == chances[at[w] : at[w + 1]].tolist()


@pytest.mark.parametrize("existence", ["certain", "half"])
def test_odd_percentiles_take_no_longer_than_the_median(existence: str) -> None:
    """Not a hundred times as long, as the states of a sum with steps of 1 and 99 would; with 64 points a row."""
    rows = _rows(120, 64, existence, digits=15)
    for share in SHARES:
        _found(_rows(3, 2, existence), share)
        begun = process_time()
        _found(rows, share)
        assert process_time() - begun < 0.5, share
