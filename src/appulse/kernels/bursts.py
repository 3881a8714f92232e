"""How many of a stream's newest rows exist, where rows that follow each other exist together or fail together.

The existence of consecutive rows is a Markov chain of two states. As in `poisson_binomial` the number of *absent* rows
is counted, in mass functions over a band; here there is one for each state of the row before and of the last row. A
window slides as two stacks: a *pivot* splits its rows, the newer part is one set of mass functions that grows by a row,
the older part a table with an entry for each row. An answer is a dot product for each state of the pivot.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.absent import TINY, dot, total_of
from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints
    from appulse.kernels.poisson_binomial import CountRule, Questions, Ticks

_PIVOT, _END, _HEAD, _BEGIN, _N, _LOW, _DEPTH, _USED, _SUMMED = range(9)
_NONE = -1
# Rows newer than those in doubt that the table begins with: it lasts for as many arrivals, and takes as much room.
_AHEAD = 512
_ROUNDING = 1e-12


class Chain(NamedTuple):
    """How likely each row exists, if the row before it does, and if not; nothing of the first row."""

    stays: Floats
    returns: Floats


@exact_kernel
def chain(exist: Floats, correlation: float) -> tuple[Chain, int]:
    """The chain of consecutive rows, and the first row whose probability the correlation does not allow, or -1."""
    n = exist.shape[0]
    stays, returns = np.ones(n), np.ones(n)
    for i in range(1, n):
        p, r = exist[i - 1], exist[i]
        both = p * r + correlation * math.sqrt(max(0.0, p * (1.0 - p) * r * (1.0 - r)))
        if both > min(p, r) + _ROUNDING or both < max(0.0, p + r - 1.0) - _ROUNDING:
            return Chain(stays, returns), i
        both = min(max(both, p + r - 1.0, 0.0), p, r)
        stays[i] = both / p
        returns[i] = (r - both) / (1.0 - p) if p < 1.0 else r
    return Chain(stays, returns), _NONE


class _Stacks(NamedTuple):
    """Where the two stacks are; mass functions by state before, state at the end, and absent rows."""

    at: Ints
    head: NDArray[np.float64]  # (buffer, state of the pivot, state of the newest row, absent)
    summed: NDArray[np.float64]  # (state of the pivot, absent): at least so many, from the most on


class _Table(NamedTuple):
    """The older part: an entry for each row from the pivot back, by state of the row, state of the pivot, absent."""

    rows: NDArray[np.int64]  # where each entry begins, how far its mass functions are apart, begin, length, least count
    values: Floats


@exact_kernel
def _scratch(n: int) -> tuple[_Stacks, _Table]:
    at = np.zeros(9, np.int64)
    at[_END] = _NONE
    stacks = _Stacks(at, np.zeros((2, 2, 2, n + 3)), np.zeros((2, n + 3)))
    return stacks, _Table(np.empty((64, 5), np.int64), np.empty(4096))


@exact_kernel
def _trimmed(a: Floats, b: Floats, c: Floats, d: Floats, first: int, n: int) -> tuple[int, int]:
    """Where entries above `TINY` begin, and how many there are up to the last."""
    end = first + n
    while first < end - 1 and max(a[first], b[first], c[first], d[first]) < TINY:
        first += 1
    while end - 1 > first and max(a[end - 1], b[end - 1], c[end - 1], d[end - 1]) < TINY:
        end -= 1
    return first, end - first


@exact_kernel
def _grow(stacks: _Stacks, stays: float, returns: float) -> None:
    """The newer part with one row more."""
    at = stacks.at
    begin, n = at[_BEGIN], at[_N]
    own, out = stacks.head[at[_HEAD]], stacks.head[1 - at[_HEAD]]
    leaves, stays_out = 1.0 - stays, 1.0 - returns
    for s in range(2):
        gone, there = own[s, 0, begin : begin + n], own[s, 1, begin : begin + n]
        absent, present = out[s, 0], out[s, 1]
        absent[0] = 0.0
        present[n] = 0.0
        for k in range(n):
            present[k] = there[k] * stays + gone[k] * returns
        for k in range(n):
            absent[k + 1] = there[k] * leaves + gone[k] * stays_out
    first, n = _trimmed(out[0, 0], out[0, 1], out[1, 0], out[1, 1], 0, n + 1)
    at[_BEGIN], at[_N] = first, n
    at[_LOW] += first
    at[_HEAD] = 1 - at[_HEAD]
    at[_END] += 1


@exact_kernel
def _begin(stacks: _Stacks, pivot: int, newest: int, links: Chain) -> None:
    """Take a pivot: the rows after it become the newer part, the table begins with the pivot."""
    at = stacks.at
    at[_PIVOT], at[_END], at[_HEAD], at[_BEGIN], at[_N], at[_LOW] = pivot, pivot, 0, 0, 1, 0
    at[_DEPTH], at[_USED], at[_SUMMED] = 0, 0, _NONE
    for s in range(2):
        for t in range(2):
            stacks.head[0, s, t, 0] = 1.0 if s == t else 0.0
    while at[_END] < newest:
        _grow(stacks, links.stays[at[_END] + 1], links.returns[at[_END] + 1])


@exact_kernel
def _deepen(stacks: _Stacks, row: int, links: Chain, table: _Table) -> _Table:
    """Let the table reach back to ``row``."""
    at = stacks.at
    rows, values = table
    while at[_PIVOT] - at[_DEPTH] >= row:
        depth, used = at[_DEPTH], at[_USED]
        if depth == rows.shape[0]:
            more_rows = np.empty((2 * depth + 64, 5), np.int64)
            more_rows[:depth] = rows
            rows = more_rows
        width = 1 if depth == 0 else rows[depth - 1, 3] + 1
        if used + 4 * width > values.shape[0]:
            more = np.empty(2 * values.shape[0] + 4 * width)
            more[:used] = values[:used]
            values = more
        out = values[used : used + 4 * width].reshape((4, width))
        first, n, low = 0, 1, 0
        if depth == 0:
            out[0, 0], out[1, 0], out[2, 0], out[3, 0] = 1.0, 0.0, 0.0, 1.0
        else:
            later = at[_PIVOT] - depth + 1
            stays, returns = links.stays[later], links.returns[later]
            leaves, stays_out = 1.0 - stays, 1.0 - returns
            before, apart, begin, n, low = rows[depth - 1]
            for s in range(2):
                from_gone = before + s * apart + begin
                from_there = from_gone + 2 * apart
                gone, there = values[from_gone : from_gone + n], values[from_there : from_there + n]
                absent, present = out[s], out[2 + s]
                present[0] = stays * there[0]
                absent[0] = returns * there[0]
                for k in range(1, n):
                    present[k] = stays * there[k] + leaves * gone[k - 1]
                for k in range(1, n):
                    absent[k] = returns * there[k] + stays_out * gone[k - 1]
                present[n] = leaves * gone[n - 1]
                absent[n] = stays_out * gone[n - 1]
            first, n = _trimmed(out[0], out[1], out[2], out[3], 0, n + 1)
        rows[depth, 0], rows[depth, 1], rows[depth, 2], rows[depth, 3], rows[depth, 4] = (
            used,
            width,
            first,
            n,
            low + first,
        )
        at[_USED] = used + 4 * width
        at[_DEPTH] = depth + 1
    return _Table(rows, values)


@exact_kernel
def _reach(stacks: _Stacks, row: int, newest: int, size: int, links: Chain, table: _Table) -> _Table:
    """Let the newer part reach to ``newest`` and the table back to ``row``."""
    at = stacks.at
    if at[_END] == _NONE or row > at[_PIVOT] or at[_END] > newest:
        _begin(stacks, min(newest, max(row, newest - size + min(size, _AHEAD))), newest, links)
    while at[_END] < newest:
        _grow(stacks, links.stays[at[_END] + 1], links.returns[at[_END] + 1])
    if at[_SUMMED] != at[_END]:
        own, last = stacks.head[at[_HEAD]], at[_BEGIN] + at[_N] - 1
        total = other = 0.0
        for k in range(at[_N]):
            total += own[0, 0, last - k] + own[0, 1, last - k]
            other += own[1, 0, last - k] + own[1, 1, last - k]
            stacks.summed[0, k], stacks.summed[1, k] = total, other
        at[_SUMMED] = at[_END]
    return _deepen(stacks, row, links, table)


@exact_kernel
def _at_least(stacks: _Stacks, row: int, state: int, least: int, table: _Table) -> float:
    """The probability that at least ``least`` of the rows after one are absent, given its state."""
    at = stacks.at
    used, apart, begin, n, low = table.rows[at[_PIVOT] - row]
    # Where so many are absent in the older part, the newer one need not have any absent, or cannot have enough.
    enough, some = least - low - at[_LOW], least - low - at[_LOW] - at[_N] + 1
    first, last = min(n, max(0, some)), min(n, max(0, enough))
    total = 0.0
    for s in range(2):
        entry = table.values[used + (2 * state + s) * apart + begin :]
        total += dot(entry[first:last], stacks.summed[s, max(0, first - some) :])
        total += stacks.summed[s, at[_N] - 1] * total_of(entry[last:n])
    return min(1.0, total)


@exact_kernel
def evict(windows: Ticks, exist: Floats, correlation: Floats, rule: CountRule, floor: Ints) -> int:
    """As `poisson_binomial.evict`, of windows whose rows are chains of a correlation each."""
    first, fresh, tick_end = windows
    size, confidence, least, max_rows, _ = rule
    longest = 0
    for w in range(first.shape[0] - 1):
        longest = max(longest, first[w + 1] - first[w])
    stacks, table = _scratch(longest)
    capped = 0
    for w in range(first.shape[0] - 1):
        own = exist[first[w] : first[w + 1]]
        links, _ = chain(own, correlation[w])
        n = own.shape[0]
        certain = np.zeros(n + 1, np.int64)
        for i in range(n):
            certain[i + 1] = certain[i] + (own[i] == 1.0)
        oldest = 0
        stacks.at[_END] = _NONE
        begin = fresh[w]
        while begin < n:
            newest = begin
            while not tick_end[first[w] + newest]:
                newest += 1
            while newest - oldest >= size:
                table = _reach(stacks, oldest, newest, size, links, table)
                absent = newest - oldest - size + 1
                inside = _at_least(stacks, oldest, 1, absent, table)
                if confidence == 1.0:
                    gone = certain[newest + 1] - certain[oldest + 1] >= size
                else:
                    without = _at_least(stacks, oldest, 0, absent, table)
                    few = own[oldest] * inside + (1.0 - own[oldest]) * without
                    gone = 1.0 - few >= confidence - 1e-9
                if not gone and inside >= least:
                    break
                oldest += 1
            if newest - oldest >= max_rows:
                capped += newest - max_rows + 1 - oldest
                oldest = newest - max_rows + 1
            for row in range(begin, newest + 1):
                floor[first[w] + row] = oldest
            begin = newest + 1
    return capped


@exact_kernel
def membership(first: Ints, exist: Floats, correlation: Floats, size: int, asked: Questions, out: Floats) -> None:
    """As `poisson_binomial.membership`, of windows whose rows are chains of a correlation each; without partners."""
    window, row, newest, _ = asked
    longest = 0
    for w in range(first.shape[0] - 1):
        longest = max(longest, first[w + 1] - first[w])
    stacks, table = _scratch(longest)
    links, _ = chain(exist[:0], 0.0)
    current = _NONE
    for q in range(window.shape[0]):
        w = window[q]
        if w != current:
            links, _ = chain(exist[first[w] : first[w + 1]], correlation[w])
            current = w
            stacks.at[_END] = _NONE
        i, m = row[q], newest[q]
        if m - i < size:
            out[q] = 1.0
            continue
        table = _reach(stacks, i, m, size, links, table)
        out[q] = _at_least(stacks, i, 1, m - i - size + 1, table)


@exact_kernel
def existences(begin: Ints, end: Ints, exist: Floats, correlation: float, out: Floats) -> int:
    """The probability that any row of a window exists; the first row that the correlation does not allow, or -1."""
    for w in range(begin.shape[0]):
        own = exist[begin[w] : end[w]]
        links, bad = chain(own, correlation)
        if bad != _NONE:
            return int(begin[w] + bad)
        none = math.log1p(-own[0]) if own[0] < 1.0 else -math.inf
        for i in range(1, own.shape[0]):
            none += math.log1p(-links.returns[i]) if links.returns[i] < 1.0 else -math.inf
        out[w] = -math.expm1(none)
    return _NONE


@exact_kernel
def sums(
    begin: Ints,
    end: Ints,
    exist: Floats,
    correlation: float,
    mean: Floats,
    deviation: Floats,
    out: NDArray[np.float64],
) -> None:
    """Mean and deviation of the sum over all existing rows; ``out`` has a row per window.

    The existence of a row is a linear function of that of any before it, so its covariance with the sum of those
    before is that of the row before, times one factor.
    """
    for w in range(begin.shape[0]):
        a, b = begin[w], end[w]
        unit = 0.0
        for i in range(a, b):
            unit = max(unit, abs(mean[i]), deviation[i])
        unit = unit if unit > 0.0 else 1.0
        links, _ = chain(exist[a:b], correlation)
        total = spread = before = 0.0
        for i in range(a, b):
            value, own, p = mean[i] / unit, deviation[i] / unit, exist[i]
            before *= links.stays[i - a] - links.returns[i - a]
            total += p * value
            spread += p * own * own + p * (1.0 - p) * value * value + 2.0 * value * before
            before += value * p * (1.0 - p)
        out[w, 0] = total * unit
        out[w, 1] = math.sqrt(max(0.0, spread)) * unit
