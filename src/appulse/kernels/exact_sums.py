"""Sums of runs of rows, as runs slide over the rows: exact, so rows that leave take away just what they brought.

What is read is the double next to the sum, whatever rows came and left before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.digits import (
    LOWEST,
    Sum,
    add_square,
    add_value,
    clear,
    fresh,
    parts,
    quotient,
    read,
    root,
    settle,
    settled_squares,
)
from appulse.kernels.jit import exact_kernel, inlined_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints, Whole

# The least power of two that sums of shifted values have.
_LOWEST = 3 * LOWEST - 32
# Powers of two up to here, times a value below 2 ** 62, are normal doubles.
_NORMAL = 960
_NO_SHIFTS = np.empty(0, np.int64)


class Sliding(NamedTuple):
    """The last run, from ``run[0]`` to ``run[1]``, and the sums of its rows and, for deviations, of their squares."""

    run: Ints
    total: Sum
    squares: Sum


@exact_kernel
def no_sums() -> Sliding:
    """Of no rows."""
    return Sliding(np.zeros(3, np.int64), fresh(), fresh())


def run_sums(begin: Ints, end: Ints, terms: Floats, shifts: Ints = _NO_SHIFTS) -> tuple[Floats, Ints]:
    """The sum of the terms of each run, times ``2 ** shifts`` if given, as a value and a shift.

    The value alone may be divided, or its root taken, where the sum is no double.
    """
    value, _, shift = run_means(begin, end, terms, shifts)
    return value, shift


def run_means(
    begin: Ints, end: Ints, terms: Floats, shifts: Ints = _NO_SHIFTS, sums: Sliding | None = None
) -> tuple[Floats, Floats, Ints]:
    """The sum of the terms of each run, and their mean, as values with one shift; of equal terms the mean is theirs.

    Runs go on from those of ``sums``, if given.
    """
    value, mean, shift = np.empty(len(begin)), np.empty(len(begin)), np.empty(len(begin), np.int64)
    slide_sums(begin, end, terms, shifts, no_sums() if sums is None else sums, value, mean, shift)
    return value, mean, shift


def doubles(value: Floats, shift: Ints) -> Floats:
    """Sums as doubles."""
    if len(shift) and shift.min() > -_NORMAL and shift.max() < _NORMAL:  # several times as fast as ldexp
        scaled: Floats = value * ((shift + 1023) << 52).view(np.float64)
        return scaled
    with np.errstate(over="ignore"):  # a sum of doubles may be none
        found: Floats = np.ldexp(value, shift)
    return found


def roots(value: Floats, shift: Ints) -> Floats:
    """The roots of sums that are not negative."""
    odd = shift & 1
    return doubles(np.sqrt(value * (1 + odd)), (shift - odd) >> 1)


@exact_kernel
def slide_sums(
    begin: Ints, end: Ints, terms: Floats, shifts: Ints, sums: Sliding, value: Floats, mean: Floats, shift: Ints
) -> None:
    """What `run_means` gives."""
    run, total, _ = sums
    a, b = run[0], run[1]
    shifted = shifts.shape[0] > 0
    for w in range(begin.shape[0]):
        if begin[w] < a or end[w] < b or begin[w] >= b:
            clear(total)
            a = b = begin[w]
        for i in range(a, begin[w]):
            _add(total, np.int64(-1), terms[i], shifts[i] if shifted else np.int64(0))
        for i in range(b, end[w]):
            _add(total, np.int64(1), terms[i], shifts[i] if shifted else np.int64(0))
        a, b = begin[w], end[w]
        settle(total)
        value[w], rest, moved = read(total)
        mean[w] = quotient(value[w], rest, float(b - a), 0.0)
        shift[w] = 0 if value[w] == 0.0 else moved + _LOWEST
    run[0], run[1] = a, b


@inlined_kernel
def _add(total: Sum, times: Whole, value: float, shift: Whole) -> None:
    """Add ``value * 2 ** shift``, or take it away."""
    if value != 0.0:
        sign, k, a, b, c = parts(value, _LOWEST - shift)
        add_value(total, times * sign, k, a, b, c)


def deviations(begin: Ints, end: Ints, values: Floats, out: Floats) -> None:
    """The sample deviation of the values of each run; NaN of fewer than two.

    By sums of squares that are exact, for of large values hardly anything is left.
    """
    slide_deviations(begin, end, values, no_sums(), out)


@exact_kernel
def slide_deviations(begin: Ints, end: Ints, values: Floats, sums: Sliding, out: Floats) -> None:
    """As `deviations`, of runs that go on from the last one."""
    (run, total, squares), room = sums, fresh()
    a, b = run[0], run[1]
    for w in range(begin.shape[0]):
        if begin[w] < a or end[w] < b or begin[w] >= b:
            clear(total)
            clear(squares)
            a = b = begin[w]
        for i in range(a, begin[w]):
            _count(total, squares, np.int64(-1), values[i])
        for i in range(b, end[w]):
            _count(total, squares, np.int64(1), values[i])
        a, b = begin[w], end[w]
        out[w] = np.nan
        if b - a > 1:
            settled_squares(b - a, squares, total, room)
            value, rest, shift = read(room)
            out[w] = root(quotient(value, rest, float(b - a) * (b - a - 1), 0.0), shift + 2 * LOWEST)
    run[0], run[1] = a, b


@inlined_kernel
def _count(total: Sum, squares: Sum, times: Whole, value: float) -> None:
    """Add a value, and its square, or take them away."""
    if value != 0.0:
        sign, k, a, b, c = parts(value, LOWEST)
        add_value(total, times * sign, k, a, b, c)
        add_square(squares, times, k, a, b, c)
