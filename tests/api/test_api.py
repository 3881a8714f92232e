"""The front door: arguments and what is said about wrong ones, kinds of frames, types in and out, rejects."""

from __future__ import annotations

import copy
import gc
import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import appulse as ap
from appulse.api.results import _TABLES, is_spark
from appulse.engines.results import MOST_RECENT
from appulse.model.columns import plain_type
from tests.helpers import hands, naive

QUESTION: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5, "window": ap.TimeWindow("10 seconds")}


def _table(n: int = 3, **columns: Any) -> pa.Table:
    usual = {"id": list(range(n)), "ts": [float(i) for i in range(n)], "x": [i / 2 for i in range(n)]}
    return pa.table(usual | columns)


def _stream(frame: Any, **settings: Any) -> ap.Stream:
    usual: dict[str, Any] = {"key": "id", "time": "ts", "value": ap.Exact("x")}
    return ap.Stream(frame, **(usual | settings))


def _join(left: Any = None, right: Any = None, **settings: Any) -> pa.Table:
    left, right = (frame if frame is not None else _table() for frame in (left, right))
    streams = [frame if isinstance(frame, ap.Stream) else _stream(frame) for frame in (left, right)]
    return ap.similarity_join(*streams, **(QUESTION | settings))


# --- arguments --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": -1.0}, r"epsilon=-1.0\): give a finite number, at least 0"),
        ({"epsilon": float("nan")}, "epsilon=nan"),
        ({"epsilon": float("inf")}, "epsilon=inf"),
        ({"epsilon": 1e200}, "at most 1e"),
        ({"epsilon": "1"}, "epsilon='1'"),
        ({"epsilon": True}, "epsilon=True"),
        ({"epsilon": None}, "epsilon=None"),
        ({"probability": 0.0}, r"probability=0.0\): give a finite number, above 0, at most 1"),
        ({"probability": 1.1}, "probability=1.1"),
        ({"probability": float("nan")}, "probability=nan"),
        ({"probability": None}, "probability=None"),
        ({"window": [10]}, r"window=\[10\]\): give a window such as.*or a duration"),
        ({"window": "10 secnds"}, "unknown unit"),
        ({"window": ap.TimeWindow(1, per_stream={"rihgt": 2})}, "'rihgt', which is not a stream.*Did you mean 'right'"),
        ({"on_reject": "ignore"}, "on_reject='ignore'.*collect"),
    ],
)
def test_a_wrong_argument_is_named_with_what_would_do(settings: dict[str, Any], message: str) -> None:
    """As a ValueError of appulse's own."""
    with pytest.raises(ap.BadArgument, match=message) as caught:
        _join(**settings)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, ap.AppulseError)


def test_numbers_may_be_numpys_and_windows_timedeltas() -> None:
    """Whatever is a number or a duration."""
    from datetime import timedelta

    window = ap.TimeWindow(timedelta(seconds=10))
    usual = _join()
    for settings in (
        {"epsilon": np.int64(1)},
        {"epsilon": np.float32(1), "probability": np.float32(0.5)},
        {"epsilon": 1, "probability": np.float64(0.5)},
        {"window": window},
        {"window": ap.TimeWindow(np.float64(10))},
    ):
        naive.assert_same_answers(_join(**settings), naive.answers_of(usual))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ap.TimeWindow("ten"), r"TimeWindow\(length='ten'\): it is not a duration"),
        (lambda: ap.TimeWindow(-1), r"TimeWindow\(length=-1\): it is negative"),
        (lambda: ap.TimeWindow(1, per_stream={"a": "x"}), r"per_stream=\{'a': 'x'\}"),
        (lambda: ap.Options(bounds=frozenset({"momnt"})), r"bounds=.*'momnt'.*Did you mean 'moment'"),
        (lambda: ap.Options(index="gird"), "index='gird'.*Did you mean 'grid'"),
        (lambda: ap.Options(partitions=0), "at least 1"),
        (lambda: _stream(None, value=5), "an uncertainty model: Exact, Samples, Gaussian, Ball, Position"),
        (lambda: _stream(None, key=3), "give the name of a column"),
        (lambda: _stream(None, order="tme"), "order='tme'.*Did you mean 'time'"),
        (lambda: _stream(None, unit="sec"), "unit='sec'"),
        (lambda: _stream(None, lateness="-1 s"), "lateness='-1 s'"),
        (lambda: _stream(None, idle_after=-1), "idle_after=-1.*negative"),
    ],
)
def test_definitions_are_checked_when_they_are_made(make: Any, message: str) -> None:
    """Where the mistake is, not where it would have hurt."""
    with pytest.raises(ap.BadArgument, match=message):
        make()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"key": "idd"}, r"Stream 'left' has no column 'idd'.*Did you mean 'id'.*It has: id, ts, x"),
        ({"time": "time"}, "Stream 'left' has no column 'time'"),
        ({"value": ap.Exact("y")}, "Stream 'left' has no column 'y'"),
        ({"value": ap.Gaussian("x", sigma="sigma")}, "no column 'sigma'"),
        ({"value": ap.Samples("samples")}, "no column 'samples'"),
        ({"existence": "e"}, "no column 'e'"),
        ({"partition_by": "p"}, "no column 'p'|partition_by differs"),
        ({"value": ap.Exact("text")}, r"Column 'text' of stream 'left' is string, not a number"),
        ({"existence": "text"}, "not a number"),
        ({"value": ap.Samples("x")}, r"Samples\('x'\) of stream 'left' is double"),
        ({"value": ap.Samples("texts")}, r"Samples\('texts'\).*list<list<double>>"),
        ({"value": ap.Samples("list", weights="x")}, "weights='x' of stream 'left' is not a list"),
        ({"time": "text"}, "time='text' holds string.* Parse text first"),
        ({"name": "cabs", "key": "idd"}, "Stream 'cabs' has no column 'idd'"),
    ],
)
def test_a_wrong_column_is_named_with_its_stream(settings: dict[str, Any], message: str) -> None:
    """And what there is instead."""
    table = _table(text=["a", "b", "c"], texts=[["a"]] * 3, list=[[0.0]] * 3)
    right = _stream(table, partition_by="text" if "partition_by" in settings else None)
    with pytest.raises(ap.BadArgument, match=message):
        _join(_stream(table, **settings), right)


def test_a_column_that_is_there_twice_is_refused() -> None:
    """Nobody knows which of them is meant."""
    twice = pa.Table.from_arrays([*_table().columns, pa.array([0.0] * 3)], names=["id", "ts", "x", "x"])
    with pytest.raises(ap.BadArgument, match="several columns 'x'"):
        _join(twice)


