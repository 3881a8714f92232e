"""The values of runs of rows in order, as runs slide over the rows: of rows that certainly exist."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints

# Of the number of rows: a value at exactly the share makes it.
_TOLERANCE = 1e-9
_SPARE = 4096  # rows


class _Counts(NamedTuple):
    """How many rows of a run have each of the distinct values, and sums of these in a Fenwick tree (Fenwick 1994).

    ``tree[k]``, from 1 on, is the number of rows of the value k and those before it, as many as the last bit of k says:
    a row that comes or goes changes a number per bit, and as many say which value the n-th row has.
    """

    tree: NDArray[np.int32]
    rows: NDArray[np.int32]


def certain_quantiles(begin: Ints, end: Ints, values: Floats, part: int, whole: int, out: Floats) -> None:
    """The quantile ``part / whole`` of the values of each run; NaN of none."""
    distinct, which = np.unique(values + 0.0, return_inverse=True)  # one zero
    quantiles_of(begin, end, distinct, which, part, whole, out)


def certain_frequent(begin: Ints, end: Ints, values: Floats, share: float) -> tuple[Ints, Floats, Floats]:
    """Of each run the values that at least a ``share`` of its rows have, with their numbers, most frequent first."""
    return frequent_of(begin, end, *np.unique(values + 0.0, return_inverse=True), share)


@exact_kernel
def quantiles_of(begin: Ints, end: Ints, distinct: Floats, which: Ints, part: int, whole: int, out: Floats) -> None:
    """As `certain_quantiles`, of the distinct values in order, and which of them each row has."""
    counts = _none_of(distinct.shape[0])
    a = b = 0
    for w in range(begin.shape[0]):
        _slide(counts, which, a, b, begin[w], end[w])
        a, b = begin[w], end[w]
        out[w] = distinct[_of_row(counts, -((-part * (b - a)) // whole) - 1)[0]] if b > a else np.nan


@exact_kernel
def frequent_of(begin: Ints, end: Ints, distinct: Floats, which: Ints, share: float) -> tuple[Ints, Floats, Floats]:
    """As `certain_frequent`, of the distinct values in order, and which of them each row has."""
    counts = _none_of(distinct.shape[0])
    at = np.zeros(begin.shape[0] + 1, np.int64)
    found, often = np.empty(256), np.empty(256)
    a = b = n = 0
    for w in range(begin.shape[0]):
        _slide(counts, which, a, b, begin[w], end[w])
        a, b = begin[w], end[w]
        least = max(math.ceil((b - a) * (share - _TOLERANCE)), 1)
        start, k = n, 0
        # So many equal values, from k on, have one of them ``least - 1`` places further.
        while k + least <= b - a:
            value, first = _of_row(counts, k + least - 1)
            many = counts.rows[value]
            k = first + many
            if many >= least:
                if n == found.shape[0]:
                    found, often = np.append(found, np.empty(n)), np.append(often, np.empty(n))
                found[n], often[n] = distinct[value], many
                n += 1
        if n - start > 1:
            ranked = np.argsort(-often[start:n], kind="mergesort")
            found[start:n], often[start:n] = found[start:n][ranked], often[start:n][ranked]
        at[w + 1] = n
    return at, found[:n].copy(), often[:n].copy()


def certain_extremes(begin: Ints, end: Ints, values: Floats, sign: float, out: Floats) -> None:
    """The greatest of the values of each run, by a ``sign`` of 1, or the least, by -1; NaN of none."""
    slide_extremes(begin, end, values, sign, unreached(len(values)), out)


class Unreached(NamedTuple):
    """Rows of a run that no later one reaches, oldest first: the first of them has the extreme.

    They are the ``ends[0]``-th to the ``ends[1]``-th of those ``kept``. ``run`` has the run, and how many rows were
    before all that are given; those that are kept are counted from there.
    """

    run: Ints
    kept: Ints
    ends: Ints


def unreached(rows: int) -> Unreached:
    """Of no rows, with room for so many."""
    return Unreached(np.zeros(3, np.int64), np.empty(rows, np.int64), np.zeros(2, np.int64))


def with_room(rows: Unreached, more: int) -> Unreached:
    """The same, with room for ``more`` rows, and not for many times as many."""
    first, last = rows.ends.tolist()
    needed = last - first + more
    if last + more <= len(rows.kept) <= 8 * needed + _SPARE:
        return rows
    moved = rows._replace(kept=np.empty(2 * needed, np.int64))
    moved.kept[: last - first] = rows.kept[first:last]
    rows.ends[:] = 0, last - first
    return moved


@exact_kernel
def slide_extremes(begin: Ints, end: Ints, values: Floats, sign: float, rows: Unreached, out: Floats) -> None:
    """As `certain_extremes`, of runs that go on from the last one."""
    run, kept, ends = rows
    a, b, base, first, last = run[0], run[1], run[2], ends[0], ends[1]
    for w in range(begin.shape[0]):
        if begin[w] < a or end[w] < b or begin[w] >= b:
            first = last = 0
            b = begin[w]
        while first < last and kept[first] - base < begin[w]:
            first += 1
        for i in range(b, end[w]):
            while last > first and sign * values[kept[last - 1] - base] <= sign * values[i]:
                last -= 1
            kept[last] = i + base
            last += 1
        a, b = begin[w], end[w]
        out[w] = values[kept[first] - base] + 0.0 if first < last else np.nan
    run[0], run[1], ends[0], ends[1] = a, b, first, last


@exact_kernel
def _none_of(values: int) -> _Counts:
    return _Counts(np.zeros(values + 1, np.int32), np.zeros(values, np.int32))


@exact_kernel
def _slide(counts: _Counts, which: Ints, a: int, b: int, begin: int, end: int) -> None:
    """Count rows ``begin`` to ``end`` where rows ``a`` to ``b`` are counted."""
    if begin < a or end < b or begin >= b:
        for i in range(a, b):
            _count(counts, which[i], -1)
        a = b = begin
    for i in range(a, begin):
        _count(counts, which[i], -1)
    for i in range(b, end):
        _count(counts, which[i], 1)


@exact_kernel
def _count(counts: _Counts, value: int, more: int) -> None:
    counts.rows[value] += more
    k = value + 1
    while k < counts.tree.shape[0]:
        counts.tree[k] += more
        k += k & -k


@exact_kernel
def _of_row(counts: _Counts, n: int) -> tuple[int, int]:
    """Which value the n-th row has, in order from 0 on, and how many rows are before those of this value."""
    size = counts.tree.shape[0]
    step = 1
    while 2 * step < size:
        step *= 2
    k = before = 0
    while step > 0:
        if k + step < size and before + counts.tree[k + step] <= n:
            k += step
            before += counts.tree[k]
        step //= 2
    return k, before
