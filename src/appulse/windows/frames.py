"""What a window that goes by rows holds at a tick, as kernels understand it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from appulse.kernels.numbering import COUNT, DELTA, TUMBLE_ROWS, TUMBLE_TIME, UNCERTAIN_COUNT, UNCERTAIN_DELTA
from appulse.model.meaning import real, seconds, without_defaults
from appulse.model.times import duration
from appulse.windows.definitions import METHODS, CountWindow, DeltaWindow, TumblingWindow, UncertainCountWindow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from appulse.model.meaning import Meaning
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
    bursts: tuple[float, ...] = ()  # of each stream, the correlation of consecutive rows; none: they are independent

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


def in_bursts(rule: Rule | None, correlations: Sequence[float]) -> Rule | None:
    """The rule where the existence of consecutive rows is correlated, stream by stream."""
    if rule is None or not rule.uncertain or not any(correlations):
        return rule
    return replace(rule, bursts=tuple(correlations))


def meaning_of(rule: Rule | None, lengths: Mapping[str, int], measure: str | None = None) -> Meaning:
    """A window in plain JSON: ``lengths`` (microseconds) are those of windows of time, by stream.

    ``measure`` is the column of a delta window that is certain.
    """
    if rule is None:
        if len(set(lengths.values())) == 1:
            return {"kind": "TimeWindow", "length": seconds(next(iter(lengths.values())))}
        return {"kind": "TimeWindow", "per_stream": {name: seconds(length) for name, length in lengths.items()}}
    if rule.kind == COUNT:
        return {"kind": "CountWindow", "size": rule.size}
    if rule.kind == UNCERTAIN_COUNT:
        found: Meaning = {"kind": "UncertainCountWindow", "size": rule.size, "confidence": real(rule.confidence)}
        found |= {"method": METHODS[rule.method], "max_rows": rule.max_rows}
        return without_defaults(found, {"method": "exact", "max_rows": None})
    if rule.kind == DELTA:
        return {"kind": "DeltaWindow", "column": measure, "bound": real(rule.bound)}
    if rule.kind == UNCERTAIN_DELTA:
        found = {"kind": "DeltaWindow", "column": rule.column, "bound": real(rule.bound)}
        return found | {"confidence": real(rule.confidence)}
    return {"kind": "TumblingWindow", "length": rule.size if rule.kind == TUMBLE_ROWS else seconds(rule.size)}


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
