"""Spreads of normal rows: one deviation for all dimensions, one for each, or the upper triangle of a covariance.

A spread has 1 column, ``d``, or ``d (d + 1) / 2``, row by row; in two and three dimensions no two of these are alike,
as deviations of each dimension are held as variances there. Positions have two dimensions, east and north, in metres;
a last column more is the deviation of the altitude.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from appulse.model import defects as why
from appulse.model.columns import floats
from appulse.model.room import room
from appulse.model.uncertainty import MOST_IN_CLOSED_FORM, Ball, Gaussian, Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.defects import Defects
    from appulse.model.uncertainty import Model

# A variance may be below zero by this share of the largest: matrices come with the rounding of those who made them.
_ROUNDING = 1e-9
# The least variance across an ellipse, of the largest: a millionth of its length.
_THIN = 1e-12
_FLAT = 2  # dimensions


def width(d: int) -> int:
    """Entries of the upper triangle of a matrix of ``d`` rows."""
    return d * (d + 1) // 2


def checked_deviations(
    table: pa.Table,
    parts: Sequence[str | float],
    defects: Defects,
    most: float = np.inf,
    large: str = why.LARGE_ERROR,
) -> Floats:
    """Deviations or radii (n, parts), of columns or numbers; bad rows are marked, those above ``most`` as ``large``."""
    spread = _read(table, parts, defects)
    for odd, reason in ((spread < 0.0, why.NEGATIVE_SPREAD), (spread > most, large)):
        defects.mark(_in_any(odd), reason, _of_parts(table, parts, odd))
    return spread


def checked_spread(table: pa.Table, model: Gaussian, defects: Defects) -> Floats:
    """The spread of normal rows, by whichever argument it was given; bad rows are marked."""
    d = len(model.columns)
    if model.ellipse is not None:
        return checked_ellipses(table, model.ellipse, defects)
    if model.covariance is None:
        sigmas = checked_deviations(table, model.errors, defects)
        return of_deviations(sigmas) if 1 < sigmas.shape[1] <= MOST_IN_CLOSED_FORM else sigmas
    triangle = _read(table, model.covariance, defects)
    finite = np.where(defects.bad[:, None], 0.0, triangle)
    bad = not_covariances(finite, d)
    defects.mark(bad, why.BAD_COVARIANCE, why.of_values("its upper triangle is ", triangle))
    return np.sqrt(np.maximum(finite, 0.0)) if d == 1 else finite


def checked_ellipses(
    table: pa.Table,
    ellipse: Sequence[str | float],
    defects: Defects,
    most: float = np.inf,
    large: str = why.LARGE_ERROR,
) -> Floats:
    """Upper triangles of ellipses; bad rows are marked."""
    angle = _read(table, ellipse[2:], defects)
    axes = checked_deviations(table, ellipse[:2], defects, most, large)
    return of_ellipses(np.where(defects.bad[:, None], 0.0, np.hstack([axes, angle])))


def _read(table: pa.Table, parts: Sequence[str | float], defects: Defects) -> Floats:
    found = room((len(table), len(parts)))
    for k, part in enumerate(parts):
        found[:, k] = floats(table[part]) if isinstance(part, str) else float(part)
    odd = ~np.isfinite(found)
    defects.mark(_in_any(odd), why.NON_FINITE, _of_parts(table, parts, odd))
    return found


def _of_parts(table: pa.Table, parts: Sequence[str | float], odd: Flags) -> why.Details:
    """Which of the columns are odd (n, parts); calls check numbers."""

    def details(at: Ints) -> list[str]:
        named = [k for k, part in enumerate(parts) if isinstance(part, str)]
        return list(why.of_columns(table, [str(parts[k]) for k in named], odd[:, named])(at))

    return details


def _in_any(flags: Flags) -> Flags:
    """Which rows have a flag: column by column, as rows of a few take NumPy ten times as long."""
    found: Flags = reduce(np.logical_or, flags.T, np.zeros(len(flags), bool))
    return found


def of_deviations(sigmas: Floats) -> Floats:
    """Upper triangles of independent dimensions, of their deviations (n, d)."""
    d = sigmas.shape[1]
    found = np.zeros((len(sigmas), width(d)))
    found[:, _diagonal(d)] = sigmas**2
    return found


def of_ellipses(axes: Floats) -> Floats:
    """Upper triangles of ellipses (n, 3): semi-axes, and degrees of the first of them, clockwise from north."""
    along, across = axes[:, 0] ** 2, axes[:, 1] ** 2
    angle = np.radians(axes[:, 2])
    sine, cosine = np.sin(angle), np.cos(angle)
    return np.column_stack(
        [
            along * sine**2 + across * cosine**2,
            (along - across) * sine * cosine,
            along * cosine**2 + across * sine**2,
        ]
    )


def not_covariances(triangles: Floats, d: int) -> Flags:
    """Which finite triangles are no covariance, as some variance would be negative."""
    least, most = _extremes(triangles, d)
    bad: Flags = (least < -_ROUNDING * most) | (most < 0.0)
    return bad


def widest(spread: Floats, model: Model) -> Floats:
    """At least the largest deviation of each row along any line."""
    found: Floats
    if isinstance(model, Position):
        flat, above = flat_and_above(spread, model)
        most = flat_widest(flat)
        found = most if above.shape[1] == 0 else np.hypot(most, above[:, 0])
        return found if flat.shape[1] == 1 else found * (1.0 + 1e-12)
    d = len(model.columns) if isinstance(model, Gaussian) else 1
    if spread.shape[1] == width(d) > 1:
        found = np.sqrt(np.maximum(_extremes(spread, d)[1], 0.0))
        return found * (1.0 + 1e-12)
    return np.max(spread, axis=1, out=room(len(spread)))


def widest_known(model: Gaussian | Position | Ball) -> float | None:
    """About the largest deviation or radius of all rows, where the model has numbers for it."""
    if isinstance(model, Ball):
        return model.radius if isinstance(model.radius, float) else None
    if isinstance(model, Gaussian) and model.covariance is not None:
        numbers = [entry for entry in model.covariance if isinstance(entry, float)]
        return max(map(abs, numbers)) ** 0.5 if len(numbers) == len(model.covariance) else None
    flat = model.errors if model.ellipse is None else model.errors[:2]
    given = flat[:1] if isinstance(model, Position) and model.ellipse is None else flat
    sigmas = [sigma for sigma in given if isinstance(sigma, float)]
    return max(sigmas) if len(sigmas) == len(given) else None


def known_size(model: Gaussian | Position) -> float | None:
    """The geometric mean of the semi-axes of all errors in two dimensions, where the model has numbers for them."""
    flat = model.errors[:3] if model.ellipse is not None else model.errors
    flat = flat[:1] if isinstance(model, Position) and model.ellipse is None else flat
    numbers = [entry for entry in flat if isinstance(entry, float)]
    if len(numbers) < len(flat):
        return None
    if isinstance(model, Gaussian) and model.covariance is not None:
        return math.sqrt(math.sqrt(max(0.0, numbers[0] * numbers[2] - numbers[1] ** 2)))
    return math.sqrt(numbers[0] * numbers[min(1, len(numbers) - 1)])


def flat_and_above(spread: Floats, model: Position) -> tuple[Floats, Floats]:
    """Of positions: the spread along the Earth, and the deviation of the altitude (n, 0 or 1)."""
    at = 1 if model.ellipse is None else 3
    return spread[:, :at], spread[:, at:]


def flat_part(spread: Floats) -> Floats:
    """Of values in a plane or on the Earth: one deviation (n, 1), or the upper triangle (n, 3) of two dimensions."""
    n, width = spread.shape
    return spread[:, :3] if width > _FLAT else spread[:, :1] if width else np.zeros((n, 1))


def flat_widest(spread: Floats) -> Floats:
    """The largest deviation of each `flat_part`."""
    found: Floats = spread[:, 0] if spread.shape[1] == 1 else np.sqrt(_extremes(spread, _FLAT)[1])
    return found


def whitening(spread: Floats) -> Floats:
    """What makes errors of two dimensions independent, of deviation 1: x a, and y b + x c, where (a, b, c) is a row.

    Infinite, infinite and 0 where there is no error. One thinner than a millionth of its length is made that wide.
    """
    if spread.shape[1] == 1:
        with np.errstate(divide="ignore"):
            sharp = 1.0 / spread[:, 0]
        return np.column_stack([sharp, sharp, np.zeros(len(spread))])
    xx, xy, yy = spread.T
    most = _extremes(spread, _FLAT)[1]
    there = most > 0.0
    xx = np.where(there, np.maximum(xx, _THIN * most), 1.0)
    rest = np.where(there, np.maximum(yy - xy * (xy / xx), _THIN * most), 1.0)
    none = np.where(there, 0.0, np.inf)
    return np.column_stack([xx**-0.5 + none, rest**-0.5 + none, np.where(there, -xy / xx * rest**-0.5, 0.0)])


def unwhitening(scale: Floats) -> Floats:
    """What makes errors (a u, b v + c u) of independent ones, as `whitening` undoes."""
    across, along, tilt = scale.T
    return np.column_stack([1.0 / across, 1.0 / along, -tilt / across / along])


def deviations(spread: Floats, d: int) -> Floats:
    """The deviation of each dimension (n, d)."""
    if spread.shape[1] == width(d) > 1:
        return np.sqrt(np.maximum(spread[:, _diagonal(d)], 0.0))
    return np.broadcast_to(spread if spread.shape[1] else np.zeros((len(spread), 1)), (len(spread), d))


def moved(points: Floats, spread: Floats) -> Floats:
    """Points (m, d) of a spread of 1, for each row (n, m, d) as its spread has them."""
    d = points.shape[1]
    if spread.shape[1] != width(d) or d == 1:
        found: Floats = spread[:, None, :] * points[None, :, :]
        return found
    factor = _factors(spread, d)
    out = np.zeros((len(spread), *points.shape))
    for k in range(d):
        for m in range(k + 1):
            out[:, :, k] += factor[:, k, m, None] * points[None, :, m]
    return out


def matrices(spread: Floats, d: int) -> Floats:
    """Covariance matrices (n, d, d) of any spread; zeros where there is none."""
    if spread.shape[1] == width(d) > 1:
        return _matrices(spread, d)
    found: Floats = deviations(spread, d)[:, :, None] ** 2 * np.eye(d)
    return found


def _factors(triangles: Floats, d: int) -> Floats:
    """Lower triangles L with L L' the covariance (Cholesky); a variance that is used up leaves zeros."""
    matrix, factor = _matrices(triangles, d), np.zeros((len(triangles), d, d))
    for k in range(d):
        rest = matrix[:, k, k] - (factor[:, k, :k] ** 2).sum(axis=1)
        rest = np.where(rest > _ROUNDING**2 * matrix[:, k, k], rest, 0.0)
        factor[:, k, k] = np.sqrt(rest)
        for m in range(k + 1, d):
            left = matrix[:, m, k] - (factor[:, m, :k] * factor[:, k, :k]).sum(axis=1)
            np.divide(left, factor[:, k, k], out=factor[:, m, k], where=factor[:, k, k] > 0.0)
    return factor


def _extremes(triangles: Floats, d: int) -> tuple[Floats, Floats]:
    """The least and the greatest eigenvalue of each matrix; of two dimensions without a solver."""
    if d == _FLAT:
        one, both, other = triangles.T
        middle, half = one / 2.0 + other / 2.0, np.hypot(one / 2.0 - other / 2.0, both)
        return middle - half, middle + half
    found = np.asarray(np.linalg.eigvalsh(_matrices(triangles, d)), np.float64)
    return found[:, 0], found[:, -1]


def _matrices(triangles: Floats, d: int) -> Floats:
    found = np.empty((len(triangles), d, d))
    rows, columns = np.triu_indices(d)
    found[:, rows, columns] = triangles
    found[:, columns, rows] = triangles
    return found


def _diagonal(d: int) -> Ints:
    """Where the variances stand in an upper triangle."""
    k = np.arange(d)
    return k * d - k * (k - 1) // 2
