"""Rows as queries read them: columns by name, as keys along axes and as values, each made once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.queries.columns import Values, values_of
from appulse.queries.index import MOST, NULL
from appulse.queries.keys import double_keys, keys_of, order_of, ordered_columns
from appulse.queries.places import PLACE_X, PLACE_Y

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from appulse.kernels.arrays import Floats, Ints, Ints32
    from appulse.queries.keys import Range

#: The axis of a row's own time.
TIME = "\0time"


class Rows:
    """Rows of one lane, with their own time, and their place (n, 2) where they have one."""

    lane = 0

    def __init__(self, columns: Mapping[str, pa.Array], time: Ints | None = None, place: Floats | None = None) -> None:
        self._columns = columns
        self._values: dict[str, Values] = {}
        self._keys: dict[str, Ints] = {} if time is None else {TIME: time}
        self._place = place

    def along(self, axis: str) -> Ints:
        """Where every row is along an axis: a column, or the order of two."""
        pair = ordered_columns(axis)
        return self.keys(axis) if pair is None else order_of(*map(self.whole, pair))

    def keys(self, name: str) -> Ints:
        """The key of every row."""
        if name not in self._keys and name in (PLACE_X, PLACE_Y):
            self._keys[name] = double_keys(self.place[:, (PLACE_X, PLACE_Y).index(name)])
        elif name not in self._keys:
            self._keys[name] = keys_of(self._columns[name])
        return self._keys[name]

    def whole(self, name: str) -> Values:
        """The value of every row."""
        if name not in self._values:
            self._values[name] = values_of(self._columns[name])
        return self._values[name]

    def values(self, name: str, rows: Ints32) -> Values:
        """The values of some rows."""
        return self.whole(name).take(rows)

    @property
    def place(self) -> Floats:
        """Where every row is."""
        assert self._place is not None  # noqa: S101 - sets have regions only where rows have places
        return self._place

    def window(self, axis: str) -> Range:
        """The least and the most that every row may be along an axis."""
        keys = self.along(axis)
        return keys, keys


class WideRows(Rows):
    """Rows with normal errors: along some axes they are from here to there, by ``wide``."""

    def __init__(self, columns: Mapping[str, pa.Array], time: Ints, wide: Mapping[str, tuple[Floats, Floats]]) -> None:
        super().__init__(columns, time)
        self._wide = {name: (double_keys(low), double_keys(high)) for name, (low, high) in wide.items()}
        self._n = len(time)

    def window(self, axis: str) -> Range:
        """The least and the most that every row may be along an axis; anything along the order of what is wide."""
        if axis in self._wide:
            return self._wide[axis]
        if set(ordered_columns(axis) or ()) & set(self._wide):
            return np.full(self._n, NULL), np.full(self._n, MOST)
        return super().window(axis)


def each_once(rows: Ints32, slots: Ints32, several: Ints) -> tuple[Ints32, Ints32]:
    """The pairs, each once; only those at ``several`` may come twice."""
    pairs = rows[several].astype(np.int64) << 32 | slots[several]
    once = several[np.unique(pairs, return_index=True)[1]]
    stays = np.ones(len(rows), bool)
    stays[several] = False
    stays[once] = True
    return rows[stays], slots[stays]
