"""Simpler imputers, to compare with and to choose from: means, zeros, nearest rows, editing rules, fitted models."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np

from appulse.arguments import NAME, POSITIVE, Attributes, Count, checked, has, mapping, several
from appulse.errors import BadArgument
from appulse.imputation.imputer import MARGINAL
from appulse.imputation.learning import FEW, MOST_SEEN, closest, correlations, learnable
from appulse.imputation.repository import Repository
from appulse.imputation.samples import Choices, expanded, thinned, unknown
from appulse.kernels import least_squares as kernels
from appulse.kernels.similar_rows import nearest_in_unit
from appulse.model.filled import OBSERVED, Fill, Filled
from appulse.model.meaning import digest_of, real, without_defaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.meaning import Meaning


_Model: TypeAlias = Annotated[Any, has("transform", "an object that can transform(matrix)")]
_FITTED = has("fit", "an object that can fit(matrix)")
_Rules: TypeAlias = Annotated[
    Mapping[str, Sequence[str]],
    mapping(NAME, several(NAME, "names", single=str), "a mapping from attributes to their determinants"),
]
_Bins: TypeAlias = Annotated[
    Mapping[str, float], mapping(NAME, POSITIVE, "a mapping from attributes to widths above 0")
]


class Sparing:
    """What fills by a function that takes, as a fourth argument, which rows with holes are to be filled."""

    def __call__(self, values: Floats, time: Ints, group: Ints, wanted: Flags | None = None) -> Filled:
        """Rows filled; those that are not wanted may be left with their holes."""
        raise NotImplementedError


class SimpleFill:
    """Fills by a function; ``names`` are its ways, by number, ``meaning`` is its imputer's."""

    def __init__(
        self,
        names: tuple[str, ...],
        meaning: Meaning,
        fill: Callable[[Floats, Ints, Ints], Filled],
        *,
        in_order: bool = False,
    ) -> None:
        self.in_order = in_order
        self._names, self._meaning, self._fill = names, meaning, fill

    def meaning(self) -> Meaning:
        return self._meaning

    def fill(self, values: Floats, time: Ints, group: Ints) -> Filled:
        with np.errstate(over="ignore", invalid="ignore"):  # what is beyond a double becomes a reject
            return self._fill(values, time, group)

    def fill_some(self, values: Floats, time: Ints, group: Ints, wanted: Flags) -> Filled:
        """As `fill`; rows that are not wanted may be left with their holes."""
        if not isinstance(self._fill, Sparing):
            return self.fill(values, time, group)
        with np.errstate(over="ignore", invalid="ignore"):
            return self._fill(values, time, group, wanted)

    def describe(self, way: int) -> str:
        return self._names[way]


class _PointFill(SimpleFill):
    """Fills by a model of another library."""

    def __init__(self, name: str, columns: tuple[str, ...], fill: _Transformed) -> None:
        super().__init__((name,), {"kind": "PointImputer", "columns": list(columns), "model": name}, fill)
        self._model = fill.model

    def meaning(self) -> Meaning:
        """With the model, pickled: it has no other description."""
        return super().meaning() | {"content": digest_of([pickle.dumps(self._model, protocol=4)])}


@checked
class MeanImputer:
    """Fills every hole with the attribute's mean over a repository of complete rows.

    Arguments:
    * ``repository``: any frame of complete rows.

    Pass it as ``imputer`` to `impute` and joins.

    Raises `BadArgument` for an unfit repository.

    >>> known = pa.table({"x": [1.0, 2.0, 3.0, 4.0], "y": [10.0, 20.0, 30.0, 40.0]})
    >>> rows = pa.table({"id": [1], "t": [0], "x": [2.1], "y": pa.array([None], pa.float64())})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y"))
    >>> ap.impute(stream, ap.MeanImputer(known)).frame["imputed"].to_pylist()
    [[[2.1, 25.0]]]
    """

    def __init__(self, repository: Any) -> None:
        self.repository = _repository(repository)

    @checked
    def bind(self, attributes: Attributes) -> Fill:
        """The object that fills rows with these attributes."""
        rows = self.repository.matrix(attributes)
        there = ~np.isnan(rows)
        if not there.all():
            rows = np.where(there, rows, (np.where(there, rows, 0.0).sum(axis=1) / there.sum(axis=1).clip(1))[:, None])
            rows = np.where(there.any(axis=1, keepdims=True), rows, np.nan)
        with np.errstate(over="ignore", invalid="ignore"):
            means = rows.mean(axis=1)
        means = np.where(np.isfinite(means), means, (rows / rows.shape[1]).sum(axis=1))  # their sum may overflow
        meaning = {"kind": "MeanImputer", "repository": self.repository.meaning()}
        return SimpleFill(("mean",), meaning, _Points(means))


