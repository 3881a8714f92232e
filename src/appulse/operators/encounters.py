"""Encounters: runs of legs of two things that come close, over streams that move.

A deterministic state machine: ``push`` takes complete ticks, makes legs of them, compares each with those that share
its time, and puts what comes close together to encounters. Legs are kept as long as one to come may overlap them,
encounters as long as one may lengthen them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels import legs as kernels
from appulse.kernels.strings import hash_rows
from appulse.operators.held_legs import SMALLER, YOUNG
from appulse.operators.leg_pairs import EVER, Approaches, LegPairs
from appulse.operators.legs import Legs, things
from appulse.operators.pending import Pending

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping, Sequence

    from appulse.kernels.arrays import Flags, Hashes
    from appulse.model.batch import Batch
    from appulse.model.objects import Objects
    from appulse.operators.leg_pairs import EncounterPlan


class Found(NamedTuple):
    """Answers of a push: what entered, what is final, and readings with the time of another of their key, by stream."""

    entered: Approaches
    final: Approaches
    twice: list[tuple[int, Objects]]


class _Part(NamedTuple):
    """Some of the encounters that are open, a hash of the things of each, and which have not been taken out."""

    runs: Approaches
    pair: Hashes
    there: Flags


class OpenRuns:
    """Encounters that may go on, in parts: those of a push are put to a small one, and parts of a size together."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def __len__(self) -> int:
        return sum(int(part.there.sum()) for part in self._parts)

    def all(self) -> Approaches | None:
        """All of them; None: there is none."""
        parts = [part.runs.filter(part.there) for part in self._parts if part.there.any()]
        return Approaches.concat(parts) if parts else None

    @property
    def first_end(self) -> int | None:
        """When the first of them ends."""
        return min((int(part.runs.end[part.there].min()) for part in self._parts if part.there.any()), default=None)

    def add(self, runs: Approaches) -> None:
        """Put in some more."""
        while len(runs) and self._parts:
            last = self._parts[-1]
            if len(runs) >= YOUNG and len(runs) <= len(last.runs) // SMALLER:
                break
            if len(runs) < YOUNG <= len(last.runs):
                break
            runs = Approaches.concat([last.runs.filter(last.there), runs])
            self._parts.pop()
        if len(runs):
            self._parts.append(_Part(runs, _pairs_of(runs), np.ones(len(runs), bool)))

    def take(self, met: Approaches, before: int) -> tuple[list[Approaches], list[Approaches]]:
        """Take out those of the pairs of things that have met again, and of others those that ended before a time."""
        again: list[Approaches] = []
        over: list[Approaches] = []
        wanted = np.unique(_pairs_of(met))
        for part in self._parts:
            mine = part.there & np.isin(part.pair, wanted) if len(wanted) else np.zeros(len(part.there), bool)
            ended = part.there & ~mine & (part.runs.end < before)
            for which, found in ((mine, again), (ended, over)):
                if which.any():
                    found.append(part.runs.filter(which))
                    part.there[which] = False
        self._parts = [
            _Part(part.runs.filter(part.there), part.pair[part.there], np.ones(int(part.there.sum()), bool))
            if 2 * int(part.there.sum()) < len(part.there)
            else part
            for part in self._parts
            if part.there.any()
        ]
        return again, over


class Runs:
    """Pairs of legs put together to encounters, which are runs of them.

    Pairs wait until none to come may be before them, so that what they are put together to does not depend on when
    they were found.
    """

    def __init__(self, gap: int, least: int) -> None:
        self._gap, self._least = gap, least
        self.waiting: Approaches | None = None
        self.open = OpenRuns()

    def push(self, met: Approaches, since: int) -> tuple[Approaches, Approaches]:
        """Encounters that entered and that are final; no pair to come begins before ``since``."""
        waiting = met if self.waiting is None else Approaches.concat([self.waiting, met])
        ready, self.waiting = waiting.filter(waiting.begin < since), waiting.filter(waiting.begin >= since)
        again, ended = self.open.take(ready, since - self._gap)
        runs = Approaches.concat([*again, ready])
        runs = _runs(runs, self._gap) if len(runs) else runs
        over, long = runs.end + self._gap < since, runs.within >= self._least
        entered = runs.filter(long & ~runs.announced)
        self.open.add(replace(runs, announced=runs.announced | long).filter(~over))
        final = runs.filter(over)
        if ended:  # in the order of all
            final = _runs(Approaches.concat([*ended, final]), self._gap)
        return entered, final.filter(final.within >= self._least)

    def __len__(self) -> int:
        return (0 if self.waiting is None else len(self.waiting)) + len(self.open)

    @property
    def due(self) -> int | None:
        """What no pair to come may begin before for anything to be answered."""
        times = [] if self.waiting is None or not len(self.waiting) else [int(self.waiting.begin.min())]
        if (ends := self.open.first_end) is not None:
            times.append(ends + self._gap)
        return min(times, default=None)

    def state(self) -> dict[str, Approaches]:
        """All there is, by name."""
        held = {"waiting": self.waiting, "open": self.open.all()}
        return {name: batch for name, batch in held.items() if batch is not None and len(batch)}

    def restore(self, name: str, batch: Approaches) -> None:
        """Take in what `state` has of a name."""
        if name == "waiting":
            self.waiting = batch
        else:
            self.open.add(batch)


