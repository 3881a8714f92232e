"""Aggregates over windows of rows that exist with some probability, over all possible worlds.

A window is a run of rows, oldest first; with ``size`` above 0 it holds in each world the newest ``size`` of them that
exist, else all that do. Where the number of existing rows matters, rows are taken from the newest on, and the state is
kept per number of rows *absent* so far, of which there are few: a band, whose ends are dropped below `TINY`. An entry
has reached ``size`` once as many were present; it is then *settled*, and no older row changes it.

Moments are kept as means and variances, never as raw second moments: large values would round them away. For the same
reason values are taken from their middle before they are squared, and in a unit in which no square overflows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints

#: Probabilities below this are dropped: what they add to an answer is far below rounding.
TINY = 1e-30
# A distribution's atoms below this are dropped: there are up to `MOST_ATOMS` times the rows of a window of them.
_TINY_ATOM = 1e-20
#: A distribution has at most so many values; beyond that neighbours are put together.
MOST_ATOMS = 4096
# Values that differ by less than this, relatively, are one: rounding would else tell sums of equal numbers apart.
_SAME = 1e-14
# Values between these need no unit.
_SMALL, _LARGE = 2.0**-400, 2.0**400


@exact_kernel
def unit_of(values: Floats) -> float:
    """A power of two to divide values by, so that their squares are doubles; 1 unless they are very large or small."""
    return _unit(_largest(values))


@exact_kernel
def _largest(values: Floats) -> float:
    largest = 0.0
    for value in values:
        largest = max(largest, abs(value))
    return largest


@exact_kernel
def _unit(largest: float) -> float:
    if largest == 0.0 or _SMALL <= largest <= _LARGE:
        return 1.0
    return math.ldexp(1.0, min(math.frexp(largest)[1], 1023))


@exact_kernel
def mixture(values: Floats, weights: Floats) -> tuple[float, float, float]:
    """Of values with weights: the mean as a double, what rounding it took away, and the deviation."""
    unit = unit_of(values)
    total = mean = 0.0
    for s in range(values.shape[0]):
        if weights[s] > 0.0:
            total += weights[s]
            mean += (values[s] / unit - mean) * (weights[s] / total)
    rest = squares = 0.0
    for s in range(values.shape[0]):
        away = values[s] / unit - mean
        rest += weights[s] * away
        squares += weights[s] * away * away
    rest /= total
    return mean * unit, rest * unit, math.sqrt(max(squares / total - rest * rest, 0.0)) * unit


@exact_kernel
def row_moments(first: Ints, values: Floats, weights: Floats, mean: Floats, rest: Floats, deviation: Floats) -> None:
    """Mean, what rounding it took away, and deviation of each row's samples, from ``first[i]`` to ``first[i + 1]``."""
    for i in range(first.shape[0] - 1):
        a, b = first[i], first[i + 1]
        mean[i], rest[i], deviation[i] = mixture(values[a:b], weights[a:b])


@exact_kernel
def _mix(mixed: Floats, weight: float, mean: float, variance: float) -> None:
    """Add a component to a mixture, held as (weight, mean, weight times variance)."""
    if weight > 0.0:
        total = mixed[0] + weight
        away = mean - mixed[1]
        mixed[2] += weight * variance + weight * (mixed[0] / total) * away * away
        mixed[1] += away * (weight / total)
        mixed[0] = total


@exact_kernel
def _settle(
    count: int, usual: int, weight: float, total: float, variance: float, shift: float, mixed: NDArray[np.float64]
) -> None:
    """Report the mixtures of sum, mean and count of worlds with so many existing rows.

    ``total`` is the sum of values less ``shift``, and so are the means; sums and counts are less those of ``usual``
    rows, each at ``shift``.
    """
    more = float(count - usual)
    _mix(mixed[0], weight, total + more * shift, variance)
    _mix(mixed[2], weight, more, 0.0)
    if count > 0:
        _mix(mixed[1], weight, total / count, variance / (count * count))


