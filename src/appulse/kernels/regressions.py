"""Ridge regressions with the errors that they make at similar rows, for many small sets of holes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel
from appulse.kernels.lines import line
from appulse.kernels.similar_rows import in_order, mean, nearest_rows

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints

#: By what rows are filled: how far columns are off their lines, the lines alone, or attributes as they are anywhere.
BY_LINES, BY_LINES_ALONE, ANYWHERE = 0, 1, 2
#: Rows there are at least to be for each attribute that is learned from, and at all.
ATTRIBUTES_ROWS, LEAST_ROWS = 4, 16
#: Rows for each number that is regressed on: as they follow each other, they are similar. Of fewer than `SCANT`
#: just the mean error is learned.
ROWS_EACH, SCANT = 8, 3
_MOST_ROWS = 2000  # to learn from
_STRETCHES = 4  # times the length of a gap, in rows to learn from: those within one are little more than one
_SHORT, _TURNS = 64, 8  # gaps from which on they are rounded; kinds of gaps that are tried at a row to learn from
_SMALL = 64  # streams of no more rows are learned from as they are


class Series(NamedTuple):
    """Rows of a stream in order of partition and time.

    ``columns`` (columns, rows) lack nothing: those of the stream, and of another one beside it. ``known`` (rows,
    columns) says what was measured.
    """

    columns: Floats
    time: Floats
    group: Ints
    known: Flags


class Missing(NamedTuple):
    """Rows that lack the same columns: ``holes``, and how many rows before and after the neighbours of each are.

    ``gaps`` is (rows, 2 * holes), those before first. ``sets`` are of columns to look at, ``by`` says which for each
    row; the first of them takes the place of those that too few rows have. ``every`` is the gaps of all rows of the
    stream that lack just these columns, in order.
    """

    rows: Ints
    holes: Ints
    gaps: Ints
    sets: Flags
    by: Ints
    every: Ints


class _Able(NamedTuple):
    """Which rows have all holes' columns, and how many columns of each set these lack, (sets, rows)."""

    whole: Flags
    lacking: Ints


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


@exact_kernel
def _able(series: Series, missing: Missing) -> _Able:
    """What is the same for all rows that are filled: neighbours are looked up once for each kind of them."""
    n = len(series.group)
    whole, lacking = np.ones(n, np.bool_), np.zeros((len(missing.sets), n), np.int64)
    for hole in missing.holes:
        for row in range(n):
            whole[row] &= series.known[row, hole]
    for i in range(len(missing.sets)):
        columns = np.flatnonzero(missing.sets[i])
        for row in range(n):
            for column in columns:
                lacking[i, row] += int(not series.known[row, column])
    return _Able(whole, lacking)


@exact_kernel
def _to_learn_from(series: Series, missing: Missing, able: _Able, back: int, ahead: int, by: int) -> tuple[Ints, Ints]:
    """Rows with neighbours so far off, with the holes' columns, and those columns of a set that are used.

    A neighbour that lies on the line through the row itself would give away what is to be predicted.
    """
    group, whole, lacking = series.group, able.whole, able.lacking[by]
    seen, n = np.flatnonzero(missing.sets[by]), len(group)
    at, complete, count, of_complete = np.empty(n, np.int64), np.empty(n, np.int64), 0, 0
    for row in range(back, n - ahead):
        low, high = row - back, row + ahead
        # No branches, which would be guessed wrong as often as not; groups are in order.
        good = int(whole[row]) & int(whole[low]) & int(whole[high]) & int(group[low] == group[high])
        at[count] = complete[of_complete] = row
        count += good
        of_complete += good & int(lacking[row] == 0)
    if of_complete < count and of_complete < enough(len(seen)):
        found, seen = learnable(series.known, at[:count], missing.holes, seen)
    else:
        found = complete[:of_complete]
    return found, seen


@exact_kernel
def _rounded(gap: int) -> int:
    """A long gap by its first two binary digits: rows are learned from for some lengths, not for each."""
    step = 1
    while gap // step >= 4:
        step *= 2
    return gap // step * step


@exact_kernel
def _gaps_of(missing: Missing, back: int, ahead: int) -> Ints:
    """The gaps of the stream's rows of a kind."""
    m, every, kept = len(missing.holes), missing.every, np.empty(len(missing.every), np.bool_)
    for i in range(len(every)):
        kept[i] = _rounded(every[i, :m].max()) == back and _rounded(every[i, m:].max()) == ahead
    return every[kept]


