"""Every kernel against its slow twin, and every bound against the truth."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from appulse.kernels import bounds, grid, strings
from appulse.kernels.arrays import Moments, RowPairs, Sampled, Samples
from appulse.kernels.ball_table import NO_TABLE, ball_table, looked_up
from appulse.kernels.gaussian import Gaussians, WithinBall, ball_probability, phi
from appulse.kernels.gaussian_pairs import gaussian_pairs
from appulse.kernels.geodesic import Earth, to_centred
from appulse.kernels.moments import Summaries, attained_radius, shapes, summarise
from appulse.kernels.one_dimension import refine_line
from appulse.kernels.refine import refine
from appulse.model.batch import runs_at
from appulse.model.columns import rows_of
from appulse.model.points import ball_points, normal_points
from tests.helpers import geodesics, naive

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

NONE = np.empty(0, np.int64)


# --- columns ----------------------------------------------------------------------------------------------------

WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(WHOLE, max_size=40))
def test_words_of_whole_numbers_are_in_their_order_and_come_back(numbers: list[int]) -> None:
    values = np.array(numbers, np.int64)
    words, ends, back = np.empty(len(values), np.uint64), np.empty(len(values) + 1, np.int64), np.empty_like(values)
    strings.to_words(values, words, ends)
    raw = [words[i].tobytes() for i in range(len(words))]
    assert raw == [(number + (1 << 63)).to_bytes(8, "big") for number in numbers]
    assert ends.tolist() == [8 * i for i in range(len(values) + 1)]
    strings.from_words(words, back)
    assert back.tolist() == numbers


@given(st.integers(1, 4), st.integers(0, 9), st.sampled_from([0.0, math.nan, math.inf, -math.inf, 1.7e308]), st.data())
def test_columns_become_rows_and_are_looked_at(d: int, n: int, value: float, data: st.DataObject) -> None:
    columns = np.random.default_rng(n).random((d, n))
    if n:
        columns[data.draw(st.integers(0, d - 1)), data.draw(st.integers(0, n - 1))] = value
    rows, good = rows_of(list(columns))
    np.testing.assert_array_equal(rows, columns.T)
    assert good == np.isfinite(columns).all()


# --- points -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", range(1, 17))
def test_points_of_a_gaussian_have_mean_zero_and_unit_covariance(d: int) -> None:
    """Whatever their number, as long as there are more than 2 d of them."""
    for n in (2 * d + 1, 2 * d + 2, 33, 64, 101):
        points = normal_points(n, d)
        assert points.shape == (n, d)
        assert np.isfinite(points).all()
        assert np.abs(points.mean(axis=0)).max() < 1e-14
        assert np.abs(points.T @ points / n - np.eye(d)).max() < 1e-10


@pytest.mark.parametrize("d", range(1, 17))
def test_points_of_a_ball_lie_in_it_around_its_centre(d: int) -> None:
    """None is outside of the ball and their mean is its centre."""
    for n in (1, 2, 3, 33, 64, 101):
        points = ball_points(n, d)
        assert points.shape == (n, d)
        assert np.linalg.norm(points, axis=1).max() <= 1.0 + 1e-15
        assert np.abs(points.mean(axis=0)).max() < 1e-14


@pytest.mark.parametrize("d", [1, 2, 3])
def test_points_of_a_ball_fill_it_evenly(d: int) -> None:
    """The share of them within radius r is about r^d."""
    radii = np.linalg.norm(ball_points(2000, d), axis=1)
    for r in (0.3, 0.5, 0.8):
        assert abs((radii <= r).mean() - r**d) < 0.01


@pytest.mark.parametrize("points", [normal_points, ball_points])
def test_points_are_the_same_every_time_and_cannot_be_changed(points: Any) -> None:
    """They are computed once; a single one is the centre, and few ones are still finite."""
    assert points(64, 2) is points(64, 2)
    assert not points(64, 2).flags.writeable
    assert points(1, 3).tolist() == [[0.0, 0.0, 0.0]]
    for n in range(1, 9):
        assert np.isfinite(points(n, 3)).all()


# --- Gaussians --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3, 5, 16])
def test_the_closed_form_is_the_noncentral_chi_square(d: int) -> None:
    """For scales over four decades either way, near the border where it matters and far from it."""
    random = np.random.default_rng(d)
    for _ in range(500):
        deviation, epsilon = 10 ** random.uniform(-2, 2, 2)
        distance = abs(epsilon + deviation * random.normal() * random.choice([0.1, 1.0, 5.0]))
        found = ball_probability(distance, deviation, epsilon, d)
        assert abs(found - naive.gaussian_probability(distance, deviation, epsilon, d)) < 1e-11
    assert abs(ball_probability(0.0, 0.7, 1.3, d) - naive.gaussian_probability(0.0, 0.7, 1.3, d)) < 1e-12


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_closed_form_agrees_with_dice(d: int) -> None:
    """A million draws land in the ball about as often."""
    random = np.random.default_rng(d)
    for distance, deviation, epsilon in ((0.0, 1.0, 1.0), (1.5, 0.5, 1.0), (2.0, 2.0, 3.0)):
        draws = random.normal(0.0, deviation, (1_000_000, d))
        draws[:, 0] += distance
        share = ((draws**2).sum(axis=1) <= epsilon**2).mean()
        assert abs(ball_probability(distance, deviation, epsilon, d) - share) < 3e-3


@pytest.mark.parametrize("d", [1, 2, 3, 16])
@pytest.mark.parametrize("deviation", [1e-300, 1e-100, 1e-20, 1e-9, 1e-4])
def test_a_tiny_deviation_decides_like_none(d: int, deviation: float) -> None:
    """A Gaussian that is hardly one is where its centre is; on the border it is half inside in one dimension."""
    assert ball_probability(0.5, deviation, 1.0, d) == pytest.approx(1.0, abs=1e-12)
    assert ball_probability(1.5, deviation, 1.0, d) == 0.0
    on_border = ball_probability(1.0, deviation, 1.0, d)
    assert 0.49 < on_border <= 0.5 + 1e-12


@pytest.mark.parametrize("d", [1, 2, 3, 16])
def test_a_huge_deviation_leaves_nothing_in_the_ball(d: int) -> None:
    """The probability falls to zero and never leaves [0, 1], with an epsilon of zero it is zero."""
    assert 0.0 <= ball_probability(3.0, 1e12, 1.0, d) < 1e-11
    assert ball_probability(0.0, 1.0, 0.0, d) == 0.0
    assert ball_probability(1e7, 1e-3, 1e7 + 1.0, d) == pytest.approx(1.0, abs=1e-12)
    assert ball_probability(1e9, 3.0, 1e9, d) == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("d", [15, 16, 17, 20, 60, 255])
def test_many_dimensions_are_scipys_noncentral_chi_square(d: int) -> None:
    """Below and above the number of dimensions up to which there are tables."""
    from scipy.stats import ncx2

    for radius in (0.5, 0.9, 1.0, 1.1, 2.0, 40.0):
        big_r = radius * math.sqrt(d)
        for distance in (0.0, 0.5, 3.0, big_r, 1.5 * big_r, 100.0):
            expected = ncx2.cdf(big_r**2, d, distance**2)
            found = ball_probability(distance, 1.0, big_r, d)
            assert found == pytest.approx(expected, abs=1e-11), (radius, distance)


def test_the_normal_distribution_function_is_scipys() -> None:
    """In both tails."""
    from scipy.stats import norm

    for x in np.linspace(-12, 12, 97):
        assert phi(x) == pytest.approx(norm.cdf(x), rel=1e-12, abs=1e-300)


@given(st.data())
def test_pairs_of_gaussians_equal_the_definition(data: st.DataObject) -> None:
    """Sigmas of zero included; what comes out as no answer is none."""
    d = data.draw(st.integers(1, 3))
    halves = st.integers(-4, 4).map(lambda i: i / 2)
    x, y = (data.draw(arrays(np.float64, (1, d), elements=halves)) for _ in range(2))
    s, t = (data.draw(st.sampled_from((0.0, 0.5, 1.0, 3.0))) for _ in range(2))
    p, q = (data.draw(st.sampled_from((1.0, 0.5, 0.1))) for _ in range(2))
    epsilon = data.draw(st.sampled_from((0.0, 0.5, 1.0, 2.5)))
    threshold = data.draw(st.sampled_from((1e-6, 0.05, 0.5, 1.0))) - 1e-9
    found = np.empty(1)
    one = np.zeros(1, np.int64)
    truth = float(
        naive.probability(
            naive.Object((tuple(x[0]),), (Fraction(p),), (tuple(x[0]), naive.diagonal([s] * d))),
            naive.Object((tuple(y[0]),), (Fraction(q),), (tuple(y[0]), naive.diagonal([t] * d))),
            epsilon,
        )
    )
    for use_bounds in (True, False):
        limit2 = naive.limit_of(epsilon) ** 2
        left, right = Gaussians(x, np.array([p]), np.array([[s]])), Gaussians(y, np.array([q]), np.array([[t]]))
        gaussian_pairs(
            RowPairs(one, one),
            WithinBall(epsilon, limit2, np.empty(0), threshold, use_bounds),
            left,
            right,
            NO_TABLE,
            found,
        )
        if math.isnan(found[0]):
            assert truth < threshold
        else:
            assert found[0] == pytest.approx(truth, abs=1e-10)


@given(
    d=st.integers(2, 40),
    radius=st.floats(0.0, 1e4) | st.floats(0.0, 12.0),
    deviation=st.floats(1e-6, 1e6),
    inside=st.lists(st.floats(-12.0, 20.0), min_size=1, max_size=20),
)
def test_a_table_is_the_quadrature(d: int, radius: float, deviation: float, inside: list[float]) -> None:
    """At every distance, in deviations from the rim: within it, about it and far outside."""
    epsilon = radius * deviation
    table = ball_table(epsilon, deviation, d)
    for ahead in [*inside, radius, 0.0]:
        distance = max(0.0, epsilon - ahead * deviation)
        assert looked_up(table, distance) == pytest.approx(ball_probability(distance, deviation, epsilon, d), abs=1e-12)


def test_there_is_no_table_where_none_is_needed() -> None:
    assert ball_table(1.0, 0.0, 2) is NO_TABLE
    assert ball_table(1.0, 0.5, 1) is NO_TABLE
    assert ball_table(1.0, 5e-324, 2) is NO_TABLE


@given(st.data())
def test_pairs_by_a_table_are_those_without(data: st.DataObject) -> None:
    d, n = data.draw(st.integers(2, 3)), 8
    x, y = (data.draw(arrays(np.float64, (n, d), elements=st.floats(-3, 3))) for _ in range(2))
    s, t = (data.draw(st.sampled_from((0.0, 0.5, 2.0))) for _ in range(2))
    epsilon, threshold = data.draw(st.sampled_from((0.5, 2.0))), data.draw(st.sampled_from((1e-12, 0.3)))
    rows = np.arange(n)
    left, right = (Gaussians(c, np.ones(n), np.full((n, 1), sigma)) for c, sigma in ((x, s), (y, t)))
    found = []
    for table in (NO_TABLE, ball_table(epsilon, math.hypot(s, t), d)):
        out = np.empty(n)
        within = WithinBall(epsilon, epsilon**2, np.empty(0), threshold, True)
        gaussian_pairs(RowPairs(rows, rows), within, left, right, table, out)
        found.append(np.where(out >= threshold, out, np.nan))
    assert found[1] == pytest.approx(found[0], abs=1e-12, nan_ok=True)


# --- moments ----------------------------------------------------------------------------------------------------


def _summary(
    rows: NDArray[np.float64], weights: NDArray[np.float64], quantile: float = 0.5
) -> tuple[float, NDArray[np.float64], NDArray[np.float64], float, float, NDArray[np.float64]]:
    n, d = rows.shape
    mass, centre, radius, reach = np.ones(1), np.empty((1, d)), np.empty(1), np.empty(1)
    covariance, samples = np.empty((1, d * (d + 1) // 2)), np.empty(n * d)
    first = np.array([0, n])
    out = Summaries(mass, centre, covariance, radius, reach)
    summarise(first, rows, weights, quantile, False, out, samples)
    return mass[0], centre[0], covariance[0], radius[0], reach[0], samples


@pytest.mark.parametrize("offset", [0.0, 1e7 / 3, -1e9 / 7])
@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_means_and_covariances_are_weighted_and_exact(d: int, offset: float) -> None:
    """However far from the origin: the mean within one rounding of its size, the covariance as if nearby."""
    random = np.random.default_rng(d)
    for n in (1, 2, 7, 500):
        rows = offset + random.integers(-8, 9, (n, d)) / 4 + random.normal()
        for weights in (np.empty(0), random.integers(1, 5, n) / (5.0 * n)):
            given_weights = weights if len(weights) else np.full(n, 1.0 / n)
            mean, covariance = naive.sums(rows, given_weights)
            mass, centre, upper, radius, _, samples = _summary(rows, weights)
            assert mass == pytest.approx(1.0 if len(weights) == 0 else given_weights.sum(), rel=1e-13)
            assert samples.reshape(d, n).T.tolist() == rows.tolist()
            for k in range(d):
                assert abs(Fraction(centre[k]) - mean[k]) <= 2e-16 * abs(offset) + 1e-14
            at = 0
            for k in range(d):
                for m in range(k, d):
                    assert abs(upper[at] - float(covariance[k][m])) < 1e-12 * (1 + abs(offset) * 1e-5)
                    at += 1
            assert radius == pytest.approx(np.sqrt(((rows - centre) ** 2).sum(axis=1)).max(), rel=1e-12)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6)), min_size=1, max_size=12),
    st.sampled_from((0.0, 0.25, 0.5, 0.75, 1.0, math.sqrt(0.5), math.sqrt(0.9), 1 / 3, 1.0 - 1e-9)),
)
def test_attained_radius_is_the_least_beyond_the_quantile(found: list[tuple[int, int]], quantile: float) -> None:
    """Strictly more: at exactly the quantile, two such objects could still be an answer."""
    distances = np.array([r / 2 for r, _ in found])
    counts = [w for _, w in found]
    total = sum(counts)
    even = attained_radius(distances.copy(), np.empty(0), quantile)
    assert even >= naive.attained_radius(distances.tolist(), [Fraction(1)] * len(found), quantile)
    assert even == naive.attained_radius(distances.tolist(), [Fraction(1)] * len(found), quantile + 1e-11)
    weighted = attained_radius(distances.copy(), np.array([w / total for w in counts]), quantile)
    assert weighted >= naive.attained_radius(distances.tolist(), [Fraction(w, total) for w in counts], quantile)
    exact = naive.attained_radius(distances.tolist(), [Fraction(w, total) for w in counts], quantile + 1e-11)
    assert weighted == exact


# --- refinement and bounds --------------------------------------------------------------------------------------


class _Side:
    """Objects laid out as the kernels read them."""

    def __init__(self, objects: list[naive.Object], even: bool) -> None:
        self.objects = objects
        self.d = len(objects[0].points[0])
        rows = np.array([point for o in objects for point in o.points])
        weights = np.empty(0) if even else np.array([float(w) for o in objects for w in o.weights])
        n = len(objects)
        self.first = np.cumsum([0] + [len(o.points) for o in objects])
        self.mass = np.array([float(o.mass) for o in objects])
        self.centre, self.radius, self.reach = np.empty((n, self.d)), np.empty(n), np.empty(n)
        self.covariance = np.empty((n, self.d * (self.d + 1) // 2))
        self.samples = np.empty(rows.size)
        self.weights = weights
        out = Summaries(self.mass, self.centre, self.covariance, self.radius, self.reach)
        summarise(self.first, rows, weights, 0.5, False, out, self.samples)
        self.shape = np.empty((n, self.d + 1))
        shapes(self.first, self.samples, weights, self.centre, self.shape)

    def summary(self) -> Moments:
        return Moments(self.mass, self.centre, self.radius, self.covariance, self.shape)

    def whole(self) -> Sampled:
        return Sampled(self.runs(), self.summary())

    def runs(self) -> Samples:
        begin = self.first[:-1]
        length = np.diff(self.first)
        return Samples(self.mass, self.samples, begin * self.d, length * self.d, 0, self.weights, begin, 0)


@st.composite
def _objects(draw: st.DrawFn, d: int, even: bool, offset: float) -> list[naive.Object]:
    quarter = st.integers(-8, 8).map(lambda i: offset + i / 4)
    objects = []
    for _ in range(draw(st.integers(1, 3))):
        n = draw(st.integers(1, 6))
        points = tuple(tuple(draw(quarter) for _ in range(d)) for _ in range(n))
        mass = draw(st.sampled_from((Fraction(1), Fraction(1, 2), Fraction(3, 4))))
        if even:
            weights = [mass / n] * n
        else:
            parts = [draw(st.integers(1, 6)) for _ in range(n)]
            weights = [mass * Fraction(part, sum(parts)) for part in parts]
        objects.append(naive.Object(points, tuple(weights)))
    return objects


@st.composite
def _meetings(draw: st.DrawFn) -> tuple[_Side, _Side, float, float]:
    d = draw(st.sampled_from((1, 1, 2, 3, 5)))
    offset = draw(st.sampled_from((0.0, 0.0, 1e7)))
    even = [draw(st.booleans()) for _ in range(2)]
    left, right = (_Side(draw(_objects(d, one, offset)), one) for one in even)
    epsilon = draw(st.sampled_from((0.0, 0.25, 0.5, 1.0, math.sqrt(2), 2.0, 4.0)))
    alpha = draw(st.one_of(st.sampled_from((1.0, 0.75, 0.5, 0.25, 0.125, 1 / 3, 1 / 36)), st.floats(0.01, 1.0)))
    return left, right, epsilon, alpha


def _check_meeting(left: _Side, right: _Side, epsilon: float, alpha: float) -> None:
    limit, threshold = naive.limit_of(epsilon), alpha - 1e-9
    a, b = (x.ravel() for x in np.meshgrid(np.arange(len(left.mass)), np.arange(len(right.mass))))
    truth = [naive.samples_probability(left.objects[i], right.objects[j], epsilon) for i, j in zip(a, b, strict=True)]
    found, upper, pairs = np.empty(len(a)), np.empty(len(a)), RowPairs(a, b)
    for bounded_from, early in product((0, 99), (False, True)):
        at_most = upper if early else np.empty(0)
        refine(pairs, limit, threshold, bounded_from, left.whole(), right.whole(), found, at_most)
        for p, most, q in zip(found, upper, truth, strict=True):
            if math.isnan(p):
                assert q < naive.threshold_of(alpha)
            elif early:
                assert p - 1e-13 <= float(q) <= most + 1e-13
                assert (p >= threshold) == (q >= naive.threshold_of(alpha))
            else:
                assert p == pytest.approx(float(q), abs=1e-13)
    for use_moment, use_square in product((True, False), repeat=2):
        for use_accept in (True, False):
            verdict = np.empty(len(a), np.int8)
            limits = bounds.Limits(limit, np.empty(0), threshold, use_moment, use_square, use_accept, use_accept)
            bounds.judge(pairs, limits, left.summary(), right.summary(), verdict, upper)
            for i, j, v, q, at_least in zip(a, b, verdict, truth, upper, strict=True):
                whole = left.objects[i].mass * right.objects[j].mass
                if v == bounds.LIKELY:
                    assert threshold <= at_least <= float(q) + 1e-13
                elif v == bounds.ACCEPTED:
                    assert use_accept
                    assert q == whole
                elif v != bounds.REFINE:
                    assert (use_square if v == bounds.PRUNED_SQUARE else use_moment) or v == bounds.PRUNED_MASS
                    assert q < naive.threshold_of(alpha), f"verdict {v} on a pair of probability {q}"


@settings(max_examples=80)
@given(_meetings())
def test_refinement_is_exact_and_bounds_never_contradict_it(meeting: tuple[_Side, _Side, float, float]) -> None:
    """Whatever was decided early is what the sum over all pairs of samples says."""
    _check_meeting(*meeting)


@pytest.mark.long
@settings(max_examples=5000)
@given(_meetings())
def test_bounds_never_contradict_long(meeting: tuple[_Side, _Side, float, float]) -> None:
    """The same over many more pairs."""
    _check_meeting(*meeting)


@st.composite
def _crowds(draw: st.DrawFn) -> tuple[_Side, _Side, float, float]:
    """A few objects that meet many: what kernels take together, by blocks of partners or by one table."""
    d = draw(st.sampled_from((1, 1, 2, 3, 4)))
    offset = draw(st.sampled_from((0.0, 0.0, 1e7, -1e3 / 3)))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))

    def side(n: int, lengths: list[int], even: bool) -> _Side:
        objects = []
        for _ in range(n):
            m = int(random.choice(lengths))
            points = tuple(tuple((offset + random.integers(-8, 9, d) / 4).tolist()) for _ in range(m))
            parts = [1] * m if even else random.integers(1, 6, m).tolist()
            mass = Fraction(int(random.integers(1, 5)), 4)
            objects.append(naive.Object(points, tuple(mass * Fraction(part, sum(parts)) for part in parts)))
        return _Side(objects, even)

    lengths = draw(st.sampled_from(([4], [10], [1, 2, 7], [3, 12, 41])))
    left = side(2, draw(st.sampled_from(([1], [6], [12, 40]))), draw(st.booleans()))
    right = side(draw(st.sampled_from((7, 8, 20, 70, 130))), lengths, draw(st.booleans()))
    return left, right, draw(st.sampled_from((0.0, 0.5, 1.0, 2.0, 4.0))), draw(st.sampled_from((0.02, 0.1, 0.25, 0.5)))


@given(_crowds())
def test_many_partners_at_once_are_as_one_by_one(meeting: tuple[_Side, _Side, float, float]) -> None:
    """Every pair, whatever the others are."""
    left, right, epsilon, alpha = meeting
    n, m = len(left.mass), len(right.mass)
    a, b = np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
    truth = [naive.samples_probability(left.objects[i], right.objects[j], epsilon) for i, j in zip(a, b, strict=True)]
    limit2, threshold = naive.limit_of(epsilon) ** 2, alpha - 1e-9
    found, limit = np.empty(len(a)), naive.limit_of(epsilon)
    pairs = RowPairs(a, b)
    runs: list[Callable[[], Any]] = [
        partial(refine, pairs, limit, threshold, least, left.whole(), right.whole(), found, found[:0])
        for least in (0, 24, 99)
    ]
    if left.d == 1:
        runs.append(partial(refine_line, pairs, limit2, threshold, left.runs(), right.runs(), found))
    for run in runs:
        run()
        for p, q in zip(found, truth, strict=True):
            if math.isnan(p):
                assert q < naive.threshold_of(alpha)
            else:
                assert p == pytest.approx(float(q), abs=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e5 / 3, 1e6 / 3, 1e7 / 3, 7535131.086748065, 1e9 + 1 / 3, 1e12 + 0.1])
@pytest.mark.parametrize("far", [3.0, 1.02, 1.0001])
@pytest.mark.parametrize("n", [2, 10, 1000])
def test_the_tightest_case_of_cantelli_is_kept_far_from_the_origin(n: int, far: float, offset: float) -> None:
    """Half at distance 1, half farther, epsilon 1: the bound equals the probability, and rounding must not lower it."""
    points = tuple((offset + (1.0 if i < n // 2 else far),) for i in range(n))
    for even in (True, False):
        left = _Side([naive.Object(points, (Fraction(1, n),) * n)], even)
        right = _Side([naive.Object(((offset,),), (Fraction(1),))], even)
        _check_meeting(left, right, 1.0, 0.5)
        _check_meeting(right, left, 1.0, 0.5)


def test_moment_bounds_are_never_below_the_probability() -> None:
    """Cantelli along a line and the reverse of Markov, over random two-point differences."""
    random = np.random.default_rng(5)
    for _ in range(5000):
        p, near, far = random.random(), *np.sort(random.random(2) * 4)
        mean, epsilon = p * near + (1 - p) * far, near
        variance = p * (1 - p) * (far - near) ** 2
        assert bounds.cantelli(mean, variance, epsilon) >= p - 1e-12
        square = p * near**2 + (1 - p) * far**2
        assert bounds.reverse_markov(square, far, epsilon) >= p - 1e-9


# --- the grid ---------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=20), st.floats(1e-300, 1e300))
def test_cells_keep_the_order_of_positions(positions: list[float], side: float) -> None:
    """So that a range of positions is a range of cells, clamped at the ends."""
    cells = [grid.cell_coordinate(x, 1.0 / side) for x in sorted(positions)]
    assert cells == sorted(cells)
    assert all(-grid.RIM <= cell <= grid.RIM for cell in cells)


@pytest.mark.parametrize("n_dims", [1, 2, 3])
@pytest.mark.parametrize("at", [0, -130, 2**20, 2**31 - 100, -(2**31), 2**53, grid.RIM - 300, -grid.RIM])
def test_cells_of_a_probe_have_codes_of_their_own(n_dims: int, at: int) -> None:
    """Wherever it is, and none is the code of overflow rows."""
    along = [at, at + 1, at + 127, at + 255]
    cells = {(x, y if n_dims > 1 else 0, z if n_dims > 2 else 0) for x in along for y in along for z in along}
    codes = [int(grid.pack_cell(np.int64(x), np.int64(y), np.int64(z), n_dims)) for x, y, z in cells]
    assert len(set(codes)) == len(cells)
    assert min(codes) >= 0
    assert all(0 <= grid.bucket_of(np.int64(code), group, 255) <= 255 for code in codes for group in (0, 1, 77))


# --- byte strings -----------------------------------------------------------------------------------------------


def _flat(values: list[bytes]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    return np.cumsum([0] + [len(v) for v in values]), np.frombuffer(b"".join(values), np.uint8)


def _unflat(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> list[bytes]:
    return [data[a:b].tobytes() for a, b in pairwise(offsets)]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=8), st.data())
def test_gathering_picks_strings(values: list[bytes], data: st.DataObject) -> None:
    """In any order, as often as asked, from whatever base runs are counted."""
    index = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=40))
    offsets, raw = _flat(values)
    wanted = np.array(index, np.int64)
    base = data.draw(st.integers(0, 1000))
    taken = runs_at(offsets[:-1] + base, len(raw) + base, base, raw, wanted)
    assert _unflat(*taken) == [values[i] for i in index]
    runs = strings.gather_runs(offsets[:-1] + base, np.diff(offsets), base, raw, wanted)
    assert _unflat(*runs) == [values[i] for i in index]


@given(st.lists(st.tuples(st.binary(max_size=5), st.integers(-3, 3)), min_size=2, max_size=12))
def test_hashes_differ_with_the_string_and_its_number(values: list[tuple[bytes, int]]) -> None:
    """Equal rows hash alike wherever they stand; different ones do not."""
    offsets, raw = _flat([value for value, _ in values])
    hashes = strings.hash_rows(offsets, raw, np.array([number for _, number in values])).tolist()
    assert len(set(hashes)) == len(set(values))
    assert len(dict(zip(values, hashes, strict=True))) == len(set(values))


@given(st.data())
def test_rows_of_one_time_sort_by_key_then_centre_then_samples(data: st.DataObject) -> None:
    """Keys by their bytes, as unsigned numbers, a prefix first."""
    d = data.draw(st.integers(1, 2))
    small = st.integers(-1, 1).map(float)
    with_samples = data.draw(st.booleans())
    sides = []
    for _ in range(2):
        key = data.draw(st.sampled_from((b"", b"a", b"ab", b"\x7f", b"\x80", b"\xff")))
        centre = [data.draw(small) for _ in range(d)]
        samples = data.draw(st.lists(small, max_size=3)) if with_samples else []
        sides.append((key, centre, samples))
    laid_out = []
    for key, centre, samples in sides:
        zero = np.zeros(1, np.int64)
        keys = strings.Runs(np.frombuffer(key, np.uint8), zero, np.array([len(key)]), 0)
        begin = zero if with_samples else NONE
        values = strings.Runs(np.array(samples, np.float64), begin, np.array([len(samples)]), 0)
        laid_out.append(strings.Ordered(keys, np.array([centre]), values))
    row = np.zeros(1, np.int64)
    assert bool(strings.sorts_after(RowPairs(row, row), RowPairs(row, row), *laid_out)[0]) == (sides[0] > sides[1])


@given(st.integers(0, 1 << 30), st.sampled_from([1, 256, 700]))
def test_places_are_those_of_sines_one_by_one(seed: int, n: int) -> None:
    """In blocks of 256; each pole, and the 180th meridian from either side, is one place, however far around."""
    chance, earth = np.random.default_rng(seed), Earth(6378137.0, 6356752.314245179)
    lat = chance.uniform(-90.0, 90.0, n) if seed % 2 else chance.choice([-90.0, -45.0, 0.0, 30.0, 90.0], n)
    lon = chance.uniform(-400.0, 400.0, n) if seed % 3 else chance.choice([-180.0, 180.0, 90.0, 540.0, 7.2e9 + 90.0], n)
    found, whole_turns = np.empty((n, 3)), np.empty((n, 3))
    to_centred(earth, lat, lon, found)
    want = [geodesics.centred("wgs84", place) for place in zip(lat.tolist(), (lon % 360.0).tolist(), strict=True)]
    np.testing.assert_allclose(found, want, rtol=0.0, atol=1e-7)
    if not seed % 3:
        to_centred(earth, lat, (lon + 180.0) % 360.0 - 180.0, whole_turns)
        assert (found == whole_turns).all()
    poles = np.abs(lat) == 90.0
    assert (found[poles, :2] == 0.0).all()
    assert (np.abs(found[poles, 2]) == earth.b).all()
