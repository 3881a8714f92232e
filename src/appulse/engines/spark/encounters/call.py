"""Encounters on Spark: readings -> legs by key -> tiles of space and time -> encounters by the keys that meet.

Where there are groups, each is found by one task, in one stage; unless tiles are asked for, by `Options(side=)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from appulse.engines.encounters.bucket import EncounterBucket
from appulse.engines.spark.encounters.buckets import LegBuckets, RunBuckets, TileBuckets
from appulse.engines.spark.encounters.tiling import tiling_of
from appulse.engines.spark.pipeline import Operator, built
from appulse.engines.spark.results import remember
from appulse.engines.spark.routing import ToGroups, ToThings, bucket_keys
from appulse.engines.spark.sources import resolved
from appulse.engines.spark.stage import GroupBuckets, Stage
from appulse.engines.spark.tagged import result_schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from appulse.engines.encounters.call import EncounterCall
    from appulse.engines.options import Options
    from appulse.engines.spark.tiling import Tiling
    from appulse.model.stream import Stream


def spark_legs(
    streams: Sequence[Stream],
    resolve: Callable[[Sequence[Stream], Sequence[pa.Schema]], EncounterCall],
    options: Options,
) -> DataFrame:
    """The answers of a call over the legs of Spark frames, lazily; ``resolve`` makes it."""
    sources, streams, call = resolved(streams, resolve)
    answers, rejects = result_schemas(call, streams, sources.schemas)
    operator = Operator(
        call,
        sources,
        routing=lambda tiling: leg_routing(call, tiling),
        stages=lambda tiling: encounter_stages(call, tiling),
        answers=answers,
        rejects=rejects,
        refuses=True,
    )
    if call.grouped and options.side is None:
        return remember(built(operator, sources.buckets(options)))
    return remember(built(operator, tiling_of(call, sources.partitions(options), sources.slots, options)))


def leg_routing(call: EncounterCall, tiling: Tiling) -> ToGroups:
    """Readings go to the bucket of their key, or of their group."""
    if not tiling.span:
        return ToGroups(bucket_keys(tiling, grouped=call.grouped))
    return ToThings(bucket_keys(tiling), call.encodings)


def encounter_stages(call: EncounterCall, tiling: Tiling) -> list[Stage]:
    """The stages of encounters: one by groups, where the tiling says nothing of time."""
    if not tiling.span:
        return [Stage(GroupBuckets(call, EncounterBucket), "encounters")]
    stages = [Stage(LegBuckets(call, tiling), "legs"), Stage(TileBuckets(call, tiling), "meetings")]
    return stages if call.plan.by_pairs else [*stages, Stage(RunBuckets(call, tiling), "encounters")]