@exact_kernel
def _with_gaps(series: Series, holes: Ints, known: Ints, given: Ints, limit: int) -> tuple[Ints, Ints]:
    """Rows to learn from, and how far off the neighbours of each hole are taken there, (2, rows, holes).

    They are as far off as ``given``, of rows with these holes, in turn: equal gaps say nothing of unequal ones. Those
    of ``limit`` rows and more are rounded. Left out are rows without the holes' columns there.
    """
    n, m, size, gaps = len(known), len(holes), len(series.group), given.copy()
    for i in range(len(gaps)):
        for h in range(2 * m):
            gaps[i, h] = gaps[i, h] if gaps[i, h] < limit else _rounded(gaps[i, h])
    kept, same, count, turn = np.empty(n, np.int64), np.empty((2, n, m), np.int64), 0, 0
    for row in known:
        for _ in range(min(_TURNS, len(gaps))):
            gap, good = gaps[turn % len(gaps)], True
            turn += 1
            for h in range(m):
                low, high = row - gap[h], row + gap[m + h]
                good = good and low >= 0 and high < size and series.group[low] == series.group[high]
                good = good and series.known[low, holes[h]] and series.known[high, holes[h]]
            if good:
                kept[count] = row
                same[0, count], same[1, count] = gap[:m], gap[m:]
                count += 1
                break
    return kept[:count].copy(), same[:, :count].copy()


