"""Queries too many for every worker to hold all: parts that lie apart in space, and rows that go where they may match.

    user rows --mapInArrow--> (part, rows) --shuffle--> answers of each part --> tagged rows

A query is in one part, and a row goes, whole, to every part whose hull one of its samples lies in. So what a part
answers is what the whole set would, and no answer is there twice.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the house name of this module
from pyspark.sql import types as T  # noqa: N812 - the house name of this module

from appulse.engines.bucket import fail_if_asked
from appulse.engines.queries.call import CHANGE, LocalQueries, last_changes
from appulse.engines.queries.rows import points_of, windows_of
from appulse.engines.spark.blobs import REJECTS, metrics_blob, table_bytes
from appulse.engines.spark.inputs import gathered, map_in_arrow
from appulse.engines.spark.queries.held import QueryDelta, standing
from appulse.engines.spark.tables import packed, unpacked
from appulse.engines.spark.tagged import ANSWER, REJECT, arrow_schema, decoded, metric_row, tagged_rows
from appulse.engines.spark.tiles import spread_keys
from appulse.model.encode import checked
from appulse.operators.output import Output
from appulse.queries.parts import Parts, parted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from appulse.engines.queries.call import QueryCall

_ROWS = b"r"
# The number of a row, while it is checked.
_NUMBER = "\0row"
_ROUTED = T.StructType([T.StructField("part", T.IntegerType()), T.StructField("block", T.BinaryType())])


def matched_in_parts(call: QueryCall, table: pa.Table, rows: DataFrame, schema: T.StructType, many: int) -> DataFrame:
    """Tagged rows of a frame's rows and queries in so many parts."""
    usable = last_changes(LocalQueries(call).change(table))
    if CHANGE in usable.column_names:
        usable = usable.drop_columns([CHANGE])
    judged = LocalQueries(call)
    judged.change(usable)  # each under a key of its own, so slots are rows
    parts, members = parted(judged.queries, many)
    held = [QueryDelta(rows.sparkSession, usable.take(pa.array(own))) for own in members]
    tasks = max(1, len(held))
    keys = spread_keys(tasks, tasks)
    routed_rows = map_in_arrow(rows, _router(call, parts, keys), _ROUTED)
    by_key = dict(zip(keys, held, strict=False))
    return routed_rows.repartition(tasks, F.col("part")).mapInArrow(_matcher(call, by_key, schema), schema)


def _router(
    call: QueryCall, parts: Parts, keys: list[int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows, whole, by the parts that one of their samples meets."""

    def route_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in gathered(batches):
            blobs = list(routed(call, parts, keys, table))
            yield pa.record_batch(
                [pa.array([key for key, _ in blobs], pa.int32()), pa.array([blob for _, blob in blobs], pa.binary())],
                names=["part", "block"],
            )

    return route_task


def routed(call: QueryCall, parts: Parts, keys: list[int], table: pa.Table) -> Iterator[tuple[int, bytes]]:
    """The blocks of a task's rows, their rejects and figures, by key."""
    begun = time.perf_counter()
    numbered = table.append_column(_NUMBER, pa.array(np.arange(len(table))))
    rows, rejects = checked(numbered, call.encoding, [*call.columns, _NUMBER])
    if len(rejects):
        fail_if_asked(call, [rejects])
        yield keys[0], table_bytes(REJECTS, rejects)
    points = points_of(rows, call.encoding)
    met = parts.met(points.rows, points.n)
    owner = np.arange(points.n) if points.owner is None else points.owner
    if call.normal:  # what is asked of normal errors reaches farther than their samples
        for own, wide in windows_of(rows, call.encoding):
            met = np.hstack([met, parts.met(wide, len(own))])
            owner = np.concatenate([owner, own])
    at = rows.table[_NUMBER].to_numpy()
    for key, own in zip(keys, met, strict=False):
        mine = np.unique(owner[own])
        if len(mine):
            yield key, _ROWS + packed(table.take(pa.array(at[mine])))
    figures = {"rows": len(rows.table), "rejected": len(rejects), "seconds": time.perf_counter() - begun}
    yield keys[0], metrics_blob(**figures)


def _matcher(
    call: QueryCall, held: dict[int, QueryDelta], schema: T.StructType
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    arrow = arrow_schema(schema)

    def match_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output = Output(call.max_output)
        for batch in batches:
            for key, block in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                blob = bytes(block.as_buffer())
                if blob[:1] != _ROWS:
                    yield from decoded([blob], arrow)
                    continue
                begun = time.perf_counter()
                engine = standing(call, [held[key]])
                found, _ = engine.judge(unpacked(blob[1:]), output)
                yield tagged_rows(ANSWER, found, arrow)
                if len(failed := engine.failed()):
                    yield tagged_rows(REJECT, failed, arrow)
                figures: dict[str, Any] = {
                    "answers": len(found),
                    "queries": len(engine.queries),
                    "state_bytes": engine.queries.nbytes,
                    "seconds": time.perf_counter() - begun,
                }
                yield metric_row(figures, arrow)

    return match_task
