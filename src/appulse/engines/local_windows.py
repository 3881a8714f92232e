"""Queries over several streams in this process, push by push."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from appulse.engines.arriving import Arrivals
from appulse.engines.queries import costliest, explained_query
from appulse.engines.window_queries import WindowQueries
from appulse.engines.window_rows import END, NEVER, HeldRows, WindowRows, taken_in
from appulse.errors import bad_rows
from appulse.model.defects import LATE, NEVER_TRUE, concat_rejects
from appulse.windows.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from appulse.engines.window_call import WindowCall
    from appulse.engines.window_rows import Shown


class LocalWindowQueries:
    """Standing queries over several streams in process: changes and rows in, answers out."""

    def __init__(self, call: WindowCall) -> None:
        self.queries = WindowQueries(call)
        self.held = HeldRows(call)
        self._clock = Clock.of(call)
        self._arrivals = Arrivals(call.encodings, call.ahead)
        self._rejects: list[pa.Table] = []

    @property
    def call(self) -> WindowCall:
        """What was called."""
        return self.queries.call

    def change(self, table: pa.Table) -> None:
        """Add and remove queries, in order; they count from the next push on. What raises has changed nothing."""
        if self.call.on_reject == "fail" and len(table):
            tried = WindowQueries(self.call).change(table).rejects
            self._checked(tried.filter(pc.not_equal(tried["reason"], NEVER_TRUE)))
        self._rejects.append(self.queries.change(table).rejects)

    def push(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Take in rows by stream name; the choices of rows that satisfy queries from now on."""
        limit = None if self.call.arrival else self._clock.frontier
        self._arrivals.begin()
        came: dict[int, WindowRows] = {}
        rejected: list[pa.Table] = []
        for i, encoding in enumerate(self.call.encodings):
            if encoding.name in tables:
                judge = partial(self._arrivals.judge, i)
                came[i], bad = taken_in(self.call, i, tables[encoding.name], limit, judge)
                rejected += map(self._checked, bad)
        # Nothing is kept before all of it is known to be good: a push that raises has changed nothing.
        self._rejects += rejected
        for i, rows in came.items():
            self._clock.see(i, rows)
        late = sum(pc.sum(pc.equal(part["reason"], LATE)).as_py() or 0 for part in rejected)
        self._arrivals.settle()
        self._arrivals.count(sum(map(len, came.values())) + late, late, self._clock)
        frontier = self._clock.tick()
        frontier = NEVER if frontier is None else frontier
        return self._shown(came, END if self.call.arrival else frontier, frontier)

    def drain(self) -> pa.Table:
        """The streams have ended: the answers of ticks that were held."""
        frontier = self._clock.frontier
        return self._shown({}, END, NEVER if frontier is None else frontier)

    def answers(self, tables: Sequence[pa.Table]) -> pa.Table:
        """The answers of whole tables."""
        came = {}
        for i, table in enumerate(tables):
            came[i], bad = taken_in(self.call, i, table)
            self._rejects += map(self._checked, bad)
        return self._answers(HeldRows(self.call).push(came, END))

    def expire(self, before: object) -> int:
        """Forget queries that hold up to a time before this."""
        return self.queries.expire(before)

    def explain(self, query: object) -> dict[str, Any]:
        """What is known of a query that stands."""
        return explained_query(self.queries.queries, query)

    def busiest(self, n: int) -> pa.Table:
        """The queries with the most candidates, the most first."""
        return costliest(self.queries.queries, n)

    def rejects(self) -> pa.Table:
        """Every row and query that could not be used so far."""
        return concat_rejects(self._rejects, self.call.reject_schema)

    def _shown(self, came: Mapping[int, WindowRows], complete: int, frontier: int) -> pa.Table:
        shown = self.held.push(came, complete)
        answers = self._answers(shown)
        self.held.forget(shown, frontier, self.queries.longest)
        return answers

    def _answers(self, shown: Shown) -> pa.Table:
        answers = self.queries.answers(shown)
        self._rejects.append(self._checked(self.queries.failed()))
        return answers

    def _checked(self, rejects: pa.Table) -> pa.Table:
        if len(rejects) and self.call.on_reject == "fail":
            raise bad_rows(len(rejects), rejects.slice(0, 1).to_pylist()[0])
        return rejects
