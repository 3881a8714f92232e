"""Hypothesis strategies: standing queries over small streams, full of ties, nulls, and literals that rows hit.

Values and literals come from the same small pools. A `Case` knows its frames, its queries as a table, and what the
slow twin says; how a query set changes, and how rows are cut into pushes, are drawn for a case that is there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

import appulse as ap
from tests.helpers import naive, naive_queries, strategies
from tests.helpers.naive_queries import (
    And,
    Arithmetic,
    Between,
    Change,
    Compare,
    In,
    IsNull,
    Name,
    Node,
    Not,
    Or,
    Query,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hypothesis.strategies import DrawFn, SearchStrategy

    from tests.helpers.naive_queries import Window

BIG = 2**53
_NOON, _NIGHT = datetime(2024, 1, 31, 12), datetime(2024, 2, 1)  # noqa: DTZ001 - times without zone are UTC
_LATER = datetime(2024, 1, 31, 12, 0, 0, 1)  # noqa: DTZ001 - the same
_TEXTS = ("", "a", "b", "ab", "é", "\U0001f600", "it's", "x WITHIN 2 ROWS")

# Kinds of columns: their types, the values they hold, and what conditions compare them with.
TYPES = {
    "int64": pa.int64(),
    "double": pa.float64(),
    "text": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us"),
    "zoned": pa.timestamp("us", "UTC"),
}
POOLS: dict[str, tuple[Any, ...]] = {
    "int64": (0, 1, -1, 2, 5, BIG, BIG + 1, -BIG - 1, None),
    "double": (0.0, 0.5, 1.0, -1.0, 2.5, 0.1, -0.0, float(BIG), math.nan, math.inf, None),
    "text": (*_TEXTS, None),
    "boolean": (True, False, None),
    "timestamp": (_NOON, _LATER, _NIGHT, None),
    "zoned": (*(time.replace(tzinfo=UTC) for time in (_NOON, _LATER, _NIGHT)), None),
}
LITERALS: dict[str, tuple[Value, ...]] = {
    "number": tuple(map(Value, (0, 1, 2, -1, 5, 0.5, 2.5, 0.1, -0.5, 1e-3, BIG, BIG + 1, None))),
    "text": tuple(map(Value, (*_TEXTS, None))),
    "boolean": tuple(map(Value, (True, False, None))),
    # A date, a timestamp, or a text that is read as one.
    "time": (
        Value(_NOON),
        Value(_NIGHT, "DATE '2024-02-01'"),
        Value(_NOON, "'2024-01-31 12:00:00'"),
        Value(_LATER, "'2024-01-31 12:00:00.000001'"),
        Value(_NIGHT, "'2024-02-01 00:00:00'"),
        Value(None),
    ),
}
MEANS = {"int64": "number", "double": "number", "timestamp": "time", "zoned": "time"}
# Columns that may stand beside the value, and what they hold.
BESIDE = {
    "i": "int64",
    "j": "int64",
    "f": "double",
    "g": "double",
    "t": "text",
    "u": "text",
    "b": "boolean",
    "w": "timestamp",
    "z": "zoned",
    "odd name": "double",
    "within": "int64",
}
PROBABILITIES = (1.0, 0.5, 0.25, 0.75, 0.9, 0.1, 1 / 3, 1 / 8, 1e-6)
SECONDS, SIZES = (0, 1, 2, 3, 100), (1, 2, 3, 5, 100)

# A column that a condition may name, and its kind.
Column = tuple[Name, str]


@dataclass(frozen=True)
class Case:
    """One call of match_queries: tables, streams without frames, queries, a threshold and a window, if any."""

    tables: tuple[pa.Table, ...]
    streams: tuple[ap.Stream, ...]
    queries: tuple[Query, ...]
    columns: tuple[Column, ...]  # what conditions may name
    probability: float | None = None
    window: Window | None = None

    def __repr__(self) -> str:
        tables = [(table.schema.names, table.to_pylist()) for table in self.tables]
        queries = {query.name: query.text for query in self.queries}
        return f"Case({tables}, {self.streams}, {queries}, probability={self.probability}, window={self.window})"

    @property
    def settings(self) -> dict[str, Any]:
        """What else the call takes."""
        return {"probability": self.probability, "window": self.window}

    def framed(self, convert: Callable[[pa.Table], Any] = lambda table: table) -> list[ap.Stream]:
        """The streams with their frames, perhaps of another kind."""
        return [replace(s, frame=convert(t)) for s, t in zip(self.streams, self.tables, strict=True)]

    @property
    def query_table(self) -> pa.Table:
        """The queries as a static set."""
        return query_table(self.queries)

    def rows(self, cut: Sequence[Mapping[int, Sequence[int]]] | None = None) -> list[list[naive_queries.Row]]:
        """The usable rows of each stream, which a cut brings in pushes."""
        found = []
        for s, (table, stream) in enumerate(zip(self.tables, self.streams, strict=True)):
            pushes = None if cut is None else {i: k for k, push in enumerate(cut) for i in push.get(s, ())}
            name = naive.stream_names(self.streams)[s]
            found.append(naive_queries.rows_of(table.to_pylist(), stream, name, pushes))
        return found

    def frames(self, push: Mapping[int, Sequence[int]]) -> dict[str, pa.Table]:
        """The rows of a push, by stream."""
        names = naive.stream_names(self.streams)
        return {
            name: table.take(pa.array(push.get(s, []), pa.int64()))
            for s, (name, table) in enumerate(zip(names, self.tables, strict=True))
        }

    def expected(self) -> Sequence[naive_queries.Answer]:
        """What the slow twin says of the static set."""
        if len(self.streams) == 1:
            return naive_queries.match(self.rows()[0], self.queries, self.probability)
        return naive_queries.match_streams(self.rows(), self.queries, self.window, self.probability)

    def expected_pushes(self, changing: Changing, *, history: bool = True) -> Sequence[Sequence[naive_queries.Answer]]:
        """What the slow twin says of each push, and of a join's drain."""
        rows, changes = self.rows(changing.cut), changing.changes
        if len(self.streams) == 1:
            return naive_queries.match_pushes(rows[0], self.queries, changes, self.probability)
        lateness = [stream.lateness_micros for stream in self.streams]
        return naive_queries.match_window_pushes(
            rows, self.queries, changes, self.window, self.probability, lateness=lateness, history=history
        )


