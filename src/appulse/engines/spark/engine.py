"""The similarity join as a Spark plan: encode -> tiles -> join -> answers and rejects.

    user rows --mapInArrow--> (tile, block) --shuffle--> one join per tile --mapInArrow--> tagged rows

In a batch query every tile is answered at once; in a streaming one it keeps its windows in Spark's state store.
"""

from __future__ import annotations

import json
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the house name of this module
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema

from appulse.engines.call import JoinCall, Options, resolve, to_table
from appulse.engines.spark import tile_join
from appulse.engines.spark.codec import pack, unpack
from appulse.engines.spark.metrics import LEVELS
from appulse.engines.spark.processor import JoinProcessor
from appulse.engines.spark.session import check_session
from appulse.engines.spark.tile_join import TileJoin, make_operator, read_table, table_bytes
from appulse.engines.spark.tiles import TilePlan, hashed_plan, planned
from appulse.errors import BadArgument, bad_rows
from appulse.model.encode import encode, infer_dimensions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from appulse.model.objects import Objects
    from appulse.model.stream import Stream

#: What a tile reports of each micro-batch.
METRICS = (
    "tile",
    "rows",
    "late",
    "rejected",
    "candidates",
    "elsewhere",
    "pruned_reach",
    "pruned_mass",
    "pruned_cantelli",
    "pruned_markov",
    "pruned_projection",
    "accepted",
    "refined",
    "answers",
    "state_rows",
    "state_bytes",
    "state_bytes_read",
    "state_bytes_written",
    "seconds",
)
_BLOCKS = "tile int, block binary, ts timestamp"
# Rows wait for their task's other rows, so that a tile gets few blocks; not for more than this.
_FLUSH_BYTES = 256 << 20


@dataclass(frozen=True)
class SparkResult:
    """What stands behind a result frame."""

    call: JoinCall
    plan: TilePlan
    tagged: DataFrame
    answers: T.StructType
    rejects: T.StructType
    bad_rows: DataFrame | None  # of a batch result: the rejects alone
    rebuild: Callable[[TilePlan], SparkResult]


_RESULTS: weakref.WeakKeyDictionary[DataFrame, SparkResult] = weakref.WeakKeyDictionary()


def result_of(frame: DataFrame) -> SparkResult:
    """What stands behind a frame that a call of appulse returned."""
    result = _RESULTS.get(frame)
    if result is None:
        raise BadArgument(
            "This DataFrame is not what a call of appulse returned. Pass the result itself, before select or filter."
        )
    return result


def spark_join(streams: Sequence[Stream], *, options: Options, **settings: Any) -> DataFrame:
    """The join of Spark frames, lazily; streaming if its inputs are."""
    frames = [stream.frame for stream in streams]
    streaming = any(frame.isStreaming for frame in frames)
    if streaming and not all(frame.isStreaming for frame in frames):
        raise BadArgument(
            "The call mixes streaming and batch frames, which Spark cannot union. Read the batch side as a stream "
            "(spark.readStream), or collect it and use it in a batch call."
        )
    spark = frames[0].sparkSession
    if streaming:
        check_session(spark)
        streams = [_with_watermark_delay(stream) for stream in streams]
    call = resolve(streams, [_arrow_schema(frame.schema) for frame in frames], options=options, **settings)
    partitions = options.partitions or _default_partitions(spark, streaming=streaming)
    plan = _tile_plan(call, partitions, options, streams)
    call = replace(call, options=replace(options, sample=None))  # the sample has served, and need not travel
    if streaming:
        return remember(_build_stream(call, replace(plan, slots=_shuffle_partitions(spark)), streams))
    return remember(_build_batch(call, plan, streams))


def _arrow_schema(schema: T.StructType) -> pa.Schema:
    """The Arrow schema in which Spark takes such rows from Python."""
    return to_arrow_schema(schema, timezone="UTC")


def remember(result: SparkResult) -> DataFrame:
    """The frame of answers that the user gets; what stands behind it stays findable."""
    frame = select_tag(result.tagged, "answer", result.answers)
    _RESULTS[frame] = result
    return frame


