"""Exact probabilities of pairs of sampled objects: Lian & Chen 2009, Eq. 2.

Samples of an object are stored dimension by dimension (all first coordinates, then all second ones), so that the
inner loop runs over contiguous memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints


# Partners taken at once, at least and at most, and how many samples they may have.
_LEAST_BLOCK, _BLOCK, _MOST_IN_BLOCK = 8, 64, 40


@kernel
def _squared_distances(x: Floats, offset: int, n: int, d: int, samples: Floats, scratch: Floats) -> None:
    scratch[:n] = 0.0
    for i in range(d):
        at = offset + i * n
        for k in range(n):
            a = x[i] - samples[at + k]
            scratch[k] += a * a


@kernel
def close_count(
    left: Floats, right: Floats, n: int, m: int, d: int, limit2: float, need: float, x: Floats, scratch: Floats
) -> int:
    """How many pairs of samples of two objects are within the limit; -1 once they cannot be as many as needed.

    One call per pair of objects: a call costs as much as a hundred comparisons.
    """
    close = 0
    for s in range(n):
        near = 0
        if d == 1:
            for k in range(m):
                a = left[s] - right[k]
                near += a * a <= limit2
        elif d == 2:
            right_0, right_1 = right[:m], right[m : 2 * m]
            for k in range(m):
                a = left[s] - right_0[k]
                b = left[n + s] - right_1[k]
                near += a * a + b * b <= limit2
        elif d == 3:
            right_0, right_1, right_2 = right[:m], right[m : 2 * m], right[2 * m : 3 * m]
            for k in range(m):
                a = left[s] - right_0[k]
                b = left[n + s] - right_1[k]
                c = left[2 * n + s] - right_2[k]
                near += a * a + b * b + c * c <= limit2
        else:
            for i in range(d):
                x[i] = left[i * n + s]
            _squared_distances(x, 0, m, d, right, scratch)
            for k in range(m):
                near += scratch[k] <= limit2
        close += near
        if close + (n - 1 - s) * m < need:
            return -1
    return close


@kernel
def _close_mass(
    left: Floats,
    left_weights: Floats,
    right: Floats,
    right_weights: Floats,
    n: int,
    m: int,
    d: int,
    limit2: float,
    left_mass: float,
    right_mass: float,
    need: float,
    x: Floats,
    scratch: Floats,
) -> float:
    """The weight of the pairs of samples within the limit; NaN once it cannot be as much as needed."""
    found = 0.0
    remaining = left_mass
    for s in range(n):
        near = 0.0
        if d == 2:
            right_0, right_1 = right[:m], right[m : 2 * m]
            for k in range(m):
                a = left[s] - right_0[k]
                b = left[n + s] - right_1[k]
                near += right_weights[k] if a * a + b * b <= limit2 else 0.0
        elif d == 3:
            right_0, right_1, right_2 = right[:m], right[m : 2 * m], right[2 * m : 3 * m]
            for k in range(m):
                a = left[s] - right_0[k]
                b = left[n + s] - right_1[k]
                c = left[2 * n + s] - right_2[k]
                near += right_weights[k] if a * a + b * b + c * c <= limit2 else 0.0
        else:
            for i in range(d):
                x[i] = left[i * n + s]
            _squared_distances(x, 0, m, d, right, scratch)
            for k in range(m):
                near += right_weights[k] if scratch[k] <= limit2 else 0.0
        found += left_weights[s] * near
        remaining -= left_weights[s]
        if found + remaining * right_mass < need:
            return np.nan
    return found


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
    limit2: float,
    threshold: float,
    left_mass: Floats,
    left_samples: Floats,
    left_begin: Ints,  # where each object's samples begin, counted from left_base
    left_length: Ints,  # samples times d
    left_base: int,
    left_weights: Floats,  # empty: all samples of an object weigh the same
    left_weights_begin: Ints,
    left_weights_base: int,
    right_mass: Floats,
    right_samples: Floats,
    right_begin: Ints,
    right_length: Ints,
    right_base: int,
    right_weights: Floats,
    right_weights_begin: Ints,
    right_weights_base: int,
    probability: Floats,
) -> None:
    """Probability of each pair ``(left[i], right[i])``; NaN once it is certain to stay below ``threshold``.

    The sum runs over the left samples; what is left of their mass bounds what can still come.
    """
    longest = 0
    for i in range(right.shape[0]):
        longest = max(longest, right_length[right[i]] // d)
    widest = longest
    for i in range(left.shape[0]):
        widest = max(widest, left_length[left[i]] // d)
    scratch = np.empty(longest, np.float64)
    x = np.empty(d, np.float64)
    left_even = left_weights.shape[0] == 0
    right_even = right_weights.shape[0] == 0
    p = np.empty(widest if left_even else 0, np.float64)
    q = np.empty(widest if right_even else 0, np.float64)
    need = threshold - 1e-12
    small = d in (2, 3) and widest <= _MOST_IN_BLOCK
    columns = np.empty((d * widest if small else 0, _BLOCK), np.float64)
    column_weights = np.empty((widest if small and not right_even else 0, _BLOCK), np.float64)
    near = np.empty(_BLOCK, np.float64)
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
                weights = left_weights[left_weights_begin[a] - left_weights_base :][:n] if not left_even else p[:0]
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
                i = end - 1
                continue
        x_samples = left_samples[left_begin[a] - left_base :][: n * d]
        y_samples = right_samples[right_begin[b] - right_base :][: m * d]
        if left_even and right_even:
            # Equal weights are counted, not summed: ten times 0.1 is 1.
            mass = left_mass[a] * right_mass[b]
            close = close_count(x_samples, y_samples, n, m, d, limit2, need * (n * m) / mass, x, scratch)
            probability[i] = np.nan if close < 0 else (close / (n * m)) * mass
            continue
        if left_even:
            p[:n] = left_mass[a] / n
        if right_even:
            q[:m] = right_mass[b] / m
        x_weights = p[:n] if left_even else left_weights[left_weights_begin[a] - left_weights_base :][:n]
        y_weights = q[:m] if right_even else right_weights[right_weights_begin[b] - right_weights_base :][:m]
        probability[i] = _close_mass(
            x_samples,
            x_weights,
            y_samples,
            y_weights,
            n,
            m,
            d,
            limit2,
            left_mass[a],
            right_mass[b],
            need,
            x,
            scratch,
        )


@kernel
def close_samples(
    left: Ints,
    right: Ints,
    factor: Floats,
    d: int,
    limit2: float,
    left_mass: Floats,
    left_samples: Floats,
    left_begin: Ints,
    left_length: Ints,
    left_base: int,
    left_weights: Floats,
    left_weights_begin: Ints,
    left_weights_base: int,
    right_mass: Floats,
    right_samples: Floats,
    right_begin: Ints,
    right_length: Ints,
    right_base: int,
    right_weights: Floats,
    right_weights_begin: Ints,
    right_weights_base: int,
    first: Ints,  # where the sample pairs of each pair begin; written if `count`
    count: bool,  # count only
    out_left: NDArray[np.float64],
    out_right: NDArray[np.float64],
    out_weight: Floats,
) -> None:
    """The pairs of samples within the limit of each other (Dallachiesa et al. 2015, Eq. 20).

    Their weight is the product of both samples' weights and the ``factor`` of the pair of objects.
    """
    for i in range(left.shape[0]):
        a = left[i]
        b = right[i]
        n = left_length[a] // d
        m = right_length[b] // d
        a_begin = left_begin[a] - left_base
        b_begin = right_begin[b] - right_base
        at = 0 if count else first[i]
        for s in range(n):
            p = left_mass[a] / n
            if left_weights.shape[0] > 0:
                p = left_weights[left_weights_begin[a] - left_weights_base + s]
            for t in range(m):
                square = 0.0
                for k in range(d):
                    gap = left_samples[a_begin + k * n + s] - right_samples[b_begin + k * m + t]
                    square += gap * gap
                if square > limit2:
                    continue
                if not count:
                    q = right_mass[b] / m
                    if right_weights.shape[0] > 0:
                        q = right_weights[right_weights_begin[b] - right_weights_base + t]
                    for k in range(d):
                        out_left[at, k] = left_samples[a_begin + k * n + s]
                        out_right[at, k] = right_samples[b_begin + k * m + t]
                    out_weight[at] = p * q * factor[i]
                at += 1
        if count:
            first[i + 1] = first[i] + at
