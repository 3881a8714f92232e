"""Which standing queries rows satisfy, and with what probability (Lim et al. 2006, over uncertain rows)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from appulse.kernels.clipped_discs import clipped_discs
from appulse.kernels.gaussian import interval_masses
from appulse.kernels.near_regions import Readings
from appulse.kernels.normal_boxes import box_masses
from appulse.model.batch import Batch
from appulse.model.positions import EARTHS, centred
from appulse.queries.clipping import clipped
from appulse.queries.keys import doubles_of
from appulse.queries.places import PLACE_X, PLACE_Y, mass
from appulse.queries.rows import Rows, WideRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from appulse.kernels.arrays import Floats, Ints, Ints32
    from appulse.kernels.geodesic import Earth
    from appulse.queries.index import Met
    from appulse.queries.regions import Found
    from appulse.queries.sets import QuerySet

#: Beyond this many deviations a normal tail is below 1e-12.
TAIL = 7.5
_LONGITUDE = 1  # among the coordinates of a position


@dataclass(frozen=True)
class Points:
    """The samples of rows, as columns: sample i is of row ``owner[i]`` and weighs ``weight[i]``.

    Both are None where rows are what their columns say, and certain. ``n`` is how many there are.
    """

    columns: Mapping[str, pa.Array]
    n: int
    time: Ints  # of each sample's row
    owner: Ints | None = None
    weight: Floats | None = None
    place: Floats | None = None  # (n, 2), of what has one

    @property
    def rows(self) -> Rows:
        """As queries read them."""
        return Rows(self.columns, self.time, self.place)


@dataclass(frozen=True)
class Normals:
    """Rows with normal errors: ``mean`` and ``sigma`` (n, d) of the coordinates ``names``.

    ``covariance`` is the upper triangle, None where errors are independent. ``columns`` are the others. A row may be
    there several times, ``owner`` says whose copy each is: a place near the 180th meridian also lies 360 degrees away,
    and of all copies what lies between the meridians counts. ``at``, ``scale`` and ``spread`` are those of `Readings`.
    """

    columns: Mapping[str, pa.Array]
    time: Ints
    owner: Ints
    names: tuple[str, ...]
    mean: Floats
    sigma: Floats
    covariance: Floats | None
    exists: Floats
    at: Floats
    scale: Floats
    spread: Floats
    earth: Earth | None

    @property
    def on_sky(self) -> bool:
        """Whether places are on the sky."""
        return self.earth == EARTHS["sky"]

    @property
    def least_longitude(self) -> float:
        """From where on longitudes are counted: right ascensions from 0, else from -180 degrees."""
        return 0.0 if self.on_sky else -180.0

    @property
    def copied(self) -> bool:
        """Whether some row is there several times."""
        return bool((np.diff(self.owner) < 1).any())

    def wide(self, reach: float) -> WideRows:
        """As queries read them, out to so many deviations."""
        names, mean, sigma = self.names, self.mean, self.sigma
        if self.at.shape[1]:
            flat = sigma[:, :2] if self.earth is None else sigma[:, 1::-1]  # longitude comes second
            names, mean, sigma = (*names, PLACE_X, PLACE_Y), np.hstack([mean, self.at]), np.hstack([sigma, flat])
        least, most = mean - reach * sigma, mean + reach * sigma
        wide = {name: (least[:, i], most[:, i]) for i, name in enumerate(names)}
        return WideRows(self.columns, self.time, wide)


@dataclass(frozen=True, slots=True)
class Matched(Batch):
    """Rows, the queries each satisfies by slot, and with what probability."""

    row: Ints
    slot: Ints32
    probability: Floats

    def sorted(self) -> Matched:
        """By row and slot."""
        return self.take(np.argsort(_pairs(self.row, self.slot), kind="stable"))


def match(queries: QuerySet, points: Points, threshold: float | None, *, normal: bool = True) -> Matched:
    """The pairs of rows and queries with a probability of at least ``threshold``; None: any that is possible.

    Not ``normal``: without the queries that `match_normals` answers.
    """
    found, slots = queries.match(points.rows, points.n, counted=False, normal=normal)
    if points.owner is None or points.weight is None:
        pairs = _pairs(found, slots)
        pairs.sort()  # trees, and clusters of points, give them in orders of their own
        return Matched(pairs >> 32, _slots(pairs), np.ones(len(pairs)))
    return summed(points.owner[found], slots, points.weight[found], threshold)


def reach_of(queries: QuerySet, threshold: float | None, *, copied: bool) -> float:
    """How far, in deviations, the mean of a row may be from the box of a query that it satisfies."""
    if threshold is None or queries.several or copied:  # of what is a sum, a part may be as small as it likes
        return TAIL
    return max(0.0, -float(ndtri(min(threshold, 1.0))))


def match_normals(queries: QuerySet, rows: Normals, threshold: float | None) -> Matched:
    """The same of rows with normal errors, exactly: for queries that are products over columns, or regions."""
    copied = rows.copied
    alone = in_regions(queries, rows, threshold)
    wide = rows.wide(reach_of(queries, threshold, copied=copied))
    met = queries.meeting(wide, len(rows.owner))
    region = queries.regions.of(met.entries)
    low, high = (np.full((len(region), len(rows.names)), far) for far in (-np.inf, np.inf))
    for i, name in enumerate(rows.names):
        axis = queries.axis_of(name)
        if axis is not None:
            low[:, i], high[:, i] = doubles_of(met.lows[axis]), doubles_of(met.highs[axis])
        if copied and i == _LONGITUDE:  # a region alone has its own bounds
            own = (region < 0) | (rows.on_sky & np.isfinite(np.hstack([low[:, :2], high[:, :2]])).any(axis=1))
            low[own, i] = np.maximum(low[own, i], rows.least_longitude)
            high[own, i] = np.minimum(high[own, i], rows.least_longitude + 360.0)
    tied, ranges = _tied(rows, met.rows, region, low, high)
    twice = _said_twice(queries, met, rows, region, tied) if copied else tied[:0]
    probability = rows.exists[met.rows] * _in_ranges(rows, met.rows, low, high)
    probability[tied] *= _in_parts(queries, rows, met.rows[tied], region[tied], ranges)
    region[tied] = -1
    probability[twice] = 0.0
    asked = np.flatnonzero((region >= 0) & (probability > 0.0))
    if len(asked):
        at = met.rows[asked]
        given = rows.at[at], rows.scale[at], rows.spread[at]
        probability[asked] *= mass(queries.regions.arrays, region[asked], *given, rows.earth)
    return summed(rows.owner[met.rows], met.entries, probability, threshold, alone)


def _said_twice(queries: QuerySet, met: Met, rows: Normals, region: Ints, tied: Ints) -> Ints:
    """Pairs of a copy of a row and a query of which another copy says the same.

    Distances to a disc's centre are those of all copies. On the sky some copies have the same mean, of which ranges
    say the same, and some are at the same place, of which regions do.
    """
    placed, disc = region >= 0, np.zeros(len(region), bool)
    disc[placed] = ~np.isnan(queries.regions.arrays.radius[region[placed]])
    several = (np.bincount(rows.owner) > 1)[rows.owner[met.rows]] & (disc | rows.on_sky)
    several[tied] = False
    asked = np.flatnonzero(several)
    frame = np.where(placed[asked], rows.at[met.rows[asked], 0], rows.mean[met.rows[asked], _LONGITUDE])
    frame[disc[asked]] = 0.0
    flat = queries.axis_of(PLACE_X), queries.axis_of(PLACE_Y)  # where copies meet boxes of their own
    bounds = [side[asked] for sides in (met.lows, met.highs) for axis, side in enumerate(sides) if axis not in flat]
    pairs = [rows.owner[met.rows[asked]], met.entries[asked], frame.view(np.int64), *bounds]
    return np.delete(asked, np.unique(np.column_stack(pairs), axis=0, return_index=True)[1])


def _in_ranges(rows: Normals, at: Ints32, low: Floats, high: Floats) -> Floats:
    """The probability that some rows lie in ranges of all their coordinates, pair by pair."""
    found = np.ones(len(at))
    if rows.covariance is not None:
        box_masses(low, high, rows.mean[at], rows.covariance[at], found)
        return found
    for i in range(len(rows.names)):
        if np.isfinite(low[:, i]).any() or np.isfinite(high[:, i]).any():
            found *= interval_masses(low[:, i].copy(), high[:, i].copy(), rows.mean[at, i], rows.sigma[at, i])
    return found


def _tied(rows: Normals, at: Ints32, region: Ints, low: Floats, high: Floats) -> tuple[Ints, Floats]:
    """Pairs of a row with errors and a query that has a region and ranges of the same coordinates, and these ranges.

    They are west, south, east and north; ``low`` and ``high`` lose them.
    """
    if not rows.at.shape[1]:
        return np.empty(0, np.int64), np.empty((0, 4))
    flat = [0, 1] if rows.earth is None else [1, 0]  # longitude comes second
    ranges = np.hstack([low[:, flat], high[:, flat]])
    tied = np.flatnonzero((region >= 0) & np.isfinite(ranges).any(axis=1) & np.isfinite(rows.scale[at, 0]))
    for axis in flat:
        low[tied, axis], high[tied, axis] = -np.inf, np.inf
    ranges = ranges[tied]
    if rows.on_sky:
        ranges[:, ::2] += (rows.at[at[tied], 0] - rows.mean[at[tied], _LONGITUDE])[:, None]
    return tied, ranges


def _in_parts(queries: QuerySet, rows: Normals, at: Ints32, region: Ints, ranges: Floats) -> Floats:
    """The probability that some rows lie in the part of a region that is within ranges, pair by pair."""
    if not len(at):
        return np.empty(0)
    arrays, found = queries.regions.arrays, np.empty(len(at))
    radius = arrays.radius[region]
    disc, rest = np.flatnonzero(~np.isnan(radius)), np.flatnonzero(np.isnan(radius))
    if len(disc):
        own, centre = at[disc], arrays.centre[region[disc], :2].copy()
        part = np.empty(len(disc))
        clipped_discs(rows.at[own], centre, radius[disc], ranges[disc], rows.scale[own], part)
        found[disc] = part
    if not len(rest):
        return found
    parts, which = np.unique(np.column_stack([region, ranges])[rest], axis=0, return_inverse=True)
    outlines, own = clipped(arrays, parts[:, 0].astype(np.int64), parts[:, 1:3], parts[:, 3:]), at[rest]
    found[rest] = mass(outlines, which.reshape(-1), rows.at[own], rows.scale[own], rows.spread[own], rows.earth)
    return found


def in_regions(queries: QuerySet, rows: Normals, threshold: float | None) -> Found | None:
    """Rows and the queries for a region alone in which they lie."""
    if not rows.at.shape[1]:
        return None
    n = int(rows.owner.max(initial=-1)) + 1  # those behind are copies
    at, none = np.ascontiguousarray(rows.at[:n]), np.empty(0, np.int64)
    place = np.zeros((n, 3)) if rows.earth is None else centred(at[:, 1], at[:, 0], rows.earth)
    readings = Readings(none, none, at, rows.scale[:n], place, rows.spread[:n], rows.exists[:n])
    reach = TAIL if threshold is None else max(0.0, -float(ndtri(min(threshold, 1.0))))
    return queries.near(rows.wide(0.0), readings, threshold, reach)


def summed(owner: Ints, slots: Ints32, weight: Floats, threshold: float | None, more: Found | None = None) -> Matched:
    """Pairs of rows and queries by the weight of all their parts, ``more`` among them."""
    if more is not None:
        owner, slots = np.concatenate([owner, more.row]), np.concatenate([slots, more.slot])
        weight = np.concatenate([weight, more.probability])
    distinct, which = np.unique(_pairs(owner, slots), return_inverse=True)
    probability = np.bincount(which, weights=weight, minlength=len(distinct))
    stays = probability >= threshold if threshold is not None else probability > 0.0
    distinct = distinct[stays]
    return Matched(distinct >> 32, _slots(distinct), np.minimum(probability[stays], 1.0))


def both(one: Matched, other: Matched) -> Matched:
    """Answers of two kinds of queries, by row and slot."""
    return Matched.concat([one, other]).sorted()


def _pairs(rows: Ints | Ints32, slots: Ints32) -> Ints:
    return rows.astype(np.int64) << 32 | slots


def _slots(pairs: Ints) -> Ints32:
    return (pairs & 0xFFFFFFFF).astype(np.int32)
