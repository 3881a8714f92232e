"""The similarity join as a Spark plan: encode -> tiles -> join -> answers and rejects.

    user rows --mapInArrow--> (tile, block) --shuffle--> one join per tile --mapInArrow--> tagged rows

Windows that go by rows put one stage more before the join: a bucket of groups waits for ticks to be complete, numbers
their rows and sends them on to the tiles.

In a batch query every tile is answered at once; in a streaming one it keeps its windows in Spark's state store.
"""

from __future__ import annotations

import json
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the house name of this module
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema

from appulse.engines.call import JoinCall, Options, resolve, to_table
from appulse.engines.spark import tile_join
from appulse.engines.spark.number_stage import NumberStage
from appulse.engines.spark.processor import JoinProcessor, NumberProcessor
from appulse.engines.spark.routing import bucketed, tiled
from appulse.engines.spark.session import check_session
from appulse.engines.spark.tile_join import TileJoin, read_table, table_bytes
from appulse.engines.spark.tiles import TilePlan, hashed_plan, planned, spread_keys
from appulse.engines.spark.tiling import Tiling
from appulse.errors import BadArgument, bad_rows
from appulse.model.encode import encode, infer_dimensions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from appulse.model.stream import Stream

#: What a tile reports of each micro-batch.
METRICS = (
    "tile",
    "newest",
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
    "left",
    "state_rows",
    "state_bytes",
    "state_bytes_read",
    "state_bytes_written",
    "seconds",
)
_MARKS = "tile int, block binary"
_BLOCKS = "tile int, block binary, ts timestamp"
# Windows that go by rows: how long they are in time nobody knows beforehand.
_WHOLE_SAMPLE = 1 << 60
# Rows wait for their task's other rows, so that a tile gets few blocks; not for more than this.
_FLUSH_BYTES = 256 << 20


@dataclass(frozen=True)
class SparkResult:
    """What stands behind a result frame."""

    call: JoinCall
    tiling: Tiling
    tagged: DataFrame
    answers: T.StructType
    rejects: T.StructType
    bad_rows: DataFrame | None  # of a batch result: the rejects alone
    rebuild: Callable[..., SparkResult]  # with another tiling, and perhaps a folder of end marks
    replanned: bool = False  # whether the call asks for tiles of its own making


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
    plan = _tile_plan(call, partitions, options)
    replanned = options.sample is not None or options.side is not None
    call = replace(call, options=replace(options, sample=None))  # the sample has served, and need not travel
    if not streaming:
        return remember(_build_batch(call, Tiling.of(plan, call.plan), streams))
    tiling = Tiling.of(replace(plan, slots=_shuffle_partitions(spark)), call.plan)
    return remember(replace(_build_stream(call, tiling, streams), replanned=replanned))


def _arrow_schema(schema: T.StructType) -> pa.Schema:
    """The Arrow schema in which Spark takes such rows from Python."""
    return to_arrow_schema(schema, timezone="UTC")


def remember(result: SparkResult) -> DataFrame:
    """The frame of answers that the user gets; what stands behind it stays findable."""
    frame = select_tag(result.tagged, "answer", result.answers)
    _RESULTS[frame] = result
    return frame


def _build_stream(call: JoinCall, tiling: Tiling, streams: Sequence[Stream], control: str | None = None) -> SparkResult:
    answers, rejects = _schemas(call, streams)
    blocks = _encoded(call, tiling, streams, control)
    if call.plan.rule is not None:
        blocks = blocks.groupBy("tile").transformWithStateInPandas(
            NumberProcessor(NumberStage(call, tiling), "number"),
            outputStructType="tile int, block binary",
            outputMode="append",
            timeMode="eventTime",
        )
    tagged = _stateful(call, tiling, blocks, _tagged_schema(answers, rejects))
    totals = [F.sum(f"metric_{name}").alias(name) for name in METRICS if name not in ("tile", "newest")]
    tagged = tagged.observe("appulse", *totals)

    def rebuild(other: Tiling, folder: str | None = None) -> SparkResult:
        return _build_stream(call, other, streams, folder)

    return SparkResult(call, tiling, tagged, answers, rejects, None, rebuild)


