"""Queries over the windows of several Spark frames: rows of a group meet in one bucket.

    user rows --mapInArrow--> (bucket, block) --shuffle--> choices of rows per bucket of groups --> tagged rows

Without partition_by all rows are one group, and one task joins them. In a batch query every bucket is answered at once;
in a streaming one it keeps what windows hold in Spark's state store. Where the queries are a stream themselves, their
changes go to all buckets.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - the house name of this module
from pyspark.sql.pandas.types import from_arrow_type

from appulse.engines.arriving import Arrivals
from appulse.engines.local import as_table
from appulse.engines.options import Options, options_of
from appulse.engines.queries import CHANGE, CONDITION, QUERY, SELECT, UNTIL, column_of
from appulse.engines.spark import tile_join
from appulse.engines.spark.engine import (
    SparkResult,
    blobs_of,
    decoded_rows,
    default_partitions,
    observed,
    remember,
    shuffle_partitions,
)
from appulse.engines.spark.inputs import (
    MARKS,
    batch_time,
    block_batch,
    bucket_keys,
    dated,
    fail_if_asked,
    gathered,
    hash_text,
    marker,
    quoted,
    union,
    watermarks,
    with_idle_watermark,
    with_watermark_delay,
)
from appulse.engines.spark.processor import AnswerProcessor
from appulse.engines.spark.session import check_session
from appulse.engines.spark.tables import packed
from appulse.engines.spark.tagged import (
    arrow_schema,
    reject_type,
    select_tag,
    tagged_rows,
    tagged_schema,
)
from appulse.engines.spark.tile_join import table_bytes
from appulse.engines.spark.tiles import TilePlan
from appulse.engines.spark.tiling import Tiling, Version
from appulse.engines.spark.window_stage import WindowStage, changes_block, rows_block
from appulse.engines.window_call import WindowCall, resolve_window_queries
from appulse.engines.window_queries import WindowQueries
from appulse.engines.window_rows import taken_in
from appulse.errors import BadArgument
from appulse.model.strings import Labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from appulse.model.stream import Stream

_BLOCKS = "tile int, block binary, ts timestamp"
_CHANGES = (QUERY, CONDITION, CHANGE, SELECT, UNTIL)


def spark_window_queries(
    streams: Sequence[Stream], queries: Any, *, options: Options | None = None, **settings: Any
) -> DataFrame:
    """The choices of rows of Spark frames that satisfy queries, lazily; streaming if they are."""
    frames = [stream.frame for stream in streams]
    if not all(isinstance(frame, DataFrame) for frame in frames):
        raise BadArgument(
            "The call mixes Spark frames with others. Convert them: spark.createDataFrame(...) or .toArrow()."
        )
    streaming = any(frame.isStreaming for frame in frames)
    if streaming and not all(frame.isStreaming for frame in frames):
        raise BadArgument(
            "The call mixes streaming and batch frames, which Spark cannot union. Read the batch side as a stream "
            "(spark.readStream), or collect it and use it in a batch call."
        )
    changing = isinstance(queries, DataFrame) and queries.isStreaming
    if changing and not streaming:
        raise BadArgument(
            "The queries are a stream, and the rows are not. Read the rows as a stream (spark.readStream)."
        )
    spark = frames[0].sparkSession
    if streaming:
        check_session(spark)
        streams = [with_watermark_delay(stream) for stream in streams]
    if changing:
        table = arrow_schema(queries.schema).empty_table()
    else:
        table = queries.toArrow() if isinstance(queries, DataFrame) else as_table(queries)
    empty = [arrow_schema(frame.schema).empty_table() for frame in frames]
    options = options_of(options, "match_queries")
    call = resolve_window_queries(streams, empty, table.schema, options=options, **settings)
    refused = WindowQueries(call).change(table).rejects
    fail_if_asked(call, refused)
    slots = shuffle_partitions(spark) if streaming else 0
    buckets = options.partitions or default_partitions(spark, streaming=streaming)
    tiling = Tiling((Version(TilePlan(buckets, 1.0, 0.0, 0.0, slots=slots)),), 0)
    asked = _Asked(None if changing else packed(table), queries if changing else None, refused)
    return remember(_built(call, asked, streams, tiling, None))


class _Asked:
    """The queries of a call: as bytes, or as a frame of changes; and those refused beforehand."""

    def __init__(self, static: bytes | None, changes: DataFrame | None, refused: pa.Table) -> None:
        self.static, self.changes, self.refused = static, changes, refused


def _built(
    call: WindowCall, asked: _Asked, streams: Sequence[Stream], tiling: Tiling, control: str | None
) -> SparkResult:
    answers, rejects = _schemas(call, streams)
    schema = tagged_schema(answers, rejects)
    keys = bucket_keys(call, tiling)
    blocks = _encoded(call, asked, streams, keys, control)
    stage = WindowStage(call, asked.static, keys[0])
    first = None
    if len(asked.refused):
        local = pa.Table.from_batches([tagged_rows("reject", asked.refused, arrow_schema(schema))])
        first = select_tag(streams[0].frame.sparkSession.createDataFrame(local, schema), "reject", rejects)
    if streams[0].frame.isStreaming:
        out = blocks.groupBy("tile").transformWithStateInPandas(
            AnswerProcessor(stage, "windows"), outputStructType="out binary", outputMode="append", timeMode="eventTime"
        )
        tagged, bad = observed(decoded_rows(out, schema)), None
    else:
        tagged = blocks.groupBy("tile").applyInArrow(_at_once(stage, answers), answers)
        bad = union([_rejects(call, i, stream, rejects) for i, stream in enumerate(streams)])
        bad = bad if first is None else bad.unionAll(first)

    def rebuild(other: Tiling, folder: str | None = None) -> SparkResult:
        return _built(call, asked, streams, other, folder)

    return SparkResult(call, tiling, tagged, answers, rejects, bad, rebuild, first_rejects=first)


def _schemas(call: WindowCall, streams: Sequence[Stream]) -> tuple[T.StructType, T.StructType]:
    """Spark's schemas of answers and rejects: keys and times in the types they came in."""
    schemas = [stream.frame.schema for stream in streams]
    own = [field for s, given in zip(streams, schemas, strict=True) for field in (given[s.key], given[s.time])]
    if call.aggregates:  # columns that name groups, and the tick
        times = {field.dataType for field in own[1::2]}
        own = [schemas[0][name] for name, _ in call.partitions] + (own[1:2] if len(times) == 1 else [])
    fields = call.answer_schema
    known = {1 + i: field.dataType for i, field in enumerate(own)}
    answers = [T.StructField(f.name, known.get(i) or from_arrow_type(f.type)) for i, f in enumerate(fields)]
    asked = call.reject_schema
    return T.StructType(answers), reject_type(*(from_arrow_type(asked.field(name).type) for name in ("key", "time")))


