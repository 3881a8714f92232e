"""Types of the flat arrays that kernels take, and groups of arrays that many of them share.

Shapes are in their docstrings. A group is a type of its own to Numba: each array in it keeps one type and one layout,
and an array that is not there is an empty one, never None.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Floats32: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]
Ints32: TypeAlias = NDArray[np.int32]
Hashes: TypeAlias = NDArray[np.uint64]
Flags: TypeAlias = NDArray[np.bool_]
ByteArray: TypeAlias = NDArray[np.uint8]
Whole: TypeAlias = int | np.int64


class RowPairs(NamedTuple):
    """Rows ``left[i]`` of one window against rows ``right[i]`` of another; pairs of one left row follow each other."""

    left: Ints
    right: Ints


class Samples(NamedTuple):
    """Masses and samples of rows: those of row i are ``values[begin[i] - base :][: length[i]]``, by dimension.

    ``weights`` is empty where all samples of a row weigh the same.
    """

    mass: Floats
    values: Floats
    begin: Ints
    length: Ints  # samples times dimensions
    base: int
    weights: Floats
    weights_begin: Ints
    weights_base: int


class Moments(NamedTuple):
    """What bounds go by, of each row; ``covariance`` has rows of the upper triangle, ``shape`` higher moments."""

    mass: Floats
    centre: Floats
    radius: Floats
    covariance: Floats
    shape: Floats


class Sampled(NamedTuple):
    """Rows with samples, and their moments."""

    samples: Samples
    moments: Moments


class SampleRun(NamedTuple):
    """The ``n`` samples of one row: where they begin, and their weights; whole arrays, as views would be counted."""

    values: Floats
    at: int
    weights: Floats
    weights_at: int
    n: int
