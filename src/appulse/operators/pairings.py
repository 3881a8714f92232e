"""The matching pairs of samples behind answers: Dallachiesa et al. 2015, Eq. 20."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Pairings:
    """Two points, shape (m, d), and what they add to the probability of their answer.

    The pairs of answer i are those from ``first[i]`` to ``first[i + 1]``.
    """

    first: NDArray[np.int64]
    left: NDArray[np.float64]
    right: NDArray[np.float64]
    weight: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.first) - 1

    def take(self, index: NDArray[np.int64]) -> Pairings:
        """Those of the answers at ``index``."""
        count = np.diff(self.first)[index]
        first = np.concatenate([[0], np.cumsum(count)])
        at = np.arange(first[-1]) + np.repeat(self.first[index] - first[:-1], count)
        return Pairings(first, self.left[at], self.right[at], self.weight[at])

    def swapped(self, swap: NDArray[np.bool_]) -> Pairings:
        """With left and right exchanged where ``swap`` says so."""
        mask = np.repeat(swap, np.diff(self.first))[:, None]
        left, right = np.where(mask, self.right, self.left), np.where(mask, self.left, self.right)
        return Pairings(self.first, left, right, self.weight)

    @staticmethod
    def concat(parts: Sequence[Pairings]) -> Pairings:
        ends = np.cumsum([0] + [len(part.weight) for part in parts])
        first = [part.first[:-1] - part.first[0] + end for part, end in zip(parts, ends[:-1], strict=True)]
        return Pairings(
            np.concatenate([*first, ends[-1:]]),
            np.concatenate([part.left for part in parts]),
            np.concatenate([part.right for part in parts]),
            np.concatenate([part.weight for part in parts]),
        )
