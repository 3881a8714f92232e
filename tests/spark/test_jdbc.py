"""Tables of a database: each batch is there once, wherever an attempt at it broke off."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

import appulse as ap
from appulse.engines.spark import jdbc
from appulse.errors import StorageError
from benchmarks.servers import POSTGRES_DRIVER, Postgres, Unavailable, jars
from tests.cli.test_jobs import rows
from tests.spark.test_metrics import pairs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

OURS, ANOTHERS = "c0ffee", "beef"
append = jdbc._append


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Options of a table that is not there yet, in a database of its own, within this JVM."""
    jvm: Any = spark._jvm
    jvm.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    place = f"jdbc:derby:{tmp_path / 'base'}"
    yield {"url": f"{place};create=true", "dbTable": "pairs", "batchsize": 100}
    with pytest.raises(Exception, match="shutdown"):  # how Derby says that it has shut down
        jvm.java.sql.DriverManager.getConnection(f"{place};shutdown=true")


def read(spark: SparkSession, table: dict[str, Any]) -> DataFrame:
    return spark.read.format("jdbc").options(**table).load()


def batches(spark: SparkSession, table: dict[str, Any]) -> dict[tuple[int, int], int]:
    """How many rows there are of each query and batch."""
    counts = read(spark, table).groupBy("query_id", "batch_id").count().collect()
    return {(row["query_id"], row["batch_id"]): row["count"] for row in counts}


def run_sql(spark: SparkSession, table: dict[str, Any], *statements: str) -> None:
    jvm: Any = spark._jvm
    connection = jvm.java.sql.DriverManager.getConnection(table["url"])
    for sql in statements:
        connection.createStatement().execute(sql)
    connection.close()


def numbered(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count, numPartitions=2).select(F.col("id").alias("left_key"), F.lit("near").alias("left_stream"))


@pytest.mark.every_version
def test_a_batch_replaces_what_earlier_attempts_left(spark: SparkSession, table: dict[str, Any]) -> None:
    ours, anothers = int(OURS, 16), int(ANOTHERS, 16)
    jdbc.replace_rows(numbered(spark, 10), table, OURS, 0)
    jdbc.replace_rows(numbered(spark, 5), table, ANOTHERS, 1)
    some = numbered(spark, 4).withColumns({"query_id": F.lit(ours), "batch_id": F.lit(1)})
    append(some, table)  # where partitions are committed one by one, this is what a crash leaves
    append(some.withColumn("batch_id", F.lit(2)), table)  # and this, if an older checkpoint was put back since
    for _ in range(2):  # the second time as after a crash between the write and Spark's commit
        jdbc.replace_rows(numbered(spark, 10), table, OURS, 1)
        assert batches(spark, table) == {(ours, 0): 10, (ours, 1): 10, (anothers, 1): 5}
    jdbc.replace_rows(numbered(spark, 0), table, OURS, 2)
    assert read(spark, table).where(f"query_id = {ours}").groupBy("left_key").count().where("count <> 2").count() == 0


