"""Pairs of rows of two stores, and the probabilities of pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from appulse.errors import warn_exploding
from appulse.kernels import bounds as bound_kernels
from appulse.kernels.altitude import altitude_pairs
from appulse.kernels.arrays import RowPairs, Sampled
from appulse.kernels.axes import refine_on_axes
from appulse.kernels.ball_table import NO_TABLE, BallTable, ball_table
from appulse.kernels.earth_ellipses import ellipse_pairs
from appulse.kernels.ellipses import normal_pairs
from appulse.kernels.gaussian import TAIL, Gaussians, WithinBall, ball_probability
from appulse.kernels.gaussian_pairs import gaussian_pairs
from appulse.kernels.geodesic import Earth, Near, earth_pairs
from appulse.kernels.grid import squared_distances
from appulse.kernels.likelihood import log_densities, log_densities_on_earth
from appulse.kernels.metric_normals import normal_pairs_within
from appulse.kernels.metrics import Within, close_points, metric_distances, sampled_pairs
from appulse.kernels.nearest import mean_distances
from appulse.kernels.one_dimension import refine_line
from appulse.kernels.refine import refine
from appulse.kernels.single_precision import Goal, refine_narrow
from appulse.kernels.strings import Ordered, Runs, sorts_after
from appulse.kernels.within_epsilon import SamplePairs, close_samples
from appulse.model.batch import SHARED, Batch, Ragged
from appulse.model.uncertainty import Exact, Gaussian, Position
from appulse.operators.pairings import Pairings
from appulse.operators.plan import METRICS, tolerated

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.objects import Objects
    from appulse.model.uncertainty import Model
    from appulse.operators.buffers import Arena
    from appulse.operators.labels import LabelNumbers
    from appulse.operators.output import Watch
    from appulse.operators.plan import JoinPlan
    from appulse.operators.store import WindowBuffer


@dataclass(frozen=True)
class CandidatePairs(Batch):
    """Rows ``left`` of one store, which have come now, against rows ``right`` of another."""

    left_store: WindowBuffer = field(metadata=SHARED)
    left: Ints
    right_store: WindowBuffer = field(metadata=SHARED)
    right: Ints
    arrival: Ints  # of the left row, among those of the push

    @property
    def rows(self) -> RowPairs:
        """As kernels take them."""
        return RowPairs(np.ascontiguousarray(self.left), np.ascontiguousarray(self.right))


class Ownership(Protocol):
    """Which pairs this instance is to report, where others see some of the same rows."""

    def owned(self, pairs: CandidatePairs, labels: LabelNumbers) -> Flags:
        """A mask over the pairs; ``labels`` gives the bytes behind group numbers."""
        ...

    def spoken_for(self, objects: Objects) -> Flags:
        """Which rows are this instance's to report, each of one instance alone."""
        ...


@dataclass(frozen=True)
class ScoredPairs(Batch):
    """Pairs with what is known of their probability: exact, or at least ``probability`` and at most ``upper``.

    ``distance`` is None where it is that of the centres.
    """

    pairs: CandidatePairs
    probability: Floats
    upper: Floats
    distance: Floats | None = None

    def times(self, factor: Floats) -> ScoredPairs:
        return replace(self, probability=self.probability * factor, upper=self.upper * factor)

    @property
    def distances(self) -> Floats:
        """Between the mean positions of each pair."""
        if self.distance is not None:
            return self.distance
        left, right = self.pairs.left_store.centre.view, self.pairs.right_store.centre.view
        return np.sqrt(squared_distances(self.pairs.left, self.pairs.right, left, right))


def evaluated(plan: JoinPlan, pairs: CandidatePairs, kinds: tuple[Model, Model], counts: Counter[str]) -> ScoredPairs:
    """The pairs that reach the threshold, by what their models (``kinds``) are; each bound's share is counted."""
    if plan.earth is not None:
        found = _on_earth(plan, pairs, plan.earth, kinds, counts)
    elif plan.points_only:
        found = _points(plan, pairs, counts)
    elif not plan.values and all(map(plan.closes, kinds)):
        found = _exact(pairs, _normal(plan, pairs, kinds, counts))
    else:
        found = _samples(plan, pairs, counts)
    found = found.filter(found.probability >= plan.threshold)
    return found if plan.metric == "euclidean" else replace(found, distance=_by_metric(plan.metric, found.pairs))


