"""Window aggregates on Spark: encode -> buckets of groups -> aggregates and rejects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from appulse.engines.aggregate import AggregateBucket, AggregateCall, resolve_unseen
from appulse.engines.spark.pipeline import Operator, built
from appulse.engines.spark.results import remember
from appulse.engines.spark.routing import ToGroups, bucket_keys
from appulse.engines.spark.sources import Sources, with_watermark_delay
from appulse.engines.spark.stage import GroupBuckets, Stage
from appulse.engines.spark.tagged import arrow_schema, as_struct, reject_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql import types as T  # noqa: N812

    from appulse.model.stream import Stream


def spark_aggregate(stream: Stream, aggregates: Mapping[str, str | Sequence[str]], **settings: Any) -> DataFrame:
    """The aggregates of a Spark frame, lazily; streaming if it is."""
    sources = Sources.of([stream.frame], [stream.lateness])
    stream = with_watermark_delay(stream)
    call = sources.chained(resolve_unseen(stream, arrow_schema(stream.frame.schema), aggregates, **settings))
    answers, rejects = _schemas(call, stream)
    operator = Operator(
        call,
        sources,
        routing=lambda tiling: ToGroups(bucket_keys(tiling, grouped=call.grouped)),
        stages=lambda _: [Stage(GroupBuckets(call, AggregateBucket), "aggregate")],
        answers=answers,
        rejects=rejects,
    )
    return remember(built(operator, sources.buckets(settings["options"])))


def _schemas(call: AggregateCall, stream: Stream) -> tuple[T.StructType, T.StructType]:
    """Spark's schemas of answers and rejects: groups, keys and times in the types they came in."""
    given = stream.frame.schema
    own = {name: given[name].dataType for name, _ in call.partitions} | {"time": given[stream.time].dataType}
    return as_struct(call.answer_schema, own), reject_type(given[stream.key].dataType, given[stream.time].dataType)
