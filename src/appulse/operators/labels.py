"""Numbers for labels: groups and the like, as kernels compare them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.model.room import full
from appulse.model.strings import Labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Ints
    from appulse.model.readings import Readings


class LabelNumbers:
    """Numbers for labels, exact and only valid within one operator; 0 stands for null, or for none at all."""

    def __init__(self) -> None:
        self.values: list[bytes] = [b""]
        self._numbers: dict[bytes, int] = {b"": 0}

    def __len__(self) -> int:
        return len(self.values)

    def of(self, labels: Labels | None, n: int) -> Ints:
        """The number of each of ``n`` rows' labels; new ones are numbered by their bytes, if any row has them."""
        if labels is None:
            return full(n, 0)
        used = np.zeros(len(labels.values), bool)
        used[labels.codes] = True
        table = np.zeros(len(used), np.int64)
        at = np.flatnonzero(used)
        values = labels.values if len(at) == len(used) else [labels.values[i] for i in at.tolist()]
        known = [self._numbers.get(value, -1) for value in values]
        if -1 in known:
            order = sorted(range(len(values)), key=values.__getitem__)
            table[at[order]] = self.add([values[i] for i in order])
        else:
            table[at] = known
        numbered: Ints = table[labels.codes]
        return numbered

    def add(self, values: Sequence[bytes]) -> Ints:
        """The number of each value; new ones are numbered as they come."""
        numbers = np.empty(len(values), np.int64)
        for i, value in enumerate(values):
            numbers[i] = number = self._numbers.setdefault(value, len(self.values))
            if number == len(self.values):
                self.values.append(value)
        return numbers

    def kept(self, columns: Sequence[Ints]) -> LabelNumbers:
        """Fresh numbers for the labels in some columns, which are rewritten; numbers below 0 are of no label."""
        fresh, used = LabelNumbers(), np.zeros(len(self.values), bool)
        for column in columns:
            used[column[column >= 0]] = True
        table = np.zeros(len(used), np.int64)
        table[used] = fresh.add([self.values[i] for i in np.flatnonzero(used).tolist()])
        for column in columns:
            column[:] = np.where(column < 0, column, table[column])
        return fresh

    def keys(self, readings: Readings) -> Ints:
        """Numbers of readings that are equal where these match: of their bins, or else of their values."""
        if readings.key is not None:
            return np.ascontiguousarray(readings.key)
        keys = self.add(readings.label)[readings.bits] if readings.label else readings.bits
        return np.ascontiguousarray(keys)

    def labels(self, numbers: Ints) -> Labels | None:
        """The labels behind numbers, each once and in order; None where no row has any, whatever others had."""
        if not numbers.any():
            return None
        used, codes = np.unique(numbers, return_inverse=True)
        return Labels(codes.astype(np.int32), tuple(self.values[i] for i in used.tolist())).compact()
