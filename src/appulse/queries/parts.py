"""A set of queries in parts that lie apart in space, and the parts that a row may satisfy something of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.queries.index import MOST, NULL, Tree

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Ints
    from appulse.queries.rows import Rows
    from appulse.queries.sets import QuerySet


@dataclass(frozen=True)
class Parts:
    """The hulls of some parts of a set: ``lows`` and ``highs`` (parts, axes), closed, as keys along ``axes``."""

    axes: tuple[str, ...]
    lows: Ints
    highs: Ints

    def met(self, rows: Rows, n: int) -> Flags:
        """Which of n rows lie in the hull of which part, as (part, row)."""
        inside = np.ones((len(self.lows), n), bool)
        for i, axis in enumerate(self.axes):
            least, most = rows.window(axis)
            inside &= (most >= self.lows[:, i, None]) & (least <= self.highs[:, i, None])
        return inside


def parted(queries: QuerySet, count: int) -> tuple[Parts, list[Ints]]:
    """A set in so many parts or fewer, of about one size, and the slots in each; those that never match are in none.

    Queries are put in the order of the leaves of a tree of their hulls, by which such as lie close together, and are
    alike in size, stand side by side (Lim et al. 2006: a box is a point of twice the dimensions).
    """
    axes, lows, highs, slots = _hulls(queries)
    if not len(slots):
        return Parts((), np.empty((0, 0), np.int64), np.empty((0, 0), np.int64)), []
    order = np.arange(len(slots), dtype=np.int32)
    if axes:
        order = Tree(lows, highs, order).entries
        order = order[order >= 0]
    members = [part for part in np.array_split(order, min(count, len(order))) if len(part)]
    least = np.stack([lows[:, part].min(axis=1) for part in members])
    most = np.stack([highs[:, part].max(axis=1) for part in members])
    # Axes along which some part is bounded.
    kept = np.flatnonzero(((least != NULL) | (most != MOST)).any(axis=0))
    known = tuple(axes[i] for i in kept.tolist())
    return Parts(known, least[:, kept], most[:, kept]), [np.sort(slots[part]) for part in members]


def _hulls(queries: QuerySet) -> tuple[list[str], Ints, Ints, Ints]:
    """The axes there are, and around the boxes of each query that may match its lows, highs (axes, n) and slot."""
    axes, lows, highs, entries = queries.boxes()
    order = np.argsort(entries, kind="stable")
    slots, first = np.unique(entries[order], return_index=True)
    lows, highs = lows[:, order], highs[:, order]
    if len(slots):
        lows, highs = np.minimum.reduceat(lows, first, axis=1), np.maximum.reduceat(highs, first, axis=1)
    return axes, lows, highs, slots.astype(np.int64)
