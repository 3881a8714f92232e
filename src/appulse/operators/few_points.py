"""A few exact points at a time: the same answers, and the same windows after them, with a tenth of the calls."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.few_points import Asked, Came, in_order, push_points
from appulse.model.objects import Objects
from appulse.model.strings import Bytes
from appulse.model.uncertainty import Form
from appulse.operators.answers import NO_ANSWERS, Answers
from appulse.operators.cost import UNKNOWN
from appulse.operators.join_windows import JoinWindows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.few_points import Columns, Stand
    from appulse.operators.plan import JoinPlan

#: So many rows of a push are few.
FEW = 64
_TWO = 2
_WORD = 8  # bytes


def serves(plan: JoinPlan) -> bool:
    """Whether pairs are of exact points of two streams, and nothing but the pairs is asked for."""
    asked = (plan.rule, plan.density, plan.earth) == (None, None, None) and plan.how == "inner"
    more = plan.self_join or plan.held or plan.changes or plan.values or plan.withdrawn or plan.audit
    return plan.points_only and plan.plain and asked and not more and len(plan.streams) == _TWO


class FewPoints(JoinWindows):
    """A join that takes in few exact points by a short way, where there is one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._short = serves(self.plan) and self.lanes == 1 and self.ownership is None
        self._zeros = np.zeros(FEW, np.int64)

    def _few(self, batches: Sequence[tuple[int, int, Objects]]) -> Answers | None:
        """The answers of a few rows, which are kept; None where they have to go the general way."""
        if not self._short or not self._stores or len(batches) > _TWO:
            return None
        d = self._stores[0].d
        rows = [_none_of(d), _none_of(d)]
        for own, _, given in batches:
            if len(rows[own].time) or given.d != d or not _in_order(given):
                return None
            rows[own] = given
        many = [len(given.time) for given in rows]
        if not 0 < sum(many) <= FEW or self._by_products_of(d, sum(many)):
            return None
        ready = all(store.takes_points(n) for store, n in zip(self._stores, many, strict=True))
        return self._pushed(rows) if ready else None

    def _pushed(self, rows: Sequence[Objects]) -> Answers:
        plan, tally = self.plan, np.zeros(5, np.int64)
        (came, window, stand), (other, beside, at) = (self._took(own, given) for own, given in enumerate(rows))
        asked = Asked(plan.check_differ, plan.limit, plan.limit**2, plan.threshold, UNKNOWN)
        pairs = push_points((came, other), (window, beside), (stand, at), asked, tally)
        for store in self._stores:
            store.linked = len(store)
        n = len(pairs.distance)
        reached, far, unlikely, _, refined = tally.tolist()
        counts = self.counts
        counts["candidates"] += reached
        counts["pruned_reach"] += far
        counts["pruned_cantelli"] += unlikely
        counts["refined"] += refined
        counts["answers"] += n
        self.output.add(n)
        if n == 0:
            return NO_ANSWERS
        left, left_time, right, right_time, distance, probability = pairs
        begin, stream = np.arange(n + 1) * _WORD, np.zeros(n, np.int64)
        one, two = (Bytes(begin, column.view(np.uint8)) for column in (left, right))
        return Answers(stream, one, left_time, stream + 1, two, right_time, distance, probability)

    def _took(self, own: int, rows: Objects) -> tuple[Came, Columns, Stand]:
        """The rows that come to a window, which has room for them now."""
        n, store = len(rows.time), self._stores[own]
        group = self._zeros[:n] if rows.group is None else self._groups.of(rows.group, n)
        differ = self._zeros[:n] if rows.differ is None else self._differs.of(rows.differ, n)
        stand, columns = store.room_for_points(rows.key, n, self.plan.windows[own])
        return Came(rows.time, rows.mass, rows.reach, rows.centre, group, differ), columns, stand


@lru_cache
def _none_of(d: int) -> Objects:
    """No points of so many dimensions."""
    none = np.empty(0)
    return Objects(
        Form.POINT,
        np.empty(0, np.int64),
        Bytes.of([]),
        none,
        np.empty((0, d)),
        np.empty((0, 0)),
        none,
        none,
        np.empty((0, 0)),
    )


def _in_order(rows: Objects) -> bool:
    """Whether rows come in order of time, with keys of eight bytes."""
    return in_order(rows.time, rows.key.offsets)
