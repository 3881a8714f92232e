"""Contestants of incomplete joins: imputers from elsewhere, each followed by the same join, and joins of their own.

``ScanImputer`` is that of DD+join (Ren et al. 2019): the same rules in the same order, by a scan for every row.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial import cKDTree

import appulse as ap
from appulse.imputation.samples import Choices, expanded
from appulse.imputation.simple import SimpleFill

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.imputation.imputer import DependencyImputer
    from appulse.model.filled import Fill, Filled

    Matrix = NDArray[np.float64]
    Ints = NDArray[np.int64]

_ROWS = 1 << 32  # more than any stream has


class ScanImputer:
    """The fills of a `DependencyImputer`, from a scan of its repository for every row."""

    def __init__(self, imputer: DependencyImputer) -> None:
        self.imputer = imputer

    def bind(self, attributes: Sequence[str]) -> Fill:
        """What fills rows with these attributes."""
        imputer, names = self.imputer, tuple(attributes)
        repository = imputer.repository.matrix(names)

        def choices(values: Matrix, holes: Ints, _rows: Ints) -> list[Choices]:
            return [self._scanned(values, holes, int(hole), names, repository) for hole in holes]

        def fill(values: Matrix, _time: Ints, _group: Ints) -> Filled:
            return expanded(values, choices)

        return SimpleFill(("scan",), {"kind": "ScanImputer", "of": imputer.meaning()}, fill)

    def _scanned(self, values: Matrix, holes: Ints, hole: int, names: tuple[str, ...], repository: Matrix) -> Choices:
        lattice = self.imputer.lattice((names[hole],), names)
        nodes = lattice.usable(frozenset(names) - {names[k] for k in holes})
        constraints, column = lattice.constraints, repository[hole]
        places = [names.index(axis) for axis in lattice.axes]
        marginal = lattice.marginal(self.imputer.most_marginal)
        found, shares = [], []
        for row in values:
            for v in nodes.tolist():
                inside = np.ones(len(column), bool)
                for axis, place in enumerate(places):
                    if constraints.used[v, axis]:
                        limit = constraints.limits[v, axis]
                        inside &= (repository[place] >= row[place] - limit) & (repository[place] <= row[place] + limit)
                if inside.any():
                    known, times = np.unique(column[inside], return_counts=True)
                    found.append(known[:, None])
                    shares.append(times / times.sum())
                    break
            else:
                found.append(marginal[0])
                shares.append(marginal[1])
        count = np.array([len(own) for own in shares], np.int64)
        begin, way = np.cumsum(count) - count, np.zeros(len(values), np.int64)
        return Choices(np.array([hole]), begin, count, np.concatenate(found), np.concatenate(shares), way)


def scikit(name: str, names: Sequence[str], repository: Any) -> ap.PointImputer:
    """``KNNImputer`` or ``IterativeImputer`` of scikit-learn, fitted on a repository."""
    import_module("sklearn.experimental.enable_iterative_imputer")
    kind = getattr(import_module("sklearn.impute"), name)
    return ap.PointImputer(kind(), names, repository)


def coded(left: Ints, right: Ints) -> Ints:
    """Pairs of row numbers as one number each."""
    return np.asarray(left, np.int64) * _ROWS + np.asarray(right, np.int64)


def close_pairs(left: Matrix, right: Matrix, epsilon: float, window: int) -> Ints:
    """Pairs of complete rows, one a second each, within epsilon and at most ``window`` seconds apart, in order."""
    found = cKDTree(right).query_ball_point(left, epsilon + 1e-9 * max(1.0, epsilon))
    i = np.repeat(np.arange(len(left)), [len(near) for near in found])
    j = np.array([j for near in found for j in near], np.int64)
    kept = np.abs(i - j) <= window
    return np.sort(coded(i[kept], j[kept]))


def ignoring(left: Matrix, right: Matrix, epsilon: float, window: int) -> Ints:
    """Pairs within epsilon by the attributes that both rows have; what is missing is taken to be equal."""
    found = []
    for shift in range(-window, window + 1):
        i = np.arange(max(0, -shift), min(len(left), len(right) - shift))
        square = np.nansum((left[i] - right[i + shift]) ** 2, axis=1)
        near = i[square <= epsilon**2]
        found.append(coded(near, near + shift))
    return np.sort(np.concatenate(found))
