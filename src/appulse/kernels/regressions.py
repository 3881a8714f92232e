"""Ridge regressions with the errors that they make at rows much alike, for many small sets of holes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints


@exact_kernel
def with_neighbours(there: Flags, group: Ints, holes: Ints, back: Ints, ahead: Ints, at: Ints) -> Ints:
    """Of rows ``at`` those with values ``back[i]`` rows before and ``ahead[i]`` after, in their group, of each hole."""
    found = np.empty(len(at), np.int64)
    count, n = 0, len(there)
    for row in at:
        good = True
        for i in range(len(holes)):
            low, high = row - back[i], row + ahead[i]
            good = good and low >= 0 and high < n and group[low] == group[row] and group[high] == group[row]
            if not good or not there[low, holes[i]] or not there[high, holes[i]]:
                good = False
                break
        if good:
            found[count] = row
            count += 1
    return found[:count]


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
def features(
    columns: Floats, time: Floats, at: Ints, holes: Ints, seen: Ints, back: Ints, ahead: Ints
) -> tuple[Floats, Floats]:
    """Lines through the holes (n, holes) of rows ``at``, and what rows are alike by (n, 2 * seen + 2 * holes).

    ``columns`` (columns, rows) lack nothing. Alike are: how far columns are off their lines, what they are, the lines
    through the holes, and how far apart their ends are. All but the last are what is regressed on.
    """
    n, m, s = len(at), len(holes), len(seen)
    lines, found = np.empty((n, m)), np.empty((n, 2 * s + 2 * m))
    for i in range(n):
        row, nearest = at[i], 0
        for h in range(m):
            if back[i, h] + ahead[i, h] < back[i, nearest] + ahead[i, nearest]:
                nearest = h
        for j in range(s):
            column = columns[seen[j]]
            found[i, s + j] = column[row]
            found[i, j] = column[row] - line(column, time, row, back[i, nearest], ahead[i, nearest])
        for h in range(m):
            column = columns[holes[h]]
            lines[i, h] = line(column, time, row, back[i, h], ahead[i, h])
            found[i, 2 * s + h] = lines[i, h]
            found[i, 2 * s + m + h] = abs(column[row + ahead[i, h]] - column[row - back[i, h]])
    return lines, found


@exact_kernel
def ridge(given: Floats, wanted: Floats, penalties: Floats) -> tuple[Floats, Floats]:
    """Weights (columns + 1, m), the constant's last, and the error (n, m) at each row of a regression without it.

    Of several penalties that is taken with the least of these errors. One decomposition of the covariances serves all
    penalties, and the errors without a row follow from its leverage: no regression is made twice.
    """
    n, p, m = given.shape[0], given.shape[1], wanted.shape[1]
    centre, scale, mean = np.zeros(p), np.empty(p), np.zeros(m)
    for i in range(n):
        centre += given[i] / n
        mean += wanted[i] / n
    rows, off = given - centre, wanted - mean
    for j in range(p):
        scale[j] = np.sqrt((rows[:, j] ** 2).sum() / n)
        if scale[j] <= 1e-12 * abs(centre[j]) or scale[j] == 0.0:
            scale[j] = np.inf  # a column that never varies explains nothing
    rows /= scale
    values, vectors = np.zeros(p), np.zeros((p, p))
    if p > 0:
        values, columns = np.linalg.eigh(rows.T @ rows / n)
        vectors[:] = columns
    turned = rows @ vectors
    along = turned.T @ off / n
    best, least, errors = 0, np.inf, np.empty((n, m))
    trial, shrunk = np.empty((n, m)), np.empty(p)
    for t in range(len(penalties)):
        for j in range(p):
            shrunk[j] = 1.0 / (max(values[j], 0.0) + penalties[t])
        total = 0.0
        for i in range(n):
            own = 1.0 / n
            for j in range(p):
                own += turned[i, j] * turned[i, j] / n * shrunk[j]
            rest = max(1.0 - own, 0.1)
            for h in range(m):
                predicted = 0.0
                for j in range(p):
                    predicted += turned[i, j] * shrunk[j] * along[j, h]
                trial[i, h] = (off[i, h] - predicted) / rest
                total += trial[i, h] ** 2
        if total < least:
            best, least = t, total
            errors[:] = trial
    for j in range(p):
        along[j] /= max(values[j], 0.0) + penalties[best]
    weights = np.empty((p + 1, m))
    weights[:p] = vectors @ along
    weights[p] = mean
    for j in range(p):
        weights[j] /= scale[j]
        weights[p] -= centre[j] * weights[j]
    return weights, errors


@exact_kernel
def nearest_rows(known: Floats, asked: Floats, k: int) -> Ints:
    """The places of the k known rows nearest to each asked one (asked, k), in deviations; again where there are fewer.

    All distances are looked at: rows to learn from are few, and a tree of so many dimensions would spare none.
    """
    n, p = known.shape
    most = min(k, n)
    scale, found = np.empty(p), np.empty((len(asked), k), np.int64)
    for j in range(p):
        scale[j] = 1.0 / np.maximum(np.std(known[:, j]), 1e-12)
    rows, distance = known * scale, np.empty(n)
    for q in range(len(asked)):
        at = asked[q] * scale
        for i in range(n):
            total = 0.0
            for j in range(p):
                total += (rows[i, j] - at[j]) ** 2
            distance[i] = total
        limit = np.partition(distance, most - 1)[most - 1]
        count = 0
        for i in range(n):
            if distance[i] < limit:
                found[q, count] = i
                count += 1
        for i in range(n):
            if count < most and distance[i] == limit:
                found[q, count] = i
                count += 1
        for i in range(most, k):
            found[q, i] = found[q, i % most]
    return found
