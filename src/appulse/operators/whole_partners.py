"""Rows of whole tables that have few partners: counted up in the order of cells, until each row's answer is certain.

More partners only make fewer ones less likely. So near rows come first, and the rest only for rows that may still be
answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.ball_table import NO_TABLE, BallTable
from appulse.kernels.few_partners import add_partners, few_of
from appulse.kernels.grid import SLACK
from appulse.kernels.rings import Counting, Ring, Tally, count_close, ring_rows
from appulse.operators.pairs import CandidatePairs, evaluated, table_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from appulse.kernels.arrays import Flags, Floats, Ints, Whole
    from appulse.kernels.cells import CellRows, CloseRule
    from appulse.model.uncertainty import Model
    from appulse.operators.plan import JoinPlan
    from appulse.operators.store import WindowBuffer

#: Rows of a part.
PART = 1 << 12
# Near rows that are looked up of a row at first, for each partner that is asked for: far more than are likely to do.
_NEAR = 6


def joint_extents(plan: JoinPlan) -> bool:
    """Whether two rows are looked for within the root of the squares of their extents: deviations add up like that."""
    return plan.earth is None


class Lines(NamedTuple):
    """Where partners of a row are: the lines of cells around it, and how far along these to either side."""

    strips: Ints
    rim: int


class Found(NamedTuple):
    """Partners of rows of other parts, with their chances."""

    row: Ints
    chance: Floats


@dataclass(frozen=True)
class PartnerCount:
    """The left rows that are counted for, and the right ones that may be partners: on the near ``lines``, and on all.

    ``later`` are those of all that come later, of a table with itself. ``near`` is how far the near ones reach at
    least. ``partners`` are in epsilon of a row, by a sample.
    """

    plan: JoinPlan
    kinds: tuple[Model, Model]
    stores: tuple[WindowBuffer, WindowBuffer]
    rows: tuple[CellRows, CellRows]
    rule: CloseRule
    lines: tuple[Lines, Lines]
    later: tuple[Lines, Lines]
    near: float
    partners: float
    room: int

    def passes(self) -> list[Callable[[int, int, Counter[str]], Found | None]]:
        """What is to be done of the rows from one to another, one pass after the other."""
        if self._table is None:
            return [self._any]
        if self.plan.points_only:
            return [partial(self._closed, -1.0, self.plan.limit**2, 1)]
        # Near partners alone, where they mostly will do; else all at once.
        if self.partners < self.plan.fewer_than:
            return [partial(self._closed, -1.0, self._outer, 1)]
        return [partial(self._closed, -1.0, self._rim, 0), self._rest]

    def add(self, found: Sequence[Found]) -> None:
        """Count partners that other parts found."""
        for row, chance in found:
            add_partners(row, chance, self._counted)

    def _closed(self, inner: float, outer: float, which: int, begin: int, end: int, counts: Counter[str]) -> Found:
        """Count where all pairs have one deviation; of a table with itself for both rows of a pair."""
        lines = self.later if self.rule.own else self.lines
        return self._by_table(np.arange(begin, end), (inner, outer), lines[which], counts, both=self.rule.own)

    def _rest(self, begin: int, end: int, counts: Counter[str]) -> None:
        """Count the farther partners of rows that are still open."""
        rows = self._open_of(begin + np.flatnonzero(self._open[begin:end]))
        if len(rows):
            self._by_table(rows, (self._rim, self._outer), self.lines[1], counts, both=False)

    def _by_table(
        self, rows: Ints, ring: tuple[float, float], lines: Lines, counts: Counter[str], *, both: bool
    ) -> Found:
        times, sure = (self.rule.before, self.rule.after), (self.plan.threshold, self.plan.certain)
        rule = Counting(*ring, *times, lines.rim, both, *sure)
        mass = self.stores[0].mass.view, self.stores[1].mass.view
        begin: Whole = 0
        room, found = self.room, []
        while begin < len(rows):
            out = Found(np.empty(room, np.int64), np.empty(room))
            tally = Tally(self._counted, self._open, *out)
            table = NO_TABLE if self._table is None else self._table
            begin, n, looked, done = count_close(begin, rows, lines.strips, rule, table, self.rows, mass, tally)
            counts.update({"candidates": looked, "pruned_reach": looked - done, "refined": done})
            if n:
                found.append(Found(out.row[:n], out.chance[:n]))
            elif begin < len(rows):
                room *= 4
        return Found(*(np.concatenate(column) for column in zip(*found, strict=True))) if found else _NOBODY

    def _any(self, begin: int, end: int, counts: Counter[str]) -> None:
        """Count for the left rows from ``begin`` to ``end``: up to certainty, or in full."""
        rows, joint, (near, far) = np.arange(begin, end), joint_extents(self.plan), self.lines
        inner = np.full(len(rows), -1.0)
        ring = Ring(inner, self._rim, joint, near.rim, _NEAR * self.plan.fewer_than, np.empty(len(rows), bool))
        cut = self._count(rows, near.strips, ring, counts)
        ours = self._counted
        rows = self._open_of(rows[cut] if self.rule.points else rows)
        if not len(rows):
            return
        cut = cut[rows - begin]
        ours[rows[cut]] = np.arange(ours.shape[1]) == 0
        inner = np.where(cut, -1.0, self._rim)
        ring = Ring(inner, self._outer, joint, far.rim, np.iinfo(np.int64).max, np.empty(len(rows), bool))
        self._count(rows, far.strips, ring, counts)

    @cached_property
    def _table(self) -> BallTable | None:
        """The probabilities by distance, where that is all there is to a pair; of points there is none to look up."""
        if not self.plan.plain or self.plan.earth is not None or self._outer < 0.0:
            return None
        if self.plan.points_only:
            return NO_TABLE
        table = table_of(self.plan, self.kinds, self.stores[0].d)
        return table if table.pieces.shape[0] else None

    @cached_property
    def _open(self) -> Flags:
        """Which rows may still be answers."""
        return np.ones(len(self.stores[0]), bool)

    def _open_of(self, rows: Ints) -> Ints:
        """Which of some rows may still be answers."""
        few = np.empty(len(rows))
        few_of(self._counted, rows, few)
        return rows[few >= self.plan.certain]

    @property
    def _rim(self) -> float:
        """The square of how far partners are near."""
        return self.near**2

    @cached_property
    def _outer(self) -> float:
        """The square of how far away partners are, where that is the same for all rows; else below 0."""
        ends = [float(side.extent[0]) for side in self.rows]
        if any((side.extent != end).any() for side, end in zip(self.rows, ends, strict=True)):
            return -1.0
        away = math.hypot(*ends) if joint_extents(self.plan) else sum(ends)
        return max((self.rule.limit + away) ** 2 * (1.0 + SLACK), self._rim)

    @property
    def _counted(self) -> Floats:
        counts = self.stores[0].counts
        assert counts is not None  # noqa: S101 - who makes the stores sees to it
        return counts.view

    def _count(self, rows: Ints, strips: Ints, ring: Ring, counts: Counter[str]) -> Flags:
        """Count the partners in rings; which rows were cut short."""
        left, right = self.stores
        begin: Whole = 0
        room, seen = self.room, 0
        one, other = np.empty(room, np.int64), np.empty(room, np.int64)
        while begin < len(rows):
            begin, n, looked = ring_rows(begin, rows, strips, self.rule, ring, self.rows, one, other)
            seen += looked
            if n:
                self._add(CandidatePairs(left, one[:n], right, other[:n], other[:n]), counts)
                counts["pruned_reach"] -= n
            elif begin < len(rows):
                room *= 4
                one, other = np.empty(room, np.int64), np.empty(room, np.int64)
        counts["candidates"] += seen
        counts["pruned_reach"] += seen
        return ring.cut

    def _add(self, pairs: CandidatePairs, counts: Counter[str]) -> None:
        """Count these partners, each given that the left row exists."""
        found = evaluated(self.plan, pairs, self.kinds, counts)
        given = found.probability / found.pairs.left_store.mass.view[found.pairs.left]
        add_partners(found.pairs.left, given, self._counted)


_NOBODY = Found(np.empty(0, np.int64), np.empty(0))
