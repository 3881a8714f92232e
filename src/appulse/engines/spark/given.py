"""The columns of Spark frames: as `Stream(schema=)` gives them, so that nobody asks Spark, or as Spark knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the house name of this module
from pyspark.sql import types as T  # noqa: N812 - the house name of this module

from appulse.engines.given import missing, other, whose
from appulse.engines.spark.inputs import quoted
from appulse.engines.spark.results import known_result
from appulse.engines.spark.tagged import spark_type
from appulse.errors import BadArgument
from appulse.model import ddl
from appulse.model.defects import read_columns
from appulse.model.streaming import FORBIDDEN, is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from appulse.model.stream import Stream


def schema_of(stream: Stream) -> T.StructType:
    """The columns of a stream's frame.

    Of what a call on Spark Connect returned they are known as well: to ask there is a way to the server and back.
    """
    if stream.schema is not None:
        return _struct(stream)
    frame: DataFrame = stream.frame
    known = known_result(frame) if is_connect(frame) else None
    if known is not None:
        return known.answers
    try:
        return frame.schema
    except PySparkException as refused:
        if FORBIDDEN not in str(refused):
            raise
        raise BadArgument(
            f"{whose(stream)} a function of a pipeline cannot ask Spark which columns a frame has. Give them: "
            "ap.Stream(..., schema='id BIGINT, at TIMESTAMP, x DOUBLE')."
        ) from refused


def checked_frame(stream: Stream) -> DataFrame:
    """The frame of a stream, with the columns that are given, if any.

    Raises `BadArgument` where a frame has others. A frame of Spark Connect is not looked at: there it is the query
    that fails, before it reads a value.
    """
    frame: DataFrame = stream.frame
    if stream.schema is None:
        return frame
    given = _struct(stream)
    if is_connect(frame):
        return _checked_by_spark(frame, given, whose(stream))
    there = {field.name: field.dataType for field in frame.schema}
    for field in given:
        if field.name not in there:
            raise missing(stream, field.name, list(there))
        if there[field.name].simpleString() != field.dataType.simpleString():
            raise other(stream, field.name, field.dataType.simpleString(), there[field.name].simpleString())
    return frame.select(*map(quoted, read_columns(frame.columns, given.names)))


def _checked_by_spark(frame: DataFrame, given: T.StructType, stream: str) -> DataFrame:
    """The columns by name, each of which fails in a query where its type is another.

    Spark knows the types when it plans the query, and leaves nothing of a condition that holds.
    """

    def column(field: T.StructField) -> Any:
        name, wanted = quoted(field.name), field.dataType.simpleString()
        wrong = F.concat(
            F.lit(f"{stream} schema= says that column {field.name!r} is {wanted}, and in the frame it is "),
            F.typeof(name),
            F.lit("."),
        )
        return F.when(F.typeof(name) == wanted, name).otherwise(F.raise_error(wrong)).alias(field.name)

    return frame.select(*map(column, given))


def _struct(stream: Stream) -> T.StructType:
    schema = stream.schema
    if isinstance(schema, T.StructType):
        return T.StructType([T.StructField(field.name, _plain(field.dataType)) for field in schema])
    arrow = schema if isinstance(schema, pa.Schema) else ddl.columns_of(schema)
    try:
        return T.StructType([T.StructField(field.name, spark_type(field.type)) for field in arrow])
    except PySparkException as error:
        raise BadArgument(f"{whose(stream)} schema= has a type that Spark has not: {error}") from error


def _plain(kind: T.DataType) -> T.DataType:
    """The type that a column has in a frame: texts have no longest length there."""
    return T.StringType() if isinstance(kind, T.CharType | T.VarcharType) else kind
