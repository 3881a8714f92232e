"""Queries over several streams in this process, push by push."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from appulse.engines.bucket import fail_if_asked
from appulse.engines.local import Local
from appulse.engines.multi_queries.bucket import WindowBucket
from appulse.engines.multi_queries.queries import WindowQueries
from appulse.engines.multi_queries.rows import WindowRows
from appulse.engines.queries.call import costliest, explained_query
from appulse.model.defects import NEVER_TRUE

if TYPE_CHECKING:
    import pyarrow as pa

    from appulse.engines.multi_queries.call import WindowCall


class LocalWindowQueries(Local[WindowRows]):
    """Standing queries over several streams in process: changes and rows in, answers out."""

    bucket: WindowBucket

    def __init__(self, call: WindowCall) -> None:
        super().__init__(WindowBucket(call, keeps_history=False))

    @property
    def call(self) -> WindowCall:
        return self.queries.call

    @property
    def queries(self) -> WindowQueries:
        """The queries that stand."""
        return self.bucket.queries

    def change(self, table: pa.Table) -> None:
        """Add and remove queries, in order; they count from the next push on. What raises has changed nothing."""
        if self.call.on_reject == "fail" and len(table):
            tried = WindowQueries(self.call).change(table).rejects
            fail_if_asked(self.call, [tried.filter(pc.not_equal(tried["reason"], NEVER_TRUE))])
        self._rejects.append(self.bucket.change(table))

    def expire(self, before: object) -> int:
        """Forget queries that hold up to a time before this."""
        return self.queries.expire(before)

    def explain(self, query: object) -> dict[str, Any]:
        """What is known of a query that stands."""
        return explained_query(self.queries.queries, query)

    def busiest(self, n: int) -> pa.Table:
        """The queries with the most candidates, the most first."""
        return costliest(self.queries.queries, n)
