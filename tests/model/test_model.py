"""What flows: times, keys, weights, objects, and the door at which every bad row becomes a reject."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.errors import BadArgument
from appulse.model.columns import chunk
from appulse.model.encode import encode, infer_dimensions, sampled
from appulse.model.encoding import Encoding
from appulse.model.objects import Objects
from appulse.model.reach import gaussian_reach, reach_quantile
from appulse.model.strings import Bytes, Labels, decode
from appulse.model.strings import encode as canonical
from appulse.model.times import UNITS, duration, from_micros, shown_time, to_micros
from appulse.operators.buffers import Arena, Column
from tests.helpers import naive

NAN, INF = math.nan, math.inf


# --- times ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "micros"),
    [
        (0, 0),
        (1.5, 1_500_000),
        (np.int64(2), 2_000_000),
        (np.float32(0.5), 500_000),
        (timedelta(days=1, microseconds=1), 86_400_000_001),
        ("10 seconds", 10_000_000),
        ("1 minute 30 seconds", 90_000_000),
        ("1 hour, 30 minutes and 5 sec", 5_405_000_000),
        ("2.5ms", 2_500),
        ("1e3 us", 1_000),
        ("1 Week", 604_800_000_000),
        ("7 m", 420_000_000),
        (".5 d", 43_200_000_000),
    ],
)
def test_durations_are_text_numbers_of_seconds_or_timedeltas(given_: Any, micros: int) -> None:
    """All of them become whole microseconds."""
    assert duration(given_) == micros


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        (-1, "negative"),
        ("-1 second", "not a duration"),
        (NAN, "finite"),
        (INF, "finite"),
        ("", "empty"),
        ("soon", "not a duration"),
        ("5 fortnights", "unknown unit 'fortnights'"),
        ("5 secnods", "Did you mean"),
        (True, "bool"),
        (None, "None"),
        (1e300, "longer than"),
        ("1e400 weeks", "longer than"),
        (timedelta(days=-1), "negative"),
    ],
)
def test_durations_that_are_none_say_so(given_: Any, message: str) -> None:
    """With what was given and what would do."""
    with pytest.raises(BadArgument, match=message):
        duration(given_, "lateness")


@pytest.mark.parametrize(
    "text", ["1" * 200_000, "1." * 100_000, "1e" + "1" * 200_000, "1s" * 100_000 + "x", " " * 200_000]
)
def test_durations_of_any_length_are_read_in_no_time(text: str) -> None:
    """Digits after digits took time by the square of their number; and the message quotes only their beginning."""
    begun = process_time()
    with pytest.raises(BadArgument) as refused:
        duration(text, "lateness")
    assert process_time() - begun < 2.0
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("unit", [*UNITS, "ns"])
@pytest.mark.parametrize(
    "kind", [pa.int32(), pa.int64(), pa.float64(), pa.float32(), pa.decimal128(30, 6), pa.uint16()]
)
def test_numbers_are_times_in_their_unit_and_come_out_as_they_came_in(unit: str, kind: pa.DataType) -> None:
    """To the microsecond: nanoseconds are floored to it."""
    values = [0, 7, 2000] if pa.types.is_unsigned_integer(kind) else [0, 7, -7, 2000, -2000]
    array = pa.array(values, pa.int64()).cast(kind)
    micros, null, strange = to_micros(array, unit)
    assert micros.tolist() == [math.floor(v * naive.MICROS[unit]) for v in values]
    assert not null.any()
    assert not strange.any()
    out = from_micros(micros, kind, unit)
    assert out.type == kind
    step = 1000 if unit == "ns" else 1
    assert [int(x) for x in out.to_pylist()] == [v // step * step for v in values]


def test_decimal_times_come_out_exactly() -> None:
    """Not as the nearest double's digits."""
    kind = pa.decimal128(38, 18)
    array = pa.array([Decimal("0.1"), Decimal("-1700000000.123456")], kind)
    micros, _, _ = to_micros(array, "s")
    assert micros.tolist() == [100_000, -1_700_000_000_123_456]
    assert from_micros(micros, kind, "s").equals(array)


@pytest.mark.parametrize(
    ("kind", "last"),
    [
        (pa.int8(), 127),
        (pa.uint8(), 255),
        (pa.int16(), 32_767),
        (pa.int32(), 2**31 - 1),
        (pa.decimal128(2, 0), 99),
        (pa.decimal256(3, 1), Decimal("99.9")),
    ],
)
def test_times_that_a_call_makes_fit_or_are_errors(kind: pa.DataType, last: Any) -> None:
    """Such as the end of the last block of time, in one call and by hand."""
    rows = pa.table({"k": [1, 2], "t": pa.array([1, last], kind), "x": [1.0, 2.0]})
    settings: dict[str, Any] = {"aggregates": {"x": "count"}, "window": ap.TumblingWindow("10 seconds")}
    columns: dict[str, Any] = {"key": "k", "time": "t", "value": "x"}
    first = ap.window_aggregate(ap.Stream(rows.slice(0, 1), **columns), **settings)
    assert first["time"].to_pylist() == [10]
    assert first["time"].type == kind
    with pytest.raises(BadArgument, match=r"does not fit .*, the type of the times that came: .*\. Cast the column"):
        ap.window_aggregate(ap.Stream(rows, **columns), **settings)
    by_hand = ap.WindowAggregate(ap.Stream(None, **columns), **settings)
    by_hand.push(rows)
    with pytest.raises(BadArgument, match="does not fit"):
        by_hand.drain()
    micros, _, _ = to_micros(chunk(rows["t"]), "s")
    later = int(micros[1]) + UNITS["s"]
    assert shown_time(later, kind, "s") == str(last + 1)


