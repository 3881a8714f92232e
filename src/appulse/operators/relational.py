"""Aggregates over the windows of one stream, over all possible worlds.

A deterministic state machine, free of any engine: ``push`` takes rows, answers the ticks that are complete and keeps
what later ones need; ``apply`` does the same without answering; ``state`` and ``restore`` are for a log. Dallachiesa et
al. 2015, sections 3.3 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from appulse.kernels import aggregates as kernels
from appulse.kernels import bursts, quantiles
from appulse.kernels.exact_sums import deviations as run_deviations
from appulse.kernels.frequent import frequent
from appulse.kernels.newest_quantiles import newest
from appulse.kernels.numbering import COUNT, TUMBLE_ROWS, TUMBLE_TIME
from appulse.kernels.ordered_runs import certain_extremes, certain_frequent, certain_quantiles
from appulse.kernels.poisson_binomial import absent_pmf
from appulse.kernels.uncertain_extremes import extremes
from appulse.model.covariance import deviations
from appulse.model.encode import sampled
from appulse.model.objects import Objects
from appulse.model.uncertainty import Form
from appulse.operators.attributes import Attribute
from appulse.operators.bursts import impossible
from appulse.operators.labels import LabelNumbers
from appulse.operators.numbering import END, Released, Sequencer, Withdrawn
from appulse.operators.output import Output, Watch
from appulse.operators.percentiles import FREQUENT, PERCENTILES, least_share, share_of
from appulse.operators.window_moments import counted_moments, existences, means, sums
from appulse.windows.frames import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from appulse.model.strings import Labels
    from appulse.model.uncertainty import Model

UNCONDITIONAL = ("sum", "count")  # others there are only where a row exists
AGGREGATES = (*UNCONDITIONAL, "mean", "min", "max", "std", "median", *PERCENTILES, *FREQUENT)
_MOMENTS = {"sum": 0, "mean": 2, "count": 4}
# So many labels of groups are not worth to be looked at.
_LABELS = 1024


@dataclass(frozen=True)
class AggregateSpec:
    """An aggregate of a dimension of the value."""

    column: str
    dimension: int
    aggregate: str


@dataclass(frozen=True)
class AggregatePlan:
    """What to aggregate, over which window: a ``rule``, or else the rows at most ``length`` microseconds old."""

    model: Model
    asked: tuple[AggregateSpec, ...]
    rule: Rule | None
    length: int = 0
    distribution: bool = False
    single_valued: bool = False
    in_order: bool = True
    correlation: float = 0.0  # of the existence of consecutive rows

    @property
    def tumbling(self) -> bool:
        """Whether windows are blocks, answered once they are over."""
        return self.rule is not None and self.rule.kind in (TUMBLE_ROWS, TUMBLE_TIME)

    @property
    def by_time(self) -> bool:
        """Whether times say what is in a window, and numbers do not matter."""
        return self.rule is None or self.rule.kind == TUMBLE_TIME

    @property
    def spans(self) -> tuple[int] | None:
        """For how long a row may be in a window, in microseconds; None where its number says that."""
        if self.rule is None:
            return (self.length,)
        return (self.rule.size,) if self.rule.kind == TUMBLE_TIME else None

    @property
    def size(self) -> int:
        """How many existing rows a window holds in each world; 0 where all that it keeps."""
        return self.rule.size if self.rule is not None and self.rule.uncertain else 0


@dataclass(frozen=True)
class Distribution:
    """Values in ascending order with their probabilities; those of window i are from ``first[i]`` to ``first[i + 1]``.

    ``error`` is the root mean square of what values were moved by to put neighbours together; 0: exact.
    """

    first: NDArray[np.int64]
    value: NDArray[np.float64]
    chance: NDArray[np.float64]
    error: NDArray[np.float64]


@dataclass(frozen=True)
class Answer:
    """One aggregate of every window."""

    value: NDArray[np.float64]
    deviation: NDArray[np.float64]
    exists: NDArray[np.float64]
    distribution: Distribution | None


@dataclass(frozen=True)
class Aggregates:
    """The answers of a push: a window each, in order of group and time, and one `Answer` per aggregate asked for."""

    group: Labels | None
    time: NDArray[np.int64]
    answers: list[Answer]


@dataclass(frozen=True)
class _Windows:
    """Windows as runs of the rows held: from ``begin`` to ``end``; ``tick`` is the time of the answer."""

    group: NDArray[np.int64]
    tick: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]


@dataclass(frozen=True)
class AggregateState:
    """Everything a `WindowAggregate` knows."""

    waiting: list[Objects]
    held: Objects | None
    newest: int
    numbering: Mapping[str, NDArray[Any]]


class WindowAggregate:
    """The state: rows that wait for their tick, and rows that windows hold.

    Rows held have a *place* as their number: their number in the stream, or their time where windows go by time. Their
    frame is the least place in the window at their tick.
    """

    def __init__(self, plan: AggregatePlan) -> None:
        self.plan = plan
        self.output = Output()  # of the call, push or task at hand
        self._reset()

    def _reset(self) -> None:
        # Where windows go by time rows only wait there, and are never numbered.
        rule = self.plan.rule or Rule(COUNT, 1)
        attribute = None if rule.column is None else Attribute(rule.column, (self.plan.model,))
        self._numbering = Sequencer(1, rule, in_order=self.plan.in_order, attribute=attribute)
        self._groups, self._labels_kept = LabelNumbers(), 0
        self._held: Objects | None = None
        self._newest = -END  # the last tick there was

    def __len__(self) -> int:
        """Rows waiting or held."""
        return len(self._numbering) + (0 if self._held is None else len(self._held))

    @property
    def capped(self) -> int:
        """Rows that left an uncertain window for the sake of its ``max_rows`` alone."""
        return self._numbering.capped

    @property
    def nbytes(self) -> int:
        """Bytes held, roughly."""
        return self._numbering.nbytes + (0 if self._held is None else self._held.nbytes)

    @property
    def due(self) -> int | None:
        """The least time that ticks have to be complete beyond for anything to be answered."""
        waiting, rule = self._numbering.oldest, self.plan.rule
        if rule is None or rule.kind != TUMBLE_TIME or not self.plan.in_order or self._held is None or not self._held:
            return waiting
        end = int(_places(self._held)[1].min()) + rule.size - 1
        return end if waiting is None else min(waiting, end)

    def push(self, rows: Sequence[Objects], complete: int = END, *, ended: bool = False) -> Aggregates:
        """Take in rows; what they, and that all ticks before ``complete`` are there, bring forth.

        With ``ended`` the stream is over, and blocks that are not full are answered, too.
        """
        advanced = self._advance(rows, complete, ended=ended)
        if advanced is None:
            return Aggregates(None, np.empty(0, np.int64), [_no_answer(self.plan, asked) for asked in self.plan.asked])
        held, windows, stays = advanced
        self.output.add(len(windows.tick))
        answers = _Evaluation(self.plan, held, windows).answers()
        self._held = held.filter(stays)
        return Aggregates(self._groups.labels(windows.group), windows.tick, answers)

    def apply(self, rows: Sequence[Objects], complete: int = END, *, ended: bool = False) -> None:
        """As `push`, without the answers."""
        advanced = self._advance(rows, complete, ended=ended)
        if advanced is not None:
            held, _, stays = advanced
            self._held = held.filter(stays)

    def rows(self) -> list[Objects]:
        """The rows waiting and held, part by part."""
        return [*(part for _, part in self._numbering.waiting()), *([] if self._held is None else [self._held])]

    def keep(self, stands: Sequence[NDArray[np.bool_]]) -> None:
        """Of `rows`, part by part, only these ever came; rows that others pushed out do not come back."""
        waiting = [part.filter(mask) for (_, part), mask in zip(self._numbering.waiting(), stands, strict=False)]
        self._numbering.keep_waiting([(0, part) for part in waiting])
        if self._held is None or stands[-1].all():
            return
        gone = self._held.filter(~stands[-1])
        self._held = self._held.filter(stands[-1])
        if not self.plan.by_time:
            self._renumber(gone, self._held)

    def _renumber(self, gone: Objects, held: Objects) -> None:
        """Rows behind those that are gone move up."""
        notes = self._numbering.withdraw([(0, gone)])
        known = Withdrawn(self._groups.of(notes.group, len(notes)), notes.stream, notes.floor)
        group, (place, floor) = self._groups.of(held.group, len(held)), _places(held)
        none = np.zeros(len(held), np.int64)
        place = known.renumber(group, none, place)[1]
        assert self.plan.rule is not None  # noqa: S101 - else windows go by time
        size = self.plan.rule.size
        floor = place // size * size if self.plan.rule.kind == TUMBLE_ROWS else known.renumber(group, none, floor)[1]
        self._held = self._placed_by(held, place, floor)

    def state(self) -> AggregateState:
        """What a new instance needs to go on from here."""
        waiting = [part for _, part in self._numbering.waiting()]
        return AggregateState(waiting, self._held, self._newest, self._numbering.since(None))

    def restore(self, state: AggregateState) -> None:
        """Go on from there."""
        self._reset()
        self._numbering.restore(state.numbering, whole=True)
        for part in state.waiting:
            self._numbering.hold(0, part)
        self._held, self._newest = state.held, state.newest

    def _advance(
        self, rows: Sequence[Objects], complete: int, *, ended: bool
    ) -> tuple[Objects, _Windows, NDArray[np.bool_]] | None:
        """The rows held, in order of group and place; the windows to answer; and which rows stay. None: no rows."""
        for part in rows:
            self._numbering.hold(0, part)
        fresh = [self._placed(part) for _, part in self._numbering.release(complete)]
        known = 0 if self._held is None else len(self._held)
        parts = fresh if self._held is None else [self._held, *fresh]
        if not parts:
            return None
        held = Objects.concat(parts)
        if fresh:
            self._newest = max(self._newest, int(fresh[0].time.max()))
        group = self._groups.of(held.group, len(held))
        if len(self._groups) > max(_LABELS, 2 * self._labels_kept):
            self._groups = self._groups.kept([group])
            self._labels_kept = len(self._groups)
        order = np.lexsort((_places(held)[0], group))
        new = order >= known
        # Most often rows come in order, and of one group; a part alone may be of a block, which cannot be written.
        if len(parts) == 1 or (np.diff(order) < 0).any():
            held, group = held.take(order), group[order]
        if self.plan.tumbling:
            return held, *self._blocks(held, group, END if ended else complete if complete < END else None)
        return held, *self._sliding(held, group, new)

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
    def _placed_by(part: Objects, place: NDArray[np.int64], floor: NDArray[np.int64]) -> Objects:
        return replace(part, number=place, frame=floor[:, None])

    def _sliding(
        self, held: Objects, group: NDArray[np.int64], new: NDArray[np.bool_]
    ) -> tuple[_Windows, NDArray[np.bool_]]:
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

    def _blocks(
        self, held: Objects, group: NDArray[np.int64], reached: int | None
    ) -> tuple[_Windows, NDArray[np.bool_]]:
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


def _no_answer(plan: AggregatePlan, asked: AggregateSpec) -> Answer:
    none, listed = np.empty(0), plan.distribution or least_share(asked.aggregate) is not None
    return Answer(none, none, none, Distribution(np.zeros(1, np.int64), none, none, none) if listed else None)


def _ends(changes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows are the last of their run."""
    return np.append(changes, True)


