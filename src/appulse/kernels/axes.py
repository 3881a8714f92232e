"""Pairs of objects whose samples differ along one axis only: rows with one hole that was filled.

The samples of such an object stand in order along its axis. So which of them lie within a distance of a sample of the
other is a run, found by walking on, and its weight a difference of two partial sums: O(n + m) for a pair, in place of
O(n m).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, RowPairs, Samples, Whole

_UNKNOWN, _NO_AXIS, _SEVERAL = -3, -1, -2


@kernel
def _axis(samples: Floats, at: Whole, n: Whole, d: int) -> int:
    """The only axis along which samples differ, if they stand in order along it."""
    found = _NO_AXIS
    if n == 1:
        return found
    for k in range(d):
        # The ends tell mostly; samples in order that agree there agree everywhere.
        if samples[at + k * n] != samples[at + k * n + n - 1]:
            if found != _NO_AXIS:
                return _SEVERAL
            found = k
    for k in range(d):
        first = at + k * n
        if k == found:
            for s in range(1, n):
                if samples[first + s - 1] > samples[first + s]:
                    return _SEVERAL
        else:
            for s in range(1, n):
                if samples[first] != samples[first + s]:
                    return _SEVERAL
    return found


@kernel
def _sums(weights: Floats, begin: Whole, n: Whole, even: bool, mass: float, sums: Floats) -> None:
    """Partial sums of an object's weights."""
    sums[0] = 0.0
    for s in range(n):
        sums[s + 1] = mass * (s + 1) / n if even else sums[s] + weights[begin + s]


class AxisRun(NamedTuple):
    """Samples in order along an axis, their coordinate along the other object's axis, and partial sums of weights."""

    values: Floats
    at: float
    sums: Floats


@kernel
def _along_one(x: Floats, y: Floats, own: Floats, sums: Floats, rest: float, limit2: float) -> float:
    """Both differ along the same axis: for each of x, in order, a run of y that moves on."""
    total, low, high, m = 0.0, 0, 0, len(y)
    for s in range(len(x)):
        while low < m and y[low] < x[s] and (x[s] - y[low]) * (x[s] - y[low]) + rest > limit2:
            low += 1
        high = max(high, low)
        while high < m and (y[high] <= x[s] or (y[high] - x[s]) * (y[high] - x[s]) + rest <= limit2):
            high += 1
        total += (own[s + 1] - own[s]) * (sums[high] - sums[low])
    return total


@kernel
def _across(one: AxisRun, other: AxisRun, rest: float, limit2: float, need: float) -> float:
    """They differ along two axes: x along its own, where y is at ``other.at``, and y likewise.

    From the x nearest to ``other.at`` outward on either side, the run of y only narrows. NaN where the widest run and
    all of x in reach together weigh less than ``need`` (Ren et al. 2019, Lemma 4.2).
    """
    x, x_at, own = one
    y, y_at, sums = other
    n, m = len(x), len(y)
    start, middle = int(np.searchsorted(x, y_at)), int(np.searchsorted(y, x_at))
    first, last = start, start
    while first > 0 and (x[first - 1] - y_at) * (x[first - 1] - y_at) + rest <= limit2:
        first -= 1
    while last < n and (x[last] - y_at) * (x[last] - y_at) + rest <= limit2:
        last += 1
    low, high = middle, middle
    while low > 0 and (y[low - 1] - x_at) * (y[low - 1] - x_at) + rest <= limit2:
        low -= 1
    while high < m and (y[high] - x_at) * (y[high] - x_at) + rest <= limit2:
        high += 1
    if (own[last] - own[first]) * (sums[high] - sums[low]) < need:
        return np.nan
    total, least, most = 0.0, low, high
    for s in range(start, last):
        used = (x[s] - y_at) * (x[s] - y_at) + rest
        while low < middle and (y[low] - x_at) * (y[low] - x_at) + used > limit2:
            low += 1
        while high > middle and (y[high - 1] - x_at) * (y[high - 1] - x_at) + used > limit2:
            high -= 1
        total += (own[s + 1] - own[s]) * (sums[high] - sums[low])
    low, high = least, most
    for s in range(start - 1, first - 1, -1):
        used = (x[s] - y_at) * (x[s] - y_at) + rest
        while low < middle and (y[low] - x_at) * (y[low] - x_at) + used > limit2:
            low += 1
        while high > middle and (y[high - 1] - x_at) * (y[high - 1] - x_at) + used > limit2:
            high -= 1
        total += (own[s + 1] - own[s]) * (sums[high] - sums[low])
    return total