def _build_batch(call: JoinCall, tiling: Tiling, streams: Sequence[Stream]) -> SparkResult:
    answers, rejects = _schemas(call, streams)
    schema = _tagged_schema(answers, rejects)
    blocks = _encoded(call, tiling, streams)
    tagged = _at_once(call, tiling, blocks, schema)
    bad_rows = select_tag(_bad_rows(call, streams, schema), "reject", rejects)

    def rebuild(other: Tiling, _: str | None = None) -> SparkResult:
        return _build_batch(call, other, streams)

    return SparkResult(call, tiling, tagged, answers, rejects, bad_rows, rebuild)


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
    figures = [T.StructField("distance", number), T.StructField("probability", number)]
    if call.plan.changes:
        figures += [T.StructField("change", T.IntegerType()), T.StructField("time", time)]
    answers = T.StructType([*sides, *figures])
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


def _tile_plan(call: JoinCall, partitions: int, options: Options) -> TilePlan:
    if options.sample is None:
        return hashed_plan(call.plan, partitions, call.encodings[0].gaussian_reach, options.side)
    from appulse.engines.local import as_table

    samples = options.sample if isinstance(options.sample, dict) else dict.fromkeys(call.plan.streams, options.sample)
    rows = []
    for encoding in call.encodings:
        frame = samples.get(encoding.name)
        if frame is None:
            continue
        frame = frame.select(*map(_quoted, encoding.columns())).toArrow() if isinstance(frame, DataFrame) else frame
        table = as_table(frame)
        known = _with_dimensions(call, table, encoding.name)
        rows.append(encode(table, known)[0])
    return planned(call.plan, partitions, rows, max(call.plan.windows, default=_WHOLE_SAMPLE), options.side)


def _with_dimensions(call: JoinCall, table: pa.Table, name: str) -> Any:
    encoding = next(e for e in call.encodings if e.name == name)
    if encoding.dimensions is not None:
        return encoding
    return replace(encoding, dimensions=infer_dimensions(table, encoding.model))


def _quoted(column: str) -> Any:
    return F.col("`" + column.replace("`", "``") + "`")


def _encoded(call: JoinCall, tiling: Tiling, streams: Sequence[Stream], control: str | None = None) -> DataFrame:
    """All streams as blocks, one or a few per key, task and micro-batch: for tiles, or for buckets to be numbered.

    ``control`` is a folder that a drain puts the mark of the streams' end in.
    """
    parts: list[DataFrame] = []
    streaming = streams[0].frame.isStreaming
    delays = _watermarks(call)
    for i, encoding in enumerate(call.encodings):
        frame = streams[i].frame.select(*map(_quoted, encoding.columns()))
        part = frame.mapInArrow(_encoder(call, tiling, i), _BLOCKS)
        if streaming and delays[i] is not None:
            # Spark's watermark is the one clock all keys share. It would also drop late rows unseen, were the time
            # column still there below.
            part = part.withWatermark("ts", f"{delays[i]} milliseconds")
        parts.append(part)
    if not streaming:
        return _union(parts)
    if None in delays:
        parts = [_with_idle_watermark(call, parts)]
    blocks = _union([part.select("tile", "block") for part in parts])
    if control is None:
        return blocks
    spark = streams[0].frame.sparkSession
    marks = spark.readStream.schema("newest long").json(control)
    return blocks.union(marks.mapInArrow(_marker(bucket_keys(call, tiling) if call.plan.rule else tiling.keys), _MARKS))


