"""Bins of values, by keys that keep their order; and numbers mixed for hashing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel, inlined_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Hashes, Ints, Whole


@exact_kernel
def bin_key(value: float, width: float) -> Whole:
    """Which bin a value lies in: the bits of ``floor(value / width)``, which has no largest, in the order of bins."""
    bits = np.float64(np.floor(value / width) + 0.0).view(np.int64)
    return bits ^ np.int64(0x7FFFFFFFFFFFFFFF) if bits < 0 else bits


@exact_kernel
def bin_floors(keys: Ints, floors: Floats) -> None:
    """``floor(value / width)`` of bins."""
    for i in range(len(keys)):
        bits = keys[i] ^ np.int64(0x7FFFFFFFFFFFFFFF) if keys[i] < 0 else keys[i]
        floors[i] = np.int64(bits).view(np.float64)


@exact_kernel
def bin_keys(values: Floats, width: float, keys: Ints) -> None:
    """`bin_key` of many values."""
    for i in range(len(values)):
        keys[i] = bin_key(values[i], width)


@exact_kernel
def mixed(values: Hashes) -> Hashes:
    """Each number's bits, mixed so that any of them tell numbers apart."""
    out = np.empty_like(values)
    for i in range(len(values)):
        z = values[i] * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        out[i] = z ^ (z >> np.uint64(27))
    return out


@inlined_kernel
def hash_of_two(a: Whole, b: Whole) -> Whole:
    """A hash of two numbers, of 32 bits."""
    z = (np.uint64(a) ^ np.uint64(b) * np.uint64(0xD1342543DE82EF95)) * np.uint64(0x9E3779B97F4A7C15)
    z ^= z >> np.uint64(29)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64(z >> np.uint64(32))
