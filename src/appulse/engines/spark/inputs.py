"""From user rows to blocks: encode, and the clock that all keys share."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the house name of this module
from pyspark.sql import types as T  # noqa: N812 - the house name of this module

from appulse.engines.spark.blobs import end_mark
from appulse.errors import BadArgument
from appulse.model.defects import read_columns
from appulse.model.streaming import is_connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from appulse.engines.base import Call

# No text, which Spark Connect would have the server read.
MARKS = T.StructType([T.StructField("tile", T.IntegerType()), T.StructField("block", T.BinaryType())])
BLOCKS = T.StructType([*MARKS, T.StructField("ts", T.TimestampType())])
# Rows wait for their task's other rows, so that a tile gets few blocks; not for more than this.
_FLUSH_BYTES = 256 << 20
_LARGE = 1 << 20  # bytes of a block that is not worth a copy
_NOW = "appulse batch time"


def read(frame: DataFrame, schema: T.StructType, columns: Sequence[str], *, dated: bool = False) -> DataFrame:
    """What a call reads of a frame with this schema: these columns, and messages that could not be decoded.

    ``dated``: of a stream, with the time of its micro-batch, which is the same when that is run again.
    """
    names = read_columns(schema.names, columns)
    check_names(frame, schema.names, names)
    rows, fields = frame.select(*map(quoted, names)), [schema[name] for name in names]
    if not dated:
        return known(rows, fields)
    return known(rows.withColumn(_NOW, F.current_timestamp()), [*fields, T.StructField(_NOW, T.TimestampType())])


def check_names(frame: DataFrame, there: Sequence[str], names: Iterable[str]) -> None:
    """Raise `BadArgument` where Spark cannot choose between the columns ``there`` by one of the names."""
    if len({name.lower() for name in there}) == len(there):
        return
    for name in names:
        for other in there:
            if name != other and name.lower() == other.lower() and not _by_case(frame.sparkSession):
                raise BadArgument(
                    f"A frame has the columns {name!r} and {other!r}, and this session takes them for one "
                    "(spark.sql.caseSensitive=false). Rename one of them where the frame is made, or set that to true."
                )


def check_answers(spark: SparkSession, answers: Sequence[str]) -> None:
    """Raise `BadArgument` where Spark takes two columns of the answers for one: it could not write them."""
    spelt: dict[str, str] = {}
    for name in answers:
        other = spelt.setdefault(name.lower(), name)
        if other != name and not _by_case(spark):
            raise BadArgument(
                f"The answers would have the columns {other!r} and {name!r}, and this session takes them for one "
                "(spark.sql.caseSensitive=false). Rename the column of carry= or partition_by= before the call, or set "
                "that to true."
            )


def _by_case(spark: SparkSession) -> bool:
    return spark.conf.get("spark.sql.caseSensitive") == "true"


def known(frame: DataFrame, fields: Iterable[T.StructField]) -> DataFrame:
    """A frame whose columns these are: to run Python on it, Spark Connect would ask its server for them.

    That is one more way there and back, and forbidden in functions of Declarative Pipelines.
    """
    if is_connect(frame):
        vars(frame)["_cached_schema"] = T.StructType([*fields])
    return frame


def map_in_arrow(
    frame: DataFrame,
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: T.StructType,
) -> DataFrame:
    """What a task makes of the rows of a frame, which finds the columns under their names, whatever these are.

    `mapInArrow` has Spark read the names: a dot asks for a part of a column, a backtick quotes. Timestamps come in the
    zone of the session, which is not theirs.
    """
    names = frame.columns
    if not any(name == "*" or "." in name or "`" in name for name in names):
        return frame.mapInArrow(lambda batches: task(map(_in_utc, batches)), schema)
    plain = [f"column{i}" for i in range(len(names))]
    fields = [T.StructField(new, field.dataType) for new, field in zip(plain, frame.schema, strict=True)]
    rows = frame.select(*[quoted(old).alias(new) for old, new in zip(names, plain, strict=True)])

    def named_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task(_in_utc(batch).rename_columns(names) for batch in batches)

    return known(rows, fields).mapInArrow(named_task, schema)


def _in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [column.cast(_type_in_utc(column.type)) if _is_zoned(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _is_zoned(kind: pa.DataType) -> bool:
    """Whether there are timestamps of another zone than UTC in a type."""
    if pa.types.is_timestamp(kind):
        return kind.tz not in (None, "UTC")
    return any(_is_zoned(kind.field(i).type) for i in range(kind.num_fields))


def _type_in_utc(kind: pa.DataType) -> pa.DataType:
    """The type with its timestamps in UTC. All in it may be null: what is in a null is, whatever its field says."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_list(kind):
        return pa.list_(_type_in_utc(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _type_in_utc(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_type_in_utc(kind.key_type), _type_in_utc(kind.item_type))
    return kind


def batch_time(table: pa.Table) -> int | None:
    """The time of the micro-batch (microseconds) that a task's rows are of; None in a batch query."""
    if _NOW not in table.column_names or len(table) == 0:
        return None
    return int(table[_NOW][:1].cast(pa.timestamp("us", "UTC")).cast(pa.int64())[0].as_py())


def watermarks(call: Call[Any]) -> list[int | None]:
    """Each stream's delay in milliseconds; None where it is clocked with the others, for it may fall silent."""
    return [
        None if idle is not None else -(-late // 1000)
        for idle, late in zip(call.idle_after, call.lateness, strict=True)
    ]


def with_idle_watermark(call: Call[Any], parts: list[DataFrame], others: list[DataFrame]) -> DataFrame:
    """The streams that may fall silent, with one watermark: behind the newest row of all, ``others`` among them.

    One of them that is live is behind the newest row by its ``idle_after`` at most: a clock that never runs ahead.
    Rows of the others are read once more for their times alone, since Spark allows no watermark above another.
    """
    lags = [late + idle for late, idle in zip(call.lateness, call.idle_after, strict=True) if idle is not None]
    seen, nothing = F.expr("timestamp_micros(unix_micros(ts))").alias("seen"), F.lit(None).cast("binary").alias("block")
    blocks = [part.select("tile", "block", seen) for part in parts]
    times = [part.select("tile", nothing, seen) for part in others]
    clocked = union([*blocks, *times]).withWatermark("seen", f"{-(-max(lags) // 1000)} milliseconds")
    # A condition of blocks alone would be moved below the watermark, which would not see those rows.
    return clocked.where("block IS NOT NULL OR seen IS NULL") if times else clocked


def marker(keys: Sequence[int]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The mark of the streams' end, for every key."""

    def mark_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for newest in batch.column(0).to_pylist():
                blobs = [end_mark(newest)] * len(keys)
                yield pa.record_batch(
                    [pa.array(keys, pa.int32()), pa.array(blobs, pa.binary())], names=["tile", "block"]
                )

    return mark_task


def union(parts: list[DataFrame]) -> DataFrame:
    """The frames one after the other."""
    return reduce(DataFrame.union, parts)


def block_batches(blocks: Iterable[tuple[int, bytes, int]]) -> Iterator[pa.RecordBatch]:
    """Blocks by key, with the newest time in each, as they come: a large one alone, small ones together."""
    waiting: list[tuple[int, bytes, int]] = []
    for one in blocks:
        if waiting and max(len(one[1]), len(waiting[-1][1])) >= _LARGE:
            yield block_batch(*map(list, zip(*waiting, strict=True)))
            waiting = []
        waiting.append(one)
    if waiting:
        yield block_batch(*map(list, zip(*waiting, strict=True)))


def block_batch(keys: list[int], blocks: list[bytes], newest: list[int]) -> pa.RecordBatch:
    """Blocks on their way to keys, with the newest time in each."""
    times = pa.array(newest, pa.int64()).view(pa.timestamp("us", "UTC"))
    return pa.record_batch([pa.array(keys, pa.int32()), _binaries(blocks), times], names=["tile", "block", "ts"])


def _binaries(blocks: list[bytes]) -> pa.Array:
    """Blocks as a column; one alone is not copied, for it may be large."""
    if len(blocks) != 1:
        return pa.array(blocks, pa.binary())
    ends = np.array([0, len(blocks[0])], np.int32)
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(ends), pa.py_buffer(blocks[0])])


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches of a task as few tables."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= _FLUSH_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def runs(batches: Iterable[pa.RecordBatch], column: str) -> Iterator[pa.Table]:
    """The rows with one value of a whole number after those with another; rows with the same come together."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        values = batch.column(column).to_numpy()
        ends = [*(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)] if len(values) else []
        for begin, end in pairwise([0, *ends]):
            if waiting and waiting[-1].column(column)[0].as_py() != values[begin]:
                yield pa.Table.from_batches(waiting)
                waiting = []
            waiting.append(batch.slice(begin, end - begin))
    if waiting:
        yield pa.Table.from_batches(waiting)


def hash_text(text: str) -> int:
    """The same number for the same text in every process."""
    from zlib import crc32

    return crc32(text.encode())


def quoted(column: str) -> Any:
    """A column by its very name."""
    return F.col("`" + column.replace("`", "``") + "`")
