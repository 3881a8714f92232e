"""Types of the flat arrays that kernels take; shapes are in their docstrings."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Hashes: TypeAlias = NDArray[np.uint64]
Flags: TypeAlias = NDArray[np.bool_]
ByteArray: TypeAlias = NDArray[np.uint8]
Whole: TypeAlias = int | np.int64
