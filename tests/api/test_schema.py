"""`Stream(schema=)` over tables of this process: the columns that are given are the columns that are there."""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import appulse as ap

ROWS = pa.table({"id": [1, 2], "t": [0, 1], "x": [0.0, 0.5], "load": [10, 30]})
COLUMNS = "id BIGINT, t BIGINT, x DOUBLE, load BIGINT"
ASKED: dict[str, Any] = {"epsilon": 1, "probability": 1, "window": 10}


def stream(frame: Any, schema: Any = COLUMNS, **more: Any) -> ap.Stream[Any]:
    return ap.Stream(frame, key="id", time="t", value="x", schema=schema, **more)


@pytest.mark.parametrize("frame", [ROWS, ROWS.to_pandas(), pl.from_arrow(ROWS)], ids=["arrow", "pandas", "polars"])
@pytest.mark.parametrize("schema", [COLUMNS, ROWS.schema], ids=["text", "arrow"])
def test_frames_are_as_given(frame: Any, schema: Any) -> None:
    assert ap.self_join(stream(frame, schema, carry="load"), **ASKED).num_rows == 1


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("id INT, t BIGINT, x DOUBLE", "column 'id' is int32, and in the frame it is int64"),
        ("id BIGINT, t TIMESTAMP, x DOUBLE", "column 't' is timestamp.*, and in the frame it is int64"),
        ("id BIGINT, t BIGINT, x DOUBLE, loud BIGINT", "has a column 'loud', which the frame has not.*'load'"),
        ("id BIGINT, t BIGINT", "no column 'x'"),  # what is not given is not read
    ],
)
def test_other_columns_are_refused(schema: str, why: str) -> None:
    with pytest.raises(ap.BadArgument, match=why):
        ap.self_join(stream(ROWS, schema), **ASKED)
    by_hand = ap.SimilarityJoin(stream(None, schema), **ASKED)
    with pytest.raises(ap.BadArgument, match=why):
        by_hand.push(ROWS)


def test_a_condition_reads_what_is_given() -> None:
    assert ap.self_join(ap.filter(stream(ROWS), "load > 5"), **ASKED).num_rows == 1
    with pytest.raises(ap.BadArgument, match="load"):
        ap.self_join(ap.filter(stream(ROWS, "id BIGINT, t BIGINT, x DOUBLE"), "load > 5"), **ASKED)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("STRING", pa.array(["a", "b"], pa.large_string())),
        ("STRING", pa.array(["a", "b"]).dictionary_encode()),
        ("STRING", pa.nulls(2)),
        ("BINARY", pa.array([b"a", b"b"], pa.large_binary())),
        ("DATE", pa.array([0, 1], pa.date64())),
        ("TIMESTAMP", pa.array([0, 1], pa.timestamp("ns", "Europe/Berlin"))),
        ("TIMESTAMP_NTZ", pa.array([0, 1], pa.timestamp("ms"))),
        ("ARRAY<DOUBLE>", pa.array([[0.0], []], pa.large_list(pa.float64()))),
        (
            "STRUCT<a: STRING, b: ARRAY<INT>>",
            pa.array([{"a": "x", "b": [1]}] * 2, pa.struct([("a", pa.large_string()), ("b", pa.list_(pa.int32(), 1))])),
        ),
        ("MAP<STRING, INT>", pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32()))),
        ("DECIMAL(5, 2)", pa.array([1, 2], pa.decimal32(5, 2))),
    ],
)
def test_a_type_of_spark_is_several_of_arrow(text: str, values: pa.Array) -> None:
    rows = ROWS.append_column("more", values)
    assert ap.self_join(stream(rows, f"{COLUMNS}, more {text}", carry="more"), **ASKED).num_rows == 1
    if not pa.types.is_null(values.type):  # which may become anything
        with pytest.raises(ap.BadArgument, match="'more' is bool"):
            ap.self_join(stream(rows, f"{COLUMNS}, more BOOLEAN"), **ASKED)


def test_pushes_are_as_given() -> None:
    by_hand = ap.SimilarityJoin(stream(None), **ASKED)
    assert by_hand.push(ROWS).num_rows == 1
    assert by_hand.push(ROWS).num_rows > 1
    with pytest.raises(ap.BadArgument, match="'x' is double, and in the frame it is string"):
        by_hand.push(pd.DataFrame({"id": [1], "t": [1], "x": ["a"], "load": [1]}))


@pytest.mark.parametrize("schema", ["id bigin", 3, ["id"], pa.int64()])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(ap.BadArgument, match=r"^Stream\(schema="):
        stream(ROWS, schema)


def test_calls_with_stages_before_them_read_what_is_given() -> None:
    rows = ROWS.append_column("op", pa.array(["add", "add"]))
    queries = pa.table({"query": [1], "condition": ["x >= 0"]})
    given = stream(rows, f"{COLUMNS}, op STRING", change="op")
    assert ap.match_queries(given, queries, probability=1)["key"].to_pylist() == [1, 2]
    with pytest.raises(ap.BadArgument, match="'op' is double"):
        ap.match_queries(stream(rows, f"{COLUMNS}, op DOUBLE", change="op"), queries, probability=1)
