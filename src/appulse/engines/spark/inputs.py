"""From user rows to blocks: encode, and the clock that all keys share."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the house name of this module

from appulse.engines.spark.blobs import end_mark
from appulse.model.defects import read_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from appulse.engines.base import Call

MARKS = "tile int, block binary"
BLOCKS = "tile int, block binary, ts timestamp"
# Rows wait for their task's other rows, so that a tile gets few blocks; not for more than this.
_FLUSH_BYTES = 256 << 20
_NOW = "appulse batch time"


def read(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """What a call reads of a frame: these columns, and messages that could not be decoded."""
    return frame.select(*map(quoted, read_columns(frame, columns)))


def dated(frame: DataFrame) -> DataFrame:
    """A streaming frame with the time of its micro-batch, which is the same when that is run again."""
    return frame.withColumn(_NOW, F.current_timestamp()) if frame.isStreaming else frame


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


def with_idle_watermark(call: Call[Any], parts: list[DataFrame]) -> DataFrame:
    """All streams, with one more watermark for those that may fall silent.

    One of them that is live is behind the newest row by its ``idle_after`` at most: a clock that never runs ahead.
    """
    lags = [late + idle for late, idle in zip(call.lateness, call.idle_after, strict=True) if idle is not None]
    renamed = [
        part.select("tile", "block", F.expr("timestamp_micros(unix_micros(ts))").alias("seen")) for part in parts
    ]
    return union(renamed).withWatermark("seen", f"{-(-max(lags) // 1000)} milliseconds")


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


def block_batch(keys: list[int], blocks: list[bytes], newest: list[int]) -> pa.RecordBatch:
    """Blocks on their way to keys, with the newest time in each."""
    times = pa.array(newest, pa.int64()).view(pa.timestamp("us", "UTC"))
    return pa.record_batch(
        [pa.array(keys, pa.int32()), pa.array(blocks, pa.binary()), times], names=["tile", "block", "ts"]
    )


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


def hash_text(text: str) -> int:
    """The same number for the same text in every process."""
    from zlib import crc32

    return crc32(text.encode())


def quoted(column: str) -> Any:
    """A column by its very name."""
    return F.col("`" + column.replace("`", "``") + "`")
