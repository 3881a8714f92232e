"""One dimension of uncertain values: the attribute of a delta window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.errors import BadArgument, nearest
from appulse.model.covariance import deviations
from appulse.model.encode import sampled
from appulse.model.uncertainty import Gaussian, Position, names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.objects import Objects
    from appulse.model.uncertainty import Model


@dataclass(frozen=True)
class Attribute:
    """Which dimension of each stream's value it is, by name."""

    column: str
    models: Sequence[Model]
    units: Sequence[float] | None = None  # by which each dimension was divided

    def _unit(self, k: int) -> float:
        return 1.0 if self.units is None else self.units[k]

    def of(self, stream: int, objects: Objects) -> tuple[Ints, Floats, Floats]:
        """The attribute of rows as (first, values, shares), given that they exist; a normal one is its mean alone."""
        model = self.models[stream]
        k = dimension_of(model, self.column, objects.d)
        n = len(objects)
        if isinstance(model, Gaussian):
            return np.arange(n + 1), objects.centre[:, k] * self._unit(k), np.ones(n)
        rows = sampled(objects, model, 0.0)
        count = np.diff(rows.first)
        owner = np.repeat(np.arange(n), count)
        within = np.arange(len(owner)) - rows.first[owner]
        values = rows.samples[rows.first[owner] * rows.d + k * count[owner] + within] * self._unit(k)
        if len(rows.weights):
            return rows.first, values, rows.weights / rows.mass[owner]
        return rows.first, values, 1.0 / count[owner]

    def sigma(self, stream: int, objects: Objects) -> Floats:
        """The deviation of a normal attribute, else 0."""
        if not isinstance(self.models[stream], Gaussian):
            return np.zeros(len(objects))
        k = dimension_of(self.models[stream], self.column, objects.d)
        return deviations(objects.spread, objects.d)[:, k] * self._unit(k)


def dimension_of(model: Model, column: str, d: int) -> int:
    """Which of the ``d`` dimensions of a value has this name."""
    if isinstance(model, Position):
        raise BadArgument(
            f"DeltaWindow({column!r}, confidence=...) goes by a dimension of the value, and a position has none to go "
            "by. Without confidence any numeric column will do."
        )
    known = names(model, d)
    if column not in known:
        raise BadArgument(
            f"DeltaWindow({column!r}, confidence=...) names no dimension of {model}.{nearest(column, known)} "
            "Without confidence any numeric column will do."
        )
    return known.index(column)