def _build_stream(call: JoinCall, plan: TilePlan, streams: Sequence[Stream]) -> SparkResult:
    keys = plan.keys()
    answers, rejects = _schemas(call, streams)
    blocks = _encoded(call, plan, keys, streams, streaming=True)
    tagged = _stateful(call, plan, keys, blocks, _tagged_schema(answers, rejects))
    sums = {name: F.sum(f"metric_{name}") for name in METRICS if name != "tile"}
    # A batch without rows did nothing, and leaves the state as it was.
    totals = [(s if n in LEVELS else F.coalesce(s, F.lit(0.0))).alias(n) for n, s in sums.items()]
    tagged = tagged.observe("appulse", *totals)
    return SparkResult(call, plan, tagged, answers, rejects, None, lambda other: _build_stream(call, other, streams))


def _build_batch(call: JoinCall, plan: TilePlan, streams: Sequence[Stream]) -> SparkResult:
    keys = plan.keys()
    answers, rejects = _schemas(call, streams)
    schema = _tagged_schema(answers, rejects)
    blocks = _encoded(call, plan, keys, streams, streaming=False)
    tagged = _at_once(call, plan, keys, blocks, schema)
    bad_rows = select_tag(_bad_rows(call, streams, schema), "reject", rejects)
    return SparkResult(call, plan, tagged, answers, rejects, bad_rows, lambda other: _build_batch(call, other, streams))


def rejects_of(result: DataFrame) -> DataFrame:
    """Rows of a batch call that could not be used."""
    known = result_of(result)
    if known.bad_rows is None:
        raise BadArgument(
            "Rejects of a streaming result leave with its query. Give them a sink: ap.start(result, sink, rejects=...)."
        )
    return known.bad_rows


def _default_partitions(spark: Any, *, streaming: bool) -> int:
    cores = int(spark.sparkContext.defaultParallelism) if hasattr(spark, "_jsc") else _shuffle_partitions(spark)
    return min(cores, _shuffle_partitions(spark)) if streaming else cores


def _shuffle_partitions(spark: Any) -> int:
    return int(spark.conf.get("spark.sql.shuffle.partitions"))


def _with_watermark_delay(stream: Stream) -> Stream:
    """The stream with the delay of a `withWatermark` on its frame as its lateness."""
    delays = _watermark_delays(stream.frame)
    if not delays:
        return stream
    if stream.lateness is not None:
        raise BadArgument(
            f"Stream {stream.name or stream.key!r} has lateness={stream.lateness!r} and a withWatermark on its frame. "
            "Give one of them."
        )
    return replace(stream, lateness=max(delays) / 1000.0)


