"""How a simulated network is run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from appulse.lab.network.timing import Timing
from appulse.lab.network.traffic import Sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Ints
    from appulse.lab.network.timing import Rule


@dataclass(frozen=True)
class Settings:
    """How the network is run.

    ``capacity`` is what each head can do in a round, in units of a handled probe: what is more waits, and readings
    that come meanwhile are shed at random (Sec. 7.2). ``work`` is what a probe or a reading costs at each head.
    ``order`` (heads, heads - 1) is the order in which each asks the others; by default that of a short tour.
    """

    timing: Timing = field(default_factory=Timing)
    seed: int = 0
    retention: Rule = "corrected"
    capacity: float | None = None
    work: Sequence[float] | float = 1.0
    sizes: Sizes = field(default_factory=Sizes)
    order: Ints | None = None
