"""Columns that grow at the end and shrink at the front, at amortised constant cost a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.kernels.strings import are_words
from appulse.model.batch import runs_at, words_at
from appulse.model.room import room, steps

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from appulse.kernels.arrays import Ints


_WORD = 8  # bytes
_MANY = 1 << 16  # rows


class Rows:
    """Which rows of some columns are live: columns of the same rows grow and shrink together."""

    __slots__ = ("begin", "columns", "end", "room")

    def __init__(self, n: int = 0) -> None:
        self.columns: list[Column] = []
        self.begin, self.end, self.room = 0, n, n

    def __len__(self) -> int:
        return self.end - self.begin

    def grow(self, n: int) -> slice:
        """Append ``n`` rows to be filled in; where they are in the ``data`` of each column."""
        self.reserve(n)
        begin, self.end = self.end, self.end + n
        return slice(begin, self.end)

    def reserve(self, n: int) -> None:
        """Have room for ``n`` rows more."""
        if self.end + n > self.room:
            # Some of it free after moving, so that a row is moved a few times; of many rows less, to save memory.
            needed = len(self) + n
            self._move(max(needed + needed // (4 if needed > _MANY else 1), 64, self.room))

    def drop(self, n: int) -> None:
        """Forget the first ``n`` rows, and give memory back once most of it is unused."""
        self.begin += n
        if self.room > 4096 and len(self) * 8 < self.room:
            self._move(2 * len(self))

    def keep(self, rows: Ints) -> None:
        """Forget all but these."""
        for column in self.columns:
            column.data[: len(rows)] = column.view[rows]
        self.begin, self.end = 0, len(rows)
        self.drop(0)

    def _move(self, room: int) -> None:
        for column in self.columns:
            live, given = column.view, column.data
            column.data = given if room == self.room else np.empty((room, *given.shape[1:]), given.dtype)
            column.data[: len(self)] = live
        self.begin, self.end, self.room = 0, len(self), room


class Column:
    """An array of growing rows, its own or those it shares with other columns; ``view`` is what is live."""

    __slots__ = ("data", "rows")

    def __init__(self, dtype: DTypeLike, width: int | None = None, rows: Rows | None = None) -> None:
        self.rows = Rows() if rows is None else rows
        self.rows.columns.append(self)
        self.data: NDArray[Any] = np.empty((self.rows.room,) if width is None else (self.rows.room, width), dtype)

    @classmethod
    def of(cls, rows: NDArray[Any]) -> Column:
        """The rows as they are, not copied; to be read only."""
        column = cls(rows.dtype)
        column.data, column.rows = rows, Rows(len(rows))
        return column

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def view(self) -> NDArray[Any]:
        """The live rows; valid until the next change."""
        return self.data[self.rows.begin : self.rows.end]

    @property
    def nbytes(self) -> int:
        """Bytes held, live or not."""
        return self.data.nbytes

    def extend(self, rows: NDArray[Any]) -> None:
        """Append rows."""
        self.grow(len(rows))[:] = rows

    def grow(self, n: int) -> NDArray[Any]:
        """Append ``n`` rows to be filled in; their view."""
        new = self.rows.grow(n)
        return self.data[new]

    def drop(self, n: int) -> None:
        """Forget the first ``n`` rows."""
        self.rows.drop(n)


class Arena:
    """Runs of values, one per row, in one growing array: samples, weights, key bytes.

    Row i's run is ``values[begin[i] - base : begin[i] - base + length[i]]``: ``begin`` counts from the day the arena
    was made, so dropping rows rewrites nothing.
    """

    __slots__ = ("_begin", "_length", "_place", "_values", "base", "words")

    def __init__(self, dtype: DTypeLike) -> None:
        self._values = Column(dtype)
        self._begin = Column(np.int64)
        self._length = Column(np.int64, rows=self._begin.rows)
        self._place: Ints | None = None  # where the run of each row is, if rows were moved without theirs
        self.base = 0
        self.words = np.dtype(dtype) == np.uint8  # all runs are of eight bytes, as numbers are

    @classmethod
    def of(cls, offsets: Ints, values: NDArray[Any], place: Ints | None = None) -> Arena:
        """The runs ``values[offsets[i]:offsets[i + 1]]`` as they are, not copied; to be read only.

        Row i's run is the ``place[i]``-th; without it, the i-th.
        """
        arena = cls(values.dtype)
        arena._values, arena._begin = Column.of(values), Column.of(offsets[:-1])
        arena.words = arena.words and are_words(offsets)
        arena._length = Column.of(_as_words(len(offsets) - 1) if arena.words else _lengths(offsets))
        arena._place = place
        return arena

    def all(self) -> tuple[Ints, NDArray[Any]]:
        """The runs of all live rows, as (offsets, values)."""
        if self._place is not None:
            return self._taken(self._place)
        values = self.values  # in the order of the rows, from the first live one on
        if self.words:
            return np.arange(len(self) + 1) * _WORD, values
        return np.append(self.begin - self.base, len(values)), values

    @property
    def places(self) -> Ints:
        """Where the run of each row is among all, of runs that are read only."""
        return steps(len(self)) if self._place is None else np.ascontiguousarray(self._place)

    def settled(self) -> Arena:
        """The same runs in the order of the rows."""
        return self if self._place is None else Arena.of(*self._taken(self._place))

    def __len__(self) -> int:
        return len(self._begin.rows)

    @property
    def values(self) -> NDArray[Any]:
        """All live values."""
        return self._values.view

    @property
    def begin(self) -> Ints:
        """Where each live row's run begins, ``base`` included; of rows that were moved without theirs, see `where`."""
        return self._begin.view

    @property
    def length(self) -> Ints:
        """Length of each live row's run; of rows that were moved without theirs, see `where`."""
        return np.ascontiguousarray(self._length.view)

    @property
    def nbytes(self) -> int:
        """Bytes held, live or not."""
        return self._values.nbytes + self._begin.nbytes + self._length.nbytes

    def extend(self, offsets: Ints, values: NDArray[Any]) -> None:
        """Append the runs ``values[offsets[i]:offsets[i + 1]]``."""
        new, lengths = self._begin.rows.grow(len(offsets) - 1), offsets[1:] - offsets[:-1]
        self._begin.data[new] = offsets[:-1] + (self.base + len(self._values) - offsets[0])
        self._length.data[new] = lengths
        self.words = self.words and are_words(offsets)
        self._values.extend(values[offsets[0] : offsets[-1]])

    def reserve(self, n: int, size: int) -> None:
        """Have room for ``n`` runs more, of so many values in all."""
        self._begin.rows.reserve(n)
        self._values.rows.reserve(size)

    @property
    def stand(self) -> tuple[int, int, int, int]:
        """Where the runs end, where live values begin and end, and where counting began: within the ``arrays``."""
        values = self._values.rows
        return self._begin.rows.end, values.begin, values.end, self.base

    @property
    def arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """What there is of begins, lengths and values, live or not."""
        return self._begin.data, self._length.data, self._values.data

    def took(self, n: int, size: int, *, words: bool) -> None:
        """``n`` runs have been put behind the others, into the room that was reserved for them."""
        self._begin.rows.grow(n)
        self._values.rows.grow(size)
        self.words = self.words and words

    def take(self, rows: Ints) -> tuple[Ints, NDArray[Any]]:
        """The runs of some rows, as (offsets, values)."""
        return self._taken(self.where(rows))

    def where(self, rows: Ints) -> Ints:
        """Where ``begin`` and ``length`` have the runs of some rows."""
        return rows if self._place is None else self._place[rows]

    def _taken(self, rows: Ints) -> tuple[Ints, NDArray[Any]]:
        if self.words:
            return words_at(self.values, rows)
        values = self.values
        return runs_at(self.begin, self.base + len(values), self.base, values, rows)

    def drop(self, n: int) -> None:
        """Forget the first ``n`` rows."""
        if n == 0:
            return
        words = self.base + n * _WORD
        end = words if self.words else int(self._begin.view[n - 1] + self._length.view[n - 1])
        self._values.drop(end - self.base)
        self._begin.drop(n)
        self.base = end


def _as_words(n: int) -> Ints:
    """The lengths of ``n`` words, which take no memory until they are asked for."""
    return np.broadcast_to(np.array(_WORD, np.int64), (n,))


def _lengths(offsets: Ints) -> Ints:
    """The lengths of runs."""
    found: Ints = np.subtract(offsets[1:], offsets[:-1], out=room(len(offsets) - 1, np.int64))
    return found
