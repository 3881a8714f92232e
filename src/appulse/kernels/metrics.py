"""Distances beside a single Euclidean one: sums of differences, groups of dimensions, and margins of pairs.

Dimensions are in groups; two points match if in every group their distance is at most a limit. A group's distance is
Euclidean, or the sum of absolute differences. Chebyshev's metric is a group for each dimension. All margins of a pair
add to its epsilon.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.arrays import SampleRun
from appulse.kernels.gaussian import tolerated
from appulse.kernels.jit import exact_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Ints, RowPairs, Sampled


class Within(NamedTuple):
    """When two points match: the group of each dimension, the epsilon of each group, and how a group is measured."""

    group: Ints
    epsilon: Floats
    absolute: bool  # distances are sums of absolute differences
    margin: Floats  # what each pair adds to epsilon, or empty


@exact_kernel
def limits_of(within: Within, pair: int, out: Floats) -> None:
    """The limit of each group for a pair, with its tolerance; of Euclidean distances their square."""
    margin = within.margin[pair] if within.margin.shape[0] > 0 else 0.0
    for g in range(out.shape[0]):
        limit = tolerated(within.epsilon[g] + margin)
        out[g] = limit if within.absolute else limit * limit


@exact_kernel
def _distances(within: Within, one: Floats, a: int, other: Floats, b: int, out: Floats) -> None:
    """The distance in each group between two rows of points; Euclidean ones squared."""
    out[:] = 0.0
    for k in range(within.group.shape[0]):
        gap = abs(one[a, k] - other[b, k])
        out[within.group[k]] += gap if within.absolute else gap * gap


@kernel
def metric_distances(pairs: RowPairs, metric: int, one: Floats, other: Floats, out: Floats) -> None:
    """How far apart the points of each pair are, over all dimensions: 0 Euclidean, 1 Manhattan, 2 Chebyshev."""
    for i in range(pairs.left.shape[0]):
        a, b = pairs.left[i], pairs.right[i]
        total = 0.0
        for k in range(one.shape[1]):
            gap = abs(one[a, k] - other[b, k])
            if metric == 0:
                total += gap * gap
            elif metric == 1:
                total += gap
            else:
                total = max(total, gap)
        out[i] = math.sqrt(total) if metric == 0 else total


@exact_kernel
def close_points(pairs: RowPairs, within: Within, one: Floats, other: Floats, out: Flags) -> None:
    """Which pairs of points match."""
    limits, apart = np.empty(within.epsilon.shape[0]), np.empty(within.epsilon.shape[0])
    for i in range(pairs.left.shape[0]):
        limits_of(within, i, limits)
        _distances(within, one, pairs.left[i], other, pairs.right[i], apart)
        out[i] = True
        for g in range(limits.shape[0]):
            out[i] = out[i] and apart[g] <= limits[g]


class _Room(NamedTuple):
    """Room for something of each sample."""

    far: NDArray[np.float64]
    near: NDArray[np.bool_]


@kernel
def _mark_near(one: SampleRun, s: int, other: SampleRun, within: Within, limits: Floats, room: _Room) -> None:
    """Which of another object's samples match sample ``s`` of one."""
    own, at, n, others, there, m = one.values, one.at, one.n, other.values, other.at, other.n
    far, near = room.far, room.near
    near[:m] = True
    d = within.group.shape[0]
    for g in range(limits.shape[0]):
        far[:m] = 0.0
        for k in range(d):
            if within.group[k] != g:
                continue
            x, y = own[at + k * n + s], others[there + k * m :][:m]
            if within.absolute:
                for t in range(m):
                    far[t] += abs(x - y[t])
            else:
                for t in range(m):
                    far[t] += (x - y[t]) * (x - y[t])
        limit = limits[g]
        for t in range(m):
            near[t] &= far[t] <= limit


