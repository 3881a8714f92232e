"""The one Spark plan: rows become blocks, blocks meet in stages by key, and the last stage answers.

    user rows --mapInArrow--> (key, block) --shuffle--> a stage, by key --shuffle--> ... --> answers and rejects

In a batch query every key is answered at once. In a streaming one its bucket is kept in Spark's state store, and the
last stage puts out answers side by side with rejects and metrics, each with a tag.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module
from pyspark.sql import types as T  # noqa: N812 - the usual name of this module

from appulse.engines.arriving import Arrivals
from appulse.engines.bucket import fail_if_asked
from appulse.engines.measured import LEVELS, METRICS
from appulse.engines.results import metrics_name
from appulse.engines.spark.blobs import ANSWERS, REJECTS, metrics_blob, table_bytes
from appulse.engines.spark.frames import TaggedFrames, block_frames
from appulse.engines.spark.inputs import (
    BLOCKS,
    MARKS,
    batch_time,
    block_batch,
    block_batches,
    check_answers,
    gathered,
    hash_text,
    known,
    map_in_arrow,
    marker,
    runs,
    union,
    watermarks,
    with_idle_watermark,
)
from appulse.engines.spark.processor import StageProcessor
from appulse.engines.spark.results import SparkResult, known_result
from appulse.engines.spark.tagged import METRIC, arrow_schema, in_schema, rejects_frame, rejects_like, tagged_schema
from appulse.model.changes import newest as newest_of
from appulse.model.streaming import is_connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from appulse.engines.base import Call, Finish
    from appulse.engines.spark.files import Folder
    from appulse.engines.spark.sources import Sources
    from appulse.engines.spark.stage import Stage
    from appulse.engines.spark.tiling import Tiling


class Routing(Protocol):
    """Which rows go where: blocks by key, one or a few per task and micro-batch."""

    @property
    def keys(self) -> list[int]:
        """All keys of the first stage."""
        ...

    def blocks(self, stream: int, rows: Any) -> Iterator[tuple[int, bytes, int]]:
        """Blocks of the rows of a stream: key, block, newest time."""
        ...


def _no_stages(tiling: Tiling) -> Any:
    raise NotImplementedError


@dataclass(frozen=True)
class Operator:
    """An operator on Spark: how rows are routed, the stages they go through, and the columns that come out.

    ``found`` are the columns of what the last stage answers, where those are finished only behind it. An operator
    without state says with ``rows`` what it makes of its frames: tagged rows of a stream, of a batch the answers alone.
    """

    call: Call[Any]
    sources: Sources
    answers: T.StructType
    rejects: T.StructType
    routing: Callable[[Tiling], Routing] = _no_stages
    stages: Callable[[Tiling], Sequence[Stage]] = _no_stages
    rows: Callable[[Sources], DataFrame] | None = None
    judge: Callable[[Folder], Callable[[DataFrame, int], DataFrame]] | None = None  # what makes a batch tagged rows
    found: T.StructType | None = None
    finish: Callable[[], Finish] | None = None
    changes: Callable[[Sequence[int]], DataFrame] | None = None  # further blocks of a stream, for all keys
    refused: pa.Table | None = None  # rejects that are known before any row
    needs_newest: bool = False  # whether the answers of a batch depend on the newest time of all
    replanned: bool = False  # whether the call asks for tiles of its own making
    tiled: bool = False  # whether its partitions are tiles of space, of which a later start may have others
    refuses: bool = False  # whether the first stage refuses rows that are good by themselves
    again: bool = False  # whether it is in the query already, and here for its rejects alone

    @property
    def lag(self) -> int:
        """How far (microseconds) Spark's watermark is ahead of the rows that come in."""
        return self.sources.lag(self.call)

    def placed(self, stage: Stage) -> Stage:
        """A stage at its place in the query."""
        depth = len(self.sources.results)
        name = "-".join([stage.name, *([str(depth)] if depth else []), *(["again"] if self.again else [])])
        return replace(stage, name=name, lag=self.lag)


