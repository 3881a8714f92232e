"""One query of a set, whatever its text is: it is an answer or a reject, and never changes those of the others."""

from __future__ import annotations

import itertools
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.queries.condition import MOST_LENGTH, parse
from appulse.queries.sets import QuerySet
from appulse.queries.templates import Template

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis.strategies import DrawFn

ROWS = pa.table(
    {
        "k": [1, 2, 3],
        "t": [0.0, 1.0, 2.0],
        "x": [1.0, -2.0, 5.0],
        "y": pa.array([3, None, -1]),
        "s": ["a", "a\0", None],
        "b": [True, False, None],
        "d": pa.array([Decimal("0.10"), None, Decimal("2.50")]),
        "at": pa.array([0, 10**15, None], pa.timestamp("us", "UTC")),
    }
)
TYPES = {field.name: field.type for field in ROWS.schema}
FINE = [
    "x > 0",
    "x > 2",
    "s = 'a'",
    "s = 'b'",
    "y IN (1, 2, 3) OR b",
    "d < 0.5 AND x <> 1",
    "at > '2000-01-01'",
    "x + y > 1 AND x > -9",
    "NOT b AND y IS NULL",
    "DATE '2024-01-01' < at OR x BETWEEN 1 AND 2",
]
TOKENS = [
    *("x", "y", "s", "b", "d", "at", "z", "r.x", '"x"', "`y`", '"', "'", "AND", "OR", "NOT", "IN", "BETWEEN", "IS"),
    *("NULL", "TRUE", "FALSE", "DATE '2024-01-01'", "TIMESTAMP '2024-01-01 12:00:00'", "'2024-01-01'", "'9999-12-31'"),
    *(
        "'a'",
        "'a\0'",
        "''",
        "'it''s'",
        "0",
        "1",
        "-1",
        "0.5",
        ".5",
        "1.",
        "1e5",
        "1e400",
        "1e-400",
        "1e99999999999999999",
    ),
    *(
        "9007199254740993",
        "9" * 30,
        "9" * 401,
        "1a",
        "1..2",
        "٣",
        "(",
        ")",
        ",",
        ".",
        "+",
        "-",
        "*",
        "/",
        "=",
        "<>",
        "<",
    ),
    *("<=", ">", ">=", "!=", "==", "--", "/*", "*/", "\n", " ", "#", "$", "%", "?", ";", "é", "\0", "WITHIN 3 ROWS"),
    *(
        "WITHIN 9223372036854775808 ROWS",
        "WITHIN 1.5 SECONDS",
        "WITHIN 99999999999999999999 DAYS",
        "0 * x",
        "1 / 0",
        "x / 0",
    ),
]


@st.composite
def soups(draw: DrawFn) -> str:
    """Tokens in any order."""
    between = st.sampled_from((" ", "", "\t"))
    return draw(between).join(draw(st.lists(st.sampled_from(TOKENS), max_size=12)))


@st.composite
def mutations(draw: DrawFn, fine: Sequence[str] = tuple(FINE)) -> str:
    """Conditions with parts left out, twice, or in place of one another."""
    text = (
        draw(st.sampled_from(fine)) + draw(st.sampled_from((" AND ", " OR ", " = ", " "))) + draw(st.sampled_from(fine))
    )
    for _ in range(draw(st.integers(0, 4))):
        begin, size = draw(st.integers(0, len(text))), draw(st.integers(0, 3))
        text = text[:begin] + draw(st.sampled_from(["", *TOKENS])) + text[begin + size :]
    return text


def constants() -> st.SearchStrategy[str]:
    """Comparisons of constants with each other."""
    value = st.sampled_from(
        ("1", "0.5", "'a'", "'2024-01-01'", "DATE '2024-01-01'", "NULL", "TRUE", "x", "s", "at", "b")
    )
    operator = st.sampled_from(("=", "<", "<>", ">="))
    return st.one_of(
        st.tuples(value, operator, value).map(" ".join),
        st.tuples(value, value, value).map("{0[0]} BETWEEN {0[1]} AND {0[2]}".format),
        st.tuples(value, value, value).map("{0[0]} IN ({0[1]}, {0[2]})".format),
    )


def texts() -> st.SearchStrategy[str]:
    return st.one_of(soups(), mutations(), constants())


def _stream(name: str | None = None, frame: Any = ROWS) -> ap.Stream:
    return ap.Stream(frame, key="k", time="t", value=ap.Exact("x"), name=name)


