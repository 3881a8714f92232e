"""Boxes in time: which of them come within a distance of any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints


class Boxes(NamedTuple):
    """Boxes, (n, d)."""

    lows: Floats
    highs: Floats


@exact_kernel
def meeting_boxes(one: Boxes, other: Boxes, begin: Ints, end: Ints, limit2: float, meets: Flags) -> None:
    """Mark boxes whose square distance from one of the others, from ``begin[i]`` to ``end[i]``, is in the limit.

    What is marked already is not looked at. A box with NaN meets nothing.
    """
    lows, highs = one
    other_lows, other_highs = other
    for i in range(len(lows)):
        if meets[i]:
            continue
        for j in range(begin[i], end[i]):
            square = 0.0
            for k in range(lows.shape[1]):
                gap = max(0.0, other_lows[j, k] - highs[i, k], lows[i, k] - other_highs[j, k])
                square += gap * gap
                if square > limit2:
                    break
            if square <= limit2:
                meets[i] = True
                break
