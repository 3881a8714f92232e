"""Sets of queries on their way to workers, and in them: sent once to each executor, kept by each worker process."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from appulse.engines.queries.call import LocalQueries
from appulse.engines.spark.tables import packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from appulse.engines.queries.call import QueryCall

# Sets of queries that a worker process keeps.
_MOST_KEPT = 2
# Metadata of a table: how many micro-batches brought its changes.
BATCHES = b"appulse batches"
_KEPT: OrderedDict[tuple[str, ...], LocalQueries] = OrderedDict()


class QueryDelta:
    """Changes of a set of queries on their way to workers: as Arrow's own bytes, known by what they say."""

    def __init__(self, spark: Any, table: pa.Table, covers: tuple[str, ...] = ()) -> None:
        """``covers`` are the digests of the changes that these are made of."""
        data = packed(table)
        self.batches = batches_of(table) or 1  # micro-batches that brought them
        self.digest, self.covers = blake2b(data, digest_size=8).hexdigest(), covers
        # Spark Connect has no broadcasts: there they travel with the plan.
        self._data: Any = spark.sparkContext.broadcast(data) if hasattr(spark, "_jsc") else data

    @property
    def table(self) -> pa.Table:
        """The changes."""
        return unpacked(self._data if isinstance(self._data, bytes) else self._data.value)


def batches_of(table: pa.Table) -> int:
    """The number of micro-batches whose changes a table has in place of all before; 0 if it has those of one."""
    return int((table.schema.metadata or {}).get(BATCHES, 0))


def standing(call: QueryCall, changes: Sequence[QueryDelta]) -> LocalQueries:
    """The set of queries after these changes, indexed.

    A worker process keeps it, and goes on from what it has: what came since is all that it takes in.
    """
    wanted = (call.fingerprint(), *(held.digest for held in changes))
    before = (call.fingerprint(), *changes[0].covers) if changes else wanted
    known = [key for key in _KEPT if key == wanted[: len(key)] or key == before]
    done = max(known, key=len, default=None)
    if done is None:
        engine, first = LocalQueries(call), 0
    else:
        engine, first = _KEPT.pop(done), 1 if done == before != wanted[: len(done)] else len(done) - 1
    for held in changes[first:]:
        engine.change(held.table)
    if first < len(changes):
        engine.forget_rejects()  # they are reported by the driver
        engine.queries.settle()
    _KEPT[wanted] = engine
    while len(_KEPT) > _MOST_KEPT:
        _KEPT.popitem(last=False)
    return engine
