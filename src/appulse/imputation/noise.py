"""Fills of attributes that have an error of their own, beside what is not known of the holes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.imputation.in_time import AroundFill
from appulse.model.filled import Filled
from appulse.model.points import normal_points

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.filled import Fill
    from appulse.model.meaning import Meaning

_PAIRS = 32  # of points and their opposites: a row has each at least once


@dataclass(frozen=True)
class NoisyFill:
    """A fill, and a normal error around all that it gives, with these ``deviations``."""

    whole: Fill
    deviations: tuple[float, ...]

    @property
    def in_order(self) -> bool:
        """As the fill is."""
        return self.whole.in_order

    @property
    def report(self) -> str:
        """How the fill was chosen."""
        return str(getattr(self.whole, "report", ""))

    @property
    def taken(self) -> int | None:
        """The version that fills the rows of the micro-batch at hand, where there are versions."""
        version: int | None = getattr(self.whole, "taken", None)
        return version

    @property
    def explain(self) -> Any:
        """What fills each hole of a row, where the fill can tell."""
        return getattr(self.whole, "explain", None)

    def meaning(self) -> Meaning:
        """That of the fill: the error is described by the stream's value."""
        return self.whole.meaning()

    def describe(self, way: int) -> str:
        return self.whole.describe(way)

    def fill(self, values: Floats, time: Ints, group: Ints) -> Filled:
        return noisy(self.whole.fill(values, time, group), np.array(self.deviations))


@dataclass(frozen=True)
class NoisyAround(NoisyFill):
    """The same of a fill by the rows around that reports when it is settled."""

    whole: AroundFill

    @property
    def wait(self) -> int | None:
        """That of the fill."""
        return self.whole.wait

    def settled(self, values: Floats, time: Ints, group: Ints, complete: int) -> Flags:
        """That of the fill."""
        return self.whole.settled(values, time, group, complete)


def with_noise(fill: Fill, deviations: tuple[float, ...]) -> Fill:
    """A fill whose attributes have normal errors with these deviations; itself without any."""
    if not any(deviations):
        return fill
    return NoisyAround(fill, deviations) if isinstance(fill, AroundFill) else NoisyFill(fill, deviations)


def noisy(filled: Filled, deviations: Floats) -> Filled:
    """The samples, each at several points around it and their opposites: the mean of a row stays what it is."""
    counts = np.diff(filled.first)
    copies = 2 * -(-_PAIRS // np.maximum(counts, 1))
    first = np.append(0, np.cumsum(counts * copies))
    owner = np.repeat(np.arange(len(counts)), counts)
    at = np.repeat(np.arange(len(owner)), copies[owner])
    number = np.arange(len(at)) - first[owner[at]]
    points = normal_points(2 * _PAIRS, len(deviations))  # the second half are opposites of the first
    moved = filled.rows[at] + deviations * points[number // 2 % _PAIRS + _PAIRS * (number % 2)]
    return Filled(first, moved, filled.weights[at] / copies[owner[at]], filled.way)
