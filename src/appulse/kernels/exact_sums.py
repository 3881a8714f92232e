"""Sums of runs of rows, as runs slide over the rows: exact, so rows that leave take away just what they brought.

A sum is held as a whole number of the least power of two there is, in digits of 32 bits, each in a 64-bit number: a
double adds to three of them, and carries wait until the sum is read (Neal 2015, "Fast exact summation using small and
large superaccumulators"). What is read is the double next to the sum, whatever rows came and left before.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

# Digits: of doubles times 2 ** shift, with shifts from -2200 to 2200, and of squares; and one for carries. The last
# place is a whole number of digits, so that those of a product are at the sum of two places.
_DIGITS, _LOWEST_DIGIT = 208, -103
_LOWEST = 32 * _LOWEST_DIGIT
_LOW = 0xFFFFFFFF
# Powers of two up to here, times a value below 2 ** 62, are normal doubles.
_NORMAL = 960
# To split a double of at most 53 bits into two of 26.
_SPLIT = 134217729.0


def run_sums(begin: Ints, end: Ints, terms: Floats, shifts: Ints | None = None) -> tuple[Floats, Ints]:
    """The sum of the terms of each run, times ``2 ** shifts`` if given, as a value and a shift.

    The value alone may be divided, or its root taken, where the sum is no double.
    """
    value, _, shift = _slid(begin, end, terms, shifts)
    return value, shift


def run_means(begin: Ints, end: Ints, terms: Floats) -> tuple[Floats, Floats, Ints]:
    """The sum of the terms of each run, and their mean, as values with one shift; of equal terms the mean is theirs."""
    return _slid(begin, end, terms)


def _slid(begin: Ints, end: Ints, terms: Floats, shifts: Ints | None = None) -> tuple[Floats, Floats, Ints]:
    value, mean, shift = np.empty(len(begin)), np.empty(len(begin)), np.empty(len(begin), np.int64)
    shifts = np.zeros(len(terms), np.int64) if shifts is None else shifts
    slide_sums(begin, end, terms, shifts, value, mean, shift)
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


class _Sum(NamedTuple):
    """A sum: its digits, least first; and in ``used`` the first of them that is not 0, and the one for carries."""

    digits: Ints
    used: Ints


@exact_kernel
def _fresh() -> _Sum:
    return _Sum(np.zeros(_DIGITS, np.int64), np.array([_DIGITS, 0]))


@exact_kernel
def _clear(total: _Sum) -> None:
    for k in range(total.used[0], total.used[1] + 1):
        total.digits[k] = 0
    total.used[0], total.used[1] = _DIGITS, 0


@exact_kernel
def _add(total: _Sum, value: float, shift: int) -> None:
    """Add ``value * 2 ** shift``."""
    if value == 0.0:
        return
    bits = np.float64(abs(value)).view(np.int64)
    exponent, fraction = bits >> 52, bits & 0xFFFFFFFFFFFFF
    if exponent > 0:
        fraction |= 0x10000000000000
    else:
        exponent = np.int64(1)
    place = exponent - 1075 + shift - _LOWEST
    k, within = place >> 5, place & 31
    low = (fraction & _LOW) << within
    high = (low >> 32) + ((fraction >> 32) << within)
    if value > 0.0:
        total.digits[k] += low & _LOW
        total.digits[k + 1] += high & _LOW
        total.digits[k + 2] += high >> 32
    else:
        total.digits[k] -= low & _LOW
        total.digits[k + 1] -= high & _LOW
        total.digits[k + 2] -= high >> 32
    total.used[0] = min(total.used[0], k)
    total.used[1] = max(total.used[1], k + 3)


@exact_kernel
def _add_square(total: _Sum, value: float, sign: int) -> None:
    """Add the square of a value, all 106 bits of it, or take it away."""
    bits = np.float64(abs(value)).view(np.int64)
    exponent, fraction = bits >> 52, bits & 0xFFFFFFFFFFFFF
    if exponent > 0:
        fraction |= 0x10000000000000
    else:
        exponent = np.int64(1)
    low, high = fraction & _LOW, fraction >> 32
    first, carry = _times(low, low)
    middle, top = 2 * low * high, high * high
    second = carry + (middle & _LOW)
    third = (second >> 32) + (middle >> 32) + (top & _LOW)
    fourth = (third >> 32) + (top >> 32)
    place = 2 * (exponent - 1075) - _LOWEST
    k, within = place >> 5, place & 31
    rest = np.int64(0)
    for digit in (first, second & _LOW, third & _LOW, fourth):
        moved = (digit << within) + rest
        total.digits[k] += sign * (moved & _LOW)
        rest = moved >> 32
        k += 1
    total.digits[k] += sign * rest
    total.used[0] = min(total.used[0], k - 4)
    total.used[1] = max(total.used[1], k + 1)


@exact_kernel
def _times(one: np.int64, other: np.int64) -> tuple[np.int64, np.int64]:
    """The product of two digits: its own digit, and the one above."""
    product = np.uint64(one) * np.uint64(other)
    return np.int64(product & np.uint64(_LOW)), np.int64(product >> np.uint64(32))


@exact_kernel
def _product(one: float, other: float) -> tuple[float, float]:
    """A product as a double, and what rounding took away."""
    product = one * other
    up = _SPLIT * one
    a = up - (up - one)
    up = _SPLIT * other
    b = up - (up - other)
    return product, ((a * b - product) + a * (other - b) + (one - a) * b) + (one - a) * (other - b)


@exact_kernel
def _read(total: _Sum) -> tuple[float, int]:
    """The sum, as `_read_all`, as a double."""
    value, _, shift = _read_all(total)
    return value, shift


@exact_kernel
def _read_all(total: _Sum) -> tuple[float, float, int]:
    """The sum, as ``value * 2 ** shift`` with a value of 0, or from 2 ** 61 to 2 ** 62, and the value's next bits."""
    _carry(total)
    digits, first, last = total.digits, total.used[0], total.used[1]
    sign = 1
    if first <= last and digits[last] < 0:
        # All other digits are positive: of the negative sum they would be those of its complement.
        sign = -1
        _negate(digits, first, last)
    k = last
    while k >= first and digits[k] == 0:
        k -= 1
    value, rest_of_value, shift = 0.0, 0.0, 0
    if k >= first:
        top = digits[k]
        behind = digits[k - 1] if k - 1 >= first else 0
        third = digits[k - 2] if k - 2 >= first else 0
        more = 32 - math.frexp(float(top))[1]
        highest = (top << more) | (behind >> (32 - more))
        next_one = ((behind << more) & _LOW) | (third >> (32 - more))
        kept = (highest << 30) | (next_one >> 2)
        rest = (next_one & 3) | ((third << more) & _LOW)
        k_rest = k - 3
        while rest == 0 and k_rest >= first:
            rest = digits[k_rest]
            k_rest -= 1
        # A bit below all that a double has says which way a half is rounded.
        whole = sign * (kept | (rest != 0))
        value = float(whole)
        rest_of_value = float(whole - np.int64(value))
        shift = 32 * (k - 1) + 2 - more + _LOWEST
    if sign < 0:
        _negate(digits, first, last)
    return value, rest_of_value, shift


