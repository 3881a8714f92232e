"""Ridge regressions, what they look at in time, and rows to learn from where many have holes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel
from appulse.kernels.lines import line
from appulse.kernels.similar_rows import mean

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints

#: Rows there are at least to be for each attribute that is learned from, and at all.
ATTRIBUTES_ROWS, LEAST_ROWS = 4, 16


@exact_kernel
def features(
    columns: Floats, time: Floats, at: Ints, holes: Ints, seen: Ints, back: Ints, ahead: Ints
) -> tuple[Floats, Floats]:
    """Lines through the holes (holes, n) of rows ``at``, and what rows are compared by (2 * seen + 2 * holes, n).

    ``columns`` (columns, rows) lack nothing; ``back`` and ``ahead`` are (n, holes). Rows are compared by how far
    columns are off their lines, what they are, the lines through the holes, and how far apart their ends are. All but
    the last are what is regressed on.
    """
    n, m, s = len(at), len(holes), len(seen)
    lines, found = np.empty((m, n)), np.empty((2 * s + 2 * m, n))
    before, after, share = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
    for h in range(m):
        column = columns[holes[h]]
        for i in range(n):
            row = at[i]
            lines[h, i] = line(column, time, row, back[i, h], ahead[i, h])
            found[2 * s + h, i] = lines[h, i]
            found[2 * s + m + h, i] = abs(column[row + ahead[i, h]] - column[row - back[i, h]])
    # As `line` has it, in the same order; the share of the way is the same for all columns.
    for i in range(n):
        nearest = 0
        for h in range(1, m):
            if back[i, h] + ahead[i, h] < back[i, nearest] + ahead[i, nearest]:
                nearest = h
        before[i], after[i] = at[i] - back[i, nearest], at[i] + ahead[i, nearest]
        # One neighbour is taken as it is, from both sides.
        if back[i, nearest] == 0:
            before[i] = after[i]
        elif ahead[i, nearest] == 0:
            after[i] = before[i]
        first, last = time[before[i]], time[after[i]]
        share[i] = (time[at[i]] - first) / (last - first) if last > first else time[at[i]] - first
    for j in range(s):
        column, off, own = columns[seen[j]], found[j], found[s + j]
        for i in range(n):
            low = column[before[i]]
            own[i] = column[at[i]]
            off[i] = column[at[i]] - (low + share[i] * (column[after[i]] - low))
    return lines, found


@exact_kernel
def _centred(columns: Floats, p: int) -> tuple[Floats, Floats]:
    """The first p columns less their means (p, n), and these."""
    means, found = np.empty(p), np.empty((p, columns.shape[1]))
    for j in range(p):
        means[j] = mean(columns[j])
        for i in range(columns.shape[1]):
            found[j, i] = columns[j, i] - means[j]
    return found, means


@exact_kernel
def _tridiagonal(matrix: Floats) -> tuple[Floats, Floats, Floats]:
    """Diagonal, the one beside it (from 1 on) and Q, so that a symmetric matrix is Q T Q'; it is overwritten.

    By Householder's reflections. To go on to eigenvalues takes several times as long, and nothing here needs them.
    """
    p = len(matrix)
    beside, turn, mirror, moved = np.zeros(p), np.eye(p), np.empty(p), np.empty(p)
    for k in range(p - 2):
        own = matrix[k]
        norm, beyond = own[k + 1] ** 2, 0.0
        for i in range(k + 2, p):
            beyond += own[i] ** 2
        beside[k + 1] = own[k + 1]
        if beyond <= 1e-32 * (norm + beyond) or beyond == 0.0:
            continue
        beside[k + 1] = -np.sqrt(norm + beyond) if own[k + 1] > 0.0 else np.sqrt(norm + beyond)
        mirror[k + 1] = own[k + 1] - beside[k + 1]
        mirror[k + 2 :] = own[k + 2 :]
        scale, across = 2.0 / (mirror[k + 1] ** 2 + beyond), 0.0
        for i in range(k + 1, p):
            total = 0.0
            for j in range(k + 1, p):
                total += matrix[i, j] * mirror[j]
            moved[i] = scale * total
            across += moved[i] * mirror[i]
        for i in range(k + 1, p):
            moved[i] -= 0.5 * scale * across * mirror[i]
        for i in range(k + 1, p):
            for j in range(k + 1, p):
                matrix[i, j] -= mirror[i] * moved[j] + moved[i] * mirror[j]
        for i in range(p):
            total = 0.0
            for j in range(k + 1, p):
                total += turn[i, j] * mirror[j]
            for j in range(k + 1, p):
                turn[i, j] -= scale * total * mirror[j]
    if p > 1:
        beside[p - 1] = matrix[p - 2, p - 1]
    return np.diag(matrix).copy(), beside, turn


@exact_kernel
def _solved(diagonal: Floats, beside: Floats, wanted: Floats, penalty: float) -> Floats:
    """Solutions (p, m) of a tridiagonal system with a penalty on its diagonal; 0 where that is infinite."""
    found, pivots = np.zeros_like(wanted), np.empty(len(diagonal))
    if np.isinf(penalty):
        return found
    for j in range(len(diagonal)):
        ratio = beside[j] / pivots[j - 1] if j > 0 else 0.0
        pivots[j] = diagonal[j] + penalty - ratio * beside[j]
        found[j] = wanted[j] - ratio * found[j - 1]
    for j in range(len(diagonal) - 1, -1, -1):
        if j < len(diagonal) - 1:
            found[j] -= beside[j + 1] * found[j + 1]
        found[j] /= pivots[j]
    return found


@exact_kernel
def ridge(given: Floats, p: int, wanted: Floats, penalties: Floats) -> tuple[Floats, Floats]:
    """Weights (p + 1, m), the constant's last, and the error (m, n) at each row of a regression without it.

    Regressed are columns (m, n) on the first p of others (columns, n). Of several penalties that is taken with the
    least of these errors.
    The covariances are made tridiagonal once for all penalties, and the errors without a row follow from its leverage:
    no regression is made twice.
    """
    n, m = given.shape[1], len(wanted)
    columns, centre = _centred(given, p)
    off, level = _centred(wanted, m)
    scale, shared = np.empty(p), np.empty((p, p))
    if p > 0:
        shared[:] = columns @ columns.T / n
    for j in range(p):
        scale[j] = np.sqrt(shared[j, j])
        if scale[j] <= 1e-12 * abs(centre[j]) or scale[j] == 0.0:
            scale[j] = np.inf  # a column that never varies explains nothing
    for j in range(p):
        for i in range(p):
            shared[j, i] = shared[j, i] / scale[i] / scale[j]
    diagonal, beside, turn = _tridiagonal(shared)
    for j in range(p):
        turn[j] /= scale[j]
    across = turn.T.copy() @ columns
    along = across @ off.T / n
    best, least, errors = 0, np.inf, np.empty((m, n))
    trial, rest, so_far, part = np.empty((m, n)), np.empty(n), np.zeros(n), np.zeros(m)
    for t in range(len(penalties)):
        rest[:], trial[:], so_far[:], part[:] = 1.0 / n, 0.0, 0.0, 0.0
        pivot = np.inf
        for j in range(0 if np.isinf(penalties[t]) else p):
            # Forward through the system, for all rows at once: of each its leverage and what is predicted.
            ratio = beside[j] / pivot
            pivot = diagonal[j] + penalties[t] - ratio * beside[j]
            share, turned = 1.0 / (pivot * n), across[j]
            for i in range(n):
                so_far[i] = turned[i] - ratio * so_far[i]
                rest[i] += so_far[i] * so_far[i] * share
            for h in range(m):
                part[h] = along[j, h] - ratio * part[h]
                weight, own = part[h] / pivot, trial[h]
                for i in range(n):
                    own[i] += so_far[i] * weight
        total = 0.0
        for h in range(m):
            own, apart = trial[h], off[h]
            for i in range(n):
                own[i] = (apart[i] - own[i]) / max(1.0 - rest[i], 0.1)
            total += np.dot(own, own)
        if total < least:
            best, least = t, total
            errors[:] = trial
    weights = np.empty((p + 1, m))
    weights[:p] = turn @ _solved(diagonal, beside, along, penalties[best])
    weights[p] = level
    for j in range(p):
        weights[p] -= centre[j] * weights[j]
    return weights, errors


@exact_kernel
def enough(columns: int) -> int:
    """How many rows there are at least to be to learn from so many columns; from fewer rows fewer are learned from."""
    return max(LEAST_ROWS, ATTRIBUTES_ROWS * (columns + 1))


@exact_kernel
def learnable(known: Flags, at: Ints, holes: Ints, seen: Ints) -> tuple[Ints, Ints]:
    """Of rows ``at`` those that have the holes' columns and those seen; and these, fewer where too few rows have all.

    As long as there are too few, the column is left out that costs the most rows.
    """
    able, count = np.empty(len(at), np.int64), 0
    for row in at:
        good = True
        for hole in holes:
            good = good and known[row, hole]
        if good:
            able[count] = row
            count += 1
    able = able[:count]
    number, kept = np.zeros(count, np.int64), np.ones(len(seen), np.bool_)
    for i in range(count):
        for column in seen:
            number[i] += int(not known[able[i], column])
    while True:
        whole, left = (number == 0).sum(), kept.sum()
        if left == 0 or whole == count or whole >= enough(left):
            return able[number == 0], seen[kept]
        worst, most, alone = -1, -1, (number == 1).any()
        for j in range(len(seen)):
            if kept[j]:
                cost = 0
                for i in range(count):
                    cost += int((number[i] == 1 or not alone) and not known[able[i], seen[j]])
                if cost > most:
                    worst, most = j, cost
        kept[worst] = False
        for i in range(count):
            number[i] -= int(not known[able[i], seen[worst]])
