"""Sets of standing queries: whatever way they are written, added and taken away, each says what it says alone."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.errors import BadArgument
from appulse.queries import holding, sets, slots
from appulse.queries.condition import parse
from appulse.queries.sets import QuerySet
from appulse.queries.templates import Texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import DrawFn

BIG = 2**53
_TIMES = [datetime(2024, 1, 31, 12, tzinfo=UTC), datetime(2024, 2, 1, tzinfo=UTC), None]
_DOUBLES = (
    0.0,
    -0.0,
    0.1,
    0.30000000000000004,
    0.3,
    -5.0,
    2.5,
    1e22,
    1e23,
    float(BIG),
    float("nan"),
    float("inf"),
    None,
)
COLUMNS: dict[str, pa.Array] = {
    "x": pa.array(_DOUBLES, pa.float64()),
    "i": pa.array([0, 1, -1, -5, 2, BIG, BIG + 1, -BIG - 1, 2**63 - 1, -(2**63), 123, None, 5], pa.int64()),
    "d": pa.array(
        [Decimal(v) if v else None for v in ("0.1", "0.1000000000000000001", "0.3", "-5", "2.5", "", "1")] * 2
    )[:13],
    "u": pa.array([0, 1, 2, 5, BIG + 1, 2**64 - 1, None, 3, 4, 6, 7, 8, 9], pa.uint64()),
    "k": pa.array(_DOUBLES, pa.float64()).dictionary_encode(),
    "s": pa.array(
        ["", "a", "it's", "é\U0001f600", "prefix_a", "prefix_b", "prefix_", "# % $ ?", "-- x", *"b1", "0", None]
    ),
    "t": pa.array((_TIMES * 5)[:13], pa.timestamp("us", "UTC")),
    "b": pa.array(([True, False, None] * 5)[:13]),
    "odd 'name": pa.array(range(13)),
    "n": pa.nulls(13),
}
TYPES = {name: column.type for name, column in COLUMNS.items()}
_NUMBERS = (
    *("0", "-0", "- 0.0", "1", "-1", "-5", "- 5", "-(5)", "- -5", "+5", "5.", ".5", "007", "2.5", "-2.5", "0.1", "0.3"),
    *("0.30000000000000004", "0.1000000000000000001", "1e3", "1E-3", "25e-1", "-1.5e+2", "1e22", "1e23", "1e300"),
    *("9007199254740992", "9007199254740993", "-9007199254740993", "123456789012345678901", "9223372036854775807"),
    *("-9223372036854775808", "12345678901234567.5", "0.99999999999999999999", "1e400", "1x", "1..2", "NULL"),
)
_WORDS = ("''", "'a'", "'it''s'", "'é\U0001f600'", "'prefix_a'", "'prefix_'", "'# % $ ?'", "'-- x'", "'/* */'", "'b")
_INSTANTS = (
    "DATE '2024-02-01'",
    "TIMESTAMP '2024-01-31 12:00:00'",
    "'2024-01-31 12:00:00'",
    "'20240201'",
    "'noon'",
    "DATE 'x'",
)
_LITERALS = {
    **dict.fromkeys(("x", "i", "d", "u", "k", "`odd 'name`", "n"), _NUMBERS),
    "s": _WORDS,
    "t": _INSTANTS,
    "b": ("TRUE", "FALSE", "NULL"),
}
_FORMS = (
    *("{c} {o} {l}", "{c} {o} {l}", "{l} {o} {c}", "{c} BETWEEN {l} AND {l}", "{l} BETWEEN {c} AND {l}"),
    *("{c} NOT BETWEEN {l} AND {l}", "{c} IN ({l}, {l})", "{c} NOT IN ({l},{l} ,{l})", "{l} NOT IN ({c}, {l})"),
    *("{c} {o} {l} OR {c} {o} {l}", "NOT ({c} {o} {l} AND {c} <> {l})", "{c} {o} {l} IS NULL", "-{c} {o} {l}"),
    *("{c} + {l} {o} {l}", "{l} + {l} {o} {c}", "{c} - {l} * {l} {o} {l}", "{c} {o} {c}", "{c} IS NOT NULL"),
    *("{c} {o} {l} -- all", "/* {l} */ {c} {o} {l}", "{c} {o} {l} AND", "\t{c}\n{o}  {l} ", "{c}"),
    *("abs({c}) {o} {l}", "coalesce({c}, {l}) {o} {l}", "Least({c}, {c}, {l}) {o} {l}", "greatest({c}, {c}) {o} {l}"),
    *("sqrt({c} * {l}) {o} {l}", "abs({c} - {l}) BETWEEN {l} AND {l}", "{l} {o} coalesce({c}, NULL)"),
    *("abs({c} - {l}) {o} {l}", "{l} {o} abs({l} - {c})", "NOT abs({c} - {l}) {o} {l}", "abs({c} - {c}) {o} {l}"),
)


@st.composite
def _texts(draw: DrawFn) -> list[str]:
    """Conditions of few shapes, with literals of every spelling; some are none."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        form = draw(st.sampled_from(_FORMS))
        column, operator = draw(st.sampled_from(sorted(_LITERALS))), draw(st.sampled_from(("=", "<>", "<", ">=", "!=")))
        for _ in range(draw(st.integers(1, 4))):
            text = form.replace("{c}", column).replace("{o}", operator)
            while "{l}" in text:
                text = text.replace("{l}", draw(st.sampled_from(_LITERALS[column])), 1)
            found.append(text)
    return draw(st.permutations(found))