def test_streams_have_to_be_streams_with_frames() -> None:
    """Frames are wrapped; streams without one are for pushing."""
    with pytest.raises(ap.BadArgument, match=r"Wrap the frame: ap\.Stream\(frame, \.\.\.\), got pyarrow\.Table"):
        ap.similarity_join(_table(), _stream(_table()), **QUESTION)
    with pytest.raises(ap.BadArgument, match=r"has no frame.*SimilarityJoin"):
        _join(_stream(None))
    with pytest.raises(ap.BadArgument, match=r"frame is a builtins\.dict\. Give a Spark DataFrame"):
        _join({"id": [1]})
    with pytest.raises(ap.BadArgument, match=r"RecordBatchReader\. .*stream_batches"):
        _join(_table().to_reader())


def test_streams_have_names_of_their_own() -> None:
    """``left, right, s3, s4`` unless they say otherwise; two of one name are an error, so is one object twice."""
    streams = [_stream(_table()) for _ in range(4)]
    found = ap.similarity_join(*streams, **QUESTION)
    assert set(found["left_stream"].to_pylist()) == {"left", "right", "s3"}
    assert set(found["right_stream"].to_pylist()) == {"right", "s3", "s4"}
    with pytest.raises(ap.BadArgument, match="Two streams are named 'right'"):
        _join(_stream(_table(), name="right"))
    with pytest.raises(ap.BadArgument, match="Two streams are named 'a'"):
        _join(_stream(_table(), name="a"), _stream(_table(), name="a"))
    for several in ((streams[0], streams[0], streams[1]), (streams[0], streams[1], streams[0])):
        with pytest.raises(ap.BadArgument, match="given twice"):
            ap.similarity_join(*several, **QUESTION)
    with pytest.raises(ap.BadArgument, match="at most 16"):
        ap.similarity_join(*(_stream(_table()) for _ in range(17)), **QUESTION)


def test_the_same_stream_twice_is_joined_with_itself() -> None:
    """The same object, not the same frame."""
    stream = _stream(_table())
    paired = ap.similarity_join(stream, stream, **QUESTION)
    assert naive.answers_of(paired) == naive.answers_of(ap.self_join(stream, **QUESTION))
    assert len(paired) == 3
    assert len(_join(_stream(_table()), _stream(_table()))) == 9


def test_dimensions_have_to_agree() -> None:
    """Where models or column types tell them."""
    table = _table(y=[0.0] * 3, s=pa.array([[[0.0] * 3]] * 3, pa.list_(pa.list_(pa.float64(), 3))), t=[[0.0]] * 3)
    two = _stream(table, value=ap.Exact("x", "y"))
    for other in (ap.Exact("x"), ap.Samples("s"), ap.Samples("t"), ap.Samples("s", names=("a", "b", "c"))):
        with pytest.raises(ap.BadArgument, match="differ in dimensions: left has 2, right has"):
            _join(two, _stream(table, value=other))


def test_partitions_have_to_agree_in_number_and_type() -> None:
    """Over all streams of a call."""
    table = _table(p=[1, 2, 3], q=["a", "b", "c"])
    with pytest.raises(ap.BadArgument, match="differs in number"):
        _join(_stream(table, partition_by="p"), _stream(table))
    with pytest.raises(ap.BadArgument, match=r"'p' of 'left' is int64, 'q' of 'right' is string"):
        _join(_stream(table, partition_by=("p", "p")), _stream(table, partition_by=("p", "q")))


def test_what_is_not_built_says_so() -> None:
    """Instead of doing something else."""
    for error in (ap.NotBuilt, NotImplementedError):
        with pytest.raises(error, match="not built for this call"):
            ap.nearest(_stream(_table(), motion=ap.Straight(1)), _stream(_table()), epsilon=1, window=1)


def test_nothing_stands_before_the_streams_were_shown() -> None:
    """Nor can what is unknown be emitted."""
    with pytest.raises(ap.BadArgument, match="push every stream"):
        hands.similarity_join(a=_stream(None), **QUESTION).current()
    with pytest.raises(ap.BadArgument, match=r"emit='change'.*changes"):
        _join(emit="change")


def test_built_values_of_unbuilt_arguments_are_fine() -> None:
    """As they stand in the contract."""
    usual = {"imputer": None, "metric": "euclidean", "emit": "matches", "probabilities": "exact", "values": False}
    assert len(_join(**usual)) == 9


# --- frames of any kind -----------------------------------------------------------------------------------------


def _rich() -> pa.Table:
    """A table with every kind of column that pandas and Polars have words for."""
    random = np.random.default_rng(1)
    n = 150
    return pa.table(
        {
            "id": [f"k{i % 7}" for i in range(n)],
            "ts": pa.array(random.integers(0, 9, n) * 1_000_000).cast(pa.timestamp("us")),
            "x": [None if i == 3 else float(x) for i, x in enumerate(random.integers(0, 4, n))],
            "y": random.integers(0, 4, n),
            "sigma": [-1.0 if i == 4 else 0.25 for i in range(n)],
            "exists": [0.5 if i % 2 else 1.0 for i in range(n)],
            "group": [None if i == 5 else "ab"[i % 2] for i in range(n)],
            "samples": [[[float(a), float(b)] for a, b in random.integers(0, 3, (i % 3 + 1, 2))] for i in range(n)],
            "weights": [[1.0 / (i % 3 + 1)] * (i % 3 + 1) for i in range(n)],
        }
    )


CONVERSIONS: dict[str, Any] = {
    "pandas": lambda table: table.to_pandas(),
    "pandas with arrow types": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas with an index": lambda table: table.to_pandas().set_index(pd.Index(range(100, 100 + len(table)))),
    "polars": pl.from_arrow,
    "record batch": lambda table: table.combine_chunks().to_batches()[0],
    "chunks": lambda table: pa.concat_tables([table.slice(0, 7), table.slice(7)]),
    "categories": lambda table: table.set_column(0, "id", table["id"].dictionary_encode()),
}


