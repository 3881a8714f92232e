"""The engine in this process: tables in, tables out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.engines.call import Clock, JoinCall, Observed, late_rejects, numbering_of, to_table
from appulse.engines.imputing import refuse_in_order
from appulse.engines.lazy import Unfilled
from appulse.errors import BadArgument, bad_rows, tell_capped
from appulse.model.columns import arrow_table
from appulse.model.defects import concat_rejects
from appulse.model.encode import check_columns, encode, infer_dimensions
from appulse.operators.answers import Answers
from appulse.operators.numbering import END, Released, in_own_window
from appulse.operators.similarity_join import SimilarityJoin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from appulse.model.encode import Encoding
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
        self._unfilled = Unfilled.of(call)
        self._rejects: list[pa.Table] = []
        self._label_types: dict[str, pa.DataType] = {}

    def push(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Take in rows by stream name; the answers they complete."""
        for encoding in self.call.encodings:
            if encoding.name in tables:
                check_columns(encoding, tables[encoding.name].schema)
        self._learn_dimensions(tables)
        limit = self._late_before()
        # Nothing is kept before all of it is known to be good: a push that raises has changed nothing.
        batches: list[tuple[int, Objects]] = []
        rejected: list[pa.Table] = []
        for i, encoding in enumerate(self.call.encodings if self._unfilled is None else self._unfilled.encodings):
            table = tables.get(encoding.name)
            if table is None:
                continue
            objects, rejects = encode(self._with_known_labels(table, encoding), encoding)
            rejected += self._checked(rejects)
            if limit is not None and (objects.time < limit).any():
                behind = objects.time < limit
                late = objects.take(np.flatnonzero(behind))
                late = late if self._unfilled is None else self._unfilled.filled(i, late)
                rejected += self._checked(late_rejects(late, np.arange(len(late)), limit, encoding))
                objects = objects.take(np.flatnonzero(~behind))
            batches.append((i, objects))
        for i, objects in batches:
            self._clock.see(i, objects)
        self._rejects += rejected
        if self._numbering is None:
            left = [] if limit is None else [self._advance(limit)]
            self._clock.tick()
            answers = self.operator.push(self._ready([(i, 0, objects) for i, objects in batches]))
            return to_table(Answers.concat([*left, answers]), self.call)
        for i, objects in batches:
            self._numbering.hold(i, objects)
        complete = END if self.call.arrival else self._clock.tick()
        return to_table(self._release(complete), self.call)

    def drain(self) -> pa.Table:
        """The streams have ended: the answers, and changes, of what was held."""
        if self._numbering is not None:
            return to_table(self._release(END), self.call)
        now = self._clock.now
        return to_table(Answers.concat([]) if now is None else self.operator.advance(now), self.call)

    def current(self) -> pa.Table:
        """The pairs that stand at the newest tick there was, by a join from scratch."""
        plan = replace(self.call.plan, changes=False)
        live = self.operator.live(self._clock.now)
        presence = None if self._numbering is None else self._numbering.presence()
        answers = SimilarityJoin(plan).push(live, () if presence is None else (presence,))
        return to_table(answers, replace(self.call, plan=plan))

    def _advance(self, limit: int) -> Answers:
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

    def _with_known_labels(self, table: pa.Table, encoding: Encoding) -> pa.Table:
        """The table with partitions in the types of earlier pushes: pandas makes 1 a 1.0 where a null is beside it."""
        columns = {f"partition {i + 1}": column for i, column in enumerate(encoding.partition_by)}
        columns |= {"different": encoding.differ} if encoding.differ is not None else {}
        for what, column in columns.items():
            kind = table.schema.field(column).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            known = self._label_types.get(what, kind)
            known = self._label_types[what] = kind if pa.types.is_null(known) else known
            if kind != known:
                try:
                    cast = table[column].cast(known)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    raise BadArgument(
                        f"Column {column!r} of stream {encoding.name!r} was {known} in earlier pushes and is {kind}: "
                        f"{error}. Cast it before the push."
                    ) from None
                table = table.set_column(table.schema.get_field_index(column), column, cast)
        return table

    def _checked(self, rejects: pa.Table) -> list[pa.Table]:
        if len(rejects) == 0:
            return []
        if self.call.on_reject == "fail":
            raise bad_rows(len(rejects), rejects.slice(0, 1).to_pylist()[0])
        return [rejects]

    def _learn_dimensions(self, tables: Mapping[str, pa.Table]) -> None:
        if self.call.encodings[0].dimensions is not None:
            return
        for encoding in self.call.encodings:
            table = tables.get(encoding.name)
            d = None if table is None else infer_dimensions(table, encoding.model)
            if d is not None:
                self.call = self.call.with_dimensions(d)
                return
