"""What the bounds need of each sampled object: mass, mean, covariance, radius, alpha-reach, higher moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints


@kernel
def summarise(
    first: Ints,
    rows: Floats,
    weights: Floats,
    quantile: float,
    centred: bool,
    mass: Floats,
    centre: Floats,
    covariance: Floats,
    radius: Floats,
    reach: Floats,
    samples: Floats,
) -> None:
    """Summaries of objects, and their samples laid out dimension by dimension.

    ``rows`` holds the samples one after the other, (total, d); ``weights`` is empty where all samples of an object
    weigh the same, with ``mass`` given; ``centred`` tells that the means are given too. ``reach`` is the least radius
    around the mean whose attained mass exceeds ``quantile`` of the object's (Lian & Chen 2009, Eq. 5, beta = gamma).
    """
    d = rows.shape[1]
    longest = 0
    for i in range(first.shape[0] - 1):
        longest = max(longest, first[i + 1] - first[i])
    distances = np.empty(longest, np.float64)
    offset = np.empty(d, np.float64)
    even = weights.shape[0] == 0
    for i in range(first.shape[0] - 1):
        begin = first[i]
        n = first[i + 1] - begin
        total = 0.0
        offset[:] = 0.0
        for s in range(n):
            w = 1.0 if even else weights[begin + s]
            total += w
            for k in range(d):
                # From the first sample: a sum of large coordinates would round away what the bounds rely on.
                offset[k] += w * (rows[begin + s, k] - rows[begin, k])
                samples[begin * d + k * n + s] = rows[begin + s, k]
        if not centred:
            for k in range(d):
                centre[i, k] = rows[begin, k] + offset[k] / total
        if not even:
            mass[i] = total
        covariance[i, :] = 0.0
        radius[i] = 0.0
        for s in range(n):
            w = (1.0 if even else weights[begin + s]) / total
            square = 0.0
            at = 0
            for k in range(d):
                a = rows[begin + s, k] - centre[i, k]
                square += a * a
                for m in range(k, d):
                    covariance[i, at] += w * a * (rows[begin + s, m] - centre[i, m])
                    at += 1
            distances[s] = np.sqrt(square)
            radius[i] = max(radius[i], distances[s])
        reach[i] = attained_radius(distances[:n], weights[begin : begin + n] if not even else weights, quantile)


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
        return np.partition(distances, needed - 1)[needed - 1] if needed < n else np.max(distances)
    order = np.argsort(distances)
    total = np.sum(weights)
    attained = 0.0
    for k in order:
        attained += weights[k]
        if attained > quantile * total * (1.0 + 1e-12):
            return float(distances[k])
    return float(distances[order[n - 1]])
