"""Attributes with many small values and few large ones, such as concentrations: filled by their logarithms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from appulse.imputation.repository import Repository
from appulse.imputation.simple import SimpleFill, Sparing
from appulse.kernels.skewness import least_skewed
from appulse.model.meaning import real

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.imputation.imputer import Imputer
    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.filled import Fill, Filled

_SHIFTS = np.geomspace(1e-3, 3.0, 25)  # of the range, that are tried


@dataclass(frozen=True)
class Logs:
    """What stands for attributes (d): log(x - low + shift) of skewed ones, x of the others, whose shift is infinite.

    Errors of skewed attributes are larger where these are, and much the same of their logarithms. ``high`` is the
    greatest logarithm of a fill.
    """

    low: Floats
    shift: Floats
    high: Floats

    @classmethod
    def of(cls, rows: Floats) -> Logs | None:
        """Those of rows (n, d), NaN where something is missing, with the shifts that leave the least skewness.

        None: no attribute is skewed.
        """
        low, shift, high = least_skewed(rows, _SHIFTS)
        return cls(low, shift, high) if np.isfinite(shift).any() else None

    def taken(self, rows: Floats) -> Floats:
        """Rows (n, d) by their logarithms; values far below all known ones count as the least that have one."""
        found = rows.copy()
        for k in np.flatnonzero(np.isfinite(self.shift)):
            off = np.maximum(rows[:, k] - self.low[k], -0.9 * self.shift[k])
            found[:, k] = np.log(off + self.shift[k])
        return found

    def back(self, rows: Floats) -> Floats:
        """Rows (n, d) from their logarithms."""
        found = rows.copy()
        for k in np.flatnonzero(np.isfinite(self.shift)):
            found[:, k] = np.exp(np.minimum(rows[:, k], self.high[k])) - self.shift[k] + self.low[k]
        return found

    def repository(self, known: Repository, attributes: Sequence[str]) -> Repository:
        """A repository by its logarithms."""
        rows = self.taken(known.matrix(attributes).T)
        return Repository.with_holes(dict(zip(attributes, rows.T, strict=True)))


@dataclass(frozen=True)
class InLogs:
    """An imputer that fills logarithms."""

    imputer: Imputer
    logs: Logs

    def bind(self, attributes: Sequence[str]) -> Fill:
        """The object that fills rows with these attributes."""
        fill = self.imputer.bind(attributes)
        ways = (fill.describe(0),)
        parts = {name: [real(x) for x in getattr(self.logs, name)] for name in ("low", "shift", "high")}
        meaning = {"kind": "InLogs", "logs": parts, "imputer": fill.meaning()}
        return SimpleFill(ways, meaning, _Filled(fill, self.logs), in_order=fill.in_order)


class _Filled(Sparing):
    def __init__(self, whole: Fill, logs: Logs) -> None:
        self.whole, self.logs = whole, logs

    def __call__(self, values: Floats, time: Ints, group: Ints, wanted: Flags | None = None) -> Filled:
        rows = self.logs.taken(values)
        if wanted is not None and isinstance(self.whole, SimpleFill):
            filled = self.whole.fill_some(rows, time, group, wanted)
        else:
            filled = self.whole.fill(rows, time, group)
        given = np.repeat(values, np.diff(filled.first), axis=0)
        return replace(filled, rows=np.where(np.isnan(given), self.logs.back(filled.rows), given))
