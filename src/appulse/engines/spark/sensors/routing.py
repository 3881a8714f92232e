"""Which bucket a reading goes to: that of its value, which answers it; others that it may be met in hold a copy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from appulse.engines.spark.tiles import label_hash
from appulse.kernels.bins import bin_keys, mixed
from appulse.kernels.strings import hash_rows
from appulse.model.readings import numbers_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from appulse.kernels.arrays import Hashes, Ints
    from appulse.model.readings import Readings
    from appulse.model.strings import Labels
    from appulse.operators.sensor_join import SensorPlan

# Where values may differ, so many bins lie in one bucket together, lest readings are met in two of them.
_BINS = 16
# A value is hot if its readings are more than this share of a bucket's.
_HOT = 0.5


@dataclass(frozen=True)
class GroupRouting:
    """Buckets by group."""

    buckets: int

    def parts(self, readings: Readings) -> Iterator[tuple[int, Readings]]:
        """The readings of each bucket."""
        if self.buckets == 1 or readings.group is None:
            yield 0, readings
            return
        bucket = _label_hashes(readings.group) % np.uint64(self.buckets)
        for b in np.unique(bucket).tolist():
            yield b, readings.take(np.flatnonzero(bucket == b))


@dataclass(frozen=True)
class ValueRouting:
    """Buckets by value. ``hot`` are hashes of values that all buckets hold, and answer by turns."""

    buckets: int
    plan: SensorPlan
    hot: tuple[int, ...] = ()

    def parts(self, readings: Readings) -> Iterator[tuple[int, Readings]]:
        """The readings of each bucket, with those that it answers marked."""
        if self.buckets == 1:
            yield 0, readings
            return
        n = len(readings)
        homes, others = self.places(readings)
        rows, buckets = [np.arange(n)], [self._home(homes, readings)]
        hot = np.array(self.hot, np.uint64)
        for place in (homes, *others):
            everywhere = np.flatnonzero(np.isin(place, hot))
            rows.append(np.repeat(everywhere, self.buckets))
            buckets.append(np.tile(np.arange(self.buckets), len(everywhere)))
        for place in others:
            rows.append(np.arange(n))
            buckets.append((place % np.uint64(self.buckets)).astype(np.int64))
        row, bucket = np.concatenate(rows), np.concatenate(buckets)
        # The first of a row's copies in a bucket counts: the one that is answered stands before all others.
        _, first = np.unique(row * self.buckets + bucket, return_index=True)
        asks = first < n
        row, bucket = row[first], bucket[first]
        copied = len(row) > n
        for b in np.unique(bucket).tolist():
            mine = np.flatnonzero(bucket == b)
            part = readings.take(row[mine])
            yield b, replace(part, asks=asks[mine]) if copied else part

    def _home(self, homes: Hashes, readings: Readings) -> Ints:
        """The bucket that answers each reading: of a hot value, whichever its sensor and time say."""
        turns = hash_rows(readings.sensor.offsets, readings.sensor.data, readings.time)
        chosen = np.where(np.isin(homes, np.array(self.hot, np.uint64)), mixed(turns), homes)
        return (chosen % np.uint64(self.buckets)).astype(np.int64)

    def places(self, readings: Readings) -> tuple[Hashes, list[Hashes]]:
        """Hashes of the values, and of the places to either side that their reach touches."""
        group = np.zeros(len(readings), np.uint64) if readings.group is None else _label_hashes(readings.group)
        reach = self.plan.reach
        if reach is None and readings.key is None and readings.label:
            table = np.array([label_hash(value) for value in readings.label], np.uint64)
            return mixed(group ^ table[readings.bits]), []
        if reach is None:
            keys = readings.bits if readings.key is None else readings.key
            return mixed(group ^ mixed(keys.view(np.uint64))), []
        value = numbers_of(readings.bits, readings.label, self.plan.value_type)
        more = reach * (1.0 + 1e-15)
        ends = [value, np.nextafter(value - more, -np.inf), np.nextafter(value + more, np.inf)]
        places = []
        for end in ends:
            keys = np.empty(len(end), np.int64)
            bin_keys(end, _BINS * self.plan.width, keys)
            places.append(mixed(group ^ mixed(keys.view(np.uint64))))
        return places[0], places[1:]


def value_routing(plan: SensorPlan, buckets: int, sample: Readings | None) -> ValueRouting:
    """Where readings go, with the values that are hot in a sample."""
    routing = ValueRouting(buckets, plan)
    if sample is None or len(sample) == 0:
        return routing
    values, counts = np.unique(routing.places(sample)[0], return_counts=True)
    hot = values[counts > _HOT * len(sample) / buckets]
    return replace(routing, hot=tuple(hot.tolist()))


def _label_hashes(labels: Labels) -> Hashes:
    table = np.array([label_hash(value) for value in labels.values], np.uint64)
    return table[labels.codes]
