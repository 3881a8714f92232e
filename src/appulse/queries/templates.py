"""Conditions by their shape: texts that differ in literals only are read once, and become boxes together.

A box bounds some columns by keys in order (`appulse.queries.keys`). What a condition asks beyond that, such as
comparisons of columns with each other, is left to the condition itself, over rows that lie in its boxes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.errors import BadArgument
from appulse.kernels import literals as kernels
from appulse.kernels.strings import gather_runs
from appulse.model.strings import Bytes
from appulse.queries import keys
from appulse.queries.columns import BOOLEAN, NULL, NUMBER, TEXT, TIME, Values, doubles, kind_of, objects
from appulse.queries.condition import Condition, evaluate, micros_of, parse
from appulse.queries.index import LEAST, MOST
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
    from collections.abc import Callable, Mapping, Sequence

    from appulse.kernels.arrays import ByteArray, Flags, Floats, Ints
    from appulse.queries.keys import Range
    from appulse.queries.places import Place

#: Boxes a condition may have: as it is, and at all. In between it has one, around all of them.
MOST_BOXES, MOST_COUNTED = 1000, 100_000
_ROUNDING = 2.0**-50  # more than sums and differences of doubles are rounded by
_BEYOND = 10**15  # so many are not told apart from more
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_PARAMETER = "\0?"  # no column of a user's has such a name

Box = dict["Column", "Range"]


@dataclass(frozen=True)
class Texts:
    """Conditions as texts, their shapes, and where their literals are; those that are not ``plain`` have none."""

    texts: pa.Array
    shapes: pa.Array
    plain: Flags
    first: Ints
    kinds: ByteArray
    begins: Ints
    ends: Ints
    values: Floats

    @staticmethod
    def of(texts: pa.Array) -> Texts:
        """Take the literals out of texts; none is null."""
        texts = texts.cast(pa.large_string())
        offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
        data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
        room = int(offsets[-1] - offsets[0]) + 1
        shape, shape_offsets = np.empty(room, np.uint8), np.empty(len(texts) + 1, np.int64)
        first, plain = np.empty(len(texts) + 1, np.int64), np.empty(len(texts), bool)
        kinds, values = np.empty(room, np.uint8), np.empty(room, np.float64)
        begins, ends = np.empty((2, room), np.int64)
        kernels.shapes(data, offsets, shape, shape_offsets, kernels.Literals(first, kinds, begins, ends, values), plain)
        n = int(first[-1])
        _read_long(data, np.repeat(offsets[:-1], np.diff(first)), begins[:n], ends[:n], values[:n], first, plain)
        shapes = pa.Array.from_buffers(
            pa.large_binary(), len(texts), [None, pa.py_buffer(shape_offsets), pa.py_buffer(shape)]
        )
        return Texts(
            texts, shapes, plain, first, kinds[:n].copy(), begins[:n].copy(), ends[:n].copy(), values[:n].copy()
        )

    def literals(self, i: int) -> list[tuple[int, int, int, float]]:
        """Kind, begin, end and value of each literal of a text."""
        at = slice(int(self.first[i]), int(self.first[i + 1]))
        return list(
            zip(
                self.kinds[at].tolist(),
                self.begins[at].tolist(),
                self.ends[at].tolist(),
                self.values[at].tolist(),
                strict=True,
            )
        )

    def words(self, rows: Ints, at: Ints) -> list[str]:
        """What the quotes of text literals enclose: of the texts at ``rows`` those that stand at ``at``."""
        starts = np.frombuffer(self.texts.buffers()[1], np.int64)[self.texts.offset :][rows]
        data = np.frombuffer(self.texts.buffers()[2] or b"", np.uint8)
        begins, sizes = starts + self.begins[at] + 1, self.ends[at] - self.begins[at] - 2
        found = Bytes(*gather_runs(begins, sizes, 0, data, np.arange(len(rows))))
        return [word.replace(b"''", b"'").decode() for word in found.to_arrow().to_pylist()]


def _read_long(
    data: ByteArray, starts: Ints, begins: Ints, ends: Ints, values: Floats, first: Ints, plain: Flags
) -> None:
    """Numbers of many digits; texts are not plain if one of them turns out to be whole."""
    long = np.flatnonzero(np.isnan(values))
    if not len(long):
        return
    found = Bytes(*gather_runs(starts[long] + begins[long], ends[long] - begins[long], 0, data, np.arange(len(long))))
    numbers = np.asarray(found.to_arrow().cast(pa.large_string()).cast(pa.float64()))
    values[long] = numbers
    plain[np.searchsorted(first, long[numbers == np.floor(numbers)], side="right") - 1] = False


@dataclass(frozen=True)
class Parameter:
    """A literal that was taken out: its index, its kind, and whether its sign was taken out too."""

    number: int
    kind: str
    whole: bool
    negative: bool


@dataclass(frozen=True)
class Template:
    """A condition whose literals are parameters: in its tree they are columns whose names no stream has."""

    tree: Node
    parameters: tuple[Parameter, ...]
    boxes: int  # how many a condition of this shape has
    region: tuple[Node, ...] | None = None  # WKT, and perhaps a distance, of the region that rows lie in as well

    def regions(self, given: Sequence[Values], n: int) -> tuple[list[str], list[float | None]]:
        """WKT and distances of ``n`` conditions."""
        named = {f"{_PARAMETER}{i}": values for i, values in enumerate(given)}
        found = [evaluate(node, named).data for node in self.region or ()]
        text, *radius = ([one.item()] * n if one.ndim == 0 else one.tolist() for one in found)
        return text, [float(one) for one in radius[0]] if radius else [None] * n

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns it reads, each once."""
        found: dict[tuple[str | None, str], Column] = {}
        for column in columns_of(self.tree):
            if not column.name.startswith(_PARAMETER):
                found.setdefault((column.stream, column.name), column)
        return tuple(found.values())

    def given(self, texts: Texts, rows: Ints) -> list[Values]:
        """The parameters of the texts at ``rows``, one value a text; not valid where a text is no time."""
        n, valid = len(rows), np.ones(len(rows), bool)
        at = np.array([parameter.number for parameter in self.parameters], np.int64)[:, None] + texts.first[rows]
        numbers, quoted = texts.values[at], [i for i, one in enumerate(self.parameters) if one.kind != NUMBER]
        words = texts.words(np.tile(rows, len(quoted)), at[quoted].ravel()) if quoted else []
        place = {i: k * n for k, i in enumerate(quoted)}
        out = []
        for i, parameter in enumerate(self.parameters):
            if parameter.kind == NUMBER:
                values = -numbers[i] if parameter.negative else numbers[i]
                out.append(Values(NUMBER, values.astype(np.int64) if parameter.whole else values, valid))
                continue
            mine = words[place[i] : place[i] + n]
            if parameter.kind == TEXT:
                out.append(Values(TEXT, objects(mine), valid))
            else:
                times = [micros_of(word) for word in mine]
                known = np.array([time is not None for time in times], bool)
                out.append(Values(TIME, np.array([time or 0 for time in times], np.int64), known))
        return out

    def holds(self, columns: Mapping[str, Values], given: Sequence[Values]) -> Flags:
        """Where the condition is true: row by row, each with the parameters of its own query."""
        named = {f"{_PARAMETER}{i}": values for i, values in enumerate(given)}
        return evaluate(self.tree, {**columns, **named}).true


