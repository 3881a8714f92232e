"""A few exact points at a time: the same answers, and the same windows after them, with a tenth of the calls."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.few import Keys
from appulse.kernels.few_points import BYTES, MEMORY, TEXT, WORDS, Asked, Came, in_order, push_points, push_rows
from appulse.kernels.strings import are_words
from appulse.model.objects import Objects
from appulse.model.strings import Bytes
from appulse.model.uncertainty import Form
from appulse.operators.answers import NO_ANSWERS, Answers
from appulse.operators.join_windows import JoinWindows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Floats, Hashes, Ints, Whole
    from appulse.operators.plan import JoinPlan

#: So many rows of a push are few.
FEW = 64
_TWO = 2
_WORD = 8  # bytes


class FewPairsFound(NamedTuple):
    """So many pairs of a few points: canonical words of their keys and times (left, right), distances, probabilities.

    There is room for more of them. Keys that are texts are apart from the words.
    """

    many: int
    words: Hashes
    figures: Floats
    texts: tuple[Bytes, Bytes] | None

    def answers(self) -> Answers:
        """The same as any other pairs."""
        n, words, times = self.many, self.words, self.words.view(np.int64)
        begin, stream = np.arange(n + 1) * _WORD, np.zeros(n, np.int64)
        one, two = self.texts or (Bytes(begin, words[side, :n].view(np.uint8)) for side in (0, 2))
        return Answers(stream, one, times[1, :n], stream + 1, two, times[3, :n], *self.figures[:, :n])


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
        self._memory, self._cells = np.zeros((_TWO, MEMORY), np.int64), np.zeros((_TWO, 2))
        self._zeros = np.zeros(FEW, np.int64)

    def has_room(self, d: int, many: Sequence[int], *, texts: bool) -> bool:
        """Whether so many points more for each stream may go the short way; ``texts``: with keys of any length."""
        return (
            0 < sum(many) <= FEW
            and len(self._stores) == _TWO
            and self._stores[0].d == d
            and not self._by_products_of(d, sum(many))
            and all(store.takes_points(n, texts=texts) for store, n in zip(self._stores, many, strict=True))
        )

    def push_few(self, asked: Ints, places: Sequence[Ints], many: Sequence[int]) -> FewPairsFound | None:
        """The pairs of a few rows of messages, which are kept; None, and nothing has changed, where some are not good.

        There `has_room`. ``asked`` is what `appulse.kernels.few_points` has it to be.
        """
        plan, tally = self.plan, np.zeros(5, np.int64)
        self._reserve(many, (asked[:, WORDS] * _WORD).tolist())  # no keys are longer than their message
        rule = plan.check_differ, plan.limit, plan.threshold
        found = push_points(asked, (places[0], places[1]), self._memory, self._cells, *rule, tally)
        if found[0] < 0:
            return None
        return self._took(found, many, asked[:, BYTES].tolist(), tally, texts=bool(asked[0, TEXT]))

    def _few(self, batches: Sequence[tuple[int, int, Objects]]) -> Answers | None:
        """The answers of a few rows, which are kept; None where they have to go the general way."""
        if not self._short or not self._stores or len(batches) > _TWO:
            return None
        d = self._stores[0].d
        rows = [_none_of(d), _none_of(d)]
        for own, _, given in batches:
            if len(rows[own].time) or given.d != d or not in_order(given.time):
                return None
            rows[own] = given
        many = [len(given.time) for given in rows]
        if not self.has_room(d, many, texts=True):
            return None
        plan, tally = self.plan, np.zeros(5, np.int64)
        texts = not all(
            store.key.words and are_words(given.key.offsets) for store, given in zip(self._stores, rows, strict=True)
        )
        sizes = [len(given.key.data) for given in rows]
        self._reserve(many, sizes)
        came = (self._came(rows[0]), self._came(rows[1]))
        keys = (Keys(rows[0].key.offsets, rows[0].key.data), Keys(rows[1].key.offsets, rows[1].key.data))
        spans = (plan.windows[0], plan.windows[1])
        asked = Asked(texts, plan.check_differ, plan.limit, plan.threshold)
        found = push_rows(came, keys, spans, self._memory, self._cells, asked, tally)
        pairs = self._took(found, many, sizes, tally, texts=texts)
        return pairs.answers() if pairs.many else NO_ANSWERS

    def _came(self, rows: Objects) -> Came:
        n = len(rows.time)
        group = self._zeros[:n] if rows.group is None else self._groups.of(rows.group, n)
        differ = self._zeros[:n] if rows.differ is None else self._differs.of(rows.differ, n)
        return Came(rows.time, rows.mass, rows.reach, rows.centre, group, differ)

    def _reserve(self, many: Sequence[int], sizes: Sequence[int]) -> None:
        """Have room for so many rows more of each stream, with keys of so many bytes."""
        for store, came, size, memory, cells in zip(self._stores, many, sizes, self._memory, self._cells, strict=True):
            store.reserve(came, size, memory, cells)

    def _took(
        self,
        found: tuple[Whole, Hashes, Floats],
        many: Sequence[int],
        sizes: Sequence[int],
        tally: Ints,
        *,
        texts: bool,
    ) -> FewPairsFound:
        """Take note of rows that the windows have now, and of how their pairs were decided."""
        n, words, figures = found
        for store, came, size in zip(self._stores, many, sizes, strict=True):
            store.took(came, size, texts=texts)
        reached, far, unlikely, _, refined = tally.tolist()
        counts = self.counts
        counts["candidates"] += reached
        counts["pruned_reach"] += far
        counts["pruned_cantelli"] += unlikely
        counts["refined"] += refined
        counts["answers"] += int(n)
        self.output.add(int(n))
        keys = None
        if texts and n:
            places = words.view(np.int64)
            keys = self._stores[0].keys(places[0, :n]), self._stores[1].keys(places[2, :n])
        return FewPairsFound(int(n), words, figures, keys)


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