def _by_metric(metric: str, pairs: CandidatePairs) -> Floats:
    """How far the means of each pair are apart, over all dimensions."""
    out = np.empty(len(pairs.left))
    means = pairs.left_store.centre.view, pairs.right_store.centre.view
    metric_distances(pairs.rows, METRICS.index(metric), *means, out)
    return out


_NONE = np.empty(0)


def _margins(pairs: CandidatePairs) -> Floats:
    """What each pair adds to epsilon; empty where rows have no margins."""
    left, right = pairs.left_store.margin, pairs.right_store.margin
    return _NONE if left is None or right is None else left.view[pairs.left] + right.view[pairs.right]


def _within(plan: JoinPlan, pairs: CandidatePairs) -> Within:
    group, epsilon = plan.within(pairs.left_store.d)
    return Within(np.array(group), np.array(epsilon), plan.metric == "manhattan", _margins(pairs))


def _limits(plan: JoinPlan, pairs: CandidatePairs) -> Floats:
    """The limit of each pair, in place of that of all; empty where rows have no margins."""
    margins = _margins(pairs)
    if not len(margins):
        return margins
    own = [epsilon + margins for epsilon in plan.within(pairs.left_store.d)[1]]
    limits: Floats = np.sqrt(sum(np.square(e + 1e-9 * np.maximum(1.0, e)) for e in own))
    return limits


#: Not round at all: distances are straight.
STRAIGHT = Earth(0.0, 0.0)


def by_means(plan: JoinPlan, pairs: CandidatePairs) -> tuple[CandidatePairs, Floats]:
    """The pairs whose means are within the limit, and how far apart these are."""
    a, b = pairs.left_store, pairs.right_store
    distance = np.empty(len(pairs.left))
    mean_distances(pairs.rows, a.centre.view, b.centre.view, plan.earth or STRAIGHT, distance)
    limits = _limits(plan, pairs)
    near = distance <= (limits if len(limits) else plan.limit)
    return pairs.filter(near), distance[near]


def scored(
    plan: JoinPlan, pairs: CandidatePairs, distance: Floats, kinds: tuple[Model, Model], counts: Counter[str]
) -> ScoredPairs:
    """Pairs so far apart with their probabilities, however small; without a limit there are none."""
    n = len(distance)
    if plan.limit == math.inf:
        return ScoredPairs(pairs, np.full(n, np.nan), np.full(n, np.nan), distance)
    found = evaluated(
        replace(plan, bounds=plan.bounds - {"projection", "accept"}),
        replace(pairs, arrival=np.arange(n)),
        kinds,
        counts,
    )
    probability = np.zeros(n)  # of none but points that rounding puts beyond the limit
    probability[found.pairs.arrival] = found.probability
    return ScoredPairs(pairs, probability, probability, distance)


def _exact(pairs: CandidatePairs, probability: Floats) -> ScoredPairs:
    return ScoredPairs(pairs, probability, probability)


def _points(plan: JoinPlan, pairs: CandidatePairs, counts: Counter[str]) -> ScoredPairs:
    a, b = pairs.left_store, pairs.right_store
    mass = a.mass.view[pairs.left] * b.mass.view[pairs.right]
    counts["refined"] += len(mass)
    if not plan.plain:
        close = np.empty(len(mass), bool)
        close_points(pairs.rows, _within(plan, pairs), a.centre.view, b.centre.view, close)
        return _exact(pairs, np.where(close, mass, np.nan))
    square = squared_distances(pairs.left, pairs.right, a.centre.view, b.centre.view)
    probability = np.where(square <= plan.limit**2, mass, np.nan)
    return ScoredPairs(pairs, probability, probability, np.sqrt(square))