@given(st.lists(st.none() | st.floats() | st.floats(-1e13, 1e13)), st.sampled_from([*UNITS, "ns"]))
def test_times_of_numbers_are_the_nearest_microseconds(values: list[float | None], unit: str) -> None:
    """As one number after the other has it; what is no time is 0, and null or strange."""
    micros, null, strange = to_micros(pa.array(values, pa.float64()), unit)
    for value, got, is_null, is_strange in zip(values, micros.tolist(), null.tolist(), strange.tolist(), strict=True):
        assert is_null == (value is None)
        if value is None:
            assert (got, is_strange) == (0, False)
            continue
        exact = value / 1e3 if unit == "ns" else value * UNITS[unit]
        assert is_strange == (not abs(exact) < 2.0**62)
        assert got == (0 if is_strange else math.floor(exact) if unit == "ns" else round(exact))


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**9), 10**9)), st.sampled_from([*UNITS]))
def test_times_of_whole_numbers_are_exact_or_strange(values: list[int | None], unit: str) -> None:
    """No number wraps around."""
    micros, null, strange = to_micros(pa.array(values, pa.int64()), unit)
    assert null.tolist() == [value is None for value in values]
    for value, got, is_strange in zip(values, micros.tolist(), strange.tolist(), strict=True):
        assert is_strange == (value is not None and abs(float(value)) * UNITS[unit] >= 2.0**62)
        assert got == (0 if is_strange or value is None else value * UNITS[unit])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_timestamps_count_microseconds_since_1970_utc(unit: str, zone: str | None) -> None:
    """With or without a zone; what is finer is floored, before 1970 too."""
    per = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}[unit]
    values = [0, 1, -1, 1_700_000_000_000, -999, -1000, -1001]
    array = pa.array(values, pa.int64()).view(pa.timestamp(unit, zone))
    micros, _, _ = to_micros(array, "s")
    assert micros.tolist() == [v * per // 1000 for v in values]
    out = from_micros(micros, array.type, "s")
    assert out.type == array.type
    assert out.view(pa.int64()).to_pylist() == [v * per // 1000 * 1000 // per for v in values]


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_dates_are_their_midnight(kind: pa.DataType) -> None:
    """In UTC."""
    days = [date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31)]
    micros, _, _ = to_micros(pa.array(days, kind), "s")
    assert micros.tolist() == [(day - date(1970, 1, 1)).days * 86_400_000_000 for day in days]
    assert from_micros(micros, kind, "s").to_pylist() == days


@pytest.mark.parametrize(
    ("array", "unit"),
    [
        (pa.array([NAN, INF, -INF, 1e300]), "s"),
        (pa.array([2**63 - 1, -(2**63), 2**62]), "us"),
        (pa.array([2**63 - 1, -(2**63), 10**13]), "s"),
        (pa.array([2**64 - 1, 2**63 + 5], pa.uint64()), "us"),
        (pa.array([2**64 - 1, 2**63 + 5], pa.uint64()), "ns"),
        (pa.array([2**63 - 1, -(2**63)]).view(pa.timestamp("us")), "s"),
        (pa.array([2**62, -(2**62)]).view(pa.timestamp("s")), "s"),
    ],
)
def test_what_is_no_time_is_told(array: pa.Array, unit: str) -> None:
    """Not finite, or more microseconds than an integer of 64 bits should hold."""
    micros, null, strange = to_micros(array, unit)
    assert strange.all()
    assert not null.any()
    assert (micros == 0).all()


def test_null_times_are_kept_apart_from_strange_ones() -> None:
    """For numbers, timestamps and dates."""
    for kind in (pa.int64(), pa.float64(), pa.timestamp("ns"), pa.date32(), pa.decimal128(5)):
        _, null, strange = to_micros(pa.nulls(2, kind), "s")
        assert null.all()
        assert not strange.any()


@given(st.floats(-1e9, 1e9), st.sampled_from(list(UNITS)))
def test_any_finite_number_is_rounded_to_the_microsecond(value: float, unit: str) -> None:
    """And is within half of one of what it was."""
    micros, _, strange = to_micros(pa.array([value]), unit)
    if not strange[0]:
        assert (
            abs(Fraction(int(micros[0])) - Fraction(value) * naive.MICROS[unit])
            <= Fraction(1, 2) + abs(Fraction(value) * naive.MICROS[unit]) / 2**52
        )


# --- canonical keys ---------------------------------------------------------------------------------------------

KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["b", "a", "", "aa", "é", "\uffff", "\U0001f600"]),
    (pa.large_string(), ["x", "w"]),
    (pa.string_view(), ["x", "longer than twelve bytes"]),
    (pa.binary(), [b"a", b"", b"\xff"]),
    (pa.large_binary(), [b"q"]),
    (pa.binary_view(), [b"q", b"longer than twelve bytes"]),
    (pa.binary(2), [b"qq", b"aa"]),
    (pa.int8(), [-1, 5, -128, 127]),
    (pa.uint8(), [255, 0]),
    (pa.int32(), [-5, 5]),
    (pa.int64(), [-(2**63), 2**63 - 1, 0, -1]),
    (pa.uint64(), [2**64 - 1, 0, 2**63]),
    (pa.float16(), [1.5, -1.5]),
    (pa.float32(), [1.5, INF, -1.25]),
    (pa.float64(), [-1.5, 0.0, INF, -INF, 5e-324, 1e308, -5e-324]),
    (pa.bool_(), [True, False]),
    (pa.date32(), [date(1960, 1, 1), date(2020, 1, 1)]),
    (pa.date64(), [date(2020, 1, 1)]),
    (pa.time32("s"), [time(1, 2), time(0, 0)]),
    (pa.time64("us"), [time(1, 2, 3, 4)]),
    (pa.timestamp("us", "UTC"), [datetime(2020, 1, 1, tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC)]),
    (pa.duration("ms"), [timedelta(seconds=5), timedelta(seconds=-5)]),
    (pa.decimal32(5, 2), [Decimal("1.25"), Decimal("-1.25")]),
    (pa.decimal64(12, 2), [Decimal("1.25"), Decimal("-1.26")]),
    (pa.decimal128(30, 5), [Decimal("1.25"), Decimal("-1.25"), Decimal("-1.24999"), Decimal(0)]),
    (pa.decimal256(60, 5), [Decimal("1.25"), Decimal(-(10**50))]),
]
NESTED: list[tuple[pa.DataType, list[Any]]] = [
    (
        pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_())]),
        [{"a": 1, "b": "x", "c": True}, {"a": None, "b": "x", "c": None}, {"a": 1, "b": "", "c": False}],
    ),
    (pa.struct([]), [{}, {}]),
    (pa.list_(pa.int32()), [[1, 2], [], [None], [1]]),
    (pa.large_list(pa.string()), [["a", None], [], [""]]),
    (pa.list_(pa.float64(), 2), [[1.0, 2.0], [3.0, 4.0]]),
    (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [], [("a", None), ("b", 2)]]),
    (pa.list_(pa.struct([("t", pa.timestamp("us"))])), [[{"t": datetime(2020, 1, 1)}, None], []]),  # noqa: DTZ001
    (pa.struct([("d", pa.dictionary(pa.int8(), pa.string()))]), [{"d": "x"}, {"d": None}]),
    (pa.uuid(), [b"0" * 16, b"1" * 16]),
    (pa.month_day_nano_interval(), [(1, 2, 3), (4, 5, 6)]),
]
_ids = [str(kind) for kind, _ in KEYS + NESTED]


