from __future__ import annotations

import math
import pickle
import sqlite3
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appulse.errors import BadArgument
from appulse.queries.condition import parse
from appulse.queries.tree import And, Column, Comparison, Literal, Not, Or

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import DrawFn, SearchStrategy

BIG = 2**53
COLUMNS: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "i": (pa.int64(), (0, 1, -1, 2, 5, BIG, BIG + 1, -BIG - 1, None)),
    "j": (pa.int32(), (0, 1, 2, -3, None)),
    "f": (pa.float64(), (0.0, 0.5, 1.0, -1.0, 2.5, 1e300, float(BIG), None)),
    "t": (pa.string(), ("", "a", "b", "ab", "é", "\U0001f600", "it's", None)),
    "b": (pa.bool_(), (True, False, None)),
    "odd name": (pa.int64(), (0, 1, None)),
}


# --- against SQLite ---------------------------------------------------------------------------------------------


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else str(value).upper() if isinstance(value, bool) else repr(value)


@st.composite
def operands(draw: DrawFn, kind: str) -> str:
    """A column, a literal, or some arithmetic that stays exact in SQLite, too."""
    names = {"number": ("i", "j", "f", '"odd name"', "`odd name`"), "text": ("t",), "boolean": ("b",)}[kind]
    values = {
        "number": (0, 1, 2, -1, 0.5, 2.5, BIG, BIG + 1, None),
        "text": ("", "a", "ab", "it's", "é", None),
        "boolean": (True, False, None),
    }[kind]
    choice = draw(st.integers(0, 4))
    if choice == 4:
        return draw(functions(kind))
    if choice == 0:
        return _literal(draw(st.sampled_from(values)))
    if choice == 1 and kind == "number":
        operator = draw(st.sampled_from((" + ", "-", "*", " - -")))
        return f"({draw(st.sampled_from(('j', 'f', 'i')))}{operator}{draw(st.sampled_from(('1', '0.5', 'j', '2')))})"
    return draw(st.sampled_from(names))


@st.composite
def functions(draw: DrawFn, kind: str) -> str:
    """A function of columns and literals of a kind."""
    name = draw(st.sampled_from(("coalesce", "Least", "greatest", "ABS") if kind == "number" else ("COALESCE",)))
    given = [draw(operands(kind)) for _ in range(1 if name == "ABS" else draw(st.integers(2, 3)))]
    return f"{name}({', '.join(given)})"


def _some(of: Any) -> Any:
    """A function of those of its arguments that are no nulls."""
    return lambda *values: of((value for value in values if value is not None), default=None)


@st.composite
def comparisons(draw: DrawFn) -> str:
    kind = draw(st.sampled_from(("number", "number", "number", "text", "boolean")))
    a, b, c = (draw(operands(kind)) for _ in range(3))
    negated = draw(st.sampled_from(("", "NOT ")))
    return draw(
        st.sampled_from(
            (
                *(f"{a} {operator} {b}" for operator in ("=", "<>", "!=", "==", "<", "<=", ">", ">=")),
                f"{a} {negated}BETWEEN {b} AND {c}",
                f"{a} {negated}IN ({b}, {c})",
                f"{a} IS {negated}NULL",
                "b" if kind == "boolean" else f"{a} = {b}",
            )
        )
    )


def conditions() -> SearchStrategy[str]:
    return st.recursive(
        comparisons(),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(("AND", "or", "OR", "and")), inner).map(" ".join),
            st.tuples(inner, inner, inner).map(lambda parts: f"{parts[0]} AND {parts[1]} OR {parts[2]}"),
            inner.map(lambda part: f"NOT {part}"),
            inner.map(lambda part: f"({part})"),
        ),
        max_leaves=6,
    )


