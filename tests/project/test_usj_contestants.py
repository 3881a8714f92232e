"""The contestants of the benchmark of the similarity join: each says what brute force says, in exact fractions."""

from __future__ import annotations

import math
from collections import deque
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from benchmarks.usj import Found, Grid, Question, WoP
from benchmarks.usj_data import Sides, Stream, around, fitted, gps, objects, radii, sensors, uniform
from benchmarks.usj_grid import grouped, push_radius, sample_level, summary, window
from benchmarks.usj_rivals import DuckDB, NumPy
from tests.helpers import hands

pytestmark = pytest.mark.rivals
Close = dict[tuple[int, int], int]


def _close(sides: Sides, question: Question, ticks: int) -> list[Close]:
    """The pairs that enter the answer at each tick, and their close pairs of samples: all of them looked at."""
    (left, right), q = sides, question
    m = left.l
    before: set[tuple[int, int]] = set()
    entered = []
    for tick in range(ticks):
        end = (tick + 1) * q.per_tick
        rows = range(max(0, end - q.w), end)
        found = {}
        for i in rows:
            for j in rows:
                if (i, j) in before:
                    continue
                gaps = left.samples[i][:, :, None] - right.samples[j][:, None, :]
                close = int((np.square(gaps).sum(axis=0) <= q.limit**2).sum())
                if Fraction(close, m * m) >= Fraction(q.alpha).limit_denominator(1000):
                    found[i, j] = close
                before.add((i, j))
        entered.append(found)
    return entered


