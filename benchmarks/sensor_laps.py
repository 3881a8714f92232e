"""Contestants of the sensor claims, the readings that they join, and what a lap over them costs and gives."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import sensor_fields as fields
from benchmarks.mjoin import Factorised, JoinTree, MJoin
from benchmarks.sensor_ours import Ours

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

PARTS = 9  # batches of what is measured; the first of them is not timed
LAPS = 3  # of which the median counts, batch by batch
START = 2 * fields.WINDOW  # of what is measured: tables have been filled once over


@dataclass(frozen=True)
class Given:
    """Readings to join, with whole numbers for values; those from ``START`` on are measured."""

    field: fields.Readings
    bins: Ints
    kinds: int

    @staticmethod
    def of(field: fields.Readings, resolution: float | None = None) -> Given:
        """The readings of a field."""
        bins = field.bins(resolution)
        return Given(field, bins, len(np.unique(bins)))

    @property
    def rate(self) -> float:
        """Readings a second."""
        return fields.SECOND * len(self.field) / float(np.ptp(self.field.time))

    def thinned(self, share: float) -> Ints:
        """Readings that are taken in, drawn alike for all; a smaller share is a part of a larger one."""
        chance = np.random.default_rng([3, len(self.field)]).random(len(self.field))
        return np.flatnonzero(chance < share)


CONTESTANTS: dict[str, Callable[[int, int], Any]] = {
    "HMJ tree": lambda streams, kinds: JoinTree(streams, fields.WINDOW, kinds),
    "MJoin": lambda streams, _: MJoin(streams, fields.WINDOW),
    "ours": lambda *_: Ours(fields.WINDOW),
}


@dataclass(frozen=True)
class Lap:
    """Seconds a reading, by batch; how many each reading taken in met, and one number for their sensors."""

    costs: NDArray[np.float64]
    kept: Ints
    met: Ints
    sets: NDArray[np.uint64]

    @property
    def cost(self) -> float:
        """Seconds a reading."""
        return float(self.costs.mean())


def lap(contestant: Any, given: Given, kept: Ints) -> Lap:
    """Push what is taken in; CPU seconds of this thread, once windows are full."""
    field, warm = given.field, int(np.searchsorted(given.field.time[kept], START))
    bounds = np.concatenate([[0], np.linspace(warm, len(kept), PARTS + 1).astype(int)])
    costs, told = [], []
    for begin, end in pairwise(bounds.tolist()):
        mine = kept[begin:end]
        batch = field.time[mine], field.sensor[mine], given.bins[mine]
        begun = time.thread_time()
        found = contestant.push(*batch)
        costs.append((time.thread_time() - begun) / max(len(mine), 1))
        told.append(answers(contestant, found, batch[1]))
    met, sets = (np.concatenate(parts) for parts in zip(*told, strict=True))
    return Lap(np.array(costs[2:]), kept, met, sets)


def answers(contestant: Any, found: Any, sensor: Ints) -> tuple[Ints, NDArray[np.uint64]]:
    """How many readings each one met, and one number for the set of its answer's sensors; 0 without an answer."""
    met, sets = np.zeros(len(sensor), np.int64), np.zeros(len(sensor), np.uint64)
    if isinstance(contestant, Ours):
        found = contestant.factorised(found) if found else None
    if isinstance(found, Factorised) and len(found.probe):
        number = np.random.default_rng(5).integers(0, 2**63, 1 + max(sensor.max(), found.sensor.max()), np.uint64)
        met[found.probe] = np.diff(found.begin[found.first])
        sets[found.probe] = number[sensor[found.probe]] + np.add.reduceat(number[found.sensor], found.first[:-1])
    return met, sets


def updates(given: Given, one: Lap, whole: Lap) -> tuple[int, int]:
    """Updates of phenomena in the measured part: all, and those that are right."""
    has = (one.sets != 0) & (given.field.time[one.kept] >= START)
    sets, bins, true = one.sets[has], given.bins[one.kept[has]], whole.sets[one.kept[has]]
    order = np.argsort(bins, kind="stable")
    changed = np.append(True, (np.diff(bins[order]) != 0) | (np.diff(sets[order]) != 0))[: len(order)]
    return int(changed.sum()), int((changed & (sets == true)[order]).sum())
