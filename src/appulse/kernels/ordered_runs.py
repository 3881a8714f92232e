"""The values of runs of rows in order, as runs slide over the rows: of rows that certainly exist."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

# As many rows as come and go before a run is sorted anew: each moves half of the values behind it.
_FEW = 32
# Of the number of rows: a value at exactly the share makes it.
_TOLERANCE = 1e-9


@exact_kernel
def certain_quantiles(begin: Ints, end: Ints, values: Floats, part: int, whole: int, out: Floats) -> None:
    """The quantile ``part / whole`` of the values of each run; NaN of none."""
    ordered = _room(begin, end)
    a = b = 0
    for w in range(begin.shape[0]):
        _slide(ordered, values, a, b, begin[w], end[w])
        a, b = begin[w], end[w]
        out[w] = ordered[-((-part * (b - a)) // whole) - 1] if b > a else np.nan


@exact_kernel
def certain_frequent(begin: Ints, end: Ints, values: Floats, share: float) -> tuple[Ints, Floats, Floats]:
    """Of each run the values that at least a ``share`` of its rows have, with their numbers, most frequent first."""
    ordered = _room(begin, end)
    at = np.zeros(begin.shape[0] + 1, np.int64)
    found, counts = np.empty(256), np.empty(256)
    a = b = n = 0
    for w in range(begin.shape[0]):
        _slide(ordered, values, a, b, begin[w], end[w])
        a, b = begin[w], end[w]
        least = max(math.ceil((b - a) * (share - _TOLERANCE)), 1)
        start, k = n, 0
        # So many equal values, from k on, have one of them ``least - 1`` places further.
        while k + least <= b - a:
            value = ordered[k + least - 1]
            first = k + _place(ordered[k : k + least], value)
            k = first
            while k < b - a and ordered[k] == value:
                k += 1
            if k - first >= least:
                if n == found.shape[0]:
                    found, counts = np.append(found, np.empty(n)), np.append(counts, np.empty(n))
                found[n], counts[n] = value, k - first
                n += 1
        ranked = np.argsort(-counts[start:n], kind="mergesort")
        found[start:n], counts[start:n] = found[start:n][ranked], counts[start:n][ranked]
        at[w + 1] = n
    return at, found[:n].copy(), counts[:n].copy()


@exact_kernel
def certain_extremes(begin: Ints, end: Ints, values: Floats, sign: float, out: Floats) -> None:
    """The greatest of the values of each run, by a ``sign`` of 1, or the least, by -1; NaN of none."""
    # Rows that no later one reaches, oldest first: the first of them has the value.
    kept = np.empty(values.shape[0], np.int64)
    first = last = 0
    a = b = 0
    for w in range(begin.shape[0]):
        if begin[w] < a or end[w] < b or begin[w] >= b:
            first = last = 0
            b = begin[w]
        while first < last and kept[first] < begin[w]:
            first += 1
        for i in range(b, end[w]):
            while last > first and sign * values[kept[last - 1]] <= sign * values[i]:
                last -= 1
            kept[last] = i
            last += 1
        a, b = begin[w], end[w]
        out[w] = values[kept[first]] + 0.0 if first < last else np.nan


@exact_kernel
def _room(begin: Ints, end: Ints) -> Floats:
    """Room for the longest of the runs."""
    longest = 0
    for w in range(begin.shape[0]):
        longest = max(longest, end[w] - begin[w])
    return np.empty(longest)


@exact_kernel
def _slide(ordered: Floats, values: Floats, a: int, b: int, begin: int, end: int) -> None:
    """Put the values of rows ``begin`` to ``end`` in order, where those of rows ``a`` to ``b`` are."""
    if begin < a or end < b or begin >= b or begin - a + end - b > _FEW:
        run = values[begin:end] + 0.0  # one zero, as of the rows that come
        run.sort()
        ordered[: end - begin] = run
        return
    n = b - a
    for i in range(a, begin):
        n -= 1
        for k in range(_place(ordered[: n + 1], values[i]), n):
            ordered[k] = ordered[k + 1]
    for i in range(b, end):
        at = _place(ordered[:n], values[i])
        for k in range(n, at, -1):
            ordered[k] = ordered[k - 1]
        ordered[at] = values[i] + 0.0
        n += 1


@exact_kernel
def _place(ordered: Floats, value: float) -> int:
    """How many values are below this one."""
    low, high = 0, ordered.shape[0]
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low