class Encounters:
    """The state: readings that may start a leg, legs that may be met, pairs that wait for earlier ones, encounters."""

    def __init__(self, plan: EncounterPlan) -> None:
        self.plan = plan
        self.makers = plan.makers
        self.pairs = LegPairs(plan)
        self.runs = Runs(plan.gap, plan.least)

    @property
    def counts(self) -> Counter[str]:
        """Figures since they were cleared."""
        return self.pairs.counts

    def push(self, rows: Sequence[Sequence[Objects]], complete: int, *, ended: bool) -> Found:
        """Take in the readings of complete ticks, by stream; none before ``complete`` is to come."""
        made, twice = self.makers.push(rows, complete, ended=ended)
        since = self.makers.since
        since = EVER if ended else complete if since is None else min(complete, since)
        met = self.pairs.meet(made)
        self.pairs.forget(since)
        if self.plan.by_pairs:
            return Found(Approaches.none(), met, twice)
        return Found(*self.runs.push(met, since), twice)

    def __len__(self) -> int:
        """Readings, legs and pairs held."""
        return len(self.runs) + len(self.makers) + len(self.pairs)

    @property
    def nbytes(self) -> int:
        return sum(batch.nbytes for batch in self.runs.state().values()) + self.makers.nbytes + self.pairs.nbytes

    def due(self, first: int | None) -> int | None:
        """What ticks have to be complete beyond for anything to be answered, ``first`` being the oldest that waits."""
        return min((time for time in (first, self.makers.due, self.runs.due) if time is not None), default=None)

    def state(self) -> Mapping[str, Batch]:
        """All there is, by name."""
        return {**self.runs.state(), **self.makers.pending, **self.pairs.state()}

    def restore(self, state: Mapping[str, Batch]) -> None:
        """Take in what `state` gave."""
        for name, batch in state.items():
            if isinstance(batch, Pending):
                self.makers.restore(name, batch)
            elif isinstance(batch, Legs):
                self.pairs.restore(name, batch)
            elif isinstance(batch, Approaches):
                self.runs.restore(name, batch)


def _pairs_of(runs: Approaches) -> Hashes:
    """A hash of the keys of the things of each encounter, whatever their group."""
    left = hash_rows(runs.left_key.offsets, runs.left_key.data, np.zeros(len(runs), np.int64))
    pairs: Hashes = hash_rows(runs.right_key.offsets, runs.right_key.data, left.view(np.int64))
    return pairs


def _runs(parts: Approaches, gap: int) -> Approaches:
    """Parts put together to runs: of one pair, each beginning at most ``gap`` after those before it have ended."""
    left = things(parts.left_key, parts.group)
    right = things(parts.right_key, None)
    pair = left * (int(right.max(initial=0)) + 1) + right
    order = np.lexsort((parts.right_time, parts.left_time, parts.end, parts.begin, pair))
    parts, left, right = parts.take(order), left[order], right[order]
    run = np.empty(len(parts), np.int64)
    count = kernels.number_runs(left, right, parts.begin, parts.end, gap, run)
    first = np.searchsorted(run, np.arange(count))
    # Of parts that are as close, the first.
    nearest = np.lexsort((parts.closest_time, parts.distance, run))[first]
    whole = parts.take(first)
    left_carried, right_carried = parts.left_carried, parts.right_carried
    return replace(
        whole,
        end=np.maximum.reduceat(parts.end, first),
        closest_time=parts.closest_time[nearest],
        distance=parts.distance[nearest],
        within=np.add.reduceat(parts.within, first),
        probability=np.maximum.reduceat(parts.probability, first),
        legs=np.add.reduceat(parts.legs, first),
        announced=np.logical_or.reduceat(parts.announced, first),
        left_carried=None if left_carried is None else left_carried.take(nearest),
        right_carried=None if right_carried is None else right_carried.take(nearest),
        expected=None if parts.expected is None else np.add.reduceat(parts.expected, first),
    )
