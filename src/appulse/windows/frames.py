"""What a window that goes by rows holds at a tick, as kernels understand it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from appulse.kernels.numbering import COUNT, DELTA, TUMBLE_ROWS, TUMBLE_TIME, UNCERTAIN_COUNT, UNCERTAIN_DELTA
from appulse.model.times import duration
from appulse.windows.definitions import METHODS, CountWindow, DeltaWindow, TumblingWindow, UncertainCountWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.windows.definitions import Window


@dataclass(frozen=True)
class Rule:
    """A window that goes by rows rather than by time, for `appulse.kernels.numbering`.

    ``size`` is in rows, or microseconds of a block of time; ``method`` a constant of `poisson_binomial`.
    """

    kind: int
    size: int = 0
    bound: float = 0.0
    confidence: float = 1.0
    method: int = 0
    max_rows: int | None = None
    column: str | None = None  # the uncertain attribute of a delta window

    @property
    def uncertain(self) -> bool:
        """Whether rows are in the window with a probability."""
        return self.kind == UNCERTAIN_COUNT


def rule_of(window: Window) -> Rule | None:
    """What decides the floor of a window that numbers its rows; None for a time window, which needs no numbers."""
    if isinstance(window, CountWindow):
        return Rule(COUNT, window.size)
    if isinstance(window, UncertainCountWindow):
        method = METHODS.index(window.method)
        return Rule(UNCERTAIN_COUNT, window.size, 0.0, window.confidence, method, window.max_rows)
    if isinstance(window, DeltaWindow):
        if window.confidence is not None:
            return Rule(UNCERTAIN_DELTA, bound=window.bound, confidence=window.confidence, column=window.column)
        return Rule(DELTA, bound=window.bound)
    if isinstance(window, TumblingWindow):
        if isinstance(window.length, int):
            return Rule(TUMBLE_ROWS, window.length)
        return Rule(TUMBLE_TIME, duration(window.length, "TumblingWindow"))
    return None


def described(rule: Rule | None, lengths: Sequence[int]) -> str:
    """What a window holds, in words; ``lengths`` (microseconds) are those of windows of time."""
    if rule is None:
        return "rows at most " + ", ".join(f"{length / 1e6:g} s" for length in lengths) + " old"
    words = {
        COUNT: f"the newest {rule.size} rows",
        DELTA: f"the newest rows within {rule.bound:g} of the last one",
        TUMBLE_ROWS: f"blocks of {rule.size} rows",
        TUMBLE_TIME: f"blocks of {rule.size / 1e6:g} s",
        UNCERTAIN_COUNT: f"the newest rows of which {rule.size} exist, with confidence {rule.confidence:g}",
        UNCERTAIN_DELTA: f"the newest rows whose {rule.column} is within {rule.bound:g} of the last one's, with "
        f"confidence {rule.confidence:g}",
    }
    return words[rule.kind]
