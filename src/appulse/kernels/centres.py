"""Columns of coordinates as rows, checked while they are moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats

_LARGEST = np.finfo(np.float64).max


@exact_kernel
def pairs(x: Floats, y: Floats, out: Floats) -> bool:
    """Write rows (n, 2) of two columns; whether all are finite. In one pass, which memory bounds."""
    strange = 0
    for i in range(len(out)):
        strange += int(not abs(x[i]) <= _LARGEST) + int(not abs(y[i]) <= _LARGEST)
        out[i, 0], out[i, 1] = x[i], y[i]
    return strange == 0


@exact_kernel
def triples(x: Floats, y: Floats, z: Floats, out: Floats) -> bool:
    """The same of three columns."""
    strange = 0
    for i in range(len(out)):
        strange += int(not abs(x[i]) <= _LARGEST) + int(not abs(y[i]) <= _LARGEST) + int(not abs(z[i]) <= _LARGEST)
        out[i, 0], out[i, 1], out[i, 2] = x[i], y[i], z[i]
    return strange == 0
