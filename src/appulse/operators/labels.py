"""Numbers for labels: groups and the like, as kernels compare them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.model.strings import Labels

if TYPE_CHECKING:
    from numpy.typing import NDArray


class LabelNumbers:
    """Numbers for labels, exact and only valid within one operator; 0 stands for null, or for none at all."""

    def __init__(self) -> None:
        self.values: list[bytes] = [b""]
        self._numbers: dict[bytes, int] = {b"": 0}

    def __len__(self) -> int:
        return len(self.values)

    def of(self, labels: Labels | None, n: int) -> NDArray[np.int64]:
        """The number of each of ``n`` rows' labels."""
        if labels is None:
            return np.zeros(n, np.int64)
        table = np.empty(max(1, len(labels.values)), np.int64)
        for i, value in enumerate(labels.values):
            number = self._numbers.get(value)
            if number is None:
                number = self._numbers[value] = len(self.values)
                self.values.append(value)
            table[i] = number
        numbered: NDArray[np.int64] = table[labels.codes]
        return numbered

    def labels(self, numbers: NDArray[np.int64]) -> Labels | None:
        """The labels behind numbers, each once and in order; None where nobody ever had any."""
        if len(self.values) == 1:
            return None
        used, codes = np.unique(numbers, return_inverse=True)
        values = [self.values[i] for i in used.tolist()]
        order = sorted(range(len(values)), key=values.__getitem__)
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        return Labels(place[codes], tuple(values[i] for i in order))