@pytest.mark.parametrize(("kind", "values"), KEYS + NESTED, ids=_ids)
def test_keys_of_any_type_come_back_from_their_bytes(kind: pa.DataType, values: list[Any]) -> None:
    """In the type they had, none or many of them."""
    array = pa.array(values, kind)
    assert decode(canonical(array), kind).equals(array)
    bytes_of = canonical(array)
    moved = np.frombuffer(b"." + bytes_of.data.tobytes(), np.uint8)[1:]  # as in a message, at any address
    assert decode(Bytes(bytes_of.offsets, moved), kind).equals(array)
    empty = decode(canonical(pa.array([], kind)), kind)
    assert len(empty) == 0
    assert empty.type == kind


@pytest.mark.parametrize(("kind", "values"), KEYS + NESTED, ids=_ids)
def test_equal_keys_have_equal_bytes_wherever_they_stand(kind: pa.DataType, values: list[Any]) -> None:
    """In whatever batch, beside whatever neighbours, in a slice or with nulls around: labels rest on that."""
    array = pa.array(values, kind)
    alone = [canonical(pa.array([value], kind)).to_list()[0] for value in values]
    assert canonical(array).to_list() == alone
    assert canonical(pa.concat_arrays([array, array]).slice(len(values) - 1, len(values))).to_list() == [
        alone[-1],
        *alone[:-1],
    ]
    if "view" not in str(kind):  # Arrow cannot pick rows from these; the door turns them into others
        holes = pa.concat_arrays([pa.nulls(3, kind), array, pa.nulls(1, kind)])
        assert canonical(holes.drop_null()).to_list() == alone
    assert len({bytes(b) for b in alone}) == len({naive.plain(value) for value in array.to_pylist()})