def table_of(plan: JoinPlan, kinds: tuple[Model, Model], d: int) -> BallTable:
    """The table of probabilities by distance, where all rows of a model have the same error."""
    deviation = _constant_deviation(plan, kinds)
    return NO_TABLE if deviation is None else ball_table(plan.epsilon, deviation, d)


def farthest(plan: JoinPlan, kinds: tuple[Model, Model], d: int) -> float:
    """How far apart the means of two rows can be whose pair is an answer; infinite where rows differ in that."""
    deviation = _constant_deviation(plan, kinds)
    least = plan.threshold - _ROUNDED
    if not deviation or not plan.plain or plan.vertical is not None or least <= 0.0:
        return math.inf
    on_plane = 2 if plan.earth is not None else d
    near, far = 0.0, plan.epsilon + (TAIL + 2.0) * deviation
    for _ in range(_HALVINGS):
        middle = 0.5 * (near + far)
        if ball_probability(middle, deviation, plan.epsilon, on_plane) < least:
            far = middle
        else:
            near = middle
    # No chord is longer than the way along the Earth, but for rounding.
    return far if plan.earth is None else far + _ROUNDED_ON_EARTH


def _constant_deviation(plan: JoinPlan, kinds: tuple[Model, Model]) -> float | None:
    """The deviation of all differences of two rows, in any direction; None where pairs differ in it, or in epsilon."""
    sigmas = [_constant_sigma(kind) for kind in kinds]
    if None in sigmas or plan.margins or plan.epsilon == math.inf:
        return None
    return math.hypot(*(sigma for sigma in sigmas if sigma is not None))


def _constant_sigma(kind: Model) -> float | None:
    """The deviation of all rows of a model; None where they may differ, or not be the same in all directions."""
    if isinstance(kind, Exact):
        return 0.0
    if isinstance(kind, Position):
        return kind.sigma if kind.ellipse is None and kind.altitude is None and isinstance(kind.sigma, float) else None
    return kind.sigma if isinstance(kind, Gaussian) and isinstance(kind.sigma, float) else None


def _normal(plan: JoinPlan, pairs: CandidatePairs, kinds: tuple[Model, Model], counts: Counter[str]) -> Floats:
    a, b = pairs.left_store, pairs.right_store
    probability = np.empty(len(pairs.left))
    left, right = (_NO_SPREAD if store.spread is None else store.spread.view for store in (a, b))
    use_bounds = "projection" in plan.bounds
    within = WithinBall(plan.epsilon, plan.limit**2, _margins(pairs), plan.threshold, use_bounds)
    one, other = Gaussians(a.centre.view, a.mass.view, left), Gaussians(b.centre.view, b.mass.view, right)
    if not plan.euclidean:
        normal_pairs_within(pairs.rows, _within(plan, pairs), plan.threshold, use_bounds, one, other, probability)
    elif left.shape[1] == right.shape[1] == 1:
        gaussian_pairs(pairs.rows, within, one, other, table_of(plan, kinds, a.d), probability)
    else:
        normal_pairs(pairs.rows, within, one, other, probability)
    pruned = int(np.isnan(probability).sum())
    counts["pruned_projection"] += pruned
    counts["refined"] += len(probability) - pruned
    return probability


def likelihood_ratios(plan: JoinPlan, pairs: CandidatePairs) -> Floats | None:
    """Logarithms of the density of each difference over that of unrelated rows, where asked for."""
    if plan.density is None:
        return None
    out = np.empty(len(pairs.left))
    sides = (pairs.left_store, pairs.right_store)
    none = _NO_SPREAD if plan.earth is None else np.empty((0, 1))
    one, other = (Gaussians(s.centre.view, s.mass.view, none if s.spread is None else s.spread.view) for s in sides)
    if plan.earth is None:
        log_densities(pairs.rows, one, other, out)
    else:
        log_densities_on_earth(pairs.rows, plan.earth, one, other, out)
    ratios: Floats = out - math.log(plan.density)
    return ratios