@exact_kernel
def counted(
    begin: Ints,
    end: Ints,
    exist: Floats,
    mean: Floats,
    rest: Floats,  # what rounding took away from the mean
    deviation: Floats,
    size: int,  # 0: no limit
    out: NDArray[np.float64],
) -> None:
    """Mean and deviation of sum, mean and count, in this order: ``out`` has a row of six per window.

    Those of the mean are given that at least one row exists; NaN if that has no probability.
    """
    longest = 0
    for w in range(begin.shape[0]):
        longest = max(longest, end[w] - begin[w])
    weight, total, spread = np.empty(longest + 2), np.empty(longest + 2), np.empty(longest + 2)
    mixed = np.empty((3, 3))
    for w in range(begin.shape[0]):
        mixed[:] = 0.0
        rows = end[w] - begin[w]
        unit = _unit(max(_largest(mean[begin[w] : end[w]]), _largest(deviation[begin[w] : end[w]])))
        usual = min(size, rows) if size > 0 else rows
        shift = known = 0.0
        for i in range(begin[w], end[w]):
            known += exist[i]
            shift += (mean[i] / unit - shift) * (exist[i] / known)
        low = high = 0  # least and greatest number of absent rows
        weight[0], total[0], spread[0] = 1.0, 0.0, 0.0
        seen = 0
        for i in range(end[w] - 1, begin[w] - 1, -1):
            p, absent = exist[i], 1.0 - exist[i]
            value = (mean[i] / unit - shift) + rest[i] / unit
            own = (deviation[i] / unit) ** 2
            seen += 1
            if absent > 0.0:
                high += 1
                weight[high] = total[high] = spread[high] = 0.0
            for a in range(high, low - 1, -1):
                here = weight[a] * p
                middle, around = total[a] + value, spread[a] + own
                there = weight[a - 1] * absent if a > low else 0.0
                if there > 0.0:
                    part = there / (here + there)
                    away = total[a - 1] - middle
                    around += part * (spread[a - 1] - around) + part * (1.0 - part) * away * away
                    middle += part * away
                weight[a], total[a], spread[a] = here + there, middle, around
            if size > 0 and seen - low == size:
                _settle(size, usual, weight[low], total[low], spread[low], shift, mixed)
                low += 1
            while low <= high and weight[low] < TINY:
                low += 1
            while low <= high and weight[high] < TINY:
                high -= 1
            if low > high:
                break
        for a in range(low, high + 1):
            _settle(seen - a, usual, weight[a], total[a], spread[a], shift, mixed)
        out[w, 0] = (mixed[0, 1] + usual * shift) * unit
        out[w, 2] = (mixed[1, 1] + shift) * unit if mixed[1, 0] > 0.0 else np.nan
        out[w, 4] = mixed[2, 1] + usual
        for k in range(3):
            of = unit if k < 2 else 1.0
            out[w, 2 * k + 1] = math.sqrt(mixed[k, 2] / mixed[k, 0]) * of if mixed[k, 0] > 0.0 else np.nan


class CountedRows(NamedTuple):
    """Rows: the probability that each exists, its mean, what rounding took away from that, and its deviation."""

    exist: Floats
    mean: Floats
    rest: Floats
    deviation: Floats


