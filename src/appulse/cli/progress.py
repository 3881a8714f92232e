"""What a micro-batch did, read from what Spark reports of it, and said in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from appulse.cli.console import span
from appulse.engines.measured import figures_of, newest_event, rows_read
from appulse.model.sizes import size

__all__ = ["Batch", "Totals", "batch_of"]


@dataclass(frozen=True)
class Batch:
    """One micro-batch; None is what Spark did not report."""

    number: int
    rows: int
    seconds: float
    rows_per_second: float | None
    newest: str | None  # event time
    lag_seconds: float | None
    metrics: dict[str, float]

    def count(self, name: str) -> int | None:
        """A metric of the operator."""
        value = self.metrics.get(name)
        return None if value is None else int(value)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: everything there is to say."""
        figures = {
            "batch": self.number,
            "input_rows": self.rows,
            "batch_seconds": self.seconds,
            "rows_per_second": self.rows_per_second,
            "event_time": self.newest,
            "lag_seconds": self.lag_seconds,
        }
        return figures | {"metrics": self.metrics}

    def __str__(self) -> str:
        parts = [f"batch {self.number}"]
        if self.newest is not None and self.lag_seconds is not None:
            parts.append(f"{self.newest[:16].replace('T', ' ')}, {span(self.lag_seconds)} behind")
        rate = "" if self.rows_per_second is None else f", {self.rows_per_second:,.0f} rows/s"
        parts.append(f"{self.rows:,} rows in {self.seconds:.1f} s{rate}")
        for name, what in (("answers", "answers"), ("left", "left"), ("rejected", "rejects")):
            if (count := self.count(name)) is not None and (count or name != "left"):
                parts.append(f"{count:,} {what}")
        if (rows := self.count("state_rows")) is not None:
            parts.append(f"state {rows:,} rows, {size(self.metrics.get('state_bytes', 0.0))}")
        return " · ".join(parts)


@dataclass
class Totals:
    """What a run did, all batches together."""

    batches: int = 0
    rows: int = 0
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, batch: Batch) -> None:
        self.batches += 1
        self.rows += batch.rows
        for name, value in batch.metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def __str__(self) -> str:
        parts = [f"{self.batches:,} micro-batches", f"{self.rows:,} rows"]
        figures = ("answers", "answers"), ("left", "pairs that left"), ("rejected", "rejects"), ("late", "of them late")
        for name, what in figures:
            if name in self.sums and (self.sums[name] or name not in ("left", "late")):
                parts.append(f"{int(self.sums[name]):,} {what}")
        return ", ".join(parts)


def batch_of(progress: Mapping[str, Any]) -> Batch | None:
    """The micro-batch of a progress report; None where no batch was run, only looked for."""
    durations = progress.get("durationMs") or {}
    if "addBatch" not in durations:
        return None
    rows, counted, rate = rows_read(progress), progress.get("numInputRows"), progress.get("processedRowsPerSecond")
    figures = figures_of(progress) or {}
    newest, lag = newest_event(progress)
    return Batch(
        number=int(progress["batchId"]),
        rows=rows,
        seconds=float(durations.get("triggerExecution", durations["addBatch"])) / 1000,
        rows_per_second=rate * rows / counted if rate and counted else rate,
        newest=newest,
        lag_seconds=lag,
        metrics={name: float(value) for name, value in figures.items() if value is not None and name != "newest"},
    )
