"""Pairs that wait until their left row leaves: the best of them, or what they add up to, are answers.

A left row leaves once no partner can come for it any more (`appulse.operators.partners`). On Spark the pairs of a row
come from several tiles, and meet in a later stage, which does as one process does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.few_partners import fewer_than
from appulse.kernels.strings import hash_rows
from appulse.operators.answers import NO_ANSWERS, Answers
from appulse.operators.held_parts import HeldParts
from appulse.operators.partners import RowNotes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Hashes, Ints
    from appulse.model.strings import Bytes
    from appulse.operators.plan import JoinPlan

#: What rows may be nearest by.
BY = ("distance", "probability")


def leading(left: Ints, value: Floats, time: Ints, k: int) -> Flags:
    """Which pairs may be among the ``k`` best of their left rows: of least value, and of equal ones the earliest.

    Where the last of them has others like it, these may be, too.
    """
    order = np.lexsort((time, value, left))
    left, value, time = left[order], value[order], time[order]
    first = np.flatnonzero(np.r_[True, left[1:] != left[:-1]])
    counts = np.diff(np.r_[first, len(left)])
    last = np.repeat(first + np.minimum(counts, k) - 1, counts)
    kept = np.empty(len(left), bool)
    kept[order] = (np.arange(len(left)) <= last) | ((value == value[last]) & (time == time[last]))
    return kept


def values_of(by: str, distance: Floats, probability: Floats) -> Floats:
    """What is least for the nearest."""
    return distance if by == "distance" else -probability


class HeldPairs(ABC):
    """The pairs of the left rows that have not left."""

    def __init__(self, plan: JoinPlan) -> None:
        self.plan = plan
        self._held: HeldParts[Answers] = HeldParts(_left_hashes)

    @staticmethod
    def of(plan: JoinPlan) -> HeldPairs:
        """What a plan asks for."""
        return NearestRows(plan) if plan.best else OutlierRows(plan)

    def __len__(self) -> int:
        return len(self._held)

    @property
    def nbytes(self) -> int:
        return self._held.nbytes

    @property
    def pairs(self) -> Answers:
        """All pairs that wait."""
        pairs = self._held.all()
        return NO_ANSWERS if pairs is None else pairs

    def take(self, found: Sequence[Answers], notes: Sequence[RowNotes]) -> Answers:
        """Take in pairs; the answers of the left rows that leave."""
        self._held.add(Answers.concat(found))
        notes = [some for some in notes if len(some)]
        if not notes:
            return NO_ANSWERS
        gone = RowNotes.concat(notes)
        taken = self._held.of(_hashes(gone.key, gone.time))
        over = Answers.concat(taken.rows)
        row, which = _numbered(over, gone)
        copies = np.bincount(which, minlength=int(row.max(initial=-1)) + 1)
        ours = copies[row] > 0  # else another row with that hash
        self._held.put_back(taken, ~ours)
        return self.answer(over.filter(ours), row[ours], copies, gone, which)

    def withdraw(self, rows: Ints) -> None:
        """Forget the pairs of rows that are withdrawn, by numbers that never change."""
        pairs = self.pairs
        if not len(rows) or not len(pairs):
            return
        assert pairs.left_rank is not None and pairs.right_rank is not None  # noqa: S101, PT018 - rows may be withdrawn
        stay = ~(np.isin(pairs.left_rank, rows) | np.isin(pairs.right_rank, rows))
        self._held.set(pairs.filter(stay), anew=False)

    def cancel(self, withdrawn: Answers) -> None:
        """Forget as many pairs as are withdrawn, of each kind: those that are alike are as good as each other."""
        if not len(withdrawn):
            return
        taken = self._held.of(_left_hashes(withdrawn))
        both = Answers.concat([withdrawn, *taken.rows])
        columns = _codes(both.left_key), both.left_time, _codes(both.right_key), both.right_time
        order = np.lexsort(columns)
        kind = np.empty(len(both), np.int64)
        kind[order] = np.cumsum(~_same_as_before(*(column[order] for column in columns))) - 1
        wanted = np.bincount(kind[: len(withdrawn)], minlength=len(both))
        held = kind[len(withdrawn) :]
        own = np.argsort(held, kind="stable")
        gone = np.empty(len(held), bool)
        gone[own] = _places(held[own]) < wanted[held[own]]
        self._held.put_back(taken, ~gone)

    @abstractmethod
    def answer(self, pairs: Answers, row: Ints, copies: Ints, gone: RowNotes, which: Ints) -> Answers:
        """The answers of rows that are ``gone``, of numbers ``which``, of whose ``pairs`` each has the number ``row``.

        Rows that are alike in all that they hold have one number: there are so many ``copies``, and as many of each
        pair.
        """


class NearestRows(HeldPairs):
    """Of the pairs of each row the best."""

    def answer(self, pairs: Answers, row: Ints, copies: Ints, gone: RowNotes, which: Ints) -> Answers:
        """The best pairs; with how="left" rows without any, too."""
        best = self.best(pairs, row, copies)
        if self.plan.how != "left":
            return best
        some = np.bincount(row, minlength=len(copies)) > 0
        return Answers.concat([best, gone.filter(~some[which]).alone(self.plan)])

    def best(self, pairs: Answers, row: Ints, copies: Ints) -> Answers:
        """The best of the pairs of each row; of those equally good the first by time, then by key."""
        value = values_of(self.plan.by, pairs.distance, pairs.probability)
        order = np.lexsort((pairs.right_time, value, row))
        same = _same_as_before(row[order], value[order], pairs.right_time[order])
        if same.any():
            order = np.lexsort((-pairs.probability, _ranks(pairs.right_key), pairs.right_time, value, row))
        place = _places(row[order]) // copies[row[order]] + 1
        kept = place <= self.plan.best
        return replace(pairs.take(order[kept]), place=place[kept], right_rank=None)


class OutlierRows(HeldPairs):
    """The rows that are likely to have few partners; pairs have the probability that both are, given the left one."""

    def answer(self, pairs: Answers, row: Ints, copies: Ints, gone: RowNotes, which: Ints) -> Answers:
        """The rows that are likely enough to have few partners, with how many they are expected to have."""
        order = np.lexsort((pairs.probability, row))
        chance, row = pairs.probability[order], row[order]
        once = _places(row) % copies[row] == 0
        chance, row = chance[once], row[once]
        first = np.searchsorted(row, np.arange(len(copies) + 1))
        few, expected = np.empty(len(copies)), np.empty(len(copies))
        fewer_than(chance, first, self.plan.fewer_than, few, expected)
        sure = np.flatnonzero(few[which] >= self.plan.certain)
        number = which[sure]
        return replace(gone.take(sure), expected=expected[number], few=few[number]).alone(self.plan)


def _places(row: Ints) -> Ints:
    """The place of each of some sorted numbers among those that are equal."""
    return np.arange(len(row)) - np.searchsorted(row, row)


def _left_hashes(pairs: Answers) -> Hashes:
    return _hashes(pairs.left_key, pairs.left_time)


def _hashes(keys: Bytes, time: Ints) -> Hashes:
    hashes: Hashes = hash_rows(keys.offsets, keys.data, time)
    return hashes


def _numbered(pairs: Answers, notes: RowNotes) -> tuple[Ints, Ints]:
    """The left row of each pair, and the row of each note, as numbers that are the same for the same row."""
    rank = pairs.left_time if pairs.left_rank is None else pairs.left_rank
    keys = _codes(type(notes.key).concat([pairs.left_key, notes.key]))
    times, ranks = np.concatenate([pairs.left_time, notes.time]), np.concatenate([rank, notes.rank])
    order = np.lexsort((ranks, times, keys))
    fresh = ~_same_as_before(keys[order], times[order], ranks[order])
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(fresh) - 1
    return number[: len(pairs)], number[len(pairs) :]


def _same_as_before(*columns: NDArray[np.generic]) -> Flags:
    """Whether each row of some columns is the same as the one before it."""
    same = np.zeros(len(columns[0]), bool)
    if len(same) > 1:
        same[1:] = np.logical_and.reduce([column[1:] == column[:-1] for column in columns])
    return same


def _codes(keys: Bytes) -> Ints:
    """Numbers that are the same for the same key."""
    encoded = keys.to_arrow().dictionary_encode()
    codes: Ints = np.asarray(encoded.indices).astype(np.int64)
    return codes


def _ranks(keys: Bytes) -> Ints:
    """The place of each key in the order of keys."""
    encoded = keys.to_arrow().dictionary_encode()
    places = np.empty(len(encoded.dictionary), np.int64)
    known = encoded.dictionary.to_pylist()
    places[sorted(range(len(known)), key=known.__getitem__)] = np.arange(len(known))
    ranks: Ints = places[np.asarray(encoded.indices)]
    return ranks
