"""Continuous queries over Spark frames: every task holds all queries, and rows stay where they are.

    user rows --mapInArrow--> tagged rows

The queries travel once to each executor; each worker process reads them once and keeps the index for all its tasks.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - the house name of this module
from pyspark.sql.pandas.types import from_arrow_type

from appulse.engines.local import as_table
from appulse.engines.queries import LocalQueries, QueryCall, resolve_queries
from appulse.engines.spark.engine import SparkResult, bad_rows_of, default_partitions, observed, remember
from appulse.engines.spark.inputs import gathered, quoted
from appulse.engines.spark.tagged import METRICS, arrow_schema, reject_type, select_tag, tagged_rows, tagged_schema
from appulse.engines.spark.tiles import TilePlan
from appulse.engines.spark.tiling import Tiling, Version
from appulse.errors import NotBuilt, bad_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from appulse.model.stream import Stream

# Sets of queries that a worker process keeps.
_MOST_KEPT = 2
_KEPT: OrderedDict[str, LocalQueries] = OrderedDict()


class Held:
    """A set of queries on its way to workers: as Arrow's own bytes, known by what they say."""

    def __init__(self, spark: Any, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
        data = sink.getvalue().to_pybytes()
        self.digest = blake2b(data, digest_size=8).hexdigest()
        # Spark Connect has no broadcasts: there they travel with the plan.
        self._data: Any = spark.sparkContext.broadcast(data) if hasattr(spark, "_jsc") else data

    def engine(self, call: QueryCall) -> LocalQueries:
        """The queries, indexed: once per worker process."""
        key = f"{call.fingerprint()}-{self.digest}"
        engine = _KEPT.get(key)
        if engine is None:
            data = self._data if isinstance(self._data, bytes) else self._data.value
            engine = LocalQueries(call)
            engine.change(pa.ipc.open_stream(data).read_all())
            engine.queries.settle()
            engine.forget_rejects()  # they were told where the call was made
            _KEPT[key] = engine
            while len(_KEPT) > _MOST_KEPT:
                _KEPT.popitem(last=False)
        _KEPT.move_to_end(key)
        return engine


def spark_queries(stream: Stream, queries: Any, *, probability: float | None, on_reject: str) -> DataFrame:
    """The queries that rows of a Spark frame satisfy, lazily; streaming if it is."""
    if isinstance(queries, DataFrame) and queries.isStreaming:
        raise NotBuilt("Queries as a stream are planned on Spark and not built yet. Give a static frame of queries.")
    frame = stream.frame
    table = queries.toArrow() if isinstance(queries, DataFrame) else as_table(queries)
    settings: dict[str, Any] = {"probability": probability, "on_reject": on_reject}
    call = resolve_queries(stream, arrow_schema(frame.schema).empty_table(), table.schema, **settings)
    judged = LocalQueries(call)
    judged.change(table)
    slots = default_partitions(frame.sparkSession, streaming=frame.isStreaming)
    tiling = Tiling((Version(TilePlan(slots, 1.0, 0.0, 0.0)),), 0)
    return remember(_build(call, Held(frame.sparkSession, table), stream, tiling, judged.rejects()))


def _build(call: QueryCall, held: Held, stream: Stream, tiling: Tiling, refused: pa.Table) -> SparkResult:
    answers, rejects = _schemas(call, stream)
    schema = tagged_schema(answers, rejects)
    rows = stream.frame.select(*map(quoted, call.columns))
    first = None
    if len(refused):
        local = pa.Table.from_batches([tagged_rows("reject", refused, arrow_schema(schema))])
        told = stream.frame.sparkSession.createDataFrame(local, schema)
        first = select_tag(told, "reject", rejects)
    if stream.frame.isStreaming:
        tagged, bad = observed(rows.mapInArrow(_tagged_matcher(call, held, schema), schema)), None
    else:
        # Nobody asks a batch for its metrics, and so many columns of nulls cost as much as the matching.
        tagged = rows.mapInArrow(_matcher(call, held, answers), answers)
        bad = select_tag(bad_rows_of(call, [stream], schema), "reject", rejects)
        bad = bad if first is None else bad.unionAll(first)

    def rebuild(other: Tiling, _: str | None = None) -> SparkResult:
        return _build(call, held, stream, other, refused)

    return SparkResult(call, tiling, tagged, answers, rejects, bad, rebuild, first_rejects=first)


def _schemas(call: QueryCall, stream: Stream) -> tuple[T.StructType, T.StructType]:
    given = stream.frame.schema
    own = {"key": given[stream.key].dataType, "time": given[stream.time].dataType}
    fields = [T.StructField(f.name, own.get(f.name) or from_arrow_type(f.type)) for f in call.answer_schema]
    return T.StructType(fields), reject_type(own["key"], own["time"])


def _matcher(
    call: QueryCall, held: Held, schema: T.StructType
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Answers alone."""
    arrow = arrow_schema(schema)

    def match_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        engine = held.engine(call)
        for table in gathered(batches):
            found, _ = _judged(engine, table)
            yield from found.cast(arrow).to_batches()

    return match_task


def _tagged_matcher(
    call: QueryCall, held: Held, schema: T.StructType
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Answers, rejects and metrics."""
    arrow = arrow_schema(schema)

    def match_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        engine = held.engine(call)
        for table in gathered(batches):
            begun = time.perf_counter()
            found, rejects = _judged(engine, table)
            yield tagged_rows("answer", found, arrow)
            if len(rejects):
                yield tagged_rows("reject", rejects, arrow)
            figures = {
                "rows": len(table) - len(rejects),
                "rejected": len(rejects),
                "answers": len(found),
                "state_rows": len(engine.queries),
                "state_bytes": engine.queries.nbytes,
                "seconds": time.perf_counter() - begun,
            }
            yield tagged_rows("metric", pa.table({name: [float(figures.get(name, 0))] for name in METRICS}), arrow)

    return match_task


def _judged(engine: LocalQueries, table: pa.Table) -> tuple[pa.Table, pa.Table]:
    found, rejects = engine.judge(table)
    if len(rejects) and engine.call.on_reject == "fail":
        raise bad_rows(len(rejects), rejects.slice(0, 1).to_pylist()[0])
    return found, rejects
