"""Whether rows satisfy queries: pair by pair, those of one template together or query by query, or all rows at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.queries.columns import Values
from appulse.queries.templates import Texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from appulse.kernels.arrays import Flags, Ints, Ints32
    from appulse.queries.rows import Rows
    from appulse.queries.templates import Template

_MANY = 256  # rows of a query from which on its constants stay single values
_ROOM = 1 << 22  # values that conditions are given at once
_ROWS = 1 << 14  # rows that one query after the other is asked about, so that their values stay in the cache


@dataclass(frozen=True)
class Conditions:
    """The conditions of queries: their templates, which of them each slot has, and their texts by slot.

    ``fail`` takes the slot of a query that could not be evaluated, and the error.
    """

    templates: Sequence[Template]
    numbers: Ints32
    texts: Callable[[Ints32], pa.Array]
    fail: Callable[[np.int32, Exception], None]

    def hold(self, rows_of: Rows, rows: Ints32, slots: Ints32) -> Flags:
        """Whether rows satisfy queries, pair by pair."""
        holds = np.zeros(len(rows), bool)
        if not len(rows):
            return holds
        order = _in_order(slots)
        first = np.flatnonzero(np.append(True, np.diff(slots[order]) != 0))
        counts, distinct = np.diff(np.append(first, len(order))), slots[order[first]]
        for number, own in self._by_template(distinct):
            count = counts[own]
            at = order
            if len(own) < len(distinct):
                at = order[np.repeat(first[own] - np.cumsum(count) + count, count) + np.arange(int(count.sum()))]
            try:
                holds[at] = hold(self.templates[number], self.texts(distinct[own]), count, rows_of, rows[at])
            except Exception:  # noqa: BLE001 - each is asked by itself, and reports its own error
                for slot, mine in zip(distinct[own], np.split(at, np.cumsum(count)[:-1]), strict=True):
                    one = np.array([slot])
                    try:
                        text = self.texts(one)
                        holds[mine] = hold(self.templates[number], text, np.array([len(mine)]), rows_of, rows[mine])
                    except Exception as error:  # noqa: BLE001 - whatever it is, it is this query's
                        self.fail(slot, error)
        return holds

    def over_all(self, rows_of: Rows, n: int, slots: Ints32) -> tuple[Ints32, Ints32]:
        """The pairs of each of n rows and a query that it satisfies, of these queries."""
        found: list[tuple[Ints32, Ints32]] = [(np.empty(0, np.int32), np.empty(0, np.int32))]
        for number, own in self._by_template(slots):
            mine = slots[own]
            try:
                rows, which = hold_over_all(self.templates[number], self.texts(mine), rows_of, n)
                found.append((rows, mine[which]))
            except Exception:  # noqa: BLE001 - each is asked by itself, and reports its own error
                for slot in mine:
                    one = np.array([slot])
                    try:
                        rows, which = hold_over_all(self.templates[number], self.texts(one), rows_of, n)
                        found.append((rows, one[which]))
                    except Exception as error:  # noqa: BLE001 - whatever it is, it is this query's
                        self.fail(slot, error)
        return np.concatenate([rows for rows, _ in found]), np.concatenate([own for _, own in found])

    def _by_template(self, slots: Ints32) -> Iterator[tuple[int, Ints]]:
        numbers = self.numbers[slots]
        order = np.argsort(numbers, kind="stable")
        found, first = np.unique(numbers[order], return_index=True)
        yield from zip(found.tolist(), np.split(order, first[1:]), strict=True)


def hold(made: Template, texts: pa.Array, counts: Ints, rows_of: Rows, rows: Ints32) -> Flags:
    """Whether each of ``rows`` satisfies its condition: the first ``counts[0]`` are of the first of ``texts``."""
    given = made.given(Texts.of(texts), np.arange(len(texts)))
    found = np.empty(len(rows), bool)
    if len(rows) >= _MANY * len(texts):
        begin = 0
        for single, end in zip(_singles(given, len(texts)), np.cumsum(counts).tolist(), strict=True):
            found[begin:end] = _holds(made, single, rows_of, rows[begin:end])
            begin = end
        return found
    which = np.repeat(np.arange(len(texts)), counts)
    size = max(1, _ROOM // (len(given) + len(made.columns) + 1))
    for begin in range(0, len(rows), size):
        part = slice(begin, begin + size)
        found[part] = _holds(made, [values.take(which[part]) for values in given], rows_of, rows[part])
    return found


def hold_over_all(made: Template, texts: pa.Array, rows_of: Rows, n: int) -> tuple[Ints32, Ints]:
    """Which of n rows satisfy which of ``texts``, as pairs."""
    parts = [(np.empty(0, np.int32), np.empty(0, np.int64))]
    if n < _MANY:
        size = max(1, _ROOM // ((len(made.columns) + 2) * max(n, 1)))
        for begin in range(0, len(texts), size):
            own = texts[begin : begin + size]
            rows = np.tile(np.arange(n, dtype=np.int32), len(own))
            found = np.flatnonzero(hold(made, own, np.full(len(own), n), rows_of, rows))
            parts.append((rows[found], begin + found // max(n, 1)))
    else:
        singles = list(_singles(made.given(Texts.of(texts), np.arange(len(texts))), len(texts)))
        for begin in range(0, n, _ROWS):
            rows = np.arange(begin, min(begin + _ROWS, n), dtype=np.int32)
            columns = {column.name: rows_of.values(column.name, rows) for column in made.columns}
            for number, single in enumerate(singles):
                found = np.flatnonzero(np.broadcast_to(made.holds(columns, single), len(rows)))
                parts.append((rows[found], np.full(len(found), number)))
    return np.concatenate([rows for rows, _ in parts]), np.concatenate([which for _, which in parts])


def _singles(given: Sequence[Values], n: int) -> Iterator[list[Values]]:
    """The parameters of each of n queries as single values."""
    for i in range(n):
        yield [Values(one.kind, np.array(one.data[i]), np.array(one.valid[i])) for one in given]


def _holds(made: Template, given: Sequence[Values], rows_of: Rows, rows: Ints32) -> Flags:
    columns = {column.name: rows_of.values(column.name, rows) for column in made.columns}
    return np.broadcast_to(made.holds(columns, given), len(rows))


def _in_order(slots: Ints32) -> Ints:
    """Where slots stand in their order: by the lower 16 bits and then the upper ones, which NumPy sorts by counting."""
    order = np.argsort((slots & 0xFFFF).astype(np.uint16), kind="stable")
    if int(slots.max()) > 0xFFFF:
        order = order[np.argsort((slots[order] >> 16).astype(np.uint16), kind="stable")]
    return order