@exact_kernel
def long_means(
    begin: Ints, end: Ints, rows: CountedRows, nodes: Floats, shares: Floats, out: NDArray[np.float64]
) -> None:
    """Mean and deviation of the mean, as of `counted`, of windows of which many rows exist in all worlds but few.

    With N values that sum to S, 1/N is the integral of t^(N-1) over [0, 1], and 1/N^2 that of -log(t) t^(N-1). So S/N
    and its square are integrals of what rows add at t, times the product of their generating functions, 1 - p (1 - t).
    That falls as exp(-u), with u the expected number of rows times 1 - t: ``nodes`` and ``shares`` are a Gauss-Laguerre
    rule in u, shares times exp(u). What pairs of rows add to the square is the square of what rows add, less that of
    each with itself: taken from its own right away, 1 - p of it is left, without rounding.
    """
    exist, mean, rest, deviation = rows
    many = nodes.shape[0]
    at, product, once, own_part = np.empty(many), np.empty(many), np.empty(many), np.empty(many)
    for w in range(begin.shape[0]):
        a, b = begin[w], end[w]
        unit = _unit(max(_largest(mean[a:b]), _largest(deviation[a:b])))
        shift = known = 0.0
        for i in range(a, b):
            known += exist[i]
            shift += (mean[i] / unit - shift) * (exist[i] / known)
        for k in range(many):
            at[k], product[k], once[k], own_part[k] = nodes[k] / known, 1.0, 0.0, 0.0
        for i in range(a, b):
            p = exist[i]
            value, own = (mean[i] / unit - shift) + rest[i] / unit, deviation[i] / unit
            first, apart, within = p * value, p * (1.0 - p) * value * value, p * own * own
            for k in range(many):
                others = 1.0 - p * at[k]
                share = 1.0 / others
                product[k] *= others
                once[k] += first * share
                own_part[k] += (apart * share + within) * share
        moved = spread = 0.0
        for k in range(many):
            weight = shares[k] * product[k] / known
            moved += weight * once[k]
            spread -= weight * math.log1p(-at[k]) * (own_part[k] + (1.0 - at[k]) * once[k] * once[k])
        out[w, 0] = (moved + shift) * unit
        out[w, 1] = math.sqrt(max(spread - moved * moved, 0.0)) * unit


class UncertainRows(NamedTuple):
    """Rows that may not exist, and their samples: those of row i from ``first[i]`` to ``first[i + 1]``."""

    exist: Floats
    first: Ints
    values: Floats
    weights: Floats  # they sum to the row's existence


@exact_kernel
def merged(count: Ints, value: Floats, chance: Floats) -> tuple[Ints, Floats, Floats]:
    """Atoms in order, by count and value, those of one count and (but for rounding) one value put together."""
    order = np.argsort(value, kind="mergesort")
    order = order[np.argsort(count[order], kind="mergesort")]
    largest = 0.0
    for v in value:
        largest = max(largest, abs(v))
    counts, values, chances = np.empty_like(count), np.empty_like(value), np.empty_like(chance)
    n = 0
    for k in order:
        if chance[k] < _TINY_ATOM:
            continue
        if n > 0 and counts[n - 1] == count[k] and value[k] - values[n - 1] <= _SAME * largest:
            chances[n - 1] += chance[k]
        else:
            counts[n], values[n], chances[n] = count[k], value[k], chance[k]
            n += 1
    return counts[:n].copy(), values[:n].copy(), chances[:n].copy()


@exact_kernel
def binned(count: Ints, value: Floats, chance: Floats, most: int, error: Floats) -> tuple[Ints, Floats, Floats]:
    """At most ``most`` atoms, or few more: those of one count that fall into one bin become their mean.

    ``error`` gains what that moves, as mean squares: of the value, and of the value divided by the count.
    """
    lowest, highest = count.min(), count.max()
    classes = highest - lowest + 1
    low, high, mass = np.full(classes, np.inf), np.full(classes, -np.inf), np.zeros(classes)
    for k in range(count.shape[0]):
        if chance[k] >= _TINY_ATOM:
            c = count[k] - lowest
            low[c], high[c] = min(low[c], value[k]), max(high[c], value[k])
            mass[c] += chance[k]
    # Mean squares add up to the least where bins are shared out like this: few to counts that hardly occur.
    wanted = np.zeros(classes)
    for c in range(classes):
        wanted[c] = (mass[c] * max(0.0, high[c] - low[c]) ** 2) ** (1.0 / 3.0)
    each = max(0, most - classes) / max(wanted.sum(), 1e-300)
    first = np.zeros(classes + 1, np.int64)
    for c in range(classes):
        first[c + 1] = first[c] + (0 if low[c] > high[c] else 1 + int(each * wanted[c]))
    total, moved, square = np.zeros(first[-1]), np.zeros(first[-1]), np.zeros(first[-1])
    for k in range(count.shape[0]):
        if chance[k] >= _TINY_ATOM:
            c = count[k] - lowest
            bins = first[c + 1] - first[c]
            width = (high[c] - low[c]) / bins
            b = min(int((value[k] - low[c]) / width), bins - 1) if width > 0.0 else 0
            away = value[k] - low[c] - b * width
            total[first[c] + b] += chance[k]
            moved[first[c] + b] += chance[k] * away
            square[first[c] + b] += chance[k] * away * away
    counts, values, chances = np.empty(first[-1], np.int64), np.empty(first[-1]), np.empty(first[-1])
    n = 0
    for c in range(classes):
        width = (high[c] - low[c]) / max(1, first[c + 1] - first[c])
        for b in range(first[c + 1] - first[c]):
            at = first[c] + b
            if total[at] > 0.0:
                away = moved[at] / total[at]
                counts[n], values[n], chances[n] = c + lowest, low[c] + b * width + away, total[at]
                n += 1
                lost = max(0.0, square[at] - moved[at] * away)
                error[0] += lost
                error[1] += lost / max(1, c + lowest) ** 2
    return counts[:n].copy(), values[:n].copy(), chances[:n].copy()


