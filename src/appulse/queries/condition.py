"""Conditions as users write them: SQL text into a small frozen tree, and the tree's truth over columns.

Comparisons, BETWEEN, IN lists, IS [NOT] NULL, AND, OR, NOT, + - * / on numbers, ST_Within(x, y, 'POLYGON ...'),
ST_DWithin(x, y, 'POINT ...', distance), and a few functions (`appulse.queries.functions`); columns by their names,
"quoted" or `quoted` where they are no plain words. Anything else is refused with its position and the reason; nothing
is ever evaluated as code. Truth has three values, as in SQL: what depends on a null (or NaN) may be unknown.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from appulse.errors import BadArgument, nearest
from appulse.queries.columns import (
    BOOLEAN,
    NULL,
    NUMBER,
    TEXT,
    TIME,
    Values,
    calculate,
    compare,
    has_fractions,
    kind_of,
    nearest_double,
    values_of,
)
from appulse.queries.functions import ARGUMENTS, OF_NUMBERS, called, described_arguments
from appulse.queries.places import covered, trouble_of
from appulse.queries.tree import (
    And,
    Arithmetic,
    Column,
    Comparison,
    Function,
    Instant,
    IsNull,
    Literal,
    Node,
    Not,
    Or,
    Within,
    columns_of,
    parts_of,
    with_parts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from appulse.kernels.arrays import Flags
    from appulse.queries.places import Place

MOST_NESTED = 200
#: The most characters of a condition.
MOST_LENGTH = 1_000_000
# Digits before or after the point: far beyond a double, and no number of them costs much.
_MOST_DIGITS = 400
_MOST_REPORTED = 500  # characters of a reason, which may quote a long name
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MANY = 8  # constants of a list that are looked up in a set
# Functions of regions, and how many arguments they have.
_REGIONS = {"ST_WITHIN": 3, "ST_DWITHIN": 4}


@dataclass(frozen=True)
class Condition:
    """A condition that has been read; it travels between processes as its text."""

    text: str
    streams: tuple[str, ...] = ()
    tree: Node = field(default=Literal(None), compare=False, repr=False)
    place: Place | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[Callable[..., Condition], tuple[str, tuple[str, ...], Place | None]]:
        return parse, (self.text, self.streams, self.place)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, each once, in order of appearance."""
        return tuple(dict.fromkeys(column.name for column in columns_of(self.tree)))

    def check(self, types: Mapping[str, pa.DataType]) -> None:
        """Raise `BadArgument` unless this is a condition over columns of these types."""
        kind = _Kinds(types, self.text).of(self.tree)
        if kind not in (BOOLEAN, NULL):
            refuse(self.text, self.tree.at, f"this is a {kind}, and a condition is true or false")

    def holds(self, columns: Mapping[str, pa.Array], n: int) -> Flags:
        """Where the condition is true, over columns of ``n`` rows that `check` has approved of."""
        truth = evaluate(self.tree, {name: values_of(column) for name, column in columns.items()})
        return truth.true.repeat(n) if truth.true.ndim == 0 else truth.true


def qualified(condition: Condition, columns: Mapping[str, Sequence[str]]) -> Condition:
    """The condition with every column named ``stream.column``; ``columns`` are those of each stream.

    `BadArgument` where a column is that of no stream, or of several and does not say of which.
    """
    known: dict[int, Node] = {}  # by identity: IN and BETWEEN compare one node with several
    names_of: dict[tuple[str | None, str], str] = {}

    def name_of(column: Column) -> str:
        owners = [s for s, names in columns.items() if column.name in names and column.stream in (None, s)]
        if len(owners) == 1:
            return f"{owners[0]}.{column.name}"
        if owners:
            described = f"column {column.name!r} is in {' and '.join(owners)}: say which, {owners[0]}.{column.name}"
        else:
            there = columns[column.stream] if column.stream else [name for names in columns.values() for name in names]
            described = f"there is no column {column.name!r}.{nearest(column.name, there)}"
        refuse(condition.text, column.at, described)

    def named(node: Node) -> Node:
        if isinstance(node, Literal):
            return node
        if isinstance(node, Column):
            own = node.stream, node.name
            if own not in names_of:
                names_of[own] = name_of(node)
            return Column(names_of[own], None, node.at)
        if id(node) not in known:
            known[id(node)] = with_parts(node, [named(part) for part in parts_of(node)])
        return known[id(node)]

    return replace(condition, tree=named(condition.tree))


