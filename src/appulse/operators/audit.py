"""Pairs that bounds decided against, computed in full: whether any of them is an answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.audited import choose
from appulse.operators.pairs import evaluated

if TYPE_CHECKING:
    from collections import Counter
    from typing import Self

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.kernels.sweep import ArrivalRows, PairRule
    from appulse.model.uncertainty import Model
    from appulse.operators.pairs import CandidatePairs
    from appulse.operators.plan import JoinPlan
    from appulse.operators.store import WindowBuffer

# What two exact ways of computing a probability may differ by.
_ROUNDING = 1e-9
_ALL = 1e-300  # below every probability


def chosen(share: float, time: Ints, centre: Floats) -> Flags:
    """Which rows are audited: by their time and place alone, so that every engine and every run chooses the same."""
    some = np.empty(len(time), bool)
    choose(time, np.ascontiguousarray(centre), np.uint64(share * 2.0**53), some)
    return some


@dataclass(frozen=True)
class Audit:
    """Of chosen rows, all pairs that the index looked at: those without an answer are computed without any bound."""

    plan: JoinPlan
    counts: Counter[str]
    in_full: JoinPlan  # without bounds and threshold

    @classmethod
    def of_plan(cls, plan: JoinPlan, counts: Counter[str]) -> Self:
        """That of a join; ``counts`` are those it reports in."""
        in_full = replace(plan, bounds=frozenset(), threshold=_ALL, bounded=False) if plan.audit else plan
        return cls(plan, counts, in_full)

    def of(self, time: Ints, centre: Floats) -> Flags:
        """Which rows are audited; no rows where nothing is to be audited."""
        return chosen(self.plan.audit, time, centre) if self.plan.audit else np.zeros(0, bool)

    def compare(self, pairs: CandidatePairs, kinds: tuple[Model, Model]) -> None:
        """Count pairs without an answer, and those of them that have one in full."""
        self.counts["audited"] += len(pairs.left)
        full = evaluated(self.in_full, pairs, kinds, type(self.counts)())
        least = self.plan.threshold + min(_ROUNDING, self.plan.threshold)
        self.counts["false_dismissals"] += int((full.probability >= least).sum())


class Noted:
    """Pairs that an index looked at, of audited rows (``some``), and those of them that are answers."""

    def __init__(self, some: Flags, at: Ints, rows: Ints) -> None:
        self._some, self._at, self._rows = some, at, rows
        self._answered = [np.empty(0, np.int64)]

    def answered(self, at: Ints, rows: Ints) -> None:
        """These pairs are answers; those of other rows are left out."""
        if not len(self._at):
            return
        mine = self._some.take(at).nonzero()[0]
        self._answered.append(_codes(at[mine], rows[mine]))

    @property
    def open(self) -> tuple[Ints, Ints]:
        """The pairs that are no answers."""
        known, codes = np.sort(np.concatenate(self._answered)), _codes(self._at, self._rows)
        if not len(known):
            return self._at, self._rows
        rest = known.take(known.searchsorted(codes), mode="clip") != codes
        return self._at[rest], self._rows[rest]


#: No row is audited.
NOTHING = Noted(np.zeros(0, bool), np.empty(0, np.int64), np.empty(0, np.int64))


def in_windows(store: WindowBuffer, rule: PairRule, asked: ArrivalRows, some: Flags) -> tuple[Ints, Ints]:
    """Of some arrivals, all pairs with the rows of a store that are in reach of their windows.

    It is asked before the rows that come with them are linked.
    """
    if not some.any():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    own = asked.store == rule.own
    upto = store.linked + np.cumsum(own) - own  # rows that are there when each arrival comes
    rank, group, differ = store.rank.view, store.group.view, store.differ.view
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for p in np.flatnonzero(some & rule.meets[asked.store]).tolist():
        n = int(upto[p])
        there = (rank[:n] >= asked.oldest[p]) & (rank[:n] <= asked.newest[p]) & (group[:n] == asked.group[p])
        if rule.check_differ:
            there &= (differ[:n] != 0) & (asked.differ[p] != 0) & (differ[:n] != asked.differ[p])
        rows = np.flatnonzero(there)
        found.append((np.full(len(rows), p), rows))
    at, rows = (np.concatenate([pairs[i] for pairs in found]) for i in (0, 1))
    return at, rows


def _codes(at: Ints, rows: Ints) -> Ints:
    """Pairs of rows as single numbers."""
    codes: Ints = at << 32 | rows
    return codes
