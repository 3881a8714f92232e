"""What comes out of a query as one frame: answers, rejects and metrics side by side, told apart by a tag."""

from __future__ import annotations

import json
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the house name of this module
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema

from appulse.engines.measured import METRICS
from appulse.engines.spark import blobs as kinds
from appulse.engines.spark.blobs import read_table
from appulse.engines.spark.inputs import map_in_arrow
from appulse.model.columns import chunk
from appulse.model.defects import rejects_as

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from appulse.engines.base import Call, Finish
    from appulse.model.stream import Stream

#: What rows are: answers, rejects and metrics stand in columns of these names.
ANSWER, REJECT, METRIC = "answer", "reject", "metric"
# How many bytes of answers make a row: one value should not grow too large.
_ROW_BYTES = 1 << 20
_SIDES = ("left", "right")
# Before Spark 4.2 there is no such argument, and timestamps are in UTC.
_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}


def result_schemas(
    call: Call[Any], streams: Sequence[Stream], schemas: Sequence[T.StructType]
) -> tuple[T.StructType, T.StructType]:
    """Spark's schemas of answers and rejects: keys and times in the types they came in."""
    key, time = common_types(call, streams, schemas)
    own = {f"{side}_key": key for side in _SIDES} | {f"{side}_time": time for side in _SIDES} | {"time": time}
    rows = [*zip(streams, schemas, strict=True)]
    for side, may_be in zip(_SIDES, (rows[:-1] or rows, rows[1:] or rows), strict=True):
        for stream, given in reversed(may_be):
            kinds = {f"{side}_{name}": given[name].dataType for name in stream.carry}
            own |= {name: kind for name, kind in kinds.items() if kind != T.NullType()}
    return as_struct(call.answer_schema, own), reject_type(key, time)


def common_types(
    call: Call[Any], streams: Sequence[Stream], schemas: Sequence[T.StructType]
) -> tuple[T.DataType, T.DataType]:
    """Spark's types of the keys and times of all streams, which have these columns."""
    given = [*zip(streams, schemas, strict=True)]
    key = _common_type([schema[stream.key].dataType for stream, schema in given], call.key_type)
    time = _common_type([schema[stream.time].dataType for stream, schema in given], call.time_type)
    return key, time


def as_struct(schema: pa.Schema, own: Mapping[str, T.DataType]) -> T.StructType:
    """Spark's columns of an Arrow schema; those that come from users' frames keep their ``own`` types."""
    return T.StructType([T.StructField(f.name, own.get(f.name) or spark_type(f.type)) for f in schema])


def reject_type(key: T.DataType, time: T.DataType) -> T.StructType:
    """Spark's schema of rejects."""
    text = T.StringType()
    return T.StructType(
        [
            T.StructField(name, kind)
            for name, kind in (
                ("stream", text),
                ("key", key),
                ("time", time),
                ("reason", text),
                ("detail", text),
                ("values", text),
            )
        ]
    )


def _common_type(kinds: Sequence[T.DataType], resolved: pa.DataType) -> T.DataType:
    if all(kind == kinds[0] for kind in kinds):
        return kinds[0]
    return spark_type(resolved)


def tagged_schema(answers: T.StructType, rejects: T.StructType) -> T.StructType:
    """Answers, rejects and metrics side by side; ``tag`` says which a row is.

    A row has many answers or rejects, or all metrics: what rows and columns cost Spark is paid once for all of them.
    """
    lists = {ANSWER: answers, REJECT: rejects}
    return T.StructType(
        [
            T.StructField("tag", T.StringType()),
            *[T.StructField(tag, T.ArrayType(own, containsNull=False)) for tag, own in lists.items()],
            T.StructField(METRIC, T.ArrayType(T.DoubleType(), containsNull=False)),
        ]
    )


def select_tag(tagged: DataFrame, tag: str) -> DataFrame:
    """The answers or rejects of one tag, under the names users know; rows of other tags have none."""
    return tagged.select(F.inline(tag))


def arrow_schema(schema: T.StructType) -> pa.Schema:
    """The Arrow schema in which Spark takes such rows from Python."""
    return to_arrow_schema(schema, **_IN_UTC)


def spark_type(kind: pa.DataType) -> T.DataType:
    """The Spark type of values in Arrow; times without a zone stay so, which is not every version's default."""
    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def decoded(blobs: Iterable[bytes], arrow: pa.Schema, finish: Finish | None = None) -> Iterator[pa.RecordBatch]:
    """Tagged rows of what a stage put out; ``finish`` makes answers of what it found."""
    for blob in blobs:
        if blob[:1] == kinds.METRICS:
            yield metric_row(json.loads(blob[1:]), arrow)
            continue
        table = read_table(blob)
        if blob[:1] == kinds.REJECTS:
            yield tagged_rows(REJECT, table, arrow)
            continue
        for part in (table,) if finish is None else finish(table):
            yield tagged_rows(ANSWER, part, arrow)


def tagged_rows(tag: str, table: pa.Table, arrow: pa.Schema) -> pa.RecordBatch:
    """The rows of a table as few rows of the tagged schema; none if it has none."""
    kind = arrow.field(tag).type
    fields = list(kind.value_type)
    values = [_as_type(chunk(column), field.type) for column, field in zip(table.columns, fields, strict=True)]
    some = max(1, _ROW_BYTES * len(table) // max(1, table.nbytes))
    offsets = pa.array([*range(0, len(table), some), len(table)] if len(table) else [0], pa.int32())
    structs = pa.StructArray.from_arrays(values, fields=fields)
    return _row(tag, {tag: pa.ListArray.from_arrays(offsets, structs, type=kind)}, arrow)


def metric_row(figures: Mapping[str, float], arrow: pa.Schema) -> pa.RecordBatch:
    """Figures as a row of the tagged schema."""
    values = pa.array([[float(figures.get(name, 0)) for name in METRICS]], arrow.field(METRIC).type)
    return _row(METRIC, {METRIC: values}, arrow)


def _row(tag: str, columns: Mapping[str, pa.Array], arrow: pa.Schema) -> pa.RecordBatch:
    n = len(next(iter(columns.values())))
    columns = {"tag": pa.repeat(pa.scalar(tag, arrow.field("tag").type), n), **columns}
    values = [columns[field.name] if field.name in columns else pa.nulls(n, field.type) for field in arrow]
    return pa.RecordBatch.from_arrays(values, schema=arrow)


def in_schema(table: pa.Table, arrow: pa.Schema) -> pa.Table:
    """The same rows, in the types that Spark takes them in."""
    columns = [column.cast(field.type) for column, field in zip(table.columns, arrow, strict=True)]
    return pa.Table.from_arrays(columns, schema=arrow)


def rejects_like(frame: DataFrame, own: T.StructType, schema: T.StructType) -> DataFrame:
    """Rejects of one call with keys and times as another has them; Spark writes the same values as other text."""
    if own == schema:
        return frame
    arrow = arrow_schema(schema)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from rejects_as(pa.Table.from_batches([batch]), arrow).to_batches()

    return map_in_arrow(frame, task, schema)


def rejects_frame(spark: SparkSession, rejects: pa.Table, schema: T.StructType) -> DataFrame:
    """Rejects as a Spark frame."""
    # In one piece: Spark takes a table whose first piece has no rows for an empty one.
    return spark.createDataFrame(in_schema(rejects, arrow_schema(schema)).combine_chunks(), schema)


def _as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)
