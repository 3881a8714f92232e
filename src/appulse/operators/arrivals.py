"""The rows of one push, in the order in which a join takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.model.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Floats, Ints
    from appulse.operators.store import WindowBuffer


@dataclass(frozen=True)
class Arrivals(Batch):
    """The arrivals of a push in tick order, over all stores.

    ``centre`` is (n, 0) where pairs are found by products: these have places of many coordinates, and `places` has
    those of some of them.
    """

    time: Ints
    store: Ints
    row: Ints
    centre: Floats
    extent: Floats
    mass: Floats
    variance: Floats
    group: Ints
    differ: Ints
    frame: Ints

    def places(self, stores: Sequence[WindowBuffer], some: Ints) -> Floats:
        """Where some of the arrivals are, as their stores have it."""
        own, row = self.store[some], self.row[some]
        given = np.unique(own).tolist()
        if len(given) == 1:
            alone: Floats = stores[given[0]].centre.view[row]
            return alone
        found = np.empty((len(some), stores[0].d))
        for i in given:
            found[own == i] = stores[i].centre.view[row[own == i]]
        return found
