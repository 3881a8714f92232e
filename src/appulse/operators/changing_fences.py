"""Fences that come, go and change place while things move: of each reading those count that stood when it came.

Readings are taken in order of time, in runs that came under one set of fences. A visit goes on in a fence that has
changed place. One that was removed is forgotten at the thing's next reading, and no event says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.fences import DWELL, NEVER
from appulse.model.strings import Bytes, Labels
from appulse.model.workers import Workers
from appulse.operators.fences import Fences, Happened, Visits
from appulse.operators.legs import split_keys, things

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import ByteArray, Ints
    from appulse.model.objects import Objects
    from appulse.model.regions import RegionSet
    from appulse.operators.fences import FencePlan, Held, Terms

_FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Standing:
    """A set of fences: those of its regions that ``stand``, each with a ``number`` that it keeps when it changes place.

    All numbers below ``known`` were given by then: those that do not stand have been removed.
    """

    regions: RegionSet
    number: Ints
    stands: ByteArray
    known: int
    terms: Terms | None = None

    @cached_property
    def _by_number(self) -> tuple[Ints, Ints]:
        """The numbers of those that stand, in order, and which they are."""
        there = np.flatnonzero(self.stands)
        there = there[np.argsort(self.number[there], kind="stable")]
        return self.number[there], there

    def places(self, number: Ints) -> Ints:
        """Which of the regions have these numbers; -1: none."""
        numbers, there = self._by_number
        if not len(numbers) or not len(number):
            return np.full(len(number), -1)
        at = np.searchsorted(numbers, number).clip(max=len(numbers) - 1)
        return np.where(numbers[at] == number, there[at], -1)


class ChangingFences:
    """The state: visits that have not ended.

    Those to fences of the set that readings came under last are with that set, and stay there as long as it does.
    """

    def __init__(self, plan: FencePlan) -> None:
        self.plan = plan
        self.workers = Workers()
        self._made: list[tuple[Standing, Fences]] = []
        self._with: tuple[Standing, Fences] | None = None
        self._aside: Visits | None = None  # the others, with the numbers of their fences

    @property
    def visits(self) -> Visits | None:
        """All visits, with the numbers of their fences; None: there is none."""
        parts = [] if self._aside is None else [self._aside]
        if self._with is not None and (own := self._with[1].visits) is not None:
            parts.insert(0, replace(own, fence=self._with[0].number[own.fence]))
        return Visits.concat(parts) if parts else None

    @visits.setter
    def visits(self, held: Visits | None) -> None:
        if self._with is not None:
            self._with[1].visits = None
        self._with, self._aside = None, held

    def outside(self, standing: Standing) -> Visits | None:
        """Visits among which all are that are to fences which are not in a set."""
        return self._aside if self._with is not None and self._with[0] is standing else self.visits

    def push(
        self,
        rows: Sequence[tuple[Standing, Objects, Held | None]],
        current: Standing,
        complete: int,
        last: int | None,
        *,
        settled: bool,
    ) -> Happened:
        """Take in the readings of complete ticks, in canonical order, by the sets that they came under.

        ``last`` is the newest time of all, once the streams have ended. ``settled``: all that is to come is of
        ``current`` sets or later ones. The fences of events are numbers.
        """
        runs: list[tuple[Standing, Objects | None, Held | None]] = []
        if rows:
            counts = [len(part) for _, part, _ in rows]
            owner, place = np.repeat(np.arange(len(rows)), counts), np.concatenate([np.arange(n) for n in counts])
            order = np.argsort(np.concatenate([part.time for _, part, _ in rows]), kind="stable")
            for at in np.split(order, np.flatnonzero(np.diff(owner[order])) + 1):
                standing, part, held = rows[owner[at[0]]]
                whole = len(at) == len(part)
                runs.append(
                    (
                        standing,
                        part if whole else part.take(place[at]),
                        held if held is None or whole else held.take(place[at]),
                    )
                )
        else:
            runs = [(current, None, None)]
        found = []
        for i, (standing, part, held) in enumerate(runs):
            after = runs[i + 1][1] if i + 1 < len(runs) else None
            ends = complete if after is None else int(after.time[0])
            found += self._run(standing, part, held, ends, last if after is None else None)
        if settled and (held := self.outside(current)) is not None and len(held):
            # Of fences that were removed, those of which no event can come any more.
            over = (current.places(held.fence) < 0) & (held.fence < current.known)
            if self.plan.dwell is not None:
                over &= held.dwelt != 0
            if over.any() and held is self._aside:
                self._aside = held.filter(~over)
            elif over.any():
                self.visits = held.filter(~over)
        used = [*(standing for standing, _, _ in rows), current]
        self._made = [one for one in self._made if any(one[0] is standing for standing in used)]
        return _together(found)

    def __len__(self) -> int:
        return sum(map(len, self._parts()))

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts())

    @property
    def due(self) -> int | None:
        """The time at which the next visit will have dwelt."""
        turns = [None if self._aside is None else self._aside.due(self.plan.dwell)]
        turns += [] if self._with is None else [self._with[1].due]
        return min((turn for turn in turns if turn is not None), default=None)

    def _parts(self) -> list[Fences | Visits]:
        parts = (self._aside, None if self._with is None else self._with[1])
        return [part for part in parts if part is not None]

    def _run(
        self, standing: Standing, rows: Objects | None, holds: Held | None, now: int, last: int | None
    ) -> list[Happened]:
        """The events of readings that came under one set, and of dwelling before ``now``."""
        fences, found = self._move(standing), []
        if self._aside is not None and len(self._aside):
            until = now if last is None else last
            self._aside, said = self._apart(self._aside, standing, rows, until, ended=last is not None)
            found.append(said)
        happened = fences.push(rows, now, last, holds)
        return [*found, happened._replace(fence=standing.number[happened.fence])]

    def _move(self, standing: Standing) -> Fences:
        """Have the visits to fences of a set with it, and the others aside."""
        if self._with is not None and self._with[0] is standing:
            return self._with[1]
        held = self.visits
        self.visits = None
        fences = next((made for own, made in self._made if own is standing), None)
        if fences is None:
            fences = Fences(self.plan, standing.regions, standing.terms)
            fences.workers = self.workers
            self._made.append((standing, fences))
        if held is not None:
            place = standing.places(held.fence)
            fences.visits = replace(held, fence=place).filter(place >= 0)
            self._aside = held.filter(place < 0) if (place < 0).any() else None
        self._with = standing, fences
        return fences

    def _apart(
        self, visits: Visits, standing: Standing, rows: Objects | None, now: int, *, ended: bool
    ) -> tuple[Visits, Happened]:
        """Visits to fences that are not in the set: those that stay, and who has dwelt."""
        n, until = len(visits), np.full(len(visits), now)
        over = np.zeros(n, bool)
        if rows is not None:
            labels = [group for group in (visits.group, rows.group) if group is not None]
            own_keys, _ = split_keys(Bytes.concat([visits.key, rows.key]), self.plan.carried)
            thing = things(own_keys, Labels.concat(labels) if labels else None)
            first = np.full(int(thing.max()) + 1, _FOREVER)
            np.minimum.at(first, thing[n:], rows.time)
            over = (visits.fence < standing.known) & (first[thing[:n]] < _FOREVER)
            until = np.where(over, first[thing[:n]], until)
        dwells, lasts = np.zeros(n, bool), np.full(n, NEVER) if visits.ends is None else visits.ends
        if self.plan.dwell is not None:
            due = visits.since + self.plan.dwell
            dwells = (visits.dwelt == 0) & (due <= lasts) & ((due < until) | (~over & ended & (due == now)))
        over |= lasts < until
        own = visits.filter(dwells) if dwells.any() else visits.slice(0, 0)
        many = np.arange(len(own))
        due = own.since + (self.plan.dwell or 0)
        kind = np.full(len(own), DWELL)
        said = Happened(own.key, many, own.fence, kind, due, own.last, own.since, own.readings, own.highest)
        return replace(visits, dwelt=visits.dwelt | dwells).filter(~over), said


def _together(found: Sequence[Happened]) -> Happened:
    """Events of several runs, in order of time."""
    some = [one for one in found if len(one.time)] or list(found[:1])
    if len(some) == 1:
        return some[0]
    before = np.cumsum([0, *(len(one.key) for one in some[:-1])]).tolist()
    some = [one._replace(row=one.row + start) for one, start in zip(some, before, strict=True)]
    key = Bytes.concat([one.key for one in some])
    columns = [np.concatenate(own) for own in zip(*(one[1:] for one in some), strict=True)]
    order = np.argsort(columns[3], kind="stable")
    return Happened(key, *(column[order] for column in columns))
