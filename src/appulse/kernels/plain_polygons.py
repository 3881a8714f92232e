"""Polygons of one ring in WKB, read without a geometry library, and most of them shown to be valid at once.

A ring is valid if, seen from some place, each corner is at the left of the one before, once around: each edge then has
a sector of its own, so no two meet. Cells, boxes and the shapes that people draw are of that kind. Of other rings it is
left open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel
from appulse.kernels.regions import SURE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Ints

# Byte order, type, number of rings and number of corners; a corner.
_HEADER, _CORNER = 13, 16
# Below this, rounding of a product is no share of it.
_TINY = 1e-280
_LEAST = 4  # corners of a ring, the first one again at its end
_STARTS = np.frombuffer(b"\x01\x03\x00\x00\x00\x01\x00\x00\x00", np.uint8)  # little endian, a polygon, of one ring


@exact_kernel
def ring_ends(data: NDArray[np.uint8], ends: Ints) -> Ints:
    """Where the ring of each text of ``data`` ends among all corners, after a 0; empty if one is no such polygon."""
    n = ends.shape[0]
    found = np.zeros(n + 1, np.int64)
    at = 0
    for i in range(n):
        size = (ends[i] - at - _HEADER) // _CORNER
        if size < _LEAST or ends[i] - at != _HEADER + size * _CORNER:
            return found[:0]
        for k in range(_STARTS.shape[0]):
            if data[at + k] != _STARTS[k]:
                return found[:0]
        for k in range(4):
            if data[at + 9 + k] != (size >> (8 * k)) & 255:
                return found[:0]
        found[i + 1] = found[i] + size
        at = ends[i]
    return found


@exact_kernel
def read_corners(data: NDArray[np.uint8], ends: Ints, begin: Ints, out: NDArray[np.uint8]) -> None:
    """Copy the corners of such texts, as bytes."""
    for i in range(ends.shape[0]):
        low, high = _CORNER * begin[i], _CORNER * begin[i + 1]
        out[low:high] = data[ends[i] - (high - low) : ends[i]]


@exact_kernel
def boxes_of(corners: Floats, begin: Ints) -> tuple[Floats, Flags]:
    """The least and the most of each ring's coordinates, and whether all are finite and the ring is closed."""
    n = begin.shape[0] - 1
    box, good = np.empty((n, 4)), np.empty(n, np.bool_)
    for i in range(n):
        first, last = begin[i], begin[i + 1] - 1
        west, south, east, north, sum_ = np.inf, np.inf, -np.inf, -np.inf, 0.0
        for c in range(first, last + 1):
            x, y = corners[c, 0], corners[c, 1]
            west, south, east, north = min(west, x), min(south, y), max(east, x), max(north, y)
            sum_ += (x - x) + (y - y)  # what is not finite becomes NaN
        box[i, 0], box[i, 1], box[i, 2], box[i, 3] = west, south, east, north
        closed = corners[first, 0] == corners[last, 0] and corners[first, 1] == corners[last, 1]
        good[i] = closed and sum_ == 0.0
    return box, good


@exact_kernel
def stars(corners: Floats, begin: Ints) -> Flags:
    """Which closed rings go once around the mean of their corners, at each corner by less than half a turn."""
    n = begin.shape[0] - 1
    found = np.empty(n, np.bool_)
    for i in range(n):
        first, last = begin[i], begin[i + 1] - 1
        x, y = 0.0, 0.0
        for c in range(first, last):
            x, y = x + corners[c, 0], y + corners[c, 1]
        x, y = x / (last - first), y / (last - first)
        left, right, rises, falls = 0, 0, 0, 0
        for c in range(first, last):
            ax, ay, bx, by = corners[c, 0], corners[c, 1], corners[c + 1, 0], corners[c + 1, 1]
            one, other = (ax - x) * (by - y), (ay - y) * (bx - x)
            turn, sure = one - other, SURE * (abs(one) + abs(other)) + _TINY
            left += turn > sure
            right += turn < -sure
            rises += (ay <= y) & (by > y)
            falls += (ay > y) & (by <= y)
        # It passes the height of the place twice each time around.
        found[i] = (left == last - first or right == last - first) and rises == 1 and falls == 1
    return found
