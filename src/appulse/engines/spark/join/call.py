"""The similarity join on Spark: encode -> tiles -> join -> answers and rejects.

Windows that go by rows put one stage more before the join: a bucket of groups waits for ticks to be complete, numbers
their rows and sends them on to the tiles.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from appulse.engines.join.call import JoinCall, resolve
from appulse.engines.spark.imputing import sampled_imputer, with_shared_fills
from appulse.engines.spark.inputs import quoted
from appulse.engines.spark.join.ledger_bucket import LedgerBucket, NumberedLedgerBucket
from appulse.engines.spark.join.number_bucket import NumberBucket, NumberBuckets
from appulse.engines.spark.join.partner_bucket import PartnerBuckets
from appulse.engines.spark.join.tile_bucket import Tiles
from appulse.engines.spark.pipeline import Operator, built
from appulse.engines.spark.results import remember
from appulse.engines.spark.routing import ToGroups, ToThings, ToTiles, bucket_keys
from appulse.engines.spark.sources import resolved
from appulse.engines.spark.stage import Stage
from appulse.engines.spark.tagged import result_schemas
from appulse.engines.spark.tiles import TilePlan, hashed_plan, planned
from appulse.engines.spark.tiling import Tiling
from appulse.errors import warn_exploding
from appulse.model.degrees import degrees_hint
from appulse.model.uncertainty import names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from appulse.engines.join.call import JoinSettings
    from appulse.engines.options import Options
    from appulse.model.stream import Stream

# Windows that go by rows: how long they are in time nobody knows beforehand.
_WHOLE_SAMPLE = 1 << 60


def spark_join(streams: Sequence[Stream], settings: JoinSettings) -> DataFrame:
    """The join of Spark frames, lazily; streaming if its inputs are."""

    def with_sampled_imputer(streams: Sequence[Stream], schemas: Sequence[pa.Schema]) -> JoinCall:
        sampled = None if settings.imputer is None else sampled_imputer(settings.imputer, streams)
        return resolve(streams, schemas, replace(settings, imputer=sampled))

    return spark_pairs(streams, with_sampled_imputer, settings.options)


def spark_pairs(
    streams: Sequence[Stream],
    resolve: Callable[[Sequence[Stream], Sequence[pa.Schema]], JoinCall],
    options: Options,
) -> DataFrame:
    """The answers of a call over pairs of rows of Spark frames, lazily; ``resolve`` makes it."""
    sources, streams, call = resolved(streams, resolve)
    # Values are seen by workers only, whose warnings few read.
    named = names(call.plan.models[0], call.encodings[0].dimensions or 1)
    if call.plan.earth is None and (hint := degrees_hint(named, call.plan.epsilon)):
        warn_exploding(hint)
    call = with_shared_fills(call, sources.spark)
    plan = _tile_plan(call, sources.partitions(options), options)
    if any(call.plan.followed):
        call = replace(call, streams=tuple(replace(encoding, kept_apart=True) for encoding in call.encodings))
    call = replace(call, options=replace(options, sample=None))  # the sample has served, and need not travel
    answers, rejects = result_schemas(call, streams, sources.schemas)
    operator = Operator(
        call,
        sources,
        routing=lambda tiling: join_routing(call, tiling),
        stages=lambda tiling: join_stages(call, tiling),
        answers=answers,
        rejects=rejects,
        needs_newest=call.plan.changes and call.plan.rule is None,
        refuses=call.plan.withdrawn,
        tiled=True,
        replanned=sources.streaming and (options.sample is not None or options.side is not None),
    )
    return remember(built(operator, Tiling.of(replace(plan, slots=sources.slots), call.plan)))


def join_routing(call: JoinCall, tiling: Tiling) -> ToTiles | ToGroups:
    """Rows go to tiles at once, or to the buckets that number them, or that know which of them stand."""
    if call.plan.withdrawn and call.plan.rule is None:
        return ToThings(bucket_keys(tiling), call.encodings)
    return ToTiles(tiling) if call.plan.rule is None else ToGroups(bucket_keys(tiling, grouped=call.grouped))


def join_stages(call: JoinCall, tiling: Tiling) -> list[Stage]:
    """The stages of a join."""
    stages = [Stage(Tiles(call, tiling), "join", timed=call.plan.rule is None)]
    if call.plan.rule is not None:
        kind = NumberedLedgerBucket if call.plan.withdrawn else NumberBucket
        stages.insert(0, Stage(NumberBuckets(call, kind, tiling), "number"))
    elif call.plan.withdrawn:
        stages.insert(0, Stage(NumberBuckets(call, LedgerBucket, tiling), "ledger"))
    if any(call.plan.followed):
        stages.append(Stage(PartnerBuckets(call), "pairs" if call.plan.held else "partners"))
    return stages


def _tile_plan(call: JoinCall, partitions: int, options: Options) -> TilePlan:
    if options.sample is None:
        return hashed_plan(call.plan, partitions, call.encodings[0].gaussian_reach, options.side)
    from appulse.engines.local import as_table

    samples = options.sample if isinstance(options.sample, dict) else dict.fromkeys(call.plan.streams, options.sample)
    rows = []
    for i, encoding in enumerate(call.encodings):
        frame = samples.get(encoding.name)
        if frame is None:
            continue
        frame = frame.select(*map(quoted, encoding.columns())).toArrow() if isinstance(frame, DataFrame) else frame
        rows.append(call.encode(i, as_table(frame))[0])
    return planned(call.plan, partitions, rows, max(call.plan.windows, default=_WHOLE_SAMPLE), options.side)
