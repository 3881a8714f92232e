"""A few rows at a time: what several passes of NumPy do, in one call each, as calls are what costs there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import ByteArray, Floats, Hashes, Ints, Whole

# Times stay below this (microseconds).
_MOST_TIME = 2.0**62


class FewRead(NamedTuple):
    """What is read of a few rows, and room for it."""

    time: Ints
    key: Hashes  # canonical bytes; none, where keys are texts
    centre: Floats
    spread: Floats


@exact_kernel
def read_rows(words: Ints, numbers: Floats, places: Ints, per: Whole, out: FewRead) -> bool:
    """Read rows column by column from memory, seen as ``words`` and as ``numbers``; whether all of them are good.

    ``places`` are those of keys, of which only whole numbers are read, of times in units of ``per`` microseconds (whole
    ones, or numbers where ``per`` is negative), of coordinates, and of spreads. Times are in range, the others finite,
    and no spread is less than 0.
    """
    n, d = out.centre.shape
    good = True
    for i in range(out.key.shape[0]):
        out.key[i] = _turned(np.uint64(words[places[0] + i]) ^ np.uint64(1 << 63))
    for i in range(n):
        if per < 0:
            micros = np.rint(numbers[places[1] + i] * np.float64(-per))
            good &= bool(abs(micros) < _MOST_TIME)  # NaN is not
            out.time[i] = np.int64(micros) if good else 0
        else:
            whole = words[places[1] + i]
            good &= bool(abs(np.float64(whole)) * np.float64(per) < _MOST_TIME)
            out.time[i] = whole * per if good else 0
        for k in range(d):
            out.centre[i, k] = numbers[places[2 + k] + i]
            good &= bool(np.isfinite(out.centre[i, k]))
        for k in range(out.spread.shape[1]):
            out.spread[i, k] = numbers[places[2 + d + k] + i]
            good &= bool(np.isfinite(out.spread[i, k])) and out.spread[i, k] >= 0.0
    return good


class Keys(NamedTuple):
    """Keys of some rows, one after the other: their canonical bytes, and where each begins and ends."""

    offsets: Ints
    data: ByteArray


@exact_kernel
def texts(words: Ints, places: Ints, width: Whole, n: Whole) -> Keys:
    """Keys that are texts, in memory seen as ``words``: offsets of so many bytes at the first place, texts at the last.

    Their bytes stay where they are.
    """
    offsets, data = np.empty(n + 1, np.int64), words.view(np.uint8)
    halves = words.view(np.int32)
    for i in range(n + 1):
        offsets[i] = words[places[0] + i] if width == 8 else np.int64(halves[2 * places[0] + i])
    first, begin = offsets[0], 8 * places[places.shape[0] - 1]
    taken = data[begin + first : begin + offsets[n]]
    for i in range(n + 1):
        offsets[i] -= first
    return Keys(offsets, taken)


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


@exact_kernel
def _put_rows(key: Hashes, time: Ints, per: Whole, at: Whole, then: Whole, words: Ints) -> None:
    """Write the keys and times of one side."""
    numbers = words.view(np.float64)
    for i in range(key.shape[0]):
        words[at + i] = np.int64(_turned(key[i]) ^ np.uint64(1 << 63))
        if per < 0:
            numbers[then + i] = np.float64(time[i]) / np.float64(-per)
        else:
            words[then + i] = time[i] // per


@exact_kernel
def put_pairs(n: Whole, words: Hashes, figures: Floats, per: Whole, places: Ints, message: Ints) -> None:
    """Write ``n`` pairs column by column into memory, from these ``places`` on.

    ``words`` are, of each side, whole numbers of which these are the canonical bytes, and times, in units of ``per``
    microseconds: whole ones, or numbers where ``per`` is negative. Behind them the ``figures``.
    """
    numbers, times = message.view(np.float64), words.view(np.int64)
    for side in range(0, 4, 2):
        _put_rows(words[side, :n], times[side + 1], per, places[side], places[side + 1], message)
    for k in range(2):
        for i in range(n):
            numbers[places[4 + k] + i] = figures[k, i]
