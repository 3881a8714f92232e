"""The windows of the paper's Grid: cells, profiles, the list of candidates for r_max, groups of arrivals.

See `benchmarks.usj`, which makes a join of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints

SLACK = 1e-12  # of distances, for the rounding of the tests on them

Window = tuple[
    "NDArray[np.float64]",
    "NDArray[np.float64]",
    "NDArray[np.int64]",
    "NDArray[np.int64]",
    "NDArray[np.int64]",
    "NDArray[np.int64]",
    "NDArray[np.int64]",
]


def window(capacity: int, d: int, m: int) -> Window:
    """An empty window: centres and profiles by slot, objects on chains by cell, the cells there are, radii."""
    buckets = 1 << max(6, (2 * capacity).bit_length())
    objects = np.full((4, capacity), -1, np.int64)  # following, before, cell, number
    cells = np.full((capacity, d + 5), -1, np.int64)  # coordinates, head, next cell, place, bucket, free
    cells[:, d + 4] = np.arange(capacity)
    heads = np.full(buckets, -1, np.int64)
    active = np.full(capacity + 1, -1, np.int64)
    active[capacity] = 0  # how many cells there are
    deque = np.zeros(capacity + 2, np.int64)
    return np.zeros((capacity, d)), np.zeros((capacity, m)), objects, cells, heads, active, deque


@kernel
def summary(samples: Floats, centre: NDArray[np.float64], profile: NDArray[np.float64]) -> None:
    """The plain mean of an object's samples, and their distances from it in ascending order."""
    d, m = samples.shape
    for k in range(d):
        total = 0.0
        for s in range(m):
            total += samples[k, s]
        centre[k] = total / m
    profile[:] = 0.0
    for k in range(d):
        for s in range(m):
            gap = samples[k, s] - centre[k]
            profile[s] += gap * gap
    for s in range(m):
        profile[s] = math.sqrt(profile[s])
    profile.sort()


@kernel
def sample_level(apart: float, left: Floats, right: Floats, limit: float, need: int) -> bool:
    """Whether two balls hold masses whose product tells that too few pairs of samples can be close (Lemma 5.2).

    ``left`` and ``right`` are profiles. The larger the mass on the left, the less is needed on the right: two
    pointers (Lemma 5.4).
    """
    m = left.shape[0]
    most = m * m - need  # pairs that may be far
    b = m
    for a in range(1, m + 1):
        while b > 1 and a * (b - 1) > most:
            b -= 1
        if a * b > most and apart - left[a - 1] - right[b - 1] > limit:
            return True
    return False


@kernel
def push_radius(deque: Ints, radius: Floats, number: int, capacity: int) -> None:
    """An arrival goes on the list of candidates for r_max: all that are no larger leave it."""
    first, last = deque[capacity], deque[capacity + 1]
    while last > first and radius[deque[(last - 1) % capacity] % capacity] <= radius[number % capacity]:
        last -= 1
    deque[last % capacity] = number
    deque[capacity + 1] = last + 1


@kernel
def _cell_of(
    centre: Floats, side: float, cells: NDArray[np.int64], heads: Ints, at: NDArray[np.int64]
) -> tuple[int, int]:
    """The cell of a centre, or -1, and its bucket; ``at`` gets its coordinates."""
    d = centre.shape[0]
    mixed = np.uint64(0)
    for k in range(d):
        at[k] = np.int64(math.floor(centre[k] / side))
        mixed = (mixed + np.uint64(at[k])) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    bucket = np.int64(mixed & np.uint64(heads.shape[0] - 1))
    cell = heads[bucket]
    while cell >= 0:
        same = True
        for k in range(d):
            same = same and cells[cell, k] == at[k]
        if same:
            return int(cell), int(bucket)
        cell = cells[cell, d + 1]
    return -1, int(bucket)


