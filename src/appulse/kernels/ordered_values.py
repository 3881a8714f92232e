"""The values of a run in order, as it slides on a few rows at a time: what was put in order before is kept."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

_LEAST = 64
_SPARE = 4096  # rows


class Ordered(NamedTuple):
    """Values in order, and few that ``came`` since, or ``went``, each in order by themselves.

    ``many`` has how many there are of each. Once ``came`` or ``went`` is full, all are put in order anew.
    """

    run: Ints
    many: Ints
    values: Floats
    came: Floats
    went: Floats


def ordered(values: Floats, rows: int) -> Ordered:
    """Of the run of all these values, with room for runs of so many rows."""
    n, few = len(values), max(_LEAST, math.isqrt(2 * rows))
    found = Ordered(np.array([0, n, 0]), np.array([n, 0, 0]), np.empty(2 * rows + few), np.empty(few), np.empty(few))
    found.values[:n] = np.sort(values + 0.0)  # one zero
    return found


def fits(known: Ordered, rows: int) -> bool:
    """Whether there is room for runs of so many rows, and not for many times as many."""
    return rows + len(known.went) <= len(known.values) <= 8 * rows + _SPARE


@exact_kernel
def slide_quantiles(begin: Ints, end: Ints, values: Floats, known: Ordered, part: int, whole: int, out: Floats) -> None:
    """The quantile ``part / whole`` of the values of each run, which go on from the last one; NaN of none."""
    a, b = known.run[0], known.run[1]
    for w in range(begin.shape[0]):
        if begin[w] < a or end[w] < b or begin[w] >= b:
            known.many[:] = 0
            a = b = begin[w]
        for i in range(a, begin[w]):
            _put(known, 2, values[i] + 0.0)
        for i in range(b, end[w]):
            _put(known, 1, values[i] + 0.0)
        a, b = begin[w], end[w]
        out[w] = _at_rank(known, -((-part * (b - a)) // whole) - 1) if b > a else np.nan
    known.run[0], known.run[1] = a, b


@exact_kernel
def _put(known: Ordered, which: int, value: float) -> None:
    """Have a value among those that came, 1, or went, 2."""
    many = known.many
    few = known.came if which == 1 else known.went
    if many[which] == few.shape[0]:
        _settle(known)
    k = many[which]
    while k > 0 and few[k - 1] > value:
        few[k] = few[k - 1]
        k -= 1
    few[k] = value
    many[which] += 1


@exact_kernel
def _settle(known: Ordered) -> None:
    """Put all values in order."""
    _, many, values, came, went = known
    i, k = many[0] - 1, many[1] - 1
    while k >= 0:
        if i >= 0 and values[i] > came[k]:
            values[i + k + 1] = values[i]
            i -= 1
        else:
            values[i + k + 1] = came[k]
            k -= 1
    n, k = many[0] + many[1], 0
    for i in range(n):
        if k < many[2] and values[i] == went[k]:
            k += 1
        else:
            values[i - k] = values[i]
    many[0], many[1], many[2] = n - k, 0, 0


@exact_kernel
def _upto(values: Floats, n: int, value: float) -> int:
    """How many of the first ``n`` values, which are in order, are not above this one."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if values[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@exact_kernel
def _at_rank(known: Ordered, rank: int) -> float:
    """The value that so many are before, in order."""
    found = np.inf
    for values, n in ((known.values, known.many[0]), (known.came, known.many[1])):
        low, high = 0, n
        while low < high:
            middle = (low + high) // 2
            value = values[middle]
            before = _upto(known.values, known.many[0], value) + _upto(known.came, known.many[1], value)
            if before - _upto(known.went, known.many[2], value) <= rank:
                low = middle + 1
            else:
                high = middle
        if low < n:
            found = min(found, values[low])
    return found
