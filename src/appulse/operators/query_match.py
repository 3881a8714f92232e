"""Which standing queries rows satisfy, and with what probability (Lim et al. 2006, over uncertain rows)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.queries.sets import Rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from appulse.queries.sets import QuerySet


@dataclass(frozen=True)
class Points:
    """The samples of rows, as columns: sample i is of row ``owner[i]`` and weighs ``weight[i]``.

    Both are None where rows are what their columns say, and certain. ``n`` is how many there are.
    """

    columns: Mapping[str, pa.Array]
    n: int
    time: NDArray[np.int64]  # of each sample's row
    owner: NDArray[np.int64] | None = None
    weight: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Matched:
    """Rows, the queries each satisfies by slot, and with what probability."""

    row: NDArray[np.int64]
    slot: NDArray[np.int32]
    probability: NDArray[np.float64]


def match(queries: QuerySet, points: Points, threshold: float | None) -> Matched:
    """The pairs of rows and queries with a probability of at least ``threshold``; None: any that is possible."""
    queries.tidy()
    found, slots = queries.match(Rows(points.columns, points.time), points.n, counted=points.owner is None)
    if points.owner is None or points.weight is None:
        return _ordered(Matched(found.astype(np.int64), slots, np.ones(len(slots))))
    pairs = points.owner[found] << 32 | slots
    distinct, which = np.unique(pairs, return_inverse=True)
    probability = np.bincount(which, weights=points.weight[found], minlength=len(distinct))
    stays = probability >= threshold if threshold is not None else probability > 0.0
    distinct = distinct[stays]
    slots = (distinct & 0xFFFFFFFF).astype(np.int32)
    queries.count(slots)  # rows, not their samples
    return Matched(distinct >> 32, slots, np.minimum(probability[stays], 1.0))


def _ordered(matched: Matched) -> Matched:
    """By row; clusters of points come back in another order."""
    if (np.diff(matched.row) >= 0).all():
        return matched
    order = np.argsort(matched.row, kind="stable")
    return Matched(matched.row[order], matched.slot[order], matched.probability[order])
