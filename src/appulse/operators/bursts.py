"""Streams whose rows exist in bursts: whether consecutive rows allow the correlation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.errors import ImpossibleBursts
from appulse.kernels.bursts import chain

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

# Times before 1971 count from something else than 1970; later than 2200 they are no seconds.
_FIRST_DATE, _LAST_DATE = 365 * 86_400_000_000, 84_000 * 86_400_000_000


def check_chains(first: Ints, known: Ints, exist: Floats, correlation: Floats, time: Ints) -> None:
    """Raise `ImpossibleBursts` where two consecutive rows of a chain do not allow its correlation.

    Chain i has the rows from ``first[i]`` to ``first[i + 1]``; the first ``known[i]`` of them were looked at before.
    """
    for w in range(len(correlation)):
        begin, end = int(first[w] + max(0, known[w] - 1)), int(first[w + 1])
        at = begin + int(chain(exist[begin:end], float(correlation[w]))[1])
        if at >= begin:
            raise impossible(exist, time, at, float(correlation[w]))


def impossible(exist: Floats, time: Ints, at: int, correlation: float) -> ImpossibleBursts:
    """What is wrong with row ``at``, which follows the one before it."""
    p, r = float(exist[at - 1]), float(exist[at])
    spread = math.sqrt(p * (1.0 - p) * r * (1.0 - r))
    low, high = (max(0.0, p + r - 1.0) - p * r) / spread, (min(p, r) - p * r) / spread
    return ImpossibleBursts(
        f"ap.Bursts: consecutive rows at {_moment(time[at - 1])} and {_moment(time[at])} exist with "
        f"probabilities {p:g} and {r:g}. These allow correlations from {low:.6g} to {high:.6g}, and "
        f"correlation={correlation:g} was given."
    )


def _moment(micros: np.int64) -> str:
    """A time with all its digits; as a date, too, where it may be one."""
    text = f"{int(micros) / 1e6:.16g} s"
    if not _FIRST_DATE <= micros < _LAST_DATE:
        return text
    return f"{text} ({np.datetime64(int(micros), 'us').item().isoformat()} in UTC)"
