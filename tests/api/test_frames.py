"""Frames at the door: a column of any type, in any part of any call, gives an answer or an error that says why."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.dataset import dataset

import appulse as ap
from appulse.model.columns import plain_type
from tests.helpers import hands, sensing

if TYPE_CHECKING:
    from collections.abc import Callable

DAY = [datetime(2024, 1, day) for day in (1, 2, 3)]  # noqa: DTZ001 - times without a zone are a type, too
MONEY = [Decimal("1.50"), Decimal("2.50"), Decimal("2.50")]
TEXT = ["a", "b", "b"]
BYTES = [b"abc", b"b\0d", b"b\0d"]
NUMBERS = [1, 2, 2]

#: One column of each type that Arrow knows: three values, two of them equal.
COLUMNS: dict[str, pa.Array] = {
    str(kind): pa.array(values, kind)
    for kind, values in [
        *((kind, NUMBERS) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
        *((kind, NUMBERS) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
        *((kind, np.array(NUMBERS, np.float16)) for kind in (pa.float16(), pa.float32(), pa.float64())),
        (pa.decimal32(5, 2), MONEY),
        (pa.decimal64(12, 2), MONEY),
        (pa.decimal128(20, 2), MONEY),
        (pa.decimal256(50, 2), MONEY),
        *((kind, TEXT) for kind in (pa.string(), pa.large_string(), pa.string_view())),
        *((kind, BYTES) for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3))),
        (pa.date32(), [date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 2)]),
        (pa.date64(), [date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 2)]),
        *((pa.timestamp(unit), DAY) for unit in ("s", "ms", "us", "ns")),
        (pa.timestamp("us", "Europe/Paris"), DAY),
        *((kind, [time(1), time(2), time(2)]) for kind in (pa.time32("s"), pa.time32("ms"))),
        *((kind, [time(1), time(2), time(2)]) for kind in (pa.time64("us"), pa.time64("ns"))),
        *((pa.duration(unit), [timedelta(1), timedelta(2), timedelta(2)]) for unit in ("s", "ms", "us", "ns")),
        (pa.month_day_nano_interval(), [(1, 2, 3), (4, 5, 6), (4, 5, 6)]),
        (pa.bool_(), [True, False, False]),
        *((kind(pa.float64()), [[1.0], [2.0], [2.0]]) for kind in (pa.list_, pa.large_list, pa.list_view)),
        (pa.large_list_view(pa.int64()), [[1], [2], [2]]),
        (pa.list_(pa.float64(), 2), [[1.0, 2.0], [2.0, 3.0], [2.0, 3.0]]),
        (pa.list_(pa.list_(pa.float64())), [[[1.0]], [[2.0]], [[2.0]]]),
        (pa.list_(pa.string_view()), [["a"], ["b"], ["b"]]),
        (pa.struct([("a", pa.int64()), ("b", pa.string_view())]), [{"a": 1}, {"a": 2, "b": "x"}, {"a": 2, "b": "x"}]),
        (pa.struct([("a", pa.decimal32(5, 2))]), [{"a": value} for value in MONEY]),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [("b", 2)], [("b", 2)]]),
        (pa.run_end_encoded(pa.int32(), pa.int64()), NUMBERS),
        (pa.null(), [None, None, None]),
    ]
}
COLUMNS["dictionary"] = pa.array(TEXT).dictionary_encode()
COLUMNS["dictionary of views"] = pa.array(TEXT, pa.string_view()).dictionary_encode()
COLUMNS["dictionary of numbers"] = pa.array(NUMBERS).dictionary_encode()

REST: dict[str, Any] = {
    "k": ["x", "y", "z"],
    "t": [0.0, 0.0, 1.0],
    "x": [0.0, 0.0, 0.5],
    "e": [0.5, 0.75, 1.0],
    "s": [[0.0, 0.5], [0.0], [0.5]],
}
CLOSE: dict[str, Any] = {"epsilon": 1.0, "probability": 0.1, "window": ap.TimeWindow(9)}
FIELD: dict[str, Any] = {"strength": 1, "span": 9}
REPOSITORY = pa.table({"x": [0.0, 1.0, 2.0], "c": [0.0, 2.0, 3.0]})
CONVERSIONS: dict[str, Callable[[pa.Table], Any]] = {
    "pyarrow": lambda table: table,
    "pandas": lambda table: table.to_pandas(),
    "pandas of Arrow": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": pl.from_arrow,
}
_POLARS_PANICS = re.compile(r"decimal256|interval|list_view|struct<a: decimal32|run_end")
EXACT = ap.Exact("x")


def stream(frame: Any, **changes: Any) -> ap.Stream:
    settings: dict[str, Any] = {"key": "k", "time": "t", "value": EXACT}
    return ap.Stream(frame, **(settings | changes))


def asked(condition: str = "x >= 0") -> pa.Table:
    return pa.table({"query": [1], "condition": [condition]})


def by_hand(frame: Any) -> pa.Table:
    join = hands.similarity_join(a=stream(None, key="c"), b=stream(None, key="c"), **CLOSE)
    return pa.concat_tables([join.push(a=frame, b=frame), join.drain()])


def queries_by_hand(frame: Any) -> pa.Table:
    match = ap.QueryMatch(stream(None, key="c"))
    match.change(asked())
    return match.push(frame)


def readings_by_hand(frame: Any) -> pa.Table:
    join = ap.SensorJoin(ap.Stream(None, key="k", time="t", value="c"), window=ap.TimeWindow(9))
    return pa.concat_tables([join.push(frame), join.drain()])


def sensors(frame: Any, **changes: Any) -> pa.Table:
    arguments: dict[str, Any] = {"sensor": "k", "time": "t", "value": "x", "window": ap.TimeWindow(9)}
    found: pa.Table = sensing.sensor_join(frame, **(arguments | changes))
    return found


def phenomena(frame: Any, **changes: Any) -> pa.Table:
    return sensing.phenomena(frame, **({"sensor": "k", "time": "t", "value": "x"} | FIELD | changes))


def tagged(frame: Any, **changes: Any) -> pa.Table:
    names = {"sensor": "k", "time": "t", "value": "x", "resolution": None} | changes
    events = phenomena(frame, **{name: of for name, of in names.items() if name != "resolution"})
    ap.lab.field.going_on(events)
    return ap.lab.field.tagged(frame, events, **names)


#: Every call, with the column ``c`` in every part that it can have there.
CALLS: dict[str, Callable[[Any], Any]] = {
    "join, key": lambda f: ap.similarity_join(stream(f, key="c"), stream(f), **CLOSE),
    "self join, key": lambda f: ap.self_join(stream(f, key="c"), **CLOSE),
    "join, time": lambda f: ap.self_join(stream(f, time="c"), **CLOSE),
    "join, value": lambda f: ap.self_join(stream(f, value=ap.Exact("c")), **CLOSE),
    "join, samples": lambda f: ap.self_join(stream(f, value=ap.Samples("c")), **CLOSE),
    "join, weights": lambda f: ap.self_join(stream(f, value=ap.Samples("s", "c", names=("x",))), **CLOSE),
    "join, sigma": lambda f: ap.self_join(stream(f, value=ap.Gaussian("x", sigma="c")), **CLOSE),
    "join, radius": lambda f: ap.self_join(stream(f, value=ap.Ball("x", radius="c")), **CLOSE),
    "join, existence": lambda f: ap.self_join(stream(f, existence="c"), **CLOSE),
    "join, partition": lambda f: ap.self_join(stream(f, partition_by="c"), **CLOSE),
    "join, partitions": lambda f: ap.self_join(stream(f, partition_by=["k", "c"]), **CLOSE),
    "join, different": lambda f: ap.self_join(stream(f), different="c", **CLOSE),
    "join, delta": lambda f: ap.self_join(stream(f), **(CLOSE | {"window": ap.DeltaWindow("c", 1.0)})),
    "join by hand": by_hand,
    "explain pair": lambda f: ap.explain_pair(
        row_of(f), row_of(f), left=stream(None, key="c"), epsilon=1.0, probability=0.1
    ),
    "filter": lambda f: ap.self_join(ap.filter(stream(f), "c = 1"), **CLOSE),
    "filter, text": lambda f: ap.self_join(ap.filter(stream(f, key="c"), "c = 'a' OR x < 9"), **CLOSE),
    "impute": lambda f: ap.impute(stream(f, value=ap.Incomplete("x", "c")), ap.RegressionImputer(REPOSITORY)),
    "impute, partition": lambda f: ap.impute(
        stream(f, value=ap.Incomplete("x", "e"), partition_by="c"), ap.LastValueImputer()
    ),
    "impute, time": lambda f: ap.impute(stream(f, time="c", value=ap.Incomplete("x", "e")), ap.LastValueImputer()),
    "imputed join": lambda f: ap.self_join(
        stream(f, key="c", value=ap.Incomplete("x", "e")), imputer=ap.LastValueImputer(), **CLOSE
    ),
    "repository": ap.RegressionImputer,
    "discover": ap.discover_dependencies,
    "aggregate, key": lambda f: ap.window_aggregate(stream(f, key="c"), {"x": "sum"}, window=ap.CountWindow(2)),
    "aggregate, value": lambda f: ap.window_aggregate(
        stream(f, value=ap.Exact("c")), {"c": ["max", "mean"]}, window=ap.CountWindow(2)
    ),
    "aggregate, time": lambda f: ap.window_aggregate(stream(f, time="c"), {"x": "sum"}, window=ap.CountWindow(2)),
    "aggregate, partition": lambda f: ap.window_aggregate(
        stream(f, partition_by="c"), {"x": "sum"}, window=ap.CountWindow(2)
    ),
    "queries, key": lambda f: ap.match_queries(stream(f, key="c"), asked()),
    "queries, time": lambda f: ap.match_queries(stream(f, time="c"), asked()),
    "queries, column": lambda f: ap.match_queries(stream(f), asked("c = 1 OR x >= 0")),
    "queries, constant": lambda f: ap.match_queries(stream(f), asked("c = 'a' OR x >= 0")),
    "queries, query": lambda f: ap.match_queries(stream(pa.table(REST)), queries_of(f, "query")),
    "queries, condition": lambda f: ap.match_queries(stream(pa.table(REST)), queries_of(f, "condition")),
    "queries, until": lambda f: ap.match_queries(stream(pa.table(REST)), queries_of(f, "until")),
    "queries by hand": queries_by_hand,
    "queries over two streams": lambda f: ap.match_queries(
        stream(f, key="c", name="r"), stream(f, name="q"), queries=asked("r.x = q.x WITHIN 9 SECONDS")
    ),
    "queries over two streams, query": lambda f: ap.match_queries(
        stream(pa.table(REST), name="r"),
        stream(pa.table(REST), name="q"),
        queries=queries_of(f, "query", "r.x = q.x WITHIN 9 SECONDS"),
    ),
    "sensors, sensor": lambda f: sensors(f, sensor="c"),
    "sensors, time": lambda f: sensors(f, time="c"),
    "sensors, value": lambda f: sensors(f, value="c"),
    "sensors, bins": lambda f: sensors(f, value="c", resolution=1.0),
    "sensors, within": lambda f: sensors(f, value="c", within=1.0),
    "sensors, partition": lambda f: sensors(f, partition_by="c"),
    "sensors, carry": lambda f: sensors(f, carry=["c"]),
    "sensors, expanded": lambda f: sensors(f, carry=["c"], expand=True),
    "sensors, windows": lambda f: sensors(f, window="c"),
    "sensors by hand": readings_by_hand,
    "phenomena, sensor": lambda f: phenomena(f, sensor="c"),
    "phenomena, time": lambda f: phenomena(f, time="c"),
    "phenomena, value": lambda f: phenomena(f, value="c"),
    "phenomena, within": lambda f: phenomena(f, value="c", within=1.0),
    "phenomena, partition": lambda f: phenomena(f, partition_by="c"),
    "phenomena, locations": lambda f: phenomena(f, sensor="c", locations=places_of(f), reach=1.0),
    "tagged, sensor": lambda f: tagged(f, sensor="c"),
    "tagged, value": lambda f: tagged(f, value="c"),
    "tagged, bins": lambda f: tagged(f, value="c", resolution=1.0),
    "tagged, time": lambda f: tagged(f, time="c"),
    "guided": lambda f: ap.lab.field.guided_sampling(phenomena(f), places_of(f), "c", 1.0),
}


def row_of(frame: Any) -> Any:
    return frame.head(1) if isinstance(frame, pl.DataFrame) else frame[:1]


def queries_of(frame: Any, part: str, condition: str = "x >= 0") -> Any:
    columns = {"query": [1, 2, 3], "condition": [condition] * 3}
    table = pa.table({name: of for name, of in columns.items() if name != part})
    if isinstance(frame, pa.Table):
        return table.append_column(part, frame["c"])
    if isinstance(frame, pl.DataFrame):
        return pl.DataFrame(pl.from_arrow(table)).with_columns(frame["c"].alias(part))
    return table.to_pandas().assign(**{part: frame["c"]})


def places_of(frame: Any) -> Any:
    names = ["c", "x", "e"]
    return frame.select(names) if isinstance(frame, pa.Table | pl.DataFrame) else frame[names]


def converted(column: pa.Array, library: str) -> Any:
    """A frame with the column; None where the library cannot hold it, or give it back."""
    table = pa.table({**REST, "c": column})
    if library == "polars" and _POLARS_PANICS.search(str(column.type)):
        return None
    try:
        return CONVERSIONS[library](table)
    except (pa.ArrowException, pl.exceptions.PolarsError, NotImplementedError, TypeError, ValueError):
        assert library != "pyarrow"
        return None


@given(st.sampled_from(sorted(COLUMNS)), st.sampled_from(sorted(CONVERSIONS)), st.sampled_from(sorted(CALLS)))
@settings(max_examples=200, deadline=None)
def test_a_column_of_any_type_is_answered_or_refused(kind: str, library: str, call: str) -> None:
    frame = converted(COLUMNS[kind], library)
    if frame is not None:
        with suppress(ap.AppulseError):
            CALLS[call](frame)


@pytest.mark.parametrize(
    "kind", ["string_view", "binary_view", "decimal32(5, 2)", "decimal64(12, 2)", "list<item: string_view>"]
)
def test_types_are_plain_from_the_door_on(kind: str) -> None:
    """Views come out as plain text and bytes, small decimals as those of 128 bits, from every call."""
    column = COLUMNS[kind]
    plain = plain_type(column.type)
    frame = pa.table({**REST, "c": column})
    keyed = ap.self_join(stream(frame, key="c"), **CLOSE)
    assert keyed.schema.field("left_key").type == plain
    found = {
        "partition": ap.window_aggregate(stream(frame, partition_by="c"), {"x": "sum"}, window=ap.CountWindow(2))["c"],
        "key": ap.match_queries(stream(frame, key="c"), asked())["key"],
        "query": ap.match_queries(stream(pa.table(REST)), queries_of(frame, "query"))["query"],
        "sensor": sensors(frame, sensor="c", value="e", within=9.0)["sensor"],
        "value": sensors(frame, value="c")["value"],
    }
    for part, values in found.items():
        assert values.type == plain, part
        assert len(values), part
        assert set(map(str, values.to_pylist())) <= set(map(str, column.to_pylist())), part


def test_dictionaries_are_decoded_where_they_are_results() -> None:
    frame = pa.table({**REST, "c": COLUMNS["dictionary"]})
    pairs = ap.self_join(stream(frame, key="c", carry=["c"]), **CLOSE)
    readings = sensors(frame, value="c", carry=["c"], expand=True)
    found = [*(pairs[name] for name in ("left_key", "left_c", "right_c")), readings["value"], readings["c"]]
    assert all(values.type == pa.string() and len(values) for values in found)


class _Exports:
    """A frame of a library that is not known here; it exports an Arrow stream."""

    def __init__(self, table: pa.Table) -> None:
        self.__arrow_c_stream__ = table.__arrow_c_stream__


@pytest.mark.parametrize("kind", ["duckdb", "polars", "lazy", "exports"])
def test_frames_of_any_library_give_the_same_answers(kind: str) -> None:
    """A DuckDB relation and a LazyFrame are run; what exports an Arrow stream is read."""
    rows = pa.table({"id": ["a", "b", "c"], "ts": [0, 1, 2], "x": [0.0, 0.5, 9.0]})
    known: dict[str, Callable[[], Any]] = {
        "duckdb": lambda: duckdb.connect().from_arrow(rows),
        "polars": lambda: pl.from_arrow(rows),
        "lazy": lambda: pl.LazyFrame(rows),
        "exports": lambda: _Exports(rows),
    }

    def pairs(frame: Any) -> pa.Table:
        stream = ap.Stream(frame, key="id", time="ts", value="x")
        return ap.self_join(stream, epsilon=1, probability=0.5, window=5)

    found, wanted = pairs(known[kind]()), pairs(rows)
    assert found.to_pylist() == wanted.to_pylist()
    assert found.num_rows == 1


@pytest.mark.parametrize(
    ("frame", "advice"),
    [
        (dataset(pa.table({"id": [1]})), r"Here: its to_table\(\)\."),
        (Path("rows.parquet"), r"Read the file first"),
        (iter(()), r"pyarrow\.Table\.from_batches"),
        ({}, r"Make a table: pyarrow\.table"),
        (pa.table({"id": [1]}).to_reader(), r"Here: its read_all\(\)\."),
        (pl.DataFrame, r"stream_batches\(\)\.$"),
        (pd.DataFrame, r"frame is the class pandas\..*DataFrame\. Give a Spark DataFrame"),
        (pa.Table, r"frame is the class pyarrow\.lib\.Table\."),
    ],
)
def test_the_error_says_how_what_is_no_frame_becomes_one(frame: Any, advice: str) -> None:
    with pytest.raises(ap.BadArgument, match=advice):
        ap.self_join(ap.Stream(frame, key="id", time="ts", value="x"), epsilon=1, probability=0.5, window=5)


def test_the_error_names_the_relation_of_a_connection() -> None:
    with duckdb.connect() as connection, pytest.raises(ap.BadArgument, match=r"Here: what its sql\(\) gives\."):
        ap.self_join(ap.Stream(connection, key="id", time="ts", value="x"), epsilon=1, probability=0.5, window=5)


@pytest.mark.parametrize("call", [ap.fence_events, ap.match_queries])
def test_fences_may_be_a_lazy_frame(call: Callable[..., Any], recwarn: pytest.WarningsRecorder) -> None:
    """Polars warns where the columns of one are asked for."""
    rows = pl.LazyFrame({"id": ["a", "b"], "ts": [0, 0], "x": [0.5, 3.0], "y": [0.5, 3.0]})
    fences = pl.LazyFrame({"query": ["yard"], "region": ["POLYGON ((0 0, 1 0, 1 1, 0 1, 0 0))"]})
    found = call(ap.Stream(rows, key="id", time="ts", value=ap.Exact("x", "y")), fences)
    assert found["key"].to_pylist() == ["a"]
    assert not recwarn.list


def test_equal_values_of_sensors_may_be_of_any_type() -> None:
    for kind in ("struct<a: int64, b: string_view>", "list<item: double>", "map<string, int64>", "decimal32(5, 2)"):
        frame = pa.table({**REST, "c": COLUMNS[kind]})
        (row,) = sensors(frame, value="c").to_pylist()
        assert (row["sensor"], [match["sensor"] for match in row["matches"]]) == ("z", ["y"])
        assert row["value"] == COLUMNS[kind][1].as_py()
        assert readings_by_hand(frame)["value"].to_pylist() == [row["value"]]


def test_rows_match_within_partitions_of_any_type() -> None:
    for kind in ("decimal32(5, 2)", "decimal64(12, 2)", "string_view", "struct<a: decimal32(5, 2)>"):
        frame = pa.table({**REST, "c": COLUMNS[kind]})
        pairs = ap.self_join(stream(frame, partition_by="c"), **CLOSE)
        assert [(row["left_key"], row["right_key"]) for row in pairs.to_pylist()] == [("y", "z")]
        others = ap.self_join(stream(frame), different="c", **CLOSE)
        assert {(row["left_key"], row["right_key"]) for row in others.to_pylist()} == {("x", "y"), ("x", "z")}


def test_list_views_hold_samples() -> None:
    for kind in (pa.list_view(pa.float64()), pa.large_list_view(pa.float64())):
        frame = pa.table({**REST, "s": pa.array(REST["s"], kind)})
        found = ap.self_join(stream(frame, value=ap.Samples("s", names=("x",))), **CLOSE)
        assert found.equals(ap.self_join(stream(pa.table(REST), value=ap.Samples("s", names=("x",))), **CLOSE))


@pytest.mark.parametrize(
    ("frame", "match"),
    [
        (pd.DataFrame({"k": [1], "t": [0], "x": [0.0], "s": [np.zeros((2, 1))]}), "column 's'.*lists"),
        (
            pl.DataFrame({"t": [0], "x": [0.0], "k": pl.Series([object()], dtype=pl.Object)}),
            "column 'k', which is Object",
        ),
        (pd.DataFrame({"k": [1, "a"], "t": [0, 0], "x": [0.0, 0.0]}), "column 'k'.*mixed objects to one type"),
        (pd.DataFrame([[1, 0, 0.0, 0.0]], columns=["k", "t", "x", "x"]), "several columns 'x'"),
        (pd.DataFrame([[1, 0, 0.0]]), r"labelled 0.*columns\.map\(str\)"),
        (pl.DataFrame({"k": pl.Series([1], dtype=pl.Int128), "t": [0], "x": [0.0]}), "column 'k'.*Int128.*64 bits"),
    ],
)
def test_frames_that_arrow_cannot_hold_say_which_column(frame: Any, match: str) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: ap.self_join(stream(frame), **CLOSE),
        lambda: ap.match_queries(stream(frame), asked()),
        lambda: sensors(frame),
        lambda: ap.RegressionImputer(frame),
    ]
    for call in calls:
        with pytest.raises(ap.BadArgument, match=match):
            call()


@pytest.mark.parametrize("column", ["t", "x", "e"])
def test_numbers_may_stand_in_a_dictionary(column: str) -> None:
    """As they do in Parquet files and categories of pandas: times, values and probabilities are what they stand for."""
    plain = pa.table(REST)
    coded = plain.set_column(plain.column_names.index(column), column, plain[column].dictionary_encode())
    found = [ap.self_join(stream(table, existence="e"), **CLOSE) for table in (plain, coded)]
    assert found[0].num_rows > 0
    assert found[1].to_pylist() == found[0].to_pylist()
    assert found[1].schema.types == found[0].schema.types


def test_partitions_may_be_of_short_and_long_texts() -> None:
    """Polars has long ones."""
    rows = pd.DataFrame({"id": ["p", "q", "r"], "t": [0, 1, 2], "x": [0.0, 1.0, 1.5], "g": ["a", "b", "b"]})
    asked: dict[str, Any] = {"key": "id", "time": "t", "value": "x", "partition_by": "g"}
    short, long = (ap.Stream(frame, name=name, **asked) for frame, name in ((rows, "s"), (pl.from_pandas(rows), "l")))
    both = ap.similarity_join(short, replace(long, name="other", frame=rows), epsilon=2, probability=1, window=5)
    found = ap.similarity_join(short, long, epsilon=2, probability=1, window=5)
    names = ["left_key", "right_key"]
    assert found.select(names).to_pylist() == both.select(names).to_pylist() != []
    other = replace(long, frame=pl.from_pandas(rows.assign(g=[1, 2, 3])))
    with pytest.raises(ap.BadArgument, match=r"'g' of 's' is (large_)?string, 'g' of 'l' is int64"):
        ap.similarity_join(short, other, epsilon=2, probability=1, window=5)


def test_calls_that_read_all_columns_refuse_two_of_one_name() -> None:
    """Others read the columns that they need, and take such a frame."""
    names = ["k", "t", "x", "y", "op", "z", "z"]
    table = pa.table([[1, 2], [0, 1], [0.0, 1.0], [0.0, 1.0], ["add", "add"], [1, 2], [3, 4]], names=names)
    stream = ap.Stream(table, key="k", time="t", value=ap.Exact("x", "y"), name="vans")
    assert len(ap.self_join(stream, epsilon=2, probability=1, window=5)) == 1
    several = r"Stream 'vans' has several columns 'z'\. Rename all but one\."
    with pytest.raises(ap.BadArgument, match=several):
        ap.match_queries(stream, pa.table({"query": ["a"], "condition": ["x > 0"]}))
    moving = replace(stream, change="op", motion=ap.Straight(10))
    with pytest.raises(ap.BadArgument, match=several):
        ap.encounters(moving, epsilon=1, probability=1)
