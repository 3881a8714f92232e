"""Rows that windows hold, in order of place: those that leave are the first, and what windows came to is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.kernels import ordered_runs, ordered_values
from appulse.kernels.exact_sums import doubles, no_sums, run_means, slide_deviations
from appulse.model.objects import Objects
from appulse.model.uncertainty import Form
from appulse.operators.buffers import Column, Rows
from appulse.operators.percentiles import share_of
from appulse.operators.window_answers import Answer

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints
    from appulse.operators.aggregate_plan import AggregatePlan, AggregateSpec

_PARTS = 32  # so many are put together at once


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
    """Whether aggregates of windows may follow from those of the windows before, of rows that are certain."""
    known = all(
        asked.aggregate in ("sum", "count", "mean", "min", "max", "std") or share_of(asked.aggregate) is not None
        for asked in plan.asked
    )
    return known and not (plan.tumbling or plan.distribution or plan.size or plan.correlation)


def are_certain(rows: Objects) -> bool:
    """Whether all rows are there, with one value each."""
    return rows.form == Form.POINT and bool((rows.mass >= 1.0).all())


class RunningWindows:
    """Windows that slide over rows of one group, all of them certain; each aggregate goes on from the last window."""

    def __init__(self, plan: AggregatePlan, held: Objects) -> None:
        self._asked = plan.asked
        self._rows = Rows()
        self._place = Column(np.int64, rows=self._rows)
        self._values = {asked.dimension: Column(np.float64, rows=self._rows) for asked in plan.asked}
        self._known: dict[tuple[int, str], Any] = {}  # what kernels go on from, by dimension and aggregate
        self.append(held)

    @property
    def nbytes(self) -> int:
        """Bytes held, roughly."""
        return sum(column.nbytes for column in self._rows.columns)

    def append(self, rows: Objects) -> None:
        """Rows behind all others."""
        new = self._rows.grow(len(rows))
        self._place.data[new] = rows.number
        for dimension, column in self._values.items():
            column.data[new] = rows.centre[:, dimension]

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
            found.append(Answer(values, spread, exists, None))
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
