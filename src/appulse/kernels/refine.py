"""Exact probabilities of pairs of sampled objects: Lian & Chen 2009, Eq. 2.

Samples of an object are stored dimension by dimension (all first coordinates, then all second ones), so that the
inner loop runs over contiguous memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.arrays import SampleRun
from appulse.kernels.bounds import fetch_place, fetch_spread
from appulse.kernels.jit import kernel
from appulse.kernels.sample_bounds import sample_bounds
from appulse.kernels.simd import prefetch
from appulse.kernels.within_epsilon import Open, close_count, close_mass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, RowPairs, Sampled


# Partners taken at once, at least and at most, and how many samples they may have.
_LEAST_BLOCK, _BLOCK, _MOST_IN_BLOCK = 8, 64, 40
_AHEAD = 8  # pairs that are prepared before their turn


class Room(NamedTuple):
    """Room for as many samples as an object has, and one more in ``order``."""

    upper: NDArray[np.float64]  # shares, as `sample_bounds` tells them
    order: NDArray[np.int64]
    scratch: NDArray[np.float64]


@kernel
def by_samples(
    one: SampleRun,
    other: SampleRun,
    d: int,
    limit2: float,
    even: bool,
    total: float,  # weight of all of the other's samples
    goal: tuple[float, float],  # what is needed, and what is enough
    room: Room,
) -> tuple[float, float]:
    """The weight of all pairs of samples that are close, and what is left open once that is enough.

    -1 where it is less than needed, -2 where shares alone tell.
    """
    needed, enough = goal
    upper, order, scratch = room.upper, room.order, room.scratch
    found = rest = 0.0
    weights = one.weights[one.weights_at :][: one.n]
    for s in range(one.n):
        weight = weights[s] * total
        share = upper[s]
        found += weight if share == -1.0 else 0.0
        rest += weight * share if share >= 0.0 else 0.0
    if found + rest < needed:
        return -2.0, 0.0
    if found >= enough:
        return found, rest
    many = 0
    for s in range(one.n):
        order[many] = s
        many += upper[s] >= 0.0
        upper[s] *= total
    open_ = Open(order, many, upper, found, rest, needed, enough)
    if even:
        return close_count(one, other, d, limit2, open_, scratch)
    return close_mass(one, other, d, limit2, open_, scratch)


@kernel
def _block(
    left: Floats,
    left_weights: Floats,  # empty: all weigh 1
    m: int,
    d: int,
    columns: NDArray[np.float64],  # sample t, dimension k of many partners: row k m + t
    column_weights: NDArray[np.float64],  # sample t of many partners; empty: all weigh 1
    limit2: float,
    near: Floats,
) -> None:
    """The weight of the pairs of samples within the limit, of one object and many partners at once."""
    near[:] = 0.0
    n = left.shape[0] // d
    for s in range(n):
        own = 1.0 if left_weights.shape[0] == 0 else left_weights[s]
        for t in range(m):
            if d == 2:
                x_0, x_1 = left[s], left[n + s]
                y_0, y_1 = columns[t], columns[m + t]
                if column_weights.shape[0] == 0:
                    for c in range(near.shape[0]):
                        a = x_0 - y_0[c]
                        b = x_1 - y_1[c]
                        near[c] += own if a * a + b * b <= limit2 else 0.0
                else:
                    weights = column_weights[t]
                    for c in range(near.shape[0]):
                        a = x_0 - y_0[c]
                        b = x_1 - y_1[c]
                        near[c] += own * weights[c] if a * a + b * b <= limit2 else 0.0
            else:
                x_0, x_1, x_2 = left[s], left[n + s], left[2 * n + s]
                y_0, y_1, y_2 = columns[t], columns[m + t], columns[2 * m + t]
                if column_weights.shape[0] == 0:
                    for c in range(near.shape[0]):
                        a = x_0 - y_0[c]
                        b = x_1 - y_1[c]
                        e = x_2 - y_2[c]
                        near[c] += own if a * a + b * b + e * e <= limit2 else 0.0
                else:
                    weights = column_weights[t]
                    for c in range(near.shape[0]):
                        a = x_0 - y_0[c]
                        b = x_1 - y_1[c]
                        e = x_2 - y_2[c]
                        near[c] += own * weights[c] if a * a + b * b + e * e <= limit2 else 0.0


@kernel
def refine(
    pairs: RowPairs,
    limit: float,
    threshold: float,
    bounded_from: int,  # as many samples as it pays to judge each by itself, before it is compared with all others
    one: Sampled,
    other: Sampled,
    probability: Floats,
    at_most: Floats,  # the upper bound where bounds will do, which ends a pair once it reaches the threshold; or empty
) -> int:
    """Probability of each pair ``(left[i], right[i])``; NaN once it is certain to stay below ``threshold``.

    The samples of the wider object are judged against the other first (`sample_bounds`), then summed over; what they
    may add at most bounds what can still come. Returns how many pairs bounds of single samples decided.
    """
    left, right = pairs.left, pairs.right
    left_samples, left_begin, left_length, left_base = one.samples[1:5]
    left_weights, left_weights_begin, left_weights_base = one.samples[5:]
    left_mass, left_centre, left_radius, _, _ = one.moments
    right_samples, right_begin, right_length, right_base = other.samples[1:5]
    right_weights, right_weights_begin, right_weights_base = other.samples[5:]
    right_mass, right_centre, right_radius, right_covariance, right_shape = other.moments
    d = left_centre.shape[1]
    early = at_most.shape[0] > 0
    longest = 0
    for i in range(right.shape[0]):
        longest = max(longest, right_length[right[i]] // d)
    widest = longest
    for i in range(left.shape[0]):
        widest = max(widest, left_length[left[i]] // d)
    limit2 = limit * limit
    upper, scratch = np.empty(widest, np.float64), np.empty(widest, np.float64)
    room = Room(upper, np.empty(widest + 1, np.int64), scratch)
    left_even = left_weights.shape[0] == 0
    right_even = right_weights.shape[0] == 0
    ones = np.ones(widest, np.float64)
    p = ones if left_even else left_weights
    q = ones if right_even else right_weights
    need = threshold - 1e-12
    small = d in (2, 3) and widest <= _MOST_IN_BLOCK
    columns = np.empty((d * widest if small else 0, _BLOCK), np.float64)
    column_weights = np.empty((widest if small and not right_even else 0, _BLOCK), np.float64)
    near = np.empty(_BLOCK, np.float64)
    pruned = 0
    i = -1
    while i + 1 < left.shape[0]:
        i += 1
        a = left[i]
        b = right[i]
        n = left_length[a] // d
        m = right_length[b] // d
        if small:
            # A few samples are too few for a loop over them: better one over partners with as many.
            end = i
            while (
                end < left.shape[0]
                and end - i < _BLOCK
                and left[end] == a
                and right_length[right[end]] == right_length[b]
            ):
                c = right[end]
                at = right_begin[c] - right_base
                for k in range(d * m):
                    columns[k, end - i] = right_samples[at + k]
                if not right_even:
                    for k in range(m):
                        column_weights[k, end - i] = right_weights[right_weights_begin[c] - right_weights_base + k]
                end += 1
            if end - i >= _LEAST_BLOCK:
                block = near[: end - i]
                weights = left_weights[left_weights_begin[a] - left_weights_base :][:n] if not left_even else ones[:0]
                own = left_samples[left_begin[a] - left_base :][: n * d]
                _block(own, weights, m, d, columns, column_weights[: 0 if right_even else m], limit2, block)
                for k in range(i, end):
                    mass = right_mass[right[k]]
                    value = block[k - i]
                    if left_even and right_even:
                        probability[k] = (value / (n * m)) * (left_mass[a] * mass)
                    elif left_even:
                        probability[k] = value * left_mass[a] / n
                    elif right_even:
                        probability[k] = value * mass / m
                    else:
                        probability[k] = value
                    if early:
                        at_most[k] = probability[k]
                i = end - 1
                continue
        if i + 1 < left.shape[0]:
            # Partners lie anywhere in the window: have the next one's samples on their way.
            c = right[i + 1]
            for t in range(0, right_length[c], 8):
                prefetch(right_samples, right_begin[c] - right_base + t)
        if i + _AHEAD < left.shape[0]:
            c = right[i + _AHEAD]
            prefetch(right_begin, c)
            prefetch(right_length, c)
            fetch_place(right_mass, right_radius, right_centre, c)
            fetch_spread(right_covariance, right_shape, c)
        x_at, y_at = left_begin[a] - left_base, right_begin[b] - right_base
        p_at = 0 if left_even else left_weights_begin[a] - left_weights_base
        q_at = 0 if right_even else right_weights_begin[b] - right_weights_base
        # Equal weights are counted, not summed: ten times 0.1 is 1. A sample then weighs 1, and this in truth:
        scale = (left_mass[a] / n if left_even else 1.0) * (right_mass[b] / m if right_even else 1.0)
        goal = (need / scale, (threshold + 1e-12) / scale if early else np.inf)
        even = left_even and right_even
        flipped = left_radius[a] < right_radius[b]
        square = 0.0
        magnitude = 0.0
        for k in range(d):
            gap = left_centre[a, k] - right_centre[b, k]
            square += gap * gap
            magnitude += abs(left_centre[a, k]) + abs(right_centre[b, k])
        far = np.sqrt(square) + left_radius[a] + right_radius[b]
        blur = 4e-16 * (magnitude + far)
        if min(n, m) < bounded_from:
            upper[:] = 1.0
        x = SampleRun(left_samples, x_at, p, p_at, n)
        y = SampleRun(right_samples, y_at, q, q_at, m)
        if flipped:
            if min(n, m) >= bounded_from:
                sample_bounds(y, one.moments, a, limit, far, blur, upper, scratch)
            total = float(n) if left_even else left_mass[a]
            value, rest = by_samples(y, x, d, limit2, even, total, goal, room)
        else:
            if min(n, m) >= bounded_from:
                sample_bounds(x, other.moments, b, limit, far, blur, upper, scratch)
            total = float(m) if right_even else right_mass[b]
            value, rest = by_samples(x, y, d, limit2, even, total, goal, room)
        if value < 0.0:
            pruned += value == -2.0
            probability[i] = np.nan
        elif even:
            probability[i] = (value / (n * m)) * (left_mass[a] * right_mass[b])
        else:
            probability[i] = value * scale
        if early and value >= 0.0:
            at_most[i] = probability[i] if rest < 1e-9 else min(left_mass[a] * right_mass[b], (value + rest) * scale)
    return pruned
