"""Batches appended to an Iceberg table, each once: the snapshot that a batch makes names its query and number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class IcebergSink:
    """Appends the batches of one query to a table, which is made at the first batch if it is not there.

    What was written is read from the table's snapshots once, at the first batch of a run.
    """

    def __init__(self, table: str, options: dict[str, Any], query: str) -> None:
        self._table, self._options, self._property = table, options, f"appulse-{query}"
        self._last: int | None = None

    def write(self, frame: DataFrame, number: int) -> None:
        """Append a batch, unless an attempt before a crash has done so."""
        spark = frame.sparkSession
        there = spark.catalog.tableExists(self._table)
        if self._last is None:
            self._last = self._newest(spark) if there else -1
        if number > self._last:
            writer = frame.writeTo(self._table).options(**self._options)
            writer = writer.option(f"snapshot-property.{self._property}", str(number))
            if there:
                writer.append()
            else:
                writer.using("iceberg").create()
            self._last = number

    def _newest(self, spark: SparkSession) -> int:
        """The last batch that is in the table; -1 if there is none."""
        snapshots = spark.read.format("iceberg").load(f"{self._table}.snapshots")
        newest = snapshots.select(F.max(F.col("summary")[self._property].cast("long"))).first()
        return -1 if newest is None or newest[0] is None else int(newest[0])
