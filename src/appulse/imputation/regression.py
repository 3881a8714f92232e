"""Linear regression with the errors that it makes nearby: for attributes that are close to sums of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.arguments import Attributes, Count, checked
from appulse.imputation.learning import FEW, MOST_SEEN, closest, correlations, learnable
from appulse.imputation.repository import Repository
from appulse.imputation.samples import evenly
from appulse.imputation.simple import SimpleFill
from appulse.kernels import least_squares as kernels
from appulse.kernels.similar_rows import nearest_in_unit
from appulse.model.filled import Fill
from appulse.model.meaning import without_defaults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.filled import Filled


@checked
class RegressionImputer:
    """Fills holes by linear regression on the observed attributes, with the distribution of its errors at similar rows.

    The regression is of least squares over a repository, for each set of holes; an attribute that never varies in the
    repository is left out. All holes of a row are filled together. Samples are values that need not occur in the
    repository.

    Arguments:
    * ``repository``: any frame of complete rows.
    * ``k``: the number of samples. The errors are those that it makes at the ``3 * k`` rows nearest in the observed
      attributes, each in units of its deviation: every third of them in order, so that ``k`` samples say as much as
      three times as many would by chance.

    Pass it as ``imputer`` to `impute` and joins.

    Raises `BadArgument` for a wrong argument or an unfit repository.

    >>> known = pa.table({"x": [float(i) for i in range(40)], "y": [2.0 * i for i in range(40)]})
    >>> rows = pa.table({"id": [1], "t": [0], "x": [2.5], "y": pa.array([None], pa.float64())})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y"))
    >>> samples = ap.impute(stream, ap.RegressionImputer(known, k=4)).frame["imputed"][0].as_py()
    >>> round(sum(y for _, y in samples) / len(samples), 6)
    5.0
    """

    def __init__(self, repository: Any, k: Count = 64) -> None:
        self.repository = repository if isinstance(repository, Repository) else Repository(repository)
        self.k = k

    @checked
    def bind(self, attributes: Attributes) -> Fill:
        """The object that fills rows with these attributes."""
        meaning = {"kind": "RegressionImputer", "repository": self.repository.meaning(), "k": self.k}
        meaning = without_defaults(meaning, {"k": 64})
        return SimpleFill(("regression",), meaning, _Regression(self.repository, attributes, self.k))


class _Regression:
    def __init__(self, repository: Repository, attributes: Sequence[str], k: int) -> None:
        rows = np.ascontiguousarray(repository.matrix(attributes).T)
        self.rows, self.near = rows, 3 * k
        self.scale = kernels.Scale(*repository.units(attributes))
        self.there = ~np.isnan(rows)
        self.likeness = correlations(rows) if rows.shape[1] > MOST_SEEN else None
        self._known: dict[bytes, tuple[Ints, Any, Floats, Floats]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_known": {}}

    def __call__(self, values: Floats, _time: Ints, _group: Ints) -> Filled:
        return evenly(values, lambda holed: [self._samples(values[rows], holes) for holes, rows in holed])

    def _samples(self, values: Floats, holes: Ints) -> Floats:
        seen, known, weights, errors = self._fitted(holes, values.shape[1])
        n, near = len(values), min(self.near, len(errors))
        if near == 0:  # nothing is known of what is missing
            return np.full((n, 1, len(holes)), np.nan)
        asked = kernels.in_units(values, seen, self.scale.deviation)
        if len(seen) == 0:
            place = np.tile(np.arange(near) * len(errors) // near, (n, 1))
        elif isinstance(known, np.ndarray):
            place = nearest_in_unit(known, asked, near)
        else:
            place = known.query(asked.T, k=np.arange(1, near + 1))[1]
        samples: Floats = kernels.around(values, seen, holes, weights, errors, place, self.scale)
        return samples

    def _fitted(self, holes: Ints, d: int) -> tuple[Ints, Any, Floats, Floats]:
        """What is learned from, a tree of it if it is long, the weights, and the errors, for a set of holes."""
        if holes.tobytes() not in self._known:
            seen = np.delete(np.arange(d), holes)
            seen = seen if self.likeness is None else closest(self.likeness, holes, seen)
            places, seen = learnable(self.there, holes, seen)
            rows = self.rows[places]
            weights, errors = kernels.fitted(rows, seen, holes, self.scale)
            known: Any = kernels.in_units(rows, seen, self.scale.deviation)
            if len(rows) > FEW:
                from scipy.spatial import cKDTree

                known = cKDTree(known.T) if len(seen) else None
            self._known[holes.tobytes()] = seen, known, weights, errors
        return self._known[holes.tobytes()]