@given(conditions(), st.data())
def test_truth_is_that_of_sqlite(text: str, data: st.DataObject) -> None:
    rows = data.draw(
        st.lists(st.tuples(*(st.sampled_from(values) for _, values in COLUMNS.values())), min_size=1, max_size=6)
    )
    condition = parse(text)
    # SQLite alone of all has 2 ** 53 + 1 + 0.5 as a double as soon as there is arithmetic; nobody means anything by it.
    with sqlite3.connect(":memory:") as base:
        base.create_function("least", -1, _some(min))
        base.create_function("greatest", -1, _some(max))
        fields = ", ".join(f'"{name}"' for name in COLUMNS)
        base.execute(f"CREATE TABLE rows ({fields})")
        base.executemany(f"INSERT INTO rows VALUES ({', '.join('?' * len(COLUMNS))})", rows)  # noqa: S608
        expected = [bool(value) for (value,) in base.execute(f"SELECT ({text}) FROM rows ORDER BY rowid")]  # noqa: S608
    base.close()
    columns = {name: pa.array([row[k] for row in rows], kind) for k, (name, (kind, _)) in enumerate(COLUMNS.items())}
    condition.check({name: column.type for name, column in columns.items()})
    read = {name: columns[name] for name in condition.columns}
    assert condition.holds(read, len(rows)).tolist() == expected


# --- what SQLite does not know ----------------------------------------------------------------------------------


def holds(text: str, **columns: pa.Array) -> list[bool]:
    condition = parse(text)
    condition.check({name: column.type for name, column in columns.items()})
    n = max((len(column) for column in columns.values()), default=1)
    return [bool(value) for value in condition.holds(columns, n)]


@pytest.mark.parametrize(
    ("text", "values", "kind", "expected"),
    [
        ("x = 9007199254740993", [BIG, BIG + 1, BIG + 2], pa.int64(), [0, 1, 0]),
        ("x + 1 > 9223372036854775807", [2**63 - 1, 5], pa.int64(), [1, 0]),
        ("x * x * x = 1000000000000000000000000000000", [10**10, 1], pa.int64(), [1, 0]),
        ("x > 18446744073709551614", [2**64 - 1, 0, None], pa.uint64(), [1, 0, 0]),
        ("x = 0.10", [Decimal("0.10"), Decimal("0.11"), None], pa.decimal128(10, 2), [1, 0, 0]),
        ("x * 3 = 0.3", [Decimal("0.10"), Decimal("0.11"), None], pa.decimal128(10, 2), [1, 0, 0]),
        ("x / 3 * 3 = 1", [Decimal(1), Decimal(2)], pa.decimal128(10, 2), [1, 0]),
        ("x = 0.1", [0.1, 0.2], pa.float64(), [1, 0]),
        ("x / 2 = 0.5", [1, 2], pa.int64(), [1, 0]),
        ("1 / x > 0 OR 1 / x <= 0", [0, 1, -1], pa.int64(), [0, 1, 1]),
        ("1.5 / x IS NULL", [0.0, 1.0], pa.float64(), [1, 0]),
        ("x IS NULL", [math.nan, 1.0, None], pa.float64(), [1, 0, 1]),
        ("x < 1e300", [1.0, math.inf], pa.float64(), [1, 0]),
        ("abs(x) = 9223372036854775808", [-(2**63), 5, None], pa.int64(), [1, 0, 0]),
        ("sqrt(x) = 3", [9, -9, None], pa.int64(), [1, 0, 0]),
        ("sqrt(x) IS NULL", [4.0, -1.0, math.nan], pa.float64(), [0, 1, 1]),
        ("least(x, 0.1) = 0.1", [Decimal("0.10"), Decimal("0.09"), None], pa.decimal128(10, 2), [1, 0, 1]),
        ("greatest(x, NULL) = 9007199254740993", [BIG, BIG + 1, None], pa.int64(), [0, 1, 0]),
        ("coalesce(x, 'none') IN ('none', 'a')", ["a", "b", None], pa.string(), [1, 0, 1]),
        ("coalesce(x > 1, FALSE) = FALSE", [1, 2, None], pa.int64(), [1, 0, 1]),
        ("x <> x OR x = x", [math.nan, 1.0], pa.float64(), [0, 1]),
        ("x > 1e30", [1, 2], pa.int64(), [0, 0]),
        ("x < 1.5", [1, 2], pa.int8(), [1, 0]),
        ("x <= .5 AND +x > -1.", [0.5, 0.75], pa.float32(), [1, 0]),
        ("x = 'a'", ["a", "b", None], pa.large_string(), [1, 0, 0]),
        ("x > 'Z'", ["é", "\U0001f600", "A"], pa.string(), [1, 1, 0]),
        ("x", [True, False, None], pa.bool_(), [1, 0, 0]),
        ("NOT x", [True, False, None], pa.bool_(), [0, 1, 0]),
        ("x = TRUE AND x > FALSE", [True, False, None], pa.bool_(), [1, 0, 0]),
        ("x = 1", [None, None], pa.null(), [0, 0]),
        ("x IS NULL AND NOT (x + 1 = 2 AND FALSE)", [None], pa.null(), [1]),
        ("NULL", [1], pa.int64(), [0]),
        ("TRUE OR NULL", [1, 2], pa.int64(), [1, 1]),
        ("1 < 2 AND 'a' < 'b' AND 0.1 + 0.2 = 0.3", [1, 2], pa.int64(), [1, 1]),
    ],
)
def test_numbers_texts_and_truth(text: str, values: list[Any], kind: pa.DataType, expected: list[int]) -> None:
    assert holds(text, x=pa.array(values, kind)) == [bool(value) for value in expected]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_compare_with_texts_and_times(unit: str) -> None:
    noon = datetime(2024, 1, 31, 12, tzinfo=UTC)
    times = pa.array([noon, noon.replace(hour=13), None], pa.timestamp(unit, "UTC"))
    assert holds("x > '2024-01-31 12:00:00'", x=times) == [False, True, False]
    assert holds("x <= TIMESTAMP '2024-01-31T14:00+02:00'", x=times) == [True, False, False]
    assert holds("DATE '2024-02-01' > x AND x IN ('2024-01-31 13:00')", x=times) == [False, True, False]
    assert holds("x = DATE '2024-01-31'", x=pa.array([noon.date(), None], pa.date32())) == [True, False]


