"""What a window that goes by rows holds at a tick, as kernels understand it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from appulse.kernels.numbering import COUNT, DELTA, TUMBLE_ROWS, TUMBLE_TIME
from appulse.model.times import duration
from appulse.windows.definitions import CountWindow, DeltaWindow, TumblingWindow

if TYPE_CHECKING:
    from appulse.windows.definitions import Window


@dataclass(frozen=True)
class Rule:
    """A window that goes by rows rather than by time, for `appulse.kernels.numbering`.

    ``size`` is in rows, or microseconds of a block of time.
    """

    kind: int
    size: int = 0
    bound: float = 0.0


def rule_of(window: Window) -> Rule | None:
    """What decides the floor of a window that numbers its rows; None for a time window, which needs no numbers."""
    if isinstance(window, CountWindow):
        return Rule(COUNT, window.size)
    if isinstance(window, DeltaWindow):
        return Rule(DELTA, bound=window.bound)
    if isinstance(window, TumblingWindow):
        if isinstance(window.length, int):
            return Rule(TUMBLE_ROWS, window.length)
        return Rule(TUMBLE_TIME, duration(window.length, "TumblingWindow"))
    return None
