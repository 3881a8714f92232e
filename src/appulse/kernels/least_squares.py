"""Least squares with the errors made at similar rows, and shares of these, for rows of a repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel
from appulse.kernels.similar_rows import in_order

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

_EPSILON = float(np.finfo(np.float64).eps)


class Scale(NamedTuple):
    """The middle of each attribute and its deviation, infinite where it never varies."""

    centre: Floats
    deviation: Floats


@exact_kernel
def in_units(rows: Floats, columns: Ints, deviation: Floats) -> Floats:
    """Some columns (columns, n) of rows in deviations, cut off where the square of a distance would overflow."""
    found = np.empty((len(columns), len(rows)))
    for j in range(len(columns)):
        column = columns[j]
        for i in range(len(rows)):
            found[j, i] = min(max(rows[i, column] / deviation[column], -1e150), 1e150)
    return found


@exact_kernel
def _from_middle(rows: Floats, columns: Ints, scale: Scale) -> Floats:
    """How many deviations some columns lie off their middle, (n, columns + 1); and a 1, for the constant."""
    found = np.ones((len(rows), len(columns) + 1))
    for i in range(len(rows)):
        for j in range(len(columns)):
            column = columns[j]
            off = 0.0 if np.isinf(scale.deviation[column]) else rows[i, column] - scale.centre[column]
            found[i, j] = off / scale.deviation[column]
    return found


@exact_kernel
def fitted(rows: Floats, seen: Ints, holes: Ints, scale: Scale) -> tuple[Floats, Floats]:
    """Weights (seen + 1, holes), the constant's last, of least squares over rows, and the errors (n, holes)."""
    given, wanted = _from_middle(rows, seen, scale), _from_middle(rows, holes, scale)[:, :-1].copy()
    found = np.zeros((given.shape[1], wanted.shape[1]))
    if len(rows) == 0:  # nothing is known of the holes: LAPACK takes no empty matrix
        return found, wanted
    found[:] = np.linalg.lstsq(given, wanted, _EPSILON * max(given.shape))[0]
    return found, wanted - given @ found


@exact_kernel
def around(rows: Floats, seen: Ints, holes: Ints, weights: Floats, errors: Floats, near: Ints, scale: Scale) -> Floats:
    """What is predicted for rows, give or take errors (rows, samples, holes) at the places ``near`` (rows, k).

    Samples are every third of these by the first hole, as good as all of them; all, where k is no multiple of three.
    """
    (n, k), m = near.shape, len(holes)
    predicted = _from_middle(rows, seen, scale) @ weights
    third = k % 3 == 0
    found = np.empty((n, k // 3 if third else k, m))
    for i in range(n):
        by_first = in_order(errors[:, 0][near[i]]) if third else np.arange(k)
        for q in range(found.shape[1]):
            place = near[i, by_first[3 * q + 1 if third else q]]
            for h in range(m):
                deviation = scale.deviation[holes[h]]
                off = predicted[i, h] + errors[place, h]
                found[i, q, h] = scale.centre[holes[h]] + (0.0 if np.isinf(deviation) else off * deviation)
    return found


@exact_kernel
def weights(known: Floats, asked: Floats, near: Ints) -> Floats:
    """Shares (asked, k) of known rows at the places ``near``: 1 / distance; those at none leave nothing to others."""
    shares = np.empty(near.shape)
    for q in range(len(near)):
        same = False
        for i in range(near.shape[1]):
            distance = 0.0
            for j in range(len(known)):
                distance += (known[j, near[q, i]] - asked[j, q]) ** 2
            shares[q, i] = np.sqrt(distance)
            same = same or distance == 0.0
        for i in range(near.shape[1]):
            shares[q, i] = float(int(shares[q, i] == 0.0)) if same else 1.0 / shares[q, i]
        shares[q] /= shares[q].sum()
    return shares
