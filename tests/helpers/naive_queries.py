"""The slow twin of continuous queries: every query against every row, or every choice of rows, in exact fractions.

Conditions are trees of its own, which know their SQL text and their truth: True, False, or None where it is unknown.
Whole numbers are exact, doubles are doubles and compare exactly; NaN, and what is divided by 0, is null. Written from
the specification (api.md, sections 1, 2 and 6); nothing here knows src/appulse/queries.
"""

from __future__ import annotations

import math
import operator
import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import appulse as ap
from tests.helpers import naive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    Window = ap.TimeWindow | ap.CountWindow
    # The values of each stream's columns, by name.
    World = Mapping[str, Mapping[str, Any]]

# --- conditions -------------------------------------------------------------------------------------------------

# How tightly things bind; what compares takes operands that bind at least as sums do.
_OR, _AND, _NOT, _COMPARE, _ADD, _MULTIPLY, _ATOM = range(1, 8)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WORDS = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "IS", "NULL", "TRUE", "FALSE"})


class Node:
    """A part of a condition."""

    @property
    def binding(self) -> int:
        return _ATOM

    @property
    def sql(self) -> str:
        raise NotImplementedError

    def of(self, world: World) -> Any:
        """Its value; None is null, or unknown."""
        raise NotImplementedError

    def within(self, least: int) -> str:
        """Its text as part of something that takes what binds so tightly."""
        return self.sql if self.binding >= least else f"({self.sql})"


@dataclass(frozen=True)
class Name(Node):
    """A column or dimension, of the only stream unless it says which."""

    column: str
    stream: str | None = None
    quote: str = ""

    @property
    def sql(self) -> str:
        stream = "" if self.stream is None else f"{_quoted(self.stream)}."
        return stream + _quoted(self.column, self.quote)

    def of(self, world: World) -> Any:
        values = next(iter(world.values())) if self.stream is None else world[self.stream]
        return plain(values[self.column])


@dataclass(frozen=True)
class Value(Node):
    """A constant. ``spelled`` is how it stands in the text, where that is not the usual way: times have three."""

    value: bool | float | str | datetime | None
    spelled: str | None = None

    @property
    def sql(self) -> str:
        if self.spelled is not None:
            return self.spelled
        if isinstance(self.value, datetime):
            return f"TIMESTAMP '{self.value}'"
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        if self.value is None or isinstance(self.value, bool):
            return "NULL" if self.value is None else str(self.value).upper()
        return repr(self.value)

    def of(self, world: World) -> Any:  # noqa: ARG002 - the same in all worlds
        return plain(self.value)


@dataclass(frozen=True)
class Arithmetic(Node):
    """``left operator right``: whole numbers exactly, but for their quotients, anything else in doubles."""

    operator: str
    left: Node
    right: Node

    @property
    def binding(self) -> int:
        return _ADD if self.operator in "+-" else _MULTIPLY

    @property
    def sql(self) -> str:
        return f"{self.left.within(self.binding)} {self.operator} {self.right.within(self.binding + 1)}"

    def of(self, world: World) -> Any:
        a, b = self.left.of(world), self.right.of(world)
        if a is None or b is None:
            return None
        if self.operator == "/":
            return None if b == 0 else plain(float(a) / float(b))
        return plain({"+": operator.add, "-": operator.sub, "*": operator.mul}[self.operator](a, b))


@dataclass(frozen=True)
class Compare(Node):
    """``left operator right``, of the eight that compare."""

    operator: str
    left: Node
    right: Node

    @property
    def binding(self) -> int:
        return _COMPARE

    @property
    def sql(self) -> str:
        return f"{self.left.within(_ADD)} {self.operator} {self.right.within(_ADD)}"

    def of(self, world: World) -> Any:
        a, b = self.left.of(world), self.right.of(world)
        return None if a is None or b is None else _COMPARISONS[self.operator](a, b)


@dataclass(frozen=True)
class Between(Node):
    """``value [NOT] BETWEEN low AND high``."""

    value: Node
    low: Node
    high: Node
    negated: bool = False

    @property
    def binding(self) -> int:
        return _COMPARE

    @property
    def sql(self) -> str:
        bounds = f"BETWEEN {self.low.within(_ADD)} AND {self.high.within(_ADD)}"
        return f"{self.value.within(_ADD)} {'NOT ' * self.negated}{bounds}"

    def of(self, world: World) -> Any:
        inside = And((Compare(">=", self.value, self.low), Compare("<=", self.value, self.high)))
        return (Not(inside) if self.negated else inside).of(world)


