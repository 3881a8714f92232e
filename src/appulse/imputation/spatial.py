"""Values between those of other places: for rows whose attributes are stations, each with a location."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

import numpy as np

from appulse.arguments import NAME, POSITIVE, REAL, Attributes, checked, mapping, several, whole
from appulse.errors import BadArgument, nearest
from appulse.imputation.in_time import Rescaled, Wanted
from appulse.imputation.samples import evenly
from appulse.imputation.simple import SimpleFill
from appulse.model.filled import Fill
from appulse.model.meaning import real, without_defaults

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.filled import Filled
    from appulse.model.meaning import Meaning

_LEAST = 8  # errors that tell anything
_Locations: TypeAlias = Annotated[
    Mapping[str, Sequence[float]],
    mapping(NAME, several(REAL, "coordinates", least=1), "a mapping from attributes to coordinates", least=2),
]
_Power: TypeAlias = Annotated[float, POSITIVE]


@checked
class SpatialImputer:
    """Fills a hole with the mean of the row's other attributes, weighted by nearness, with the distribution of errors.

    All holes of a row are filled together, with errors made in one row; where hardly any row has all of them,
    independently. An attribute that is hardly ever there makes a reject.

    Arguments:
    * ``locations``: a mapping from attributes, at least two, to coordinates in a plane, in any unit: the stations whose
      readings they are.
    * ``power``: weights are 1 / distance to this power, above 0; stations at no distance leave nothing to the others.
    * ``k``: the number of samples, 1 to 65,536. The errors are those that this makes without the attributes of the
      holes, in rows that have these, where it predicted much the same: ``k`` of the ``3 * k`` nearest, evenly.

    Pass it as ``imputer`` to `impute` and joins; it needs whole frames.

    Raises `BadArgument` for a wrong argument, and in a call for an attribute without a location or where rows come
    piece by piece.

    >>> a = [float(i) for i in range(30)]
    >>> rows = pa.table({"id": range(30), "t": range(30), "a": a, "b": [x + 1 for x in a[:-1]] + [None]})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("a", "b"))
    >>> imputer = ap.SpatialImputer({"a": (0.0, 0.0), "b": (1.0, 0.0)}, k=2)
    >>> ap.impute(stream, imputer).frame["imputed"][29][0].as_py()
    [29.0, 30.0]
    """

    def __init__(self, locations: _Locations, power: _Power = 2.0, k: Annotated[int, whole(1, 1 << 16)] = 16) -> None:
        self.locations = {name: tuple(at) for name, at in locations.items()}
        self.power, self.k = power, k
        if len({len(at) for at in self.locations.values()}) > 1:
            raise BadArgument("SpatialImputer(locations=) has places of different numbers of coordinates.")

    @checked
    def bind(self, attributes: Attributes) -> Fill:
        """The object that fills rows with these attributes."""
        for name in attributes:
            if name not in self.locations:
                raise BadArgument(
                    f"SpatialImputer has no location of {name!r}, which the stream's value has."
                    f"{nearest(name, self.locations)}"
                )
        meaning: Meaning = {
            "kind": "SpatialImputer",
            "locations": {name: [real(x) for x in self.locations[name]] for name in attributes},
            "power": real(self.power),
            "k": self.k,
        }
        meaning = without_defaults(meaning, {"power": real(2.0), "k": 16})
        places = np.array([self.locations[name] for name in attributes], np.float64)
        return SimpleFill(
            ("inverse distance",), meaning, Rescaled(_Between(_weights(places, self.power), self.k)), in_order=True
        )


def _weights(places: Floats, power: float) -> Floats:
    """The weight of each attribute for each other one, (d, d): at most 1, or infinity at no distance."""
    apart = np.sqrt(((places[:, None] - places) ** 2).sum(axis=2))
    np.fill_diagonal(apart, np.inf)
    same = apart == 0.0
    apart[same] = np.inf
    nearest_one = np.minimum(apart.min(axis=1, keepdims=True), np.finfo(float).max)
    found: Floats = np.where(same, np.inf, (nearest_one / apart) ** power)
    return found


def _means(values: Floats, there: Flags, weights: Floats) -> Floats:
    """The means of what is there in each row, by each row of weights; NaN where none of it has any."""
    total = there @ weights.T
    with np.errstate(invalid="ignore", divide="ignore"):
        between = np.where(there, values, 0.0) @ weights.T / total
    return np.where(total > 0.0, between, np.nan)


class _Between:
    def __init__(self, weights: Floats, k: int) -> None:
        self.weights, self.k = weights, k

    def __call__(self, values: Floats, _time: Ints, _group: Ints, wanted: Wanted) -> Filled:
        there = ~np.isnan(values)

        def samples(holes: Ints, rows: Ints) -> Floats:
            between = self._means(values, there, holes)
            known = np.flatnonzero(there[:, holes].all(axis=1) & ~np.isnan(between).any(axis=1))
            if len(known) < _LEAST:
                return self._apart(values, between, rows, holes)
            errors = self._errors(between[known], (values[:, holes] - between)[known], between[rows])
            return between[rows][:, None] + errors

        return evenly(values, lambda holed: [samples(*each) for each in holed], wanted)

    def _means(self, values: Floats, there: Flags, holes: Ints) -> Floats:
        """What the others say of some attributes in every row, (n, holes), as if all of these were missing."""
        weights = self.weights[holes].copy()
        weights[:, holes] = 0.0
        here = np.isinf(weights)
        between = _means(values, there, np.where(here, 0.0, weights))
        if not here.any():
            return between
        beside = _means(values, there, here.astype(np.float64))
        return np.where(np.isnan(beside), between, beside)

    def _apart(self, values: Floats, between: Floats, rows: Ints, holes: Ints) -> Floats:
        """Errors of each attribute by itself, where hardly any rows have all of them: independent of each other."""
        n, k = len(rows), self.k
        table = np.full((n, k, len(holes)), np.nan)
        for i, hole in enumerate(holes.tolist()):
            known = np.flatnonzero(~np.isnan(values[:, hole] + between[:, i]))
            if len(known) >= _LEAST:
                own = between[:, i : i + 1]
                errors = self._errors(own[known], values[known, hole][:, None] - own[known], own[rows])[:, :, 0]
                order = np.random.default_rng(hole).permutation(k)
                table[:, :, i] = own[rows] + errors[:, order]
        return table

    def _errors(self, predicted: Floats, errors: Floats, asked: Floats) -> Floats:
        """Errors (n, k, attributes) made in one row each, where much the same was predicted: evenly by the first."""
        level = predicted.mean(axis=1)
        order = np.argsort(level, kind="stable")
        n, near = len(order), min(3 * self.k, len(order))
        begin = np.clip(np.searchsorted(level[order], asked.mean(axis=1)) - near // 2, 0, n - near)
        found = errors[order][begin[:, None] + np.arange(near)]
        evenly = np.argsort(found[:, :, 0], axis=1, kind="stable")[
            :, (2 * np.arange(self.k) + 1) * near // (2 * self.k)
        ]
        return np.take_along_axis(found, evenly[:, :, None], axis=1)