def test_dictionaries_and_slices_are_read() -> None:
    names = pa.array(["a", "b", None, "a"]).dictionary_encode()
    assert holds("x = 'a'", x=names.slice(1)) == [False, False, True]
    assert holds("x > 1", x=pa.array([1, 2, None, 3]).slice(1)) == [True, False, True]


def test_words_of_sql_are_names_where_they_can_be() -> None:
    for name in ("load", "date", "timestamp", "value", "order", "set", "end", "key", "Load", "größe", "_x1"):
        assert holds(f"{name} > 20", **{name: pa.array([30, 10])}) == [True, False]
    assert holds('"and" = 1 AND `a"``b` = 2', **{"and": pa.array([1]), 'a"`b': pa.array([2])}) == [True]
    assert holds("x -- a comment\n = /* another */ 1", x=pa.array([1])) == [True]


def test_the_tree_is_what_the_text_says() -> None:
    a, b, c = (Comparison("=", Column(name), Literal(1)) for name in "abc")
    assert parse("a = 1 OR b == 1 AND NOT c = 1").tree == Or((a, And((b, Not(c)))))
    assert parse("(a = 1 OR b = 1) AND c = 1").tree == And((Or((a, b)), c))
    assert parse("a = 1 AND b = 1 AND c = 1").tree == And((a, b, c))
    assert parse("r.x < 2.50", streams=("r",)).tree == Comparison("<", Column("x", "r"), Literal(Fraction(5, 2)))
    assert parse("b > 1 AND a > 1 OR b < 0").columns == ("b", "a")


def test_conditions_travel_as_text() -> None:
    deep = parse("NOT (" * 100 + "x = 1" + ")" * 100)
    again = pickle.loads(pickle.dumps(deep))  # noqa: S301 - our own bytes
    assert again == deep
    assert again.tree == deep.tree
    assert "x = 1" in repr(deep)
    assert again.holds({"x": pa.array([1, 2])}, 2).tolist() == [True, False]


def test_long_conditions_are_no_deep_ones() -> None:
    many = " OR ".join(f"x = {i}" for i in range(5000))
    assert holds(many, x=pa.array([4999, 5000])) == [True, False]
    assert holds(f"x IN ({', '.join(map(str, range(5000)))})", x=pa.array([4999, 5000])) == [True, False]


# --- what is refused --------------------------------------------------------------------------------------------

