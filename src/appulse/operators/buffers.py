"""Columns that grow at the end and shrink at the front, at amortised constant cost a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.kernels.strings import gather_runs

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


_WORD = 8  # bytes


class Column:
    """A growing array of rows; ``view`` is what is live."""

    __slots__ = ("_begin", "_data", "_end")

    def __init__(self, dtype: DTypeLike, width: int | None = None) -> None:
        shape = (0,) if width is None else (0, width)
        self._data: NDArray[Any] = np.empty(shape, dtype)
        self._begin = self._end = 0

    @classmethod
    def of(cls, rows: NDArray[Any]) -> Column:
        """The rows as they are, not copied; to be read only."""
        column = cls(rows.dtype)
        column._data, column._end = rows, len(rows)
        return column

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def view(self) -> NDArray[Any]:
        """The live rows; valid until the next change."""
        return self._data[self._begin : self._end]

    @property
    def nbytes(self) -> int:
        """Bytes held, live or not."""
        return self._data.nbytes

    def extend(self, rows: NDArray[Any]) -> None:
        """Append rows."""
        self.grow(len(rows))[:] = rows

    def grow(self, n: int) -> NDArray[Any]:
        """Append ``n`` rows to be filled in; their view."""
        if self._end + n > len(self._data):
            live = self._end - self._begin
            # Half of it free after moving: so each row is moved a bounded number of times.
            capacity = max(2 * (live + n), 64)
            data = (
                self._data
                if capacity <= len(self._data)
                else np.empty((capacity, *self._data.shape[1:]), self._data.dtype)
            )
            data[:live] = self._data[self._begin : self._end]
            self._data, self._begin, self._end = data, 0, live
        begin, self._end = self._end, self._end + n
        return self._data[begin : self._end]

    def drop(self, n: int) -> None:
        """Forget the first ``n`` rows, and give memory back once most of it is unused."""
        self._begin += n
        live = self._end - self._begin
        if len(self._data) > 4096 and live * 8 < len(self._data):
            self._data = np.concatenate([self.view, np.empty((live, *self._data.shape[1:]), self._data.dtype)])
            self._begin, self._end = 0, live


class Arena:
    """Runs of values, one per row, in one growing array: samples, weights, key bytes.

    Row i's run is ``values[begin[i] - base : begin[i] - base + length[i]]``: ``begin`` counts from the day the arena
    was made, so dropping rows rewrites nothing.
    """

    __slots__ = ("_begin", "_length", "_values", "base", "words")

    def __init__(self, dtype: DTypeLike) -> None:
        self._values = Column(dtype)
        self._begin = Column(np.int64)
        self._length = Column(np.int64)
        self.base = 0
        self.words = np.dtype(dtype) == np.uint8  # all runs are of eight bytes, as numbers are

    @classmethod
    def of(cls, offsets: NDArray[np.int64], values: NDArray[Any]) -> Arena:
        """The runs ``values[offsets[i]:offsets[i + 1]]`` as they are, not copied; to be read only."""
        arena = cls(values.dtype)
        arena._values, arena._begin = Column.of(values), Column.of(offsets[:-1])
        arena._length = Column.of(np.diff(offsets))
        arena.words = arena.words and arena._all_words(arena.length)
        return arena

    @property
    def values(self) -> NDArray[Any]:
        """All live values."""
        return self._values.view

    @property
    def begin(self) -> NDArray[np.int64]:
        """Where each live row's run begins, ``base`` included."""
        return self._begin.view

    @property
    def length(self) -> NDArray[np.int64]:
        """Length of each live row's run."""
        return self._length.view

    @property
    def nbytes(self) -> int:
        """Bytes held, live or not."""
        return self._values.nbytes + self._begin.nbytes + self._length.nbytes

    def extend(self, offsets: NDArray[np.int64], values: NDArray[Any]) -> None:
        """Append the runs ``values[offsets[i]:offsets[i + 1]]``."""
        self._begin.extend(offsets[:-1] + (self.base + len(self._values) - offsets[0]))
        lengths = np.diff(offsets)
        self.words = self.words and self._all_words(lengths)
        self._length.extend(lengths)
        self._values.extend(values[offsets[0] : offsets[-1]])

    @staticmethod
    def _all_words(lengths: NDArray[np.int64]) -> bool:
        return bool((lengths == _WORD).all())

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The runs of some rows, as (offsets, values)."""
        if self.words:
            return np.arange(len(rows) + 1) * _WORD, self.values.view(np.uint64)[rows].view(np.uint8)
        offsets, values = gather_runs(self.begin, self.length, self.base, self.values, rows)
        return offsets, values

    def drop(self, n: int) -> None:
        """Forget the first ``n`` rows."""
        if n == 0:
            return
        end = int(self._begin.view[n - 1] + self._length.view[n - 1])
        self._values.drop(end - self.base)
        self._begin.drop(n)
        self._length.drop(n)
        self.base = end
