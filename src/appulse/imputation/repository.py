"""Complete rows that holes are filled from, and an index of the boxes they lie in."""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.errors import BadArgument, nearest
from appulse.kernels import neighbours as kernels
from appulse.model.columns import arrow_table, floats
from appulse.model.times import is_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.meaning import Meaning

_SHOWN = 5  # columns in a message
_CONVERT = "Convert what holds numbers, e.g. frame.astype({'a': float})"
_ARRAYS = ("columns", "order", "begin", "end", "bounds", "codes", "values", "counts")  # of an index


def table_of(frame: Any) -> pa.Table:
    """Any frame of complete rows as an Arrow table; a Spark frame is collected."""
    table = arrow_table(frame.toArrow() if hasattr(frame, "toArrow") else frame)
    if table is None:
        kind = f"{type(frame).__module__}.{type(frame).__name__}"
        raise BadArgument(f"A repository is a {kind}. Give a Spark, pyarrow, pandas or Polars frame.")
    return table


class Repository:
    """Complete rows, never changed: numbers by column, (n,) each.

    ``frame`` is any frame; ``columns`` those to read, default all that hold numbers. Raises `BadArgument` where a
    column is missing or a number is.
    """

    _others: Mapping[str, pa.DataType] = {}  # columns that hold no numbers

    def __init__(self, frame: Any, columns: Sequence[str] | None = None) -> None:
        table = table_of(frame)
        names = [field.name for field in table.schema if is_number(field.type)] if columns is None else list(columns)
        self._columns: dict[str, Floats] = {}
        for name in names:
            if name not in table.schema.names:
                raise BadArgument(f"The repository has no column {name!r}.{nearest(name, table.schema.names)}")
            if not is_number(table.schema.field(name).type):
                raise BadArgument(_no_number(name, table.schema.field(name).type))
            numbers = floats(table[name])
            lacking = int((~np.isfinite(numbers)).sum())
            if lacking:
                raise BadArgument(
                    f"{lacking:,} of {len(table):,} rows of the repository have no finite {name!r}. A repository holds "
                    "complete rows: drop these first, e.g. frame.dropna(subset=[...])."
                )
            self._columns[name] = np.ascontiguousarray(numbers) + 0.0  # -0.0 is 0.0
        self._others = {field.name: field.type for field in table.schema if not is_number(field.type)}
        if not names:
            raise BadArgument(f"The repository has no column of numbers{self._listed_others()}.")
        if len(table) == 0:
            raise BadArgument("The repository has no rows. Give at least one complete row.")

    @staticmethod
    def of(columns: Mapping[str, Floats], version: str) -> Repository:
        """Columns that were a repository before, under the version they had."""
        known = object.__new__(Repository)
        known._columns = dict(columns)
        known.__dict__["version"] = version
        return known

    @staticmethod
    def with_holes(columns: Mapping[str, Floats]) -> Repository:
        """Rows that may lack some numbers (NaN): for imputers that learn from the rows that have what they need."""
        known = object.__new__(Repository)
        known._columns = {name: np.ascontiguousarray(values) + 0.0 for name, values in columns.items()}
        return known

    def complete(self) -> Repository | None:
        """Its complete rows; None if there are none."""
        rows = self.matrix(self.names)
        whole = ~np.isnan(rows).any(axis=0)
        if whole.all():
            return self
        return Repository.with_holes(dict(zip(self.names, rows[:, whole], strict=True))) if whole.any() else None

    def without(self, rows: Ints) -> Repository:
        """All rows but these."""
        kept = np.ones(len(self), bool)
        kept[rows] = False
        return Repository.with_holes({name: values[kept] for name, values in self._columns.items()})

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._columns)

    def __getitem__(self, name: str) -> Floats:
        known = self._columns.get(name)
        if known is None and name in self._others:
            raise BadArgument(_no_number(name, self._others[name]))
        if known is None:
            raise BadArgument(f"The repository has no column {name!r} of numbers.{nearest(name, self._columns)}")
        return known

    def matrix(self, names: Sequence[str]) -> Floats:
        """Some columns, (columns, n)."""
        return np.array([self[name] for name in names]).reshape(len(names), -1)

    def units(self, names: Sequence[str]) -> tuple[Floats, Floats]:
        """As `units` of these columns: several imputers go by one repository."""
        key = tuple(names)
        if key not in self._units:
            self._units[key] = units(self.matrix(names).T)
        return self._units[key]

    def extended(self, frame: Any) -> Repository:
        """These rows and more of them, as a repository of its own."""
        more = Repository(frame, self.names)
        return Repository(
            pa.table({name: np.concatenate([values, more[name]]) for name, values in self._columns.items()})
        )

    def meaning(self) -> Meaning:
        """Its columns and how many rows they have, with a digest of these."""
        return {"columns": list(self.names), "rows": len(self), "digest": self.version}

    def _listed_others(self) -> str:
        """The first columns that hold no numbers, and their types; nothing if there are none."""
        shown = [f"{name!r} is {kind}" for name, kind in list(self._others.items())[:_SHOWN]]
        more = len(self._others) - len(shown)
        listed = ", ".join([*shown, *([f"{more:,} more"] if more else [])])
        return f": {listed}. {_CONVERT}" if shown else ". Give at least one"

    @cached_property
    def _units(self) -> dict[tuple[str, ...], tuple[Floats, Floats]]:
        return {}

    @cached_property
    def version(self) -> str:
        """A short text that differs where the rows do."""
        digest = blake2b(digest_size=8)
        for name, values in self._columns.items():
            digest.update(name.encode() + b"\0")
            digest.update(values.tobytes())
        return digest.hexdigest()