# Far above the error of a probability, and, in metres, of a place on the Earth.
_ROUNDED, _ROUNDED_ON_EARTH = 1e-9, 1e-3
# Halvings of an interval until it is as short as rounding allows.
_HALVINGS = 60
# Coordinates of positions without altitude.
_FLAT = 3
# Of rows without error.
_NO_SPREAD = np.empty((0, 0))


def _on_earth(
    plan: JoinPlan, pairs: CandidatePairs, earth: Earth, kinds: tuple[Model, Model], counts: Counter[str]
) -> ScoredPairs:
    a, b = pairs.left_store, pairs.right_store
    none = np.empty((0, 1))
    probability, distance = np.empty(len(pairs.left)), np.empty(len(pairs.left))
    near = Near(
        plan.epsilon,
        tolerated(plan.epsilon),
        plan.vertical or 0.0,
        tolerated(plan.vertical or 0.0),
        plan.vertical is not None,
        plan.threshold,
        "projection" in plan.bounds,
        table_of(plan, kinds, 2),
        _margins(pairs),
    )
    one, other = (Gaussians(s.centre.view, s.mass.view, none if s.spread is None else s.spread.view) for s in (a, b))
    kernel = earth_pairs if a.d == _FLAT else altitude_pairs
    if any(isinstance(kind, Position) and kind.ellipse is not None for kind in plan.models):
        kernel = ellipse_pairs
    kernel(pairs.rows, earth, near, one, other, probability, distance)
    pruned = 0 if plan.points_only else int(np.isnan(probability).sum())
    counts["pruned_projection"] += pruned
    counts["refined"] += len(probability) - pruned
    return ScoredPairs(pairs, probability, probability, distance)


# Samples of each object from which on it pays to judge them one by one before all pairs of them are looked at.
_BOUNDED_FROM = 24
_NEVER = np.iinfo(np.int64).max
# Dimensions in which samples are compared in single precision, and from how many samples of each object on.
_NARROW, _NARROW_FROM = (2, 3), 32
# Pairs of samples: of one pair of rows, and of all that are compared at once, from which on this is announced. A core
# compares some 2e9 a second, and nothing can stop it within a pair.
_LONG_PAIR, _LONG_WORK, _A_SECOND = 1e10, 1e11, 2e9

_TALLIES = {
    bound_kernels.PRUNED_MASS: "pruned_mass",
    bound_kernels.PRUNED_CANTELLI: "pruned_cantelli",
    bound_kernels.PRUNED_MARKOV: "pruned_markov",
    bound_kernels.PRUNED_SQUARE: "pruned_square",
    bound_kernels.ACCEPTED: "accepted",
    bound_kernels.LIKELY: "accepted",
    bound_kernels.REFINE: "refined",
}
# Which verdicts leave a pair in.
_OPEN = np.isin(np.arange(len(_TALLIES)), [bound_kernels.REFINE, bound_kernels.ACCEPTED, bound_kernels.LIKELY])


def _samples(plan: JoinPlan, pairs: CandidatePairs, counts: Counter[str]) -> ScoredPairs:
    a, b = pairs.left_store, pairs.right_store
    if a.covariance is None or b.covariance is None or a.shape is None or b.shape is None:
        return _exact(pairs, np.empty(len(pairs.left)))
    # What windows make of a pair counts, too: a bound that reaches the threshold is not enough there.
    early = plan.bounded and not plan.uncertain and plan.plain
    verdict, at_least = np.empty(len(pairs.left), np.int8), np.empty(len(pairs.left) if early else 0)
    # That all samples are within the limit is enough where it is a single one.
    accept = "accept" in plan.bounds and plan.euclidean
    use = "moment" in plan.bounds, "square" in plan.bounds, accept, early and accept
    limits = bound_kernels.Limits(plan.limit, _limits(plan, pairs), plan.threshold, *use)
    bound_kernels.judge(pairs.rows, limits, a.moments, b.moments, verdict, at_least)
    tally = np.bincount(verdict, minlength=len(_TALLIES)).tolist()
    for code, name in _TALLIES.items():
        counts[name] += tally[code]
    kept = np.flatnonzero(_OPEN[verdict])
    pairs, verdict = pairs.take(kept), verdict[kept]
    open_pairs = verdict == bound_kernels.REFINE
    if open_pairs.all():
        return _refined(plan, pairs, counts)
    upper = a.mass.view[pairs.left] * b.mass.view[pairs.right]
    probability = np.where(verdict == bound_kernels.LIKELY, at_least[kept], upper) if early else upper.copy()
    if open_pairs.any():
        refined = _refined(plan, pairs.filter(open_pairs), counts)
        probability[open_pairs], upper[open_pairs] = refined.probability, refined.upper
    return ScoredPairs(pairs, probability, upper)


