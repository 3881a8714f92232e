"""Values between those before and after them in time, with the errors that this makes elsewhere in the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np

from appulse.arguments import Attributes, checked, whole
from appulse.imputation.in_time import Rescaled, neighbours
from appulse.imputation.samples import Choices, expanded
from appulse.imputation.simple import SimpleFill
from appulse.model.filled import Fill
from appulse.model.meaning import without_defaults

if TYPE_CHECKING:
    from appulse.imputation.repository import Floats, Ints
    from appulse.model.filled import Filled

_MOST_SAMPLES = 1024  # of a row: quantiles of few holes, coarser ones of many


@checked
class InterpolationImputer:
    """Fills a hole on the line between the values before and after it in the stream, give or take the errors of that.

    The errors are those that values of the stream show which are there, foretold from neighbours as far off as those of
    the hole, in rows: ``k`` quantiles of them. Where there is a neighbour on one side only, it is taken as it is.
    Attributes are filled independently, within their partition, by at most 1,024 samples together. It needs whole
    frames.
    """

    def __init__(self, k: Annotated[int, whole(1, 1 << 16)] = 16) -> None:
        self.k = k

    @checked
    def bind(self, attributes: Attributes) -> Fill:  # noqa: ARG002 - it fills any
        """What fills rows with these attributes."""
        meaning = without_defaults({"kind": "InterpolationImputer", "k": self.k}, {"k": 16})
        return SimpleFill(("interpolation",), meaning, Rescaled(_Interpolated(self.k)), in_order=True)


class _Interpolated:
    def __init__(self, k: int) -> None:
        self.k = k

    def __call__(self, values: Floats, time: Ints, group: Ints) -> Filled:
        if len(values) == 0:
            return expanded(values, lambda *_: [])
        order = np.lexsort((np.arange(len(values)), time, group))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        before, after = neighbours(values, time, group)
        columns = [_Column(values[order, k], time[order], group[order], self.k) for k in range(values.shape[1])]

        def choices(holed: Floats, holes: Ints, rows: Ints) -> list[Choices]:
            found = []
            for hole in holes.tolist():
                at, low, high = (
                    np.where(own >= 0, place[own], -1) for own in (rows, before[rows, hole], after[rows, hole])
                )
                samples = columns[hole].samples(at, low, high)
                n, k = samples.shape
                begin, count = np.arange(n) * k, np.full(n, k)
                way = np.zeros(len(holed), np.int64)
                found.append(
                    Choices(np.array([hole]), begin, count, samples.reshape(-1, 1), np.full(n * k, 1.0 / k), way)
                )
            return found

        return expanded(values, choices, _MOST_SAMPLES)


class _Column:
    """One attribute in order of partition and time."""

    def __init__(self, values: Floats, time: Ints, group: Ints, k: int) -> None:
        self.values, self.time, self.group, self.k = values, time.astype(np.float64), group, k
        self._known: dict[tuple[int, int], Floats] = {}

    def samples(self, at: Ints, low: Ints, high: Ints) -> Floats:
        """What values at some places may be, (n, k), from their neighbours' places; -1 where there is none."""
        back, ahead = np.where(low >= 0, at - low, 0), np.where(high >= 0, high - at, 0)
        errors = np.array([self._errors(b, a) for b, a in zip(back.tolist(), ahead.tolist(), strict=True)])
        samples: Floats = self._line(at, back, ahead)[:, None] + errors.reshape(len(at), self.k)
        return samples

    def _line(self, at: Ints, back: Ints, ahead: Ints) -> Floats:
        """The values foretold from those so many rows before and after; 0 rows: there is none."""
        low, high = self.values[at - back], self.values[np.minimum(at + ahead, len(self.values) - 1)]
        t, t_low, t_high = self.time[at], self.time[at - back], self.time[np.minimum(at + ahead, len(self.values) - 1)]
        share = (t - t_low) / np.where(t_high > t_low, t_high - t_low, 1.0)
        share = np.where(back == 0, 1.0, np.where(ahead == 0, 0.0, share))
        low, high = np.where(back == 0, high, low), np.where(ahead == 0, low, high)
        found: Floats = np.where((back == 0) & (ahead == 0), 0.0, low + share * (high - low))
        return found

    def _errors(self, back: int, ahead: int) -> Floats:
        """Quantiles of the errors made at values that are there, from neighbours as far off."""
        if (back, ahead) not in self._known:
            self._known[back, ahead] = self._quantiles(back, ahead)
        return self._known[back, ahead]

    def _quantiles(self, back: int, ahead: int) -> Floats:
        n = len(self.values)
        at = np.arange(back, n - ahead)
        if (back == 0 and ahead == 0) or len(at) == 0:
            return np.zeros(self.k)
        at = at[(self.group[at - back] == self.group[at]) & (self.group[at + ahead] == self.group[at])]
        size = np.full(len(at), 1)
        errors = self.values[at] - self._line(at, back * size, ahead * size)
        errors = errors[np.isfinite(errors)]
        return np.quantile(errors, (np.arange(self.k) + 0.5) / self.k) if len(errors) else np.zeros(self.k)
