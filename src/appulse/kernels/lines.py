"""Lines in time through what is missing, and the errors that such lines make elsewhere in a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints


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
    m, n = columns.shape
    found, count = np.empty((n, m)), 0
    for j in range(m):
        if back[j] == 0 and ahead[j] == 0:
            return found[:0], 0
    for at in range(back.max(), n - ahead.max()):
        good = True
        for j in range(m):
            low, high = at - back[j], at + ahead[j]
            if group[low] != group[at] or group[high] != group[at]:
                good = False
                break
            error = columns[j, at] - line(columns[j], time, at, back[j], ahead[j])
            if not np.isfinite(error):
                good = False
                break
            found[count, j] = error
        if good:
            count += 1
    return found[: count : max(1, count // most)], count


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
        order = np.sort(errors[:, 0])
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
