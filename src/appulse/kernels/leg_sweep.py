"""Pairs of legs that may come close, by a sweep through time.

Each leg is compared with those that have begun and have not ended. These stand side by side, dimension by dimension, so
that a processor compares several at once; that is faster than any bins, as long as not too many are there at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel
from appulse.kernels.legs import Legs, swept_box

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints, RowPairs

_ROOM = 64


class _Open(NamedTuple):
    """Legs side by side: ``time`` has when they end, what they do not meet themselves, and which they are."""

    time: NDArray[np.int64]  # (3, room)
    box: NDArray[np.float64]  # (2 d, room): from where to where, by dimension


@exact_kernel
def _touched(here: _Open, n: int, begin: int, own: int, box: Floats) -> int:
    """How many of ``n`` legs last until a time, are not of the ``own`` kind, and touch a box in two dimensions."""
    end, kind, total = here.time[0], here.time[1], 0
    lows, highs, low, high = here.box[0], here.box[1], box[0], box[1]
    if box.shape[0] == 2:
        for q in range(n):
            total += (lows[q] <= high) & (highs[q] >= low) & (end[q] >= begin) & (kind[q] != own)
        return total
    more_lows, more_highs, more_low, more_high = here.box[2], here.box[3], box[2], box[3]
    for q in range(n):
        near = (lows[q] <= high) & (highs[q] >= low) & (more_lows[q] <= more_high) & (more_highs[q] >= more_low)
        total += near & (end[q] >= begin) & (kind[q] != own)
    return total


@exact_kernel
def _touches(here: _Open, q: int, begin: int, own: int, box: Floats) -> bool:
    """Whether one does, in all dimensions."""
    if here.time[0, q] < begin or here.time[1, q] == own:
        return False
    k = 0
    while k < box.shape[0] and here.box[k, q] <= box[k + 1] and here.box[k + 1, q] >= box[k]:
        k += 2
    return bool(k == box.shape[0])


@exact_kernel
def _tidied(here: _Open, n: int, begin: int) -> int:
    """Drop the legs that have ended before a time; how many stay."""
    kept = 0
    for q in range(n):
        if here.time[0, q] >= begin:
            for k in range(here.time.shape[0]):
                here.time[k, kept] = here.time[k, q]
            for k in range(here.box.shape[0]):
                here.box[k, kept] = here.box[k, q]
            kept += 1
    return kept


@exact_kernel
def _wider(here: _Open) -> _Open:
    """The same with room for as many again."""
    room = here.time.shape[1]
    wide = _Open(np.empty((3, 2 * room), np.int64), np.empty((here.box.shape[0], 2 * room)))
    wide.time[:, :room], wide.box[:, :room] = here.time, here.box
    return wide


class Stretch(NamedTuple):
    """The legs that a sweep compares with those before them, by their places in the order."""

    first: int
    last: int
    longest: int  # how long a leg lasts at most


@exact_kernel
def _opening(legs: Legs, order: Ints, stretch: Stretch) -> int:
    """The place in the order before which no leg of the first one's group is there when that one begins."""
    at, first = stretch.first, order[stretch.first]
    while at > 0:
        before = order[at - 1]
        if legs.group[before] != legs.group[first] or legs.begin[before] + stretch.longest < legs.begin[first]:
            break
        at -= 1
    return at


@exact_kernel
def sweep(legs: Legs, order: Ints, stretch: Stretch, epsilon: float, alone: bool, most: int, pairs: RowPairs) -> int:
    """Pairs of legs that overlap in time and may come within epsilon, one of them fresh; the later is in a stretch.

    ``order`` is that of groups, and of beginnings in each. ``alone``: legs are of one stream. Of pairs beyond the room
    in ``pairs`` none are written. Returns how many there are; -1, where more than ``most`` comparisons would be needed.
    """
    d, n, found = legs.at.shape[1], 0, 0
    here = _Open(np.empty((3, _ROOM), np.int64), np.empty((2 * d, _ROOM)))
    box = np.empty(2 * d)
    since = legs.begin[order[stretch.first]]
    for at in range(_opening(legs, order, stretch), stretch.last):
        i = order[at]
        begin, own = legs.begin[i], legs.thing[i] if alone else legs.side[i]
        if at < stretch.first and legs.end[i] < since:
            continue
        if at > 0 and legs.group[order[at - 1]] != legs.group[i]:
            n = 0
        for k in range(d):
            box[2 * k], box[2 * k + 1] = swept_box(legs, i, k, epsilon)
        touched, q = 0, 0
        if at >= stretch.first:
            most -= n
            if most < 0:
                return -1
            touched = _touched(here, n, begin, own, box)
        while touched > 0 and q < n:
            if _touches(here, q, begin, own, box):
                touched -= 1
                j = here.time[2, q]
                if legs.fresh[i] or legs.fresh[j]:
                    if found < pairs.left.shape[0]:
                        pairs.left[found], pairs.right[found] = (i, j) if own < here.time[1, q] else (j, i)
                    found += 1
            q += 1
        if n == here.time.shape[1]:
            n = _tidied(here, n, begin)
            if 4 * n > 3 * here.time.shape[1]:
                here = _wider(here)
        here.time[0, n], here.time[1, n], here.time[2, n] = legs.end[i], own, i
        for k in range(2 * d):
            here.box[k, n] = box[k]
        n += 1
    return found
