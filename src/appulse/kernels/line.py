"""Exact probabilities of pairs on a line, where one object meets many: Lian & Chen 2009, Eq. 2, in one dimension.

The weight of an object's samples within epsilon of a point is a step function of that point, its *profile*. It is
tabulated once, on even cells; then each sample of each partner is one look-up in place of a comparison with every
sample. A cell in which a step lies knows whose it is, and these few are compared as everywhere: nothing is rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

_CELLS = 256
# What a table costs to make, and a look-up, in comparisons of samples.
_TABLE_COST = 600
_LOOKUP_COST = 3


@kernel
def _cell(x: float, low: float, inverse: float) -> int:
    return min(_CELLS - 1, max(0, int((x - low) * inverse)))


@kernel
def _tabulate(
    samples: Floats, weights: Floats, low: float, inverse: float, limit: float, base: Floats, start: Ints, open_: Ints
) -> int:
    """The profile: ``base`` is what covers a cell, ``open_[start[c]:start[c + 1]]`` whose step lies in cell c.

    Returns how many of these there are, more than there is room for if there are too many.
    """
    base[:] = 0.0
    start[:] = 0
    n = samples.shape[0]
    for k in range(n):
        slack = 1e-14 * (abs(samples[k]) + limit)
        first = _cell(samples[k] - limit - slack, low, inverse)
        inside = _cell(samples[k] - limit + slack, low, inverse) + 1
        outside = _cell(samples[k] + limit - slack, low, inverse)
        last = _cell(samples[k] + limit + slack, low, inverse)
        if inside < outside:
            base[inside] += weights[k]
            base[outside] -= weights[k]
        else:
            outside = inside
        for c in range(first, inside):
            start[c + 1] += 1
        for c in range(outside, last + 1):
            start[c + 1] += 1
    for c in range(_CELLS):
        start[c + 1] += start[c]
        if c > 0:
            base[c] += base[c - 1]
    total = int(start[_CELLS])
    if total > open_.shape[0]:
        return total
    for k in range(n):
        slack = 1e-14 * (abs(samples[k]) + limit)
        first = _cell(samples[k] - limit - slack, low, inverse)
        inside = _cell(samples[k] - limit + slack, low, inverse) + 1
        outside = max(inside, _cell(samples[k] + limit - slack, low, inverse))
        last = _cell(samples[k] + limit + slack, low, inverse)
        for c in range(first, inside):
            open_[start[c]] = k
            start[c] += 1
        for c in range(outside, last + 1):
            open_[start[c]] = k
            start[c] += 1
    for c in range(_CELLS, 0, -1):
        start[c] = start[c - 1]
    start[0] = 0
    return total


@kernel
def refine_line(
    left: Ints,  # in runs: the pairs of one object follow each other
    right: Ints,
    limit2: float,
    threshold: float,
    left_mass: Floats,
    left_samples: Floats,
    left_begin: Ints,  # where each object's samples begin, counted from left_base
    left_length: Ints,
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
    """Probability of each pair ``(left[i], right[i])``; NaN once it is certain to stay below ``threshold``."""
    limit = np.sqrt(limit2)
    left_even = left_weights.shape[0] == 0
    right_even = right_weights.shape[0] == 0
    base = np.empty(_CELLS)
    start = np.empty(_CELLS + 1, np.int64)
    open_ = np.empty(1024, np.int64)
    ones = np.ones(16)
    i = 0
    while i < left.shape[0]:
        a = left[i]
        n = left_length[a]
        x = left_samples[left_begin[a] - left_base :][:n]
        if ones.shape[0] < n:
            ones = np.ones(2 * n)
        # Equal weights are counted, not summed: ten times 0.1 is 1.
        weights = ones if left_even else left_weights[left_weights_begin[a] - left_weights_base :][:n]
        share = left_mass[a] / n if left_even else 1.0
        end = i
        work = 0
        while end < left.shape[0] and left[end] == a:
            work += right_length[right[end]]
            end += 1
        tabled = work * n > _TABLE_COST + _LOOKUP_COST * work
        low, inverse = 0.0, 0.0
        if tabled:
            low = x.min() - limit
            width = x.max() + limit - low
            # A little more than there is, so that both ends lie inside.
            low -= 1e-9 * width + 1e-12 * abs(low)
            inverse = _CELLS / ((x.max() + limit - low) * (1.0 + 1e-9))
            tabled = np.isfinite(inverse)
        if tabled:
            total = _tabulate(x, weights, low, inverse, limit, base, start, open_)
            if total > open_.shape[0]:
                open_ = np.empty(2 * total, np.int64)
                _tabulate(x, weights, low, inverse, limit, base, start, open_)
        while i < end:
            b = right[i]
            m = right_length[b]
            y = right_samples[right_begin[b] - right_base :][:m]
            at = 0 if right_even else right_weights_begin[b] - right_weights_base
            unit = share * (right_mass[b] / m if right_even else 1.0)
            remaining = right_mass[b]
            found = 0.0
            rejected = False
            for s in range(m):
                near = 0.0
                if tabled:
                    place = (y[s] - low) * inverse
                    if 0.0 <= place < _CELLS:
                        c = int(place)
                        near = base[c]
                        for e in range(start[c], start[c + 1]):
                            gap = x[open_[e]] - y[s]
                            near += weights[open_[e]] if gap * gap <= limit2 else 0.0
                else:
                    for k in range(n):
                        gap = x[k] - y[s]
                        near += weights[k] if gap * gap <= limit2 else 0.0
                if right_even:
                    found += near
                    remaining -= right_mass[b] / m
                else:
                    found += near * right_weights[at + s]
                    remaining -= right_weights[at + s]
                if s % 4 == 3 and found * unit + remaining * left_mass[a] < threshold - 1e-12:
                    rejected = True
                    break
            if rejected:
                probability[i] = np.nan
            elif left_even and right_even:
                probability[i] = (found / (n * m)) * (left_mass[a] * right_mass[b])
            else:
                probability[i] = found * unit
            i += 1
