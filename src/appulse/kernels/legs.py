"""Legs of things that move straight at constant speed: which of them come close, when, and with what probability.

Where many are there at once (else see `appulse.kernels.leg_sweep`), they are found by slots of time and cells of space:
each leg is entered in every bin that its swept box, widened by its reach, has a part in. A pair is met in each bin that
both are in, and taken in the least of these alone; what says where a leg is entered is rounded as written, so that it
says the same each time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.capsule import ALL, capsule_probability, segment_distance
from appulse.kernels.ellipses import add_covariance, entry
from appulse.kernels.gaussian import phi, tolerated
from appulse.kernels.jit import exact_kernel, kernel
from appulse.kernels.swept import bound_on, swept_probability, together

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Hashes, Ints, RowPairs


_FEW = 24  # legs that are put in order one by one faster than by a sort


class Legs(NamedTuple):
    """Legs: from ``at`` when they ``begin`` to ``to`` when they ``end`` (microseconds).

    ``side`` is 0 for legs of the left stream, 1 for those of the right one; legs of one stream have 0 and meet each
    other. ``thing`` numbers what moves, ``group`` the partition. ``reach`` is how far beyond epsilon a leg must be
    looked for, ``margin`` what it adds to epsilon; ``fresh`` legs are those that have been compared with none.
    """

    begin: Ints
    end: Ints
    at: Floats
    to: Floats
    reach: Floats
    margin: Floats
    side: Ints
    thing: Ints
    group: Ints
    fresh: Flags
    instant: bool  # whether things are compared when the later leg begins, and stay where legs end


class Bins(NamedTuple):
    """Slots of time and cells of space."""

    origin: int
    slot: int
    cell: float


class Meetings(NamedTuple):
    """What becomes of pairs of legs; times are in microseconds, ``within`` is a duration."""

    begin: Ints
    end: Ints
    closest_time: Floats
    distance: Floats
    within: Floats
    probability: Floats


@exact_kernel
def follow(thing: Ints, things: int, time: Ints, following: Ints, twice: Flags) -> None:
    """The next row of each row's thing (-1: none), and which have a time that one before them of their thing has.

    Rows are in order of time; there are so many ``things``, numbered from 0.
    """
    newest = np.full(things, -1, np.int64)
    for i in range(thing.shape[0]):
        before = newest[thing[i]]
        following[i], twice[i] = -1, before >= 0 and time[before] == time[i]
        if before >= 0 and not twice[i]:
            following[before] = i
        if not twice[i]:
            newest[thing[i]] = i


@exact_kernel
def swept_box(legs: Legs, i: int, k: int, epsilon: float) -> tuple[float, float]:
    """The extent of a leg along a dimension, so wide that those of legs to be compared touch."""
    wide = 0.5 * epsilon + legs.reach[i]
    return min(legs.at[i, k], legs.to[i, k]) - wide, max(legs.at[i, k], legs.to[i, k]) + wide


@exact_kernel
def bin_range(legs: Legs, i: int, k: int, epsilon: float, bins: Bins) -> tuple[int, int]:
    """The bins of a leg along a dimension; -1 is time."""
    if k < 0:
        return (legs.begin[i] - bins.origin) // bins.slot, (legs.end[i] - bins.origin) // bins.slot
    low, high = swept_box(legs, i, k, epsilon)
    return math.floor(low / bins.cell), math.floor(high / bins.cell)


@exact_kernel
def mixed(value: np.uint64, more: np.uint64) -> np.uint64:
    """A hash with a number more in it."""
    value = (value ^ more) * np.uint64(0x9E3779B97F4A7C15)
    return value ^ (value >> np.uint64(29))


@exact_kernel
def entries(legs: Legs, epsilon: float, bins: Bins) -> float:
    """How many bins there are in all that legs have a part in."""
    total = 0.0
    for i in range(legs.begin.shape[0]):
        own = 1.0
        for k in range(-1, min(legs.at.shape[1], 3)):
            low, high = bin_range(legs, i, k, epsilon, bins)
            own *= 1.0 + high - low
        total += own
    return total


@exact_kernel
def enter(legs: Legs, epsilon: float, bins: Bins, hashes: Hashes, owner: Ints) -> None:
    """Enter each leg in its bins, up to three dimensions of them."""
    d = min(legs.at.shape[1], 3)
    total = 0
    low, high = np.zeros(4, np.int64), np.zeros(4, np.int64)
    for i in range(legs.begin.shape[0]):
        low[0], high[0] = bin_range(legs, i, -1, epsilon, bins)
        for k in range(d):
            low[1 + k], high[1 + k] = bin_range(legs, i, k, epsilon, bins)
        for s in range(low[0], high[0] + 1):
            for x in range(low[1], high[1] + 1):
                for y in range(low[2], high[2] + 1):
                    for z in range(low[3], high[3] + 1):
                        value = mixed(np.uint64(legs.group[i]), np.uint64(s))
                        value = mixed(mixed(mixed(value, np.uint64(x)), np.uint64(y)), np.uint64(z))
                        hashes[total], owner[total] = value, i
                        total += 1


@exact_kernel
def by_bin(hashes: Hashes, owner: Ints, bits: int) -> tuple[Hashes, Ints, Ints]:
    """Entries in the order of their bins, those of a bin as they came; of ``bits`` of a hash, where each value begins.

    Hashes are even: all are put where their first bits belong, and few of these have to be put in order.
    """
    n, shift = hashes.shape[0], np.uint64(64 - bits)
    first, to = np.zeros((1 << bits) + 1, np.int64), np.empty(1 << bits, np.int64)
    for p in range(n):
        first[np.int64(hashes[p] >> shift) + 1] += 1
    for b in range(to.shape[0]):
        to[b] = first[b]
        first[b + 1] += first[b]
    ordered, owners = np.empty(n, np.uint64), np.empty(n, np.int64)
    for p in range(n):
        value = hashes[p]
        k = np.int64(value >> shift)
        q = to[k]
        to[k] += 1
        while q > first[k] and ordered[q - 1] > value:
            ordered[q], owners[q] = ordered[q - 1], owners[q - 1]
            q -= 1
        ordered[q], owners[q] = value, owner[p]
    return ordered, owners, first


@exact_kernel
def _is_least(legs: Legs, i: int, j: int, epsilon: float, bins: Bins, value: np.uint64, d: int) -> bool:
    """Whether a bin is the least of those that both legs are in."""
    slot = max(bin_range(legs, i, -1, epsilon, bins)[0], bin_range(legs, j, -1, epsilon, bins)[0])
    least = mixed(np.uint64(legs.group[i]), np.uint64(slot))
    for k in range(3):
        place = 0
        if k < d:
            place = max(bin_range(legs, i, k, epsilon, bins)[0], bin_range(legs, j, k, epsilon, bins)[0])
        least = mixed(least, np.uint64(place))
    return bool(least == value)


@exact_kernel
def _by_low(legs: Legs, epsilon: float, some: Ints, low: Floats) -> None:
    """Put a few legs in order of where their boxes begin, in place."""
    for p in range(some.shape[0]):
        own, begin = some[p], swept_box(legs, some[p], 0, epsilon)[0]
        q = p
        while q > 0 and low[q - 1] > begin:
            some[q], low[q] = some[q - 1], low[q - 1]
            q -= 1
        some[q], low[q] = own, begin


@exact_kernel
def find(legs: Legs, epsilon: float, alone: bool, bins: Bins, hashes: Hashes, owner: Ints, pairs: RowPairs) -> int:
    """Pairs of legs that overlap in time and may come within epsilon, one of them fresh; how many there are.

    ``hashes`` are sorted, ``owner`` with them, whose order in a bin changes. ``alone``: legs are of one stream. Of
    pairs beyond the room in ``pairs`` none are written.
    """
    d = legs.at.shape[1]
    n, found, first = hashes.shape[0], 0, 0
    # What is compared of the legs of a bin, side by side and from low to high: in `legs` they are all over memory.
    time, box, low = np.empty((64, 2), np.int64), np.empty((64, 2 * d)), np.empty(64)
    while first < n:
        last = first
        while last < n and hashes[last] == hashes[first]:
            last += 1
        if last - first == 1:  # of most bins, where legs are far apart
            first = last
            continue
        if last - first > time.shape[0]:
            time, box = np.empty((2 * (last - first), 2), np.int64), np.empty((2 * (last - first), 2 * d))
            low = np.empty(2 * (last - first))
        some = owner[first:last]
        if last - first <= _FEW:
            _by_low(legs, epsilon, some, low)
        else:
            for p in range(last - first):
                low[p] = swept_box(legs, some[p], 0, epsilon)[0]
            some = some[np.argsort(low[: last - first])]
        for p in range(last - first):
            time[p, 0], time[p, 1] = legs.begin[some[p]], legs.end[some[p]]
            for k in range(d):
                box[p, 2 * k], box[p, 2 * k + 1] = swept_box(legs, some[p], k, epsilon)
        for p in range(last - first):
            i = some[p]
            for q in range(p + 1, last - first):
                if box[q, 0] > box[p, 1]:
                    break
                if time[p, 0] > time[q, 1] or time[q, 0] > time[p, 1]:
                    continue
                apart = False
                for k in range(2, 2 * d, 2):
                    apart = apart or box[p, k] > box[q, k + 1] or box[q, k] > box[p, k + 1]
                if apart:
                    continue
                j = some[q]
                if not (legs.fresh[i] or legs.fresh[j]) or (not alone and legs.side[i] == legs.side[j]):
                    continue
                if (alone and legs.thing[i] == legs.thing[j]) or legs.group[i] != legs.group[j]:
                    continue
                if not _is_least(legs, i, j, epsilon, bins, hashes[first], min(d, 3)):
                    continue
                if found < pairs.left.shape[0]:
                    swap = legs.thing[j] < legs.thing[i] if alone else legs.side[j] < legs.side[i]
                    pairs.left[found], pairs.right[found] = (j, i) if swap else (i, j)
                found += 1
        first = last
    return found


@exact_kernel
def place(legs: Legs, i: int, time: int, k: int) -> float:
    """A coordinate at a time on the leg."""
    if time == legs.begin[i]:
        return float(legs.at[i, k])
    if time >= legs.end[i]:
        return float(legs.to[i, k])
    share = (time - legs.begin[i]) / (legs.end[i] - legs.begin[i])
    return float(legs.at[i, k] + share * (legs.to[i, k] - legs.at[i, k]))


@exact_kernel
def overlap(legs: Legs, i: int, j: int) -> tuple[int, int]:
    """When two legs are compared."""
    first = max(legs.begin[i], legs.begin[j])
    return first, first if legs.instant else min(legs.end[i], legs.end[j])


@exact_kernel
def relative(legs: Legs, i: int, j: int, begin: Floats, end: Floats) -> tuple[int, int]:
    """The path of the mean of one thing as seen from another's, and the overlap in time that it is of."""
    first, last = overlap(legs, i, j)
    for k in range(begin.shape[0]):
        begin[k] = place(legs, i, first, k) - place(legs, j, first, k)
        end[k] = place(legs, i, last, k) - place(legs, j, last, k)
    return first, last


