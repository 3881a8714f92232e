"""The sink: what heads found of a reading, put together as the operator's own answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.lab.network.store import Met, Observations, Store

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints
    from appulse.lab.network.topology import Clusters


class Assembled(NamedTuple):
    """Factorised answers in the order (time, head, sensor, number) of the readings ``probe``.

    Answer k has the groups ``first[k]`` to ``first[k + 1]``, group g the times ``begin[g]`` to ``begin[g + 1]``. All
    newest first, at one time the greater in that order.
    """

    probe: Ints
    first: Ints
    sensor: Ints
    begin: Ints
    time: Ints

    @property
    def elements(self) -> Floats:
        """How many elements the Cartesian product of each answer has."""
        if len(self.probe) == 0:
            return np.empty(0)
        return np.multiply.reduceat(np.diff(self.begin).astype(np.float64), self.first[:-1])

    @property
    def arity(self) -> Ints:
        """How many sensors each answer has beside the probing one."""
        return np.diff(self.first)


def assemble(met: Met, observations: Observations, rank: Ints) -> Assembled:
    """Group the matches by reading and sensor; ``rank`` is the order of sensors at one time."""
    if len(met.reading) == 0:
        none = np.empty(0, np.int64)
        return Assembled(none, np.zeros(1, np.int64), none, np.zeros(1, np.int64), none)
    place = np.empty(len(observations.time), np.int64)
    key = (np.arange(len(place)), rank[observations.sensor], observations.time)
    place[np.lexsort(key)] = np.arange(len(place))
    probe, sensor = place[met.reading], rank[met.sensor]
    order = np.lexsort((-met.time, sensor, probe))
    probe, sensor, time = probe[order], sensor[order], met.time[order]
    starts = np.flatnonzero(np.append(True, (np.diff(probe) != 0) | (np.diff(sensor) != 0)))
    sizes = np.diff(np.append(starts, len(time)))
    groups = np.lexsort((-sensor[starts], -time[starts], probe[starts]))
    starts, sizes = starts[groups], sizes[groups]
    begin = np.append(0, np.cumsum(sizes))
    taken = np.repeat(starts - begin[:-1], sizes) + np.arange(len(time))
    first = np.append(np.flatnonzero(np.append(True, np.diff(probe[starts]) != 0)), len(starts))
    return Assembled(met.reading[order][starts[first[:-1]]], first, met.sensor[order][starts], begin, time[taken])


def centralised(observations: Observations, clusters: Clusters) -> Assembled:
    """What one head that hears everybody at once would answer."""
    window = int(observations.window.max(initial=0))
    store = Store(observations, clusters.rank, window)
    numbers = np.arange(len(observations.time))
    return assemble(store.insert_probe(numbers, np.zeros(len(numbers), np.int64)), observations, clusters.rank)
