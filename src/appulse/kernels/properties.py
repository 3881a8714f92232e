"""What a sensor's readings of late have in common: mean and spread, slope, the signs of their steps.

Means, spreads and slopes are those of sums that are exact, to the double next to them (`appulse.kernels.digits`). So
readings that leave take away what they brought, and an answer does not depend on when a sensor was first looked at.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.digits import (
    LOWEST,
    Sum,
    add,
    add_product,
    add_square,
    add_times,
    add_value,
    clear,
    fresh,
    parts,
    quotient,
    read,
    root,
    settle,
    settled_squares,
    take_product,
)
from appulse.kernels.jit import exact_kernel, inlined_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints, Whole

SUMMARY, SLOPE, PATTERN = range(3)
#: Steps of a pattern that are kept, the latest: as many as a number of 64 bits holds in base 3.
STEPS = 39
_LOW, _SECOND = 0xFFFFFFFF, 1_000_000


class Measured(NamedTuple):
    """Readings in order of time; ``before`` numbers the one before it of its sensor, counted from ``base``."""

    time: Ints
    value: Floats
    before: Ints
    base: int


class Found(NamedTuple):
    """Room for what is found: a number of each reading, a second one, or signs."""

    first: Floats
    second: Floats
    signs: Ints


class _Sums(NamedTuple):
    """Of values, their squares, times, their squares, and times with values."""

    value: Sum
    squares: Sum
    time: Sum
    time_squares: Sum
    both: Sum


@exact_kernel
def link(unit: Ints, latest: Ints, base: int, begin: int, before: Ints) -> tuple[Ints, Ints]:
    """Chain the readings from ``begin`` on to those before; in the order of their units, and where each unit's begin.

    ``latest`` is the last reading of each of the units, which are numbered from 0 on.
    """
    n = len(unit)
    first, order = np.zeros(len(latest) + 1, np.int64), np.empty(n, np.int64)
    for i in range(n):
        before[begin + i] = latest[unit[i]]
        latest[unit[i]] = base + begin + i
        first[unit[i] + 1] += 1
    for u in range(len(latest)):
        first[u + 1] += first[u]
    free = first.copy()
    for i in range(n):
        order[free[unit[i]]] = i
        free[unit[i]] += 1
    return order, first


@exact_kernel
def properties(readings: Measured, begin: int, order: Ints, first: Ints, over: Whole, kind: Whole, out: Found) -> int:
    """Of each reading from ``begin`` on, over its sensor's readings at most ``over`` older, itself included.

    A summary is mean and standard deviation (``first``, ``second``), a slope (``first``) that of least squares, a
    second, NaN where all times are equal; a pattern (``signs``) has the signs of steps between readings as digits 0, 1,
    2 behind a 1, 0 where there is no step. Returns how often a reading was looked at.
    """
    time, sums, room, less, looked = readings.time, _no_sums(), fresh(), fresh(), 0
    for u in range(len(first) - 1):
        mine = order[first[u] : first[u + 1]]
        if kind == PATTERN:
            for at in mine:
                out.signs[at] = _pattern(readings, begin + at, over)
            continue
        rows = _with_held(readings, begin, mine, over)
        held, tail, origin = len(rows) - len(mine), 0, np.int64(0)
        looked += len(rows)
        for p in range(len(rows)):
            i = rows[p]
            if p == 0 or time[i] - time[rows[p - 1]] > over:
                _forget(sums)
                tail, origin = p, time[i]
            while time[i] - time[rows[tail]] > over:
                _count(sums, np.int64(-1), readings.value[rows[tail]], time[rows[tail]] - origin, kind)
                tail += 1
                looked += 1
            _count(sums, np.int64(1), readings.value[i], time[i] - origin, kind)
            if p >= held:
                at, many = mine[p - held], p - tail + 1
                if kind == SLOPE:
                    out.first[at] = _slope(sums, many, room, less)
                else:
                    out.first[at], out.second[at] = _summary(sums, many, room)
    return looked


@exact_kernel
def _with_held(readings: Measured, begin: int, mine: Ints, over: Whole) -> Ints:
    """A sensor's readings: those before ``begin`` that the first of ``mine`` looks at, the oldest first, and these."""
    time, before, base = readings.time, readings.before, readings.base
    if len(mine) == 0:
        return np.empty(0, np.int64)
    held, i = 0, begin + mine[0]
    j = before[i] - base
    while j >= 0 and time[i] - time[j] <= over:
        held, j = held + 1, before[j] - base
    rows = np.empty(held + len(mine), np.int64)
    j = before[i] - base
    for k in range(held):
        rows[held - 1 - k] = j
        j = before[j] - base
    for k in range(len(mine)):
        rows[held + k] = begin + mine[k]
    return rows


