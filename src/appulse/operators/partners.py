"""Rows without a partner: which rows of a join have met somebody, and which leave their windows without.

A row is *alone* once it has left its window, or the streams have ended, and was in no answer. Where one process sees
all pairs, a flag a row is all there is to know. On Spark a row has copies in several tiles, any of which may find its
partners: each tile makes *notes* of rows that found their first one there, and the tile that owns a row one of its
leaving. Notes of a row meet in a later stage, which does not need to know of time: a partner is found no later than in
the step in which the row leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.few_partners import add_partners, few_of
from appulse.model.batch import Batch
from appulse.model.strings import Bytes
from appulse.operators.answers import NO_ANSWERS, Answers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.objects import Objects
    from appulse.operators.plan import JoinPlan
    from appulse.operators.store import WindowBuffer

#: How a join may be, as Spark names it.
HOW = ("inner", "left", "right", "full", "left_anti")
#: What a note says of a row.
MET, LEFT = 0, 1
_NOBODY = -1
#: Rows hold as many numbers; beyond, pairs are held in their place.
MOST_COUNTED = 64


@dataclass(frozen=True)
class RowNotes(Batch):
    """What is known of rows: their stream, key, time and rank there, and one of `MET` and `LEFT`.

    Where rows are wanted that have few partners, ``expected`` is how many they are expected to have, and ``few`` how
    likely it is that there are fewer than asked for.
    """

    stream: Ints
    key: Bytes
    time: Ints
    rank: Ints
    what: Ints
    expected: Floats | None = None
    few: Floats | None = None

    def alone(self, like: JoinPlan) -> Answers:
        """The rows as answers with nobody on the other side, of the columns that a plan's answers have."""
        n = len(self)
        if n == 0:
            return NO_ANSWERS
        nobody, never, nan = np.full(n, _NOBODY), np.zeros(n, np.int64), np.full(n, np.nan)
        none = Bytes(np.zeros(n + 1, np.int64), np.empty(0, np.uint8))
        empty = Answers(nobody, none, never, nobody, none, never, nan, nan)
        left = self.stream == 0
        parts = []
        for own, is_left in ((left, True), (~left, False)):
            if not own.any():
                continue
            rows, other = (self, empty) if own.all() else (self.filter(own), empty.filter(own))
            one = (rows.stream, rows.key, rows.time)
            no = (other.right_stream, other.right_key, other.right_time)
            upper = None if not like.bounded else other.probability
            ratio = None if like.density is None else other.probability
            last = (rows.rank, np.zeros(len(rows), np.int64)) if like.best else (None, None)
            columns = one + no if is_left else no + one
            expected = other.distance if rows.expected is None else rows.expected
            few = other.probability if rows.few is None else rows.few
            answers = Answers(*columns, expected, few, upper=upper, ratio=ratio)
            margin = other.distance if like.assigned else None
            parts.append(replace(answers, left_rank=last[0], place=last[1], margin=margin))
        return Answers.concat(parts)


def notes_of(stream: int, rows: Objects, what: int) -> RowNotes:
    """Notes of rows that are in no store."""
    rank = rows.time if rows.number is None else rows.number
    return RowNotes(np.full(len(rows), stream), rows.key, rows.time, rank, np.full(len(rows), what))


def _of_store(stream: int, store: WindowBuffer, rows: Ints, what: int) -> RowNotes:
    keys, time, rank = store.keys(rows), store.time.view[rows], store.rank.view[rows]
    return RowNotes(np.full(len(rows), stream), keys, time, rank, np.full(len(rows), what))


class Partners:
    """Flags the rows that had a partner, and finds those that leave.

    Where it is ``apart`` from who knows, there are ``notes``; else the rows that are alone are answers, or those that
    have few partners: of these, up to ``counted`` are counted.
    """

    def __init__(self, plan: JoinPlan, *, tiled: bool) -> None:
        self.followed = plan.followed
        # A partner that is withdrawn cannot be taken out of what was counted up.
        self.counted = 0 if tiled or plan.withdrawn or plan.fewer_than > MOST_COUNTED else plan.fewer_than
        self.apart, self.like, self.tiled = tiled or (plan.held and not self.counted), plan, tiled
        self.notes: list[RowNotes] = []

    def count(self, stream: int, store: WindowBuffer, rows: Ints, chance: Floats) -> None:
        """These rows have a partner each, with such a chance."""
        if store.counts is None or store.met is None or not self.followed[stream] or len(rows) == 0:
            return
        add_partners(rows, chance, store.counts.view)
        few = np.empty(len(rows))
        few_of(store.counts.view, rows, few)
        store.met.view[rows[few < self.like.certain]] = True

    def open(self, stream: int, store: WindowBuffer, rows: Ints) -> Flags:
        """Which of these rows may still be answers: more partners never make few of them more likely."""
        if store.met is None or not self.followed[stream]:
            return np.zeros(len(rows), bool)
        mask: Flags = ~store.met.view[rows]
        return mask

    def met(self, stream: int, store: WindowBuffer, rows: Ints) -> None:
        """These rows have a partner."""
        if store.met is None or not self.followed[stream] or len(rows) == 0:
            return
        flags = store.met.view
        if self.apart:
            fresh = np.unique(rows[~flags[rows]])
            if len(fresh):
                self.notes.append(_of_store(stream, store, fresh, MET))
        flags[rows] = True

    def leave(self, stream: int, store: WindowBuffer, rows: Ints) -> RowNotes | None:
        """These rows leave; notes of them, or of those that are alone."""
        if store.met is None or not self.followed[stream] or len(rows) == 0:
            return None
        if store.counts is not None:
            counts, few = store.counts.view, np.empty(len(rows))
            few_of(counts, rows, few)
            sure = np.flatnonzero(few >= self.like.certain)
            rows = rows[sure]
            return replace(_of_store(stream, store, rows, LEFT), expected=counts[:, -1].take(rows), few=few[sure])
        notes = _of_store(stream, store, rows if self.apart else rows[~store.met.view[rows]], LEFT)
        if not self.like.held or self.tiled or store.serial is None:
            return notes
        return replace(notes, rank=store.serial.view[rows] * len(self.like.streams) + stream)

    def pushed_out(self, stream: int, rows: Objects) -> RowNotes | None:
        """These rows left their window in the tick in which they came, and have met nobody."""
        if not self.followed[stream] or len(rows) == 0:
            return None
        notes, n = notes_of(stream, rows, LEFT), len(rows)
        if self.like.held and self.like.withdrawn:
            notes = replace(notes, rank=-1 - notes.rank)  # others have numbers of their own, from 0
        return replace(notes, expected=np.zeros(n), few=np.ones(n)) if self.counted else notes

    def taken(self) -> list[RowNotes]:
        """All notes, which are forgotten."""
        notes, self.notes = self.notes, []
        return notes

    def answers(self, found: Sequence[RowNotes | None]) -> Answers:
        """The rows that left alone as answers; where tiles are apart they are among the notes."""
        some = [notes for notes in found if notes is not None and len(notes)]
        if self.apart:
            self.notes += some
            return NO_ANSWERS
        return Answers.concat([notes.alone(self.like) for notes in some])
