"""Our similarity join as a contestant of USJ's, its time, and the comparison of answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import appulse as ap
from benchmarks.harness import say
from benchmarks.usj_data import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from benchmarks.usj import Question
    from benchmarks.usj_data import Sides


class Ours:
    """A join with its windows full, and the time that pushes take from then on."""

    def __init__(
        self, sides: Sides, question: Question, probabilities: str = "exact", options: ap.Options | None = None
    ) -> None:
        self.question = question
        self.tables = [side.table(question.per_tick) for side in sides]
        self.join = ap.SimilarityJoin(
            Stream.described(),
            Stream.described(),
            epsilon=question.epsilon,
            probability=question.alpha,
            window=ap.CountWindow(question.w),
            probabilities=probabilities,
            options=options,
        )
        self.tick = 0

    def push(self, ticks: int) -> pa.Table:
        """The next ticks at once. The last of them is held until the next one comes."""
        rows = self.tick * self.question.per_tick, ticks * self.question.per_tick
        self.tick += ticks
        left, right = (table.slice(*rows) for table in self.tables)
        return self.join.push(left=left, right=right)

    def counts(self) -> dict[str, int]:
        """What each bound decided so far."""
        engine = self.join._engine  # noqa: SLF001 - metrics of a join by hand have no door yet
        return {} if engine is None else dict(engine.operator.counts)


def took(call: Callable[[], Any]) -> float:
    """Seconds of the processor."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


def check(ours: pa.Table, pairs: set[tuple[int, int]], who: str) -> None:
    """Raise unless the answers are these pairs."""
    mine = set(zip(ours["left_key"].to_pylist(), ours["right_key"].to_pylist(), strict=True))
    if mine != pairs:
        raise RuntimeError(f"{who}: answers differ from ours: {sorted(mine ^ pairs)[:3]}")
    say(f"{who}: {len(pairs)} answers, as ours")