@dataclass(frozen=True)
class Changing:
    """Pushes: the numbers of the rows that each brings, by stream, and the changes of the query set that come first."""

    cut: tuple[Mapping[int, Sequence[int]], ...]
    changes: tuple[tuple[Change, ...], ...]

    def change_table(self, push: int) -> pa.Table:
        """The changes of a push as a frame."""
        table = query_table([change.query for change in self.changes[push]])
        return table.append_column("change", pa.array([change.change for change in self.changes[push]], pa.string()))


def query_table(queries: Sequence[Query]) -> pa.Table:
    """Queries as users hand them over; their names are all whole numbers, or all texts."""
    names = pa.array([query.name for query in queries]) if queries else pa.array([], pa.int64())
    return pa.table({"query": names, "condition": pa.array([query.text for query in queries], pa.string())})


# --- conditions -------------------------------------------------------------------------------------------------


def _meaning(kind: str) -> str:
    return MEANS.get(kind, kind)


@st.composite
def operands(draw: DrawFn, columns: Sequence[Column], meaning: str, *, literals: bool = True) -> Node:
    """A column of that meaning, a literal, or the sum, product or quotient of numbers."""
    known = [name for name, kind in columns if _meaning(kind) == meaning]
    choice = draw(st.integers(0, 5))
    if not known or (literals and choice <= 1):
        return draw(st.sampled_from(LITERALS[meaning]))
    name = replace(draw(st.sampled_from(known)), quote=draw(st.sampled_from(("", "", '"', "`"))))
    if meaning != "number" or choice != 5:
        return name
    other = draw(st.sampled_from((*known, *map(Value, (1, 2, 0, 0.5, -1)))))
    left, right = draw(st.permutations((name, other)))
    return Arithmetic(draw(st.sampled_from("+-*/")), left, right)


