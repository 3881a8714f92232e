"""Seeded sets of continuous queries and the rows they are asked of, for the benchmark and its tests.

A selection query is a box with ends that may be open or missing; a join query is a box over the attributes of two
streams, one comparison between an attribute of each, and a window. Generators: the conjunctions of Lim et al. (2006),
and ranges of a size that gives a wanted number of matches a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Ints

    Matrix = NDArray[np.float64]  # one row a query, or a row of data; one column an attribute
    FlagMatrix = NDArray[np.bool_]

OPERATORS = ("=", "<", "<=", ">", ">=")
EQUAL, BELOW, AT_MOST, ABOVE, AT_LEAST = range(5)
_SKEWED = 0.01  # the range of the domain that skewed rows fall in


@dataclass(frozen=True)
class BoxQueries:
    """One box a query, by columns of attributes; -inf and inf where there is no predicate."""

    low: Matrix
    high: Matrix
    low_open: FlagMatrix
    high_open: FlagMatrix

    def __len__(self) -> int:
        return len(self.low)

    @property
    def attributes(self) -> int:
        return int(self.low.shape[1])

    @property
    def constrained(self) -> FlagMatrix:
        """Where a query has a predicate."""
        return (self.low > -np.inf) | (self.high < np.inf)

    def closed(self) -> tuple[Matrix, Matrix]:
        """The same boxes with all ends closed: next to an open end, the first double inside it. Exact for doubles."""
        low = np.where(self.low_open, np.nextafter(self.low, np.inf), self.low)
        high = np.where(self.high_open, np.nextafter(self.high, -np.inf), self.high)
        return low, high

    def take(self, rows: NDArray[np.integer] | slice) -> BoxQueries:
        """Some of the queries."""
        return BoxQueries(self.low[rows], self.high[rows], self.low_open[rows], self.high_open[rows])

    def beside(self, other: BoxQueries) -> BoxQueries:
        """The boxes over the attributes of both."""
        return BoxQueries(
            np.hstack([self.low, other.low]),
            np.hstack([self.high, other.high]),
            np.hstack([self.low_open, other.low_open]),
            np.hstack([self.high_open, other.high_open]),
        )

    def conditions(self, names: Sequence[str]) -> list[str]:
        """Each query as SQL text over attributes of these names."""
        return [" AND ".join(parts) or "TRUE" for parts in self.predicates(names)]

    def predicates(self, names: Sequence[str]) -> list[list[str]]:
        """The comparisons of each query, as SQL text."""
        found: list[list[str]] = [[] for _ in range(len(self))]
        for i, name in enumerate(names):
            columns = (self.low[:, i], self.high[:, i], self.low_open[:, i], self.high_open[:, i])
            ends = zip(*(column.tolist() for column in columns), strict=True)
            for parts, (low, high, low_open, high_open) in zip(found, ends, strict=True):
                if low > -np.inf:
                    parts.append(f"{name} {'>' if low_open else '>='} {low!r}")
                if high < np.inf:
                    parts.append(f"{name} {'<' if high_open else '<='} {high!r}")
        return found


@dataclass(frozen=True)
class JoinQueries:
    """Per query a box over each stream, ``left[x] operator right[y]``, and the age up to which rows are joined."""

    left: BoxQueries
    right: BoxQueries
    x: Ints
    operator: Ints  # places in `OPERATORS`
    y: Ints
    window: Ints  # in the unit of the rows' times; a pair that far apart still joins

    def __len__(self) -> int:
        return len(self.left)

    def conditions(self, left: Sequence[str], right: Sequence[str]) -> list[str]:
        """Each query as SQL text over qualified names; its window, in seconds, as the tail."""
        boxes = zip(self.left.predicates(left), self.right.predicates(right), strict=True)
        joins = zip(self.x.tolist(), self.operator.tolist(), self.y.tolist(), self.window.tolist(), strict=True)
        return [
            " AND ".join([*mine, *theirs, f"{left[x]} {OPERATORS[op]} {right[y]}"]) + f" WITHIN {window} SECONDS"
            for (mine, theirs), (x, op, y, window) in zip(boxes, joins, strict=True)
        ]


def rows(n: int, d: int, seed: int, *, skew: float = 0.0, levels: int | None = None) -> Matrix:
    """Uniform rows in [0, 1], a share ``skew`` of them within 1 % of the domain; ``levels`` rounds for equal values."""
    rng = np.random.default_rng([seed, 0])
    found = rng.random((n, d))
    narrow = rng.random(n) < skew
    found[narrow] = found[narrow] * _SKEWED + (0.5 - _SKEWED / 2)
    return found if levels is None else np.round(found * levels) / levels


def conjunctions(n: int, d: int, seed: int, *, share: float = 1.0, reach: float = 1.0) -> BoxQueries:
    """The paper's queries: on a ``share`` of the attributes, at least one, a predicate below, above or between.

    Ends are uniform and open or closed at random. With a ``reach`` below 1 no predicate admits more of the domain.
    """
    rng = np.random.default_rng([seed, 1])
    wanted = np.maximum(np.floor(share * d + rng.random(n)), 1)
    chosen = rng.random((n, d)).argsort(axis=1).argsort(axis=1) < wanted[:, None]
    low, high = _between(rng, (n, d), reach)
    kind = rng.integers(3, size=(n, d))
    end = rng.random((n, d)) * reach
    low = np.where(kind == 0, -np.inf, np.where(kind == 1, 1.0 - end, low))
    high = np.where(kind == 0, end, np.where(kind == 1, np.inf, high))
    low[~chosen], high[~chosen] = -np.inf, np.inf
    low_open, high_open = rng.random((2, n, d)) < 0.5
    return BoxQueries(low, high, low_open & np.isfinite(low), high_open & np.isfinite(high))


def range_queries(n: int, d: int, matches_per_row: float, seed: int) -> BoxQueries:
    """Closed ranges on all attributes, of which a uniform row satisfies about that many."""
    rng = np.random.default_rng([seed, 2])
    side = (matches_per_row / n) ** (1.0 / d) * rng.uniform(0.5, 1.5, (n, d))
    side = np.minimum(side, 1.0)
    low = rng.random((n, d)) * (1.0 - side)
    closed = np.zeros((n, d), bool)
    return BoxQueries(low, low + side, closed, closed)


def join_queries(
    n: int, d: int, seed: int, *, share: float = 1.0, reach: float = 1.0, window: int | tuple[int, int] = 1000
) -> JoinQueries:
    """The paper's join queries over two streams of d attributes each; windows alike, or uniform in a range."""
    rng = np.random.default_rng([seed, 3])
    least, most = window if isinstance(window, tuple) else (window, window)
    return JoinQueries(
        conjunctions(n, d, 2 * seed, share=share, reach=reach),
        conjunctions(n, d, 2 * seed + 1, share=share, reach=reach),
        rng.integers(d, size=n),
        rng.integers(len(OPERATORS), size=n),
        rng.integers(d, size=n),
        rng.integers(least, most, endpoint=True, size=n),
    )


def at_most(high: Matrix) -> BoxQueries:
    """Queries with closed high ends alone."""
    closed = np.zeros(high.shape, bool)
    return BoxQueries(np.full(high.shape, -np.inf), high, closed, closed)


def _between(rng: np.random.Generator, shape: tuple[int, int], reach: float) -> tuple[Matrix, Matrix]:
    """Two uniform ends in order; shrunk to a share ``reach`` of the domain and placed at random again."""
    ends = rng.random((2, *shape))
    width = np.abs(ends[1] - ends[0]) * reach
    low = rng.random(shape) * (1.0 - width)
    return low, low + width
