"""Probabilities of balls by a table, where all pairs have errors of one size.

The probability that an isotropic Gaussian lies within a ball depends on the radius, the deviation and the distance.
Where the first two are the same for all pairs, it is a smooth function of the distance. A polynomial of degree 7 on
each piece as long as an eighth of a deviation is exact to 1e-14. Quadrature takes 60 exponentials a pair, this ten
multiplications, of which few wait for each other.
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

_TERMS, _PARTS = 8, 8
# Where a piece is looked at, by its middle, in its width; and the polynomial through the values there.
_NODES = 0.5 * np.cos(math.pi * (np.arange(_TERMS) + 0.5) / _TERMS)
_THROUGH = np.linalg.inv(np.vander(_NODES, increasing=True)).T


class BallTable(NamedTuple):
    """Polynomials, a piece a row, in how far the mean is inside of the rim.

    A piece is ``1 / scale`` long, the first one begins at ``low`` pieces. Without any there is no table.
    """

    epsilon: float
    deviation: float
    scale: float
    low: float
    pieces: Floats


NO_TABLE = BallTable(0.0, 0.0, 0.0, 0.0, np.empty((0, _TERMS)))


@lru_cache(maxsize=256)
def ball_table(epsilon: float, deviation: float, d: int) -> BallTable:
    """The table of a ball's radius and a deviation, for two dimensions and more."""
    if deviation <= 0.0 or d == 1 or not math.isfinite(epsilon / deviation):
        return NO_TABLE
    low, high = -TAIL - 1.0, min(math.sqrt(d - 1) + TAIL + 1.0, epsilon / deviation)
    count = math.ceil((high - low) * _PARTS)
    width = (high - low) / count
    values = np.empty((count, _TERMS))
    fill(epsilon, deviation, d, low + width * (np.arange(count)[:, None] + 0.5 + _NODES), values)
    return BallTable(epsilon, deviation, 1.0 / (deviation * width), low / width, values @ _THROUGH)


@kernel
def fill(epsilon: float, deviation: float, d: int, ahead: Floats, values: Floats) -> None:
    """Write the probabilities of means ``ahead`` of the rim, in deviations, into ``values``."""
    for piece in range(values.shape[0]):
        for i in range(values.shape[1]):
            distance = epsilon - ahead[piece, i] * deviation
            values[piece, i] = ball_probability(distance, deviation, epsilon, d)


@kernel
def looked_up(table: BallTable, distance: float) -> float:
    """As `ball_probability`, of the table's radius and deviation."""
    at = (table.epsilon - distance) * table.scale - table.low
    if at <= 0.0:
        return 0.0
    # Beyond the last piece there are balls that hold all, or means that are the centre but for rounding.
    piece = min(int(at), table.pieces.shape[0] - 1)
    s = min(at - piece, 1.0) - 0.5
    c, square = table.pieces[piece], s * s
    low = (c[0] + c[1] * s) + square * (c[2] + c[3] * s)
    high = (c[4] + c[5] * s) + square * (c[6] + c[7] * s)
    found: float = low + square * square * high
    return min(1.0, max(0.0, found))
