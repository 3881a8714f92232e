"""Mean differences within distributions, for scores of many of them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints


@exact_kernel
def of_missing(
    points: Floats, weights: Floats, first: Ints, masked: Floats, truth: Floats, unit: Floats
) -> tuple[Floats, Floats, Ints, Floats]:
    """What samples of rows say of values that were taken out, attribute by attribute: `mean_differences`' arguments.

    Samples of row i are the points from ``first[i]`` on; each attribute is in its ``unit``. Values of each distribution
    are in order.
    """
    n, d = truth.shape
    taken = np.isnan(masked) & ~np.isnan(truth)
    holes, total = 0, 0
    for i in range(n):
        for k in range(d):
            holes += int(taken[i, k])
            total += int(taken[i, k]) * (first[i + 1] - first[i])
    values, shares, begins, real = np.empty(total), np.empty(total), np.zeros(holes + 1, np.int64), np.empty(holes)
    hole, at = 0, 0
    for k in range(d):
        for i in range(n):
            if taken[i, k]:
                for j in range(first[i], first[i + 1]):
                    values[at] = points[j, k] / unit[k]
                    shares[at] = weights[j]
                    at += 1
                order = begins[hole] + np.argsort(values[begins[hole] : at])
                values[begins[hole] : at], shares[begins[hole] : at] = values[order], shares[order]
                real[hole] = truth[i, k] / unit[k]
                hole += 1
                begins[hole] = at
    return values, shares, begins, real


@exact_kernel
def weights_below(values: Floats, shares: Floats, first: Ints, truth: Floats, below: Floats, mean: Floats) -> None:
    """Write the weight of each distribution below the truth, half of that at it counted, and its mean."""
    for i in range(len(truth)):
        weight, moment = 0.0, 0.0
        for j in range(first[i], first[i + 1]):
            x = values[j]
            if x < truth[i]:
                weight += shares[j]
            elif x == truth[i]:
                weight += 0.5 * shares[j]
            moment += x * shares[j]
        below[i], mean[i] = weight, moment


@exact_kernel
def mean_differences(values: Floats, shares: Floats, first: Ints, truth: Floats, off: Floats, spread: Floats) -> None:
    """Write E|X - y| into ``off`` and E|X - X'| into ``spread``, of the distribution from ``first[i]`` on and y.

    In order of values, each is above all before it: their weight and moment are enough for the second.
    """
    for i in range(len(truth)):
        x, w = values[first[i] : first[i + 1]], shares[first[i] : first[i + 1]]
        order = np.argsort(x)
        apart, within, weight, moment = 0.0, 0.0, 0.0, 0.0
        for k in range(len(order)):
            at = order[k]
            apart += w[at] * abs(x[at] - truth[i])
            within += w[at] * (x[at] * weight - moment)
            weight += w[at]
            moment += w[at] * x[at]
        off[i], spread[i] = apart, 2.0 * within


@exact_kernel
def differences_between(
    values: Floats, shares: Floats, first: Ints, others: Floats, of_others: Floats, first_other: Ints, found: Floats
) -> None:
    """Write E|X - Y| into ``found``, of each distribution and another one, as `of_missing` has them, in order.

    It is what lies between where one has begun and the other has not: both are gone through in order at once.
    """
    for i in range(len(found)):
        x, w = values[first[i] : first[i + 1]], shares[first[i] : first[i + 1]]
        y, v = others[first_other[i] : first_other[i + 1]], of_others[first_other[i] : first_other[i + 1]]
        a, b, under_x, under_y, total, last = 0, 0, 0.0, 0.0, 0.0, 0.0
        whole_x, whole_y = w.sum(), v.sum()
        while a < len(x) or b < len(y):
            mine = b == len(y) or (a < len(x) and x[a] <= y[b])
            at = x[a] if mine else y[b]
            if a + b > 0:
                total += (at - last) * (under_x * (whole_y - under_y) + under_y * (whole_x - under_x))
            last = at
            if mine:
                under_x += w[a]
                a += 1
            else:
                under_y += v[b]
                b += 1
        found[i] = total