# Metrics have names of their own, for a query may be of several calls.
_NUMBERS = count(1)


def built(operator: Operator, tiling: Tiling, control: str | None = None, name: str | None = None) -> SparkResult:
    """The plan of an operator; ``control`` is a folder that a drain puts the mark of the streams' end in.

    ``name`` is that of the metrics, where the call has one: a plan that is made anew keeps it.
    """
    check_answers(operator.sources.spark, operator.answers.names)
    streaming = operator.sources.streaming
    first = operator.refused if operator.refused is not None and len(operator.refused) else None
    if operator.rows is not None:
        rows = operator.rows(operator.sources)
    else:
        rows = _stream(operator, tiling, control) if streaming else _batch(operator, tiling)
    bad = None if streaming else bad_rows_of(operator.call, operator.sources, operator.rejects)
    if bad is not None and operator.refuses:
        refuse = _refuser(operator.stages(tiling)[0], arrow_schema(operator.rejects))
        blocks = _encoded(operator, tiling, None)
        bad = bad.unionAll(_by_tile(blocks, refuse, operator.rejects))
    if bad is not None and first is not None:
        bad = bad.unionAll(rejects_frame(operator.sources.spark, first, operator.rejects))
    if bad is not None:
        bad = union([bad, *_rejects_before(operator)])

    name = name or metrics_name(next(_NUMBERS))
    if streaming and operator.judge is None and not operator.again:
        rows = observed(rows, name)

    def rebuild(
        other: Tiling,
        folder: str | None = None,
        pieces: Mapping[str, DataFrame] | None = None,
        *,
        again: bool = False,
    ) -> SparkResult:
        sources = operator.sources.grafted(pieces or {})
        return built(replace(operator, sources=sources, again=again), other, folder, name)

    return SparkResult(
        operator.call,
        tiling,
        rows,
        operator.answers,
        operator.rejects,
        bad,
        rebuild,
        replanned=operator.replanned,
        tiled=operator.tiled,
        judge=operator.judge,
        first_rejects=first,
        name=name,
        upstream=tuple(operator.sources.results),
        stateless=operator.sources.stateless,
        stage_lag=operator.lag,
    )


def _rejects_before(operator: Operator) -> Iterator[DataFrame]:
    """Of batches: the rejects of the steps in front that leave theirs to this call, under the names of its streams."""
    for frame, stream in zip(operator.sources.frames, operator.call.encodings, strict=True):
        before = known_result(frame)
        if before is not None and before.call.rejects_for_next and before.bad_rows is not None:
            named = before.bad_rows.withColumn("stream", F.lit(stream.name))
            yield rejects_like(named, before.rejects, operator.rejects)


def _stream(operator: Operator, tiling: Tiling, control: str | None) -> DataFrame:
    """Tagged rows: answers, rejects and metrics."""
    blocks = _encoded(operator, tiling, control)
    stages = [operator.placed(stage) for stage in operator.stages(tiling)]
    *others, last = [replace(stage, first=i == 0) for i, stage in enumerate(stages)]
    for i, stage in enumerate(others):
        marks = blocks.groupBy("tile").transformWithStateInPandas(
            StageProcessor(stage, block_frames),
            outputStructType=MARKS,
            outputMode="append",
            timeMode="none"
            if i and not stage.timed
            else "eventTime",  # what is behind the first goes by what it is sent
        )
        blocks = known(marks, MARKS)
    schema = tagged_schema(operator.answers, operator.rejects)
    frames = TaggedFrames(arrow_schema(schema), operator.finish or operator.call.finishing)
    return blocks.groupBy("tile").transformWithStateInPandas(
        StageProcessor(last, frames),
        outputStructType=schema,
        outputMode="append",
        timeMode="none" if others and not last.timed else "eventTime",
    )


