"""Fence events in process: fences may come and go between pushes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from appulse.engines.bucket import fail_if_asked
from appulse.engines.fences.bucket import FenceBucket
from appulse.engines.fences.changing import ChangingFenceBucket
from appulse.engines.fences.versions import check_changes
from appulse.engines.local import Local
from appulse.engines.swapped import Swapped
from appulse.errors import BadArgument
from appulse.model import defects as why
from appulse.model.columns import plain_values
from appulse.model.objects import Objects
from appulse.model.regions import QUERY
from appulse.model.workers import Workers, cores

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from appulse.engines.fences.call import FenceCall


class LocalFences(Local[Objects]):
    """Fence events in process, push by push."""

    bucket: FenceBucket | ChangingFenceBucket

    def __init__(self, call: FenceCall, fences: pa.Table | None = None) -> None:
        """``fences`` are those that the call has read, where they may change."""
        super().__init__(FenceBucket(call))
        self.bucket.operator.workers = Workers(call.threads or cores())
        self._fences = fences
        self.bucket.swapped = Swapped()
        if len(call.refused_fences):
            self._rejects.append(call.refused_fences)

    def _admit(self, tables: Mapping[str, pa.Table]) -> None:
        super()._admit(tables)
        self.bucket.swapped.warn()

    def change(self, table: pa.Table) -> None:
        """Add, move and remove fences: the changes count for readings that are pushed from now on."""
        bucket = self.bucket
        if isinstance(bucket, FenceBucket):
            if bucket.call.plan.crossing is not None:
                raise BadArgument(
                    "crossing= needs fences that do not change: a way between two readings passes one set. Leave "
                    "crossing out, or make a new FenceEvents."
                )
            check_changes(table.schema)
            bucket = self._following(bucket, table)
        rejects = bucket.change(table)
        wrong = rejects.filter(pc.not_equal(rejects["reason"], why.NEVER_TRUE))
        fail_if_asked(self.call, [wrong])
        self.bucket = bucket
        self._rejects.append(rejects)

    def _following(self, before: FenceBucket, table: pa.Table) -> ChangingFenceBucket:
        """A bucket that goes on where nothing had changed so far; no fences have names of no type."""
        call = before.call
        if self._fences is not None:
            call = replace(call, given_fences=self._fences)
        if not len(call.fences.get().names):
            call = replace(call, query_type=plain_values(table[QUERY]).type)
        bucket = ChangingFenceBucket(call)
        bucket.operator.workers = before.operator.workers
        bucket.swapped = before.swapped
        bucket.follow(before)
        return bucket
