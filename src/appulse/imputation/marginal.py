"""What stands in for attributes that nothing is known of: values of a repository, with their real spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.imputation.imputer import MARGINAL, DependencyFill
from appulse.imputation.simple import SimpleFill
from appulse.model.filled import OBSERVED, Filled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.imputation.imputer import Imputer
    from appulse.imputation.repository import Repository
    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.filled import Fill
    from appulse.model.meaning import Meaning

_SAMPLES = 64  # of a row, at least
_WAY = 1 << 62  # no imputer has so many


@dataclass(frozen=True)
class OrMarginal:
    """An imputer, and a repository whose values fill what it knows nothing of; ``report`` says how it was chosen."""

    imputer: Imputer
    repository: Repository
    report: str = ""

    def bind(self, attributes: Sequence[str]) -> Fill:
        """The object that fills rows with these attributes."""
        fill = self.imputer.bind(attributes)
        if isinstance(fill, DependencyFill):  # which fills by marginals of its own
            fill.report = self.report
            return fill
        return MarginalFill(fill, self.repository, tuple(attributes), self.report)


class MarginalFill:
    """Where a fill is no number, quantiles of the repository's values in their place.

    Everything else is that of the fill.
    """

    def __init__(self, fill: Fill, repository: Repository, attributes: tuple[str, ...], report: str = "") -> None:
        self.whole, self._repository, self._attributes, self.report = fill, repository, attributes, report

    @property
    def in_order(self) -> bool:
        """As the fill is."""
        return self.whole.in_order

    def meaning(self) -> Meaning:
        return {"kind": "OrMarginal", "imputer": self.whole.meaning(), "repository": self._repository.meaning()}

    def describe(self, way: int) -> str:
        return MARGINAL if way == _WAY else self.whole.describe(way)

    def explain(self, row: Any) -> Any:
        """What fills each hole of a row, where the fill can tell."""
        found: Any = self.whole
        return found.explain(row)

    def fill(self, values: Floats, time: Ints, group: Ints) -> Filled:
        return self._completed(self.whole.fill(values, time, group))

    def fill_some(self, values: Floats, time: Ints, group: Ints, wanted: Flags) -> Filled:
        """As `fill`; rows that are not wanted may be left with their holes."""
        if not isinstance(self.whole, SimpleFill):
            return self.fill(values, time, group)
        return self._completed(self.whole.fill_some(values, time, group, wanted))

    def _completed(self, filled: Filled) -> Filled:
        n, d = filled.way.shape
        owner = np.repeat(np.arange(n), np.diff(filled.first))
        open_ = np.flatnonzero(np.isnan(filled.rows).any(axis=1))
        rows = np.unique(
            owner[open_][(np.isnan(filled.rows[open_]) & (filled.way != OBSERVED)[owner[open_]]).any(axis=1)]
        )
        if not len(rows):
            return filled
        copies = np.ones(n, np.int64)
        copies[rows] = -(-_SAMPLES // np.diff(filled.first)[rows])
        at = np.repeat(np.arange(len(owner)), copies[owner])
        first = np.append(0, np.cumsum(np.diff(filled.first) * copies))
        points, weights = filled.rows[at], filled.weights[at] / copies[owner[at]]
        way = filled.way.copy()
        for k in range(d):
            mine = rows[np.isnan(filled.rows[filled.first[rows], k]) & (way[rows, k] != OBSERVED)]
            known = self._repository[self._attributes[k]]
            known = known[~np.isnan(known)]
            for row in mine.tolist() if len(known) else []:
                count = int(first[row + 1] - first[row])
                order = np.random.default_rng([k, count]).permutation(count)  # attributes are independent of each other
                points[first[row] : first[row + 1], k] = np.quantile(known, (order + 0.5) / count)
                way[row, k] = _WAY
        return Filled(first, points, weights, way)