@kernel
def _by_balls(within: Within, limits: Floats, apart: Floats, reach: float) -> int:
    """Whether all samples of two objects match (1), none do (-1), or some may: both lie in balls around their means.

    ``reach`` is the sum of their radii. A sum of differences is at most sqrt(d) times as long as the straight line.
    """
    everything = True
    for g in range(limits.shape[0]):
        size = 0
        for k in range(within.group.shape[0]):
            size += within.group[k] == g
        limit, distance = limits[g], apart[g]
        if within.absolute:
            wide = reach * math.sqrt(size)
        else:
            limit, distance, wide = math.sqrt(limit), math.sqrt(distance), reach
        slack = 1e-12 * (limit + distance + wide)
        if distance - wide > limit + slack:
            return -1
        everything = everything and distance + wide <= limit - slack
    return 1 if everything else 0


@kernel
def sampled_pairs(
    pairs: RowPairs,
    within: Within,
    threshold: float,
    use_bounds: bool,
    one: Sampled,
    other: Sampled,
    probability: Floats,
) -> tuple[int, int]:
    """Probability of each pair of objects with samples; NaN once it is certain to stay below ``threshold``.

    Returns how many pairs the balls around both objects decided: those accepted, and those pruned.
    """
    mine, theirs = one.samples, other.samples
    d, groups = one.moments.centre.shape[1], within.epsilon.shape[0]
    even_left, even_right = mine.weights.shape[0] == 0, theirs.weights.shape[0] == 0
    longest = 0
    for i in range(pairs.left.shape[0]):
        longest = max(longest, theirs.length[pairs.right[i]] // d)
    room = _Room(np.empty(longest, np.float64), np.empty(longest, np.bool_))
    limits, apart = np.empty(groups), np.empty(groups)
    accepted = pruned = 0
    need = threshold - 1e-12
    for i in range(pairs.left.shape[0]):
        a, b = pairs.left[i], pairs.right[i]
        limits_of(within, i, limits)
        mass = mine.mass[a] * theirs.mass[b]
        if use_bounds:
            _distances(within, one.moments.centre, a, other.moments.centre, b, apart)
            blur = 0.0
            for k in range(d):
                blur += 1e-15 * (abs(one.moments.centre[a, k]) + abs(other.moments.centre[b, k]))
            verdict = _by_balls(within, limits, apart, one.moments.radius[a] + other.moments.radius[b] + blur)
            if verdict != 0:
                accepted += verdict > 0
                pruned += verdict < 0
                probability[i] = mass if verdict > 0 else np.nan
                continue
        n, m = mine.length[a] // d, theirs.length[b] // d
        p = mine.weights_begin[a] - mine.weights_base if not even_left else 0
        q = theirs.weights_begin[b] - theirs.weights_base if not even_right else 0
        x = SampleRun(mine.values, mine.begin[a] - mine.base, mine.weights, p, n)
        y = SampleRun(theirs.values, theirs.begin[b] - theirs.base, theirs.weights, q, m)
        # Equal weights are counted, not summed: ten times 0.1 is 1.
        scale = (mine.mass[a] / n if even_left else 1.0) * (theirs.mass[b] / m if even_right else 1.0)
        whole = float(m) if even_right else theirs.mass[b]
        found, rest = 0.0, float(n) * whole if even_left else mine.mass[a] * whole
        for s in range(n):
            _mark_near(x, s, y, within, limits, room)
            near = 0.0
            for t in range(m):
                near += (1.0 if even_right else theirs.weights[q + t]) if room.near[t] else 0.0
            weight = 1.0 if even_left else mine.weights[p + s]
            found += weight * near
            rest -= weight * whole
            if (found + rest) * scale < need - 1e-12:
                found = -1.0
                break
        if found < 0.0:
            probability[i] = np.nan
        elif even_left and even_right:
            probability[i] = (found / (n * m)) * mass
        else:
            probability[i] = found * scale
    return accepted, pruned