def _refined(plan: JoinPlan, pairs: CandidatePairs, counts: Counter[str]) -> ScoredPairs:
    probability = np.empty(len(pairs.left))
    d = pairs.left_store.d
    if not plan.plain:
        return _refined_within(plan, pairs, counts)
    limit2, sides = plan.limit**2, (pairs.left_store.sampled, pairs.right_store.sampled)
    if d == 1:
        refine_line(pairs.rows, limit2, plan.threshold, *sides, probability)
        return _exact(pairs, probability)
    if "axes" in plan.bounds:
        done = np.empty(len(probability), bool)
        refine_on_axes(pairs.rows, d, limit2, plan.threshold, *sides, probability, done)
        if done.any():
            counts["on_axes"] += int(done.sum())
            return _with_rest(plan, _exact(pairs, probability), done, _by_samples, counts)
    return _by_samples(plan, pairs, counts)


def _by_samples(plan: JoinPlan, pairs: CandidatePairs, counts: Counter[str]) -> ScoredPairs:
    announce_work(pairs)
    if not _have_many(plan, pairs):
        return _in_double_precision(plan, pairs, counts)
    goal, done = Goal(plan.limit, plan.threshold, _NARROW_FROM), np.empty(len(pairs.left), bool)
    probability, upper, one, other = _room(plan, pairs)
    _count_pruned(counts, refine_narrow(pairs.rows, goal, one, other, probability, upper, done))
    scored = ScoredPairs(pairs, probability, upper if len(upper) else probability)
    return _with_rest(plan, scored, done, _in_double_precision, counts)


def _have_many(plan: JoinPlan, pairs: CandidatePairs) -> bool:
    """Whether samples may be compared in single precision, and there are rows that have enough of them."""
    a, b = pairs.left_store, pairs.right_store
    weighted = len(a.sampled.weights) or len(b.sampled.weights)
    if weighted or a.d not in _NARROW or not {"sample", "narrow"} <= plan.bounds:
        return False
    fewest = np.minimum(a.samples.length[pairs.left], b.samples.length[pairs.right])
    return bool(fewest.max(initial=0) >= _NARROW_FROM * a.d)


def _in_double_precision(plan: JoinPlan, pairs: CandidatePairs, counts: Counter[str]) -> ScoredPairs:
    bounded_from = _BOUNDED_FROM if "sample" in plan.bounds else _NEVER
    probability, upper, one, other = _room(plan, pairs)
    found = refine(pairs.rows, plan.limit, plan.threshold, bounded_from, one, other, probability, upper)
    _count_pruned(counts, found)
    return ScoredPairs(pairs, probability, upper if len(upper) else probability)


def _room(plan: JoinPlan, pairs: CandidatePairs) -> tuple[Floats, Floats, Sampled, Sampled]:
    """Room for probabilities, and for upper bounds where they are asked for; and what both sides are."""
    # What windows make of a pair counts, too: a bound that reaches the threshold is not enough there.
    early = plan.bounded and not plan.uncertain
    one, other = (Sampled(store.sampled, store.moments) for store in (pairs.left_store, pairs.right_store))
    return np.empty(len(pairs.left)), np.empty(len(pairs.left) if early else 0), one, other


