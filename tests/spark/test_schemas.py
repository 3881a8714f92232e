"""`Stream(schema=)` over Spark frames: at once refused by a classic session, and by the query itself on Connect."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import types as T  # noqa: N812 - the usual name of this module

import appulse as ap
from appulse.engines.spark import inputs
from appulse.engines.spark.given import _checked_by_spark, schema_of
from appulse.engines.spark.inputs import runs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = pa.table({"id": [1, 2], "t": [0, 1], "x": [0.0, 0.5], "load": [10, 30]})
COLUMNS = "id BIGINT, t BIGINT, x DOUBLE, load BIGINT"
KINDS = (
    *("STRING", "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "BINARY"),
    *(
        "TIMESTAMP_NTZ",
        "DECIMAL(5,2)",
        "VARCHAR(3)",
        "ARRAY<STRUCT<a: INT, `b c`: STRING>>",
        "MAP<STRING,ARRAY<DOUBLE>>",
    ),
)
MANY = ", ".join(f"c{i} {kind}" for i, kind in enumerate(KINDS))


def struct(text: str) -> T.StructType:
    found = T.StructType.fromDDL(text)
    assert isinstance(found, T.StructType)
    return found


def stream(frame: DataFrame, schema: Any = COLUMNS, **more: Any) -> ap.Stream[Any]:
    return ap.Stream(frame, key="id", time="t", value="x", schema=schema, **more)


def joined(given: ap.Stream[Any]) -> list[Any]:
    found: Any = ap.self_join(given, epsilon=1, probability=1, window=10)
    return sorted(found.collect())


@pytest.mark.parametrize("schema", [COLUMNS, ROWS.schema, "spark"], ids=["text", "arrow", "spark"])
def test_answers_are_those_without(spark: SparkSession, schema: Any) -> None:
    frame = spark.createDataFrame(ROWS)
    schema = struct(COLUMNS) if schema == "spark" else schema
    expected = joined(stream(frame, None, carry="load"))
    assert len(expected) == 1
    assert joined(stream(frame, schema, carry="load")) == expected


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("id INT, t BIGINT, x DOUBLE", "column 'id' is int, and in the frame it is bigint"),
        ("id BIGINT, t BIGINT, x DOUBLE, loud BIGINT", "has a column 'loud', which the frame has not.*'load'"),
        ("id BIGINT, t BIGINT", "no column 'x'"),
        (pa.schema([("id", pa.int64()), ("t", pa.int64()), ("x", pa.time32("s"))]), "a type that Spark has not"),
    ],
)
def test_a_classic_frame_is_held_against_what_is_given(spark: SparkSession, schema: Any, why: str) -> None:
    with pytest.raises(ap.BadArgument, match=why):
        joined(stream(spark.createDataFrame(ROWS), schema))


def test_text_is_what_spark_makes_of_it(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], struct(MANY.replace("VARCHAR(3)", "STRING")))
    assert schema_of(stream(frame, MANY)) == frame.schema
    given = struct(MANY)
    assert schema_of(stream(frame, given)) == frame.schema


def test_spark_leaves_nothing_of_a_check_that_holds(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], struct(MANY.replace("VARCHAR(3)", "STRING")))
    checked = _checked_by_spark(frame, frame.schema, "Stream 's':")
    assert checked.schema == frame.schema
    plan: Any = checked._jdf.queryExecution().optimizedPlan()
    assert "typeof" not in plan.toString()
    assert "raise_error" not in plan.toString()


def test_a_query_names_the_column_of_another_type(spark: SparkSession) -> None:
    frame = spark.createDataFrame(ROWS)
    right = _checked_by_spark(frame, struct(COLUMNS), "Stream 's':")
    assert sorted(right.collect()) == sorted(frame.collect())
    wrong = _checked_by_spark(frame, struct("id BIGINT, x FLOAT"), "Stream 's':")
    for read in (wrong, wrong.select("id")):
        with pytest.raises(PySparkException, match=r"Stream 's': schema= says that column 'x' is float, .* is double"):
            read.collect()
    with pytest.raises(PySparkException, match="loud"):
        _checked_by_spark(frame, struct("loud BIGINT"), "Stream 's':")


def test_a_stream_reads_what_is_given(spark: SparkSession, tmp_path: Any) -> None:
    spark.createDataFrame(ROWS).write.parquet(str(tmp_path / "in"))
    coming = spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "in"))
    found: Any = ap.self_join(stream(coming), epsilon=1, probability=1, window=10)
    assert found.isStreaming
    with pytest.raises(ap.BadArgument, match="column 'x' is float"):
        ap.self_join(stream(coming, COLUMNS.replace("DOUBLE", "FLOAT")), epsilon=1, probability=1, window=10)


def test_imputed_frames_have_what_is_given(spark: SparkSession) -> None:
    frame = spark.createDataFrame(ROWS)
    whole = pa.table({"x": [0.0, 1.0, 2.0, 3.0], "load": [0.0, 1.0, 2.0, 3.0]})
    value = ap.Incomplete("x", "load")
    given = ap.Stream(frame, key="id", time="t", value=value, schema=COLUMNS.replace("t BIGINT", "t INT"))
    with pytest.raises(ap.BadArgument, match="column 't' is int"):
        ap.impute(given, ap.NearestImputer(whole, k=1))
    given = ap.Stream(frame.withColumn("more", frame["x"]), key="id", time="t", value=value, schema=COLUMNS)
    filled = ap.impute(given, ap.NearestImputer(whole, k=1))
    assert filled.schema is None
    assert filled.frame.columns[:4] == ["id", "t", "x", "load"]
    assert filled.frame.count() == 2


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=5))
def test_rows_of_one_value_come_together(parts: list[list[int]]) -> None:
    numbers = iter(range(100))
    batches = [
        pa.record_batch({"tile": pa.array(part, pa.int32()), "n": pa.array([next(numbers) for _ in part], pa.int64())})
        for part in parts
    ]
    rows = [row for batch in batches for row in batch.to_pylist()]
    expected = [[row["n"] for row in group] for _, group in groupby(rows, key=lambda row: row["tile"])]
    assert [table["n"].to_pylist() for table in runs(batches, "tile")] == expected
    assert np.all([len(set(table["tile"].to_pylist())) == 1 for table in runs(batches, "tile")])


@given(st.lists(st.integers(0, 9)))
def test_blocks_travel_in_order_and_large_ones_alone(sizes: list[int]) -> None:
    blocks = [(i, bytes([i]) * size, -i) for i, size in enumerate(sizes)]
    with patch.object(inputs, "_LARGE", 5):
        batches = list(inputs.block_batches(iter(blocks)))
    for batch in batches:
        batch.validate(full=True)
        assert len(batch) == 1 or max(len(block) for block in batch["block"].to_pylist()) < 5
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["tile"], row["block"]) for row in rows] == [(key, block) for key, block, _ in blocks]
    times = [time for batch in batches for time in batch["ts"].cast(pa.int64()).to_pylist()]
    assert times == [newest for *_, newest in blocks]


def test_rows_of_a_session_in_another_zone_are_in_utc() -> None:
    """Also those beside and within nulls whose parts, by their fields, are never null: Spark has them."""
    parts = [pa.field("p", pa.string(), nullable=False)]
    mask = pa.array([True, False])
    inner = pa.StructArray.from_arrays([pa.array([None, "x"])], fields=parts, mask=mask)
    there = pa.array([None, 5], pa.timestamp("us", "Asia/Kolkata"))
    fields = [pa.field("i", inner.type), pa.field("t", there.type, nullable=False)]
    outer = pa.StructArray.from_arrays([inner, there], fields=fields, mask=mask)
    ends = pa.array([0, 0, 2], pa.int32())
    columns = {"own": inner, "t": there, "both": outer, "list": pa.ListArray.from_arrays(ends, outer)}
    columns["map"] = pa.MapArray.from_arrays(ends, pa.array([1, 2]), outer)
    batch = pa.record_batch(columns)
    found = inputs._in_utc(batch)
    assert found["own"].type == inner.type
    assert "Kolkata" not in str(found.schema)
    assert found.to_pylist() == batch.to_pylist()
