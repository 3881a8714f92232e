"""Aggregates over the windows of one stream, over all possible worlds.

A deterministic state machine, free of any engine: ``push`` takes rows, answers the ticks that are complete and keeps
what later ones need; ``apply`` does the same without answering; ``state`` and ``restore`` are for a log. Dallachiesa et
al. 2015, sections 3.3 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.kernels import aggregates as kernels
from appulse.kernels.numbering import COUNT, TUMBLE_ROWS, TUMBLE_TIME
from appulse.model.objects import Objects
from appulse.operators.attributes import Attribute
from appulse.operators.held_parts import HeldParts, Taken, group_hashes
from appulse.operators.held_runs import Parts, RunningWindows, going_on, runs_on
from appulse.operators.labels import LabelNumbers
from appulse.operators.numbering import END, Released, Sequencer
from appulse.operators.output import Output
from appulse.operators.percentiles import FREQUENT, PERCENTILES
from appulse.operators.window_answers import Answer, Evaluation, no_answer
from appulse.operators.window_starts import Withdrawn
from appulse.windows.frames import Rule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Hashes, Ints
    from appulse.model.strings import Labels
    from appulse.operators.aggregate_plan import AggregatePlan

UNCONDITIONAL = ("sum", "count")  # others there are only where a row exists
AGGREGATES = (*UNCONDITIONAL, "mean", "min", "max", "std", "median", *PERCENTILES, *FREQUENT)
# So many labels of groups are not worth to be looked at.
_LABELS = 1024


@dataclass(frozen=True)
class Aggregates:
    """The answers of a push: a window each, in order of group and time, and one `Answer` per aggregate asked for."""

    group: Labels | None
    time: Ints
    answers: list[Answer]


@dataclass(frozen=True)
class _Windows:
    """Windows as runs of the rows held: from ``begin`` to ``end``; ``tick`` is the time of the answer."""

    group: Ints
    tick: Ints
    begin: Ints
    end: Ints


@dataclass(frozen=True)
class AggregateState:
    """Everything a `WindowAggregate` knows."""

    waiting: list[Objects]
    held: Objects | None
    newest: int
    numbering: Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class _Stand:
    """What is known of rows: the number of their group, if it is one; the least floor, and the greatest place."""

    group: int | None
    floor: int
    top: int

    @classmethod
    def of(cls, rows: Objects, group: Ints) -> _Stand:
        place, floor = _places(rows)
        return cls(int(group[0]) if (group == group[0]).all() else None, int(floor.min()), int(place.max()))

    def with_rows(self, more: _Stand) -> _Stand:
        group = self.group if self.group == more.group else None
        return _Stand(group, min(self.floor, more.floor), max(self.top, more.top))


class WindowAggregate:
    """The state: rows that wait for their tick, and rows that windows hold.

    Rows held have a *place* as their number: their number in the stream, or their time where windows go by time. Their
    frame is the least place in the window at their tick.
    """

    def __init__(self, plan: AggregatePlan) -> None:
        self.plan = plan
        self.output = Output()  # of the call, push or task at hand
        self._runs_on = runs_on(plan)
        self._reset()

    def _reset(self) -> None:
        # Where windows go by time rows only wait there, and are never numbered.
        rule = self.plan.rule or Rule(COUNT, 1)
        attribute = None if rule.column is None else Attribute(rule.column, (self.plan.model,))
        self._numbering = Sequencer(1, rule, in_order=self.plan.in_order, attribute=attribute)
        self._groups, self._labels_kept = LabelNumbers(), 0
        self._newest = -END  # the last tick there was
        self._hold(None)

    def _hold(self, held: Objects | None) -> None:
        """Hold these rows, in order of group and place, of which no more is known."""
        self._held = Parts(held)
        self._grouped: HeldParts[Objects] | None = None  # in place of these, where windows of groups are
        self._stand: _Stand | None = None
        self._running: RunningWindows | None = None

    def __len__(self) -> int:
        """Rows waiting or held."""
        return len(self._numbering) + self._many

    @property
    def _many(self) -> int:
        """Rows held."""
        return len(self._held) if self._grouped is None else len(self._grouped)

    def _all(self) -> Objects | None:
        """The rows held."""
        return self._held.joined() if self._grouped is None else self._grouped.all()

    @property
    def capped(self) -> int:
        """Rows that left an uncertain window for the sake of its ``max_rows`` alone."""
        return self._numbering.capped

    @property
    def nbytes(self) -> int:
        """Bytes held, roughly."""
        running = 0 if self._running is None else self._running.nbytes
        grouped = 0 if self._grouped is None else self._grouped.nbytes
        return self._numbering.nbytes + self._held.nbytes + grouped + running

    @property
    def due(self) -> int | None:
        """The least time that ticks have to be complete beyond for anything to be answered."""
        waiting, rule = self._numbering.oldest, self.plan.rule
        if rule is None or rule.kind != TUMBLE_TIME or not self.plan.in_order:
            return waiting
        if self._stand is not None:
            oldest = self._stand.floor
        elif (held := self._held.joined()) is not None:
            oldest = int(_places(held)[1].min())
        else:
            return waiting
        end = oldest + rule.size - 1
        return end if waiting is None else min(waiting, end)

    def push(self, rows: Sequence[Objects], complete: int = END, *, ended: bool = False) -> Aggregates:
        """Take in rows; what follows from them, and from all ticks before ``complete`` being there.

        With ``ended`` the stream is over, and blocks that are not full are answered, too.
        """
        return self._take(rows, complete, ended=ended, answered=True)

    def apply(self, rows: Sequence[Objects], complete: int = END, *, ended: bool = False) -> None:
        """As `push`, without the answers."""
        self._take(rows, complete, ended=ended, answered=False)

    def rows(self) -> list[Objects]:
        """The rows waiting and held, part by part."""
        held = self._sorted()
        return [*(part for _, part in self._numbering.waiting()), *([] if held is None else [held])]

    def keep(self, stands: Sequence[Flags]) -> None:
        """Of `rows`, part by part, only these ever came; rows that others pushed out do not come back."""
        waiting = [part.filter(mask) for (_, part), mask in zip(self._numbering.waiting(), stands, strict=False)]
        self._numbering.keep_waiting([(0, part) for part in waiting])
        held = self._sorted()
        if held is None or stands[-1].all():
            return
        stays = held.filter(stands[-1])
        self._hold(stays if self.plan.by_time else self._renumbered(held.filter(~stands[-1]), stays))

    def _renumbered(self, gone: Objects, held: Objects) -> Objects:
        """Rows behind those that are gone move up."""
        notes = self._numbering.withdraw([(0, gone)])
        known = Withdrawn(self._groups.of(notes.group, len(notes)), notes.stream, notes.floor)
        group, (place, floor) = self._groups.of(held.group, len(held)), _places(held)
        none = np.zeros(len(held), np.int64)
        place = known.renumber(group, none, place)[1]
        assert self.plan.rule is not None  # noqa: S101 - else windows go by time
        size = self.plan.rule.size
        floor = place // size * size if self.plan.rule.kind == TUMBLE_ROWS else known.renumber(group, none, floor)[1]
        return self._placed_by(held, place, floor)

    def state(self) -> AggregateState:
        """What a new instance needs to go on from here."""
        waiting = [part for _, part in self._numbering.waiting()]
        return AggregateState(waiting, self._sorted(), self._newest, self._numbering.since(None))

    def restore(self, state: AggregateState) -> None:
        """Go on from there."""
        self._reset()
        self._numbering.restore(state.numbering, whole=True)
        for part in state.waiting:
            self._numbering.hold(0, part)
        self._hold(state.held)
        self._newest = state.newest

    def _sorted(self) -> Objects | None:
        """The rows held, in order of group and place."""
        held = self._all()
        if held is None or self._stand is None or not (self.plan.tumbling or self._grouped is not None):
            return held
        order = np.lexsort((_places(held)[0], self._groups.of(held.group, len(held))))
        if (np.diff(order) < 0).any():
            held = held.take(order)
            if self._grouped is None:
                self._held = Parts(held)
        return held

    @property
    def _many_labels(self) -> bool:
        """Whether many labels may be of no row any more."""
        return len(self._groups) > max(_LABELS, 2 * self._labels_kept)

    def _take(self, rows: Sequence[Objects], complete: int, *, ended: bool, answered: bool) -> Aggregates:
        """Take in rows; what follows from them, if it is to be ``answered``."""
        for part in rows:
            self._numbering.hold(0, part)
        released = [self._placed(part) for _, part in self._numbering.release(complete)]
        fresh = released[0] if released else None
        if fresh is not None:
            self._newest = max(self._newest, int(fresh.time.max()))
        elif not self._many:
            return self._nothing()
        reached = END if ended else complete if complete < END else None
        found = self._appended(fresh, reached, answered=answered)
        if found is None:
            found = self._sorted_in(fresh, reached, answered=answered)
        return found

    def _appended(self, fresh: Objects | None, reached: int | None, *, answered: bool) -> Aggregates | None:
        """The answers, where rows only go behind those held; None: they have to be put in order."""
        stand = self._stand
        if stand is None:
            return None
        if fresh is not None:
            stand = stand.with_rows(_Stand.of(fresh, self._groups.of(fresh.group, len(fresh))))
        if self._many_labels:
            return None
        if self.plan.tumbling and self._any_over(stand, fresh, reached):
            return None
        if fresh is None:
            return self._nothing()
        if self.plan.tumbling:
            self._stand = stand
            self._held.append(fresh)
            return self._nothing()
        if stand.group is None or not self._follow(fresh):
            return None
        self._stand = stand
        return self._slid(fresh, stand.group, answered=answered)

    def _any_over(self, stand: _Stand, fresh: Objects | None, reached: int | None) -> bool:
        """Whether a block may be over."""
        rule = self.plan.rule
        assert rule is not None  # noqa: S101 - blocks have one
        if fresh is None and not self.plan.by_time and reached != END:
            return False
        if reached == END or (stand.group is None and (reached is None or not self.plan.by_time)):
            return True
        until = stand.top + 1 if not self.plan.by_time else stand.top if reached is None else reached
        return stand.floor + rule.size <= until

    def _follow(self, fresh: Objects) -> bool:
        """Whether windows of few more rows, behind those held, go on from the last one."""
        running, self._running = self._running, None
        if not self._runs_on or len(self._held) < 2 * len(fresh):
            return False
        if running is None or not running.take(self.plan, fresh):
            held = self._held.joined()
            running = None if held is None else going_on(self.plan, held, fresh)
        if running is None or not running.ends_before(fresh):
            return False
        self._running = running
        return True

    def _slid(self, fresh: Objects, group: int, *, answered: bool) -> Aggregates:
        """As `_sliding`, of rows that `_follow`."""
        running, floor, known = self._running, _places(fresh)[1], len(self._held)
        assert running is not None  # noqa: S101 - as they follow
        last = np.flatnonzero(_ends(np.diff(fresh.time) != 0))
        if answered:
            self.output.add(len(last))
        running.append(fresh)
        self._held.append(fresh)
        if answered:
            answers = running.answers(running.first_from(floor[last]), known + last + 1)
            found = Aggregates(self._groups.labels(np.full(len(last), group)), fresh.time[last], answers)
        else:
            found = self._nothing()
            running.forget()
        newest = self._newest if self.plan.in_order else int(fresh.time[-1])
        gone = int(running.first_from(newest - self.plan.length if self.plan.by_time else floor[-1]))
        running.drop(gone)
        self._held.drop(gone)
        return found

    def _sorted_in(self, fresh: Objects | None, reached: int | None, *, answered: bool) -> Aggregates:
        """The answers, where rows are put in order with those held."""
        taken = self._taken(fresh, reached)
        parts = [part for part in (*taken.rows, fresh) if part is not None]
        known, held = len(taken), Objects.concat(parts)
        group = self._groups.of(held.group, len(held))
        if self._many_labels and taken.at is None:
            self._groups = self._groups.kept([group])
            self._labels_kept = len(self._groups)
        order = np.lexsort((_places(held)[0], group))
        new = order >= known
        # Most often rows come in order, and of one group; a part alone may be of a block, which cannot be written.
        if len(parts) == 1 or (np.diff(order) < 0).any():
            held, group = held.take(order), group[order]
        if self.plan.tumbling:
            windows, stays = self._blocks(held, group, reached)
        else:
            windows, stays = self._sliding(held, group, new)
        found = self._nothing()
        if answered:
            self.output.add(len(windows.tick))
            answers = Evaluation(self.plan, held, windows.begin, windows.end).answers()
            found = Aggregates(self._groups.labels(windows.group), windows.tick, answers)
        if self._grouped is not None and taken.at is not None and fresh is not None:
            came = np.empty(len(held), bool)
            came[order] = stays
            self._grouped.put_back(taken, came[:known])
            self._grouped.add(fresh.filter(came[known:]))
            return found
        held = held.filter(stays)
        self._hold(held)
        if len(held):
            self._stand = _Stand.of(held, group[stays])
        return found

    def _taken(self, fresh: Objects | None, reached: int | None) -> Taken[Objects]:
        """The rows held that a push is about: of few rows those of their groups, and those that leave."""
        several = self._stand is not None and self._stand.group is None
        if self.plan.tumbling and (self.plan.by_time or reached == END):  # blocks of any group may be over
            several = False
        if fresh is None or not several or self._many_labels:
            held = self._all()
            return Taken([] if held is None else [held], None)
        if self._grouped is None:
            self._grouped = HeldParts(_group_hashes, lambda rows: _places(rows)[0])
            self._grouped.set(self._held.joined(), anew=False)
            self._held = Parts()
        leave = self.plan.by_time and self.plan.in_order  # else a group says nothing of another
        return self._grouped.about([fresh], _group_hashes, self._newest - self.plan.length if leave else -END)

    def _nothing(self) -> Aggregates:
        return Aggregates(None, np.empty(0, np.int64), [no_answer(self.plan, asked) for asked in self.plan.asked])

    def _placed(self, part: Objects) -> Objects:
        """Released rows with their places."""
        rule = self.plan.rule
        if rule is None:
            return self._placed_by(part, part.time, part.time - self.plan.length)
        if rule.kind == TUMBLE_TIME:
            return self._placed_by(part, part.time, part.time // rule.size * rule.size)
        n = len(part)
        released = Released(0, part, np.zeros(n + 1, np.int64), np.empty(0, np.int64))
        (numbered,) = self._numbering.number([released]).objects
        place, frame = numbered.number, numbered.frame
        assert place is not None and frame is not None  # noqa: S101, PT018 - numbered just now
        floor = place // rule.size * rule.size if rule.kind == TUMBLE_ROWS else frame[:, 0]
        return self._placed_by(part, place, floor)

    @staticmethod
    def _placed_by(part: Objects, place: Ints, floor: Ints) -> Objects:
        return replace(part, number=place, frame=floor[:, None])

    def _sliding(self, held: Objects, group: Ints, new: Flags) -> tuple[_Windows, Flags]:
        """A window per group and tick that is new; rows stay while a later window may hold them."""
        place, floor = _places(held)
        changes = np.diff(group) != 0
        last = np.flatnonzero(_ends(changes | (np.diff(held.time) != 0)) & new)
        begin = kernels.starts(group, place, last + 1, floor[last])
        windows = _Windows(group[last], held.time[last], begin, last + 1)
        if not self.plan.by_time:
            return windows, place >= _of_last(group, floor)
        # Of rows taken as they come, a group says nothing of another.
        newest = self._newest if self.plan.in_order else _of_last(group, place)
        return windows, place >= newest - self.plan.length

    def _blocks(self, held: Objects, group: Ints, reached: int | None) -> tuple[_Windows, Flags]:
        """A window per block that is over, and its rows go; ``reached`` is as far as ticks are complete.

        None: each group is as far as its newest row.
        """
        rule = self.plan.rule
        assert rule is not None  # noqa: S101 - blocks have one
        place, floor = _places(held)
        last = np.flatnonzero(_ends((np.diff(group) != 0) | (np.diff(floor) != 0)))[: len(held)]
        end = floor[last] + rule.size
        by_time = rule.kind == TUMBLE_TIME
        until = _of_last(group, place)[last] if reached is None else reached
        over = (end <= until) if by_time else (place[last] + 1 == end) | (reached == END)
        begin = np.append(0, last[:-1] + 1)[: len(last)]
        stays = np.repeat(~over, last + 1 - begin)
        tick = end if by_time else held.time[last]
        return _Windows(group[last][over], tick[over], begin[over], last[over] + 1), stays


def _ends(changes: Flags) -> Flags:
    """Which rows are the last of their run."""
    return np.append(changes, True)


def _of_last(group: Ints, values: Ints) -> Ints:
    """For each row the value of the last row of its group; rows are in order of their groups."""
    last = np.flatnonzero(_ends(np.diff(group) != 0))[: len(group)]
    of_last: Ints = np.repeat(values[last], np.diff(last, prepend=-1))
    return of_last


def _group_hashes(rows: Objects) -> Hashes:
    return group_hashes(rows.group, len(rows)).view(np.uint64)


def _places(held: Objects) -> tuple[Ints, Ints]:
    assert held.number is not None and held.frame is not None  # noqa: S101, PT018 - see `_placed_by`
    return held.number, held.frame[:, 0]
