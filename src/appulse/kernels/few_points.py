"""A push of a few exact points to a join of two streams, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.few import FewRead, Keys, read_rows, texts
from appulse.kernels.grid import UNKNOWN, Grid, link_rest, squared_distances
from appulse.kernels.jit import exact_kernel
from appulse.kernels.memory import bytes_at, floats_at, hashes_at, ints_at
from appulse.kernels.newest import newest_two
from appulse.kernels.sweep import ArrivalRows, Balls, Candidates, Cursor, PairRule, WindowRows, sweep

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Hashes, Ints, Whole

# Room for so many candidates, at first.
_CANDIDATES = 1024
NEVER = -(1 << 62)  # before all times
#: Numbers of a push to a stream: how many rows, microseconds of a unit of their times, their message in memory (and how
#: many words it has), times that are late and too far ahead of the clock or of other rows, what is known of its times
#: (as `newest_two` has it), its window's length, the bytes of an offset of its keys (0 where these are no texts), and
#: of the rows the first and last time, and the bytes of all keys.
N, PER, MESSAGE, WORDS, LATE, LIMIT, AHEAD, NEWEST, KEY, RUNNER_UP, MOVES, SPAN, TEXT, LEAST, MOST, BYTES = range(16)
#: Numbers of a window: where its rows stand, where the keys do, and the places in memory of its columns and its keys.
BEGIN, END, LINKED, BASE, KEYS_END, VALUES_BEGIN, VALUES_END, KEYS_BASE = range(8)
ROOM, D, HEADS, DIMS, BY_VARIANCE, COLUMNS, KEYS, MEMORY = 8, 9, 10, 11, 12, 13, 28, 31


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

    ``words`` are the keys of live rows, and of those that come, unless they are texts; ``span`` is how long rows are in
    it, in microseconds.
    """

    begin: int
    end: int
    linked: int
    base: int
    span: Whole
    words: Hashes


class Asked(NamedTuple):
    """What pairs have to satisfy; for ``texts`` a pair has its rows' places."""

    texts: bool
    check_differ: bool
    epsilon: float  # with its tolerance
    threshold: float


class Pairs(NamedTuple):
    """Pairs that were found: keys of left rows as words, or their places in the window, their times, and so on."""

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
def in_order(time: Ints) -> bool:
    """Whether rows come in order of time."""
    good = True
    for i in range(1, time.shape[0]):
        good &= time[i] >= time[i - 1]
    return good


@exact_kernel
def _append(came: Came, window: Columns, stand: Stand) -> None:
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
        window.variance[j] = UNKNOWN
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
    mass, extent, centre, variance = np.empty(n), np.empty(n), np.empty((n, d)), np.full(n, UNKNOWN)
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
        if square[i] <= asked.epsilon * asked.epsilon and probability >= asked.threshold:
            if asked.texts:
                pairs.left_key[n], pairs.right_key[n] = np.uint64(j), np.uint64(k)
            else:
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
def _window(memory: Ints, cells: Floats) -> Columns:
    """The columns of a window, whose places in memory are known."""
    room, d, heads, dims = memory[ROOM], memory[D], memory[HEADS], memory[DIMS]
    return Columns(
        ints_at(memory[COLUMNS], room),
        ints_at(memory[COLUMNS + 1], room),
        ints_at(memory[COLUMNS + 2], room),
        floats_at(memory[COLUMNS + 3], room),
        floats_at(memory[COLUMNS + 4], room),
        floats_at(memory[COLUMNS + 5], room),
        floats_at(memory[COLUMNS + 6], room),
        floats_at(memory[COLUMNS + 7], room),
        floats_at(memory[COLUMNS + 8], room * d).reshape((room, d)),
        ints_at(memory[COLUMNS + 9], room),
        ints_at(memory[COLUMNS + 10], room),
        ints_at(memory[COLUMNS + 11], room),
        ints_at(memory[COLUMNS + 12], room),
        ints_at(memory[COLUMNS + 13], heads),
        ints_at(memory[COLUMNS + 14], dims),
        cells[0],
        cells[1],
        memory[BY_VARIANCE] != 0,
    )


