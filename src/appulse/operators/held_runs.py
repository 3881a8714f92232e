"""Rows that windows hold, in order of place: those that leave are the first, and what windows came to is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.kernels import ordered_runs, ordered_values
from appulse.kernels.exact_sums import doubles, no_sums, roots, run_means, slide_deviations
from appulse.model.objects import Objects
from appulse.model.uncertainty import Form
from appulse.operators.buffers import Column, Rows
from appulse.operators.percentiles import share_of
from appulse.operators.window_answers import Answer, Evaluation, certainly
from appulse.operators.window_moments import variances

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints
    from appulse.operators.aggregate_plan import AggregatePlan, AggregateSpec

_PARTS = 32  # so many are put together at once
_NONE = np.empty(0, np.int64)


class Parts:
    """Batches of rows, one after the other; the first rows leave. A row is copied a few times in all."""

    def __init__(self, rows: Objects | None = None) -> None:
        self._parts = [] if rows is None or not len(rows) else [rows]
        self._rows = sum(map(len, self._parts))
        self._gone = 0  # rows of the first part

    def __len__(self) -> int:
        return self._rows

    @property
    def nbytes(self) -> int:
        """Bytes held, live or not."""
        return sum(part.nbytes for part in self._parts)

    def append(self, part: Objects) -> None:
        """Rows behind all others."""
        self._parts.append(part)
        self._rows += len(part)
        if len(self._parts) > _PARTS:
            at, rows = len(self._parts) - 1, len(part)
            while at > 0 and len(self._parts[at - 1]) <= 2 * rows:
                at -= 1
                rows += len(self._parts[at])
            self._join(at)

    def drop(self, n: int) -> None:
        """Forget the first ``n`` rows."""
        self._rows -= n
        self._gone += n
        while self._parts and self._gone >= len(self._parts[0]):
            self._gone -= len(self._parts.pop(0))
        if self._parts and 2 * self._gone > len(self._parts[0]):
            self._parts[0], self._gone = self._parts[0].take(np.arange(self._gone, len(self._parts[0]))), 0

    def joined(self) -> Objects | None:
        """All rows, as one part from now on."""
        self._join(0)
        return self._parts[0] if self._parts else None

    def _join(self, at: int) -> None:
        if at == 0 and self._gone:
            self._parts[0] = self._parts[0].slice(self._gone, len(self._parts[0]))
            self._gone = 0
        if len(self._parts) > at + 1:
            self._parts[at:] = [Objects.concat(self._parts[at:])]


def runs_on(plan: AggregatePlan) -> bool:
    """Whether aggregates of windows may follow from those of the windows before."""
    known = all(
        asked.aggregate in ("sum", "count", "mean", "min", "max", "std") or share_of(asked.aggregate) is not None
        for asked in plan.asked
    )
    return known and not (plan.tumbling or plan.size or plan.correlation)


class RunningWindows:
    """Windows that slide over rows of one group, all of them certain; each aggregate goes on from the last window."""

    def __init__(self, plan: AggregatePlan, held: Objects) -> None:
        self._plan, self._asked = plan, plan.asked
        self._rows = Rows()
        self._place = Column(np.int64, rows=self._rows)
        self._values: dict[Any, Column] = {}
        self._known: dict[Any, Any] = {}  # what kernels go on from, by dimension and aggregate
        self.append(held)

    @staticmethod
    def take(plan: AggregatePlan, rows: Objects) -> bool:  # noqa: ARG004 - others ask what is asked for
        """Whether all rows are there, with one value each."""
        return rows.form == Form.POINT and bool((rows.mass >= 1.0).all())

    @property
    def nbytes(self) -> int:
        """Bytes held, roughly."""
        return sum(column.nbytes for column in self._rows.columns)

    def append(self, rows: Objects) -> None:
        """Rows behind all others."""
        new = self._rows.grow(len(rows))
        self._place.data[new] = rows.number
        for name, values in self._columns_of(rows).items():
            if name not in self._values:
                self._values[name] = Column(values.dtype, rows=self._rows)
            self._values[name].data[new] = values

    def _columns_of(self, rows: Objects) -> dict[Any, NDArray[Any]]:
        return {asked.dimension: rows.centre[:, asked.dimension] for asked in self._asked}

    def ends_before(self, rows: Objects) -> bool:
        """Whether rows are in order, behind all others."""
        place = rows.number
        assert place is not None  # noqa: S101 - rows that are held have one
        return bool((place[:1] >= self._place.view[-1:]).all() and (np.diff(place) >= 0).all())

    def first_from(self, place: Any) -> Any:
        """The first row whose place is not below this one, or each of these."""
        return np.searchsorted(self._place.view, place)

    def drop(self, n: int) -> None:
        """Forget the first ``n`` rows."""
        self._rows.drop(n)
        for known in self._known.values():
            known.run[:] += (-n, -n, n)

    def forget(self) -> None:
        """No window was there."""
        self._known.clear()

    def answers(self, begin: Ints, end: Ints) -> list[Answer]:
        """One per aggregate asked for, of windows that come after all those before."""
        none, there = np.zeros(len(begin)), np.where(end > begin, 1.0, 0.0)
        found = []
        for asked in self._asked:
            values, spread, exists = self._found(asked, begin, end), none, there
            if asked.aggregate == "std":
                spread, exists = np.where(np.isnan(values), np.nan, 0.0), (~np.isnan(values)).astype(np.float64)
            found.append(Answer(values, spread, exists, certainly(values) if self._plan.distribution else None))
        return found

    def _found(self, asked: AggregateSpec, begin: Ints, end: Ints) -> Floats:
        how, values, out = asked.aggregate, self._values[asked.dimension].view, np.empty(len(begin))
        if how == "count":
            return (end - begin).astype(np.float64)
        at = asked.dimension, how
        known = self._known.get(at)
        if how in ("min", "max"):
            known = ordered_runs.unreached(0) if known is None else known
            known = ordered_runs.with_room(known, len(values) - int(known.run[1]))
            ordered_runs.slide_extremes(begin, end, values, 1.0 if how == "max" else -1.0, known, out)
        elif (share := share_of(how)) is not None:
            if known is None or not ordered_values.fits(known, len(values)):
                known = ordered_values.ordered(values[: end[0]], len(values))
            ordered_values.slide_quantiles(begin, end, values, known, *share, out)
        else:
            known = no_sums() if known is None else known
            if how == "std":
                slide_deviations(begin, end, values, known, out)
            else:
                total, mean, shift = run_means(begin, end, values, sums=known)
                out = doubles(total if how == "sum" else mean, shift)
        self._known[at] = known
        return out


class RunningMoments(RunningWindows):
    """The same for sums and counts of rows that may not exist, or have more than one value; for means if all exist."""

    @staticmethod
    def take(plan: AggregatePlan, rows: Objects) -> bool:
        """Whether nothing is asked of the rows that is no sum over them."""
        asked = {one.aggregate for one in plan.asked}
        if plan.distribution or plan.single_valued or not asked <= {"sum", "count", "mean"}:
            return False
        return "mean" not in asked or bool((rows.mass >= 1.0).all())

    def _columns_of(self, rows: Objects) -> dict[Any, NDArray[Any]]:
        """By aggregate: what is added up, what rounding took, and what varies, as multiples of powers of two."""
        exist, evaluation = np.minimum(rows.mass, 1.0), Evaluation(self._plan, rows, _NONE, _NONE)
        sure = exist == 1.0
        found: dict[Any, NDArray[Any]] = {"sure": sure.astype(np.float64)}
        found["none"] = np.log1p(-np.where(sure, 0.0, exist))
        for asked in self._asked:
            mean, rest, deviation = evaluation.moments_of(asked.dimension)
            if asked.aggregate == "count":
                mean, rest, deviation = np.ones(len(mean)), np.zeros(len(mean)), np.zeros(len(mean))
            found[asked, "sum"], found[asked, "rest"] = exist * mean, rest
            found[asked, "varies"], found[asked, "power"] = variances(exist, mean, deviation)
        return found

    def answers(self, begin: Ints, end: Ints) -> list[Answer]:
        log_none = doubles(*self._run(begin, end, "none")[::2])
        exists = np.where(self._run(begin, end, "sure")[0] > 0, 1.0, -np.expm1(log_none))
        return [self._answer(asked, begin, end, exists) for asked in self._asked]

    def _answer(self, asked: AggregateSpec, begin: Ints, end: Ints, exists: Floats) -> Answer:
        total, mean, shift = self._run(begin, end, (asked, "sum"))
        varies, _, power = self._run(begin, end, (asked, "varies"), self._values[asked, "power"].view)
        if asked.aggregate != "mean":
            return Answer(doubles(total, shift), roots(varies, power), exists, None)
        n, lost = end - begin, doubles(*self._run(begin, end, (asked, "rest"))[::2])
        return Answer(doubles(mean, shift) + lost / n, roots(varies / n / n, power), exists, None)

    def _run(self, begin: Ints, end: Ints, name: Any, shifts: Ints = _NONE) -> tuple[Floats, Floats, Ints]:
        known = self._known.setdefault(name, no_sums())
        return run_means(begin, end, self._values[name].view, shifts, known)


def going_on(plan: AggregatePlan, held: Objects, fresh: Objects) -> RunningWindows | None:
    """Windows over the rows held, where those over more rows may follow from them; None: they may not."""
    for kind in (RunningWindows, RunningMoments):
        if kind.take(plan, held) and kind.take(plan, fresh):
            return kind(plan, held)
    return None
