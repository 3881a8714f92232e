"""What a live page says in numbers, and the part of its map to begin with."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from appulse.kernels.arrays import Floats

__all__ = ["Rates", "boxes", "clock_text", "figures"]

#: Seconds over which rates are.
_OVER = 5.0
#: Beyond a tenth of the places at each end, so many times the range of the middle still is within.
_TAIL, _WIDER = 0.1, 4.0


@dataclass
class Rates:
    """Rows and answers a second, of the last seconds."""

    _seen: deque[tuple[float, int, int]] = field(default_factory=deque)

    def add(self, rows: int, answers: int) -> tuple[float, float]:
        """Take in sums so far; the rates."""
        now = time.monotonic()
        seen = self._seen
        seen.append((now, rows, answers))
        while len(seen) > 2 and seen[0][0] < now - _OVER:
            seen.popleft()
        passed = max(now - seen[0][0], 1e-3)
        return (rows - seen[0][1]) / passed, (answers - seen[0][2]) / passed


def figures(
    totals: Mapping[str, int],
    rates: tuple[float, float],
    things: int,
    counted: Mapping[str, int],
    state: Mapping[str, int],
    behind: float | None = None,
) -> list[tuple[str, str]]:
    """Names and numbers as text; ``behind`` is by how many seconds a replay is late."""
    candidates = counted.get("candidates", 0)
    pruned = sum(count for name, count in counted.items() if name.startswith("pruned"))
    listed: list[tuple[str, str | None]] = [
        ("rows a second", _count(rates[0])),
        ("rows", _count(totals["rows"])),
        ("answers a second", _count(rates[1])),
        ("answers", _count(totals["answers"])),
        ("rejects", _count(totals["rejects"])),
        ("things", _count(things)),
        ("seconds behind", None if behind is None else f"{max(0.0, behind):.2f}"),
        ("rows held", _count(state["state_rows"]) if "state_rows" in state else None),
        ("state, MB", _count(state["state_bytes"] / 1e6) if state.get("state_bytes") else None),
        ("candidate pairs", _count(candidates) if candidates else None),
        ("pruned by bounds", f"{_count(100 * pruned / candidates)} %" if candidates and pruned else None),
    ]
    return [(name, value) for name, value in listed if value is not None]


def _count(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0") if value < 10 else f"{value:,.0f}"


def clock_text(millis: float, *, stamped: bool) -> str:
    """A time of rows; a number where it is none of a clock."""
    if not stamped:
        return f"{millis / 1000:.15g}"
    try:
        return f"{datetime.fromtimestamp(millis // 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return f"{millis / 1000:.15g}"


def boxes(places: Floats, known: Floats) -> dict[str, Any]:
    """West, south, east and north of ``most`` places and of ``all``, and how many are ``outside`` of most.

    One bad reading far off must not shrink the map to a dot. What is ``known``, fences and sensors, always is on it.
    """
    odd = np.zeros(len(places), bool)
    if len(places):
        low = np.quantile(places, _TAIL, axis=0, method="higher")
        high = np.quantile(places, 1 - _TAIL, axis=0, method="lower")
        room = np.where(high > low, _WIDER * (high - low), np.inf)
        odd |= np.any((places < low - room) | (places > high + room), axis=1)
    most, every = np.concatenate([known, places[~odd]]), np.concatenate([known, places])
    return {"most": _box(most), "all": _box(every), "outside": int(odd.sum())}


def _box(places: Floats) -> list[float] | None:
    if not len(places):
        return None
    return [*places.min(axis=0).tolist(), *places.max(axis=0).tolist()]
