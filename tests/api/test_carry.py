"""Columns that travel with their rows: through every call, window and engine they are those of the row."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.model.carried import carried_columns, split_carried, with_carried
from appulse.model.strings import encode
from tests.helpers.streaming import drained_answers, files, read_stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

N = 160
#: A column of many types, by name; the rows of each know their number.
KINDS: dict[str, pa.DataType] = {
    "text": pa.string(),
    "whole": pa.int16(),
    "number": pa.float32(),
    "flag": pa.bool_(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "cost": pa.decimal128(9, 2),
    "raw": pa.binary(),
    "list": pa.list_(pa.float64()),
    "place": pa.struct([("x", pa.float64()), ("name", pa.string())]),
}


def _value(kind: pa.DataType, i: int) -> Any:
    if i % 7 == 3:
        return None
    whole = i % 100
    values: list[tuple[Any, Any]] = [
        (pa.types.is_string, f"t{i}"),
        (pa.types.is_integer, whole - 50),
        (pa.types.is_floating, i / 8),
        (pa.types.is_boolean, i % 2 == 0),
        (pa.types.is_date, dt.date(2024, 1, 1) + dt.timedelta(whole)),
        (pa.types.is_timestamp, dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=i)),
        (pa.types.is_decimal, pa.scalar(whole, pa.decimal128(9, 2)).as_py()),
        (pa.types.is_binary, bytes([i % 256] * (i % 5))),
        (pa.types.is_list, [float(i)] * (i % 3)),
        (pa.types.is_struct, {"x": None if i % 5 == 0 else float(i), "name": f"p{i}"}),
    ]
    return next(value for is_kind, value in values if is_kind(kind))


def _table(seed: int, n: int = N) -> pa.Table:
    chance = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "id": [f"r{seed}-{i}" for i in range(n)],
        "ts": pa.array((100 + np.sort(chance.integers(0, n, n))) * 1_000_000, pa.timestamp("us", "UTC")),
        "x": chance.normal(0.0, 1.0, n),
        "y": chance.normal(0.0, 1.0, n),
        "sure": chance.choice([0.5, 0.9, 1.0], n),
    }
    columns |= {name: pa.array([_value(kind, i) for i in range(n)], kind) for name, kind in KINDS.items()}
    return pa.table(columns)


def _stream(frame: Any, carry: Sequence[str] = tuple(KINDS), **changes: Any) -> ap.Stream[Any]:
    value = ap.Gaussian("x", "y", sigma=0.1)
    return replace(ap.Stream(frame, key="id", time="ts", value=value, existence="sure", carry=carry), **changes)


def _brought(answers: pa.Table, tables: Sequence[pa.Table], prefix: str, names: Sequence[str]) -> None:
    """Each answer has the values of its row, found by the row's key."""
    known = {row["id"]: row for table in tables for row in table.to_pylist()}
    for row in answers.to_pylist():
        own = known[row[f"{prefix}key"]]
        assert {name: row[prefix + name] for name in names} == {name: own[name] for name in names}


WINDOWS = [
    ap.TimeWindow("9 seconds"),
    ap.CountWindow(12),
    ap.TumblingWindow("20 seconds"),
    ap.DeltaWindow("x", 0.7),
    ap.UncertainCountWindow(9, confidence=0.9),
]
SETTINGS: dict[str, Any] = {"epsilon": 0.4, "probability": 0.2}


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: type(window).__name__)
@pytest.mark.parametrize("emit", ["matches", "changes"])
def test_pairs_bring_the_columns_of_both_rows(window: Any, emit: str) -> None:
    tables = [_table(1), _table(2)]
    settings = SETTINGS | {"window": window, "emit": emit}
    plain = ap.similarity_join(*(_stream(table, ()) for table in tables), **settings)
    left, right = _stream(tables[0]), _stream(tables[1], ["whole"])
    found = ap.similarity_join(left, right, **settings)
    assert len(found) > 50
    assert found.select(plain.column_names).equals(plain)
    own = [f"left_{name}" for name in KINDS] + ["right_whole"]
    assert found.column_names == [*plain.column_names, *own]
    assert [found.schema.field(f"left_{name}").type for name in KINDS] == list(KINDS.values())
    _brought(found, tables, "left_", tuple(KINDS))
    _brought(found, tables, "right_", ["whole"])


def test_rows_joined_with_themselves_and_with_several_streams() -> None:
    tables = [_table(seed) for seed in (1, 2, 3)]
    found = ap.self_join(_stream(tables[0]), window=20, **SETTINGS)
    for side in ("left_", "right_"):
        _brought(found, tables, side, tuple(KINDS))
    streams = [_stream(table, own) for table, own in zip(tables, (["text"], ["cost", "text"], ()), strict=True)]
    found = ap.similarity_join(*streams, window=20, **SETTINGS)
    assert found.column_names[-4:] == ["left_text", "left_cost", "right_cost", "right_text"]
    known = {row["id"]: row for table in tables for row in table.to_pylist()}
    carried = {"left": {"text"}, "s3": set(), "right": {"cost", "text"}}
    assert {row["right_stream"] for row in found.to_pylist()} == {"right", "s3"}
    for row in found.to_pylist():
        for side in ("left", "right"):
            for name in ("text", "cost"):
                if f"{side}_{name}" in row:
                    has = name in carried[row[f"{side}_stream"]]
                    assert row[f"{side}_{name}"] == (known[row[f"{side}_key"]][name] if has else None)


