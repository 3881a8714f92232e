"""Rows in the order of a curve that fills space (Morton 1966): rows near each other mostly come near each other.

The bits of the coordinates take turns in the code of a row. Slots of time come before them, where times are too far
apart to meet. Codes are sorted digit by digit, which costs far less than to halve rows again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.cells import packed_order
from appulse.kernels.jit import exact_kernel, inlined_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints, Whole

# Coordinates that codes have, and bits of a code: three digits of a sort.
_COORDINATES, _BITS = 3, 33
_WORD = 61  # bits of a code and of a row's number


class Curve(NamedTuple):
    """Where the curve begins along each coordinate, cells in a unit of it, and the bits of each; likewise of time."""

    low: Floats
    scale: Floats
    bits: int
    first: Whole
    slot: Whole
    slots: Whole


@exact_kernel
def curve_of(points: Floats, time: Ints, span: int) -> Curve:
    """The curve through some rows; times more than ``span`` apart lie in slots of their own."""
    n, d = points.shape
    low, scale = np.zeros(_COORDINATES), np.zeros(_COORDINATES)
    first, last, index_bits, slot_bits, slots = np.int64(0), np.int64(0), 0, 0, np.int64(1)
    if n > 0:
        first, last = time.min(), time.max()
    while n >> index_bits > 0:
        index_bits += 1
    while (np.float64(last) - np.float64(first)) / max(span, 1) >= slots and slot_bits < index_bits:
        slot_bits, slots = slot_bits + 1, 2 * slots
    slot = np.int64((np.float64(last) - np.float64(first)) / np.float64(slots)) + 1
    bits = (min(_BITS, _WORD - index_bits) - slot_bits) // _COORDINATES
    for c in range(min(d, _COORDINATES)):
        least, most = np.inf, -np.inf
        for i in range(n):
            least, most = min(least, points[i, c]), max(most, points[i, c])
        low[c] = least
        scale[c] = (1 << bits) / (most - least) if most > least else 0.0
    return Curve(low, scale, bits, first, slot, slots)


@inlined_kernel
def _spread_out(value: Whole) -> Whole:
    """The 11 lowest bits, two zeros after each."""
    value = (value | value << 16) & 0x070000FF
    value = (value | value << 8) & 0x0F00F00F
    value = (value | value << 4) & 0x430C30C3
    spread: Whole = (value | value << 2) & 0x49249249
    return spread


@exact_kernel
def curve_codes(curve: Curve, points: Floats, time: Ints, out: Ints) -> None:
    """Where rows lie along the curve; those beyond its ends lie at them."""
    low, scale, bits, first, slot, slots = curve
    most, d = (1 << bits) - 1, points.shape[1]
    for i in range(out.shape[0]):
        code = np.int64(0)
        for c in range(min(d, _COORDINATES)):
            at = min(max((points[i, c] - low[c]) * scale[c], 0.0), np.float64(most))
            code |= _spread_out(np.int64(at)) << c
        if slots > 1:
            when = min(max((np.float64(time[i]) - np.float64(first)) / np.float64(slot), 0.0), np.float64(slots - 1))
            code |= np.int64(when) << (_COORDINATES * bits)
        out[i] = code


@exact_kernel
def in_order(curve: Curve, codes: Ints, low: Whole, high: Whole) -> tuple[Ints, Ints]:
    """The codes from ``low`` to before ``high`` in order, and which row each is of."""
    n = index_bits = 0
    for i in range(len(codes)):
        n += low <= codes[i] < high
    some, rows, at = np.empty(n, np.int64), np.empty(n, np.int64), 0
    for i in range(len(codes)):
        if low <= codes[i] < high:
            some[at], rows[at] = codes[i], i
            at += 1
    while n >> index_bits > 0:
        index_bits += 1
    bits = _COORDINATES * curve.bits
    while curve.slots >> (bits - _COORDINATES * curve.bits) > 1:
        bits += 1
    found, order = packed_order(some, bits, index_bits)
    for i in range(n):
        order[i] = rows[order[i]]
    return found, order


@exact_kernel
def along(curve: Curve, points: Floats, time: Ints) -> tuple[Ints, Ints]:
    """The codes of rows in order, and which row each is of."""
    codes = np.empty(len(time), np.int64)
    curve_codes(curve, points, time, codes)
    return in_order(curve, codes, 0, np.iinfo(np.int64).max)
