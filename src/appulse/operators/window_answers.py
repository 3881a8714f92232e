"""What aggregates of windows come to, which are runs of rows, over all possible worlds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from appulse.kernels import aggregates as kernels
from appulse.kernels import bursts, quantiles
from appulse.kernels.absent import absent_pmf
from appulse.kernels.exact_sums import deviations as run_deviations
from appulse.kernels.frequent import frequent
from appulse.kernels.newest_quantiles import newest
from appulse.kernels.ordered_runs import certain_extremes, certain_frequent, certain_quantiles
from appulse.kernels.uncertain_extremes import extremes
from appulse.model.covariance import deviations
from appulse.model.encode import sampled
from appulse.model.uncertainty import Form
from appulse.operators.bursts import impossible
from appulse.operators.output import Watch
from appulse.operators.percentiles import least_share, share_of
from appulse.operators.window_moments import counted_moments, existences, means, sums

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.objects import Objects
    from appulse.operators.aggregate_plan import AggregatePlan, AggregateSpec

_MOMENTS = {"sum": 0, "mean": 2, "count": 4}


@dataclass(frozen=True)
class Distribution:
    """Values in ascending order with their probabilities; those of window i are from ``first[i]`` to ``first[i + 1]``.

    ``error`` is the root mean square of what values were moved by to put neighbours together; 0: exact.
    """

    first: Ints
    value: Floats
    chance: Floats
    error: Floats


@dataclass(frozen=True)
class Answer:
    """One aggregate of every window."""

    value: Floats
    deviation: Floats
    exists: Floats
    distribution: Distribution | None


def no_answer(plan: AggregatePlan, asked: AggregateSpec) -> Answer:
    """Of no windows."""
    none, listed = np.empty(0), plan.distribution or least_share(asked.aggregate) is not None
    return Answer(none, none, none, Distribution(np.zeros(1, np.int64), none, none, none) if listed else None)


def certainly(values: Floats) -> Distribution:
    """Values that are sure, where there is one."""
    known = ~np.isnan(values)
    first = np.append(0, np.cumsum(known))
    return Distribution(first, values[known], np.ones(int(first[-1])), np.zeros(len(values)))


class Evaluation:
    """The aggregates of windows over the rows held; what several of them need is computed once."""

    def __init__(self, plan: AggregatePlan, held: Objects, begin: Ints, end: Ints) -> None:
        self._plan, self._held, self._begin, self._end = plan, held, begin, end
        # A sum of weights may be beyond 1 by rounding.
        self._exist = np.minimum(held.mass, 1.0)
        if plan.correlation:
            self._exists = np.empty(len(begin))
            bad = bursts.existences(self._begin, self._end, self._exist, plan.correlation, self._exists)
            if bad >= 0:
                raise impossible(self._exist, held.time, bad, plan.correlation)
        else:
            self._exists = existences(self._begin, self._end, self._exist)
        self._counted: dict[int, Floats] = {}
        self._values = Watch(len(begin), _values, values=True)

    def answers(self) -> list[Answer]:
        """One per aggregate asked for."""
        found = []
        for asked in self._plan.asked:
            if asked.aggregate == "std":
                found.append(self._spread(asked))
                continue
            if (share := least_share(asked.aggregate)) is not None:
                found.append(self._frequent(asked, share))
                continue
            if asked.aggregate in ("min", "max"):
                moments, distribution = self._extreme(asked)
            elif share_of(asked.aggregate) is not None:
                moments, distribution = self._quantile(asked)
            else:
                moments = self._moments(asked)
                distribution = self._distribution(asked, moments[:, 0]) if self._plan.distribution else None
            found.append(Answer(moments[:, 0].copy(), moments[:, 1].copy(), self._exists, distribution))
        return found

    def _moments(self, asked: AggregateSpec) -> Floats:
        """Mean and deviation of a sum, mean or count."""
        mean, rest, deviation = self.moments_of(asked.dimension)
        if self._plan.single_valued:
            return sums(self._begin, self._end, np.ones(len(mean)), mean, np.zeros(len(mean)))
        if self._plan.size == 0 and asked.aggregate in ("sum", "count"):
            if asked.aggregate == "count" and self._all_exist:
                number = (self._end - self._begin).astype(np.float64)
                return np.column_stack([number, np.zeros(len(number))])
            if asked.aggregate == "count":
                mean, deviation = np.ones(len(mean)), np.zeros(len(mean))
            if self._plan.correlation:
                out = np.empty((len(self._begin), 2))
                bursts.sums(self._begin, self._end, self._exist, self._plan.correlation, mean, deviation, out)
                return out
            return sums(self._begin, self._end, self._exist, mean, deviation)
        rows = kernels.CountedRows(self._exist, mean, rest, deviation)
        if self._plan.size == 0:
            return means(self._begin, self._end, rows)
        if asked.dimension not in self._counted:
            self._counted[asked.dimension] = counted_moments(self._begin, self._end, rows, self._plan.size)
        at = _MOMENTS[asked.aggregate]
        return self._counted[asked.dimension][:, at : at + 2]

    def _extreme(self, asked: AggregateSpec) -> tuple[Floats, Distribution | None]:
        out = np.zeros((len(self._begin), 2))
        sign = 1.0 if asked.aggregate == "max" else -1.0
        if self._certain:
            certain_extremes(*self._newest, self._values_of(asked), sign, out[:, 0])
            return out, certainly(out[:, 0]) if self._plan.distribution else None
        rows = kernels.UncertainRows(self._exist, *self._points_of(asked.dimension))
        at, value, chance = extremes(self._begin, self._end, rows, self._plan.size, sign, out)
        if not self._plan.distribution:
            return out, None
        return out, self._joined(self._shares(value[a:b], chance[a:b]) for a, b in pairwise(at.tolist()))

    def _quantile(self, asked: AggregateSpec) -> tuple[Floats, Distribution | None]:
        part, whole = share_of(asked.aggregate) or (1, 2)
        out = np.zeros((len(self._begin), 2))
        if self._certain:
            certain_quantiles(*self._newest, self._values_of(asked), part, whole, out[:, 0])
            return out, certainly(out[:, 0]) if self._plan.distribution else None
        rows = kernels.UncertainRows(self._exist, *self._points_of(asked.dimension))
        keep = self._plan.distribution
        if size := self._plan.size:
            at, value, chance = newest(self._begin, self._end, rows, size, part, whole, out)
        else:
            at, value, chance = quantiles.uncertain(self._begin, self._end, rows, part, whole, out, keep)
        if not keep:
            return out, None
        return out, self._joined(self._shares(value[a:b], chance[a:b]) for a, b in pairwise(at.tolist()))

    def _frequent(self, asked: AggregateSpec, share: float) -> Answer:
        """Values with their numbers of rows in the mean over the worlds, and nothing else."""
        if self._certain:
            at, value, count = certain_frequent(*self._newest, self._values_of(asked), share)
        else:
            rows = kernels.UncertainRows(self._exist, *self._points_of(asked.dimension))
            at, value, count = frequent(self._begin, self._end, rows, self._plan.size, share)
        none = np.empty(0)
        return Answer(none, none, none, Distribution(at, value, count, none))

    def _spread(self, asked: AggregateSpec) -> Answer:
        """The deviation of rows that are all there, as the call has made sure."""
        found = np.empty(len(self._begin))
        run_deviations(*self._newest, self._values_of(asked), found)
        known = ~np.isnan(found)
        distribution = certainly(found) if self._plan.distribution else None
        return Answer(found, np.where(known, 0.0, np.nan), known.astype(np.float64), distribution)

    @property
    def _certain(self) -> bool:
        """Whether all rows are there, with one value each."""
        return self._held.form == Form.POINT and self._all_exist

    @property
    def _all_exist(self) -> bool:
        return bool((self._exist == 1.0).all())

    @property
    def _newest(self) -> tuple[Ints, Ints]:
        """First and last row of each window, where all rows are there."""
        size = self._plan.size
        return np.maximum(self._begin, self._end - size) if size else self._begin, self._end

    def _values_of(self, asked: AggregateSpec) -> Floats:
        return np.ascontiguousarray(self._held.centre[:, asked.dimension])

    @staticmethod
    def _shares(value: Floats, chance: Floats) -> _Part:
        unit = kernels.unit_of(value)
        return _shortened(value / unit, chance, 0.0, unit)

    def _distribution(self, asked: AggregateSpec, mean: Floats) -> Distribution:
        if self._certain:
            return certainly(mean)
        if asked.aggregate == "count":
            return self._joined(self._counts(a, b) for a, b in self._runs())
        return self._joined(self._sums(asked, a, b) for a, b in self._runs())

    def _joined(self, parts: Iterable[_Part]) -> Distribution:
        """Distributions, whose values are counted while they are made."""
        found = []
        for part in parts:
            self._values.add(len(part[0]))
            found.append(part)
        return _joined(found)

    def _runs(self) -> Iterator[tuple[int, int]]:
        return zip(self._begin.tolist(), self._end.tolist(), strict=True)

    def _counts(self, begin: int, end: int) -> _Part:
        """The distribution of the number of existing rows of a window."""
        chance, low = absent_pmf(self._exist[begin:end])
        count = (end - begin - low - np.arange(len(chance))).astype(np.float64)
        return _shortened(np.minimum(count, self._plan.size or np.inf), chance, 0.0)

    def _sums(self, asked: AggregateSpec, begin: int, end: int) -> _Part:
        """The distribution of the sum, or the mean, of a window."""
        first, values, weights = self._points_of(asked.dimension)
        by_count, error = asked.aggregate == "mean", np.zeros(2)
        unit = kernels.unit_of(values[first[begin] : first[end]])
        if unit != 1.0:
            with np.errstate(over="ignore"):  # values of other windows
                values = values / unit
        rows = kernels.UncertainRows(self._exist, first, values, weights)
        count, value, chance = kernels.sum_atoms(begin, end, rows, self._plan.size, by_count, kernels.MOST_ATOMS, error)
        if by_count:
            some = count > 0
            value, chance = value[some] / count[some], chance[some]
        return _shortened(value, chance, error[1 if by_count else 0], unit)

    def _points_of(self, dimension: int) -> tuple[Ints, Floats, Floats]:
        """The samples of all rows in one dimension, as (first, values, weights); weights sum to the existence."""
        rows = self._sampled
        n, count = len(rows), np.diff(rows.first)
        owner = np.repeat(np.arange(n), count)
        within = np.arange(len(owner)) - rows.first[owner]
        values = rows.samples[rows.first[owner] * rows.d + dimension * count[owner] + within]
        return rows.first, values, rows.weights if len(rows.weights) else rows.mass[owner] / count[owner]

    def moments_of(self, k: int) -> tuple[Floats, Floats, Floats]:
        """Mean of one dimension of each row, given that it exists; what rounding it took away; and deviation."""
        rows = self._held
        zeros = np.zeros(len(rows))
        if rows.form == Form.POINT:
            return rows.centre[:, k].copy(), zeros, zeros
        if rows.form == Form.GAUSSIAN:
            return rows.centre[:, k].copy(), zeros, deviations(rows.spread, rows.d)[:, k].copy()
        mean, rest, deviation = np.empty(len(rows)), np.empty(len(rows)), np.empty(len(rows))
        kernels.row_moments(*self._points_of(k), mean, rest, deviation)
        return mean, rest, deviation

    @cached_property
    def _sampled(self) -> Objects:
        return sampled(self._held, self._plan.model, 0.0)


def _values(made: float) -> str:
    return (
        f"The distributions have {made:,.0f} values by now. distribution=True has up to 4,096 in each row: leave it "
        "out, or give a shorter window, or a TumblingWindow, which has a row per block."
    )


#: Values in ascending order, their probabilities, and the error.
_Part: TypeAlias = "tuple[Floats, Floats, float]"


def _shortened(value: Floats, chance: Floats, error: float, unit: float = 1.0) -> _Part:
    """Equal values put together, and neighbours if there are too many; ``error`` is a mean square.

    Values and error are given as multiples of ``unit``.
    """
    moved = np.zeros(2)
    one, value, chance = kernels.merged(np.zeros(len(value), np.int64), value, chance)
    if len(value) == 0:
        return value, chance, 0.0
    if len(value) > kernels.MOST_ATOMS:
        one, value, chance = kernels.binned(one, value, chance, kernels.MOST_ATOMS, moved)
    whole = chance.sum()
    with np.errstate(over="ignore"):  # a sum of doubles may be none
        return value * unit, chance / whole, float(np.sqrt((error + moved[0]) / whole) * unit)


def _joined(parts: Sequence[_Part]) -> Distribution:
    nothing = [np.empty(0)]
    return Distribution(
        np.cumsum([0] + [len(value) for value, _, _ in parts]),
        np.concatenate(nothing + [value for value, _, _ in parts]),
        np.concatenate(nothing + [chance for _, chance, _ in parts]),
        np.array([error for _, _, error in parts]),
    )
