"""From user rows to blocks: encode, and the clock that all keys share."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the house name of this module

from appulse.engines.arriving import Arrivals
from appulse.engines.call import own_keys, refused
from appulse.engines.results import is_token
from appulse.engines.spark import tile_join
from appulse.engines.spark.routing import bucketed, tiled
from appulse.engines.spark.tile_join import table_bytes
from appulse.engines.spark.tiles import spread_keys
from appulse.errors import BadArgument, NotBuilt, bad_rows
from appulse.model.defects import FUTURE
from appulse.model.encode import encode, infer_dimensions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from appulse.engines.call import AnyCall, Call
    from appulse.engines.spark.tiling import Tiling
    from appulse.model.stream import Stream

MARKS = "tile int, block binary"
_BLOCKS = "tile int, block binary, ts timestamp"
# Rows wait for their task's other rows, so that a tile gets few blocks; not for more than this.
_FLUSH_BYTES = 256 << 20
_NOW = "appulse batch time"


def encoded(call: Call, tiling: Tiling, streams: Sequence[Stream], control: str | None = None) -> DataFrame:
    """All streams as blocks, one or a few per key, task and micro-batch: for tiles, or for buckets to be numbered.

    ``control`` is a folder that a drain puts the mark of the streams' end in.
    """
    parts: list[DataFrame] = []
    streaming = streams[0].frame.isStreaming
    delays = watermarks(call)
    for i, encoding in enumerate(call.encodings):
        frame = dated(streams[i].frame.select(*map(quoted, encoding.columns())))
        part = frame.mapInArrow(_encoder(call, tiling, i), _BLOCKS)
        if streaming and delays[i] is not None:
            # Spark's watermark is the one clock all keys share. It would also drop late rows unseen, were the time
            # column still there below.
            part = part.withWatermark("ts", f"{delays[i]} milliseconds")
        parts.append(part)
    if not streaming:
        return union(parts)
    if None in delays:
        parts = [with_idle_watermark(call, parts)]
    blocks = union([part.select("tile", "block") for part in parts])
    if control is None:
        return blocks
    spark = streams[0].frame.sparkSession
    marks = spark.readStream.schema("newest long").json(control)
    return blocks.union(marks.mapInArrow(marker(bucket_keys(call, tiling) if call.bucketed else tiling.keys), MARKS))


def dated(frame: DataFrame) -> DataFrame:
    """A streaming frame with the time of its micro-batch, which is the same when that is run again."""
    return frame.withColumn(_NOW, F.current_timestamp()) if frame.isStreaming else frame


def batch_time(table: pa.Table) -> int | None:
    """The time of the micro-batch (microseconds) that a task's rows are of; None in a batch query."""
    if _NOW not in table.column_names or len(table) == 0:
        return None
    return int(table[_NOW][:1].cast(pa.timestamp("us", "UTC")).cast(pa.int64())[0].as_py())