def template(
    text: str,
    spans: Sequence[tuple[int, int, int, float]],
    types: Mapping[str, pa.DataType],
    read: Callable[[str], Condition] = parse,
    place: Place | None = None,
) -> Template | None:
    """The template of a text whose literals are at ``spans``; None if they are not those that the parser finds.

    Raises `BadArgument` with position and reason if the text is no condition over columns of these types. A region of
    ``place`` that rows have to lie in is apart from the tree.
    """
    condition = read(text)
    condition.check(types)
    boxes = _counted(condition)
    taken = _Taken(text, spans, types)
    tree = taken.of(condition.tree)
    if len(taken.parameters) != len(spans) or not taken.fit:
        return None
    tree, region = _lifted(tree, place)
    return Template(tree, tuple(taken.parameters[i] for i in range(len(spans))), boxes, region)


def alone(condition: Condition, place: Place | None = None) -> Template:
    """A template of one condition, with all its literals in place; `BadArgument` if it has too many boxes."""
    tree, region = _lifted(condition.tree, place)
    return Template(tree, (), _counted(condition), region)


def _lifted(tree: Node, place: Place | None) -> tuple[Node, tuple[Node, ...] | None]:
    """A condition without the one region of ``place`` that it asks for beside other things, and that."""
    if place is None:
        return tree, None
    parts = tree.parts if isinstance(tree, And) else (tree,)
    own = Column(place.x), Column(place.y)
    regions = [part for part in parts if isinstance(part, Within) and part.parts[:2] == own]
    if len(regions) != 1:
        return tree, None
    rest = tuple(part for part in parts if part is not regions[0])
    left = And(rest) if len(rest) > 1 else rest[0] if rest else Literal(value=True)
    return left, regions[0].parts[2:]


