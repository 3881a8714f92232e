"""The rows of a table that are most similar to others, by their distances."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

_FEW = 48  # numbers that are put in order the soonest one by one


@exact_kernel
def nearest_rows(known: Floats, asked: Floats, k: int) -> Ints:
    """Places (asked, k) of the k known rows nearest to each asked one, in deviations; again where there are fewer.

    Rows are by column, (p, n). All distances are looked at: rows to learn from are few, and a tree of so many
    dimensions would spare none.
    """
    scale = np.empty(len(known))
    for j in range(len(known)):
        scale[j] = 1.0 / max(_deviation(known[j]), 1e-12)
    return _nearest(known, asked, k, scale)


@exact_kernel
def nearest_in_unit(known: Floats, asked: Floats, k: int) -> Ints:
    """As `nearest_rows`, by the distances as they are."""
    return _nearest(known, asked, k, np.ones(len(known)))


@exact_kernel
def _nearest(known: Floats, asked: Floats, k: int, scale: Floats) -> Ints:
    p, n = known.shape
    most = min(k, n)
    found, distance = np.empty((asked.shape[1], k), np.int64), np.zeros(n)
    for q in range(asked.shape[1]):
        distance[:] = 0.0
        for j in range(p):
            at, column, unit = asked[j, q], known[j], scale[j]
            for i in range(n):
                distance[i] += ((column[i] - at) * unit) ** 2
        limit = _smallest(distance, most)
        count = 0
        for i in range(n):
            if distance[i] < limit:
                found[q, count] = i
                count += 1
        for i in range(n if count < most else 0):
            if count < most and distance[i] == limit:
                found[q, count] = i
                count += 1
        for i in range(most, k):
            found[q, i] = found[q, i % most]
    return found


@exact_kernel
def _smallest(values: Floats, k: int) -> float:
    """The k-th of the values in order."""
    if k > _FEW:
        return float(np.partition(values, k - 1)[k - 1])
    kept = np.empty(k)
    for i in range(len(values)):
        value = values[i]
        if i < k:
            at = i
        elif value < kept[k - 1]:
            at = k - 1
        else:
            continue
        while at > 0 and kept[at - 1] > value:
            kept[at] = kept[at - 1]
            at -= 1
        kept[at] = value
    return float(kept[k - 1])


@exact_kernel
def in_order(values: Floats) -> Ints:
    """Places of the values in order, equal ones as they come."""
    if len(values) > _FEW:
        return np.argsort(values, kind="mergesort")
    order = np.empty(len(values), np.int64)
    for i in range(len(values)):
        at = i
        while at > 0 and values[order[at - 1]] > values[i]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = i
    return order


@exact_kernel
def mean(values: Floats) -> float:
    """In four sums at once, which do not wait for each other."""
    n = len(values)
    a = b = c = d = 0.0
    for i in range(0, n - 3, 4):
        a += values[i]
        b += values[i + 1]
        c += values[i + 2]
        d += values[i + 3]
    for i in range(n - n % 4, n):
        a += values[i]
    return ((a + b) + (c + d)) / n


@exact_kernel
def _deviation(values: Floats) -> float:
    """The standard deviation, in four sums at once, too."""
    n, middle = len(values), mean(values)
    a = b = c = d = 0.0
    for i in range(0, n - 3, 4):
        a += (values[i] - middle) ** 2
        b += (values[i + 1] - middle) ** 2
        c += (values[i + 2] - middle) ** 2
        d += (values[i + 3] - middle) ** 2
    for i in range(n - n % 4, n):
        a += (values[i] - middle) ** 2
    return math.sqrt(((a + b) + (c + d)) / n)
