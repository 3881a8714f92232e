"""Versions of filters: when each is published, what it covers, when it has come, and what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.lab.network.filters import keys_of

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Ints
    from appulse.lab.network.filters import Filters
    from appulse.lab.network.settings import Settings
    from appulse.lab.network.store import Observations
    from appulse.lab.network.topology import Clusters
    from appulse.lab.network.traffic import Traffic


class Publisher:
    """What heads publish, all of them every so many rounds.

    Version v of head h is published at the end of its round and *covers* readings up to that time by the head's clock,
    less epsilon: all of those have been inserted. A probe of time T takes the first version that covers T, of every
    head, and waits until they have come. That version holds the bins of readings from the time the one before covers,
    less the window, on: whatever a probe between the two covers can meet.
    """

    def __init__(
        self,
        filters: Filters,
        observations: Observations,
        head: Ints,
        clock: Ints,
        clusters: Clusters,
        settings: Settings,
        start: int,
    ) -> None:
        self._filters, self._all, self._clusters = filters, observations, clusters
        self._settings, self._clock, self._start = settings, clock, start
        self._keys, self._code = keys_of(observations.bin)
        self._period = filters.every * settings.timing.round
        self._window = int(observations.window.max())
        self._head = head
        self._held = np.zeros(len(head), bool)
        self._by_time = np.argsort(observations.time, kind="stable")
        self._times = observations.time[self._by_time]
        self._came: dict[int, Ints] = {}
        self._says: list[Flags] = []
        self._bytes: list[Ints] = []
        self._live = np.zeros((len(clusters), len(self._keys)), bool)

    def leaves(self, numbers: Ints, number: int) -> Ints:
        """Readings were inserted in this round: the round in which all filters that each needs have come."""
        self._held[numbers] = True
        came = np.full(len(numbers), number)
        versions = self._versions(numbers)
        for version in np.unique(versions).tolist():
            row, head = np.nonzero(versions == version)
            np.maximum.at(came, row, self._arrivals(version)[head, self._head[numbers[row]]])
        return came

    def choose(self, numbers: Ints) -> Flags:
        """Which heads may hold something of each reading's bin, shape (readings, heads)."""
        versions, code = self._versions(numbers), self._code[numbers]
        wanted = np.zeros(versions.shape, bool)
        for version in np.unique(versions).tolist():
            row, head = np.nonzero(versions == version)
            wanted[row, head] = self._version(version)[head, code[row]]
        return wanted

    def account(self, traffic: Traffic) -> None:
        """Put every version's bytes on the air: from each head to all others."""
        hops, heads = self._clusters.between, len(self._clusters)
        apart = ~np.eye(heads, dtype=bool)
        for published in self._bytes:
            size = np.broadcast_to(self._settings.sizes.header + published[:, None], hops.shape)
            traffic.send("filters", size[apart], hops[apart])

    def _versions(self, numbers: Ints) -> Ints:
        """The first version of each head that covers each reading's time."""
        need = self._all.time[numbers][:, None] + self._settings.timing.epsilon - self._clock
        versions: Ints = -((self._start - need) // self._period)
        return np.maximum(versions, 0)

    def _covers(self, version: int) -> Ints:
        """Up to what time each head's version covers; None covers nothing before the first."""
        return self._start + version * self._period + self._clock - self._settings.timing.epsilon

    def _arrivals(self, version: int) -> Ints:
        """The round in which each head's version has come to each other, shape (heads, heads)."""
        if version not in self._came:
            timing, hops = self._settings.timing, self._clusters.between
            random = np.random.default_rng([self._settings.seed, 4, version])
            travel = hops * random.uniform(*timing.hop, hops.shape)
            self._came[version] = version * self._filters.every + np.ceil(travel / timing.round).astype(np.int64)
        return self._came[version]

    def _version(self, version: int) -> Flags:
        """What the filters of a version say of each key, shape (heads, keys)."""
        while len(self._says) <= version:
            live = self._live_at(len(self._says))
            published = [
                self._filters.kind.publish(new, self._keys, old) for new, old in zip(live, self._live, strict=True)
            ]
            self._bytes.append(np.array([size for _, size in published], np.int64))
            self._says.append(np.array([says for says, _ in published]))
            self._live = live
        return self._says[version]

    def _live_at(self, version: int) -> Flags:
        """The keys of the readings of each head that a probe may ask this version for."""
        last = self._covers(version)
        first = (last if version == 0 else self._covers(version - 1)) - self._window
        if version == 0:
            first = np.full_like(last, self._times[0])
        begin = np.searchsorted(self._times, first.min())
        end = np.searchsorted(self._times, last.max(), side="right")
        some = self._by_time[begin:end]
        head, time = self._head[some], self._all.time[some]
        some = some[self._held[some] & (time >= first[head]) & (time <= last[head])]
        live = np.zeros((len(self._clusters), len(self._keys)), bool)
        live[self._head[some], self._code[some]] = True
        return live
