"""Queries of rows with normal errors where the Earth is curved: of large errors, and near the poles.

Ranges of latitude and longitude are regions there, with sides along parallels and meridians.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.curved_regions import curved_masses, tail_degrees
from appulse.kernels.gaussian import interval_masses
from appulse.model.positions import centred
from appulse.operators.query_match import TAIL, in_regions, summed
from appulse.queries.clipping import clipped, rectangles
from appulse.queries.keys import doubles_of
from appulse.queries.places import PLACE_X, PLACE_Y, mass
from appulse.queries.rows import WideRows

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints, Ints32
    from appulse.model.regions import Regions
    from appulse.operators.query_match import Matched, Normals
    from appulse.queries.index import Met
    from appulse.queries.sets import QuerySet

_FLAT = 2  # coordinates of a position before its altitude
_LONGITUDE = 1
_HALF, _POLE = 180.0, 90.0


def match_curved(queries: QuerySet, rows: Normals, threshold: float | None) -> Matched:
    """As `match_normals`, of positions that are there once."""
    alone = in_regions(queries, rows, threshold)
    met = queries.meeting(curved_windows(rows), len(rows.owner))
    region, found = queries.regions.of(met.entries), rows.exists[met.rows]
    sides = [_range(queries, met, name) for name in rows.names]
    for k in range(_FLAT, len(sides)):
        found *= interval_masses(*sides[k], rows.mean[met.rows, k], rows.sigma[met.rows, k])
    (south, north), (west, east) = sides[:_FLAT]
    least, most = rows.least_longitude, rows.least_longitude + 2.0 * _HALF
    whole = (west <= least) & (east >= most)
    west, east = np.where(whole, -np.inf, np.maximum(west, least)), np.where(whole, np.inf, np.minimum(east, most))
    ranges = np.column_stack([west, south, east, north])
    bounded, placed = np.isfinite(ranges).any(axis=1), region >= 0
    for asked, in_parts in ((bounded & ~placed, _in_ranges), (bounded & placed, _in_parts), (~bounded & placed, _in)):
        at = np.flatnonzero(asked & (found > 0.0))
        if len(at):
            found[at] *= in_parts(queries.regions.arrays, rows, met.rows[at], region[at], ranges[at])
    return summed(rows.owner[met.rows], met.entries, found, threshold, alone)


def curved_windows(rows: Normals) -> WideRows:
    """Such rows as queries read them, out to where they have no part."""
    box = _reached(rows)
    lat, lon = rows.names[:_FLAT]
    wide = {lat: (box[:, 1], box[:, 3]), PLACE_Y: (box[:, 1], box[:, 3])}
    moved = rows.at[:, 0] - rows.mean[:, _LONGITUDE]
    for name, least, turn in ((lon, rows.least_longitude, 0.0 * moved), (PLACE_X, -_HALF, moved)):
        west, east = box[:, 0] + turn, box[:, 2] + turn
        over = (west < least) | (east > least + 2.0 * _HALF)
        wide[name] = np.where(over, -np.inf, west), np.where(over, np.inf, east)
    for k in range(_FLAT, len(rows.names)):
        far = TAIL * rows.sigma[:, k]
        wide[rows.names[k]] = rows.mean[:, k] - far, rows.mean[:, k] + far
    return WideRows(rows.columns, rows.time, wide)


def _range(queries: QuerySet, met: Met, name: str) -> tuple[Floats, Floats]:
    """From where to where queries have a coordinate, pair by pair."""
    axis = queries.axis_of(name)
    if axis is None:
        return np.full(len(met.rows), -np.inf), np.full(len(met.rows), np.inf)
    return doubles_of(met.lows[axis]), doubles_of(met.highs[axis])


def _reached(rows: Normals) -> Floats:
    """What rows reach: west, south, east and north, longitudes around those of the mean, half a turn at most."""
    assert rows.earth is not None  # noqa: S101 - of positions there is one
    far = tail_degrees(np.ascontiguousarray(rows.mean[:, 0]), rows.scale, rows.earth)
    far[:, 0] = np.minimum(far[:, 0], _HALF)
    middle = rows.mean[:, [_LONGITUDE, 0]]
    box: Floats = np.hstack([middle - far, middle + far])
    box[:, 1], box[:, 3] = np.maximum(box[:, 1], -_POLE), np.minimum(box[:, 3], _POLE)
    return box


def _overlaps(ranges: Floats, boxes: Floats) -> tuple[Ints, Floats]:
    """What ranges have in common with boxes, also a turn to the west and to the east; of which pair each part is."""
    limited = np.flatnonzero(np.isfinite(ranges[:, 0]))
    turn = np.array([2.0 * _HALF, 0.0, 2.0 * _HALF, 0.0])
    pair = np.concatenate([np.arange(len(ranges)), limited, limited])
    parts = np.concatenate([ranges, ranges[limited] - turn, ranges[limited] + turn])
    low, high = np.maximum(parts[:, :2], boxes[pair, :2]), np.minimum(parts[:, 2:], boxes[pair, 2:])
    there = np.flatnonzero((low < high).all(axis=1))
    return pair[there], np.hstack([low, high])[there]


def _in_ranges(_: Regions, rows: Normals, at: Ints32, region: Ints, ranges: Floats) -> Floats:
    """The probability that some rows lie in ranges of latitude and longitude, pair by pair."""
    reach = _reached(rows)[at]
    pair, box = _overlaps(ranges, reach)
    found = np.ones(len(pair))
    cut = np.flatnonzero((box != reach[pair]).any(axis=1))
    found[cut] = _masses(rectangles(box[cut]), rows, at[pair[cut]], np.arange(len(cut)))
    return np.minimum(np.bincount(pair, found, len(region)), 1.0)


def _in_parts(regions: Regions, rows: Normals, at: Ints32, region: Ints, ranges: Floats) -> Floats:
    """The probability that some rows lie in the part of a region, which is no disc, within ranges, pair by pair."""
    pair, box = _overlaps(ranges, regions.box[region])
    asked, which = np.unique(np.column_stack([region[pair], box]), axis=0, return_inverse=True)
    outlines = clipped(regions, asked[:, 0].astype(np.int64), asked[:, 1:3], asked[:, 3:])
    found = _masses(outlines, rows, at[pair], which.reshape(-1))
    return np.minimum(np.bincount(pair, found, len(region)), 1.0)


def _in(regions: Regions, rows: Normals, at: Ints32, region: Ints, _: Floats) -> Floats:
    """The probability that some rows lie in regions, pair by pair."""
    found, disc = np.empty(len(at)), ~np.isnan(regions.radius[region])
    own, rest = np.flatnonzero(disc), np.flatnonzero(~disc)
    given = rows.at[at[own]], rows.scale[at[own]], rows.spread[at[own]]
    found[own] = mass(regions, region[own], *given, rows.earth)
    found[rest] = _masses(regions, rows, at[rest], region[rest])
    return found


def _masses(regions: Regions, rows: Normals, at: Ints32, ids: Ints) -> Floats:
    """The probability that some rows lie in regions that are no discs, pair by pair."""
    assert rows.earth is not None  # noqa: S101 - of positions there is one
    lon, lat = rows.at[at].T.copy()
    found: Floats = curved_masses(regions, ids, lat, rows.scale[at], centred(lat, lon, rows.earth), rows.earth)
    return found