# --- from text to the tree --------------------------------------------------------------------------------------

# Possessive where a part repeats: what it has taken is never given back, so that reading takes linear time.
_TOKEN = re.compile(
    r"""
    (?P<space> \s++ | --[^\n]*+ | /\*.*?\*/ )
  | (?P<number> (?: \d++ (?: \.\d*+ )? | \.\d++ ) (?: [eE][-+]?\d++ )? (?! [\w.] ) )
  | (?P<word> [^\W\d]\w*+ )
  | (?P<text> '[^']*+ (?: ''[^']*+ )*+ ' )
  | (?P<name> " (?: [^"] | "" ) [^"]*+ (?: ""[^"]*+ )*+ " | ` (?: [^`] | `` ) [^`]*+ (?: ``[^`]*+ )*+ ` )
  | (?P<mark> <> | <= | >= | != | == | [-+*=<>(),.] | /(?!\*) )
    """,
    re.VERBOSE | re.DOTALL,
)
_SAME = {"!=": "<>", "==": "="}
_KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "IS", "NULL", "TRUE", "FALSE"})
_CONSTANTS = {"NULL": None, "TRUE": True, "FALSE": False}
_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})
# How tightly operators bind; those of one strength go from left to right, those that compare do not go on at all.
_OR, _AND, _NOT, _COMPARE, _ADD, _MULTIPLY, _SIGN = range(1, 8)
_BINDING = {
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys([*_COMPARISONS, "IN", "BETWEEN", "IS", "NOT"], _COMPARE),
    **dict.fromkeys("+-", _ADD),
    **dict.fromkeys("*/", _MULTIPLY),
}


class _Token(NamedTuple):
    kind: str  # word, name, text, number, mark, or a keyword or mark itself
    text: str
    at: int

    @property
    def described(self) -> str:
        return repr(self.text) if self.text else "the end"


def parse(text: str, streams: Sequence[str] = (), place: Place | None = None) -> Condition:
    """Read a condition; `BadArgument` with position and reason if it is none.

    Columns may be qualified by the names in ``streams``. Regions on the Earth are those of the columns of ``place``.
    """
    if not isinstance(text, str):
        raise BadArgument(f"A condition is {text!r}. Give text such as 'temperature > 20'.")
    if len(text) > MOST_LENGTH:
        raise BadArgument(too_long(len(text)))
    parser = _Parser(text, tuple(streams), place)
    tree = parser.expression(0, 0)
    parser.expect_end()
    return Condition(text, tuple(streams), tree, place)


def too_long(length: int) -> str:
    """Why a condition of so many characters is refused."""
    return f"The condition has {length:,} characters, and {MOST_LENGTH:,} are the most. Split it into several."


