"""Which rows are audited."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel
from appulse.kernels.legs import mixed

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Hashes, Ints


@exact_kernel
def choose(time: Ints, centre: Floats, words: Hashes, below: np.uint64, some: Flags) -> None:
    """Mark the rows whose hash of time and place, in 53 bits, is ``below``; ``words`` is room for a row's place."""
    place = words.view(np.float64)
    for i in range(time.shape[0]):
        for k in range(place.shape[0]):
            place[k] = centre[i, k] + 0.0  # zeros of both signs are one place
        word = np.uint64(time[i])
        for k in range(place.shape[0]):
            word = mixed(word, words[k])
        word = mixed(word, np.uint64(0))
        some[i] = (word >> np.uint64(11)) < below
