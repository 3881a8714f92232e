"""The sensor join as a Spark plan: encode -> buckets of values -> factorised matches -> elements, if asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - the house name of this module
from pyspark.sql.pandas.types import from_arrow_type

from appulse.engines.arriving import Arrivals
from appulse.engines.options import options_of
from appulse.engines.phenomena import resolve_phenomena
from appulse.engines.sensors import SensorCall, resolve_sensors
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
    watermark_delay,
    watermarks,
)
from appulse.engines.spark.processor import AnswerProcessor
from appulse.engines.spark.readings_codec import pack_readings
from appulse.engines.spark.readings_routing import GroupRouting, ValueRouting, value_routing
from appulse.engines.spark.readings_stage import ReadingsStage
from appulse.engines.spark.session import check_session
from appulse.engines.spark.tagged import arrow_schema, reject_type, select_tag, tagged_rows, tagged_schema
from appulse.engines.spark.tile_join import table_bytes
from appulse.engines.spark.tiles import TilePlan
from appulse.engines.spark.tiling import Tiling, Version
from appulse.errors import BadArgument
from appulse.model.defects import FUTURE
from appulse.model.readings import encode_readings, refused_readings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from appulse.engines.options import Options
    from appulse.engines.readings import ReadingsCall
    from appulse.model.readings import Readings

Routing = ValueRouting | GroupRouting
_BLOCKS = "tile int, block binary, ts timestamp"
# A block is one value of Spark's, held whole in several places on its way.
_BLOCK_ROWS = 1 << 20


def spark_sensors(frame: DataFrame, *, options: Options | None, **settings: Any) -> DataFrame:
    """The matches of a Spark frame of readings, lazily; streaming if it is."""
    options, settings = options_of(options, "sensor_join"), with_lateness(frame, settings)
    call = resolve_sensors(arrow_schema(frame.schema), options=options, live=frame.isStreaming, **settings)
    buckets = options.partitions or default_partitions(frame.sparkSession, streaming=frame.isStreaming)
    if call.plan.by is not None:  # what a sensor did of late, no bucket of values knows
        return readings_result(frame, call, GroupRouting(buckets if call.partitions else 1))
    return readings_result(frame, call, value_routing(call.plan, buckets, _sampled(options.sample, call)))


def spark_phenomena(frame: DataFrame, *, options: Options | None, **settings: Any) -> DataFrame:
    """The phenomena of a Spark frame of readings, lazily; streaming if it is."""
    options, settings = options_of(options, "phenomena"), with_lateness(frame, settings)
    call = resolve_phenomena(arrow_schema(frame.schema), options=options, live=frame.isStreaming, **settings)
    buckets = options.partitions or default_partitions(frame.sparkSession, streaming=frame.isStreaming)
    return readings_result(frame, call, GroupRouting(buckets if call.grouped else 1))


def _sampled(sample: Any, call: SensorCall) -> Readings | None:
    if sample is None:
        return None
    from pyspark.sql import DataFrame

    from appulse.engines.local import as_table

    table = sample.select(*map(quoted, call.encoding.columns())).toArrow() if isinstance(sample, DataFrame) else sample
    return encode_readings(as_table(table), call.encoding)[0]


def with_lateness(frame: DataFrame, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with the delay of a `withWatermark` on the frame as lateness."""
    if not frame.isStreaming:
        return settings
    check_session(frame.sparkSession)
    delay = watermark_delay(frame, "the readings")
    if delay is None:
        return settings
    if settings["lateness"] is not None:
        raise BadArgument(
            f"The readings have lateness={settings['lateness']!r} and a withWatermark on their frame. Give one of them."
        )
    return settings | {"lateness": delay}


def readings_result(frame: DataFrame, call: ReadingsCall, routing: Routing) -> DataFrame:
    """The answers of a call over readings, lazily."""
    slots = shuffle_partitions(frame.sparkSession) if frame.isStreaming else 0
    tiling = Tiling((Version(TilePlan(routing.buckets, 1.0, 0.0, 0.0, slots=slots)),), 0)
    return remember(_built(frame, call, routing, tiling, None))


def _built(frame: DataFrame, call: ReadingsCall, routing: Routing, tiling: Tiling, control: str | None) -> SparkResult:
    routing = replace(routing, buckets=tiling.latest.tiles)
    answers, rejects = _schemas(call, frame)
    stage = _as_spark(call.stage_schema, call, frame)
    blocks = _encoded(frame, call, routing, tiling, control)
    schema = tagged_schema(stage, rejects)
    if frame.isStreaming:
        out = blocks.groupBy("tile").transformWithStateInPandas(
            AnswerProcessor(ReadingsStage(call), "readings"),
            outputStructType="out binary",
            outputMode="append",
            timeMode="eventTime",
        )
        tagged = _finished(decoded_rows(out, schema), call, answers, rejects)
        tagged, bad_rows = observed(tagged), None
    else:
        tagged = blocks.groupBy("tile").applyInArrow(_at_once(call, schema), schema)
        tagged = _finished(tagged, call, answers, rejects)
        given = frame.select(*map(quoted, call.encoding.columns()))
        bad_rows = select_tag(given.mapInArrow(_rejecter(call, schema), schema), "reject", rejects)

    def rebuild(other: Tiling, folder: str | None = None) -> SparkResult:
        return _built(frame, call, routing, other, folder)

    return SparkResult(call, tiling, tagged, answers, rejects, bad_rows, rebuild)