def _alone(text: str) -> list[int] | str:
    """The rows that satisfy a condition, or why it is none."""
    try:
        condition = parse(text)
        condition.check(TYPES)
    except BadArgument as error:
        return str(error)
    own = {name: COLUMNS[name] for name in condition.columns}
    found: list[int] = np.flatnonzero(condition.holds(own, 13)).tolist()
    return found


def _set(texts: Sequence[str], keys: pa.Array | None = None) -> QuerySet:
    keys = pa.array(range(len(texts))) if keys is None else keys
    found = QuerySet(TYPES, keys.type)
    assert not found.add(keys, pa.array(texts)).refused
    return found


def _found(queries: QuerySet, columns: Any = None, n: int = 13) -> list[tuple[int, Any]]:
    """Rows and keys of what matches."""
    rows, slots = queries.match(columns or COLUMNS, n)
    return sorted(zip(rows.tolist(), queries.keys(slots).to_pylist(), strict=True), key=str)


def _numbers(values: Sequence[float | None]) -> dict[str, pa.Array]:
    return {"x": pa.array(values, pa.float64())}


@given(_texts(), st.booleans())
@settings(max_examples=200)
def test_a_text_among_others_says_what_it_says_alone(texts: list[str], at_once: bool) -> None:
    """Those of one shape are read together; answers and refusals are those of each by itself."""
    queries = QuerySet(TYPES, pa.int64())
    refused: dict[int, str] = {}
    for begin in range(0, len(texts), len(texts) if at_once else 1):
        part = range(begin, len(texts) if at_once else begin + 1)
        added = queries.add(pa.array(part), pa.array([texts[i] for i in part]))
        refused |= {begin + one.row: one.reason for one in added.refused}
    alone = [_alone(text) for text in texts]
    assert refused == {i: said for i, said in enumerate(alone) if isinstance(said, str)}
    expected = [(row, i) for i, said in enumerate(alone) if isinstance(said, list) for row in said]
    assert _found(queries) == sorted(expected, key=str)
    assert len(queries) == len(texts) - len(refused)


@given(_texts(), st.sampled_from((1, 256)), st.sampled_from((4, 1 << 22)))
@settings(max_examples=100)
def test_pairs_are_judged_in_parts_or_query_by_query(texts: list[str], many: int, room: int) -> None:
    readable = [text for text in texts if isinstance(_alone(text), list)]
    queries = _set(readable)
    with mock.patch.multiple(holding, _MANY=many, _ROOM=room):
        found = _found(queries)
    assert found == sorted(((row, i) for i, text in enumerate(readable) for row in _alone(text)), key=str)