class _Parser:
    """Precedence climbing: two calls a level, so that 200 levels are far from the limit of Python's own stack."""

    def __init__(self, text: str, streams: tuple[str, ...], place: Place | None) -> None:
        self._text, self._streams, self._place = text, streams, place
        self._tokens = _tokens(text)
        self._token = next(self._tokens)

    def expression(self, least: int, depth: int) -> Node:
        """What binds at least that tightly, ``depth`` levels down."""
        node = self._operand(depth)
        while (binding := _BINDING.get(self._token.kind, 0)) >= max(least, 1):
            token = self._next()
            if binding in (_OR, _AND):
                parts = [node, self.expression(binding + 1, depth)]
                while self._token.kind == token.kind:
                    self._next()
                    parts.append(self.expression(binding + 1, depth))
                node = (And if binding == _AND else Or)(tuple(parts), token.at)
            elif binding == _COMPARE:
                node = self._comparison(node, token, depth)
                if _BINDING.get(self._token.kind) == _COMPARE:
                    self._refuse(f"{self._token.described} after a comparison: put one of them in parentheses")
            else:
                depth = self._deeper(depth, token)
                node = Arithmetic(token.kind, node, self.expression(binding + 1, depth), token.at)
        return node

    def expect_end(self) -> None:
        if self._token.kind != "end":
            self._refuse(f"{self._token.described} is not expected here")

    def _operand(self, depth: int) -> Node:
        token = self._next()
        if token.kind == "(":
            node = self.expression(0, self._deeper(depth, token))
            self._expect(")")
            return node
        if token.kind == "NOT":
            return Not(self.expression(_NOT, self._deeper(depth, token)), token.at)
        if token.kind in ("-", "+"):
            return self._signed(token, self.expression(_SIGN, self._deeper(depth, token)))
        if token.kind == "number":
            return Literal(self._number(token), token.at)
        if token.kind == "text":
            return Literal(_unquoted(token), token.at)
        if token.kind in _CONSTANTS:
            return Literal(_CONSTANTS[token.kind], token.at)
        if token.kind not in ("word", "name"):
            self._refuse(f"{token.described} where a column, a value or a parenthesis is expected", token)
        return self._named(token, depth)

    def _arguments(self, depth: int) -> list[Node]:
        self._expect("(")
        given = [self.expression(_OR, depth)]
        while self._taken(","):
            given.append(self.expression(_OR, depth))
        self._expect(")")
        return given

    def _within(self, token: _Token, depth: int) -> Node:
        """ST_Within(x, y, 'POLYGON ...') or ST_DWithin(x, y, 'POINT ...', distance)."""
        parts = self._arguments(depth)
        wanted = _REGIONS[token.text.upper()]
        distance = ", distance" if wanted > 3 else ""
        if len(parts) != wanted:
            self._refuse(f"{token.text}() takes {wanted} arguments: x, y, 'WKT'{distance}", token)
        for part, kind in zip(parts[2:], ("text", "number"), strict=False):
            if not (isinstance(part, Literal) and _kind_of_literal(part.value) == kind):
                self._refuse(f"{token.text}() takes constants for its region{distance}", token)
        x, y = parts[:2]
        place = self._place
        on_earth = place is not None and (x, y) == (Column(place.x), Column(place.y)) and place.earth is not None
        if self._streams and distance:
            self._refuse(f"{token.text}() is for conditions over one stream", token)
        return Within(tuple(parts), place.earth if place is not None and on_earth else None, token.at)

    def _named(self, token: _Token, depth: int) -> Node:
        """A column, a function, or a time: DATE '2024-01-31', TIMESTAMP '2024-01-31 12:00:00'."""
        if self._token.kind == "text" and token.kind == "word" and token.text.upper() in ("DATE", "TIMESTAMP"):
            given = self._next()
            micros = micros_of(_unquoted(given))
            if micros is None:
                self._refuse(f"{given.text} is not a time such as '2024-01-31 12:00:00'", given)
            return Literal(Instant(micros), token.at)
        if self._token.kind == "(":
            return self._function(token, self._deeper(depth, token))
        name = _unquoted(token)
        if self._token.kind != ".":
            return Column(name, None, token.at)
        self._next()
        if name not in self._streams:
            known = nearest(name, self._streams) if self._streams else " Name columns without a stream here."
            self._refuse(f"{name!r} is not a stream.{known}", token)
        column = self._next()
        if column.kind not in ("word", "name"):
            self._refuse(f"{column.described} where a column of {name!r} is expected", column)
        return Column(_unquoted(column), name, token.at)

    def _function(self, token: _Token, depth: int) -> Node:
        name = token.text.lower()
        if name.upper() in _REGIONS:
            return self._within(token, depth)
        if name not in ARGUMENTS:
            self._refuse(f"functions such as {token.text}() are not supported; {', '.join(ARGUMENTS)} are", token)
        given = self._arguments(depth)
        least, most = ARGUMENTS[name]
        if not least <= len(given) <= (most or len(given)):
            self._refuse(f"{name}() takes {described_arguments(name)}, and here are {len(given)}", token)
        return Function(name, tuple(given), token.at)

    def _comparison(self, left: Node, token: _Token, depth: int) -> Node:
        if token.kind in _COMPARISONS:
            return Comparison(token.kind, left, self.expression(_ADD, depth), token.at)
        if token.kind == "IS":
            negated = self._taken("NOT")
            self._expect("NULL")
            found: Node = IsNull(left, token.at)
        else:
            negated = token.kind == "NOT"
            word = self._next() if negated else token
            if word.kind == "BETWEEN":
                low = self.expression(_ADD, depth)
                self._expect("AND")
                high = self.expression(_ADD, depth)
                bounds = (Comparison(">=", left, low, word.at), Comparison("<=", left, high, word.at))
                found = And(bounds, word.at)
            elif word.kind == "IN":
                self._expect("(")
                items = [self.expression(_ADD, depth)]
                while self._taken(","):
                    items.append(self.expression(_ADD, depth))
                self._expect(")")
                found = Or(tuple(Comparison("=", left, item, word.at) for item in items), word.at)
            else:
                self._refuse(f"{word.described} after NOT, where IN or BETWEEN is expected", word)
        return Not(found, token.at) if negated else found

    def _signed(self, token: _Token, node: Node) -> Node:
        if token.kind == "+":
            return Arithmetic("+", Literal(0, token.at), node, token.at)
        if isinstance(node, Literal) and isinstance(node.value, int | Fraction) and not isinstance(node.value, bool):
            return Literal(-node.value, token.at)
        return Arithmetic("-", Literal(0, token.at), node, token.at)

    def _number(self, token: _Token) -> int | Fraction:
        try:
            value = Decimal(token.text)
        except InvalidOperation:  # an exponent that even Decimal does not take
            self._refuse(f"the number {token.text[:20]} is out of range", token)
        exponent = value.as_tuple().exponent
        if (
            not isinstance(exponent, int)
            or max(abs(exponent), abs(value.adjusted())) > _MOST_DIGITS
            or ("e" in token.text.lower() and math.isinf(float(value)))
        ):
            self._refuse(f"the number {token.text[:20]} is out of range", token)
        # With an exponent it is a double, as in SQL, else exactly what it says.
        exact = Fraction(float(value) if "e" in token.text.lower() else value)
        return int(exact) if exact.denominator == 1 else exact

    def _deeper(self, depth: int, token: _Token) -> int:
        if depth == MOST_NESTED:
            self._refuse(f"nested more than {MOST_NESTED} deep", token)
        return depth + 1

    def _next(self) -> _Token:
        token = self._token
        if token.kind != "end":
            self._token = next(self._tokens)
        return token

    def _taken(self, kind: str) -> bool:
        if self._token.kind != kind:
            return False
        self._next()
        return True

    def _expect(self, kind: str) -> None:
        if not self._taken(kind):
            self._refuse(f"{self._token.described} where {kind} is expected")

    def _refuse(self, reason: str, token: _Token | None = None) -> NoReturn:
        refuse(self._text, (token or self._token).at, reason)


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            if text[at] in "'\"`" or text.startswith("/*", at):
                refuse(text, at, f"what begins with {text[at]} here has no end, or nothing in it")
            refuse(text, at, f"{text[at : at + 10].partition(' ')[0]!r} is not part of a condition")
        kind, found = str(match.lastgroup), match[0]
        if kind == "mark":
            kind = _SAME.get(found, found)
        elif kind == "word" and found.upper() in _KEYWORDS:
            kind = found.upper()
        if kind != "space":
            yield _Token(kind, found, at)
        at = match.end()
    yield _Token("end", "", at)


