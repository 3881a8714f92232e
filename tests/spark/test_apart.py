"""A sink on a folder that the query reads is refused, however the plan names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import appulse as ap
from appulse.engines.spark.plans import folders_read
from appulse.engines.spark.settings import PARTITIONS
from appulse.engines.spark.sinks import sink_of
from appulse.engines.spark.start import Outputs, _check_apart

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "id BIGINT, t DOUBLE, x DOUBLE"
SAID = "is the folder of a source. Files of one would be removed, or read, as those of the other. Give each a folder"


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    """Files that are read, and files that are not."""
    for name in ("read", "other"):
        spark.range(3).selectExpr("id", "1D * id AS t", "1D * id AS x").write.parquet(str(tmp_path / name))
    return tmp_path


def joined(left: DataFrame, right: DataFrame) -> Any:
    """The answers over two streams, one of which may have rows of a batch."""
    if not right.isStreaming:
        right = left.join(right.select("id"), "id")
    streams = [ap.Stream(rows, key="id", time="t", value="x", lateness=10) for rows in (left, right)]
    return ap.similarity_join(*streams, epsilon=1, probability=1, window=5)


def frames(spark: SparkSession, path: str) -> Iterator[DataFrame]:
    stream, batch = spark.readStream.schema(COLUMNS), spark.read.schema(COLUMNS)
    yield stream.parquet(path)
    yield stream.format("parquet").option("PATH", path).load().where("x > 0")
    yield batch.parquet(path)
    yield batch.parquet(path, f"{path}/../other")
    spark.catalog.createTable("read_here", path, "parquet")
    yield spark.table("read_here")
    yield spark.readStream.table("read_here")
    spark.sql("DROP TABLE read_here")
    v1 = spark.conf.get("spark.sql.sources.useV1SourceList", "")
    spark.conf.set("spark.sql.sources.useV1SourceList", "")
    yield batch.parquet(path)
    yield batch.parquet(path, f"{path}/../other")
    spark.conf.set("spark.sql.sources.useV1SourceList", v1 or "")


def test_a_sink_where_the_query_reads_is_refused(spark: SparkSession, folder: Path) -> None:
    other = spark.readStream.schema(COLUMNS).parquet(str(folder / "other"))
    checkpoint, mine = str(folder / "checkpoint"), str(folder / "read")
    for rows in frames(spark, mine):
        result = joined(other, rows)
        with pytest.raises(ap.BadArgument, match=rf"sink: {mine} is the folder of a source"):
            ap.start(result, ("parquet", {"path": mine}), checkpoint=checkpoint)
        with pytest.raises(ap.BadArgument, match=r"rejects: .*/read/bad lies in .*/read.*, the folder of a source"):
            ap.start(result, ("noop", {}), ("json", {"path": f"{mine}/bad"}), checkpoint=checkpoint)
    with pytest.raises(ap.BadArgument, match=rf"sink: {mine} contains .*\.parquet, the folder of a source"):
        ap.start(joined(other, spark.read.parquet(f"{mine}/*.parquet")), ("orc", {"path": mine}), checkpoint=checkpoint)
    with pytest.raises(ap.BadArgument, match=SAID):
        ap.start(result, ("delta", {"path": f"file:{mine}"}), checkpoint=checkpoint)
    spark.catalog.createTable("read_here", mine, "parquet")
    try:
        with pytest.raises(ap.BadArgument, match=SAID):
            ap.start(result, ("delta", {"table": "default.read_here"}), checkpoint=checkpoint)
    finally:
        spark.sql("DROP TABLE read_here")
    assert not (folder / "checkpoint").exists()


def test_options_that_would_be_passed_over_are_refused(
    spark: SparkSession, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Before there is a checkpoint."""
    rows = spark.readStream.schema(COLUMNS).parquet(str(folder / "read"))
    result, path = joined(rows, rows), f"{folder}/out"
    for sink, problem in (
        (("delta", {}), r"sink=\('delta', ...\) has no path and no table. Give one: .*'lake/pairs'.*'db.pairs'"),
        (("Delta", {"path": path, "TABLE": "pairs"}), r"has both a path and a table"),
        (("delta", {"path": path, "mode": "overwrite"}), r"has mode='overwrite': the batches .* are appended"),
        (("delta", {"path": path, "partitionBy": 3}), r"has partitionBy=3: give the name of a column"),
        (("parquet", {"path": path, "MODE": "ignore"}), r"has mode='ignore'"),
        (("parquet", {"path": path, "partitionBy": "x"}), r"'partitionBy', which only 'delta' takes. Write to a Delta"),
        (("iceberg", {"table": "t", "partitionBy": "x"}), r"which only 'delta' takes. Make the table before"),
        (("delta", {"path": path, "partitionBy": ["LEFT_KEY", "kind"]}), r"sink=\('delta', .* column 'kind', which"),
        (("kafka", {"topic": "t", "key": "left_kye"}), r"column 'left_kye', which .* Did you mean 'left_key'\?"),
    ):
        with pytest.raises(ap.BadArgument, match=problem):
            ap.start(result, sink, checkpoint=f"{folder}/checkpoint")
    with pytest.raises(ap.BadArgument, match=r"rejects=\('delta', ...\) has no path"):
        ap.start(result, ("noop", {}), ("delta", {}), checkpoint=f"{folder}/checkpoint")
    with pytest.raises(ap.BadArgument, match=r"rejects=\('kafka', ...\) names the column 'left_key', which"):
        ap.start(result, ("noop", {}), ("kafka", {"topic": "t", "key": "left_key"}), checkpoint=f"{folder}/checkpoint")
    hook = ("kafka", {"topic": "t", "key": "kind"})
    with pytest.raises(ap.BadArgument, match=r"alerts=\('kafka', .* names the column 'kind', which"):
        ap.start(result, ("noop", {}), alerts=[hook], checkpoint=f"{folder}/checkpoint")
    for trigger in ({"every": "5 seconds"}, {"processingTime": "5 parsecs"}, {"availableNow": False}):
        with pytest.raises(ap.BadArgument, match=r"start\(trigger=.*: Spark refuses it: .*\. Give a trigger of"):
            ap.start(result, ("noop", {}), checkpoint=f"{folder}/checkpoint", trigger=trigger)
    assert not (folder / "checkpoint").exists()
    (folder / "a file").touch()
    with pytest.raises(ap.StorageError, match=r"Could not write the checkpoint .*/a file: .* exists\. .* the path"):
        ap.start(result, ("noop", {}), checkpoint=f"{folder}/a file")
    assert not caplog.records
    spark.conf.set(PARTITIONS, "200")
    with pytest.raises(ap.StorageError):
        ap.start(result, ("noop", {}), checkpoint=f"{folder}/a file")
    spark.conf.set(PARTITIONS, "2")
    assert f"could be faster: {PARTITIONS} is 200" in caplog.text
    sink_of(("json", {"path": path, "mode": "Append"}), "sink", "q").write(spark.range(3), 0, lambda: True, lambda: 3)
    assert spark.read.json(path).count() == 3