def _count_pruned(counts: Counter[str], pruned: int) -> None:
    counts["pruned_sample"] += pruned
    counts["refined"] -= pruned


def _refined_within(plan: JoinPlan, pairs: CandidatePairs, counts: Counter[str]) -> ScoredPairs:
    """The same by other distances than one Euclidean one, and with margins."""
    announce_work(pairs)
    probability = np.empty(len(pairs.left))
    one, other = (Sampled(store.sampled, store.moments) for store in (pairs.left_store, pairs.right_store))
    asked = _within(plan, pairs), plan.threshold, "accept" in plan.bounds
    accepted, pruned = sampled_pairs(pairs.rows, *asked, one, other, probability)
    counts["accepted"] += accepted
    counts["pruned_sample"] += pruned
    counts["refined"] -= accepted + pruned
    return _exact(pairs, probability)


def _with_rest(
    plan: JoinPlan,
    scored: ScoredPairs,
    done: Flags,
    refined: Callable[[JoinPlan, CandidatePairs, Counter[str]], ScoredPairs],
    counts: Counter[str],
) -> ScoredPairs:
    """The pairs whose probability is known, and the others refined in another way."""
    if done.all():
        return scored
    rest = refined(plan, scored.pairs.filter(~done), counts)
    probability, upper = scored.probability.copy(), scored.upper.copy()
    probability[~done], upper[~done] = rest.probability, rest.upper
    return ScoredPairs(scored.pairs, probability, upper)


def products(pairs: CandidatePairs) -> Floats:
    """How many pairs of samples each pair of rows has."""
    a, b = pairs.left_store, pairs.right_store
    product: Floats = a.samples.length[pairs.left] / a.d * (b.samples.length[pairs.right] / b.d)
    return product


def announce_work(pairs: CandidatePairs) -> None:
    """Warn where comparing the samples of these pairs of rows will take long, before it begins."""
    work = products(pairs)
    longest, total = (float(work.max()), float(work.sum())) if len(work) else (0.0, 0.0)
    if longest < _LONG_PAIR and total < _LONG_WORK:
        return
    warn_exploding(
        f"Pairs of rows to compare: {len(work):,}, with up to {total:.2g} pairs of samples, the largest alone "
        f"{longest:.2g}: up to {total / _A_SECOND:,.0f} seconds on one core, and a pair of rows cannot be interrupted. "
        "Give rows fewer samples, or a model such as ap.Gaussian in their place."
    )


def pairings(plan: JoinPlan, pairs: CandidatePairs, swap: Flags, factor: Floats, watch: Watch) -> Ragged[Pairings]:
    """The samples that match, with their weights, exchanged where ``swap`` says so.

    ``watch`` gets their number before there is room for them.
    """
    announce_work(pairs)
    d = pairs.left_store.d
    first = np.zeros(len(factor) + 1, np.int64)
    found = Pairings(np.empty((0, d)), np.empty((0, d)), np.empty(0))
    for counting in (True, False):
        close_samples(
            pairs.rows,
            swap,
            factor,
            _within(plan, pairs),
            pairs.left_store.sampled,
            pairs.right_store.sampled,
            first,
            SamplePairs(found.left, found.right, found.weight),
        )
        if counting:
            n = int(first[-1])
            watch.add(n)
            found = Pairings(np.empty((n, d)), np.empty((n, d)), np.empty(n))
    return Ragged(first, found)


def sorts_after_partner(pairs: CandidatePairs) -> Flags:
    """Whether each left row comes after its partner in the canonical order of rows of equal time."""
    left, right = (
        Ordered(_runs(store.key), store.centre.view, _runs(store.samples))
        for store in (pairs.left_store, pairs.right_store)
    )
    rows = pairs.rows
    keys = RowPairs(pairs.left_store.key.where(rows.left), pairs.right_store.key.where(rows.right))
    after: Flags = sorts_after(rows, keys, left, right)
    return after


def _runs(arena: Arena) -> Runs:
    return Runs(arena.values, arena.begin, arena.length, arena.base)