def watermarks(call: AnyCall) -> list[int | None]:
    """Each stream's delay in milliseconds; None where it is clocked with the others, for it may fall silent."""
    return [
        None if idle is not None else -(-late // 1000)
        for idle, late in zip(call.idle_after, call.lateness, strict=True)
    ]


def with_idle_watermark(call: AnyCall, parts: list[DataFrame]) -> DataFrame:
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
                blobs = [tile_join.end_mark(newest)] * len(keys)
                yield pa.record_batch(
                    [pa.array(keys, pa.int32()), pa.array(blobs, pa.binary())], names=["tile", "block"]
                )

    return mark_task


def bucket_keys(call: AnyCall, tiling: Tiling) -> list[int]:
    """The numbers by which Spark knows the buckets of groups: one, or as many as there are tiles to feed."""
    plan = tiling.versions[0].plan
    return spread_keys(plan.tiles if call.grouped else 1, plan.slots or plan.tiles)


def union(parts: list[DataFrame]) -> DataFrame:
    """The frames one after the other."""
    return reduce(DataFrame.union, parts)


def _encoder(call: Call, tiling: Tiling, stream: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def encode_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return blocks_of_task(batches, call, tiling, stream)

    return encode_task


def blocks_of_task(
    batches: Iterable[pa.RecordBatch], call: Call, tiling: Tiling, stream: int
) -> Iterator[pa.RecordBatch]:
    """The blocks of one task's rows."""
    encoding = call.encodings[stream]
    keys = tiling.keys
    buckets = bucket_keys(call, tiling) if call.bucketed else []
    arrivals = Arrivals((encoding,), (call.ahead[stream],))
    for table in gathered(batches):
        if encoding.dimensions is None:
            encoding = replace(encoding, dimensions=infer_dimensions(table, encoding.model))
        objects, rejects = encode(table, encoding)
        judged = arrivals.judge(0, objects.time, own_keys(objects, encoding), batch_time(table))
        arrivals.settle()
        if len(judged):
            ahead = refused(objects.take(judged.rows), encoding, FUTURE, judged.details)
            rejects = pa.concat_tables([rejects, ahead])
            objects = objects.take(np.setdiff1d(np.arange(len(objects)), judged.rows))
        if len(rejects):
            fail_if_asked(call, rejects)
            # Under many keys, so that a flood of bad rows is no hot spot.
            newest = int(objects.time.max()) if len(objects) else 0
            many = buckets or keys
            where = many[hash_text(str(rejects.column("detail")[0]) + str(len(rejects))) % len(many)]
            yield block_batch([where], [table_bytes(tile_join.REJECTS, rejects)], [newest])
        if len(objects) == 0:
            continue
        taken = getattr(encoding.fill, "taken", None)
        if taken is not None:
            told = tile_join.metrics_blob(repository=taken)
            yield block_batch([(buckets or keys)[0]], [told], [int(objects.time.min())])
        if buckets:
            blocks = [(buckets[b], block, newest) for b, block, newest in bucketed(objects, stream, len(buckets))]
        else:
            blocks = [(keys[t], block, at) for t, block, at in tiled(objects, stream, tiling, tiling.copies(objects))]
        yield block_batch(*map(list, zip(*blocks, strict=True)))


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


def fail_if_asked(call: AnyCall, rejects: pa.Table) -> None:
    """Raise `BadInput` if there are rejects, and the call asks to fail."""
    if len(rejects) and call.on_reject == "fail":
        raise bad_rows(len(rejects), rejects.slice(0, 1).to_pylist()[0])


def hash_text(text: str) -> int:
    """The same number for the same text in every process."""
    from zlib import crc32

    return crc32(text.encode())


def quoted(column: str) -> Any:
    """A column by its very name."""
    return F.col("`" + column.replace("`", "``") + "`")


def with_watermark_delay(stream: Stream) -> Stream:
    """The stream with the delay of a `withWatermark` on its frame as its lateness.

    Spark lets a query set a watermark once, so a stream that another call of this kind puts out is refused.
    """
    own = repr(stream.name or stream.key)
    delay = watermark_delay(stream.frame, f"Stream {own}")
    if delay is None:
        return stream
    if stream.lateness is not None:
        raise BadArgument(
            f"Stream {own} has lateness={stream.lateness!r} and a withWatermark on its frame. Give one of them."
        )
    return replace(stream, lateness=delay)


def watermark_delay(frame: DataFrame, what: str) -> float | None:
    """The delay, in seconds, of a `withWatermark` on a frame; None without one."""
    nodes = list(_plan_of(frame))
    if any(node.nodeName().startswith("TransformWithState") for node in nodes):
        raise NotBuilt(
            f"{what} is what another streaming call puts out, and Spark lets no query set a watermark twice. "
            "Write that result to files by ap.start, and read them as a stream in a second query; or use batch frames."
        )
    delays = [_delay_of(node, frame) for node in nodes if node.nodeName() == "EventTimeWatermark"]
    return max(delays) / 1000.0 if delays else None


def tokens_in(frame: DataFrame) -> list[str]:
    """The tokens of the results that a frame was made of, the latest on each way down its plan; none on Connect."""
    if not hasattr(frame, "_jdf"):
        return []
    waiting = [frame._jdf.queryExecution().analyzed()]  # noqa: SLF001 - there is no public way
    found: list[str] = []
    while waiting:
        node = waiting.pop()
        if node.nodeName() == "SubqueryAlias" and is_token(name := node.alias()):
            found.append(name)
            continue
        children = node.children()
        waiting += [children.apply(i) for i in range(children.size())]
    return list(dict.fromkeys(found))


def _plan_of(frame: DataFrame) -> Iterator[Any]:
    """The nodes of a frame's plan; none where Spark does not let us look (Connect)."""
    if not hasattr(frame, "_jdf"):
        return
    waiting = [frame._jdf.queryExecution().analyzed()]  # noqa: SLF001 - there is no public way
    while waiting:
        node = waiting.pop()
        yield node
        children = node.children()
        waiting += [children.apply(i) for i in range(children.size())]


def _delay_of(watermark: Any, frame: DataFrame) -> int:
    """The delay of a watermark in milliseconds."""
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001 - there is no public way
    return int(jvm.org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark.getDelayMs(watermark.delay()))