@kernel
def refine_on_axes(
    pairs: RowPairs,
    d: int,
    limit2: float,
    threshold: float,
    one: Samples,
    other: Samples,
    probability: Floats,
    done: Flags,
) -> None:
    """The probability of each pair ``(left[i], right[i])`` whose objects both differ along one axis at most.

    NaN where a bound puts it below ``threshold``; ``done`` marks these pairs. The other arguments are those
    of `appulse.kernels.refine.refine`.
    """
    left, right = pairs
    left_mass, left_samples, left_begin, left_length, left_base = one[:5]
    left_weights, left_weights_begin, left_weights_base = one[5:]
    right_mass, right_samples, right_begin, right_length, right_base = other[:5]
    right_weights, right_weights_begin, right_weights_base = other[5:]
    longest = 0
    for i in range(len(left)):
        longest = max(longest, left_length[left[i]] // d, right_length[right[i]] // d)
    own = np.empty(longest + 1)
    axes = np.full(len(right_length), _UNKNOWN)
    # Partial sums of right objects, made on first use, each with room for one number more than it has samples.
    places, room = np.full(len(right_length), -1), 0
    for i in range(len(right)):
        if places[right[i]] < 0:
            places[right[i]] = room
            room += right_length[right[i]] // d + 1
    partial = np.empty(room)
    last, j = -1, _SEVERAL
    need = threshold - 1e-12
    left_even, right_even = len(left_weights) == 0, len(right_weights) == 0
    for i in range(len(left)):
        a, b = left[i], right[i]
        n, m = left_length[a] // d, right_length[b] // d
        x_first, y_first = left_begin[a] - left_base, right_begin[b] - right_base
        if a != last:
            last = a
            j = _axis(left_samples, x_first, n, d)
            if j != _SEVERAL:
                begin = 0 if left_even else left_weights_begin[a] - left_weights_base
                _sums(left_weights, begin, n, left_even, left_mass[a], own)
        done[i] = False
        if j == _SEVERAL:
            continue
        if axes[b] == _UNKNOWN:
            axes[b] = _axis(right_samples, y_first, m, d)
            begin = 0 if right_even else right_weights_begin[b] - right_weights_base
            _sums(right_weights, begin, m, right_even, right_mass[b], partial[places[b] :])
        if axes[b] == _SEVERAL:
            continue
        done[i] = True
        j_here = j if j != _NO_AXIS else (axes[b] if axes[b] != _NO_AXIS else 0)
        k_here = axes[b] if axes[b] != _NO_AXIS else j_here
        rest = 0.0
        for axis in range(d):
            if axis not in (j_here, k_here):
                apart = left_samples[x_first + axis * n] - right_samples[y_first + axis * m]
                rest += apart * apart
        x = left_samples[x_first + j_here * n : x_first + (j_here + 1) * n]
        y = right_samples[y_first + k_here * m : y_first + (k_here + 1) * m]
        x_at, y_at = left_samples[x_first + k_here * n], right_samples[y_first + j_here * m]
        if j_here == k_here:
            gap = max(0.0, x[0] - y[m - 1], y[0] - x[n - 1])
            nearest = gap * gap + rest
        else:
            gap, across = max(0.0, x[0] - y_at, y_at - x[n - 1]), max(0.0, y[0] - x_at, x_at - y[m - 1])
            nearest = gap * gap + across * across + rest
        if nearest > limit2:  # Ren et al. 2019, Lemma 4.1: their boxes are further apart
            probability[i] = 0.0
            continue
        sums = partial[places[b] : places[b] + m + 1]
        if j_here == k_here:
            probability[i] = _along_one(x, y, own, sums, rest, limit2)
        else:
            probability[i] = _across(AxisRun(x, x_at, own), AxisRun(y, y_at, sums), rest, limit2, need)