@dataclass(frozen=True)
class In(Node):
    """``value [NOT] IN (items)``."""

    value: Node
    items: tuple[Node, ...]
    negated: bool = False

    @property
    def binding(self) -> int:
        return _COMPARE

    @property
    def sql(self) -> str:
        items = ", ".join(item.within(_ADD) for item in self.items)
        return f"{self.value.within(_ADD)} {'NOT ' * self.negated}IN ({items})"

    def of(self, world: World) -> Any:
        among = Or(tuple(Compare("=", self.value, item) for item in self.items))
        return (Not(among) if self.negated else among).of(world)


@dataclass(frozen=True)
class IsNull(Node):
    """``value IS [NOT] NULL``, which is never unknown."""

    value: Node
    negated: bool = False

    @property
    def binding(self) -> int:
        return _COMPARE

    @property
    def sql(self) -> str:
        return f"{self.value.within(_ADD)} IS {'NOT ' * self.negated}NULL"

    def of(self, world: World) -> Any:
        return (self.value.of(world) is None) is not self.negated


@dataclass(frozen=True)
class Not(Node):
    """``NOT part``."""

    part: Node

    @property
    def binding(self) -> int:
        return _NOT

    @property
    def sql(self) -> str:
        return f"NOT {self.part.within(_NOT)}"

    def of(self, world: World) -> Any:
        truth = self.part.of(world)
        return None if truth is None else not truth


@dataclass(frozen=True)
class _Joined(Node):
    parts: tuple[Node, ...]
    word: ClassVar[str]
    decides: ClassVar[bool]  # the truth of a part that is the truth of all

    @property
    def sql(self) -> str:
        return f" {self.word} ".join(part.within(self.binding + 1) for part in self.parts)

    def of(self, world: World) -> Any:
        truths = [part.of(world) for part in self.parts]
        if self.decides in truths:
            return self.decides
        return None if None in truths else not self.decides


@dataclass(frozen=True)
class And(_Joined):
    """``part AND part ...``."""

    word = "AND"
    decides = False

    @property
    def binding(self) -> int:
        return _AND


@dataclass(frozen=True)
class Or(_Joined):
    """``part OR part ...``."""

    word = "OR"
    decides = True

    @property
    def binding(self) -> int:
        return _OR


