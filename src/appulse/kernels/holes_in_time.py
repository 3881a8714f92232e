"""Holes of rows in time, filled by regressions with the errors that these make at similar rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel
from appulse.kernels.regressions import LEAST_ROWS, enough, features, learnable, ridge
from appulse.kernels.similar_rows import in_order, nearest_rows

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints

#: By what rows are filled: how far columns are off their lines, the lines alone, or attributes as they are anywhere.
BY_LINES, BY_LINES_ALONE, ANYWHERE = 0, 1, 2
#: Rows for each number that is regressed on: as they follow each other, they are similar. Of fewer than `SCANT`
#: just the mean error is learned.
ROWS_EACH, SCANT = 8, 3
_MOST_ROWS = 2000  # to learn from
_STRETCHES = 4  # times the length of a gap, in rows to learn from: those within one are little more than one
_SHORT, _TURNS = 64, 8  # gaps from which on they are rounded; kinds of gaps that are tried at a row to learn from
_MOST_SETS = 4  # of columns of another stream, for rows with the same holes
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


class Lacking(NamedTuple):
    """All rows that are filled, those that lack the same columns after each other.

    ``holes`` (sets, attributes) says which; ``rows`` of each set are those from its ``first`` on, and ``every`` row of
    the stream that lacks just these is from ``every_first`` on. ``gaps`` (rows of the stream, 2 * attributes) is how
    many rows before and after each value its neighbours are; 0: there is none. ``beside`` (kinds, columns) are the
    columns of another stream that rows have, the first attributes apart, and ``kind`` says which each row has.
    ``likeness`` (columns, columns) is how much columns go together, if there are many, else empty.
    """

    holes: Flags
    rows: Ints
    first: Ints
    every: Ints
    every_first: Ints
    gaps: Ints
    beside: Flags
    kind: Ints
    likeness: Floats


class _Able(NamedTuple):
    """Which rows have all holes' columns, and how many columns of each set these lack, (sets, rows)."""

    whole: Flags
    lacking: Ints


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
def _fill(series: Series, missing: Missing, penalties: Floats, found: Floats) -> None:
    """Fill holes into ``found`` (rows, k, holes), each way learned once."""
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


@exact_kernel
def _measured_beside(lacking: Lacking, rows: Ints) -> tuple[Flags, Ints]:
    """Few sets of columns of another stream (sets, columns), the first one empty, and which each row is filled by.

    Those that many of the rows have are kept; a row that has another one takes the largest of them within it.
    """
    beside, count = lacking.beside, np.zeros(len(lacking.beside), np.int64)
    for row in rows:
        count[lacking.kind[row]] += 1
    often = np.argsort(-count, kind="mergesort")[:_MOST_SETS]
    often = often[count[often] > 0]
    kept, best = np.zeros((len(often) + 1, beside.shape[1]), np.bool_), np.zeros(len(beside), np.int64)
    for i in range(len(often)):
        kept[i + 1] = beside[often[i]]
    for i in range(len(beside)):
        for j in range(len(kept)):
            if (kept[j] <= beside[i]).all() and kept[j].sum() > kept[best[i]].sum():
                best[i] = j
    return kept, best[lacking.kind[rows]]


@exact_kernel
def _leave_closest(likeness: Floats, holes: Ints, able: Flags, most: int) -> None:
    """Of many columns leave those most like the holes'."""
    seen = np.flatnonzero(able)
    if len(seen) > most:
        like = np.zeros(len(seen))
        for j in range(len(seen)):
            for hole in holes:
                like[j] = min(like[j], -likeness[hole, seen[j]])
        able[seen[np.argsort(like, kind="mergesort")[most:]]] = False


@exact_kernel
def regressed(series: Series, lacking: Lacking, penalties: Floats, most: int, k: int, found: Floats) -> None:
    """Fill the holes of all rows by regressions on how columns are off their lines, on at most so many columns.

    ``found`` holds (rows, k, holes) of each set of holes, one after the other. Predicted are values `ANYWHERE`, else
    how far they are off lines; with errors of the most similar rows, every third by the first hole.
    """
    begin, d = 0, lacking.holes.shape[1]
    for i in range(len(lacking.holes)):
        holes, rows = np.flatnonzero(lacking.holes[i]), lacking.rows[lacking.first[i] : lacking.first[i + 1]]
        every, m = lacking.every[lacking.every_first[i] : lacking.every_first[i + 1]], len(holes)
        sets, by = _measured_beside(lacking, rows)
        sets[:, :d] = ~lacking.holes[i]
        for j in range(len(sets) if len(lacking.likeness) else 0):
            _leave_closest(lacking.likeness, holes, sets[j], most)
        ends = np.concatenate((holes, holes + d))
        gaps = lacking.gaps[:, ends]
        end = begin + len(rows) * k * m
        missing = Missing(rows, holes, gaps[rows], sets, by, gaps[every])
        _fill(series, missing, penalties, found[begin:end].reshape(len(rows), k, m))
        begin = end
