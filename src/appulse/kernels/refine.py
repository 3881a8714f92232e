"""Exact probabilities of pairs of sampled objects: Lian & Chen 2009, Eq. 2.

Samples of an object are stored dimension by dimension (all first coordinates, then all second ones), so that the
inner loop runs over contiguous memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.close import close_count, close_mass
from appulse.kernels.jit import kernel
from appulse.kernels.lanes import prefetch
from appulse.kernels.sift import sift

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints


# Partners taken at once, at least and at most, and how many samples they may have.
_LEAST_BLOCK, _BLOCK, _MOST_IN_BLOCK = 8, 64, 40
_AHEAD = 8  # pairs that are prepared before their turn


@kernel
def by_samples(
    left: Floats,
    left_at: int,
    left_weights: Floats,
    left_weights_at: int,
    n: int,
    right: Floats,
    right_at: int,
    right_weights: Floats,
    right_weights_at: int,
    m: int,
    d: int,
    limit2: float,
    even: bool,
    total: float,  # weight of all of the right samples
    needed: float,
    enough: float,
    upper: NDArray[np.float64],  # shares, as `sift` tells them
    order: NDArray[np.int64],
    scratch: NDArray[np.float64],
) -> tuple[float, float]:
    """The weight of all pairs of samples that are close, and what is left open once that is enough.

    -1 where it is less than needed, -2 where shares alone tell.
    """
    found = rest = 0.0
    weights = left_weights[left_weights_at:][:n]
    for s in range(n):
        weight = weights[s] * total
        share = upper[s]
        found += weight if share == -1.0 else 0.0
        rest += weight * share if share >= 0.0 else 0.0
    if found + rest < needed:
        return -2.0, 0.0
    if found >= enough:
        return found, rest
    count = 0
    for s in range(n):
        order[count] = s
        count += upper[s] >= 0.0
        upper[s] *= total
    asked = order[:count]
    if even:
        return close_count(
            left, left_at, n, right, right_at, m, d, limit2, asked, upper, found, rest, needed, enough, scratch
        )
    return close_mass(
        left,
        left_at,
        left_weights,
        left_weights_at,
        n,
        right,
        right_at,
        right_weights,
        right_weights_at,
        m,
        d,
        limit2,
        asked,
        upper,
        found,
        rest,
        needed,
        enough,
        scratch,
    )


@kernel
def _block(
    left: Floats,
    left_weights: Floats,  # empty: all weigh 1
    n: int,
    m: int,
    d: int,
    columns: NDArray[np.float64],  # sample t, dimension k of many partners: row k m + t
    column_weights: NDArray[np.float64],  # sample t of many partners; empty: all weigh 1
    limit2: float,
    near: Floats,
) -> None:
    """The weight of the pairs of samples within the limit, of one object and many partners at once."""
    near[:] = 0.0
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
    left: Ints,
    right: Ints,
    d: int,
    limit: float,
    threshold: float,
    sifted_from: int,  # as many samples as it pays to judge each by itself, before it is compared with all others
    early: bool,  # bounds will do: end once the threshold is reached
    left_mass: Floats,
    left_samples: Floats,
    left_begin: Ints,  # where each object's samples begin, counted from left_base
    left_length: Ints,  # samples times d
    left_base: int,
    left_weights: Floats,  # empty: all samples of an object weigh the same
    left_weights_begin: Ints,
    left_weights_base: int,
    left_centre: Floats,
    left_radius: Floats,
    left_covariance: Floats,
    left_shape: Floats,
    right_mass: Floats,
    right_samples: Floats,
    right_begin: Ints,
    right_length: Ints,
    right_base: int,
    right_weights: Floats,
    right_weights_begin: Ints,
    right_weights_base: int,
    right_centre: Floats,
    right_radius: Floats,
    right_covariance: Floats,
    right_shape: Floats,
    probability: Floats,
    at_most: Floats,  # where bounds will do: the upper one
) -> int:
    """Probability of each pair ``(left[i], right[i])``; NaN once it is certain to stay below ``threshold``.

    The samples of the wider object are judged against the other first (`sift`), then summed over; what they may add at
    most bounds what can still come. Returns how many pairs bounds of single samples decided.
    """
    longest = 0
    for i in range(right.shape[0]):
        longest = max(longest, right_length[right[i]] // d)
    widest = longest
    for i in range(left.shape[0]):
        widest = max(widest, left_length[left[i]] // d)
    limit2 = limit * limit
    upper, scratch = np.empty(widest, np.float64), np.empty(widest, np.float64)
    order = np.empty(widest + 1, np.int64)
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
                _block(own, weights, n, m, d, columns, column_weights[: 0 if right_even else m], limit2, block)
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
            prefetch(right_mass, c)
            prefetch(right_radius, c)
            prefetch(right_centre, c * d)
            prefetch(right_covariance, c * right_covariance.shape[1])
            prefetch(right_shape, c * right_shape.shape[1])
        x_at, y_at = left_begin[a] - left_base, right_begin[b] - right_base
        p_at = 0 if left_even else left_weights_begin[a] - left_weights_base
        q_at = 0 if right_even else right_weights_begin[b] - right_weights_base
        # Equal weights are counted, not summed: ten times 0.1 is 1. A sample then weighs 1, and this in truth:
        scale = (left_mass[a] / n if left_even else 1.0) * (right_mass[b] / m if right_even else 1.0)
        needed = need / scale
        enough = (threshold + 1e-12) / scale if early else np.inf
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
        if min(n, m) < sifted_from:
            upper[:] = 1.0
        if flipped:
            if min(n, m) >= sifted_from:
                side = (left_centre, left_radius, left_covariance, left_shape)
                sift(right_samples, y_at, m, d, *side, a, limit, far, blur, upper, scratch)
            total = float(n) if left_even else left_mass[a]
            value, rest = by_samples(
                right_samples,
                y_at,
                q,
                q_at,
                m,
                left_samples,
                x_at,
                p,
                p_at,
                n,
                d,
                limit2,
                even,
                total,
                needed,
                enough,
                upper,
                order,
                scratch,
            )
        else:
            if min(n, m) >= sifted_from:
                side = (right_centre, right_radius, right_covariance, right_shape)
                sift(left_samples, x_at, n, d, *side, b, limit, far, blur, upper, scratch)
            total = float(m) if right_even else right_mass[b]
            value, rest = by_samples(
                left_samples,
                x_at,
                p,
                p_at,
                n,
                right_samples,
                y_at,
                q,
                q_at,
                m,
                d,
                limit2,
                even,
                total,
                needed,
                enough,
                upper,
                order,
                scratch,
            )
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