def test_rows_that_retried_tasks_wrote_twice_are_seen(
    spark: SparkSession, table: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = [2]

    def append_twice(frame: DataFrame, options: dict[str, Any]) -> None:
        append(frame, options)
        if trouble[0]:
            trouble[0] -= 1
            append(frame, options)

    monkeypatch.setattr(jdbc, "_append", append_twice)
    jdbc.replace_rows(numbered(spark, 3), table, OURS, 0)
    assert batches(spark, table) == {(int(OURS, 16), 0): 3}
    trouble[0] = 9
    with pytest.raises(ap.AppulseError, match="more than the 3 rows of batch 1 after each of 3 attempts"):
        jdbc.replace_rows(numbered(spark, 3), table, OURS, 1)


def test_a_table_of_the_users_own(spark: SparkSession, table: dict[str, Any]) -> None:
    columns = "left_key BIGINT, left_stream VARCHAR(20)"
    run_sql(
        spark, table, f"CREATE TABLE pairs ({columns})", f"CREATE TABLE good ({columns}, Query_Id BIGINT, batch_id INT)"
    )
    with pytest.raises(ap.BadArgument, match="Table pairs has no column query_id and no batch_id"):
        jdbc.replace_rows(numbered(spark, 3), table, OURS, 0)
    good = {**table, "dbTable": "good"}
    for _ in range(2):
        jdbc.replace_rows(numbered(spark, 3), good, OURS, 0)
    assert read(spark, good).count() == 3


def test_a_query_that_broke_off_within_a_batch(
    spark: SparkSession, table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is started again, and answers and rejects are those of a run in process."""
    sinks = [("jdbc", table), ("JDBC", {**table, "dbTable": "rejects"})]
    writes: list[int] = []

    def append_half(frame: DataFrame, options: dict[str, Any]) -> None:
        writes.append(frame.count())
        if len(writes) == 5:  # after empty tables and batch 0 in each: the answers of batch 1
            append(frame.limit(writes[-1] // 2), options)
            raise OSError("the database went away")
        append(frame, options)

    def run() -> None:
        ap.start(pairs(spark, tmp_path), *sinks, checkpoint=str(tmp_path / "c"), drain=True).awaitTermination()

    monkeypatch.setattr(jdbc, "_append", append_half)
    with pytest.raises(Exception, match="the database went away"):
        run()
    left = read(spark, table).count()
    assert writes[0] == writes[2] == 0
    assert writes[1] < left < writes[1] + writes[4]
    run()
    streams = [
        ap.Stream(rows(seed), key="id", time="time", value=ap.Gaussian("x", "y", sigma=1.0), name=name)
        for seed, name in ((1, "near"), (2, "far"))
    ]
    expected = ap.similarity_join(*streams, epsilon=5.0, probability=0.5, window=ap.TimeWindow("10 seconds"))
    found = read(spark, table).select("left_key", "right_key").collect()
    assert sorted(map(tuple, found)) == sorted(
        (row["left_key"], row["right_key"]) for row in expected.select(["left_key", "right_key"]).to_pylist()
    )
    assert sorted(row["key"] for row in read(spark, sinks[1][1]).collect()) == [1007, 2007]


def test_a_sink_without_a_table_is_said(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ap.BadArgument, match=r"sink=.* has no 'dbtable' and no 'url'"):
        ap.start(pairs(spark, tmp_path), ("jdbc", {}), checkpoint=str(tmp_path / "c"))


def test_a_database_that_is_away_is_waited_for(
    spark: SparkSession, table: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = [2]

    def append_later(frame: DataFrame, options: dict[str, Any]) -> None:
        append(frame, options)  # an attempt that had written all it had when the connection broke
        if left[0]:
            left[0] -= 1
            raise PySparkException(message="PSQLException: FATAL: terminating connection due to administrator command")

    monkeypatch.setattr(jdbc, "_append", append_later)
    monkeypatch.setattr(jdbc, "_WAITS", (0.01, 0.01, 0.01))
    jdbc.replace_rows(numbered(spark, 3), table, OURS, 0)
    assert batches(spark, table) == {(int(OURS, 16), 0): 3}
    assert [record.message.split(";")[1] for record in caplog.records if record.name == "appulse"] == [
        " attempt 1 for batch 0 in 0.01 s.",
        " attempt 2 for batch 0 in 0.01 s.",
    ]
    left[0] = 9
    with pytest.raises(StorageError, match="did not answer in 4 attempts"):
        jdbc.replace_rows(numbered(spark, 3), table, OURS, 1)


VIEW = """CREATE VIEW standing AS SELECT left_key, right_key FROM pairs
GROUP BY left_key, right_key, left_time, right_time HAVING SUM(change) > 0"""


@pytest.fixture
def server(spark: SparkSession, tmp_path: Path) -> Iterator[Postgres]:
    """PostgreSQL, with its driver in the session."""
    try:
        driver = jars(POSTGRES_DRIVER)
        started = Postgres(tmp_path / "postgres")
    except Unavailable as reason:
        pytest.skip(str(reason))
    spark.sql(f"ADD JAR '{driver[0]}'")
    with started:
        yield started


def test_a_real_server_has_a_batch_once_that_was_cut_off(spark: SparkSession, server: Postgres) -> None:
    """Behind its first rows, which were committed; and again after all of them."""
    options: dict[str, Any] = {"url": server.url, "dbtable": "pairs", "driver": "org.postgresql.Driver"}
    jdbc.replace_rows(numbered(spark, 7), options, OURS, 0)
    mine = {"query_id": F.lit(int(OURS, 16)), "batch_id": F.lit(1)}
    append(numbered(spark, 4).withColumns(mine), options)
    for _ in range(2):
        jdbc.replace_rows(numbered(spark, 10), options, OURS, 1)
        assert server.query("SELECT batch_id, COUNT(*) FROM pairs GROUP BY 1 ORDER BY 1") == [["0", "7"], ["1", "10"]]


@pytest.mark.long
def test_a_real_server_and_a_view_of_what_stands(
    spark: SparkSession, server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch once, though each is first cut off behind some rows; what stands is what came and has not left."""
    at = np.arange(60) / 2
    table = pa.table({"id": np.arange(60), "at": at, "x": (np.arange(60) * 7 % 11) / 4})
    for i in range(3):
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(table.slice(20 * i, 20), tmp_path / "in" / f"{i}.parquet")
        os.utime(tmp_path / "in" / f"{i}.parquet", (i, i))  # Spark reads the oldest first
    value = ap.Exact("x")
    settings: dict[str, Any] = {"epsilon": 0.3, "probability": 1.0, "window": ap.TimeWindow(4)}
    cut: set[int] = set()

    def append_cut_off(frame: DataFrame, options: dict[str, Any]) -> None:
        number = frame.select("batch_id").first()
        if number is not None and number[0] not in cut:
            cut.add(number[0])
            append(frame.coalesce(1).limit(3), options)
            raise RuntimeError("cut off")
        append(frame, options)

    rows = spark.readStream.schema("id long, at double, x double").option("maxFilesPerTrigger", 1)
    stream = ap.Stream(rows.parquet(str(tmp_path / "in")), key="id", time="at", value=value)
    changes = ap.self_join(stream, **settings, emit="changes")
    sink = ("jdbc", {"url": server.url, "dbtable": "pairs"})
    checkpoint = str(tmp_path / "checkpoint")
    monkeypatch.setattr(jdbc, "_append", append_cut_off)
    for _ in range(9):
        with suppress(PySparkException):
            ap.start(changes, sink, checkpoint=checkpoint, trigger={"availableNow": True}).awaitTermination()
            break
    server.query(VIEW)
    standing = sorted((int(a), int(b)) for a, b in server.query("SELECT * FROM standing"))
    held = [tuple(map(int, row)) for row in server.query("SELECT left_key, right_key, change FROM pairs")]
    one = ap.Stream(table, key="id", time="at", value=value)
    pairs = ap.self_join(one, **settings).select(["left_key", "right_key"]).to_pylist()
    came, left = ([row[:2] for row in held if row[2] == change] for change in (1, -1))
    assert len(cut) >= 3
    assert sorted(came) == sorted((row["left_key"], row["right_key"]) for row in pairs)
    assert len(set(left)) == len(left) > 10
    assert set(left) < set(came)
    assert standing == sorted(set(came) - set(left))