def test_rows_that_were_filled_bring_them_too() -> None:
    tables = [_table(1), _table(2)]
    holed = [
        table.set_column(2, "x", pa.array([None if i % 3 == 0 else x for i, x in enumerate(table["x"].to_pylist())]))
        for table in tables
    ]
    streams = [_stream(table, value=ap.Incomplete("x", "y")) for table in holed]
    imputer = ap.DependencyImputer(tables[0].select(["x", "y"]), [], marginal=8)
    found = ap.similarity_join(*streams, window=20, imputer=imputer, **SETTINGS)
    plain = ap.similarity_join(*(replace(s, carry=()) for s in streams), window=20, imputer=imputer, **SETTINGS)
    assert found.select(plain.column_names).equals(plain)
    assert any(found["left_filled"].to_pylist())
    _brought(found, tables, "left_", tuple(KINDS))
    _brought(found, tables, "right_", tuple(KINDS))


def test_pushes_by_hand_bring_them() -> None:
    tables = [_table(1), _table(2)]
    expected = ap.similarity_join(*map(_stream, tables), window=20, **SETTINGS)
    bare = [_stream(None, name=name) for name in "ab"]
    join = ap.SimilarityJoin(*bare, window=20, **SETTINGS)
    parts = [join.push(a=tables[0].slice(at, 16), b=tables[1].slice(at, 16)) for at in range(0, N, 16)]
    found = pa.concat_tables([*parts, join.drain()])
    keys = [("left_key", "ascending"), ("right_key", "ascending")]
    without = ["left_stream", "right_stream"]
    assert found.drop_columns(without).sort_by(keys).equals(expected.drop_columns(without).sort_by(keys))
    join = ap.SimilarityJoin(*bare, window=20, **SETTINGS)
    join.push(a=tables[0], b=tables[1])
    with pytest.raises(ap.BadArgument, match="Column 'whole' of stream 'a' was int16"):
        join.push(a=tables[0].set_column(6, "whole", pa.array(["x"] * N)))


def test_answers_about_one_row_bring_them_under_their_names() -> None:
    table = _table(1)
    queries = pa.table({"query": ["low", "high"], "condition": ["x < 0", "x >= 0 and text is not null"]})
    names = [name for name in KINDS if name not in ("list", "place")]
    found = ap.match_queries(_stream(table, names), queries, probability=0.3)
    assert found.column_names[-len(names) :] == names
    _brought(found, [table], "", names)
    assert len(found) > N / 2
    pairs = pa.table({"query": ["near"], "condition": ["a.whole = b.whole WITHIN 20 SECONDS"]})
    streams = [_stream(_table(seed), ["text"], name=name, existence=None) for seed, name in ((1, "a"), (2, "b"))]
    certain = [replace(stream, value=ap.Exact("x")) for stream in streams]
    found = ap.match_queries(*certain, pairs)
    assert len(found) > 10
    _brought(found, [_table(1)], "left_", ["text"])
    _brought(found, [_table(2)], "right_", ["text"])


def test_names_and_types_that_do_not_fit_are_refused() -> None:
    table = _table(1)
    stream, other = _stream(table), _stream(_table(2))
    for carry, message in (
        (["nothing"], "has no column 'nothing'"),
        (["text", "text"], "more than once"),
        (["id", "key"], "has no column 'key'"),
    ):
        with pytest.raises(ap.BadArgument, match=message):
            ap.self_join(replace(stream, carry=carry), window=9, **SETTINGS)
    renamed = replace(stream, frame=table.rename_columns(["id", "ts", "x", "y", "sure", "key", *list(KINDS)[1:]]))
    with pytest.raises(ap.BadArgument, match="two columns 'left_key'"):
        ap.self_join(replace(renamed, carry=["key"]), window=9, **SETTINGS)
    third = _stream(_table(3).set_column(5, "text", pa.array(np.arange(N))))
    with pytest.raises(ap.BadArgument, match="'text', which is int64 in stream 's3' and string"):
        ap.similarity_join(stream, other, third, window=9, **SETTINGS)
    with pytest.raises(ap.BadArgument, match="has no use for Stream"):
        ap.window_aggregate(replace(stream, value=ap.Exact("x")), {"x": "sum"}, window=ap.CountWindow(5))
    readings = ap.Stream(table, key="id", time="ts", value="x", carry="text")
    with pytest.raises(ap.BadArgument, match="has no use for Stream"):
        ap.phenomena(readings, resolution=1.0, strength=2, span="9 seconds")