@given(st.sampled_from(sorted(_LITERALS)), st.data())
@settings(max_examples=150)
def test_a_long_list_says_what_its_comparisons_say(column: str, data: st.DataObject) -> None:
    """Whether its constants are read alone, or as parameters of a query with many rows."""
    readable = [one for one in _LITERALS[column] if isinstance(_alone(f"{column} = {one}"), list)]
    literals = data.draw(st.lists(st.sampled_from(readable), min_size=8, max_size=12))
    equal, other = ([_alone(f"{column} {sign} {one}") for one in literals] for sign in ("=", "<>"))
    texts = [f"{column} {name} ({', '.join(literals)})" for name in ("IN", "NOT IN")]
    texts.append(" AND ".join(f"{column} <> {one}" for one in literals))
    some = [row for row in range(13) if any(row in rows for rows in equal)]
    none = [row for row in range(13) if all(row in rows for rows in other)]
    assert [_alone(text) for text in texts] == [some, none, none]
    queries = _set(texts)
    with mock.patch.multiple(holding, _MANY=data.draw(st.sampled_from((1, 256)))):
        assert _found(queries) == sorted(
            [*((row, 0) for row in some), *((row, i) for row in none for i in (1, 2))], key=str
        )


def test_a_distance_from_a_constant_is_a_range() -> None:
    """It is indexed: rows beyond are no candidates; those on its border are asked."""
    texts = ["abs(x - 2.5) < 0.5", "0.5 >= abs(2.5 - x)", "abs(x - 1e300) <= 1e300", "abs(x - 2.5) > 0.5"]
    queries = _set(texts)
    columns = _numbers([1.9, 2.0, 2.4, 3.0, 3.1, -1e300, 2e300, math.inf, math.nan, None])
    inside = [(2, 0), (1, 1), (2, 1), (3, 1), (0, 2), (1, 2), (2, 2), (3, 2), (4, 2), (6, 2)]
    assert _found(queries, columns, 10) == sorted([*inside, (0, 3), (4, 3), (5, 3), (6, 3), (7, 3)], key=str)
    assert [queries.described(slot)["candidates"] for slot in range(2)] == [3, 3]


def test_the_first_of_a_shape_does_not_speak_for_its_signs() -> None:
    """Nought has none that is seen, and fractions that meet each other are exact."""
    queries = _set(["x > -0", "x > -5", "x = 0.1 + 0.2", "x = 0.1 + 0.3", "d > 0.1", "d > 0.05"])
    found = _found(queries, {**_numbers([-3.0, 0.3, 0.1 + 0.2]), "d": COLUMNS["d"].slice(1, 3)}, 3)
    assert found == [(0, 1), (0, 4), (0, 5), (1, 0), (1, 1), (1, 2), (1, 4), (1, 5), (2, 0), (2, 1)]


def test_a_row_is_judged_by_itself() -> None:
    """A product beyond 64 bits beside it changes nothing, nor does the way its query is read."""
    queries = _set(["i * u * 0.1 = 0.3", "i * u * 0.1 /**/ = 0.3", "i * u * 0.1 > 0.3", "i * u + 0.5 = 3.5 /**/"])
    columns = {"i": pa.array([3, 2**62], pa.int64()), "u": pa.array([1, 4], pa.uint64())}
    both = _found(queries, columns, 2)
    alone = _found(queries, {name: column.slice(0, 1) for name, column in columns.items()}, 1)
    assert alone == [pair for pair in both if pair[0] == 0] == [(0, 2), (0, 3)]


@pytest.mark.parametrize(
    ("text", "shape", "literals"),
    [
        ("x > 1.5", "x > %", ["1.5"]),
        ("x>-3", "x>-#", ["3"]),
        ("  x \t > \n 1e3 ", "x > # ", ["1e3"]),
        ("s = 'it''s'", "s = $", ["'it''s'"]),
        ("`a 'b` = 'é'", "`a 'b` = $", ["'é'"]),
        ("x1 = 1", "x1 = #", ["1"]),
        ("é2 < .5", "é2 < %", [".5"]),
        ("x IN (1, 2.5, 'a')", "x IN (#, %, $)", ["1", "2.5", "'a'"]),
        ("x > 0.12345678901234567890", "x > %", ["0.12345678901234567890"]),
    ],
)
def test_the_shape_of_a_text(text: str, shape: str, literals: list[str]) -> None:
    """Its literals are taken out, whatever stands before it in the array."""
    found = Texts.of(pa.array(["junk 17", text, ""]).slice(1))
    assert found.plain[0]
    assert found.shapes[0].as_py().decode() == shape
    raw = text.encode()
    assert [raw[begin:end].decode() for _, begin, end, _ in found.literals(0)] == literals


