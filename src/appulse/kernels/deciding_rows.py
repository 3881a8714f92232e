"""Distributions of sums over all rows but one, at one after the other of many points where rows change.

A row that exists takes one number from the sum where its value is above x, and adds another where it is below.
As x rises it passes the *points* of rows, one at a time: from its point on a row is more often below. At each point the
distribution of the others' sum is asked for. To take a row out of a distribution is to divide, which loses digits.
Instead the points are halved again and again. A row without a point in a half does not change there: it is *settled*,
multiplied in once for all points of the half. The others are *open*. At a single point only its own row is open.

Open rows take the sum only so far, so of a distribution no more is held than what they may take to the sums asked for.
Halves with fewer open rows therefore cost less, and P points of n rows cost some P n additions in all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.aggregates import TINY
from appulse.kernels.jit import exact_kernel, inlined_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints

# Chances below this become 0 wherever they are: processors are slow with numbers next to the least double.
_LEAST = 1e-200
_BEGIN, _LOW, _N, _BUFFER = range(4)


class Steps(NamedTuple):
    """What a row does to the sum: above it takes ``down`` away, below it adds ``up``.

    The sums asked for are those that one more row may take to 0 or beyond, or not: from ``-up`` to ``down - 1``.
    """

    down: int
    up: int


class Halves(NamedTuple):
    """Points in order, halved ``levels`` times, and the half of each level in which the next point is."""

    levels: int
    owner: Ints  # the row of each point
    after: Ints  # the next point of the same row
    coming: Ints  # of each row the next point
    below: Floats  # of each row the chance that it is below, at the next point
    open: NDArray[np.int64]  # of each level the open rows
    many: Ints  # how many these are
    state: NDArray[np.int64]  # of each level where its chances begin, the sum of the first, how many, and their buffer
    chances: NDArray[np.float64]  # two buffers for each level


@exact_kernel
def halves(owner: Ints, rows: int, steps: Steps, start: int, room: int) -> Halves:
    """The points of rows, before the first; sums begin with ``start``, and at most ``room`` of them are held."""
    points, levels, span = len(owner), 0, steps.down + steps.up
    while 1 << levels < points:
        levels += 1
    after, coming = np.empty(points, np.int64), np.full(rows, points)
    for k in range(points - 1, -1, -1):
        after[k], coming[owner[k]] = coming[owner[k]], k
    opened, many = np.empty((levels + 1, rows), np.int64), np.empty(levels + 1, np.int64)
    opened[0], many[0] = np.arange(rows), rows
    state, chances = np.empty((levels + 1, 4), np.int64), np.empty((2 * levels + 2, room + 2 * span))
    state[0, _BEGIN], state[0, _LOW], state[0, _N], state[0, _BUFFER] = span, start, 1, 0
    chances[0, : 2 * span + 1] = 0.0
    chances[0, span] = 1.0
    return Halves(levels, owner, after, coming, np.zeros(rows), opened, many, state, chances)


@inlined_kernel
def _times_row(
    source: Floats,
    at: tuple[int, int, int],
    exist: float,
    below: float,
    steps: Steps,
    wanted: tuple[int, int],
    out: Floats,
) -> tuple[int, int, int]:
    """The distribution of a sum with one row more, of the sums wanted; ``at`` is where it begins, its first sum, and n.

    That of the new one is returned. On either side of both there are zeros, as many as both steps together.
    """
    (begin, low, n), (down, up) = at, steps
    absent, above, span = 1.0 - exist, exist - below, down + up
    least, most = span, -span
    if absent > 0.0:
        least, most = min(least, 0), max(most, 0)
    if above > 0.0:
        least, most = min(least, -down), max(most, -down)
    if below > 0.0:
        least, most = min(least, up), max(most, up)
    first = max(low + least, wanted[0])
    size = min(low + n + most, wanted[1]) - first
    if size <= 0:
        return begin, low, 0
    # Views from 0 on, that the compiler sees to go the same way: it takes several at once.
    here = begin + first - low
    if_absent = source[here : here + size]
    if_above = source[here + down : here + down + size]
    if_below = source[here - up : here - up + size]
    into = out[span : span + size]
    for k in range(size):
        chance = absent * if_absent[k] + above * if_above[k] + below * if_below[k]
        into[k] = chance if chance > _LEAST else 0.0
    out[:span] = 0.0
    out[span + size : size + 2 * span] = 0.0
    begin = span
    while size > 0 and out[begin] < TINY:
        out[begin] = 0.0
        begin += 1
        size -= 1
    while size > 0 and out[begin + size - 1] < TINY:
        size -= 1
        out[begin + size] = 0.0
    return begin, first + begin - span, size


@exact_kernel
def descend(to: Halves, k: int, level: int, exist: Floats, steps: Steps) -> tuple[int, int]:
    """From the half of a level that begins at point ``k`` to its first one with one open row; its level and its end.

    It ends earlier where no sum that is asked for has a chance.
    """
    points = len(to.owner)
    end = min(((k >> (to.levels - level)) + 1) << (to.levels - level), points)
    while level < to.levels and to.state[level, _N] > 0 and to.many[level] > 1:
        half = to.levels - level - 1
        end = min(((k >> half) + 1) << half, points)
        begin, low, n, buffer = to.state[level]
        known, opened, left, still = to.open[level], to.open[level + 1], to.many[level], 0
        for j in range(to.many[level]):
            i = known[j]
            if to.coming[i] < end:
                opened[still] = i
                still += 1
            elif n > 0:
                left -= 1
                wanted = (-left * steps.up, left * steps.down)
                other = 2 * level + 2 if buffer != 2 * level + 2 else 2 * level + 3
                begin, low, n = _times_row(
                    to.chances[buffer], (begin, low, n), exist[i], to.below[i], steps, wanted, to.chances[other]
                )
                buffer = other
        level += 1
        to.many[level] = still
        to.state[level, _BEGIN], to.state[level, _LOW], to.state[level, _N] = begin, low, n
        to.state[level, _BUFFER] = buffer
    return level, end


@exact_kernel
def pass_points(to: Halves, k: int, end: int, reach: Floats, decides: float, chance: Floats) -> None:
    """Pass the points from ``k`` to ``end``: ``reach`` is how often the row of each is below from there on.

    ``chance`` is that the row comes to be below there, and decides.
    """
    for j in range(k, end):
        i = to.owner[j]
        chance[j] = (reach[j] - to.below[i]) * decides
        to.below[i], to.coming[i] = reach[j], to.after[j]


@exact_kernel
def level_after(to: Halves, end: int) -> int:
    """After a half that ends there: the level of the one that it and what follows are in, or parts of it."""
    level = to.levels - 1
    while level > 0 and end & 1 == 0:
        level -= 1
        end >>= 1
    return max(level, 0)