def _batch(operator: Operator, tiling: Tiling) -> DataFrame:
    """The answers alone."""
    blocks = _encoded(operator, tiling, None)
    *others, last = operator.stages(tiling)
    newest = blocks.agg(F.expr("unix_micros(max(ts))").alias("newest")) if operator.needs_newest else None
    for stage in others:
        blocks = _by_tile(blocks, _sender(stage), MARKS)
    if newest is not None:
        own = MARKS if others else BLOCKS
        blocks = known(blocks.crossJoin(F.broadcast(newest)), [*own, T.StructField("newest", T.LongType())])
    found = operator.found or operator.answers
    blocks = blocks.repartition(tiling.latest.tiles, "tile")
    answers = _by_tile(blocks, _answerer(last, arrow_schema(found)), found, apart=True)
    if operator.finish is None:
        return answers
    return map_in_arrow(answers, _finisher(operator.finish, arrow_schema(operator.answers)), operator.answers)


def _by_tile(
    blocks: DataFrame, answer: Callable[[pa.Table], pa.Table], schema: T.StructType, *, apart: bool = False
) -> DataFrame:
    """What is made of the blocks of each tile, all of them in one table; ``apart``: no two tasks have some of one.

    A server of Spark Connect analyses what it is to group at once, when it may be a table that the same pipeline is
    still to make. What it is to sort waits.
    """
    if not is_connect(blocks):
        return blocks.groupBy("tile").applyInArrow(answer, schema)
    blocks = blocks if apart else blocks.repartition("tile")
    return blocks.sortWithinPartitions("tile").mapInArrow(_of_each_tile(answer), schema)


def _of_each_tile(answer: Callable[[pa.Table], pa.Table]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[Any]]:
    def answer_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in runs(batches, "tile"):
            yield from answer(table).to_batches()

    return answer_task


def _encoded(operator: Operator, tiling: Tiling, control: str | None) -> DataFrame:
    """All streams as blocks."""
    call, sources, routing = operator.call, operator.sources, operator.routing(tiling)
    parts = [
        map_in_arrow(sources.read(i, call.columns_of(i), dated=sources.streaming), _encoder(call, routing, i), BLOCKS)
        for i in range(len(sources.frames))
    ]
    if not sources.streaming:
        return union(parts)
    blocks = known(union([part.select("tile", "block") for part in _clocked(operator, parts)]), MARKS)
    if operator.changes is not None:
        blocks = blocks.union(operator.changes(routing.keys))
    if control is None:
        return blocks
    marks = sources.spark.readStream.schema("newest long").json(control)
    return blocks.union(marks.mapInArrow(marker(routing.keys), MARKS))


def _clocked(operator: Operator, parts: list[DataFrame]) -> list[DataFrame]:
    """The streams with their watermarks; the answers of other calls have theirs.

    Spark's watermark is the one clock all keys share. It would also drop late rows unseen, were the time column kept.
    """
    call, upstream = operator.call, operator.sources.upstream
    done = [part for part, results in zip(parts, upstream, strict=True) if results]
    own = [(part, delay) for part, delay, results in zip(parts, watermarks(call), upstream, strict=True) if not results]
    live = [(part, delay) for part, delay in own if delay is not None]
    fresh = [part.withWatermark("ts", f"{delay} milliseconds") for part, delay in live]
    if silent := [part for part, delay in own if delay is None]:
        fresh.append(with_idle_watermark(call, silent, [part for part, _ in live]))
    return [*fresh, *done]


def _encoder(call: Call[Any], routing: Routing, stream: int) -> Any:
    def encode_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return blocks_of_task(batches, call, routing, stream)

    return encode_task


