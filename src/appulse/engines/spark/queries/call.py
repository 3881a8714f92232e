"""Continuous queries over Spark frames: every task holds all queries, and rows stay where they are.

    user rows --mapInArrow--> tagged rows

The queries travel once to each executor; each worker process reads them once and keeps the index for all its tasks.
Where they are a stream themselves, rows and changes make one stream, and a micro-batch takes its changes in first.
"""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the house name of this module
from pyspark.sql import types as T  # noqa: N812 - the house name of this module

from appulse.engines.bucket import fail_if_asked
from appulse.engines.local import as_table
from appulse.engines.options import Options, options_of
from appulse.engines.queries.call import (
    CHANGE,
    CONDITION,
    SELECT,
    UNTIL,
    LocalQueries,
    QueryCall,
    checked_changes,
    last_changes,
    resolve_queries,
)
from appulse.engines.spark.inputs import gathered, map_in_arrow, quoted, read
from appulse.engines.spark.pipeline import Operator, built
from appulse.engines.spark.queries.held import BATCHES, QueryDelta, batches_of, standing
from appulse.engines.spark.queries.parts import matched_in_parts
from appulse.engines.spark.results import remember
from appulse.engines.spark.routing import plain_tiling
from appulse.engines.spark.sources import Sources, default_partitions
from appulse.engines.spark.stage import Seen
from appulse.engines.spark.suspicions import suspicions
from appulse.engines.spark.tables import packed, unpacked
from appulse.engines.spark.tagged import (
    ANSWER,
    REJECT,
    arrow_schema,
    as_struct,
    metric_row,
    reject_type,
    select_tag,
    tagged_rows,
    tagged_schema,
)
from appulse.errors import BadArgument, warn
from appulse.model.regions import QUERY, RADIUS, REGION
from appulse.model.streaming import is_streaming
from appulse.operators.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark import Accumulator

    from appulse.engines.spark.files import Folder
    from appulse.model.stream import Stream

# Queries that take more than this, beyond their texts, are held in parts.
_MOST_BYTES = 4 << 30
# Micro-batches with changes that are kept apart.
_MOST_CHANGES = 32
_HISTORY = "appulse-queries"
_ROW, _CHANGED = "row", "changed"
_CHANGES = (QUERY, CONDITION, CHANGE, SELECT, UNTIL, REGION, RADIUS)


