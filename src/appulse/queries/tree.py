"""The tree of a condition: frozen nodes, and what they are made of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Column:
    """A column, perhaps that of a stream given by name; ``at`` is where it stands in the text, as in all nodes."""

    name: str
    stream: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Instant:
    """A time, in microseconds since 1970 UTC."""

    micros: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; numbers are exact. ``None`` is NULL."""

    value: bool | int | Fraction | str | Instant | None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``left operator right``, of + - * /."""

    operator: str
    left: Node
    right: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Function:
    """``name(arguments)``, one of `ARGUMENTS`."""

    name: str
    arguments: tuple[Node, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left operator right``, of = <> < <= > >=."""

    operator: str
    left: Node
    right: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether there is no value; never unknown."""

    value: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class And:
    """True where all parts are."""

    parts: tuple[Node, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Or:
    """True where any part is."""

    parts: tuple[Node, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """True where the part is false."""

    part: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Within:
    """Whether a place lies in a region, or no farther from it than a distance; ``parts`` are x, y, WKT, distance.

    ``earth`` names the Earth on which distances are metres; without, a place is in a plane.
    """

    parts: tuple[Node, ...]
    earth: str | None = None
    at: int = field(default=0, compare=False)


Node: TypeAlias = Column | Literal | Arithmetic | Function | Comparison | IsNull | And | Or | Not | Within


def parts_of(node: Node) -> tuple[Node, ...]:
    """The nodes that a node is made of."""
    if isinstance(node, Arithmetic | Comparison):
        return node.left, node.right
    if isinstance(node, And | Or | Within):
        return node.parts
    if isinstance(node, Function):
        return node.arguments
    if isinstance(node, Not):
        return (node.part,)
    return (node.value,) if isinstance(node, IsNull) else ()


def with_parts(node: Node, parts: Sequence[Node]) -> Node:
    """The node with other parts in place of its own."""
    if isinstance(node, Arithmetic | Comparison):
        left, right = parts
        return type(node)(node.operator, left, right, node.at)
    if isinstance(node, And | Or):
        return type(node)(tuple(parts), node.at)
    if isinstance(node, Within):
        return replace(node, parts=tuple(parts))
    if isinstance(node, Function):
        return Function(node.name, tuple(parts), node.at)
    return type(node)(parts[0], node.at) if isinstance(node, Not | IsNull) else node


def columns_of(tree: Node) -> Iterator[Column]:
    """Every column of a tree, as often as it is named, in order of appearance."""
    waiting, seen = [tree], set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, Column):
            yield node
        elif not isinstance(node, Literal) and id(node) not in seen:
            seen.add(id(node))  # IN and BETWEEN compare one node with several
            waiting.extend(reversed(parts_of(node)))
