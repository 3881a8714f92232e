"""The nearest rows on Spark: a join whose last stage keeps the best pairs, or a tree at each worker."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from appulse.engines.bucket import fail_if_asked
from appulse.engines.join.call import to_table
from appulse.engines.join.nearest import resolve_nearest
from appulse.engines.spark.inputs import gathered, map_in_arrow
from appulse.engines.spark.join.call import spark_pairs
from appulse.engines.spark.pipeline import Operator, built
from appulse.engines.spark.results import remember
from appulse.engines.spark.routing import plain_tiling
from appulse.engines.spark.shared import shared
from appulse.engines.spark.sources import Sources
from appulse.engines.spark.tagged import arrow_schema, in_schema, result_schemas
from appulse.operators.nearest_search import NearestTrees
from appulse.operators.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T  # noqa: N812 - the usual name of this module

    from appulse.engines.join.call import JoinCall
    from appulse.engines.join.nearest import NearestSettings
    from appulse.model.stream import Stream


def spark_nearest(streams: Sequence[Stream], settings: NearestSettings) -> DataFrame:
    """The nearest rows of Spark frames, lazily; streaming if its inputs are."""
    sources = Sources.of(streams)
    if settings.epsilon is not None or sources.streaming:
        return spark_pairs(streams, partial(resolve_nearest, settings=settings, whole=False), settings.options)
    call = sources.chained(resolve_nearest(streams, sources.arrow, settings, whole=True))
    right = sources.read(1, call.columns_of(1)).toArrow()
    rows, rejected = call.encode(1, right)
    fail_if_asked(call, [rejected])
    trees = NearestTrees(call.plan, rows)
    held = shared(trees, sources.spark)
    answers, rejects = result_schemas(call, streams, sources.schemas)
    search = _searcher(call, trees.search if held is None else lambda *asked: held.get().search(*asked), answers)

    def found(sources: Sources) -> DataFrame:
        return map_in_arrow(sources.read(0, call.columns_of(0)), search, answers)

    operator = Operator(call, sources, answers, rejects, rows=found)
    return remember(built(operator, plain_tiling(1)))


def _searcher(
    call: JoinCall, search: Callable[..., Any], answers: T.StructType
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    arrow = arrow_schema(answers)

    def search_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output = Output(call.max_output)
        for table in gathered(batches):
            rows, rejected = call.encode(0, table)
            fail_if_asked(call, [rejected])
            found = search(rows, Counter())
            output.add(len(found))
            yield from in_schema(to_table(found, call), arrow).to_batches()

    return search_task
