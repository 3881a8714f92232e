"""Values between those before and after them in time, with the errors that this makes elsewhere in the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np

from appulse.arguments import Attributes, checked, whole
from appulse.imputation.in_time import Rescaled, Wanted, neighbours
from appulse.imputation.samples import Choices, evenly, expanded
from appulse.imputation.simple import SimpleFill
from appulse.kernels import lines as kernels
from appulse.model.filled import Fill
from appulse.model.meaning import without_defaults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.filled import Filled
    from appulse.model.meaning import Meaning

_LEAST, _FEW = 8, 4  # errors that are enough; streams of fewer than their product are taken as they are
_MOST_ERRORS = 256  # of lines to neighbours so far off
_MOST_SAMPLES = 1024  # of a row: quantiles of few holes, coarser ones of many


@checked
class InterpolationImputer:
    """Fills a hole by linear interpolation between the values before and after it, with the distribution of its errors.

    The errors are those of known values of the stream, each predicted from neighbours as far off, in rows, as those of
    the hole. Where there is a neighbour on one side only, it is taken as it is; where hardly any value has neighbours
    so far off, the hole is filled with quantiles of all values of the attribute. An attribute without any value in its
    partition makes a reject.

    Arguments:
    * ``k``: how many quantiles of the errors fill a hole, 1 to 65,536.
    * ``joint``: fills attributes together, by errors made in the same rows. False: independently, within their
      partition, by at most 1,024 samples together.

    Pass it as ``imputer`` to `impute` and joins; it needs whole frames.

    Raises `BadArgument` for a wrong argument, and in a call where rows come piece by piece.

    >>> rows = pa.table({"id": [1, 1, 1], "t": [0, 10, 20], "x": [1.0, None, 3.0], "y": [5.0, 5.0, 5.0]})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y"))
    >>> ap.impute(stream, ap.InterpolationImputer()).frame["imputed"][1][0].as_py()
    [2.0, 5.0]
    """

    def __init__(self, k: Annotated[int, whole(1, 1 << 16)] = 16, *, joint: bool = False) -> None:
        self.k, self.joint = k, joint

    @checked
    def bind(self, attributes: Attributes) -> Fill:  # noqa: ARG002 - it fills any
        """The object that fills rows with these attributes."""
        meaning: Meaning = {"kind": "InterpolationImputer", "k": self.k, "joint": self.joint}
        meaning = without_defaults(meaning, {"k": 16, "joint": False})
        return SimpleFill(("interpolation",), meaning, Rescaled(_Interpolated(self.k, joint=self.joint)), in_order=True)


class _Interpolated:
    def __init__(self, k: int, *, joint: bool) -> None:
        self.k, self.joint = k, joint

    def __call__(self, values: Floats, time: Ints, group: Ints, wanted: Wanted) -> Filled:
        if len(values) == 0:
            return expanded(values, lambda *_: [])
        series = _Series(values, time, group, self.k, wanted)
        if self.joint:

            def samples(holed: Sequence[tuple[Ints, Ints]]) -> list[Floats]:
                return [series.samples(rows, holes, together=True) for holes, rows in holed]

            return evenly(values, samples, wanted)

        def choices(holed: Floats, holes: Ints, rows: Ints) -> list[Choices]:
            n = len(holed)
            samples = series.samples(rows, holes, together=False)
            begin, count = np.arange(n) * self.k, np.full(n, self.k)
            shares, way = np.full(n * self.k, 1.0 / self.k), np.zeros(n, np.int64)
            return [
                Choices(np.array([hole]), begin, count, samples[:, :, i].reshape(-1, 1), shares, way)
                for i, hole in enumerate(holes.tolist())
            ]

        return expanded(values, choices, _MOST_SAMPLES, wanted)


class _Series:
    """Rows (n, d), their lines where they are to be filled, and the errors of these; inside in order of time."""

    def __init__(self, values: Floats, time: Ints, group: Ints, k: int, wanted: Wanted) -> None:
        n, d = values.shape
        order = np.lexsort((np.arange(n), time, group))
        self.k, self.place = k, np.empty(n, np.int64)
        self.place[order] = np.arange(n)
        self.columns = np.ascontiguousarray(values[order].T)
        self.time, self.group = time[order].astype(np.float64), group[order]
        low, high = neighbours(values, time, group)
        #: How many rows off the neighbours of each value are; 0: there is none.
        self.back = np.where(low >= 0, self.place[:, None] - self.place[low], 0)
        self.ahead = np.where(high >= 0, self.place[high] - self.place[:, None], 0)
        asked = np.isnan(values) if wanted is None else np.isnan(values) & wanted[:, None]
        self.lines, self.errors = np.full((n, d), np.nan), np.empty((d, n), np.int64)
        self.tables = [self._learned(hole, np.flatnonzero(asked[:, hole])) for hole in range(d)]

    def _learned(self, hole: int, rows: Ints) -> Floats:
        """Quantiles of the errors of an attribute, for each pair of gaps that its holes have; `lines` and `errors`."""
        column, back, ahead = self.columns[hole], self.back[rows, hole], self.ahead[rows, hole]
        codes, which = np.unique(back * (len(column) + 1) + ahead, return_inverse=True)
        kinds = np.divmod(codes, len(column) + 1)
        table, made = kernels.quantiles_of_errors(column, self.time, self.group, *kinds, self.k, _MOST_ERRORS)
        there = column[~np.isnan(column)]
        middle = there.mean() if len(there) else np.nan
        blind = (made < _LEAST) & (len(column) > _LEAST * _FEW)
        shares = (np.arange(self.k) + 0.5) / self.k
        table[blind] = np.quantile(there, shares) - middle if len(there) else np.nan
        line = kernels.lines(column, self.time, self.place[rows], back, ahead)
        line = np.where(blind[which], middle, line)
        self.lines[rows, hole] = np.where((back == 0) & (ahead == 0), np.nan, line)
        self.errors[hole, rows] = which
        return table

    def samples(self, rows: Ints, holes: Ints, *, together: bool) -> Floats:
        """What the holes of some rows may be, (n, k, holes): with errors made in the same rows, where enough were."""
        errors = np.stack([self.tables[hole][self.errors[hole, rows]] for hole in holes.tolist()], axis=2)
        if together and len(holes) > 1:
            gaps = np.column_stack([self.back[rows][:, holes], self.ahead[rows][:, holes]])
            kinds, which = np.unique(gaps, axis=0, return_inverse=True)
            back, ahead = (np.ascontiguousarray(part) for part in np.split(kinds, 2, axis=1))
            made, enough = kernels.errors_together(
                self.columns[holes], self.time, self.group, back, ahead, self.k, max(self.k, _LEAST), _MOST_ERRORS
            )
            which = which.reshape(-1)
            errors = np.where(enough[which][:, None, None], made[which], errors)
        found: Floats = self.lines[rows][:, holes][:, None, :] + errors
        return found
