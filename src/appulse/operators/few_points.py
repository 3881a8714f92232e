"""A few exact points at a time: the same answers, and the same windows after them, with a tenth of the calls."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.arrays import RowPairs
from appulse.kernels.few import Came, Points, Told, Waiting, Window, in_tick_order, take_in, tell
from appulse.kernels.grid import squared_distances
from appulse.kernels.strings import are_words
from appulse.kernels.sweep import ArrivalRows, Balls, Candidates, Cursor, PairRule, sweep
from appulse.model.strings import Bytes
from appulse.operators.answers import NO_ANSWERS, Answers
from appulse.operators.cost import UNKNOWN
from appulse.operators.join_windows import JoinWindows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.model.objects import Objects
    from appulse.operators.plan import JoinPlan
    from appulse.operators.store import WindowBuffer

#: So many rows of a push are few.
FEW = 64
_FIRST_CAPACITY = 1 << 15
_NOBODY = np.zeros(0, bool)
_TWO = 2
_WORD = 8  # bytes


class _Found(NamedTuple):
    """Candidates of one store: arrivals as rows of the other store, and rows of this one."""

    own: int
    arriving: NDArray[np.int64]
    rows: NDArray[np.int64]


def serves(plan: JoinPlan) -> bool:
    """Whether pairs are of exact points, and nothing but the pairs is asked for."""
    asked = (plan.rule, plan.density, plan.earth) == (None, None, None) and plan.how == "inner"
    more = plan.self_join or plan.held or plan.changes or plan.values or plan.withdrawn or plan.audit
    return plan.points_only and plan.plain and asked and not more and len(plan.streams) == _TWO


class FewPoints(JoinWindows):
    """A join of two streams that takes in few exact points by a short way, where there is one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._short = serves(self.plan) and self.lanes == 1 and self.ownership is None
        self._out = (np.empty(_FIRST_CAPACITY, np.int64), np.empty(_FIRST_CAPACITY, np.int64))
        self._waiting: Waiting | None = None

    def _few(self, batches: Sequence[tuple[int, int, Objects]]) -> Answers | None:
        """The answers of a few rows, which are kept; None where they have to go the general way."""
        if not self._short or not self._stores:
            return None
        some = sorted(((stream, rows) for stream, _, rows in batches if len(rows)), key=itemgetter(0))
        n = sum(len(rows) for _, rows in some)
        if not 0 < n <= FEW or len({stream for stream, _ in some}) < len(some):
            return None
        d, more = self._stores[0].d, [0] * len(self._stores)
        for own, rows in some:
            more[own] = len(rows)
            if rows.d != d or not are_words(rows.key.offsets) or (rows.time[1:] < rows.time[:-1]).any():
                return None
        ready = all(store.key.words and store.stands(m) for store, m in zip(self._stores, more, strict=True))
        if not ready or self._by_products_of(d, n):
            return None
        return self._answered(self._taken_in(some, n))

    def _taken_in(self, some: Sequence[tuple[int, Objects]], n: int) -> Waiting:
        """Put the rows in their windows; the arrivals."""
        if self._waiting is None:
            whole, real = (np.empty((5, FEW), np.int64), np.empty((3, FEW)))
            self._waiting = Waiting(*whole, *real, np.empty((FEW, self._stores[0].d)))
        at = 0
        for own, rows in some:
            store, many = self._stores[own], len(rows)
            group, differ = self._groups.of(rows.group, many), self._differs.of(rows.differ, many)
            window, begin, end = store.room_for_points(rows.key, many)
            came = Came(rows.time, rows.mass, rows.reach, rows.centre, group, differ)
            take_in(came, window, begin, end, own, UNKNOWN, self._waiting, at)
            at += many
        if len(some) > 1:
            in_tick_order(self._waiting, n)
        return Waiting(*[column[:n] for column in self._waiting])

    def _answered(self, came: Waiting) -> Answers:
        """The pairs of the arrivals, of one store after the other."""
        found = [self._found(own, store, came) for own, store in enumerate(self._stores)]
        many = sum(len(one.rows) for one in found)
        if many == 0:
            return NO_ANSWERS
        told = Told(*(np.empty(many, kind) for kind in (np.uint64, np.int64, np.uint64, np.int64, float, float)))
        n, points, plan = 0, tuple(store.points for store in self._stores), self.plan
        for own, arriving, rows in found:
            pairs = RowPairs(rows, arriving) if own == 0 else RowPairs(arriving, rows)
            square = squared_distances(arriving, rows, *(self._stores[i].centre.view for i in (1 - own, own)))
            n = tell(pairs, square, plan.limit**2, plan.threshold, points, told, n)
        self.counts["refined"] += many
        self.counts["answers"] += n
        self.output.add(n)
        if n == 0:
            return NO_ANSWERS
        left, left_time, right, right_time, distance, probability = (column[:n] for column in told)
        begin, stream = np.arange(n + 1) * _WORD, np.zeros(n, np.int64)
        keys = (Bytes(begin, column.view(np.uint8)) for column in (left, right))
        return Answers(stream, next(keys), left_time, stream + 1, next(keys), right_time, distance, probability)

    def _found(self, own: int, store: WindowBuffer, came: Waiting) -> _Found:
        """The candidates of a store."""
        tally, parts, start, n = np.zeros(4, np.int64), [], 0, len(came.time)
        oldest, newest = came.time - self._windows[own], came.time + self._windows[came.store]
        low = int(store.rank_max.view.searchsorted(oldest[0]))
        asked = ArrivalRows(came.store, oldest, newest, came.group, came.differ, came.mass)
        rule = PairRule(self._meets[own], own, self.plan.check_differ, self.plan.limit, self.plan.threshold)
        probes, window, balls, grid = (
            Balls(came.centre, came.extent, came.variance),
            store.window_rows,
            store.balls,
            store.grid,
        )
        while start < n:
            out, begin = Candidates(*self._out, tally, _NOBODY), start
            cursor = Cursor(start, store.linked, low)
            start, store.linked, low, many = sweep(cursor, rule, asked, probes, window, balls, grid, out)
            parts.append((came.row[out.arrival[:many]], out.row[:many].copy()))
            if start == begin and many == 0 and start < n:
                self._out = (np.empty(2 * len(out.row), np.int64), np.empty(2 * len(out.row), np.int64))
        for name, count in zip(("candidates", "pruned_reach", "pruned_cantelli"), tally.tolist(), strict=False):
            self.counts[name] += count
        if len(parts) == 1:
            return _Found(own, *parts[0])
        return _Found(own, *(np.concatenate([part[i] for part in parts]) for i in (0, 1)))
