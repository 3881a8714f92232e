"""Columns that travel with rows: what streams carry, and what becomes of it in answers."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.engines.schemas import column_type
from appulse.errors import BadArgument
from appulse.model.carried import carried_columns, split_carried
from appulse.model.columns import plain_type
from appulse.model.strings import distinct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from appulse.kernels.arrays import Ints
    from appulse.model.carried import Columns
    from appulse.model.encoding import Encoding
    from appulse.model.stream import Stream
    from appulse.model.strings import Bytes

    CarriedBy = Callable[[Bytes, Ints, Sequence[Encoding], Columns], tuple[Bytes, list[pa.Array]]]

# So many answers may have rows again and again; where no more than this share of them are distinct, it pays.
_MANY, _OFTEN = 256, 0.7


def carried_of(stream: Stream, schema: pa.Schema, name: str) -> Columns:
    """The columns that a stream carries, with their types."""
    for column in stream.carry:
        if list(stream.carry).count(column) > 1:
            raise BadArgument(f"Stream {name!r}: carry= names {column!r} more than once. Name it once.")
    return tuple((column, plain_type(column_type(schema, column, name))) for column in stream.carry)


def of_side(encodings: Sequence[Encoding]) -> Columns:
    """What rows on one side of pairs carry, as columns of the answers: each name once, null where a row has none."""
    known: dict[str, pa.DataType] = {}
    for encoding in encodings:
        for name, kind in encoding.carry:
            if pa.types.is_null(known.setdefault(name, kind)):
                known[name] = kind
            elif kind not in (known[name], pa.null()):
                raise BadArgument(
                    f"carry= names {name!r}, which is {kind} in stream {encoding.name!r} and {known[name]} in another "
                    "that may be on the same side of a pair. Cast one of them, or rename it."
                )
    return tuple(known.items())


def refuse_repeated(answers: pa.Schema) -> None:
    """Raise `BadArgument` where a column of the rows has the name of another column of the answers."""
    for name in answers.names:
        if answers.names.count(name) > 1:
            raise BadArgument(
                f"The answers would have two columns {name!r}: one is of the rows, by carry= or partition_by=. Rename "
                "that column before the call."
            )


def refuse_carry(streams: Iterable[Stream], call: str, reason: str) -> None:
    """Raise `BadArgument` where streams carry columns and answers have no row to take them from."""
    for stream in streams:
        if stream.carry:
            raise BadArgument(f"{call}() has no use for Stream(carry={list(stream.carry)!r}): {reason}. Leave it out.")


def carried_by(
    keys: Bytes, stream: Ints, encodings: Sequence[Encoding], columns: Columns
) -> tuple[Bytes, list[pa.Array]]:
    """Of the rows of answers on one side, by their keys as carried: the keys, and ``columns``.

    ``stream`` says which of the ``encodings`` each row is of.
    """
    used = np.unique(stream).tolist() or [0]
    if len(used) == 1:
        return _of_stream(keys, encodings[used[0]], columns)
    places = [np.flatnonzero(stream == i) for i in used]
    parts = [_of_stream(keys.take(at), encodings[i], columns) for i, at in zip(used, places, strict=True)]
    order = np.argsort(np.concatenate(places), kind="stable")
    own = type(keys).concat([own for own, _ in parts]).take(order)
    sides = zip(*(found for _, found in parts), strict=True)
    return own, [pa.concat_arrays(side).take(pa.array(order)) for side in sides]


def may_repeat(encodings: Iterable[Encoding]) -> bool:
    """Whether what rows carry can be taken again by place: Arrow does not do so for some types."""
    return all(_is_taken(kind) for encoding in encodings for _, kind in encoding.carry)


@lru_cache
def _is_taken(kind: pa.DataType) -> bool:
    try:
        pa.array([], kind).take(pa.array([], pa.int64()))
    except pa.ArrowNotImplementedError:
        return False
    return True


def _of_stream(keys: Bytes, encoding: Encoding, columns: Columns) -> tuple[Bytes, list[pa.Array]]:
    """Rows are in many answers, often: each is taken apart once, and its values by place."""
    if encoding.behind and len(keys) >= _MANY and may_repeat([encoding]):
        first, which = distinct(keys, _OFTEN)
        if len(first) < len(keys):
            own, found = _taken_apart(keys.take(first), encoding, columns)
            at = pa.array(which)
            return own.take(which), [column.take(at) for column in found]
    return _taken_apart(keys, encoding, columns)


def _taken_apart(keys: Bytes, encoding: Encoding, columns: Columns) -> tuple[Bytes, list[pa.Array]]:
    found: dict[str, pa.Array] = {}
    if encoding.behind:
        keys, packed = split_carried(keys)
        names, kinds = zip(*encoding.behind, strict=True)
        found = dict(zip(names, carried_columns(packed, kinds), strict=True))
    return keys, [_of_type(found.get(name), kind, len(keys)) for name, kind in columns]


def _of_type(column: pa.Array | None, kind: pa.DataType, n: int) -> pa.Array:
    """The column; nulls where there is none, or it has had no value yet and so no type."""
    return pa.nulls(n, kind) if column is None or column.type != kind else column
