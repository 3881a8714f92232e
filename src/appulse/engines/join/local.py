"""The similarity join in this process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from appulse.engines.imputing import refuse_in_order
from appulse.engines.join.bucket import JoinBucket
from appulse.engines.join.call import JoinCall, Observed, to_table
from appulse.engines.join.short import ShortPushes
from appulse.engines.local import Local
from appulse.errors import warn_exploding
from appulse.model.changes import encode_changes
from appulse.model.defects import concat_rejects
from appulse.model.degrees import degrees_hint
from appulse.model.encode import checked, infer_dimensions
from appulse.model.encoding import check_columns
from appulse.model.objects import Objects
from appulse.model.uncertainty import names
from appulse.operators.output import Output
from appulse.operators.similarity_join import SimilarityJoin

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


class LocalJoin(Local[Objects]):
    """A similarity join in process, batch by batch; only with ``standing`` may `current` be asked."""

    bucket: JoinBucket

    def __init__(self, call: JoinCall, *, standing: bool = False) -> None:
        if standing:
            refuse_in_order(call.encodings)
        super().__init__(JoinBucket(call, standing=standing))
        self._short = ShortPushes.of(self.bucket, self.arrivals)
        self._suspected = False
        self._counted: dict[str, int] = {}

    @property
    def call(self) -> JoinCall:
        return self.bucket.call

    @property
    def operator(self) -> SimilarityJoin:
        """The join itself."""
        return self.bucket.operator

    def push(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        found = None if self._short is None else self._short.push(tables)
        return super().push(tables) if found is None else found

    def current(self) -> pa.Table:
        """The pairs that have entered and not left: as they were reported, or else by a join from scratch."""
        plan, bucket = self.call.plan, self.bucket
        operator = bucket.operator
        if not plan.changes:
            operator = SimilarityJoin(replace(plan, changes=True), output=Output(self.call.max_output))
            presence = None if bucket.numbering is None else bucket.numbering.presence()
            operator.push(bucket.operator.live(), () if presence is None else (presence,))
            if bucket.over is not None:
                operator.advance(bucket.over)
        return to_table(operator.standing.pairs, replace(self.call, plan=replace(plan, changes=False)))

    def counted(self) -> dict[str, int]:
        """What was counted since the call before: candidates, and which test decided about them."""
        before, self._counted = self._counted, dict(self.operator.counts)
        return {name: count - before.get(name, 0) for name, count in self._counted.items()}

    def observed(self) -> JoinCall:
        """The call, with what it did so far."""
        operator, counts = self.operator, dict(self.operator.counts)
        if not self.call.plan.changes:  # the join counts pairs, which rows without a partner are not
            counts["answers"] = self.bucket.counts["answers"]
        if self.bucket.unfilled is not None:
            counts["never filled"] = self.bucket.unfilled.never
        return replace(self.call, observed=Observed(counts, operator.choices, operator.estimate))

    def _admit(self, tables: Mapping[str, pa.Table]) -> None:
        before = self.bucket.call
        self.bucket.call = _with_dimensions(before, tables)
        try:
            super()._admit(tables)
        except BaseException:
            self.bucket.call = before
            raise
        self._suspect([objects for _, objects in self.bucket.came])

    def _suspect(self, rows: list[Objects]) -> None:
        """Warn, at the first rows, where they look like degrees and epsilon does not."""
        if self._suspected or not rows or self.call.plan.earth is not None:
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


def rejected(call: JoinCall, tables: Mapping[str, pa.Table]) -> pa.Table:
    """The rows that cannot be used, of tables by stream name that are not joined yet."""
    call = _with_dimensions(call, tables)
    parts = []
    for encoding in call.encodings:
        if encoding.name in tables:
            check_columns(encoding, tables[encoding.name].schema)
            judge = checked if encoding.change is None else encode_changes
            parts.append(judge(tables[encoding.name], replace(encoding, fill=None, where=()))[1])
    return concat_rejects(parts, call.reject_schema)


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
