"""The rows of one push, in the order in which a join takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.model.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.operators.store import WindowBuffer


@dataclass(frozen=True)
class Arrivals(Batch):
    """The arrivals of a push in tick order, over all stores.

    ``centre`` is (n, 0) where pairs are found by products: these have places of many coordinates, and `places` has
    those of some of them.
    """

    time: NDArray[np.int64]
    store: NDArray[np.int64]
    row: NDArray[np.int64]
    centre: NDArray[np.float64]
    extent: NDArray[np.float64]
    mass: NDArray[np.float64]
    variance: NDArray[np.float64]
    group: NDArray[np.int64]
    differ: NDArray[np.int64]
    frame: NDArray[np.int64]

    def places(self, stores: Sequence[WindowBuffer], some: NDArray[np.int64]) -> NDArray[np.float64]:
        """Where some of the arrivals are, as their stores have it."""
        own, row = self.store[some], self.row[some]
        given = np.unique(own).tolist()
        if len(given) == 1:
            alone: NDArray[np.float64] = stores[given[0]].centre.view[row]
            return alone
        found = np.empty((len(some), stores[0].d))
        for i in given:
            found[own == i] = stores[i].centre.view[row[own == i]]
        return found
