"""The nearest rows where all rows are there: a tree of the right rows, in place of a join and what it would keep."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.kernels.curve import curve_codes, curve_of, in_order
from appulse.kernels.geodesic import Earth
from appulse.kernels.nearest import Search, nearest
from appulse.kernels.nearest_tree import BOXED, around, fill, grow, plant, split
from appulse.model.encode import sampled
from appulse.model.workers import Workers
from appulse.operators.answers import Answers
from appulse.operators.labels import LabelNumbers
from appulse.operators.numbering import in_canonical_order
from appulse.operators.pairs import STRAIGHT, CandidatePairs, scored
from appulse.operators.partners import LEFT, notes_of
from appulse.operators.store import WindowBuffer
from appulse.operators.vectors import MANY_DIMENSIONS, nearest_of_several, nearest_vectors

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from appulse.kernels.arrays import Floats, Ints
    from appulse.kernels.curve import Curve
    from appulse.kernels.nearest_tree import Tree
    from appulse.model.objects import Objects
    from appulse.operators.plan import JoinPlan

    _Find = Callable[..., int]  # the nearest of some rows, as `nearest` finds them


# Rows of a part that one thread looks for, at least; parts for each thread, as some take longer.
_PART, _PARTS = 1 << 13, 4
_LEVELS = 4  # of a tree, below which each part is made by one thread
_ALONE, _LAST = Workers(), np.iinfo(np.int64).max


class NearestTrees:
    """The right rows as trees, one for each group; under time windows, by the distance of means.

    In many dimensions, where no tree helps, they are looked at in blocks.
    """

    def __init__(self, plan: JoinPlan, right: Objects, workers: Workers = _ALONE) -> None:
        """``workers`` grow the trees, and search in them."""
        self.plan, self._workers = plan, workers
        self._groups = LabelNumbers()
        # In the order of time alone: that of keys costs more than the trees, and is rarely asked for.
        rising = bool((right.time[1:] >= right.time[:-1]).all())
        self._grow(right if rising else right.take(np.argsort(right.time, kind="stable")), ordered=False)

    def _grow(self, right: Objects, *, ordered: bool) -> None:
        """Take in the right rows, of which of several equally far away the first is the nearest."""
        self.right, self._ordered = right, ordered
        self._among = {group: self._searched(right, rows) for group, rows in self._by_group(right).items()}

    def _by_group(self, rows: Objects) -> dict[int, Ints | None]:
        """The rows of each group; None where there is one alone."""
        if rows.group is None:
            return {0: None}
        numbers = self._groups.of(rows.group, len(rows))
        if len(numbers) and (numbers == numbers[0]).all():
            return {int(numbers[0]): None}
        order = np.argsort(numbers, kind="stable")
        known, first = np.unique(numbers[order], return_index=True)
        return dict(zip(known.tolist(), np.split(order, first[1:]), strict=True)) if len(known) else {}

    def _searched(self, right: Objects, rows: Ints | None) -> _Among:
        """What finds the nearest of some rows, or of all."""
        centre, time = _placed(right, rows)
        if right.d >= MANY_DIMENSIONS:
            return _Among(rows, time, partial(nearest_vectors, centre))
        tree = self._tree_of(centre, time)
        if right.d > BOXED and self.plan.earth is None:
            return _Among(rows, time, partial(nearest_of_several, tree, centre))
        return _Among(rows, time, partial(nearest, tree))

    def _tree_of(self, points: Floats, time: Ints) -> Tree:
        """The tree of some rows; of many, part by part."""
        span = max(self.plan.windows)
        if self._workers.threads == 1 or len(points) < _PART << _LEVELS:
            return grow(points, time, span)
        curve = curve_of(points, time, span)
        parts = self._along(curve, points, time, self._workers.threads)
        codes, order = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        tree = plant(curve, codes, order, points.shape[1])
        split(tree, 0, _LEVELS, codes, points, time, span)
        roots = range((1 << _LEVELS) - 1, (2 << _LEVELS) - 1)
        self._workers.map(lambda root: fill(tree, root, codes, points, time, span), roots)
        around(tree, 0, _LEVELS)
        return tree

    def _along(self, curve: Curve, points: Floats, time: Ints, many: int) -> list[tuple[Ints, Ints]]:
        """The rows along a curve, in about so many parts: their codes in order, and which row each is of."""
        codes = np.empty(len(points), np.int64)
        cuts = np.linspace(0, len(points), self._workers.threads + 1).astype(int).tolist()
        runs = [slice(*ends) for ends in pairwise(cuts)]
        self._workers.map(lambda run: curve_codes(curve, points[run], time[run], codes[run]), runs)
        ends = [0, *np.quantile(codes[:: 1 + len(codes) // _PART], np.arange(1, many) / many).astype(int), _LAST]
        return self._workers.map(lambda ends: in_order(curve, codes, *ends), list(pairwise(ends)))

    def search(self, left: Objects, counts: Counter[str]) -> Answers:
        """The nearest right rows of each left row; with how="left" those without any, too."""
        found, distance, ties = self._search(left)
        if ties and not self._ordered:
            self._grow(in_canonical_order(self.right), ordered=True)
            found, distance, _ = self._search(left)
        there = found >= 0
        rows, place = np.nonzero(there)
        answers = _answers(self.plan, left, self.right, (rows, found[there], distance[there]), counts)
        counts["answers"] += len(answers)
        answers = replace(answers, left_rank=left.time[rows], place=place + 1)
        if self.plan.how != "left":
            return answers
        alone = np.flatnonzero(~there.any(axis=1))
        return Answers.concat([answers, notes_of(0, left.take(alone), LEFT).alone(self.plan)])

    def _search(self, left: Objects) -> tuple[Ints, Floats, int]:
        """The rows nearest to each left row, how far away they are, and how many ties there were."""
        plan, k = self.plan, max(1, min(self.plan.best, len(self.right)))
        found, distance, ties = np.full((len(left), k), -1), np.full((len(left), k), np.nan), 0
        wanted = Search(plan.windows[1], plan.windows[0], k, plan.limit, Earth(*(plan.earth or STRAIGHT)))
        for group, ours in self._by_group(left).items():
            if group not in self._among:
                continue
            among, (centre, time) = self._among[group], _placed(left, ours)

            def look(
                some: Ints | slice, among: _Among = among, centre: Any = centre, time: Any = time
            ) -> tuple[Ints, Floats, int]:
                rows, away = np.empty((len(time[some]), k), np.int64), np.empty((len(time[some]), k))
                ties = among.find(centre[some], time[some], among.time, wanted, rows, away)
                return among.numbered(rows), away, ties

            parts = self._parts(centre, time)
            for some, (rows, away, tied) in zip(parts, self._workers.map(look, parts), strict=True):
                at = some if ours is None else ours[some]
                found[at], distance[at] = rows, away
                ties += tied
        return found, distance, ties

    def _parts(self, centre: Floats, time: Ints) -> Sequence[Ints | slice]:
        """Left rows for one thread each; those near to each other are in one part."""
        many = min(_PARTS * self._workers.threads, len(time) // _PART)
        if self._workers.threads == 1 or many < 2:
            return [slice(None)]
        curve = curve_of(centre, time, max(self.plan.windows))
        return [order for _, order in self._along(curve, centre, time, many)]


@dataclass(frozen=True)
class _Among:
    """The right rows of a group (None: all), when they were, and what finds the nearest of them."""

    rows: Ints | None
    time: Ints
    find: _Find

    def numbered(self, found: Ints) -> Ints:
        """Rows of the group as rows of the table; -1 stays."""
        return found if self.rows is None else np.where(found >= 0, self.rows[found], -1)


def _placed(objects: Objects, rows: Ints | None) -> tuple[Floats, Ints]:
    """Where and when some rows are, or all."""
    if rows is None:
        return objects.centre, objects.time
    return objects.centre[rows], objects.time[rows]


def _answers(
    plan: JoinPlan, left: Objects, right: Objects, found: tuple[Ints, Ints, Floats], counts: Counter[str]
) -> Answers:
    """The pairs found, with their probabilities."""
    rows, partners, distance = found
    if plan.limit == math.inf:
        probability = np.full(len(rows), np.nan)
    elif plan.points_only:
        probability = left.mass[rows] * right.mass[partners]
    else:
        stores = tuple(_stored(plan, i, objects) for i, objects in enumerate((left, right)))
        pairs = CandidatePairs(stores[0], rows, stores[1], partners, np.zeros(len(rows), np.int64))
        probability = scored(plan, pairs, distance, (plan.models[0], plan.models[1]), counts).probability
    return Answers(
        np.zeros(len(rows), np.int64),
        left.key if len(rows) == len(left) and plan.best == 1 else left.key.take(rows),
        left.time[rows],
        np.ones(len(rows), np.int64),
        right.key.take(partners),
        right.time[partners],
        distance,
        probability,
    )


def _stored(plan: JoinPlan, stream: int, objects: Objects) -> WindowBuffer:
    """The rows as pairs of rows are looked at."""
    if not plan.points_only and not plan.closed_form:
        objects = sampled(objects, plan.models[stream], plan.quantile)
    store, none = WindowBuffer(objects.d, "dense", 0.0), np.zeros(len(objects), np.int64)
    store.extend(objects, objects.reach, none, none)
    return store