@given(
    st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.text(max_size=3)), st.floats() | st.none())),
    st.integers(1, 3),
)
def test_packed_columns_come_out_as_they_went_in(rows: list[tuple[str, str | None, float | None]], d: int) -> None:
    keys, texts, numbers = (pa.array(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    kinds = [pa.string(), pa.float64(), pa.null()]
    given_columns = [pa.array(texts, pa.string()), pa.array(numbers, pa.float64()), pa.nulls(len(rows))]
    packed = with_carried(encode(pa.array(keys, pa.string())), np.zeros((len(rows), d)), given_columns)
    own, tail = split_carried(packed)
    assert own.to_list() == [key.encode() for key, _, _ in rows]
    for column, came in zip(carried_columns(tail, kinds), given_columns, strict=True):
        assert column.type == came.type
        assert list(map(repr, column.to_pylist())) == list(map(repr, came.to_pylist()))


@pytest.mark.parametrize("window", [WINDOWS[0], WINDOWS[4]], ids=["time", "uncertain"])
def test_spark_brings_them_in_batch_and_streaming(spark: SparkSession, tmp_path: Path, window: Any) -> None:
    tables = [_table(1), _table(2)]
    tables[1] = tables[1].set_column(tables[1].column_names.index("whole"), "whole", tables[1]["list"])
    settings = SETTINGS | {"window": window}
    expected = ap.similarity_join(_stream(tables[0]), _stream(tables[1], ["whole"]), **settings)
    folders = [files(tmp_path / str(i), table, 60) for i, table in enumerate(tables)]
    frames = [spark.read.parquet(str(folder)) for folder in folders]
    batch = ap.similarity_join(_stream(frames[0]), _stream(frames[1], ["whole"]), **settings)
    kinds = {field.name: field.dataType for field in batch.schema}
    own = {field.name: field.dataType for field in frames[0].schema}
    assert {name: kinds[f"left_{name}"] for name in KINDS} == {name: own[name] for name in KINDS}
    assert _rows(batch.toArrow()) == _rows(expected)
    frames = [read_stream(spark, folder) for folder in folders]
    left, right = (_stream(f, own, lateness=60) for f, own in zip(frames, (tuple(KINDS), ["whole"]), strict=True))
    found = drained_answers(ap.similarity_join(left, right, **settings), tmp_path / "out")
    assert _rows(found) == _rows(expected)


def test_spark_brings_them_with_queries(spark: SparkSession, tmp_path: Path) -> None:
    table = _table(1)
    queries = pa.table({"query": ["low"], "condition": ["x < 0"], "select": ["at"]})
    expected = ap.match_queries(_stream(table), queries, probability=0.3)
    folder = files(tmp_path / "in", table, 60)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")  # in which Spark hands times to Python
    try:
        found = ap.match_queries(_stream(spark.read.parquet(str(folder))), queries, probability=0.3).toArrow()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert _rows(found) == _rows(expected)
    answers = drained_answers(
        ap.match_queries(_stream(read_stream(spark, folder)), queries, probability=0.3), tmp_path / "out"
    )
    assert _rows(answers) == _rows(expected)


def _rows(table: pa.Table) -> list[str]:
    """Probabilities of windows may differ in their last bits."""
    rows = ({**row, "probability": round(row["probability"], 9)} for row in table.to_pylist())
    return sorted(map(repr, rows))


def test_a_partition_is_no_second_column_of_an_answer() -> None:
    """Nothing is lost behind another column of its name."""
    table = pa.table({name: [1.0, 2.0] for name in ("id", "at", "x", "time", "x_sum", "value", "phenomenon")})
    calls: dict[str, Any] = {
        "time": lambda stream: ap.window_aggregate(stream, {"x": "sum"}, window=9),
        "x_sum": lambda stream: ap.window_aggregate(stream, {"x": "sum"}, window=9),
        "value": lambda stream: ap.sensor_join(stream, within=1.0, window=9),
        "phenomenon": lambda stream: ap.phenomena(stream, within=1.0, strength=1, span=1),
    }
    for name, call in calls.items():
        with pytest.raises(ap.BadArgument, match=f"two columns '{name}'"):
            call(ap.Stream(table, key="id", time="at", value="x", partition_by=name))


def test_limits_of_output_hold_for_collected_samples() -> None:
    stream = ap.Stream(pa.table({"id": [1, 2, 3], "at": [0, 0, 0], "x": [1.0] * 3}), key="id", time="at", value="x")
    assert len(ap.collect_samples(stream, every=1, options=ap.Options(max_output=3))) == 3
    with pytest.raises(ap.OutputLimit, match="at least 3 rows"):
        ap.collect_samples(stream, every=1, options=ap.Options(max_output=2))


def test_windows_of_no_sensor_are_refused() -> None:
    stream = ap.Stream(pa.table({"id": [1], "at": [0], "x": [1.0]}), key="id", time="at", value="x")
    with pytest.raises(ap.BadArgument, match="a window of no sensor"):
        ap.sensor_join(stream, within=1.0, window={})
