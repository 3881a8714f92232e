"""The similarity join as a Spark plan: encode -> tiles -> join -> answers and rejects.

    user rows --mapInArrow--> (tile, block) --shuffle--> one join per tile --mapInArrow--> tagged rows

Windows that go by rows put one stage more before the join: a bucket of groups waits for ticks to be complete, numbers
their rows and sends them on to the tiles.

In a batch query every tile is answered at once; in a streaming one it keeps its windows in Spark's state store.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the house name of this module
from pyspark.sql import types as T  # noqa: N812

from appulse.engines.call import AnyCall, Call, JoinCall, resolve, to_table
from appulse.engines.results import Behind, new_token
from appulse.engines.spark.imputing import with_shared_fills
from appulse.engines.spark.inputs import MARKS, encoded, gathered, quoted, tokens_in, union, with_watermark_delay
from appulse.engines.spark.number_stage import NumberStage
from appulse.engines.spark.processor import AnswerProcessor, NumberProcessor
from appulse.engines.spark.session import check_session
from appulse.engines.spark.tagged import (
    LEVELS,
    METRICS,
    arrow_schema,
    decoded,
    result_schemas,
    select_tag,
    tagged_rows,
    tagged_schema,
)
from appulse.engines.spark.tile_join import TileJoin
from appulse.engines.spark.tiles import TilePlan, hashed_plan, planned
from appulse.engines.spark.tiling import Tiling
from appulse.errors import BadArgument, warn_exploding
from appulse.model.degrees import degrees_hint
from appulse.model.encode import encode, infer_dimensions
from appulse.model.uncertainty import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from appulse.engines.options import Options
    from appulse.engines.spark.files import Folder
    from appulse.model.stream import Stream

# Windows that go by rows: how long they are in time nobody knows beforehand.
_WHOLE_SAMPLE = 1 << 60


@dataclass(frozen=True)
class SparkResult:
    """What stands behind a result frame."""

    call: AnyCall
    tiling: Tiling
    tagged: DataFrame
    answers: T.StructType
    rejects: T.StructType
    bad_rows: DataFrame | None  # of a batch result: the rejects alone
    rebuild: Callable[..., SparkResult]  # with another tiling, and perhaps a folder of end marks
    replanned: bool = False  # whether the call asks for tiles of its own making
    judge: Callable[[Folder], Callable[[DataFrame, int], DataFrame]] | None = None  # what makes a batch tagged rows
    first_rejects: DataFrame | None = None  # of a streaming result: what was refused before any row


_RESULTS: weakref.WeakKeyDictionary[DataFrame, SparkResult] = weakref.WeakKeyDictionary()
_BEHIND: Behind[SparkResult] = Behind()


def result_of(frame: DataFrame) -> SparkResult:
    """What stands behind a frame that a call of appulse returned, or that was made of one."""
    own = _RESULTS.get(frame)
    found = [own] if own is not None else [_BEHIND.find(token) for token in tokens_in(frame)]
    if len(found) > 1:
        raise BadArgument(f"This DataFrame is made of {len(found)} results. Pass one of them itself.")
    if not found or found[0] is None:
        raise BadArgument(
            "This DataFrame is not what a call of appulse returned, nor visibly made of it; Spark Connect, a cache and "
            "a checkpoint hide what a frame is made of. Pass the result itself, before select or filter."
        )
    return found[0]


def own_result(frame: DataFrame) -> SparkResult:
    """What stands behind a frame that a call of appulse returned, itself."""
    if frame not in _RESULTS:
        raise BadArgument(
            "This DataFrame is not what a call of appulse returned. Pass the result itself, before select or filter; "
            "a function as sink may select and filter what is written."
        )
    return _RESULTS[frame]


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
        streams = [with_watermark_delay(stream) for stream in streams]
    call = resolve(streams, [arrow_schema(frame.schema) for frame in frames], options=options, **settings)
    # Values are seen by workers only, whose warnings few read.
    if hint := degrees_hint(names(call.plan.models[0], call.encodings[0].dimensions or 1), call.plan.epsilon):
        warn_exploding(hint)
    call = with_shared_fills(call, spark)
    partitions = options.partitions or default_partitions(spark, streaming=streaming)
    plan = _tile_plan(call, partitions, options)
    replanned = options.sample is not None or options.side is not None
    call = replace(call, options=replace(options, sample=None))  # the sample has served, and need not travel
    if not streaming:
        return remember(_build_batch(call, Tiling.of(plan, call.plan), streams))
    tiling = Tiling.of(replace(plan, slots=shuffle_partitions(spark)), call.plan)
    return remember(replace(_build_stream(call, tiling, streams), replanned=replanned))


def remember(result: SparkResult) -> DataFrame:
    """The frame of answers that the user gets; what stands behind it stays findable."""
    if result.judge is not None:
        schema = result.answers
        frame = result.tagged.mapInArrow(_only_by_start, schema)
    else:
        tagged = "tag" in result.tagged.columns
        frame = select_tag(result.tagged, "answer", result.answers) if tagged else result.tagged
    token = new_token()
    frame = frame.alias(token)  # a name in the plan, by which frames made of this one are known
    _RESULTS[frame] = result
    _BEHIND.keep(token, frame, result)
    return frame


def _only_by_start(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    raise BadArgument(
        "Queries that are a stream change between micro-batches, which only ap.start sees: ap.start(result, sink, "
        "checkpoint=...), not result.writeStream."
    )


def _build_stream(call: JoinCall, tiling: Tiling, streams: Sequence[Stream], control: str | None = None) -> SparkResult:
    answers, rejects = result_schemas(call, streams)
    blocks = encoded(call, tiling, streams, control)
    if call.plan.rule is not None:
        blocks = blocks.groupBy("tile").transformWithStateInPandas(
            NumberProcessor(NumberStage(call, tiling), "number"),
            outputStructType="tile int, block binary",
            outputMode="append",
            timeMode="eventTime",
        )
    tagged = _stateful(call, tiling, blocks, tagged_schema(answers, rejects))
    tagged = observed(tagged)

    def rebuild(other: Tiling, folder: str | None = None) -> SparkResult:
        return _build_stream(call, other, streams, folder)

    return SparkResult(call, tiling, tagged, answers, rejects, None, rebuild)


def observed(tagged: DataFrame) -> DataFrame:
    """With the sums of the metrics, which Spark tells of each micro-batch."""
    sums = {name: F.sum(f"metric_{name}") for name in METRICS if name not in ("tile", "newest")}
    # One version fills all rows of a batch, whichever tasks tell of it.
    sums["repository"] = F.max("metric_repository")
    # All tasks of a micro-batch have one set of queries.
    sums |= {name: F.max(f"metric_{name}") for name in ("queries", "query_version")}
    # A batch without rows did nothing, and leaves the state as it was.
    totals = [(s if n in LEVELS else F.coalesce(s, F.lit(0.0))).alias(n) for n, s in sums.items()]
    return tagged.observe("appulse", *totals)


def _build_batch(call: JoinCall, tiling: Tiling, streams: Sequence[Stream]) -> SparkResult:
    answers, rejects = result_schemas(call, streams)
    schema = tagged_schema(answers, rejects)
    blocks = encoded(call, tiling, streams)
    tagged = _at_once(call, tiling, blocks, schema)
    bad_rows = select_tag(bad_rows_of(call, streams, schema), "reject", rejects)

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


def default_partitions(spark: Any, *, streaming: bool) -> int:
    """As many as there are cores, and no more than a stream's tasks."""
    cores = int(spark.sparkContext.defaultParallelism) if hasattr(spark, "_jsc") else shuffle_partitions(spark)
    return min(cores, shuffle_partitions(spark)) if streaming else cores


