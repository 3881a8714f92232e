"""The answers of whole tables as Arrow tables, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.engines.join.call import times_of, to_table
from appulse.kernels.cells import Labelled
from appulse.model.room import full, steps
from appulse.model.strings import Bytes, decode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.engines.join.call import JoinCall
    from appulse.operators.whole import Points, WholeJoin

_BITS = 64


def tables_of(whole: WholeJoin, call: JoinCall) -> list[pa.Table]:
    """A table for each part. Of points, keys and times are looked up once a row, and not once a pair."""
    if not whole.plain or call.imputes or any(encoding.behind for encoding in call.encodings):
        return whole.answers(lambda answers: to_table(answers, call))
    columns = (
        lambda _, store: _Words(decode(Bytes(*store.key.all()), call.key_type)),
        lambda i, store: _Words(times_of(store.time.view, full(len(store), i), call)),
    )
    keys, times = whole.of_stores(columns)
    same = _Repeated()
    labels = [Labelled(key.words, time.words) for key, time in zip(keys, times, strict=True)]

    def table(found: Points) -> pa.Table:
        n, made = len(found.columns.distance), found.columns
        sides = [
            [same.of(call.names[i], n), keys[i].array_of(key), times[i].array_of(time)]
            for i, key, time in (
                (found.left, made.left_key, made.left_time),
                (found.right, made.right_key, made.right_time),
            )
        ]
        figures = [pa.array(made.distance), same.of(pa.scalar(found.probability), n)]
        return pa.Table.from_arrays([*sides[0], *sides[1], *figures], schema=call.answer_schema)

    return whole.points(labels, table)


class _Repeated:
    """Columns of one value each, which all parts share."""

    def __init__(self) -> None:
        self._columns: dict[pa.Scalar, pa.Array] = {}

    def of(self, value: pa.Scalar, n: int) -> pa.Array:
        """So many rows of a value."""
        column = self._columns.get(value)
        if column is None or len(column) < n:
            self._columns[value] = column = pa.repeat(value, 2 * n)
        return column.slice(0, n)


class _Words:
    """A column as eight bytes a row: its values, where they are of that size, else their places."""

    def __init__(self, column: pa.Array) -> None:
        self._column, kind = column, column.type
        self._plain = pa.types.is_primitive(kind) and kind.bit_width == _BITS
        self.words: NDArray[np.int64]
        if self._plain:
            given = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]
            self.words = np.require(given, requirements="W")
        else:
            self.words = steps(len(column))

    def array_of(self, words: NDArray[np.int64]) -> pa.Array:
        """The column of such rows."""
        if not self._plain:
            return self._column.take(pa.array(words))
        return pa.Array.from_buffers(self._column.type, len(words), [None, pa.py_buffer(words)])