def _unquoted(token: _Token) -> str:
    if token.kind == "word":
        return token.text
    quote = token.text[0]
    return token.text[1:-1].replace(2 * quote, quote)


def micros_of(text: str) -> int | None:
    """Microseconds of a time in ISO 8601, in UTC unless it says otherwise; None if it is none."""
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


def refuse(text: str, at: int, reason: str) -> NoReturn:
    """Raise `BadArgument` about what stands at a position of a condition."""
    shown = text if len(text) <= 100 else f"{text[max(0, at - 40) : at + 40]}..."
    reason = reason if len(reason) <= _MOST_REPORTED else f"{reason[:_MOST_REPORTED]}..."
    ends = "" if reason[-1] in ".?" else "."
    raise BadArgument(f"The condition {shown!r} is refused at position {at + 1}: {reason}{ends}")


# --- what it is over columns of some types ----------------------------------------------------------------------


class _Kinds:
    """What kinds of values nodes have, each found once; `BadArgument` where parts do not go together."""

    def __init__(self, types: Mapping[str, pa.DataType], text: str) -> None:
        self._types, self._text = types, text
        self._columns: dict[str, str] = {}
        self._nodes: dict[int, str] = {}

    def of(self, node: Node) -> str:
        """What kind of value a node has."""
        if isinstance(node, Literal):
            return _kind_of_literal(node.value)
        if isinstance(node, Column):
            return self._columns.get(node.name) or self._of_column(node)
        if id(node) not in self._nodes:
            self._nodes[id(node)] = self._of_parts(node)
        return self._nodes[id(node)]

    def _of_column(self, node: Column) -> str:
        if node.name not in self._types:
            refuse(self._text, node.at, f"there is no column {node.name!r}.{nearest(node.name, self._types)}")
        kind = kind_of(self._types[node.name])
        if kind is None:
            refuse(
                self._text,
                node.at,
                f"column {node.name!r} is {self._types[node.name]}, which conditions cannot compare",
            )
        self._columns[node.name] = kind
        return kind

    def _of_function(self, node: Function) -> str:
        wanted = NUMBER if node.name in OF_NUMBERS else NULL
        for part in node.arguments:
            kind = self.of(part)
            if wanted == NULL:
                wanted = kind
            elif kind not in (wanted, NULL):
                refuse(self._text, part.at, f"this is a {kind} where {node.name}() takes a {wanted}")
        return wanted

    def _of_parts(self, node: Node) -> str:
        if isinstance(node, Function):
            return self._of_function(node)
        wanted = NUMBER if isinstance(node, Arithmetic) else BOOLEAN if isinstance(node, And | Or | Not) else None
        if isinstance(node, Within):
            self._check_within(node)
        kinds = []
        for part in parts_of(node)[: 0 if isinstance(node, Within) else None]:
            kinds.append(self.of(part))
            if wanted is not None and kinds[-1] not in (wanted, NULL):
                refuse(self._text, part.at, f"this is a {kinds[-1]} where a {wanted} is expected")
        if isinstance(node, Comparison):
            known = set(kinds) - {NULL}
            if known == {TIME, TEXT}:
                side = node.left if kinds[0] == TEXT else node.right
                if not isinstance(side, Literal) or micros_of(str(side.value)) is None:
                    wrong = "this is not a time such as '2024-01-31 12:00:00', and is compared with one"
                    refuse(self._text, side.at, wrong)
            elif len(known) > 1:
                refuse(self._text, node.at, f"a {kinds[0]} cannot be compared with a {kinds[1]}")
        return NUMBER if isinstance(node, Arithmetic) else BOOLEAN

    def _check_within(self, node: Within) -> None:
        for part in node.parts[:2]:
            if (kind := self.of(part)) not in (NUMBER, NULL):
                refuse(self._text, part.at, f"this is a {kind} where a coordinate is expected")
        shape, *radius = (part.value for part in node.parts[2:] if isinstance(part, Literal))
        if trouble := trouble_of(str(shape), *map(_as_number, radius), earth=node.earth):
            refuse(self._text, node.parts[2].at, trouble)


