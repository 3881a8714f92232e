"""Interpolation in time, corrected by what the attributes that are there do meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.errors import BadArgument
from appulse.imputation.in_time import neighbours
from appulse.imputation.samples import Choices, expanded
from appulse.imputation.simple import SimpleFill, as_points

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.imputation.repository import Floats, Ints
    from appulse.model.filled import Fill, Filled

_MOST_ROWS = 2000  # to learn from
_LEAST_ROWS = 3  # for each number that is regressed on: of fewer just the mean error is learned
_RIDGE = 1e-3


class TimeRegressionImputer:
    """Fills a hole between its neighbours in time, corrected by the observed attributes, give or take errors nearby.

    Foretold is how far a value lies off the line between those before and after it: by ridge regression on how far the
    observed attributes of the row lie off theirs, their values, and the line's. It is learned from the stream's own
    complete rows, with neighbours as many rows off as those of the hole. The errors are those made (each row left out
    of its own regression) at the ``k`` rows most alike in these and in how far the neighbours lie apart, so they are
    small where the stream is calm. All holes of a row are filled together. It needs whole frames.

    A fill that knows less than the row's own attributes tell is calibrated on the average, and yet not in a join, which
    picks just those pairs whose observed attributes are close.
    """

    def __init__(self, k: int = 24) -> None:
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:
            raise BadArgument(f"TimeRegressionImputer(k={k!r}): give a whole number of errors, at least 1.")
        self.k = k

    def bind(self, attributes: Sequence[str]) -> Fill:  # noqa: ARG002 - it fills any
        """What fills rows with these attributes."""
        return SimpleFill(("regression in time",), f"regression in time {self.k}", _Regressed(self.k), in_order=True)


class _Regressed:
    def __init__(self, k: int) -> None:
        self.k = k

    def __call__(self, values: Floats, time: Ints, group: Ints) -> Filled:
        if len(values) == 0:
            return as_points(values, values)
        order = np.lexsort((np.arange(len(values)), time, group))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        series = _Series(values[order], time[order].astype(np.float64), group[order])

        def choices(holed: Floats, holes: Ints, rows: Ints) -> list[Choices]:
            samples = series.samples(place[rows], holes, self.k)
            n, count = samples.shape[:2]
            begin = np.arange(n) * count
            shares, way = np.full(n * count, 1.0 / count), np.zeros(len(holed), np.int64)
            return [Choices(holes, begin, np.full(n, count), samples.reshape(-1, len(holes)), shares, way)]

        return expanded(values, choices)


class _Series:
    """Rows (n, d) in order of partition and time, NaN where something is missing."""

    def __init__(self, values: Floats, time: Floats, group: Ints) -> None:
        self.values, self.time, self.group = values, time, group
        self.before, self.after = neighbours(values, time.astype(np.int64), group)
        at = np.broadcast_to(np.arange(len(values))[:, None], values.shape)
        low, high = np.where(self.before < 0, at, self.before), np.where(self.after < 0, at, self.after)
        #: Without holes: what is missing lies on the line between its neighbours; 0 where an attribute never is there.
        self.whole = np.column_stack(
            [
                self._line(np.nan_to_num(values[:, k]), at[:, k], at[:, k] - low[:, k], high[:, k] - at[:, k])
                for k in range(values.shape[1])
            ]
        )
        self.complete = np.flatnonzero(~np.isnan(values).any(axis=1))

    def samples(self, rows: Ints, holes: Ints, k: int) -> Floats:
        """What the holes of some rows, all with the same ones, may be together, (n, k, holes)."""
        low, high = self.before[rows][:, holes], self.after[rows][:, holes]
        back = np.where(low < 0, 0, rows[:, None] - low)
        ahead = np.where(high < 0, 0, high - rows[:, None])
        gaps, which = np.unique(_rounded(np.column_stack([back, ahead])), axis=0, return_inverse=True)
        samples = np.empty((len(rows), k, len(holes)))
        for number, gap in enumerate(gaps):
            own = np.flatnonzero(which.reshape(-1) == number)
            samples[own] = self._alike(rows[own], back[own], ahead[own], holes, gap, k)
        return samples

    def _alike(self, rows: Ints, back: Ints, ahead: Ints, holes: Ints, gap: Ints, k: int) -> Floats:
        """`samples` of rows whose neighbours are as far off, but for rounding."""
        known = self._to_learn_from(holes, gap)
        m = len(holes)
        lines, asked, alike = self._features(rows, holes, back, ahead)
        if len(known) == 0:
            return np.repeat(lines[:, None], k, axis=1)
        back, ahead = (np.broadcast_to(part, (len(known), m)) for part in (gap[:m], gap[m:]))
        learned_lines, given, like = self._features(known, holes, back, ahead)
        if len(known) < _LEAST_ROWS * given.shape[1]:
            given, asked = given[:, :0], asked[:, :0]
        weights, errors = _ridge(given, self.values[known][:, holes] - learned_lines)
        found: Floats = (lines + _with_one(asked) @ weights)[:, None] + errors[_nearest(like, alike, k)]
        return found

    def _to_learn_from(self, holes: Ints, gap: Ints) -> Ints:
        """Complete rows with neighbours as far off, in their partition, that have the attributes of the holes."""
        at = self.complete
        for hole, back, ahead in zip(
            holes.tolist(), gap[: len(holes)].tolist(), gap[len(holes) :].tolist(), strict=True
        ):
            at = at[(at >= back) & (at < len(self.values) - ahead)]
            at = at[(self.group[at - back] == self.group[at]) & (self.group[at + ahead] == self.group[at])]
            # A neighbour that lies on the line through the row itself would tell what is to be foretold.
            at = at[~np.isnan(self.values[at - back, hole] + self.values[at + ahead, hole])]
        return at[:: -(-len(at) // _MOST_ROWS)] if len(at) else at

    def _features(self, at: Ints, holes: Ints, back: Ints, ahead: Ints) -> tuple[Floats, Floats, Floats]:
        """Of some places: the lines through the holes; what is regressed on; and by what places are alike."""
        d = self.values.shape[1]
        seen = np.setdiff1d(np.arange(d), holes)
        lines = np.column_stack(
            [self._line(self.whole[:, hole], at, back[:, i], ahead[:, i]) for i, hole in enumerate(holes)]
        )
        nearest = int(np.argmin((back + ahead).sum(axis=0)))
        there = self.whole[at][:, seen]
        off = there - np.column_stack(
            [self._line(self.whole[:, k], at, back[:, nearest], ahead[:, nearest]) for k in seen]
        )
        apart = np.abs(self.whole[at[:, None] + ahead, holes] - self.whole[at[:, None] - back, holes])
        given = np.column_stack([off, there, lines])
        return lines, given, np.column_stack([given, apart])

    def _line(self, column: Floats, at: Ints, back: Ints, ahead: Ints) -> Floats:
        """Values foretold from those so many rows before and after; 0 rows: there is none."""
        low, high = column[at - back], column[at + ahead]
        first, last = self.time[at - back], self.time[at + ahead]
        share = (self.time[at] - first) / np.where(last > first, last - first, 1.0)
        share = np.where(back == 0, 1.0, np.where(ahead == 0, 0.0, share))
        found: Floats = low + share * (high - low)
        return found


def _rounded(gaps: Ints) -> Ints:
    """Long gaps by their first three binary digits: rows are learned from for some lengths, not for each."""
    steps = 1 << np.maximum(np.frexp(np.maximum(gaps, 1).astype(np.float64))[1] - 3, 0)
    rounded: Ints = gaps // steps * steps
    return rounded


def _ridge(given: Floats, wanted: Floats) -> tuple[Floats, Floats]:
    """Weights, the constant's last, and the error at each row of a regression without it."""
    rows = _with_one(given)
    # The penalty is in deviations of each column; that of the constant is for its place alone.
    penalty = _RIDGE * len(rows) * np.append(given.var(axis=0) + 1e-12, 1e-12)
    inverse = np.linalg.pinv(rows.T @ rows + np.diag(penalty), hermitian=True)
    weights = inverse @ rows.T @ wanted
    own = np.einsum("ij,jk,ik->i", rows, inverse, rows)
    return weights, (wanted - rows @ weights) / np.maximum(1.0 - own, 0.1)[:, None]


def _nearest(known: Floats, asked: Floats, k: int) -> Ints:
    """The places of the k known rows nearest to each, (n, k), in deviations; again where there are fewer."""
    from scipy.spatial import cKDTree

    scale = np.maximum(known.std(axis=0), 1e-12)
    _, place = cKDTree(known / scale).query(asked / scale, k=np.arange(1, min(k, len(known)) + 1))
    found: Ints = np.asarray(place, np.int64)[:, np.arange(k) % min(k, len(known))]
    return found


def _with_one(values: Floats) -> Floats:
    return np.column_stack([values, np.ones(len(values))])