def _watermark_delays(frame: DataFrame) -> list[int]:
    """Delays in milliseconds of the watermarks in a frame's plan; none where Spark does not let us look (Connect)."""
    if not hasattr(frame, "_jdf"):
        return []
    delays, waiting = [], [frame._jdf.queryExecution().analyzed()]  # noqa: SLF001 - there is no public way
    while waiting:
        node = waiting.pop()
        if node.nodeName() == "EventTimeWatermark":
            delays.append(
                int(node.delay().days() * 86_400_000 + node.delay().microseconds() // 1000)
                if hasattr(node.delay(), "days")
                else int(str(node.delay()))
            )
        children = node.children()
        waiting += [children.apply(i) for i in range(children.size())]
    return delays


def _schemas(call: JoinCall, streams: Sequence[Stream]) -> tuple[T.StructType, T.StructType]:
    """Spark's schemas of answers and rejects: keys and times in the types they came in."""
    key = _common_type([stream.frame.schema[stream.key].dataType for stream in streams], call.key_type)
    time = _common_type([stream.frame.schema[stream.time].dataType for stream in streams], call.time_type)
    text, number = T.StringType(), T.DoubleType()
    sides = [
        T.StructField(f"{side}_{what}", kind)
        for side in ("left", "right")
        for what, kind in (("stream", text), ("key", key), ("time", time))
    ]
    answers = T.StructType([*sides, T.StructField("distance", number), T.StructField("probability", number)])
    rejects = T.StructType(
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
    return answers, rejects


def _common_type(kinds: Sequence[T.DataType], resolved: pa.DataType) -> T.DataType:
    if all(kind == kinds[0] for kind in kinds):
        return kinds[0]
    return from_arrow_type(resolved)


def _tagged_schema(answers: T.StructType, rejects: T.StructType) -> T.StructType:
    """Answers, rejects and metrics side by side; ``tag`` tells which a row is."""
    return T.StructType(
        [
            T.StructField("tag", T.StringType()),
            *[T.StructField(f"answer_{f.name}", f.dataType) for f in answers],
            *[T.StructField(f"reject_{f.name}", f.dataType) for f in rejects],
            *[T.StructField(f"metric_{name}", T.DoubleType()) for name in METRICS],
        ]
    )


def select_tag(tagged: DataFrame, tag: str, schema: T.StructType) -> DataFrame:
    """The rows of one tag, under the names users know."""
    return tagged.where(F.col("tag") == tag).select(*[F.col(f"{tag}_{f.name}").alias(f.name) for f in schema])


def _tile_plan(call: JoinCall, partitions: int, options: Options, streams: Sequence[Stream]) -> TilePlan:
    if options.sample is None:
        return hashed_plan(call.plan, partitions, call.encodings[0].gaussian_reach, options.side)
    from appulse.engines.local import as_table

    samples = options.sample if isinstance(options.sample, dict) else dict.fromkeys(call.plan.streams, options.sample)
    rows = []
    for encoding, stream in zip(call.encodings, streams, strict=True):
        frame = samples.get(encoding.name)
        if frame is None:
            continue
        frame = (
            frame.select(*map(_quoted, stream.columns(encoding.differ))).toArrow()
            if isinstance(frame, DataFrame)
            else frame
        )
        table = as_table(frame)
        known = _with_dimensions(call, table, encoding.name)
        rows.append(encode(table, known)[0])
    return planned(call.plan, partitions, rows, max(call.plan.windows), options.side)


def _with_dimensions(call: JoinCall, table: pa.Table, name: str) -> Any:
    encoding = next(e for e in call.encodings if e.name == name)
    if encoding.dimensions is not None:
        return encoding
    return replace(encoding, dimensions=infer_dimensions(table, encoding.model))


def _quoted(column: str) -> Any:
    return F.col("`" + column.replace("`", "``") + "`")


def _encoded(
    call: JoinCall, plan: TilePlan, keys: list[int], streams: Sequence[Stream], *, streaming: bool
) -> DataFrame:
    """All streams as blocks, one or a few per tile, task and micro-batch."""
    parts: list[DataFrame] = []
    for i, (encoding, late) in enumerate(zip(call.encodings, call.lateness, strict=True)):
        frame = streams[i].frame.select(*map(_quoted, encoding.columns()))
        part = frame.mapInArrow(_encoder(call, plan, keys, i), _BLOCKS)
        if streaming:
            # Spark's watermark is the one clock all tiles share. It would also drop late rows unseen, were the
            # time column still there below.
            part = part.withWatermark("ts", f"{-(-late // 1000)} milliseconds")
        parts.append(part.select("tile", "block"))
    return _union(parts)


def _union(parts: list[DataFrame]) -> DataFrame:
    union = parts[0]
    for part in parts[1:]:
        union = union.union(part)
    return union


def _encoder(
    call: JoinCall, plan: TilePlan, keys: list[int], stream: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def encode_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return blocks_of_task(batches, call, plan, keys, stream)

    return encode_task


def blocks_of_task(
    batches: Iterable[pa.RecordBatch], call: JoinCall, plan: TilePlan, keys: list[int], stream: int
) -> Iterator[pa.RecordBatch]:
    """The blocks of one task's rows."""
    encoding = call.encodings[stream]
    for table in _gathered(batches):
        if encoding.dimensions is None:
            encoding = replace(encoding, dimensions=infer_dimensions(table, encoding.model))
        objects, rejects = encode(table, encoding)
        if len(rejects):
            _fail_if_asked(call, rejects)
            # Under many keys, so that a flood of bad rows is no hot spot.
            newest = int(objects.time.max()) if len(objects) else 0
            where = keys[hash_text(str(rejects.column("detail")[0]) + str(len(rejects))) % len(keys)]
            yield _block_batch([where], [table_bytes(tile_join.REJECTS, rejects)], [newest])
        yield from _tiled(objects, stream, plan, keys)


def _tiled(objects: Objects, stream: int, plan: TilePlan, keys: list[int]) -> Iterator[pa.RecordBatch]:
    if len(objects) == 0:
        return
    rows, tiles, lanes = plan.copies(objects)
    order = np.lexsort((objects.time[rows], lanes, tiles))
    rows, tiles, lanes = rows[order], tiles[order], lanes[order]
    copied = objects.take(rows)
    cuts = np.flatnonzero((np.diff(tiles) != 0) | (np.diff(lanes) != 0)) + 1
    begins, ends = [0, *cuts.tolist()], [*cuts.tolist(), len(rows)]
    # A fine tile knows no lanes: they only tell coarse rows apart in the coarse one.
    blocks = [
        pack(copied.slice(a, b), stream, int(lanes[a]) if tiles[a] >= plan.tiles else 0)
        for a, b in zip(begins, ends, strict=True)
    ]
    newest = [int(copied.time[b - 1]) for b in ends]
    yield _block_batch([keys[tiles[a]] for a in begins], blocks, newest)


def _block_batch(keys: list[int], blocks: list[bytes], newest: list[int]) -> pa.RecordBatch:
    times = pa.array(newest, pa.int64()).view(pa.timestamp("us", "UTC"))
    return pa.record_batch(
        [pa.array(keys, pa.int32()), pa.array(blocks, pa.binary()), times], names=["tile", "block", "ts"]
    )


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
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


def _fail_if_asked(call: JoinCall, rejects: pa.Table) -> None:
    if call.on_reject == "fail":
        raise bad_rows(len(rejects), rejects.slice(0, 1).to_pylist()[0])


def hash_text(text: str) -> int:
    """The same number for the same text in every process."""
    from zlib import crc32

    return crc32(text.encode())


def _stateful(call: JoinCall, plan: TilePlan, keys: list[int], blocks: DataFrame, schema: T.StructType) -> DataFrame:
    out = blocks.groupBy("tile").transformWithStateInPandas(
        JoinProcessor(TileJoin(call, plan, tuple(keys))),
        outputStructType="out binary",
        outputMode="append",
        timeMode="eventTime",
    )
    arrow = _arrow_schema(schema)

    def decode_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _decoded((bytes(out.as_buffer()) for out in batch.column(0)), arrow)

    return out.mapInArrow(decode_task, schema)


def _at_once(call: JoinCall, plan: TilePlan, keys: list[int], blocks: DataFrame, schema: T.StructType) -> DataFrame:
    arrow = _arrow_schema(schema)
    tile_of = {key: tile for tile, key in enumerate(keys)}

    def join_tile(table: pa.Table) -> pa.Table:
        tile = tile_of[table.column("tile")[0].as_py()]
        operator = make_operator(call, plan, tile)
        blobs = [bytes(blob.as_buffer()) for blob in table.column("block")]
        answers = operator.push([unpack(blob) for blob in blobs if blob[:1] != tile_join.REJECTS])
        return pa.Table.from_batches([_tagged("answer", to_table(answers, call), arrow)])

    spread = blocks.repartition(plan.tiles, "tile")
    return spread.groupBy("tile").applyInArrow(join_tile, schema)


def _bad_rows(call: JoinCall, streams: Sequence[Stream], schema: T.StructType) -> DataFrame:
    """The rejects of a batch call alone, without the join."""
    arrow = _arrow_schema(schema)
    parts: list[DataFrame] = []
    for i, encoding in enumerate(call.encodings):
        frame = streams[i].frame.select(*map(_quoted, encoding.columns()))
        parts.append(frame.mapInArrow(_rejecter(call, i, arrow), schema))
    return _union(parts)


def _rejecter(
    call: JoinCall, stream: int, arrow: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def reject_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoding = call.encodings[stream]
        for table in _gathered(batches):
            if encoding.dimensions is None:
                encoding = replace(encoding, dimensions=infer_dimensions(table, encoding.model))
            yield _tagged("reject", encode(table, encoding)[1], arrow)

    return reject_task


def _decoded(blobs: Iterable[bytes], arrow: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Tagged rows of what tiles put out."""
    for blob in blobs:
        if blob[:1] == tile_join.METRICS:
            told = json.loads(blob[1:])
            row = pa.table({name: [float(told.get(name, 0))] for name in METRICS})
            yield _tagged("metric", row, arrow)
            continue
        table = read_table(blob)
        yield _tagged("answer" if blob[:1] == tile_join.ANSWERS else "reject", table, arrow)


def _tagged(tag: str, table: pa.Table, arrow: pa.Schema) -> pa.RecordBatch:
    """The rows of a table in the tagged schema, null where it has nothing to say."""
    n = len(table)
    columns = []
    for column in arrow:
        if column.name == "tag":
            columns.append(pa.repeat(pa.scalar(tag, column.type), n))
        elif column.name.startswith(f"{tag}_"):
            values = table.column(column.name.removeprefix(f"{tag}_")).combine_chunks()
            values = values.chunk(0) if isinstance(values, pa.ChunkedArray) else values
            columns.append(_as_type(values, column.type))
        else:
            columns.append(pa.nulls(n, column.type))
    return pa.RecordBatch.from_arrays(columns, schema=arrow)


def _as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)