def units(rows: Floats) -> tuple[Floats, Floats]:
    """The middle of each column and its standard deviation, which is infinite where it never varies.

    In deviations from the middle, such a column is 0 everywhere: it does not tell rows apart. Neither result overflows.
    """
    if np.isnan(rows).any():  # column by column, of what is there; of nothing it is that of one 0
        parts = [units(own[~np.isnan(own)][:, None] if (~np.isnan(own)).any() else np.zeros((1, 1))) for own in rows.T]
        middle, deviation = (np.concatenate(part) for part in zip(*parts, strict=True))
        return middle, deviation
    low, high = rows.min(axis=0), rows.max(axis=0)
    half = high / 2 - low / 2
    share = (rows / 2 - low / 2) / np.where(half > 0.0, half, 1.0)
    return low / 2 + high / 2, np.where(half > 0.0, half * (2.0 * share.std(axis=0)), np.inf)


class Constraints:
    """Boxes around objects over some axes, one for each of many rules: (rules, axes) each.

    ``used`` are the axes that bound a box; ``limits`` how far a match may lie on either side, infinite where only a
    range counts; ``ranges`` (rules, axes, 2) where object and match have to lie. A row r matches an object o where
    ``o - limit <= r <= o + limit``, in doubles.
    """

    def __init__(self, rules: int, axes: Sequence[str]) -> None:
        self.axes = tuple(axes)
        self.used = np.zeros((rules, len(axes)), bool)
        self.limits = np.full((rules, len(axes)), np.inf)
        self.ranges = np.empty((rules, len(axes), 2))
        self.ranges[:, :, 0], self.ranges[:, :, 1] = -np.inf, np.inf

    def __len__(self) -> int:
        return len(self.used)

    def box(self, rule: int) -> bytes:
        """The same for rules with the same box."""
        box: bytes = self.limits[rule].tobytes() + self.ranges[rule].tobytes()
        return box

    def add(self, rule: int, limits: Mapping[str, float], ranges: Mapping[str, tuple[float, float]]) -> None:
        """Narrow the box of a rule."""
        for name, limit in limits.items():
            axis = self.axes.index(name)
            self.used[rule, axis] = True
            self.limits[rule, axis] = min(self.limits[rule, axis], limit)
        for name, (low, high) in ranges.items():
            axis = self.axes.index(name)
            self.used[rule, axis] = True
            self.ranges[rule, axis] = max(self.ranges[rule, axis, 0], low), min(self.ranges[rule, axis, 1], high)


