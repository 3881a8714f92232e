"""Mass functions of how many of some rows are absent, over a band: entries below `TINY` at its ends are dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats

#: Entries of a mass function below this are dropped at its ends.
TINY = 1e-18
# Below so many rows a product is made factor by factor.
_LEAF = 64


@exact_kernel
def _times_row(source: Floats, begin: int, n: int, low: int, present: float, out: Floats) -> tuple[int, int, int]:
    """A mass function over absent rows with one row more; where it begins in ``out``, its length and least count."""
    absent = 1.0 - present
    own = source[begin : begin + n]
    out[0] = own[0] * present
    for k in range(1, n):
        out[k] = own[k] * present + own[k - 1] * absent
    out[n] = own[n - 1] * absent
    return _trimmed(out, n + 1, low)


@exact_kernel
def _trimmed(values: Floats, n: int, low: int) -> tuple[int, int, int]:
    first = 0
    while first < n - 1 and values[first] < TINY:
        first += 1
    while n - 1 > first and values[n - 1] < TINY:
        n -= 1
    return first, n - first, low + first


@exact_kernel
def times_rows(
    buffers: NDArray[np.float64], which: int, begin: int, n: int, low: int, exist: Floats, first: int, last: int
) -> tuple[int, int, int, int]:
    """The mass function in one of two buffers, with the rows ``first`` to ``last`` (exclusive) more."""
    for row in range(first, last):
        if exist[row] == 1.0:
            continue
        begin, n, low = _times_row(buffers[which], begin, n, low, exist[row], buffers[1 - which])
        which = 1 - which
    return which, begin, n, low


@exact_kernel
def _convolve(a: Floats, b: Floats, out: Floats) -> None:
    """The mass function of a sum; the shorter one goes outside, so that the inner loop is long."""
    if a.shape[0] > b.shape[0]:
        a, b = b, a
    out[: a.shape[0] + b.shape[0] - 1] = 0.0
    n = b.shape[0]
    i = 0
    # Four factors a pass: the sum is loaded and stored a quarter as often.
    while i + 4 <= a.shape[0]:
        into = out[i : i + n + 3]
        a0, a1, a2, a3 = a[i], a[i + 1], a[i + 2], a[i + 3]
        if n >= 4:
            into[0] += a0 * b[0]
            into[1] += a0 * b[1] + a1 * b[0]
            into[2] += a0 * b[2] + a1 * b[1] + a2 * b[0]
            for k in range(3, n):
                into[k] += a0 * b[k] + a1 * b[k - 1] + a2 * b[k - 2] + a3 * b[k - 3]
            into[n] += a1 * b[n - 1] + a2 * b[n - 2] + a3 * b[n - 3]
            into[n + 1] += a2 * b[n - 1] + a3 * b[n - 2]
            into[n + 2] += a3 * b[n - 1]
        else:
            for j in range(4):
                for k in range(n):
                    into[j + k] += a[i + j] * b[k]
        i += 4
    while i < a.shape[0]:
        into = out[i : i + n]
        for k in range(n):
            into[k] += a[i] * b[k]
        i += 1


@exact_kernel
def product(exist: Floats, first: int, last: int, out: Floats) -> tuple[int, int, int]:
    """The mass function of the absent among the rows ``first`` to ``last`` (exclusive), into ``out``.

    Halves are convolved: bands grow with the root of the rows, so n rows cost n log n without any transform.
    """
    rows = last - first
    blocks = max(1, -(-rows // _LEAF))
    stride = _LEAF + 1
    here = np.empty(blocks * stride)
    there = np.empty(blocks * stride)
    at = np.empty((blocks, 3), np.int64)  # where each begins, its length and least count
    buffers = np.empty((2, stride + 1))
    for b in range(blocks):
        buffers[0, 0] = 1.0
        end = min(last, first + (b + 1) * _LEAF)
        which, begin, n, low = times_rows(buffers, 0, 0, 1, 0, exist, first + b * _LEAF, end)
        here[b * stride : b * stride + n] = buffers[which, begin : begin + n]
        at[b, 0], at[b, 1], at[b, 2] = b * stride, n, low
    while blocks > 1:
        half = blocks // 2
        for b in range(half):
            left, right = at[2 * b], at[2 * b + 1]
            into = there[left[0] :]
            n = left[1] + right[1] - 1
            low = left[2] + right[2]
            _convolve(here[left[0] : left[0] + left[1]], here[right[0] : right[0] + right[1]], into)
            begin, n, low = _trimmed(into, n, low)
            at[b, 0], at[b, 1], at[b, 2] = at[2 * b, 0] + begin, n, low
        if blocks % 2:
            left = at[blocks - 1]
            there[left[0] : left[0] + left[1]] = here[left[0] : left[0] + left[1]]
            at[half, 0], at[half, 1], at[half, 2] = left[0], left[1], left[2]
        here, there = there, here
        blocks = half + blocks % 2
    n = at[0, 1]
    out[:n] = here[at[0, 0] : at[0, 0] + n]
    return 0, n, at[0, 2]


@exact_kernel
def absent_pmf(exist: Floats) -> tuple[Floats, int]:
    """The mass function of the number of absent rows, and the count that its first entry is for."""
    out = np.empty(exist.shape[0] + 1)
    _, n, low = product(exist, 0, exist.shape[0], out)
    return out[:n].copy(), low


# These two may be summed in any order: what that moves, on another kind of processor, is 1e-16, and decides only where
# a probability lies within as much of a threshold that is itself 1e-9 off every round number.
@kernel
def total_of(values: Floats) -> float:
    """The sum, in any order."""
    total = 0.0
    for k in range(values.shape[0]):
        total += values[k]
    return total


@kernel
def dot(x: Floats, y: Floats) -> float:
    """The sum of products, in any order; ``y`` may be longer."""
    total = 0.0
    for k in range(x.shape[0]):
        total += x[k] * y[k]
    return total
