"""Sort-Match: on a line, a window as sorted runs of its samples (Dallachiesa et al. 2015, section 5.2).

An arrival's samples, widened by epsilon on either side, cut the line into steps of equal weight. Each run is walked
over once, from the first step to the last, and what a sample lies in is added to its object. In place of the paper's
balanced trees there are two runs, a large one and a small one of what came last, merged now and then: every walk is
over contiguous memory, and rows that have left go when runs are merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints, Samples
    from appulse.kernels.one_dimension import ArrivalSamples, Matches
    from appulse.kernels.sweep import ArrivalRows, Cursor, PairRule, WindowRows

#: Where the runs stand: values in the large and in the small one, and rows in the small one.
LARGE, SMALL, SMALL_ROWS = range(3)


@kernel
def _sort(values: Floats, weights: Floats, n: int) -> None:
    """Both by value, in place; few of them, or else the library's sort."""
    if n > 48:
        order = np.argsort(values[:n])
        values[:n] = values[:n][order]
        weights[:n] = weights[:n][order]
        return
    for i in range(1, n):
        v = values[i]
        w = weights[i]
        k = i - 1
        while k >= 0 and values[k] > v:
            values[k + 1] = values[k]
            weights[k + 1] = weights[k]
            k -= 1
        values[k + 1] = v
        weights[k + 1] = w


class Run(NamedTuple):
    """Samples in order, with their rows and weights; there is room for more."""

    values: Floats
    rows: Ints
    weights: Floats


class TwoRuns(NamedTuple):
    """A large run, and a small one of what came last; row r of the store is known in them as ``base + r``."""

    at: Ints
    large: Run
    small: Run
    base: int
    merge_rows: int  # rows in the small run when it is merged with the large one
    purge: bool  # whether rows before the cursor's ``low`` never come back


@kernel
def _insert(row: int, samples: Floats, weights: Floats, n: int, at: Ints, run: Run) -> None:
    """Merge a row's sorted samples into the small run, from the back."""
    small, small_rows, small_weights = run
    k = at[SMALL] - 1
    to = at[SMALL] + n - 1
    for s in range(n - 1, -1, -1):
        while k >= 0 and small[k] > samples[s]:
            small[to] = small[k]
            small_rows[to] = small_rows[k]
            small_weights[to] = small_weights[k]
            k -= 1
            to -= 1
        small[to] = samples[s]
        small_rows[to] = row
        small_weights[to] = weights[s]
        to -= 1
    at[SMALL] += n
    at[SMALL_ROWS] += 1


@kernel
def merge(oldest: int, at: Ints, one: Run, other: Run) -> None:
    """Make one run of both, the large one and the small one, without the rows before ``oldest``: they have left."""
    large, large_rows, large_weights = one
    small, small_rows, small_weights = other
    n = 0
    for i in range(at[LARGE]):
        if large_rows[i] >= oldest:
            large[n] = large[i]
            large_rows[n] = large_rows[i]
            large_weights[n] = large_weights[i]
            n += 1
    m = 0
    for i in range(at[SMALL]):
        if small_rows[i] >= oldest:
            small[m] = small[i]
            small_rows[m] = small_rows[i]
            small_weights[m] = small_weights[i]
            m += 1
    at[LARGE] = n + m
    i = n - 1
    k = m - 1
    to = n + m - 1
    while k >= 0:
        if i >= 0 and large[i] > small[k]:
            large[to] = large[i]
            large_rows[to] = large_rows[i]
            large_weights[to] = large_weights[i]
            i -= 1
        else:
            large[to] = small[k]
            large_rows[to] = small_rows[k]
            large_weights[to] = small_weights[k]
            k -= 1
        to -= 1
    at[SMALL] = 0
    at[SMALL_ROWS] = 0