@st.composite
def comparisons(draw: DrawFn, columns: Sequence[Column], across: Sequence[Column] = ()) -> Node:
    """A comparison of any form; with ``across``, often of a column and one of those."""
    meaning = draw(st.sampled_from([_meaning(kind) for _, kind in columns]))
    # Two texts would compare as texts, also where a column of times is meant.
    first = draw(operands(columns, meaning, literals=meaning != "time"))
    rest: SearchStrategy[Node] = operands(columns, meaning)
    mixed = draw(st.booleans())
    if across and mixed:
        joined = [name for name, kind in across if _meaning(kind) == meaning]
        rest = st.sampled_from(joined) if joined else rest
    operator = draw(st.sampled_from(("=", "=", "==", "<>", "!=", "<", "<=", ">", ">=")))
    form = draw(st.sampled_from(("compare", "compare", "compare", "between", "between", "in", "null", "bare")))
    negated = draw(st.integers(0, 3)) == 0
    if form == "between":
        return Between(first, draw(rest), draw(rest), negated)
    if form == "in":
        return In(first, tuple(draw(st.lists(rest, min_size=1, max_size=3))), negated)
    if form == "null":
        return IsNull(first, negated)
    if form == "bare" and meaning == "boolean":
        return first
    return Compare(operator, first, draw(rest))


@st.composite
def conditions(draw: DrawFn, columns: Sequence[Column], *, depth: int = 2) -> Node:
    """Trees of comparisons, so many levels deep."""
    form = draw(st.sampled_from(("one", "one", "and", "or", "or", "not", "null"))) if depth else "one"
    inner = conditions(columns, depth=depth - 1)
    if form == "one":
        return draw(comparisons(columns))
    if form == "not":
        return Not(draw(inner))
    if form == "null":
        return IsNull(draw(inner), draw(st.booleans()))
    parts = tuple(draw(inner) for _ in range(draw(st.integers(2, 3))))
    return And(parts) if form == "and" else Or(parts)


def windows(*, easy: bool = False) -> SearchStrategy[Window]:
    """Windows that a WITHIN tail can tell; ``easy`` ones hold everything in small cases."""
    seconds, sizes = (SECONDS[-1:], SIZES[-1:]) if easy else (SECONDS, SIZES)
    return st.one_of(st.sampled_from(seconds).map(ap.TimeWindow), st.sampled_from(sizes).map(ap.CountWindow))


@st.composite
def _conditions_of(draw: DrawFn, columns: Sequence[Column]) -> Node:
    """A condition over the columns; over several streams mostly with a comparison across two of them."""
    streams = list(dict.fromkeys(name.stream for name, _ in columns))
    if len(streams) == 1:
        return draw(conditions(columns))
    first, second = draw(st.permutations(streams))[:2]
    one, other = ([column for column in columns if column[0].stream == s] for s in (first, second))
    across = draw(comparisons(one, other))
    form = draw(st.sampled_from(("one", "one", "and", "or", "rest")))
    if form == "one":
        return across
    rest = draw(conditions(columns, depth=1))
    return rest if form == "rest" else And((across, rest)) if form == "and" else Or((across, rest))


@st.composite
def queries(draw: DrawFn, columns: Sequence[Column], name: Any, window: SearchStrategy[Window | None]) -> Query:
    """A query of that name; ``window`` draws its own window, or None."""
    return Query(name, draw(_conditions_of(columns)), draw(window), lower=draw(st.booleans()))


# --- streams ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shape:
    """How the table of one stream looks."""

    model: str  # "int64", "double", "plane", "samples", "line"
    beside: tuple[str, ...]
    existence: bool
    partitioned: bool
    time: str

    @property
    def value(self) -> ap.Exact | ap.Samples:
        if self.model == "samples":
            return ap.Samples("s", weights="weights", names=("x", "y"))
        if self.model == "line":
            return ap.Samples("s")
        return ap.Exact("x", "y") if self.model == "plane" else ap.Exact("x")

    @property
    def dimensions(self) -> dict[str, str]:
        """The names of the value in conditions, and their kinds."""
        if self.model == "line":
            return {"s": "double"}
        kind = "int64" if self.model == "int64" else "double"
        return dict.fromkeys(("x", "y") if self.model in ("plane", "samples") else ("x",), kind)

    @property
    def kinds(self) -> dict[str, str]:
        """All that conditions may name."""
        return self.dimensions | {name: BESIDE[name] for name in self.beside}

    @property
    def schema(self) -> pa.Schema:
        number = pa.float64()
        fields = [("id", pa.int64()), ("ts", TYPES["timestamp"] if self.time == "timestamp" else pa.int64())]
        if self.model == "samples":
            fields += [("s", pa.list_(pa.list_(number))), ("weights", pa.list_(number))]
        elif self.model == "line":
            fields.append(("s", pa.list_(number)))
        else:
            fields += [(name, TYPES[kind]) for name, kind in self.dimensions.items()]
        fields += [(name, TYPES[BESIDE[name]]) for name in self.beside]
        return pa.schema([*fields, ("exists", number), ("p", pa.int64())])