def test_a_folder_that_is_not_read_is_fine(spark: SparkSession, folder: Path) -> None:
    rows = spark.readStream.schema(COLUMNS).parquet(str(folder / "read"))
    result = joined(rows, spark.read.parquet(str(folder / "other")))
    sinks = Outputs(("parquet", {"path": str(folder / "pairs")}), ("json", {"path": str(folder / "bad")}))
    _check_apart(sinks, str(folder / "checkpoint"), result)


def test_a_path_without_a_store_is_in_the_default_one(spark: SparkSession, folder: Path) -> None:
    here = spark.readStream.schema(COLUMNS).parquet(f"file:{folder}/read")
    there = spark.readStream.schema(COLUMNS).parquet(f"{folder}/read")
    assert folders_read(there) == [f"{folder}/read"]
    sink = Outputs(("parquet", {"path": f"{folder}/read"}))
    hadoop: Any = spark._jsc.hadoopConfiguration()
    hadoop.set("fs.defaultFS", "hdfs://names:8020")
    try:
        _check_apart(sink, str(folder / "checkpoint"), joined(here, here))
        with pytest.raises(ap.BadArgument, match=r"hdfs://names:8020/.* is the folder of a source"):
            _check_apart(sink, str(folder / "checkpoint"), joined(there, here))
    finally:
        hadoop.unset("fs.defaultFS")
