"""Numbers of rows and frames of windows that are not of time: the one place that needs a stream's order.

Rows of each (group, stream) are numbered from 0 in the order of ticks. Every window keeps a suffix, so one number, the
*floor*, says what it holds: the rows numbered from there on. Live rows stand in an arena in order of numbering,
threaded on one list per (group, stream); with each go the places (tiles) that hold a copy, notified when it leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import ByteArray, Floats, Ints, Whole

COUNT, DELTA, TUMBLE_ROWS, TUMBLE_TIME, UNCERTAIN_COUNT, UNCERTAIN_DELTA = range(6)
NONE = -1
_NO_BLOCK = -(1 << 62)


@exact_kernel
def _before(
    a: Whole,
    b: Whole,
    key_offsets: Ints,
    key: ByteArray,
    values: Floats,
    first: Ints,
    samples: Floats,
    weights: Floats,
) -> bool:
    """Whether row ``a`` comes before row ``b`` of the same time: by key bytes, then by values."""
    n = key_offsets[a + 1] - key_offsets[a]
    m = key_offsets[b + 1] - key_offsets[b]
    for k in range(min(n, m)):
        x = key[key_offsets[a] + k]
        y = key[key_offsets[b] + k]
        if x != y:
            return bool(x < y)
    if n != m:
        return bool(n < m)
    for k in range(values.shape[1]):
        if values[a, k] != values[b, k]:
            return bool(values[a, k] < values[b, k])
    if first.shape[0] == 0:
        return False
    n = first[a + 1] - first[a]
    m = first[b + 1] - first[b]
    if n != m:
        return bool(n < m)
    d = samples.shape[0] // max(1, first[-1])
    for k in range(n * d):
        v = samples[first[a] * d + k]
        w = samples[first[b] * d + k]
        if v != w:
            return bool(v < w)
    if weights.shape[0] > 0:
        for k in range(n):
            v = weights[first[a] + k]
            w = weights[first[b] + k]
            if v != w:
                return bool(v < w)
    return False


@exact_kernel
def sort_ties(
    order: Ints,
    time: Ints,
    key_offsets: Ints,
    key: ByteArray,
    values: Floats,
    first: Ints,
    samples: Floats,
    weights: Floats,
) -> None:
    """Put each run of equal times of ``order`` (sorted by ``time`` already) into canonical order, by merging.

    Runs often are in that order as they come.
    """
    n = order.shape[0]
    spare = np.empty(n, np.int64)
    begin = 0
    while begin < n:
        end = begin + 1
        while end < n and time[order[end]] == time[order[begin]]:
            end += 1
        known = begin + 1
        while known < end and not _before(
            order[known], order[known - 1], key_offsets, key, values, first, samples, weights
        ):
            known += 1
        width = 1 if known < end else end - begin
        while width < end - begin:
            for low in range(begin, end, 2 * width):
                middle = min(low + width, end)
                high = min(low + 2 * width, end)
                i = low
                j = middle
                for k in range(low, high):
                    take_right = i >= middle or (
                        j < high and _before(order[j], order[i], key_offsets, key, values, first, samples, weights)
                    )
                    if take_right:
                        spare[k] = order[j]
                        j += 1
                    else:
                        spare[k] = order[i]
                        i += 1
            order[begin:end] = spare[begin:end]
            width *= 2
        begin = end


@exact_kernel
def _noted(
    out: NDArray[np.int64],
    count: int,
    latest: Ints,
    place: Whole,
    group: Whole,
    stream: Whole,
    tick: Whole,
    floor: Whole,
) -> tuple[NDArray[np.int64], int]:
    """Note that ``place`` is to learn a floor; what one tick does to one window is one note."""
    at = latest[place]
    if 0 <= at < count and out[at, 1] == group and out[at, 2] == stream and out[at, 3] == tick:
        out[at, 4] = floor
        return out, count
    if count == out.shape[0]:
        wider = np.empty((2 * count + 64, 5), np.int64)
        wider[:count] = out
        out = wider
    out[count, 0] = place
    out[count, 1] = group
    out[count, 2] = stream
    out[count, 3] = tick
    out[count, 4] = floor
    latest[place] = count
    return out, count + 1


class NewRows(NamedTuple):
    """Rows to be numbered, in order of time."""

    time: Ints
    stream: Ints
    group: Ints
    floor: Ints  # those of windows that are uncertain, found beforehand: at the tick of each row, for its window


class WindowRule(NamedTuple):
    """What a window holds."""

    kind: int
    size: int  # rows of a count window or block; microseconds of a block of time
    bound: float


class Live(NamedTuple):
    """The arena of live rows."""

    following: Ints  # next row of the same window
    number: Ints
    measure: Floats
    copy_first: Ints
    copy_count: Ints
    copies: Ints  # places


class Lists(NamedTuple):
    """The list of each window, shape (groups, streams)."""

    next_number: Ints
    floor: Ints
    head: Ints
    tail: Ints
    block: Ints  # shape (groups,)


@exact_kernel
def number_rows(
    rows: NewRows,
    begin: int,  # where they begin in the arena; their measures and copies are there already
    rule: WindowRule,
    live: Live,
    lists: Lists,
    places: int,
) -> tuple[Ints, NDArray[np.int64]]:
    """Number the rows tick by tick.

    Returns each row's frame, shape (n, streams): the floors at its tick, its own tick's rows counted, and for windows
    of rows that may not exist the newest numbers beside them, shape (n, 2 streams); and notes (place, group, stream,
    tick, floor) for those that hold copies of rows that left.
    """
    time, stream, group, given = rows
    kind, size, bound = rule
    following, number, measure, copy_first, copy_count, copies = live
    next_number, floor, head, tail, block = lists
    n = time.shape[0]
    streams = next_number.shape[1]
    frames = np.empty((n, 2 * streams if kind == UNCERTAIN_COUNT else streams), np.int64)
    notes = np.empty((64, 5), np.int64)
    count = 0
    latest = np.full(places, -1, np.int64)
    i = 0
    while i < n:
        j = i
        while j < n and time[j] == time[i]:
            j += 1
        tick = time[i]
        if kind == TUMBLE_TIME:
            current = tick // size
            for r in range(i, j):
                g = group[r]
                if block[g] != current:
                    block[g] = current
                    for s in range(streams):
                        floor[g, s] = next_number[g, s]
                        while head[g, s] != NONE:
                            at = head[g, s]
                            for c in range(copy_first[at], copy_first[at] + copy_count[at]):
                                notes, count = _noted(notes, count, latest, copies[c], g, s, tick, floor[g, s])
                            head[g, s] = following[at]
                        tail[g, s] = NONE
        for r in range(i, j):
            g = group[r]
            s = stream[r]
            at = begin + r
            number[at] = next_number[g, s]
            next_number[g, s] += 1
            following[at] = NONE
            if head[g, s] == NONE:
                head[g, s] = at
            else:
                following[tail[g, s]] = at
            tail[g, s] = at
        for r in range(i, j):
            g = group[r]
            s = stream[r]
            if kind == COUNT:
                lowest = next_number[g, s] - size
            elif kind == TUMBLE_ROWS:
                lowest = (next_number[g, s] - 1) // size * size
            elif kind == DELTA:
                newest = measure[tail[g, s]]
                at = head[g, s]
                while abs(measure[at] - newest) > bound:
                    at = following[at]
                lowest = number[at]
            elif kind >= UNCERTAIN_COUNT:
                lowest = given[r]
            else:
                lowest = floor[g, s]
            if lowest > floor[g, s]:
                floor[g, s] = lowest
                while number[head[g, s]] < lowest:
                    at = head[g, s]
                    for c in range(copy_first[at], copy_first[at] + copy_count[at]):
                        notes, count = _noted(notes, count, latest, copies[c], g, s, tick, lowest)
                    head[g, s] = following[at]
        for r in range(i, j):
            for s in range(streams):
                frames[r, s] = floor[group[r], s]
                if kind == UNCERTAIN_COUNT:
                    frames[r, streams + s] = next_number[group[r], s] - 1
        i = j
    return frames, notes[:count]


@exact_kernel
def thread(
    begin: int,
    group: Ints,
    stream: Ints,
    number: Ints,
    floor: Ints,
    following: Ints,
    head: Ints,
    tail: Ints,
) -> None:
    """Put arena rows from ``begin`` on onto their lists, and take off the lists what lies below the floors."""
    for at in range(begin, number.shape[0]):
        g = group[at]
        s = stream[at]
        following[at] = NONE
        if head[g, s] == NONE:
            head[g, s] = at
        else:
            following[tail[g, s]] = at
        tail[g, s] = at
    for g in range(head.shape[0]):
        for s in range(head.shape[1]):
            while head[g, s] != NONE and number[head[g, s]] < floor[g, s]:
                head[g, s] = following[head[g, s]]
            if head[g, s] == NONE:
                tail[g, s] = NONE


@exact_kernel
def rows_of(head: Ints, following: Ints, asked: Ints, begin: int, window: Ints) -> tuple[Ints, Ints, Ints]:
    """The rows of windows, and then those from ``begin`` on, which are on no list: the ``window[i]``-th of those asked.

    Returns the rows, where those of each window begin, and how many of them are on its list.
    """
    first, count = np.zeros(asked.shape[0] + 1, np.int64), np.zeros(asked.shape[0], np.int64)
    for w in window:
        first[w + 1] += 1
    for w in range(asked.shape[0]):
        at = head[asked[w]]
        while at != NONE:
            count[w] += 1
            at = following[at]
        first[w + 1] += first[w] + count[w]
    rows = np.empty(first[-1], np.int64)
    end = first[:-1].copy()
    for w in range(asked.shape[0]):
        at = head[asked[w]]
        while at != NONE:
            rows[end[w]] = at
            end[w] += 1
            at = following[at]
    for i in range(window.shape[0]):
        rows[end[window[i]]] = begin + i
        end[window[i]] += 1
    return rows, first, count


def no_block() -> int:
    """The block of a group before its first tick."""
    return _NO_BLOCK
