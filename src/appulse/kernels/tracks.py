"""Tracks of phenomena: how fast their centroids move, where they will be, and how far that may be off; their hulls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints, Whole

#: Points of a track that velocity and prediction go by.
TRACK = 8


@exact_kernel
def _moments(track: Floats, points: Whole) -> tuple[Whole, float, float]:
    """How many points there are, their mean time before the last in seconds, and the sum of squares around it."""
    n = min(points, TRACK)
    last = track[(points - 1) % TRACK, 0]
    mean = 0.0
    for k in range(n):
        mean += (track[k, 0] - last) * 1e-6
    mean /= max(n, 1)
    squares = 0.0
    for k in range(n):
        squares += ((track[k, 0] - last) * 1e-6 - mean) ** 2
    return n, mean, squares


@exact_kernel
def motion(track: Floats, points: Whole, horizon: Whole, velocity: Floats, predicted: Floats) -> None:
    """Least squares of a straight track: its velocity a second, and where it is ``horizon`` after the last point."""
    n, mean, squares = _moments(track, points)
    last = track[(points - 1) % TRACK, 0]
    for c in range(len(velocity)):
        if n < 2:
            velocity[c] = predicted[c] = np.nan
            continue
        centre, slope = 0.0, 0.0
        for k in range(n):
            centre += track[k, 1 + c]
        centre /= n
        for k in range(n):
            slope += ((track[k, 0] - last) * 1e-6 - mean) * (track[k, 1 + c] - centre)
        velocity[c] = slope / squares
        predicted[c] = centre + velocity[c] * (horizon * 1e-6 - mean)


@exact_kernel
def spread(track: Floats, points: Whole, horizon: Whole) -> float:
    """The standard error of that prediction, over all dimensions; NaN below three points."""
    n, mean, squares = _moments(track, points)
    if n < 3:
        return np.nan
    d = track.shape[1] - 1
    last = track[(points - 1) % TRACK, 0]
    residual = 0.0
    for c in range(d):
        centre, slope = 0.0, 0.0
        for k in range(n):
            centre += track[k, 1 + c]
        centre /= n
        for k in range(n):
            slope += ((track[k, 0] - last) * 1e-6 - mean) * (track[k, 1 + c] - centre)
        slope /= squares
        for k in range(n):
            residual += (track[k, 1 + c] - centre - slope * ((track[k, 0] - last) * 1e-6 - mean)) ** 2
    ahead = horizon * 1e-6 - mean
    return float(np.sqrt(residual / (n - 2) * (1.0 + 1.0 / n + ahead * ahead / squares)))


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
