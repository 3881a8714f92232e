"""Aggregates of queries over several streams, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.model.times import from_micros
from appulse.operators.query_aggregates import CONDITIONAL, aggregate_choices

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from appulse.engines.multi_queries.call import WindowCall
    from appulse.engines.multi_queries.rows import Snapshot
    from appulse.kernels.arrays import Ints
    from appulse.operators.query_windows import Wanted
    from appulse.queries.sets import QuerySet


def aggregate_table(
    call: WindowCall, shown: Snapshot, queries: QuerySet, lanes: Sequence[Wanted], lengths: Sequence[tuple[int, ...]]
) -> pa.Table:
    """What the choices that satisfy each query add up to, at the ticks that are complete now and were not before."""
    sides = shown.standing()
    found = aggregate_choices(queries, sides, call.names, lanes, lengths, call.aggregates, shown.was)
    columns = [
        queries.keys(found.slot).cast(call.streams[0].query_type),
        *_groups(call, shown, found.group),
        from_micros(found.tick, call.common_time, call.streams[0].encoding.unit),
    ]
    for asked, (value, exists) in zip(call.aggregates, found.values, strict=True):
        columns.append(pa.array(value, mask=np.isnan(value)))
        if asked.aggregate in CONDITIONAL:
            columns.append(pa.array(exists))
    return pa.Table.from_arrays(columns, schema=call.answer_schema)


def _groups(call: WindowCall, shown: Snapshot, group: Ints) -> Iterator[pa.Array]:
    """The columns that name groups: as some row of the first stream has them, for each answer has one."""
    known, row = np.unique(shown.groups[0], return_index=True)
    at = row[np.searchsorted(known, group)] if len(known) else group
    for name, kind in call.partitions:
        yield shown.rows[0].table[name].combine_chunks().take(pa.array(at)).cast(kind)