@exact_kernel
def _keep_keys(memory: Ints, keys: Keys) -> Hashes:
    """Put keys behind those of a window; the words of all its live rows, those among them, unless they are texts."""
    n, held, more = keys.offsets.shape[0] - 1, memory[VALUES_END] - memory[VALUES_BEGIN], keys.data.shape[0]
    begin = ints_at(memory[KEYS] + 8 * memory[KEYS_END], n)
    length = ints_at(memory[KEYS + 1] + 8 * memory[KEYS_END], n)
    data = bytes_at(memory[KEYS + 2] + memory[VALUES_END], more)
    for i in range(n):
        begin[i] = memory[KEYS_BASE] + held + keys.offsets[i]
        length[i] = keys.offsets[i + 1] - keys.offsets[i]
    for i in range(more):
        data[i] = keys.data[i]
    return hashes_at(memory[KEYS + 2] + memory[VALUES_BEGIN], (held + more) // 8)


@exact_kernel
def _read(asked: Ints, places: Ints, d: Whole) -> tuple[bool, Came, Keys]:
    """The points of a push to one stream, with their keys, if all are good, in order, neither late nor from the future.

    What they show of the stream's times goes into ``asked``.
    """
    n, width = asked[N], asked[TEXT]
    words, numbers = ints_at(asked[MESSAGE], asked[WORDS]), floats_at(asked[MESSAGE], asked[WORDS])
    found = np.empty(n if width == 0 else 0, np.uint64)
    read = FewRead(np.empty(n, np.int64), found, np.empty((n, d)), np.empty((n, 0)))
    good = read_rows(words, numbers, places, asked[PER], read)
    time, zeros = read.time, np.zeros(n, np.int64)
    came = Came(time, np.ones(n), np.zeros(n), read.centre, zeros, zeros)
    keys = Keys(np.arange(found.shape[0] + 1) * 8, found.view(np.uint8))
    if width > 0 and n > 0:
        keys = texts(words, places, width, n)
    asked[BYTES] = keys.data.shape[0]
    if not good or n == 0:
        return good, came, keys
    for i in range(1, n):
        good &= time[i] >= time[i - 1]
    least, most = time[0], time[n - 1]
    good &= least >= asked[LATE] and most <= asked[LIMIT]
    known = asked[NEWEST : MOVES + 1]
    first = known[0] if known[0] > NEVER else least
    newest_two(time, keys.offsets, keys.data, known)
    asked[LEAST], asked[MOST] = least, most
    return good and known[0] - first <= asked[AHEAD], came, keys


@exact_kernel
def _stand(span: Whole, memory: Ints, keys: Keys) -> Stand:
    """Where a window stands, once it has the keys of the rows that come."""
    words = _keep_keys(memory, keys)
    return Stand(memory[BEGIN], memory[END], memory[LINKED], memory[BASE], span, words)


@exact_kernel
def push_rows(
    came: tuple[Came, Came],
    keys: tuple[Keys, Keys],
    spans: tuple[Whole, Whole],
    memory: Ints,
    cells: Floats,
    rule: Asked,
    tally: Ints,
) -> tuple[Whole, Hashes, Floats]:
    """As `push_points`, of points that have been read and judged, with their keys and the lengths of the windows."""
    windows = (_window(memory[0], cells[0]), _window(memory[1], cells[1]))
    stands = (_stand(spans[0], memory[0], keys[0]), _stand(spans[1], memory[1], keys[1]))
    _append(came[0], windows[0], stands[0])
    _append(came[1], windows[1], stands[1])
    order = _merged(came[0].time, came[1].time)
    near, rows, first = np.empty(0, np.int64), np.empty(0, np.int64), 0
    for own in range(2):  # called in one place, `sweep` is compiled once
        others, its = _candidates(own, order, came, windows[own], stands, rule, tally)
        first = others.shape[0] if own == 0 else first
        near, rows = np.concatenate((near, others)), np.concatenate((rows, its))
    right, left, other_left, other_right = near[:first], rows[:first], near[first:], rows[first:]
    one, other = _live(windows[0], stands[0], came[0]), _live(windows[1], stands[1], came[1])
    most = near.shape[0]
    tally[4] = most
    words, numbers = np.empty((4, most), np.uint64), np.empty((2, most))
    times = words.view(np.int64)
    pairs = Pairs(words[0], times[1], words[2], times[3], numbers[0], numbers[1])
    n = _write(left, right, squared_distances(right, left, other.centre, one.centre), one, other, rule, pairs, 0)
    square = squared_distances(other_left, other_right, one.centre, other.centre)
    n = _write(other_left, other_right, square, one, other, rule, pairs, n)
    return n, words, numbers


@exact_kernel
def push_points(
    asked: Ints,
    places: tuple[Ints, Ints],
    memory: Ints,
    cells: Floats,
    check_differ: bool,
    epsilon: float,
    threshold: float,
    tally: Ints,
) -> tuple[Whole, Hashes, Floats]:
    """Take a few points of two streams from memory into their windows, and find their pairs, of one after the other.

    ``asked`` and ``memory`` have a row for each stream, whose numbers are named above; the places are those of columns
    within their messages. ``tally`` is that of `sweep`, and behind it how many pairs were looked at. Returns how many
    pairs there are, the words of their keys (or the places of their rows, if keys are texts) and times (left, right),
    and distances and probabilities; less than 0, and nothing has changed, if some row has to go the general way.
    """
    d = memory[0, D]
    good, one_came, one_keys = _read(asked[0], places[0], d)
    fine, other_came, other_keys = _read(asked[1], places[1], d)
    if not (good and fine):
        return -1, np.empty((4, 0), np.uint64), np.empty((2, 0))
    spans = asked[0, SPAN], asked[1, SPAN]
    rule = Asked(asked[0, TEXT] > 0, check_differ, epsilon, threshold)
    return push_rows((one_came, other_came), (one_keys, other_keys), spans, memory, cells, rule, tally)