def _counted(condition: Condition) -> int:
    boxes = _count(condition.tree)
    if boxes > MOST_COUNTED:
        listed = str(boxes) if boxes < _BEYOND else f"{_BEYOND} and more"
        raise BadArgument(
            f"The condition {condition.text[:60]!r}... has {listed} boxes, and {MOST_COUNTED} are the most. "
            "Split it into several queries."
        )
    return boxes


def together(made: Template) -> list[Comparison]:
    """The comparisons that are true of every row that satisfies a condition: parts of its outermost AND."""
    waiting, found = [made.tree], []
    while waiting:
        node = waiting.pop()
        if isinstance(node, And):
            waiting.extend(node.parts)
        elif isinstance(node, Comparison):
            found.append(node)
    return found


class _Taken:
    """The tree of a condition with its literals taken out."""

    def __init__(
        self, text: str, spans: Sequence[tuple[int, int, int, float]], types: Mapping[str, pa.DataType]
    ) -> None:
        self._spans, self._begins, self._types = spans, [begin for _, begin, _, _ in spans], types
        # Positions of the parser are in characters, those of the kernel in bytes.
        self._text = text.encode()
        self._bytes = None if text.isascii() else np.cumsum([0] + [len(c.encode()) for c in text])
        self._fractions = any(kind == kernels.FRACTION for kind, *_ in spans)
        self.parameters: dict[int, Parameter] = {}
        self._nodes: dict[int, Node] = {}  # by identity: IN and BETWEEN compare one node with several
        self._taken: dict[int, tuple[Column, bool]] = {}
        self.fit = True

    def of(self, node: Node, *, beside: str | None = None) -> Node:
        """The node, its literals as columns; ``beside`` is the kind of what it is compared with."""
        if isinstance(node, Literal):
            return self._literal(node, beside)
        if id(node) not in self._nodes:
            self._nodes[id(node)] = self._of(node)
        return self._nodes[id(node)]

    def _of(self, node: Node) -> Node:
        if isinstance(node, Comparison):
            left, right = (_kind(side, self._types) for side in (node.left, node.right))
            return with_parts(node, [self.of(node.left, beside=right), self.of(node.right, beside=left)])
        if isinstance(node, Arithmetic):
            # Fractions that meet each other are exact; as parameters they would be doubles.
            self.fit &= not self._fractions or _reads(node.left) or _reads(node.right)
        if isinstance(node, Function):  # a constant among its arguments may meet others, which are exact
            self.fit &= not any(isinstance(part, Literal) for part in node.arguments)
        if isinstance(node, Column) and self._fractions:  # and so they are beside decimals
            kind = self._types.get(node.name)
            self.fit &= kind is None or not (pa.types.is_decimal(kind) or pa.types.is_uint64(kind))
        return with_parts(node, [self.of(part) for part in parts_of(node)])

    def _literal(self, node: Literal, beside: str | None) -> Node:
        value = node.value
        if value is None or isinstance(value, bool):
            return node
        as_time = isinstance(value, Instant) or beside == TIME
        if node.at in self._taken:  # BETWEEN compares what stands once with two bounds
            again, was_time = self._taken[node.at]
            self.fit &= as_time == was_time
            return again
        begin = node.at if self._bytes is None else int(self._bytes[node.at])
        number = bisect_left(self._begins, begin)
        if number == len(self._spans) or number in self.parameters:
            self.fit = False
            return node
        kind, _, _, own = self._spans[number]
        if isinstance(value, str | Instant):
            self.fit &= kind == kernels.TEXT
            parameter = Parameter(number, TIME if as_time else TEXT, whole=False, negative=False)
        else:
            # Of nought the sign cannot be seen, and others of its shape have one.
            negative = self._text[begin : self._begins[number]].count(b"-") % 2 == 1
            self.fit &= kind != kernels.TEXT and float(value) == (-own if negative else own)
            parameter = Parameter(number, NUMBER, whole=kind == kernels.WHOLE, negative=negative)
        self.parameters[number] = parameter
        taken = Column(f"{_PARAMETER}{number}", None, node.at)
        self._taken[node.at] = taken, as_time
        return taken