class ZeroFill:
    """Fills every hole with 0, as a baseline (Ren et al. 2019, section 1).

    >>> rows = pa.table({"id": [1], "t": [0], "x": [2.1], "y": pa.array([None], pa.float64())})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y"))
    >>> ap.impute(stream, ap.ZeroFill()).frame["imputed"].to_pylist()
    [[[2.1, 0.0]]]
    """

    @checked
    def bind(self, attributes: Attributes) -> Fill:
        """The object that fills rows with these attributes."""
        return SimpleFill(("zero",), {"kind": "ZeroFill"}, _Points(np.zeros(len(attributes))))


@checked
class PointImputer:
    """Fills holes with any object that has ``transform(matrix)``, such as a fitted imputer of scikit-learn.

    Arguments:
    * ``model``: its ``transform`` takes a matrix (rows, attributes) with NaN in the holes, and returns one without.
    * ``columns``: the attributes it was fitted on, in order; those of the stream's value.
    * ``repository``: any frame of complete rows: the model is fitted here, on these. None: it was fitted before.

    Pass it as ``imputer`` to `impute` and joins.

    Raises `BadArgument` for a wrong argument, an unfit repository, and in a call where the value has other attributes.

    >>> class Nines:
    ...     def transform(self, matrix):
    ...         return np.where(np.isnan(matrix), 9.0, matrix)
    >>> rows = pa.table({"id": [1], "t": [0], "x": [2.1], "y": pa.array([None], pa.float64())})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y"))
    >>> ap.impute(stream, ap.PointImputer(Nines(), ["x", "y"])).frame["imputed"].to_pylist()
    [[[2.1, 9.0]]]
    """

    def __init__(self, model: _Model, columns: Attributes, repository: Any = None) -> None:
        self.columns, self._model = tuple(columns), model
        if repository is not None:
            _FITTED(model, "PointImputer(model=", ", repository=...)").fit(
                _repository(repository).matrix(self.columns).T
            )

    @checked
    def bind(self, attributes: Attributes) -> Fill:
        """The object that fills rows with these attributes."""
        if set(attributes) != set(self.columns):
            raise BadArgument(
                f"PointImputer was fitted on {', '.join(self.columns)}, and the value has {', '.join(attributes)}."
            )
        name = type(self._model).__name__
        return _PointFill(name, self.columns, _Transformed(self._model, self._order(attributes)))

    def _order(self, attributes: Sequence[str]) -> Ints:
        return np.array([tuple(attributes).index(name) for name in self.columns], np.int64)


@checked
class NearestImputer:
    """Fills holes from the ``k`` nearest rows of a repository, weighted by nearness.

    Distances are Euclidean over the observed attributes, each in units of its deviation in the repository; one that
    never varies there is left out. Weights are 1 / distance; rows at no distance leave nothing to the others. All holes
    of a row are filled from the same rows. One that lacks everything has ``k`` rows from all over the repository, as
    ``"marginal"``, where `impute` gets ``empty_rows=True``.

    Arguments:
    * ``repository``: any frame of complete rows.
    * ``k``: how many rows, at least 1.

    Pass it as ``imputer`` to `impute` and joins.

    Raises `BadArgument` for a wrong argument or an unfit repository.

    >>> known = pa.table({"x": [1.0, 2.0, 3.0, 4.0], "y": [10.0, 20.0, 30.0, 40.0]})
    >>> rows = pa.table({"id": [1], "t": [0], "x": [2.1], "y": pa.array([None], pa.float64())})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y"))
    >>> ap.impute(stream, ap.NearestImputer(known, k=1)).frame["imputed"].to_pylist()
    [[[2.1, 20.0]]]
    """

    def __init__(self, repository: Any, k: Count = 10) -> None:
        self.repository, self.k = _repository(repository), k

    @checked
    def bind(self, attributes: Attributes) -> Fill:
        """The object that fills rows with these attributes."""
        meaning = {"kind": "NearestImputer", "repository": self.repository.meaning(), "k": self.k}
        meaning = without_defaults(meaning, {"k": 10})
        names = f"nearest {self.k}", MARGINAL
        return SimpleFill(names, meaning, _Nearest(self.repository, attributes, self.k))


