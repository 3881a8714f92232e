"""Exact probabilities of pairs on a line, where one object meets many: Lian & Chen 2009, Eq. 2, in one dimension.

The weight of an object's samples within epsilon of a point is a step function of that point, its *profile*. It is
tabulated once, on even cells; then each sample of each partner is one look-up in place of a comparison with every
sample. A cell in which a step lies knows whose it is, and these few are compared as everywhere: nothing is rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints, RowPairs, Samples
    from appulse.kernels.sweep import ArrivalRows, Cursor, PairRule, WindowRows

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


class ArrivalSamples(NamedTuple):
    """Samples of arrivals: those of p from ``first[p]`` to ``first[p + 1]``."""

    first: Ints
    values: Floats
    weights: Floats  # empty: all samples of an object weigh the same
    centre: Floats


class LineColumns(NamedTuple):
    """Samples of rows as columns, least first: row r of the store is column ``r + shift``, its mean ``centre[r]``."""

    values: NDArray[np.float64]
    shift: int
    centre: Floats


class Matches(NamedTuple):
    """Room for the pairs above the threshold, and tallies."""

    arrival: Ints
    row: Ints
    probability: Floats
    counts: Ints


class Cover(NamedTuple):
    """What can cover a cell at most, with a cell of nothing on either side, and what takes a point to its cell."""

    most: Floats
    inverse: float
    offset: float


@kernel
def refine_line(
    pairs: RowPairs, limit2: float, threshold: float, one: Samples, other: Samples, probability: Floats
) -> None:
    """Probability of each pair ``(left[i], right[i])``; NaN once it is certain to stay below ``threshold``."""
    left, right = pairs
    left_mass, left_samples, left_begin, left_length, left_base = one[:5]
    left_weights, left_weights_begin, left_weights_base = one[5:]
    right_mass, right_samples, right_begin, right_length, right_base = other[:5]
    right_weights, right_weights_begin, right_weights_base = other[5:]
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


@kernel
def fill_columns(
    begin: int,  # the first row to put in
    end: int,
    to: int,  # the column of the first row
    samples: Floats,
    samples_begin: Ints,
    samples_base: int,
    columns: NDArray[np.float64],
) -> None:
    """Put the samples of rows into columns, least first."""
    m = columns.shape[0]
    for row in range(begin, end):
        values = samples[samples_begin[row] - samples_base :][:m]
        if m > 48:
            values = np.sort(values)
            for t in range(m):
                columns[t, to + row - begin] = values[t]
            continue
        for t in range(m):
            k = t
            while k > 0 and columns[k - 1, to + row - begin] > values[t]:
                columns[k, to + row - begin] = columns[k - 1, to + row - begin]
                k -= 1
            columns[k, to + row - begin] = values[t]


@kernel
def _cover(samples: Floats, weights: Floats, limit: float, most: Floats) -> tuple[float, float, float, bool]:
    """What can cover a cell at most, with a cell of nothing on either side.

    Returns the greatest of these, what takes a point to its cell (a factor and an offset), and whether there are cells.
    """
    least = samples[0]
    greatest = samples[0]
    for k in range(1, samples.shape[0]):
        least = min(least, samples[k])
        greatest = max(greatest, samples[k])
    low = least - limit
    # A little more than there is, so that both ends lie inside.
    low -= 1e-9 * (greatest + limit - low) + 1e-12 * abs(low)
    inverse = _CELLS / ((greatest + limit - low) * (1.0 + 1e-9))
    if not np.isfinite(inverse):
        return 0.0, 0.0, 0.0, False
    most[:] = 0.0
    for k in range(samples.shape[0]):
        slack = 1e-14 * (abs(samples[k]) + limit)
        most[_cell(samples[k] - limit - slack, low, inverse) + 1] += weights[k]
        most[_cell(samples[k] + limit + slack, low, inverse) + 2] -= weights[k]
    total = 0.0
    peak = 0.0
    for c in range(1, _CELLS + 1):
        total += most[c]
        most[c] = total
        peak = max(peak, total)
    most[_CELLS + 1] = 0.0
    return peak, inverse, 1.0 - low * inverse, True


@kernel
def _outermost(
    columns: NDArray[np.float64],
    first: int,
    centres: Floats,
    middle: float,
    cover: Cover,
    outer: int,
    sums: Floats,
) -> None:
    """Of each row, what covers those of its samples that lie farthest out from the middle: at most this much."""
    most, inverse, offset = cover
    m = columns.shape[0]
    rows = sums.shape[0]
    sums[:] = 0.0
    last = most.shape[0] - 1.0
    for t in range(outer):
        lower = columns[t, first : first + rows]
        upper = columns[m - 1 - t, first : first + rows]
        for r in range(rows):
            y = lower[r] if centres[r] < middle else upper[r]
            place = min(max(y * inverse + offset, 0.0), last)
            sums[r] += most[np.int64(place)]


@kernel
def _left_over(sums: Floats, slack: float, scale: float, mass: Floats, threshold: float, left: Ints) -> int:
    """Which rows may still pass; how many."""
    count = 0
    for r in range(sums.shape[0]):
        left[count] = r
        count += (sums[r] + slack) * scale * mass[r] >= threshold
    return count


@kernel
def scan_line(
    cursor: Cursor,
    rule: PairRule,
    arrivals: ArrivalRows,
    given: ArrivalSamples,
    window: WindowRows,
    held: Samples,
    index: LineColumns,
    found: Matches,
) -> tuple[int, int, int, int]:
    """As `appulse.kernels.sweep.sweep`, over every row, with the probability of pairs above the threshold only.

    All rows have as many samples of equal weight, so the same sample of many rows is looked up at once. The samples
    that lie farthest out from the arrival come first: mostly these rule a row out, whatever the others.
    Counted are rows seen, rows that their outermost samples rule out, and rows compared exactly.
    """
    start, linked, low = cursor
    meets, own, check_differ, _, threshold = rule
    a_store, a_oldest, a_newest, a_group, a_differ, a_mass = arrivals
    a_first, a_samples, a_weights, a_centre = given
    rank, rank_max, group, differ = window
    mass, samples, samples_begin, samples_base = held.mass, held.values, held.begin, held.base
    columns, shift, centre = index
    out_arrival, out_row, out_probability, counts = found
    limit2 = rule.epsilon * rule.epsilon
    limit = np.sqrt(limit2)
    a_even = a_weights.shape[0] == 0
    m = columns.shape[0]
    heaviest = mass.max() if mass.shape[0] > 0 else 0.0
    longest = 1
    for p in range(a_store.shape[0]):
        longest = max(longest, a_first[p + 1] - a_first[p])
    ones = np.ones(longest)
    most = np.zeros(_CELLS + 2)
    near = np.empty(columns.shape[1])
    left = np.empty(columns.shape[1] + 1, np.int64)
    count = 0
    for p in range(start, a_store.shape[0]):
        store = a_store[p]
        if meets[store]:
            oldest = a_oldest[p]
            while low < linked and rank_max[low] < oldest:
                low += 1
            if out_row.shape[0] - count < linked - low:
                return p, linked, low, count
            n = a_first[p + 1] - a_first[p]
            x = a_samples[a_first[p] :][:n]
            weights = ones[:n] if a_even else a_weights[a_first[p] :][:n]
            unit = a_mass[p] / n if a_even else 1.0
            peak, inverse, offset, tabled = _cover(x, weights, limit, most)
            rows = linked - low
            scale = unit / m
            remaining = rows
            outer = 0
            if tabled:
                # As many as leave the others too little, were they all covered as well as can be.
                top = peak * scale * heaviest * (1.0 + 1e-9)
                outer = 0 if top * m < threshold - 1e-9 else min((m + 1) // 2, max(1, int(m - 0.9 * threshold / top)))
                here = near[:rows]
                cover = Cover(most, inverse, offset)
                _outermost(columns, low + shift, centre[low:linked], a_centre[p], cover, outer, here)
                slack = (m - outer) * peak * (1.0 + 1e-9) + 1e-9
                remaining = _left_over(here, slack, scale, mass[low:linked], threshold - 1e-12, left)
            counts[0] += rows
            counts[1] += rows - remaining
            for i in range(remaining):
                row = low + (left[i] if tabled else i)
                u = rank[row]
                if u < oldest or u > a_newest[p] or group[row] != a_group[p]:
                    continue
                if check_differ and (differ[row] == 0 or a_differ[p] == 0 or differ[row] == a_differ[p]):
                    continue
                if tabled:
                    from_left = centre[row] < a_centre[p]
                    covered = near[row - low]
                    for t in range(outer, m):
                        y = columns[t if from_left else m - 1 - t, row + shift]
                        covered += most[np.int64(min(max(y * inverse + offset, 0.0), _CELLS + 1.0))]
                    if (covered * (1.0 + 1e-9) + 1e-9) * scale * mass[row] < threshold - 1e-12:
                        continue
                counts[2] += 1
                near_weight = 0.0
                y0 = samples_begin[row] - samples_base
                for s in range(m):
                    y = samples[y0 + s]
                    for k in range(n):
                        gap = x[k] - y
                        near_weight += weights[k] if gap * gap <= limit2 else 0.0
                mean = near_weight / (n * m) * a_mass[p] if a_even else near_weight / m
                probability = mean * mass[row]
                if probability >= threshold:
                    out_arrival[count] = p
                    out_row[count] = row
                    out_probability[count] = probability
                    count += 1
        if store == own:
            fill_columns(linked, linked + 1, linked + shift, samples, samples_begin, samples_base, columns)
            linked += 1
    return a_store.shape[0], linked, low, count
