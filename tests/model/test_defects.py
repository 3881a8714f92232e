"""Rejects are made column by column, and say what they would say row by row."""

from __future__ import annotations

import datetime as dt
import json
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.model import defects as why
from appulse.model.defects import Defects, as_text, rows_as_json

_VALUES: dict[pa.DataType, Any] = {
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"])),
    pa.large_string(): st.text('%"\\\n\0é{}', max_size=5),
    pa.binary(): st.binary(max_size=3),
    pa.decimal128(5, 2): st.integers(-99999, 99999).map(lambda value: Decimal(value) / 100),
    pa.date32(): st.dates(dt.date(1, 1, 1)),
    pa.list_(pa.float64()): st.lists(st.floats(), max_size=2),
    pa.struct({"a%": pa.int8()}): st.fixed_dictionaries({"a%": st.integers(0, 9)}),
}


@given(st.data())
def test_rows_as_json_are_those_of_each_row(data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 4))
    names = data.draw(st.lists(st.text('ab%"s{}', min_size=1), min_size=1, max_size=4, unique=True))
    columns = []
    for _ in names:
        kind = data.draw(st.sampled_from(list(_VALUES)))
        values = data.draw(st.lists(st.none() | _VALUES[kind], min_size=n, max_size=n))
        columns.append(pa.array(values, kind))
    table = pa.table(columns, names=names)
    found = rows_as_json(table)
    assert len(found) == n
    assert all(list(json.loads(text)) == names for text in found)
    plain = [f.name for f in table.schema if not (pa.types.is_float32(f.type) or pa.types.is_decimal(f.type))]
    if plain:
        assert rows_as_json(table.select(plain)) == [as_text(row) for row in table.select(plain).to_pylist()]


def test_values_are_as_json_has_them() -> None:
    table = pa.table(
        {
            "single": pa.chunked_array([pa.array([0.1, None], pa.float32()), pa.array([float("nan")], pa.float32())]),
            "exact": pa.array([Decimal("1.50"), None, Decimal("1E+20")], pa.decimal128(38, 2)),
            "bytes": [b"\xff\x00", None, b""],
            "inner": [[b"\xff"], None, []],
        }
    )
    assert rows_as_json(table) == [
        '{"single": 0.1, "exact": 1.50, "bytes": "/wA=", "inner": ["/w=="]}',
        '{"single": null, "exact": null, "bytes": null, "inner": null}',
        '{"single": "nan", "exact": 100000000000000000000.00, "bytes": "", "inner": []}',
    ]
    assert rows_as_json(table.slice(0, 0)) == []


def test_times_that_python_has_no_object_for_are_texts() -> None:
    table = pa.table({"at": pa.array([2**62, 0, None], pa.timestamp("s")), "x": [1.0, None, 2.0]})
    found = [json.loads(text) for text in rows_as_json(table)]
    assert found[0] == {"at": f"{2**62} (timestamp[s])", "x": 1.0}
    assert found[1:] == [{"at": "1970-01-01 00:00:00", "x": None}, {"at": None, "x": 2.0}]


def test_a_row_has_the_first_reason_found_and_rows_are_in_order() -> None:
    defects = Defects(5)
    defects.mark(np.array([0, 0, 0, 1, 1], bool), why.NULL_KEY, "no key")
    defects.mark(np.array([0, 1, 0, 1, 0], bool), why.NON_FINITE, why.each(lambda i: f"row {i}"))
    defects.mark(np.array([1, 1, 0, 0, 0], bool), why.NEGATIVE_SPREAD, why.of_values("it is ", np.arange(5), " m"))
    rows, reasons, details = (column.to_pylist() for column in defects.columns())
    assert rows == [0, 1, 3, 4]
    assert reasons == [why.NEGATIVE_SPREAD, why.NON_FINITE, why.NULL_KEY, why.NULL_KEY]
    assert details == ["it is 0 m", "row 1", "no key", "no key"]


@pytest.mark.parametrize(
    ("column", "value", "detail"),
    [
        ("x", None, "x is null"),
        ("x", float("nan"), "x is nan"),
        ("s", -1.0, "s is -1.0"),
        ("s", None, "s is null"),
        ("p", 2.0, "column 'p' is 2.0"),
        ("id", None, "column 'id' is null"),
        ("t", None, "column 't' is null"),
        ("g", None, "column 'g' is null"),
    ],
)
def test_no_reject_of_plain_values_is_worded_by_itself(column: str, value: float | None, detail: str) -> None:
    """All of a column are at once: no function of Python is called for each row."""
    n = 3000
    columns = {name: np.arange(1.0, n + 1) for name in ("id", "t", "x", "y")}
    columns |= {"s": np.full(n, 0.1), "p": np.full(n, 0.5), "g": np.full(n, 1)}
    table = pa.table(columns).set_column(list(columns).index(column), column, pa.array([value] * n, pa.float64()))
    model = ap.Gaussian("x", "y", sigma="s")
    given: dict[str, Any] = {"key": "id", "time": "t", "value": model, "existence": "p", "partition_by": "g"}
    streams = [ap.Stream(None, name=name, **given) for name in "ab"]
    first, join = (ap.SimilarityJoin(*streams, epsilon=1, probability=0.5, window=1) for _ in range(2))
    first.push(a=table.slice(0, 1))  # kernels are compiled
    calls = 0

    def counted(_frame: Any, event: str, _more: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(counted)
    try:
        join.push(a=table)
    finally:
        sys.setprofile(None)
    assert calls < n
    rejects = join.rejects()
    assert rejects["detail"].to_pylist() == [detail] * n
    assert json.loads(rejects["values"][0].as_py()).keys() == {"x", "y", "s", "p", "g"}