@pytest.mark.parametrize("kind", list(CONVERSIONS))
@pytest.mark.parametrize(
    "model",
    [ap.Gaussian("x", "y", sigma="sigma"), ap.Samples("samples", weights="weights"), ap.Ball("x", "y", radius="sigma")],
    ids=["gaussian", "samples", "ball"],
)
def test_frames_of_every_kind_give_equal_answers(kind: str, model: Any) -> None:
    """And the same rejects, as Arrow tables."""
    table = _rich()
    settings: dict[str, Any] = {"value": model, "existence": "exists", "partition_by": "group"}
    usual = ap.self_join(_stream(table, **settings), **QUESTION)
    found = ap.self_join(_stream(CONVERSIONS[kind](table), **settings), **QUESTION)
    assert isinstance(found, pa.Table)
    assert len(found) > 10
    naive.assert_same_answers(found, naive.answers_of(usual))
    ours, theirs = (ap.rejects(result).drop_columns(["values"]).to_pylist() for result in (found, usual))
    assert ours == theirs
    assert len(ours) >= 1
    assert found.schema.field("left_time").type in (pa.timestamp("us"), pa.timestamp("ns"))
    assert found.schema.field("left_key").type in (pa.string(), pa.large_string())


@pytest.mark.parametrize("other", [pa.int8(), pa.uint32(), pa.int64()])
def test_partitions_may_be_integers_of_any_width(other: pa.DataType) -> None:
    def stream(kind: pa.DataType, name: str) -> ap.Stream:
        table = pa.table({"k": [1, 2, 3], "t": [0] * 3, "x": [0.0] * 3, "g": pa.array([1, 2, 2], kind)})
        return ap.Stream(table, key="k", time="t", value="x", name=name, partition_by="g")

    streams = stream(pa.int16(), "a"), stream(other, "b")
    found = ap.similarity_join(*streams, epsilon=1, probability=1, window="1 second")
    pairs = [(row["left_key"], row["right_key"]) for row in found.to_pylist()]
    assert sorted(pairs) == [(1, 1), (2, 2), (2, 3), (3, 2), (3, 3)]
    queries = pa.table({"query": [1], "condition": ["a.x = b.x"]})
    window, counted = ap.TimeWindow("1 second"), {"n": "count"}
    counts = ap.match_queries(*streams, queries=queries, window=window, aggregate=counted)
    assert counts.select(["g", "n"]).to_pylist() == [{"g": 1, "n": 1.0}, {"g": 2, "n": 4.0}]


@pytest.mark.parametrize("other", [pa.uint64(), pa.float64(), pa.string()])
def test_partitions_of_other_types_are_refused(other: pa.DataType) -> None:
    table = pa.table({"k": [1], "t": [0], "x": [0.0], "g": pa.array([1], pa.int16())})
    streams = [
        ap.Stream(one, key="k", time="t", value="x", partition_by="g")
        for one in (table, table.set_column(3, "g", table["g"].cast(other)))
    ]
    with pytest.raises(ap.BadArgument, match=r"'g' of 'left' is int16, 'g' of 'right' is .*Cast one of them"):
        ap.similarity_join(*streams, epsilon=1, probability=1, window="1 second")


def test_spark_frames_do_not_mix_with_others() -> None:
    """The error says what to do."""
    spark_frame = type("DataFrame", (), {"__module__": "pyspark.sql.dataframe"})()
    assert is_spark(spark_frame)
    with pytest.raises(ap.BadArgument, match=r"mixes Spark frames with others.*createDataFrame"):
        _join(spark_frame)
    with pytest.raises(ap.BadArgument, match="mixes Spark frames"):
        _join(None, spark_frame)


# --- types in, types out ----------------------------------------------------------------------------------------

KEYS: dict[str, pa.Array] = {
    "int32": pa.array([1, 2, 3], pa.int32()),
    "uint64": pa.array([2**64 - 1, 2, 3], pa.uint64()),
    "text": pa.array(["a", "b", "c"]),
    "large text": pa.array(["a", "b", "c"], pa.large_string()),
    "text view": pa.array(["a", "b", "c"], pa.string_view()),
    "decimal": pa.array([Decimal("1.50"), Decimal("2.50"), Decimal("3.50")]),
    "float32": pa.array([1.5, 2.5, 3.5], pa.float32()),
    "bool": pa.array([True, False, True]),
    "date": pa.array([date(2024, 1, i) for i in (1, 2, 3)]),
    "timestamp": pa.array([datetime(2024, 1, i, tzinfo=UTC) for i in (1, 2, 3)], pa.timestamp("ms", "Europe/Paris")),
    "binary": pa.array([b"a", b"\xff", b""]),
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "y"}, {"a": 3, "b": None}]),
    "list": pa.array([[1], [], [2, None]]),
}


@pytest.mark.parametrize("kind", list(KEYS))
def test_keys_come_out_in_the_type_they_came_in(kind: str) -> None:
    """In answers and rejects, and where there are none."""
    key = KEYS[kind]
    table = _table(bad=[0.0, None, 0.5]).set_column(0, "id", key)
    result = ap.self_join(_stream(table, value=ap.Exact("bad")), **QUESTION)
    for side in ("left_key", "right_key"):
        assert result.schema.field(side).type == plain_type(key.type)
    assert result["left_key"].to_pylist() + result["right_key"].to_pylist() == [key[0].as_py(), key[2].as_py()]
    assert ap.rejects(result)["key"].to_pylist() == [key[1].as_py()]
    assert ap.rejects(result).schema.field("key").type == plain_type(key.type)
    nothing = ap.self_join(_stream(table.slice(0, 0)), **QUESTION)
    assert nothing.schema == result.schema


@pytest.mark.parametrize(
    ("left", "right", "expected", "values"),
    [
        ("int32", "text", pa.string(), ("1", "a")),
        ("text", "large text", pa.string(), ("a", "a")),
        ("decimal", "text", pa.string(), ("1.50", "a")),
        ("struct", "int32", pa.string(), ('{"a": 1, "b": "x"}', "1")),
        ("list", "text", pa.string(), ("[1]", "a")),
        ("uint64", "int32", pa.string(), (str(2**64 - 1), "1")),
        ("bool", "text", pa.string(), ("true", "a")),
        ("date", "text", pa.string(), ("2024-01-01", "a")),
        ("binary", "text", pa.string(), ("a", "a")),
    ],
)
def test_keys_of_differing_types_become_text(left: str, right: str, expected: pa.DataType, values: Any) -> None:
    """On both sides, in rejects too."""
    a, b = (_table().set_column(0, "id", KEYS[kind]) for kind in (left, right))
    a = a.set_column(2, "x", pa.array([0.0, None, None]))
    result = _join(a, b)
    assert {result.schema.field(f"{side}_key").type for side in ("left", "right")} == {expected}
    assert (result["left_key"][0].as_py(), result["right_key"][0].as_py()) == values
    assert ap.rejects(result).schema.field("key").type == expected
    assert len(ap.rejects(result)) == 2


