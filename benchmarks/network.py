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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.lab.network import (
    Assembled,
    Clusters,
    Everyone,
    Feedback,
    Filters,
    KeySets,
    Observations,
    Outcome,
    Settings,
    Topology,
    centralised,
    heed,
    simulate,
)
from benchmarks import sensor_fields as fields
from benchmarks.harness import arguments, report, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

PARTS = ("figures", "claims")
SENSORS, SECONDS = 2000, 20


@dataclass(frozen=True)
class Case:
    """A field of sensors with its clusters, and what one head that hears everybody would answer."""

    observations: Observations
    clusters: Clusters
    reference: Assembled

    def run(self, policy: Any = None, settings: Settings | None = None) -> Outcome:
        return simulate(self.observations, self.clusters, policy, settings)

    def recall(self, outcome: Outcome) -> float:
        """The share of all pairs of readings that match which is found."""
        return len(outcome.answers.time) / len(self.reference.time)


def case(sensors: int, seed: int, seconds: float = SECONDS) -> Case:
    """The paper's synthetic set-up over a unit square, the sink in its middle."""
    field = fields.synthetic(sensors, int(1.5 * seconds) + 20, seed).until(seconds)
    positions = fields.positions(sensors, seed)
    sink = int(np.linalg.norm(positions - 0.5, axis=1).argmin())
    clusters = heed(Topology(positions), seed, sink=sink)
    observations = Observations(field.sensor, field.time, field.bins(), np.full(len(field), fields.WINDOW))
    return Case(observations, clusters, centralised(observations, clusters))


def policies(heads: int, seed: int) -> dict[str, Callable[[], Any]]:
    """All ways to choose heads, each made anew for a run."""
    return {
        "full": lambda: Everyone(heads),
        "feedback": lambda: Feedback(heads, seed),
        "feedback as printed": lambda: Feedback(heads, seed, "printed"),
        "filters": lambda: Filters(KeySets()),
    }


def same(found: Assembled, expected: Assembled) -> None:
    """Raise unless two answers are one."""
    if not all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True)):
        raise RuntimeError("the heads together answer otherwise than one operator over all readings")


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


def updates(answers: Assembled, one: Case) -> tuple[float, float]:
    """Updates of phenomena a second at the sink, all of them and those that are right.

    A phenomenon is a value with the sensors that lately had it: those of an answer. Each answer whose sensors are not
    those of the value's answer before it is an update; it is right if its sensors are all that one head would name.
    The sink takes answers in order of their readings' times, not as they come.
    """
    seen, true = _sensors_of(answers, one), _sensors_of(one.reference, one)
    if len(answers.probe) == 0:
        return 0.0, 0.0
    bins = one.observations.bin[answers.probe]
    order = np.argsort(bins, kind="stable")
    sets, of_bin = seen[answers.probe[order]], bins[order]
    changed = np.append(True, (np.diff(of_bin) != 0) | (np.diff(sets) != 0))
    right = sets == true[answers.probe[order]]
    seconds = np.ptp(one.observations.time) / fields.SECOND
    return float(changed.sum() / seconds), float((changed & right).sum() / seconds)


def _sensors_of(answers: Assembled, one: Case) -> NDArray[np.uint64]:
    """One number for the set of sensors of each reading's answer: the sum of random numbers."""
    number = np.random.default_rng(5).integers(0, 2**63, len(one.clusters.of), dtype=np.uint64)
    sums = np.zeros(len(one.observations.time), np.uint64)
    if len(answers.probe):
        own = number[one.observations.sensor[answers.probe]]
        sums[answers.probe] = own + np.add.reduceat(number[answers.sensor], answers.first[:-1])
    return sums


def main() -> None:
    """Measure what was asked for."""
    chosen = arguments(__doc__.splitlines()[0])
    parts = chosen.only.split(",") if chosen.only else PARTS
    found: dict[str, float] = {}
    if "figures" in parts:
        found = figures(quick=chosen.quick)
    if "claims" in parts:
        from benchmarks.network_claims import measure  # which measures with what is defined here

        measure(Path(chosen.plots) if chosen.plots else None, quick=chosen.quick)
    report(found, as_json=chosen.json)


if __name__ == "__main__":
    main()