def _as_number(value: object) -> float:
    return float(value) if isinstance(value, int | Fraction) else math.nan


def _kind_of_literal(value: bool | int | Fraction | str | Instant | None) -> str:  # noqa: FBT001 - a value, no switch
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOLEAN
    return TIME if isinstance(value, Instant) else TEXT if isinstance(value, str) else NUMBER


def _literal(node: Literal) -> Values:
    value = node.value
    return Values.constant(_kind_of_literal(value), value.micros if isinstance(value, Instant) else value)


def evaluate(node: Node, columns: Mapping[str, Values]) -> Values:
    """The value of a node for every row."""
    if isinstance(node, Literal):
        return _literal(node)
    if isinstance(node, Column):
        return columns[node.name]
    if isinstance(node, And | Or):
        listed = _listed(node, columns) if len(node.parts) >= _MANY else None
        if listed is not None:
            return listed
        parts = _truths(node.parts, columns)
        first = next(parts)
        true, false = first.true, first.false
        for other in parts:
            if isinstance(node, And):
                true, false = true & other.true, false | other.false
            else:
                true, false = true | other.true, false & other.false
        return Values.truth(true, false)
    if isinstance(node, Function):
        return called(node.name, [evaluate(part, columns) for part in node.arguments])
    if isinstance(node, Within):
        return covered([evaluate(part, columns) for part in node.parts], node.earth)
    first = evaluate(parts_of(node)[0], columns)
    if isinstance(node, Not):
        return Values.truth(first.false, first.true)
    if isinstance(node, IsNull):
        return Values.truth(~first.valid, first.valid)
    second = evaluate(node.right, columns)
    if isinstance(node, Arithmetic):
        return calculate(node.operator, first, second)
    return compare(node.operator, *_as_times(first, second))


