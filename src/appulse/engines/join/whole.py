"""The answers of whole tables as Arrow tables, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.engines.carrying import carried_by, may_repeat
from appulse.engines.join.call import times_of, to_table
from appulse.kernels.cells import Labelled
from appulse.model.room import full, steps
from appulse.model.strings import Bytes, decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.engines.join.call import JoinCall
    from appulse.kernels.arrays import Ints
    from appulse.model.carried import Columns
    from appulse.model.encoding import Encoding
    from appulse.model.objects import Objects
    from appulse.operators.whole import Points, WholeJoin

_BITS = 64


def tables_of(whole: WholeJoin, given: Sequence[Objects], call: JoinCall) -> list[pa.Table]:
    """A table for each part. Of points, keys and times are looked up once a row of those given, not once a pair."""
    behind = any(encoding.behind for encoding in call.encodings)
    if behind and whole.two_sided and not call.imputes and may_repeat(call.encodings):
        carried = _Carried(given).of
        return whole.numbered().answers(lambda answers: to_table(answers, call, carried))
    if not whole.plain or call.imputes or behind:
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


class _Carried:
    """What rows carry, taken apart once a row and part, and not once a pair: answers have places for keys."""

    def __init__(self, given: Sequence[Objects]) -> None:
        self._given = given

    def of(
        self, keys: Bytes, stream: Ints, encodings: Sequence[Encoding], columns: Columns
    ) -> tuple[Bytes, list[pa.Array]]:
        """As `carried_by`, of the rows of one stream at places."""
        number, place = int(stream[0]), keys.data.view(np.int64)
        rows, which = np.unique(place, return_inverse=True)
        own, found = carried_by(self._given[number].key.take(rows), stream[: len(rows)], encodings, columns)
        at = pa.array(which)
        return own.take(which), [column.take(at) for column in found]


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
        self.words: Ints
        if self._plain:
            given = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]
            self.words = np.require(given, requirements="W")
        else:
            self.words = steps(len(column))

    def array_of(self, words: Ints) -> pa.Array:
        """The column of such rows."""
        if not self._plain:
            return self._column.take(pa.array(words))
        return pa.Array.from_buffers(self._column.type, len(words), [None, pa.py_buffer(words)])