def test_a_negative_zero_comes_out_as_a_key() -> None:
    """Also within others. It sorts before 0.0, and as a partition it is 0.0."""
    keys = pa.array([0.0, -0.0, 1.0])
    for column in (keys, pa.StructArray.from_arrays([keys], ["a"])):
        table = pa.table({"id": column, "ts": [0.0] * 3, "x": [0.0] * 3, "p": [0.0, -0.0, 1.0]})
        stream = ap.Stream(table, key="id", time="ts", value=ap.Exact("x"), partition_by="p")
        found = ap.self_join(stream, **QUESTION)
        assert str(found["left_key"].to_pylist()) in ("[-0.0]", "[{'a': -0.0}]")
        assert str(found["right_key"].to_pylist()) in ("[0.0]", "[{'a': 0.0}]")
    sums = ap.window_aggregate(stream, {"x": "count"}, window=ap.TimeWindow(1))
    assert sorted(zip(map(str, sums["p"].to_pylist()), sums["x_count"].to_pylist(), strict=True)) == [
        ("0.0", 2.0),
        ("1.0", 1.0),
    ]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_all_that_are_no_number_are_one_partition(kind: pa.DataType) -> None:
    """Whatever sign the division gave them."""
    nothing = pa.array(np.array([np.nan, -np.nan, np.nan])).cast(kind)
    table = pa.table({"id": [1, 2, 3], "ts": [0.0] * 3, "x": [0.0] * 3, "p": nothing})
    stream = ap.Stream(table, key="id", time="ts", value=ap.Exact("x"), partition_by="p")
    assert ap.window_aggregate(stream, {"x": "count"}, window=ap.TimeWindow(1))["x_count"].to_pylist() == [3.0]


def test_integer_keys_of_differing_width_stay_numbers() -> None:
    """Of the wider type."""
    wide = _table().set_column(0, "id", pa.array([2**40, 1, 2]))
    result = _join(_table().set_column(0, "id", KEYS["int32"]), wide)
    assert result.schema.field("left_key").type == pa.int64()


TIMES: dict[str, pa.Array] = {
    "int64": pa.array([5, 6, 7]),
    "int32": pa.array([5, 6, 7], pa.int32()),
    "float64": pa.array([5.5, 6.25, 7.000001]),
    "float32": pa.array([5.5, 6.25, 7.0], pa.float32()),
    "decimal": pa.array([Decimal("5.500"), Decimal("6.250"), Decimal("7.001")]),
    "date": pa.array([date(2024, 1, 1)] * 3),
    "timestamp s": pa.array([5, 6, 7]).cast(pa.timestamp("s")),
    "timestamp ns": pa.array([5_000_000_000, 6_000_001_000, 7_000_000_000]).cast(pa.timestamp("ns")),
    "timestamp us zoned": pa.array([5_000_000, 6_000_001, 7_000_000]).cast(pa.timestamp("us", "Asia/Tokyo")),
}


@pytest.mark.parametrize("kind", list(TIMES))
def test_times_come_out_in_the_type_they_came_in(kind: str) -> None:
    """In answers, in rejects and in late rejects."""
    times = TIMES[kind]
    table = _table(bad=[0.0, None, 0.5]).set_column(1, "ts", times)
    result = ap.self_join(_stream(table, value=ap.Exact("bad")), **QUESTION)
    assert {result.schema.field(f"{side}_time").type for side in ("left", "right")} == {times.type}
    assert result["left_time"].to_pylist() + result["right_time"].to_pylist() == [times[0].as_py(), times[2].as_py()]
    assert ap.rejects(result)["time"].to_pylist() == [times[1].as_py()]
    if kind != "date":
        join = hands.similarity_join(a=_stream(None), **QUESTION)
        join.push(a=table.slice(2))
        join.push(a=table.slice(0, 1))
        late = join.rejects()
        assert (late["time"].to_pylist(), late["reason"].to_pylist()) == ([times[0].as_py()], ["late"])
        assert late.schema.field("time").type == times.type


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("int64", "int32", pa.int64()),
        ("int64", "float64", pa.float64()),
        ("timestamp s", "timestamp ns", pa.timestamp("us")),
        ("date", "timestamp s", pa.timestamp("us")),
        ("timestamp us zoned", "timestamp s", pa.timestamp("us", "Asia/Tokyo")),
    ],
)
def test_times_of_differing_types_meet_in_the_wider_one(left: str, right: str, expected: pa.DataType) -> None:
    """Numbers with numbers, timestamps and dates with each other."""
    a, b = (_table().set_column(1, "ts", TIMES[kind]) for kind in (left, right))
    result = _join(a, b, window=ap.TimeWindow("100000 days"))
    assert {result.schema.field(f"{side}_time").type for side in ("left", "right")} == {expected}
    assert len(result) == 9


def test_timestamps_and_numbers_do_not_mix() -> None:
    """Neither over the streams nor over the pushes of a call."""
    stamps = _table().set_column(1, "ts", TIMES["timestamp s"])
    with pytest.raises(ap.BadArgument, match=r"double, timestamp\[s\].*do not mix"):
        _join(_table(), stamps)
    join = hands.similarity_join(a=_stream(None), **QUESTION)
    join.push(a=_table())
    with pytest.raises(ap.BadArgument, match="was double in earlier pushes and is timestamp"):
        join.push(a=stamps)


def test_streams_may_count_time_in_units_of_their_own() -> None:
    """Each comes out in its own."""
    a, b = (_table(1).set_column(1, "ts", pa.array([t], pa.int32())) for t in (1_700_000_000, 28_333_333))
    result = _join(_stream(a, unit="s"), _stream(b, unit="min"), window=ap.TimeWindow("1 minute"))
    assert result["left_time"].to_pylist() == [1_700_000_000]
    assert result["right_time"].to_pylist() == [28_333_333]


# --- rejects ----------------------------------------------------------------------------------------------------


