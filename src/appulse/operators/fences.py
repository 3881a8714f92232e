"""Fences: visits of things to regions, which begin and end once the readings are sure enough.

A deterministic state machine: ``push`` takes complete ticks. Of each thing, the visits that have not ended are kept; a
thing that is outside of all fences has no state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from scipy.special import ndtri

from appulse.kernels import fences as kernels
from appulse.kernels.cells import packed_order
from appulse.kernels.near_regions import TAIL, Reach, Readings
from appulse.model.batch import Batch, Ragged
from appulse.model.positions import ground_of
from appulse.model.strings import Bytes, Labels
from appulse.model.workers import Workers
from appulse.operators.crossings import Crossings, placed, stays_of
from appulse.operators.held_parts import HeldParts, things_hashed
from appulse.operators.legs import split_keys, things

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Floats, Hashes, Ints
    from appulse.kernels.geodesic import Earth
    from appulse.model.motion import Straight
    from appulse.model.objects import Objects
    from appulse.model.regions import RegionSet
    from appulse.operators.held_parts import Taken

_NONE = np.empty(0, np.int64)
#: Those of fences that hold at all times and for all readings.
NO_TERMS = kernels.Terms(_NONE, _NONE, _NONE, _NONE)
_FOREVER, _WORD = np.iinfo(np.int64).max, 63
# Readings of a part: groups of neighbours among fewer share less.
_PART, _PARTS = 1 << 15, 2  # a thread


@dataclass(frozen=True)
class FencePlan:
    """What is asked: a thing is in from ``enter`` on and out below ``leave``; ``dwell`` in microseconds.

    ``highest``: whether the highest probability of a visit is asked for. Between readings that ``motion`` joins, what
    is outside passes through with at least ``crossing``. ``carried``: columns travel behind the keys of readings.
    """

    enter: float
    leave: float
    dwell: int | None
    highest: bool
    earth: Earth | None
    crossing: float | None = None
    motion: Straight | None = None
    carried: bool = False

    @property
    def reach(self) -> Reach:
        """How far, in deviations, boxes and boundaries of fences matter: beyond, bounds decide."""
        least = self.leave if self.leave > 0.0 else self.enter
        box = max(0.0, -float(ndtri(least))) if least < 1.0 else 0.0
        known = [p for p in (self.enter, self.leave) if 0.0 < p < 1.0]
        free = [math.sqrt(-2.0 * math.log(min(p, 1.0 - p))) + 0.01 for p in known]
        # The highest probability of a visit needs no more readings once one is 1.
        return Reach(min(box, 40.0), TAIL if self.highest else min(TAIL, max(free, default=TAIL)))


@dataclass(frozen=True)
class Terms(Batch):
    """Of each fence the last time at which it holds, in microseconds, and the number of its condition, -1: none."""

    ends: Ints
    condition: Ints


#: Of each reading the numbers of the conditions that hold, in order.
Held: TypeAlias = Ragged["Ints"]


@dataclass(frozen=True)
class Visits(Batch):
    """Visits that have not ended; times in microseconds, ``fence`` by its place among the regions.

    ``key`` is that of the last reading, with the columns that it carries.

    ``ends`` is the last time at which the fence holds, as far as the last reading knew (None: they all hold on).
    """

    key: Bytes
    fence: Ints
    since: Ints
    dwelt: Ints
    readings: Ints
    highest: Floats
    last: Floats
    group: Labels | None = None
    ends: Ints | None = None

    def due(self, dwell: int | None) -> int | None:
        """The time at which the next of them will have dwelt."""
        if dwell is None:
            return None
        due = self.since[self.dwelt == 0] + dwell
        if self.ends is not None:
            due = due[due <= self.ends[self.dwelt == 0]]
        return int(due.min()) if len(due) else None


def whole_visits(visits: Visits) -> Visits:
    """Visits that say of each until when its fence holds; earlier versions did not."""
    return visits if visits.ends is not None else replace(visits, ends=np.full(len(visits), kernels.NEVER))


class Happened(NamedTuple):
    """Events, in order of time: of which reading they are, at which fence, of which kind, when, and of which visit.

    ``key`` has the keys of readings, with the columns that they carry, and ``row`` the place of each event's there.
    ``readings`` and ``highest`` are 0 where the highest probability is not asked for.
    """

    key: Bytes
    row: Ints
    fence: Ints
    kind: Ints
    time: Ints
    probability: Floats
    since: Ints
    readings: Ints
    highest: Floats


class Fences:
    """The state: visits that have not ended."""

    def __init__(self, plan: FencePlan, regions: RegionSet, terms: Terms | None = None) -> None:
        self.plan, self.regions, self.terms = plan, regions, terms
        self._held: HeldParts[Visits] = HeldParts(self._things, self._turns)
        self._mixed = False  # visits are not in the order of things
        self.workers = Workers()
        self.crossings: Crossings | None = None
        if plan.motion is not None and plan.crossing is not None:
            self.crossings = Crossings(plan.motion, plan.crossing, regions, plan.earth, carried=plan.carried)

    @property
    def visits(self) -> Visits | None:
        """All visits, those of a thing together, in the order of things; None: there is none."""
        held = self._held.all()
        if held is None or not self._mixed:
            return held
        thing = things(split_keys(held.key, self.plan.carried)[0], held.group)
        return held.take(np.argsort(thing, kind="stable"))

    @visits.setter
    def visits(self, held: Visits | None) -> None:
        self._held.set(held)
        self._mixed = False

    def _things(self, rows: Visits | Objects) -> Hashes:
        """Hashes of the things of visits or readings."""
        return things_hashed(rows.key, rows.group, carried=self.plan.carried)

    def _turns(self, visits: Visits) -> Ints:
        """The last time at which visits are what they are, without more readings: then they have dwelt, or end."""
        ends = np.full(len(visits), kernels.NEVER) if visits.ends is None else visits.ends
        if self.plan.dwell is None:
            return ends
        due = visits.since + self.plan.dwell
        return np.where((visits.dwelt == 0) & (due <= ends), due, ends)

    def push(self, rows: Objects | None, complete: int, last: int | None, held_of: Held | None = None) -> Happened:
        """Take in the readings of complete ticks, in canonical order; none before ``complete`` is to come.

        ``last`` is the newest time of all, once the streams have ended. ``held_of`` are the conditions that hold of
        each reading, where fences have any.
        """
        plan, parts = self.plan, [] if rows is None or not len(rows) else [rows]
        taken = self._held.about(parts, self._things, complete if last is None else None)
        held = Visits.concat(taken.rows) if taken.rows else None
        keys = ([] if held is None else [held.key]) + [part.key for part in parts]
        known = 0 if held is None else len(held)
        key = Bytes.concat(keys) if keys else None
        if key is None or not len(key):
            if self.crossings is not None:
                self.crossings.legs(parts, complete, ended=last is not None)
            return _nothing()
        groups = ([] if held is None else [held.group]) + [part.group for part in parts]
        labels = [one for one in groups if one is not None]
        group = Labels.concat(labels) if labels else None
        thing = things(split_keys(key, plan.carried)[0], group)
        visits = _held(held, thing[:known])
        own = np.concatenate([part.time for part in parts]) if parts else np.empty(0, np.int64)
        by_time = _order(own)  # stable: canonical order within a time
        order = by_time[_order(thing[known:][by_time])]
        readings = readings_of(parts, thing[known:], own, plan.earth, order)
        now = complete if last is None else last
        dwell = -1 if plan.dwell is None else plan.dwell
        rules = kernels.Rules(plan.enter, plan.leave, dwell, plan.reach, plan.highest, now, last is not None)
        terms = NO_TERMS
        if self.terms is not None:
            begin, numbers = (
                (np.zeros(len(order) + 1, np.int64), _NONE) if held_of is None else (held_of.offsets, held_of.values)
            )
            begin = np.concatenate([np.zeros(known, np.int64), begin])
            terms = kernels.Terms(self.terms.ends, self.terms.condition, begin, numbers)
        found, kept, best = self._watched(readings, known + order, visits, rules, terms)
        legs = None if self.crossings is None else self.crossings.legs(parts, complete, ended=last is not None)
        last_keys = key.take(kept[:, 6])
        last_groups = None if group is None else group.take(kept[:, 6])
        if self.crossings is not None and legs is not None and len(legs):
            stays = stays_of(visits.whole, found, thing[found.which[:, 0]])
            first = np.zeros(int(thing.max()) + 1, np.int64)
            first[thing[::-1]] = np.arange(len(thing))[::-1]  # a row of each thing
            labels = [one for one in (group, legs.rows.group) if one is not None]
            own_keys, _ = split_keys(Bytes.concat([key, legs.rows.key]), plan.carried)
            both = things(own_keys, Labels.concat(labels) if labels else None)
            stays[:, 0] = both[first[stays[:, 0]]]
            crossed = self.crossings.of(legs, both[len(key) :], stays)
            crossed.events.which[:, 0] += len(key)
            key = Bytes.concat([key, crossed.key])
            which, when, passed = crossed.events
            chances = np.repeat(passed, found.chances.shape[1], axis=1)
            found = kernels.Events(
                np.vstack([found.which, which]), np.vstack([found.when, when]), np.vstack([found.chances, chances])
            )
        self._hold(taken, _going_on(last_keys, last_groups, kept, best))
        # Those of a thing are in order.
        in_order = self._by_time(found, known, own, by_time)
        happened = kernels.columns(found, in_order)
        if not plan.highest:
            return Happened(key, *happened, np.zeros(len(in_order), np.int64), np.zeros(len(in_order)))
        return Happened(key, *happened, found.which[in_order, 3].astype(np.int64), found.chances[in_order, 1])

    def _hold(self, taken: Taken[Visits], visits: Visits) -> None:
        """Hold visits in place of those that were taken."""
        self._mixed = taken.at is not None
        if self._mixed:
            self._held.put_back(taken, np.zeros(len(taken), bool))
            self._held.add(visits)
        else:
            self._held.set(visits, anew=False)

    def _watched(
        self, readings: Readings, rows: Ints, visits: kernels.Visits, rules: kernels.Rules, terms: kernels.Terms
    ) -> tuple[kernels.Events, Ints, Floats]:
        """`appulse.kernels.fences.watch` by several threads: things have nothing to do with each other."""
        regions, ground = self.regions, ground_of(self.plan.earth)

        def watch(part: tuple[slice, slice]) -> tuple[kernels.Events, Ints, Floats]:
            own, going = part
            some: Any = [column[own] for column in readings]
            held = kernels.Visits(visits.whole[going], visits.real[going])
            return kernels.watch(regions.arrays, regions.search, Readings(*some), rows[own], held, rules, terms, ground)

        n, threads = len(rows), self.workers.threads
        many = 1 if threads == 1 else max(1, min(_PARTS * threads, n // _PART))
        first = np.unique(readings.thing[n * np.arange(1, many) // many])
        cuts = [np.searchsorted(thing, first).tolist() for thing in (readings.thing, visits.whole[:, 0])]
        sides = [map(slice, [0, *cut], [*cut, None]) for cut in cuts]
        done = self.workers.map(watch, list(zip(*sides, strict=True)))
        if len(done) == 1:
            return done[0]
        events, kept, best = zip(*done, strict=True)
        columns: Any = [np.concatenate(own) for own in zip(*events, strict=True)]
        return kernels.Events(*columns), np.concatenate(kept), np.concatenate(best)

    def _by_time(self, events: kernels.Events, known: int, time: Ints, by_time: Ints) -> Ints:
        """The order of events in time; of few times where all are those of readings, which ``by_time`` orders."""
        if self.plan.dwell is not None or self.crossings is not None:
            return _order(events.when[:, 0])
        rank = np.empty(len(time), np.int64)
        rank[by_time] = np.cumsum(np.append(False, np.diff(time[by_time]) != 0)[: len(time)])
        return _order(rank[events.which[:, 0] - known])

    def __len__(self) -> int:
        return sum(len(one) for one in (self._held, self.crossings) if one is not None)

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in (self._held, self.crossings) if one is not None)

    @property
    def due(self) -> int | None:
        """The time at which the next visit will have dwelt."""
        if self.plan.dwell is None or not len(self._held):
            return None
        if self.terms is not None:  # what a fence does before may be no event
            visits = self.visits
            return None if visits is None else visits.due(self.plan.dwell)
        first = self._held.first_due
        return None if first is None or first >= kernels.NEVER else first


def _going_on(key: Bytes, group: Labels | None, kept: Ints, best: Floats) -> Visits:
    """Visits that go on, as kernels have them."""
    fence, since, dwelt, readings, ends = (kept[:, column].copy() for column in range(1, 6))
    return Visits(key, fence, since, dwelt, readings, best[:, 0].copy(), best[:, 1].copy(), group, ends)


def _held(visits: Visits | None, thing: Ints) -> kernels.Visits:
    if visits is None:
        return kernels.Visits(np.empty((0, 7), np.int64), np.empty((0, 2)))
    order = np.argsort(thing, kind="stable")
    ends = np.full(len(visits), kernels.NEVER) if visits.ends is None else visits.ends
    row = np.arange(len(visits))
    whole = np.column_stack([thing, visits.fence, visits.since, visits.dwelt, visits.readings, ends, row])[order]
    return kernels.Visits(whole, np.column_stack([visits.highest, visits.last])[order])


def readings_of(parts: Sequence[Objects], thing: Ints, time: Ints, earth: Earth | None, order: Ints) -> Readings:
    """Rows as kernels take them, in an order of theirs."""
    if not parts:
        none = np.empty((0, 2))
        return Readings(thing, time, none, np.empty((0, 3)), np.empty((0, 3)), np.empty((0, 1)), np.empty(0))
    columns = zip(*(placed(part, earth) for part in parts), strict=True)
    at, scale, place, spread = (_joined(own).take(order, axis=0) for own in columns)
    exists = _joined([part.mass for part in parts]).take(order)
    return Readings(thing[order], time[order], at, scale, place, spread, exists)


def _joined(parts: Sequence[Floats]) -> Floats:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _nothing() -> Happened:
    ints, floats = np.empty(0, np.int64), np.empty(0)
    return Happened(Bytes.of([]), ints, ints, ints, ints, floats, ints, ints, floats)


def _order(numbers: Ints) -> Ints:
    """Where the numbers are from the least to the greatest; equal ones stay in order."""
    least, places = int(numbers.min(initial=_FOREVER)), len(numbers).bit_length()
    bits = (int(numbers.max(initial=least)) - least).bit_length()
    if bits + places >= _WORD:
        return np.argsort(numbers, kind="stable")
    return packed_order(numbers - least, bits, places)[1]