class Near(NamedTuple):
    """When two points are near each other: the group of each dimension, and the epsilon of each group.

    Margins of legs add to the one epsilon of a call that has margins.
    """

    group: Ints
    epsilon: Floats


@exact_kernel
def widened(legs: Legs, i: int, j: int, near: Near, out: Floats) -> None:
    """The epsilons of a pair of legs."""
    for g in range(out.shape[0]):
        out[g] = near.epsilon[g] + legs.margin[i] + legs.margin[j]


@exact_kernel
def approach(legs: Legs, pairs: RowPairs, near: Near, found: Meetings) -> None:
    """Overlap and closest approach of the means of each pair, and how long these are near each other."""
    d = legs.at.shape[1]
    begin, end, epsilon = np.empty(d), np.empty(d), np.empty(near.epsilon.shape[0])
    for p in range(pairs.left.shape[0]):
        i, j = pairs.left[p], pairs.right[p]
        first, last = relative(legs, i, j, begin, end)
        distance, at = segment_distance(begin, end)
        found.begin[p], found.end[p], found.distance[p] = first, last, distance
        found.closest_time[p] = first + at * (last - first)
        widened(legs, i, j, near, epsilon)
        start, stop = together(begin, end, near.group, epsilon)
        found.within[p] = max(0.0, stop - start) * (last - first)


