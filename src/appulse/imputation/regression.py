"""Linear regression with the errors that it makes nearby: for attributes that are close to sums of others."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.arguments import Attributes, Count, checked
from appulse.imputation.repository import Repository
from appulse.imputation.samples import Choices, every_third, expanded
from appulse.imputation.simple import SimpleFill
from appulse.model.filled import Fill

if TYPE_CHECKING:
    from appulse.imputation.repository import Floats, Ints
    from appulse.model.filled import Filled


@checked
class RegressionImputer:
    """Fills holes with what a linear regression on the observed attributes foretells, give or take its errors nearby.

    The regression is of least squares over a repository, for each set of holes; the errors are those it makes at the
    ``3 * k`` rows nearest in the observed attributes, each in units of its deviation: every third of them in order, so
    that ``k`` samples tell as much as three times as many would by chance. All holes of a row are filled together.
    Samples are values that need not occur in the repository.
    """

    def __init__(self, repository: Any, k: Count = 64) -> None:
        self.repository = repository if isinstance(repository, Repository) else Repository(repository)
        self.k = k

    @checked
    def bind(self, attributes: Attributes) -> Fill:
        """What fills rows with these attributes."""
        told = blake2b(f"regression {self.k} {self.repository.version}".encode(), digest_size=8).hexdigest()
        return SimpleFill(("regression",), told, _Regression(self.repository.matrix(attributes).T, self.k))


class _Regression:
    def __init__(self, rows: Floats, k: int) -> None:
        self.rows, self.near = rows, min(3 * k, len(rows))
        self.scale = np.maximum(rows.std(axis=0), 1e-300)
        self._known: dict[bytes, tuple[Any, Floats, Floats]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_known": {}}

    def __call__(self, values: Floats, _time: Ints, _group: Ints) -> Filled:
        return expanded(values, self._choices)

    def _choices(self, values: Floats, holes: Ints, _rows: Ints) -> list[Choices]:
        seen = np.setdiff1d(np.arange(values.shape[1]), holes)
        tree, weights, errors = self._fitted(seen, holes)
        n = len(values)
        _, place = tree.query(values[:, seen] / self.scale[seen], k=np.arange(1, self.near + 1))
        samples = (_with_one(values[:, seen]) @ weights)[:, None, :] + every_third(errors[place])
        k = samples.shape[1]
        begin, count = np.arange(n) * k, np.full(n, k)
        shares = np.full(n * k, 1.0 / k)
        return [Choices(holes, begin, count, samples.reshape(-1, len(holes)), shares, np.zeros(n, np.int64))]

    def _fitted(self, seen: Ints, holes: Ints) -> tuple[Any, Floats, Floats]:
        from scipy.spatial import cKDTree

        if holes.tobytes() not in self._known:
            given = _with_one(self.rows[:, seen])
            weights = np.asarray(np.linalg.lstsq(given, self.rows[:, holes], rcond=None)[0], np.float64)
            errors = self.rows[:, holes] - given @ weights
            self._known[holes.tobytes()] = cKDTree(self.rows[:, seen] / self.scale[seen]), weights, errors
        return self._known[holes.tobytes()]


def _with_one(values: Floats) -> Floats:
    return np.column_stack([values, np.ones(len(values))])
