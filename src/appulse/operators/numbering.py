"""Rows wait for their tick to be complete, are numbered in the order of ticks, and learn what the windows hold then.

What windows that go by rows need, and nothing but: after it no stage has to know a stream's order. A deterministic
state machine: `hold` rows as they come, `release` those whose ticks are complete, `number` them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.errors import StateError
from appulse.kernels import bursts, poisson_binomial
from appulse.kernels import numbering as kernels
from appulse.kernels.delta import Attributes, evict_far
from appulse.kernels.strings import gather_runs
from appulse.model.batch import Ragged
from appulse.model.objects import Objects
from appulse.model.strings import Bytes, Labels
from appulse.operators.buffers import Arena, Column
from appulse.operators.bursts import check_chains
from appulse.operators.labels import LabelNumbers
from appulse.operators.presence import ExistenceTable
from appulse.operators.running_presence import LongWindows, RunningPresence, run_on
from appulse.operators.window_starts import WindowStarts, Withdrawn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.operators.attributes import Attribute
    from appulse.operators.running_presence import LongWindow
    from appulse.windows.frames import Rule

#: A time after every tick.
END = int(np.iinfo(np.int64).max)
_COMPACT_FROM = 4096
# Weights that sum to 1 need not do so in float64.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Numbered:
    """Rows with numbers and frames; floors to tell, each with the place it is for; and what may not exist."""

    objects: list[Objects]
    places: Ints
    floors: WindowStarts
    presence: ExistenceTable | RunningPresence | None


@dataclass(frozen=True)
class Released:
    """Rows of one stream in canonical order, and the places each has copies at: ``places[first[i]:first[i + 1]]``."""

    stream: int
    objects: Objects
    first: Ints
    places: Ints


@dataclass(frozen=True)
class _WindowContents:
    """Windows of groups and streams: the rows of window i are those of the arena at ``rows[first[i]:first[i + 1]]``.

    The first ``count[i]`` were there before, the others have just come; they are numbered from ``base[i]``.
    """

    group: Ints
    stream: Ints
    base: Ints
    first: Ints
    count: Ints
    rows: Ints


class Sequencer:
    """The windows of every group of ``streams`` streams, as numbers.

    ``places`` is how many places (tiles) rows have copies at. With ``every_tick`` places learn each floor of each
    tick, else only the last one. With ``in_order`` no row is ever numbered behind a tick that was released. Rows that
    are in an uncertain window with a probability less than ``least`` leave it, too. ``capped`` counts those that left
    for the sake of ``max_rows`` alone. With ``tabled`` what may not exist is always a table. ``attribute`` is that of a
    delta window under value uncertainty.
    """

    def __init__(
        self,
        streams: int,
        rule: Rule,
        places: int = 1,
        *,
        tabled: bool = False,
        every_tick: bool = False,
        in_order: bool = True,
        least: float = 0.0,
        attribute: Attribute | None = None,
    ) -> None:
        self._attribute = attribute
        self.rule, self.places, self._every_tick, self._in_order = rule, places, every_tick, in_order
        self._streams, self._least, self._tabled, self.capped = streams, least, tabled, 0
        self._reset()

    def _reset(self) -> None:
        streams = self._streams
        self._held: list[list[Objects]] = [[] for _ in range(streams)]
        self._groups, self._running = LabelNumbers(), LongWindows()
        self._next, self._floor = np.zeros((1, streams), np.int64), np.zeros((1, streams), np.int64)
        self._head, self._tail = (np.full((1, streams), kernels.NONE, np.int64) for _ in range(2))
        self._block = np.full(1, kernels.no_block(), np.int64)
        self._kept = 0  # rows in the arena when it was last tidied
        self._last = -(1 << 62)  # the last tick there was
        self._clear_arena()

    def _clear_arena(self) -> None:
        self._number, self._group, self._stream = Column(np.int64), Column(np.int64), Column(np.int64)
        self._following, self._copy_first, self._copy_count = Column(np.int64), Column(np.int64), Column(np.int64)
        self._tick, self._measure, self._copies = Column(np.int64), Column(np.float64), Column(np.int64)
        self._values, self._shares = Arena(np.float64), Arena(np.float64)

    def __len__(self) -> int:
        """Rows waiting."""
        return sum(len(part) for parts in self._held for part in parts)

    @property
    def nbytes(self) -> int:
        """Bytes held, roughly."""
        waiting = sum(part.nbytes for parts in self._held for part in parts)
        attributes = self._values.nbytes + self._shares.nbytes
        rows = sum(column.nbytes for column in self._arena()) + self._running.nbytes
        return waiting + rows + attributes + 6 * self._next.nbytes

    def _arena(self) -> list[Column]:
        rows = [self._number, self._group, self._stream, self._following, self._copy_first, self._copy_count]
        return [*rows, self._tick, self._measure, self._copies]

    @property
    def oldest(self) -> int | None:
        """The least time among the rows waiting."""
        return min((int(part.time.min()) for parts in self._held for part in parts), default=None)

    def waiting(self) -> list[tuple[int, Objects]]:
        """The rows that wait, by stream."""
        return [(stream, part) for stream, parts in enumerate(self._held) for part in parts]

    def hold(self, stream: int, objects: Objects) -> None:
        """Let rows wait for their ticks."""
        if len(objects):
            self._held[stream].append(objects)

    def release(self, before: int) -> list[tuple[int, Objects]]:
        """The rows waiting with a time less than ``before``, by stream, each stream in canonical order."""
        released = []
        for stream, parts in enumerate(self._held):
            ready, later = [], []
            for part in parts:
                done = part.time < before
                if done.all():
                    ready.append(part)
                elif done.any():
                    ready.append(part.take(np.flatnonzero(done)))
                    later.append(part.take(np.flatnonzero(~done)))
                else:
                    later.append(part)
            self._held[stream] = later
            if ready:
                released.append((stream, in_canonical_order(Objects.concat(ready))))
        return released

    def keep_waiting(self, rows: Sequence[tuple[int, Objects]]) -> None:
        """Of the rows that wait only these do."""
        self._held = [[part for i, part in rows if i == stream and len(part)] for stream in range(self._streams)]

    def holds(self, stream: int, objects: Objects) -> Flags:
        """Which of some numbered rows their windows hold."""
        group = self._groups.of(objects.group, len(objects))
        self._grow_groups()
        held: Flags = objects.number >= self._floor[group, stream]
        return held

    def withdraw(self, rows: Sequence[tuple[int, Objects]]) -> WindowStarts:
        """Numbered rows are withdrawn: as if they had never come, but rows that they pushed out do not come back.

        Returns them, by their numbers in place of floors: every place has to know.
        """
        groups = [self._groups.of(part.group, len(part)) for _, part in rows]
        stream = np.concatenate([np.full(len(part), i) for i, part in rows])
        group, number = np.concatenate(groups), np.concatenate([part.number for _, part in rows])
        gone, numbers = Withdrawn(group, stream, number).renumber(
            self._group.view, self._stream.view, self._number.view
        )
        stays = self._live() & ~gone
        arena = self._rows(stays) | {"number": numbers[stays]}
        np.subtract.at(self._next, (group, stream), 1)
        self._running.clear()
        self._clear_arena()
        self._restore_rows(arena)
        notes = np.column_stack([np.zeros((len(number), 1), np.int64), group, stream, np.zeros_like(number), number])
        return self._floors(notes)

    def renumbered(self, withdrawn: WindowStarts, stream: int, objects: Objects) -> Ints:
        """The numbers of rows of a stream after `withdraw`."""
        groups = self._groups.of(withdrawn.group, len(withdrawn))
        own = self._groups.of(objects.group, len(objects))
        assert objects.number is not None  # noqa: S101 - they stand
        known = Withdrawn(groups, withdrawn.stream, withdrawn.floor)
        return known.renumber(own, np.full(len(own), stream), objects.number)[1]

    def oldest_met(self, released: Sequence[tuple[int, Objects]]) -> list[Ints]:
        """For each row about to be numbered, a time that no row in its windows lies before."""
        groups = [self._groups.of(objects.group, len(objects)) for _, objects in released]
        self._grow_groups()
        oldest = np.full(len(self._next), END)
        live = self._live()
        np.minimum.at(oldest, self._group.view[live], self._tick.view[live])
        for (_, objects), group in zip(released, groups, strict=True):
            np.minimum.at(oldest, group, objects.time)
        return [oldest[group] for group in groups]

    def number(self, released: Sequence[Released]) -> Numbered:
        """Number the rows; they come back as they came."""
        if not released:
            return Numbered([], np.empty(0, np.int64), self._floors(np.empty((0, 5), np.int64)), None)
        objects = [part.objects for part in released]
        groups = [self._groups.of(part.group, len(part)) for part in objects]
        self._grow_groups()
        time = np.concatenate([part.time for part in objects])
        stream = np.repeat([part.stream for part in released], [len(part) for part in objects])
        order = np.argsort(time, kind="stable")
        self._follow(int(time[order[0]]), int(time[order[-1]]))
        group, stream = np.concatenate(groups)[order], stream[order].astype(np.int64)
        self._compact()
        begin = len(self._number)
        self._append_rows(released, order, group, stream)
        self._tick.extend(time[order])
        presence, given = self._uncertain(begin, group)
        rule = kernels.WindowRule(self.rule.kind, self.rule.size, self.rule.bound)
        live = kernels.Live(
            self._following.view,
            self._number.view,
            self._measure.view,
            self._copy_first.view,
            self._copy_count.view,
            self._copies.view,
        )
        lists = kernels.Lists(self._next, self._floor, self._head, self._tail, self._block)
        rows = kernels.NewRows(time[order], stream, group, given)
        frames, notes = kernels.number_rows(rows, begin, rule, live, lists, self.places)
        number, frame = np.empty(len(order), np.int64), np.empty_like(frames)
        number[order], frame[order] = self._number.view[begin:], frames
        ends = np.cumsum([len(part) for part in objects])[:-1]
        numbered = [
            replace(part, number=own, frame=held)
            for part, own, held in zip(objects, np.split(number, ends), np.split(frame, ends), strict=True)
        ]
        if not self._every_tick:
            notes = _last_of_each(notes)
        return Numbered(numbered, notes[:, 0], self._floors(notes), presence)

    def presence(self) -> ExistenceTable | None:
        """The rows that uncertain windows hold now."""
        if not self.rule.uncertain:
            return None
        held = self._held_by(len(self._number), np.arange(len(self._groups)))
        return self._presence(held)

    def _windows_of(self, groups: Ints) -> Ints:
        return (np.unique(groups)[:, None] * self._streams + np.arange(self._streams)).ravel()

    def _held_by(self, begin: int, groups: Ints) -> _WindowContents:
        """The windows of some groups, with the rows they held and then those from ``begin`` on."""
        asked = self._windows_of(groups)
        window = self._group.view[begin:] * self._streams + self._stream.view[begin:]
        place = np.searchsorted(asked, window)
        rows, first, count = kernels.rows_of(self._head.ravel(), self._following.view, asked, begin, place)
        group, stream = np.divmod(asked, self._streams)
        return _WindowContents(group, stream, self._next[group, stream] - count, first, count, rows)

    def _presence(self, held: _WindowContents) -> ExistenceTable:
        exist = Ragged(held.first, self._measure.view[held.rows])
        return ExistenceTable(self._groups.labels(held.group), held.stream, held.base, exist)

    def _uncertain(self, begin: int, group: Ints) -> tuple[ExistenceTable | RunningPresence | None, Ints]:
        """What may not exist, and the floor of its window at the tick of each new row."""
        if self.rule.kind not in (kernels.UNCERTAIN_COUNT, kernels.UNCERTAIN_DELTA):
            return None, np.empty(0, np.int64)
        if self.rule.uncertain and not self.rule.bursts and not self._tabled:
            groups, streams = np.divmod(self._windows_of(group), self._streams)
            oldest, end = self._floor[groups, streams], self._next[groups, streams]
            if run_on(end - oldest, len(group)):
                windows = self._running.of(groups, streams, end, lambda: self._rows_held(groups))
                running = RunningPresence(self._groups.labels(groups), streams, self._running)
                return running, self._run_on(begin, windows, oldest.tolist())
        held = self._held_by(begin, np.unique(group))
        rows, many = held.rows, np.diff(held.first)
        fresh = np.flatnonzero(rows >= begin)
        tick = self._tick.view[rows[fresh]]
        tick_end, floor = np.zeros(len(rows), bool), np.empty(len(rows), np.int64)
        tick_end[fresh] = np.append(np.diff(tick) != 0, True)
        tick_end[held.first[1:][many > 0] - 1] = True
        ticks = poisson_binomial.Ticks(held.first, held.count, tick_end)
        presence = None
        if self.rule.uncertain:
            presence = self._presence(held)
            self.capped += self._evict(ticks, held, presence.exist.values, floor)
        else:
            first, values = gather_runs(self._values.begin, self._values.length, 0, self._values.values, rows)
            shares = gather_runs(self._shares.begin, self._shares.length, 0, self._shares.values, rows)[1]
            attributes = Attributes(first, values, shares, self._measure.view[rows])
            evict_far(ticks, self.rule.bound, self.rule.confidence, attributes, floor)
        given = np.empty(len(fresh), np.int64)
        given[rows[fresh] - begin] = held.base[np.searchsorted(held.first, fresh, side="right") - 1] + floor[fresh]
        return presence, given

    def _rows_held(self, groups: Ints) -> Iterator[Floats]:
        """The existence of the rows that the windows of some groups hold."""
        held = self._held_by(len(self._number), groups)
        return (self._measure.view[rows] for rows in np.split(held.rows, held.first[1:-1]))

    def _run_on(self, begin: int, windows: Sequence[LongWindow], oldest: Sequence[int]) -> Ints:
        """The floor of its window at the tick of each new row, of windows that go on from push to push."""
        given = np.empty(len(self._number) - begin, np.int64)
        group, stream, tick = self._group.view[begin:], self._stream.view[begin:], self._tick.view[begin:]
        for window, before in zip(windows, oldest, strict=True):
            own = np.flatnonzero((group == window.group) & (stream == window.stream))
            tick_end = np.append(np.diff(tick[own]) != 0, True)[: len(own)]
            exist = self._measure.view[begin:][own]
            given[own], capped = window.evict(before, exist, tick_end, self._count_rule)
            self.capped += capped
        return given

    @property
    def _count_rule(self) -> poisson_binomial.CountRule:
        rule = self.rule
        least = self._least if rule.method == poisson_binomial.EXACT else 0.0
        most = END if rule.max_rows is None else rule.max_rows
        return poisson_binomial.CountRule(rule.size, rule.confidence, least, most, rule.method)

    def _evict(self, ticks: poisson_binomial.Ticks, held: _WindowContents, exist: Floats, floor: Ints) -> int:
        """Find the oldest row that each window keeps at each tick; how many rows went for the sake of the limit."""
        rule = self._count_rule
        if not self.rule.bursts:
            return poisson_binomial.evict(ticks, exist, rule, floor)
        correlation = np.array(self.rule.bursts)[held.stream]
        check_chains(held.first, held.count, exist, correlation, self._tick.view[held.rows])
        return bursts.evict(ticks, exist, correlation, rule, floor)

    def _follow(self, first: int, last: int) -> None:
        """Ticks go on, or something is badly wrong: rows behind a released tick are late, and never come here."""
        if self._in_order and first <= self._last:
            raise StateError(
                f"A row of time {first} (microseconds) came to be numbered after the tick {self._last} was released. "
                "This is a fault of appulse: please report it, with the job."
            )
        self._last = last

    def _append_rows(self, released: Sequence[Released], order: Ints, group: Ints, stream: Ints) -> None:
        """Put new rows into the arena, not yet numbered."""
        n, known = len(order), len(self._copies)
        sizes = np.cumsum([0] + [len(part.places) for part in released])
        first = np.concatenate([part.first[:-1] + size for part, size in zip(released, sizes[:-1], strict=True)])
        count = np.concatenate([np.diff(part.first) for part in released])
        measures = [self._measured(part) for part in released]
        self._measure.extend(
            np.zeros(n) if measures[0] is None else np.concatenate([m for m in measures if m is not None])[order]
        )
        self._copies.extend(np.concatenate([part.places for part in released]))
        self._copy_first.extend(first[order] + known)
        self._copy_count.extend(count[order])
        self._group.extend(group)
        self._stream.extend(stream)
        self._number.grow(n)
        self._following.grow(n)
        if self._attribute is not None:
            runs = [self._attribute.of(part.stream, part.objects) for part in released]
            ends = np.cumsum([0] + [len(values) for _, values, _ in runs])
            begins = np.concatenate([first[:-1] + end for (first, *_), end in zip(runs, ends[:-1], strict=True)])
            length = np.concatenate([np.diff(first) for first, *_ in runs])
            for arena, values in (
                (self._values, np.concatenate([values for _, values, _ in runs])),
                (self._shares, np.concatenate([shares for *_, shares in runs])),
            ):
                arena.extend(*gather_runs(begins, length, 0, values, order))

    def _measured(self, part: Released) -> Floats | None:
        """What the window goes by, a number a row: existence, a deviation, or the attribute itself."""
        if self.rule.uncertain:
            mass = part.objects.mass
            return np.where(mass >= 1.0 - _ROUNDING, 1.0, mass)
        return part.objects.measure if self._attribute is None else self._attribute.sigma(part.stream, part.objects)

    def _floors(self, notes: Ints) -> WindowStarts:
        numbers, codes = np.unique(notes[:, 1], return_inverse=True)
        labels = Labels(codes.astype(np.int32), tuple(self._groups.values[g] for g in numbers.tolist()))
        return WindowStarts(labels, notes[:, 2].copy(), notes[:, 3].copy(), notes[:, 4].copy())

    def _grow_groups(self) -> None:
        known, wanted = len(self._next), len(self._groups)
        if wanted <= known:
            return
        capacity = max(2 * known, wanted)
        for name, fill in (
            ("_next", 0),
            ("_floor", 0),
            ("_head", kernels.NONE),
            ("_tail", kernels.NONE),
            ("_block", kernels.no_block()),
        ):
            before: Ints = getattr(self, name)
            grown = np.full((capacity, *before.shape[1:]), fill, np.int64)
            grown[:known] = before
            setattr(self, name, grown)

    def _live(self) -> Flags:
        live: Flags = self._number.view >= self._floor[self._group.view, self._stream.view]
        return live

    def _compact(self) -> None:
        """Forget rows that have left, once they are the greater part: constant cost a row."""
        if len(self._number) < _COMPACT_FROM or len(self._number) < 2 * self._kept:
            return
        rows = self._rows(self._live())
        self._clear_arena()
        self._restore_rows(rows)
        self._kept = len(self._number)

    def _rows(self, mask: Flags) -> dict[str, NDArray[Any]]:
        """Arena rows as arrays."""
        at = np.flatnonzero(mask)
        count = self._copy_count.view[at]
        first = np.repeat(self._copy_first.view[at], count) - np.repeat(np.cumsum(count) - count, count)
        return {
            "group": self._group.view[at],
            "stream": self._stream.view[at],
            "number": self._number.view[at],
            "tick": self._tick.view[at],
            "measure": self._measure.view[at],
            **self._attributes(at),
            "copies": count,
            "places": self._copies.view[first + np.arange(len(first))],
        }

    def _attributes(self, at: Ints) -> dict[str, NDArray[Any]]:
        if self._attribute is None:
            return {}
        first, values = gather_runs(self._values.begin, self._values.length, 0, self._values.values, at)
        shares = gather_runs(self._shares.begin, self._shares.length, 0, self._shares.values, at)[1]
        return {"attribute_first": first, "attribute": values, "shares": shares}

    def _restore_rows(self, rows: Mapping[str, NDArray[Any]]) -> None:
        begin, known = len(self._number), len(self._copies)
        self._group.extend(rows["group"])
        self._stream.extend(rows["stream"])
        self._number.extend(rows["number"])
        self._tick.extend(rows["tick"])
        self._measure.extend(rows["measure"])
        self._copy_count.extend(rows["copies"])
        self._copy_first.extend(known + np.cumsum(rows["copies"]) - rows["copies"])
        self._copies.extend(rows["places"])
        self._following.grow(len(rows["number"]))
        if self._attribute is not None:
            self._values.extend(rows["attribute_first"], rows["attribute"])
            self._shares.extend(rows["attribute_first"], rows["shares"])
        if begin == 0:
            self._head[:] = self._tail[:] = kernels.NONE
        kernels.thread(
            begin,
            self._group.view,
            self._stream.view,
            self._number.view,
            self._floor,
            self._following.view,
            self._head,
            self._tail,
        )

    # --- state as arrays: what a log keeps ---------------------------------------------------------------------

    def mark(self) -> tuple[Ints, int]:
        """Where things stand, for `since`."""
        return self._next.copy(), len(self._groups)

    def since(self, mark: tuple[Ints, int] | None) -> dict[str, NDArray[Any]]:
        """What changed since the mark (None: everything), apart from the rows waiting, as arrays for `restore`."""
        n = len(self._groups)
        if mark is None:
            groups, rows = np.arange(n), self._rows(self._live())
        else:
            before = np.zeros_like(self._next[:n])
            known = min(len(mark[0]), n)
            before[:known] = mark[0][:known]
            groups = np.flatnonzero((self._next[:n] != before).any(axis=1))
            fresh = self._number.view >= _padded(mark[0], len(self._next))[self._group.view, self._stream.view]
            rows = self._rows(self._live() & fresh)
        labels = Bytes.of([self._groups.values[g] for g in groups.tolist()])
        rows["group"] = np.searchsorted(groups, rows["group"])
        state: dict[str, NDArray[Any]] = {
            "label_offsets": labels.offsets,
            "labels": labels.data,
            "next": self._next[groups],
        }
        return {
            **state,
            "last": np.array([self._last]),
            "floor": self._floor[groups],
            "block": self._block[groups],
            **rows,
        }

    def restore(self, state: Mapping[str, NDArray[Any]], *, whole: bool) -> None:
        """Take in what `since` gave: in place of everything if ``whole``."""
        if whole:
            self._reset()
        groups = self._groups.add(Bytes(state["label_offsets"], state["labels"]).to_list())
        self._grow_groups()
        self._next[groups], self._floor[groups], self._block[groups] = state["next"], state["floor"], state["block"]
        self._last = max(self._last, int(state["last"][0]))
        self._compact()
        self._restore_rows({**state, "group": groups[state["group"]]})


def in_own_window(objects: Objects, stream: int) -> Objects:
    """The numbered rows of a stream without those that their own tick pushed out: they never join."""
    if objects.number is None or objects.frame is None:
        return objects
    stays = objects.number >= objects.frame[:, stream]
    return objects if stays.all() else objects.take(np.flatnonzero(stays))


def pushed_out_at_once(objects: Objects, stream: int) -> Objects:
    """The rows that their own tick pushed out of their window."""
    if objects.number is None or objects.frame is None:
        return objects.slice(0, 0)
    return objects.filter(objects.number < objects.frame[:, stream])


def in_canonical_order(objects: Objects) -> Objects:
    """The rows by time, then by key, then by values: the same on every engine."""
    return objects if (np.diff(objects.time) > 0).all() else objects.take(canonical_order(objects))


def canonical_order(objects: Objects) -> Ints:
    """The places of the rows in canonical order."""
    time = objects.time
    order = np.argsort(time, kind="stable")
    columns = [objects.centre, objects.spread, objects.mass[:, None]]
    columns += [extra[:, None] for extra in (objects.measure, objects.margin) if extra is not None]
    columns += [] if objects.velocity is None else [objects.velocity]
    if objects.differ is not None:
        ranks = np.argsort(np.argsort(np.array([*objects.differ.values, b""], object), kind="stable"))
        columns.append(ranks[objects.differ.codes][:, None].astype(np.float64))
    keys, values = objects.key, np.hstack(columns)
    kernels.sort_ties(order, time, keys.offsets, keys.data, values, objects.first, objects.samples, objects.weights)
    return order


def _last_of_each(notes: Ints) -> Ints:
    """The last note for each (place, group, stream)."""
    if len(notes) < 2:
        return notes
    order = np.lexsort((np.arange(len(notes)), notes[:, 2], notes[:, 1], notes[:, 0]))
    ordered = notes[order]
    last = np.append((np.diff(ordered[:, :3], axis=0) != 0).any(axis=1), True)
    return np.compress(last, ordered, axis=0)


def _padded(array: Ints, n: int) -> Ints:
    out = np.zeros((n, *array.shape[1:]), np.int64)
    out[: len(array)] = array[:n]
    return out
