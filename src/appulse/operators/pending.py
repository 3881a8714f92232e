"""The last readings of things, which may yet start legs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from appulse.model.batch import Batch
from appulse.operators.held_parts import HeldParts, things_hashed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Flags, Hashes, Ints
    from appulse.model.objects import Objects
    from appulse.operators.held_parts import Taken


@dataclass(frozen=True)
class Pending(Batch):
    """The last reading of each key, where it may yet start a leg; ``led`` says whether a leg leads to it."""

    rows: Objects
    led: Flags


class HeldReadings:
    """The last readings of the things of one stream, in order of time; keys may have columns behind them."""

    def __init__(self, *, carried: bool) -> None:
        self._hashes = partial(_hashes, carried=carried)
        self.parts: HeldParts[Pending] = HeldParts(lambda held: self._hashes(held.rows), lambda held: held.rows.time)

    def set(self, held: Pending | None) -> None:
        """Hold these alone."""
        if held is not None and (np.diff(held.rows.time) < 0).any():
            held = held.take(np.argsort(held.rows.time, kind="stable"))
        self.parts.set(held, anew=False)

    def about(self, rows: Sequence[Objects], before: int | None) -> Taken[Pending]:
        """What is held of the things of some rows, and from before a time (None: all); all, where that costs no more.

        All, too, where some of the rows are earlier than one that is held, and not to be put behind all.
        """
        last, came = self.parts.last, [own for own in rows if len(own)]
        if last is not None and any(int(own.time.min()) < int(last.rows.time[-1]) for own in came):
            before = None
        return self.parts.about(came, self._hashes, before)

    def put_back(self, taken: Taken[Pending], at: Ints, given: Objects, led: Flags) -> None:
        """Hold rows at some places, in order, of those ``taken`` and others behind them; of those taken no others."""
        if taken.at is None:
            self.set(Pending(given.take(at), led))
            return
        stays = np.zeros(len(given), bool)
        stays[at] = True
        self.parts.put_back(taken, stays[: len(taken)])
        new = at >= len(taken)
        self.parts.add(Pending(given.take(at[new]), led[new]))


def _hashes(rows: Objects, *, carried: bool) -> Hashes:
    return things_hashed(rows.key, rows.group, carried=carried)
