"""The newest time of a batch, and the newest of any other key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import ByteArray, Ints


@kernel
def _key(offsets: Ints, data: ByteArray, i: int) -> int:
    """A number for a key: its FNV-1a hash."""
    h = np.uint64(0xCBF29CE484222325)
    for k in range(offsets[i], offsets[i + 1]):
        h = (h ^ np.uint64(data[k])) * np.uint64(0x100000001B3)
    return int(h >> np.uint64(1))


@kernel
def key_numbers(offsets: Ints, data: ByteArray, out: Ints) -> None:
    """The numbers of all keys."""
    for i in range(out.shape[0]):
        out[i] = _key(offsets, data, i)


@kernel
def newest_two(time: Ints, offsets: Ints, data: ByteArray, known: Ints) -> int:
    """Bring ``known`` up to date: the newest time, the number of its key, the newest time of any other key.

    A fourth number counts how often the newest time moved on. Returns the row that is newest, or -1 if none is newer
    than what was known. One pass: keys are only looked at where they can matter.
    """
    row = -1
    for i in range(time.shape[0]):
        if time[i] > known[0]:
            key = _key(offsets, data, i)
            if key != known[1]:
                known[2] = known[0]
            known[0], known[1], row = time[i], key, i
            known[3] += 1
        elif time[i] > known[2] and _key(offsets, data, i) != known[1]:
            known[2] = time[i]
    return row