def _encoded(frame: DataFrame, call: ReadingsCall, routing: Routing, tiling: Tiling, control: str | None) -> DataFrame:
    """Readings as blocks, one or a few per bucket, task and micro-batch."""
    keys = bucket_keys(call, tiling)

    def encode_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return blocks_of_readings(batches, call, routing, keys)

    blocks = dated(frame.select(*map(quoted, call.encoding.columns()))).mapInArrow(encode_task, _BLOCKS)
    if not frame.isStreaming:
        return blocks
    (delay,) = watermarks(call)
    # Spark's watermark is the one clock all keys share; without the column below, it drops no late rows unseen.
    blocks = blocks.withWatermark("ts", f"{delay} milliseconds").select("tile", "block")
    if control is None:
        return blocks
    marks = frame.sparkSession.readStream.schema("newest long").json(control)
    return blocks.union(marks.mapInArrow(marker(keys), MARKS))


def blocks_of_readings(
    batches: Iterable[pa.RecordBatch], call: ReadingsCall, routing: Routing, keys: list[int]
) -> Iterator[pa.RecordBatch]:
    """The blocks of one task's rows."""
    arrivals = Arrivals((call.encoding,), call.ahead)
    for table in gathered(batches):
        readings, rejects = encode_readings(table, call.encoding)
        judged = arrivals.judge(0, readings.time, readings.sensor, batch_time(table))
        arrivals.settle()
        if len(judged):
            ahead = refused_readings(readings.take(judged.rows), FUTURE, judged.details, call.encoding)
            rejects = pa.concat_tables([rejects, ahead])
            readings = readings.take(np.setdiff1d(np.arange(len(readings)), judged.rows))
        newest = int(readings.time.max()) if len(readings) else 0
        if len(rejects):
            fail_if_asked(call, rejects)
            where = keys[hash_text(str(rejects.column("detail")[0]) + str(len(rejects))) % len(keys)]
            yield block_batch([where], [table_bytes(tile_join.REJECTS, rejects)], [newest])
        for bucket, part in routing.parts(readings) if len(readings) else ():
            for begin in range(0, len(part), _BLOCK_ROWS):
                piece = part if len(part) <= _BLOCK_ROWS else part.slice(begin, min(begin + _BLOCK_ROWS, len(part)))
                yield block_batch([keys[bucket]], [pack_readings(piece)], [newest])


def _at_once(call: ReadingsCall, schema: T.StructType) -> Callable[[pa.Table], pa.Table]:
    arrow, stage = arrow_schema(schema), ReadingsStage(call)

    def answer_bucket(table: pa.Table) -> pa.Table:
        parts = [tagged_rows("answer", part, arrow) for part in stage.at_once(blobs_of(table))]
        return pa.Table.from_batches(parts, schema=arrow)

    return answer_bucket


def _finished(tagged: DataFrame, call: ReadingsCall, answers: T.StructType, rejects: T.StructType) -> DataFrame:
    """With the elements of products, if they are asked for; a batch of rows at a time, none held longer."""
    if not (isinstance(call, SensorCall) and call.expand):
        return tagged
    schema = tagged_schema(answers, rejects)
    arrow = arrow_schema(schema)

    def expand_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        finish = call.finishing()
        for batch in batches:
            table = pa.Table.from_batches([batch])
            told = pa.compute.equal(table["tag"], "answer")
            others = table.filter(pa.compute.invert(told)).drop_columns(["answer_matches"])
            for rows in others.to_batches():
                blank = pa.nulls(len(rows), arrow.field("answer_matches").type)
                columns = [blank if name == "answer_matches" else rows[name] for name in arrow.names]
                yield pa.RecordBatch.from_arrays(columns, schema=arrow)
            mine = table.filter(told)
            mine = mine.select([f"answer_{name}" for name in call.factorised_schema.names])
            mine = mine.rename_columns(call.factorised_schema.names).cast(call.factorised_schema)
            for part in finish(mine):
                yield tagged_rows("answer", part, arrow)

    return tagged.mapInArrow(expand_task, schema)


def _schemas(call: ReadingsCall, frame: DataFrame) -> tuple[T.StructType, T.StructType]:
    """Spark's schemas of answers and rejects: sensors, times and values in the types they came in."""
    given, encoding = frame.schema, call.encoding
    rejects = reject_type(given[encoding.sensor].dataType, given[encoding.time].dataType)
    return _as_spark(call.answer_schema, call, frame), rejects


def _as_spark(schema: pa.Schema, call: ReadingsCall, frame: DataFrame) -> T.StructType:
    given, encoding = frame.schema, call.encoding
    own = {name: given[name].dataType for name in (*encoding.partition_by, *encoding.carry)}
    own |= {"sensor": given[encoding.sensor].dataType, "time": given[encoding.time].dataType}
    if schema.field("value").type == encoding.value_type:
        own["value"] = given[encoding.value].dataType
    return T.StructType([T.StructField(f.name, own.get(f.name) or _plain(f.type, own)) for f in schema])


def _plain(kind: pa.DataType, own: dict[str, T.DataType]) -> T.DataType:
    """Spark's type of an Arrow type, with the types that columns came in."""
    if pa.types.is_list(kind):
        return T.ArrayType(_plain(kind.value_type, own))
    if pa.types.is_struct(kind):
        return T.StructType([T.StructField(f.name, _within(f, own)) for f in kind])
    return from_arrow_type(kind)


def _within(field: pa.Field, own: dict[str, T.DataType]) -> T.DataType:
    name = "time" if field.name == "times" else field.name
    known = own.get(name)
    if known is None:
        return _plain(field.type, own)
    return T.ArrayType(known) if pa.types.is_list(field.type) and not isinstance(known, T.ArrayType) else known


def _rejecter(
    call: ReadingsCall, schema: T.StructType
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    arrow = arrow_schema(schema)

    def reject_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in gathered(batches):
            yield tagged_rows("reject", encode_readings(table, call.encoding)[1], arrow)

    return reject_task
