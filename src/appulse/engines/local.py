"""The engine in this process: tables in, tables out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.engines.arriving import Arrivals
from appulse.engines.call import JoinCall, Observed, late_rejects, numbering_of, own_keys, refused, to_table
from appulse.engines.imputing import refuse_in_order
from appulse.engines.lazy import Unfilled
from appulse.errors import BadArgument, bad_rows, tell_capped, warn_exploding
from appulse.model import defects as why
from appulse.model.columns import arrow_table
from appulse.model.defects import concat_rejects
from appulse.model.degrees import degrees_hint
from appulse.model.encode import check_columns, checked, encode, infer_dimensions
from appulse.model.uncertainty import names
from appulse.operators.answers import Answers
from appulse.operators.numbering import END, Released, in_own_window
from appulse.operators.output import Output
from appulse.operators.similarity_join import SimilarityJoin
from appulse.windows.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from appulse.model.objects import Objects


def as_table(frame: Any) -> pa.Table:
    """A pyarrow, pandas or Polars frame as an Arrow table, in plain types."""
    table = arrow_table(frame)
    if table is None:
        kind = f"{type(frame).__module__}.{type(frame).__name__}"
        raise BadArgument(
            f"A stream's frame is a {kind}. Give a Spark DataFrame, or a pyarrow, pandas or Polars table."
        )
    return table


class LocalJoin:
    """A similarity join in process, batch by batch; only with ``standing`` may `current` be asked."""

    def __init__(self, call: JoinCall, *, standing: bool = False) -> None:
        self.call = call
        if standing:
            refuse_in_order(call.encodings)
        self.operator = SimilarityJoin(call.plan)
        self._numbering = None if call.plan.rule is None else numbering_of(call, standing=standing)
        self._clock = Clock.of(call)
        self._arrivals = Arrivals(call.encodings, call.ahead)
        self._unfilled = Unfilled.of(call)
        self._over: int | None = None  # under time windows: pairs that end before this have left
        self._rejects: list[pa.Table] = []
        self._suspected = False

    def push(self, tables: Mapping[str, pa.Table], output: Output | None = None) -> pa.Table:
        """Take in rows by stream name; the answers they complete, counted by ``output`` or else for themselves."""
        self.operator.output = self._output() if output is None else output
        for encoding in self.call.encodings:
            if encoding.name in tables:
                check_columns(encoding, tables[encoding.name].schema)
        call = _with_dimensions(self.call, tables)
        limit = self._late_before()
        # Nothing is kept before all of it is known to be good: a push that raises has changed nothing.
        self._arrivals.begin()
        batches: list[tuple[int, Objects]] = []
        rejected: list[pa.Table] = []
        came = behind_all = 0
        for i, encoding in enumerate(call.encodings if self._unfilled is None else self._unfilled.encodings):
            table = tables.get(encoding.name)
            if table is None:
                continue
            objects, rejects = encode(table, encoding)
            rejected += self._checked(rejects)
            came += len(objects)
            if len(judged := self._arrivals.judge(i, objects.time, own_keys(objects, encoding))):
                ahead = objects.take(judged.rows)
                ahead = ahead if self._unfilled is None else self._unfilled.filled(i, ahead)
                rejected += self._checked(refused(ahead, encoding, why.FUTURE, judged.details))
                objects = objects.take(np.setdiff1d(np.arange(len(objects)), judged.rows))
            if limit is not None and (objects.time < limit).any():
                behind = objects.time < limit
                behind_all += int(behind.sum())
                late = objects.take(np.flatnonzero(behind))
                late = late if self._unfilled is None else self._unfilled.filled(i, late)
                rejected += self._checked(late_rejects(late, limit, encoding))
                objects = objects.take(np.flatnonzero(~behind))
            batches.append((i, objects))
        self.call = call
        self._suspect([objects for _, objects in batches if len(objects)])
        for i, objects in batches:
            self._clock.see(i, objects)
        self._rejects += rejected
        self._arrivals.settle()
        self._arrivals.count(came, behind_all, self._clock)
        if self._numbering is None:
            answers = self.operator.push(self._ready([(i, 0, objects) for i, objects in batches]))
            self._clock.tick()
            return to_table(Answers.concat([answers, self._advance(self._late_before())]), self.call)
        for i, objects in batches:
            self._numbering.hold(i, objects)
        complete = END if self.call.arrival else self._clock.tick()
        return to_table(self._release(complete), self.call)

    def drain(self, output: Output | None = None) -> pa.Table:
        """The streams have ended: the answers, and changes, of what was held; counted as in `push`."""
        self.operator.output = self._output() if output is None else output
        if self._numbering is not None:
            return to_table(self._release(END), self.call)
        return to_table(self._advance(self._clock.now), self.call)

    def current(self) -> pa.Table:
        """The pairs that have entered and not left: as they were reported, or else by a join from scratch."""
        plan = self.call.plan
        operator = self.operator
        if not plan.changes:
            operator = SimilarityJoin(replace(plan, changes=True), output=self._output())
            presence = None if self._numbering is None else self._numbering.presence()
            operator.push(self.operator.live(), () if presence is None else (presence,))
            if self._over is not None:
                operator.advance(self._over)
        return to_table(operator.standing.pairs, replace(self.call, plan=replace(plan, changes=False)))

    def _output(self) -> Output:
        return Output(self.call.options.max_output)

    def _suspect(self, rows: list[Objects]) -> None:
        """Warn, at the first rows, where they look like degrees and epsilon does not."""
        if self._suspected or not rows:
            return
        self._suspected = True
        named = names(self.call.plan.models[0], rows[0].d)
        if not degrees_hint(named, self.call.plan.epsilon):
            return
        centres = np.concatenate([objects.centre for objects in rows])
        # Holes are NaN, and left out.
        least, most = np.fmin.reduce(centres, axis=0), np.fmax.reduce(centres, axis=0)
        hint = degrees_hint(named, self.call.plan.epsilon, least, most)
        if hint:
            warn_exploding(hint)

    def _advance(self, limit: int | None) -> Answers:
        """Under time windows: pairs that this ends, and nothing before ``limit`` will be asked for any more."""
        if limit is None:
            return Answers.concat([])
        self._over = limit
        if self._unfilled is not None:
            self._unfilled.advance(limit)
        return self.operator.advance(limit)

    def _ready(self, batches: list[tuple[int, int, Objects]]) -> list[tuple[int, int, Objects]]:
        """The rows to be joined now: all, or those that are filled or may match something."""
        return batches if self._unfilled is None else self._unfilled.admit(batches)

    def _late_before(self) -> int | None:
        """Rows before this are late; None where none can be."""
        frontier = self._clock.frontier
        if self._numbering is not None:
            return None if self.call.arrival else frontier
        # Spark's watermark, the clock of time windows there, begins at 0.
        return frontier if frontier is not None and frontier > 0 else None

    def _release(self, complete: int | None) -> Answers:
        """Number the rows whose ticks are complete, and answer them."""
        if self._numbering is None or complete is None:
            return Answers.concat([])
        released = []
        for stream, rows in self._numbering.release(complete):
            objects = rows if self._unfilled is None else self._unfilled.ties_filled(stream, rows)
            released.append(Released(stream, objects, np.arange(len(objects) + 1), np.zeros(len(objects), np.int64)))
        capped = self._numbering.capped
        numbered = self._numbering.number(released)
        tell_capped(self._numbering.capped - capped)
        batches = [
            (part.stream, 0, in_own_window(objects, part.stream))
            for part, objects in zip(released, numbered.objects, strict=True)
        ]
        batches = self._ready(batches)
        answers = self.operator.push(batches, () if numbered.presence is None else (numbered.presence,))
        return Answers.concat([answers, self.operator.leave(numbered.floors)])

    def observed(self) -> JoinCall:
        """The call, with what it did so far."""
        operator, counts = self.operator, dict(self.operator.counts)
        if self._unfilled is not None:
            counts["never filled"] = self._unfilled.never
        return replace(self.call, observed=Observed(counts, operator.choices, operator.estimate))

    def rejects(self) -> pa.Table:
        """Every row that could not be used so far."""
        return concat_rejects(self._rejects, self.call.reject_schema)

    def _checked(self, rejects: pa.Table) -> list[pa.Table]:
        return [_kept(rejects, self.call)] if len(rejects) else []


def rejected(call: JoinCall, tables: Mapping[str, pa.Table]) -> pa.Table:
    """The rows that cannot be used, of tables by stream name that are not joined yet."""
    call = _with_dimensions(call, tables)
    parts = []
    for encoding in call.encodings:
        if encoding.name in tables:
            check_columns(encoding, tables[encoding.name].schema)
            parts.append(checked(tables[encoding.name], replace(encoding, fill=None, where=()))[1])
    return concat_rejects(parts, call.reject_schema)


def check_rows(call: JoinCall, tables: Mapping[str, pa.Table]) -> None:
    """Raise `BadArgument` for columns that cannot serve, and `BadInput` for rows where the call wants that."""
    _kept(rejected(call, tables), call)


def _kept(rejects: pa.Table, call: JoinCall) -> pa.Table:
    if len(rejects) and call.on_reject == "fail":
        raise bad_rows(len(rejects), rejects.slice(0, 1).to_pylist()[0])
    return rejects


def _with_dimensions(call: JoinCall, tables: Mapping[str, pa.Table]) -> JoinCall:
    """The call, with the number of dimensions that rows tell if it has none."""
    if call.encodings[0].dimensions is not None:
        return call
    for encoding in call.encodings:
        table = tables.get(encoding.name)
        d = None if table is None else infer_dimensions(table, encoding.model)
        if d is not None:
            return call.with_dimensions(d)
    return call
