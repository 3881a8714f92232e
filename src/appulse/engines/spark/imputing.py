"""Imputers on Spark: each is sent to the workers once, and a frame is filled row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T  # noqa: N812 - the house name of this module
from pyspark.sql.pandas.types import from_arrow_type

from appulse.engines.imputing import SAMPLES, TOLD, WEIGHTS, check_filled, filled_field, filled_table, refuse_in_order
from appulse.engines.spark.inputs import gathered
from appulse.engines.spark.tagged import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from appulse.engines.call import JoinCall
    from appulse.model.filled import Fill, Filled
    from appulse.model.stream import Stream


class SharedFill:
    """A fill that travels as a handle: the repository goes to each worker once, not with every task."""

    in_order = False

    def __init__(self, fill: Fill, spark: SparkSession) -> None:
        prepare = getattr(fill, "prepare", None)
        if prepare is not None:
            prepare()
        self.version, self._told = fill.version, repr(fill)
        # Spark Connect has no broadcasts: there it travels with the tasks.
        self._shared: Any = spark.sparkContext.broadcast(fill) if hasattr(spark, "_jsc") else _Carried(fill)

    def __repr__(self) -> str:
        return self._told

    def fill(self, values: NDArray[Any], time: NDArray[Any], group: NDArray[Any]) -> Filled:
        filled: Filled = self._shared.value.fill(values, time, group)
        return filled

    def told(self, way: int) -> str:
        told: str = self._shared.value.told(way)
        return told


class _Carried:
    def __init__(self, value: Fill) -> None:
        self.value = value


def with_shared_fills(call: JoinCall, spark: SparkSession) -> JoinCall:
    """The call with its imputers sent to the workers."""
    refuse_in_order(call.encodings)
    known: dict[int, Fill] = {}
    encodings = []
    for encoding in call.encodings:
        if encoding.fill is not None:
            shared = known.setdefault(id(encoding.fill), SharedFill(encoding.fill, spark))
            encoding = replace(encoding, fill=shared)  # noqa: PLW2901 - the same, for workers
        encodings.append(encoding)
    return replace(call, encodings=tuple(encodings))


def filled_frame(stream: Stream, fill: Fill) -> DataFrame:
    """The frame with the columns of `filled_table`, lazily; streaming if it is."""
    frame = stream.frame
    check_filled(arrow_schema(frame.schema), stream)
    shared = SharedFill(fill, frame.sparkSession)
    added = [T.StructField(name, from_arrow_type(filled_field(name).type)) for name in (SAMPLES, WEIGHTS, TOLD)]
    schema = T.StructType([*frame.schema.fields, *added])
    rows = replace(stream, frame=None)
    arrow = arrow_schema(schema)

    def fill_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in gathered(batches):
            yield from filled_table(table, rows, shared).cast(arrow).to_batches()

    filled: DataFrame = frame.mapInArrow(fill_task, schema)
    return filled
