"""How many of a stream's newest rows exist: exact Poisson-binomial probabilities, and the paper's approximations.

A row is in the window of the ``size`` newest existing rows iff at most ``size - 1`` of the rows after it exist
(Dallachiesa et al. 2015, Eq. 24). That is computed over the number of rows that are *absent*, of which there are few:
a probability mass function is kept over a band only, entries below `TINY` at its ends are dropped. Every factor is
multiplied in, none is ever divided out. What rounding and dropping change stays below 1e-12, far below the tolerance
of every comparison (1e-9).

While a window slides, its rows are two stacks: a *pivot* splits them, the newer part is one mass function that grows
by a factor a row, the older part a table with one entry per row (what lies between it and the pivot). One answer is
then one dot product. Once rows beyond the pivot are asked for, a newer pivot is taken.

Which rows leave a window is asked with a confidence, and hardly ever takes the last digits of a probability: where few
rows come to many that may be absent, `nearly` decides, and nothing is multiplied but where that is too near to it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.absent import dot, product, times_rows, total_of
from appulse.kernels.cumulants import LEAST_VARIANCE, add_cumulants, nearly
from appulse.kernels.gaussian import phi
from appulse.kernels.jit import exact_kernel, inlined_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Ints

EXACT, REFINED_NORMAL, NORMAL, POISSON = range(4)
# Bernstein's bound is below TINY from here on: -log(1e-18).
_CERTAIN = 41.5
# Of a window of so many times its new rows `nearly` takes less time than the stacks, whose further answers take less.
_FEW = 64
_PIVOT, _END, _BUFFER, _BEGIN, _N, _LOW, _DEPTH, _TAIL_BUFFER, _TAIL_BEGIN, _TAIL_N, _TAIL_LOW, _USED = range(12)
_NONE = -1


class Stacks(NamedTuple):
    """Where the two stacks are, newer part, older part, newer part without a row."""

    at: Ints
    head: NDArray[np.float64]
    tail: NDArray[np.float64]
    spare: NDArray[np.float64]


class Entries(NamedTuple):
    """The table of the older part: of each row where its entry is, its length and least count; and the entries."""

    rows: NDArray[np.int64]
    table: Floats


class Known(NamedTuple):
    """A window's rows: their probabilities, oldest first, and the `sums` of those."""

    exist: Floats
    sums: NDArray[np.float64]


class Fresh(NamedTuple):
    """Rows that came to a window.

    Its oldest row, the first new one, and of the new ones: which ends its tick, and the oldest row kept at that tick.
    """

    oldest: int
    begin: int
    tick_end: Flags
    floor: Ints


class Added(NamedTuple):
    """The fourth to sixth cumulant of the rows up to ``upto[1]`` less those of the rows up to ``upto[0]``."""

    upto: Ints
    cumulants: Floats


@exact_kernel
def sums(exist: Floats) -> NDArray[np.float64]:
    """Running sums over the rows before each: of p, p (1 - p), p (1 - p) (1 - 2 p), and of rows that are certain."""
    out = np.zeros((exist.shape[0] + 1, 4))
    add_sums(exist, 0, out)
    return out


@exact_kernel
def add_sums(exist: Floats, begin: int, out: NDArray[np.float64]) -> None:
    """Go on with them from the row ``begin`` on."""
    for i in range(begin, exist.shape[0]):
        p = exist[i]
        v = p * (1.0 - p)
        out[i + 1, 0] = out[i, 0] + p
        out[i + 1, 1] = out[i, 1] + v
        out[i + 1, 2] = out[i, 2] + v * (1.0 - 2.0 * p)
        out[i + 1, 3] = out[i, 3] + (p == 1.0)


@exact_kernel
def _settled(row: int, newest: int, size: int, known: NDArray[np.float64]) -> float:
    """1 or 0 where that is certain to within `TINY`, by Bernstein's inequality; else NaN."""
    newer = newest - row
    if newer < size:
        return 1.0
    mean = known[newest + 1, 0] - known[row + 1, 0]
    variance = max(0.0, known[newest + 1, 1] - known[row + 1, 1])
    # Present at most size - 1: certain where that lies far above the mean, out of the question far below.
    gap = size - mean
    if gap > 0.0 and gap * gap > 2.0 * _CERTAIN * (variance + gap / 3.0):
        return 1.0
    gap = mean - (size - 1)
    if gap > 0.0 and gap * gap > 2.0 * _CERTAIN * (variance + gap / 3.0):
        return 0.0
    return math.nan


