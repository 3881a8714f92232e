"""A few exact points at a time: the same answers, and the same windows after them, with a tenth of the calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.few_points import MEMORY, push_points
from appulse.model.strings import Bytes
from appulse.operators.answers import Answers
from appulse.operators.cost import UNKNOWN
from appulse.operators.join_windows import JoinWindows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.operators.plan import JoinPlan

    Side = tuple[NDArray[np.uint64], NDArray[np.int64]]

_TWO = 2
_WORD = 8  # bytes


class FewPairsFound(NamedTuple):
    """Pairs of a few points: the canonical words of their keys and times (left, right), distances and probabilities."""

    words: NDArray[np.uint64]
    figures: NDArray[np.float64]

    @property
    def many(self) -> int:
        """How many."""
        return int(self.words.shape[1])

    @property
    def sides(self) -> tuple[Side, Side]:
        """Keys and times of the left rows, and of the right ones."""
        words, times = self.words, self.words.view(np.int64)
        return (words[0], times[1]), (words[2], times[3])

    def answers(self) -> Answers:
        """The same as any other pairs."""
        n, ((left, left_time), (right, right_time)) = self.many, self.sides
        begin, stream = np.arange(n + 1) * _WORD, np.zeros(n, np.int64)
        one, two = (Bytes(begin, column.view(np.uint8)) for column in (left, right))
        return Answers(stream, one, left_time, stream + 1, two, right_time, *self.figures)


def serves(plan: JoinPlan) -> bool:
    """Whether pairs are of exact points of two streams, and nothing but the pairs is asked for."""
    asked = (plan.rule, plan.density, plan.earth) == (None, None, None) and plan.how == "inner"
    more = plan.self_join or plan.held or plan.changes or plan.values or plan.withdrawn or plan.audit
    return plan.points_only and plan.plain and asked and not more and len(plan.streams) == _TWO


class FewPoints(JoinWindows):
    """A join that takes in few exact points by a short way, where there is one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._memory, self._cells = np.zeros((_TWO, MEMORY), np.int64), np.zeros((_TWO, 2))

    def has_room(self, d: int, many: Sequence[int]) -> bool:
        """Whether so many points more for each stream may go the short way."""
        return (
            len(self._stores) == _TWO
            and self._stores[0].d == d
            and not self._by_products_of(d, sum(many))
            and all(store.takes_points(n) for store, n in zip(self._stores, many, strict=True))
        )

    def push_few(
        self, asked: NDArray[np.int64], places: Sequence[NDArray[np.int64]], many: Sequence[int]
    ) -> FewPairsFound | None:
        """The pairs of a few rows of messages, which are kept; None, and nothing has changed, where some are not good.

        There `has_room`. ``asked`` is what `appulse.kernels.few_points` has it to be.
        """
        plan, tally = self.plan, np.zeros(5, np.int64)
        for store, came, memory, cells in zip(self._stores, many, self._memory, self._cells, strict=True):
            store.reserve(came, memory, cells)
        found, words, figures = push_points(
            asked,
            places[0],
            places[1],
            self._memory,
            self._cells,
            plan.check_differ,
            plan.limit,
            plan.threshold,
            UNKNOWN,
            tally,
        )
        n = int(found)
        if n < 0:
            return None
        for store, came in zip(self._stores, many, strict=True):
            store.took(came)
        reached, far, unlikely, _, refined = tally.tolist()
        counts = self.counts
        counts["candidates"] += reached
        counts["pruned_reach"] += far
        counts["pruned_cantelli"] += unlikely
        counts["refined"] += refined
        counts["answers"] += n
        self.output.add(n)
        return FewPairsFound(words[:, :n], figures[:, :n])
