"""Columns written as Spark writes them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appulse.errors import BadArgument
from appulse.model.ddl import TYPES, columns_of, is_of_spark

NAMES = st.text("abc_`, <>:é", min_size=1, max_size=5)
PLAIN = st.sampled_from([*TYPES.items(), ("decimal(12, 3)", pa.decimal128(12, 3)), ("varchar(3)", pa.string())])


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def nested(inner: st.SearchStrategy[tuple[str, pa.DataType]]) -> st.SearchStrategy[tuple[str, pa.DataType]]:
    structs = st.lists(st.tuples(NAMES, inner), min_size=1, max_size=3, unique_by=lambda one: one[0])
    return st.one_of(
        inner.map(lambda kind: (f"ARRAY<{kind[0]}>", pa.list_(kind[1]))),
        st.tuples(PLAIN, inner).map(lambda two: (f"Map<{two[0][0]},{two[1][0]}>", pa.map_(two[0][1], two[1][1]))),
        structs.map(
            lambda fields: (
                f"struct<{', '.join(f'{quoted(name)}: {kind}' for name, (kind, _) in fields)}>",
                pa.struct([pa.field(name, kind) for name, (_, kind) in fields]),
            )
        ),
    )


KINDS = st.recursive(PLAIN, nested, max_leaves=4)
FIELDS = st.lists(
    st.tuples(
        NAMES, KINDS, st.sampled_from(["", " NOT NULL", " COMMENT 'it''s, <x>'", ' not null comment "it\'s, -- ,"'])
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda field: field[0],
)


@given(FIELDS)
def test_what_is_written_is_read(fields: list[tuple[str, tuple[str, pa.DataType], str]]) -> None:
    text = ", ".join(f"{quoted(name)} {kind}{more}" for name, (kind, _), more in fields)
    assert columns_of(text) == pa.schema([pa.field(name, kind) for name, (_, kind), _ in fields])


@pytest.mark.parametrize(
    ("text", "position", "why"),
    [
        ("", 1, "name of a column is missing"),
        ("id", 3, "type is missing"),
        ("id bigin", 9, "Did you mean 'bigint'"),
        ("id int x double", 7, "comma is missing"),
        ("id int,", 8, "name of a column is missing"),
        ("id int, id int", 15, "'id' is there twice"),
        ("s struct<a int", 15, "'>' is missing"),
        ("a int not", 10, "NULL is missing"),
        ("a int comment", 14, "text of a comment is missing"),
        ("a decimal(50, 2)", 17, "precision"),
        ("a varchar(x)", 12, "'x' is not a whole number"),
        ("a int)", 6, "comma is missing"),
        ("a int; b int", 6, "comma is missing"),
        ("a int /* b", 6, "comma is missing"),
        ("-- a int", 1, "name of a column is missing"),
        (f"a int {'-' * 200}\n;", 6, "comma is missing"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, position: int, why: str) -> None:
    with pytest.raises(BadArgument, match=f"position {position}: .*{why}"):
        columns_of(text)


def test_comments_of_sql_are_left_out() -> None:
    text = "\n-- what, is sent\na INT /* it's; -- \n x */, -- \"\n`b--` STRING -----"
    assert columns_of(text) == pa.schema({"a": pa.int32(), "b--": pa.string()})


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("at TIMESTAMP WITHOUT TIME ZONE", True),
        ("s STRUCT< >, c CHARACTER(3)", True),
        ("with INT, zone INTT, s struct<a INTT>", False),
        ("id INTERVAL DAY TO SECOND", True),
        ("id STRING COLLATE UTF8_LCASE", True),
        ("v variant, x DOUBLE", True),
        ("s struct<a: TIME(6)>", True),
        ("at Time NOT NULL", True),
        ("g geometry(4326)", True),
        ("time DOUBEL, variant : INTT", False),
        ("id STRNG, at TIMESTAMPP", False),
        ("times INTT", False),
    ],
)
def test_types_of_spark_alone_are_known_as_such(text: str, known: bool) -> None:
    assert is_of_spark(text) == known
