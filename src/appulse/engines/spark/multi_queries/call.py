"""Queries over the windows of several Spark frames: rows of a group meet in one bucket.

    user rows --mapInArrow--> (bucket, block) --shuffle--> choices of rows per bucket of groups --> tagged rows

Without partition_by all rows are one group, and one task joins them. In a batch query every bucket is answered at once;
in a streaming one it keeps what windows hold in Spark's state store. Where the queries are a stream themselves, their
changes go to all buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - the usual name of this module

from appulse.engines.bucket import fail_if_asked
from appulse.engines.local import as_table
from appulse.engines.multi_queries.bucket import WindowBucket, rows_block
from appulse.engines.multi_queries.call import WindowCall, resolve_window_queries
from appulse.engines.multi_queries.queries import WindowQueries
from appulse.engines.options import Options, options_of
from appulse.engines.queries.call import CHANGE, CONDITION, SELECT, UNTIL
from appulse.engines.spark.changes import changes_for_all
from appulse.engines.spark.inputs import hash_text
from appulse.engines.spark.pipeline import Operator, built
from appulse.engines.spark.results import remember
from appulse.engines.spark.routing import bucket_keys
from appulse.engines.spark.sources import Sources, with_watermark_delay
from appulse.engines.spark.stage import GroupBuckets, Stage
from appulse.engines.spark.tables import packed, unpacked
from appulse.engines.spark.tagged import arrow_schema, reject_type, spark_type
from appulse.errors import BadArgument
from appulse.model.columns import chunk
from appulse.model.regions import QUERY
from appulse.model.streaming import is_streaming
from appulse.model.strings import Labels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from appulse.engines.bucket import Bucket
    from appulse.engines.multi_queries.rows import WindowRows
    from appulse.engines.spark.tiling import Tiling
    from appulse.model.stream import Stream

_CHANGES = (QUERY, CONDITION, CHANGE, SELECT, UNTIL)


def spark_window_queries(
    streams: Sequence[Stream], queries: Any, *, options: Options | None = None, **settings: Any
) -> DataFrame:
    """The choices of rows of Spark frames that satisfy queries, lazily; streaming if they are."""
    sources = Sources.of(streams)
    changing = isinstance(queries, DataFrame) and is_streaming(queries)
    if changing and not sources.streaming:
        raise BadArgument(
            "The queries are a stream, and the rows are not. Read the rows as a stream (spark.readStream)."
        )
    streams = [with_watermark_delay(stream) for stream in streams]
    if changing:
        table = arrow_schema(queries.schema).empty_table()
    else:
        table = as_table(queries.toArrow() if isinstance(queries, DataFrame) else queries, "The frame of queries")
    empty = [schema.empty_table() for schema in sources.arrow]
    options = options_of(options, "match_queries")
    call = sources.chained(resolve_window_queries(streams, empty, table.schema, options=options, **settings))
    refused = WindowQueries(call).change(table).rejects
    fail_if_asked(call, [refused])
    static = None if changing else packed(table)
    answers, rejects = _schemas(call, streams, sources.schemas)
    operator = Operator(
        call,
        sources,
        routing=lambda tiling: ToGroupsOfRows(call, bucket_keys(tiling, grouped=call.grouped)),
        stages=lambda tiling: [query_stage(call, static, tiling)],
        answers=answers,
        rejects=rejects,
        changes=partial(changes_for_all, _CHANGES, queries) if changing else None,
        refused=refused,
    )
    return remember(built(operator, sources.buckets(options)))


@dataclass(frozen=True)
class QueryBuckets(GroupBuckets):
    """Buckets of groups. ``queries`` is the set as bytes, None if it changes; ``first`` reports what is refused."""

    queries: bytes | None
    first: int

    def make(self, key: int) -> Bucket[Any]:
        bucket = super().make(key)
        assert isinstance(bucket, WindowBucket)  # noqa: S101 - given below
        bucket.reports = key == self.first
        self.follow(bucket, key)
        return bucket

    def follow(self, bucket: Bucket[Any], key: int) -> None:  # noqa: ARG002 - one is as another
        """A set that does not change is that of the worker process."""
        assert isinstance(bucket, WindowBucket)  # noqa: S101 - given below
        if self.queries is not None and isinstance(self.call, WindowCall):
            bucket.ask(standing_windows(self.call, self.queries))


def query_stage(call: WindowCall, queries: bytes | None, tiling: Tiling) -> Stage:
    """The one stage; ``queries`` as in `QueryBuckets`."""
    first = bucket_keys(tiling, grouped=call.grouped)[0]
    return Stage(QueryBuckets(call, WindowBucket, queries, first), "windows")


# The set of queries that this worker process holds for calls whose set does not change, by what it says.
_KEPT: dict[tuple[str, bytes], WindowQueries] = {}


def standing_windows(call: WindowCall, queries: bytes) -> WindowQueries:
    """A set of queries that does not change, indexed; a worker process keeps the last one."""
    key = call.fingerprint(), queries
    if key not in _KEPT:
        _KEPT.clear()
        _KEPT[key] = WindowQueries(call)
        _KEPT[key].change(unpacked(queries))
        _KEPT[key].queries.settle()
    return _KEPT[key]


@dataclass(frozen=True)
class ToGroupsOfRows:
    """Rows go to the bucket of their group."""

    call: WindowCall
    keys: list[int]

    def blocks(self, stream: int, rows: WindowRows) -> Iterator[tuple[int, bytes, int]]:
        newest = int(rows.time.max())
        for bucket, part in _by_bucket(self.call, stream, rows.table, len(self.keys)):
            yield self.keys[bucket], rows_block(stream, part), newest


def _schemas(
    call: WindowCall, streams: Sequence[Stream], schemas: Sequence[T.StructType]
) -> tuple[T.StructType, T.StructType]:
    """Spark's schemas of answers and rejects: keys and times in the types they came in."""
    own = [field for s, given in zip(streams, schemas, strict=True) for field in (given[s.key], given[s.time])]
    if call.aggregates:  # columns that name groups, and the tick
        times = {field.dataType for field in own[1::2]}
        own = [schemas[0][name] for name, _ in call.partitions] + (own[1:2] if len(times) == 1 else [])
    fields = call.answer_schema
    known = {1 + i: field.dataType for i, field in enumerate(own)}
    carried = {} if call.aggregates else _carried(call, streams, schemas)
    answers = [
        T.StructField(f.name, known.get(i) or carried.get(f.name) or spark_type(f.type)) for i, f in enumerate(fields)
    ]
    asked = call.reject_schema
    return T.StructType(answers), reject_type(*(spark_type(asked.field(name).type) for name in ("key", "time")))


def _carried(call: WindowCall, streams: Sequence[Stream], schemas: Sequence[T.StructType]) -> dict[str, T.DataType]:
    """The types of the columns that streams carry."""
    sides = zip(call.sides, streams, schemas, strict=True)
    return {f"{side}_{name}": given[name].dataType for (side, _), s, given in sides for name in s.carry}


def _by_bucket(call: WindowCall, stream: int, table: pa.Table, buckets: int) -> list[tuple[int, pa.Table]]:
    """Rows by the bucket of their group."""
    if not len(table):
        return []
    if buckets == 1:
        return [(0, table)]
    labels = Labels.of([chunk(table[name]) for name in call.streams[stream].encoding.partition_by])
    hashed = np.array([hash_text(value.hex()) % buckets for value in labels.values], np.int64)
    bucket = hashed[labels.codes]
    return [(b, table.take(pa.array(np.flatnonzero(bucket == b)))) for b in np.unique(bucket).tolist()]
