"""Interpolation in time, corrected by what the attributes that are there do meanwhile."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np

from appulse.arguments import Attributes, Count, Kind, Unfit, checked, whole
from appulse.imputation.in_time import Rescaled, Wanted, neighbours, without_overflow
from appulse.imputation.learning import MOST_SEEN, correlations
from appulse.imputation.samples import evenly, patterns
from appulse.imputation.simple import SimpleFill, as_points
from appulse.kernels import holes_in_time as kernels
from appulse.model.filled import Fill
from appulse.model.meaning import digest_of, without_defaults
from appulse.model.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.filled import Filled

_PENALTIES = np.array([1e-3, 1e-2, 1e-1, 1.0, np.inf])  # of weights, in deviations


def _beside(value: Any) -> tuple[Floats, Ints]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise Unfit
    values, time = np.asarray(value[0], np.float64), np.asarray(value[1])
    if values.ndim != 2 or time.shape != values.shape[:1] or time.dtype.kind not in "iu":
        raise Unfit
    return values, time.astype(np.int64)


_Beside: TypeAlias = Annotated[
    tuple[Any, Any], Kind("a pair of arrays: values (n, d), and n times in whole microseconds", _beside)
]


@checked
class TimeRegressionImputer:
    """Fills a hole by interpolation in time, corrected by the observed attributes, with the distribution of its errors.

    Predicted is how far a value lies off the line between those before and after it: by ridge regression on how far the
    observed attributes of the row lie off theirs, their values, and the line's. It is learned from those rows of the
    stream that have what is asked for, with neighbours as many rows off as those of the holes; where these are few, or,
    without another stream, fewer than four times the rows between the neighbours, by the observed attributes alone.
    All holes of a row are filled together. An attribute without any value in its partition makes a reject.

    A fill that knows less than the row's own attributes show is calibrated on the average, and yet not in a join, which
    picks just those pairs whose observed attributes are close. For the same reason it may look at what it is joined
    with.

    Arguments:
    * ``k``: the number of samples, 1 to 65,536. The errors are those made (each row left out of its own regression) at
      the ``3 * k`` rows most similar in the observed attributes and in how far the neighbours lie apart, every third in
      order, so they are small where the stream is calm.
    * ``beside``: another stream that measures the same world: a pair of values (n, d), NaN where something is missing,
      and n times in whole microseconds. Its values at the time of the row, where its nearest row has them, are
      regressed on, too.
    * ``threads``: how many cores fill rows, each those with some holes. The fills are the same for any number.

    Pass it as ``imputer`` to `impute` and joins; it needs whole frames.

    Raises `BadArgument` for a wrong argument, and in a call where rows come piece by piece.

    >>> xs = [float(i % 7) for i in range(60)]
    >>> ys = [2 * x if i != 30 else None for i, x in enumerate(xs)]
    >>> rows = pa.table({"id": [1] * 60, "t": range(60), "x": xs, "y": ys})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y"))
    >>> samples = ap.impute(stream, ap.TimeRegressionImputer(k=4)).frame["imputed"][30].as_py()
    >>> round(sum(y for _, y in samples) / len(samples), 1)  # x is 2 there
    4.0
    """

    def __init__(
        self, k: Annotated[int, whole(1, 1 << 16)] = 24, beside: _Beside | None = None, threads: Count = 1
    ) -> None:
        self.k, self.beside, self.threads = k, beside, threads

    @checked
    def bind(self, attributes: Attributes) -> Fill:  # noqa: ARG002 - it fills any
        """The object that fills rows with these attributes."""
        way = "regression in time" if self.beside is None else "regression in time and on another stream"
        beside = None if self.beside is None else digest_of(part.tobytes() for part in self.beside)
        meaning = {"kind": "TimeRegressionImputer", "k": self.k, "beside": beside}
        meaning = without_defaults(meaning, {"k": 24, "beside": None})
        return SimpleFill((way,), meaning, Rescaled(_Regressed(self.k, self.beside, self.threads)), in_order=True)


class _Regressed:
    def __init__(self, k: int, beside: tuple[Floats, Ints] | None, threads: int) -> None:
        self.k, self.beside, self.threads = k, beside, threads

    def __call__(self, values: Floats, time: Ints, group: Ints, wanted: Wanted) -> Filled:
        if len(values) == 0:
            return as_points(values, values)
        order = np.lexsort((np.arange(len(values)), time, group))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        series = _Series(values[order], time[order].astype(np.float64), group[order])
        if self.beside is not None:
            series.look_at(*self.beside)

        def samples(holed: Sequence[tuple[Ints, Ints]]) -> list[Floats]:
            return series.samples([(holes, place[rows]) for holes, rows in holed], self.k, self.threads)

        return evenly(values, samples, wanted)


class _Series:
    """Rows (n, d) in order of partition and time, NaN where something is missing."""

    def __init__(self, values: Floats, time: Floats, group: Ints) -> None:
        self.values, self.time, self.group = values, time, group
        before, after = neighbours(values, time.astype(np.int64), group)
        at = np.broadcast_to(np.arange(len(values))[:, None], values.shape)
        back, ahead = np.where(before < 0, 0, at - before), np.where(after < 0, 0, after - at)
        #: How many rows before and after each value its neighbours are, (n, 2 * d); 0: there is none.
        self.gaps = np.column_stack([back, ahead])
        #: Without holes: what is missing lies on the line between its neighbours; 0 where an attribute never is there.
        self.there = ~np.isnan(values)
        self.whole = np.column_stack(
            [
                self._line(np.nan_to_num(values[:, [k]]), at[:, k], back[:, k], ahead[:, k])
                for k in range(values.shape[1])
            ]
        )
        #: The same with what another stream measures meanwhile, and where that is known.
        self.columns, self.known = np.ascontiguousarray(self.whole.T), self.there
        self.likeness = np.empty((0, 0))
        self._compare()

    def look_at(self, values: Floats, time: Ints) -> None:
        """Regress on what another stream measured, rows in any order, where its nearest row has it."""
        order = np.lexsort((*values.T, time))
        values, at = values[order] / without_overflow(values), time[order].astype(np.float64)
        there = ~np.isnan(values)
        measured = np.flatnonzero(there.sum(axis=0) > 1)
        if len(measured) == 0:
            return
        after = np.minimum(np.searchsorted(at, self.time), len(at) - 1)
        before = np.maximum(after - 1, 0)
        nearest = np.where(self.time - at[before] < at[after] - self.time, before, after)
        near = np.abs(at[nearest] - self.time) <= np.median(np.diff(at))
        beside = [np.interp(self.time, at[there[:, k]], values[there[:, k], k]) for k in measured.tolist()]
        self.columns = np.ascontiguousarray([*self.columns, *beside])
        self.known = np.column_stack([self.there, there[nearest][:, measured] & near[:, None]])
        self._compare()

    def _compare(self) -> None:
        """Learn which columns of another stream rows have, and which columns are similar, if they are many."""
        measured = self.known.copy()
        measured[:, : self.there.shape[1]] = False
        found = patterns(measured)
        self.sets, self.set_of = np.zeros((len(found), measured.shape[1]), np.bool_), np.empty(len(measured), np.int64)
        for i, (columns, rows) in enumerate(found):
            self.sets[i, columns], self.set_of[rows] = True, i
        if len(self.columns) > MOST_SEEN:
            self.likeness = correlations(np.where(self.known, self.columns.T, np.nan))

    def samples(self, holed: Sequence[tuple[Ints, Ints]], k: int, threads: int) -> list[Floats]:
        """What holes of rows that lack just these may be together, (rows, k, holes) of each pair of both."""
        if not holed:
            return []
        lacking = self._lacking
        holes = np.zeros((len(holed), self.there.shape[1]), np.bool_)
        for i, (missing, _) in enumerate(holed):
            holes[i, missing] = True
        rows, every = [rows for _, rows in holed], [lacking[missing.tobytes()] for missing, _ in holed]
        first, every_first = np.cumsum([0, *map(len, rows)]), np.cumsum([0, *map(len, every)])
        together = np.concatenate(rows), np.concatenate(every)
        series = kernels.Series(self.columns, self.time, self.group, self.known)
        ends = np.cumsum([0, *(len(of) * k * len(missing) for missing, of in holed)])
        found = np.empty(int(ends[-1]))

        def fill(some: tuple[int, int]) -> None:
            own, bounds = slice(*some), slice(some[0], some[1] + 1)
            asked = kernels.Lacking(
                holes[own],
                together[0],
                first[bounds],
                together[1],
                every_first[bounds],
                self.gaps,
                self.sets,
                self.set_of,
                self.likeness,
            )
            kernels.regressed(series, asked, _PENALTIES, MOST_SEEN, k, found[ends[some[0]] : ends[some[1]]])

        each = [(i, i + 1) for i in range(len(holed))]
        Workers(threads).map(fill, each if threads > 1 else [(0, len(holed))])
        parts = np.split(found, ends[1:-1])
        return [part.reshape(len(of), k, len(missing)) for part, (missing, of) in zip(parts, holed, strict=True)]

    @cached_property
    def _lacking(self) -> dict[bytes, Ints]:
        """The rows that lack the same columns, by these."""
        return {holes.tobytes(): np.sort(rows) for holes, rows in patterns(~self.there)}

    def _line(self, columns: Floats, at: Ints, back: Ints, ahead: Ints) -> Floats:
        """Rows of columns predicted from those so many rows before and after; 0 rows: there is none."""
        low, high = columns[at - back], columns[at + ahead]
        first, last = self.time[at - back], self.time[at + ahead]
        share = (self.time[at] - first) / np.where(last > first, last - first, 1.0)
        share = np.where(back == 0, 1.0, np.where(ahead == 0, 0.0, share))
        found: Floats = low + share[:, None] * (high - low)
        return found
