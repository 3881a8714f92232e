"""What a set knows of its queries by slot: columns that grow, and slots by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.errors import BadArgument
from appulse.kernels.strings import hash_rows
from appulse.model.columns import decoded_type
from appulse.model.strings import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import ByteArray, Ints, Ints32

Number = TypeVar("Number", np.int32, np.int64)

#: The bit of a slot's state that says that its query stands.
ALIVE = np.uint8(1)
_RATIO = 4  # runs of hashes are this many times as long as the next, at least, and parts of columns up to a length
_PART = 1 << 16
_LARGE = 1 << 22  # bytes: rows of so many stay a part of their own


def with_newer(
    known: NDArray[Number], given: NDArray[Number] | None, rows: Ints, size: int, free: int
) -> NDArray[Number]:
    """Numbers by slot, up to ``size``, with those of the queries last taken in; none as long as nobody gives any."""
    if given is None and not len(known):
        return known
    own = np.full(len(rows), free, known.dtype) if given is None else given[rows]
    before = np.full(size - len(rows) - len(known), free, known.dtype)
    return np.concatenate([known, before, own])


def plain_key(kind: pa.DataType) -> pa.DataType:
    """The type that keys of queries of some type have in a set."""
    kind = decoded_type(kind)
    return pa.string() if pa.types.is_string_view(kind) else kind


def as_keys(keys: pa.Array, kind: pa.DataType) -> pa.Array:
    """Keys in the type that all have in a set; `BadArgument` where they do not fit."""
    if keys.type == kind:
        return keys
    try:
        return keys.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadArgument(
            f"The keys of these queries are {keys.type}, and those known already {kind}: {error}. Give all in one type."
        ) from None


class GrowingColumn:
    """A column that grows at its end, in parts: no value is copied often, and no part that is long."""

    def __init__(self, kind: pa.DataType) -> None:
        self.parts: list[pa.Array] = [pa.array([], kind)]

    @property
    def nbytes(self) -> int:
        return sum(int(part.nbytes) for part in self.parts)

    def add(self, values: pa.Array) -> None:
        joined, n = [values], len(values)
        while self.parts and len(self.parts[-1]) < min(_RATIO * n, _PART - n):
            joined.append(self.parts.pop())
            n += len(joined[-1])
        self.parts.append(pa.concat_arrays(joined[::-1]))

    def take(self, at: Ints32 | Ints) -> pa.Array:
        ends = np.cumsum([len(part) for part in self.parts])
        of = np.searchsorted(ends, at, side="right")
        order = np.argsort(of, kind="stable")
        found = []
        for i in np.unique(of).tolist():
            mine = order[np.searchsorted(of, i, sorter=order) : np.searchsorted(of, i, side="right", sorter=order)]
            found.append(self.parts[i].take(pa.array(at[mine] - (ends[i] - len(self.parts[i])))))
        if len(found) == 1:
            return found[0]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return pa.concat_arrays([self.parts[0].slice(0, 0), *found]).take(pa.array(back))

    def replace(self, n: int, values: pa.Array) -> None:
        """Have these values in place of the first n."""
        self.parts = [values, *pa.chunked_array(self.parts).slice(n).chunks]


class GrowingTable:
    """Rows that grow at their end, in parts as a `GrowingColumn` has them; columns may be missing in some."""

    def __init__(self, rows: pa.Table) -> None:
        self.parts = [rows]

    def add(self, rows: pa.Table) -> None:
        joined, n, size = [rows], len(rows), rows.nbytes
        while self.parts and len(self.parts[-1]) < min(_RATIO * n, _PART - n) and size < _LARGE:
            joined.append(self.parts.pop())
            n, size = n + len(joined[-1]), size + joined[-1].nbytes
        self.parts.append(_concat(joined[::-1]).combine_chunks())

    def take(self, at: Ints) -> pa.Table:
        return _concat(self.parts).take(pa.array(at))


def _concat(parts: list[pa.Table]) -> pa.Table:
    return pa.concat_tables([one for one in parts if len(one)] or parts[:1], promote_options="permissive")


def taken(columns: Sequence[Sequence[pa.Array]], at: Ints32) -> list[pa.Array]:
    """The values of columns, each in parts, at some places."""
    return [pa.concat_arrays(parts).take(pa.array(at)) for parts in columns]


class SlotsByKey:
    """Keys of queries by slot, and slots by key."""

    def __init__(self, kind: pa.DataType) -> None:
        self.values = GrowingColumn(kind)
        self._runs: list[tuple[NDArray[np.uint32], Ints32]] = []

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes + b.nbytes for a, b in self._runs) + self.values.nbytes

    def add(self, keys: pa.Array, first: int) -> None:
        """Keys of the slots from ``first`` on."""
        self.values.add(keys)
        hashes, slots = _hashes(keys), np.arange(first, first + len(keys), dtype=np.int32)
        while self._runs and len(self._runs[-1][0]) < _RATIO * len(hashes):
            others, theirs = self._runs.pop()
            hashes, slots = np.concatenate([others, hashes]), np.concatenate([theirs, slots])
        order = np.argsort(hashes, kind="stable")
        self._runs.append((hashes[order], slots[order]))

    def renumber(self, keys: pa.Array, size: int, numbers: Ints32) -> None:
        """Have these keys in place of the first ``size``, and the slots by other numbers: of those removed, -1."""
        self.values.replace(size, keys)
        runs = [(hashes, numbers[slots]) for hashes, slots in self._runs]
        self._runs = [(hashes[slots >= 0], slots[slots >= 0]) for hashes, slots in runs]

    def find(self, keys: pa.Array, state: ByteArray) -> Ints:
        """The slots of these keys that are alive, each once."""
        keys = keys.drop_null()
        if not len(keys) or not self._runs:
            return np.empty(0, np.int64)
        hashes = np.unique(_hashes(keys))
        found = []
        for run, slots in self._runs:
            first, last = np.searchsorted(run, hashes), np.searchsorted(run, hashes, side="right")
            count = last - first
            at = np.repeat(first - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
            found.append(slots[at])
        near = np.concatenate(found).astype(np.int64)
        near = near[(state[near] & ALIVE) > 0]
        # A hash may be that of another key, too.
        same = pc.is_in(_plain(self.values.take(near)), value_set=_plain(keys))
        return np.unique(near[np.asarray(same)])

    def slots(self, keys: pa.Array, state: ByteArray) -> Ints:
        """The slot that is alive of each of these keys, the last if there are several; -1: it has none."""
        found = self.find(keys, state)[::-1]
        if not len(found):
            return np.full(len(keys), -1)
        at = pc.index_in(_plain(keys), value_set=_plain(self.values.take(found)), skip_nulls=True)
        place = np.asarray(at.fill_null(-1))
        return np.where(place >= 0, found[place], -1)


def _hashes(keys: pa.Array) -> NDArray[np.uint32]:
    coded = encode(keys)
    hashes = hash_rows(coded.offsets, coded.data, np.zeros(len(keys), np.int64))
    return hashes.astype(np.uint32)  # four bytes a key; whether it is the same key is asked afterwards


def _plain(keys: pa.Array) -> pa.Array:
    """Keys as Arrow can compare them: those made of parts as bytes."""
    return encode(keys).to_arrow() if pa.types.is_nested(keys.type) else keys


def last_of_each(keys: pa.Array) -> Ints:
    """The place of the last occurrence of each key, in order."""
    codes = np.asarray(_plain(keys).dictionary_encode().indices)
    last = np.zeros(int(codes.max()) + 1 if len(codes) else 0, np.int64)
    last[codes] = np.arange(len(codes))
    return np.sort(last)