def spark_queries(
    stream: Stream, queries: Any, *, probability: float | None, on_reject: str, options: Options | None = None
) -> DataFrame:
    """The queries that rows of a Spark frame satisfy, lazily; streaming if it is.

    Partitions are the parts that the queries are held in; by default one, or as many as their size asks for.
    """
    options = options_of(options, "match_queries")
    sources = Sources.of([stream])
    changing = isinstance(queries, DataFrame) and is_streaming(queries)
    if changing and not sources.streaming:
        raise BadArgument(
            "The queries are a stream, and the rows are not. Read the rows as a stream (spark.readStream)."
        )
    tiling = plain_tiling(default_partitions(sources.spark, streaming=sources.streaming))
    settings: dict[str, Any] = {"probability": probability, "on_reject": on_reject, "options": options}
    empty = sources.arrow[0].empty_table()
    if changing:
        if options.partitions is not None:
            raise BadArgument(
                "Options(partitions=) is for queries that are not a stream: every worker holds all queries of a "
                "stream. Leave it out."
            )
        changes = arrow_schema(queries.schema).empty_table()
        call = resolve_queries(stream, empty, changes.schema, **settings)
        checked_changes(changes, call)
        return remember(built(_changing(call, sources, stream, queries), tiling))
    table = as_table(queries.toArrow() if isinstance(queries, DataFrame) else queries, "The frame of queries")
    call = resolve_queries(stream, empty, table.schema, **settings)
    judged = LocalQueries(call)
    judged.change(table)
    parts = options.partitions or -(-judged.queries.nbytes // _MOST_BYTES)
    held = QueryDelta(sources.spark, table)
    answers, rejects = _schemas(call, stream, sources.schemas[0])
    operator = Operator(
        call,
        sources,
        answers,
        rejects,
        rows=partial(_matched, call, held, parts, tagged_schema(answers, rejects), answers),
        refused=judged.rejects(),
    )
    return remember(built(operator, tiling))


def _matched(
    call: QueryCall,
    held: QueryDelta,
    parts: int,
    schema: T.StructType,
    answers: T.StructType,
    sources: Sources,
) -> DataFrame:
    """The rows of a frame, matched where they are or in the parts of the queries that they meet."""
    rows = read(sources.frames[0], sources.schemas[0], call.columns)
    if parts > 1:
        tagged = matched_in_parts(call, held.table, rows, schema, parts)
        return tagged if sources.streaming else select_tag(tagged, ANSWER)
    if sources.streaming:
        return map_in_arrow(rows, _tagged_matcher(call, [held], schema), schema)
    # A batch is not asked for its metrics, and so many columns of nulls cost as much as the matching.
    return map_in_arrow(rows, _matcher(call, [held], answers, suspicions(rows.sparkSession)), answers)


def _changing(call: QueryCall, sources: Sources, stream: Stream, queries: DataFrame) -> Operator:
    """Rows and changes as one stream: what a micro-batch brings of both belongs together."""
    answers, rejects = _schemas(call, stream, sources.schemas[0])

    def both(sources: Sources) -> DataFrame:
        rows = sources.frames[0].select(F.struct(*map(quoted, call.columns)).alias(_ROW))
        changes = queries.select(F.struct(*[quoted(n) for n in _CHANGES if n in queries.columns]).alias(_CHANGED))
        nothing = F.lit(None).cast(changes.schema[0].dataType).alias(_CHANGED)
        empty = F.lit(None).cast(rows.schema[0].dataType).alias(_ROW)
        return rows.select(_ROW, nothing).unionAll(changes.select(empty, _CHANGED))

    judge = partial(Changing, call, answers, rejects)
    return Operator(call, sources, answers, rejects, rows=both, judge=judge)


class Changing:
    """A set of queries that changes from micro-batch to micro-batch: its history is kept beside the checkpoint.

    Each batch is answered by exactly one version, that after its own changes; a batch that is repeated finds the
    history it found first.
    """

    def __init__(self, call: QueryCall, answers: T.StructType, rejects: T.StructType, folder: Folder) -> None:
        self._call, self._folder = call, folder
        self._answers, self._rejects = answers, rejects
        self._changes: list[tuple[int, QueryDelta]] | None = None

    def __call__(self, batch: DataFrame, number: int) -> DataFrame:
        """Tagged rows of a micro-batch."""
        spark, schema = batch.sparkSession, tagged_schema(self._answers, self._rejects)
        known = self._known(spark, number)
        fresh = batch.where(F.col(_CHANGED).isNotNull()).select(f"{_CHANGED}.*").toArrow()
        refused = None
        if len(fresh):
            judged = LocalQueries(self._call)
            fresh = judged.change(fresh)  # in the history, what is refused would stand in for what stands
            refused = judged.rejects()
            self._folder.write(f"{_HISTORY}/{number:012d}", b64encode(packed(fresh)).decode())
            known.append((number, QueryDelta(spark, fresh)))
        changes = [held for _, held in known]
        rows = batch.where(F.col(_ROW).isNotNull()).select(f"{_ROW}.*")
        version = sum(held.batches for held in changes)
        tagged = map_in_arrow(rows, _tagged_matcher(self._call, changes, schema, version), schema)
        figures = {"rejected": 0 if refused is None else len(refused), "query_version": version}
        arrow = arrow_schema(schema)
        parts = [metric_row(figures, arrow)]
        if refused is not None and len(refused):
            parts.append(tagged_rows(REJECT, refused, arrow))
        return tagged.unionAll(spark.createDataFrame(pa.Table.from_batches(parts), schema))

    def _known(self, spark: Any, number: int) -> list[tuple[int, QueryDelta]]:
        """The changes before a batch; many of them as one."""
        if self._changes is None:
            stored = sorted(int(name) for name in self._folder.names(_HISTORY) if name.isdigit())
            tables = [(at, unpacked(b64decode(self._folder.read(f"{_HISTORY}/{at:012d}") or ""))) for at in stored]
            # Whatever is older than changes made into one is in them: somebody stopped before it was removed.
            first = max((i for i, (_, table) in enumerate(tables) if batches_of(table)), default=0)
            self._changes = [(at, QueryDelta(spark, table)) for at, table in tables[first:]]
        # What an attempt at this batch left is written anew, and its successors have never been.
        self._changes = known = [(at, held) for at, held in self._changes if at < number]
        if len(known) > _MOST_CHANGES:
            last = known[-1][0]
            table = last_changes(pa.concat_tables([held.table for _, held in known], promote_options="permissive"))
            batches = sum(held.batches for _, held in known)
            table = table.replace_schema_metadata({BATCHES: str(batches)})
            self._folder.write(f"{_HISTORY}/{last:012d}", b64encode(packed(table)).decode())
            for at, _ in known[:-1]:
                self._folder.remove(f"{_HISTORY}/{at:012d}")
            known[:] = [(last, QueryDelta(spark, table, tuple(held.digest for _, held in known)))]
        return known


def _schemas(call: QueryCall, stream: Stream, given: T.StructType) -> tuple[T.StructType, T.StructType]:
    own = {"key": given[stream.key].dataType, "time": given[stream.time].dataType}
    own |= {name: given[name].dataType for name in stream.carry}
    return as_struct(call.answer_schema, own), reject_type(own["key"], own["time"])


def _matcher(
    call: QueryCall, changes: Sequence[QueryDelta], schema: T.StructType, seen: Accumulator[Seen] | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Answers alone."""
    arrow = arrow_schema(schema)

    def match_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        engine, output = standing(call, changes), Output(call.max_output)
        for table in gathered(batches):
            found, _ = _judged(engine, table, output)
            swapped = engine.swapped.taken()
            if seen is not None:
                seen.add(Seen(swapped, len(found)))
            for failed in engine.failed().to_pylist():  # the rejects of a batch are known without its answers
                warn(f"A query was removed: {failed['values']}: {failed['detail']}")
            yield from found.cast(arrow).to_batches()

    return match_task


def _tagged_matcher(
    call: QueryCall, changes: Sequence[QueryDelta], schema: T.StructType, version: int = 0
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Answers, rejects and metrics."""
    arrow = arrow_schema(schema)

    def match_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        engine, output = standing(call, changes), Output(call.max_output)
        for table in gathered(batches):
            begun = time.perf_counter()
            found, rejects = _judged(engine, table, output)
            failed = engine.failed()
            fail_if_asked(call, [failed])
            yield tagged_rows(ANSWER, found, arrow)
            for bad in (rejects, failed):
                if len(bad):
                    yield tagged_rows(REJECT, bad, arrow)
            figures = {
                "rows": len(table) - len(rejects),
                "rejected": len(rejects) + len(failed),
                "answers": len(found),
                "queries": len(engine.queries),
                "query_version": version,
                "swapped": engine.swapped.taken(),
                "state_rows": len(engine.queries),
                "state_bytes": engine.queries.nbytes,
                "seconds": time.perf_counter() - begun,
            }
            yield metric_row(figures, arrow)

    return match_task


def _judged(engine: LocalQueries, table: pa.Table, output: Output) -> tuple[pa.Table, pa.Table]:
    found, rejects = engine.judge(table, output)
    fail_if_asked(engine.call, [rejects])
    return found, rejects
