"""What all heads hold: one operator of the engines, of which each head is a group, so that heads never meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from appulse.model.readings import Readings
from appulse.model.strings import Bytes, Labels
from appulse.operators.sensor_join import SensorJoin, SensorPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Ints
    from appulse.operators.sensor_join import Matches


class Observations(NamedTuple):
    """Readings as they are numbered: sensor, time in microseconds, bin, and its window, shapes (n,)."""

    sensor: Ints
    time: Ints
    bin: Ints
    window: Ints


class Met(NamedTuple):
    """Matches: reading ``reading[i]`` met one of ``sensor[i]`` at ``time[i]``."""

    reading: Ints
    sensor: Ints
    time: Ints

    @staticmethod
    def concat(parts: Sequence[Met]) -> Met:
        """All of them, one after the other."""
        columns = zip(*parts, strict=True) if parts else [[np.empty(0, np.int64)]] * 3
        return Met(*(np.concatenate(column) for column in columns))


class Store:
    """Readings held by heads. ``rank`` (nodes,) is the order of sensors at one time: head, then number."""

    def __init__(self, observations: Observations, rank: Ints, span: int) -> None:
        """``span``: for how long readings can be asked for, microseconds."""
        self._all, self._rank = observations, rank
        self._node = np.empty(len(rank), np.int64)
        self._node[rank] = np.arange(len(rank))
        self._names = _names(len(rank))
        self._join = SensorJoin(SensorPlan(span, pa.int64(), own=True))
        self._known: Ints = np.empty(0, np.int64)

    def insert_probe(self, numbers: Ints, heads: Ints) -> Met:
        """Readings come to their heads, and meet what is there."""
        return self._met(self._join.push([self.readings(numbers, heads)]))

    def probe(self, numbers: Ints, heads: Ints, since: Ints) -> Met:
        """What readings, in order of their numbers, meet at other heads that kept what came ``since`` then."""
        met = self._met(self._join.probe([self.readings(numbers, heads)]))
        if len(met.reading) == 0:
            return met
        # A probe comes late: readings after it, and some that the head forgot, are still in the structure.
        time, sensor = self._all.time[met.reading], self._all.sensor[met.reading]
        before = (met.time < time) | ((met.time == time) & (self._rank[met.sensor] < self._rank[sensor]))
        kept = before & (met.time >= since[np.searchsorted(numbers, met.reading)])
        return Met(met.reading[kept], met.sensor[kept], met.time[kept])

    def readings(self, numbers: Ints, heads: Ints) -> Readings:
        """As the operator takes them: values are numbers of readings, so what comes out shows which it was."""
        some = self._all
        return Readings(
            time=some.time[numbers],
            sensor=Bytes.fixed(self._rank[some.sensor[numbers]].astype(">u8").view(np.uint8).reshape(-1, 8)),
            bits=numbers,
            key=some.bin[numbers],
            group=_labels(heads, self._names),
            length=some.window[numbers],
        )

    def _met(self, found: Sequence[Matches]) -> Met:
        if len(self._known) != len(self._join.sensors):
            names = self._join.sensors.strings.slice(1, len(self._join.sensors))
            self._known = np.append(-1, self._node[names.data.view(">u8").astype(np.int64)])
        parts = []
        for matches in found:
            group_of = np.repeat(np.arange(len(matches.sensor)), np.diff(matches.begin))
            probe_of = np.repeat(matches.probe, np.diff(matches.first))
            reading = matches.readings.bits[probe_of][group_of]
            parts.append(Met(reading, self._known[matches.sensor][group_of], matches.time))
        return Met.concat(parts)


def _names(n: int) -> list[bytes]:
    """Labels of the numbers below n, in their order; a label begins with its length."""
    return [(4).to_bytes(4, "little") + number.to_bytes(4, "big") for number in range(n)]


def _labels(numbers: Ints, names: Sequence[bytes]) -> Labels:
    used, codes = np.unique(numbers, return_inverse=True)
    return Labels(codes.astype(np.int32), tuple(names[i] for i in used.tolist()))
