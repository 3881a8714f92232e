"""Checked rows as queries ask them: as what they are, as samples, or by their normal errors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.kernels.curved_regions import CURVED
from appulse.model import uncertainty
from appulse.model.columns import chunk, floats
from appulse.model.covariance import deviations, flat_part, flat_widest, whitening
from appulse.model.encode import as_samples
from appulse.model.positions import EARTHS, degree_scale, given_degrees, metres_of_degrees, plain_longitudes
from appulse.model.uncertainty import Gaussian, Position, in_closed_form, is_certain
from appulse.operators.curved_match import curved_windows, match_curved
from appulse.operators.query_match import TAIL, Normals, Points, both, match, match_normals
from appulse.queries.places import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.encode import ValidRows
    from appulse.model.encoding import Encoding
    from appulse.operators.query_match import Matched
    from appulse.queries.rows import WideRows
    from appulse.queries.sets import QuerySet


def matched(queries: QuerySet, rows: ValidRows, encoding: Encoding, threshold: float | None) -> Matched:
    """The queries that rows satisfy: those by normal errors that can be, others by samples."""
    if not normal_columns(encoding):
        return match(queries, points_of(rows, encoding), threshold)
    curved = _curved(rows, encoding)
    flat, rest = np.flatnonzero(~curved), np.flatnonzero(curved)
    found = match_normals(queries, normals_of(rows.take(flat) if len(rest) else rows, encoding), threshold)
    if len(rest):
        other = match_curved(queries, normals_of(rows.take(rest), encoding, copied=False), threshold)
        found = both(replace(found, row=flat[found.row]), replace(other, row=rest[other.row]))
    if not queries.samples:
        return found
    return both(found, match(queries, points_of(rows, encoding), threshold, normal=False))


def windows_of(rows: ValidRows, encoding: Encoding) -> Iterator[tuple[Ints, WideRows]]:
    """Rows with normal errors out to where they have no part, and which of them each is."""
    curved = _curved(rows, encoding)
    flat, rest = np.flatnonzero(~curved), np.flatnonzero(curved)
    normals = normals_of(rows.take(flat), encoding)
    yield flat[normals.owner], normals.wide(TAIL)
    if len(rest):
        yield rest, curved_windows(normals_of(rows.take(rest), encoding, copied=False))


def _curved(rows: ValidRows, encoding: Encoding) -> Flags:
    """Positions whose errors are too large, or that are too near a pole, for degrees to be as those of a plane."""
    model = encoding.held_as
    if not isinstance(model, Position):
        return np.zeros(len(rows.time), bool)
    lat = np.radians(floats(rows.table[model.lat]))
    most = CURVED * EARTHS[model.earth].b
    return flat_widest(flat_part(rows.values.spread)) * np.maximum(1.0, np.abs(np.tan(lat))) > most


def normal_columns(encoding: Encoding) -> tuple[str, ...]:
    """The coordinates of values with normal errors; none where conditions are asked of samples."""
    model = encoding.held_as
    if isinstance(model, Gaussian) and (model.sigma is not None or in_closed_form(model)):
        return model.columns
    return model.columns if isinstance(model, Position) and not model.exact else ()


def points_of(rows: ValidRows, encoding: Encoding) -> Points:
    """The samples of checked rows, with all columns that conditions may name: no lists, such as of the samples."""
    schema = rows.table.schema
    columns = {field.name: chunk(rows.table[field.name]) for field in schema if not pa.types.is_nested(field.type)}
    model, n = encoding.held_as, len(rows.table)
    own = place_of(encoding.model, encoding.dimensions)
    if is_certain(model):
        at = given_degrees(rows.table, model) if isinstance(model, Position) else rows.values.centre
        place = None if own is None else at
        if encoding.existence is None:
            return Points(columns, n, rows.time, place=place)
        return Points(columns, n, rows.time, np.arange(n), rows.existence, place)
    samples = as_samples(rows.values, model)
    counts, owner = samples.counts, samples.owner
    points, given = samples.values.points, samples.values.weights
    if isinstance(model, Position) and model.earth == "sky":
        points = np.column_stack([points[:, 0], np.remainder(points[:, 1], 360.0), points[:, 2:]])
    weight = 1.0 / np.repeat(np.maximum(counts, 1), counts) if given is None else given
    if rows.values.share is not None:
        weight = weight * rows.values.share[owner]
    names = uncertainty.names(model, points.shape[1])
    at = pa.array(owner)
    spread = {name: column.take(at) for name, column in columns.items() if name not in names}
    spread |= {name: pa.array(np.ascontiguousarray(points[:, i])) for i, name in enumerate(names)}
    place = None
    if own is not None:
        place = np.column_stack([points[:, names.index(name)] for name in (own.x, own.y)])
        if own.earth is not None:
            place[:, 0] = plain_longitudes(place[:, 0])
    return Points(spread, len(owner), rows.time[owner], owner, weight * rows.existence[owner], place)


def normals_of(rows: ValidRows, encoding: Encoding, *, copied: bool = True) -> Normals:
    """Checked rows by their normal errors; if ``copied``, those near the 180th meridian also 360 degrees away."""
    model, names = encoding.held_as, normal_columns(encoding)
    n, centre, spread = len(rows.time), rows.values.centre, rows.values.spread
    columns = {name: chunk(rows.table[name]) for name in rows.table.column_names if name not in names}
    owner = np.arange(n)
    earth, at, scale, error, covariance = None, np.empty((n, 0)), np.empty((n, 0)), flat_part(spread), None
    if isinstance(model, Position):
        earth = EARTHS[model.earth]
        degrees = given_degrees(rows.table, model)
        assert degrees is not None  # noqa: S101 - of a position there are some
        scale = degree_scale(degrees[:, 1], error, earth)
        covariance = _in_degrees(error, spread[:, error.shape[1] :], metres_of_degrees(degrees[:, 1], earth))
        sigma = deviations(covariance, len(names))
        mean = np.hstack([degrees[:, ::-1], centre[:, 3:]])
        reach, lon = TAIL * sigma[:, 1] if copied else np.full(n, -np.inf), mean[:, 1].copy()
        turned, turn = _over(lon, reach, 0.0)
        at, turn_at = mean[:, 1::-1].copy(), turn
        if model.earth == "sky":  # right ascensions are from 0 to 360, while places stay where regions have them
            mean[:, 1] = np.remainder(lon, 360.0)
            around, turn = _over(mean[:, 1], reach, 180.0)
            turn_at, turn = (np.concatenate(turns) for turns in ((turn_at, 0.0 * turn), (0.0 * turn_at, turn)))
            turned = np.concatenate([turned, around])
        owner = np.concatenate([owner, turned])
        mean, sigma, scale, covariance = mean[owner], sigma[owner], scale[owner], covariance[owner]
        covariance = None if model.ellipse is None else covariance
        at = at[owner]
        mean[n:, 1] += turn
        at[n:, 0] += turn_at
    else:
        mean, sigma = centre, np.ascontiguousarray(deviations(spread, centre.shape[1]))
        covariance = spread if isinstance(model, Gaussian) and model.sigma is None and len(names) > 1 else None
        if place_of(model, encoding.dimensions) is not None:
            at, scale = mean, whitening(error)
    if len(owner) > n:
        columns = {name: column.take(pa.array(owner)) for name, column in columns.items()}
    time, exists, at = rows.time[owner], rows.existence[owner], np.ascontiguousarray(at)
    return Normals(columns, time, owner, names, mean, sigma, covariance, exists, at, scale, error[owner], earth)


def _over(lon: Floats, reach: Floats, middle: float) -> tuple[Ints, Floats]:
    """Places that reach 180 degrees from the middle of all longitudes, and what takes each to the other side."""
    far = np.abs(lon - middle) + reach >= 180.0
    return np.flatnonzero(far), np.where(lon[far] > middle, -360.0, 360.0)


def _in_degrees(flat: Floats, above: Floats, metres: Floats) -> Floats:
    """The upper triangle of the covariance of latitude, longitude and, if there is one, altitude."""
    east, north, none = metres[:, 0], metres[:, 1], np.zeros(len(flat))
    xx, xy, yy = flat.T if flat.shape[1] > 1 else (flat[:, 0] ** 2, none, flat[:, 0] ** 2)
    around = yy / north**2, xy / (north * east), xx / east**2
    if not above.shape[1]:
        return np.column_stack(around)
    return np.column_stack([around[0], around[1], none, around[2], none, above[:, 0] ** 2])
