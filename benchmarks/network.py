"""The simulated sensor network: what asking all heads costs, or those that were of use, or that may have something.

Figures, at 2,000 sensors (Zipf, window 10 s, clusters by HEED), against probing all heads; *recall* is the share of all
matching pairs that is found:

* ``filter_recall, filter_bytes_of_full``: heads publish the keys of their live values each second.
* ``feedback_recall, feedback_bytes_of_full``: relevance feedback, as corrected.

Bytes are those between heads and to the sink, filters and notes included, each counted once a hop. That full probing
answers as one operator over all readings does is checked first. Part ``claims`` measures S5 to S8 of Ali et al.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from appulse.lab.network import (
    Outcome,
    Settings,
)
from benchmarks.harness import arguments, report, say
from benchmarks.network_cases import case, policies, same
from benchmarks.network_claims import measure

PARTS = ("figures", "claims")
SENSORS = 2000


def figures(*, quick: bool) -> dict[str, float]:
    """Recall and bytes by both ways to ask fewer heads: means over seeds."""
    out: dict[str, list[float]] = {}
    for seed in range(1, 2 if quick else 6):
        begun = time.perf_counter()
        one = case(SENSORS, seed)
        full = one.run(settings=Settings(seed=seed))
        same(full.answers, one.reference)
        say(f"{len(one.observations.time):,} readings, {len(one.clusters)} heads, {_told(full)}")
        for name in ("filters", "feedback", "feedback as printed"):
            run = one.run(policies(len(one.clusters), seed)[name](), Settings(seed=seed))
            share = run.traffic.between_heads / full.traffic.between_heads
            say(f"  {name}: recall {one.recall(run):.4f}, {share:.3f} of the bytes, {_told(run)}")
            if name != "feedback as printed":
                key = name.removesuffix("s")
                out.setdefault(f"{key}_recall", []).append(one.recall(run))
                out.setdefault(f"{key}_bytes_of_full", []).append(share)
        say(f"seed {seed}: {time.perf_counter() - begun:.0f} s")
    return {name: float(np.mean(values)) for name, values in out.items()}


def _told(run: Outcome) -> str:
    megabytes = {kind: round(count / 1e6, 1) for kind, count in run.traffic.bytes.items() if count}
    return f"{run.sent.mean():.1f} heads a reading, delay {run.delay.mean() / 1e6:.2f} s, MB x hops {megabytes}"


def main() -> None:
    """Measure what was asked for."""
    chosen = arguments(__doc__.splitlines()[0])
    parts = chosen.only.split(",") if chosen.only else PARTS
    found: dict[str, float] = {}
    if "figures" in parts:
        found = figures(quick=chosen.quick)
    if "claims" in parts:
        measure(Path(chosen.plots) if chosen.plots else None, quick=chosen.quick)
    report(found, as_json=chosen.json)


if __name__ == "__main__":
    main()