class Index:
    """The rows of a repository in a tree over ``axes``, with what they have in ``dependents``.

    ``values`` (m, dependents) are the distinct combinations of the dependents, in order, and ``counts`` how often each
    occurs. ``scale`` is what counts as a difference along each axis.
    """

    def __init__(
        self,
        repository: Repository,
        axes: Sequence[str],
        dependents: Sequence[str],
        scale: Sequence[float],
    ) -> None:
        self.axes, self.dependents = tuple(axes), tuple(dependents)
        n = len(repository)
        self.columns = repository.matrix([*axes, *dependents])
        # Without axes nothing is ever looked up in the tree.
        depth = max(0, (-(-n // kernels.LEAF) - 1).bit_length()) if len(axes) else 0
        nodes = (2 << depth) - 1
        self.order = np.arange(n)
        self.begin, self.end = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
        self.bounds = np.empty((nodes, len(self.columns), 2))
        step = np.array([max(of, 1e-300) for of in scale])
        kernels.arrange(self.columns, self.order, step, self.begin, self.end, self.bounds)
        found = self.columns[len(axes) :]
        if len(dependents) == 1:
            distinct, codes, self.counts = np.unique(found[0], return_inverse=True, return_counts=True)
            self.values = distinct[:, None]
        else:
            self.values, codes, self.counts = np.unique(found.T, axis=0, return_inverse=True, return_counts=True)
        self.codes = codes.reshape(-1).astype(np.int64)

    @staticmethod
    def of(axes: Sequence[str], dependents: Sequence[str], arrays: Mapping[str, NDArray[Any]]) -> Index:
        """An index from what `arrays` says of it."""
        index = object.__new__(Index)
        index.axes, index.dependents = tuple(axes), tuple(dependents)
        index.__dict__.update({name: arrays[name] for name in _ARRAYS})
        return index

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything but the names."""
        return {name: getattr(self, name) for name in _ARRAYS}

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def _tree(self) -> kernels.Tree:
        return kernels.Tree(self.columns, self.begin, self.end, self.bounds)

    def count(self, rows: Floats, constraints: Constraints, rule: int) -> Ints:
        """How many rows match each of ``rows`` (n, axes) under a rule."""
        found = np.empty(len(rows), np.int64)
        kernels.count(self._tree, np.ascontiguousarray(rows), _conditions(constraints, rule), found)
        return found

    def agree(
        self, places: Ints, constraints: Constraints, rule: int, dependent: int, within: float
    ) -> tuple[Ints, Ints, Ints]:
        """Of rows of its own: matches, matches that agree in a dependent, and one that does not (or -1)."""
        close, good, other = (np.empty(len(places), np.int64) for _ in range(3))
        conditions, column = _conditions(constraints, rule), len(self.axes) + dependent
        kernels.agree(self._tree, places, conditions, column, within, close, good, other)
        return close, good, other

    def fill(self, rows: Floats, nodes: Ints, constraints: Constraints) -> tuple[Ints, Ints, Ints, Ints]:
        """What each row is filled with by the first rule that matches: its place among ``nodes``, first, code, count.

        See `appulse.kernels.neighbours.fill`.
        """
        n, rows = len(rows), np.ascontiguousarray(rows)
        place, first = np.empty(n, np.int64), np.zeros(n + 1, np.int64)
        room = max(1024, 64 * n, 2 * len(self.values))
        code, times = np.empty(room, np.int64), np.empty(room, np.int64)
        tally, gathered = np.zeros(len(self.values), np.int64), np.empty(len(self.codes) + 1, np.int64)
        codes, rules = kernels.Codes(self.codes, tally), _conditions(constraints)
        start = 0
        while True:
            out = kernels.Distributions(place, first, code, times)
            start = kernels.fill(self._tree, codes, rows, nodes, rules, start, out, gathered)
            if start == n:
                return place, first, code[: first[-1]], times[: first[-1]]
            code, times = (np.concatenate([array, np.empty_like(array)]) for array in (code, times))

    def hulls(self, rows: Floats, nodes: Ints, constraints: Constraints) -> tuple[Floats, Floats]:
        """Boxes around what `fill` would fill in, (n, dependents) each."""
        lows, highs = (np.empty((len(rows), len(self.dependents))) for _ in range(2))
        kernels.hulls(self._tree, np.ascontiguousarray(rows), nodes, _conditions(constraints), lows, highs)
        return lows, highs


def _conditions(constraints: Constraints, rule: int | None = None) -> kernels.Conditions:
    """Of all rules, or of one, as kernels take them."""
    used, limits, ranges = constraints.used, constraints.limits, constraints.ranges
    if rule is None:
        return kernels.Conditions(used, limits, ranges)
    return kernels.Conditions(used[rule], limits[rule], ranges[rule])


def _no_number(name: str, kind: pa.DataType) -> str:
    return f"Column {name!r} of the repository is {kind}, no number. {_CONVERT}."