@pytest.mark.parametrize(("kind", "values"), KEYS, ids=_ids[: len(KEYS)])
def test_bytes_of_keys_sort_as_the_keys_do(kind: pa.DataType, values: list[Any]) -> None:
    """Text and binary by their bytes, numbers and times by value."""
    encoded = dict(zip(values, canonical(pa.array(values, kind)).to_list(), strict=True))
    by_value = sorted(values, key=lambda v: v.encode() if isinstance(v, str) else v)
    assert sorted(values, key=encoded.__getitem__) == by_value


@given(st.lists(st.floats(allow_nan=False), min_size=1), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_numbers_sort_by_their_bytes(floats: list[float], integers: list[int]) -> None:
    """Subnormal, infinite, negative: all of them; minus zero is zero."""
    for values, kind in ((floats, pa.float64()), (integers, pa.int64())):
        strings = canonical(pa.array(values, kind)).to_list()
        assert [v for _, v in sorted(zip(strings, values, strict=True))] == sorted(values)
        assert decode(Bytes.of(strings), kind).to_pylist() == values
    assert canonical(pa.array([0.0])).to_list() == canonical(pa.array([-0.0])).to_list()


def test_nan_is_a_key() -> None:
    """It comes back as NaN."""
    assert math.isnan(decode(canonical(pa.array([NAN])), pa.float64()).to_pylist()[0])


def test_labels_are_equal_for_equal_rows_only() -> None:
    """Over several columns, nulls apart, whatever the batch."""
    struct = pa.struct([("b", pa.bool_()), ("i", pa.int64())])
    one = [{"b": True, "i": 1}, {"b": False, "i": 2}, {"b": True, "i": 1}, None, {"b": True, "i": None}]
    texts = ["x", "x", "x", "x", "x"]
    first = Labels.of([pa.array(one, struct), pa.array(texts)])
    again = Labels.of([pa.array(one[::-1], struct), pa.array(texts)])
    named = [first.values[c] for c in first.codes]
    assert named == [again.values[c] for c in again.codes][::-1]
    assert named[0] == named[2]
    assert len(set(named)) == 4
    assert named[3] == b""
    assert b"" not in (named[0], named[1], named[4])
    # Columns do not run into each other.
    split = Labels.of([pa.array(["ab", "a"]), pa.array(["c", "bc"])])
    assert split.values[split.codes[0]] != split.values[split.codes[1]]
    part = first.slice(1, 4)
    assert [part.values[c] for c in part.codes] == named[1:4]
    assert [first.take(np.array([4, 0])).values[c] for c in first.take(np.array([4, 0])).codes] == [named[4], named[0]]
    nothing = Labels.of([pa.nulls(2, pa.string()), pa.array([1, 2])])
    assert [nothing.values[c] for c in nothing.codes] == [b"", b""]
    assert len(Labels.of([pa.array([], pa.string())]).codes) == 0


# --- models -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (ap.Exact, "at least one column"),
        (lambda: ap.Exact("x", "x"), "twice"),
        (lambda: ap.Exact(*[f"x{k}" for k in range(256)]), "At most 255"),
        (lambda: ap.Gaussian("x", sigma=-1.0), "at least 0"),
        (lambda: ap.Gaussian("x", sigma=NAN), "finite"),
        (lambda: ap.Gaussian("x", "y", sigma=["a"]), "2 columns and 1 sigmas"),
        (lambda: ap.Gaussian("x", sigma="s", samples=0), "at least 1"),
        (lambda: ap.Ball("x", radius=None), "column name or a number"),  # type: ignore[arg-type]
        (lambda: ap.Ball("x", radius=1.0, samples=True), "whole number"),
        (lambda: ap.Samples(""), "the name is empty"),
        (lambda: ap.Samples("s", names=("a", "a")), "twice"),
    ],
)
def test_models_check_their_arguments(make: Any, message: str) -> None:
    """At once, not at the first row."""
    with pytest.raises(BadArgument, match=message):
        make()


def test_one_sigma_given_per_dimension_is_isotropic() -> None:
    """Where it is the same for all of them."""
    assert ap.Gaussian("x", "y", sigma=(2, 2.0)).isotropic
    assert ap.Gaussian("x", "y", sigma=["s", "s"]) == ap.Gaussian("x", "y", sigma="s")
    assert not ap.Gaussian("x", "y", sigma=("s", "t")).isotropic


# --- the door ---------------------------------------------------------------------------------------------------


def _encoding(model: Any, table: pa.Table, **settings: Any) -> Encoding:
    usual = {"existence": None, "partition_by": (), "quantile": 0.5, "gaussian_reach": None, "dimensions": None}
    return Encoding(
        name="s",
        model=model,
        key="id",
        time="ts",
        unit="s",
        differ=None,
        key_type=table.schema.field("id").type,
        time_type=table.schema.field("ts").type,
        **(usual | settings),
    )


