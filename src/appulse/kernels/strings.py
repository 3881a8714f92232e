"""Byte strings in flat arrays: gathering and comparing without Python objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import inlined_kernel, kernel
from appulse.kernels.simd import LANES, move, prefetch, word

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from appulse.kernels.arrays import ByteArray, Flags, Floats, Hashes, Ints, RowPairs, Whole

_SIGN = np.uint64(1 << 63)
# So many names are looked up together; in a table of so many slots or fewer, each by itself.
_AHEAD, _LARGE = 16, 1 << 14
# So many runs ahead of the one at hand are fetched from memory.
_FETCHED = 16
# Of strings that may be the same some words are looked at first; and how many others a string is compared with.
_WORDS, _WORD, _TRIES = 4, 8, 8


@inlined_kernel
def copy_run(values: NDArray[Any], begin: Whole, many: Whole, out: NDArray[Any], to: Whole) -> None:
    """Copy a run. Bytes 16 at a time, and what is too many is written over by the next run, if there is room."""
    if values.itemsize == 1 and begin + many + LANES <= len(values) and to + many + LANES <= len(out):
        for k in range(0, many, LANES):
            move(out, to + k, values, begin + k)
    else:
        for k in range(many):
            out[to + k] = values[begin + k]


@kernel
def run_ends(begin: Ints, last: Whole, index: Ints, out: Ints) -> int:
    """Where the runs at ``index`` begin and end once they stand one after the other; how much there is in all.

    Runs do so where they are: the i-th ends where the next one begins, and the last at ``last``.
    """
    n, m, total = index.shape[0], begin.shape[0] - 1, 0
    out[0] = 0
    for i in range(n):
        if i + _FETCHED < n:
            prefetch(begin, index[i + _FETCHED])
        at = index[i]
        total += (begin[at + 1] if at < m else last) - begin[at]
        out[i + 1] = total
    return int(total)


@kernel
def take_runs(begin: Ints, base: Whole, values: NDArray[Any], index: Ints, ends: Ints, out: NDArray[Any]) -> None:
    """The runs ``values[begin[i] - base :]`` at ``index`` to where `run_ends` has them; with room for 16 bytes more."""
    n = index.shape[0]
    for i in range(n):
        if i + _FETCHED < n:
            prefetch(values, begin[index[i + _FETCHED]] - base)
        copy_run(values, begin[index[i]] - base, ends[i + 1] - ends[i], out, ends[i])


@kernel
def are_words(offsets: Ints) -> bool:
    """Whether all strings are of eight bytes."""
    others = 0
    for i in range(len(offsets) - 1):
        others += offsets[i + 1] - offsets[i] != 8
    return others == 0


@kernel
def to_words(values: Ints, words: Hashes, ends: Ints) -> None:
    """Whole numbers as strings of eight bytes in the same order, and where each begins; in one pass."""
    ends[0] = 0
    for i in range(len(values)):
        words[i] = _turned(np.uint64(values[i]) ^ _SIGN)
        ends[i + 1] = 8 * (i + 1)


@kernel
def from_words(words: Hashes, values: Ints) -> None:
    """The whole numbers that `to_words` made strings of."""
    for i in range(len(values)):
        values[i] = np.int64(_turned(words[i]) ^ _SIGN)


@inlined_kernel
def _turned(word: np.uint64) -> np.uint64:
    """The bytes of a word in reverse; LLVM makes one instruction of it."""
    low, high = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
    word = ((word & low) << np.uint64(8)) | ((word >> np.uint64(8)) & low)
    word = ((word & high) << np.uint64(16)) | ((word >> np.uint64(16)) & high)
    return (word << np.uint64(32)) | (word >> np.uint64(32))


@kernel
def take_words(words: Hashes, index: Ints, out: Hashes) -> None:
    """Strings of eight bytes at ``index``, as numbers: one move each, and no look at offsets."""
    for i in range(len(index)):
        out[i] = words[index[i]]


@kernel
def gather_runs(begin: Ints, length: Ints, base: int, data: NDArray[Any], index: Ints) -> tuple[Ints, NDArray[Any]]:
    """The runs ``data[begin[i] - base :][: length[i]]`` at ``index``, as (offsets, data)."""
    n = index.shape[0]
    offsets = np.empty(n + 1, np.int64)
    offsets[0] = 0
    for i in range(n):
        offsets[i + 1] = offsets[i] + length[index[i]]
    out = np.empty(offsets[n] + LANES, data.dtype)
    for i in range(n):
        copy_run(data, begin[index[i]] - base, offsets[i + 1] - offsets[i], out, offsets[i])
    return offsets, out[: offsets[n]]


@kernel
def lay_runs(begin: Ints, length: Ints, data: ByteArray, at: Ints, out: ByteArray) -> None:
    """The runs ``data[begin[i] :][: length[i]]`` to the places ``at``, which go on behind them."""
    for i in range(len(at)):
        for k in range(length[i]):
            out[at[i] + k] = data[begin[i] + k]
        at[i] += length[i]


@kernel
def parts_of(begin: Ints, data: ByteArray, starts: NDArray[np.int64], marks: NDArray[np.int64]) -> None:
    """Where the parts of each row start, which are one behind the other: a mark of four bytes before each.

    The highest byte of a mark is the first. A mark of 0 is no part, any other one more than the bytes of the part.
    """
    parts, n = marks.shape
    for i in range(n):
        at = begin[i]
        for k in range(parts):
            mark = 0
            for b in range(4):
                mark = mark << 8 | int(data[at + b])
            starts[k, i], marks[k, i] = at + 4, mark
            at += 4 + max(mark - 1, 0)


@kernel
def hash_rows(offsets: Ints, data: ByteArray, extra: Ints) -> Hashes:
    """A 64-bit hash of each byte string and its number in ``extra`` (FNV-1a, then a final mix)."""
    n = offsets.shape[0] - 1
    out = np.empty(n, np.uint64)
    for i in range(n):
        h = np.uint64(0xCBF29CE484222325)
        for k in range(offsets[i], offsets[i + 1]):
            h = (h ^ np.uint64(data[k])) * np.uint64(0x100000001B3)
        h ^= np.uint64(extra[i])
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        out[i] = h ^ (h >> np.uint64(33))
    return out


@kernel
def first_of_same(offsets: Ints, data: ByteArray, table: Ints, first: Ints, which: Ints, most: float) -> int:
    """The first string of each kind, and which of these each string is the same as; how many there are.

    -1 if they are more than ``most`` of all strings, or look so after some. ``table``, a power of two of slots of -1,
    is room. A string that meets many others is taken for a new one: strings that are the same may come twice.
    """
    n, many, mask = len(offsets) - 1, 0, len(table) - 1
    hashes = np.empty(n, np.uint64)
    for i in range(n):
        if i & (_LARGE >> 2) - 1 == 0 and many > most * i:
            return -1
        h = _look_of(offsets, data, i)
        slot, found = np.int64(h >> np.uint64(1)) & mask, -1
        for _ in range(_TRIES):
            other = table[slot]
            if other < 0:
                table[slot] = many
                break
            if hashes[other] == h and _are_same(offsets, data, first[other], i):
                found = other
                break
            slot = (slot + 1) & mask
        if found < 0:
            found, hashes[many], first[many] = many, h, i
            many += 1
        which[i] = found
    return -1 if many > most * n else many


@inlined_kernel
def _look_of(offsets: Ints, data: ByteArray, i: Whole) -> np.uint64:
    """A hash of a string's length and some of its bytes."""
    begin, size = offsets[i], offsets[i + 1] - offsets[i]
    h = np.uint64(0xCBF29CE484222325) ^ np.uint64(size)
    if size < _WORD:
        for k in range(begin, begin + size):
            h = (h ^ np.uint64(data[k])) * np.uint64(0x100000001B3)
    else:
        for k in range(_WORDS):
            h = (h ^ word(data, begin + (size - _WORD) * k // (_WORDS - 1))) * np.uint64(0xFF51AFD7ED558CCD)
            h ^= h >> np.uint64(33)
    return h ^ (h >> np.uint64(33))


@inlined_kernel
def _are_same(offsets: Ints, data: ByteArray, i: Whole, j: Whole) -> bool:
    """Whether two strings have the same bytes."""
    a, b, size = offsets[i], offsets[j], offsets[i + 1] - offsets[i]
    if offsets[j + 1] - b != size:
        return False
    differ = np.uint64(0)
    for k in range(0, size - _WORD + 1, _WORD):
        differ |= word(data, a + k) ^ word(data, b + k)
    for k in range(size - size % _WORD, size):
        differ |= np.uint64(data[a + k] ^ data[b + k])
    return bool(differ == 0)


@kernel
def digest_words(words: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """A digest of 128 bits of each row of words: two hashes that mix in different ways."""
    for i in range(len(words)):
        a, b = np.uint64(0xCBF29CE484222325), np.uint64(0x9E3779B97F4A7C15)
        for k in range(words.shape[1]):
            a = (a ^ words[i, k]) * np.uint64(0xFF51AFD7ED558CCD)
            a ^= a >> np.uint64(33)
            b = (b + words[i, k]) * np.uint64(0xC4CEB9FE1A85EC53)
            b ^= b >> np.uint64(29)
        out[i, 0], out[i, 1] = a * np.uint64(0xC4CEB9FE1A85EC53), b * np.uint64(0xFF51AFD7ED558CCD)


class Runs(NamedTuple):
    """Runs of values, one a row: ``values[begin[i] - base :][: length[i]]``."""

    values: NDArray[Any]
    begin: Ints
    length: Ints
    base: int


class Ordered(NamedTuple):
    """What rows of equal time are put in order by."""

    key: Runs
    centre: Floats
    samples: Runs


@kernel
def _compare(one: Runs, a: Whole, other: Runs, b: Whole) -> int:
    left, at, n = one.values, one.begin[a] - one.base, one.length[a]
    right, to, m = other.values, other.begin[b] - other.base, other.length[b]
    for k in range(min(n, m)):
        if left[at + k] != right[to + k]:
            return -1 if left[at + k] < right[to + k] else 1
    return int(n > m) - int(n < m)


@kernel
def sorts_after(pairs: RowPairs, keys: RowPairs, one: Ordered, other: Ordered) -> Flags:
    """Whether row ``left[i]`` sorts after row ``right[i]``: by key bytes, then by centre, then by samples.

    The keys of both are those of ``keys``.
    """
    out = np.zeros(pairs.left.shape[0], np.bool_)
    for i in range(pairs.left.shape[0]):
        a = pairs.left[i]
        b = pairs.right[i]
        order = _compare(one.key, keys.left[i], other.key, keys.right[i])
        for k in range(one.centre.shape[1]):
            if order == 0 and one.centre[a, k] != other.centre[b, k]:
                order = -1 if one.centre[a, k] < other.centre[b, k] else 1
        if order == 0 and one.samples.begin.shape[0] > 0:
            order = _compare(one.samples, a, other.samples, b)
        out[i] = order > 0
    return out


class KnownNames(NamedTuple):
    """Names by number: that of number k is ``data[offsets[k]:offsets[k + 1]]``; there is room for more.

    ``table`` holds numbers by hash, -1 where there is none.
    """

    table: NDArray[Any]
    hashes: Hashes
    offsets: Ints
    data: ByteArray


@kernel
def number_names(
    offsets: Ints, data: ByteArray, begin: int, names: KnownNames, many: int, out: Ints
) -> tuple[int, int]:
    """The number of each byte string from ``begin`` on; new ones get the next, and are put down.

    Returns how many are known, and where it came to, short of the end without room.
    """
    table, hashes, known_offsets, known = names
    mask = len(table) - 1
    hashed = np.empty(_AHEAD, np.uint64)
    for i in range(begin, len(offsets) - 1):
        if (i - begin) % _AHEAD == 0:
            _look_ahead(offsets, data, i, names, hashed)
        low, high, h = offsets[i], offsets[i + 1], hashed[(i - begin) % _AHEAD]
        slot = np.int64(h >> np.uint64(1)) & mask
        while table[slot] >= 0:
            number = table[slot]
            at = known_offsets[number]
            if hashes[number] == h and known_offsets[number + 1] - at == high - low:
                k = 0
                while k < high - low and known[at + k] == data[low + k]:
                    k += 1
                if k == high - low:
                    break
            slot = (slot + 1) & mask
        if table[slot] < 0:
            at = known_offsets[many]
            if 2 * many >= len(table) or many == len(hashes) or at + high - low > len(known):
                return many, i
            for k in range(high - low):
                known[at + k] = data[low + k]
            known_offsets[many + 1] = at + high - low
            hashes[many], table[slot] = h, many
            many += 1
        out[i] = table[slot]
    return many, len(offsets) - 1


@kernel
def _look_ahead(offsets: Ints, data: ByteArray, begin: int, names: KnownNames, hashed: Hashes) -> None:
    """The hashes of the next strings. What they will be compared with is fetched for all at once.

    In a large table to follow one string from array to array is to wait for the memory four times.
    """
    table, hashes, known_offsets, known = names
    mask, large = len(table) - 1, len(table) > _LARGE
    end = min(begin + _AHEAD, len(offsets) - 1)
    for i in range(begin, end):
        h = np.uint64(0xCBF29CE484222325)
        for k in range(offsets[i], offsets[i + 1]):
            h = (h ^ np.uint64(data[k])) * np.uint64(0x100000001B3)
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(33)
        hashed[i - begin] = h
        if large:
            prefetch(table, np.int64(h >> np.uint64(1)) & mask)
    if not large:
        return
    for i in range(end - begin):
        number = np.int64(table[np.int64(hashed[i] >> np.uint64(1)) & mask])
        if number >= 0:
            prefetch(hashes, number)
            prefetch(known_offsets, number)
    for i in range(end - begin):
        number = np.int64(table[np.int64(hashed[i] >> np.uint64(1)) & mask])
        if number >= 0:
            prefetch(known, known_offsets[number])


@kernel
def refill_names(table: NDArray[Any], hashes: Hashes, many: int) -> None:
    """Put the numbers from 1 on into an empty table."""
    mask = len(table) - 1
    for number in range(1, many):
        slot = np.int64(hashes[number] >> np.uint64(1)) & mask
        while table[slot] >= 0:
            slot = (slot + 1) & mask
        table[slot] = number
