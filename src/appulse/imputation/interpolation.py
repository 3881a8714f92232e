"""Values between those before and after them in time, with the errors that this makes elsewhere in the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np

from appulse.arguments import Attributes, checked, whole
from appulse.imputation.in_time import Rescaled, Wanted, neighbours
from appulse.imputation.samples import Choices, expanded
from appulse.imputation.simple import SimpleFill
from appulse.model.filled import Fill
from appulse.model.meaning import without_defaults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.imputation.repository import Floats, Ints
    from appulse.model.filled import Filled
    from appulse.model.meaning import Meaning

_LEAST, _FEW = 8, 4  # errors that tell anything; streams of fewer than their product tell what they can
_MOST_SAMPLES = 1024  # of a row: quantiles of few holes, coarser ones of many


@checked
class InterpolationImputer:
    """Fills a hole on the line between the values before and after it in the stream, give or take the errors of that.

    The errors are those of known values of the stream, each predicted from neighbours as far off, in rows, as those of
    the hole: ``k`` quantiles of them. Where there is a neighbour on one side only, it is taken as it is; where
    hardly any value has neighbours so far off, the hole is filled with quantiles of all values of the attribute. An
    attribute without any value in its partition makes a reject. Attributes are filled independently, within their
    partition, by at most 1,024 samples together; with ``joint=True`` together, by errors made in the same rows. It
    needs whole frames.

    >>> rows = pa.table({"id": [1, 1, 1], "t": [0, 10, 20], "x": [1.0, None, 3.0], "y": [5.0, 5.0, 5.0]})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y"))
    >>> ap.impute(stream, ap.InterpolationImputer()).frame["imputed"][1][0].as_py()
    [2.0, 5.0]
    """

    def __init__(self, k: Annotated[int, whole(1, 1 << 16)] = 16, *, joint: bool = False) -> None:
        self.k, self.joint = k, joint

    @checked
    def bind(self, attributes: Attributes) -> Fill:  # noqa: ARG002 - it fills any
        """What fills rows with these attributes."""
        meaning: Meaning = {"kind": "InterpolationImputer", "k": self.k, "joint": self.joint}
        meaning = without_defaults(meaning, {"k": 16, "joint": False})
        return SimpleFill(("interpolation",), meaning, Rescaled(_Interpolated(self.k, joint=self.joint)), in_order=True)


class _Interpolated:
    def __init__(self, k: int, *, joint: bool) -> None:
        self.k, self.joint = k, joint

    def __call__(self, values: Floats, time: Ints, group: Ints, wanted: Wanted) -> Filled:
        if len(values) == 0:
            return expanded(values, lambda *_: [])
        order = np.lexsort((np.arange(len(values)), time, group))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        before, after = neighbours(values, time, group)
        columns = [_Column(values[order, k], time[order], group[order], self.k) for k in range(values.shape[1])]

        def gaps(rows: Ints, hole: int) -> tuple[Ints, Ints, Ints]:
            """Of rows the places, and how many rows off their neighbours are; 0: there is none."""
            at = place[rows]
            low, high = before[rows, hole], after[rows, hole]
            return at, np.where(low >= 0, at - place[low], 0), np.where(high >= 0, place[high] - at, 0)

        def choices(holed: Floats, holes: Ints, rows: Ints) -> list[Choices]:
            n = len(holed)
            own = [(columns[hole], *gaps(rows, hole)) for hole in holes.tolist()]
            errors = [column.errors(back, ahead) for column, _, back, ahead in own]
            if self.joint and len(holes) > 1:
                _together(own, errors, self.k)
            lines = [column.line(at, back, ahead) for column, at, back, ahead in own]
            samples = [line[:, None] + error for line, error in zip(lines, errors, strict=True)]
            begin, count = np.arange(n) * self.k, np.full(n, self.k)
            shares, way = np.full(n * self.k, 1.0 / self.k), np.zeros(n, np.int64)
            if self.joint:
                table = np.stack(samples, axis=2).reshape(-1, len(holes))
                return [Choices(holes, begin, count, table, shares, way)]
            return [
                Choices(np.array([hole]), begin, count, one.reshape(-1, 1), shares, way)
                for hole, one in zip(holes.tolist(), samples, strict=True)
            ]

        return expanded(values, choices, None if self.joint else _MOST_SAMPLES, wanted)


def _together(own: Sequence[tuple[_Column, Ints, Ints, Ints]], errors: Sequence[Floats], k: int) -> None:
    """Put errors that were made in the same rows in place of quantiles of each attribute, where there are enough."""
    codes = np.column_stack([part for _, _, back, ahead in own for part in (back, ahead)])
    kinds, which = np.unique(codes, axis=0, return_inverse=True)
    for number, gaps in enumerate(kinds):
        made = [column.made(int(gaps[2 * i]), int(gaps[2 * i + 1])) for i, (column, *_) in enumerate(own)]
        rows = np.flatnonzero(np.isfinite(np.sum(made, axis=0)))
        if len(rows) < max(k, _LEAST):
            continue
        # Those of most weight lead: in their order the quantiles are taken.
        leader = int(np.argmax([np.ptp(one[rows]) for one in made]))
        rows = rows[np.argsort(made[leader][rows], kind="stable")]
        rows = rows[(2 * np.arange(k) + 1) * len(rows) // (2 * k)]
        for error, one in zip(errors, made, strict=True):
            error[which.reshape(-1) == number] = one[rows]


class _Column:
    """One attribute in order of partition and time."""

    def __init__(self, values: Floats, time: Ints, group: Ints, k: int) -> None:
        self.values, self.time, self.group, self.k = values, time.astype(np.float64), group, k
        self._known: dict[tuple[int, int], Floats] = {}
        self._blind: dict[tuple[int, int], bool] = {}
        there = values[~np.isnan(values)]
        self._middle = there.mean() if len(there) else np.nan
        self._marginal = np.quantile(there, _shares(k)) - self._middle if len(there) else np.full(k, np.nan)

    def line(self, at: Ints, back: Ints, ahead: Ints) -> Floats:
        """What values at some places are predicted to be, from those so many rows before and after."""
        blind = [self._is_blind(b, a) for b, a in zip(back.tolist(), ahead.tolist(), strict=True)]
        found: Floats = np.where(np.array(blind, bool), self._middle, self._line(at, back, ahead))
        return np.where((back == 0) & (ahead == 0), np.nan, found)

    def errors(self, back: Ints, ahead: Ints) -> Floats:
        """Quantiles of the errors made at values that are there, from neighbours as far off, (n, k)."""
        pairs = zip(back.tolist(), ahead.tolist(), strict=True)
        return np.array([self._errors(b, a) for b, a in pairs]).reshape(len(back), self.k)

    def made(self, back: int, ahead: int) -> Floats:
        """The errors made at all places, from neighbours so many rows off; NaN where they are not known."""
        n = len(self.values)
        found = np.full(n, np.nan)
        at = np.arange(back, n - ahead)
        if (back == 0 and ahead == 0) or len(at) == 0:
            return found
        at = at[(self.group[at - back] == self.group[at]) & (self.group[at + ahead] == self.group[at])]
        size = np.full(len(at), 1)
        found[at] = self.values[at] - self._line(at, back * size, ahead * size)
        return found

    def _line(self, at: Ints, back: Ints, ahead: Ints) -> Floats:
        low, high = self.values[at - back], self.values[np.minimum(at + ahead, len(self.values) - 1)]
        t, t_low, t_high = self.time[at], self.time[at - back], self.time[np.minimum(at + ahead, len(self.values) - 1)]
        share = (t - t_low) / np.where(t_high > t_low, t_high - t_low, 1.0)
        share = np.where(back == 0, 1.0, np.where(ahead == 0, 0.0, share))
        low, high = np.where(back == 0, high, low), np.where(ahead == 0, low, high)
        found: Floats = low + share * (high - low)
        return found

    def _is_blind(self, back: int, ahead: int) -> bool:
        """Whether no more than a few values have neighbours so far off."""
        self._errors(back, ahead)
        return self._blind[back, ahead]

    def _errors(self, back: int, ahead: int) -> Floats:
        if (back, ahead) not in self._known:
            made = self.made(back, ahead)
            made = made[np.isfinite(made)]
            blind = len(made) < _LEAST and len(self.values) > _LEAST * _FEW
            self._blind[back, ahead] = blind
            quantiles = np.quantile(made, _shares(self.k)) if len(made) else np.zeros(self.k)
            self._known[back, ahead] = self._marginal if blind else quantiles
        return self._known[back, ahead]


def _shares(k: int) -> Floats:
    shares: Floats = (np.arange(k) + 0.5) / k
    return shares
