"""Sample coordinates as float32 offsets from an origin, where that loses nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints


@exact_kernel
def offsets_fit(first: Ints, samples: Floats, origin: Floats, out: NDArray[np.float32]) -> bool:
    """Fill ``out`` with offsets; False as soon as one of them would not restore its coordinate exactly."""
    d = origin.shape[1]
    for i in range(origin.shape[0]):
        begin = first[i] * d
        n = first[i + 1] - first[i]
        for k in range(d):
            for s in range(n):
                at = begin + k * n + s
                out[at] = np.float32(samples[at] - origin[i, k])
                if origin[i, k] + np.float64(out[at]) != samples[at]:
                    return False
    return True


@exact_kernel
def restore(first: Ints, offsets: NDArray[np.float32], origin: Floats) -> Floats:
    """The coordinates behind the offsets."""
    d = origin.shape[1]
    out = np.empty(offsets.shape[0], np.float64)
    for i in range(origin.shape[0]):
        begin = first[i] * d
        n = first[i + 1] - first[i]
        for k in range(d):
            for s in range(n):
                out[begin + k * n + s] = origin[i, k] + np.float64(offsets[begin + k * n + s])
    return out
