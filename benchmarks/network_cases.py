"""Cases for the simulated sensor network: a field with its clusters, ways to choose heads, and what is counted."""

from __future__ import annotations

from dataclasses import dataclass
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

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

SECONDS = 20


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