@pytest.mark.parametrize(
    "text", ["x > 1 -- all", "x /* */ > 1", "x > 9007199254740993", "x = 'open", "x # 1", "x > 1a"]
)
def test_texts_that_are_read_by_themselves(text: str) -> None:
    found = Texts.of(pa.array([text, "x > 2"]))
    assert found.plain.tolist() == [False, True]
    assert len(found.literals(0)) == 0
    assert len(found.literals(1)) == 1


# --- what is refused --------------------------------------------------------------------------------------------


def test_refusals_tell_position_and_reason_each_its_own() -> None:
    """Also those of one shape, of which the first was fine or not."""
    texts = ["y > 1", "  y > 1", "x > 'a'", "x >", "t > '2024-01-31'", "t > 'noon'", None, "x > 1", "sum(x) > 1"]
    keys = pa.array([0, 1, 2, 3, 4, 5, 6, None, 8])
    queries = QuerySet(TYPES, pa.int64())
    told = {one.row: one.reason for one in queries.add(keys, pa.array(texts)).refused}
    assert sorted(told) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert "position 1: there is no column 'y'" in told[0]
    assert "position 3: there is no column 'y'" in told[1]
    assert "a number cannot be compared with a text" in told[2]
    assert "position 4: the end" in told[3]
    assert "position 5: this is not a time such as" in told[5]
    assert told[6] == "the condition is null"
    assert told[7] == "the key is null"
    assert "functions such as sum() are not supported" in told[8]
    assert len(queries) == 1


@pytest.mark.parametrize(
    "text", ["__import__('os').system('true')", "x.__class__ = 1", "1; DROP TABLE x", "eval('1') = 1"]
)
def test_nothing_is_evaluated_as_code(text: str) -> None:
    with mock.patch("os.system") as called:
        [refused] = QuerySet(TYPES, pa.int64()).add(pa.array([1]), pa.array([text])).refused
    assert "is refused at position" in refused.reason
    assert not called.called


def test_a_long_list_is_indexed_by_its_hull_with_the_exact_rest() -> None:
    """One of no more than 1,000 values as it is."""
    queries = _set([f"x IN ({', '.join(map(str, range(0, 2 * n, 2)))})" for n in (2000, 1000)])
    columns = _numbers([0.0, 1.0, 1998.0, 1999.0, 2000.0, 3998.0, 4000.0, None])
    assert _found(queries, columns, 8) == [(0, 0), (0, 1), (2, 0), (2, 1), (4, 0), (5, 0)]
    long, short = (queries.described(slot) for slot in range(2))
    assert (long["boxes"], long["indexed"], long["exact"]) == (2000, "by the hull of its boxes", False)
    assert (short["boxes"], short["indexed"], short["exact"]) == (1000, "as it is", True)
    assert [(one["matches"], one["candidates"]) for one in (long, short)] == [(4, 6), (2, 2)]
    assert queries.busiest(1).tolist() == [0]


