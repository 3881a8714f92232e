"""The distributed SNJoin, round by round: readings reach their heads, probes go from head to head, answers to the sink.

Ali et al., Sec. 3 and 5, Fig. 5. Nodes wake at the end of every round; what a node sends is handled in a later round
at the earliest. So all heads can do a round's work at once, and the outcome follows from the seed alone.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.errors import BadArgument
from appulse.lab.network.assembling import Assembled, assemble
from appulse.lab.network.filters import Filters
from appulse.lab.network.probing import Everyone
from appulse.lab.network.publishing import Publisher
from appulse.lab.network.settings import Settings
from appulse.lab.network.store import Met, Observations, Store
from appulse.lab.network.traffic import Parcels, Traffic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from appulse.kernels.arrays import Ints
    from appulse.lab.network.probing import Policy
    from appulse.lab.network.topology import Clusters


@dataclass(frozen=True)
class Outcome:
    """What came of a run. ``late`` readings came too late to be in order, ``shed`` ones met a busy head.

    ``delay`` is the microseconds from each answer's reading to its arrival at the sink, in order of arrival; ``sent``
    how many heads each reading was sent to.
    """

    answers: Assembled
    traffic: Traffic
    late: Ints
    shed: Ints
    delay: Ints
    sent: Ints
    arrivals: Ints  # the readings whose answers came to the sink, in order of arrival


def simulate(
    observations: Observations,
    clusters: Clusters,
    policy: Policy | Filters | None = None,
    settings: Settings | None = None,
) -> Outcome:
    """Run the network until nothing is on its way any more.

    Readings may come in any order; their times are those of their sensors' clocks. ``policy`` is how heads are chosen:
    all of them (None), `Feedback`, or by `Filters`, of which nothing is lost.
    """
    _check(observations, clusters)
    return _Run(observations, clusters, policy, settings or Settings()).outcome()


def _check(observations: Observations, clusters: Clusters) -> None:
    """Raise `BadArgument` where readings cannot be those of the nodes."""
    lengths = {name: len(column) for name, column in observations._asdict().items()}
    if len(set(lengths.values())) > 1:
        raise BadArgument(f"Readings have columns of unequal length: {lengths}.")
    if len(observations.time) == 0:
        raise BadArgument("There are no readings to simulate.")
    nodes, sensor = len(clusters.of), observations.sensor
    if sensor.min() < 0 or sensor.max() >= nodes:
        raise BadArgument(
            f"Readings are of sensors {sensor.min()} to {sensor.max()}, and there are {nodes} nodes. Number sensors "
            "by their nodes, from 0."
        )
    if observations.window.min() < 0:
        raise BadArgument(f"A window of {observations.window.min()} microseconds is none. Give 0 or more.")


class _Run:
    """One run. Messages are numbers of readings: each reading has at most one message on its way."""

    def __init__(
        self, observations: Observations, clusters: Clusters, policy: Policy | Filters | None, settings: Settings
    ) -> None:
        self._all, self._clusters, self._set = observations, clusters, settings
        n, heads, timing = len(observations.time), len(clusters), settings.timing
        self._random = np.random.default_rng([settings.seed, 1])
        self._clock = self._skews(2, heads)
        self._sensor_clock = self._skews(3, len(clusters.of))[observations.sensor]
        self._start = int(observations.time.min()) // timing.round * timing.round
        self._hops = int(clusters.between.max(initial=1))
        every = policy.every if isinstance(policy, Filters) else 0
        hold = (every + 1) * timing.round + timing.delay(self._hops) + timing.epsilon if every else 0
        window = int(observations.window.max())
        self._kept = timing.retention(settings.retention, window, self._hops, heads, hold)
        span = timing.retention("corrected", window, self._hops, heads, hold) + self._kept
        self._store = Store(observations, clusters.rank, span)
        self._parcels, self._traffic = Parcels.of(n, settings.sizes), Traffic()
        self._head = clusters.of[observations.sensor]
        self._streams = np.bincount(clusters.of, minlength=heads)
        self._work = np.broadcast_to(np.asarray(settings.work, np.float64), heads)
        self._sequence = np.full((n, max(heads - 1, 1)), -1, np.int16)
        self._at = np.zeros(n, np.int64)
        self._sent = np.zeros(n, np.int64)
        self._inserts, self._leaving = _Rounds(), _Rounds()
        self._due, self._notes = _Rounds(), _Rounds()
        self._met: list[Met] = []
        self._useful = np.zeros((n, heads), bool)
        self._shed: list[Ints] = []
        self._arrived = np.full(n, -1, np.int64)
        self._publisher = (
            Publisher(policy, observations, self._head, self._clock, clusters, settings, self._start)
            if isinstance(policy, Filters)
            else None
        )
        self._policy: Policy = Everyone(heads) if policy is None or isinstance(policy, Filters) else policy

    def outcome(self) -> Outcome:
        late = self._report()
        rounds = (self._inserts, self._leaving, self._due, self._notes)
        while any(rounds):
            number = min(first for first in (each.first() for each in rounds) if first is not None)
            self._round(number)
        if self._publisher:
            self._publisher.account(self._traffic)
        arrivals = np.flatnonzero(self._arrived >= 0)
        arrivals = arrivals[np.argsort(self._arrived[arrivals], kind="stable")]
        truth = self._all.time - self._sensor_clock
        return Outcome(
            assemble(self._delivered(Met.concat(self._met)), self._all, self._clusters.rank),
            self._traffic,
            late,
            np.concatenate([np.empty(0, np.int64), *self._shed]),
            self._arrived[arrivals] - truth[arrivals],
            self._sent,
            arrivals,
        )

    def _report(self) -> Ints:
        """Readings to their heads: when each is handled; those that come too late for that."""
        timing, n = self._set.timing, len(self._all.time)
        node = self._clusters.head[self._head]
        hops = np.where(self._all.sensor == node, 0, 1)
        self._traffic.send("reports", np.full(n, self._set.sizes.header + self._set.sizes.reading), hops)
        came = self._all.time - self._sensor_clock + self._random.integers(0, timing.report + 1, n)
        due = self._all.time + timing.epsilon - self._clock[self._head]  # earlier arrivals wait
        number = self._round_of(due)
        late = self._round_of(came) > number
        self._inserts.add(np.flatnonzero(~late), number[~late])
        return np.flatnonzero(late)

    def _round(self, number: int) -> None:
        """All that falls into one round, at all heads."""
        for reading in self._notes.take(number).tolist():
            probed = self._sequence[reading, : self._sent[reading]].astype(np.int64)
            useful = self._useful[reading, probed].astype(np.float64)
            self._policy.learn(int(self._head[reading]), int(self._all.bin[reading]), probed, useful)
        new, due = self._inserts.take(number), self._due.take(number)
        new, due = self._within_capacity(number, new, due)
        if len(new):
            self._parcels.streams[new] = self._streams[self._head[new]]
            self._found(self._store.insert_probe(new, self._head[new]), new, self._head[new])
            leaves = np.full(len(new), number) if self._publisher is None else self._publisher.leaves(new, number)
            self._leaving.add(new, np.maximum(leaves, number))
        leaving = self._leaving.take(number)
        if len(leaving):
            self._choose(leaving)
            self._forward(leaving, self._head[leaving], number)
        if len(due):
            self._handle(due, number)

    def _handle(self, due: Ints, number: int) -> None:
        """Probes at the heads they have come to, and on to the next."""
        head = self._sequence[due, self._at[due]].astype(np.int64)
        since = self._now(number) + self._clock[head] - self._kept
        self._at[due] += 1
        self._parcels.streams[due] += self._streams[head]
        self._found(self._store.probe(due, head, since), due, head)
        self._forward(due, head, number)

    def _found(self, met: Met, numbers: Ints, heads: Ints) -> None:
        if len(met.reading) == 0:
            return
        self._met.append(met)
        self._parcels.found(met.reading, met.sensor)
        self._useful[met.reading, heads[np.searchsorted(numbers, met.reading)]] = True

    def _choose(self, leaving: Ints) -> None:
        """The heads that each reading is sent to, in the order of a short tour from its own."""
        head = self._head[leaving]
        if self._publisher is None:
            wanted = self._policy.choose(head, self._all.bin[leaving])
        else:
            wanted = self._publisher.choose(leaving)
        tours = (self._clusters.tours if self._set.order is None else self._set.order)[head]
        on_tour = np.take_along_axis(wanted, tours, axis=1)
        row, column = np.nonzero(on_tour)
        self._sent[leaving] = on_tour.sum(axis=1)
        place = np.cumsum(on_tour, axis=1)[row, column] - 1
        self._sequence[leaving[row], place] = tours[row, column]

    def _forward(self, numbers: Ints, heads: Ints, number: int) -> None:
        """Each message to the next head of its sequence, or else to the sink."""
        goes = self._at[numbers] < self._sent[numbers]
        some, origin = numbers[goes], heads[goes]
        target = self._sequence[some, self._at[some]].astype(np.int64)
        hops = self._clusters.between[origin, target]
        rest = self._sent[some] - self._at[some] - 1
        self._traffic.send("probes", self._parcels.bytes_of(some, rest), hops)
        came = self._now(number) + self._travel(hops)
        timing = self._set.timing
        came = came + timing.epsilon if timing.each_hop else came
        due = np.maximum(came, self._all.time[some] + timing.epsilon - self._clock[target])
        self._due.add(some, np.maximum(self._round_of(due), number + 1))
        done = ~goes & (self._parcels.times[numbers] > 0)
        if done.any():
            self._deliver(numbers[done], heads[done], number)

    def _deliver(self, done: Ints, heads: Ints, number: int) -> None:
        """Answers to the sink, which says what became of them where the policy listens."""
        hops = self._clusters.to_sink[heads]
        self._traffic.send("results", self._parcels.bytes_of(done, 0), hops)
        self._arrived[done] = self._now(number) + self._travel(hops)
        acknowledged = done[self._sent[done] > 0]
        if self._policy.notes and len(acknowledged):
            back = self._clusters.to_sink[self._head[acknowledged]]
            size = self._set.sizes.header + (self._set.sizes.head + 1) * self._sent[acknowledged]
            self._traffic.send("notes", size, back)
            came = self._round_of(self._arrived[acknowledged] + self._travel(back))
            self._notes.add(acknowledged, np.maximum(came, number + 1))

    def _within_capacity(self, number: int, new: Ints, due: Ints) -> tuple[Ints, Ints]:
        """What the heads can do now: probes beyond it wait for the next round, readings are shed at random."""
        capacity = self._set.capacity
        if capacity is None:
            return new, due
        head = self._sequence[due, self._at[due]].astype(np.int64)
        order = np.argsort(head, kind="stable")
        begin = np.searchsorted(head[order], np.arange(len(self._clusters)))
        nth = np.empty(len(due), np.int64)
        nth[order] = np.arange(len(due)) - begin[head[order]]
        can = np.floor(capacity / self._work)
        handled = nth < can[head]
        self._due.add(due[~handled], np.full((~handled).sum(), number + 1))
        left = can - np.bincount(head[handled], minlength=len(can))
        coming = np.bincount(self._head[new], minlength=len(can))
        share = np.divide(left, coming, out=np.ones(len(can)), where=coming > 0)
        kept = self._random.random(len(new)) < share[self._head[new]]
        self._shed.append(new[~kept])
        return new[kept], due[handled]

    def _delivered(self, met: Met) -> Met:
        came = self._arrived[met.reading] >= 0
        return Met(met.reading[came], met.sensor[came], met.time[came])

    def _travel(self, hops: Ints) -> Ints:
        low, high = self._set.timing.hop
        delay: Ints = np.ceil(hops * self._random.uniform(low, high, len(hops))).astype(np.int64)
        return delay

    def _skews(self, stream: int, n: int) -> Ints:
        """How far each clock is ahead of the truth."""
        most = self._set.timing.skew
        return np.random.default_rng([self._set.seed, stream]).integers(-most, most + 1, n)

    def _now(self, number: int) -> int:
        return self._start + number * self._set.timing.round

    def _round_of(self, time: Ints) -> Ints:
        """The round at whose end a time has come."""
        return -((self._start - time) // self._set.timing.round)


class _Rounds:
    """Numbers of readings by the round in which their turn comes."""

    def __init__(self) -> None:
        self._parts: defaultdict[int, list[Any]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._parts)

    def first(self) -> int | None:
        return min(self._parts, default=None)

    def add(self, numbers: Ints, rounds: Ints) -> None:
        order = np.argsort(rounds, kind="stable")
        distinct, begin = np.unique(rounds[order], return_index=True)
        for one, part in zip(distinct.tolist(), np.split(numbers[order], begin[1:]), strict=False):
            self._parts[one].append(part)

    def take(self, number: int) -> Ints:
        parts: Iterable[Any] = self._parts.pop(number, [np.empty(0, np.int64)])
        return np.sort(np.concatenate(list(parts)))