@exact_kernel
def sum_atoms(
    begin: int,
    end: int,
    rows: UncertainRows,
    size: int,  # 0: no limit
    by_count: bool,  # whether to report how many rows exist; with a limit that is known anyway
    most: int,
    error: Floats,
) -> tuple[Ints, Floats, Floats]:
    """The joint distribution of the number of existing rows and the sum of their values, as atoms.

    Exact until there are more than ``most`` atoms (four times that with counts). Then neighbours are put together after
    each row, and what that moves is added to ``error`` as in `binned`: each such move keeps the mean and does not
    depend on rows to come, so their mean squares add up.
    """
    exist, first, values, weights = rows
    count, value, chance = np.zeros(1, np.int64), np.zeros(1), np.ones(1)
    step = 1 if by_count or size > 0 else 0
    # Values of one sum may come with many counts.
    most = most * 4 if step else most
    coarse = False
    for i in range(end - 1, begin - 1, -1):
        absent = 1.0 - exist[i]
        each = first[i + 1] - first[i] + (1 if absent > 0.0 else 0)
        settled = 0
        for k in range(count.shape[0]):
            settled += size > 0 and count[k] == size
        if settled == count.shape[0]:
            break
        n = settled + (count.shape[0] - settled) * each
        counts, sums_, chances = np.empty(n, np.int64), np.empty(n), np.empty(n)
        n = 0
        for k in range(count.shape[0]):
            if size > 0 and count[k] == size:
                counts[n], sums_[n], chances[n] = count[k], value[k], chance[k]
                n += 1
                continue
            if absent > 0.0:
                counts[n], sums_[n], chances[n] = count[k], value[k], chance[k] * absent
                n += 1
            for s in range(first[i], first[i + 1]):
                counts[n], sums_[n] = count[k] + step, value[k] + values[s]
                chances[n] = chance[k] * weights[s]
                n += 1
        if not coarse or n <= most:
            count, value, chance = merged(counts, sums_, chances)
            coarse = coarse or count.shape[0] > most
            if count.shape[0] > most:
                count, value, chance = binned(count, value, chance, most, error)
        else:
            count, value, chance = binned(counts, sums_, chances, most, error)
    return count, value, chance


@exact_kernel
def starts(group: Ints, place: Ints, end: Ints, floor: Ints) -> Ints:
    """Where windows begin that end at ``end``: at the first row of their group whose place is not below the floor.

    Rows are in order of group and place, windows in order of their ends, and in a group floors never fall.
    """
    out = np.empty(end.shape[0], np.int64)
    at = 0
    for w in range(end.shape[0]):
        last = end[w] - 1
        while group[at] != group[last] or place[at] < floor[w]:
            at += 1
        out[w] = at
    return out
