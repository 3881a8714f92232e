"""How long two things that move straight past each other are expected to be near.

Expectations add up, whatever depends on what: of a pair of legs it is the integral, over their overlap, of the
probability that the two are near at an instant. Pairs of legs that follow each other only have to be summed.

The probability is that of `swept_probability` for a path of one point. Along a path it is smooth, with a scale of the
errors, and next to zero but around one place. The integral is cut around that place, and where the mean passes a rim.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.capsule import stretch_within
from appulse.kernels.ellipses import add_covariance, entry
from appulse.kernels.gaussian import tolerated
from appulse.kernels.jit import exact_kernel, kernel
from appulse.kernels.legs import Displacements, Legs, Near, Noise, aged, relative, widened
from appulse.kernels.quadrature import integral
from appulse.kernels.swept import swept_probability, together

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints, RowPairs

_ERROR = 1e-8  # of a share of the overlap
_SHARP = 6.0  # deviations beyond which a step is over
# Pieces around the likely place, each of two of its widths; what is beyond them is below 1e-14.
_PIECES = np.arange(-8.0, 9.0, 2.0)


class Passing(NamedTuple):
    """The path of one mean as seen from another's: where it begins and ends, and the error's covariance there.

    Covariances are upper triangles, and grow evenly on the way, if they do.
    """

    begin: Floats
    end: Floats
    error: Floats
    grown: Floats
    group: Ints
    epsilon: Floats


@kernel
def _near_at(share: float, given: tuple[Passing, Floats, Floats]) -> float:
    """The probability of being near at a share of the way."""
    way, place, covariance = given
    for k in range(place.shape[0]):
        place[k] = way.begin[k] + share * (way.end[k] - way.begin[k])
    for k in range(covariance.shape[0]):
        covariance[k] = way.error[k] + share * (way.grown[k] - way.error[k])
    return swept_probability(place, place, covariance, way.group, way.epsilon)


@exact_kernel
def _likely(way: Passing) -> tuple[float, float]:
    """Where on the way being near is most likely, and how wide that is: as if epsilons were deviations, too.

    That may be far from where the means are nearest: errors may lie along a line that crosses the way.
    """
    d = way.begin.shape[0]
    matrix = np.empty((d, d))
    for k in range(d):
        for m in range(k, d):
            matrix[k, m] = matrix[m, k] = way.grown[entry(k, m, d)]
        matrix[k, k] += tolerated(way.epsilon[way.group[k]]) ** 2
    step = way.end - way.begin
    solved = np.linalg.solve(matrix, step)
    square, along = 0.0, 0.0
    for k in range(d):
        square += solved[k] * step[k]
        along -= solved[k] * way.begin[k]
    return (along / square, 1.0 / math.sqrt(square)) if square > 0.0 else (0.0, math.inf)


@exact_kernel
def _rims(way: Passing, g: int, variance: float, cuts: Floats) -> None:
    """Six cuts: around the places where the mean enters and leaves a group's epsilon, or is nearest to it."""
    square, along, aside = 0.0, 0.0, 0.0
    for k in range(way.begin.shape[0]):
        if way.group[k] == g:
            step = way.end[k] - way.begin[k]
            square += step * step
            along -= way.begin[k] * step
    if square == 0.0:
        cuts[:] = 0.0
        return
    middle = along / square
    for k in range(way.begin.shape[0]):
        if way.group[k] == g:
            aside += (way.begin[k] + middle * (way.end[k] - way.begin[k])) ** 2
    half = math.sqrt(max(0.0, way.epsilon[g] ** 2 - aside) / square)
    wide = _SHARP * math.sqrt(variance / square)
    for k in range(3):
        cuts[k], cuts[3 + k] = middle - half + (k - 1) * wide, middle + half + (k - 1) * wide


@kernel
def share_near(way: Passing) -> float:
    """The share of a path of up to three dimensions over which the two are expected to be near.

    To 1e-7 where errors are the same in all directions.
    """
    d, groups = way.begin.shape[0], way.epsilon.shape[0]
    first, last, certain = 0.0, 1.0, True
    count = _PIECES.shape[0]
    cuts = np.zeros(count + 6 * groups + 2)
    for g in range(groups):
        variance = 0.0
        for k in range(d):
            if way.group[k] == g:
                variance += way.grown[entry(k, k, d)]
        if variance == 0.0:
            low, high = stretch_within(way.begin, way.end, way.group, g, tolerated(way.epsilon[g]))
            first, last = max(first, low), min(last, high)
            continue
        if way.epsilon[g] <= 0.0:
            return 0.0
        certain = False
        _rims(way, g, variance, cuts[count : count + 6])
        count += 6
    if certain:
        return max(0.0, last - first)
    middle, wide = _likely(way)
    if wide < math.inf:
        cuts[: _PIECES.shape[0]] = middle + wide * _PIECES
        first, last = max(first, cuts[0]), min(last, cuts[_PIECES.shape[0] - 1])
    if first >= last:
        return 0.0
    cuts[count], cuts[count + 1] = first, last
    edges = np.sort(np.minimum(np.maximum(cuts[: count + 2], first), last))
    total = integral(_near_at, (way, np.empty(d), np.empty(way.error.shape[0])), edges, 1.0, _ERROR)
    return min(last - first, max(0.0, total))


@kernel
def gaussian_times(legs: Legs, noise: Noise, pairs: RowPairs, near: Near, out: Floats) -> None:
    """The microseconds that each pair of legs with normal errors is expected to be near."""
    d = legs.at.shape[1]
    begin, end, epsilon = np.empty(d), np.empty(d), np.empty(near.epsilon.shape[0])
    error, grown = np.empty(d * (d + 1) // 2), np.empty(d * (d + 1) // 2)
    for p in range(pairs.left.shape[0]):
        i, j = pairs.left[p], pairs.right[p]
        widened(legs, i, j, near, epsilon)
        first, last = relative(legs, i, j, begin, end)
        error[:] = 0.0
        for leg in (i, j):
            add_covariance(noise.spread, leg, d, error)
        grown[:] = error
        for k in range(d):
            error[entry(k, k, d)] += aged(noise, i, first) + aged(noise, j, first)
            grown[entry(k, k, d)] += aged(noise, i, last) + aged(noise, j, last)
        out[p] = share_near(Passing(begin, end, error, grown, near.group, epsilon)) * (last - first)


@exact_kernel
def sampled_times(legs: Legs, errors: Displacements, pairs: RowPairs, near: Near, out: Floats) -> None:
    """The microseconds that each pair of legs is expected to be near, over all pairs of samples of their errors."""
    d = legs.at.shape[1]
    begin, end, low, high = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    epsilon = np.empty(near.epsilon.shape[0])
    for p in range(pairs.left.shape[0]):
        i, j = pairs.left[p], pairs.right[p]
        first, last = relative(legs, i, j, begin, end)
        widened(legs, i, j, near, epsilon)
        total = 0.0
        for s in range(errors.first[i], errors.first[i + 1]):
            for t in range(errors.first[j], errors.first[j + 1]):
                for k in range(d):
                    gap = errors.rows[s, k] - errors.rows[t, k]
                    low[k], high[k] = begin[k] + gap, end[k] + gap
                start, stop = together(low, high, near.group, epsilon)
                total += errors.weights[s] * errors.weights[t] * max(0.0, stop - start)
        out[p] = total * (last - first)
