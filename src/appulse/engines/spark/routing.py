"""Which block goes where: rows to buckets that number them, and to tiles that join them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.engines.spark.codec import pack
from appulse.engines.spark.tiles import group_hashes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from appulse.engines.spark.tiling import Copies, Tiling
    from appulse.model.objects import Objects

# A block is one value of Spark's, held whole in several places on its way.
_BLOCK_BYTES = 32 << 20


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


def bucketed(objects: Objects, stream: int, buckets: int) -> Iterator[tuple[int, bytes, int]]:
    """Blocks for the buckets of groups, as (bucket, block, newest time)."""
    if buckets == 1 or objects.group is None:
        yield from ((0, block, newest) for block, newest in packed(objects, stream, 0))
        return
    bucket = (group_hashes(objects) % np.uint64(buckets)).astype(np.int64)
    for b in np.unique(bucket).tolist():
        for block, newest in packed(objects.take(np.flatnonzero(bucket == b)), stream, 0):
            yield b, block, newest


def packed(objects: Objects, stream: int, lane: int) -> Iterator[tuple[bytes, int]]:
    """One block, or as many as keep each below what travels well."""
    size = objects.samples.nbytes + objects.weights.nbytes + objects.key.data.nbytes + 100 * len(objects)
    rows = max(1, int(len(objects) * _BLOCK_BYTES / max(1, size)))
    for begin in range(0, len(objects), rows):
        part = objects if rows >= len(objects) else objects.slice(begin, min(begin + rows, len(objects)))
        yield pack(part, stream, lane), int(part.time.max())