@checked
class EditingRules:
    """Fills a hole from the rows of a repository whose binned determinants are equal.

    What Ren et al. 2019 compare with as er+join, in our reading: its text is lost.

    Arguments:
    * ``repository``: any frame of complete rows.
    * ``rules``: a mapping from an attribute to a list of its determinants.
    * ``bins``: a mapping from an attribute to the width of its bins, above 0, in its unit; each determinant needs one.
    * ``marginal``: without an equal row a hole is filled with its distribution over the whole repository, as
      ``"marginal"``, in at most so many values.

    Pass it as ``imputer`` to `impute` and joins.

    Raises `BadArgument` for a wrong argument or an unfit repository.

    >>> known = pa.table({"x": [1.0, 2.0, 3.0, 4.0], "y": [10.0, 20.0, 30.0, 40.0]})
    >>> rows = pa.table({"id": [1], "t": [0], "x": [2.1], "y": pa.array([None], pa.float64())})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y"))
    >>> rules = ap.EditingRules(known, {"y": ["x"]}, {"x": 1.0})
    >>> ap.impute(stream, rules).frame["imputed"].to_pylist()
    [[[2.1, 20.0]]]
    """

    def __init__(self, repository: Any, rules: _Rules, bins: _Bins, *, marginal: Count = 256) -> None:
        self.repository, self.rules, self.bins = _repository(repository), rules, bins
        self.marginal = marginal
        for name, determinants in self.rules.items():
            for one in (name, *determinants):
                self.repository.matrix([one])  # raises for a column that is not there
            if lacking := [one for one in determinants if one not in self.bins]:
                raise BadArgument(f"EditingRules: {lacking[0]!r} decides {name!r} and has no width in bins=.")

    @checked
    def bind(self, attributes: Attributes) -> Fill:
        """The object that fills rows with these attributes."""
        described = tuple(f"{', '.join(by)} -> {name}" for name, by in self.rules.items())
        meaning = {
            "kind": "EditingRules",
            "repository": self.repository.meaning(),
            "rules": [[name, list(by)] for name, by in self.rules.items()],
            "bins": {name: real(width) for name, width in self.bins.items()},
            "marginal": self.marginal,
        }
        meaning = without_defaults(meaning, {"marginal": 256})
        return SimpleFill((MARGINAL, *described), meaning, _Edited(self, tuple(attributes)))


# --- how they do it ---------------------------------------------------------------------------------------------


class _Points:
    """One number for each attribute."""

    def __init__(self, points: Floats) -> None:
        self.points = points

    def __call__(self, values: Floats, _time: Ints, _group: Ints) -> Filled:
        return as_points(values, np.where(np.isnan(values), self.points, values))


class _Transformed:
    def __init__(self, model: Any, order: Ints) -> None:
        self.model, self.order = model, order

    def __call__(self, values: Floats, _time: Ints, _group: Ints) -> Filled:
        points = values.copy()
        rows = np.flatnonzero(np.isnan(values).any(axis=1))
        if len(rows):
            points[np.ix_(rows, self.order)] = self.model.transform(values[np.ix_(rows, self.order)])
        return as_points(values, np.where(np.isnan(values), points, values))


