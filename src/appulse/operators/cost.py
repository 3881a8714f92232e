"""What an index costs, from a sample of the rows that probe and of those held: which one to take, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Nanoseconds, measured on one machine; what counts is how they compare. A scan takes rows by SIMD and in order, a walk
# along a chain one by one and from anywhere.
_PER_ROW, _PER_LINK, _PER_CELL = 0.9, 6.0, 8.0
_PROBES, _ROWS = 32, 256
# The choice stands until as many rows came as this, or as half of those there are.
_LEAST_STANDING = 1024
# To change the index costs something, too.
_STEADY = 1.3


@dataclass(frozen=True)
class Choice:
    """The index taken, with what made it the better one.

    ``visited`` and ``near`` are shares of the rows: in the cells that a probe looks into, and near enough to it to be
    judged. ``costs`` are in nanoseconds a probe. ``rows`` is how many there were.
    """

    index: str
    rows: int
    visited: float
    near: float
    costs: dict[str, float]

    def stands(self, come: int) -> bool:
        """Whether it need not be made anew, after so many more rows."""
        return come < max(_LEAST_STANDING, self.rows // 2)


def choose(
    probes: NDArray[np.float64],  # centres of rows that probe (n, d)
    reach: NDArray[np.float64],  # theirs
    rows: NDArray[np.float64],  # centres of rows held (n, d)
    extent: NDArray[np.float64],  # their reaches
    dims: NDArray[np.int64],  # those of the grid
    side: float,  # of the grid's cells
    epsilon: float,
    held: str | None,
) -> Choice:
    """Grid or scan: by how many rows lie in cells that a probe looks into."""
    n = len(rows)
    probes, reach = _some(probes, _PROBES), _some(reach, _PROBES)
    rows, extent = _some(rows, _ROWS), _some(extent, _ROWS)
    gap = probes[:, None, :] - rows[None, :, :]
    # A probe looks into all cells within its reach: mostly two along each axis, somewhere around it.
    wide = np.minimum(1.0, np.maximum(0.0, 1.5 - np.abs(gap[:, :, dims]) / side))
    visited = float(wide.prod(axis=2).mean()) if wide.size else 0.0
    near = np.sqrt(np.square(gap).sum(axis=2)) <= epsilon + reach[:, None] + extent[None, :]
    costs = {"scan": _PER_ROW * n, "grid": _PER_LINK * visited * n + _PER_CELL * 3 ** len(dims)}
    best = min(costs, key=lambda name: costs[name] / (_STEADY if name == held else 1.0))
    return Choice(best, n, visited, float(near.mean()) if near.size else 0.0, costs)


def _some(values: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """About ``n`` of the rows, evenly spread."""
    return values[:: max(1, len(values) // n)][:n]