def plain(value: Any) -> Any:
    """A value as conditions see it: NaN is null, times are in UTC without a zone."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def _quoted(name: str, quote: str = "") -> str:
    if not quote and re.fullmatch(r"[^\W\d]\w*", name) and name.upper() not in _WORDS:
        return name
    quote = quote or '"'
    return quote + name.replace(quote, 2 * quote) + quote


# --- rows and queries -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Row:
    """A usable row: what its columns and dimensions are in each of its samples, with the weights, at most 1 in all."""

    stream: str
    key: Any
    time: Any
    micros: int
    samples: tuple[tuple[Mapping[str, Any], Fraction], ...]
    group: tuple[Any, ...] = ()
    centre: tuple[float, ...] = ()
    number: int = 0
    push: int = 0
    by_arrival: bool = False

    @property
    def tick(self) -> tuple[int, int]:
        """Rows of one tick come at once: those of one time, by arrival those of one push and time."""
        return self.push if self.by_arrival else 0, self.micros

    @property
    def order(self) -> tuple[Any, ...]:
        """How windows that count number the rows of a stream."""
        return self.tick, naive.key_order(self.key), self.centre, self.number


@dataclass(frozen=True)
class Query:
    """A standing query: what it is called, its condition, and over several streams its own window, if it has one."""

    name: Any
    condition: Node
    window: Window | None = None
    lower: bool = False  # the tail in small letters

    @property
    def text(self) -> str:
        """The condition as users write it."""
        if self.window is None:
            return self.condition.sql
        counts = isinstance(self.window, ap.CountWindow)
        size = self.window.size if isinstance(self.window, ap.CountWindow) else self.window.length
        tail = f" WITHIN {size} {'ROWS' if counts else 'SECONDS'}"
        return self.condition.sql + (tail.lower() if self.lower else tail)


class Match(NamedTuple):
    """A row that satisfies a query with that probability."""

    query: Any
    key: Any
    time: Any
    probability: Fraction


class Joined(NamedTuple):
    """Rows, one of each stream, that satisfy a query together."""

    query: Any
    keys: tuple[Any, ...]
    times: tuple[Any, ...]
    probability: Fraction


Answer = Match | Joined


def rows_of(
    table: Sequence[Mapping[str, Any]],
    stream: ap.Stream,
    name: str | None = None,
    pushes: Mapping[int, int] | None = None,
) -> list[Row]:
    """The usable rows of a table; ``pushes`` tells which push brings which, if several do."""
    model = stream.value
    d = _dimension(table, model)
    names = naive.dimension_names(model, d)
    found = []
    for row in naive.rows_of([table], [stream], d)[0]:
        columns = table[row.number]
        # A certain value is what its columns hold; else a name means the dimension, not the column.
        certain = isinstance(model, ap.Exact)
        samples = tuple(
            (columns if certain else {**columns, **dict(zip(names, point, strict=True))}, weight)
            for point, weight in zip(row.value.points, row.value.weights, strict=True)
        )
        found.append(
            Row(
                stream=name or stream.name or "left",
                key=row.key,
                time=row.time,
                micros=row.micros,
                samples=samples,
                group=row.group,
                centre=row.centre,
                number=row.number,
                push=0 if pushes is None else pushes[row.number],
                by_arrival=stream.order == "arrival",
            )
        )
    return found


def _dimension(table: Sequence[Mapping[str, Any]], model: naive.Model) -> int:
    if not isinstance(model, ap.Samples):
        return len(model.columns)
    if model.names is not None:
        return len(model.names)
    points = [row[model.column] for row in table if row[model.column]]
    return len(points[0][0]) if points and isinstance(points[0][0], list) else 1


def in_force(queries: Iterable[Query]) -> list[Query]:
    """The query set: of queries of one name the last replaces the others."""
    return list({naive.plain(query.name): query for query in queries}.values())


# --- what matches -----------------------------------------------------------------------------------------------


def chance(condition: Node, rows: Sequence[Row]) -> Fraction:
    """The probability that the rows exist and satisfy the condition together: sample by sample of each."""
    total = Fraction(0)
    for choice in product(*(row.samples for row in rows)):
        world = {row.stream: values for row, (values, _) in zip(rows, choice, strict=True)}
        if condition.of(world) is True:
            total += math.prod((weight for _, weight in choice), start=Fraction(1))
    return total


def reported(found: Fraction, probability: float | None) -> bool:
    """Whether a chance reaches the threshold; without one, which is for certain rows, whether there is any."""
    return found > 0 and (probability is None or found >= naive.threshold_of(probability))


def match(rows: Sequence[Row], queries: Iterable[Query], probability: float | None = None) -> list[Match]:
    """Selection queries over the rows of one stream."""
    found = []
    for query, row in product(in_force(queries), rows):
        satisfied = chance(query.condition, [row])
        if reported(satisfied, probability):
            found.append(Match(query.name, row.key, row.time, satisfied))
    return found


def stand(rows: Sequence[Row], streams: Sequence[Sequence[Row]], window: Window) -> bool:
    """Whether rows, one of each stream, are ever in their windows together: then they are at the newest one's tick."""
    return all(_held(row, max(row.tick for row in rows), of, window) for row, of in zip(rows, streams, strict=True))


def _held(row: Row, now: tuple[int, int], stream: Sequence[Row], window: Window) -> bool:
    """Whether a row that has come is in its window at a tick."""
    if isinstance(window, ap.TimeWindow):
        length = (window.per_stream or {}).get(row.stream, window.length)
        return now[1] - row.micros <= naive.micros_of_duration(length)
    newer = [other for other in stream if other.group == row.group and other.tick <= now and other.order > row.order]
    return len(newer) < window.size


def match_windows(
    left: Sequence[Row],
    right: Sequence[Row],
    queries: Iterable[Query],
    default_window: Window | None = None,
    probability: float | None = None,
) -> list[Joined]:
    """Window-join queries over two streams."""
    return match_streams([left, right], queries, default_window, probability)


def match_streams(
    streams: Sequence[Sequence[Row]],
    queries: Iterable[Query],
    default_window: Window | None = None,
    probability: float | None = None,
) -> list[Joined]:
    """Window-join queries over any number of streams, by nested loops."""
    return [answer for answer, _ in _answers(streams, in_force(queries), default_window, probability)]