def _encoded(model: Any, columns: dict[str, Any], **settings: Any) -> tuple[Objects, list[dict[str, Any]]]:
    n = max(len(values) for values in columns.values())
    table = pa.table({"id": list(range(n)), "ts": [0.0] * n} | columns)
    objects, rejects = encode(table, _encoding(model, table, **settings))
    return objects, rejects.to_pylist()


_SAMPLES = pa.list_(pa.list_(pa.float64()))
_WEIGHTS = pa.list_(pa.float64())

BAD_ROWS: list[tuple[str, Any, dict[str, Any], dict[str, Any], str]] = [
    ("null key", ap.Exact("x"), {"id": pa.array([None], pa.int64()), "x": [0.0]}, {}, "'id' is null"),
    ("null time", ap.Exact("x"), {"ts": pa.array([None], pa.float64()), "x": [0.0]}, {}, "'ts' is null"),
    ("non-finite value", ap.Exact("x"), {"ts": [NAN], "x": [0.0]}, {}, "ts is nan, not a finite time"),
    ("non-finite value", ap.Exact("x"), {"ts": [1e300], "x": [0.0]}, {}, "ts is 1e+300, not a finite time in range in"),
    ("non-finite value", ap.Exact("x"), {"ts": [1_767_225_600_000_000_000], "x": [0.0]}, {}, "in range in unit='s'"),
    ("null partition", ap.Exact("x"), {"x": [0.0], "p": pa.nulls(1, pa.string())}, {"partition_by": ("p",)}, "'p'"),
    ("non-finite value", ap.Exact("x"), {"x": [NAN]}, {}, "x is nan"),
    ("non-finite value", ap.Exact("x", "y"), {"x": [0.0], "y": [-INF]}, {}, "y is -inf"),
    ("non-finite value", ap.Exact("x"), {"x": pa.array([None], pa.float64())}, {}, "x is null"),
    ("non-finite value", ap.Gaussian("x", sigma="s"), {"x": [0.0], "s": [NAN]}, {}, "nan"),
    ("negative sigma or radius", ap.Gaussian("x", sigma="s"), {"x": [0.0], "s": [-1.0]}, {}, "-1.0"),
    ("negative sigma or radius", ap.Gaussian("x", "y", sigma=["s", 1]), {"x": [0], "y": [0], "s": [-2.0]}, {}, "-2.0"),
    ("negative sigma or radius", ap.Ball("x", radius="r"), {"x": [0.0], "r": [-0.5]}, {}, "-0.5"),
    ("existence outside (0, 1]", ap.Exact("x"), {"x": [0.0], "e": [0.0]}, {"existence": "e"}, "is 0.0"),
    ("existence outside (0, 1]", ap.Exact("x"), {"x": [0.0], "e": [1.5]}, {"existence": "e"}, "is 1.5"),
    ("existence outside (0, 1]", ap.Exact("x"), {"x": [0.0], "e": [NAN]}, {"existence": "e"}, "is nan"),
    ("empty samples", ap.Samples("s"), {"s": pa.array([[]], _SAMPLES)}, {}, "empty"),
    ("empty samples", ap.Samples("s"), {"s": pa.array([None], _SAMPLES)}, {}, "null"),
    ("empty samples", ap.Samples("s", "w"), {"s": [[[1.0]]], "w": [[0.0]]}, {}, "zero"),
    ("wrong dimension", ap.Samples("s"), {"s": [[[1.0], [1.0, 2.0]]]}, {"dimensions": 2}, "[1, 2] coordinates"),
    ("wrong dimension", ap.Samples("s"), {"s": pa.array([[None]], _SAMPLES)}, {"dimensions": 2}, "[0] coordinates"),
    ("wrong dimension", ap.Samples("s", "w"), {"s": [[[1.0]]], "w": [[0.5, 0.5]]}, {}, "2 weights for 1 samples"),
    ("wrong dimension", ap.Samples("s", "w"), {"s": [[[1.0]]], "w": pa.array([None], _WEIGHTS)}, {}, "0 weights"),
    ("non-finite value", ap.Samples("s"), {"s": [[[1.0], [NAN]]]}, {}, "NaN"),
    ("non-finite value", ap.Samples("s"), {"s": [[1.0, None]]}, {}, "null"),
    ("non-finite value", ap.Samples("s", "w"), {"s": [[[1.0]]], "w": [[NAN]]}, {}, "weight"),
    ("negative weight", ap.Samples("s", "w"), {"s": [[[1.0], [2.0]]], "w": [[1.0, -0.25]]}, {}, "-0.25"),
    ("weights above 1", ap.Samples("s", "w"), {"s": [[[1.0], [2.0]]], "w": [[0.75, 0.5]]}, {}, "1.25"),
]


