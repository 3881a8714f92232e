"""Ranges of the coordinates of places as regions, and regions within them, for rows with normal errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.model.regions import NO_REGIONS, Regions, taken

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints


def rectangles(boxes: Floats) -> Regions:
    """Boxes (n, 4), west, south, east and north, as regions; the rasters are empty, as below."""
    n = len(boxes)
    edges = np.ascontiguousarray(boxes[:, [0, 1, 2, 1, 2, 1, 2, 3, 2, 3, 0, 3, 0, 3, 0, 1]].reshape(-1, 4))
    none = NO_REGIONS.arrays
    raster = np.zeros((n, none.raster.shape[1]), none.raster.dtype)
    radius, centre = np.full(n, np.nan), np.zeros((n, 3))
    return Regions(np.arange(n + 1), 4 * np.arange(n + 1), boxes, edges, boxes, radius, centre, raster)


def clipped(regions: Regions, ids: Ints, low: Floats, high: Floats) -> Regions:
    """The regions ``ids`` (none of them a disc), each within its box from ``low`` to ``high``, (n, 2).

    Edges are cut where they pass a side of the box, and each corner moves to the place in the box that is nearest. What
    was outside then runs along a side: a place in the box is enclosed as before, and none is outside. The rasters are
    empty, so the arrays serve for masses only.
    """
    own = taken(regions, ids)
    owner = np.repeat(np.arange(len(ids)), np.diff(own.start[own.first]))
    a, b = own.edges[:, None, :2], own.edges[:, None, 2:]
    least, most = low[owner, None], high[owner, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        passed = (np.concatenate([least, most], axis=1) - a) / (b - a)
    passed = np.where((passed > 0.0) & (passed < 1.0), passed, 1.0).reshape(len(owner), 4)
    part = np.sort(np.pad(passed, ((0, 0), (1, 1)), constant_values=(0.0, 1.0)), axis=1)[:, :, None]
    places = np.clip(np.where(part < 1.0, a + part * (b - a), b), least, most)
    edges = np.concatenate([places[:, :-1], places[:, 1:]], axis=2)
    kept = (edges[:, :, :2] != edges[:, :, 2:]).any(axis=2)
    kept[own.start[:-1], 0] = True  # a block has an edge
    start = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])[own.start]
    blocks = np.repeat(np.arange(len(ids)), np.diff(own.first))
    return own._replace(
        start=start,
        edges=np.ascontiguousarray(edges[kept]),
        bounds=_within(own.bounds, low[blocks], high[blocks]),
        box=_within(own.box, low, high),
        raster=np.zeros_like(own.raster),
    )


def _within(boxes: Floats, low: Floats, high: Floats) -> Floats:
    return np.clip(boxes, np.hstack([low, low]), np.hstack([high, high]))
