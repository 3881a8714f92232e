"""Tracks of phenomena: how fast their centroids move; their hulls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints, Whole

#: Points of a track that the velocity goes by.
TRACK = 8


@exact_kernel
def motion(track: Floats, points: Whole, velocity: Floats) -> None:
    """Least squares of a straight track: its velocity a second, NaN below two points."""
    n = min(points, TRACK)
    last = track[(points - 1) % TRACK, 0]
    mean = 0.0
    for k in range(n):
        mean += (track[k, 0] - last) * 1e-6
    mean /= max(n, 1)
    squares = 0.0
    for k in range(n):
        squares += ((track[k, 0] - last) * 1e-6 - mean) ** 2
    for c in range(len(velocity)):
        if n < 2:
            velocity[c] = np.nan
            continue
        centre, slope = 0.0, 0.0
        for k in range(n):
            centre += track[k, 1 + c]
        centre /= n
        for k in range(n):
            slope += ((track[k, 0] - last) * 1e-6 - mean) * (track[k, 1 + c] - centre)
        velocity[c] = slope / squares


@exact_kernel
def hulls(first: Ints, members: Ints, at: Floats, hull_first: Ints, corners: Ints) -> None:
    """Convex hulls in the plane: for each run of members those at the corners, counter-clockwise from the leftmost.

    Andrew 1979. Points between corners are left out; ``corners`` has room for all members.
    """
    total = 0
    hull_first[0] = 0
    for e in range(len(first) - 1):
        mine = members[first[e] : first[e + 1]]
        mine = mine[np.argsort(at[mine, 1], kind="mergesort")]
        mine = mine[np.argsort(at[mine, 0], kind="mergesort")]
        chain = np.empty(2 * len(mine) + 1, np.int64)
        n = 0
        for turn in range(2):
            low = n
            for k in range(len(mine)):
                point = mine[k] if turn == 0 else mine[len(mine) - 1 - k]
                while n - low >= 2 and _turn(at, chain[n - 2], chain[n - 1], point) <= 0.0:
                    n -= 1
                chain[n] = point
                n += 1
            n -= 1  # the last of a chain is the first of the other
        n = max(n, min(len(mine), 1))
        if n == 2 and at[chain[0], 0] == at[chain[1], 0] and at[chain[0], 1] == at[chain[1], 1]:
            n = 1
        corners[total : total + n] = chain[:n]
        total += n
        hull_first[e + 1] = total


@exact_kernel
def _turn(at: Floats, a: Whole, b: Whole, c: Whole) -> float:
    return float((at[b, 0] - at[a, 0]) * (at[c, 1] - at[a, 1]) - (at[b, 1] - at[a, 1]) * (at[c, 0] - at[a, 0]))
