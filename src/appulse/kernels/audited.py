"""Which rows are audited."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel
from appulse.kernels.legs import mixed

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints


@exact_kernel
def choose(time: Ints, centre: Floats, below: np.uint64, some: Flags) -> None:
    """Mark the rows whose hash of time and place, in 53 bits, is ``below``."""
    words = (centre + 0.0).view(np.uint64)  # zeros of both signs are one place
    for i in range(time.shape[0]):
        word = np.uint64(time[i])
        for k in range(words.shape[1]):
            word = mixed(word, words[i, k])
        some[i] = (mixed(word, np.uint64(0)) >> np.uint64(11)) < below
