"""The nearest rows of whole tables by a join in the order of cells, where more than the means of rows counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from appulse.operators.answers import NO_ANSWERS, Answers
from appulse.operators.held_pairs import NearestRows, leading, values_of
from appulse.operators.output import Output
from appulse.operators.partners import LEFT, notes_of
from appulse.operators.similarity_join import SimilarityJoin
from appulse.operators.whole import WholeJoin

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from appulse.model.objects import Objects
    from appulse.model.workers import Workers
    from appulse.operators.estimate import Estimate
    from appulse.operators.plan import JoinPlan


def whole_nearest(plan: JoinPlan, tables: Sequence[Objects], counts: Counter[str], workers: Workers) -> Answers | None:
    """The best right rows of each left row; None where `WholeJoin` does not apply."""
    join = QuietJoin(replace(plan, best=0, by="distance", how="inner"), output=Output())
    whole = WholeJoin.of(join, tables, workers)
    if whole is None:
        return None
    parts = whole.numbered().answers(lambda answers: _leading(plan, answers))
    pairs = Answers.concat(parts) if parts else NO_ANSWERS
    left, right = (key.data.view(np.int64) for key in (pairs.left_key, pairs.right_key))
    value = values_of(plan.by, pairs.distance, pairs.probability)
    kept = leading(left, value, pairs.right_time, plan.best) if len(left) else np.empty(0, bool)
    left, right, pairs = left[kept], right[kept], pairs.filter(kept)
    pairs = replace(pairs, left_key=tables[0].key.take(left), right_key=tables[1].key.take(right))
    found = NearestRows(plan).best(replace(pairs, left_rank=pairs.left_time), left, np.ones(len(tables[0]), np.int64))
    counts.update({name: count for name, count in join.counts.items() if name != "answers"})
    if plan.how != "left":
        return found
    alone = np.setdiff1d(np.arange(len(tables[0])), left)
    return Answers.concat([found, notes_of(0, tables[0].take(alone), LEFT).alone(plan)])


def _leading(plan: JoinPlan, answers: Answers) -> Answers:
    value = values_of(plan.by, answers.distance, answers.probability)
    return answers.filter(leading(answers.left_key.data.view(np.int64), value, answers.right_time, plan.best))


class QuietJoin(SimilarityJoin):
    """A join whose pairs are not answers, or have been announced: it warns of none."""

    def announce(self, estimate: Estimate) -> None:
        self.estimate = estimate
