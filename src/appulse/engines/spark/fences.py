"""Fence events on Spark: the readings of a thing go to one bucket, which knows what it is inside of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from appulse.engines.fences.bucket import FenceBucket
from appulse.engines.fences.call import resolve_fences
from appulse.engines.fences.changing import ChangingFenceBucket
from appulse.engines.fences.versions import check_changes
from appulse.engines.queries.call import CHANGE, CONDITION, UNTIL
from appulse.engines.spark.changes import changes_for_all
from appulse.engines.spark.grouped import Changes, spark_grouped
from appulse.engines.spark.shared import shared
from appulse.engines.spark.stage import GroupBuckets
from appulse.engines.spark.tagged import arrow_schema
from appulse.errors import BadArgument
from appulse.model.regions import QUERY, RADIUS, REGION
from appulse.model.streaming import is_streaming

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from appulse.engines.bucket import Bucket
    from appulse.engines.fences.call import FenceSettings
    from appulse.engines.spark.stage import Buckets
    from appulse.model.stream import Stream

# In the fingerprint of checkpoints: a set that changes is none of those that do not.
_CHANGING = "changing"


def spark_fences(stream: Stream, fences: pa.Table | DataFrame, settings: FenceSettings) -> DataFrame:
    """The events of a Spark frame, lazily; streaming if it is. Fences of a streaming frame change."""
    if isinstance(fences, DataFrame) and is_streaming(fences):
        return _over_changes(stream, fences, settings)
    table: pa.Table = fences.toArrow() if isinstance(fences, DataFrame) else fences

    def resolve(streams: Sequence[Stream], schemas: Sequence[Any]) -> Any:
        call = resolve_fences(streams[0], schemas[0], table, settings)
        held = shared(call.fences.get(), stream.frame.sparkSession)
        return call if held is None else replace(call, fences=held)

    return spark_grouped([stream], resolve, FenceBucket, "fences", settings.options, by_key=True)


@dataclass(frozen=True)
class FenceBuckets(GroupBuckets):
    """Buckets that all take in the same changes; the ``first`` reports what cannot be used."""

    first: int

    def make(self, key: int) -> Bucket[Any]:
        bucket = super().make(key)
        assert isinstance(bucket, ChangingFenceBucket)  # noqa: S101 - given below
        bucket.reports = key == self.first
        return bucket


def fence_buckets(call: Any, keys: list[int]) -> Buckets:
    """The buckets of these keys."""
    return FenceBuckets(call, ChangingFenceBucket, keys[0])


def changing_call(stream: Stream, schema: pa.Schema, changes: pa.Schema, settings: FenceSettings) -> Any:
    """A call whose set of fences is empty at first; ``changes`` are the columns of what is to come."""
    check_changes(changes)
    if settings.crossing is not None:
        raise BadArgument(
            "crossing= needs fences that do not change: a way between two readings passes one set. Leave crossing out, "
            "or collect the fences."
        )
    none = changes.empty_table()
    table = none.drop_columns([CHANGE]) if CHANGE in none.column_names else none
    call = resolve_fences(stream, schema, table, settings, changing=True)
    return replace(call, given_fences=table, digest=_CHANGING)


def _over_changes(stream: Stream, fences: DataFrame, settings: FenceSettings) -> DataFrame:
    if not is_streaming(stream.frame):
        raise BadArgument(
            "The fences are a stream, and the rows are not. Read the rows as a stream (spark.readStream)."
        )

    def resolve(streams: Sequence[Stream], schemas: Sequence[Any]) -> Any:
        return changing_call(streams[0], schemas[0], arrow_schema(fences.schema), settings)

    changes = Changes(
        partial(changes_for_all, (QUERY, REGION, RADIUS, CONDITION, UNTIL, CHANGE), fences), buckets=fence_buckets
    )
    return spark_grouped(
        [stream], resolve, ChangingFenceBucket, "fences", settings.options, by_key=True, changes=changes
    )
