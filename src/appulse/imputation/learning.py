"""Rows to learn from where many have holes: those that have what is asked of them, not only complete ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels import regressions as kernels

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints

#: Attributes that are learned from at most: more tell little, and make rows that have all of them rare.
MOST_SEEN = 16
#: Rows of which the nearest are found sooner by a look at all than by a tree.
FEW = 4096


def learnable(there: Flags, holes: Ints, seen: Ints) -> tuple[Ints, Ints]:
    """Rows that have the attributes of the holes and those seen, and these: fewer where too few rows have all.

    ``there`` (n, d) says what rows have. As long as there are too few, the attribute is left out that costs the most
    rows.
    """
    found: tuple[Ints, Ints] = kernels.learnable(there, np.arange(len(there)), holes, seen)
    return found


def closest(likeness: Floats, holes: Ints, seen: Ints) -> Ints:
    """Of many attributes seen, those most like the holes' by ``likeness`` (d, d)."""
    if len(seen) <= MOST_SEEN:
        return seen
    order = np.argsort(-likeness[np.ix_(holes, seen)].max(axis=0), kind="stable")
    return np.sort(seen[order[:MOST_SEEN]])


def correlations(rows: Floats) -> Floats:
    """How much each two attributes go together, (d, d), over the rows that have both; 0 where that is not known."""
    there = ~np.isnan(rows)
    count = there.T.astype(float) @ there
    off = np.where(there, rows - _middle(rows), 0.0)
    spread = np.sqrt((off**2).T @ there) + 1e-300
    with np.errstate(all="ignore"):
        found = np.abs(off.T @ off) / (spread * spread.T)
    return np.where((count >= kernels.LEAST_ROWS) & np.isfinite(found), found, 0.0)


def _middle(rows: Floats) -> Floats:
    there = ~np.isnan(rows)
    total: Floats = np.where(there, rows, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)
    return total