@pytest.mark.parametrize("count", [2, 30, 999, 1500])
def test_a_list_of_what_is_left_out_has_a_box_between_any_two(count: int) -> None:
    """Not two to the power of its length; nor if it is written as comparisons in no order, with one twice."""
    left_out = [7 * i % count for i in range(count)]
    texts = [f"i NOT IN ({', '.join(map(str, left_out))})", " AND ".join(f"i <> {v}" for v in [*left_out, 0])]
    queries = _set(texts)
    columns = {"i": pa.array([-1, 0, 1, count // 2, count - 1, count, None])}
    assert _found(queries, columns, 7) == [(0, 0), (0, 1), (5, 0), (5, 1)]
    assert queries.described(0)["boxes"] == count + 1
    assert queries.described(0)["exact"] is (count < 1000)


@pytest.mark.parametrize("comment", ["", " -- a text of its own", " /* and another */"])
def test_a_bomb_is_refused_with_its_size(comment: str) -> None:
    """However it is written; and whatever is asked next is fine."""
    part = "(x = 1 OR i = 2)"
    fine, bomb, huge = (" AND ".join([part] * n) + comment for n in (16, 17, 20_000))
    queries = QuerySet(TYPES, pa.int64())
    refused = queries.add(pa.array([0, 1, 2]), pa.array([fine, bomb, huge])).refused
    assert [one.row for one in refused] == [1, 2]
    assert "has 131072 boxes, and 100000 are the most. Split it" in refused[0].reason
    assert "has 1000000000000000 and more boxes" in refused[1].reason
    assert len(refused[1].reason) < 300
    assert _found(queries, {**_numbers([1.0, 0.0, 0.0]), "i": pa.array([0, 2, 0])}, 3) == [(0, 0), (1, 0)]
    assert queries.described(0)["indexed"] == "by the hull of its boxes"


@pytest.mark.parametrize("form", ["{}x > 1{}", "{}NOT x > 1{}"])
def test_nesting_has_an_end(form: str) -> None:
    depth = 200 // (1 + form.count("NOT"))
    deep = [form.format("(" * n, ")" * n) for n in (depth - form.count("NOT"), 201)]
    [refused] = QuerySet(TYPES, pa.int64()).add(pa.array([0, 1]), pa.array(deep)).refused
    assert refused.row == 1
    assert "nested more than 200 deep" in refused.reason


def test_queries_that_no_row_can_satisfy_are_told() -> None:
    """They stand nevertheless."""
    texts = ["x > 2 AND x < 1", "x > 1", "i = 0.5", "x = NULL", "b AND NOT b", "x BETWEEN 2 AND 1", "FALSE"]
    queries = QuerySet(TYPES, pa.int64())
    added = queries.add(pa.array(range(7)), pa.array(texts))
    assert added.never.tolist() == [0, 2, 3, 4, 5, 6]
    assert len(queries) == 7
    assert not [pair for pair in _found(queries) if pair[1] != 1]


# --- sets that change -------------------------------------------------------------------------------------------

_KEYS: dict[str, list[Any]] = {
    "whole": [3, 1, 2, -(2**63)],
    "text": ["b", "", "é", "a much longer key than the others"],
    "fraction": [0.5, -1.0, 1e300, 2.0],
    "time": [*_TIMES[:2], datetime(1969, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)],
    "decimal": [Decimal("1.10"), Decimal("1.20"), Decimal("-3.00"), Decimal("0.01")],
    "binary": [b"", b"\0", b"a", b"b"],
    "struct": [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": None}],
    "list": [[1], [1, 2], [], [2]],
}


@pytest.mark.parametrize("kind", _KEYS)
@pytest.mark.parametrize("collide", [False, True])
def test_keys_may_be_anything(kind: str, collide: bool) -> None:
    """Also if all have the same hash: the key itself decides."""
    values = _KEYS[kind]
    keys = pa.array(values)

    def same(given: pa.Array) -> np.ndarray[Any, np.dtype[np.uint32]]:
        return np.zeros(len(given), np.uint32)

    with mock.patch.object(slots, "_hashes", same if collide else slots._hashes):
        queries = _set([f"x > {i}" for i in range(4)], keys)
        assert _found(queries, _numbers([2.5]), 1) == sorted([(0, v) for v in values[:3]], key=str)
        assert queries.remove(keys.slice(1, 1)) == 1
        assert queries.remove(keys.slice(1, 1)) == 0
        assert not queries.add(keys.slice(0, 1), pa.array(["x > 5"])).refused
        assert _found(queries, _numbers([2.5, 6.0]), 2) == sorted(
            [(0, values[2]), *((1, values[i]) for i in (0, 2, 3))], key=str
        )
        assert len(queries) == 3
        assert [len(queries.find(keys.slice(i, 1))) for i in range(4)] == [1, 0, 1, 1]


def test_the_slot_of_each_key() -> None:
    """The last that is alive, in the order of the keys asked for, which may be null, unknown or asked for twice."""
    known = slots.SlotsByKey(pa.string())
    known.add(pa.array(["a", "b", "a", "c"]), 0)
    known.add(pa.array(["d", "b"]), 4)
    asked, alive = pa.array(["c", "a", None, "b", "z", "a", "d"]), np.array([1, 1, 1, 0, 1, 1], np.uint8)
    assert known.slots(asked, alive).tolist() == [-1, 2, -1, 5, -1, 2, 4]
    assert known.slots(pa.array(["z"]), alive).tolist() == [-1]


def test_of_queries_of_one_key_the_last_stands() -> None:
    """Unless it is refused: then the one before it does."""
    queries = QuerySet(TYPES, pa.string())
    keys = pa.array(["a", "b", "a", "a"])
    refused = queries.add(keys, pa.array(["x > 1", "x > 2", "x > 3", "y > 4"])).refused
    assert [one.row for one in refused] == [3]
    assert _found(queries, _numbers([2.5, 4.0]), 2) == [(0, "b"), (1, "a"), (1, "b")]
    queries.add(keys.slice(0, 1), pa.array(["x <"]))
    assert _found(queries, _numbers([4.0]), 1) == [(0, "a"), (0, "b")]
    queries.add(keys.slice(0, 1), pa.array(["i > 0"]))
    assert _found(queries, _numbers([4.0]) | {"i": pa.array([0])}, 1) == [(0, "b")]


@given(st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(-3, 9)), max_size=12), max_size=8))
def test_a_set_that_is_made_smaller_again(rounds: list[list[tuple[bool, int, int]]]) -> None:
    """Compacted again and again, it keeps keys, texts, labels, counts and answers."""
    queries = QuerySet(TYPES, pa.int64())
    standing: dict[int, int] = {}
    counts: dict[int, int] = {}
    columns = _numbers([-1.5, 0.5, 4.5, None])
    with mock.patch.object(sets, "_LEAST_DEAD", 3):
        for changes in rounds:
            for adding, key, least in changes:
                at = pa.array([key])
                if adding:
                    queries.add(at, pa.array([f"x > {least} OR x < {-least}"]), np.array([least], np.int32))
                    standing[key], counts[key] = least, 0
                else:
                    assert queries.remove(at) == (standing.pop(key, None) is not None)
            found = _found(queries, columns, 4)
            expected = [
                (row, key)
                for key, least in standing.items()
                for row, x in enumerate((-1.5, 0.5, 4.5))
                if x > least or x < -least
            ]
            assert found == sorted(expected, key=str)
            for _, key in expected:
                counts[key] += 1
            assert len(queries) == len(standing)
            assert queries._size <= max(2 * len(standing), len(standing) + 3)
    for key, least in standing.items():
        [slot] = queries.find(pa.array([key])).tolist()
        assert queries.labels[slot] == least
        told = queries.described(slot)
        assert told["condition"] == f"x > {least} OR x < {-least}"
        assert told["matches"] == counts[key]


def test_few_queries_of_many_have_most_of_the_matches() -> None:
    queries = _set(["x > 2", "x > 0", "x > 1", "x > 1"], pa.array([10, 11, 12, 13]))
    assert len(_found(queries, _numbers([0.5, 1.5, 2.5]), 3)) == 1 + 3 + 2 + 2
    assert queries.busiest(3).tolist() == [1, 2, 3]
    queries.remove(pa.array([11]))
    assert queries.busiest(9).tolist() == [2, 3, 0]
    assert queries.nbytes > 0


# --- by hand ----------------------------------------------------------------------------------------------------


def _queries(changes: Sequence[tuple[Any, ...]], *names: str) -> pa.Table:
    return pa.table({name: [row[i] for row in changes] for i, name in enumerate(("query", "condition", *names))})


def _rows(values: Sequence[float], **columns: Any) -> pa.Table:
    return pa.table({"id": range(len(values)), "ts": range(len(values)), "x": values, **columns})


def _match(**settings: Any) -> ap.QueryMatch:
    return ap.QueryMatch(ap.Stream(None, key="id", time="ts", value=ap.Exact("x")), **settings)


def test_changes_count_in_their_order_within_a_frame() -> None:
    """Added, removed and added again: the last word counts; a change that is none is a reject."""
    join = _match()
    changes = [
        ("a", "x > 0", "add"),
        ("a", "", "remove"),
        ("b", "x > 0", "ADD"),
        ("c", "x > 0", "add"),
        ("b", "x > 1", "add"),
        ("c", "", "Remove"),
        ("d", "", "remove"),
        ("e", "x > 0", "replace"),
        ("f", "x > 0", None),
    ]
    join.change(_queries(changes, "change"))
    found = join.push(_rows([0.5, 1.5]))
    assert [(row["query"], row["key"]) for row in found.to_pylist()] == [("b", 1)]
    rejects = join.rejects().to_pylist()
    assert [row["stream"] for row in rejects] == ["queries", "queries"]
    assert [row["reason"] for row in rejects] == ["bad condition"] * 2
    assert "change is 'replace', and 'add' or 'remove' is known" in rejects[0]["detail"]
    strict = _match(on_reject="fail")
    strict.change(_queries(changes, "change"))
    with pytest.raises(ap.BadInput, match="replace"):
        strict.push(_rows([1.0]))


def test_select_brings_values_along_as_json() -> None:
    asked = [("a", "x > 0", "name, x"), ("b", "x > 0", None), ("c", "x > 0", "nam"), ("d", "x > 1", "name")]
    result = ap.match_queries(
        ap.Stream(_rows([0.5, 2.0], name=["é", None]), key="id", time="ts", value=ap.Exact("x")),
        _queries(asked, "select"),
    )
    told = sorted((row["query"], row["key"], row["values"]) for row in result.to_pylist())
    assert told == sorted(
        [
            ("a", 0, '{"name": "é", "x": 0.5}'),
            ("a", 1, '{"name": null, "x": 2.0}'),
            ("b", 0, None),
            ("b", 1, None),
            ("d", 1, '{"name": null}'),
        ],
        key=str,
    )
    [reject] = ap.rejects(result).to_pylist()
    assert "select names 'nam', which is not a column of the stream. Did you mean 'name'?" in reject["detail"]


def test_counts_are_of_rows_also_where_they_are_uncertain() -> None:
    """A row of three samples that satisfy a query is one match, if it is one."""
    stream = ap.Stream(None, key="id", time="ts", value=ap.Samples("x"))
    join = ap.QueryMatch(stream, probability=0.5)
    join.change(_queries([("a", "x > 0"), ("b", "x > 2")]))
    found = join.push(pa.table({"id": [0, 1], "ts": [0, 0], "x": [[1.0, 2.0, 3.0], [-1.0, -2.0, 1.0]]}))
    assert [(row["query"], row["key"]) for row in found.to_pylist()] == [("a", 0)]
    assert join.explain_query("a")["matches"] == 1
    assert join.explain_query("b")["matches"] == 0
    assert join.busiest(1).to_pylist() == [{"query": "a", "condition": "x > 0", "matches": 1, "candidates": 1}]
    with pytest.raises(ap.BadArgument, match="No query 'z' stands"):
        join.explain_query("z")


@pytest.mark.parametrize("first", ["typed", "untyped"])
def test_a_set_that_begins_empty(first: str) -> None:
    """With columns that tell their types or not, it takes queries later; so it does in other types that fit."""
    kind = pa.string() if first == "typed" else pa.null()
    join = _match()
    join.change(pa.table({"query": pa.array([], kind), "condition": pa.array([], kind)}))
    assert len(join.push(_rows([1.0]))) == 0
    for keys in (pa.array(["a"]), pa.array(["b"], pa.large_string()), pa.array(["c"]).dictionary_encode()):
        join.change(pa.table({"query": keys, "condition": ["x > 0"]}))
    assert sorted(join.push(_rows([1.0]))["query"].to_pylist()) == ["a", "b", "c"]
    join.change(pa.table({"query": pa.array(["b"]).dictionary_encode(), "condition": [""], "change": ["remove"]}))
    assert sorted(join.push(_rows([1.0]))["query"].to_pylist()) == ["a", "c"]
    with pytest.raises(ap.BadArgument, match="had no column 'select'"):
        join.change(_queries([("d", "x > 0", "x")], "select"))
    with pytest.raises(ap.BadArgument, match=r"are list<.*>, and those known already string"):
        join.change(pa.table({"query": [[1]], "condition": ["x > 0"]}))


def test_a_first_push_that_raises_may_be_made_again() -> None:
    """Over several streams frames wait until all have shown their columns; what was refused does not wait with them."""
    streams = [ap.Stream(None, key="id", time="ts", value=ap.Exact("x"), name=name) for name in "rs"]
    join = ap.QueryMatch(*streams)
    join.change(_queries([("a", "r.x < s.x WITHIN 9 SECONDS")]))
    assert not len(join.push(r=_rows([1.0])))
    with pytest.raises(BadArgument, match="'x'"):
        join.push(s=_rows([2.0]).drop_columns(["x"]))
    assert join.push(s=_rows([2.0])).select(["left_key", "right_key"]).to_pylist() == [{"left_key": 0, "right_key": 0}]


@pytest.mark.parametrize("keys", [pa.array(["a"], pa.string_view()), pa.array(["a"]).dictionary_encode()])
def test_columns_and_keys_may_be_dictionaries(keys: pa.Array) -> None:
    rows = _rows([0.5, 1.5, 2.5])
    rows = rows.append_column("k", rows["x"].combine_chunks().dictionary_encode())
    stream = ap.Stream(rows, key="id", time="ts", value=ap.Exact("x"))
    found = ap.match_queries(stream, pa.table({"query": keys, "condition": pa.array(["k > 0.7 AND k < x + 1"])}))
    assert found["query"].to_pylist() == ["a", "a"]
    assert found["key"].to_pylist() == [1, 2]


def test_an_empty_frame_may_tell_that_values_are_selected() -> None:
    """Queries that select nothing have none."""
    join = _match()
    join.change(_queries([("a", "x > 0", "x")], "select").slice(0, 0))
    join.change(_queries([("b", "x > 0")]))
    assert join.push(_rows([1.0]))["values"].to_pylist() == [None]
    join.change(_queries([("a", "x > 0", "x")], "select"))
    found = join.push(_rows([1.0])).to_pylist()
    assert {row["query"]: row["values"] for row in found} == {"a": '{"x": 1.0}', "b": None}


def test_columns_may_be_named_like_anything() -> None:
    """What stands for literals in a template is no name that a column can have."""
    types = {"?0": pa.float64(), "?1": pa.float64()}
    queries = QuerySet(types, pa.int64())
    texts = ['"?0" > 1 AND "?1" < 2', '"?1" > "?0"', '"?0" + "?1" > 4.5']
    added = queries.add(pa.array([0, 1, 2]), pa.array(texts))
    assert added.refused == []
    rows, slots = queries.match({"?0": pa.array([3.0, 0.0]), "?1": pa.array([1.0, 5.0])}, 2)
    assert sorted(zip(rows.tolist(), slots.tolist(), strict=True)) == [(0, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("more", ["", " AND d < 0.5", " /* by itself */"])
def test_texts_that_end_in_nul_are_texts_of_their_own(more: str) -> None:
    """Also where a condition is read by itself."""
    types = {"s": pa.string(), "d": pa.decimal128(10, 2)}
    columns = {"s": pa.array(["a", "a\0", "a\0\0"]), "d": pa.array([Decimal("0.10")] * 3, types["d"])}
    queries = QuerySet(types, pa.int64())
    texts = [f"s {operator} 'a\0'{more}" for operator in ("=", "<>", "<", ">=")]
    assert not queries.add(pa.array(range(4)), pa.array(texts)).refused
    assert _found(queries, columns, 3) == [(0, 1), (0, 2), (1, 0), (1, 3), (2, 1), (2, 3)]


@pytest.mark.parametrize("sides", ["DATE '{}' {} '{}'", "'{}' {} DATE '{}'", "TIMESTAMP '{}' {} DATE '{}'"])
def test_constant_times_compare_with_texts_as_times(sides: str) -> None:
    """Texts of one shape that are no times are rejects of their own."""
    days = ("2024-01-01", "2024-01-02", "2024-01-01T00:00Z")
    pairs = [(a, o, b) for a in days for b in days for o in ("=", "<", "<>")]
    texts = [sides.format(a, o, b) for a, o, b in pairs]
    queries = QuerySet(TYPES, pa.int64())
    wrong = [sides.format("2024-01-01", "=", "nonsense")] * 2
    refused = queries.add(pa.array(range(len(pairs) + 2)), pa.array([wrong[0], *texts, wrong[1]])).refused
    assert [one.row for one in refused] == [0, len(pairs) + 1]
    truth = {"=": "__eq__", "<": "__lt__", "<>": "__ne__"}
    expected = [i + 1 for i, (a, o, b) in enumerate(pairs) if getattr(a[:10], truth[o])(b[:10])]
    assert sorted(key for _, key in _found(queries, _numbers([0.0]), 1)) == expected
