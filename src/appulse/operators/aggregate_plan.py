"""What is asked of aggregates of windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from appulse.kernels.numbering import TUMBLE_ROWS, TUMBLE_TIME

if TYPE_CHECKING:
    from appulse.model.uncertainty import Model
    from appulse.windows.frames import Rule


@dataclass(frozen=True)
class AggregateSpec:
    """An aggregate of a dimension of the value."""

    column: str
    dimension: int
    aggregate: str


@dataclass(frozen=True)
class AggregatePlan:
    """What to aggregate, over which window: a ``rule``, or else the rows at most ``length`` microseconds old."""

    model: Model
    asked: tuple[AggregateSpec, ...]
    rule: Rule | None
    length: int = 0
    distribution: bool = False
    single_valued: bool = False
    in_order: bool = True
    correlation: float = 0.0  # of the existence of consecutive rows

    @property
    def tumbling(self) -> bool:
        """Whether windows are blocks, answered once they are over."""
        return self.rule is not None and self.rule.kind in (TUMBLE_ROWS, TUMBLE_TIME)

    @property
    def by_time(self) -> bool:
        """Whether times say what is in a window, and numbers do not matter."""
        return self.rule is None or self.rule.kind == TUMBLE_TIME

    @property
    def spans(self) -> tuple[int] | None:
        """For how long a row may be in a window, in microseconds; None where its number says that."""
        if self.rule is None:
            return (self.length,)
        return (self.rule.size,) if self.rule.kind == TUMBLE_TIME else None

    @property
    def size(self) -> int:
        """How many existing rows a window holds in each world; 0 where all that it keeps."""
        return self.rule.size if self.rule is not None and self.rule.uncertain else 0
