"""Readings that wait for their ticks to be complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from appulse.model.readings import Readings


class Waiting:
    """What came, part by part, until everything before some time is known to be there."""

    def __init__(self) -> None:
        self.parts: list[Readings] = []

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def due(self) -> int | None:
        """The oldest time that waits."""
        return min((int(part.time.min()) for part in self.parts), default=None)

    def hold(self, readings: Readings) -> None:
        """Take in readings."""
        if len(readings):
            self.parts.append(readings)

    def release(self, before: int | None = None) -> list[Readings]:
        """Hand over what is older than a time (None: all there is)."""
        if before is None:
            released, self.parts = self.parts, []
            return released
        released, kept = [], []
        for part in self.parts:
            ready = part.time < before
            if ready.all():
                released.append(part)
            elif not ready.any():
                kept.append(part)
            else:
                released.append(part.take(np.flatnonzero(ready)))
                kept.append(part.take(np.flatnonzero(~ready)))
        self.parts = kept
        return released
