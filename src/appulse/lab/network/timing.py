"""Delays, clocks, and how long a head must keep what it heard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from appulse.errors import BadArgument

Rule = Literal["corrected", "printed"]


@dataclass(frozen=True)
class Timing:
    """All in microseconds. Nodes wake at the end of every ``round`` and handle what came in it.

    A reading reaches its head at most ``report`` after it was made, a message takes ``hop[0]`` to ``hop[1]`` a hop,
    and a clock is at most ``skew`` off the truth. ``buffer`` is how old a reading or a probe is, by the head's clock,
    when it is handled (Ali et al., Sec. 5.1: epsilon); by default it is just long enough for everything older to be
    there. With ``each_hop`` a head buffers every probe so long from its arrival, as the paper can be read.
    """

    round: int = 100_000
    hop: tuple[int, int] = (1_000, 10_000)
    report: int = 200_000
    skew: int = 20_000
    buffer: int | None = None
    each_hop: bool = False

    def __post_init__(self) -> None:
        if self.round <= 0 or not 0 <= self.hop[0] <= self.hop[1] or min(self.report, self.skew) < 0:
            raise BadArgument(f"{self} has a delay below 0, or bounds in the wrong order.")

    @property
    def epsilon(self) -> int:
        """How old things are when they are handled: a report late, and two clocks apart."""
        return self.report + 2 * self.skew if self.buffer is None else self.buffer

    def delay(self, hops: int) -> int:
        """The longest way from one head to being handled by another."""
        return hops * self.hop[1] + self.round

    def retention(self, rule: Rule, window: int, hops: int, heads: int, hold: int = 0) -> int:
        """How long a head keeps a reading; ``hops`` the most between two heads, ``heads`` the most in a sequence.

        As printed: window + max(epsilon, delay). That loses output, as the last of a chain of heads asks much later:
        window + epsilon + (heads - 1) (delay + epsilon), the second epsilon only where each head buffers anew. To that
        come two clocks that are off, the round in which the first head handled it, and what it held the probe back.
        """
        delay = self.delay(hops)
        if rule == "printed":
            return window + max(self.epsilon, delay)
        each = delay + (self.epsilon if self.each_hop else 0)
        return window + self.epsilon + (heads - 1) * each + 2 * self.skew + self.round + hold
