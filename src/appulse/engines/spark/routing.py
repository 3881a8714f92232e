"""Which block goes where: rows to buckets of groups, and to the tiles of a join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.engines.objects import own_keys, packed
from appulse.engines.spark.tiles import TilePlan, group_hashes, spread_keys
from appulse.engines.spark.tiling import Tiling, Version
from appulse.kernels.newest import key_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from appulse.engines.spark.tiling import Copies
    from appulse.kernels.arrays import Hashes
    from appulse.model.encoding import Encoding
    from appulse.model.objects import Objects


def plain_tiling(buckets: int, slots: int = 0) -> Tiling:
    """Buckets that have no place in space."""
    return Tiling((Version(TilePlan(buckets, 1.0, 0.0, 0.0, slots=slots)),), 0)


def bucket_keys(tiling: Tiling, *, grouped: bool = True) -> list[int]:
    """The numbers by which Spark knows the buckets of groups: one, or as many as there are tiles to feed."""
    plan = tiling.versions[0].plan
    return spread_keys(plan.tiles if grouped else 1, plan.slots or plan.tiles)


@dataclass(frozen=True)
class ToTiles:
    """Rows go to the tiles whose cells they may have partners in."""

    tiling: Tiling

    @property
    def keys(self) -> list[int]:
        """The tiles by their numbers."""
        return self.tiling.keys

    def blocks(self, stream: int, rows: Objects) -> Iterator[tuple[int, bytes, int]]:
        for place, block, newest in tiled(rows, stream, self.tiling, self.tiling.copies(rows)):
            yield self.tiling.keys[place], block, newest


@dataclass(frozen=True)
class ToGroups:
    """Rows go to the bucket of their group."""

    keys: list[int]

    def blocks(self, stream: int, rows: Objects) -> Iterator[tuple[int, bytes, int]]:
        if len(self.keys) == 1 or not self._apart(rows):
            yield from ((self.keys[0], block, newest) for block, newest in packed(rows, stream))
            return
        bucket = (self._hashes(rows, stream) % np.uint64(len(self.keys))).astype(np.int64)
        for b in np.unique(bucket).tolist():
            for block, newest in packed(rows.take(np.flatnonzero(bucket == b)), stream):
                yield self.keys[b], block, newest

    def _apart(self, rows: Objects) -> bool:
        """Whether rows may go to several buckets."""
        return rows.group is not None

    def _hashes(self, rows: Objects, stream: int) -> Hashes:  # noqa: ARG002 - one is as another
        return group_hashes(rows)


@dataclass(frozen=True)
class ToThings(ToGroups):
    """Rows go to the bucket of their key, in their group."""

    encodings: tuple[Encoding, ...]

    def _apart(self, rows: Objects) -> bool:  # noqa: ARG002 - rows have keys
        return True

    def _hashes(self, rows: Objects, stream: int) -> Hashes:
        numbers, keys = np.empty(len(rows), np.int64), own_keys(rows, self.encodings[stream])
        key_numbers(keys.offsets, keys.data, numbers)
        return group_hashes(rows) + numbers.view(np.uint64)


@dataclass(frozen=True)
class ToBlocks(ToGroups):
    """Rows go to the bucket of their block of time (``span`` microseconds; 0: each time is one), in their group."""

    span: int

    def _apart(self, rows: Objects) -> bool:  # noqa: ARG002 - rows have times
        return True

    def _hashes(self, rows: Objects, stream: int) -> Hashes:  # noqa: ARG002 - one is as another
        block = (rows.time // self.span if self.span else rows.time).view(np.uint64)
        # Blocks that follow each other go to different buckets, whatever their number is a multiple of.
        return group_hashes(rows) + (block * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32))


def tiled(objects: Objects, stream: int, tiling: Tiling, copies: Copies) -> Iterator[tuple[int, bytes, int]]:
    """Blocks for tiles, as (place, block, newest time), of the ``copies`` (row, place, lane) of the rows."""
    rows, places, lanes = copies
    order = np.lexsort((objects.time[rows], lanes, places))
    rows, places, lanes = rows[order], places[order], lanes[order]
    cuts = np.flatnonzero((np.diff(places) != 0) | (np.diff(lanes) != 0)) + 1
    for part in np.split(np.arange(len(rows)), cuts):
        if len(part) == 0:
            continue
        place = int(places[part[0]])
        # A fine tile knows no lanes: they only tell coarse rows apart in the coarse one.
        lane = int(lanes[part[0]]) if tiling.is_coarse(place) else 0
        for block, newest in packed(objects.take(rows[part]), stream, lane):
            yield place, block, newest