def _listed(node: And | Or, columns: Mapping[str, Values]) -> Values | None:
    """The same of ``x IN (...)`` with constants alone, and of ``x <> a AND x <> b``: looked up in a set."""
    name, first = "=" if isinstance(node, Or) else "<>", node.parts[0]
    constants = []
    for part in node.parts:
        if not (isinstance(first, Comparison) and isinstance(part, Comparison) and part.operator == name):
            return None
        same = part.left is first.left or (isinstance(part.left, Column) and part.left == first.left)
        if not (same and isinstance(part.right, Literal | Column)):
            return None
        constants.append(evaluate(part.right, columns))
    value = evaluate(parts_of(first)[0], columns)
    if value.kind not in {NUMBER, TEXT} or not value.data.ndim:
        return None
    if any(one.data.ndim or one.kind != value.kind or not one.valid for one in constants):
        return None
    known = {one.data.item() for one in constants}
    # As `compare` has it: fractions are exact beside decimals, and doubles beside all else.
    if not has_fractions(value.data):
        known = {nearest_double(one) if isinstance(one, Fraction) else one for one in known}
    elif any(isinstance(one, float) for one in known):
        return None
    equal = np.fromiter((one in known for one in value.data.tolist()), bool, len(value.data)) & value.valid
    other = value.valid & ~equal
    return Values.truth(equal, other) if isinstance(node, Or) else Values.truth(other, equal)


def _truths(parts: Sequence[Node], columns: Mapping[str, Values]) -> Iterator[Values]:
    """The truth of each part; what IN and BETWEEN compare with several values is evaluated once."""
    left, value = None, None
    for part in parts:
        if not isinstance(part, Comparison):
            yield evaluate(part, columns)
            continue
        if value is None or part.left is not left:
            left, value = part.left, evaluate(part.left, columns)
        yield compare(part.operator, *_as_times(value, evaluate(part.right, columns)))


def _as_times(left: Values, right: Values) -> tuple[Values, Values]:
    """The two sides, a text that is compared with times as a time."""
    if {left.kind, right.kind} != {TIME, TEXT}:
        return left, right
    left, right = (
        Values.constant(TIME, micros_of(str(side.data))) if side.kind == TEXT else side for side in (left, right)
    )
    return left, right
