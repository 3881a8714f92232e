"""What travels with rows: packed behind their keys, which go wherever a row goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.kernels.strings import lay_runs, parts_of
from appulse.model.strings import Bytes, decode, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import ByteArray, Floats, Ints

#: Columns by name, with their types.
Columns = tuple[tuple[str, pa.DataType], ...]
_LENGTH = 4  # bytes of a length


def with_tail(keys: Bytes, centre: Floats, tail: Bytes) -> Bytes:
    """Keys with a tail behind each.

    The order is still by key, then by mean, which is how rows of one time are numbered: a zero byte, lower than any of
    a longer key of text, and the means (n, d) come before the tail.
    """
    n, d = centre.shape
    order = np.zeros((n, 1 + 8 * d), np.uint8)
    order[:, 1:] = encode(pa.array(np.ascontiguousarray(centre).reshape(-1))).data.reshape(n, 8 * d)
    return _joined([keys, Bytes.fixed(order), tail])


def split_tail(keys: Bytes, d: Ints | int, length: Ints | int) -> tuple[Bytes, Bytes]:
    """What `with_tail` put together: the keys as they were, and tails of such a length."""
    begin, end = keys.offsets[:-1], keys.offsets[1:]
    return keys.cut(begin, end - length - (1 + 8 * d)), keys.cut(end - length, end)


def with_carried(keys: Bytes, centre: Floats, carried: Sequence[pa.Array]) -> Bytes:
    """Keys with the values of some columns behind each."""
    n, d = centre.shape
    rows = _joined([part for column in carried for part in _parts(column)])
    sizes = np.hstack([_big_endian(rows.counts), _big_endian(np.full(n, d))])
    return with_tail(keys, centre, _joined([rows, Bytes.fixed(sizes)]))


def split_carried(keys: Bytes) -> tuple[Bytes, Bytes]:
    """What `with_carried` put together: the keys as they were, and rows for `carried_columns`."""
    end = keys.offsets[1:]
    length, d = _lengths(keys, end - 2 * _LENGTH), _lengths(keys, end - _LENGTH)
    own, tail = split_tail(keys, d, length + 2 * _LENGTH)
    return own, tail.cut(tail.offsets[:-1], tail.offsets[1:] - 2 * _LENGTH)


def carried_columns(rows: Bytes, kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """The columns that are packed in rows."""
    starts, marks = np.empty((2, len(kinds), len(rows)), np.int64)
    parts_of(rows.offsets[:-1], rows.data, starts, marks)
    columns = []
    for kind, start, marked in zip(kinds, starts, marks, strict=True):
        there = np.flatnonzero(marked)
        values = decode(rows.cut(start[there], start[there] + marked[there] - 1), kind)
        if len(there) < len(rows):
            place = np.cumsum(marked > 0) - 1
            values = values.take(pa.array(place, mask=marked == 0))
        columns.append(values)
    return columns


def _parts(column: pa.Array) -> list[Bytes]:
    """For each value its length, 0 for null and else one more, and its bytes."""
    values = encode(column.drop_null(), signed_zero=True)
    there = np.asarray(column.is_valid())
    lengths = np.zeros(len(column), np.int64)
    lengths[there] = values.counts
    offsets = np.zeros(len(column) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return [Bytes.fixed(_big_endian(lengths + there)), Bytes(offsets, values.data)]


def _big_endian(numbers: Ints) -> ByteArray:
    return numbers.astype(">u4").view(np.uint8).reshape(len(numbers), _LENGTH)


def _lengths(strings: Bytes, at: Ints) -> Ints:
    """The lengths that are written at these places."""
    found = strings.data[at[:, None] + np.arange(_LENGTH)]
    return np.ascontiguousarray(found).view(">u4").reshape(len(at)).astype(np.int64)


def _joined(columns: Sequence[Bytes]) -> Bytes:
    """The strings of several columns, one behind the other, row by row."""
    counts = [column.counts for column in columns]
    offsets = np.zeros(len(columns[0]) + 1, np.int64)
    np.cumsum(np.sum(counts, axis=0), out=offsets[1:])
    data, at = np.empty(int(offsets[-1]), np.uint8), offsets[:-1].copy()
    for column, count in zip(columns, counts, strict=True):
        lay_runs(column.offsets[:-1], count, column.data, at, data)
    return Bytes(offsets, data)
