"""Aggregates of windows in this process, push by push."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.engines.aggregate import aggregate_table
from appulse.engines.arriving import Arrivals
from appulse.engines.call import late_rejects, own_keys, refused
from appulse.errors import bad_rows, tell_capped
from appulse.model.defects import FUTURE, concat_rejects, reject_schema
from appulse.model.encode import check_columns, encode
from appulse.operators.numbering import END
from appulse.operators.output import Output
from appulse.operators.relational import WindowAggregate
from appulse.windows.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from appulse.engines.aggregate import AggregateCall
    from appulse.model.objects import Objects


class LocalAggregates:
    """A call of `window_aggregate` in process: rows in, answers of complete ticks out."""

    def __init__(self, call: AggregateCall) -> None:
        self.call = call
        self.operator = WindowAggregate(call.plan)
        self._clock = Clock.of(call)
        self._arrivals = Arrivals(call.encodings, call.ahead)
        self._rejects: list[pa.Table] = []

    def push(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Take in rows by stream name; the answers of the ticks that this completes."""
        rows = [self._taken(table) for table in tables.values()]
        complete = END if self.call.arrival else self._clock.tick()
        return self._answered(rows, -END if complete is None else complete)

    def drain(self) -> pa.Table:
        """The stream has ended: the answers of what was held."""
        return self._answered([], END, ended=True)

    def rejects(self) -> pa.Table:
        """Every row that could not be used so far."""
        return concat_rejects(self._rejects, reject_schema(self.call.key_type, self.call.time_type))

    def _taken(self, table: pa.Table) -> Objects:
        """The rows that came in time; the others are rejects. What raises has changed nothing."""
        encoding, limit = self.call.encoding, None if self.call.arrival else self._clock.frontier
        check_columns(encoding, table.schema)
        objects, bad = encode(table, encoding)
        rejected, came, behind = [bad], len(objects), 0
        self._arrivals.begin()
        if len(judged := self._arrivals.judge(0, objects.time, own_keys(objects, encoding))):
            rejected.append(refused(objects.take(judged.rows), encoding, FUTURE, judged.details))
            objects = objects.take(np.setdiff1d(np.arange(len(objects)), judged.rows))
        if limit is not None and (objects.time < limit).any():
            late = objects.time < limit
            behind = int(late.sum())
            rejected.append(late_rejects(objects.take(np.flatnonzero(late)), limit, encoding))
            objects = objects.take(np.flatnonzero(~late))
        rejected = [part for part in rejected if len(part)]
        if rejected and self.call.on_reject == "fail":
            raise bad_rows(len(rejected[0]), rejected[0].slice(0, 1).to_pylist()[0])
        self._rejects += rejected
        self._clock.see(0, objects)
        self._arrivals.settle()
        self._arrivals.count(came, behind, self._clock)
        return objects

    def _answered(self, rows: list[Objects], complete: int, *, ended: bool = False) -> pa.Table:
        self.operator.output = Output(self.call.max_output)
        capped = self.operator.capped
        answers = aggregate_table(self.operator.push(rows, complete, ended=ended), self.call)
        tell_capped(self.operator.capped - capped)
        return answers