def _encoded(
    call: WindowCall, asked: _Asked, streams: Sequence[Stream], keys: list[int], control: str | None
) -> DataFrame:
    """All streams as blocks, one or a few per bucket, task and micro-batch; and changes of the queries."""
    parts = [
        dated(stream.frame.select(*map(quoted, one.columns))).mapInArrow(_encoder(call, i, keys), _BLOCKS)
        for i, (stream, one) in enumerate(zip(streams, call.streams, strict=True))
    ]
    if not streams[0].frame.isStreaming:
        return union(parts)
    delays = watermarks(call)
    parts = [
        part if delay is None else part.withWatermark("ts", f"{delay} milliseconds")
        for part, delay in zip(parts, delays, strict=True)
    ]
    if None in delays:
        parts = [with_idle_watermark(call, parts)]
    # Spark's watermark is the one clock all keys share; without the column below, it drops no late rows unseen.
    blocks = union([part.select("tile", "block") for part in parts])
    if asked.changes is not None:
        changes = asked.changes.select(*[quoted(name) for name in _CHANGES if name in asked.changes.columns])
        # In one task, so that they have an order.
        blocks = blocks.union(changes.coalesce(1).mapInArrow(_spread_changes(keys), MARKS))
    if control is None:
        return blocks
    marks = streams[0].frame.sparkSession.readStream.schema("newest long").json(control)
    return blocks.union(marks.mapInArrow(marker(keys), MARKS))


def _encoder(
    call: WindowCall, stream: int, keys: list[int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def encode_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return blocks_of_rows(batches, call, stream, keys)

    return encode_task


def blocks_of_rows(
    batches: Iterable[pa.RecordBatch], call: WindowCall, stream: int, keys: list[int]
) -> Iterator[pa.RecordBatch]:
    """The blocks of one task's rows."""
    arrivals = Arrivals((call.encodings[stream],), (call.ahead[stream],))
    for table in gathered(batches):
        rows, rejected = taken_in(call, stream, table, judge=partial(arrivals.judge, 0, now=batch_time(table)))
        arrivals.settle()
        newest = int(rows.time.max()) if len(rows) else 0
        for rejects in rejected:
            fail_if_asked(call, rejects)
            where = keys[hash_text(str(rejects.column("detail")[0]) + str(len(rejects))) % len(keys)]
            yield block_batch([where], [table_bytes(tile_join.REJECTS, rejects)], [newest])
        parts = [(keys[b], rows_block(stream, part)) for b, part in _by_bucket(call, stream, rows.table, len(keys))]
        if parts:
            yield block_batch([key for key, _ in parts], [block for _, block in parts], [newest] * len(parts))


def _by_bucket(call: WindowCall, stream: int, table: pa.Table, buckets: int) -> list[tuple[int, pa.Table]]:
    """Rows by the bucket of their group."""
    if not len(table):
        return []
    if buckets == 1:
        return [(0, table)]
    labels = Labels.of([column_of(table, name) for name in call.streams[stream].encoding.partition_by])
    hashed = np.array([hash_text(value.hex()) % buckets for value in labels.values], np.int64)
    bucket = hashed[labels.codes]
    return [(b, table.take(pa.array(np.flatnonzero(bucket == b)))) for b in np.unique(bucket).tolist()]


def _spread_changes(keys: list[int]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Changes of the queries, for every bucket."""

    def spread_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, table in enumerate(gathered(batches)):
            if len(table):
                blobs = [changes_block(number, table)] * len(keys)
                yield pa.record_batch(
                    [pa.array(keys, pa.int32()), pa.array(blobs, pa.binary())], names=["tile", "block"]
                )

    return spread_task


def _at_once(stage: WindowStage, schema: T.StructType) -> Callable[[pa.Table], pa.Table]:
    arrow = arrow_schema(schema)

    def join_bucket(table: pa.Table) -> pa.Table:
        return stage.at_once(blobs_of(table)).cast(arrow)

    return join_bucket


def _rejects(call: WindowCall, stream: int, given: Stream, schema: T.StructType) -> DataFrame:
    """The rows of a batch frame that cannot be used."""
    arrow = arrow_schema(schema)

    def reject_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in gathered(batches):
            for rejects in taken_in(call, stream, table)[1]:
                fail_if_asked(call, rejects)
                yield from rejects.cast(arrow).to_batches()

    frame: DataFrame = given.frame
    return frame.select(*map(quoted, call.streams[stream].columns)).mapInArrow(reject_task, schema)
