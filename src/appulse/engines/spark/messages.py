"""Messages of a broker: decoded as they come, and written so that who reads one twice can see it."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module
from pyspark.sql.avro.functions import from_avro

from appulse.engines.spark.inputs import quoted
from appulse.errors import BadArgument, SessionError, nearest
from appulse.model.defects import UNDECODED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame

#: How messages hold their values.
FORMATS = ("json", "avro")
#: What names a message that is written, however often that happens.
MESSAGE_ID = "message_id"
#: How JSON and CSV have times: whole, in UTC. `appulse.connect.sinks` writes the same text.
TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}
_PLACE = ("topic", "partition", "offset")
_AVRO = "org.apache.spark:spark-avro_2.13"


def decoded(frame: DataFrame, schema: str, kind: str) -> DataFrame:
    """What messages hold as columns; see `appulse.decode_messages`."""
    for name in (*_PLACE, "value"):
        if name not in frame.columns:
            raise BadArgument(
                f"The frame has no column {name!r}, which messages have.{nearest(name, frame.columns)} Read it by "
                "spark.readStream.format('kafka')."
            )
    try:
        rows = frame.select(*_PLACE, "value", _row(schema, kind).alias("row"))
        names = [name for name in rows.select("row.*").columns if name != UNDECODED]
    except PySparkException as problem:
        if "AVRO_NOT_LOADED" in str(problem):
            raise SessionError(
                f"Spark has no reader of Avro. Start the session with the package {_AVRO}: "
                f"ap.session(**{{'spark.jars.packages': '{_AVRO}:VERSION'}}), or appulse run --packages."
            ) from problem
        first = str(problem).strip().splitlines()[0]
        raise BadArgument(f"schema={schema!r} is not a schema of {kind} messages: {first}") from problem
    values = [F.col("row")[name].alias(name) for name in names]
    return rows.select(*values, F.when(_failed(kind, names), _message()).alias(UNDECODED))


def encoded(frame: DataFrame, query: str, number: int, key: str | None) -> DataFrame:
    """Rows of a batch as messages: a key, and JSON with a ``message_id`` that another attempt at the batch gives, too.

    The id has the query, the batch, a hash of the row and a number among rows of one hash, so neither the order of rows
    nor their partition matters. ``key`` names a column of theirs; without one the id is the key.
    """
    text = F.to_json(F.struct(*map(quoted, frame.columns)), TIMES)
    rows = frame.select(F.struct(*map(quoted, frame.columns)).alias("row"), text.alias("text"))
    rows = rows.withColumn("hash", F.xxhash64("text"))
    among = F.row_number().over(Window.partitionBy("hash").orderBy("text"))
    name = F.concat_ws("-", F.lit(query), F.lit(number), F.lower(F.hex("hash")), among)
    rows = rows.withColumn(MESSAGE_ID, name)
    own = [F.col("row")[column].alias(column) for column in frame.columns]
    value = F.to_json(F.struct(*own, F.lit(number).alias("batch_id"), F.col(MESSAGE_ID)), TIMES)
    chosen = F.col(MESSAGE_ID) if key is None else F.col("row")[key].cast("string")
    return rows.select(chosen.alias("key"), value.alias("value"))


def check_columns(given: str, names: Iterable[Any], columns: Sequence[str]) -> None:
    """Raise `BadArgument` where options, as a message calls them, name what is not a column of the rows written."""
    known = {name.lower() for name in columns}
    for name in names:
        if str(name).lower() not in known:
            raise BadArgument(
                f"{given} names the column {name!r}, which its rows do not have.{nearest(str(name), columns)}"
            )


def _row(schema: str, kind: str) -> Column:
    if kind == "avro":
        return from_avro("value", schema, {"mode": "PERMISSIVE"})
    asked = f"{schema}\n, `{UNDECODED}` STRING"  # behind a comment, if there is one
    return F.from_json(F.col("value").cast("string"), asked, {"columnNameOfCorruptRecord": UNDECODED})


def _failed(kind: str, names: Sequence[str]) -> Column:
    """Where there is no message, or Spark could not read it, which it shows in a way of each format's own."""
    row = F.col("row")
    if kind == "json":
        return row.isNull() | row[UNDECODED].isNotNull()
    return row.isNull() | reduce(and_, [row[name].isNull() for name in names])


def _message() -> Column:
    """Where a message stands and what is in it, text as it is and other bytes as base64."""
    is_text = F.expr("is_valid_utf8(cast(value AS string))")
    payload = F.when(is_text, F.col("value").cast("string")).otherwise(F.base64("value"))
    return F.struct(*_PLACE, payload.alias("payload"), (~is_text).alias("base64"))