class Noise(NamedTuple):
    """The error of normal legs, and by how much its variances grow in a microsecond."""

    spread: Floats  # (n, 1) one deviation for all dimensions, else upper triangles of covariances
    growth: Floats
    since: Ints  # when the reading was taken that a leg starts with


@exact_kernel
def aged(noise: Noise, leg: int, moment: float) -> float:
    """What a leg's variances have grown by."""
    return float(noise.growth[leg] * max(0.0, moment - noise.since[leg]))


@kernel
def gaussian_meetings(legs: Legs, noise: Noise, pairs: RowPairs, near: Near, threshold: float, found: Meetings) -> None:
    """Probability that each pair comes near; NaN where half-spaces already bound it below the threshold."""
    d = legs.at.shape[1]
    capsules = noise.spread.shape[1] == 1 and near.epsilon.shape[0] == 1
    begin, end, epsilon = np.empty(d), np.empty(d), np.empty(near.epsilon.shape[0])
    covariance = np.empty(d * (d + 1) // 2)
    for p in range(pairs.left.shape[0]):
        i, j = pairs.left[p], pairs.right[p]
        widened(legs, i, j, near, epsilon)
        found.probability[p] = np.nan
        grown = aged(noise, i, found.closest_time[p]) + aged(noise, j, found.closest_time[p])
        if capsules:
            variance = grown + noise.spread[i, 0] ** 2 + noise.spread[j, 0] ** 2
            if variance == 0.0:
                if found.distance[p] <= tolerated(epsilon[0]):
                    found.probability[p] = 1.0
                continue
            deviation = math.sqrt(variance)
            if epsilon[0] - found.distance[p] > ALL * deviation:
                found.probability[p] = 1.0
                continue
            # A capsule is convex, so a half-space whose border is that far away contains it. On a line there is none
            # where the means pass through each other.
            most = phi((epsilon[0] - found.distance[p]) / deviation)
            if d > 1 and most < threshold - 1e-12:
                continue
            relative(legs, i, j, begin, end)
            found.probability[p] = capsule_probability(begin, end, deviation, epsilon[0])
            continue
        covariance[:] = 0.0
        for leg in (i, j):
            add_covariance(noise.spread, leg, d, covariance)
        for k in range(d):
            covariance[entry(k, k, d)] += grown
        relative(legs, i, j, begin, end)
        if bound_on(begin, end, covariance, near.group, epsilon) >= threshold - 1e-12:
            found.probability[p] = swept_probability(begin, end, covariance, near.group, epsilon)


class Displacements(NamedTuple):
    """Samples of errors: those of leg i are rows ``first[i]`` to ``first[i + 1]``; weights sum to 1."""

    first: Ints
    rows: Floats
    weights: Floats


@exact_kernel
def sampled_meetings(
    legs: Legs, errors: Displacements, pairs: RowPairs, near: Near, threshold: float, found: Meetings
) -> None:
    """Probability that each pair comes near, over all pairs of samples of their errors; NaN below the threshold."""
    d, groups = legs.at.shape[1], near.epsilon.shape[0]
    begin, end, low, high = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    epsilon = np.empty(groups)
    for p in range(pairs.left.shape[0]):
        i, j = pairs.left[p], pairs.right[p]
        relative(legs, i, j, begin, end)
        widened(legs, i, j, near, epsilon)
        limit = tolerated(epsilon[0])
        total = 0.0
        for s in range(errors.first[i], errors.first[i + 1]):
            for t in range(errors.first[j], errors.first[j + 1]):
                for k in range(d):
                    gap = errors.rows[s, k] - errors.rows[t, k]
                    low[k], high[k] = begin[k] + gap, end[k] + gap
                if groups == 1:
                    met = segment_distance(low, high)[0] <= limit
                else:
                    start, stop = together(low, high, near.group, epsilon)
                    met = start <= stop
                if met:
                    total += errors.weights[s] * errors.weights[t]
        found.probability[p] = min(1.0, total) if total >= threshold else np.nan


@exact_kernel
def number_runs(left: Ints, right: Ints, begin: Ints, end: Ints, gap: int, run: Ints) -> int:
    """Number the runs of pairs in order, each part beginning at most ``gap`` after all before it have ended."""
    count, newest = 0, 0
    for i in range(begin.shape[0]):
        if i == 0 or left[i] != left[i - 1] or right[i] != right[i - 1] or begin[i] - gap > newest:
            count, newest = count + 1, end[i]
        newest = max(newest, end[i])
        run[i] = count - 1
    return count