def _answers(
    streams: Sequence[Sequence[Row]], queries: Iterable[Query], default: Window | None, probability: float | None
) -> Iterator[tuple[Joined, tuple[Row, ...]]]:
    for query in queries:
        window = query.window or default
        if window is None:  # a reject
            continue
        for rows in product(*streams):
            if len({row.group for row in rows}) > 1 or not stand(rows, streams, window):
                continue
            satisfied = chance(query.condition, rows)
            if reported(satisfied, probability):
                keys, times = tuple(row.key for row in rows), tuple(row.time for row in rows)
                yield Joined(query.name, keys, times, satisfied), rows


def unwindowed(queries: Iterable[Query], default_window: Window | None = None) -> list[Any]:
    """The names of join queries that no window is known for: rejects."""
    return [query.name for query in in_force(queries) if query.window is None and default_window is None]


# --- query sets that change -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """A query that is added, under a new name or in place of another, or one that is removed by its name."""

    change: str  # "add" or "remove"
    query: Query


def versions(queries: Iterable[Query], changes: Sequence[Sequence[Change]]) -> list[dict[Any, tuple[Query, int]]]:
    """The query set of each push, after its changes, by name: each query with the push that added it."""
    standing = {naive.plain(query.name): (query, 0) for query in queries}
    found = []
    for push, brought in enumerate(changes):
        for change in brought:
            if change.change == "add":
                standing[naive.plain(change.query.name)] = change.query, push
            else:
                standing.pop(naive.plain(change.query.name), None)
        found.append(dict(standing))
    return found


def match_pushes(
    rows: Sequence[Row],
    queries: Iterable[Query],
    changes: Sequence[Sequence[Change]],
    probability: float | None = None,
) -> list[list[Match]]:
    """Selection queries while the set changes: the answers of each push, by the queries it has after its changes."""
    return [
        match([row for row in rows if row.push == push], [query for query, _ in standing.values()], probability)
        for push, standing in enumerate(versions(queries, changes))
    ]


def match_window_pushes(
    streams: Sequence[Sequence[Row]],
    queries: Sequence[Query],
    changes: Sequence[Sequence[Change]],
    default_window: Window | None = None,
    probability: float | None = None,
    *,
    lateness: Sequence[int] = (),
    history: bool = True,
) -> list[list[Joined]]:
    """Window-join queries while the set changes: the answers of each push, and of the drain after the last.

    Rows are an answer of the push that brings the last of them, under windows that count of the one that completes
    its tick, by the queries of that push. With ``history`` a new query also joins with rows of earlier pushes, as far
    as its window reaches; without, all rows have to come with it or later. ``lateness`` is in microseconds, by stream.
    """
    sets = versions(queries, changes)
    sets.append(sets[-1] if sets else {})
    found: list[list[Joined]] = [[] for _ in sets]
    for push, standing in enumerate(sets):
        for query, since in standing.values():
            window = query.window or default_window
            for answer, rows in _answers(streams, [query], default_window, probability):
                assert window is not None
                told = _told(rows, streams, len(changes), window, lateness)
                if told == push and (history or all(row.push >= since for row in rows)):
                    found[push].append(answer)
    return found


def _told(
    rows: Sequence[Row], streams: Sequence[Sequence[Row]], pushes: int, window: Window, lateness: Sequence[int]
) -> int:
    """The push that answers; that after the last is the drain."""
    if isinstance(window, ap.TimeWindow) or rows[0].by_arrival:
        return max(row.push for row in rows)
    last = max(row.micros for row in rows)
    for push in range(pushes):
        newest = [max((row.micros for row in stream if row.push <= push), default=None) for stream in streams]
        late = lateness or [0] * len(streams)
        if all(most is not None and most - by > last for most, by in zip(newest, late, strict=True)):
            return push
    return pushes


# --- aggregates -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Aggregate:
    """An aggregate over what matches in a query's window at a tick: whether there is one, and what, given that."""

    query: Any
    group: tuple[Any, ...]
    micros: int
    exists: Fraction
    distribution: Mapping[Fraction, Fraction]

    @property
    def value(self) -> Fraction | None:
        """Its mean over the worlds in which there is one."""
        if self.exists == 0:
            return None
        return sum((value * weight for value, weight in self.distribution.items()), Fraction(0))


