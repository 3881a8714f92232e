"""Changes of a set of queries or fences, which go to all buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from appulse.engines.multi_queries.bucket import changes_block
from appulse.engines.spark.inputs import MARKS, gathered, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame


def changes_for_all(columns: Sequence[str], queries: DataFrame, keys: Sequence[int]) -> DataFrame:
    """Changes for every bucket, of the ``columns`` there are; in one task, so that they have an order."""

    def spread_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, table in enumerate(gathered(batches)):
            if len(table):
                blobs = [changes_block(number, table)] * len(keys)
                yield pa.record_batch(
                    [pa.array(keys, pa.int32()), pa.array(blobs, pa.binary())], names=["tile", "block"]
                )

    changes = queries.select(*[quoted(name) for name in columns if name in queries.columns])
    return changes.coalesce(1).mapInArrow(spread_task, MARKS)
