"""How much a call puts out: counted while it is made, to stop or to warn before memory is full."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from appulse.errors import OutputLimit, warn_exploding

if TYPE_CHECKING:
    from collections.abc import Callable

#: An output of so many rows, and of so many for each row that came, is announced.
MANY, MANY_A_ROW = 1_000_000, 100
#: The same of numbers within rows: samples that match, members of regions, values of distributions.
MANY_VALUES = 10_000_000


def explodes(made: float, given: int, *, values: bool = False) -> bool:
    """Whether so many rows, or ``values`` within rows, made out of ``given`` rows are more than anybody may want."""
    return made >= max(MANY_VALUES if values else MANY, MANY_A_ROW * given)


@dataclass
class Output:
    """The rows that one call, push or task has put out so far; more than ``most`` raise `OutputLimit`.

    ``expected`` is an estimate of all of them, where there is one.
    """

    most: int | None = None
    made: float = 0
    expected: float | None = None
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def add(self, rows: float) -> None:
        """So many rows more, of any thread; call it before they are put together."""
        with self._lock:
            self.made += rows
        if self.most is None or self.made <= self.most:
            return
        known = "" if self.expected is None or self.expected <= self.made else f", about {self.expected:,.0f} in all"
        raise OutputLimit(
            f"The output has at least {self.made:,.0f} rows{known}, and max_output is {self.most:,}. Nothing is "
            "returned. Ask for less (a smaller epsilon, resolution or within, a higher probability, a shorter window, "
            "narrower conditions), or raise Options(max_output=)."
        )


@dataclass
class Watch:
    """Announces once that what is made out of ``given`` rows explodes; ``text`` says it of the number made so far."""

    given: int
    text: Callable[[float], str]
    values: bool = False
    made: float = 0
    announced: bool = False

    def add(self, made: float) -> None:
        """So much more; call it before it is put together, where its number is known by then."""
        self.made += made
        if not self.announced and explodes(self.made, self.given, values=self.values):
            self.announced = True
            warn_exploding(self.text(self.made))
