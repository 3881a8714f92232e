"""Readings by what their sensors have done of late, in place of their values: summaries, slopes, patterns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.kernels.bins import bin_floors, bin_keys
from appulse.kernels.properties import PATTERN, SLOPE, SUMMARY, Found, Measured, link, properties
from appulse.model.readings import Readings, numbers_of
from appulse.model.strings import encode, order_bits
from appulse.operators.buffers import Column, Rows
from appulse.operators.labels import LabelNumbers
from appulse.operators.names import Names
from appulse.operators.sensor_order import order_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Floats, Ints


_SENSOR = (1 << 32) - 1
KINDS = {"summary": SUMMARY, "slope": SLOPE, "pattern": PATTERN}
# So many sensors are known at least before those without a reading are forgotten.
_UNITS = 1 << 17
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
        self._rows, self._dropped = Rows(), 0
        self._time, self._value = Column(np.int64, rows=self._rows), Column(np.float64, rows=self._rows)
        self._before = Column(np.int64, rows=self._rows)  # counted from the first reading there ever was
        self._units: dict[int, int] = {}
        self._latest, self._most = np.empty(0, np.int64), _UNITS
        self.looked = 0  # how often readings were looked at

    def of(self, parts: Sequence[Readings], *, keeping: bool = True) -> list[Readings]:
        """Whole ticks, later than all before, by their property; those that have none are left out."""
        parts = [part for part in parts if len(part)]
        if not parts:
            return []
        readings = Readings.concat(parts)
        order = order_of(readings)
        readings = readings if order is None else readings.take(order)
        n, begin = len(readings), len(self._rows)
        unit = self._sensors.of(readings.sensor) + (self._groups.of(readings.group, n) << 32)
        units, dense = np.unique(unit, return_inverse=True)
        numbers = self._numbered(units)
        latest = self._latest[numbers]
        new = self._rows.grow(n)
        self._time.data[new] = readings.time
        self._value.data[new] = numbers_of(readings.bits, readings.label, self._asked.value_type)
        by_unit = link(dense.astype(np.int64), latest, self._dropped, begin, self._before.view)
        found = Found(np.empty(n), np.empty(n), np.empty(n, np.int64))
        measured = Measured(self._time.view, self._value.view, self._before.view, self._dropped)
        self.looked += properties(measured, begin, *by_unit, self._asked.over, KINDS[self._asked.kind], found)
        if keeping:
            self._latest[numbers] = latest
            self._drop(int(readings.time[-1]) - self._asked.over)
        else:
            self._rows.end -= n
        if self._asked.kind == "summary":
            return [self._by_summary(readings, found.first, found.second)]
        if self._asked.kind == "slope":
            return [self._by_slope(readings, found.first)]
        return [_by_pattern(readings, found.signs)]

    def _numbered(self, units: Ints) -> Ints:
        """Where each unit's latest reading is kept; new ones have none."""
        known = self._units
        numbers = np.array([known.setdefault(unit, len(known)) for unit in units.tolist()], np.int64)
        if len(known) > len(self._latest):
            more = np.full(2 * len(known) - len(self._latest), -1, np.int64)
            self._latest = np.concatenate([self._latest, more])
        return numbers

    def _drop(self, before: int) -> None:
        """Forget readings older than that, and units that have none any more once most have none."""
        dropped = int(np.searchsorted(self._time.view, before))
        self._rows.drop(dropped)
        self._dropped += dropped
        if len(self._units) > self._most:
            live = [unit for unit, number in self._units.items() if self._latest[number] >= self._dropped]
            self._latest = self._latest[[self._units[unit] for unit in live]]
            fresh = self._named_anew(np.array(live, np.int64))
            self._units = {unit: number for number, unit in enumerate(fresh.tolist())}
            self._most = max(_UNITS, 2 * len(live))

    def _named_anew(self, units: Ints) -> Ints:
        """Other numbers for these units; the sensors and groups of no other are known any more."""
        (sensors, sensor), (groups, group) = (
            np.unique(numbers, return_inverse=True) for numbers in (units & _SENSOR, units >> 32)
        )
        strings, labels = self._sensors.strings.take(sensors), [self._groups.values[k] for k in groups.tolist()]
        self._sensors, self._groups = Names(), LabelNumbers()
        found: Ints = self._sensors.of(strings)[sensor] + (self._groups.add(labels)[group] << 32)
        return found

    def _by_summary(self, readings: Readings, mean: Floats, spread: Floats) -> Readings:
        width = self._asked.resolution or 1.0
        floors = [_floors(numbers, width) * width for numbers in (mean, spread)]
        pairs, codes = np.unique(np.stack(floors, axis=1), axis=0, return_inverse=True)
        rows = pa.StructArray.from_arrays([pa.array(pairs[:, 0]), pa.array(pairs[:, 1])], fields=list(SUMMARIES))
        codes = codes.reshape(-1).astype(np.int64)
        return replace(readings, bits=codes, key=None, label=tuple(encode(rows).to_list()))

    def _by_slope(self, readings: Readings, slope: Floats) -> Readings:
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


def _floors(numbers: Floats, width: float) -> Floats:
    keys, floors = np.empty(len(numbers), np.int64), np.empty(len(numbers))
    bin_keys(numbers, width, keys)
    bin_floors(keys, floors)
    return floors


def _by_pattern(readings: Readings, signs: Ints) -> Readings:
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
