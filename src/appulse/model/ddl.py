"""Columns written as Spark writes them: ``"id BIGINT, at TIMESTAMP, x DOUBLE"``."""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa

from appulse.errors import BadArgument, likely

#: The types that are one word.
TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}
_NESTED = ("decimal(p, s)", "array<...>", "map<..., ...>", "struct<name: ...>")
_GAP = r"(?:\s|--[^\n]*|/\*.*?\*/)*+"  # with comments of SQL; what it took it keeps, so that this is quick
_TEXT = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\""""
_PARTS = re.compile(rf"{_GAP}(?:`((?:[^`]|``)+)`|(\w+)|([<>(),:])|({_TEXT})|$)", re.DOTALL)
# What Spark alone knows: types, unless they are names of columns, and words behind types.
_TYPE = r"(?:geography|geometry|time|variant|void)(?!\s*:|\s+(?!not\b|comment\b|collate\b|default\b)\w)"
_LONGER = r"with(?:out|\s+local)\s+time\s+zone|character\s*\(\s*\d+|struct\s*<\s*(?=>)"
_OF_SPARK = re.compile(rf"\b(?:(?:collate|default|generated|interval|{_TYPE})\b|{_LONGER})", re.IGNORECASE)


#: The narrowest type that has all whole numbers of one without a sign.
_SIGNED = {
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20, 0)",
}


def ddl_of(kind: pa.DataType) -> str | None:
    """The type of a column as a schema has it, in capitals; None for one that no schema has."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP_NTZ" if kind.tz is None else "TIMESTAMP"
    if pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return "STRING"
    if pa.types.is_list(kind):
        inner = ddl_of(kind.value_type)
        return inner and f"ARRAY<{inner}>"
    word = next((word for word, known in TYPES.items() if known == kind), _SIGNED.get(kind))
    return word and word.upper()


def is_of_spark(text: str) -> bool:
    """Whether columns may have types that Spark alone knows."""
    return _OF_SPARK.search(text) is not None


@lru_cache(maxsize=64)
def columns_of(text: str) -> pa.Schema:
    """Columns with their types; `BadArgument` says where the text cannot be read."""
    reader = _Reader(text)
    fields = reader.fields(end="")
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise reader.unread(f"column {name!r} is there twice")
    return pa.schema(fields)


class _Reader:
    """Reads one text, part by part."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def unread(self, why: str) -> BadArgument:
        """What is wrong, and where."""
        why += "" if why.endswith("?") else "."
        return BadArgument(
            f"columns cannot be read at position {self._at + 1}: {why} Write them as Spark does, such as "
            "'id BIGINT, at TIMESTAMP, x DOUBLE'."
        )

    def fields(self, end: str) -> list[pa.Field]:
        """Names with types up to an end, where there is at least one."""
        found = []
        while True:
            name = self._name()
            if self._next() == ":":
                self._take(":")
            found.append(pa.field(name, self._type()))
            self._leave_out()
            if self._next() != ",":
                break
            self._take(",")
        self._take(end)
        return found

    def _type(self) -> pa.DataType:
        word = self._word("a type").lower()
        if word in ("decimal", "numeric", "dec"):
            return self._decimal()
        if word in ("char", "varchar"):
            self._numbers()
            return pa.string()
        if word == "array":
            self._take("<")
            kind = pa.list_(self._type())
            self._take(">")
            return kind
        if word == "map":
            self._take("<")
            key = self._type()
            self._take(",")
            kind = pa.map_(key, self._type())
            self._take(">")
            return kind
        if word == "struct":
            self._take("<")
            return pa.struct(self.fields(end=">"))
        if word not in TYPES:
            hint = likely(word, TYPES) or f" Known: {', '.join([*TYPES, *_NESTED])}."
            raise self.unread(f"{word!r} is not a type.{hint}".removesuffix("."))
        return TYPES[word]

    def _decimal(self) -> pa.DataType:
        given = self._numbers() if self._next() == "(" else []
        precision, scale = (*given, *(10, 0)[len(given) :])[:2]
        try:
            return pa.decimal128(precision, scale)
        except ValueError as error:
            raise self.unread(str(error)) from None

    def _numbers(self) -> list[int]:
        self._take("(")
        found = [self._whole()]
        while self._next() == ",":
            self._take(",")
            found.append(self._whole())
        self._take(")")
        return found

    def _whole(self) -> int:
        word = self._word("a whole number")
        if not word.isdecimal():
            raise self.unread(f"{word!r} is not a whole number")
        return int(word)

    def _leave_out(self) -> None:
        """What says nothing about a type: NOT NULL, and comments."""
        if self._next().lower() == "not":
            self._word("")
            if self._word("NULL").lower() != "null":
                raise self.unread("NULL is missing after NOT")
        if self._next().lower() == "comment":
            self._word("")
            found = _PARTS.match(self._text, self._at)
            if found is None or found[4] is None:
                raise self.unread("the text of a comment is missing")
            self._at = found.end()

    def _name(self) -> str:
        found = _PARTS.match(self._text, self._at)
        if found is None or not (found[1] or found[2]):
            raise self.unread("the name of a column is missing")
        self._at = found.end()
        return found[2] or found[1].replace("``", "`")

    def _word(self, wanted: str) -> str:
        found = _PARTS.match(self._text, self._at)
        if found is None or not found[2]:
            raise self.unread(f"{wanted} is missing")
        self._at = found.end()
        return found[2]

    def _next(self) -> str:
        found = _PARTS.match(self._text, self._at)
        return "" if found is None else found[2] or found[3] or ""

    def _take(self, sign: str) -> None:
        """A sign, or where it is empty the end of the text."""
        found = _PARTS.match(self._text, self._at)
        if not sign and found is not None and found.lastindex is None:
            return
        if not sign or found is None or found[3] != sign:
            raise self.unread(f"{sign!r} is missing" if sign else "a comma is missing")
        self._at = found.end()