@pytest.mark.parametrize(("reason", "model", "columns", "settings", "detail"), BAD_ROWS)
def test_every_bad_row_is_rejected_with_its_reason(
    reason: str, model: Any, columns: dict[str, Any], settings: dict[str, Any], detail: str
) -> None:
    """And with what was found, beside its values as JSON."""
    objects, rejects = _encoded(model, columns, **settings)
    assert len(objects) == 0
    assert [r["reason"] for r in rejects] == [reason]
    assert detail in rejects[0]["detail"]
    assert rejects[0]["stream"] == "s"
    values = json.loads(rejects[0]["values"])
    assert set(columns) - {"id", "ts"} <= set(values)


def test_a_time_that_python_cannot_hold_is_in_the_detail() -> None:
    table = pa.table({"id": [1], "ts": pa.array([9 << 40], pa.timestamp("s")), "x": [0.0]})
    _, rejects = encode(table, _encoding(ap.Exact("x"), table))
    assert rejects["detail"].to_pylist() == ["ts is 9895604649984 (timestamp[s]), not a finite time in range"]


@pytest.mark.parametrize("odd", [[NAN, 0.0], [None, 0.0], [0.0], [0.0, 0.0, 0.0], None])
@pytest.mark.parametrize("as_structs", [False, True])
def test_samples_that_weigh_nothing_are_not_looked_at(odd: Any, *, as_structs: bool) -> None:
    """Whatever they hold; nor do they tell how many dimensions there are."""
    samples, weights = [odd, [1.0, 2.0], odd], [0.0, 0.5, 0.0]
    columns: dict[str, Any] = {"s": pa.array([samples], _SAMPLES), "w": [weights]}
    model = ap.Samples("s", "w")
    if as_structs:
        listed = [{"at": sample, "weight": weight} for sample, weight in zip(samples, weights, strict=True)]
        columns = {
            "s": pa.array([listed], pa.list_(pa.struct([("at", _SAMPLES.value_type), ("weight", pa.float64())])))
        }
        model = ap.Samples("s")
    d = infer_dimensions(pa.table(columns), model)
    assert d == 2
    objects, rejects = _encoded(model, columns, dimensions=d)
    assert rejects == []
    assert objects.samples.tolist() == [1.0, 2.0]
    assert objects.mass.tolist() == [0.5]


def test_samples_have_at_most_as_many_dimensions_as_columns_may_have() -> None:
    """One limit for all models."""
    most = pa.table({"s": pa.array([[[0.0] * 255]], _SAMPLES)})
    assert infer_dimensions(most, ap.Samples("s")) == 255
    more = pa.table({"s": pa.array([[[0.0] * 256]], _SAMPLES)})
    with pytest.raises(ap.BadArgument, match="At most 255"):
        infer_dimensions(more, ap.Samples("s"))
    stream = ap.Stream(
        pa.table({"id": [1], "ts": [0], "s": pa.array([[[0.0] * 256]], pa.list_(pa.list_(pa.float64(), 256)))}),
        key="id",
        time="ts",
        value=ap.Samples("s"),
    )
    with pytest.raises(ap.BadArgument, match="At most 255"):
        ap.self_join(stream, epsilon=1, probability=0.5, window=ap.TimeWindow(1))


def test_good_rows_pass_between_bad_ones() -> None:
    """In their order; each bad row leaves once, though it has several faults."""
    samples = [[[1.0]], None, [[NAN], [2.0]], [[2.0], [3.0]], [[5.0]], [[6.0]]]
    weights = [[0.5], None, [-1.0, 9.0], [0.25, 0.75], [0.5, 0.5], [1.0]]
    columns = {
        "s": pa.array(samples, _SAMPLES),
        "w": pa.array(weights, _WEIGHTS),
        "e": [1.0, 5.0, 0.0, 0.5, 1.0, 1.0],
        "id": pa.array([0, None, 2, 3, 4, 5]),
    }
    objects, rejects = _encoded(ap.Samples("s", "w"), columns, existence="e")
    assert decode(objects.key, pa.int64()).to_pylist() == [0, 3, 5]
    assert objects.mass.tolist() == [0.5, 0.5, 1.0]
    assert objects.samples.tolist() == [1.0, 2.0, 3.0, 6.0]
    assert objects.weights.tolist() == [0.5, 0.125, 0.375, 1.0]
    assert [r["key"] for r in rejects] == [None, 2, 4]


@pytest.mark.parametrize(("excess", "good"), [(0.0, True), (9e-10, True), (2e-9, False), (-1e-12, True)])
def test_weights_may_sum_to_a_billionth_above_one(excess: float, good: bool) -> None:
    """They are then taken as 1."""
    objects, rejects = _encoded(ap.Samples("s", "w"), {"s": [[[0.0], [1.0]]], "w": [[0.5, 0.5 + excess]]})
    assert (len(objects) == 1) == good
    assert [r["reason"] for r in rejects] == [] if good else ["weights above 1"]
    if good:
        assert objects.mass[0] <= 1.0