REFUSED = [
    ("", 1, "the end where a column"),
    ("x >", 4, "the end where a column"),
    ("x > 1 y", 7, "'y' is not expected"),
    ("x > 1; y", 6, "';' is not part"),
    ("x > 1 AND", 10, "the end where"),
    ("AND x", 1, "'AND' where a column"),
    ("(x > 1", 7, "the end where \\) is expected"),
    ("x > 1)", 6, "'\\)' is not expected"),
    ("a < b < c", 7, "'<' after a comparison"),
    ("x = 1 IS NULL", 7, "'IS' after a comparison"),
    ("x LIKE 'a%'", 3, "'LIKE' is not expected"),
    ("f(x) > 1", 1, "functions such as f"),
    ("x > (SELECT 1)", 13, "'1' where \\) is expected"),
    ("CASE WHEN x THEN 1 END = 1", 6, "'WHEN' is not expected"),
    ("x IN ()", 7, "'\\)' where a column"),
    ("x IN (1, )", 10, "'\\)' where a column"),
    ("x IS 3", 6, "'3' where NULL"),
    ("x IS NOT 3", 10, "'3' where NULL"),
    ("x NOT 3", 7, "'3' after NOT"),
    ("x BETWEEN 1 OR 2", 13, "'OR' where AND"),
    ("x = 'abc", 5, "no end"),
    ('"" = 1', 1, "nothing in it"),
    ("x /* = 1", 3, "no end"),
    ("x # 1", 3, "'#' is not part"),
    ("x = 1.2.3", 5, "'1.2.3' is not part"),
    ("x = 0x1F", 5, "'0x1F' is not part"),
    ("x = 1e999", 5, "out of range"),
    ("x = 1e-999999999", 5, "out of range"),
    ("x = 10000000000 * 1e401", 19, "out of range"),
    ("x % 2 = 1", 3, "'%' is not part"),
    ("x || 'a' = 'b'", 3, "'\\|\\|' is not part"),
    ("r.x > 1", 1, "'r' is not a stream"),
    ("x = TIMESTAMP 'soon'", 15, "is not a time"),
    ("x = :p", 5, "':p' is not part"),
    ("x = ?", 5, "'\\?' is not part"),
    ("__import__('os')", 1, "functions such as __import__"),
    ("(" * 201 + "x = 1" + ")" * 201, 201, "nested more than 200 deep"),
    ("NOT " * 201 + "x = 1", 801, "nested more than 200 deep"),
    ("- " * 201 + "x = 1", 401, "nested more than 200 deep"),
    ("x = 1" + " + 1" * 201, 807, "nested more than 200 deep"),
]


@pytest.mark.parametrize(("text", "position", "reason"), REFUSED)
def test_what_cannot_be_read_is_refused_with_its_position(text: str, position: int, reason: str) -> None:
    with pytest.raises(BadArgument, match=f"refused at position {position}: .*{reason}"):
        parse(text)


@pytest.mark.parametrize("deep", ["(" * 200 + "x = 1" + ")" * 200, "NOT " * 200 + "x = 1", "0 < " + "- " * 200 + "x"])
def test_two_hundred_levels_are_read_and_evaluated(deep: str) -> None:
    assert holds(deep, x=pa.array([1, None])) == [True, False]


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("n", 1, "a number, and a condition is true or false"),
        ("t = 1", 3, "a text cannot be compared with a number"),
        ("n > 1 AND t", 11, "a text where a truth value is expected"),
        ("t + 1 = 2", 1, "a text where a number is expected"),
        ("(n = 1) + 1 = 2", 4, "a truth value where a number is expected"),
        ("missing = 1", 1, "no column 'missing'"),
        ("nn = 1", 1, "Did you mean 'n'"),
        ("l = 1", 1, "conditions cannot compare"),
        ("w = 'soon'", 5, "not a time"),
        ("w = t", 5, "not a time"),
        ("w > 3", 3, "a time cannot be compared with a number"),
        ("NOT n", 5, "a number where a truth value is expected"),
    ],
)
def test_what_makes_no_sense_over_the_columns_is_refused(text: str, position: int, reason: str) -> None:
    types = {"n": pa.int64(), "t": pa.string(), "l": pa.list_(pa.int64()), "w": pa.timestamp("us")}
    with pytest.raises(BadArgument, match=f"refused at position {position}: .*{reason}"):
        parse(text).check(types)


def test_only_text_is_a_condition() -> None:
    with pytest.raises(BadArgument, match="Give text"):
        parse(3)  # type: ignore[arg-type]


@given(st.text(alphabet="xy1.5'\"`()<>=!+-*/, \nANDORINSULTBEW", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(BadArgument):
        parse(text)


def test_truth_of_a_constant_is_told_for_every_row() -> None:
    assert parse("1 = 1").holds({}, 3).tolist() == [True, True, True]
    assert parse("1 = 1").holds({}, 0).dtype == np.bool_
