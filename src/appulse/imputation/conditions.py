"""Conditional dependencies: rules that hold more tightly where some attribute lies in a range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.imputation.dependencies import within
from appulse.imputation.repository import Constraints, Index, Repository

if TYPE_CHECKING:
    from collections.abc import Mapping

    from appulse.kernels.arrays import Floats, Ints

#: Parts of as many rows each that an attribute's values are cut into; ranges are runs of them.
PARTS = 8
#: A range is worth a rule if it halves the tolerance, and so many (ordered) pairs of close rows say so.
GAIN, LEAST_PAIRS = 0.5, 8
_PAIRS = 200_000  # pairs of close rows that are looked at
_ROW = "\0row"


@dataclass(frozen=True)
class Condition:
    """A closed range of an attribute, and the least tolerance that holds inside it for pairs of close rows."""

    name: str
    low: float
    high: float
    tolerance: float
    pairs: int


def conditions(
    repository: Repository, close: Mapping[str, float], dependent: str, confidence: float, tolerance: float
) -> list[Condition]:
    """Ranges in which rows that are close differ by much less than ``tolerance`` in the dependent, tightest first.

    Of each attribute but the dependent these are the longest ranges, from one quantile to another of 1/8, 2/8, ..., in
    which at most `GAIN` of the tolerance holds for the share ``confidence`` of pairs. All close pairs tell, or those of
    evenly spaced rows where there are more than some 200,000.
    """
    if tolerance == 0.0:
        return []
    a, b = close_pairs(repository, close)
    differences = np.abs(repository[dependent][a] - repository[dependent][b])
    found: list[Condition] = []
    for name in repository.names:
        if name == dependent:
            continue
        ends = _ends(repository[name])
        parts = np.searchsorted(ends, repository[name], side="right")
        first, last = np.minimum(parts[a], parts[b]), np.maximum(parts[a], parts[b])
        tight = {}
        for i in range(len(ends) + 1):
            for j in range(i, len(ends) + 1):
                inside = differences[(first >= i) & (last <= j)]
                if j - i == len(ends) or len(inside) < LEAST_PAIRS:
                    continue
                least = least_tolerance(inside, confidence)
                if least <= GAIN * tolerance:
                    tight[i, j] = least, len(inside)
        for (i, j), (least, pairs) in tight.items():
            if not any(k <= i and j <= m and (k, m) != (i, j) for k, m in tight):
                own = repository[name][(parts >= i) & (parts <= j)]
                found.append(Condition(name, float(own.min()), float(own.max()), least, pairs))
    return sorted(found, key=lambda one: (one.tolerance, -one.pairs, one.name, one.low))


def close_pairs(repository: Repository, close: Mapping[str, float], most: int = _PAIRS) -> tuple[Ints, Ints]:
    """Ordered pairs of different rows that are close: all, or those of evenly spaced rows."""
    n = len(repository)
    columns = {name: repository[name] for name in close} | {_ROW: np.arange(n, dtype=np.float64)}
    index = Index(Repository.of(columns, ""), tuple(close), (_ROW,), list(close.values()))
    node = Constraints(1, tuple(close))
    node.add(0, {name: within(width) for name, width in close.items()}, {})
    rows = repository.matrix(tuple(close)).T
    few = (np.arange(min(n, 256)) * n) // min(n, 256)
    pairs = float(index.count(rows[few], node, 0).mean()) * n
    asked = n if pairs <= most else max(min(n, 256), int(n * most / pairs))
    sample = (np.arange(asked) * n) // asked
    _, first, other, _ = index.fill(rows[sample], np.zeros(1, np.int64), node)
    own = np.repeat(sample, np.diff(first))
    apart = own != other  # the values of the index are the row numbers, in order
    return own[apart], other[apart]


def least_tolerance(differences: Floats, confidence: float) -> float:
    """The least of the differences that the share ``confidence`` of them does not exceed."""
    at = max(0, math.ceil(confidence * len(differences) * (1.0 - 1e-12)) - 1)
    return float(np.partition(differences, at)[at])


def _ends(values: Floats) -> Floats:
    """Where parts of as many rows each end and the next begin, each value in one part."""
    return np.unique(np.quantile(values, np.arange(1, PARTS) / PARTS, method="higher"))
