"""The window of one stream: its rows as columns, and the index that finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from appulse.kernels.arrays import Moments, Samples
from appulse.kernels.few_points import ROOM as COLUMNS_FROM
from appulse.kernels.grid import END, UNKNOWN, Grid, link_rest, relink
from appulse.kernels.moments import most_variances, shapes
from appulse.kernels.sweep import Balls, WindowRows
from appulse.model.batch import Ragged
from appulse.model.objects import Objects
from appulse.model.strings import Bytes
from appulse.model.uncertainty import Form
from appulse.operators.buffers import Arena, Column, Rows
from appulse.operators.cost import PROBES, ROWS, Cells, Choice, Probes, cells_for, choose, same_group, some

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import DTypeLike, NDArray

    from appulse.kernels.arrays import Floats, Ints
    from appulse.operators.labels import LabelNumbers

_EMPTY = np.empty(0, np.int64)
# A grid pays only once a scan of everything in reach costs more than a few look-ups.
_GRID_FROM = 192
_CROWD_FROM = 1024
_SAMPLE = 4096  # rows that tell sizes
_NO_CELLS = Cells(np.zeros(1, np.int64), 1.0, 0.0, 0.0, by_variance=False)


class LineIndex(Protocol):
    """An index of rows on a line, kept up by those who use it."""

    @property
    def nbytes(self) -> int: ...

    def forget(self) -> None:
        """Rows have moved."""
        ...


class Further(NamedTuple):
    """What is kept of rows beyond what all joins need: ``framed`` columns of windows, and ``counted`` partners."""

    framed: int = 0
    paired: bool = False
    counted: int = 0
    serial: bool = False
    margins: bool = False


class TableRows(NamedTuple):
    """The rows of a whole table, how far around each is looked for it, and the numbers of their groups.

    Rows that were moved have their keys where they were: that of row i is the ``place[i]``-th.
    """

    rows: Objects
    extent: Floats
    group: Ints
    place: Ints | None = None


class WindowBuffer:
    """Rows in order of arrival, known by position among the live ones; dropping shifts positions.

    ``d`` dimensions; ``index`` is "grid", "dense" or "auto". The rank of a row is its time, or its number where rows
    are ``numbered``; numbers of several groups do not compare, ``grouped`` says that there may be some.
    """

    def __init__(
        self,
        d: int,
        index: str,
        epsilon: float,
        threshold: float = 1.0,
        *,
        numbered: bool = False,
        grouped: bool = False,
        further: Further | None = None,
    ) -> None:
        self.d, self._numbered, self._comparable = d, numbered, not (numbered and grouped)
        framed, paired, counted, serial, margins = further or Further()
        self.rows = Rows()
        self.time, self.rank, self.rank_max = self._column(), self._column(), self._column()
        self.mass, self.reach, self.radius = (self._column(np.float64) for _ in range(3))
        self.extent = self._column(np.float64)  # radius within which the index looks for a row
        self.variance = self._column(np.float64)  # at least what a row has along any line, where that is known
        self.centre = self._column(np.float64, d)
        self.covariance: Column | None = None
        self.shape: Column | None = None  # higher moments, as `shapes` has them
        self.spread: Column | None = None
        self.frame = self._column(np.int64, framed) if framed else None
        self.met = self._column(np.bool_) if paired else None  # whether a row has had a partner
        # How likely a row has 0, 1, ... partners so far, and how many are expected.
        self.counts = self._column(np.float64, counted + 1) if counted else None
        self.serial = self._column() if serial else None  # numbers of rows that never change
        self.margin = self._column(np.float64) if margins else None  # what a row adds to epsilon
        self.group, self.differ = self._column(), self._column()
        self.cell, self.following = self._column(), self._column()
        self.samples, self.weights, self.key = Arena(np.float64), Arena(np.float64), Arena(np.uint8)
        self.base = 0  # rows dropped so far: position + base never changes
        self.linked = 0  # rows in the index
        self._looked = self._late = 0  # rows whose times were looked at, and up to the last that is behind another
        self.arrived = 0  # rows that ever came
        self._kept = 0  # rows after the last `keep`
        self._index, self._epsilon, self._spare = index, epsilon, max(0.0, 1.0 / max(threshold, 1e-300) - 1.0)
        self.heads = _EMPTY
        self.choice: Choice | None = None  # what made the index
        self._come = 0  # rows since then
        self._known: tuple[Any, ...] | None = None  # whose places in memory a kernel knows
        self.line: LineIndex | None = None  # in place of the grid, where these are the better index
        self._oversized = self._most_oversized = 0  # rows too large for the grid, and when to build it anew

    @classmethod
    def of_table(cls, table: TableRows, differ: Ints, *, paired: bool, counted: int = 0) -> WindowBuffer:
        """The rows of a whole table where they are, not copied and in no order; without samples and without an index.

        They are to be read, and forgotten all together.
        """
        objects, extent, group, place = table
        store = cls(objects.d, "dense", 0.0, further=Further(paired=paired, counted=counted))
        given = (objects.time, objects.mass, objects.reach, objects.radius, extent, group, differ, objects.centre)
        columns = [Column.of(_writable(column)) for column in given]
        store.time, store.mass, store.reach, store.radius, store.extent, store.group, store.differ, store.centre = (
            columns
        )
        store.rank = store.time
        store.key = Arena.of(_writable(objects.key.offsets), _writable(objects.key.data), place)
        if objects.spread.shape[1]:
            store.spread = Column.of(_writable(objects.spread))
        if store.met is not None:
            store.met = Column.of(np.zeros(len(objects), bool))
        if store.counts is not None:
            counts = np.zeros((len(objects), counted + 1))
            counts[:, 0] = 1.0
            store.counts = Column.of(counts)
        return store

    def __len__(self) -> int:
        return len(self.time)

    def _column(self, dtype: DTypeLike = np.int64, width: int | None = None) -> Column:
        """One more column of the rows."""
        return Column(dtype, width, self.rows)

    @property
    def nbytes(self) -> int:
        arenas = (self.samples, self.weights, self.key)
        index = self.heads.nbytes + (0 if self.line is None else self.line.nbytes)
        return sum(column.nbytes for column in self.rows.columns) + sum(a.nbytes for a in arenas) + index

    def extend(self, objects: Objects, extent: Floats, group: Ints, differ: Ints) -> None:
        """Append rows, in tick order, not yet in the index."""
        n = len(objects)
        if n == 0:
            return
        self._come += n
        rank = objects.number if self._numbered and objects.number is not None else objects.time
        newest = self.rank_max.view[-1] if self._comparable and len(self) else np.iinfo(np.int64).min
        new = self.rows.grow(n)
        self.time.data[new], self.rank.data[new] = objects.time, rank
        if self._comparable:
            np.maximum(np.maximum.accumulate(rank), newest, out=self.rank_max.data[new])
        else:
            self.rank_max.data[new] = np.iinfo(np.int64).max
        self.mass.data[new], self.reach.data[new], self.radius.data[new] = objects.mass, objects.reach, objects.radius
        self.extent.data[new], self.variance.data[new], self.centre.data[new] = extent, UNKNOWN, objects.centre
        self.group.data[new], self.differ.data[new] = group, differ
        self._extend_some(objects, new)
        if objects.spread.shape[1]:
            self.spread = self.spread or self._column(np.float64, objects.spread.shape[1])
            self.spread.data[new] = objects.spread
        if len(objects.first):
            self.covariance = self.covariance or self._column(np.float64, objects.covariance.shape[1])
            self.covariance.data[new] = objects.covariance
            self.shape = self.shape or self._column(np.float64, self.d + 1)
            shapes(objects.first, objects.samples, objects.weights, objects.centre, self.shape.data[new])
            most_variances(objects.covariance, self.d, self.variance.data[new])
            self.samples.extend(objects.first * self.d, objects.samples)
            if len(objects.weights):
                self.weights.extend(objects.first, objects.weights)
        self.key.extend(objects.key.offsets, objects.key.data)
        if len(self.heads):
            self._oversized += int((self.sizes[-n:] > self.cells.cap).sum())

    def takes_points(self, n: int, *, texts: bool) -> bool:
        """Whether the short way has room for so many exact points more: the index stands, keys are words or texts."""
        return (texts or self.key.words) and self.stands(n)

    def reserve(self, n: int, size: int, memory: Ints, cells: Floats) -> None:
        """Have room for ``n`` exact points more, with keys of ``size`` bytes in all.

        Where the window stands, as `appulse.kernels.few_points` has it; nothing else changes before `took`.
        """
        rows, key = self.rows, self.key
        rows.reserve(n)
        key.reserve(n, size)
        memory[:COLUMNS_FROM] = (rows.begin, rows.end, self.linked, self.base, *key.stand)
        known = (self.time.data, self.heads, self.choice, *key.arrays)
        if self._known is None or any(one is not other for one, other in zip(known, self._known, strict=True)):
            self._known = known
            own = self.cells
            columns = (
                *(self.time, self.rank, self.rank_max, self.mass, self.reach, self.radius, self.extent, self.variance),
                *(self.centre, self.group, self.differ, self.cell, self.following),
            )
            arrays = (*(column.data for column in columns), self.heads, own.dims, *key.arrays)
            sizes = rows.room, self.d, len(self.heads), len(own.dims), own.by_variance
            memory[COLUMNS_FROM:] = (*sizes, *(array.ctypes.data for array in arrays))
            cells[:] = 1.0 / own.side, own.cap

    def took(self, n: int, size: int, *, texts: bool) -> None:
        """``n`` exact points have been put behind the rows, into the room that was reserved for them."""
        self._come += n
        self.arrived += n
        self.rows.grow(n)
        self.key.took(n, size, words=not texts)
        self.linked = len(self)

    def _extend_some(self, objects: Objects, new: slice) -> None:
        """Fill in the columns that some plans have."""
        if self.frame is not None:
            self.frame.data[new] = 0 if objects.frame is None else objects.frame
        if self.met is not None:
            self.met.data[new] = False
        if self.serial is not None:
            self.serial.data[new] = self.arrived + np.arange(len(objects))
        self.arrived += len(objects)
        if self.counts is not None:
            self.counts.data[new] = 0.0
            self.counts.data[new, 0] = 1.0
        if self.margin is not None:
            self.margin.data[new] = 0.0 if objects.margin is None else objects.margin

    def between(self, since: int, until: int) -> slice:
        """Where all rows are of times from ``since`` to before ``until``, and perhaps others."""
        time = self.time.view
        fresh = time[max(0, self._looked - self.base - 1) :]
        if (fresh[1:] < fresh[:-1]).any():
            self._late = self.base + len(self)
        self._looked = self.base + len(self)
        if self._late > self.base:
            return slice(0, len(self))
        return slice(int(time.searchsorted(since)), int(time.searchsorted(until)))

    def drop_before(self, rank: int) -> int:
        """Forget rows of the front of lesser rank; how many."""
        n = int(self.rank_max.view.searchsorted(rank))
        if n == 0:
            return 0
        self.rows.drop(n)
        for arena in (self.samples, self.weights, self.key):
            if len(arena):
                arena.drop(n)
        self.base += n
        self.linked = max(0, self.linked - n)
        return n

    def keys(self, rows: Ints) -> Bytes:
        """Canonical keys of the rows."""
        return Bytes(*self.key.take(rows))

    def objects(self, form: Form, rows: Ints, groups: LabelNumbers, differs: LabelNumbers) -> Objects:
        """Rows as they came, apart from frames not kept; ``groups`` and ``differs`` know their labels."""
        n = len(rows)
        samples = weights = None
        covariance = np.empty((n, 0))
        if form == Form.SAMPLES and self.covariance is not None:
            first, coordinates = self.samples.take(rows)
            samples = Ragged(first // self.d, coordinates.reshape(-1, self.d))
            covariance = self.covariance.view[rows]
            weights = Ragged(*self.weights.take(rows)) if len(self.weights.begin) else None
        return Objects(
            form,
            self.time.view[rows],
            self.keys(rows),
            self.mass.view[rows],
            self.centre.view[rows],
            np.empty((n, 0)) if self.spread is None else self.spread.view[rows],
            self.reach.view[rows],
            self.radius.view[rows],
            covariance,
            samples,
            weights,
            groups.labels(self.group.view[rows]),
            differs.labels(self.differ.view[rows]),
            None,
            self.rank.view[rows] if self._numbered else None,
            None if self.frame is None else self.frame.view[rows],
            margin=None if self.margin is None else self.margin.view[rows],
        )

    @property
    def crowded(self) -> bool:
        """Whether so many rows came since the last `keep` that looking for those that left costs little a row."""
        return len(self) >= max(_CROWD_FROM, 2 * self._kept)

    def keep(self, rows: Ints) -> None:
        """Forget all other rows, wherever they stand."""
        before = len(self)
        self.rows.keep(rows)
        for arena in (self.samples, self.weights, self.key):
            if len(arena):
                offsets, values = arena.take(rows)
                arena.drop(len(arena.begin))
                arena.extend(offsets, values)
        self._kept = len(self)
        self.base, self.linked = self.base + before, int((rows < self.linked).sum())
        self.index_anew()

    def index_anew(self) -> None:
        """Put the rows in the index anew: other rows stand at their places, or their groups have other numbers."""
        if len(self.heads):
            relink(self.linked, self.grid)
        if self.line is not None:
            self.line.forget()

    @property
    def ordered(self) -> bool:
        """Whether a row that has left a window can never be in reach again."""
        return self._numbered and self._comparable

    def use(self, line: LineIndex) -> None:
        """Let this be the index in place of the grid."""
        self.heads, self.line = _EMPTY, line

    def use_none(self) -> None:
        """Let there be no index: the rows are looked at one by one, or in blocks."""
        self.heads, self.line = _EMPTY, None

    def prepare_index(self, probes: Callable[[], Probes]) -> None:
        """Make the index fit the rows there are, for such probes; most often it does."""
        self.line = None
        n = len(self)
        if self._index == "dense" or (self._index == "auto" and n < _GRID_FROM):
            self.use_none()
            return
        if self.choice is None or not self.choice.stands(self._come):
            self._choose(some(probes(), PROBES))
        if self._index == "auto" and self.choice is not None and self.choice.index == "scan":
            self.heads = _EMPTY
            return
        if len(self.heads) > n and self._oversized <= self._most_oversized:
            return
        if self._come:
            self._choose(some(probes(), PROBES))
        self.heads = np.full((1 << max(8, (2 * n).bit_length())) + 1, END, np.int64)
        relink(self.linked, self.grid)

    def stands(self, more: int) -> bool:
        """Whether the index is as `prepare_index` would leave it after so many more rows."""
        n = len(self) + more
        if self.line is not None:
            return False
        if self._index == "dense" or (self._index == "auto" and n < _GRID_FROM):
            return not len(self.heads)
        if self.choice is None or not self.choice.stands(self._come + more):
            return False
        if self._index == "auto" and self.choice.index == "scan":
            return not len(self.heads)
        return len(self.heads) > n and self._oversized + more <= self._most_oversized

    def _choose(self, probes: Probes) -> None:
        """Settle which index it is, and the grid's cells; a grid of other cells is built anew."""
        n = len(self)
        rows = some(Probes(self.centre.view, self.extent.view, self.variance.view), _SAMPLE)
        held = None if self.choice is None else self.choice.index
        choices = []
        # Rows near a plane, as those of a region of the Earth, lie apart in two dimensions already.
        for k in range(min(self.d, 2), min(self.d, 3) + 1):
            cells = cells_for(probes, rows, self._epsilon, self._spare, _widest(rows.centre, k))
            choices.append(
                choose(probes, some(rows, ROWS), n, cells, self._epsilon, self._spare, held, self.same_group)
            )
        self.choice = min(choices, key=lambda choice: choice.costs[choice.index])
        cells = self.choice.cells
        self._come, self._oversized = 0, int((self.sizes > cells.cap).sum())
        self._most_oversized = max(64, n // 20, 2 * self._oversized)
        self.heads = _EMPTY

    @property
    def same_group(self) -> float:
        """The share of the pairs of rows that are of one group."""
        return same_group(self.group.view)

    @property
    def cells(self) -> Cells:
        """What the grid goes by; of no meaning before there is one."""
        return _NO_CELLS if self.choice is None else self.choice.cells

    @property
    def sizes(self) -> Floats:
        """How large each row is to the grid."""
        return self.variance.view if self.cells.by_variance else self.extent.view

    def link_rest(self) -> None:
        """Put every row in the index."""
        if len(self.heads) and self.linked < len(self):
            link_rest(self.linked, self.grid)
        if self.line is not None:
            self.line.forget()
        self.linked = len(self)

    @property
    def grid(self) -> Grid:
        """The rows on chains, as kernels take them."""
        cells = self.cells
        return Grid(
            self.base,
            self.centre.view,
            self.sizes,
            self.group.view,
            self.cell.view,
            self.following.view,
            self.heads,
            cells.dims,
            1.0 / cells.side,
            cells.cap,
            cells.by_variance,
        )

    @property
    def window_rows(self) -> WindowRows:
        """What windows and groups tell of the rows."""
        return WindowRows(self.rank.view, self.rank_max.view, self.group.view, self.differ.view)

    @property
    def balls(self) -> Balls:
        """Where the rows are, and how far the index looks for them."""
        return Balls(self.centre.view, self.extent.view, self.variance.view)

    @property
    def sampled(self) -> Samples:
        """Masses, samples and weights."""
        samples, weights = self.samples, self.weights
        runs = (samples.values, samples.begin, samples.length, samples.base)
        return Samples(self.mass.view, *runs, weights.values, weights.begin, weights.base)

    @property
    def moments(self) -> Moments:
        """What bounds of samples go by."""
        none = np.empty((0, 0))
        covariance = none if self.covariance is None else self.covariance.view
        shape = none if self.shape is None else self.shape.view
        return Moments(self.mass.view, self.centre.view, self.radius.view, covariance, shape)


def _writable(column: NDArray[Any]) -> NDArray[Any]:
    """The column as kernels are compiled for: in one piece, and not of memory that others own."""
    return np.require(column, requirements=["C", "W"])


def _widest(centre: Floats, n_dims: int) -> Ints:
    """The dimensions along which the rows lie farthest apart."""
    if len(centre) == 0:
        return np.arange(n_dims, dtype=np.int64)
    order = np.argsort(-np.ptp(centre, axis=0), kind="stable")
    return np.sort(order[:n_dims]).astype(np.int64)
