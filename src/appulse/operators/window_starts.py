"""Windows that moved on, and rows that were withdrawn from them, by the numbers of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.model.batch import Batch

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Ints
    from appulse.model.strings import Labels

# Numbers of rows stay below this, so that one integer holds a window and a number.
NUMBERS = 1 << 40


@dataclass(frozen=True)
class WindowStarts(Batch):
    """Windows that moved on: from ``tick`` on, that of (group, stream) holds the rows numbered from ``floor``."""

    group: Labels
    stream: Ints
    tick: Ints
    floor: Ints


@dataclass(frozen=True)
class Withdrawn:
    """Rows of windows that are withdrawn, by their numbers: those behind them move up.

    ``group`` is numbered by the caller.
    """

    group: Ints
    stream: Ints
    number: Ints

    def renumber(self, group: Ints, stream: Ints, number: Ints) -> tuple[Flags, Ints]:
        """Which of some rows these are, and the numbers of the others from now on."""
        wide = int(max(self.stream.max(initial=0), stream.max(initial=0))) + 1
        gone = np.unique((self.group * wide + self.stream) * NUMBERS + self.number)
        window = (group * wide + stream) * NUMBERS
        before, upto = np.searchsorted(gone, window + number), np.searchsorted(gone, window + number, side="right")
        return upto > before, number - (before - np.searchsorted(gone, window))

    def reframe(self, group: Ints, frame: Ints) -> None:
        """Renumber what frames say of windows, in place: their floors, and the newest numbers beside them."""
        streams = frame.shape[1] // 2
        for column in range(frame.shape[1]):
            gone, numbers = self.renumber(group, np.full(len(group), column % streams), frame[:, column])
            frame[:, column] = numbers - (gone & (column >= streams))
