"""Rings of regions as edges in blocks, the inside at their left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel
from appulse.kernels.regions import BLOCK

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints


@exact_kernel
def areas(corners: Floats, begin: Ints) -> tuple[Floats, Floats]:
    """Of each ring twice its area, below 0 where it turns to the right, and the squares of its corners' distances.

    Ring r is ``corners[begin[r]:begin[r + 1]]``; all is seen from its first corner, so that nothing large cancels.
    """
    n = begin.shape[0] - 1
    twice, size = np.zeros(n), np.zeros(n)
    for r in range(n):
        x, y = corners[begin[r], 0], corners[begin[r], 1]
        for c in range(begin[r], begin[r + 1]):
            ax, ay = corners[c, 0] - x, corners[c, 1] - y
            size[r] += ax * ax + ay * ay
            if c + 1 < begin[r + 1]:
                twice[r] += ax * (corners[c + 1, 1] - y) - ay * (corners[c + 1, 0] - x)
    return twice, size


@exact_kernel
def outlines(corners: Floats, begin: Ints, owner: Ints, turned: Flags, n: int) -> tuple[Ints, Ints, Floats, Floats]:
    """``first, start, bounds, edges`` of `Regions`, of the rings of n regions; those ``turned`` run the wrong way.

    ``owner`` is the region of each ring, those of one region together and in order.
    """
    rings = begin.shape[0] - 1
    blocks = 0
    for r in range(rings):
        blocks += (begin[r + 1] - begin[r] - 1 + BLOCK - 1) // BLOCK
    first, start = np.zeros(n + 1, np.int64), np.empty(blocks + 1, np.int64)
    bounds, edges = np.empty((blocks, 4)), np.empty((corners.shape[0] - rings, 4))
    block, edge = 0, 0
    for r in range(rings):
        step, at = (-1, begin[r + 1] - 1) if turned[r] else (1, begin[r])
        for k in range(begin[r + 1] - begin[r] - 1):
            ax, ay, bx, by = corners[at, 0], corners[at, 1], corners[at + step, 0], corners[at + step, 1]
            at += step
            edges[edge, 0], edges[edge, 1], edges[edge, 2], edges[edge, 3] = ax, ay, bx, by
            if k % BLOCK == 0:
                start[block] = edge
                bounds[block, 0], bounds[block, 1] = min(ax, bx), min(ay, by)
                bounds[block, 2], bounds[block, 3] = max(ax, bx), max(ay, by)
                block += 1
            else:
                bounds[block - 1, 0], bounds[block - 1, 1] = (
                    min(bx, bounds[block - 1, 0]),
                    min(by, bounds[block - 1, 1]),
                )
                bounds[block - 1, 2], bounds[block - 1, 3] = (
                    max(bx, bounds[block - 1, 2]),
                    max(by, bounds[block - 1, 3]),
                )
            edge += 1
        first[owner[r] + 1] = block
    for i in range(n):  # those without rings
        first[i + 1] = max(first[i], first[i + 1])
    start[block] = edge
    return first, start, bounds, edges