class _Nearest:
    def __init__(self, repository: Repository, attributes: Sequence[str], k: int) -> None:
        rows = np.ascontiguousarray(repository.matrix(attributes).T)
        self.rows, self.k = rows, k
        self.deviation = repository.units(attributes)[1]
        self.there = ~np.isnan(rows)
        self.likeness = correlations(rows) if rows.shape[1] > MOST_SEEN else None

    def __call__(self, values: Floats, _time: Ints, _group: Ints) -> Filled:
        return expanded(values, self._choices)

    def _choices(self, values: Floats, holes: Ints, _rows: Ints) -> list[Choices]:
        seen = np.delete(np.arange(values.shape[1]), holes)
        if len(seen) == 0:
            return [self._usual(holes, len(values))]
        seen = seen if self.likeness is None else closest(self.likeness, holes, seen)
        places, seen = learnable(self.there, holes, seen)
        if len(places) == 0 or len(seen) == 0:
            return [unknown(holes, len(values))]
        rows = self.rows[places]
        known, asked = (kernels.in_units(one, seen, self.deviation) for one in (rows, values))
        k = min(self.k, len(rows))
        if len(rows) <= FEW:
            near = nearest_in_unit(known, asked, k)
        else:
            from scipy.spatial import cKDTree

            near = cKDTree(known.T).query(asked.T, k=np.arange(1, k + 1))[1]
        shares = kernels.weights(known, asked, near)
        n = len(values)
        kept = shares > 0.0
        count = kept.sum(axis=1)
        begin = np.cumsum(count) - count
        taken = rows[near[kept]][:, holes]
        return [Choices(holes, begin, count, taken, shares[kept], np.zeros(n, np.int64))]

    def _usual(self, holes: Ints, n: int) -> Choices:
        """For n rows that lack everything: rows of the repository, evenly by their first attribute."""
        rows = self.rows[self.there.all(axis=1)]
        if len(rows) == 0:
            return unknown(holes, n)
        k = min(self.k, len(rows))
        rows = rows[np.argsort(rows[:, 0], kind="stable")][(2 * np.arange(k) + 1) * len(rows) // (2 * k)]
        begin, ones = np.zeros(n, np.int64), np.ones(n, np.int64)
        return Choices(holes, begin, k * ones, rows, np.full(k, 1.0 / k), ones)


class _Edited:
    def __init__(self, rules: EditingRules, attributes: tuple[str, ...]) -> None:
        self.rules, self.attributes = rules, attributes
        self._numbers = {name: k for k, name in enumerate(rules.rules, 1)}

    def __call__(self, values: Floats, _time: Ints, _group: Ints) -> Filled:
        return expanded(values, self._choices)

    def _choices(self, values: Floats, holes: Ints, _rows: Ints) -> list[Choices]:
        return [self._one(values, holes, int(hole)) for hole in holes]

    def _one(self, values: Floats, holes: Ints, hole: int) -> Choices:
        name, repository = self.attributes[hole], self.rules.repository
        by = tuple(self.rules.rules.get(name, ()))
        places = [self.attributes.index(one) if one in self.attributes else -1 for one in by]
        n = len(values)
        column = repository[name]
        order, first, last = np.argsort(column, kind="stable"), np.zeros(n, np.int64), np.zeros(n, np.int64)
        if by and -1 not in places and not set(places) & set(holes.tolist()):
            width = np.array([self.rules.bins[one] for one in by])
            bins = np.floor(repository.matrix(by).T / width)
            asked = np.floor(values[:, places] / width)
            code = np.unique(np.vstack([bins, asked]), axis=0, return_inverse=True)[1].reshape(-1)
            order = np.lexsort((column, code[: len(column)]))
            ordered = code[: len(column)][order]
            first, last = (np.searchsorted(ordered, code[len(column) :], side=side) for side in ("left", "right"))
        count = last - first
        known, times = np.unique(column, return_counts=True)
        marginal, rest = thinned(known[:, None], times, self.rules.marginal)
        own = np.cumsum(count) - count
        at = np.repeat(first - own, count) + np.arange(int(count.sum()))
        taken = np.concatenate([column[order[at]][:, None], marginal])
        shares = np.concatenate([np.repeat(1.0 / np.maximum(count, 1), count), rest])
        begin = np.where(count > 0, own, len(at))
        way = np.where(count > 0, self._numbers.get(name, 0), 0)
        return Choices(np.array([hole]), begin, np.where(count > 0, count, len(marginal)), taken, shares, way)


def as_points(values: Floats, points: Floats) -> Filled:
    """Rows filled with one number for each hole, in way 0."""
    way = np.where(np.isnan(values), 0, OBSERVED)
    n = len(values)
    return Filled(np.arange(n + 1), np.ascontiguousarray(points), np.ones(n), way)


def _repository(given: Any) -> Repository:
    return given if isinstance(given, Repository) else Repository(given)
