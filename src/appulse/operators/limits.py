"""Pairs whose difference has no density: how likely they are, as the limit of what errors a little larger give.

Where neither row has an error in some direction, the difference gets one of deviation s in all directions, and s goes
to nothing. If the rows differ in such a direction, so does the density of their difference. Else it grows as
``s ** -order``, where ``order`` is the number of these directions: the pair is infinitely likely, the more so the more
there are. The factor beside the power of s compares pairs of one order.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.arrays import RowPairs
from appulse.kernels.gaussian import Gaussians
from appulse.kernels.likelihood import log_densities_on_earth
from appulse.model.covariance import flat_part, matrices

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints
    from appulse.kernels.geodesic import Earth
    from appulse.model.objects import Objects
    from appulse.operators.plan import JoinPlan

    Limits = tuple[Ints, Floats]

_LOG_TWO_PI = math.log(2.0 * math.pi)
# Of epsilon, how far apart rows are at one place: far above the rounding of coordinates, and of directions.
_ONE_PLACE = 1e-6
# Of the largest variance, what rounding leaves of one that is zero.
_NOTHING = 1e-14


@np.errstate(over="ignore", invalid="ignore")
def limits(plan: JoinPlan, left: Objects, right: Objects) -> Limits:
    """Of pairs without a density: ``order``, 0 where the density goes to nothing, and the logarithm of what is left."""
    near = _ONE_PLACE * min(plan.within(left.d)[1] if plan.vertical is None else (plan.epsilon, plan.vertical))
    if plan.earth is not None:
        return _on_earth(plan.earth, near, left, right)
    if max(left.spread.shape[1], right.spread.shape[1]) <= 1:
        return _without_directions(near, left, right)
    d, gap = left.d, left.centre - right.centre
    matrix = matrices(left.spread, d) + matrices(right.spread, d)
    known = np.asarray(np.isfinite(matrix).all(axis=(1, 2)))
    variance, axes = np.linalg.eigh(np.where(known[:, None, None], matrix, np.eye(d)))
    along = np.einsum("nij,ni->nj", axes, gap)
    free = variance <= _NOTHING * variance[:, -1:]
    free[:, 0] = True  # or there were a density
    there = known & (np.abs(np.where(free, along, 0.0)).max(axis=1) <= near)
    variance = np.where(free, 1.0, variance)
    square = np.where(free, 0.0, along**2 / variance)
    logarithm = -0.5 * ((square + np.log(variance)).sum(axis=1) + d * _LOG_TWO_PI)
    return np.where(there, free.sum(axis=1), 0), logarithm


def _without_directions(near: float, left: Objects, right: Objects) -> Limits:
    """Where errors are the same in all directions, there is none."""
    none = _variance(left) + _variance(right) == 0.0
    there = none & (np.sqrt(((left.centre - right.centre) ** 2).sum(axis=1)) <= near)
    return np.where(there, left.d, 0), np.full(len(left), -0.5 * left.d * _LOG_TWO_PI)


def _variance(rows: Objects) -> Floats:
    return rows.spread[:, 0] ** 2 if rows.spread.shape[1] else np.zeros(len(rows))


def _on_earth(earth: Earth, near: float, left: Objects, right: Objects) -> Limits:
    """Errors along the Earth have an area or are nothing; those of altitudes stand beside them."""
    rows = np.arange(len(left))
    one, other = (
        Gaussians(np.ascontiguousarray(side.centre[:, :3]), side.mass, np.ascontiguousarray(flat_part(side.spread)))
        for side in (left, right)
    )
    logarithm = np.empty(len(rows))
    log_densities_on_earth(RowPairs(rows, rows), earth, one, other, logarithm)
    none = np.isnan(logarithm)
    there = ~none | (np.sqrt(((one.centre - other.centre) ** 2).sum(axis=1)) <= near)
    logarithm = np.where(none, -_LOG_TWO_PI, logarithm)
    order = 2 * none
    if left.centre.shape[1] > one.centre.shape[1]:
        rise = left.centre[:, -1] - right.centre[:, -1]
        variance = _above(left) + _above(right)
        level = variance == 0.0
        order = order + level
        there &= ~level | (np.abs(rise) <= near)
        variance = np.where(level, 1.0, variance)
        logarithm -= 0.5 * (np.where(level, 0.0, rise**2 / variance) + np.log(variance) + _LOG_TWO_PI)
    return np.where(there, order, 0), logarithm


def _above(rows: Objects) -> Floats:
    """The variances of altitudes: of the last column of two or four."""
    width = rows.spread.shape[1]
    return rows.spread[:, -1] ** 2 if width and width % 2 == 0 else np.zeros(len(rows))