def _watermarks(call: JoinCall) -> list[int | None]:
    """Each stream's delay in milliseconds; None where it is clocked with the others, for it may fall silent."""
    return [
        None if idle is not None else -(-late // 1000)
        for idle, late in zip(call.idle_after, call.lateness, strict=True)
    ]


def _with_idle_watermark(call: JoinCall, parts: list[DataFrame]) -> DataFrame:
    """All streams, with one more watermark for those that may fall silent.

    One of them that is live is behind the newest row by its ``idle_after`` at most: a clock that never runs ahead.
    """
    lags = [late + idle for late, idle in zip(call.lateness, call.idle_after, strict=True) if idle is not None]
    renamed = [
        part.select("tile", "block", F.expr("timestamp_micros(unix_micros(ts))").alias("seen")) for part in parts
    ]
    return _union(renamed).withWatermark("seen", f"{-(-max(lags) // 1000)} milliseconds")


def _marker(keys: Sequence[int]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def mark_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for newest in batch.column(0).to_pylist():
                blobs = [tile_join.end_mark(newest)] * len(keys)
                yield pa.record_batch(
                    [pa.array(keys, pa.int32()), pa.array(blobs, pa.binary())], names=["tile", "block"]
                )

    return mark_task


def bucket_keys(call: JoinCall, tiling: Tiling) -> list[int]:
    """The numbers by which Spark knows the buckets of groups: one, or as many as there are tiles to feed."""
    plan = tiling.versions[0].plan
    return spread_keys(plan.tiles if call.plan.grouped else 1, plan.slots or plan.tiles)


def _union(parts: list[DataFrame]) -> DataFrame:
    union = parts[0]
    for part in parts[1:]:
        union = union.union(part)
    return union


def _encoder(
    call: JoinCall, tiling: Tiling, stream: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def encode_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return blocks_of_task(batches, call, tiling, stream)

    return encode_task


def blocks_of_task(
    batches: Iterable[pa.RecordBatch], call: JoinCall, tiling: Tiling, stream: int
) -> Iterator[pa.RecordBatch]:
    """The blocks of one task's rows."""
    encoding = call.encodings[stream]
    keys = tiling.keys
    buckets = bucket_keys(call, tiling) if call.plan.rule is not None else []
    for table in _gathered(batches):
        if encoding.dimensions is None:
            encoding = replace(encoding, dimensions=infer_dimensions(table, encoding.model))
        objects, rejects = encode(table, encoding)
        if len(rejects):
            _fail_if_asked(call, rejects)
            # Under many keys, so that a flood of bad rows is no hot spot.
            newest = int(objects.time.max()) if len(objects) else 0
            many = buckets or keys
            where = many[hash_text(str(rejects.column("detail")[0]) + str(len(rejects))) % len(many)]
            yield _block_batch([where], [table_bytes(tile_join.REJECTS, rejects)], [newest])
        if len(objects) == 0:
            continue
        if buckets:
            blocks = [(buckets[b], block, newest) for b, block, newest in bucketed(objects, stream, len(buckets))]
        else:
            blocks = [(keys[t], block, at) for t, block, at in tiled(objects, stream, tiling, tiling.copies(objects))]
        yield _block_batch(*map(list, zip(*blocks, strict=True)))


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


def _stateful(call: JoinCall, tiling: Tiling, blocks: DataFrame, schema: T.StructType) -> DataFrame:
    out = blocks.groupBy("tile").transformWithStateInPandas(
        JoinProcessor(TileJoin(call, tiling), "join"),
        outputStructType="out binary",
        outputMode="append",
        timeMode="eventTime" if call.plan.rule is None else "none",
    )
    arrow = _arrow_schema(schema)

    def decode_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _decoded((bytes(out.as_buffer()) for out in batch.column(0)), arrow)

    return out.mapInArrow(decode_task, schema)


def _at_once(call: JoinCall, tiling: Tiling, blocks: DataFrame, schema: T.StructType) -> DataFrame:
    arrow = _arrow_schema(schema)
    stage = TileJoin(call, tiling)
    if call.plan.rule is not None:
        numbers = NumberStage(call, tiling)

        def number_bucket(table: pa.Table) -> pa.Table:
            out = numbers.at_once(_blobs(table))
            tiles, blobs = pa.array([tile for tile, _ in out], pa.int32()), pa.array([b for _, b in out], pa.binary())
            return pa.table({"tile": tiles, "block": blobs})

        blocks = blocks.groupBy("tile").applyInArrow(number_bucket, _MARKS)
    elif call.plan.changes:
        # Which pairs have left by the end is told by the last tick of all.
        last = blocks.agg(F.expr("unix_micros(max(ts))").alias("newest"))
        blocks = blocks.crossJoin(F.broadcast(last))

    def join_tile(table: pa.Table) -> pa.Table:
        newest = table.column("newest")[0].as_py() if "newest" in table.column_names else None
        answers = stage.at_once(table.column("tile")[0].as_py(), _blobs(table), newest)
        return pa.Table.from_batches([_tagged("answer", to_table(answers, call), arrow)])

    return blocks.repartition(tiling.latest.tiles, "tile").groupBy("tile").applyInArrow(join_tile, schema)


def _blobs(table: pa.Table) -> list[bytes]:
    return [bytes(blob.as_buffer()) for blob in table.column("block")]


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
