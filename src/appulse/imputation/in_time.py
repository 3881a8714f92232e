"""Imputers that look at the rows around: the last value of a stream, or its neighbours in time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np

from appulse.arguments import NAME, Attributes, checked, mapping, number
from appulse.errors import BadArgument, nearest
from appulse.imputation.samples import Choices, expanded
from appulse.imputation.simple import SimpleFill, Sparing, as_points
from appulse.kernels import lines as kernels
from appulse.model.filled import Fill
from appulse.model.meaning import real, seconds, without_defaults
from appulse.model.times import Duration, duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.filled import Filled
    from appulse.model.meaning import Meaning


#: Of rows with holes those to be filled; None: all.
Wanted: TypeAlias = "Flags | None"
_LARGE = 256  # binary exponent of values beyond which products of several may overflow


class AroundFill(SimpleFill):
    """A fill by values before and after a hole, in its partition, that knows when rows to come cannot change it.

    ``wait`` (microseconds; None: for ever) is how much later a value may be.
    """

    def __init__(self, name: str, meaning: Meaning, fill: Any, wait: int | None, *, looks_ahead: bool) -> None:
        super().__init__((name,), meaning, fill, in_order=True)
        self.wait, self._looks_ahead = wait, looks_ahead

    def settled(self, values: Floats, time: Ints, group: Ints, complete: int) -> Flags:
        """Which of the rows (n, d), all those before ``complete``, are filled for good."""
        before, after = neighbours(values, time, group)
        known = after >= 0
        if not self._looks_ahead:
            known |= before >= 0
        over = np.zeros(len(values), np.bool_) if self.wait is None else time < complete - self.wait
        return np.asarray((known | ~np.isnan(values)).all(axis=1) | over)


@checked
class LastValueImputer:
    """Fills a hole with the attribute's last value before it in the stream, within its partition.

    Arguments:
    * ``wait``: rows before the first value take the first one that comes, within this time of them: text, a timedelta,
      or seconds; where none ever does, they are rejects. In a stream a row before the first value holds up the rows
      behind it in its partition. Calls behind others in a streaming query of Spark's need to know for how long: give
      ``wait``. None: for ever.

    Pass it as ``imputer`` to `impute` and joins.

    Raises `BadArgument` for a wrong argument.

    >>> rows = pa.table({"id": [1, 1, 1], "t": [0, 10, 20], "x": [1.0, None, 3.0], "y": [5.0, 5.0, 5.0]})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y"))
    >>> ap.impute(stream, ap.LastValueImputer()).frame["imputed"][1].as_py()
    [[1.0, 5.0]]
    """

    def __init__(self, wait: Duration | None = None) -> None:
        self.wait = _waited(wait)

    @checked
    def bind(self, attributes: Attributes) -> Fill:  # noqa: ARG002 - it fills any
        """The object that fills rows with these attributes."""
        meaning: Meaning = without_defaults({"kind": "LastValueImputer", "wait": _wait_text(self.wait)}, {"wait": None})
        return AroundFill("last value", meaning, _LastValues(self.wait), self.wait, looks_ahead=False)


_Speeds: TypeAlias = Annotated[
    Mapping[str, float],
    mapping(NAME, number(least=0.0, infinite=True), "a mapping from attributes to speeds, at least 0"),
]


@checked
class SpeedImputer:
    """Fills a hole with the values before and after it in the stream, bounded by a greatest speed.

    Each neighbour within its partition is a candidate, with weight 1 / its distance in time; one that the other rules
    out, as it is further off than the speed allows, is left out. What Ren et al. 2019 compare with as con+join, in our
    reading: its text is lost.

    Arguments:
    * ``speeds``: a mapping from attributes to their greatest change in a second, at least 0; infinite where not named.
    * ``wait``: a value that is more than this time later is none: text, a timedelta, or seconds. In a stream a row
      waits for the value after it, and holds up the rows behind it in its partition. Calls behind others in a streaming
      query of Spark's need to know for how long: give ``wait``. None: for ever.

    Pass it as ``imputer`` to `impute` and joins.

    Raises `BadArgument` for a wrong argument, and in a call for a speed of an attribute that the value does not have.

    >>> rows = pa.table({"id": [1, 1, 1], "t": [0, 10, 20], "x": [1.0, None, 3.0], "y": [5.0, 5.0, 5.0]})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y"))
    >>> ap.impute(stream, ap.SpeedImputer({"x": 0.5})).frame["imputed"][1].as_py()
    [[1.0, 5.0], [3.0, 5.0]]
    """

    def __init__(self, speeds: _Speeds | None = None, wait: Duration | None = None) -> None:
        self.speeds, self.wait = dict(speeds or {}), _waited(wait)

    @checked
    def bind(self, attributes: Attributes) -> Fill:
        """The object that fills rows with these attributes."""
        for name in self.speeds:
            if name not in attributes:
                raise BadArgument(f"SpeedImputer names an attribute {name!r}.{nearest(name, attributes)}")
        speeds = np.array([self.speeds.get(name, math.inf) for name in attributes])
        given = {n: real(of) for n, of in self.speeds.items()}
        meaning: Meaning = {"kind": "SpeedImputer", "speeds": given, "wait": _wait_text(self.wait)}
        meaning = without_defaults(meaning, {"speeds": {}, "wait": None})
        fill = _Speeding(speeds, self.wait)
        return AroundFill("neighbours in time", meaning, fill, self.wait, looks_ahead=True)


def _waited(wait: Duration | None) -> int | None:
    """A wait in microseconds."""
    if wait is None:
        return None
    micros = duration(wait, "wait")
    if micros < 0:
        raise BadArgument(f"wait={wait!r} is less than 0. Give how long a row may wait, such as '1 hour'.")
    return micros


def _wait_text(wait: int | None) -> str | None:
    return None if wait is None else seconds(wait)


def _in_time(after: Ints, time: Ints, wait: int | None) -> Ints:
    """The rows of the values after, -1 where these come too late."""
    if wait is None:
        return after
    return np.where((after >= 0) & (time[np.maximum(after, 0)] - time[:, None] <= wait), after, -1)


def neighbours(values: Floats, time: Ints, group: Ints) -> tuple[Ints, Ints]:
    """Of each value (n, d) the row of the last one before it in time that is there, and of the next; -1 if none is."""
    n, d = values.shape
    order = np.lexsort((np.arange(n), time, group))
    before, after = np.empty((n, d), np.int64), np.empty((n, d), np.int64)
    kernels.neighbours(~np.isnan(values), group, order, before, after)
    return before, after


class Rescaled(Sparing):
    """A fill that is the same in any unit, in one for each attribute in which nothing on the way to it overflows."""

    def __init__(self, fill: Callable[[Floats, Ints, Ints, Wanted], Filled]) -> None:
        self.fill = fill

    def __call__(self, values: Floats, time: Ints, group: Ints, wanted: Wanted = None) -> Filled:
        unit = without_overflow(values)
        if (unit == 1.0).all():
            return self.fill(values, time, group, wanted)
        filled = self.fill(values / unit, time, group, wanted)
        given = np.repeat(values, np.diff(filled.first), axis=0)
        return replace(filled, rows=np.where(np.isnan(given), filled.rows * unit, given))


def without_overflow(values: Floats) -> Floats:
    """A unit for each column, a power of two: 1, but for large values their greatest."""
    exponent = np.frexp(np.abs(np.nan_to_num(values)).max(axis=0, initial=0.0))[1]
    return np.where(exponent > _LARGE, np.ldexp(1.0, np.minimum(exponent, 1023)), 1.0)


class _LastValues:
    def __init__(self, wait: int | None) -> None:
        self.wait = wait

    def __call__(self, values: Floats, time: Ints, group: Ints) -> Filled:
        if len(values) == 0:
            return as_points(values, values)
        before, after = neighbours(values, time, group)
        row = np.where(before >= 0, before, _in_time(after, time, self.wait))
        found = np.where(row >= 0, np.take_along_axis(values, np.maximum(row, 0), axis=0), np.nan)
        return as_points(values, np.where(np.isnan(values), found, values))


class _Speeding(Sparing):
    def __init__(self, speeds: Floats, wait: int | None) -> None:
        self.speeds, self.wait = speeds, wait

    def __call__(self, values: Floats, time: Ints, group: Ints, wanted: Wanted = None) -> Filled:
        if len(values) == 0:
            return as_points(values, values)
        before, after = neighbours(values, time, group)
        after = _in_time(after, time, self.wait)
        known = [
            self._candidates(values[:, k], time, before[:, k], after[:, k], float(self.speeds[k]))
            for k in range(values.shape[1])
        ]

        def choices(values: Floats, holes: Ints, rows: Ints) -> list[Choices]:
            found = []
            for hole in holes.tolist():
                candidates, shares = (array[rows] for array in known[hole])
                kept = shares > 0.0
                count = kept.sum(axis=1)
                begin = np.cumsum(count) - count
                way = np.zeros(len(values), np.int64)
                found.append(Choices(np.array([hole]), begin, count, candidates[kept][:, None], shares[kept], way))
            return found

        return expanded(values, choices, wanted=wanted)

    @staticmethod
    def _candidates(column: Floats, time: Ints, before: Ints, after: Ints, speed: float) -> tuple[Floats, Floats]:
        """Both neighbours' values and their shares, (n, 2) each."""
        rows = np.column_stack([before, after])
        there = rows >= 0
        value = np.where(there, column[np.maximum(rows, 0)], 0.0)
        gap = np.maximum(np.abs(time[:, None] - time[np.maximum(rows, 0)]) / 1e6, 1e-6)
        # A candidate is plausible if the other neighbour can be reached from it in time; what overflows is too far.
        off = np.abs(value[:, 0] - value[:, 1])
        plausible = np.column_stack([off <= speed * gap[:, 1], off <= speed * gap[:, 0]])
        # Where one neighbour is alone, or both rule each other out, there is nothing to choose by.
        free = ~there.all(axis=1, keepdims=True) | ~plausible.any(axis=1, keepdims=True)
        weight = np.where(there & (plausible | free), 1.0 / gap, 0.0)
        never = ~there.any(axis=1)  # nothing is known of the attribute
        weight[never, 0], value[never, 0] = 1.0, np.nan
        return value, weight / weight.sum(axis=1, keepdims=True)
