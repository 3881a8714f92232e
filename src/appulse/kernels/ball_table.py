"""Probabilities of balls by a table, where all pairs have errors of one size.

The probability that an isotropic Gaussian lies within a ball depends on the radius, the deviation and the distance.
Where the first two are the same for all pairs, it is a smooth function of the distance. A polynomial of degree 15 on
each piece as long as a deviation is exact to 1e-14. Quadrature takes 60 exponentials a pair, this 16 multiplications.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.gaussian import TAIL, ball_probability
from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats

_NODES = 16


class BallTable(NamedTuple):
    """Polynomials of Chebyshev, a piece a row, in how far the mean is inside of the rim, in deviations.

    The pieces begin at ``low`` and are ``width`` long. Without any there is no table.
    """

    epsilon: float
    deviation: float
    low: float
    width: float
    pieces: Floats


NO_TABLE = BallTable(0.0, 0.0, 0.0, 1.0, np.empty((0, _NODES)))


@lru_cache(maxsize=256)
def ball_table(epsilon: float, deviation: float, d: int) -> BallTable:
    """The table of a ball's radius and a deviation, for two dimensions and more."""
    if deviation <= 0.0 or d == 1 or not math.isfinite(epsilon / deviation):
        return NO_TABLE
    low, high = -TAIL - 1.0, min(math.sqrt(d - 1) + TAIL + 1.0, epsilon / deviation)
    count = math.ceil(high - low)
    pieces = np.empty((count, _NODES))
    table = BallTable(epsilon, deviation, low, (high - low) / count, pieces)
    _fill(table, d)
    return table


@kernel
def _fill(table: BallTable, d: int) -> None:
    values = np.empty(_NODES)
    for piece in range(table.pieces.shape[0]):
        for i in range(_NODES):
            t = math.cos(math.pi * (i + 0.5) / _NODES)
            ahead = table.low + table.width * (piece + 0.5 * (t + 1.0))
            values[i] = ball_probability(table.epsilon - ahead * table.deviation, table.deviation, table.epsilon, d)
        for k in range(_NODES):
            total = 0.0
            for i in range(_NODES):
                total += values[i] * math.cos(math.pi * k * (i + 0.5) / _NODES)
            table.pieces[piece, k] = total * (1.0 if k == 0 else 2.0) / _NODES


@kernel
def looked_up(table: BallTable, distance: float) -> float:
    """As `ball_probability`, of the table's radius and deviation."""
    at = ((table.epsilon - distance) / table.deviation - table.low) / table.width
    if at <= 0.0:
        return 0.0
    piece = int(at)
    if piece >= table.pieces.shape[0]:
        # Beyond the last piece there are balls that hold all, or means that are the centre but for rounding.
        piece, at = table.pieces.shape[0] - 1, float(table.pieces.shape[0])
    t = 2.0 * (at - piece) - 1.0
    after, this = 0.0, 0.0
    for k in range(_NODES - 1, 0, -1):
        after, this = this, 2.0 * t * this - after + table.pieces[piece, k]
    found: float = t * this - after + table.pieces[piece, 0]
    return min(1.0, max(0.0, found))
