"""The readings of each sensor in order of value: a tree to find places in it, and links from each to those beside it.

The tree is a treap: in order of (value, number) from left to right, and from top to bottom in order of ranks that are
as good as chance. So to put in a reading, to take out one and to find one costs about the logarithm of how many the
sensor holds (Seidel and Aragon 1996, "Randomized search trees"). Readings are known by their numbers, from 0 on; that
of number k is in row ``k & (rows - 1)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from appulse.kernels.jit import exact_kernel, inlined_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints, Whole

# Columns of a reading: its time, its sensor, what is below it in the tree to either side, and its neighbours in order
# of value; -1 is none.
TIME, OWNER, LESS, MORE, BEFORE, AFTER = range(6)
# The first columns of a sensor: the top of its tree (-1: none), and how many readings it holds.
ROOT, HELD = range(2)
_BITS, _FACTOR = 0x7FFFFFFF, 0x45D9F3B


class InOrder(Protocol):
    """What a field has of its readings."""

    @property
    def ring(self) -> Ints: ...  # (capacity, 6)
    @property
    def value(self) -> Floats: ...  # (capacity,)
    @property
    def sensors(self) -> Ints: ...  # (sensors, at least 2)


@inlined_kernel
def _rank(number: Whole) -> Whole:
    mixed = number & _BITS
    mixed = ((mixed ^ (mixed >> 16)) * _FACTOR) & _BITS
    mixed = ((mixed ^ (mixed >> 16)) * _FACTOR) & _BITS
    return mixed ^ (mixed >> 16)


@inlined_kernel
def _hang(field: InOrder, sensor: Whole, above: Whole, side: Whole, number: Whole) -> None:
    """Put what is under ``number`` below a reading, at this side of it; at the top, if it is below none."""
    if above < 0:
        field.sensors[sensor, ROOT] = number
    else:
        field.ring[above & (len(field.ring) - 1), side] = number


@exact_kernel
def put_in(field: InOrder, number: Whole) -> None:
    """Put in a reading, the newest of its sensor, whose time, sensor and value are there."""
    mask = len(field.ring) - 1
    at = number & mask
    sensor, mine, rank = field.ring[at, OWNER], field.value[at], _rank(number)
    before, after, above, side = np.int64(-1), np.int64(-1), np.int64(-1), LESS
    one = field.sensors[sensor, ROOT]
    while one >= 0 and _rank(one) >= rank:
        above = one
        if field.value[one & mask] <= mine:
            before, side = one, MORE
        else:
            after, side = one, LESS
        one = field.ring[one & mask, side]
    _hang(field, sensor, above, side, number)
    # What was there is parted: the lesser ones go below it to the one side, the greater ones to the other.
    low, low_side, high, high_side = number, LESS, number, MORE
    while one >= 0:
        here = one & mask
        if field.value[here] <= mine:
            _hang(field, sensor, low, low_side, one)
            before, low, low_side = one, one, MORE
            one = field.ring[here, MORE]
        else:
            _hang(field, sensor, high, high_side, one)
            after, high, high_side = one, one, LESS
            one = field.ring[here, LESS]
    _hang(field, sensor, low, low_side, -1)
    _hang(field, sensor, high, high_side, -1)
    field.ring[at, BEFORE], field.ring[at, AFTER] = before, after
    if before >= 0:
        field.ring[before & mask, AFTER] = number
    if after >= 0:
        field.ring[after & mask, BEFORE] = number
    field.sensors[sensor, HELD] += 1


@exact_kernel
def take_out(field: InOrder, number: Whole) -> None:
    """Take out a reading, the oldest of its sensor; its own links to its neighbours stay as they are."""
    mask = len(field.ring) - 1
    at = number & mask
    sensor, mine = field.ring[at, OWNER], field.value[at]
    above, side = np.int64(-1), LESS
    one = field.sensors[sensor, ROOT]
    while one != number:
        above, side = one, MORE if field.value[one & mask] < mine else LESS
        one = field.ring[one & mask, side]
    low, high = field.ring[at, LESS], field.ring[at, MORE]
    while low >= 0 and high >= 0:
        if _rank(low) >= _rank(high):
            _hang(field, sensor, above, side, low)
            above, side = low, MORE
            low = field.ring[low & mask, MORE]
        else:
            _hang(field, sensor, above, side, high)
            above, side = high, LESS
            high = field.ring[high & mask, LESS]
    _hang(field, sensor, above, side, max(low, high))
    before, after = field.ring[at, BEFORE], field.ring[at, AFTER]
    if before >= 0:
        field.ring[before & mask, AFTER] = after
    if after >= 0:
        field.ring[after & mask, BEFORE] = before
    field.sensors[sensor, HELD] -= 1


@exact_kernel
def first_from(field: InOrder, sensor: Whole, value: float) -> Whole:
    """The first reading of a sensor, in order of value, that is not below a value; -1: there is none."""
    mask = len(field.ring) - 1
    found, one = np.int64(-1), field.sensors[sensor, ROOT]
    while one >= 0:
        if field.value[one & mask] < value:
            one = field.ring[one & mask, MORE]
        else:
            found = one
            one = field.ring[one & mask, LESS]
    return found