def blocks_of_task(
    batches: Iterable[pa.RecordBatch], call: Call[Any], routing: Routing, stream: int
) -> Iterator[pa.RecordBatch]:
    """The blocks of one task's rows."""
    arrivals = Arrivals(call.encodings, call.ahead)
    for table in gathered(batches):
        rows, rejected = call.take_in(stream, table, arrivals, batch_time(table))
        arrivals.settle()
        fail_if_asked(call, rejected)
        newest = newest_of(rows) if len(rows) else 0
        for rejects in rejected:
            # Under many keys, so that a flood of bad rows is no hot spot.
            spot = hash_text(str(rejects.column("detail")[0]) + str(len(rejects))) % len(routing.keys)
            yield block_batch([routing.keys[spot]], [table_bytes(REJECTS, rejects)], [newest])
        if len(rows) == 0:
            continue
        figures = call.figures(stream)
        if figures:
            yield block_batch([routing.keys[0]], [metrics_blob(**figures)], [min(newest, int(rows.time.min()))])
        yield from block_batches(routing.blocks(stream, rows))


def _sender(stage: Stage) -> Callable[[pa.Table], pa.Table]:
    def send(table: pa.Table) -> pa.Table:
        answers, sent = stage.at_once(table.column("tile")[0].as_py(), blobs_of(table))
        sent = [*sent, *stage.onward(table_bytes(ANSWERS, part) for part in answers if len(part))]
        keys, blobs = pa.array([key for key, _ in sent], pa.int32()), pa.array([blob for _, blob in sent], pa.binary())
        return pa.table({"tile": keys, "block": blobs})

    return send


def _refuser(stage: Stage, arrow: pa.Schema) -> Callable[[pa.Table], pa.Table]:
    def refuse(table: pa.Table) -> pa.Table:
        refused = stage.refused(table.column("tile")[0].as_py(), blobs_of(table))
        return pa.concat_tables([arrow.empty_table(), *(in_schema(part, arrow) for part in refused)])

    return refuse


def _answerer(stage: Stage, arrow: pa.Schema) -> Callable[[pa.Table], pa.Table]:
    def answer(table: pa.Table) -> pa.Table:
        newest = table.column("newest")[0].as_py() if "newest" in table.column_names else None
        answers, _ = stage.at_once(table.column("tile")[0].as_py(), blobs_of(table), newest)
        return pa.concat_tables([arrow.empty_table(), *(in_schema(part, arrow) for part in answers)])

    return answer


def _finisher(finishing: Callable[[], Finish], arrow: pa.Schema) -> Any:
    """A batch of rows at a time, none held longer."""

    def finish_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        finish = finishing()
        for batch in batches:
            for part in finish(pa.Table.from_batches([batch])):
                yield from in_schema(part, arrow).to_batches()

    return finish_task


def blobs_of(table: pa.Table) -> list[bytes]:
    """The byte strings between stages."""
    return [bytes(blob.as_buffer()) for blob in table.column("block")]


def observed(tagged: DataFrame, name: str) -> DataFrame:
    """With the sums of the metrics, which Spark reports of each micro-batch."""
    of = {name: F.col(METRIC)[i] for i, name in enumerate(METRICS)}
    sums = {name: F.sum(column) for name, column in of.items() if name != "tile"}
    # One version fills all rows of a batch, and all tasks of a micro-batch have one set of queries.
    sums |= {name: F.max(of[name]) for name in ("newest", "repository", "queries", "query_version")}
    # A batch without rows did nothing, and leaves the state as it was.
    totals = [(s if n in LEVELS else F.coalesce(s, F.lit(0.0))).alias(n) for n, s in sums.items()]
    return tagged.observe(name, *totals)


def bad_rows_of(call: Call[Any], sources: Sources, schema: T.StructType) -> DataFrame:
    """The rejects of a batch call alone."""
    rows = [sources.read(i, call.columns_of(i)) for i in range(len(sources.frames))]
    return union([map_in_arrow(frame, _rejecter(call, i, schema), schema) for i, frame in enumerate(rows)])


def _rejecter(call: Call[Any], stream: int, schema: T.StructType) -> Any:
    arrow = arrow_schema(schema)

    def reject_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in gathered(batches):
            _, rejects = call.encode(stream, table)
            fail_if_asked(call, [rejects])
            yield from in_schema(rejects, arrow).to_batches()

    return reject_task