def _queries(conditions: Sequence[str], first: int = 0) -> pa.Table:
    return pa.table(
        {
            "query": pa.array(range(first, first + len(conditions)), pa.int64()),
            "condition": pa.array(conditions, pa.string()),
        }
    )


def _of(answers: pa.Table, known: int) -> list[tuple[Any, ...]]:
    """The answers of the queries before a number."""
    return sorted(row for row in zip(*answers.to_pydict().values(), strict=True) if row[0] < known)


@settings(max_examples=80)
@given(texts())
def test_a_text_is_a_condition_or_a_refusal(text: str) -> None:
    """By itself, as a filter, and as a query: in each it is the same rows, or no error but the package's own."""
    try:
        kept = ap.match_queries(ap.filter(_stream(), text), _queries(["x = x"]))["key"].to_pylist()
    except ap.BadArgument:
        kept = None
    found = ap.match_queries(_stream(), _queries([text]))
    refused = [one["reason"] for one in ap.rejects(found).to_pylist() if one["reason"] == "bad condition"]
    assert (found["key"].to_pylist(), bool(refused)) == (kept or [], kept is None)


@settings(max_examples=50)
@given(
    st.lists(texts(), min_size=1, max_size=6), st.lists(st.sampled_from(FINE), min_size=1, max_size=5), st.booleans()
)
def test_a_poisoned_query_changes_nothing_for_the_others(
    poison: list[str], fine: list[str], poison_first: bool
) -> None:
    alone = _of(ap.match_queries(_stream(), _queries(fine)), len(fine))
    parts = [_queries(fine), _queries(poison, len(fine))]
    both = pa.concat_tables(parts[::-1] if poison_first else parts)
    assert _of(ap.match_queries(_stream(), both), len(fine)) == alone
    matching = ap.QueryMatch(_stream(frame=None))
    for part in parts[::-1] if poison_first else parts:
        matching.change(part)
    assert _of(matching.push(ROWS), len(fine)) == alone


