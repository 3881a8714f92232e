"""Rows that nothing can match are not filled: they wait as boxes until something may match them.

The box of an incomplete row comes from the index of its imputer alone: its observed attributes as they are, and around
what may stand in its holes the least and greatest of the nodes it touches. A row whose box lies farther than epsilon
from those of all rows that may share a window with it is in no answer, whatever fills it (Ren et al. 2019, Lemma 4.1,
and the objects of section 5.2 that are not completely imputed). It is filled, and joined, with the first rows that may
match it: those are the ones it makes pairs with, so answers come when they would have come.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Protocol, TypeGuard

import numpy as np
import pyarrow.compute as pc

from appulse.engines.join.call import JoinCall
from appulse.engines.objects import own_keys
from appulse.kernels.apart import Boxes, meeting_boxes
from appulse.model.batch import Batch
from appulse.model.encode import summarised
from appulse.model.filled import OBSERVED, Fill, Filled, split_ways, with_ways
from appulse.model.objects import Objects
from appulse.model.uncertainty import Exact, Incomplete, Samples
from appulse.operators.labels import LabelNumbers
from appulse.operators.numbering import in_canonical_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.encoding import Encoding
    from appulse.model.meaning import Meaning

    Batches = list[tuple[int, int, Objects]]  # stream, lane, rows

# Boxes to look at for a row, on the average, beyond which filling it costs less.
_MOST = 2048
# Room for numbers beside that of a group.
_NUMBERS = 40


class Boxing(Fill, Protocol):
    """A fill that can tell boxes around what it would fill in."""

    def boxes(self, values: Floats) -> tuple[Floats, Floats]:
        """Lows and highs, (n, d) each."""
        ...


def is_boxing(fill: Fill | None) -> TypeGuard[Boxing]:
    """Whether a fill tells boxes."""
    return hasattr(fill, "boxes")


@dataclass(frozen=True)
class HolesLeft:
    """A fill that leaves holes as they are: each row is one sample, NaN where something is missing."""

    whole: Boxing

    in_order = False

    def meaning(self) -> Meaning:
        """That of the fill whose work it leaves undone."""
        return self.whole.meaning()

    def describe(self, way: int) -> str:
        return self.whole.describe(way)

    def fill(self, values: Floats, time: Ints, group: Ints) -> Filled:  # noqa: ARG002 - rows stay as they are
        n = len(values)
        return Filled(np.arange(n + 1), values, np.ones(n), np.full(values.shape, OBSERVED, np.int64))


def is_open(objects: Objects) -> Flags:
    """Which rows still have holes."""
    return np.asarray(np.isnan(objects.centre).any(axis=1))


def filled_rows(objects: Objects, encoding: Encoding) -> Objects:
    """Rows that were left with their holes, filled: as encode would have made them."""
    assert encoding.fill is not None  # noqa: S101 - else there are no holes
    values = objects.samples.reshape(len(objects), objects.d)
    group = np.zeros(len(objects), np.int64) if objects.group is None else objects.group.codes.astype(np.int64)
    filled = encoding.fill.fill(values, objects.time, group)
    owner = np.repeat(np.arange(len(objects)), np.diff(filled.first))
    total = np.bincount(owner, filled.weights, len(objects))
    # To the last bit what encode makes of them.
    weights = np.where(total[owner] > 1.0, filled.weights / total[owner], filled.weights) * objects.mass[owner]
    rows = summarised(objects, filled.first, filled.rows, weights, encoding.quantile)
    if not encoding.carries_fill_source:
        return rows
    return replace(rows, key=with_ways(split_ways(objects.key, objects.d)[0], rows.centre, filled.way))


def all_filled(objects: Objects, encoding: Encoding) -> Objects:
    """The rows, those with holes filled, in the same order."""
    holes = is_open(objects)
    if not holes.any():
        return objects
    at, rest = np.flatnonzero(holes), np.flatnonzero(~holes)
    order = np.argsort(np.concatenate([at, rest]))
    return Objects.concat([filled_rows(objects.take(at), encoding), objects.take(rest)]).take(order)


@dataclass(frozen=True)
class _Boxes(Batch):
    """Rows of one stream as boxes, in order of rank: their time, or group and number.

    ``floors`` (n, streams) are the least ranks that windows held at a row's tick, where they go by rows. ``serial``
    tells the rows with holes apart; it is -1 for all others.
    """

    rank: Ints
    floors: Ints
    lows: Floats
    highs: Floats
    serial: Ints

    def ordered(self) -> _Boxes:
        return self if (np.diff(self.rank) >= 0).all() else self.take(np.argsort(self.rank, kind="stable"))


class LazyCall(JoinCall):
    """A call whose rows keep their holes when they are encoded."""

    def refused(self, stream: int, rows: Objects, reason: str, details: Sequence[str]) -> pa.Table:
        """Good rows as rejects all the same: filled, as rejects of any other call are."""
        encoding = self.streams[stream]
        if isinstance(encoding.fill, HolesLeft):
            rows = all_filled(rows, replace(encoding, fill=encoding.fill.whole))
        return super().refused(stream, rows, reason, details)


class Unfilled:
    """The rows of a join that nothing has met so far, and the boxes of all rows in reach.

    ``call`` is that of the join, but leaves holes. `admit` is given what goes to the operator.
    """

    def __init__(self, call: JoinCall) -> None:
        self._call, self._plan = call, call.plan
        streams = tuple(
            replace(encoding, fill=HolesLeft(encoding.fill)) if is_boxing(encoding.fill) else encoding
            for encoding in call.encodings
        )
        self.call = LazyCall(**{own.name: getattr(call, own.name) for own in fields(call)} | {"streams": streams})
        n, d = len(call.plan.streams), call.encodings[0].dimensions or 1
        width = n if call.plan.rule is not None else 0
        none = np.empty(0, np.int64)
        empty = _Boxes(none, np.empty((0, width), np.int64), np.empty((0, d)), np.empty((0, d)), none)
        self._held = [empty] * n
        self._waiting: list[Objects | None] = [None] * n  # rows with holes, in order of their serials
        self._serials = [none] * n
        self._next = self._made = 0
        self._groups = LabelNumbers()

    @staticmethod
    def of(call: JoinCall) -> Unfilled | None:
        """What keeps a call's rows unfilled; None where nothing would, or their boxes are not known."""
        plan = call.plan
        held_as_boxes = all(isinstance(encoding.model, Exact | Incomplete | Samples) for encoding in call.encodings)
        free = not any(encoding.where for encoding in call.encodings if encoding.fill is not None)
        # A delta window may go by the very attribute that is missing; by arrival, time does not tell who came first.
        timed = plan.rule is None or (plan.rule.column is None and not call.arrival)
        some = any(is_boxing(encoding.fill) for encoding in call.encodings)
        return Unfilled(call) if held_as_boxes and free and timed and some and "lazy" in plan.bounds else None

    @property
    def never(self) -> int:
        """Rows with holes that have not been filled so far."""
        return self._next - self._made

    def filled(self, stream: int, objects: Objects) -> Objects:
        """The rows of a stream, all of them filled."""
        return all_filled(objects, self._call.encodings[stream])

    def ties_filled(self, stream: int, objects: Objects) -> Objects:
        """Rows in canonical order, filled where that order takes what fills them: same time, same key."""
        holes = is_open(objects)
        if len(objects) < 2 or not holes.any():
            return objects
        keys = own_keys(objects, self._call.encodings[stream]).to_arrow()
        same = np.asarray(pc.equal(keys[1:], keys[:-1])) & (np.diff(objects.time) == 0)
        tied = holes & (np.append(same, False) | np.append(False, same))
        if not tied.any():
            return objects
        at, rest = np.flatnonzero(tied), np.flatnonzero(~tied)
        return in_canonical_order(Objects.concat([self.filled(stream, objects.take(at)), objects.take(rest)]))

    def admit(self, batches: Batches) -> Batches:
        """Take in rows; back come those to be joined now: complete ones, and all that something may match, filled."""
        fresh = {stream: self._boxes(stream, objects) for stream, _, objects in batches if len(objects)}
        ready = [(s, lane, objects.take(np.flatnonzero(~is_open(objects)))) for s, lane, objects in batches]
        for stream, boxes in fresh.items():
            self._held[stream] = _Boxes.concat([self._held[stream], boxes]).ordered()
        waiting = [stream for stream, serials in enumerate(self._serials) if len(serials)]
        ready += [(stream, 0, self._met(stream, fresh)) for stream in waiting]
        self._forget(fresh)
        return ready

    def advance(self, frontier: int) -> None:
        """No row before ``frontier`` will come any more: forget what none can reach, under windows of time."""
        for stream in range(len(self._held)):
            self._keep(stream, self._held[stream].rank >= frontier - max(self._plan.windows))

    def _boxes(self, stream: int, objects: Objects) -> _Boxes:
        """New rows as boxes; those with holes are put aside."""
        holes = is_open(objects)
        lows, highs = objects.centre.copy(), objects.centre.copy()
        if len(objects.radius) and objects.radius[~holes].any():
            wide = objects.radius * (1.0 + 1e-9) + 1e-12 * np.abs(objects.centre).max(axis=1)
            lows, highs = lows - wide[:, None], highs + wide[:, None]
        at, fill = np.flatnonzero(holes), self._call.encodings[stream].fill
        serial = np.full(len(objects), -1)
        if len(at) and is_boxing(fill):
            own = objects.take(at)
            lows[at], highs[at] = fill.boxes(own.samples.reshape(len(at), objects.d))
            serial[at] = self._next + np.arange(len(at))
            self._next += len(at)
            waiting = self._waiting[stream]
            self._waiting[stream] = own if waiting is None else Objects.concat([waiting, own])
            self._serials[stream] = np.concatenate([self._serials[stream], serial[at]])
        rank, floors = objects.time, np.empty((len(objects), 0), np.int64)
        if objects.number is not None and objects.frame is not None:
            group = self._groups.of(objects.group, len(objects)) << _NUMBERS
            rank, floors = group + objects.number, group[:, None] + objects.frame[:, : len(self._held)]
        return _Boxes(rank, floors, lows, highs, serial).ordered()

    def _met(self, stream: int, fresh: dict[int, _Boxes]) -> Objects:
        """Rows with holes that something may match, filled; they wait no more."""
        boxes, new = self._held[stream], fresh.get(stream)
        at = np.flatnonzero(boxes.serial >= 0)
        rows = boxes.take(at)
        # Rows that have waited have met all but what is new.
        first = self._next if new is None or not (new.serial >= 0).any() else int(new.serial[new.serial >= 0].min())
        wanted = np.zeros(len(rows), bool)
        for old, others in ((False, dict(enumerate(self._held))), (True, fresh)):
            asked = np.flatnonzero((rows.serial < first) == old)
            wanted[asked] |= self._meeting(stream, rows.take(asked), others)
        serials = np.sort(rows.serial[wanted])
        waiting = self._waiting[stream]
        assert waiting is not None  # noqa: S101 - there are serials
        places = np.searchsorted(self._serials[stream], serials)
        rest = np.setdiff1d(np.arange(len(waiting)), places)
        found = filled_rows(waiting.take(places), self._call.encodings[stream])
        self._waiting[stream], self._serials[stream] = waiting.take(rest), self._serials[stream][rest]
        self._made += len(found)
        serial = boxes.serial.copy()
        serial[at[wanted]] = -1
        self._held[stream] = replace(boxes, serial=serial)
        return found

    def _meeting(self, stream: int, rows: _Boxes, others: dict[int, _Boxes]) -> Flags:
        """Which rows of a stream come within epsilon of others in reach."""
        # Rounded up: what is close stays so.
        limit2 = self._plan.limit**2 * (1.0 + 1e-9)
        meets = np.zeros(len(rows), bool)
        for other, boxes in others.items():
            if not len(rows) or not len(boxes) or (other == stream) != self._plan.self_join:
                continue
            begin, end = self._reach(stream, rows, other, boxes)
            if int(np.maximum(end - begin, 0).sum()) > _MOST * len(rows):
                return np.ones(len(rows), bool)
            for low, high in _without_own(boxes, rows, begin, end) if other == stream else [(begin, end)]:
                meeting_boxes(Boxes(rows.lows, rows.highs), Boxes(boxes.lows, boxes.highs), low, high, limit2, meets)
        return meets

    def _reach(self, stream: int, rows: _Boxes, other: int, boxes: _Boxes) -> tuple[Ints, Ints]:
        """Of each row the first and last of the others that may share a window with it."""
        if self._plan.rule is None:
            window = max(self._plan.windows[stream], self._plan.windows[other])
            begin = np.searchsorted(boxes.rank, rows.rank - window)
            return begin, np.searchsorted(boxes.rank, rows.rank + window, side="right")
        # The floors of later rows are no lower.
        first = np.searchsorted(boxes.rank, rows.floors[:, other])
        return first, np.searchsorted(boxes.floors[:, stream], rows.rank, side="right")

    def _forget(self, fresh: dict[int, _Boxes]) -> None:
        """Windows that go by rows have moved on: forget what no later row can reach."""
        if self._plan.rule is None:
            return
        floors = np.concatenate(
            [boxes.floors for boxes in fresh.values()] or [np.empty((0, len(self._held)), np.int64)]
        )
        if not len(floors):
            return
        group = floors[:, 0] >> _NUMBERS
        least = np.zeros((len(self._groups), len(self._held)), np.int64)
        np.maximum.at(least, group, floors)
        for stream, boxes in enumerate(self._held):
            self._keep(stream, boxes.rank >= least[boxes.rank >> _NUMBERS, stream])

    def _keep(self, stream: int, kept: Flags) -> None:
        if kept.all():
            return
        self._held[stream] = self._held[stream].filter(kept)
        serials = self._held[stream].serial
        rest = np.flatnonzero(np.isin(self._serials[stream], serials[serials >= 0]))
        waiting = self._waiting[stream]
        if waiting is not None and len(rest) < len(waiting):
            self._waiting[stream], self._serials[stream] = waiting.take(rest), self._serials[stream][rest]


def _without_own(boxes: _Boxes, rows: _Boxes, begin: Ints, end: Ints) -> list[tuple[Ints, Ints]]:
    """The ranges before and after each row itself, where it is among the boxes."""
    order = np.argsort(boxes.serial, kind="stable")
    place = order[np.minimum(np.searchsorted(boxes.serial, rows.serial, sorter=order), len(order) - 1)]
    own = np.where(boxes.serial[place] == rows.serial, place, end)
    return [(begin, np.minimum(own, end)), (np.maximum(own + 1, begin), end)]
