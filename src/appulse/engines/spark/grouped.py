"""Operators over groups of objects on Spark: rows go to the bucket of their group, which answers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from appulse.engines.spark.pipeline import Operator, built
from appulse.engines.spark.results import remember
from appulse.engines.spark.routing import ToGroups, ToThings, bucket_keys
from appulse.engines.spark.sources import resolved
from appulse.engines.spark.stage import GroupBuckets, Stage
from appulse.engines.spark.suspicions import suspicions
from appulse.engines.spark.tagged import as_struct, common_types, reject_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from appulse.engines.bucket import Bucket
    from appulse.engines.objects import ObjectsCall
    from appulse.engines.options import Options
    from appulse.engines.spark.stage import Buckets
    from appulse.engines.spark.tiling import Tiling
    from appulse.model.stream import Stream


class Changes(NamedTuple):
    """A further stream that all buckets take in: its blocks, by the keys of the buckets, and what makes these."""

    blocks: Callable[[Sequence[int]], DataFrame]
    buckets: Callable[[Any, list[int]], Buckets]


def spark_grouped(
    streams: Sequence[Stream],
    resolve: Callable[[Sequence[Stream], Sequence[pa.Schema]], ObjectsCall],
    kind: Callable[[Any], Bucket[Any]],
    name: str,
    options: Options,
    *,
    by_key: bool = False,
    changes: Changes | None = None,
    whole: bool = False,
) -> DataFrame:
    """The answers of a call over Spark frames, lazily; streaming if they are.

    ``resolve`` makes the call, ``kind`` a bucket of it, ``name`` is that of its state. Rows are apart by group, or
    ``by_key``, too; in a batch query each bucket then receives the newest time of all. Answers that have columns
    ``key`` and ``time``, or those that name groups, have them in the types they came in. ``whole``: answers are rows as
    they came.
    """
    sources, streams, call = resolved(streams, resolve)
    key, time = common_types(call, streams, sources.schemas)
    given = sources.schemas[0]
    own = dict.fromkeys(("key", "left_key", "right_key"), key) | {"time": time}
    own |= {column: given[column].dataType for column in (given.names if whole else streams[0].partitions)}

    def routing(tiling: Tiling) -> ToGroups:
        keys = bucket_keys(tiling, grouped=call.grouped)
        return ToThings(keys, tuple(call.encodings)) if by_key else ToGroups(keys)

    def made(tiling: Tiling) -> Buckets:
        if changes is None:
            return GroupBuckets(call, kind)
        return changes.buckets(call, bucket_keys(tiling, grouped=call.grouped))

    seen = None if sources.streaming else suspicions(sources.spark)
    operator = Operator(
        call,
        sources,
        routing=routing,
        refused=call.known_rejects,
        needs_newest=by_key,
        stages=lambda tiling: [Stage(made(tiling), name, seen=seen)],
        changes=None if changes is None else changes.blocks,
        answers=as_struct(call.answer_schema, own),
        rejects=reject_type(key, time),
        refuses=call.corrected,
    )
    return remember(built(operator, sources.buckets(options)))
