"""Tracks that may have led to readings, and how visits that were reported compare with true ones.

A thing stands still, or moves with a velocity that changes by chance, and is observed with normal errors: along each
axis the Kalman filter goes forward, and a track is drawn backward (Carter & Kohn 1994; Fruehwirth-Schnatter 1994).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints


class Motion(NamedTuple):
    """How things move to each reading: whether at all, and after how many seconds; and, along each axis, by how much.

    On a step that ``moves`` the velocity changes by ``turns`` (variance a second), and it begins with ``speed`` (a
    variance); on others the place changes by ``strays`` (variance a second).
    """

    moves: NDArray[np.bool_]
    gap: Floats
    turns: Floats
    speed: Floats
    strays: Floats


@exact_kernel
def draw_tracks(thing: Ints, at: Floats, error: Floats, motion: Motion, chance: Floats, out: Floats) -> None:
    """A likely track in ``out``; ``error`` is the variance of each reading along each axis.

    Readings of a thing are together, in order of time. ``chance`` (n, 4) are standard normal numbers.
    """
    n = thing.shape[0]
    mean, variance = np.empty((n, 2)), np.empty((n, 3))  # of place and velocity; their covariance comes last
    for axis in range(2):
        speed = max(motion.speed[axis], 1e-300)
        for r in range(n):
            if r == 0 or thing[r] != thing[r - 1]:
                mean[r, 0], mean[r, 1] = at[r, axis], 0.0
                variance[r, 0], variance[r, 1], variance[r, 2] = error[r, axis], speed, 0.0
                continue
            p, v, pp, vv, pv = _ahead(motion, r, axis, speed, mean[r - 1], variance[r - 1])
            total = pp + error[r, axis]
            gain, other = (pp / total, pv / total) if total > 0.0 else (1.0, 0.0)
            beyond = at[r, axis] - p
            mean[r, 0], mean[r, 1] = p + gain * beyond, v + other * beyond
            variance[r, 0], variance[r, 1], variance[r, 2] = (1.0 - gain) * pp, vv - other * pv, (1.0 - gain) * pv
        later = np.zeros(2)
        for r in range(n - 1, -1, -1):
            p, v = mean[r]
            pp, vv, pv = variance[r]
            if r + 1 < n and thing[r + 1] == thing[r]:
                # Given the place and the velocity that come next, one after the other.
                moves, gap = motion.moves[r + 1], motion.gap[r + 1]
                np_, nv, npp, nvv, npv = _ahead(motion, r + 1, axis, speed, mean[r], variance[r])
                a, b = pp + gap * pv if moves else pp, pv + gap * vv if moves else pv  # of either with the next place
                c, d = (pv, vv) if moves else (0.0, 0.0)  # and with the next velocity
                if npp > 0.0:
                    beyond = later[0] - np_
                    p, v = p + a / npp * beyond, v + b / npp * beyond
                    pp, vv, pv = pp - a * a / npp, vv - b * b / npp, pv - a * b / npp
                    c, d, nv, nvv = c - a * npv / npp, d - b * npv / npp, nv + npv / npp * beyond, nvv - npv**2 / npp
                if nvv > 1e-12 * speed:
                    beyond = later[1] - nv
                    p, v = p + c / nvv * beyond, v + d / nvv * beyond
                    pp, vv, pv = pp - c * c / nvv, vv - d * d / nvv, pv - c * d / nvv
            wide = math.sqrt(max(0.0, pp))
            later[0] = p + wide * chance[r, 2 * axis]
            along = pv / wide if wide > 0.0 else 0.0
            rest = math.sqrt(max(0.0, vv - along * along))
            later[1] = v + along * chance[r, 2 * axis] + rest * chance[r, 2 * axis + 1]
            out[r, axis] = later[0]


@exact_kernel
def _ahead(
    motion: Motion, r: int, axis: int, speed: float, mean: Floats, variance: Floats
) -> tuple[float, float, float, float, float]:
    """Place and velocity at reading r by those before: means, variances, covariance."""
    gap, (pp, vv, pv) = motion.gap[r], variance
    if not motion.moves[r]:
        return mean[0], 0.0, pp + motion.strays[axis] * gap, speed, 0.0
    turns = motion.turns[axis] * gap
    return (
        mean[0] + gap * mean[1],
        mean[1],
        pp + gap * (2.0 * pv + gap * vv) + turns * gap * gap / 3.0,
        vv + turns,
        pv + gap * vv + turns * gap / 2.0,
    )


@exact_kernel
def compare_visits(found: Ints, truth: Ints, slack: int, taken: Ints) -> None:
    """Of each true visit in ``taken`` the visit that reports it, -1 if none does.

    Rows are thing, fence, begin and end, in this order. A visit reports the first true one that it overlaps, by
    ``slack``, unless another has done so.
    """
    taken[:] = -1
    t = 0
    for f in range(found.shape[0]):
        while t < truth.shape[0] and (
            truth[t, 0] < found[f, 0]
            or (truth[t, 0] == found[f, 0] and truth[t, 1] < found[f, 1])
            or (truth[t, 0] == found[f, 0] and truth[t, 1] == found[f, 1] and truth[t, 3] + slack <= found[f, 2])
        ):
            t += 1
        same = t < truth.shape[0] and truth[t, 0] == found[f, 0] and truth[t, 1] == found[f, 1]
        if same and truth[t, 2] - slack < found[f, 3] and taken[t] < 0:
            taken[t] = f
