"""Windows on a line: as sorted runs of their samples, for Sort-Match, or as columns of them, to be scanned."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels import sort_match as kernels
from appulse.kernels.one_dimension import LineColumns, fill_columns
from appulse.operators.cost import spread

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats
    from appulse.operators.store import WindowBuffer


class SortedRuns:
    """The runs of one store's rows up to the last one linked."""

    def __init__(self) -> None:
        self.at = np.zeros(3, np.int64)
        self.large, self.small = _run(0), _run(0)
        self._base = 0
        self._made = False
        self.merge_rows = 0

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in (*self.large, *self.small))

    def of(self, store: WindowBuffer) -> kernels.TwoRuns:
        """As kernels take them."""
        return kernels.TwoRuns(self.at, self.large, self.small, store.base, self.merge_rows, store.ordered)

    def forget(self) -> None:
        """Rows have moved: make the runs anew when they are needed."""
        self._made = False

    def prepare(self, store: WindowBuffer) -> None:
        """Let the runs hold the linked rows, and have room for the others."""
        lengths = store.samples.length
        longest = int(lengths.max()) if len(lengths) else 1
        # Half of the work is in the small run, half in merging it.
        self.merge_rows = max(64, math.isqrt(6 * len(lengths)))
        room, small = int(lengths.sum()), (self.merge_rows + 1) * longest
        if not self._made:
            self._make(store)
        if self._base < store.base:
            kernels.merge(store.base, self.at, self.large, self.small)
            self._base = store.base
        self.large = _with_room(self.large, int(self.at[kernels.LARGE]), room)
        self.small = _with_room(self.small, int(self.at[kernels.SMALL]), min(small, room + longest))

    def _make(self, store: WindowBuffer) -> None:
        rows = store.linked
        end = int(store.samples.length[:rows].sum())
        begin = int(store.samples.begin[0] - store.samples.base) if rows else 0
        values = store.samples.values[begin : begin + end]
        owner = np.repeat(np.arange(rows) + store.base, store.samples.length[:rows])
        shares = np.ones(end) if len(store.weights.values) == 0 else store.weights.values[begin : begin + end]
        order = np.argsort(values, kind="stable")
        self.at[:] = (end, 0, 0)
        self.large, self.small = kernels.Run(values[order], owner[order], shares[order]), _run(0)
        self._base, self._made = store.base, True


class Columns:
    """The samples of the linked rows of one store, one row a column, least first; all rows have as many."""

    def __init__(self) -> None:
        self.columns: Floats = np.empty((0, 0))
        self._first = self._end = 0  # the rows in the columns, counted from the first row there ever was

    @property
    def nbytes(self) -> int:
        return self.columns.nbytes

    @staticmethod
    def fit(store: WindowBuffer) -> bool:
        """Whether all rows have as many samples, that weigh the same."""
        lengths = store.samples.length
        return len(store.weights.begin) == 0 and len(lengths) > 0 and bool((lengths == lengths[0]).all())

    def forget(self) -> None:
        """Rows have moved: fill the columns anew when they are needed."""
        self._end = -1

    def of(self, store: WindowBuffer) -> LineColumns:
        """As kernels take them."""
        return LineColumns(self.columns, self.shift(store), store.centre.view[:, 0])

    def shift(self, store: WindowBuffer) -> int:
        """The column of the store's first row."""
        return store.base - self._first

    def prepare(self, store: WindowBuffer) -> None:
        """Let the columns hold the linked rows, and have room for the others."""
        m, rows = int(store.samples.length[0]), len(store)
        if self._end < store.base or self.columns.shape[0] != m:
            self._first = self._end = store.base
            self.columns = np.empty((m, 2 * rows))
        elif store.base + rows - self._first > self.columns.shape[1]:
            held = self.columns[:, store.base - self._first : self._end - self._first]
            self.columns = np.empty((m, 2 * rows))
            self.columns[:, : held.shape[1]] = held
            self._first = store.base
        begin = self._end - store.base
        samples = (store.samples.values, store.samples.begin, store.samples.base)
        fill_columns(begin, store.linked, begin + self.shift(store), *samples, self.columns)
        self.linked(store)

    def linked(self, store: WindowBuffer) -> None:
        """Take note that the linked rows are there."""
        self._end = store.base + store.linked


# What things cost on a line, in nanoseconds: measured on one machine, but what counts is how they compare.
_PER_VALUE, _PER_INSERT, _PER_ROW, _PER_PAIR, _PER_SAMPLE = 2.0, 1.0, 1.5, 60.0, 4.5
_PER_COLUMN, _PER_TABLE = 0.9, 700.0


def line_costs(
    store: WindowBuffer, centre: Floats, extent: Floats, radius: Floats, limit: float, arriving: int
) -> dict[str, float]:
    """What a probe costs with sorted runs, a scan of columns, and pairs judged one by one, from a sample of the probes.

    Runs walk over every sample between the first and the last an arrival might be close to. Columns look up half of
    all samples, fast. Pairs cost something each, and more the more samples they have.
    """
    rows = len(store)
    some = spread(rows, 256)
    gap = np.abs(centre[:, None] - store.centre.view[some, 0][None, :])
    samples = float(store.samples.length[some].mean())
    walked = float((gap <= (radius + limit)[:, None]).mean()) * rows * samples
    insert = math.sqrt(6 * rows) * samples * min(1.0, rows / max(1, arriving))
    met = float((gap <= (extent + limit)[:, None] + store.extent.view[some][None, :]).mean()) * rows * store.same_group
    runs = _PER_VALUE * walked + _PER_INSERT * insert
    pairs = _PER_ROW * min(rows, 8 * met) + met * (_PER_PAIR + _PER_SAMPLE * samples)
    return {"runs": runs, "columns": _PER_TABLE + rows * (_PER_COLUMN * samples + _PER_ROW), "pairs": pairs}


def _run(n: int) -> kernels.Run:
    return kernels.Run(np.empty(n), np.empty(n, np.int64), np.empty(n))


def _with_room(run: kernels.Run, used: int, room: int) -> kernels.Run:
    if len(run.values) >= room:
        return run
    wider = _run(2 * room)
    for own, array in zip(wider, run, strict=True):
        own[:used] = array[:used]
    return wider
