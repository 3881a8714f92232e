"""How many answers rows will have with queries over several streams, from a sample, before any is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.errors import report_exploding
from appulse.operators.estimate import Estimate
from appulse.operators.query_windows import Choices, drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from appulse.operators.query_windows import Streams, Wanted
    from appulse.queries.sets import QuerySet

# Choices of rows that are drawn at each step: few beside the rows from which on anything is estimated.
_CHOICES = 512
_ESTIMATED_FROM, _ESTIMATED_EVERY = 512, 100_000
_FEWER = "Narrower conditions, a shorter window or fewer queries have fewer."


class Forecast:
    """When to estimate: for many rows at once, and not again before many others have come."""

    def __init__(self) -> None:
        self._come = _ESTIMATED_EVERY
        self.latest: Estimate | None = None

    def announce(self, rows: int, estimated: Callable[[], Estimate]) -> None:
        """Estimate the answers of so many rows if it is time to, and warn if they explode."""
        self._come += rows
        if rows < _ESTIMATED_FROM or self._come < _ESTIMATED_EVERY:
            return
        self._come = 0
        self.latest = estimated()
        if self.latest.explodes:
            report_exploding(self.latest.answers, self.latest.rows, _FEWER)


def estimated_choices(
    queries: QuerySet, shown: Streams, names: Mapping[str, tuple[int, str]], lanes: Sequence[Wanted]
) -> Estimate:
    """What choices of rows will have with queries over several streams. The same draw for the same number of rows.

    Of uncertain rows it is the least: as if all samples of a choice satisfied what one of them does.
    """
    rows, pairs, answers, seen = fresh_rows(shown), 0.0, 0.0, 0
    random = np.random.default_rng(rows)
    for wanted in lanes:
        sides = shown.sides(counted=wanted.rows)
        samples = float(np.prod([side.n / max(1, side.rows) for side in sides]))
        for weight, at in drawn(sides, wanted, random, _CHOICES):
            choices = Choices(sides, names, wanted, at)
            slots = queries.match(choices, len(at[0]), cluster=1, probing=True)[1]
            pairs += weight * len(at[0]) / samples
            answers += weight * len(slots) / samples
            seen += len(at[0])
    return Estimate(rows, pairs, pairs, answers, seen)


def fresh_rows(shown: Streams) -> int:
    """The rows that came, whether windows in rows show them already or not."""
    return sum(int(side.fresh.sum()) * side.rows // max(1, side.n) for side in shown.sides(counted=False))
