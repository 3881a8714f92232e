"""Regions that are added to, and how they are found: what was there before an addition holds on as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from appulse.kernels.near_regions import Search, curve_of
from appulse.kernels.region_index import RegionIndex, cells_of, count_levels, enter
from appulse.kernels.regions import Regions, first_without_raster, rasterise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Hashes, Ints

T = TypeVar("T", bound=np.generic)
# A region is in so many cells at most.
_MOST_CELLS = 4


def search_of(regions: Regions) -> Search:
    """An index and a curve of regions."""
    index = _index_of(regions, levels_of(regions.box), room=1)[0]
    return Search(index, curve_of(regions, index.level))


def levels_of(box: Floats) -> Ints:
    """The least powers of two not below the sizes of boxes."""
    size = np.maximum(box[:, 2] - box[:, 0], box[:, 3] - box[:, 1])
    return np.ceil(np.log2(np.maximum(size, 1e-9))).astype(np.int64)


class GrowingArray(Generic[T]):
    """An array that grows at its end: none that was given out changes, and no value is copied often."""

    def __init__(self, values: NDArray[T]) -> None:
        self._room: NDArray[T] = values
        self.size = len(values)

    @property
    def values(self) -> NDArray[T]:
        """All that there is now."""
        return self._room[: self.size]

    def reserve(self, size: int) -> None:
        """Have room for so many."""
        before, self._room = self.values, np.empty((size, *self._room.shape[1:]), self._room.dtype)
        self._room[: self.size] = before

    def add(self, values: NDArray[T]) -> None:
        """Add values at the end; the first time all are copied."""
        size = self.size + len(values)
        if size > len(self._room):
            self.reserve(2 * size)
        self._room[self.size : size] = values
        self.size = size


class GrowingRegions:
    """Regions, added to at the end. ``arrays`` and ``search`` as they were before hold on for those there were then."""

    def __init__(self, regions: Regions) -> None:
        self._columns: list[GrowingArray[Any]] = [GrowingArray(column) for column in regions]
        self._level = GrowingArray(levels_of(regions.box))
        self._search: Search | None = None
        self._entries = 0
        # A raster costs about as much as a look at the edges does for one reading: it is made for regions that have
        # seen as many readings as they are, and never for most of those that soon change place again.
        self._without_raster, self._seen = first_without_raster(regions), 0

    def __len__(self) -> int:
        return self._level.size

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in (*self.arrays, *(self._search.grid if self._search else ())))

    @property
    def arrays(self) -> Regions:
        """All of them."""
        return Regions(*(column.values for column in self._columns))

    @property
    def search(self) -> Search:
        """What finds them."""
        if self._search is None:
            arrays = self.arrays
            index, self._entries = _index_of(arrays, self._level.values, room=2)
            self._search = Search(index, curve_of(arrays, index.level))
        return self._search

    @classmethod
    def joined(cls, parts: Sequence[Regions]) -> GrowingRegions:
        """The regions of several parts, one after the other, with room for as many again.

        Memory that nobody has written to yet costs nothing, and those added later need no copy of all there are.
        """
        found = cls(parts[0])
        for column, *several in zip(found._columns, *parts, strict=True):
            column.reserve(2 * sum(map(len, several)))
        for part in parts[1:]:
            found.add(part)
        return found

    def expect(self, readings: int) -> None:
        """So many readings are about to be looked up."""
        self._seen += readings
        if self._seen >= len(self) - self._without_raster > 0:
            rasterise(self.arrays, self._without_raster)
            self._without_raster, self._seen = len(self), 0

    def add(self, regions: Regions) -> None:
        """Take in more, with rasters or without."""
        if self._without_raster == len(self):
            self._without_raster += first_without_raster(regions)
            self._seen = 0
        before, first = self.arrays, len(self)
        first_block, first_edge = len(before.bounds), len(before.edges)
        moved = regions._replace(first=regions.first[1:] + first_block, start=regions.start[1:] + first_edge)
        for column, values in zip(self._columns, moved, strict=True):
            column.add(values)
        self._level.add(levels_of(regions.box))
        if self._search is not None:
            self._search = self._with_newer(self._search, first)

    def _with_newer(self, search: Search, first: int) -> Search | None:
        """What finds those from ``first`` on, too; None where there are so many that it is to be made anew."""
        index, arrays, level = search.grid, self.arrays, self._level.values
        hashes, owners = _cells(arrays.box, level, first)
        entries = self._entries + len(hashes)
        if entries > len(index.entries) or len(level) > len(index.before):
            return None
        stands = np.ones(len(level), np.uint8)
        levels = np.union1d(index.levels, level[first:])
        sized = np.full((len(levels), 2), [-1, 0])
        sized[np.searchsorted(levels, index.levels)] = index.sized
        index = index._replace(level=level, stands=stands, levels=levels, sized=sized)
        enter(index, hashes, owners, self._entries)
        count_levels(index, first)
        self._entries = entries
        low, high = arrays.box[first:, :2], arrays.box[first:, 2:]
        curve = search.curve
        wider = (
            np.minimum(curve.low, low.min(axis=0, initial=np.inf)),
            np.maximum(curve.high, high.max(axis=0, initial=-np.inf)),
        )
        return Search(index, curve._replace(low=wider[0], high=wider[1]))


def _cells(box: Floats, level: Ints, first: int) -> tuple[Hashes, Ints]:
    """The cells of regions from ``first`` on, as hashes and owners."""
    most = _MOST_CELLS * (len(level) - first)
    hashes, owners = np.empty(most, np.uint64), np.empty(most, np.int64)
    total = cells_of(box, level, first, hashes, owners)
    return hashes[:total], owners[:total]


def _index_of(regions: Regions, level: Ints, room: int) -> tuple[RegionIndex, int]:
    """An index with room for so many times the regions, and how many entries it has."""
    n = len(level)
    hashes, owners = _cells(regions.box, level, 0)
    order = np.argsort(hashes, kind="stable")  # the entries of a cell then lie together
    most = room * len(hashes)
    slots = 1 << max(1, (2 * most).bit_length())
    levels = np.unique(level)
    index = RegionIndex(
        np.zeros(slots, np.uint64),
        np.empty(slots, np.int64),
        np.empty((most, 2), np.int64),
        level,
        np.empty(room * n, np.int64),
        np.ones(n, np.uint8),
        levels,
        np.full((len(levels), 2), [-1, 0]),
    )
    enter(index, hashes[order], owners[order], 0)
    count_levels(index, 0)
    return index, len(hashes)
