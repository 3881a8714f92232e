"""The matching pairs of samples behind answers: Dallachiesa et al. 2015, Eq. 20."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from appulse.model.batch import Batch

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats


@dataclass(frozen=True)
class Pairings(Batch):
    """Pairs of points, shape (m, d), and what each adds to the probability of its answer."""

    left: Floats
    right: Floats
    weight: Floats
