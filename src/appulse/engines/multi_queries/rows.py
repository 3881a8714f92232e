"""The rows of several streams that queries may still meet, push by push."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.engines.queries.call import as_known, without_views
from appulse.engines.queries.rows import points_of
from appulse.kernels.strings import hash_rows
from appulse.model.batch import Batch, Ragged
from appulse.model.columns import chunk
from appulse.model.encode import checked, keys_of
from appulse.model.strings import Bytes, Labels, encode
from appulse.operators.held_parts import HeldParts, group_hashes
from appulse.operators.labels import LabelNumbers
from appulse.operators.query_match import Points
from appulse.operators.query_windows import Sampled, StreamView
from appulse.queries.columns import TEXT, values_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from appulse.engines.queries.call import QueryCall
    from appulse.kernels.arrays import Flags, Floats, Hashes, Ints
    from appulse.model.encode import ValidRows

# The number of a row, while it is checked.
_ROW = "\0row"
#: No tick is before this one, and none after that one.
NEVER, END = -(1 << 62), 1 << 62
#: The longest windows there are, one for each stream, in microseconds (False) and in rows (True).
Longest = dict[bool, tuple[int, ...]]
#: Of each of two streams the columns that are equal in all choices.
Links = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class _Samples(Batch):
    """Samples of rows, with all columns that conditions may name."""

    table: pa.Table
    weight: Floats


@dataclass(frozen=True)
class WindowRows(Batch):
    """Rows of one stream, as they came, and their samples (None: rows are certain)."""

    table: pa.Table
    time: Ints
    samples: Ragged[_Samples] | None = None

    @staticmethod
    def of(table: pa.Table, rows: ValidRows, call: QueryCall) -> WindowRows:
        """Good rows, as they came and as checked."""
        points = points_of(rows, call.encoding)
        if points.owner is None or points.weight is None:
            return WindowRows(table, rows.time)
        samples = _Samples(pa.table(dict(points.columns)), points.weight)
        return WindowRows(table, rows.time, Ragged(np.searchsorted(points.owner, np.arange(len(rows) + 1)), samples))

    @staticmethod
    def none(call: QueryCall) -> WindowRows:
        """No rows, in the types that there are."""
        table = call.schema.empty_table().select(call.columns)
        return WindowRows.of(table, checked(table, call.encoding, call.columns)[0], call)

    def sampled(self) -> Sampled:
        """The samples, as queries read them."""
        samples = self.samples
        table = self.table if samples is None else samples.values.table
        columns = {name: chunk(table[name]) for name in table.column_names}
        if samples is None:
            return Sampled(Points(columns, len(table), self.time))
        owner = samples.owner
        return Sampled(Points(columns, len(table), self.time[owner], owner, samples.values.weight))


class Snapshot:
    """The rows of all streams at a push: those held before, and those that came with it.

    Windows in time show a row as it comes, windows in rows once its tick is complete: before ``complete``. ``was`` is
    what was complete at the push before. Ticks are times, or, where rows are taken as they come, counted.
    """

    def __init__(
        self,
        streams: Sequence[QueryCall],
        rows: Sequence[WindowRows],
        ticks: Sequence[Ints],
        new: Sequence[Flags],
        was: int,
        complete: int,
        *,
        whole: bool = True,
    ) -> None:
        self.whole = whole  # whether all rows are shown
        self.streams, self.rows, self.ticks, self.new, self.was, self._complete = (
            streams,
            rows,
            ticks,
            new,
            was,
            complete,
        )
        self._sides: dict[bool, list[StreamView]] = {}

    def there(self, stream: int) -> Flags:
        """The rows of complete ticks."""
        there: Flags = self.ticks[stream] < self._complete
        return there

    def sides(self, *, counted: bool) -> list[StreamView]:
        """The streams as windows of one kind see them: in rows, if rows are ``counted``, or in time."""
        if counted not in self._sides:
            self._sides[counted] = [self._side(stream, counted=counted) for stream in range(len(self.rows))]
        return self._sides[counted]

    def standing(self) -> list[StreamView]:
        """The streams with all rows of complete ticks, whenever they came."""
        there = [self.there(stream) for stream in range(len(self.rows))]
        given = zip(self._sampled, self.ticks, self.groups, self._ranks, there, strict=True)
        return [StreamView(*of_stream) for of_stream in given]

    def _side(self, stream: int, *, counted: bool) -> StreamView:
        ticks, new = self.ticks[stream], self.new[stream]
        group, rank, samples = self.groups[stream], self._ranks[stream], self._sampled[stream]
        if not counted:
            return StreamView(samples, self.rows[stream].time, group, rank, np.ones(len(new), bool), new)
        there = self.there(stream)
        return StreamView(samples, ticks, group, rank, there, there & (new | (ticks >= self.was)))

    @cached_property
    def _sampled(self) -> list[Sampled]:
        return [rows.sampled() for rows in self.rows]

    @cached_property
    def groups(self) -> list[Ints]:
        """The group of each row, numbered alike in all streams."""
        numbers = LabelNumbers()
        found = []
        for rows, call in zip(self.rows, self.streams, strict=True):
            found.append(numbers.of(_labels(rows, call), len(rows)))
        return found

    @cached_property
    def _ranks(self) -> list[Ints]:
        return [
            _ranks(rows, call, tick, group)
            for rows, call, tick, group in zip(self.rows, self.streams, self.ticks, self.groups, strict=True)
        ]


@dataclass(frozen=True)
class _Held(Batch):
    """Rows of a stream with their ticks."""

    rows: WindowRows
    tick: Ints


class _StreamRows:
    """The rows of one stream that are held, by the values of the columns that ``link`` them to those of another."""

    def __init__(self, call: QueryCall) -> None:
        self._call, self.none = call, _Held(WindowRows.none(call), np.empty(0, np.int64))
        self.link: tuple[str, ...] = ()
        self.held: HeldParts[_Held] = HeldParts(lambda held: self.hashes(held.rows), lambda held: held.rows.time)

    def all(self) -> _Held:
        """All of them."""
        held = self.held.all()
        return self.none if held is None else held

    def by(self, link: tuple[str, ...]) -> None:
        """Find rows by other columns."""
        if link != self.link:
            self.link = link
            self.held.set(self.held.all())

    def hashes(self, rows: WindowRows) -> Hashes:
        """Hashes of the groups of rows and of the values that link them: the same for those that are equal."""
        found = group_hashes(_labels(rows, self._call), len(rows)).view(np.uint64)
        for name in self.link:
            values = values_of(chunk(rows.table[name]))
            if values.kind == TEXT:
                data = Bytes.of([value.encode() for value in values.data.tolist()])
            else:
                data = Bytes.fixed((values.data.astype(np.float64) + 0.0).view(np.uint8).reshape(len(rows), 8))
            found = hash_rows(data.offsets, data.data, found.view(np.int64))
        return found


class BufferedRows:
    """The rows that windows may still hold, or whose tick is not complete yet; deterministic, free of any engine."""

    def __init__(self, streams: Sequence[QueryCall], *, arrival: bool) -> None:
        self._streams, self._arrival = streams, arrival
        self._held = [_StreamRows(one) for one in streams]
        self.complete = NEVER
        self.ticked = 0  # ticks there have been, where rows are taken as they come

    def __len__(self) -> int:
        """How many rows are held."""
        return sum(len(own.held) for own in self._held)

    @property
    def nbytes(self) -> int:
        return sum(own.held.nbytes for own in self._held)

    def all(self) -> list[tuple[WindowRows, Ints]]:
        """The rows of each stream in the order in which they came, and their ticks."""
        return [(held.rows, held.tick) for held in (own.all() for own in self._held)]

    def set(self, stream: int, rows: WindowRows, ticks: Ints) -> None:
        """Hold these rows of a stream alone."""
        self._held[stream].held.set(_Held(rows, ticks))

    @property
    def due(self) -> int | None:
        """The oldest tick that is not complete."""
        waiting = [tick[tick >= self.complete] for _, tick in self.all()]
        return min((int(tick.min()) for tick in waiting if len(tick)), default=None)

    def push(self, came: Mapping[int, WindowRows], complete: int, links: Links | None = None) -> Snapshot:
        """Take in rows by stream, and complete all ticks before one.

        With ``links`` rows are shown alone that such columns link to some that came; without them all that are held.
        """
        was, self.complete = self.complete, max(self.complete, complete)
        ticks = self._ticks_of(came)
        fresh = {i: _Held(rows, ticks[i]) for i, rows in came.items()}
        shown = []
        for i, own in enumerate(self._held):
            new = [fresh[i]] if i in fresh else []
            taken = [own.all()] if links is None else self._linked(i, came, links)
            shown.append(_Held.concat([own.none, *taken, *new]))
            if links is None:
                own.held.set(shown[i])
            elif new:
                own.held.add(new[0])
        new_rows = [np.arange(len(own)) >= len(own) - len(came.get(i, ())) for i, own in enumerate(shown)]
        rows, own_ticks = [own.rows for own in shown], [own.tick for own in shown]
        return Snapshot(self._streams, rows, own_ticks, new_rows, was, self.complete, whole=links is None)

    def _linked(self, stream: int, came: Mapping[int, WindowRows], links: Links) -> list[_Held]:
        """The rows held of one of two streams that are linked to some of the other that came."""
        own, other = self._held[stream], self._held[1 - stream]
        own.by(links[stream])
        other.by(links[1 - stream])
        return own.held.of(other.hashes(came[1 - stream])).rows if 1 - stream in came and len(own.held) else []

    def forget(self, shown: Snapshot, frontier: int, longest: Longest) -> None:
        """Forget what no row to come meets any more: none will be older than ``frontier``."""
        for i, (rows, tick) in enumerate(zip(shown.rows, shown.ticks, strict=True)):
            if not shown.whole:
                before = frontier - min(longest[False][i], END // 2)
                self._held[i].held.forget(min(before, self.complete))
                continue
            kept = ~shown.there(i)
            if False in longest:
                kept |= rows.time >= frontier - min(longest[False][i], END // 2)
            if True in longest:
                kept |= shown.sides(counted=True)[i].newest(longest[True][i])
            if not kept.all():
                self.set(i, rows.filter(kept), tick[kept])

    def _ticks_of(self, came: Mapping[int, WindowRows]) -> dict[int, Ints]:
        if not self._arrival:
            return {i: rows.time for i, rows in came.items()}
        known = np.unique(np.concatenate([np.empty(0, np.int64), *(rows.time for rows in came.values())]))
        self.ticked += len(known)
        return {i: self.ticked - len(known) + np.searchsorted(known, rows.time) for i, rows in came.items()}


def _labels(rows: WindowRows, call: QueryCall) -> Labels | None:
    """The group of each row; None: there is one."""
    by = call.encoding.partition_by
    return Labels.of([chunk(rows.table[name]) for name in by]) if by else None


def rows_of(call: QueryCall, table: pa.Table) -> tuple[WindowRows, pa.Table]:
    """The good rows of a stream, and its bad rows as rejects."""
    table = as_known(table, call).select(call.columns).combine_chunks()
    table = table.cast(without_views(table.schema))
    numbered = table.append_column(_ROW, pa.array(np.arange(len(table))))
    rows, bad = checked(numbered, call.encoding, [*call.columns, _ROW])
    at = rows.table[_ROW]
    good = table if len(at) == len(table) else table.take(at)
    return WindowRows.of(good, replace(rows, table=rows.table.drop_columns([_ROW])), call), bad


def _ranks(rows: WindowRows, call: QueryCall, tick: Ints, group: Ints) -> Ints:
    """The order of rows of one tick: by key, then by all that they hold, so that it is the same everywhere.

    Rows that are alone at their time have no rank, for there is none to be put before. Rows of a tick are of one time.
    """
    ranks = np.zeros(len(tick), np.int64)
    at = _tied(rows.time, group)
    if not len(at):
        return ranks
    few = rows.table.take(pa.array(at)).combine_chunks()
    keys = _ranked(keys_of(few, call.encoding))
    same, content = _tied(keys, tick[at], group[at]), np.zeros(len(at), np.int64)
    if len(same):
        content[same] = _ranked(few.take(pa.array(same)).combine_chunks().to_struct_array().combine_chunks())
    ranks[at] = keys * (len(keys) + 1) + content
    return ranks


def _tied(*columns: Ints) -> Ints:
    """The rows that have all of their values in common with another."""
    order = np.lexsort(columns)
    if not len(order):
        return order
    tied = np.logical_and.reduce([np.diff(values[order]) == 0 for values in columns])
    found: Ints = order[np.append(tied, False) | np.append(False, tied)]
    return found


def _ranked(values: pa.Array) -> Ints:
    """The rank of each value's canonical bytes, from 1; equal ones have one rank."""
    return np.asarray(pc.rank(encode(values).to_arrow(), tiebreaker="dense")).astype(np.int64)