def shuffle_partitions(spark: Any) -> int:
    """Tasks of a stateful operator."""
    return int(spark.conf.get("spark.sql.shuffle.partitions"))


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
        frame = frame.select(*map(quoted, encoding.columns())).toArrow() if isinstance(frame, DataFrame) else frame
        table = as_table(frame)
        known = _with_dimensions(call, table, encoding.name)
        rows.append(encode(table, known)[0])
    return planned(call.plan, partitions, rows, max(call.plan.windows, default=_WHOLE_SAMPLE), options.side)


def _with_dimensions(call: JoinCall, table: pa.Table, name: str) -> Any:
    encoding = next(e for e in call.encodings if e.name == name)
    if encoding.dimensions is not None:
        return encoding
    return replace(encoding, dimensions=infer_dimensions(table, encoding.model))


def _stateful(call: JoinCall, tiling: Tiling, blocks: DataFrame, schema: T.StructType) -> DataFrame:
    out = blocks.groupBy("tile").transformWithStateInPandas(
        AnswerProcessor(TileJoin(call, tiling), "join"),
        outputStructType="out binary",
        outputMode="append",
        timeMode="eventTime" if call.plan.rule is None else "none",
    )
    return decoded_rows(out, schema)


def decoded_rows(out: DataFrame, schema: T.StructType) -> DataFrame:
    """What the last stage put out, as tagged rows."""
    arrow = arrow_schema(schema)

    def decode_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from decoded((bytes(out.as_buffer()) for out in batch.column(0)), arrow)

    return out.mapInArrow(decode_task, schema)