# --- boxes ------------------------------------------------------------------------------------------------------


class Boxes:
    """The boxes of conditions of one shape, for ``n`` conditions at once; ``exact`` tells whose boxes say it all."""

    def __init__(
        self,
        made: Template,
        given: Sequence[Values],
        n: int,
        types: Mapping[str, pa.DataType],
        known: frozenset[Comparison] = frozenset(),
        offers: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """``known`` are comparisons that are true of all rows; ``offers`` says whether an axis may be used."""
        self._given, self._n, self._types, self._known, self._offers = given, n, types, known, offers
        self.exact = np.ones(n, bool)
        self.boxes = self._of(made.tree, negated=False)

    def _of(self, node: Node, *, negated: bool) -> list[Box]:
        if isinstance(node, Not):
            return self._of(node.part, negated=not negated)
        if isinstance(node, And | Or):
            parts = self._parts(node.parts, negated=negated)
            if isinstance(node, And) == negated:
                return self._few([box for part in parts for box in part])
            # Those of one box first: however many there are, they stay one.
            boxes: list[Box] = [{}]
            for part in sorted(_sieved(parts), key=lambda part: len(part) > 1):
                if len(boxes) * len(part) > MOST_BOXES:
                    boxes, part = self._hull(boxes), self._hull(part)  # noqa: PLW2901 - a smaller one of the same
                boxes = [_both(a, b) for a in boxes for b in part]
            return boxes
        if isinstance(node, Literal):
            return [{}] if node.value is not None and node.value != negated else []
        if isinstance(node, IsNull):
            return self._null(node, negated=negated)
        if isinstance(node, Comparison):
            return self._parts([node], negated=negated)[0]
        if isinstance(node, Column):
            return [{_plain(node): keys.constant(0 if negated else 1, self._n)}]
        return self._unknown()

    def _unknown(self) -> list[Box]:
        self.exact[:] = False
        return [{}]

    def _null(self, node: IsNull, *, negated: bool) -> list[Box]:
        if not (isinstance(node.value, Column) and self._is_axis(node.value)):
            return self._unknown()
        return [{_plain(node.value): keys.any_value(self._n) if negated else keys.no_value(self._n)}]

    def _parts(self, nodes: Sequence[Node], *, negated: bool) -> list[list[Box]]:
        """The boxes of each part of an AND or OR: comparisons of a column with many constants, all at once."""
        parts: list[list[Box]] = [[] for _ in nodes]
        similar: dict[tuple[Column, str, str, np.dtype[Any]], list[tuple[int, Values]]] = {}
        for i, node in enumerate(nodes):
            if isinstance(node, Comparison):
                found = self._comparison(node, _OPPOSITE[node.operator] if negated else node.operator)
                if isinstance(found, list):
                    parts[i] = found
                else:
                    column, name, value = found
                    similar.setdefault((column, name, value.kind, value.data.dtype), []).append((i, value))
            else:
                parts[i] = self._of(node, negated=negated)
        for (column, name, *_), members in similar.items():
            values = [value for _, value in members]
            for k, boxes in enumerate(self._ranges(column, name, Values.concat(values), len(values))):
                parts[members[k][0]] = boxes
        return parts

    def _ranges(self, column: Column, name: str, value: Values, count: int) -> list[list[Box]]:
        """The boxes of so many comparisons of one column; ``value`` has what they compare with, one after the other."""
        ranges, sure = keys.ranges(self._types[column.name], name, value)
        if ranges is None:
            return [self._unknown() for _ in range(count)]
        self.exact &= sure.reshape(count, -1).all(axis=0)
        apart = [(low.reshape(count, -1), high.reshape(count, -1)) for low, high in ranges]
        return [[{column: (low[k], high[k])} for low, high in apart] for k in range(count)]

    def _comparison(self, node: Comparison, name: str) -> list[Box] | tuple[Column, str, Values]:
        """The boxes of a comparison; or the column, operator and constant of one that bounds a column."""
        left, right = node.left, node.right
        if isinstance(left, Column) and isinstance(right, Column):
            if self._known and node in self._known:
                return [{}] if name == node.operator else []
            if (pair := self._pair(left, right)) is not None:
                axis, turned = pair
                low, high = keys.SIGNS[_MIRRORED[name] if turned else name]
                if low <= high:
                    return [{axis: (np.full(self._n, low), np.full(self._n, high))}]
                return [{axis: keys.constant(sign, self._n)} for sign in (-1, 1)]
        if not (isinstance(left, Column) and self._is_axis(left)):
            left, right, name = right, left, _MIRRORED[name]
        if not (isinstance(left, Column) and self._is_axis(left)):
            return self._around(left, name, right) or self._around(right, _MIRRORED[name], left) or self._unknown()
        value = self._value(right, kind_of(self._types[left.name]))
        if value is None:
            return self._unknown()
        return [] if value.kind == NULL else (_plain(left), name, value)

    def _around(self, left: Node, name: str, right: Node) -> list[Box]:
        """The box of ``abs(column - a) < b``, a little larger than it; none of what is something else."""
        inner = left.arguments[0] if isinstance(left, Function) and left.name == "abs" else None
        if not (name in {"<", "<="} and isinstance(inner, Arithmetic) and inner.operator == "-"):
            return []
        column, other = inner.left, inner.right
        if not (isinstance(column, Column) and self._is_axis(column)):
            column, other = other, column
        if not (isinstance(column, Column) and self._is_axis(column)):
            return []
        constants = [self._value(side, NUMBER) for side in (other, right)]
        middle, reach = (np.nan if one is None or one.kind != NUMBER else doubles(one.data) for one in constants)
        room = reach + _ROUNDING * (np.abs(middle) + np.abs(reach))
        if not np.isfinite(np.abs(middle) + np.abs(room)).all():
            return []
        self.exact[:] = False
        # Python's own numbers: these may lie beyond all that a column of whole numbers holds.
        ends = ((">=", objects((middle - room).tolist())), ("<=", objects((middle + room).tolist())))
        valid, column = np.ones(self._n, bool), _plain(column)
        (above,), (below,) = (self._ranges(column, sign, Values(NUMBER, end, valid), 1)[0] for sign, end in ends)
        return [_both(above, below)]

    def _pair(self, left: Node, right: Node) -> tuple[Column, bool] | None:
        """The axis of two columns' order, and whether it has them the other way round."""
        if not (isinstance(left, Column) and isinstance(right, Column)):
            return None
        if not (left.name in self._types and right.name in self._types) or left.name == right.name:
            return None
        if not keys.are_ordered(self._types[left.name], self._types[right.name]):
            return None
        first, second = sorted((left.name, right.name))
        name = keys.order_axis(first, second)
        return (Column(name), left.name != first) if self._offers(name) else None

    def _value(self, node: Node, beside: str | None) -> Values | None:
        """What a column is compared with: one value for each condition, or None where it depends on rows."""
        if isinstance(node, Column) and node.name.startswith(_PARAMETER):
            return self._given[int(node.name.removeprefix(_PARAMETER))]
        if not isinstance(node, Literal):
            return None
        value = node.value
        if value is None:
            return Values.constant(NULL, None)
        if isinstance(value, str) and beside == TIME:  # it was checked to be one
            kind, data = TIME, np.full(self._n, micros_of(value))
        elif isinstance(value, Instant):
            kind, data = TIME, np.full(self._n, value.micros)
        elif isinstance(value, bool):
            kind, data = BOOLEAN, np.full(self._n, value)
        else:
            kind, data = TEXT if isinstance(value, str) else NUMBER, objects([value] * self._n)
        return Values(kind, data, np.ones(self._n, bool))

    def _is_axis(self, column: Column) -> bool:
        return column.name in self._types and keys.is_axis(self._types[column.name])

    def _few(self, boxes: list[Box]) -> list[Box]:
        return boxes if len(boxes) <= MOST_BOXES else self._hull(boxes)

    def _hull(self, boxes: list[Box]) -> list[Box]:
        """One box around all of them."""
        if len(boxes) < 2:
            return boxes
        self.exact[:] = False
        bounded = set.intersection(*(set(box) for box in boxes))
        return [
            {
                axis: (
                    np.minimum.reduce([box[axis][0] for box in boxes]),
                    np.maximum.reduce([box[axis][1] for box in boxes]),
                )
                for axis in bounded
            }
        ]


def _both(a: Box, b: Box) -> Box:
    out = dict(a)
    for axis, (low, high) in b.items():
        out[axis] = (np.maximum(out[axis][0], low), np.minimum(out[axis][1], high)) if axis in out else (low, high)
    return out


def _plain(column: Column) -> Column:
    return column if column.at == 0 else Column(column.name, column.stream)


def _kind(node: Node, types: Mapping[str, pa.DataType]) -> str | None:
    """The kind of a column, of a time, or of a function of one; None of whatever else there is."""
    if isinstance(node, Function):
        return next((kind for part in node.arguments if (kind := _kind(part, types)) is not None), None)
    if isinstance(node, Literal) and isinstance(node.value, Instant):
        return TIME
    return kind_of(types[node.name]) if isinstance(node, Column) and node.name in types else None


def _reads(node: Node) -> bool:
    """Whether a node depends on rows."""
    return isinstance(node, Column) or any(_reads(part) for part in parts_of(node))


def _sieved(parts: list[list[Box]]) -> list[list[Box]]:
    """Parts of an AND, those that each leave out a gap of one axis as one part: all that lies between the gaps."""
    gaps: dict[Column, list[list[Box]]] = {}
    rest = []
    for part in parts:
        axis = _gap(part)
        if axis is None:
            rest.append(part)
        else:
            gaps.setdefault(axis, []).append(part)
    for axis, found in gaps.items():
        if len(found) == 1:
            rest += found
            continue
        # No value is both before and after a gap: beyond j gaps and before the others is between the j-th and the next.
        ends = np.sort([part[0][axis][1] for part in found], axis=0)
        begins = np.sort([part[1][axis][0] for part in found], axis=0)
        least, most = found[0][0][axis][0], found[0][1][axis][1]
        rest.append([{axis: bounds} for bounds in zip([least, *begins], [*ends, most], strict=True)])
    return rest


def _gap(part: list[Box]) -> Column | None:
    """The axis along which two boxes are all values but those of a gap."""
    if len(part) != 2 or len(part[0]) != 1 or set(part[0]) != set(part[1]):
        return None
    axis = next(iter(part[0]))
    (least, end), (begin, most) = part[0][axis], part[1][axis]
    return axis if np.all(least == LEAST) and np.all(most == MOST) and np.all(end < begin) else None


def _count(node: Node, *, negated: bool = False) -> int:
    """How many boxes a condition has, if each is counted."""
    if isinstance(node, Not):
        return _count(node.part, negated=not negated)
    if isinstance(node, And | Or):
        if isinstance(node, And) == negated:
            return min(_BEYOND, sum(_count(part, negated=negated) for part in node.parts))
        product, gaps = 1, Counter[str]()
        for part in node.parts:
            axis = _left_out(part, negated=negated)
            if axis is None:
                product = min(_BEYOND, product * _count(part, negated=negated))
            else:
                gaps[axis] += 1
        for count in gaps.values():
            product = min(_BEYOND, product * (count + 1))
        return product
    if isinstance(node, Comparison):
        return 2 if (_OPPOSITE[node.operator] if negated else node.operator) == "<>" else 1
    return 1


def _left_out(node: Node, *, negated: bool) -> str | None:
    """The column of which a comparison leaves out one value."""
    if not isinstance(node, Comparison) or node.operator != ("=" if negated else "<>"):
        return None
    sides = [side.name for side in (node.left, node.right) if isinstance(side, Column)]
    return sides[0] if len(sides) == 1 else None
