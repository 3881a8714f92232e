"""How many answers a push will have, from a sample of its pairs, before it is carried out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.grid import squared_distances
from appulse.operators.cost import spread
from appulse.operators.output import explodes
from appulse.operators.pairs import CandidatePairs, evaluated, products

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from appulse.kernels.arrays import Flags, Ints
    from appulse.operators.arrivals import Arrivals
    from appulse.operators.plan import JoinPlan
    from appulse.operators.store import WindowBuffer

_PROBES, _ROWS = 64, 64
# Answers drawn from which on an estimate is reliable, and how many times as many rows are drawn where one of fewer
# says that the output explodes.
_ENOUGH, _MORE = 8, 16


@dataclass(frozen=True)
class Estimate:
    """Of a push of ``rows``: pairs in each other's windows, those near enough to be judged, and answers.

    By a sample of ``drawn`` pairs. ``pairings`` are the pairs of samples that match, where answers report them.
    """

    rows: int
    pairs: float
    near: float
    answers: float
    drawn: int
    pairings: float = 0.0

    @property
    def explodes(self) -> bool:
        """Whether there are more answers than anybody may have meant."""
        return explodes(self.answers, self.rows)


def estimated(
    plan: JoinPlan,
    stores: Sequence[WindowBuffer],
    stream_of: Ints,
    meets: Flags,
    arrivals: Arrivals,
    reach_of: Callable[[int], tuple[Ints, Ints]],
    rows_each: int = _ROWS,
) -> Estimate:
    """Draw rows from the windows of some of the arrivals, and judge these pairs. The same draw for the same rows.

    It is asked before the rows that came are linked.
    """
    random = np.random.default_rng(len(arrivals.time))
    pairs = near = answers = matching = 0.0
    drawn = hits = 0
    for own, store in enumerate(stores):
        probing = np.flatnonzero(meets[own][arrivals.store])
        if len(probing) == 0 or len(store) == 0:
            continue
        some = probing[spread(len(probing), _PROBES)]
        oldest, newest = (ranks[some] for ranks in reach_of(own))
        begin = np.searchsorted(store.rank_max.view, oldest, side="left")
        ours = arrivals.store == own
        there = store.linked + np.cumsum(ours) - ours  # rows that are there when each arrival comes: never itself
        size = np.maximum(0, there[some] - begin)
        at = np.repeat(some, rows_each)
        rows = np.repeat(begin, rows_each) + (random.random(len(at)) * np.repeat(size, rows_each)).astype(np.int64)
        # How many pairs of the push each one drawn stands for.
        weight = np.repeat(size, rows_each) * (len(probing) / len(some) / rows_each)
        rows = np.minimum(rows, len(store) - 1)
        rank, group = store.rank.view[rows], store.group.view[rows]
        met = (weight > 0) & (rank >= np.repeat(oldest, rows_each)) & (rank <= np.repeat(newest, rows_each))
        met &= group == arrivals.group[at]
        if plan.check_differ:
            differ, its = store.differ.view[rows], arrivals.differ[at]
            met &= (differ != 0) & (its != 0) & (differ != its)
        drawn += int(met.sum())
        pairs += float(weight[met].sum())
        square = squared_distances(np.arange(len(at)), rows, arrivals.places(stores, at), store.centre.view)
        met &= square <= (plan.limit + arrivals.extent[at] + store.extent.view[rows]) ** 2
        near += float(weight[met].sum())
        for other in np.unique(arrivals.store[at[met]]).tolist():
            mask = met & (arrivals.store[at] == other)
            kinds = plan.models[int(stream_of[other])], plan.models[int(stream_of[own])]
            drawn_pairs = CandidatePairs(stores[other], arrivals.row[at[mask]], store, rows[mask], np.flatnonzero(mask))
            scored = evaluated(plan, drawn_pairs, kinds, Counter())
            each = weight[scored.pairs.arrival]
            answers, hits = answers + float(each.sum()), hits + len(each)
            if plan.values:
                matching += float((each * scored.probability * products(scored.pairs)).sum())
    found = Estimate(len(arrivals.time), pairs, near, answers, drawn, matching)
    if found.explodes and hits < _ENOUGH and rows_each == _ROWS:  # each of few may have been met by chance
        return estimated(plan, stores, stream_of, meets, arrivals, reach_of, _MORE * _ROWS)
    return found