@kernel
def put(
    slot: int,
    number: int,
    centre: Floats,
    objects: NDArray[np.int64],
    cells: NDArray[np.int64],
    heads: Ints,
    active: Ints,
    side: float,
    at: NDArray[np.int64],
) -> None:
    """Put an object in its cell, a new one if need be."""
    d = centre.shape[1]
    capacity = objects.shape[1]
    cell, bucket = _cell_of(centre[slot], side, cells, heads, at)
    if cell < 0:
        there = active[capacity]
        cell = cells[there, d + 4]  # the first cell that is free
        for k in range(d):
            cells[cell, k] = at[k]
        cells[cell, d] = -1
        cells[cell, d + 1] = heads[bucket]
        heads[bucket] = cell
        cells[cell, d + 2] = there
        cells[cell, d + 3] = bucket
        active[there] = cell
        active[capacity] = there + 1
    head = cells[cell, d]
    objects[0, slot], objects[1, slot], objects[2, slot], objects[3, slot] = head, -1, cell, number
    if head >= 0:
        objects[1, head] = slot
    cells[cell, d] = slot


@kernel
def take(
    slot: int,
    d: int,
    objects: NDArray[np.int64],
    cells: NDArray[np.int64],
    heads: Ints,
    active: Ints,
) -> None:
    """Take an object out of its cell; a cell left empty goes."""
    capacity = objects.shape[1]
    following, before, cell = objects[0, slot], objects[1, slot], objects[2, slot]
    if following >= 0:
        objects[1, following] = before
    if before >= 0:
        objects[0, before] = following
        return
    cells[cell, d] = following
    if following >= 0:
        return
    bucket = cells[cell, d + 3]
    if heads[bucket] == cell:
        heads[bucket] = cells[cell, d + 1]
    else:
        other = heads[bucket]
        while cells[other, d + 1] != cell:
            other = cells[other, d + 1]
        cells[other, d + 1] = cells[cell, d + 1]
    there = active[capacity] - 1
    last, place = active[there], cells[cell, d + 2]
    active[place] = last
    cells[last, d + 2] = place
    cells[there, d + 4] = cell
    active[capacity] = there


@kernel
def _enclosing(
    centre: NDArray[np.float64], radius: float, other: Floats, more: float, out: NDArray[np.float64]
) -> float:
    """The least ball around two; its centre goes to ``out``."""
    apart = 0.0
    for k in range(centre.shape[0]):
        apart += (centre[k] - other[k]) ** 2
    apart = math.sqrt(apart)
    if apart + more <= radius:
        out[:] = centre
        return radius
    if apart + radius <= more:
        out[:] = other
        return more
    wide = 0.5 * (apart + radius + more)
    share = (wide - radius) / apart
    for k in range(centre.shape[0]):
        out[k] = centre[k] + share * (other[k] - centre[k])
    return wide


@kernel
def grouped(
    centre: Floats,
    radius: Floats,
    rows: Ints,
    reach: float,  # epsilon + r_max of the other window
    group: NDArray[np.int64],
    ball: NDArray[np.float64],  # centre and radius of each group
) -> int:
    """One pass over a tick's arrivals: into the last group while that does not raise its mean search volume."""
    d = centre.shape[1]
    groups = 0
    size = 0
    wider = np.empty(d)
    for i in range(rows.shape[0]):
        row = rows[i]
        if groups > 0:
            own = ball[groups - 1]
            wide = _enclosing(own[:d], own[d], centre[row], radius[row], wider)
            if ((own[d] + reach) ** d) / size >= ((wide + reach) ** d) / (size + 1):
                own[:d] = wider
                own[d] = wide
                group[i] = groups - 1
                size += 1
                continue
        ball[groups, :d] = centre[row]
        ball[groups, d] = radius[row]
        group[i] = groups
        groups += 1
        size = 1
    return groups


@kernel
def visited(
    ball: Floats,
    reach: float,
    side: float,
    cells: NDArray[np.int64],
    active: Ints,
    capacity: int,
    out: NDArray[np.int64],
) -> int:
    """The cells that hold something and are near enough (Eq. 10)."""
    d = ball.shape[0] - 1
    wide = (reach + ball[d]) * (1.0 + SLACK)
    n = 0
    for place in range(active[capacity]):
        cell = active[place]
        square = 0.0
        for k in range(d):
            low = cells[cell, k] * side
            gap = max(low - ball[k], ball[k] - (low + side), 0.0)
            square += gap * gap
        if square <= wide * wide:
            out[n] = cell
            n += 1
    return n
