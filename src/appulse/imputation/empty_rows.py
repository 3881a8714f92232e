"""Rows that lack everything beside rows that lack something: each kind has an imputer of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.model.batch import Ragged
from appulse.model.filled import OBSERVED, Filled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.imputation.imputer import Imputer
    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.filled import Fill
    from appulse.model.meaning import Meaning


@dataclass(frozen=True)
class OrEmpty:
    """An imputer, and another one for rows that lack everything; ``report`` says how they were chosen."""

    imputer: Imputer
    of_empty: Imputer
    report: str = ""

    def bind(self, attributes: Sequence[str]) -> OrEmptyFill:
        """The object that fills rows with these attributes."""
        return OrEmptyFill(self.imputer.bind(attributes), self.of_empty.bind(attributes), self.report)


@dataclass(frozen=True)
class OrEmptyFill:
    """Fills rows that lack something as if rows that lack everything were not there, and these by another fill."""

    whole: Fill
    of_empty: Fill
    report: str = ""

    @property
    def in_order(self) -> bool:
        """Whether either is filled by the rows around."""
        return self.whole.in_order or self.of_empty.in_order

    def meaning(self) -> Meaning:
        return {"kind": "OrEmpty", "imputer": self.whole.meaning(), "empty": self.of_empty.meaning()}

    def describe(self, way: int) -> str:
        """Ways below `OBSERVED` are those of the fill of empty rows."""
        return self.whole.describe(way) if way > OBSERVED else self.of_empty.describe(2 * OBSERVED - way)

    def fill(self, values: Floats, time: Ints, group: Ints) -> Filled:
        empty = np.asarray(np.isnan(values).all(axis=1))
        if not empty.any():
            return self.whole.fill(values, time, group)
        asked = np.ones(len(values), np.bool_) if self.of_empty.in_order else empty
        some = getattr(self.of_empty, "fill_some", None)
        given = values[asked], time[asked], group[asked]
        alone = self.of_empty.fill(*given) if some is None else some(*given, empty[asked])
        rest = self.whole.fill(values[~empty], time[~empty], group[~empty])
        place = np.empty(len(values), np.int64)
        place[~empty], place[empty] = np.arange(len(rest.way)), len(rest.way) + np.flatnonzero(empty[asked])
        rows = Ragged.concat([Ragged(one.first, one.rows) for one in (rest, alone)]).take(place)
        weights = Ragged.concat([Ragged(one.first, one.weights) for one in (rest, alone)]).take(place)
        way = np.concatenate([rest.way, 2 * OBSERVED - alone.way])[place]
        return Filled(rows.offsets, rows.values, weights.values, way)
