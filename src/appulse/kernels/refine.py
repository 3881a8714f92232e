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


@kernel
def _close_count(x: Floats, offset: int, n: int, d: int, samples: Floats, limit2: float, scratch: Floats) -> int:
    """How many of the ``n`` samples at ``offset`` lie within the limit of point ``x``."""
    close = 0
    if d == 1:
        for k in range(n):
            a = x[0] - samples[offset + k]
            close += a * a <= limit2
    elif d == 2:
        for k in range(n):
            a = x[0] - samples[offset + k]
            b = x[1] - samples[offset + n + k]
            close += a * a + b * b <= limit2
    elif d == 3:
        for k in range(n):
            a = x[0] - samples[offset + k]
            b = x[1] - samples[offset + n + k]
            c = x[2] - samples[offset + 2 * n + k]
            close += a * a + b * b + c * c <= limit2
    else:
        _squared_distances(x, offset, n, d, samples, scratch)
        for k in range(n):
            close += scratch[k] <= limit2
    return close


@kernel
def _squared_distances(x: Floats, offset: int, n: int, d: int, samples: Floats, scratch: Floats) -> None:
    scratch[:n] = 0.0
    for i in range(d):
        at = offset + i * n
        for k in range(n):
            a = x[i] - samples[at + k]
            scratch[k] += a * a


@kernel
def _close_mass(
    x: Floats, offset: int, n: int, d: int, samples: Floats, weights: Floats, first: int, limit2: float, scratch: Floats
) -> float:
    """The weight of the ``n`` samples within the limit of point ``x``."""
    _squared_distances(x, offset, n, d, samples, scratch)
    mass = 0.0
    for k in range(n):
        mass += weights[first + k] if scratch[k] <= limit2 else 0.0
    return mass


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
    scratch = np.empty(longest, np.float64)
    x = np.empty(d, np.float64)
    left_even = left_weights.shape[0] == 0
    right_even = right_weights.shape[0] == 0
    for i in range(left.shape[0]):
        a = left[i]
        b = right[i]
        n = left_length[a] // d
        m = right_length[b] // d
        a_begin = left_begin[a] - left_base
        b_begin = right_begin[b] - right_base
        share = left_mass[a] / n
        remaining = left_mass[a]
        found = 0.0
        # Equal weights are counted, not summed: ten times 0.1 is 1.
        close = 0
        rejected = False
        for s in range(n):
            for k in range(d):
                x[k] = left_samples[a_begin + k * n + s]
            weight = share if left_even else left_weights[left_weights_begin[a] - left_weights_base + s]
            remaining -= weight
            if right_even:
                near = _close_count(x, b_begin, m, d, right_samples, limit2, scratch)
                close += near
                found += weight * (near * right_mass[b] / m)
            else:
                at = right_weights_begin[b] - right_weights_base
                found += weight * _close_mass(x, b_begin, m, d, right_samples, right_weights, at, limit2, scratch)
            if found + remaining * right_mass[b] < threshold - 1e-12:
                rejected = True
                break
        if rejected:
            probability[i] = np.nan
        elif left_even and right_even:
            probability[i] = (close / (n * m)) * (left_mass[a] * right_mass[b])
        else:
            probability[i] = found


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
