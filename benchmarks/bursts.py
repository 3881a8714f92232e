"""What it costs that rows exist in bursts."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import appulse as ap
from benchmarks.harness import least, say

_CORRELATION = 0.5


def bursts(n: int) -> dict[str, float | None]:
    """Time over that of independent rows, the worst of three windows."""
    worst = 0.0
    for size in (50, 500, 1_000):
        asked: dict[str, Any] = {"window": ap.UncertainCountWindow(size, confidence=0.95), "probability": 0.3}
        asked["epsilon"] = 1.0 / size  # two partners a window
        calls = [partial(ap.similarity_join, *_streams(n, rho), **asked) for rho in (_CORRELATION, None)]
        ours, plain = least(*calls)
        say(f"bursts, windows of {size:,}: {ours:.3f} s, independent rows {plain:.3f} s")
        worst = max(worst, ours / plain)
    return {"bursts_of_independent": worst}


def _streams(n: int, correlation: float | None) -> list[ap.Stream[pa.Table]]:
    """Exact values on the unit line, that exist with 0.7 to 0.9."""
    found = []
    for seed in (1, 2):
        chance = np.random.default_rng(seed)
        rows = {
            "k": np.arange(n),
            "t": np.arange(n) + seed / 3,
            "x": chance.random(n),
            "p": chance.uniform(0.7, 0.9, n),
        }
        existence = "p" if correlation is None else ap.Bursts("p", correlation=correlation)
        found.append(ap.Stream(pa.table(rows), key="k", time="t", value="x", existence=existence))
    return found
