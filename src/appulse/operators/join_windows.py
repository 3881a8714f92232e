"""The windows of a similarity join: what they hold, take in and forget, and the pairs and rows that leave with it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from appulse.errors import StateError
from appulse.kernels.grid import UNKNOWN
from appulse.model.covariance import widest
from appulse.model.encode import sampled
from appulse.model.objects import Objects
from appulse.model.reach import margin_reach
from appulse.model.uncertainty import Model, in_closed_form
from appulse.model.workers import Workers
from appulse.operators.answers import NO_ANSWERS, Answers, OpenPairs
from appulse.operators.arrivals import Arrivals
from appulse.operators.labels import LabelNumbers
from appulse.operators.output import Output
from appulse.operators.partners import Partners
from appulse.operators.presence import Windows
from appulse.operators.store import Further, TableRows, WindowBuffer
from appulse.operators.vectors import MANY_ARRIVALS, MANY_DIMENSIONS
from appulse.operators.window_starts import Withdrawn
from appulse.operators.withdrawals import GONE, same_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.operators.cost import Choice
    from appulse.operators.pairs import Ownership
    from appulse.operators.plan import JoinPlan
    from appulse.operators.presence import ExistenceTable
    from appulse.operators.window_starts import WindowStarts

_EVER = np.iinfo(np.int64).max
_NEVER = np.iinfo(np.int64).min
# A Gaussian has no radius; beyond this many sigmas there is nothing a double can tell from zero.
_GAUSSIAN_EDGE = 39.0
_LABELS = 1024  # so many labels are not worth looking at


@dataclass
class JoinWindows:
    """One window per stream, and lane.

    A *lane* keeps rows apart that need not meet: where ``lanes`` is 2, rows of lane 0 meet only rows of lane 1, and
    those meet everything.
    """

    plan: JoinPlan
    lanes: int = 1
    ownership: Ownership | None = None
    counts: Counter[str] = field(default_factory=Counter)
    output: Output = field(default_factory=Output)  # of the call, push or task at hand

    def __post_init__(self) -> None:
        self._stores: list[WindowBuffer] = []
        self._groups, self._differs = LabelNumbers(), LabelNumbers()
        self._labels_kept = 0  # labels after they were last numbered anew
        self._floor = np.zeros((1, len(self.plan.streams)), np.int64)
        self.standing = OpenPairs()
        self.partners: Partners | None = None
        if any(self.plan.followed):
            self.partners = Partners(self.plan, tiled=self.ownership is not None)
        self.gone = np.empty(0, np.int64)  # numbers of the rows that the last `withdraw`, or `renumber`, forgot
        self.past = _NEVER  # of time windows: rows whose window was over before this have left
        self._present = Windows(len(self.plan.streams))
        n = len(self.plan.streams) * self.lanes
        streams = np.arange(n) // self.lanes
        lanes = np.arange(n) % self.lanes
        self._stream_of = streams
        joined = (streams[:, None] != streams[None, :]) | self.plan.self_join
        self.meets = joined & ((lanes[:, None] + lanes[None, :] > 0) | (self.lanes == 1))
        self._windows = np.array(self.plan.windows or [0] * len(self.plan.streams), np.int64)[streams]
        self.windows_of: list[int] = self._windows.tolist()

    def __len__(self) -> int:
        """Rows held."""
        return sum(len(store) for store in self._stores)

    @property
    def nbytes(self) -> int:
        return sum(store.nbytes for store in self._stores) + self.standing.nbytes

    @property
    def remembers(self) -> bool:
        """Whether pairs wait elsewhere, and are known here to be withdrawn with their rows."""
        return self.plan.held and self.plan.withdrawn and self.ownership is not None

    @property
    def presence(self) -> ExistenceTable | None:
        """What is known of the rows in uncertain windows."""
        return self._present.known

    def hold(self, tables: Sequence[TableRows], workers: Workers) -> list[WindowBuffer]:
        """Hold whole tables, one a stream, as they are; the caller finds the candidates."""

        def held(table: TableRows) -> WindowBuffer:
            neither = table.rows.differ is None and table.rows.group is None  # its groups are 0, as no label is
            return WindowBuffer.of_table(
                table,
                table.group if neither else self._differs.of(table.rows.differ, len(table.rows)),
                paired=self.partners is not None,
                counted=0 if self.partners is None else self.partners.counted,
            )

        # Labels are numbered as they come.
        alone = any(table.rows.differ is not None for table in tables)
        self._stores = (Workers() if alone else workers).map(held, tables)
        return self._stores

    def groups_of(self, objects: Objects) -> Ints:
        """The numbers of the rows' groups."""
        return self._groups.of(objects.group, len(objects))

    def advance(self, frontier: int) -> Answers:
        """No row before ``frontier`` (microseconds) will come any more: forget what is out of reach.

        Returns the pairs that this ends, where the plan asks for changes.
        """
        if self.plan.rule is not None:
            return NO_ANSWERS
        alone = self._expired(frontier)
        # Before the first rows there are no stores.
        for store, window in zip(self._stores, self._windows.tolist(), strict=False):
            store.drop_before(frontier - window)
        self._forget_labels()
        if not self.plan.changes and not self.remembers and self.partners is None:
            return NO_ANSWERS
        ended = self.standing.until(frontier)
        return alone if self.remembers else Answers.concat([self._left(ended), alone])

    def _forget_labels(self) -> None:
        """Under time windows: number the labels of the rows held anew, where most labels are of none.

        Nothing but the stores keeps numbers of labels under these windows, and ownership those of the object it knows.
        """
        if len(self._groups) + len(self._differs) <= max(_LABELS, 2 * self._labels_kept):
            return
        self._groups = self._groups.kept([store.group.view for store in self._stores])
        self._differs = self._differs.kept([store.differ.view for store in self._stores])
        for store in self._stores:
            store.index_anew()
        self._labels_kept = len(self._groups) + len(self._differs)

    @property
    def next_expiry(self) -> int | None:
        """When the next row leaves a time window, where rows without a partner are reported."""
        if self.partners is None:
            return None
        over = [s.time.view + w for s, w in zip(self._stores, self._windows.tolist(), strict=False)]
        waiting = [int(own[own >= self.past].min()) for own in over if (own >= self.past).any()]
        return min(waiting, default=None)

    def end(self) -> Answers:
        """The streams have ended: whatever is held leaves. Returns the rows that had no partner."""
        if self.plan.rule is None:
            return self._expired(_EVER)
        return self._pushed_out(None)

    def _expired(self, frontier: int) -> Answers:
        """Under time windows, rows that leave now; they are reported once, whenever they are forgotten."""
        if self.partners is None:
            return NO_ANSWERS
        found = []
        for own, (store, window) in enumerate(zip(self._stores, self._windows.tolist(), strict=False)):
            some = store.between(max(_NEVER, self.past - window), frontier - window)
            over = store.time.view[some] + window
            leave = (over >= self.past) & (over < frontier) & (store.group.view[some] != GONE)
            gone = some.start + np.flatnonzero(leave)
            found.append(self.partners.leave(int(self._stream_of[own]), store, self._spoken_for(own, gone)))
        self.past = max(self.past, frontier)
        return self._left(self.partners.answers(found))

    def _pushed_out(self, before: Ints | None) -> Answers:
        """Under windows that go by rows, rows that the floors have passed since ``before``; None: all that are held."""
        if self.partners is None:
            return NO_ANSWERS
        self._grow_floor()
        found = []
        for own, store in enumerate(self._stores):
            stream, group, rank = int(self._stream_of[own]), store.group.view, store.rank.view
            if before is None:
                gone = rank >= self._floor[group, stream]
            else:
                known = np.zeros((len(self._floor), self._floor.shape[1]), np.int64)
                known[: len(before)] = before
                gone = (rank >= known[group, stream]) & (rank < self._floor[group, stream])
            rows = self._spoken_for(own, np.flatnonzero(gone))
            found.append(self.partners.leave(stream, store, rows))
        return self._left(self.partners.answers(found))

    def _spoken_for(self, own: int, rows: Ints) -> Ints:
        """Of some rows of a store, those that this instance speaks for."""
        if self.ownership is None or len(rows) == 0:
            return rows
        stream = int(self._stream_of[own])
        objects = self._stores[own].objects(self.plan.models[stream].form, rows, self._groups, self._differs)
        return rows[self.ownership.spoken_for(objects)]

    def leave(self, floors: WindowStarts) -> Answers:
        """Windows that go by rows have moved on: forget what they no longer hold.

        Returns the pairs that this ends, where the plan asks for changes.
        """
        groups = self._groups.of(floors.group, len(floors))
        self._grow_floor()
        before = self._floor.copy() if self.partners is not None else None
        np.maximum.at(self._floor, (groups, floors.stream), floors.floor)
        alone = NO_ANSWERS if before is None else self._pushed_out(before)
        for own, store in enumerate(self._stores):
            if not self.plan.grouped:
                store.drop_before(int(self._floor[0, self._stream_of[own]]))
            elif store.crowded:
                store.keep(self._live(own))
        return Answers.concat([self._left(self.standing.below(self._floor, groups, floors)), alone])

    def withdraw(self, batches: Sequence[tuple[int, int, Objects]]) -> Answers:
        """Under time windows: forget rows, by stream and lane, as if they had never come. Others are not held here.

        Returns the pairs that this ends, where the plan asks for changes, or pairs wait elsewhere.
        """
        parts: dict[int, list[Objects]] = {}
        for stream, lane, rows in batches:
            parts.setdefault(stream * self.lanes + lane, []).append(rows)
        serials = []
        for own, several in parts.items() if self._stores else ():
            store, form = self._stores[own], self.plan.models[int(self._stream_of[own])].form
            gone = same_rows(store, form, Objects.concat(several), (self._groups, self._differs))
            if len(gone):
                serials.append(self._serials_of(own, gone))
                self._forget(store, gone)
        self.gone = np.concatenate([np.empty(0, np.int64), *serials])
        return self._left(self.standing.without(self.gone)) if serials else NO_ANSWERS

    def _serials_of(self, own: int, rows: Ints) -> Ints:
        """Numbers of rows of a store that never change."""
        serial = self._stores[own].serial
        assert serial is not None  # noqa: S101 - rows may be withdrawn
        numbers: Ints = serial.view[rows] * len(self._stores) + own
        return numbers

    def _forget(self, store: WindowBuffer, rows: Ints) -> None:
        """Rows of a store meet nobody any more; they are left out once they are many, or the index is another."""
        store.group.view[rows] = GONE
        stays = store.group.view != GONE
        if store.line is not None or 4 * int(stays.sum()) < 3 * len(store):
            store.keep(np.flatnonzero(stays))

    def renumber(self, withdrawn: WindowStarts) -> Answers:
        """Under windows that go by rows: forget rows by their numbers; those behind them move up."""
        groups = self._groups.of(withdrawn.group, len(withdrawn))
        gone, serials = Withdrawn(groups, withdrawn.stream, withdrawn.floor), []
        for own, store in enumerate(self._stores):
            stream = np.full(len(store), self._stream_of[own])
            mine, store.rank.view[:] = gone.renumber(store.group.view, stream, store.rank.view)
            if store.frame is not None:
                gone.reframe(store.group.view, store.frame.view)
            if mine.any():
                serials.append(self._serials_of(own, np.flatnonzero(mine)))
                store.keep(np.flatnonzero(~mine))
        self.gone = np.concatenate([np.empty(0, np.int64), *serials])
        return self._left(self.standing.renumbered(gone))

    def _left(self, pairs: Answers) -> Answers:
        self.output.add(len(pairs))
        return pairs

    def holds(self, stream: int, objects: Objects) -> Flags:
        """Which of these numbered rows their window still holds."""
        group = self._groups.of(objects.group, len(objects))
        self._grow_floor()
        mask: Flags = objects.number >= self._floor[group, stream]
        return mask

    def live(self) -> list[tuple[int, int, Objects]]:
        """The rows held that are in the windows, by stream and lane."""
        held = []
        for own, store in enumerate(self._stores):
            stream = int(self._stream_of[own])
            rows = self._live(own)
            if len(rows):
                objects = store.objects(self.plan.models[stream].form, rows, self._groups, self._differs)
                held.append((stream, own % self.lanes, objects))
        return held

    def _live(self, own: int) -> Ints:
        """Rows of a store that its window still holds."""
        store = self._stores[own]
        if self.plan.rule is None:
            return np.flatnonzero(store.group.view != GONE)
        self._grow_floor()
        return np.flatnonzero(store.rank.view >= self._floor[store.group.view, self._stream_of[own]])

    def _grow_floor(self) -> None:
        if len(self._groups) > len(self._floor):
            more = np.zeros((2 * len(self._groups) - len(self._floor), self._floor.shape[1]), np.int64)
            self._floor = np.vstack([self._floor, more])

    @property
    def choices(self) -> list[tuple[str, Choice]]:
        """The index that each stream's rows have, where it was chosen by cost."""
        named = [
            (self.plan.streams[int(s)], store.choice) for s, store in zip(self._stream_of, self._stores, strict=False)
        ]
        return [(name, choice) for name, choice in named if choice is not None]

    def _admit(self, batches: Sequence[tuple[int, int, Objects]]) -> Arrivals | None:
        """Put the rows of a push at the ends of their stores, in tick order; None if there are none."""
        batches = [batch for batch in batches if len(batch[2])]
        if not batches:
            return None
        d = batches[0][2].d
        if not self._stores:
            numbered = self.plan.rule is not None
            further = Further(
                framed=self.plan.frame_width if self.plan.uncertain else 0,
                paired=self.partners is not None,
                counted=0 if self.partners is None else self.partners.counted,
                serial=self.plan.withdrawn,
                margins=self.plan.margins,
            )
            self._stores = [
                WindowBuffer(
                    d,
                    self.plan.index,
                    self.plan.limit,
                    self.plan.threshold,
                    numbered=numbered,
                    grouped=self.plan.grouped,
                    further=further,
                )
                for _ in self._stream_of
            ]
        parts, many = [], self._by_products_of(d, sum(len(rows) for _, _, rows in batches))
        for own, store in enumerate(self._stores):
            mine = [rows for stream, lane, rows in batches if stream * self.lanes + lane == own]
            if not mine:
                continue
            objects = Objects.concat(mine)
            if objects.d != store.d:
                raise StateError(
                    f"Stream {self.plan.streams[own // self.lanes]!r} sends rows of {objects.d} dimensions to a window "
                    f"of {store.d}. Give Samples(names=...) so that every task agrees on their number."
                )
            ticks = self._ticks(objects.time, objects.frame)
            if (ticks[1:] < ticks[:-1]).any():
                objects = objects.take(np.argsort(ticks, kind="stable"))
            parts.append(self._extend(own, store, objects, many=many))
        arrivals = Arrivals.concat(parts)
        ticks = self._ticks(arrivals.time, arrivals.frame)
        if (ticks[1:] >= ticks[:-1]).all():
            return arrivals
        return arrivals.take(np.argsort(ticks, kind="stable"))

    def _ticks(self, time: Ints, frame: Ints | None) -> Ints:
        """What says which of two rows of a group came at the earlier tick.

        Ticks that follow the order of arrival need not follow time. Frames of uncertain windows hold the newest number
        of each stream, and at every tick of a group one of these has grown.
        """
        if frame is None or not self.plan.uncertain:
            return time
        newest: Ints = frame[:, len(self.plan.streams) :].sum(axis=1)
        return newest

    def _extend(self, own: int, store: WindowBuffer, objects: Objects, *, many: bool) -> Arrivals:
        model = self.plan.models[int(self._stream_of[own])]
        if not self.plan.points_only and not self.plan.closed_form:
            # The reach of encode stands: tiles were chosen by it.
            objects = replace(sampled(objects, model, self.plan.quantile), reach=objects.reach)
        n, extent = len(objects), self.extents(objects, model)
        group, differ = self._groups.of(objects.group, n), self._differs.of(objects.differ, n)
        # Rows taken from state have no frames: whatever else is there, is there with them.
        frame = np.zeros((n, self.plan.frame_width), np.int64) if objects.frame is None else objects.frame
        begin = len(store)
        store.extend(objects, extent, group, differ)
        if "moment" not in self.plan.bounds or self.plan.margins:
            store.variance.view[begin:] = UNKNOWN
        elif len(objects.first) and self.plan.closes(model) and objects.spread.shape[1]:
            # Pairs of normal rows are not sampled, and a few points vary less than what they stand for.
            deviation = widest(objects.spread, model) * (1.0 + 1e-9)
            np.maximum(store.variance.view[begin:], deviation**2, out=store.variance.view[begin:])
        # As the store has them: kernels are compiled for arrays that may be written, and those of a block may not.
        time, centre, extent, mass, variance = (
            column.view[begin:] for column in (store.time, store.centre, store.extent, store.mass, store.variance)
        )
        rows = np.arange(begin, begin + n)
        if many and not self.plan.audit:
            centre = centre[:, :0]  # of vectors to copy them may take longer than to join them
        return Arrivals(time, np.full(n, own), rows, centre, extent, mass, variance, group, differ, frame)

    def _by_products_of(self, d: int, arrivals: int) -> bool:
        """Whether the pairs of so many arrivals in ``d`` dimensions are found by products."""
        if d < MANY_DIMENSIONS or arrivals < MANY_ARRIVALS:
            return False
        plan = self.plan
        return plan.points_only and plan.earth is None and plan.plain and plan.index in ("auto", "dense")

    def extents(self, objects: Objects, model: Model) -> Floats:
        """The radius within which each row is looked for."""
        extent = objects.reach
        if "reach" in self.plan.bounds:
            return self._capped(objects, model)
        whole = objects.radius
        if in_closed_form(model) and objects.spread.shape[1]:
            whole = np.maximum(whole, _GAUSSIAN_EDGE * widest(objects.spread, model))
        if objects.margin is not None:
            whole = whole + margin_reach(objects.margin, objects.d, self.plan.metric)
        return np.maximum(extent, whole)

    def _capped(self, objects: Objects, model: Model) -> Floats:
        """Reaches, but no farther than any two rows match: what has a large error is nowhere likely."""
        reach, (away, deviation, usual) = objects.reach, self.plan.densest
        if not objects.spread.shape[1] or usual == math.inf or float(reach.max(initial=0.0)) <= usual:
            return reach
        never = widest(objects.spread, model) > deviation * (1.0 + 1e-6)
        capped: Floats = np.where(never, 0.0, np.minimum(reach, away))
        return capped

    def _reach_of(self, own: int, arrivals: Arrivals) -> tuple[Ints, Ints]:
        """The least rank in the store's window at each arrival, and the greatest that finds the arrival in its own."""
        if self.plan.rule is None:
            return arrivals.time - self._windows[own], arrivals.time + self._windows[arrivals.store]
        oldest = arrivals.frame[:, self._stream_of[own]].copy()
        return oldest, np.full(len(oldest), _EVER)