def test_ten_tenths_are_one() -> None:
    """However the doubles add up."""
    objects, _ = _encoded(ap.Samples("s", "w"), {"s": [[[float(i)] for i in range(10)]], "w": [[0.1] * 10]})
    assert objects.mass[0] == pytest.approx(1.0, abs=1e-15)


def test_samples_of_weight_zero_do_not_count() -> None:
    """Neither for the mean nor for the radius nor as samples."""
    objects, _ = _encoded(ap.Samples("s", "w"), {"s": [[[0.0], [1e6], [2.0]]], "w": [[0.5, 0.0, 0.5]]})
    assert objects.samples.tolist() == [0.0, 2.0]
    assert objects.weights.tolist() == [0.5, 0.5]
    assert objects.centre.tolist() == [[1.0]]
    assert objects.radius.tolist() == [1.0]


def test_existence_multiplies_the_weights() -> None:
    """Given or equal ones, and the mass of any model."""
    objects, _ = _encoded(ap.Samples("s", "w"), {"s": [[[0.0], [2.0]]], "w": [[0.25, 0.25]], "e": [0.5]}, existence="e")
    assert objects.mass.tolist() == [0.25]
    assert objects.weights.tolist() == [0.125, 0.125]
    for model, columns in (
        (ap.Samples("s"), {"s": [[[0.0], [2.0]]]}),
        (ap.Exact("x"), {"x": [0.0]}),
        (ap.Ball("x", radius=1.0), {"x": [0.0]}),
    ):
        assert _encoded(model, columns | {"e": [0.5]}, existence="e")[0].mass.tolist() == [0.5]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.list_(pa.float64())),
        pa.large_list(pa.large_list(pa.float32())),
        pa.list_(pa.list_(pa.int16())),
        pa.list_(pa.list_(pa.float64(), 2)),
        pa.list_(pa.list_(pa.float64(), 2), 3),
        pa.list_(pa.list_(pa.decimal128(5, 1))),
    ],
)
def test_lists_of_any_kind_hold_samples(kind: pa.DataType) -> None:
    """Sliced and in chunks, nulls between them."""
    rows: list[Any] = [[[1, 2], [3, 4], [5, 6]], None, [[7, 8], [9, 10], [11, 12]]]
    if "decimal" in str(kind):
        rows = [row if row is None else [list(map(Decimal, sample)) for sample in row] for row in rows]
    column = pa.chunked_array([pa.array([*rows, *rows], kind).slice(1, 3), pa.array(rows[:1], kind)])
    objects, rejects = _encoded(ap.Samples("s"), {"s": column}, dimensions=2)
    assert [r["reason"] for r in rejects] == ["empty samples"]
    assert objects.centre.tolist() == [[9.0, 10.0], [3.0, 4.0], [3.0, 4.0]]
    assert objects.samples[:6].tolist() == [7.0, 9.0, 11.0, 8.0, 10.0, 12.0]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2], pa.uint8()),
        pa.array([1.0, 2.0], pa.float32()),
        pa.array([Decimal("1.0"), Decimal("2.0")]),
        pa.chunked_array([[1], [2]]),
        pa.array([0, 1, 2]).slice(1),
    ],
)
def test_numbers_of_any_type_are_coordinates(column: Any) -> None:
    """As doubles."""
    objects, _ = _encoded(ap.Exact("x"), {"x": column})
    assert objects.centre.tolist() == [[1.0], [2.0]]


def test_a_table_of_no_rows_encodes_to_none() -> None:
    """For every model."""
    table = pa.table({"id": [0], "ts": [0.0], "x": [0.0], "s": [[[0.0]]], "w": [[1.0]]}).slice(0, 0)
    for model in (ap.Exact("x"), ap.Gaussian("x", sigma=1.0), ap.Ball("x", radius=1.0), ap.Samples("s", "w")):
        objects, rejects = encode(table, _encoding(model, table))
        assert len(objects) == len(rejects) == 0


# --- objects ----------------------------------------------------------------------------------------------------


def _some_objects(n: int = 7, weighted: bool = True) -> Objects:
    samples = [[[float(i), float(j)] for j in range(i % 3 + 1)] for i in range(n)]
    weights = [[1.0 / len(s)] * len(s) for s in samples]
    table = pa.table(
        {
            "id": [f"k{i}" for i in range(n)],
            "ts": [float(i) for i in range(n)],
            "s": samples,
            "w": weights,
            "p": [i % 2 for i in range(n)],
        }
    )
    model = ap.Samples("s", "w") if weighted else ap.Samples("s")
    return encode(table, _encoding(model, table, dimensions=2, partition_by=("p",)))[0]