def _told(found: Found) -> Close:
    assert len(found.pairs) == len(found.left), "a pair is told twice"
    return dict(zip(zip(found.left.tolist(), found.right.tolist(), strict=True), found.close.tolist(), strict=True))


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Sides, Question, int]:
    """Streams on a lattice, where ties are many; some objects large, some points."""
    d, m = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    ticks, per_tick = draw(st.integers(1, 9)), draw(st.sampled_from((1, 1, 2, 3)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sides = []
    for _ in range(2):
        n = ticks * per_tick
        centres = rng.integers(0, 7, (n, d, 1))
        spread = rng.choice([0, 1, 1, 3], (n, 1, 1))
        sides.append(Stream((centres + spread * rng.integers(-1, 2, (n, d, m))).astype(float)))
    alpha = draw(st.sampled_from((0.1, 0.25, 0.5, 0.75, 1.0)))
    question = Question(
        epsilon=draw(st.sampled_from((0.0, 1.0, 1.5, 3.0))),
        alpha=alpha,
        w=draw(st.integers(1, 12)),
        per_tick=per_tick,
        stop=draw(st.booleans()),
    )
    return (sides[0], sides[1]), question, ticks


@settings(max_examples=80)
@given(_cases())
def test_scan_and_grid_answer_as_brute_force_tick_by_tick(case: tuple[Sides, Question, int]) -> None:
    sides, question, ticks = case
    wanted = _close(sides, question, ticks)
    for contestant in (WoP(sides, question), Grid(sides, question), Grid(sides, question, 0.5)):
        for tick in range(ticks):
            found = contestant.run(tick, tick + 1)
            assert _told(found) == wanted[tick]
            floor = (tick + 1) * question.per_tick - question.w
            stands = {p for t in wanted[: tick + 1] for p in t if min(p) >= floor}
            assert {(i, j) for i, j in contestant.candidates.standing.tolist()} == stands
            assert found.counts["reported"] == len(stands)


@given(_cases())
def test_runs_of_many_ticks_find_the_same_and_count_every_pair(case: tuple[Sides, Question, int]) -> None:
    sides, question, ticks = case
    scan, grid = WoP(sides, question).run(0, ticks), Grid(sides, question).run(0, ticks)
    assert _told(scan) == _told(grid)
    counts = grid.counts
    assert counts["joined"] == scan.counts["joined"]
    decided = ("pruned_cells", "pruned_object", "pruned_sample", "refined")
    assert sum(counts[name] for name in decided) == counts["joined"]
    again = Grid(sides, question)
    again.fill(0, ticks // 2)
    late = {p: c for t in _close(sides, question, ticks)[ticks // 2 :] for p, c in t.items()}
    assert _told(again.run(ticks // 2, ticks)) == late


@settings(max_examples=25, deadline=None)
@given(_cases())
def test_numpy_and_duckdb_answer_as_brute_force(case: tuple[Sides, Question, int]) -> None:
    sides, question, ticks = case
    question = Question(question.epsilon, question.alpha, question.w)
    ticks = len(sides[0])
    entered = _close(sides, question, ticks)
    for first in (0, ticks // 2):
        wanted = {p: c for t in entered[first:] for p, c in t.items()}
        sql = DuckDB(sides, question)
        for told in (NumPy(sides, question).run(first, ticks), sql.run(sql.load(first, ticks), first)):
            got = {(int(i), int(j)): float(p) for i, j, p in zip(*told, strict=True)}
            assert set(got) == set(wanted)
            assert all(got[p] == pytest.approx(close / sides[0].l ** 2, abs=1e-12) for p, close in wanted.items())


@pytest.mark.data
def test_grid_answers_as_the_scan_and_ours_on_the_papers_data() -> None:
    _check_grid()


def test_grid_answers_as_the_scan_and_ours_on_generated_twins() -> None:
    _check_grid()


def _check_grid() -> None:
    rng = np.random.default_rng(5)
    for make in (gps, sensors):
        sides = objects(rng, make(rng, 300, 3), 0.0, 0.1, 20, "UG")
        epsilon = fitted(rng, sides, 0.005, 0.5, pairs=5_000)
        question = Question(epsilon, 0.5, 100)
        grid, scan = (kind(sides, question).run(0, 300) for kind in (Grid, WoP))
        assert _told(grid) == _told(scan)
        assert 50 < len(grid.left) < 2_000
        join = hands.similarity_join(
            left=Stream.described(),
            right=Stream.described(),
            epsilon=epsilon,
            probability=0.5,
            window=ap.CountWindow(100),
        )
        answers = [join.push(left=sides[0].table(), right=sides[1].table()), join.drain()]
        ours = {(row["left_key"], row["right_key"]): row["probability"] for part in answers for row in part.to_pylist()}
        assert set(ours) == grid.pairs
        assert all(ours[p] == pytest.approx(c / 400) for p, c in _told(grid).items())


# --- oracles of the paper's text --------------------------------------------------------------------------------


def _line(*values: float) -> Any:
    return np.array([values], float)


def test_the_worked_example_on_a_line() -> None:
    """X = {0, 1, 2, 9}, Y = {10, 11, 12, 21}, epsilon 1: centres, profiles, and what each threshold makes of them."""
    centre, profile = np.empty((2, 1)), np.empty((2, 4))
    x, y = _line(0, 1, 2, 9), _line(10, 11, 12, 21)
    for i, samples in enumerate((x, y)):
        summary(samples, centre[i], profile[i])
    assert centre[:, 0].tolist() == [3.0, 13.5]
    assert profile.tolist() == [[1.0, 2.0, 3.0, 6.0], [1.5, 2.5, 3.5, 7.5]]
    apart = 10.5
    assert apart - 6.0 - 7.5 < 1.0, "the balls overlap: object-level pruning does not fire"
    need = {alpha: math.ceil(alpha * 16 - 1e-9) for alpha in (0.5, 0.4, 1 / 16)}
    assert sample_level(apart, profile[0], profile[1], 1.0, need[0.5])
    assert not sample_level(apart, profile[0], profile[1], 1.0, need[0.4])
    assert not sample_level(apart, profile[0], profile[1], 1.0, need[1 / 16])
    for alpha, answers in ((0.5, {}), (0.4, {}), (1 / 16, {(0, 0): 1})):
        for kind in (WoP, Grid):
            assert _told(kind((Stream(x[None]), Stream(y[None])), Question(1.0, alpha, 3)).run(0, 1)) == answers


def test_the_list_of_candidates_for_r_max() -> None:
    """w = 3, radii 5, 3, 4, 1, 6, 2: the maxima, and the lists."""
    values = np.array([5.0, 3.0, 4.0, 1.0, 6.0, 2.0])
    capacity, lists = 6, []
    radius_list = np.zeros(capacity + 2, np.int64)
    for number in range(6):
        push_radius(radius_list, values, number, capacity)
        while radius_list[radius_list[capacity] % capacity] <= number - 3:
            radius_list[capacity] += 1
        at = range(radius_list[capacity], radius_list[capacity + 1])
        lists.append([values[radius_list[i % capacity]] for i in at])
    assert lists == [[5.0], [5.0, 3.0], [5.0, 4.0], [4.0, 1.0], [6.0], [6.0, 2.0]]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 8))
def test_r_max_is_the_largest_radius_of_the_window(values: list[int], w: int) -> None:
    capacity = w + 1
    kept: deque[int] = deque(maxlen=w)
    radius, radius_list = np.zeros(capacity), np.zeros(capacity + 2, np.int64)
    for number, value in enumerate(values):
        kept.append(value)
        radius[number % capacity] = value
        push_radius(radius_list, radius, number, capacity)
        while radius_list[radius_list[capacity] % capacity] <= number - w:
            radius_list[capacity] += 1
        assert radius[radius_list[radius_list[capacity] % capacity] % capacity] == max(kept)


@given(st.integers(0, 2**32 - 1), st.sampled_from((0.1, 0.25, 0.4, 0.5, 0.9)), st.integers(1, 3))
def test_sample_level_pruning_is_every_pair_of_masses_and_never_wrong(seed: int, alpha: float, d: int) -> None:
    """Two pointers find what all l^2 choices of (beta, gamma) do, and no answer is lost."""
    rng = np.random.default_rng(seed)
    m, epsilon = 6, 1.0
    x, y = (rng.integers(0, 5, (d, m)).astype(float) + shift for shift in (0, rng.integers(0, 9)))
    centre, profile = np.empty((2, d)), np.empty((2, m))
    summary(x, centre[0], profile[0])
    summary(y, centre[1], profile[1])
    apart = float(np.linalg.norm(centre[0] - centre[1]))
    need = math.ceil(alpha * m * m - 1e-9)
    slow = any(
        Fraction(a * b, m * m) > 1 - Fraction(need, m * m) and apart - profile[0, a - 1] - profile[1, b - 1] > epsilon
        for a in range(1, m + 1)
        for b in range(1, m + 1)
    )
    assert sample_level(apart, profile[0], profile[1], epsilon, need) == slow
    close = int((np.square(x[:, :, None] - y[:, None, :]).sum(axis=0) <= (epsilon + 1e-9) ** 2).sum())
    if slow:
        assert close < need


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 3))
def test_groups_hold_each_arrival_once_within_their_balls(seed: int, n: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    centre, radius = rng.random((n, d)), rng.random(n) * 0.2
    group, ball = np.empty(n, np.int64), np.empty((n, d + 1))
    count = grouped(centre, radius, np.arange(n), 0.3, group, ball)
    assert sorted(set(group.tolist())) == list(range(count))
    assert (np.diff(group) >= 0).all()
    for row in range(n):
        own = ball[group[row]]
        assert np.linalg.norm(own[:d] - centre[row]) + radius[row] <= own[d] * (1 + 1e-9) + 1e-12


def test_a_window_is_empty_again_after_its_objects_left() -> None:
    rng = np.random.default_rng(1)
    side = Stream(rng.random((50, 2, 3)))
    grid = Grid((side, side), Question(0.1, 0.5, 1), 0.05)
    grid.run(0, 50)
    assert [int(part[5][-1]) for part in grid.windows] == [1, 1]
    assert [int(part[5][-1]) for part in (window(4, 2, 3),)] == [0]


# --- data -------------------------------------------------------------------------------------------------------


@pytest.mark.data
def test_data_are_what_the_paper_says() -> None:
    _check_data()


def test_generated_twins_are_what_the_paper_says() -> None:
    _check_data()


def _check_data() -> None:
    rng = np.random.default_rng(2)
    for gaussian in (False, True):
        radius = radii(rng, 5_000, 0.01, 0.03, gaussian=gaussian)
        assert radius.min() >= 0.01
        assert radius.max() <= 0.03
        assert radius.mean() == pytest.approx(0.02, abs=0.0005)
    centres = uniform(rng, 50, 3)
    objects = around(rng, centres, np.full(50, 0.1), 400)
    far = np.linalg.norm(objects.samples - centres[:, :, None], axis=1)
    assert far.max() <= 0.1 * (1 + 1e-12)
    assert (far <= 0.05).mean() == pytest.approx(1 / 8, abs=0.01)
    for d in (2, 5):
        for make in (gps, sensors):
            for part in make(rng, 500, d):
                assert part.shape == (500, d)
                assert part.min() >= 0.0
                assert part.max() <= 1.0


def test_epsilon_is_fitted_to_a_share_of_answers() -> None:
    rng = np.random.default_rng(3)
    sides = objects(rng, (uniform(rng, 400, 3), uniform(rng, 400, 3)), 0.0, 0.2, 20)
    epsilon = fitted(rng, sides, 0.004, 0.5, pairs=20_000)
    found = WoP(sides, Question(epsilon, 0.5, 400)).run(0, 400)
    assert len(found.left) / 400**2 == pytest.approx(0.004, rel=0.3)
