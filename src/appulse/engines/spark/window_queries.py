"""Queries over the windows of several Spark frames, in batch: rows of a group meet in one task.

    user rows --mapInArrow--> (bucket, stream, rows) --shuffle--> choices of rows per bucket of groups

Without partition_by all rows are one group, and one task joins them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - the house name of this module
from pyspark.sql.pandas.types import from_arrow_type

from appulse.engines.local import as_table
from appulse.engines.queries import column_of
from appulse.engines.spark.engine import SparkResult, default_partitions, remember
from appulse.engines.spark.inputs import gathered, hash_text, quoted, union
from appulse.engines.spark.queries import Held, packed, unpacked
from appulse.engines.spark.tagged import arrow_schema, reject_type
from appulse.engines.spark.tiles import TilePlan
from appulse.engines.spark.tiling import Tiling, Version
from appulse.engines.window_queries import LocalWindowQueries, WindowCall, resolve_window_queries
from appulse.errors import BadArgument, NotBuilt, bad_rows
from appulse.model.strings import Labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from appulse.model.stream import Stream

_ROWS = "bucket int, stream int, rows binary"
# The sets of queries of this worker process, by what they say; the last one is enough.
_KEPT: dict[str, LocalWindowQueries] = {}


def spark_window_queries(streams: Sequence[Stream], queries: Any, **settings: Any) -> DataFrame:
    """The choices of rows of Spark frames that satisfy queries, lazily."""
    frames = [stream.frame for stream in streams]
    if not all(isinstance(frame, DataFrame) for frame in frames):
        raise BadArgument(
            "The call mixes Spark frames with others. Convert them: spark.createDataFrame(...) or .toArrow()."
        )
    if any(frame.isStreaming for frame in frames) or getattr(queries, "isStreaming", False):
        raise NotBuilt(
            "Queries over several streaming frames are planned and not built yet. Use batch frames. See docs/index.md."
        )
    table = queries.toArrow() if isinstance(queries, DataFrame) else as_table(queries)
    empty = [arrow_schema(frame.schema).empty_table() for frame in frames]
    call = resolve_window_queries(streams, empty, table.schema, **settings)
    judged = LocalWindowQueries(call)
    judged.change(table)
    spark = frames[0].sparkSession
    slots = default_partitions(spark, streaming=False)
    tiling = Tiling((Version(TilePlan(slots, 1.0, 0.0, 0.0)),), 0)
    return remember(_build(call, Held(spark, table), streams, tiling, judged.rejects()))


def _build(call: WindowCall, held: Held, streams: Sequence[Stream], tiling: Tiling, refused: pa.Table) -> SparkResult:
    schemas = [stream.frame.schema for stream in streams]
    own = [kind for s, given in zip(streams, schemas, strict=True) for kind in (given[s.key], given[s.time])]
    fields = call.answer_schema
    kinds = [from_arrow_type(fields[0].type), *(field.dataType for field in own), T.DoubleType()]
    answers = T.StructType([T.StructField(field.name, kind) for field, kind in zip(fields, kinds, strict=True)])
    asked = call.reject_schema
    rejects = reject_type(*(from_arrow_type(asked.field(name).type) for name in ("key", "time")))
    buckets = tiling.latest.tiles if call.grouped else 1
    rows = union(
        [
            stream.frame.select(*map(quoted, one.columns)).mapInArrow(_spread(call, i, buckets), _ROWS)
            for i, (stream, one) in enumerate(zip(streams, call.streams, strict=True))
        ]
    )
    found = rows.groupBy("bucket").applyInArrow(_joined(call, held, answers), answers)
    bad = union(
        [
            stream.frame.select(*map(quoted, one.columns)).mapInArrow(_rejecter(call, i, rejects), rejects)
            for i, (stream, one) in enumerate(zip(streams, call.streams, strict=True))
        ]
    )
    if len(refused):
        bad = bad.unionAll(found.sparkSession.createDataFrame(refused.cast(arrow_schema(rejects)), rejects))

    def rebuild(other: Tiling, _: str | None = None) -> SparkResult:
        return _build(call, held, streams, other, refused)

    return SparkResult(call, tiling, found, answers, rejects, bad, rebuild)


def _spread(
    call: WindowCall, stream: int, buckets: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows by the bucket of their group."""
    by = call.streams[stream].encoding.partition_by

    def spread_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in gathered(batches):
            parts = [(0, table)]
            if buckets > 1:
                labels = Labels.of([column_of(table, name) for name in by])
                hashed = np.array([hash_text(value.hex()) % buckets for value in labels.values], np.int64)
                bucket = hashed[labels.codes]
                parts = [(b, table.take(pa.array(np.flatnonzero(bucket == b)))) for b in np.unique(bucket).tolist()]
            yield pa.record_batch(
                [
                    pa.array([b for b, _ in parts], pa.int32()),
                    pa.array([stream] * len(parts), pa.int32()),
                    pa.array([packed(part) for _, part in parts], pa.binary()),
                ],
                names=["bucket", "stream", "rows"],
            )

    return spread_task


def _joined(call: WindowCall, held: Held, schema: T.StructType) -> Callable[[pa.Table], pa.Table]:
    """The answers among the rows of a bucket."""
    arrow = arrow_schema(schema)

    def join_bucket(table: pa.Table) -> pa.Table:
        key = f"{call.fingerprint()}-{held.digest}"
        if key not in _KEPT:
            _KEPT.clear()
            _KEPT[key] = LocalWindowQueries(call)
            _KEPT[key].change(held.table)
        engine = _KEPT[key]
        parts: list[list[pa.Table]] = [[] for _ in call.streams]
        for stream, rows in zip(table["stream"].to_pylist(), table["rows"], strict=True):
            parts[stream].append(unpacked(rows.as_buffer()))
        if not all(parts):
            return arrow.empty_table()
        answers = engine.answers([pa.concat_tables(part) for part in parts])
        engine.forget_rejects()  # they are told beside
        return answers.cast(arrow)

    return join_bucket


def _rejecter(
    call: WindowCall, stream: int, schema: T.StructType
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    arrow = arrow_schema(schema)

    def reject_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in gathered(batches):
            rejects = call.rejects_of(stream, table)
            if len(rejects) and call.on_reject == "fail":
                raise bad_rows(len(rejects), rejects.slice(0, 1).to_pylist()[0])
            yield from rejects.cast(arrow).to_batches()

    return reject_task
