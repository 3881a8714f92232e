"""Room for large arrays, in Arrow's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


def room(shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """An array that is to be filled in.

    What is large NumPy takes from the system, and gives back at once: each call would have new pages, and their first
    touch costs several times what is done with them. Arrow's pool keeps what is freed for the next array.
    """
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    return np.frombuffer(pa.allocate_buffer(size), kind).reshape(shape)
