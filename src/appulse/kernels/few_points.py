"""A push of a few exact points to a join of two streams, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.grid import Grid, link_rest, squared_distances
from appulse.kernels.jit import exact_kernel
from appulse.kernels.sweep import ArrivalRows, Balls, Candidates, Cursor, PairRule, WindowRows, sweep

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Hashes, Ints, Whole

# Room for so many candidates, at first.
_CANDIDATES = 1024


class Came(NamedTuple):
    """Points that come to a window, in order of time."""

    time: Ints
    mass: Floats
    reach: Floats
    centre: Floats
    group: Ints
    differ: Ints


class Columns(NamedTuple):
    """Columns of a window with room for more rows, and its index."""

    time: Ints
    rank: Ints
    rank_max: Ints
    mass: Floats
    reach: Floats
    radius: Floats
    extent: Floats
    variance: Floats
    centre: Floats
    group: Ints
    differ: Ints
    cell: Ints
    following: Ints
    heads: Ints
    dims: Ints
    inverse_side: float
    size_cap: float
    by_variance: bool


class Stand(NamedTuple):
    """Where a window stands: its rows are ``begin`` to ``end``, of which so many are ``linked``.

    ``words`` are the keys of live rows, and of those that come; ``span`` is how long rows are in it, in microseconds.
    """

    begin: int
    end: int
    linked: int
    base: int
    span: int
    words: Hashes


class Asked(NamedTuple):
    """What pairs have to satisfy; ``unknown`` stands for a variance."""

    check_differ: bool
    epsilon: float  # with its tolerance
    most: float  # its square
    threshold: float
    unknown: float


class Pairs(NamedTuple):
    """Pairs that were found: keys of left rows as words, their times, and so on."""

    left_key: Hashes
    left_time: Ints
    right_key: Hashes
    right_time: Ints
    distance: Floats
    probability: Floats


class Live(NamedTuple):
    """The live rows of a window, those that have come among them."""

    time: Ints
    mass: Floats
    centre: Floats
    words: Hashes


@exact_kernel
def in_order(time: Ints, offsets: Ints) -> bool:
    """Whether rows come in order of time, with keys of eight bytes."""
    good = True
    for i in range(time.shape[0]):
        good &= offsets[i + 1] - offsets[i] == 8
        good &= i == 0 or time[i] >= time[i - 1]
    return good


@exact_kernel
def _append(came: Came, window: Columns, stand: Stand, unknown: float) -> None:
    """Put points behind the rows of a window."""
    newest = window.rank_max[stand.end - 1] if stand.end > stand.begin else np.iinfo(np.int64).min
    for i in range(came.time.shape[0]):
        j = stand.end + i
        newest = max(newest, came.time[i])
        window.time[j] = came.time[i]
        window.rank[j] = came.time[i]
        window.rank_max[j] = newest
        window.mass[j] = came.mass[i]
        window.reach[j] = came.reach[i]
        window.extent[j] = came.reach[i]
        window.radius[j] = 0.0
        window.variance[j] = unknown
        window.group[j] = came.group[i]
        window.differ[j] = came.differ[i]
        for k in range(came.centre.shape[1]):
            window.centre[j, k] = came.centre[i, k]


@exact_kernel
def _merged(one: Ints, other: Ints) -> tuple[Ints, Ints]:
    """Two runs of times as one, those of the first before equal ones: of which run each is, and which of it."""
    n = one.shape[0] + other.shape[0]
    store, row = np.empty(n, np.int64), np.empty(n, np.int64)
    i = j = 0
    for p in range(n):
        if j == other.shape[0] or (i < one.shape[0] and one[i] <= other[j]):
            store[p], row[p] = 0, i
            i += 1
        else:
            store[p], row[p] = 1, j
            j += 1
    return store, row


@exact_kernel
def _candidates(
    own: int,
    order: tuple[Ints, Ints],
    came: tuple[Came, Came],
    window: Columns,
    stands: tuple[Stand, Stand],
    asked: Asked,
    tally: Ints,
) -> tuple[Ints, Ints]:
    """The rows of a window that those which come to the other one are near: rows of the other, and its own."""
    store, row = order
    n, d = store.shape[0], window.centre.shape[1]
    oldest, newest = np.empty(n, np.int64), np.empty(n, np.int64)
    group, differ = np.empty(n, np.int64), np.empty(n, np.int64)
    mass, extent, centre, variance = np.empty(n), np.empty(n), np.empty((n, d)), np.full(n, asked.unknown)
    for p in range(n):
        given, i = came[store[p]], row[p]
        oldest[p] = given.time[i] - stands[own].span
        newest[p] = given.time[i] + stands[store[p]].span
        group[p], differ[p] = given.group[i], given.differ[i]
        mass[p], extent[p] = given.mass[i], given.reach[i]
        for k in range(d):
            centre[p, k] = given.centre[i, k]
    stand = stands[own]
    begin, end = stand.begin, stand.end + came[own].time.shape[0]
    rank_max, places, sizes = window.rank_max[begin:end], window.centre[begin:end], window.extent[begin:end]
    groups, variances = window.group[begin:end], window.variance[begin:end]
    grid = Grid(
        stand.base,
        places,
        variances if window.by_variance else sizes,
        groups,
        window.cell[begin:end],
        window.following[begin:end],
        window.heads,
        window.dims,
        window.inverse_side,
        window.size_cap,
        window.by_variance,
    )
    none = np.empty(0, np.int64)
    if came[1 - own].time.shape[0] == 0:
        if window.heads.shape[0] > 0:
            link_rest(stand.linked, grid)
        return none, none
    rows = WindowRows(window.rank[begin:end], rank_max, groups, window.differ[begin:end])
    meets = np.ones(2, np.bool_)
    meets[own] = False
    rule = PairRule(meets, own, asked.check_differ, asked.epsilon, asked.threshold)
    arriving, probes = ArrivalRows(store, oldest, newest, group, differ, mass), Balls(centre, extent, variance)
    balls = Balls(places, sizes, variances)
    linked, low = stand.linked, np.searchsorted(rank_max, oldest[0])
    found_left, found_rows = none, none
    out = Candidates(np.empty(_CANDIDATES, np.int64), np.empty(_CANDIDATES, np.int64), tally, np.zeros(0, np.bool_))
    start = 0
    while start < n:
        at = start
        start, linked, low, many = sweep(Cursor(start, linked, low), rule, arriving, probes, rows, balls, grid, out)
        left = np.empty(many, np.int64)
        for i in range(many):
            left[i] = stands[1 - own].end - stands[1 - own].begin + row[out.arrival[i]]
        found_left, found_rows = np.concatenate((found_left, left)), np.concatenate((found_rows, out.row[:many]))
        if start == at and many == 0 and start < n:
            room = 2 * out.row.shape[0]
            out = Candidates(np.empty(room, np.int64), np.empty(room, np.int64), tally, np.zeros(0, np.bool_))
    return found_left, found_rows


@exact_kernel
def _write(
    left: Ints, right: Ints, square: Floats, one: Live, other: Live, asked: Asked, pairs: Pairs, n: Whole
) -> Whole:
    """Write the pairs that are near and likely enough from ``n`` on; where the next one goes."""
    for i in range(square.shape[0]):
        j, k = left[i], right[i]
        probability = one.mass[j] * other.mass[k]
        if square[i] <= asked.most and probability >= asked.threshold:
            pairs.left_key[n], pairs.right_key[n] = one.words[j], other.words[k]
            pairs.left_time[n], pairs.right_time[n] = one.time[j], other.time[k]
            pairs.distance[n], pairs.probability[n] = np.sqrt(square[i]), probability
            n += 1
    return n


@exact_kernel
def _live(window: Columns, stand: Stand, came: Came) -> Live:
    begin, end = stand.begin, stand.end + came.time.shape[0]
    return Live(window.time[begin:end], window.mass[begin:end], window.centre[begin:end], stand.words)


@exact_kernel
def push_points(
    came: tuple[Came, Came], windows: tuple[Columns, Columns], stands: tuple[Stand, Stand], asked: Asked, tally: Ints
) -> Pairs:
    """Put points in the windows of their streams, and find their pairs, of one window after the other.

    ``tally`` is that of `sweep`, and behind it how many pairs were looked at.
    """
    _append(came[0], windows[0], stands[0], asked.unknown)
    _append(came[1], windows[1], stands[1], asked.unknown)
    order = _merged(came[0].time, came[1].time)
    near, rows, first = np.empty(0, np.int64), np.empty(0, np.int64), 0
    for own in range(2):  # called in one place, `sweep` is compiled once
        others, its = _candidates(own, order, came, windows[own], stands, asked, tally)
        first = others.shape[0] if own == 0 else first
        near, rows = np.concatenate((near, others)), np.concatenate((rows, its))
    right, left, other_left, other_right = near[:first], rows[:first], near[first:], rows[first:]
    one, other = _live(windows[0], stands[0], came[0]), _live(windows[1], stands[1], came[1])
    most = near.shape[0]
    tally[4] = most
    words, times, numbers = np.empty((2, most), np.uint64), np.empty((2, most), np.int64), np.empty((2, most))
    pairs = Pairs(words[0], times[0], words[1], times[1], numbers[0], numbers[1])
    n = _write(left, right, squared_distances(right, left, other.centre, one.centre), one, other, asked, pairs, 0)
    square = squared_distances(other_left, other_right, one.centre, other.centre)
    n = _write(other_left, other_right, square, one, other, asked, pairs, n)
    return Pairs(
        pairs.left_key[:n],
        pairs.left_time[:n],
        pairs.right_key[:n],
        pairs.right_time[:n],
        pairs.distance[:n],
        pairs.probability[:n],
    )
