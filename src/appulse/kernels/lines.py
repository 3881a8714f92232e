"""Lines in time through what is missing, and the errors that such lines make elsewhere in a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints

_MOST_ALIKE = 32  # values in one of as many equal parts of their range, that are put in order one by one


@exact_kernel
def line(column: Floats, time: Floats, at: int, back: int, ahead: int) -> float:
    """What a value is between those so many rows before and after; 0 rows: there is none on that side."""
    low, high = float(column[at - back]), float(column[at + ahead])
    if back == 0:
        return high
    if ahead == 0:
        return low
    first, last = float(time[at - back]), float(time[at + ahead])
    return low + (float(time[at]) - first) / (last - first if last > first else 1.0) * (high - low)


@exact_kernel
def lines(column: Floats, time: Floats, at: Ints, back: Ints, ahead: Ints) -> Floats:
    """The `line` of each place."""
    found = np.empty(len(at))
    for i in range(len(at)):
        found[i] = line(column, time, at[i], back[i], ahead[i])
    return found


@exact_kernel
def neighbours(there: Flags, group: Ints, order: Ints, before: Ints, after: Ints) -> None:
    """Write the row of the last value before each (n, d) that is there, itself if it is, and of the next; or -1.

    ``order`` are rows by partition and time; a neighbour is of the same partition.
    """
    n, d = there.shape
    last, following = np.full(d, -1), np.full(d, -1)
    for i in range(n):
        low, high = order[i], order[n - 1 - i]
        if i > 0 and group[low] != group[order[i - 1]]:
            last[:] = -1
        if i > 0 and group[high] != group[order[n - i]]:
            following[:] = -1
        for k in range(d):
            if there[low, k]:
                last[k] = low
            if there[high, k]:
                following[k] = high
            before[low, k], after[high, k] = last[k], following[k]


@exact_kernel
def _made(columns: Floats, time: Floats, group: Ints, back: Ints, ahead: Ints, most: int) -> tuple[Floats, int]:
    """Errors (rows, columns) of lines to neighbours so many rows off, where all are known, and the number of these.

    Of more than twice ``most`` rows at least that many are kept, evenly.
    """
    m, begin = len(columns), back.max()
    size = max(0, columns.shape[1] - ahead.max() - begin)
    errors, good = np.empty((m, size)), np.ones(size, np.bool_)
    for j in range(m):
        column, own, before, after = columns[j], errors[j], back[j], ahead[j]
        if before == 0 and after == 0:
            return np.empty((0, m)), 0
        for i in range(size):
            at = begin + i
            own[i] = column[at] - line(column, time, at, before, after)
            # Groups are in order.
            good[i] &= np.isfinite(own[i]) & (group[at - before] == group[at + after])
    places, count = np.empty(size, np.int64), 0
    for i in range(size):
        places[count] = i
        count += int(good[i])
    kept = places[: count : max(1, count // most)]
    found = np.empty((len(kept), m))
    for j in range(m):
        for i in range(len(kept)):
            found[i, j] = errors[j, kept[i]]
    return found, count


@exact_kernel
def _ordered(values: Floats) -> Floats:
    """Values in order: cut into as many equal parts of their range, and then one by one among those around."""
    n, low, high = len(values), values.min(), values.max()
    scale = (n - 1) / (high - low)
    if not 0.0 < scale < np.inf:
        return np.sort(values)
    part, first = np.empty(n, np.int64), np.zeros(n + 1, np.int64)
    for i in range(n):
        part[i] = int((values[i] - low) * scale)
        first[part[i] + 1] += 1
    if first.max() > _MOST_ALIKE:
        return np.sort(values)
    for k in range(n):
        first[k + 1] += first[k]
    found = np.empty(n)
    for i in range(n):
        found[first[part[i]]] = values[i]
        first[part[i]] += 1
    for i in range(1, n):
        value, at = found[i], i
        while at > 0 and found[at - 1] > value:
            found[at] = found[at - 1]
            at -= 1
        found[at] = value
    return found


@exact_kernel
def quantiles_of_errors(
    column: Floats, time: Floats, group: Ints, back: Ints, ahead: Ints, k: int, most: int
) -> tuple[Floats, Ints]:
    """For each pair of ``back`` and ``ahead`` k quantiles of the errors of such lines, 0 without any, and how many."""
    found, counts = np.zeros((len(back), k)), np.empty(len(back), np.int64)
    columns = column.copy().reshape((1, len(column)))
    for i in range(len(back)):
        errors, counts[i] = _made(columns, time, group, back[i : i + 1], ahead[i : i + 1], most)
        if len(errors) == 0:
            continue
        order = _ordered(errors[:, 0].copy())
        for q in range(k):
            place = (q + 0.5) / k * (len(order) - 1)
            low = int(place)
            high = min(low + 1, len(order) - 1)
            found[i, q] = order[low] + (place - low) * (order[high] - order[low])
    return found, counts


@exact_kernel
def errors_together(
    columns: Floats, time: Floats, group: Ints, back: Ints, ahead: Ints, k: int, least: int, most: int
) -> tuple[Floats, Flags]:
    """For each row of ``back`` and ``ahead`` (kinds, columns) k errors (kinds, k, columns) made in one row each.

    They are quantiles of the column with the widest errors; where fewer than ``least`` rows have all, it is said so.
    """
    kinds, m = back.shape
    found, enough = np.zeros((kinds, k, m)), np.zeros(kinds, np.bool_)
    for i in range(kinds):
        errors, count = _made(columns, time, group, back[i], ahead[i], most)
        if count < least or count == 0:
            continue
        enough[i] = True
        leader, widest = 0, -1.0
        for j in range(m):
            wide = errors[:, j].max() - errors[:, j].min()
            if wide > widest:
                leader, widest = j, wide
        order = np.argsort(errors[:, leader], kind="mergesort")
        for q in range(k):
            found[i, q] = errors[order[(2 * q + 1) * len(order) // (2 * k)]]
    return found, enough
