"""Times in microseconds, in one pass over a column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints


@exact_kernel
def rounded_times(given: Floats, per: float, most: float, out: Ints, strange: Flags) -> int:
    """The nearest whole number to each times ``per``; 0 where it is no number, or ``most`` or more: how many are so."""
    many = 0
    for i in range(len(given)):
        value = np.rint(given[i] * per)
        known = abs(value) < most
        out[i] = np.int64(value if known else 0.0)
        strange[i] = not known
        many += not known
    return many


@exact_kernel
def scaled_times(given: Ints, per: int, most: float, out: Ints, strange: Flags) -> int:
    """Each times ``per``; 0 where that is ``most`` or more: how many are so."""
    many = 0
    for i in range(len(given)):
        known = abs(np.float64(given[i])) * per < most
        out[i] = given[i] * per if known else 0
        strange[i] = not known
        many += not known
    return many
