"""The matching pairs of samples behind answers: Dallachiesa et al. 2015, Eq. 20."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.model.batch import Batch

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats


@dataclass(frozen=True)
class Pairings(Batch):
    """Pairs of points, shape (m, d), and what each adds to the probability of its answer."""

    left: Floats
    right: Floats
    weight: Floats

    def swapped(self, swap: Flags) -> Pairings:
        """With left and right exchanged where ``swap`` says so."""
        mask = swap[:, None]
        left, right = np.where(mask, self.right, self.left), np.where(mask, self.left, self.right)
        return Pairings(left, right, self.weight)