@exact_kernel
def _highest_open(newest: int, size: int, known: NDArray[np.float64]) -> int:
    """The newest row whose membership is not certain: certainty only falls from there on back."""
    low, high = -1, newest
    while low + 1 < high:
        middle = (low + high) // 2
        if _settled(middle, newest, size, known) == 1.0:
            high = middle
        else:
            low = middle
    return low


@exact_kernel
def _start(at: Ints, pivot: int, end: int, exist: Floats, head: NDArray[np.float64], tail: NDArray[np.float64]) -> None:
    """Take a pivot: rows after it up to ``end`` become one mass function, the table begins with nothing."""
    begin, n, low = product(exist, pivot + 1, end + 1, head[0])
    at[_PIVOT], at[_END], at[_BUFFER], at[_BEGIN], at[_N], at[_LOW] = pivot, end, 0, begin, n, low
    tail[0, 0] = 1.0
    at[_DEPTH], at[_TAIL_BUFFER], at[_TAIL_BEGIN], at[_TAIL_N], at[_TAIL_LOW], at[_USED] = 0, 0, 0, 1, 0, 0


@exact_kernel
def _deepen(at: Ints, row: int, exist: Floats, tail: NDArray[np.float64], entries: Entries) -> Entries:
    """Let the table reach back to ``row``. An entry holds Pr(absent >= y), from the greatest y to the least."""
    rows, table = entries
    while at[_PIVOT] - at[_DEPTH] >= row:
        depth = at[_DEPTH]
        if depth > 0:
            which, begin, n, low = times_rows(
                tail,
                at[_TAIL_BUFFER],
                at[_TAIL_BEGIN],
                at[_TAIL_N],
                at[_TAIL_LOW],
                exist,
                at[_PIVOT] - depth + 1,
                at[_PIVOT] - depth + 2,
            )
            at[_TAIL_BUFFER], at[_TAIL_BEGIN], at[_TAIL_N], at[_TAIL_LOW] = which, begin, n, low
        n = at[_TAIL_N]
        if depth == rows.shape[0]:
            more_rows = np.empty((2 * depth + 64, 3), np.int64)
            more_rows[:depth] = rows
            rows = more_rows
        if at[_USED] + n > table.shape[0]:
            more = np.empty(2 * (at[_USED] + n) + 1024)
            more[: at[_USED]] = table[: at[_USED]]
            table = more
        values = tail[at[_TAIL_BUFFER], at[_TAIL_BEGIN] : at[_TAIL_BEGIN] + n]
        into = table[at[_USED] : at[_USED] + n]
        total = 0.0
        for k in range(n):
            total += values[n - 1 - k]
            into[k] = total
        rows[depth, 0], rows[depth, 1], rows[depth, 2] = at[_USED], n, at[_TAIL_LOW]
        at[_USED] += n
        at[_DEPTH] += 1
    return Entries(rows, table)


@exact_kernel
def _at_least(values: Floats, low: int, entry: Floats, entry_low: int, least: int) -> float:
    """Pr(sum >= least), of a mass function and one entry of the table."""
    n = values.shape[0]
    m = entry.shape[0]
    # Of value k + low the entry must add least - low - k: any from `sure` on, none below `first`.
    sure = min(n, max(0, least - low - entry_low))
    first = min(sure, max(0, least - low - entry_low - m + 1))
    shift = m - 1 - (least - low - entry_low)  # entry[k + shift] goes with values[k]
    total = total_of(values[sure:])
    if sure > first:
        total += dot(values[first:sure], entry[first + shift : sure + shift])
    return total


@exact_kernel
def approximate(method: int, most: int, mean: float, variance: float, third: float) -> float:
    """Pr(at most ``most`` exist) by an approximation, from the sums of p, p (1 - p) and p (1 - p) (1 - 2 p)."""
    if most < 0:
        return 0.0
    if method == POISSON:
        if mean <= 0.0:
            return 1.0
        # From the mode outwards nothing overflows.
        total = 0.0
        for k in range(most + 1):
            total += math.exp(k * math.log(mean) - mean - math.lgamma(k + 1.0))
        return min(1.0, total)
    if variance <= 0.0:
        return 1.0 if most + 0.5 >= mean else 0.0
    deviation = math.sqrt(variance)
    x = (most + 0.5 - mean) / deviation
    value = phi(x)
    if method == REFINED_NORMAL:
        skew = third / (variance * deviation)
        value += skew * (1.0 - x * x) * math.exp(-0.5 * x * x) / (6.0 * math.sqrt(2.0 * math.pi))
    return min(1.0, max(0.0, value))


