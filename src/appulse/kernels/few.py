"""A few rows at a time: what several passes of NumPy do, in one call each, as calls are what costs there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Hashes, Ints, RowPairs, Whole

# Times stay below this (microseconds).
_MOST_TIME = 2.0**62


@exact_kernel
def float_micros(given: Floats, per: float, out: Ints) -> bool:
    """Times in units of ``per`` microseconds; whether all of them are in range."""
    good = True
    for i in range(given.shape[0]):
        micros = np.rint(given[i] * per)
        good &= abs(micros) < _MOST_TIME  # NaN is not
        out[i] = np.int64(micros) if good else 0
    return good


@exact_kernel
def whole_micros(given: NDArray[Any], per: Whole, out: Ints) -> bool:
    """The same of whole numbers."""
    good = True
    for i in range(given.shape[0]):
        good &= abs(np.float64(given[i])) * np.float64(per) < _MOST_TIME
        out[i] = given[i] * per if good else 0
    return good


@exact_kernel
def put_finite(given: Floats, column: Whole, least: float, out: Floats) -> bool:
    """Write a column of ``out``; whether all numbers are finite, and at least ``least``."""
    good = True
    for i in range(given.shape[0]):
        out[i, column] = given[i]
        good &= np.isfinite(given[i]) and given[i] >= least
    return good


@exact_kernel
def order_words(given: Ints, out: Hashes) -> None:
    """Canonical bytes of whole numbers: big-endian, with the sign flipped."""
    for i in range(given.shape[0]):
        out[i] = _turned(np.uint64(given[i]) ^ np.uint64(1 << 63))


@exact_kernel
def whole_of_words(words: Hashes, out: Ints) -> None:
    """The whole numbers whose `order_words` these are."""
    for i in range(words.shape[0]):
        out[i] = np.int64(_turned(words[i]) ^ np.uint64(1 << 63))


@exact_kernel
def _turned(word: np.uint64) -> np.uint64:
    """A word with its bytes the other way round."""
    word = ((word >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)) | (
        (word & np.uint64(0x00FF00FF00FF00FF)) << np.uint64(8)
    )
    word = ((word >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)) | (
        (word & np.uint64(0x0000FFFF0000FFFF)) << np.uint64(16)
    )
    return (word >> np.uint64(32)) | (word << np.uint64(32))


class Came(NamedTuple):
    """Exact points that come, in order of time."""

    time: Ints
    mass: Floats
    reach: Floats
    centre: Floats
    group: Ints
    differ: Ints


class Window(NamedTuple):
    """Columns of a window of exact points, with room for more rows."""

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


class Waiting(NamedTuple):
    """The arrivals of a push, over all windows, and room for more."""

    time: Ints
    store: Ints
    row: Ints
    group: Ints
    differ: Ints
    mass: Floats
    extent: Floats
    variance: Floats
    centre: Floats


@exact_kernel
def take_in(
    came: Came, window: Window, begin: Whole, end: Whole, store: Whole, unknown: float, waiting: Waiting, at: Whole
) -> None:
    """Put points behind the rows ``begin`` to ``end`` of a window, and among the arrivals from ``at`` on."""
    newest = window.rank_max[end - 1] if end > begin else np.iinfo(np.int64).min
    for i in range(came.time.shape[0]):
        j, p = end + i, at + i
        newest = max(newest, came.time[i])
        window.time[j] = window.rank[j] = waiting.time[p] = came.time[i]
        window.rank_max[j] = newest
        window.mass[j] = waiting.mass[p] = came.mass[i]
        window.reach[j] = window.extent[j] = waiting.extent[p] = came.reach[i]
        window.radius[j] = 0.0
        window.variance[j] = waiting.variance[p] = unknown
        window.group[j] = waiting.group[p] = came.group[i]
        window.differ[j] = waiting.differ[p] = came.differ[i]
        waiting.store[p], waiting.row[p] = store, j - begin
        for k in range(came.centre.shape[1]):
            window.centre[j, k] = waiting.centre[p, k] = came.centre[i, k]


@exact_kernel
def in_tick_order(waiting: Waiting, n: Whole) -> None:
    """Put the arrivals in order of time; those of equal time stay as they are."""
    for i in range(1, n):
        j = i
        while j > 0 and waiting.time[j - 1] > waiting.time[j]:
            _swap(waiting.time, j)
            _swap(waiting.store, j)
            _swap(waiting.row, j)
            _swap(waiting.group, j)
            _swap(waiting.differ, j)
            _swap(waiting.mass, j)
            _swap(waiting.extent, j)
            _swap(waiting.variance, j)
            for k in range(waiting.centre.shape[1]):
                own = waiting.centre[j, k]
                waiting.centre[j, k] = waiting.centre[j - 1, k]
                waiting.centre[j - 1, k] = own
            j -= 1


@exact_kernel
def _swap(column: NDArray[Any], j: Whole) -> None:
    own = column[j]
    column[j] = column[j - 1]
    column[j - 1] = own


class Points(NamedTuple):
    """What pairs of points are told by."""

    time: Ints
    mass: Floats
    words: Hashes  # keys of eight bytes


class Told(NamedTuple):
    """Answers, and room for more: keys of left rows, times of left rows, and so on."""

    left_key: Hashes
    left_time: Ints
    right_key: Hashes
    right_time: Ints
    distance: Floats
    probability: Floats


@exact_kernel
def tell(
    pairs: RowPairs, square: Floats, most: float, threshold: float, sides: tuple[Points, Points], told: Told, at: Whole
) -> int:
    """Write the pairs whose squared distance is at most ``most``, where they are likely enough, from ``at`` on.

    Returns where the next one goes.
    """
    one, other = sides
    n = at
    for i in range(square.shape[0]):
        j, k = pairs.left[i], pairs.right[i]
        probability = one.mass[j] * other.mass[k]
        if not (square[i] <= most and probability >= threshold):
            continue
        told.left_key[n], told.right_key[n] = one.words[j], other.words[k]
        told.left_time[n], told.right_time[n] = one.time[j], other.time[k]
        told.distance[n], told.probability[n] = np.sqrt(square[i]), probability
        n += 1
    return n