@settings(max_examples=30)
@given(st.data())
def test_a_poisoned_query_over_several_streams_changes_nothing_for_the_others(data: st.DataObject) -> None:
    fine = ["r.x = s.x WITHIN 3 ROWS", "r.y < s.x AND r.s = s.s WITHIN 1 SECOND", "r.x > 0"]
    ends = st.sampled_from(("", " WITHIN 2 ROWS", " WITHIN 9223372036854775807 ROWS", " WITHIN 1 SECONDS", " WITHIN"))
    poison = [
        data.draw(st.one_of(soups(), mutations(fine), constants())) + data.draw(ends)
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    window: Any = data.draw(st.sampled_from((ap.CountWindow(2), ap.CountWindow(2**62), ap.TimeWindow(1))))

    def asked(conditions: Sequence[str]) -> list[tuple[Any, ...]]:
        found = ap.match_queries(_stream("r"), _stream("s"), queries=_queries(conditions), window=window)
        return _of(found, len(fine))

    assert asked([*fine, *poison]) == asked(fine)


def test_windows_of_more_rows_than_there_can_be_hold_all() -> None:
    sizes = [3, 2**62, 2**63 - 2, 2**63 - 1, 2**63, 10**4999]
    conditions = [f"r.x = s.x WITHIN {size} ROWS" for size in map(str, sizes[:-1])] + [
        f"r.x = s.x WITHIN {'9' * 5000} ROWS"
    ]
    found = ap.match_queries(
        _stream("r"), _stream("s"), queries=_queries([*conditions, "r.x = s.x"]), window=ap.CountWindow(2**62)
    )
    assert not len(ap.rejects(found))
    keys = zip(*(found[name].to_pylist() for name in ("query", "left_key", "right_key")), strict=True)
    assert sorted(keys) == [(q, k, k) for q in range(7) for k in (1, 2, 3)]


# --- errors nobody foresaw --------------------------------------------------------------------------------------


class _Failing:
    """Conditions that read column y raise when they are evaluated over rows."""

    def __init__(self) -> None:
        self._holds = Template.holds

    def __call__(self, made: Template, *given: Any) -> Any:
        if "y" in {column.name.rpartition(".")[2] for column in made.columns}:
            raise ZeroDivisionError("no luck")
        return self._holds(made, *given)


def test_a_query_that_cannot_be_evaluated_is_removed_and_reported() -> None:
    """Once; and the others answer, those of its own shape too."""
    conditions = ["x * y > 0", "x * x > 0", "x > 0", "x * y > 1"]
    rejects = {}
    with mock.patch.object(Template, "holds", autospec=True, side_effect=_Failing()):
        matching = ap.QueryMatch(_stream(frame=None))
        matching.change(_queries(conditions))
        for _ in range(2):
            assert sorted(matching.push(ROWS)["query"].to_pylist()) == [1, 1, 1, 2, 2]
            rejects = {one["values"]: (one["reason"], one["detail"]) for one in matching.rejects().to_pylist()}
            assert len(rejects) == len(matching.rejects()) == 2
        several = ap.QueryMatch(_stream("r", None), _stream("s", None), window=ap.TimeWindow(0))
        several.change(_queries(["r.x * r.y > s.x", "r.x * r.x = s.x", "r.x = s.x"]))
        assert sorted(several.push(r=ROWS, s=ROWS)["query"].to_pylist()) == [1, 2, 2, 2]
        assert several.rejects()["reason"].to_pylist() == ["bad condition"]
        failing = ap.QueryMatch(_stream(frame=None), on_reject="fail")
        failing.change(_queries(conditions))
        with pytest.raises(ap.BadInput, match="no luck"):
            failing.push(ROWS)
    assert rejects['{"query": 0, "condition": "x * y > 0"}'] == (
        "bad condition",
        "ZeroDivisionError: no luck (over rows; the query was removed)",
    )


@pytest.mark.parametrize("probability", [None, 0.3])
def test_parts_of_rows_make_no_difference(probability: float | None) -> None:
    """A query that fails in one part has no answers in others of its block, whichever thread came first."""
    n, rng = 500, np.random.default_rng(3)
    x = np.round(rng.normal(size=n), 1)
    y = np.where(np.arange(n) == n // 2, 99.0, x)
    rows = pa.table({"k": np.arange(n), "t": np.arange(n), "x": x, "y": y})
    regions = [f"x > {low}" for low in (-1, 0, 0.5)] + ["x * x > 0.5", "y / (y - 99) > 0", "x * y < 0.2 AND x > 0"]
    value = ap.Exact("x") if probability is None else ap.Gaussian("x", sigma=0.3)
    stream, found = ap.Stream(rows, key="k", time="t", value=value), []
    holds = Template.holds

    def failing(made: Template, columns: Any, given: Any) -> Any:
        if any(name == "y" and (99.0 in values.data) for name, values in columns.items()) and len(columns) == 1:
            raise ZeroDivisionError("no luck")
        return holds(made, columns, given)

    for part, threads in ((1 << 14, 1), (32, 1), (32, 3), (7, 3)):
        with (
            mock.patch.object(Template, "holds", failing),
            mock.patch("appulse.engines.queries.call._PART", part),
        ):
            options = ap.Options(threads=threads)
            result = ap.match_queries(stream, _queries(regions), probability=probability, options=options)
        assert ap.rejects(result)["values"].to_pylist() == ['{"query": 4, "condition": "y / (y - 99) > 0"}']
        found.append(result)
    assert set(found[0]["query"].to_pylist()) == {0, 1, 2, 3, 5}
    assert all(one.equals(found[0]) for one in found)


def test_a_query_that_cannot_be_boxed_is_its_own_reject() -> None:
    with mock.patch("appulse.queries.templates.keys.no_value", side_effect=RuntimeError("no boxes")):
        found = ap.match_queries(_stream(), _queries(["x > 2", "y IS NULL", "y > 0", "x > 0"]))
    assert sorted(found["query"].to_pylist()) == [0, 2, 3, 3]
    assert ap.rejects(found)["detail"].to_pylist() == ["RuntimeError: no boxes"]


# --- all or nothing ---------------------------------------------------------------------------------------------

CHANGES = {
    "until": pa.table(
        {"change": ["remove", "add"], "query": [0, 1], "condition": ["", "r.x > 0"], "until": ["a", "b"]}
    ),
    "key": pa.table({"change": ["remove", "add"], "query": ["0", "b"], "condition": ["", "r.x > 0"]}),
    "select": pa.table(
        {"change": ["remove", "add"], "query": [0, 1], "condition": ["", "r.x > 0"], "select": ["", "x"]}
    ),
    "change": pa.table({"change": [1, 2], "query": [0, 1], "condition": ["", "r.x > 0"]}),
}


@pytest.mark.parametrize("wrong", CHANGES)
@pytest.mark.parametrize("several", [False, True])
def test_a_change_that_raises_has_changed_nothing(wrong: str, several: bool) -> None:
    """Also before the first push: it raises there, and the push can be made again."""
    names, times = ("r", "s") if several else ("r",), itertools.count(step=3)

    def push(matching: ap.QueryMatch) -> list[int]:
        rows = ROWS.set_column(1, "t", pa.array(next(times) + np.arange(3.0)))  # later each time, so that none is late
        out = matching.push(r=rows, s=rows) if several else matching.push(rows)
        return sorted(set(out["query"].to_pylist()))

    def changed(table: pa.Table) -> pa.Table:
        conditions = [text if several else text.replace("r.", "") for text in table["condition"].to_pylist()]
        return table.set_column(table.column_names.index("condition"), "condition", pa.array(conditions, pa.string()))

    def new() -> ap.QueryMatch:
        window = ap.TimeWindow(0) if several else None
        matching = ap.QueryMatch(*(_stream(name, None) for name in names), window=window)
        matching.change(changed(_queries(["r.x > 0", "r.x > 2"])))
        return matching

    matching = new()
    assert push(matching) == [0, 1]
    before = len(matching.rejects())
    with pytest.raises(ap.BadArgument):
        matching.change(changed(CHANGES[wrong]))
    assert push(matching) == [0, 1]
    assert len(matching.rejects()) == before
    waiting = new()
    with pytest.raises(ap.BadArgument):  # noqa: PT012 - at once, or with the first push
        waiting.change(changed(CHANGES[wrong]))
        push(waiting)
    assert push(waiting) == [0, 1]


# --- large texts ------------------------------------------------------------------------------------------------

SHAPES: dict[str, Callable[[int], str]] = {
    "and": lambda n: " AND ".join(["x>0"] * (n // 8)),
    "in": lambda n: f"x IN ({', '.join(map(str, range(10000, 10000 + n // 7)))})",
    "texts": lambda n: f"s IN ({', '.join(repr(str(i)) for i in range(10000, 10000 + n // 9))})",
    "decimals": lambda n: f"d NOT IN ({', '.join(map(str, range(10000, 10000 + n // 7)))})",
    "boxes and bounds": lambda n: " AND ".join(["(x=1 OR y>2 OR x=5)"] * 5 + ["x>0"] * (n // 8)),
    "of a condition": lambda n: f"({' AND '.join(['x>0'] * (n // 16))}) IN ({', '.join(['TRUE', 'b'] * (n // 32))})",
    "text": lambda n: "s = '" + "'" * (n // 2 * 2) + "'",
    "digits": lambda n: "x > " + "1" * n + "a",
    "comments": lambda n: "x > 0 " + "/**/" * (n // 4),
    "nothing": lambda n: "x > 0" + " " * n,
    "tails": lambda n: "x > 0" + " WITHIN 1" * (n // 9),
}


def _seconds(text: str) -> float:
    """The processor's time for one query, the best of three."""
    best = np.inf
    for _ in range(3):
        begun = time.process_time()
        QuerySet(TYPES, pa.int64()).add(pa.array([1]), pa.array([text]))
        best = min(best, time.process_time() - begun)
    return float(best)


@pytest.mark.parametrize("shape", SHAPES)
def test_long_conditions_take_time_by_their_length(shape: str) -> None:
    """Ten times as long, not a hundred times; with room for a machine that does other things."""
    short, long = (_seconds(SHAPES[shape](n)) for n in (4_000, 40_000))
    assert long < 30 * max(short, 0.005)


def test_conditions_within_conditions_take_time_by_their_length() -> None:
    text = "b"
    for _ in range(150):
        text = f"({text} IN (TRUE, FALSE, b))"
    found = ap.match_queries(_stream(), _queries([text, text.replace("IN (TRUE, FALSE, b)", "BETWEEN FALSE AND TRUE")]))
    assert sorted(zip(found["query"].to_pylist(), found["key"].to_pylist(), strict=True)) == [
        (0, 1),
        (0, 2),
        (1, 1),
        (1, 2),
    ]


def test_longer_conditions_are_refused_with_their_length() -> None:
    text = "x > 0" + " " * (MOST_LENGTH - 4)
    message = r"has 1,000,001 characters, and 1,000,000 are the most"
    for refused in (lambda: parse(text), lambda: ap.filter(_stream(), text)):
        with pytest.raises(ap.BadArgument, match=message):
            refused()
    found = ap.match_queries(_stream(), _queries([text[:-1], text]))
    assert found["key"].to_pylist() == [1, 3]
    assert message.replace("has ", "") in ap.rejects(found)["detail"][0].as_py()
    several = ap.match_queries(_stream("r"), _stream("s"), queries=_queries([text]), window=ap.TimeWindow(0))
    assert "1,000,001 characters" in ap.rejects(several)["detail"][0].as_py()
