"""Calls over readings on Spark: encode -> buckets of values or groups -> what the operator finds -> answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - the usual name of this module

from appulse.engines.options import options_of
from appulse.engines.sensors.call import SensorCall, SensorSettings, resolve_sensors
from appulse.engines.sensors.phenomena import PhenomenaSettings, resolve_phenomena
from appulse.engines.sensors.readings import ReadingsBucket, blocks_of
from appulse.engines.spark.inputs import quoted
from appulse.engines.spark.pipeline import Operator, built
from appulse.engines.spark.results import remember
from appulse.engines.spark.routing import bucket_keys, plain_tiling
from appulse.engines.spark.sensors.routing import GroupRouting, ValueRouting, value_routing
from appulse.engines.spark.sources import Sources, with_watermark_delay
from appulse.engines.spark.stage import GroupBuckets, Stage
from appulse.engines.spark.tagged import reject_type, spark_type
from appulse.model.readings import encode_readings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from appulse.engines.sensors.readings import ReadingsCall, ReadingsSettings
    from appulse.engines.spark.tiling import Tiling
    from appulse.model.readings import Readings
    from appulse.model.stream import Stream

Routing = ValueRouting | GroupRouting
C = TypeVar("C", bound="ReadingsCall")


def spark_sensors(readings: Stream, settings: SensorSettings) -> DataFrame:
    """The matches of a Spark frame of readings, lazily; streaming if it is."""
    options = options_of(settings.options, "sensor_join")
    sources, call = _resolved(readings, resolve_sensors, settings)
    buckets = sources.partitions(options)
    if call.plan.by is not None:  # what a sensor did of late, no bucket of values knows
        return readings_result(sources, call, GroupRouting(buckets if call.partitions else 1))
    return readings_result(sources, call, value_routing(call.plan, buckets, _sampled(options.sample, call)))


def spark_phenomena(readings: Stream, settings: PhenomenaSettings) -> DataFrame:
    """The phenomena of a Spark frame of readings, lazily; streaming if it is."""
    sources, call = _resolved(readings, resolve_phenomena, settings)
    buckets = sources.partitions(options_of(settings.options, "phenomena"))
    return readings_result(sources, call, GroupRouting(buckets if call.grouped else 1))


def _resolved(
    readings: Stream, resolve: Callable[[Stream, pa.Schema, Any], C], settings: ReadingsSettings
) -> tuple[Sources, C]:
    """The frame of readings, and the call over it."""
    sources = Sources.of([readings])
    named = with_watermark_delay(replace(readings, name=readings.name or "readings"))
    return sources, resolve(named, sources.arrow[0], settings)


def _sampled(sample: Any, call: SensorCall) -> Readings | None:
    if sample is None:
        return None
    from pyspark.sql import DataFrame

    from appulse.engines.local import as_table

    table = sample.select(*map(quoted, call.encoding.columns())).toArrow() if isinstance(sample, DataFrame) else sample
    return encode_readings(as_table(table), call.encoding)[0].counting()


def readings_result(sources: Sources, call: ReadingsCall, routing: Routing) -> DataFrame:
    """The answers of a call over readings, lazily."""
    (given,), call = sources.schemas, sources.chained(call)
    encoding = call.encoding
    operator = Operator(
        call,
        sources,
        routing=lambda tiling: ToBuckets(
            replace(routing, buckets=tiling.latest.tiles), _keys(call, tiling), goes_on=call.goes_on
        ),
        stages=lambda _: [Stage(GroupBuckets(call, ReadingsBucket), "readings")],
        answers=_as_spark(call.answer_schema, call, given),
        rejects=reject_type(given[encoding.sensor].dataType, given[encoding.time].dataType),
        found=_as_spark(call.stage_schema, call, given),
        finish=call.finishing if call.finishes else None,
        needs_newest=call.listens and call.grouped,
    )
    return remember(built(operator, plain_tiling(routing.buckets, sources.slots)))


@dataclass(frozen=True)
class ToBuckets:
    """Readings go to the bucket of their group or value, and to those of values that they may match."""

    routing: Routing
    keys: list[int]
    goes_on: bool = False  # as in `ReadingsCall`

    def blocks(self, stream: int, rows: Readings) -> Iterator[tuple[int, bytes, int]]:  # noqa: ARG002 - there is one
        """Blocks of the readings: key, block, newest time."""
        newest = int(rows.time.max())
        rows = ticks_of(rows) if self.goes_on else rows.counting()
        for bucket, part in self.routing.parts(rows):
            for block in blocks_of(part):
                yield self.keys[bucket], block, newest


def ticks_of(rows: Readings) -> Readings:
    """The rows, of those that are no readings one for each time and group: more of them say no more."""
    if rows.counts is None:
        return rows
    group = np.zeros(len(rows), np.int32) if rows.group is None else rows.group.codes
    others = np.flatnonzero(~rows.counts)
    _, first = np.unique(np.stack([group[others], rows.time[others]]), axis=1, return_index=True)
    return rows.take(np.union1d(np.flatnonzero(rows.counts), others[first]))


def _keys(call: ReadingsCall, tiling: Tiling) -> list[int]:
    return bucket_keys(tiling, grouped=call.grouped)


def _as_spark(schema: pa.Schema, call: ReadingsCall, given: T.StructType) -> T.StructType:
    encoding = call.encoding
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
    return spark_type(kind)


def _within(field: pa.Field, own: dict[str, T.DataType]) -> T.DataType:
    name = "time" if field.name == "times" else field.name
    known = own.get(name)
    if known is None:
        return _plain(field.type, own)
    return T.ArrayType(known) if _depth(spark_type(field.type)) > _depth(known) else known


def _depth(kind: T.DataType) -> int:
    """How many lists are around a value."""
    return 1 + _depth(kind.elementType) if isinstance(kind, T.ArrayType) else 0