def _at_once(call: JoinCall, tiling: Tiling, blocks: DataFrame, schema: T.StructType) -> DataFrame:
    arrow = arrow_schema(schema)
    stage = TileJoin(call, tiling)
    if call.plan.rule is not None:
        numbers = NumberStage(call, tiling)

        def number_bucket(table: pa.Table) -> pa.Table:
            out = numbers.at_once(blobs_of(table))
            tiles, blobs = pa.array([tile for tile, _ in out], pa.int32()), pa.array([b for _, b in out], pa.binary())
            return pa.table({"tile": tiles, "block": blobs})

        blocks = blocks.groupBy("tile").applyInArrow(number_bucket, MARKS)
    elif call.plan.changes:
        # Which pairs have left by the end is told by the last tick of all.
        last = blocks.agg(F.expr("unix_micros(max(ts))").alias("newest"))
        blocks = blocks.crossJoin(F.broadcast(last))

    def join_tile(table: pa.Table) -> pa.Table:
        newest = table.column("newest")[0].as_py() if "newest" in table.column_names else None
        answers = stage.at_once(table.column("tile")[0].as_py(), blobs_of(table), newest)
        return pa.Table.from_batches([tagged_rows("answer", to_table(answers, call), arrow)])

    return blocks.repartition(tiling.latest.tiles, "tile").groupBy("tile").applyInArrow(join_tile, schema)


def blobs_of(table: pa.Table) -> list[bytes]:
    """The byte strings between stages."""
    return [bytes(blob.as_buffer()) for blob in table.column("block")]


def bad_rows_of(call: Call, streams: Sequence[Stream], schema: T.StructType) -> DataFrame:
    """The rejects of a batch call alone."""
    arrow = arrow_schema(schema)
    parts: list[DataFrame] = []
    for i, encoding in enumerate(call.encodings):
        frame = streams[i].frame.select(*map(quoted, encoding.columns()))
        parts.append(frame.mapInArrow(_rejecter(call, i, arrow), schema))
    return union(parts)


def _rejecter(
    call: Call, stream: int, arrow: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def reject_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoding = call.encodings[stream]
        for table in gathered(batches):
            if encoding.dimensions is None:
                encoding = replace(encoding, dimensions=infer_dimensions(table, encoding.model))
            yield tagged_rows("reject", encode(table, encoding)[1], arrow)

    return reject_task