def _listed(objects: Objects) -> list[Any]:
    d, rows = objects.d, []
    for i, key in enumerate(objects.key.to_list()):
        a, b = int(objects.first[i]), int(objects.first[i + 1])
        samples = objects.samples[a * d : b * d].tolist()
        weights = objects.weights[a:b].tolist() if len(objects.weights) else None
        assert objects.group is not None
        group = objects.group.values[objects.group.codes[i]]
        summary = (objects.centre[i].tolist(), objects.radius[i], objects.reach[i], objects.covariance[i].tolist())
        rows.append((key, int(objects.time[i]), samples, weights, group, summary))
    return rows


@pytest.mark.parametrize("weighted", [True, False])
@given(index=st.lists(st.integers(0, 6), max_size=9), cuts=st.lists(st.integers(0, 7), min_size=1, max_size=3))
def test_objects_survive_being_cut_picked_and_joined(weighted: bool, index: list[int], cuts: list[int]) -> None:
    """Samples, weights, keys and labels stay with their row."""
    objects = _some_objects(weighted=weighted)
    listed = _listed(objects)
    assert _listed(objects.take(np.array(index, np.int64))) == [listed[i] for i in index]
    ends = [0, *sorted(cuts), 7]
    parts = [objects.slice(a, b) for a, b in pairwise(ends)]
    assert _listed(Objects.concat(parts)) == listed
    assert _listed(Objects.concat(parts[::-1])) == [row for part in parts[::-1] for row in _listed(part)]


def test_reach_holds_more_than_the_quantile_of_every_model() -> None:
    """Of points, samples, balls and both kinds of Gaussians alike, so far from the origin as GPS metres are."""
    random = np.random.default_rng(3)
    n = 20
    columns: dict[str, Any] = {
        "x": (random.random(n) * 1e7).tolist(),
        "y": random.random(n).tolist(),
        "r": random.random(n).tolist(),
        "t": random.random(n).tolist(),
    }
    for alpha in (1.0, 0.9, 0.5, 0.1, 1e-6):
        quantile = reach_quantile(alpha - 1e-9)
        for model in (
            ap.Exact("x", "y"),
            ap.Gaussian("x", "y", sigma="r"),
            ap.Gaussian("x", "y", sigma=("r", "t")),
            ap.Ball("x", "y", radius="r", samples=33),
        ):
            objects, _ = _encoded(model, columns, quantile=quantile)
            at = sampled(objects, model, quantile)
            for i in range(n):
                a, b = int(at.first[i]), int(at.first[i + 1])
                points = at.samples[2 * a : 2 * b].reshape(2, b - a).T
                inside = np.linalg.norm(points - at.centre[i], axis=1) <= objects.reach[i] * (1 + 1e-13)
                assert inside.mean() > quantile or inside.all()
                farthest = np.linalg.norm(points - at.centre[i], axis=1).max()
                assert at.radius[i] == pytest.approx(farthest, rel=1e-12)


def test_reach_of_gaussians_among_themselves_is_that_of_the_normal() -> None:
    """Two of them farther apart than epsilon and both reaches match with less than the threshold."""
    from scipy.stats import norm

    assert gaussian_reach(0.5 - 1e-9) == pytest.approx(0.0, abs=1e-8)
    assert gaussian_reach(0.9) == 0.0
    for alpha in (0.4, 0.1, 1e-3, 1e-9):
        assert gaussian_reach(alpha) == pytest.approx(norm.isf(alpha), rel=1e-6)


# --- buffers ----------------------------------------------------------------------------------------------------

_steps = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000)), max_size=12)


@given(_steps)
def test_a_column_is_what_was_put_in_less_what_was_dropped(steps: list[tuple[int, int]]) -> None:
    """Through growing, moving and giving memory back."""
    column, expected, number = Column(np.int64), np.empty(0, np.int64), 0
    for added, unwanted in steps:
        rows = np.arange(number, number + added)
        number += added
        column.extend(rows)
        expected = np.concatenate([expected, rows])
        column.drop(min(unwanted, len(expected)))
        expected = expected[unwanted:]
        assert column.view.tolist() == expected.tolist()
        assert len(column) == len(expected)
    assert column.nbytes <= 8 * max(4096, 16 * len(expected) + 4 * max((a for a, _ in steps), default=0) + 4096)


@given(st.lists(st.tuples(st.lists(st.binary(max_size=300), max_size=40), st.integers(0, 50)), max_size=10))
def test_an_arena_finds_each_row_after_any_drops(steps: list[tuple[list[bytes], int]]) -> None:
    """Runs keep their place in a count that starts when the arena was made."""
    arena: Arena = Arena(np.uint8)
    expected: list[bytes] = []
    for added, unwanted in steps:
        rows = Bytes.of([b"skipped", *added]).slice(1, len(added) + 1)
        arena.extend(rows.offsets, rows.data)
        expected += added
        arena.drop(min(unwanted, len(expected)))
        expected = expected[unwanted:]
        begin, length = arena.begin - arena.base, arena.length
        found = [arena.values[a : a + n].tobytes() for a, n in zip(begin, length, strict=True)]
        assert found == expected