@exact_kernel
def _way(
    series: Series, missing: Missing, able: _Able, back: int, ahead: int, by: int
) -> tuple[int, int, Ints, Ints, Ints]:
    """By which set of columns rows with neighbours at most so far off are filled, and how.

    And rows and columns to learn from, with the gaps there (2, rows, holes).
    """
    m = len(missing.holes)
    while True:
        known, seen = _to_learn_from(series, missing, able, back, ahead, by)
        way, columns, far = BY_LINES, 2 * len(seen) + m, by == 0 and len(known) < _STRETCHES * (back + ahead)
        known = known[:: max(1, -(-len(known) // _MOST_ROWS))].copy()
        kept, same = known, np.empty((2, len(known), m), np.int64)
        same[0], same[1] = back, ahead
        if m > 1 and by == 0:
            gaps = _gaps_of(missing, back, ahead)
            kept, same = _with_gaps(series, missing.holes, known, gaps, _SHORT)
            if 2 * len(kept) < len(known):
                kept, same = _with_gaps(series, missing.holes, known, gaps, 0)
        if (far or len(kept) < ROWS_EACH * columns + LEAST_ROWS) and len(series.group) > _SMALL:
            every, of_all = _to_learn_from(series, missing, able, 0, 0, by)
            fit = len(every) >= SCANT * len(of_all)
            if len(kept) < LEAST_ROWS or (len(of_all) > 0 and len(every) >= ROWS_EACH * len(of_all) + LEAST_ROWS):
                if by == 0 or (len(every) > 0 and fit):
                    every = every[:: max(1, -(-len(every) // _MOST_ROWS))].copy()
                    return by, ANYWHERE, every, of_all, same[:, :0].copy()
                by = 0
                continue
            way, columns = BY_LINES_ALONE, m
        if by == 0 or len(kept) >= SCANT * columns:
            return by, way, kept, seen[: len(seen) if way == BY_LINES else 0], same
        by = 0


@exact_kernel
def _in_kinds(codes: Ints) -> tuple[Ints, Ints]:
    """Places in order of their codes, and where each code begins."""
    order = np.argsort(codes, kind="mergesort")
    first, count = np.empty(len(codes) + 1, np.int64), 0
    for i in range(len(codes)):
        if i == 0 or codes[order[i]] != codes[order[i - 1]]:
            first[count] = i
            count += 1
    first[count] = len(codes)
    return order, first[: count + 1]


@exact_kernel
def _find_ways(series: Series, missing: Missing) -> tuple[Ints, Ints, Ints, list[Ints], list[Ints], list[Ints]]:
    """Ways (n, 2) to fill: `BY_LINES` or another, and the place of what is learned from.

    These are followed by the rows of each, and what is learned from: rows, columns, and gaps. Rows are of a kind by
    their longest gaps: by those of each hole there would be few of a kind.
    """
    able = _able(series, missing)
    m, size, sets = len(missing.holes), len(series.group) + 1, len(missing.sets)
    learned_from, seen_there, place = [np.empty(0, np.int64)], [np.empty(0, np.int64)], np.empty_like(missing.rows)
    gaps_there = [np.empty((2, 0, m), np.int64)]
    codes = np.empty(len(missing.rows), np.int64)
    for i in range(len(codes)):
        gaps = missing.gaps[i]
        codes[i] = (_rounded(gaps[:m].max()) * size + _rounded(gaps[m:].max())) * sets + missing.by[i]
    order, first = _in_kinds(codes)
    for i in range(len(first) - 1):
        own = order[first[i] : first[i + 1]]
        code = codes[own[0]]
        both, back, ahead = code // sets, code // sets // size, code // sets % size
        by, way, known, seen, same = _way(series, missing, able, back, ahead, code % sets)
        place[own] = len(learned_from)
        learned_from.append(known)
        seen_there.append(seen)
        gaps_there.append(same)
        # What is learned anywhere is the same for all gaps.
        codes[own] = ((0 if way == ANYWHERE else both) * sets + by) * 3 + way
    order, first = _in_kinds(codes)
    ways = np.empty((len(first) - 1, 2), np.int64)
    for i in range(len(ways)):
        one = order[first[i]]
        ways[i, 0], ways[i, 1] = codes[one] % 3, place[one]
    return ways, order, first, learned_from, seen_there, gaps_there


@exact_kernel
def _as_they_are(columns: Floats, at: Ints, seen: Ints) -> Floats:
    found = np.empty((len(seen), len(at)))
    for j in range(len(seen)):
        for i in range(len(at)):
            found[j, i] = columns[seen[j], at[i]]
    return found


@exact_kernel
def regressed(series: Series, missing: Missing, penalties: Floats, found: Floats) -> None:
    """Fill holes into ``found`` (rows, k, holes), by regressions on how columns are off their lines.

    Each way is learned once. Predicted are values `ANYWHERE`, else how far they are off lines; with errors of the most
    similar rows, every third by the first hole.
    """
    rows, holes, gaps = missing.rows, missing.holes, missing.gaps
    ways, order, first, learned_from, seen_there, gaps_there = _find_ways(series, missing)
    m, k = len(holes), found.shape[1]
    for i in range(len(ways)):
        own, way, place = order[first[i] : first[i + 1]], ways[i, 0], ways[i, 1]
        known, seen, same = learned_from[place], seen_there[place], gaps_there[place]
        n, at = len(known), rows[own]
        learned, through = np.zeros((m, n)), np.full((m, len(own)), 0.0 if n else np.nan)
        if way == ANYWHERE:
            given, asked = _as_they_are(series.columns, known, seen), _as_they_are(series.columns, at, seen)
            p = len(seen)
        else:
            p = 2 * len(seen) + m
            before, after = gaps[own][:, :m].copy(), gaps[own][:, m:].copy()
            through, asked = features(series.columns, series.time, at, holes, seen, before, after)
            learned, given = features(series.columns, series.time, known, holes, seen, same[0], same[1])
        if n == 0:
            for j in range(len(own)):
                found[own[j]] = through[:, j]
            continue
        p = p if n >= SCANT * p else 0
        wanted = _as_they_are(series.columns, known, holes) - learned
        weights, errors = ridge(given, p, wanted, penalties)
        near = np.empty((len(own), 3 * k), np.int64)
        if len(given):
            near[:] = nearest_rows(given, asked, 3 * k)
        else:
            near[:] = np.arange(3 * k) * n // (3 * k)
        predicted = np.empty(m)
        for j in range(len(own)):
            for h in range(m):
                predicted[h] = through[h, j] + weights[p, h]
                for c in range(p):
                    predicted[h] += asked[c, j] * weights[c, h]
            by_first = in_order(errors[0][near[j]])
            for q in range(k):
                similar = near[j, by_first[3 * q + 1]]
                for h in range(m):
                    found[own[j], q, h] = predicted[h] + errors[h, similar]
    for j in range(len(rows)):
        for h in range(m):
            if gaps[j, h] == 0 and gaps[j, m + h] == 0:  # it is never there
                found[j, :, h] = np.nan