@kernel
def sort_match(
    cursor: Cursor,
    rule: PairRule,
    arrivals: ArrivalRows,
    given: ArrivalSamples,
    window: WindowRows,
    held: Samples,
    index: TwoRuns,
    out: Matches,
) -> tuple[int, int, int, int]:
    """As `appulse.kernels.sweep.sweep`, with the probability of each pair, and of those above the threshold only.

    Counted are rows touched.
    """
    start, linked, low = cursor
    meets, own, check_differ, _, threshold = rule
    a_store, a_oldest, a_newest, a_group, a_differ, a_mass = arrivals
    a_first, a_samples, a_weights, _ = given
    rank, rank_max, group, differ = window
    mass, samples, samples_begin, samples_length, samples_base = held[:5]
    weights, weights_begin, weights_base = held[5:]
    at, base = index.at, index.base
    large, large_rows, large_weights = index.large
    small, small_rows, small_weights = index.small
    out_arrival, out_row, out_probability, counts = out
    limit2 = rule.epsilon * rule.epsilon
    limit = np.sqrt(limit2)
    found = np.zeros(rank.shape[0])
    even = weights.shape[0] == 0
    a_even = a_weights.shape[0] == 0
    longest = 1
    for p in range(a_store.shape[0]):
        longest = max(longest, a_first[p + 1] - a_first[p])
    x = np.empty(longest)
    w = np.empty(longest)
    sums = np.empty(longest + 1)
    longest = 1
    for r in range(linked, samples_length.shape[0]):
        longest = max(longest, samples_length[r])
    own_values = np.empty(longest)
    own_weights = np.empty(longest)
    span = np.zeros((2, 2), np.int64)
    count = 0
    for p in range(start, a_store.shape[0]):
        store = a_store[p]
        if meets[store]:
            oldest = a_oldest[p]
            newest = a_newest[p]
            while low < linked and rank_max[low] < oldest:
                low += 1
            if out_row.shape[0] - count < linked - low:
                return p, linked, low, count
            n = a_first[p + 1] - a_first[p]
            for k in range(n):
                x[k] = a_samples[a_first[p] + k]
                # Equal weights are counted, not summed: ten times 0.1 is 1.
                w[k] = 1.0 if a_even else a_weights[a_first[p] + k]
            _sort(x, w, n)
            sums[0] = 0.0
            for k in range(n):
                sums[k + 1] = sums[k] + w[k]
            # Around a step values are compared as everywhere; nothing is rounded.
            slack = 1e-14 * (max(abs(x[0]), abs(x[n - 1])) + limit)
            for run in range(2):
                values = large[: at[LARGE]] if run == 0 else small[: at[SMALL]]
                rows = large_rows if run == 0 else small_rows
                shares = large_weights if run == 0 else small_weights
                last = values.shape[0]
                here = np.searchsorted(values, x[0] - limit - slack)
                span[run, 0] = here
                entered = 0
                left = 0
                while here < last and left < n:
                    enters = entered < n and x[entered] - limit <= x[left] + limit
                    edge = x[entered] - limit if enters else x[left] + limit
                    weight = sums[entered] - sums[left]
                    before = edge - slack
                    if entered == left:
                        while here < last and values[here] < before:
                            here += 1
                    elif even:
                        while here < last and values[here] < before:
                            found[rows[here] - base] += weight
                            here += 1
                    else:
                        while here < last and values[here] < before:
                            found[rows[here] - base] += weight * shares[here]
                            here += 1
                    after = edge + slack
                    while here < last and values[here] <= after:
                        weight = 0.0
                        for k in range(n):
                            gap = x[k] - values[here]
                            weight += w[k] if gap * gap <= limit2 else 0.0
                        found[rows[here] - base] += weight if even else weight * shares[here]
                        here += 1
                    if enters:
                        entered += 1
                    else:
                        left += 1
                span[run, 1] = here
            scale = a_mass[p] / n if a_even else 1.0
            # The rows touched: by going over the rows, or over the same samples again where these are fewer.
            walked = span[0, 1] - span[0, 0] + span[1, 1] - span[1, 0]
            by_row = walked > linked - low
            for i in range(linked - low if by_row else walked):
                if by_row:
                    r = low + i
                elif i < span[0, 1] - span[0, 0]:
                    r = large_rows[span[0, 0] + i] - base
                else:
                    r = small_rows[span[1, 0] + i - span[0, 1] + span[0, 0]] - base
                if found[r] == 0.0:
                    continue
                value = found[r]
                found[r] = 0.0
                counts[0] += 1
                if a_even and even:
                    probability = value / (n * samples_length[r]) * (a_mass[p] * mass[r])
                elif even:
                    probability = value * mass[r] / samples_length[r]
                else:
                    probability = value * scale
                u = rank[r]
                if probability < threshold or u < oldest or u > newest or group[r] != a_group[p]:
                    continue
                if check_differ and (differ[r] == 0 or a_differ[p] == 0 or differ[r] == a_differ[p]):
                    continue
                out_arrival[count] = p
                out_row[count] = r
                out_probability[count] = probability
                count += 1
        if store == own:
            m = samples_length[linked]
            for s in range(m):
                own_values[s] = samples[samples_begin[linked] - samples_base + s]
                own_weights[s] = 1.0 if even else weights[weights_begin[linked] - weights_base + s]
            _sort(own_values, own_weights, m)
            if at[SMALL_ROWS] >= index.merge_rows or at[SMALL] + m > small.shape[0]:
                merge(base + low if index.purge else base, at, index.large, index.small)
            _insert(base + linked, own_values, own_weights, m, at, index.small)
            linked += 1
    return a_store.shape[0], linked, low, count