def _of_last(group: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each row the value of the last row of its group; rows are in order of their groups."""
    last = np.flatnonzero(_ends(np.diff(group) != 0))[: len(group)]
    of_last: NDArray[np.int64] = np.repeat(values[last], np.diff(last, prepend=-1))
    return of_last


def _places(held: Objects) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    assert held.number is not None and held.frame is not None  # noqa: S101, PT018 - see `_placed_by`
    return held.number, held.frame[:, 0]


class _Evaluation:
    """The aggregates of windows over the rows held; what several of them need is computed once."""

    def __init__(self, plan: AggregatePlan, held: Objects, windows: _Windows) -> None:
        self._plan, self._held, self._begin, self._end = plan, held, windows.begin, windows.end
        # A sum of weights may be beyond 1 by rounding.
        self._exist = np.minimum(held.mass, 1.0)
        if plan.correlation:
            self._exists = np.empty(len(windows.begin))
            bad = bursts.existences(self._begin, self._end, self._exist, plan.correlation, self._exists)
            if bad >= 0:
                raise impossible(self._exist, held.time, bad, plan.correlation)
        else:
            self._exists = existences(self._begin, self._end, self._exist)
        self._counted: dict[int, NDArray[np.float64]] = {}
        self._values = Watch(len(windows.begin), _values, values=True)

    def answers(self) -> list[Answer]:
        """One per aggregate asked for."""
        found = []
        for asked in self._plan.asked:
            if asked.aggregate == "std":
                found.append(self._spread(asked))
                continue
            if (share := least_share(asked.aggregate)) is not None:
                found.append(self._frequent(asked, share))
                continue
            if asked.aggregate in ("min", "max"):
                moments, distribution = self._extreme(asked)
            elif share_of(asked.aggregate) is not None:
                moments, distribution = self._quantile(asked)
            else:
                moments = self._moments(asked)
                distribution = self._distribution(asked) if self._plan.distribution else None
            found.append(Answer(moments[:, 0].copy(), moments[:, 1].copy(), self._exists, distribution))
        return found

    def _moments(self, asked: AggregateSpec) -> NDArray[np.float64]:
        """Mean and deviation of a sum, mean or count."""
        mean, rest, deviation = self._moments_of(asked.dimension)
        if self._plan.single_valued:
            return sums(self._begin, self._end, np.ones(len(mean)), mean, np.zeros(len(mean)))
        if self._plan.size == 0 and asked.aggregate in ("sum", "count"):
            if asked.aggregate == "count" and self._all_exist:
                number = (self._end - self._begin).astype(np.float64)
                return np.column_stack([number, np.zeros(len(number))])
            if asked.aggregate == "count":
                mean, deviation = np.ones(len(mean)), np.zeros(len(mean))
            if self._plan.correlation:
                out = np.empty((len(self._begin), 2))
                bursts.sums(self._begin, self._end, self._exist, self._plan.correlation, mean, deviation, out)
                return out
            return sums(self._begin, self._end, self._exist, mean, deviation)
        rows = kernels.CountedRows(self._exist, mean, rest, deviation)
        if self._plan.size == 0:
            return means(self._begin, self._end, rows)
        if asked.dimension not in self._counted:
            self._counted[asked.dimension] = counted_moments(self._begin, self._end, rows, self._plan.size)
        at = _MOMENTS[asked.aggregate]
        return self._counted[asked.dimension][:, at : at + 2]

    def _extreme(self, asked: AggregateSpec) -> tuple[NDArray[np.float64], Distribution | None]:
        out = np.zeros((len(self._begin), 2))
        sign = 1.0 if asked.aggregate == "max" else -1.0
        if self._certain:
            certain_extremes(*self._newest, self._values_of(asked), sign, out[:, 0])
            return out, self._certainly(out[:, 0]) if self._plan.distribution else None
        rows = kernels.UncertainRows(self._exist, *self._points_of(asked.dimension))
        at, value, chance = extremes(self._begin, self._end, rows, self._plan.size, sign, out)
        if not self._plan.distribution:
            return out, None
        return out, self._joined(self._shares(value[a:b], chance[a:b]) for a, b in pairwise(at.tolist()))

    def _quantile(self, asked: AggregateSpec) -> tuple[NDArray[np.float64], Distribution | None]:
        part, whole = share_of(asked.aggregate) or (1, 2)
        out = np.zeros((len(self._begin), 2))
        if self._certain:
            certain_quantiles(*self._newest, self._values_of(asked), part, whole, out[:, 0])
            return out, self._certainly(out[:, 0]) if self._plan.distribution else None
        rows = kernels.UncertainRows(self._exist, *self._points_of(asked.dimension))
        keep = self._plan.distribution
        if size := self._plan.size:
            at, value, chance = newest(self._begin, self._end, rows, size, part, whole, out)
        else:
            at, value, chance = quantiles.uncertain(self._begin, self._end, rows, part, whole, out, keep)
        if not keep:
            return out, None
        return out, self._joined(self._shares(value[a:b], chance[a:b]) for a, b in pairwise(at.tolist()))

    def _frequent(self, asked: AggregateSpec, share: float) -> Answer:
        """Values with their numbers of rows in the mean over the worlds, and nothing else."""
        if self._certain:
            at, value, count = certain_frequent(*self._newest, self._values_of(asked), share)
        else:
            rows = kernels.UncertainRows(self._exist, *self._points_of(asked.dimension))
            at, value, count = frequent(self._begin, self._end, rows, self._plan.size, share)
        none = np.empty(0)
        return Answer(none, none, none, Distribution(at, value, count, none))

    def _spread(self, asked: AggregateSpec) -> Answer:
        """The deviation of rows that are all there, as the call has made sure."""
        found = np.empty(len(self._begin))
        run_deviations(*self._newest, self._values_of(asked), found)
        known = ~np.isnan(found)
        distribution = self._certainly(found) if self._plan.distribution else None
        return Answer(found, np.where(known, 0.0, np.nan), known.astype(np.float64), distribution)

    @property
    def _certain(self) -> bool:
        """Whether all rows are there, with one value each."""
        return self._held.form == Form.POINT and self._all_exist

    @property
    def _all_exist(self) -> bool:
        return bool((self._exist == 1.0).all())

    @property
    def _newest(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First and last row of each window, where all rows are there."""
        size = self._plan.size
        return np.maximum(self._begin, self._end - size) if size else self._begin, self._end

    def _values_of(self, asked: AggregateSpec) -> NDArray[np.float64]:
        return np.ascontiguousarray(self._held.centre[:, asked.dimension])

    def _certainly(self, values: NDArray[np.float64]) -> Distribution:
        """Values that are sure, where there is one."""
        known = ~np.isnan(values)
        first = np.append(0, np.cumsum(known))
        return Distribution(first, values[known], np.ones(int(first[-1])), np.zeros(len(values)))

    @staticmethod
    def _shares(value: NDArray[np.float64], chance: NDArray[np.float64]) -> _Part:
        unit = kernels.unit_of(value)
        return _shortened(value / unit, chance, 0.0, unit)

    def _distribution(self, asked: AggregateSpec) -> Distribution:
        if asked.aggregate == "count":
            return self._joined(self._counts(a, b) for a, b in self._runs())
        return self._joined(self._sums(asked, a, b) for a, b in self._runs())

    def _joined(self, parts: Iterable[_Part]) -> Distribution:
        """Distributions, whose values are counted while they are made."""
        found = []
        for part in parts:
            self._values.add(len(part[0]))
            found.append(part)
        return _joined(found)

    def _runs(self) -> Iterator[tuple[int, int]]:
        return zip(self._begin.tolist(), self._end.tolist(), strict=True)

    def _counts(self, begin: int, end: int) -> _Part:
        """The distribution of the number of existing rows of a window."""
        chance, low = absent_pmf(self._exist[begin:end])
        count = (end - begin - low - np.arange(len(chance))).astype(np.float64)
        return _shortened(np.minimum(count, self._plan.size or np.inf), chance, 0.0)

    def _sums(self, asked: AggregateSpec, begin: int, end: int) -> _Part:
        """The distribution of the sum, or the mean, of a window."""
        first, values, weights = self._points_of(asked.dimension)
        by_count, error = asked.aggregate == "mean", np.zeros(2)
        unit = kernels.unit_of(values[first[begin] : first[end]])
        if unit != 1.0:
            with np.errstate(over="ignore"):  # values of other windows
                values = values / unit
        rows = kernels.UncertainRows(self._exist, first, values, weights)
        count, value, chance = kernels.sum_atoms(begin, end, rows, self._plan.size, by_count, kernels.MOST_ATOMS, error)
        if by_count:
            some = count > 0
            value, chance = value[some] / count[some], chance[some]
        return _shortened(value, chance, error[1 if by_count else 0], unit)

    def _points_of(self, dimension: int) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """The samples of all rows in one dimension, as (first, values, weights); weights sum to the existence."""
        rows = self._sampled
        n, count = len(rows), np.diff(rows.first)
        owner = np.repeat(np.arange(n), count)
        within = np.arange(len(owner)) - rows.first[owner]
        values = rows.samples[rows.first[owner] * rows.d + dimension * count[owner] + within]
        return rows.first, values, rows.weights if len(rows.weights) else rows.mass[owner] / count[owner]

    def _moments_of(self, k: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Mean of one dimension of each row, given that it exists; what rounding it took away; and deviation."""
        rows = self._held
        zeros = np.zeros(len(rows))
        if rows.form == Form.POINT:
            return rows.centre[:, k].copy(), zeros, zeros
        if rows.form == Form.GAUSSIAN:
            return rows.centre[:, k].copy(), zeros, deviations(rows.spread, rows.d)[:, k].copy()
        mean, rest, deviation = np.empty(len(rows)), np.empty(len(rows)), np.empty(len(rows))
        kernels.row_moments(*self._points_of(k), mean, rest, deviation)
        return mean, rest, deviation

    @cached_property
    def _sampled(self) -> Objects:
        return sampled(self._held, self._plan.model, 0.0)


def _values(made: float) -> str:
    return (
        f"The distributions have {made:,.0f} values by now. distribution=True has up to 4,096 in each row: leave it "
        "out, or give a shorter window, or a TumblingWindow, which has a row per block."
    )


#: Values in ascending order, their probabilities, and the error.
_Part: TypeAlias = "tuple[NDArray[np.float64], NDArray[np.float64], float]"


def _shortened(value: NDArray[np.float64], chance: NDArray[np.float64], error: float, unit: float = 1.0) -> _Part:
    """Equal values put together, and neighbours if there are too many; ``error`` is a mean square.

    Values and error are given as multiples of ``unit``.
    """
    moved = np.zeros(2)
    one, value, chance = kernels.merged(np.zeros(len(value), np.int64), value, chance)
    if len(value) == 0:
        return value, chance, 0.0
    if len(value) > kernels.MOST_ATOMS:
        one, value, chance = kernels.binned(one, value, chance, kernels.MOST_ATOMS, moved)
    whole = chance.sum()
    with np.errstate(over="ignore"):  # a sum of doubles may be none
        return value * unit, chance / whole, float(np.sqrt((error + moved[0]) / whole) * unit)


def _joined(parts: Sequence[_Part]) -> Distribution:
    nothing = [np.empty(0)]
    return Distribution(
        np.cumsum([0] + [len(value) for value, _, _ in parts]),
        np.concatenate(nothing + [value for value, _, _ in parts]),
        np.concatenate(nothing + [chance for _, chance, _ in parts]),
        np.array([error for _, _, error in parts]),
    )