def test_rejects_belong_to_the_result_itself() -> None:
    """With stream, key, time, reason, detail and values; not to a slice, a copy or another table."""
    result = _join(_stream(_table(), name="good"), _table(x=[0.0, float("nan"), 1.0]))
    rows = ap.rejects(result).to_pylist()
    assert [list(row) for row in rows] == [["stream", "key", "time", "reason", "detail", "values"]]
    assert (rows[0]["stream"], rows[0]["key"], rows[0]["time"]) == ("right", 1, 1.0)
    assert (rows[0]["reason"], rows[0]["detail"]) == ("non-finite value", "x is nan")
    assert json.loads(rows[0]["values"]) == {"x": "nan"}
    with pytest.raises(ap.BadArgument, match="not what a call of appulse returned"):
        ap.rejects(pa.table({"a": [1]}))
    with pytest.raises(ap.BadArgument, match=r"rejects\(result=\{\}\): give the result of a call, itself, got dict"):
        ap.rejects({})
    with pytest.raises(ap.BadArgument, match="are rejects of the call that takes it"):
        ap.rejects(_stream(_table()))
    assert len(ap.rejects(_join())) == 0


@pytest.mark.parametrize(
    "made",
    [
        lambda t: t.slice(0, 1),
        lambda t: t.select(["left_key"]),
        lambda t: t.rename_columns([f"c{i}" for i in range(t.num_columns)]),
        lambda t: t.filter(pa.compute.field("left_key") > 0),
        lambda t: t.take([0]),
        lambda t: t.sort_by("distance"),
        lambda t: t.append_column("twice", t["distance"]),
        lambda t: t.drop_columns(["distance"]),
        lambda t: t.combine_chunks(),
        lambda t: pa.Table.from_batches(t.to_batches()),
    ],
)
def test_what_is_made_of_a_result_is_known(made: Any) -> None:
    """Also once the result itself is gone."""
    bad = _table(x=[0.0, 1.0, None])
    table = made(_join(None, bad))
    gc.collect()
    assert len(ap.rejects(table)) == 1
    assert ap.explain(table).call == "similarity_join"


def test_what_has_lost_its_result_says_so() -> None:
    """Two results in one table are none."""
    one, two = _join(), _join()
    with pytest.raises(ap.BadArgument, match="drops the metadata of columns"):
        ap.rejects(pa.Table.from_pandas(one.to_pandas()))
    with pytest.raises(ap.BadArgument, match="columns of 2 results"):
        ap.rejects(one.append_column(two.schema.field("distance").with_name("other"), two["distance"]))


@pytest.mark.parametrize(
    "together",
    [
        lambda one, other: [one, other],
        lambda one, other: [one.slice(0, 1), other.slice(0, 1)],
        lambda one, other: [one.filter(pa.compute.field("left_key") < 0), other.filter([True] * len(other))],
        lambda one, other: [one, other.slice(0, 0)],
        lambda one, other: [other.slice(0, 0), one],
        lambda one, other: [pa.concat_tables([one, other]).combine_chunks()],
    ],
)
def test_results_put_together_are_refused(together: Any) -> None:
    """Arrow keeps the metadata of the first table alone, whose rejects are not those of all."""
    one, other = (_join(None, _table(x=[0.0, 1.0, None])) for _ in range(2))
    table = pa.concat_tables(together(one, other))
    with pytest.raises(ap.BadArgument, match="put together of several results"):
        ap.rejects(table)
    assert len(ap.rejects(pa.concat_tables([one]))) == len(ap.rejects(other)) == 1


def test_empty_results_put_together_are_refused() -> None:
    """They may have rejects, too."""
    results = [_join(None, _table(x=[None, None, None])) for _ in range(2)]
    assert [len(result) for result in results] == [0, 0]
    with pytest.raises(ap.BadArgument, match="put together of several results"):
        ap.rejects(pa.concat_tables(results))


def test_parts_of_a_long_result_are_known() -> None:
    """Arrow filters long columns into several pieces."""
    rows = _table(260, x=[None, *[0.0] * 259])
    result = _join(_stream(rows), _stream(rows), window=1000)
    part = result.filter(pa.compute.field("left_key") >= 0)
    assert part["left_key"].num_chunks > result["left_key"].num_chunks
    assert len(ap.rejects(part)) == 2


def test_columns_that_are_put_to_a_result_may_have_more_pieces() -> None:
    result = _join(None, _table(x=[0.0, 1.0, None]))
    more = pa.chunked_array([[i] for i in range(len(result))])
    longer = result.append_column("more", more)
    assert longer["more"].num_chunks > result.columns[0].num_chunks
    assert ap.rejects(longer).equals(ap.rejects(result))


