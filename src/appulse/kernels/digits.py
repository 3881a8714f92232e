"""Exact sums of whole numbers, doubles and their products: what has been added can be taken away again.

A sum is a whole number, in digits of 32 bits that are held in 64, so that carries can wait until it is read (Neal 2015,
"Fast exact summation using small and large superaccumulators"). One of doubles counts the least power of two there is,
``2 ** LOWEST``, one of products of two doubles its square.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel, inlined_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Ints, Whole

#: No double has a bit below this power of two, and it is where a digit begins.
LOWEST = -1088
# Digits: of doubles times 2 ** shift, with shifts from -2200 to 2200, and of products of two doubles; and carries.
_DIGITS = 208
_LOW, _BASE = 0xFFFFFFFF, 1 << 32
# To split a double of at most 53 bits into two of 26.
_SPLIT = 134217729.0


class Sum(NamedTuple):
    """The digits, least first; and in ``used`` the first and the last of them that may not be 0."""

    digits: Ints
    used: Ints


@exact_kernel
def fresh() -> Sum:
    """Nothing added yet."""
    return Sum(np.zeros(_DIGITS, np.int64), np.array([_DIGITS, -1]))


@exact_kernel
def clear(total: Sum) -> None:
    """Nothing is added any more."""
    for k in range(total.used[0], total.used[1] + 1):
        total.digits[k] = 0
    total.used[0], total.used[1] = _DIGITS, -1


@inlined_kernel
def parts(value: float, lowest: Whole) -> tuple[Whole, Whole, Whole, Whole, Whole]:
    """A double as its sign, the place of its first digit, and three digits from there on; it counts ``2 ** lowest``."""
    bits = np.float64(abs(value)).view(np.int64)
    exponent, fraction = bits >> 52, bits & 0xFFFFFFFFFFFFF
    if exponent > 0:
        fraction |= 0x10000000000000
    else:
        exponent = np.int64(1)
    place = exponent - 1075 - lowest
    within = place & 31
    low = (fraction & _LOW) << within
    high = (low >> 32) + ((fraction >> 32) << within)
    return np.int64(1 if value > 0.0 else -1), place >> 5, low & _LOW, high & _LOW, high >> 32


@inlined_kernel
def add_value(total: Sum, times: Whole, k: Whole, a: Whole, b: Whole, c: Whole) -> None:
    """Add the three digits of a value, from the ``k``-th on, so many times."""
    total.digits[k] += times * a
    total.digits[k + 1] += times * b
    total.digits[k + 2] += times * c
    total.used[0] = min(total.used[0], k)
    total.used[1] = max(total.used[1], k + 2)


@inlined_kernel
def add_square(total: Sum, times: Whole, k: Whole, a: Whole, b: Whole, c: Whole) -> None:
    """Add the square of such a value."""
    add_product(total, times, 2 * k, a, a)
    add_product(total, 2 * times, 2 * k + 1, a, b)
    add_product(total, 2 * times, 2 * k + 2, a, c)
    add_product(total, times, 2 * k + 2, b, b)
    add_product(total, 2 * times, 2 * k + 3, b, c)
    add_product(total, times, 2 * k + 4, c, c)


@inlined_kernel
def add(total: Sum, k: Whole, digit: Whole) -> None:
    """Add to one digit."""
    total.digits[k] += digit
    total.used[0] = min(total.used[0], k)
    total.used[1] = max(total.used[1], k)


@inlined_kernel
def add_product(total: Sum, times: Whole, k: Whole, one: Whole, other: Whole) -> None:
    """Add a product of two digits, neither of them negative, from the ``k``-th on; ``times`` is a small number."""
    product = np.uint64(one) * np.uint64(other)
    total.digits[k] += times * np.int64(product & np.uint64(_LOW))
    total.digits[k + 1] += times * np.int64(product >> np.uint64(32))
    total.used[0] = min(total.used[0], k)
    total.used[1] = max(total.used[1], k + 1)


@exact_kernel
def settle(total: Sum) -> None:
    """Carry: each digit is from 0 to 2 ** 32 - 1 but the last, which has the sign of the sum and is less than 2 ** 32.

    The last digit is no 0, and a -1 only where the sum has as many digits; of 0 there are none.
    """
    digits, first, last = total.digits, total.used[0], total.used[1]
    carry, k = np.int64(0), first
    while k < last or (k == last and not -_BASE < digits[k] + carry < _BASE):
        whole = digits[k] + carry
        digits[k], carry = whole & _LOW, whole >> 32
        if k == last:
            last += 1
        k += 1
    if first <= last:
        digits[last] += carry
    while first <= last and digits[last] == 0:
        last -= 1
    while first < last and digits[last] == -1 and digits[last - 1] > 0:
        digits[last] = 0
        last -= 1
        digits[last] -= _BASE
    while first <= last and digits[first] == 0:
        first += 1
    total.used[0], total.used[1] = (first, last) if first <= last else (_DIGITS, -1)


@exact_kernel
def add_times(total: Sum, other: Sum, times: Whole) -> None:
    """Add ``times`` (from 0 to 2 ** 31) another sum, which is settled."""
    for k in range(other.used[0], other.used[1] + 1):
        digit = other.digits[k]
        add_product(total, np.int64(1 if digit > 0 else -1), k, abs(digit), times)


@exact_kernel
def take_product(total: Sum, one: Sum, other: Sum) -> None:
    """Take away the product of two sums that are settled."""
    for k in range(one.used[0], one.used[1] + 1):
        digit = one.digits[k]
        for m in range(other.used[0], other.used[1] + 1):
            by = other.digits[m]
            sign = np.int64(-1 if (digit > 0) == (by > 0) else 1)
            add_product(total, sign, k + m, abs(digit), abs(by))


@exact_kernel
def read(total: Sum) -> tuple[float, float, Whole]:
    """The double next to a sum that is settled, of 0 or from 2 ** 61 to 2 ** 62; the next bits; and times 2 ** what."""
    digits, first, last = total.digits, total.used[0], total.used[1]
    if first > last:
        return 0.0, 0.0, np.int64(0)
    sign = 1
    if digits[last] < 0:
        # All other digits are positive: of the negative sum they would be those of its complement.
        sign = -1
        _negate(digits, first, last)
    k = last
    while digits[k] == 0:
        k -= 1
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
    if sign < 0:
        _negate(digits, first, last)
    return value, float(whole - np.int64(value)), 32 * (k - 1) + 2 - more


@exact_kernel
def _negate(digits: Ints, first: Whole, last: Whole) -> None:
    """Turn the sign of a sum that is settled, or turn it back."""
    carry = np.int64(0)
    for k in range(first, last):
        digit = carry - digits[k]
        digits[k] = digit & _LOW
        carry = digit >> 32
    digits[last] = carry - digits[last]


@exact_kernel
def settled_squares(many: Whole, squares: Sum, total: Sum, room: Sum) -> None:
    """``many`` times a sum of squares less the square of the sum, into ``room``."""
    settle(total)
    settle(squares)
    clear(room)
    add_times(room, squares, many)
    take_product(room, total, total)
    settle(room)


@inlined_kernel
def root(value: float, shift: Whole) -> float:
    """The root of ``value * 2 ** shift``."""
    odd = shift & 1
    return math.ldexp(math.sqrt(value * (1 + odd)), int(shift - odd) >> 1)


@inlined_kernel
def quotient(value: float, rest: float, by: float, by_rest: float) -> float:
    """The double next to ``(value + rest) / (by + by_rest)``, where the rests are what doubles lack."""
    found = value / by
    product = found * by
    up = _SPLIT * found
    a = up - (up - found)
    up = _SPLIT * by
    b = up - (up - by)
    lacking = ((a * b - product) + a * (by - b) + (found - a) * b) + (found - a) * (by - b)
    more: float = ((value - product) - lacking) + (rest - found * by_rest)
    return found + more / by
