"""The state of some keys of a similarity join."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from appulse.engines.bucket import NEVER
from appulse.engines.join.call import JoinCall, numbering_of, to_table
from appulse.engines.join.lazy import Unfilled
from appulse.engines.join.whole import tables_of
from appulse.engines.objects import ObjectsBucket
from appulse.engines.withdrawing import Corrections
from appulse.model.few import FEW
from appulse.model.objects import Objects
from appulse.model.workers import Workers, cores
from appulse.operators.answers import NO_ANSWERS, Answers
from appulse.operators.held_pairs import HeldPairs
from appulse.operators.nearest_search import NearestTrees
from appulse.operators.numbering import Released, in_own_window, pushed_out_at_once
from appulse.operators.similarity_join import SimilarityJoin
from appulse.operators.whole import WholeJoin
from appulse.operators.whole_nearest import whole_nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from appulse.kernels.arrays import Flags
    from appulse.operators.few_points import FewPairsFound

Batches = list[tuple[int, int, Objects]]  # stream, lane, rows


class JoinBucket(ObjectsBucket):
    """A whole join; only with ``standing`` may `LocalJoin.current` be asked."""

    call: JoinCall

    def __init__(self, call: JoinCall, *, standing: bool = False) -> None:
        self.unfilled = Unfilled.of(call)
        super().__init__(call if self.unfilled is None else self.unfilled.call)
        self.operator = SimilarityJoin(call.plan)
        self.numbering = None if call.plan.rule is None else numbering_of(call, standing=standing)
        partners = self.operator.partners
        self.pairs = HeldPairs.of(call.plan) if partners is not None and call.plan.held and partners.apart else None
        self.corrections = Corrections.of(call, call.plan.windows if call.plan.rule is None else None, self.counts)
        self.behind: int | None = None  # rows of the step at hand before this are late
        filled = any(encoding.fill is not None for encoding in call.encodings)
        self.workers = self.operator.workers = Workers(1 if filled else call.options.threads or cores())
        self.over: int | None = None  # under time windows: pairs that end before this have left

    def __len__(self) -> int:
        return len(self.operator)

    @property
    def nbytes(self) -> int:
        return self.operator.nbytes + (0 if self.pairs is None else self.pairs.nbytes)

    def late_before(self, limit: int | None) -> int | None:
        """Rows before this are late; None where none can be."""
        before = super().late_before(limit)
        # Spark's watermark, the clock of time windows there, begins at 0.
        self.behind = before if self.numbering is not None or (before is not None and before > 0) else None
        return self.behind

    def hold(self, stream: int, rows: Objects) -> None:
        """Let rows wait for their ticks, where windows go by rows."""
        if self.numbering is not None:
            self.numbering.hold(stream, rows)

    def answer(self, *, ended: bool) -> list[pa.Table]:
        """The pairs, and changes, that rows and complete ticks make."""
        self.operator.output = self.output
        if ended and self._whole:
            return [to_table(self._searched(), self.call)]
        if ended and (found := self._in_cells()) is not None:
            return found
        if self.numbering is not None:
            answers = self._numbered()
        else:
            came, answers = self._settled() if self.corrections is not None else (self.came, [])
            answers.append(self.operator.push(self._ready([(stream, 0, rows) for stream, rows in came])))
            over = self.clock.now if ended else self.complete if self.complete > 0 else None
            if over is not None:
                answers.append(self._end(over))
        if self.corrections is not None and (self.numbering is not None or self.complete > 0):
            self.rejected += self.corrections.lapse(self.complete)
        if ended:
            answers.append(self.operator.end())
        if self.pairs is not None and self.operator.partners is not None:
            answers = [self.pairs.take(answers, self.operator.partners.taken())]
            self.output.add(len(answers[0]))
        return [to_table(Answers.concat(answers), self.call)]

    def keep_few(self, came: int, pairs: FewPairsFound) -> pa.Table:
        """Take the step of a few points that the windows have by now: the pairs as a table."""
        self.counts["rows"] += came
        self.counts["late"] += 0
        self.complete = self._complete_before(None, None)
        if self.complete > 0:
            self.operator.advance(self.complete)
        n, short = pairs.many, self.call.few_pairs
        self.counts["answers"] += n
        if n == 0:
            return self.call.no_answers
        if short is None or n > FEW:
            return to_table(pairs.answers(), self.call)
        return short.table_of(pairs)

    @property
    def _whole(self) -> bool:
        """Whether all rows are there, and the nearest ones can be looked for in place of a join."""
        plan = self.call.plan
        fresh = len(self.operator) == 0 and self.pairs is not None and len(self.pairs) == 0
        plain = (self.unfilled, self.corrections) == (None, None)
        return plan.by_means and plan.rule is None and not plan.margins and fresh and plain

    def _in_cells(self) -> list[pa.Table] | None:
        """The answers of whole tables, part by part; None where their rows are better taken one after the other."""
        held = (self.numbering, self.unfilled, self.corrections) != (None, None, None)
        if held or self.call.plan.index != "auto":
            return None
        if {i for i, _ in self.came} != set(range(len(self.call.plan.streams))):
            return None
        tables = [rows for _, rows in sorted(self.came, key=itemgetter(0))]
        if self.call.plan.best:
            nearest = None if self.pairs is None or len(self.pairs) or len(self.operator) else self._best_of(tables)
            return None if nearest is None else [nearest]
        whole = WholeJoin.of(self.operator, tables, self.workers)
        if whole is None:
            return None
        found = tables_of(whole, tables, self.call)
        return [*found, to_table(self.operator.end(), self.call)]

    def _best_of(self, tables: Sequence[Objects]) -> pa.Table | None:
        """The nearest rows of whole tables, where more than their means counts."""
        found = whole_nearest(self.call.plan, tables, self.operator.counts, self.workers)
        if found is None:
            return None
        self.output.add(len(found))
        return to_table(found, self.call)

    def _searched(self) -> Answers:
        """The nearest rows of whole streams."""
        streams = [[rows for i, rows in self.came if i == stream] for stream in (0, 1)]
        if not streams[0]:
            return NO_ANSWERS
        left = Objects.concat(streams[0])
        right = Objects.concat(streams[1]) if streams[1] else left.slice(0, 0)
        answers = NearestTrees(self.call.plan, right, self.workers).search(left, self.operator.counts)
        self.output.add(len(answers))
        return answers

    def _settled(self) -> tuple[Sequence[tuple[int, Objects]], list[Answers]]:
        """Under time windows: the rows that came and stay, and the pairs of those that are withdrawn."""
        assert self.corrections is not None  # noqa: S101 - asked before
        came, gone = self.corrections.settle(self.came, self.asked, self.behind, self._still_held)
        for stream, rows in came:
            self.corrections.ledger.stand(stream, rows)
        self.corrections.ledger.forget(self._still_held)
        ended = self.operator.withdraw([(stream, 0, rows) for stream, rows in gone])
        if self.pairs is not None:
            self.pairs.withdraw(self.operator.gone)
        return came, [ended]

    def _still_held(self, stream: int, rows: Objects) -> Flags:
        """Which rows may still be in their time window."""
        held: Flags = rows.time + self.call.plan.windows[stream] >= (NEVER if self.over is None else self.over)
        return held

    def _withdrawn(self) -> list[Answers]:
        """Under windows that go by rows: the pairs of rows that are withdrawn; rows that wait may be, too."""
        if self.corrections is None or self.numbering is None:
            return []
        ledger, numbering = self.corrections.ledger, self.numbering
        gone = self.corrections.settle_waiting(numbering, self.came, self.asked, self.behind)
        if not gone:
            return []
        notes = numbering.withdraw(gone)
        ledger.renumber(partial(numbering.renumbered, notes))
        ended = self.operator.renumber(notes)
        if self.pairs is not None:
            self.pairs.withdraw(self.operator.gone)
        return [ended]

    def _end(self, before: int) -> Answers:
        """Under time windows: pairs that this ends; nothing before it will be asked for any more."""
        self.over = before
        if self.unfilled is not None:
            self.unfilled.advance(before)
        return self.operator.advance(before)

    def _numbered(self) -> list[Answers]:
        """Number the rows whose ticks are complete, and answer them."""
        assert self.numbering is not None  # noqa: S101 - asked before
        answers, released = self._withdrawn(), []
        for stream, rows in self.numbering.release(self.complete):
            objects = rows if self.unfilled is None else self.unfilled.ties_filled(stream, rows)
            released.append(Released(stream, objects, np.arange(len(objects) + 1), np.zeros(len(objects), np.int64)))
        capped = self.numbering.capped
        numbered = self.numbering.number(released)
        self.counts["capped"] += self.numbering.capped - capped
        batches = [
            (part.stream, 0, in_own_window(objects, part.stream))
            for part, objects in zip(released, numbered.objects, strict=True)
        ]
        presence = () if numbered.presence is None else (numbered.presence,)
        gone = self._at_once([(part.stream, rows) for part, rows in zip(released, numbered.objects, strict=True)])
        if self.corrections is not None:
            for stream, _, rows in batches:
                self.corrections.ledger.stand(stream, rows)
            self.corrections.ledger.forget(self.numbering.holds)
        answers += [self.operator.push(self._ready(batches), presence), self.operator.leave(numbered.floors), gone]
        return answers

    def _at_once(self, numbered: list[tuple[int, Objects]]) -> Answers:
        """Rows that their own tick pushed out, where rows without a partner are reported."""
        partners = self.operator.partners
        if partners is None:
            return NO_ANSWERS
        return partners.answers([partners.pushed_out(i, pushed_out_at_once(rows, i)) for i, rows in numbered])

    def _ready(self, batches: Batches) -> Batches:
        """The rows to be joined now: all, or those that are filled or may match something."""
        return batches if self.unfilled is None else self.unfilled.admit(batches)
