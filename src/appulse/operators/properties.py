"""Readings by what their sensors have done of late, in place of their values: summaries, slopes, patterns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.kernels.bins import bin_floors, bin_keys
from appulse.kernels.properties import PATTERN, SLOPE, SUMMARY, Measured, properties
from appulse.model.readings import Readings, numbers_of
from appulse.model.strings import encode, order_bits
from appulse.operators.labels import LabelNumbers
from appulse.operators.names import Names
from appulse.operators.sensor_order import order_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


KINDS = {"summary": SUMMARY, "slope": SLOPE, "pattern": PATTERN}
SUMMARIES = pa.struct([("mean", pa.float64()), ("spread", pa.float64())])


@dataclass(frozen=True)
class Property:
    """Which property, over how long (microseconds), in bins of which width; a slope without is its sign."""

    kind: str
    over: int
    resolution: float | None
    value_type: pa.DataType  # of the readings

    @property
    def result_type(self) -> pa.DataType:
        """Of the property."""
        return {"summary": SUMMARIES, "slope": pa.float64(), "pattern": pa.string()}[self.kind]

    @property
    def binned(self) -> bool:
        """Whether keys are those of bins."""
        return self.kind == "slope" and self.resolution is not None


class Properties:
    """The readings that the next ones are judged by."""

    def __init__(self, asked: Property) -> None:
        self._asked = asked
        self._sensors, self._groups = Names(), LabelNumbers()
        self._time, self._unit = np.empty(0, np.int64), np.empty(0, np.int64)
        self._value = np.empty(0)

    def of(self, parts: Sequence[Readings], *, keeping: bool = True) -> list[Readings]:
        """Whole ticks, later than all before, by their property; those that have none are left out."""
        parts = [part for part in parts if len(part)]
        if not parts:
            return []
        readings = Readings.concat(parts)
        order = order_of(readings)
        readings = readings if order is None else readings.take(order)
        time, n, begin = readings.time, len(readings), len(self._time)
        unit = self._sensors.of(readings.sensor) + (self._groups.of(readings.group, n) << 32)
        value = numbers_of(readings.bits, readings.label, self._asked.value_type)
        time, unit = np.concatenate([self._time, time]), np.concatenate([self._unit, unit])
        value = np.concatenate([self._value, value])
        first, second, signs = np.empty(n), np.empty(n), np.empty(n, np.int64)
        _, dense = np.unique(unit, return_inverse=True)
        measured = Measured(time, dense.astype(np.int64), value)
        properties(measured, begin, self._asked.over, KINDS[self._asked.kind], first, second, signs)
        if keeping:
            held = slice(int(np.searchsorted(time, time[-1] - self._asked.over)), None)
            self._time, self._unit, self._value = time[held].copy(), unit[held].copy(), value[held].copy()
        if self._asked.kind == "summary":
            return [self._by_summary(readings, first, second)]
        if self._asked.kind == "slope":
            return [self._by_slope(readings, first)]
        return [_by_pattern(readings, signs)]

    def _by_summary(self, readings: Readings, mean: NDArray[np.float64], spread: NDArray[np.float64]) -> Readings:
        width = self._asked.resolution or 1.0
        floors = [_floors(numbers, width) * width for numbers in (mean, spread)]
        pairs, codes = np.unique(np.stack(floors, axis=1), axis=0, return_inverse=True)
        rows = pa.StructArray.from_arrays([pa.array(pairs[:, 0]), pa.array(pairs[:, 1])], fields=list(SUMMARIES))
        codes = codes.reshape(-1).astype(np.int64)
        return replace(readings, bits=codes, key=None, label=tuple(encode(rows).to_list()))

    def _by_slope(self, readings: Readings, slope: NDArray[np.float64]) -> Readings:
        known = np.flatnonzero(~np.isnan(slope))
        readings, slope = readings.take(known), slope[known]
        width = self._asked.resolution
        if width is None:
            slope = np.sign(slope)
        ordered = order_bits(pa.array(slope))
        bits = slope.view(np.int64) if ordered is None else ordered.view(np.int64)
        key = None
        if width is not None:
            key = np.empty(len(slope), np.int64)
            bin_keys(slope, width, key)
        return replace(readings, bits=bits, key=key, label=())


def _floors(numbers: NDArray[np.float64], width: float) -> NDArray[np.float64]:
    keys, floors = np.empty(len(numbers), np.int64), np.empty(len(numbers))
    bin_keys(numbers, width, keys)
    bin_floors(keys, floors)
    return floors


def _by_pattern(readings: Readings, signs: NDArray[np.int64]) -> Readings:
    known = np.flatnonzero(signs)
    patterns, codes = np.unique(signs[known], return_inverse=True)
    codes = codes.astype(np.int64)
    label = tuple(_spelled(number).encode() for number in patterns.tolist())
    return replace(readings.take(known), bits=codes, key=None, label=label)


def _spelled(number: int) -> str:
    """The steps of a pattern, the oldest first: "-" down, "0" level, "+" up."""
    steps = []
    while number > 1:
        number, digit = divmod(number, 3)
        steps.append("-0+"[digit])
    return "".join(reversed(steps))
