"""The slow twin of filter and window_aggregate: possible worlds, enumerated, in exact fractions.

Rows are dictionaries; nothing here knows how appulse numbers rows, keeps windows or adds up probabilities.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any

import appulse as ap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TOLERANCE = Fraction(1, 10**9)
Distribution = dict[Fraction, Fraction]


@dataclass(frozen=True)
class Row:
    """A row: its samples' values in one dimension with their weights, which sum to its existence."""

    key: int
    time: int
    group: Any
    samples: tuple[tuple[float, Fraction], ...]
    attribute: float = 0.0

    @property
    def mass(self) -> Fraction:
        return sum((weight for _, weight in self.samples), Fraction(0))

    @property
    def mean(self) -> Fraction:
        return sum((Fraction(value) * weight for value, weight in self.samples), Fraction(0)) / self.mass


@dataclass(frozen=True)
class Window:
    """What an answer is about: the rows, oldest first, and how many of those that exist count (None: all)."""

    group: Any
    time: int
    rows: tuple[Row, ...]
    size: int | None


def at_least(rows: Sequence[Row], size: int) -> Fraction:
    """The probability that so many rows exist."""
    total = Fraction(0)
    for world in product((False, True), repeat=len(rows)):
        if sum(world) >= size:
            chance = Fraction(1)
            for row, exists in zip(rows, world, strict=True):
                chance *= row.mass if exists else 1 - row.mass
            total += chance
    return total


def windows(rows: Sequence[Row], window: Any) -> Iterator[Window]:
    """Every window there is an answer for; times in seconds, but for those of blocks of time."""
    groups = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.time, row.key)):
        groups[row.group].append(row)
    for group, members in groups.items():
        if isinstance(window, ap.TumblingWindow):
            yield from _blocks(group, members, window.length if isinstance(window.length, int) else str(window.length))
            continue
        kept: list[Row] = []
        for tick in sorted({row.time for row in members}):
            kept += [row for row in members if row.time == tick]
            kept = _held(kept, tick, window)
            size = window.size if isinstance(window, ap.UncertainCountWindow) else None
            yield Window(group, tick, tuple(kept), size)


def _held(rows: list[Row], tick: int, window: Any) -> list[Row]:
    if isinstance(window, ap.TimeWindow):
        return [row for row in rows if tick - row.time <= float(str(window.length))]
    if isinstance(window, ap.CountWindow):
        return rows[-window.size :]
    if isinstance(window, ap.DeltaWindow):
        while abs(rows[0].attribute - rows[-1].attribute) > window.bound:
            rows = rows[1:]
        return rows
    confidence = Fraction(window.confidence) - TOLERANCE
    while len(rows) > 1 and at_least(rows[1:], window.size) >= confidence:
        rows = rows[1:]
    return rows


def _blocks(group: Any, rows: Sequence[Row], length: int | str) -> Iterator[Window]:
    blocks = defaultdict(list)
    for i, row in enumerate(rows):
        blocks[i // length if isinstance(length, int) else row.time // int(length.split()[0])].append(row)
    for block, members in blocks.items():
        end = members[-1].time if isinstance(length, int) else (block + 1) * int(length.split()[0])
        yield Window(group, end, tuple(members), None)


def distribution(window: Window, aggregate: str) -> tuple[Fraction, Distribution]:
    """The probability that there is a value, and the values' distribution given that."""
    found: Distribution = defaultdict(Fraction)
    for world in product(*([(None, 1 - row.mass), *row.samples] for row in window.rows)):
        chance = Fraction(1)
        for _, weight in world:
            chance *= weight
        values = [Fraction(value) for value, _ in world if value is not None]
        values = values if window.size is None else values[-window.size :]
        if chance and (values or aggregate in ("sum", "count")):
            found[_aggregate(values, aggregate)] += chance
    total = sum(found.values(), Fraction(0))
    return total, {value: chance / total for value, chance in sorted(found.items())}


def _aggregate(values: Sequence[Fraction], aggregate: str) -> Fraction:
    if aggregate == "count":
        return Fraction(len(values))
    if aggregate in ("min", "max"):
        return min(values) if aggregate == "min" else max(values)
    if aggregate == "median" or aggregate.startswith("p"):
        share = Fraction(1, 2) if aggregate == "median" else Fraction(int(aggregate[1:]), 100)
        return next(x for x in sorted(values) if sum(v <= x for v in values) >= share * len(values))
    total = sum(values, Fraction(0))
    return total if aggregate == "sum" else total / len(values)


def moments(found: Distribution) -> tuple[float, float]:
    """Mean and standard deviation."""
    mean = sum((value * chance for value, chance in found.items()), Fraction(0))
    variance = sum(((value - mean) ** 2 * chance for value, chance in found.items()), Fraction(0))
    return float(mean), float(variance) ** 0.5


def single_valued(window: Window) -> float:
    """The sum of the rows' mean values, whether they exist or not."""
    return float(sum((row.mean for row in window.rows), Fraction(0)))
