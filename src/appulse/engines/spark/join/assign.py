"""One partner each on Spark: the rows of a block go to one bucket, which answers when the block has ended."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from appulse.engines.join.assign import AssignBucket, AssignCall, resolve_assign
from appulse.engines.spark.pipeline import Operator, built
from appulse.engines.spark.results import remember
from appulse.engines.spark.routing import ToBlocks, bucket_keys
from appulse.engines.spark.sources import resolved
from appulse.engines.spark.stage import GroupBuckets, Stage
from appulse.engines.spark.tagged import result_schemas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from appulse.engines.join.assign import AssignSettings
    from appulse.engines.spark.tiling import Tiling
    from appulse.model.stream import Stream


def spark_assign(streams: Sequence[Stream], settings: AssignSettings) -> DataFrame:
    """The partners of rows of Spark frames, lazily; streaming if they are."""
    sources, streams, call = resolved(streams, partial(resolve_assign, settings=settings))
    answers, rejects = result_schemas(call, streams, sources.schemas)
    operator = Operator(
        call,
        sources,
        routing=lambda tiling: block_routing(call, tiling),
        stages=lambda _: assign_stages(call),
        answers=answers,
        rejects=rejects,
        refuses=call.corrected,
    )
    return remember(built(operator, sources.buckets(settings.options)))


def block_routing(call: AssignCall, tiling: Tiling) -> ToBlocks:
    """Rows go to the buckets of their blocks."""
    return ToBlocks(bucket_keys(tiling), call.blocks.span)


def assign_stages(call: AssignCall) -> list[Stage]:
    """The one stage of an assignment."""
    return [Stage(GroupBuckets(call, AssignBucket), "assign")]
