"""What a sensor's readings of late have in common: mean and spread, slope, the signs of their steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints, Whole

SUMMARY, SLOPE, PATTERN = range(3)
#: Steps of a pattern that are kept, the latest: as many as a number of 64 bits holds in base 3.
STEPS = 39


class Measured(NamedTuple):
    """Readings in order of time; ``unit`` numbers sensors."""

    time: Ints
    unit: Ints
    value: Floats


@exact_kernel
def properties(
    readings: Measured,
    begin: Whole,
    over: Whole,
    kind: Whole,
    first: Floats,
    second: Floats,
    signs: Ints,
) -> None:
    """Of each reading from ``begin`` on, over its sensor's readings at most ``over`` older, itself included.

    A summary is mean and standard deviation (``first``, ``second``), a slope (``first``) that of least squares, a
    second, NaN where all times are equal; a pattern (``signs``) has the signs of steps between readings as digits 0, 1,
    2 behind a 1, 0 where there is no step.
    """
    time, unit, value = readings
    n = len(time)
    latest, before = np.full(unit.max() + 1 if n else 0, -1, np.int64), np.empty(n, np.int64)
    for i in range(n):
        before[i] = latest[unit[i]]
        latest[unit[i]] = i
        if i < begin:
            continue
        if kind == PATTERN:
            signs[i - begin] = _pattern(time, value, before, i, over)
            continue
        if kind == SLOPE:
            first[i - begin] = _slope(time, value, before, i, over)
            continue
        many, total, squares = 0, 0.0, 0.0
        j = i
        while j >= 0 and time[i] - time[j] <= over:
            many += 1
            total += value[j]
            j = before[j]
        mean = total / many
        j = i
        while j >= 0 and time[i] - time[j] <= over:
            squares += (value[j] - mean) ** 2
            j = before[j]
        first[i - begin], second[i - begin] = mean, np.sqrt(squares / many)


@exact_kernel
def _slope(time: Ints, value: Floats, before: Ints, i: Whole, over: Whole) -> float:
    """From the newest reading, so that sums of whole numbers are exact, and a level line has slope 0."""
    many, x, y, xx, xy = 0, 0.0, 0.0, 0.0, 0.0
    j = i
    while j >= 0 and time[i] - time[j] <= over:
        ahead, away = (time[j] - time[i]) / 1e6, value[j] - value[i]
        many += 1
        x += ahead
        y += away
        xx += ahead * ahead
        xy += ahead * away
        j = before[j]
    along = many * xx - x * x
    return (many * xy - x * y) / along if along > 0.0 else np.nan


@exact_kernel
def _pattern(time: Ints, value: Floats, before: Ints, i: Whole, over: Whole) -> Whole:
    number, digit, steps = np.int64(0), np.int64(1), 0
    j = i
    while steps < STEPS and before[j] >= 0 and time[i] - time[before[j]] <= over:
        step = value[j] - value[before[j]]
        number += digit * (2 if step > 0.0 else 0 if step < 0.0 else 1)
        digit *= 3
        steps += 1
        j = before[j]
    return number + digit if steps else np.int64(0)
