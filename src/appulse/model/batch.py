"""Column batches: how each type of column is cut and joined, stated once, and dataclasses that follow from it."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from appulse.kernels.simd import LANES
from appulse.kernels.strings import are_words, gather_runs, run_ends, take_runs, take_words
from appulse.model.room import room, steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from numpy.typing import NDArray

    from appulse.kernels.arrays import ByteArray, Flags, Ints, Ints32

    Index = Ints | Ints32

Values = TypeVar("Values")
_WORD = 8  # bytes, of which most keys are
#: Metadata of a field that is one value for the whole batch, not a column.
_ONE = "one value"
SHARED = {_ONE: True}


class Batch:
    """Rows as columns: a dataclass whose fields all have the same number of rows.

    A field may be an array (of any trailing shape), a `Ragged`, another `Batch`, an Arrow table or array, a list of
    such columns, or None. At least one column is neither a list nor None. A field with metadata `SHARED` is one value
    for the whole batch.
    """

    __slots__ = ()

    def __len__(self) -> int:
        names = _COLUMNS[type(self)]
        first = getattr(self, names[0])
        if type(first) is np.ndarray:
            return len(first)
        for name in names:
            column = getattr(self, name)
            if column is not None and type(column) is not list:
                return len(column)
        return 0

    @property
    def nbytes(self) -> int:
        """Bytes in the columns."""
        columns = [getattr(self, name) for name in _COLUMNS[type(self)]]
        return sum(_KIND[type(column)].nbytes(column) for column in columns)

    def take(self, index: Index) -> Self:
        """The rows at ``index``, copied in that order."""
        given = [(getattr(self, name), shared) for name, shared in _FIELDS[type(self)]]
        return type(self)(*[v if shared else _KIND[type(v)].take(v, index) for v, shared in given])

    def slice(self, begin: int, end: int) -> Self:
        """Rows ``begin`` to ``end``; arrays are views."""
        given = [(getattr(self, name), shared) for name, shared in _FIELDS[type(self)]]
        return type(self)(*[v if shared else _KIND[type(v)].slice(v, begin, end) for v, shared in given])

    def filter(self, mask: Flags) -> Self:
        """The rows where ``mask`` is true."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """The rows of the parts, one part after the other.

        There is at least one part. Parts without rows are left out, so their types do not matter.
        """
        parts = [part for part in parts if len(part)] or parts[:1]
        if len(parts) == 1:
            return parts[0]
        parts = cls._aligned(parts)
        given = ((name, shared, [getattr(part, name) for part in parts]) for name, shared in _FIELDS[cls])
        return cls(
            *(values[0] if shared else _concat(f"{cls.__name__}.{name}", values) for name, shared, values in given)
        )

    @classmethod
    def _aligned(cls, parts: Sequence[Self]) -> Sequence[Self]:
        """The parts with shared values that are the same in all of them."""
        return parts


@dataclass(frozen=True, slots=True)
class Ragged(Generic[Values]):
    """Any number of values per row: those of row i are ``values[offsets[i]:offsets[i + 1]]``.

    ``values`` is a column as a `Batch` may have it. Offsets begin at 0 and end at its length.
    """

    offsets: Ints
    values: Values

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """Bytes in offsets and values."""
        return self.offsets.nbytes + int(_KIND[type(self.values)].nbytes(self.values))

    @property
    def counts(self) -> Ints:
        """The number of values of each row."""
        return np.diff(self.offsets)

    @property
    def owner(self) -> Ints:
        """The row of each value."""
        return np.repeat(np.arange(len(self)), self.counts)

    def take(self, index: Index) -> Self:
        """The rows at ``index``, copied in that order."""
        values: Any = self.values
        if not isinstance(values, np.ndarray):
            counts = self.counts[index]
            offsets = _offsets(counts)
            at = np.arange(offsets[-1]) + np.repeat(self.offsets[index] - offsets[:-1], counts)
            return type(self)(offsets, _KIND[type(values)].take(values, at))
        taken: Any  # as the values are
        index = np.ascontiguousarray(index, np.int64)
        if values.dtype == np.uint8 and len(values) == _WORD * len(self) and are_words(self.offsets):
            offsets, taken = words_at(values, index)
            return type(self)(offsets, taken)
        if values.ndim == 1:
            offsets, taken = runs_at(self.offsets[:-1], int(self.offsets[-1]), 0, values, index)
            return type(self)(offsets, taken)
        width = int(np.prod(values.shape[1:]))
        first = self.offsets * width
        offsets, taken = runs_at(first[:-1], int(first[-1]), 0, values.reshape(-1), index)
        return type(self)(offsets // width, taken.reshape(-1, *values.shape[1:]))

    def slice(self, begin: int, end: int) -> Self:
        """Rows ``begin`` to ``end``; values are views."""
        offsets = self.offsets[begin : end + 1]
        low, high = int(offsets[0]), int(offsets[-1])
        return type(self)(offsets - low, _KIND[type(self.values)].slice(self.values, low, high))

    def cut(self, begin: Ints, end: Ints) -> Self:
        """A row of each run of values from ``begin`` to ``end``, copied; they are an array of one dimension."""
        values: Any = self.values
        taken: Any  # as the values are
        offsets, taken = gather_runs(begin, end - begin, 0, values, np.arange(len(begin)))
        return type(self)(offsets, taken)

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """The rows of the parts, at least one, one part after the other."""
        ends = np.cumsum([0] + [part.offsets[-1] for part in parts])
        offsets = [part.offsets[:-1] + end for part, end in zip(parts, ends[:-1], strict=True)]
        values = _concat(f"{cls.__name__}.values", [part.values for part in parts])
        return cls(np.concatenate([*offsets, ends[-1:]]).astype(np.int64), values)


def words_at(values: ByteArray, index: Ints) -> tuple[Ints, ByteArray]:
    """Of runs of eight bytes those at ``index``, as (offsets, values)."""
    taken = room(len(index), np.uint64)
    take_words(values.view(np.uint64), index, taken)
    return steps(len(index) + 1, _WORD), taken.view(np.uint8)


def runs_at(begin: Ints, last: int, base: int, values: NDArray[Any], index: Ints) -> tuple[Ints, NDArray[Any]]:
    """Of runs, one after the other, that begin at ``values[begin[i] - base]`` those at ``index``: (offsets, values).

    The last run ends at ``last``.
    """
    offsets = room(len(index) + 1, np.int64)
    total = run_ends(begin, last, index, offsets)
    taken = room(total + LANES, values.dtype)
    take_runs(begin, base, values, index, offsets, taken)
    return offsets, taken[:total]


class _Kind(NamedTuple):
    """What can be done with a type of column."""

    take: Callable[[Any, Index], Any]
    slice: Callable[[Any, int, int], Any]
    concat: Callable[[Sequence[Any]], Any]
    nbytes: Callable[[Any], int]


class _KindOf(dict[type, _Kind]):
    """The kind of each type of column, also of subclasses once they were looked up."""

    def __missing__(self, of: type) -> _Kind:
        for base, kind in _KINDS.items():
            if issubclass(of, base):
                self[of] = kind
                return kind
        raise TypeError(
            f"A batch has a column of {of.__name__}, which cannot be cut or joined. Declare the field with "
            "field(metadata=SHARED) if it is one value for the whole batch, or add its type to appulse.model.batch."
        )


_KIND = _KindOf()


def _concat_tables(parts: Sequence[pa.Table]) -> pa.Table:
    """Tables in one piece; numbers are doubles where one part has doubles."""
    return pa.concat_tables(parts, promote_options="permissive").unify_dictionaries().combine_chunks()


_NBYTES = operator.attrgetter("nbytes")
_KINDS: dict[type, _Kind] = {
    np.ndarray: _Kind(
        lambda v, index: v.take(index, axis=0),  # brackets take ten times as long where a row has several values
        lambda v, begin, end: v[begin:end],
        np.concatenate,
        _NBYTES,
    ),
    NoneType: _Kind(lambda *_: None, lambda *_: None, lambda _: None, lambda _: 0),
    Batch: _Kind(
        lambda v, index: v.take(index),
        lambda v, begin, end: v.slice(begin, end),
        lambda parts: type(parts[0]).concat(parts),
        _NBYTES,
    ),
    pa.Table: _Kind(
        lambda v, index: v.take(pa.array(index)),
        lambda v, begin, end: v.slice(begin, end - begin),
        _concat_tables,
        _NBYTES,
    ),
    list: _Kind(
        lambda v, index: [_KIND[type(one)].take(one, index) for one in v],
        lambda v, begin, end: [_KIND[type(one)].slice(one, begin, end) for one in v],
        lambda parts: [_concat("list", several) for several in zip(*parts, strict=True)],
        lambda v: sum(_KIND[type(one)].nbytes(one) for one in v),
    ),
}
_KINDS[Ragged] = _KINDS[Batch]
_KINDS[pa.Array] = _KINDS[pa.Table]._replace(concat=pa.concat_arrays)


class _FieldsOf(dict[Any, tuple[tuple[str, bool], ...]]):
    """The fields of each class of batches, and whether they are shared."""

    def __missing__(self, of: Any) -> tuple[tuple[str, bool], ...]:
        self[of] = found = tuple((one.name, _ONE in one.metadata) for one in fields(of))
        return found


class _ColumnsOf(dict[Any, tuple[str, ...]]):
    """The fields of each class of batches that are columns."""

    def __missing__(self, of: Any) -> tuple[str, ...]:
        self[of] = found = tuple(name for name, shared in _FIELDS[of] if not shared)
        return found


_FIELDS, _COLUMNS = _FieldsOf(), _ColumnsOf()


def field_names(kind: type[Batch]) -> tuple[str, ...]:
    """The fields of a class of batches."""
    return tuple(name for name, _ in _FIELDS[kind])


def _concat(name: str, columns: Sequence[Any]) -> Any:
    if any((column is None) != (columns[0] is None) for column in columns):
        raise ValueError(f"{name} is missing in some of the batches to be joined: give it in all of them, or in none.")
    return _KIND[type(columns[0])].concat(columns)


def _offsets(counts: Ints) -> Ints:
    """Where runs of these lengths begin, and where the last one ends."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets
