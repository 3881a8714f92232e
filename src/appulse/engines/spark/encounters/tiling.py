"""Tiles of legs: slots of time and cells of space, shared out by hash."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from appulse.engines.spark.tiles import group_hashes, hashed_plan, label_hash
from appulse.engines.spark.tiling import Tiling, Version
from appulse.kernels.leg_tiles import LegCut, leg_pair_owners, leg_tiles
from appulse.operators.leg_pairs import swept_legs

if TYPE_CHECKING:
    from appulse.engines.encounters.call import EncounterCall
    from appulse.engines.options import Options
    from appulse.kernels.arrays import Flags, Ints, RowPairs
    from appulse.kernels.legs import Legs as SweptLegs
    from appulse.model.strings import Labels
    from appulse.operators.legs import Legs

# A leg has 1 + 1 / this many copies in time.
_LEGS_PER_SLOT = 4


def tiling_of(call: EncounterCall, partitions: int, slots: int, options: Options) -> Tiling:
    """The tiles of a call; the span of the tiling is that of a slot of time."""
    plan = hashed_plan(call.plan, partitions, call.plan.reach, options.side)
    plan = replace(plan, coarse_side=0.0, dims=3, slots=slots)
    return Tiling((Version(plan),), _LEGS_PER_SLOT * call.plan.longest)


@dataclass(frozen=True)
class LegTiles:
    """Which tiles hold a leg, and which one reports a pair."""

    call: EncounterCall
    tiling: Tiling

    @property
    def cut(self) -> LegCut:
        """As kernels take it."""
        plan = self.tiling.latest
        return LegCut(self.call.plan.limit, self.tiling.span, plan.side, plan.tiles)

    def copies(self, stream: int, legs: Legs) -> tuple[Ints, Ints]:
        """Copies of legs for tiles, as (leg, tile)."""
        rows, tiles = leg_tiles(swept_legs(self.call.plan, stream, legs), group_hashes(legs.rows), self.cut)
        return rows, tiles

    def owned(self, tile: int, legs: SweptLegs, pairs: RowPairs, group: Labels | None) -> Flags:
        """Which pairs a tile reports."""
        hashes = np.zeros(len(legs.begin), np.uint64)
        if group is not None:
            hashes = np.array([label_hash(value) for value in group.values], np.uint64)[group.codes]
        mine: Flags = leg_pair_owners(legs, pairs, hashes, self.cut) == tile
        return mine
