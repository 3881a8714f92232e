"""How many rows exist: the kernels against exact fractions, possible worlds, scipy and the paper's own numbers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise, product
from time import process_time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from scipy.stats import binom, poisson_binom

from appulse.kernels import poisson_binomial as kernel
from appulse.kernels.absent import absent_pmf
from appulse.kernels.cumulants import LEAST_VARIANCE, add_cumulants, nearly
from appulse.windows.definitions import METHODS
from tests.helpers import naive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis.strategies import DrawFn
    from numpy.typing import NDArray

CLOSE = 1e-12
UNCAPPED = 1 << 40
NOBODY = -1
# Tenths, of which many are certain; next to nothing; and any number.
PROBABILITIES = st.one_of(
    st.integers(1, 10).map(lambda k: k / 10),
    st.sampled_from((1.0, 1.0, 0.5, 1e-9, 1.0 - 1e-9)),
    st.floats(1e-12, 1.0),
)
PAPER = (0.5, 0.8, 1.0, 0.6)
ARRIVALS = (1.0, 0.9, 0.5, 0.8, 1.0, 0.6, 0.7)


def _worlds(exist: Sequence[float], most: int) -> Fraction:
    """Pr(at most ``most`` exist), over all possible worlds."""
    total = Fraction(0)
    for world in product((False, True), repeat=len(exist)):
        if sum(world) <= most:
            chance = Fraction(1)
            for there, p in zip(world, exist, strict=True):
                chance *= Fraction(p) if there else 1 - Fraction(p)
            total += chance
    return total


def _curves(exist: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """For each row, Pr(at most ``size - 1`` of those after it exist), in doubles and row by row."""
    out = np.empty(len(exist))
    existing = np.zeros(size)
    existing[0] = 1.0
    for row in range(len(exist) - 1, -1, -1):
        out[row] = existing.sum()
        existing[1:] = existing[1:] * (1.0 - exist[row]) + existing[:-1] * exist[row]
        existing[0] *= 1.0 - exist[row]
    return out


def _chance(method: str, most: int, exist: Sequence[float]) -> Fraction:
    """Pr(at most ``most`` exist), exactly or as a method of windows has it."""
    if method == "exact":
        return naive.at_most(most, exist)
    return Fraction(naive.approximately_at_most(method, most, exist))


def _absent(exist: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """The mass function of the number of absent rows, with what was left out filled in by zeros."""
    values, low = absent_pmf(np.array(exist, np.float64))
    out = np.zeros(len(exist) + 1)
    out[low : low + len(values)] = values
    return out


# --- mass functions ---------------------------------------------------------------------------------------------


@given(st.lists(PROBABILITIES, max_size=10), st.integers(-1, 11))
def test_twins_by_dynamic_programming_are_possible_worlds(exist: list[float], most: int) -> None:
    """The fractions all else is held against."""
    assert naive.at_most(most, exist) == _worlds(exist, most)
    assert sum(naive.existing(exist)) == 1


@given(st.lists(PROBABILITIES, max_size=14))
def test_the_number_of_absent_rows_is_exact(exist: list[float]) -> None:
    """Absent rows counted, so the other way round."""
    expected = [float(p) for p in reversed(naive.existing(exist))]
    assert np.abs(_absent(exist) - expected).max() <= CLOSE


@pytest.mark.parametrize("n", [63, 64, 65, 129, 1000, 5000])
def test_long_mass_functions_are_those_of_scipy(n: int) -> None:
    """On both sides of where halves are convolved; from 1.18 on SciPy takes the square of ``n`` for each number."""
    rng = np.random.default_rng(n)
    for exist in (rng.random(n), 1.0 - 0.3 * rng.random(n), rng.choice([0.5, 0.9, 1.0, 1e-9], n)):
        found = _absent(exist)
        numbers = np.arange(n + 1) if n <= 1000 else round(exist.sum()) + np.arange(-20, 21)
        assert np.abs(found[::-1][numbers] - poisson_binom.pmf(numbers, exist)).max() <= CLOSE
        assert abs(found.sum() - 1.0) <= CLOSE


def test_certain_rows_and_no_rows_at_all() -> None:
    """No band is wider than what may happen."""
    for exist in ([], [1.0], [1.0] * 500):
        values, low = absent_pmf(np.array(exist, np.float64))
        assert (values.tolist(), low) == ([1.0], 0)


@given(st.lists(PROBABILITIES, min_size=1, max_size=14), st.integers(1, 15))
def test_the_curve_is_the_membership_of_every_row(exist: list[float], size: int) -> None:
    """Oldest first."""
    found = kernel.curve(np.array(exist), size)
    expected = [float(naive.at_most(size - 1, exist[i + 1 :])) for i in range(len(exist))]
    assert np.abs(found - expected).max() <= CLOSE


@pytest.mark.parametrize(("n", "size"), [(1000, 1), (1000, 400), (5000, 50), (5000, 2500)])
def test_long_curves_are_those_of_scipy(n: int, size: int) -> None:
    """Every row against a plain loop, some of them against scipy."""
    exist = np.random.default_rng(size).choice([0.3, 0.5, 0.77, 0.9, 1.0, 1e-9], n)
    found = kernel.curve(exist, size)
    assert np.abs(found - _curves(exist, size)).max() <= CLOSE
    for row in range(0, n - 1, n // 7):
        assert abs(found[row] - poisson_binom.cdf(size - 1, exist[row + 1 :])) <= CLOSE


@pytest.mark.parametrize("n", [400, 3000, 20_000])
def test_few_cumulants_are_as_near_as_they_say(n: int) -> None:
    """A hundredth of it, and less, whatever rows there are: nearly certain ones, and hardly any."""
    rng, worst, seen = np.random.default_rng(n), 0.0, 0
    for exist in (
        rng.uniform(0.0, 1.0, n),
        np.full(n, 0.5),
        np.where(rng.random(n) < 0.5, 0.999, 0.3),
        rng.beta(0.1, 5.0, n),
        rng.beta(9.0, 0.5, n),
        rng.choice([0.01, 0.211, 0.789, 1.0], n),
    ):
        three = kernel.sums(exist)[-1]
        if three[1] < LEAST_VARIANCE:
            continue
        more = np.zeros(3)
        add_cumulants(exist, 0, n, 1.0, more)
        chance, low = absent_pmf(exist)
        upto = np.cumsum(chance[::-1])  # of the fewest rows that exist on
        for k in range(0, len(chance), 1 + len(chance) // 100):
            found, error = nearly(n - low - len(chance) + 1 + k, three, more)
            worst, seen = max(worst, abs(found - upto[k]) / error), seen + 1
    assert seen
    assert worst < 0.05


# --- approximations ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (kernel.POISSON, (0.055023, 0.214591, 0.445963, 0.669623, 0.831777)),
        (kernel.NORMAL, (0.001456, 0.041239, 0.309898, 0.771625, 0.976403)),
        (kernel.REFINED_NORMAL, (0.003166, 0.049392, 0.297720, 0.765445, 0.983896)),
    ],
)
def test_approximations_give_the_numbers_of_the_paper(method: int, expected: tuple[float, ...]) -> None:
    """Mean 2.9, variance 0.65, skewness -0.274785."""
    known = kernel.sums(np.array(PAPER))
    mean, variance, third, certain = known[-1].tolist()
    assert (mean, variance, certain) == (pytest.approx(2.9), pytest.approx(0.65), 1.0)
    assert third / variance**1.5 == pytest.approx(-0.274785, abs=5e-7)
    for most, value in enumerate(expected):
        assert kernel.approximate(method, most, mean, variance, third) == pytest.approx(value, abs=5e-7)
        if most < 4:  # of four rows at most four exist, for certain
            twin = naive.approximately_at_most(METHODS[method], most, PAPER)
            assert twin == pytest.approx(value, abs=5e-7)
    exact = [0.0, 0.04, 0.30, 0.76, 1.0]
    assert [float(naive.at_most(most, PAPER)) for most in range(5)] == pytest.approx(exact, abs=CLOSE)


@given(st.lists(PROBABILITIES, min_size=1, max_size=14), st.integers(1, 14), st.sampled_from(METHODS[1:]))
def test_approximations_are_the_formulas_of_the_paper(exist: list[float], size: int, method: str) -> None:
    """For every row of a window; those that too few others follow are certain."""
    found = _membership([exist], size, method, [(0, row, len(exist) - 1, NOBODY) for row in range(len(exist))])
    expected = [naive.approximately_at_most(method, size - 1, exist[row + 1 :]) for row in range(len(exist))]
    assert np.abs(np.array(found) - expected).max() <= 1e-9


def test_approximations_of_many_rows_neither_overflow_nor_drift() -> None:
    """Beyond what factorials and powers of doubles can hold."""
    exist = np.full(20_000, 0.9)
    mean, variance, third, _ = kernel.sums(exist)[-1].tolist()
    truth = float(binom.cdf(18_000, len(exist), 0.9))
    for method, off in ((kernel.REFINED_NORMAL, 1e-6), (kernel.NORMAL, 1e-2), (kernel.POISSON, 1e-2)):
        assert kernel.approximate(method, 18_000, mean, variance, third) == pytest.approx(truth, abs=off)


# --- membership -------------------------------------------------------------------------------------------------

Question = tuple[int, int, int, int]  # window, row, newest, partner


def _joined(windows: Sequence[Sequence[float]]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    first = np.cumsum([0] + [len(exist) for exist in windows]).astype(np.int64)
    return first, np.array([p for exist in windows for p in exist], np.float64)


def _membership(
    windows: Sequence[Sequence[float]], size: int, method: str, questions: Sequence[Question]
) -> list[float]:
    first, exist = _joined(windows)
    columns = np.array(questions, np.int64).reshape(-1, 4)
    out = np.full(len(questions), np.nan)
    asked = kernel.Questions(*(np.ascontiguousarray(columns[:, k]) for k in range(4)))
    kernel.membership(first, exist, size, METHODS.index(method), asked, out)
    return [float(p) for p in out]


def _inside(exist: Sequence[float], size: int, method: str, question: Question) -> float:
    """The same, one question and one row at a time."""
    _, row, newest, partner = question
    others = [exist[k] for k in range(row + 1, newest + 1) if k != partner]
    return float(_chance(method, size - 1 - (partner != NOBODY), others))


@st.composite
def _asked(draw: DrawFn, most: int = 12) -> tuple[list[list[float]], list[Question]]:
    """Windows, and questions about their rows: with a partner, without, and both; sorted as the kernel wants them."""
    windows = draw(st.lists(st.lists(PROBABILITIES, min_size=1, max_size=most), min_size=1, max_size=4))
    partners = draw(st.sampled_from(("none", "all", "some")))
    questions = []
    for _ in range(draw(st.integers(1, 12))):
        window = draw(st.integers(0, len(windows) - 1))
        newest = draw(st.integers(0, len(windows[window]) - 1))
        row = draw(st.integers(0, newest))
        wanted = partners == "all" or (partners == "some" and draw(st.booleans()))
        partner = draw(st.integers(row + 1, newest)) if wanted and row < newest else NOBODY
        questions.append((window, row, newest, partner))
    questions.sort(key=lambda question: (question[0], question[2], question[3]))
    return windows, questions


@settings(max_examples=150)
@given(_asked(), st.integers(1, 6))
def test_membership_is_exact(asked: tuple[list[list[float]], list[Question]], size: int) -> None:
    """Several windows, ticks and partners in one call."""
    windows, questions = asked
    found = _membership(windows, size, "exact", questions)
    for value, question in zip(found, questions, strict=True):
        assert abs(value - _inside(windows[question[0]], size, "exact", question)) <= CLOSE


@given(_asked(), st.integers(2, 6), st.sampled_from(METHODS[1:]))
def test_membership_is_approximated(asked: tuple[list[list[float]], list[Question]], size: int, method: str) -> None:
    """With partners, too: these are certain, so one row less is asked for."""
    windows, questions = asked
    found = _membership(windows, size, method, questions)
    for value, question in zip(found, questions, strict=True):
        assert abs(value - _inside(windows[question[0]], size, method, question)) <= 1e-9


@pytest.mark.parametrize("partners", [False, True])
def test_membership_in_a_long_window_that_slides(*, partners: bool) -> None:
    """Many ticks of many rows, so that pivots are taken again and again; against a plain loop."""
    rng = np.random.default_rng(7)
    n, size = 1500, 150
    exist = rng.choice([0.3, 0.5, 0.77, 0.9, 1.0, 1e-9], n)
    questions = []
    for newest in sorted(rng.choice(np.arange(400, n), 30, replace=False).tolist()):
        for partner in [newest, newest - 5, newest - 60] if partners else [NOBODY]:
            last = newest if partner == NOBODY else partner
            rows = sorted(rng.choice(np.arange(last - 320, last), 4, replace=False).tolist())
            questions += [(0, row, newest, partner) for row in rows]
    questions.sort(key=lambda question: (question[2], question[3]))
    found = _membership([exist.tolist()], size, "exact", questions)
    for value, (_, row, newest, partner) in zip(found, questions, strict=True):
        others = exist[row + 1 : newest + 1]
        if partner != NOBODY:
            others = np.delete(others, partner - row - 1)
        expected = _curves(np.concatenate([[1.0], others]), size - partners)[0]
        assert abs(value - expected) <= CLOSE


def test_membership_gives_the_numbers_of_the_paper() -> None:
    """The match of u = {3.0: .4, 5.0: .5} with four rows, w = 2."""
    exist = [1.0, 0.6, 0.9, 0.6]
    found = _membership([exist], 2, "exact", [(0, row, 3, NOBODY) for row in range(4)])
    assert found == pytest.approx([0.208, 0.46, 1.0, 1.0], abs=CLOSE)
    matched = [match * inside for match, inside in zip((0.2, 0.3, 0.0, 0.27), found, strict=True)]
    assert matched == pytest.approx([0.0416, 0.138, 0.0, 0.27], abs=CLOSE)


# --- eviction ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rule:
    size: int
    confidence: float
    least: float = 0.0
    max_rows: int = UNCAPPED
    method: str = "exact"


@dataclass(frozen=True)
class _Stream:
    """The rows of a window, those held before this call first, and which are the last of their tick."""

    exist: tuple[float, ...]
    fresh: int
    tick_end: tuple[bool, ...]


def _evict(streams: Sequence[_Stream], rule: _Rule) -> tuple[list[list[int]], int]:
    """The oldest row kept, after each new row; and how many rows the cap took."""
    first, exist = _joined([stream.exist for stream in streams])
    fresh = np.array([stream.fresh for stream in streams], np.int64)
    tick_end = np.array([end for stream in streams for end in stream.tick_end], np.bool_)
    floor = np.full(len(exist), -7, np.int64)
    counted = kernel.CountRule(rule.size, rule.confidence, rule.least, rule.max_rows, METHODS.index(rule.method))
    capped = kernel.evict(kernel.Ticks(first, fresh, tick_end), exist, counted, floor)
    per_window = [floor[a:b].tolist() for a, b in pairwise(first)]
    for floors, stream in zip(per_window, streams, strict=True):
        assert floors[: stream.fresh] == [-7] * stream.fresh  # rows of earlier calls are not touched
    return [floors[stream.fresh :] for floors, stream in zip(per_window, streams, strict=True)], int(capped)


class _DoubtfulError(Exception):
    """A comparison that rounding may decide."""


def _surely(left: Fraction, right: Fraction) -> bool:
    """Whether the left is at least the right, by more than rounding can change."""
    if abs(left - right) < Fraction(1, 10**11):
        raise _DoubtfulError
    return left >= right


def _goes(newer: Sequence[float], rule: _Rule) -> bool:
    """Whether the row before these leaves (Algorithms 1 and 2)."""
    if len(newer) < rule.size:
        return False
    inside = _chance(rule.method, rule.size - 1, newer)
    if rule.confidence == 1.0 and rule.method == "exact":
        gone = inside == 0
    else:
        gone = _surely(1 - inside, Fraction(rule.confidence) - naive.TOLERANCE)
    return gone or (rule.least > 0.0 and not _surely(inside, Fraction(rule.least)))


def _slowly(stream: _Stream, rule: _Rule) -> tuple[list[int], int]:
    """Tick by tick, row by row."""
    floors: list[int] = []
    oldest = capped = 0
    for newest in range(stream.fresh, len(stream.exist)):
        if not stream.tick_end[newest]:
            continue
        while _goes(stream.exist[oldest + 1 : newest + 1], rule):
            oldest += 1
        while newest + 1 - oldest > rule.max_rows:
            oldest += 1
            capped += 1
        floors += [oldest] * (newest + 1 - stream.fresh - len(floors))
    return floors, capped


@st.composite
def _streams(draw: DrawFn, most: int = 12) -> _Stream:
    exist = draw(st.lists(PROBABILITIES, min_size=1, max_size=most))
    n = len(exist)
    fresh = draw(st.one_of(st.just(0), st.integers(0, n)))
    ends = [draw(st.integers(0, 2)) > 0 or row in (fresh - 1, n - 1) for row in range(n)]
    return _Stream(tuple(exist), fresh, tuple(ends))


CONFIDENCES = st.one_of(st.sampled_from((0.5, 0.9, 0.95, 0.999, 1.0)), st.floats(0.01, 0.999999))
RULES = st.builds(
    _Rule,
    size=st.sampled_from((1, 2, 2, 3, 5)),
    confidence=CONFIDENCES,
    least=st.sampled_from((0.0, 0.0, 0.05, 1 / 3, 0.77)),
    max_rows=st.sampled_from((UNCAPPED, UNCAPPED, 5, 7)),
)


@settings(max_examples=200)
@given(st.lists(_streams(), min_size=1, max_size=4), RULES)
def test_eviction_is_exact(streams: list[_Stream], rule: _Rule) -> None:
    """Several windows, ticks of several rows, some rows held before."""
    _check_eviction(streams, rule)


@settings(max_examples=80)
@given(st.data())
def test_eviction_goes_by_approximations(data: st.DataObject) -> None:
    """All three of them, by the formulas of the paper."""
    streams = data.draw(st.lists(_streams(), min_size=1, max_size=3))
    rule = data.draw(st.builds(_Rule, st.sampled_from((1, 2, 3, 5)), CONFIDENCES, method=st.sampled_from(METHODS[1:])))
    _check_eviction(streams, rule)


def _check_eviction(streams: Sequence[_Stream], rule: _Rule) -> None:
    try:
        expected = [_slowly(stream, rule) for stream in streams]
    except _DoubtfulError:
        reject()
    assert _evict(streams, rule) == ([floors for floors, _ in expected], sum(capped for _, capped in expected))


def _one_by_one(exist: Sequence[float], fresh: int = 0) -> _Stream:
    return _Stream(tuple(exist), fresh, (True,) * len(exist))


@pytest.mark.parametrize(
    ("least", "expected"), [(0.0, [0, 0, 0, 0, 2, 3, 3]), (0.3, [0, 0, 0, 1, 3, 3, 4])], ids=["alone", "beta"]
)
def test_eviction_gives_the_windows_of_the_paper(least: float, expected: list[int]) -> None:
    """Algorithms 1 and 2 with w = 2 and alpha = .9; in the fifth step exactly .9 decides."""
    assert _evict([_one_by_one(ARRIVALS)], _Rule(2, 0.9, least)) == ([expected], 0)


def test_without_doubt_only_certain_rows_count() -> None:
    """With confidence 1; however many rows that are nearly certain do not make up for one."""
    nearly = [1.0 - 1e-12] * 50
    found, _ = _evict([_one_by_one([*nearly, 1.0, 0.5, 1.0, 1.0])], _Rule(2, 1.0))
    assert found == [[0] * 52 + [50, 52]]


def test_certain_rows_make_an_ordinary_count_window() -> None:
    """Whatever the confidence and the method."""
    exist = [1.0] * 30
    for method in ("exact", "normal", "refined-normal"):
        for confidence in (0.5, 0.95, 1.0):
            found, _ = _evict([_one_by_one(exist)], _Rule(7, confidence, method=method))
            assert found == [[max(0, row - 6) for row in range(30)]]


def test_the_rows_a_cap_takes_are_counted() -> None:
    """Only those that would have stayed without it."""
    assert _evict([_one_by_one([0.5] * 6)], _Rule(2, 0.9, max_rows=3)) == ([[0, 0, 0, 1, 2, 3]], 3)
    one_tick = _Stream((0.5,) * 3 + (0.9,) * 3, 0, (False,) * 5 + (True,))
    assert _evict([one_tick], _Rule(2, 0.9, max_rows=3)) == ([[3] * 6], 0)
    assert _evict([one_tick], _Rule(2, 0.99, max_rows=3)) == ([[3] * 6], 2)


@pytest.mark.parametrize("size", [60, 700])  # of few rows, and of so many that their cumulants decide
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999999])
def test_long_windows_are_the_shortest_suffixes_that_suffice(confidence: float, size: int) -> None:
    """Eq. 4: the fewest newest rows of which ``size`` exist with the confidence; all at once, or in calls."""
    rng = np.random.default_rng(11)
    n = 1200 + size
    exist = rng.choice([0.3, 0.5, 0.77, 0.9, 1.0, 1e-9], n)
    found = _evict([_one_by_one(exist.tolist())], _Rule(size, confidence))[0][0]
    for newest in range(0, n, 3):
        enough = 1.0 - _curves(exist[: newest + 1], size) >= confidence - 1e-9
        # Entry k is about the rows after k.
        assert found[newest] == (int(np.flatnonzero(enough)[-1]) + 1 if enough.any() else 0)
    pieces = []
    base = begin = 0
    while begin < n:
        end = min(n, begin + int(rng.integers(1, 200)))
        floors = _evict([_one_by_one(exist[base:end].tolist(), begin - base)], _Rule(size, confidence))[0][0]
        pieces += [base + floor for floor in floors]
        base, begin = pieces[-1], end
    assert pieces == found


def test_few_rows_more_do_not_go_through_a_long_window() -> None:
    """To find which rows leave it takes hardly longer than the chances of all numbers of absent rows."""
    exist = np.random.default_rng(3).uniform(0.5, 1.0, 40_000)
    n = len(exist)
    first, fresh, floor = np.array([0, n]), np.array([n - 10]), np.empty(n, np.int64)
    ticks, rule = kernel.Ticks(first, fresh, np.ones(n, bool)), kernel.CountRule(28_000, 0.9, 0.0, UNCAPPED, 0)

    def least(call: Callable[[], object]) -> float:
        taken = []
        for _ in range(5):
            begin = process_time()
            call()
            taken.append(process_time() - begin)
        return min(taken)

    assert least(partial(kernel.evict, ticks, exist, rule, floor)) < 3 * least(partial(absent_pmf, exist))
    assert 0 < floor[-1] < n - 28_000