def aggregates(
    streams: Sequence[Sequence[Row]],
    query: Query,
    aggregate: str,
    column: Name | None = None,
    default_window: Window | None = None,
) -> list[Aggregate]:
    """Count, sum or mean over the rows (or choices of rows, one of each stream) that match, at each tick of a group.

    In every possible world: each row in the query's window is one of its samples, or not there. Nulls do not count in
    sums and means. Count and sum of nothing are 0; there is a mean where anything matches. The window holds rows of
    the streams, whether they match or not; no threshold applies.
    """
    window = query.window or default_window
    assert window is not None
    found = []
    for group, now in sorted({(row.group, row.tick) for stream in streams for row in stream}):
        held = [
            [row for row in stream if row.group == group and row.tick <= now and _held(row, now, stream, window)]
            for stream in streams
        ]
        weights: dict[Fraction | None, Fraction] = defaultdict(Fraction)
        for weight, world in _worlds(held):
            weights[_aggregate(list(_matching(world, query, column)), aggregate)] += weight
        exists = sum((weight for value, weight in weights.items() if value is not None), Fraction(0))
        shares = {value: w / exists for value, w in weights.items() if value is not None and exists}
        found.append(Aggregate(query.name, group, now[1], exists, shares))
    return found


def _worlds(held: Sequence[Sequence[Row]]) -> Iterator[tuple[Fraction, list[list[tuple[Row, Mapping[str, Any]]]]]]:
    """Every choice of a sample, or of absence, for all rows: its probability, and the rows that exist, by stream."""
    rows = [(s, row) for s, stream in enumerate(held) for row in stream]
    options = [[*row.samples, (None, 1 - sum((w for _, w in row.samples), Fraction(0)))] for _, row in rows]
    for choice in product(*options):
        weight = math.prod((w for _, w in choice), start=Fraction(1))
        existing: list[list[tuple[Row, Mapping[str, Any]]]] = [[] for _ in held]
        for (s, row), (values, _) in zip(rows, choice, strict=True):
            if values is not None:
                existing[s].append((row, values))
        if weight:
            yield weight, existing


def _matching(
    world: Sequence[Sequence[tuple[Row, Mapping[str, Any]]]], query: Query, column: Name | None
) -> Iterator[Any]:
    """What the column is, or 1, in each choice of rows that satisfies the query."""
    for choice in product(*world):
        values = {row.stream: values for row, values in choice}
        if query.condition.of(values) is True:
            yield 1 if column is None else column.of(values)


def _aggregate(matching: Sequence[Any], aggregate: str) -> Fraction | None:
    if aggregate == "count":
        return Fraction(len(matching))
    known = [Fraction(value) for value in matching if value is not None]
    if aggregate == "sum":
        return sum(known, Fraction(0))
    if aggregate == "median":
        return next((x for x in sorted(known) if 2 * sum(v <= x for v in known) >= len(known)), None)
    if aggregate == "std":
        middle = sum(known, Fraction(0)) / max(1, len(known))
        squares = sum((v - middle) ** 2 for v in known)
        return Fraction(math.sqrt(squares / (len(known) - 1))) if len(known) > 1 else None
    assert aggregate == "mean"
    return sum(known, Fraction(0)) / len(known) if known else None


# --- comparing --------------------------------------------------------------------------------------------------


def assert_same(found: pa.Table, expected: Sequence[Answer], where: str = "") -> None:
    """The same answers, as often, with the same probabilities.

    ``found`` has the query, a key and a time for each stream, and the probability, in this order, perhaps ``values``.
    """
    names = [name for name in found.column_names if name != "values"]
    groups: dict[Any, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for row in found.select(names).to_pylist():
        *identity, probability = row.values()
        groups[_identity(identity)][0].append(probability)
    for answer in expected:
        groups[_identity(flat(answer)[:-1])][1].append(float(answer.probability))
    for identity, (ours, theirs) in groups.items():
        assert len(ours) == len(theirs), f"{where}{identity}: {ours}, expected {theirs}"
        # Probabilities that belong to equal keys and times have no order of their own.
        for p, q in zip(sorted(ours), sorted(theirs), strict=True):
            assert abs(p - q) <= 2e-9, f"{where}{identity}: {ours}, expected {theirs}"


def _identity(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(naive.plain(plain(value)) for value in values)


def flat(answer: Answer) -> tuple[Any, ...]:
    """An answer as a row of the result: query, key, time, ..., probability."""
    if isinstance(answer, Match):
        return tuple(answer)
    sides = (value for side in zip(answer.keys, answer.times, strict=True) for value in side)
    return (answer.query, *sides, answer.probability)
