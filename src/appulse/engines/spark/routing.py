"""Which block goes where: rows to buckets that number them, and to tiles that join them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.engines.spark.codec import pack
from appulse.engines.spark.tiles import group_hashes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from appulse.engines.spark.tiles import TilePlan
    from appulse.model.objects import Objects

Copies = tuple["NDArray[np.int64]", "NDArray[np.int32]", "NDArray[np.int8]"]
# A block is one value of Spark's, held whole in several places on its way.
_BLOCK_BYTES = 32 << 20


def tiled(objects: Objects, stream: int, plan: TilePlan, copies: Copies) -> Iterator[tuple[int, bytes, int]]:
    """Blocks for tiles, as (tile, block, newest time), of the ``copies`` (row, tile, lane) of the rows."""
    rows, tiles, lanes = copies
    order = np.lexsort((objects.time[rows], lanes, tiles))
    rows, tiles, lanes = rows[order], tiles[order], lanes[order]
    cuts = np.flatnonzero((np.diff(tiles) != 0) | (np.diff(lanes) != 0)) + 1
    for part in np.split(np.arange(len(rows)), cuts):
        if len(part) == 0:
            continue
        tile = int(tiles[part[0]])
        # A fine tile knows no lanes: they only tell coarse rows apart in the coarse one.
        lane = int(lanes[part[0]]) if plan.is_coarse(tile) else 0
        for block, newest in packed(objects.take(rows[part]), stream, lane):
            yield tile, block, newest


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
