"""What the bounds need of each sampled object: mass, mean, covariance, radius, alpha-reach, higher moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

_FEW = 8  # numbers that are sorted at once


class Summaries(NamedTuple):
    """Room for what `summarise` finds, a row an object."""

    mass: Floats
    centre: Floats
    covariance: Floats
    radius: Floats
    reach: Floats


@kernel
def summarise(
    first: Ints,
    rows: Floats,
    weights: Floats,
    quantile: float,
    centred: bool,
    out: Summaries,
    samples: Floats,
) -> None:
    """Summaries of objects, and their samples laid out dimension by dimension.

    ``rows`` holds the samples one after the other, (total, d); ``weights`` is empty where all samples of an object
    weigh the same, with ``mass`` given; ``centred`` says that the means are given too. ``reach`` is the least radius
    around the mean whose attained mass exceeds ``quantile`` of the object's (Lian & Chen 2009, Eq. 5, beta = gamma).
    """
    mass, centre, covariance, radius, reach = out
    d = rows.shape[1]
    longest = 0
    for i in range(first.shape[0] - 1):
        longest = max(longest, first[i + 1] - first[i])
    squares = np.empty(longest, np.float64)
    share = np.ones(longest, np.float64)
    gaps = np.empty((d, longest), np.float64)
    even = weights.shape[0] == 0
    for i in range(first.shape[0] - 1):
        begin = first[i]
        n = first[i + 1] - begin
        total = float(n)
        if not even:
            share[:n] = weights[begin : begin + n]
            total = 0.0
            for s in range(n):
                total += share[s]
            mass[i] = total
        for k in range(d):
            own = samples[begin * d + k * n :][:n]
            for s in range(n):
                own[s] = rows[begin + s, k]
        squares[:n] = 0.0
        for k in range(d):
            own = samples[begin * d + k * n :][:n]
            if not centred:
                # From the first sample: a sum of large coordinates would round away what the bounds rely on.
                origin = own[0]
                offset = 0.0
                for s in range(n):
                    offset += share[s] * (own[s] - origin)
                centre[i, k] = origin + offset / total
            middle = centre[i, k]
            gap = gaps[k]
            for s in range(n):
                gap[s] = own[s] - middle
                squares[s] += gap[s] * gap[s]
        at = 0
        for k in range(d):
            for m in range(k, d):
                one, other = gaps[k], gaps[m]
                product = 0.0
                for s in range(n):
                    product += share[s] * one[s] * other[s]
                covariance[i, at] = product / total
                at += 1
        for s in range(n):
            squares[s] = np.sqrt(squares[s])
        radius[i] = np.max(squares[:n])
        reach[i] = attained_radius(squares[:n], weights[begin : begin + n] if not even else weights, quantile)


@kernel
def most_variances(covariance: Floats, d: int, out: Floats) -> None:
    """At least the variance of each object along any line: the largest sum of a row's absolute values (Gershgorin)."""
    rows = np.empty(d, np.float64)
    for i in range(covariance.shape[0]):
        rows[:] = 0.0
        at = 0
        for k in range(d):
            rows[k] += covariance[i, at]
            at += 1
            for m in range(k + 1, d):
                rows[k] += abs(covariance[i, at])
                rows[m] += abs(covariance[i, at])
                at += 1
        most = 0.0
        for k in range(d):
            most = max(most, rows[k])
        out[i] = most * (1.0 + 1e-9)


@kernel
def shapes(first: Ints, samples: Floats, weights: Floats, centre: Floats, out: Floats) -> None:
    """Third and fourth moments of objects, normalised by mass: E[w |w|^2] (d numbers), then the variance of |w|^2.

    w is the difference from the centre; arrays as in `summarise`, ``out`` is (n, d + 1).
    """
    d = centre.shape[1]
    longest = 0
    for i in range(first.shape[0] - 1):
        longest = max(longest, first[i + 1] - first[i])
    squares, share = np.empty(longest, np.float64), np.ones(longest, np.float64)
    even = weights.shape[0] == 0
    for i in range(first.shape[0] - 1):
        begin = first[i]
        n = first[i + 1] - begin
        if not even:
            share[:n] = weights[begin : begin + n]
        total = float(n) if even else np.sum(share[:n])
        squares[:n] = 0.0
        for k in range(d):
            own = samples[begin * d + k * n :][:n]
            for s in range(n):
                gap = own[s] - centre[i, k]
                squares[s] += gap * gap
        mean = 0.0
        for s in range(n):
            mean += share[s] * squares[s]
        mean /= total
        variance = 0.0
        for s in range(n):
            variance += share[s] * (squares[s] - mean) * (squares[s] - mean)
        out[i, d] = variance / total
        for k in range(d):
            own = samples[begin * d + k * n :][:n]
            third = 0.0
            for s in range(n):
                third += share[s] * squares[s] * (own[s] - centre[i, k])
            out[i, k] = third / total


@kernel
def attained_radius(distances: Floats, weights: Floats, quantile: float) -> float:
    """Least of ``distances`` within which more than ``quantile`` of the weight lies; the largest if none does."""
    n = distances.shape[0]
    if weights.shape[0] == 0:
        needed = int(np.floor(quantile * n * (1.0 + 1e-12))) + 1
        return ordered(distances, needed) if needed < n else np.max(distances)
    order = np.argsort(distances)
    total = np.sum(weights)
    attained = 0.0
    for k in order:
        attained += weights[k]
        if attained > quantile * total * (1.0 + 1e-12):
            return float(distances[k])
    return float(distances[order[n - 1]])


@kernel
def ordered(values: Floats, k: int) -> float:
    """The ``k``-th least of some numbers from 0 on, counted from 1.

    Halves the range that holds it until few are in it: to count is SIMD, to sort or to partition is not.
    """
    n = values.shape[0]
    bits = values.view(np.int64)  # in the same order, and a greatest whole number is found by SIMD
    most = np.int64(0)
    for i in range(n):
        most = max(most, bits[i])
    low, high = -1.0, np.int64(most).view(np.float64)
    below, upto = 0, n
    for _ in range(60):
        middle = 0.5 * (low + high)
        if upto - below <= _FEW or not low < middle < high:
            break
        count = 0
        for i in range(n):
            count += values[i] <= middle
        if count >= k:
            high, upto = middle, count
        else:
            low, below = middle, count
    inside = np.empty(n + 1, np.float64)
    at = 0
    for i in range(n):
        inside[at] = values[i]
        at += (values[i] > low) & (values[i] <= high)
    if at > 8 * _FEW:  # they tie, or differ by hundreds of digits
        return float(np.partition(inside[:at], k - below - 1)[k - below - 1])
    # Of a few the one that has as many before it as it should.
    for i in range(at):
        before = same = 0
        for j in range(at):
            before += inside[j] < inside[i]
            same += inside[j] == inside[i]
        if before <= k - below - 1 < before + same:
            return float(inside[i])
    return float(high)