@exact_kernel
def _carry(total: _Sum) -> None:
    """Make all digits but the last, which has the sign, at least 0 and below 2 ** 32."""
    digits = total.digits
    for k in range(total.used[0], total.used[1]):
        digits[k + 1] += digits[k] >> 32
        digits[k] &= _LOW


@exact_kernel
def _negate(digits: Ints, first: int, last: int) -> None:
    """Turn the sign of a sum whose carries are done; all digits but the last are from 0 to 2 ** 32 - 1 again."""
    carry = 0
    for k in range(first, last):
        digit = carry - digits[k]
        digits[k] = digit & _LOW
        carry = digit >> 32
    digits[last] = carry - digits[last]


@exact_kernel
def slide_sums(begin: Ints, end: Ints, terms: Floats, shifts: Ints, value: Floats, mean: Floats, shift: Ints) -> None:
    """What `run_means` gives, and `run_sums`."""
    total = _fresh()
    a = b = 0
    for w in range(begin.shape[0]):
        if begin[w] < a or end[w] < b or begin[w] >= b:
            _clear(total)
            a = b = begin[w]
        for i in range(a, begin[w]):
            _add(total, -terms[i], shifts[i])
        for i in range(b, end[w]):
            _add(total, terms[i], shifts[i])
        a, b = begin[w], end[w]
        value[w], rest, shift[w] = _read_all(total)
        n = float(b - a)
        quotient = value[w] / n
        product, more = _product(quotient, n)
        mean[w] = quotient + ((value[w] - product) - more + rest) / n


@exact_kernel
def deviations(begin: Ints, end: Ints, values: Floats, out: Floats) -> None:
    """The sample deviation of the values of each run; NaN of fewer than two."""
    total, squares, room = _fresh(), _fresh(), _fresh()
    a = b = 0
    for w in range(begin.shape[0]):
        if begin[w] < a or end[w] < b or begin[w] >= b:
            _clear(total)
            _clear(squares)
            a = b = begin[w]
        for i in range(a, begin[w]):
            _add(total, -values[i], 0)
            _add_square(squares, values[i], -1)
        for i in range(b, end[w]):
            _add(total, values[i], 0)
            _add_square(squares, values[i], 1)
        a, b = begin[w], end[w]
        out[w] = _deviation(total, squares, b - a, room) if b - a > 1 else np.nan


@exact_kernel
def _deviation(total: _Sum, squares: _Sum, n: int, room: _Sum) -> float:
    """The sample deviation of ``n`` values by the sums of them and of their squares: ``n * squares - total ** 2``.

    That difference is exact, for of large values hardly anything is left.
    """
    _clear(room)
    _carry(squares)
    for k in range(squares.used[0], squares.used[1] + 1):
        product = n * squares.digits[k]
        room.digits[k] += product & _LOW
        room.digits[k + 1] += product >> 32
    room.used[0], room.used[1] = squares.used[0], squares.used[1] + 1
    _subtract_square(room, total)
    square, shift = _read(room)
    odd = shift & 1
    return math.ldexp(math.sqrt(square * (1 + odd) / (float(n) * (n - 1))), (shift - odd) >> 1)


@exact_kernel
def _subtract_square(total: _Sum, other: _Sum) -> None:
    """Take the square of another sum away."""
    _carry(other)
    digits, first, last = other.digits, other.used[0], other.used[1]
    negative = first <= last and digits[last] < 0
    if negative:
        _negate(digits, first, last)
    for i in range(first, last + 1):
        if digits[i] == 0:
            continue
        for j in range(first, i + 1):
            low, high = _times(digits[i], digits[j])
            times = 2 - (i == j)
            k = i + j + _LOWEST_DIGIT
            total.digits[k] -= times * low
            total.digits[k + 1] -= times * high
            total.used[0] = min(total.used[0], k)
            total.used[1] = max(total.used[1], k + 2)
    if negative:
        _negate(digits, first, last)
