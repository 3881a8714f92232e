"""Batches appended to an Iceberg table, each once: the snapshot that a batch makes names its query and number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class IcebergSink:
    """Appends the batches of one query to a table, which is made at the first batch if it is not there.

    Whether it is there, and what was written, is read once, at the first batch of a run, and again after a failure.
    """

    def __init__(self, table: str, options: dict[str, Any], query: str) -> None:
        self._table, self._options, self._property = table, options, f"appulse-{query}"
        self._there, self._last = False, -1
        self._asked = False

    def write(self, frame: DataFrame, number: int) -> None:
        """Append a batch, unless an attempt before a crash has done so."""
        if not self._asked:
            self._there = frame.sparkSession.catalog.tableExists(self._table)
            self._last = self._newest(frame.sparkSession) if self._there else -1
        self._asked = False
        if number > self._last:
            writer = frame.writeTo(self._table).options(**self._options)
            writer = writer.option(f"snapshot-property.{self._property}", str(number))
            if self._there:
                writer.append()
            else:
                writer.using("iceberg").create()
            self._there, self._last = True, number
        self._asked = True

    def _newest(self, spark: SparkSession) -> int:
        """The last batch that is in the table; -1 if there is none."""
        snapshots = spark.read.format("iceberg").load(f"{self._table}.snapshots")
        newest = snapshots.select(F.max(F.col("summary")[self._property].cast("long"))).first()
        return -1 if newest is None or newest[0] is None else int(newest[0])
