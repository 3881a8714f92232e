"""The rows of one push, in the order in which a join takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from appulse.model.batch import Batch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Arrivals(Batch):
    """The arrivals of a push in tick order, over all stores."""

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