def test_of_results_that_are_gone_only_so_many_bytes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest stays, however large it is."""
    monkeypatch.setattr("appulse.engines.results.MOST_BYTES", 1)
    bad = _table(x=[0.0, 1.0, None])
    held, cut = _join(None, bad), _join(None, bad).slice(0, 1)
    latest = _join(None, bad).slice(0, 1)
    gc.collect()
    assert len(ap.rejects(held)) == len(ap.rejects(latest)) == 1
    with pytest.raises(ap.BadArgument, match="MiB of rejects"):
        ap.rejects(cut)


def test_of_results_that_are_gone_only_the_latest_are_kept() -> None:
    """Others as long as somebody holds them."""
    before = len(_TABLES)
    held, cut = _join(), _join().slice(0, 1)
    for _ in range(2 * MOST_RECENT):
        _join()
    gc.collect()
    assert len(ap.rejects(held)) == 0
    with pytest.raises(ap.BadArgument, match="Hold the result itself"):
        ap.rejects(cut)
    assert len(_TABLES) <= before + MOST_RECENT + 1


def test_bad_rows_raise_if_asked_to() -> None:
    """The first of them is named, with how many there are."""
    bad = _table(x=[0.0, float("inf"), None])
    with pytest.raises(ap.BadInput, match=r"2 rows of stream 'right'.*key 1 at 1.0: non-finite value \(x is inf\)"):
        _join(None, bad, on_reject="fail")
    assert len(_join(on_reject="fail")) == 9
    join = hands.similarity_join(a=_stream(None), on_reject="fail", **QUESTION)
    join.push(a=_table())
    with pytest.raises(ap.BadInput, match="late"):
        join.push(a=_table(1))


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us")])
def test_bad_rows_far_from_now_raise_what_others_do(kind: pa.DataType) -> None:
    """Python has no object for such a time, so its number is shown."""
    far = pa.array([2**63 - 1]).view(kind)
    stream = ap.Stream(pa.table({"k": far, "t": far, "x": [0.0]}), key="k", time="t", value="x")
    with pytest.raises(ap.BadInput, match=r"at 9223372036854775807 \(timestamp.*\): non-finite value"):
        ap.self_join(stream, **QUESTION, on_reject="fail")


@pytest.mark.parametrize("late", [False, True])
def test_rejects_show_values_that_python_has_no_object_for(late: bool) -> None:
    """Of rows that cannot be used, and of good ones that come too late."""
    far = pa.array([0, 2**61]).view(pa.timestamp("us"))
    table = pa.table({"k": [1, 2], "t": pa.array([50, 1 if late else None]), "x": far})
    call = ap.SensorJoin(ap.Stream(None, key="k", time="t", value="x", lateness=0), window=1)
    for i in range(2):
        call.push(table.slice(i, 1))
    [reject] = call.rejects().to_pylist()
    assert json.loads(reject["values"])["x"] == f"{2**61} (timestamp[us])"


def test_values_of_rejects_are_json_whatever_they_were() -> None:
    """Numbers, texts and lists as such; dates and what JSON lacks as text, bytes in base64."""
    table = _table(
        3,
        x=[None] * 3,
        p=pa.array([date(2024, 1, 1)] * 3),
        q=pa.array([b"\xff"] * 3),
        e=pa.array([Decimal("0.5")] * 3),
    ).set_column(2, "x", pa.nulls(3, pa.float64()))
    result = ap.self_join(_stream(table, partition_by=("p", "q"), existence="e"), **QUESTION)
    values = json.loads(ap.rejects(result)["values"][0].as_py())
    assert values == {"x": None, "e": 0.5, "p": "2024-01-01", "q": "/w=="}


# --- by hand ----------------------------------------------------------------------------------------------------


def _by_hand(**settings: Any) -> ap.SimilarityJoin:
    streams = {"left": _stream(None, lateness=100), "right": _stream(None, lateness=100)}
    return hands.similarity_join(**(streams | QUESTION | settings))


def test_rows_are_pushed_as_they_come() -> None:
    """Any of the streams at a time; each pair comes out once, when its second row comes."""
    table = _table(4)
    join = _by_hand()
    assert len(join.push(left=table.slice(0, 2), right=table.slice(0, 0))) == 0
    assert len(join.push(right=table.slice(0, 1).to_pandas())) == 2
    assert len(join.push(left=pl.from_arrow(table.slice(2, 1)), right=table.slice(1, 3))) == 9
    assert len(join.push(left=table.slice(3))) == 3
    assert len(join.push()) == 0
    assert len(join.drain()) == 0
    assert len(join.rejects()) == 0
    with pytest.raises(ap.BadArgument, match="drained"):
        join.push(left=table)
    assert len(_join(table, table)) == 2 + 9 + 3


def test_rows_wait_until_every_stream_has_shown_its_columns() -> None:
    """Streams may come one by one; until all have, nothing matches and nothing is late."""
    join = _by_hand()
    with pytest.raises(ap.BadArgument, match="Nothing has been judged"):
        join.rejects()
    first = join.push(left=_table())
    assert len(first) == 0
    assert first.schema.field("left_key").type == pa.int64()
    assert len(join.push(left=_table())) == 0
    assert len(join.push(right=_table())) == 2 * 9


def test_columns_are_checked_when_they_are_shown() -> None:
    """A stream that cannot serve is refused at once, not when the last one comes."""
    with pytest.raises(ap.BadArgument, match="no column 'ts'"):
        _by_hand().push(left=_table().drop_columns(["ts"]))


@pytest.mark.parametrize("empty", [pd.DataFrame(columns=["id", "ts", "x"]), pa.table({"id": [], "ts": [], "x": []})])
def test_an_empty_frame_without_types_settles_none(empty: Any) -> None:
    """Keys and times have the types of the streams that show some."""
    join = _by_hand()
    assert len(join.push(left=_table(), right=empty)) == 0
    found = join.push(right=_table())
    assert len(found) == 9
    assert found.schema.field("right_key").type == pa.int64()
    assert found.schema.field("right_time").type == pa.float64()


def test_streams_of_a_join_by_hand_go_by_name() -> None:
    """In answers and in pushes; a single one needs none."""
    join = ap.SimilarityJoin(_stream(None, name="cabs", lateness=9), _stream(None, lateness=9), **QUESTION)
    found = join.push(cabs=_table(), right=_table())
    assert set(found["left_stream"].to_pylist()) == {"cabs"}
    assert set(found["right_stream"].to_pylist()) == {"right"}
    with pytest.raises(ap.BadArgument, match=r"push\(left=...\): there is no such stream. There are: cabs, right"):
        join.push(left=_table())
    with pytest.raises(ap.BadArgument, match="one frame of a single stream"):
        join.push(_table())
    alone = ap.SimilarityJoin(_stream(None, lateness=9), **QUESTION)
    assert alone.push(_table()).equals(ap.self_join(_stream(_table()), **QUESTION))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ap.SimilarityJoin(**QUESTION), "has no streams"),
        (lambda: ap.SimilarityJoin(_table(), **QUESTION), r"SimilarityJoin\(<pyarrow.Table>\): give a Stream"),
        (lambda: ap.SimilarityJoin(_stream(_table()), **QUESTION), r"has a frame. Leave it out, ap.Stream\(None"),
        (lambda: _by_hand(different="id"), "for a stream joined with itself"),
        (lambda: _by_hand(right=_stream(None, name="left")), "Two streams are named 'left'"),
    ],
)
def test_a_join_by_hand_checks_its_streams(make: Any, message: str) -> None:
    """When it is made."""
    with pytest.raises(ap.BadArgument, match=message):
        make()
    same = _stream(None)
    with pytest.raises(ap.BadArgument, match="given twice"):
        ap.SimilarityJoin(same, same, **QUESTION)


def test_a_push_that_raises_has_changed_nothing() -> None:
    """Neither rows nor frontier nor rejects: the same push, repaired, is answered in full."""
    streams: dict[str, Any] = {name: _stream(None, lateness=0) for name in ("left", "right")}
    join = hands.similarity_join(**streams, **QUESTION, on_reject="fail")
    join.push(left=_table(1), right=_table(1))
    later = _table(3).set_column(1, "ts", pa.array([2.0, 3.0, 4.0]))
    for broken in (later.drop_columns(["x"]), later.set_column(2, "x", pa.nulls(3, pa.float64()))):
        with pytest.raises(ValueError, match=r"no column 'x'|cannot be used"):
            join.push(left=later, right=broken)
    between = _table(2).slice(1)
    assert len(join.push(left=between, right=between)) == 3, "late only if the failed push had moved the frontier"
    assert len(join.push(left=later, right=later)) == 9 + 6 + 6


def test_keys_that_do_not_fit_those_of_earlier_pushes_are_refused() -> None:
    """With both types."""
    join = hands.similarity_join(a=_stream(None), **QUESTION)
    join.push(a=_table())
    with pytest.raises(ap.BadArgument, match=r"'id' of stream 'a' was int64 in earlier pushes and is (large_)?string"):
        join.push(a=_table().set_column(0, "id", KEYS["text"]))


def _one(key: Any = 1, time: Any = 1, **columns: Any) -> pa.Table:
    return pa.table({"k": [key], "t": [time], "x": [0.0]} | {name: [value] for name, value in columns.items()})


def _pushing(kind: str) -> tuple[Any, Any]:
    """A call by hand, as what pushes to it and what tells how many answers and rejects it has in the end."""
    stream = ap.Stream(None, key="k", time="t", value="x")
    by_hand: Any
    match kind:
        case "join":
            by_hand = ap.SimilarityJoin(stream, **QUESTION)
        case "queries":
            by_hand = ap.QueryMatch(stream)
            by_hand.change(pa.table({"query": [1], "condition": ["x >= 0"]}))
        case "aggregates":
            by_hand = ap.WindowAggregate(stream, {"x": "sum"}, window=9)
        case "sensors":
            by_hand = ap.SensorJoin(stream, window=9)
        case _:
            by_hand = ap.Phenomena(stream, strength=1, span=9)
    return by_hand.push, lambda: (len(by_hand.drain()), len(by_hand.rejects()))


@pytest.mark.parametrize("kind", ["join", "queries", "aggregates", "sensors", "phenomena"])
@pytest.mark.parametrize(
    "odd",
    [
        pa.table({"k": [7, 8], "t": [4.0, 2.75], "x": [0.0, 0.0]}),
        _one(key="q"),
        _one(key=1.5),
        _one(time=datetime(2024, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_push_that_does_not_fit_the_types_of_the_first_is_refused_whole(kind: str, odd: pa.Table) -> None:
    """Never cut; what fits goes on in the type of the first."""
    ends = []
    for second, refused in ((_one(2, 2), False), (_one(2.0, 2.0), True)):
        push, end = _pushing(kind)
        answers = [push(_one())]
        if refused:
            with pytest.raises(ap.BadArgument, match=r"was int64 in earlier pushes and is|do not mix"):
                push(odd)
        answers += [push(second), push(_one(3, 3))]
        ends.append((pa.concat_tables(answers).to_pylist(), end()))
    assert ends[0] == ends[1]
    assert ends[0][1][1] == 0


@pytest.mark.parametrize("kind", ["join", "queries", "aggregates", "sensors", "phenomena"])
def test_nothing_is_pushed_after_the_end_nor_in_the_midst_of_a_push(kind: str) -> None:
    push, end = _pushing(kind)
    push(_one())
    turn = push.__self__._turn
    with turn, pytest.raises(ap.BadArgument, match="Another push is under way"):
        push(_one(2, 2))
    push(_one(2, 2))
    end()
    with pytest.raises(ap.BadArgument, match=r"were drained: they have ended. Make a new \w+"):
        push(_one(3, 3))


def test_numbers_are_not_rounded_to_the_type_of_the_first_push() -> None:
    """Nor times to dates."""
    for first, fits, odd in (
        (pa.array([0.5], pa.float32()), 0.25, 0.1),
        (pa.array([date(2024, 1, 1)]), datetime(2024, 1, 2), datetime(2024, 1, 2, 3)),  # noqa: DTZ001
        (pa.array([Decimal("1.25")]), 2.5, 2.125),
    ):
        join = hands.similarity_join(a=ap.Stream(None, key="k", time="t", value=ap.Exact("x")), **QUESTION)
        join.push(a=_one().set_column(1, "t", first))
        with pytest.raises(ap.BadArgument, match="'t' of stream 'a' was"):
            join.push(a=_one(time=odd))
        join.push(a=_one(time=fits))


def test_a_push_that_raises_settles_no_dimensions() -> None:
    """Those are of the rows that were taken."""
    one, two = (pa.table({"k": [1], "t": [0], "x": [[[0.0] * d]], "e": [1.0]}) for d in (1, 2))
    stream = ap.Stream(None, key="k", time="t", value=ap.Samples("x"), existence="e")
    join = hands.similarity_join(a=stream, **QUESTION, on_reject="fail")
    with pytest.raises(ap.BadInput):
        join.push(a=two.set_column(3, "e", pa.array([2.0])))
    join.push(a=one)


def test_rejects_are_there_whichever_streams_have_spoken() -> None:
    """Before and after the drain; rows that nothing can be joined with are judged when they come."""
    stream: dict[str, Any] = {"key": "k", "time": "t", "value": ap.Exact("x")}
    bad = pa.table({"k": pa.array([None], pa.string()), "t": [1], "x": [0.0]})
    join = hands.similarity_join(a=ap.Stream(None, **stream), b=ap.Stream(None, **stream), **QUESTION)
    join.push(a=bad)
    assert join.rejects()["reason"].to_pylist() == ["null key"]
    assert len(join.drain()) == 0
    assert join.rejects()["reason"].to_pylist() == ["null key"]
    assert len(join.current()) == 0
    strict = hands.similarity_join(
        a=ap.Stream(None, **stream), b=ap.Stream(None, **stream), **QUESTION, on_reject="fail"
    )
    with pytest.raises(ap.BadInput):
        strict.push(a=bad)
    strict.push(a=_one("a"))
    assert len(strict.push(b=_one("b"))) == 1


def test_the_end_answers_streams_that_had_to_wait_for_others() -> None:
    """A stream that never showed its columns has no rows."""
    streams: dict[str, Any] = {
        name: ap.Stream(None, key="k", time="t", value=ap.Exact("x")) for name in ("a", "b", "c")
    }
    join = hands.similarity_join(**streams, **QUESTION)
    assert len(join.push(a=_one(), c=_one())) == 0
    assert join.drain()["right_stream"].to_pylist() == ["c"]
    assert len(join.current()) == 1


_UNTYPED = [pd.DataFrame(columns=["k", "t", "x"]), pa.table({name: pa.nulls(1) for name in ("k", "t", "x")})]


@pytest.mark.parametrize("untyped", _UNTYPED)
def test_columns_without_types_settle_none(untyped: Any) -> None:
    """In every call by hand: types are those of the first push that has some."""
    streams: dict[str, Any] = {name: ap.Stream(None, key="k", time="t", value=ap.Exact("x")) for name in ("a", "b")}
    join = hands.similarity_join(**streams, **QUESTION)
    assert len(join.push(a=untyped, b=untyped)) == 0
    assert len(join.current()) == 0
    assert len(join.rejects()) == 2 * len(untyped)
    assert len(join.push(b=_one(1))) == 0
    assert join.push(a=_one("q"))["right_key"].to_pylist() == ["1"]
    assert len(join.rejects()) == 2 * len(untyped)
    for kind in ("aggregates", "sensors", "phenomena"):
        push, end = _pushing(kind)
        for table in (untyped, untyped, _one(), _one(2)):
            push(table)
        assert end() == (1, 2 * len(untyped))
    third = hands.similarity_join(**streams, c=ap.Stream(None, key="k", time="t", value=ap.Exact("x")), **QUESTION)
    assert len(third.push(a=untyped, b=_one(), c=_one())) == 1
    with pytest.raises(ap.BadArgument, match="'t' of stream 'a' was int64"):
        third.push(a=_one(time=1.5))
    assert len(third.push(a=_one(time=1.0))) == 2


@pytest.mark.parametrize("untyped", _UNTYPED)
def test_a_call_on_columns_without_types_has_no_answers(untyped: Any) -> None:
    """And rejects all its rows."""
    for value in (ap.Exact("x"), ap.Samples("x"), ap.Gaussian("x", sigma="x")):
        stream = ap.Stream(untyped, key="k", time="t", value=value, partition_by="k")
        found = ap.self_join(stream, **QUESTION)
        assert len(found) == 0
        assert ap.rejects(found)["reason"].to_pylist() == ["null time"] * len(untyped)


def test_partitions_keep_their_type_over_pushes() -> None:
    """Pandas turns whole numbers into floats where one is missing: 1 and 1.0 are still one partition."""
    for settings in ({"partition_by": "p"}, {}):
        different = None if settings else "p"
        join = hands.similarity_join(a=_stream(None, lateness=9, **settings), **QUESTION, different=different)
        join.push(a=_table(p=pa.nulls(3)).slice(0, 0))
        join.push(a=pd.DataFrame({"id": [1, 2], "ts": [0.0, 0.0], "x": [0.0, 0.0], "p": [1, 2]}))
        found = join.push(a=pd.DataFrame({"id": [3, 4], "ts": [0.0, 0.0], "x": [0.0, 0.0], "p": [1, None]}))
        assert found["left_key"].to_pylist() == ([1] if settings else [2])
        assert found["right_key"].to_pylist() == [3]
        with pytest.raises(
            ap.BadArgument, match=r"'p' of stream 'a' was int64 in earlier pushes and is (large_)?string"
        ):
            join.push(a=pd.DataFrame({"id": [3], "ts": [0.0], "x": [0.0], "p": ["one"]}))


def test_the_number_of_dimensions_is_that_of_the_first_rows() -> None:
    """Of any stream; rows of another number are rejects ever after."""
    one, two = (pa.table({"id": [1], "ts": [0.0], "s": [[[0.0] * d]]}) for d in (1, 2))
    streams: dict[str, Any] = {name: _stream(None, value=ap.Samples("s"), lateness=9) for name in ("left", "right")}
    join = hands.similarity_join(**streams, **QUESTION)
    assert len(join.push(left=two.slice(0, 0), right=two)) == 0
    assert len(join.push(left=pa.concat_tables([one, two]))) == 1
    assert join.rejects()["reason"].to_pylist() == ["wrong dimension"]


def test_a_call_by_hand_says_that_it_cannot_be_pickled() -> None:
    call = ap.SimilarityJoin(ap.Stream(None, key="id", time="t", value="x"), epsilon=1, probability=0.5, window=1)
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=r"SimilarityJoin holds the state of its rows, and cannot be pickled"):
            copied(call)
    assert not copy.copy(call).started


MOVING: dict[str, Any] = {"motion": ap.Straight(max_gap=10)}
OF_TWO: dict[str, tuple[Any, dict[str, Any]]] = {
    "join": (lambda *s: ap.SimilarityJoin(*s, epsilon=1, probability=0.1, window=5), {}),
    "moving": (lambda *s: ap.SimilarityJoin(*s, epsilon=1, probability=0.1, window=5), MOVING),
    "encounters": (lambda *s: ap.Encounters(*s, epsilon=1, probability=0.1), MOVING),
    "nearest": (lambda *s: ap.Nearest(*s, epsilon=1, window=5), {}),
    "left": (lambda *s: ap.Nearest(*s, epsilon=1, window=5, how="left"), {}),
    "assign": (lambda *s: ap.Assign(*s, epsilon=1, probability=0.1, window="tick"), {}),
    "outliers": (lambda *s: ap.Outliers(*s, epsilon=1, fewer_than=2, probability=0.1, window=5), {}),
}


@pytest.mark.parametrize("name", [*OF_TWO])
def test_streams_may_come_one_after_the_other(name: str) -> None:
    rows = pa.table({"id": [1, 2], "t": [0.0, 1.0], "x": [0.0, 2.0], "y": [0.0, 0.0]})
    made, more = OF_TWO[name]
    found = []
    for pushes in ([{"a": rows}, {"b": rows}], [{"b": rows}, {"a": rows}], [{"a": rows, "b": rows}]):
        value = ap.Gaussian("x", "y", sigma=0.1)
        call = made(*(ap.Stream(None, key="id", time="t", value=value, name=side, **more) for side in "ab"))
        parts = [call.push(**push) for push in pushes]
        assert all(len(part) == 0 for part in parts[:-1])
        whole = pa.concat_tables([*parts[-1:], call.drain()])
        assert len(call.rejects()) == 0
        found.append(sorted(map(repr, whole.to_pylist())))
    assert found[0] == found[1] == found[2] != []


@pytest.mark.parametrize(("name", "lost"), [("left", True), ("nearest", False)])
def test_a_stream_that_never_came_is_missed_where_rows_would_be_lost(name: str, *, lost: bool) -> None:
    rows = pa.table({"id": [1], "t": [0.0], "x": [0.0], "y": [0.0]})
    call = OF_TWO[name][0](*(ap.Stream(None, key="id", time="t", value=ap.Exact("x", "y"), name=s) for s in "ab"))
    call.push(a=rows)
    with pytest.raises(ap.BadArgument, match="A stream has shown no columns"):
        call.rejects()
    if lost:
        with pytest.raises(ap.BadArgument, match="A stream has shown no columns"):
            call.drain()
        call.push(b=rows.slice(0, 0))
    assert len(call.drain()) == int(lost)
