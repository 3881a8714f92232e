"""Window aggregates as a Spark plan: encode -> buckets of groups -> aggregates and rejects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - the house name of this module
from pyspark.sql.pandas.types import from_arrow_type

from appulse.engines.aggregate import AggregateCall, resolve_unseen
from appulse.engines.spark.aggregate_stage import AggregateStage
from appulse.engines.spark.engine import (
    SparkResult,
    bad_rows_of,
    blobs_of,
    decoded_rows,
    default_partitions,
    observed,
    remember,
    shuffle_partitions,
)
from appulse.engines.spark.inputs import encoded, with_watermark_delay
from appulse.engines.spark.processor import AnswerProcessor
from appulse.engines.spark.session import check_session
from appulse.engines.spark.tagged import arrow_schema, reject_type, select_tag, tagged_rows, tagged_schema
from appulse.engines.spark.tiles import TilePlan
from appulse.engines.spark.tiling import Tiling, Version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from appulse.model.stream import Stream


def spark_aggregate(stream: Stream, aggregates: Mapping[str, str | Sequence[str]], **settings: Any) -> DataFrame:
    """The aggregates of a Spark frame, lazily; streaming if it is."""
    frame = stream.frame
    if frame.isStreaming:
        check_session(frame.sparkSession)
        stream = with_watermark_delay(stream)
    call = resolve_unseen(stream, arrow_schema(frame.schema), aggregates, **settings)
    partitions = settings["options"].partitions or default_partitions(frame.sparkSession, streaming=frame.isStreaming)
    slots = shuffle_partitions(frame.sparkSession) if frame.isStreaming else 0
    tiling = Tiling((Version(TilePlan(partitions, 1.0, 0.0, 0.0, slots=slots)),), 0)
    return remember(_build_stream(call, tiling, stream) if frame.isStreaming else _build_batch(call, tiling, stream))


def _schemas(call: AggregateCall, stream: Stream) -> tuple[T.StructType, T.StructType]:
    """Spark's schemas of answers and rejects: groups, keys and times in the types they came in."""
    given = stream.frame.schema
    own = {name: given[name].dataType for name, _ in call.partitions} | {"time": given[stream.time].dataType}
    answers = [T.StructField(f.name, own.get(f.name) or from_arrow_type(f.type)) for f in call.answer_schema]
    return T.StructType(answers), reject_type(given[stream.key].dataType, given[stream.time].dataType)


def _build_stream(call: AggregateCall, tiling: Tiling, stream: Stream, control: str | None = None) -> SparkResult:
    answers, rejects = _schemas(call, stream)
    out = (
        encoded(call, tiling, [stream], control)
        .groupBy("tile")
        .transformWithStateInPandas(
            AnswerProcessor(AggregateStage(call), "aggregate"),
            outputStructType="out binary",
            outputMode="append",
            timeMode="eventTime",
        )
    )
    tagged = observed(decoded_rows(out, tagged_schema(answers, rejects)))

    def rebuild(other: Tiling, folder: str | None = None) -> SparkResult:
        return _build_stream(call, other, stream, folder)

    return SparkResult(call, tiling, tagged, answers, rejects, None, rebuild)


def _build_batch(call: AggregateCall, tiling: Tiling, stream: Stream) -> SparkResult:
    answers, rejects = _schemas(call, stream)
    schema = tagged_schema(answers, rejects)
    arrow, stage = arrow_schema(schema), AggregateStage(call)

    def aggregate_bucket(table: pa.Table) -> pa.Table:
        return pa.Table.from_batches([tagged_rows("answer", stage.at_once(blobs_of(table)), arrow)])

    tagged = encoded(call, tiling, [stream]).groupBy("tile").applyInArrow(aggregate_bucket, schema)
    bad_rows = select_tag(bad_rows_of(call, [stream], schema), "reject", rejects)

    def rebuild(other: Tiling, _: str | None = None) -> SparkResult:
        return _build_batch(call, other, stream)

    return SparkResult(call, tiling, tagged, answers, rejects, bad_rows, rebuild)
