"""Interpolation in time, corrected by what the attributes that are there do meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np

from appulse.arguments import Attributes, Kind, Unfit, checked, whole
from appulse.imputation.in_time import Rescaled, Wanted, neighbours, without_overflow
from appulse.imputation.learning import MOST_SEEN, closest, correlations, learnable
from appulse.imputation.samples import Choices, every_third, expanded
from appulse.imputation.simple import SimpleFill, as_points
from appulse.kernels import regressions as kernels
from appulse.model.filled import Fill
from appulse.model.meaning import digest_of, without_defaults

if TYPE_CHECKING:
    from appulse.imputation.repository import Floats, Ints
    from appulse.model.filled import Filled

_MOST_ROWS = 2000  # to learn from
_LEAST_ROWS = 3  # for each number that is regressed on: of fewer just the mean error is learned
_ROWS_EACH = 8  # rows for each number that is regressed on: they are alike, as they follow each other
_LEAST_KNOWN = 16  # rows that tell anything
_MOST_SETS = 4  # of columns of another stream, for rows with the same holes
_SMALL = 64  # streams of no more rows tell what they can
_PENALTIES = np.array([1e-3, 1e-2, 1e-1, 1.0, np.inf])  # of weights, in deviations
_FEW = 4096  # rows of which the nearest are found sooner by a look at all than by a tree


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
    """Fills a hole between its neighbours in time, corrected by the observed attributes, give or take errors nearby.

    Predicted is how far a value lies off the line between those before and after it: by ridge regression on how far the
    observed attributes of the row lie off theirs, their values, and the line's. It is learned from those rows of the
    stream that have what is asked for, with neighbours as many rows off as those of the hole; where hardly any have
    neighbours so far off, by the observed attributes alone. The errors are those made (each row left out of its own
    regression) at the ``3 * k`` rows most alike in these and in how far the neighbours lie apart, every third in order,
    so they are small where the stream is calm. All holes of a row are filled together. An attribute without any value
    in its partition makes a reject. It needs whole frames.

    A fill that knows less than the row's own attributes tell is calibrated on the average, and yet not in a join, which
    picks just those pairs whose observed attributes are close. For the same reason it may look at what it is joined
    with: ``beside`` is another stream that measures the same world, as values (n, d) with NaN where something is
    missing, and times in microseconds. Its values at the time of the row, where its nearest row has them, are
    regressed on, too.

    >>> xs = [float(i % 7) for i in range(60)]
    >>> ys = [2 * x if i != 30 else None for i, x in enumerate(xs)]
    >>> rows = pa.table({"id": [1] * 60, "t": range(60), "x": xs, "y": ys})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y"))
    >>> samples = ap.impute(stream, ap.TimeRegressionImputer(k=4)).frame["imputed"][30].as_py()
    >>> round(sum(y for _, y in samples) / len(samples), 1)  # x is 2 there
    4.0
    """

    def __init__(self, k: Annotated[int, whole(1, 1 << 16)] = 24, beside: _Beside | None = None) -> None:
        self.k, self.beside = k, beside

    @checked
    def bind(self, attributes: Attributes) -> Fill:  # noqa: ARG002 - it fills any
        """What fills rows with these attributes."""
        way = "regression in time" if self.beside is None else "regression in time and on another stream"
        beside = None if self.beside is None else digest_of(part.tobytes() for part in self.beside)
        meaning = {"kind": "TimeRegressionImputer", "k": self.k, "beside": beside}
        meaning = without_defaults(meaning, {"k": 24, "beside": None})
        return SimpleFill((way,), meaning, Rescaled(_Regressed(self.k, self.beside)), in_order=True)


class _Regressed:
    def __init__(self, k: int, beside: tuple[Floats, Ints] | None) -> None:
        self.k, self.beside = k, beside

    def __call__(self, values: Floats, time: Ints, group: Ints, wanted: Wanted) -> Filled:
        if len(values) == 0:
            return as_points(values, values)
        order = np.lexsort((np.arange(len(values)), time, group))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        series = _Series(values[order], time[order].astype(np.float64), group[order])
        if self.beside is not None:
            series.look_at(*self.beside)

        def choices(holed: Floats, holes: Ints, rows: Ints) -> list[Choices]:
            samples = series.samples(place[rows], holes, self.k)
            n, count = samples.shape[:2]
            begin = np.arange(n) * count
            shares, way = np.full(n * count, 1.0 / count), np.zeros(len(holed), np.int64)
            return [Choices(holes, begin, np.full(n, count), samples.reshape(-1, len(holes)), shares, way)]

        return expanded(values, choices, wanted=wanted)


class _Series:
    """Rows (n, d) in order of partition and time, NaN where something is missing."""

    def __init__(self, values: Floats, time: Floats, group: Ints) -> None:
        self.values, self.time, self.group = values, time, group
        self.before, self.after = neighbours(values, time.astype(np.int64), group)
        at = np.broadcast_to(np.arange(len(values))[:, None], values.shape)
        low, high = np.where(self.before < 0, at, self.before), np.where(self.after < 0, at, self.after)
        #: Without holes: what is missing lies on the line between its neighbours; 0 where an attribute never is there.
        self.there = ~np.isnan(values)
        self.whole = np.column_stack(
            [
                self._line(np.nan_to_num(values[:, [k]]), at[:, k], at[:, k] - low[:, k], high[:, k] - at[:, k])
                for k in range(values.shape[1])
            ]
        )
        #: The same with what another stream measures meanwhile, and where that is known.
        self.columns, self.known = np.ascontiguousarray(self.whole.T), self.there
        self.likeness: Floats | None = None
        self._learned: dict[bytes, _Anywhere] = {}
        self._compare()

    def look_at(self, values: Floats, time: Ints) -> None:
        """Regress on what another stream measured, rows in any order, where its nearest row has it."""
        order = np.argsort(time, kind="stable")
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
        self.columns, self._learned = np.ascontiguousarray([*self.columns, *beside]), {}
        self.known = np.column_stack([self.there, there[nearest][:, measured] & near[:, None]])
        self._compare()

    def _compare(self) -> None:
        """Learn which columns are alike, if they are many."""
        if len(self.columns) > MOST_SEEN:
            self.likeness = correlations(np.where(self.known, self.columns.T, np.nan))

    def samples(self, rows: Ints, holes: Ints, k: int) -> Floats:
        """What the holes of some rows, all with the same ones, may be together, (n, k, holes)."""
        low, high = self.before[rows][:, holes], self.after[rows][:, holes]
        back = np.where(low < 0, 0, rows[:, None] - low)
        ahead = np.where(high < 0, 0, high - rows[:, None])
        # Rows to learn from have neighbours as far off for all holes: for each its own there would be few of a kind.
        far = np.column_stack([back.max(axis=1), ahead.max(axis=1)])
        rounded = np.column_stack([_rounded(far).repeat(len(holes), axis=1), self._beside(rows)])
        gaps, which = np.unique(rounded, axis=0, return_inverse=True)
        samples = np.empty((len(rows), k, len(holes)))
        for number, gap in enumerate(gaps):
            own = np.flatnonzero(which.reshape(-1) == number)
            far_off, beside = np.split(gap, [2 * len(holes)])
            samples[own] = self._by_similar(rows[own], back[own], ahead[own], holes, far_off, k, np.flatnonzero(beside))
        return samples

    def _beside(self, rows: Ints) -> Ints:
        """Which columns of another stream each row is filled by (n, all columns), 1 or 0: in few combinations.

        Those that many of the rows have are kept; a row that has another one takes the largest of them within it.
        """
        known = self.known[rows].astype(np.int64)
        known[:, : self.there.shape[1]] = 0
        sets, which, count = np.unique(known, axis=0, return_inverse=True, return_counts=True)
        often = np.argsort(-count, kind="stable")[:_MOST_SETS]
        kept = np.vstack([sets[often], np.zeros((1, known.shape[1]), np.int64)])
        within = (kept[None] <= sets[:, None]).all(axis=2)
        found: Ints = kept[np.argmax(np.where(within, kept.sum(axis=1) + 1, 0), axis=1)][which.reshape(-1)]
        return found

    def _by_similar(self, rows: Ints, back: Ints, ahead: Ints, holes: Ints, gap: Ints, k: int, beside: Ints) -> Floats:
        """`samples` of rows whose neighbours are as far off, but for rounding, by columns ``beside`` and their own."""
        m = len(holes)
        known, seen = self._to_learn_from(holes, gap, beside)
        if len(known) < _ROWS_EACH * (2 * len(seen) + m) + _LEAST_KNOWN and len(self.values) > _SMALL:
            model = self._anywhere(holes, beside)
            by = len(model.seen)
            if len(known) < _LEAST_KNOWN or (by > 0 and len(model.known) >= _ROWS_EACH * by + _LEAST_KNOWN):
                return self._far(rows, back, ahead, k, model, (holes, gap, beside))
            seen = seen[:0]
        if len(known) == 0 and len(beside):
            return self._by_similar(rows, back, ahead, holes, gap, k, beside[:0])
        behind, before = (np.tile(part, (len(known), 1)) for part in (gap[:m], gap[m:]))
        lines, asked_like = kernels.features(self.columns, self.time, rows, holes, seen, back, ahead)
        lines = np.where((back == 0) & (ahead == 0), np.nan, lines)
        if len(known) == 0:
            return np.repeat(lines[:, None], k, axis=1)
        learned_lines, like = kernels.features(self.columns, self.time, known, holes, seen, behind, before)
        given, asked = (np.ascontiguousarray(part[:, : 2 * len(seen) + m]) for part in (like, asked_like))
        if len(known) < _LEAST_ROWS * given.shape[1]:
            if len(beside):
                return self._by_similar(rows, back, ahead, holes, gap, k, beside[:0])
            given, asked = np.empty((len(known), 0)), asked[:, :0]
        weights, errors = kernels.ridge(given, self.values[known][:, holes] - learned_lines, _PENALTIES)
        return _around(lines + _with_one(asked) @ weights, errors, like, asked_like, k)

    def _anywhere(self, holes: Ints, beside: Ints) -> _Anywhere:
        """What is learned from all rows that have these attributes, once: it is the same for all gaps."""
        key = holes.tobytes() + b"|" + beside.tobytes()
        if key not in self._learned:
            known, seen = self._to_learn_from(holes, np.zeros(2 * len(holes), np.int64), beside)
            values = self.values[known][:, holes]
            middle = values.mean(axis=0) if len(known) else np.full(len(holes), np.nan)
            like = np.ascontiguousarray(self.columns[seen][:, known].T)
            enough = len(known) >= _LEAST_ROWS * like.shape[1]
            given = like if enough else np.empty((len(known), 0))
            fitted = None
            if len(known) and (enough or not len(beside)):
                fitted = kernels.ridge(given, values - np.tile(middle, (len(known), 1)), _PENALTIES)
            self._learned[key] = _Anywhere(known, seen, middle, like, enough, fitted)
        return self._learned[key]

    def _far(
        self, rows: Ints, back: Ints, ahead: Ints, k: int, model: _Anywhere, asked_for: tuple[Ints, Ints, Ints]
    ) -> Floats:
        """`samples` of rows whose neighbours tell nothing, by their observed attributes alone."""
        holes, gap, beside = asked_for
        if model.fitted is None and len(beside):
            return self._by_similar(rows, back, ahead, holes, gap, k, beside[:0])
        lines = np.where((back == 0) & (ahead == 0), np.nan, np.tile(model.middle, (len(rows), 1)))
        if model.fitted is None:
            return np.repeat(lines[:, None], k, axis=1)
        asked_like = np.ascontiguousarray(self.columns[model.seen][:, rows].T)
        weights, errors = model.fitted
        asked = asked_like if model.enough else asked_like[:, :0]
        return _around(lines + _with_one(asked) @ weights, errors, model.like, asked_like, k)

    def _to_learn_from(self, holes: Ints, gap: Ints, beside: Ints) -> tuple[Ints, Ints]:
        """Rows with neighbours as far off, in their partition, that have the attributes of the holes; and by which.

        These are columns that the rows all have: attributes, and of another stream some of those ``beside``.
        """
        # A neighbour that lies on the line through the row itself would give away what is to be predicted.
        every = np.arange(len(self.values))
        at = kernels.with_neighbours(self.there, self.group, holes, gap[: len(holes)], gap[len(holes) :], every)
        others = np.concatenate([np.delete(np.arange(self.values.shape[1]), holes), beside])
        others = others if self.likeness is None else closest(self.likeness, holes, others)
        kept, seen = learnable(self.known[at], holes, others)
        at = at[kept]
        return (at[:: -(-len(at) // _MOST_ROWS)] if len(at) else at), seen

    def _line(self, columns: Floats, at: Ints, back: Ints, ahead: Ints) -> Floats:
        """Rows of columns predicted from those so many rows before and after; 0 rows: there is none."""
        low, high = columns[at - back], columns[at + ahead]
        first, last = self.time[at - back], self.time[at + ahead]
        share = (self.time[at] - first) / np.where(last > first, last - first, 1.0)
        share = np.where(back == 0, 1.0, np.where(ahead == 0, 0.0, share))
        found: Floats = low + share[:, None] * (high - low)
        return found


@dataclass(frozen=True)
class _Anywhere:
    """What is learned from rows wherever they are: ``like`` are the ``seen`` columns of the ``known`` rows.

    ``fitted`` are weights and errors; of ``enough`` rows they go by these columns.
    """

    known: Ints
    seen: Ints
    middle: Floats
    like: Floats
    enough: bool
    fitted: tuple[Floats, Floats] | None


def _around(predicted: Floats, errors: Floats, like: Floats, asked_like: Floats, k: int) -> Floats:
    """What was predicted, with the errors of the rows most alike."""
    spread = not like.shape[1]
    near = np.tile(_spread(len(like), 3 * k), (len(asked_like), 1)) if spread else _nearest(like, asked_like, 3 * k)
    found: Floats = predicted[:, None] + every_third(errors[near])
    return found


def _spread(n: int, k: int) -> Ints:
    """So many places of n, evenly spread."""
    return np.arange(k) * n // k


def _rounded(gaps: Ints) -> Ints:
    """Long gaps by their first two binary digits: rows are learned from for some lengths, not for each."""
    steps = 1 << np.maximum(np.frexp(np.maximum(gaps, 1).astype(np.float64))[1] - 2, 0)
    rounded: Ints = gaps // steps * steps
    return rounded


def _nearest(known: Floats, asked: Floats, k: int) -> Ints:
    """The places of the k known rows nearest to each, (n, k), in deviations; again where there are fewer."""
    if len(known) <= _FEW:
        return kernels.nearest_rows(known, asked, k)
    from scipy.spatial import cKDTree

    scale, most = np.maximum(known.std(axis=0), 1e-12), min(k, len(known))
    place = cKDTree(known / scale).query(asked / scale, k=np.arange(1, most + 1))[1]
    found: Ints = np.asarray(place, np.int64)[:, np.arange(k) % most]
    return found


def _with_one(values: Floats) -> Floats:
    return np.column_stack([values, np.ones(len(values))])
