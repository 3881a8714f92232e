"""An Iceberg table gets each batch once; `benchmarks.faults --kinds iceberg` tries it on real tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrameWriterV2

import appulse as ap
from appulse.engines.spark.iceberg import IcebergSink
from appulse.engines.spark.sinks import sink_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "lake.db.pairs"


def test_a_batch_that_is_there_is_not_written_again(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots: list[int] = []
    properties: dict[str, Any] = {}

    def option(self: DataFrameWriterV2, key: str, value: str) -> DataFrameWriterV2:
        properties[key] = value
        return self

    def written(_: Any) -> None:
        snapshots.append(int(properties["snapshot-property.appulse-sink-q"]))

    monkeypatch.setattr(DataFrameWriterV2, "option", option)
    monkeypatch.setattr(DataFrameWriterV2, "create", written)
    monkeypatch.setattr(DataFrameWriterV2, "append", written)
    asked: list[str] = []

    def exists(_: Any, table: str) -> bool:
        asked.append(table)
        return bool(snapshots)

    monkeypatch.setattr(type(spark.catalog), "tableExists", exists)
    monkeypatch.setattr(IcebergSink, "_newest", lambda *_: max(snapshots))
    for numbers in ((0, 1), (1, 2), (2, 3)):  # each run begins with the batch that was the last one's, after a crash
        sink = sink_of(("iceberg", {"table": TABLE}), "sink", "q")
        for number in numbers:
            sink.write(spark.range(3), number, lambda: True, lambda: 3)
    assert snapshots == [0, 1, 2, 3]
    assert len(asked) == 3  # once a run
    monkeypatch.setattr(DataFrameWriterV2, "append", lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        sink.write(spark.range(3), 4, lambda: True, lambda: 3)
    monkeypatch.setattr(DataFrameWriterV2, "append", written)
    sink.write(spark.range(3), 4, lambda: True, lambda: 3)
    assert (snapshots[-1], len(asked)) == (4, 4)


def test_a_table_must_be_named() -> None:
    with pytest.raises(ap.BadArgument, match=r"has no 'table'\. Give one: .*lake\.db\.pairs"):
        sink_of(("iceberg", {}), "sink", "q")
