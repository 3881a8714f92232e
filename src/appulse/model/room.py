"""Room for large arrays, in Arrow's memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from appulse.kernels.arrays import Ints

# Bytes that are taken from the memory that the process has.
_SMALL = 1 << 14


def room(shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """An array that is to be filled in.

    What is large NumPy takes from the system, and gives back at once: each call would have new pages, and their first
    touch costs several times what is done with them. Arrow's pool keeps what is freed for the next array.
    """
    kind = np.dtype(dtype)
    size = (math.prod(shape) if isinstance(shape, tuple) else shape) * kind.itemsize
    if size <= _SMALL:
        return np.empty(shape, kind)
    return np.frombuffer(pa.allocate_buffer(size), kind).reshape(shape)


def full(n: int, value: float) -> NDArray[Any]:
    """So many times a value, whole or not as that is."""
    found = room(n, type(value))
    found[:] = value
    return found


def steps(n: int, step: int = 1) -> Ints:
    """So many whole numbers, a step apart: 0, ``step`` and so on."""
    found = full(n, step)
    found[:1] = 0
    return np.cumsum(found, out=found)