def _numbers(kind: str) -> SearchStrategy[Any]:
    """Values that a stream's value may have: none is missing."""
    whole = [value for value in POOLS[kind] if value is not None and math.isfinite(value)]
    return st.sampled_from(whole)


@st.composite
def _row(draw: DrawFn, shape: _Shape) -> dict[str, Any]:
    second = draw(st.integers(0, 6))
    row: dict[str, Any] = {
        "id": draw(st.integers(0, 3)),
        "ts": second if shape.time == "int64" else _NOON.replace(second=second),
        "exists": draw(st.sampled_from((1.0, 0.5, 0.25, 0.75))),
        "p": draw(st.integers(0, 1)),
    }
    if shape.model in ("samples", "line"):
        n = draw(st.integers(1, 3))
        points = [[draw(_numbers("double")) for _ in shape.dimensions] for _ in range(n)]
        row["s"] = [point[0] for point in points] if shape.model == "line" else points
        row["weights"] = draw(strategies.sample_weights(n))
    else:
        row |= {name: draw(_numbers(kind)) for name, kind in shape.dimensions.items()}
    return row | {name: draw(st.sampled_from(POOLS[BESIDE[name]])) for name in shape.beside}


@st.composite
def _table(draw: DrawFn, shape: _Shape, most: int, bad: bool) -> pa.Table:
    """Rows of which no two have both one key and one time, so that windows that count know their order."""
    least = draw(st.sampled_from((most // 2, 1, 0)))
    rows = draw(st.lists(_row(shape), min_size=least, max_size=most, unique_by=lambda row: (row["id"], row["ts"])))
    spoiled: tuple[dict[str, Any], ...] = ({"id": None}, {"ts": None}, {"x": None, "s": None})
    for row in rows:
        if bad and draw(st.integers(0, 4)) == 0:
            way = draw(st.sampled_from(spoiled))
            row |= {name: value for name, value in way.items() if name in row}
    return pa.Table.from_pylist(rows, schema=shape.schema)


@st.composite
def _shapes(draw: DrawFn, uncertain: bool | None, partitioned: bool, time: str) -> _Shape:
    """A stream's shape; ``uncertain`` None: either."""
    uncertain = draw(st.booleans()) if uncertain is None else uncertain
    certain_models = ("int64", "double", "plane")
    sampled = uncertain and draw(st.integers(0, 3)) > 0
    return _Shape(
        model=draw(st.sampled_from(("samples", "samples", "line") if sampled else certain_models)),
        beside=tuple(draw(st.lists(st.sampled_from(sorted(BESIDE)), max_size=4, unique=True))),
        existence=uncertain and (not sampled or draw(st.booleans())),
        partitioned=partitioned,
        time=time,
    )


def _stream(shape: _Shape, name: str | None, lateness: float | None, order: str) -> ap.Stream:
    return ap.Stream(
        None,
        key="id",
        time="ts",
        value=shape.value,
        existence="exists" if shape.existence else None,
        partition_by="p" if shape.partitioned else None,
        lateness=lateness,
        order=order,
        name=name,
    )


@st.composite
def _named(draw: DrawFn, columns: Sequence[Column], window: SearchStrategy[Window | None], most: int) -> list[Query]:
    """Queries under names of their own: whole numbers, or texts."""
    names = draw(st.sampled_from(((3, 1, 2, 0, -1, 10**12), ("q", "", "alert é", "a", "b", "c"))))
    count = draw(st.sampled_from((1, 2, most, most, 0)))
    return [draw(queries(columns, name, window)) for name in names[:count]]


@st.composite
def selections(
    draw: DrawFn, *, uncertain: bool | None = None, most: int = 6, most_queries: int = 4, bad: bool = False
) -> Case:
    """Selection queries over one stream; ``bad`` rows are rejects."""
    shape = draw(_shapes(uncertain, partitioned=False, time=draw(st.sampled_from(("int64", "timestamp")))))
    columns = tuple((Name(name), kind) for name, kind in shape.kinds.items())
    certain = isinstance(shape.value, ap.Exact) and not shape.existence
    thresholds = (None, 0.5) if certain else PROBABILITIES
    return Case(
        tables=(draw(_table(shape, most, bad)),),
        streams=(_stream(shape, draw(st.sampled_from((None, "r"))), None, "time"),),
        queries=tuple(draw(_named(columns, st.none(), most_queries))),
        columns=columns,
        probability=draw(st.sampled_from(thresholds)),
    )


@st.composite
def joins(
    draw: DrawFn,
    *,
    arity: Sequence[int] = (2,),
    uncertain: bool | None = None,
    most: int = 5,
    most_queries: int = 3,
    bad: bool = False,
    lateness: bool = False,
    orders: Sequence[str] = ("time",),
) -> Case:
    """Window-join queries over as many streams as ``arity`` may say; some have no window but the default."""
    n = draw(st.sampled_from(arity))
    partitioned, time = draw(st.integers(0, 3)) == 0, draw(st.sampled_from(("int64", "timestamp")))
    order = draw(st.sampled_from(orders))
    shapes = [draw(_shapes(uncertain, partitioned, time)) for _ in range(n)]
    given = draw(st.sampled_from(((None,) * 4, ("r", "s", "t", "u"), ("odd stream", None, "or", "b"))))[:n]
    late = [draw(st.sampled_from((0.0, 1.0, 3.0))) if lateness else None for _ in shapes]
    streams = tuple(_stream(shape, name, by, order) for shape, name, by in zip(shapes, given, late, strict=True))
    names = naive.stream_names(streams)
    columns = tuple(
        (Name(column, name), kind)
        for name, shape in zip(names, shapes, strict=True)
        for column, kind in shape.kinds.items()
    )
    # Half of the cases are decided by conditions alone.
    easy = draw(st.booleans())
    default = draw(st.one_of(st.none(), windows(easy=easy)))
    certain = all(isinstance(shape.value, ap.Exact) and not shape.existence for shape in shapes)
    own: SearchStrategy[Window | None] = windows(easy=easy)
    own = own if default is None else st.one_of(own, st.none())
    thresholds = (None, 0.5) if certain else (1e-6,) if easy else (*PROBABILITIES, 1 / 16, 1 / 64)
    return Case(
        tables=tuple(draw(_table(shape, most, bad)) for shape in shapes),
        streams=streams,
        queries=tuple(draw(_named(columns, own, most_queries))),
        columns=columns,
        probability=draw(st.sampled_from(thresholds)),
        window=default,
    )


# --- arrival ----------------------------------------------------------------------------------------------------


@st.composite
def cuts(draw: DrawFn, case: Case) -> list[dict[int, list[int]]]:
    """All rows of a case, cut into pushes of row numbers by stream; none comes too late."""
    return draw(strategies.pushes(strategies.Case(case.tables, case.streams, 1, 0.0, 1.0, None)))


@st.composite
def changing(draw: DrawFn, case: Case) -> Changing:
    """Pushes that also bring queries: new ones, others in place of those there, and names to remove, known or not."""
    cut = draw(cuts(case))
    names = [query.name for query in case.queries]
    names += [7, 8] if not names or isinstance(names[0], int) else ["new", "newer"]
    joined = len(case.streams) > 1
    own: SearchStrategy[Any] = windows() if joined else st.none()
    changes = []
    for _ in cut:
        brought = []
        for name in draw(st.lists(st.sampled_from(names), max_size=2)):
            change = draw(st.sampled_from(("add", "add", "remove")))
            brought.append(Change(change, draw(queries(case.columns, name, own))))
        changes.append(tuple(brought))
    return Changing(tuple(cut), tuple(changes))


def anchored(case: Case) -> Case:
    """The case with two more queries, never removed, whose windows are the longest: all rows stay held for them."""
    first = case.columns[0][0]
    text = bool(case.queries) and isinstance(case.queries[0].name, str)
    anchors = [
        Query("anchor 1" if text else 101, IsNull(first, negated=True), ap.TimeWindow(max(SECONDS))),
        Query("anchor 2" if text else 102, IsNull(first, negated=True), ap.CountWindow(max(SIZES))),
    ]
    return replace(case, queries=(*case.queries, *anchors))
