"""A push of many rows: in the order of cells, against the rows that windows hold and against each other.

Rows that are looked up one after the other send each look-up all over memory. Where many rows come at once, it costs
less to sort them, and what the windows hold, by cells, and to read both in order. The pairs are the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from appulse.kernels.cells import CellRows, CloseRule
from appulse.operators.cell_order import (
    Laid,
    PlacedRows,
    in_order,
    lay_out,
    limit_of,
    moved,
    near_rows,
    spread_rows,
    taken_in_order,
)
from appulse.operators.cost import Cells, Choice
from appulse.operators.estimate import Estimate
from appulse.operators.output import Output
from appulse.operators.pairs import CandidatePairs
from appulse.operators.vectors import MANY_DIMENSIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Flags, Ints
    from appulse.model.workers import Workers
    from appulse.operators.answers import Answers
    from appulse.operators.plan import JoinPlan
    from appulse.operators.store import WindowBuffer

# Rows of a push from which on it pays, and for how many of those held each of them has to stand.
_FROM, _HELD = 8_192, 32
# Rows of a part, which with the pairs that it may be expected to have alone says where parts end.
_PART, _PAIRS = 1 << 15, 1 << 17
# Rows that are looked at to estimate the output of the push, in runs of so many.
_SAMPLE, _RUN = 256, 16


class Join(Protocol):
    """What is known of the join: which stores' rows meet, and how long each store's windows are."""

    plan: JoinPlan
    workers: Workers
    counts: Counter[str]
    output: Output
    meets: Flags
    windows_of: list[int]

    def beside(self) -> Join:
        """A join of the same windows that counts for itself, for another thread."""

    def evaluate(self, left: int, right: int, pairs: CandidatePairs) -> Answers:
        """The answers among candidates."""


@dataclass(frozen=True)
class _Sorted:
    """Rows of a store in the order of their cells, and the place of each in the store."""

    rows: CellRows
    place: Ints


@dataclass(frozen=True)
class _Side:
    """Rows of the push in one store, by number, against rows of another; ``own``: each pair of the same rows once."""

    left: int
    right: int
    new: _Sorted
    others: _Sorted
    own: bool


class LargePush:
    """The pairs of the last ``new`` rows of each store with all rows before them, and with each other."""

    @staticmethod
    def of(join: Join, stores: Sequence[WindowBuffer], new: Sequence[int]) -> LargePush | None:
        """None where rows are better looked up one after the other, or have to be."""
        plan, held = join.plan, sum(map(len, stores))
        if sum(new) < max(_FROM, held // _HELD) or stores[0].d >= MANY_DIMENSIONS or not serves(plan):
            return None
        limit = limit_of(plan, stores[0].d)
        ends = [(len(store) - n, len(store)) for store, n in zip(stores, new, strict=True)]
        given = [
            (_placed(store, begin, end, by_extent=limit is None), own, begin)
            for own, (store, (old, all_)) in enumerate(zip(stores, ends, strict=True))
            for begin, end in ((0, old), (old, all_))
            if end > begin
        ]
        laid = lay_out(plan, [rows for rows, *_ in given], plan.limit if limit is None else limit, join.workers)
        return None if laid is None else LargePush(join, stores, given, laid, [old for old, _ in ends])

    def __init__(
        self,
        join: Join,
        stores: Sequence[WindowBuffer],
        given: Sequence[tuple[PlacedRows, int, int]],
        laid: Laid,
        old: Sequence[int],
    ) -> None:
        self._join, self._stores, self._laid = join, stores, laid
        done = join.workers.map(self._sorted, given)
        parts = {(own, begin >= old[own]): rows for (_, own, begin), rows in zip(given, done, strict=True)}
        n = range(len(stores))
        pairs = [
            (left, right, fresh)
            for left in n
            for right in n
            for fresh in ((False, True) if left <= right else (False,))
            if join.meets[right][left]
        ]
        self._sides = [
            _Side(left, right, parts[left, True], parts[right, fresh], fresh and left == right)
            for left, right, fresh in pairs
            if (left, True) in parts and (right, fresh) in parts
        ]
        self.estimate, self._per_row = self._looked_at(sum(len(one.place) for (_, new), one in parts.items() if new))

    def answers(self) -> list[Answers]:
        """The answers, part by part."""
        step = max(1, min(_PART, int(_PAIRS / max(self._per_row, 1.0))))
        parts = [
            (side, begin, min(begin + step, len(side.new.place)))
            for side in self._sides
            for begin in range(0, len(side.new.place), step)
        ]
        done = self._join.workers.map(self._part, parts)
        for _, counts in done:
            self._join.counts.update(counts)
        return [answers for several, _ in done for answers in several]

    def _part(self, part: tuple[_Side, int, int]) -> tuple[list[Answers], Counter[str]]:
        side, begin, end = part
        join = self._join.beside()
        found = (join.evaluate(side.left, side.right, one) for one in self._candidates(side, begin, end, join.counts))
        return [answers for answers in found if len(answers)], join.counts

    def _candidates(self, side: _Side, begin: int, end: int, counts: Counter[str]) -> list[CandidatePairs]:
        """The candidates of some rows of the push."""
        windows, plan = self._join.windows_of, self._join.plan
        rule = CloseRule(
            self._laid.limit, windows[side.right], windows[side.left], side.own, self._laid.points, plan.check_differ
        )
        strips = self._laid.strips(1, slot=False, own=side.own)
        rows, many = (side.new.rows, side.others.rows), max(1 << 12, 2 * (end - begin))
        found, looked = near_rows(begin, end, strips, rule, rows, many)
        counts["candidates"] += looked
        counts["pruned_reach"] += looked - sum(len(one) for one, _ in found)
        left, right = self._stores[side.left], self._stores[side.right]
        placed = [(side.new.place[one], side.others.place[other]) for one, other in found]
        return [CandidatePairs(left, one, right, other, other) for one, other in placed]

    def _sorted(self, given: tuple[PlacedRows, int, int]) -> _Sorted:
        rows, own, begin = given
        code, order = self._laid.order(rows)
        end, differ = begin + len(order), self._stores[own].differ.view
        time, centre = in_order(rows.time, order), in_order(rows.centre, order)
        columns = CellRows(code, time, centre, moved(rows.extent, order), moved(differ[begin:end], order))
        return _Sorted(columns, order + begin if begin else order)

    def _looked_at(self, rows: int) -> tuple[Estimate, float]:
        """The output of the push, estimated by some of its rows, and the most candidates a row."""
        near = answers = looked = product = per_row = 0.0
        beside = self._join.beside()
        beside.output = Output()
        for side in self._sides:
            n, counts = len(side.new.place), Counter[str]()
            runs = [(p, min(p + _RUN, n)) for p in spread_rows(n, _SAMPLE // _RUN).tolist()]
            weight = n / sum(end - begin for begin, end in runs)
            found = [one for run in runs for one in self._candidates(side, *run, counts)]
            many = weight * sum(map(len, found))
            near, looked, product = (
                near + many,
                looked + weight * counts["candidates"],
                product + n * len(side.others.place),
            )
            per_row = max(per_row, many / n)
            if found:
                answers += weight * len(beside.evaluate(side.left, side.right, CandidatePairs.concat(found)))
        layout, product = self._laid.layout, max(1.0, product)
        cells = Cells(layout.dims, self._laid.side, 0.0, self._laid.side, by_variance=False)
        for store in self._stores:
            store.choice = Choice("cells in order", len(store), looked / product, near / product, {}, cells)
        return Estimate(rows, product, near, answers, _SAMPLE * len(self._sides)), per_row


def serves(plan: JoinPlan) -> bool:
    """Whether pairs are all that is asked for, under time windows."""
    return plan.index == "auto" and not plan.audit and not plan.fewer_than and taken_in_order(plan)


def _placed(store: WindowBuffer, begin: int, end: int, *, by_extent: bool) -> PlacedRows:
    extent = store.extent.view[begin:end] if by_extent else np.zeros(end - begin)
    return PlacedRows(store.time.view[begin:end], store.centre.view[begin:end], extent, store.group.view[begin:end])