@exact_kernel
def _approximate(
    method: int, row: int, newest: int, partner: int, size: int, exist: Floats, known: NDArray[np.float64]
) -> float:
    """Membership by an approximation; certain where too few rows came since for any doubt."""
    if newest - row < size:
        return 1.0
    mean = known[newest + 1, 0] - known[row + 1, 0]
    variance = known[newest + 1, 1] - known[row + 1, 1]
    third = known[newest + 1, 2] - known[row + 1, 2]
    if partner == _NONE:
        return approximate(method, size - 1, mean, variance, third)
    p = exist[partner]
    v = p * (1.0 - p)
    return approximate(method, size - 2, mean - p, variance - v, third - v * (1.0 - 2.0 * p))


@exact_kernel
def stacks_of(n: int) -> Stacks:
    """Room for the two stacks over n rows."""
    at = np.zeros(12, np.int64)
    at[_END] = _NONE
    return Stacks(at, np.empty((2, n + 2)), np.empty((2, n + 2)), np.empty((2, n + 2)))


@exact_kernel
def no_entries() -> Entries:
    """A table, empty."""
    return Entries(np.empty((64, 3), np.int64), np.empty(4096))


@exact_kernel
def _pivot(row: int, newest: int, end: int, size: int, known: NDArray[np.float64]) -> int:
    """A pivot that serves until some rows more have come."""
    ahead = max(16, min(size // 2, 4096))
    return min(end, max(row, _highest_open(newest, size, known) + ahead))


class Ticks(NamedTuple):
    """Windows to be followed tick by tick."""

    first: Ints  # where each window's rows begin; they end where those of the next begin
    fresh: Ints  # the first new row of each window, counted from its beginning
    tick_end: Flags  # whether a row is the last of its tick


class CountRule(NamedTuple):
    """When rows leave a count window of rows that may not exist."""

    size: int
    confidence: float
    least: float  # rows less likely to be in the window than this go, too
    max_rows: int
    method: int


class Questions(NamedTuple):
    """Which rows are asked about: by window, ascending, then by newest, then by partner."""

    window: Ints
    row: Ints  # position in the window
    newest: Ints
    partner: Ints  # a newer row known to exist, or -1


@exact_kernel
def nothing_added() -> Added:
    """Cumulants of no rows."""
    return Added(np.zeros(2, np.int64), np.zeros(3))


@exact_kernel
def evict(windows: Ticks, exist: Floats, rule: CountRule, floor: Ints) -> int:
    """Algorithms 1 and 2 of Dallachiesa et al. 2015, tick by tick, over many windows.

    ``floor`` (a number per row) gets the position, within the window, of the oldest row that is kept at the tick of
    each. Returns how many rows went only because there were more than ``max_rows``.
    """
    first, fresh, tick_end = windows
    longest = 0
    for w in range(first.shape[0] - 1):
        longest = max(longest, first[w + 1] - first[w])
    stacks, entries, capped = stacks_of(longest), no_entries(), 0
    for w in range(first.shape[0] - 1):
        own = exist[first[w] : first[w + 1]]
        stacks.at[_END] = _NONE
        begin = first[w] + fresh[w]
        came = Fresh(0, fresh[w], tick_end[begin : first[w + 1]], floor[begin : first[w + 1]])
        entries, more = evict_one(Known(own, sums(own)), came, rule, stacks, entries, nothing_added())
        capped += more
    return capped


@exact_kernel
def evict_one(
    window: Known, came: Fresh, rule: CountRule, stacks: Stacks, entries: Entries, added: Added
) -> tuple[Entries, int]:
    """As `evict`, of one window, with what is known of it; the table, perhaps longer now, and how many rows went."""
    own, known = window
    oldest, begin, tick_end, floor = came
    size, confidence, least, max_rows, method = rule
    at, head = stacks.at, stacks.head
    n, first, capped = own.shape[0], begin, 0
    few = _FEW * (n - begin) <= n
    while begin < n:
        newest = begin
        while not tick_end[newest - first]:
            newest += 1
        while newest - oldest >= size:
            if method != EXACT:
                inside = _approximate(method, oldest, newest, _NONE, size, own, known)
            else:
                inside = _settled(oldest, newest, size, known)
                if few and inside != inside:  # noqa: PLR0124 - NaN
                    inside = _decided(oldest, newest, own, known, rule, added)
                if inside != inside:  # noqa: PLR0124 - NaN
                    # Mostly all is there but the newest row, and a call with so many arrays costs more than that.
                    if at[_END] == _NONE or oldest > at[_PIVOT] or at[_PIVOT] - at[_DEPTH] >= oldest:
                        entries = _ready(oldest, newest, size, window, stacks, entries)
                    elif at[_END] < newest:
                        at[_BUFFER], at[_BEGIN], at[_N], at[_LOW] = times_rows(
                            head, at[_BUFFER], at[_BEGIN], at[_N], at[_LOW], own, at[_END] + 1, newest + 1
                        )
                        at[_END] = newest
                    inside = _member(oldest, newest, size, stacks, entries)
            if method == EXACT and confidence == 1.0:
                # Nothing short of enough certain rows is certain.
                gone = known[newest + 1, 3] - known[oldest + 1, 3] >= size
            else:
                gone = 1.0 - inside >= confidence - 1e-9
            if not gone and inside >= least:
                break
            oldest += 1
        if newest - oldest >= max_rows:
            capped += newest - max_rows + 1 - oldest
            oldest = newest - max_rows + 1
        floor[begin - first : newest + 1 - first] = oldest
        begin = newest + 1
    return entries, capped


@exact_kernel
def _decided(row: int, newest: int, exist: Floats, known: NDArray[np.float64], rule: CountRule, added: Added) -> float:
    """A membership on the same side of what a row goes by as the exact one; NaN where only that one decides."""
    if known[newest + 1, 1] - known[row + 1, 1] < LEAST_VARIANCE:
        return math.nan
    upto, more = added
    add_cumulants(exist, upto[0], row + 1, -1.0, more)
    add_cumulants(exist, upto[1], newest + 1, 1.0, more)
    upto[0], upto[1] = row + 1, newest + 1
    inside, error = nearly(rule.size - 1, known[newest + 1] - known[row + 1], more)
    low, high = inside - error, inside + error
    sure = rule.confidence == 1.0  # then it goes by rows that are certain, and perhaps by the least probability
    low_stays = (sure or 1.0 - low < rule.confidence - 1e-9) and max(low, 0.0) >= rule.least
    high_stays = (sure or 1.0 - high < rule.confidence - 1e-9) and high >= rule.least
    return inside if low_stays == high_stays else math.nan


@exact_kernel
def _ready(row: int, newest: int, size: int, window: Known, stacks: Stacks, entries: Entries) -> Entries:
    """Let the newer part reach to ``newest`` and the table back to ``row``; the table, perhaps longer now."""
    at, head, tail, _ = stacks
    exist, known = window
    if at[_END] == _NONE or row > at[_PIVOT] or at[_END] > newest:
        _start(at, _pivot(row, newest, newest, size, known), newest, exist, head, tail)
    if at[_END] < newest:
        at[_BUFFER], at[_BEGIN], at[_N], at[_LOW] = times_rows(
            head, at[_BUFFER], at[_BEGIN], at[_N], at[_LOW], exist, at[_END] + 1, newest + 1
        )
        at[_END] = newest
    return _deepen(at, row, exist, tail, entries)


@inlined_kernel
def _member(row: int, newest: int, size: int, stacks: Stacks, entries: Entries) -> float:
    """A membership, of stacks that are ready."""
    at, head, _, _ = stacks
    k = at[_PIVOT] - row
    values = head[at[_BUFFER], at[_BEGIN] : at[_BEGIN] + at[_N]]
    entry = entries.table[entries.rows[k, 0] : entries.rows[k, 0] + entries.rows[k, 1]]
    return min(1.0, _at_least(values, at[_LOW], entry, entries.rows[k, 2], newest - row - size + 1))


@exact_kernel
def membership(
    first: Ints,  # where each window's rows begin in exist; they end where those of the next begin
    exist: Floats,
    size: int,
    method: int,
    asked: Questions,
    out: Floats,
) -> None:
    """Pr(row is in the window | it exists, and so does the partner), for many questions.

    Without a partner: at most size - 1 of the rows after it exist (Eq. 24). With one: at most size - 2 of the others.
    """
    longest = 0
    for w in range(first.shape[0] - 1):
        longest = max(longest, first[w + 1] - first[w])
    stacks, entries = stacks_of(longest), no_entries()
    q = 0
    while q < asked.window.shape[0]:
        w, begin = asked.window[q], q
        while q < asked.window.shape[0] and asked.window[q] == w:
            q += 1
        own = exist[first[w] : first[w + 1]]
        stacks.at[_END] = _NONE
        of = slice(begin, q)
        mine = Questions(asked.window[of], asked.row[of], asked.newest[of], asked.partner[of])
        entries = membership_in(Known(own, sums(own)), size, method, mine, stacks, entries, out[of])


@exact_kernel
def membership_in(
    window: Known, size: int, method: int, asked: Questions, stacks: Stacks, entries: Entries, out: Floats
) -> Entries:
    """As `membership`, of one window, with what is known of it; the table, perhaps longer now."""
    own, known = window
    at, head, tail, spare = stacks
    other = other_newest = _NONE
    which, begin, n, low = 0, 0, 0, 0
    for q in range(out.shape[0]):
        i, m, j = asked.row[q], asked.newest[q], asked.partner[q]
        if method != EXACT:
            out[q] = _approximate(method, i, m, j, size, own, known)
            continue
        if m - i < size:
            out[q] = 1.0
            continue
        if j == _NONE:
            settled = _settled(i, m, size, known)
            if settled == settled:  # noqa: PLR0124 - not NaN
                out[q] = settled
                continue
            # Mostly all is there already, and a call with so many arrays costs more than the answer.
            if at[_END] != m or i > at[_PIVOT] or at[_PIVOT] - at[_DEPTH] >= i:
                entries = _ready(i, m, size, window, stacks, entries)
            out[q] = _member(i, m, size, stacks, entries)
            continue
        # The newer part up to the partner is kept; with what came after it in the same tick it is made anew.
        if at[_END] == _NONE or i > at[_PIVOT] or at[_END] >= j:
            if at[_END] == _NONE or i > at[_PIVOT] or at[_PIVOT] >= j:
                _start(at, _pivot(i, m, j - 1, size, known), j - 1, own, head, tail)
            else:
                _start(at, at[_PIVOT], j - 1, own, head, tail)
            other = _NONE
        if at[_END] < j - 1:
            at[_BUFFER], at[_BEGIN], at[_N], at[_LOW] = times_rows(
                head, at[_BUFFER], at[_BEGIN], at[_N], at[_LOW], own, at[_END] + 1, j
            )
            at[_END] = j - 1
        if other != j or other_newest != m:
            length = at[_N]
            spare[0, :length] = head[at[_BUFFER], at[_BEGIN] : at[_BEGIN] + length]
            which, begin, n, low = times_rows(spare, 0, 0, length, at[_LOW], own, j + 1, m + 1)
            other, other_newest = j, m
        entries = _deepen(at, i, own, tail, entries)
        rows, table = entries
        k = at[_PIVOT] - i
        entry = table[rows[k, 0] : rows[k, 0] + rows[k, 1]]
        out[q] = min(1.0, _at_least(spare[which, begin : begin + n], low, entry, rows[k, 2], m - i - size + 1))
    return entries


@exact_kernel
def curve(exist: Floats, size: int) -> Floats:
    """For each row, oldest first: Pr(at most ``size - 1`` of the rows after it exist)."""
    n = exist.shape[0]
    out = np.empty(n)
    known = sums(exist)
    newest = n - 1
    top = _highest_open(newest, size, known)
    out[top + 1 :] = 1.0
    if top < 0:
        return out
    buffers = np.empty((2, n + 2))
    which = 0
    begin, m, low = product(exist, top + 1, n, buffers[0])
    for row in range(top, -1, -1):
        if _settled(row, newest, size, known) == 0.0:
            out[: row + 1] = 0.0
            break
        least = newest - row - size + 1
        values = buffers[which, begin : begin + m]
        out[row] = min(1.0, total_of(values[min(m, max(0, least - low)) :]))
        which, begin, m, low = times_rows(buffers, which, begin, m, low, exist, row, row + 1)
    return out
