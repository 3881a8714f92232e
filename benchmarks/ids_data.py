"""Data sets and rules of the claims of Ren et al. 2019."""

from __future__ import annotations

from typing import TYPE_CHECKING

import appulse as ap
from benchmarks import incomplete_data as data_sets

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.incomplete_data import DataSet


def all_of(n: int, d: int, repository: int) -> dict[str, Callable[[], DataSet]]:
    """The data sets by name; synthetic ones have d attributes."""
    return data_sets.all_of(n, repository) | {
        "uniform": lambda: data_sets.uniform(n, d, repository),
        "correlated": lambda: data_sets.correlated(n, d, repository),
        "anticorrelated": lambda: data_sets.anticorrelated(n, d, repository),
    }


def imputer_of(data: DataSet, width: float, marginal: int = 256) -> ap.DependencyImputer:
    """A rule for each attribute by each of the next three, all with the same tolerance."""
    names = data.names
    rules = [
        ap.DifferentialDependency({names[(k + step) % len(names)]: width}, name, 10.0)
        for k, name in enumerate(names)
        for step in range(1, min(len(names), 4))
    ]
    return ap.DependencyImputer(data.complete, rules, marginal=marginal, verified=())