@exact_kernel
def _no_sums() -> _Sums:
    return _Sums(fresh(), fresh(), fresh(), fresh(), fresh())


@exact_kernel
def _forget(sums: _Sums) -> None:
    clear(sums.value)
    clear(sums.squares)
    clear(sums.time)
    clear(sums.time_squares)
    clear(sums.both)


@inlined_kernel
def _count(sums: _Sums, sign: Whole, value: float, time: Whole, kind: Whole) -> None:
    """Add a reading, or take it away; ``time`` is not negative."""
    if kind == SLOPE:
        low, high = time & _LOW, time >> 32
        add(sums.time, 0, sign * low)
        add_product(sums.time_squares, sign, 0, low, low)
        if high > 0:
            add(sums.time, 1, sign * high)
            add_product(sums.time_squares, 2 * sign, 1, low, high)
            add_product(sums.time_squares, sign, 2, high, high)
    if value == 0.0:
        return
    own, k, a, b, c = parts(value, LOWEST)
    add_value(sums.value, sign * own, k, a, b, c)
    if kind == SLOPE:
        own *= sign
        add_product(sums.both, own, k, a, low)
        add_product(sums.both, own, k + 1, b, low)
        add_product(sums.both, own, k + 2, c, low)
        if high > 0:
            add_product(sums.both, own, k + 1, a, high)
            add_product(sums.both, own, k + 2, b, high)
            add_product(sums.both, own, k + 3, c, high)
    else:
        add_square(sums.squares, sign, k, a, b, c)


@exact_kernel
def _summary(sums: _Sums, many: int, room: Sum) -> tuple[float, float]:
    """The mean, and by ``many`` times the sum of squares less the square of the sum the deviation."""
    settled_squares(many, sums.squares, sums.value, room)
    value, rest, shift = read(sums.value)
    mean = math.ldexp(quotient(value, rest, float(many), 0.0), int(shift) + LOWEST)
    value, rest, shift = read(room)
    return mean, root(quotient(value, rest, float(many) * float(many), 0.0), shift + 2 * LOWEST)


@exact_kernel
def _slope(sums: _Sums, many: int, room: Sum, less: Sum) -> float:
    """A second; NaN where all times are equal."""
    settled_squares(many, sums.time_squares, sums.time, less)
    along, along_rest, along_shift = read(less)
    if along == 0.0:
        return math.nan
    settle(sums.value)
    settle(sums.both)
    clear(room)
    add_times(room, sums.both, many)
    take_product(room, sums.time, sums.value)
    settle(room)
    for k in range(room.used[0], room.used[1] + 1):
        room.digits[k] *= _SECOND
    settle(room)
    value, rest, shift = read(room)
    return math.ldexp(quotient(value, rest, along, along_rest), int(shift - along_shift) + LOWEST)


@exact_kernel
def _pattern(readings: Measured, i: Whole, over: Whole) -> Whole:
    time, value, before, base = readings
    number, digit, steps = np.int64(0), np.int64(1), 0
    j, back = i, before[i] - base
    while steps < STEPS and back >= 0 and time[i] - time[back] <= over:
        step = value[j] - value[back]
        number += digit * (2 if step > 0.0 else 0 if step < 0.0 else 1)
        digit *= 3
        steps += 1
        j, back = back, before[back] - base
    return number + digit if steps else np.int64(0)
