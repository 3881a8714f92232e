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
def order_words(given: Ints) -> Hashes:
    """Canonical bytes of whole numbers: big-endian, with the sign flipped."""
    out = np.empty(given.shape[0], np.uint64)
    for i in range(given.shape[0]):
        out[i] = _turned(np.uint64(given[i]) ^ np.uint64(1 << 63))
    return out


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
def put_pairs(
    sides: tuple[tuple[Hashes, Ints], tuple[Hashes, Ints]],
    figures: tuple[Floats, Floats],
    per: Whole,
    places: Ints,
    words: Ints,
    numbers: Floats,
) -> None:
    """Write pairs column by column into memory, seen as ``words`` and as ``numbers``, from these ``places`` on.

    Of each side whole numbers of which these are the canonical bytes, and times in units of ``per`` microseconds: whole
    ones, or numbers where ``per`` is negative. Behind them the figures.
    """
    n = figures[0].shape[0]
    for side in range(2):
        key, time = sides[side]
        at, then = places[2 * side], places[2 * side + 1]
        for i in range(n):
            words[at + i] = np.int64(_turned(key[i]) ^ np.uint64(1 << 63))
            if per < 0:
                numbers[then + i] = np.float64(time[i]) / np.float64(-per)
            else:
                words[then + i] = time[i] // per
    for i in range(n):
        numbers[places[4] + i] = figures[0][i]
        numbers[places[5] + i] = figures[1][i]
