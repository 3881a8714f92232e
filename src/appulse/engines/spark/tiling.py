"""Tile plans over time: a plan never changes, a new version takes over at a tick.

Pairs whose earlier row lies before that tick are reported by the old version's tiles, the others by the new one's.
Rows that may still meet earlier ones go to both, so no state ever moves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from appulse.engines.spark.tiles import TilePlan, label_hash, pair_places, spread_keys
from appulse.model.meaning import without_defaults

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Hashes, Ints
    from appulse.model.meaning import Meaning
    from appulse.model.objects import Objects
    from appulse.operators.labels import LabelNumbers
    from appulse.operators.pairs import CandidatePairs
    from appulse.operators.plan import JoinPlan

BEGINNING = -(1 << 62)
Copies = tuple["Ints", "Ints", "NDArray[np.int8]"]


@dataclass(frozen=True)
class Version:
    """A plan in force from the tick ``since`` on; Spark knows its tiles by numbers from ``first_key`` on."""

    plan: TilePlan
    since: int = BEGINNING
    first_key: int = 0

    def meaning(self) -> Meaning:
        """The version in plain JSON; `of` reads it."""
        known = {"plan": self.plan.meaning(), "since": self.since, "first_key": self.first_key}
        return without_defaults(known, {"since": BEGINNING})

    @staticmethod
    def of(meaning: Meaning) -> Version:
        """The version with this meaning."""
        return Version(TilePlan.of(meaning["plan"]), int(meaning.get("since", BEGINNING)), int(meaning["first_key"]))

    @cached_property
    def keys(self) -> list[int]:
        """The number by which Spark knows each tile."""
        return spread_keys(self.plan.numbers, self.plan.slots or self.plan.tiles, self.first_key)


@dataclass(frozen=True)
class Tiling:
    """The versions that still get rows, oldest first. Their tiles together are *places*, numbered in that order.

    ``span`` is how far back in time (microseconds) a row may meet others, of time windows.
    """

    versions: tuple[Version, ...]
    span: int

    @staticmethod
    def of(plan: TilePlan, join: JoinPlan) -> Tiling:
        """The first version."""
        return Tiling((Version(plan),), max(join.windows, default=0))

    def meaning(self) -> Meaning:
        """The versions in plain JSON; `kept` reads it."""
        return {"versions": [version.meaning() for version in self.versions], "span": self.span}

    @staticmethod
    def kept(meaning: Meaning) -> Tiling:
        """The tiling with this meaning."""
        return Tiling(tuple(map(Version.of, meaning["versions"])), int(meaning["span"]))

    def over(self, tiles: int) -> Tiling:
        """The latest plan alone, over another number of tiles."""
        return Tiling((Version(self.latest.over(tiles)),), self.span)

    def followed_by(self, plan: TilePlan, since: int) -> Tiling:
        """With a version more, in force from a tick that no row has reached yet."""
        fresh = Version(plan, since, max(self.keys) + 1)
        return Tiling((*self.versions, fresh), self.span)

    @property
    def latest(self) -> TilePlan:
        """The plan in force for rows to come."""
        return self.versions[-1].plan

    @cached_property
    def keys(self) -> list[int]:
        """The number by which Spark knows each place."""
        return [key for version in self.versions for key in version.keys]

    @cached_property
    def _place_of(self) -> dict[int, int]:
        return {key: place for place, key in enumerate(self.keys)}

    @cached_property
    def _first_places(self) -> list[int]:
        return list(accumulate((version.plan.numbers for version in self.versions), initial=0))

    def place(self, key: int) -> int:
        """The place that Spark knows by this number."""
        return self._place_of[key]

    def version_of(self, place: int) -> int:
        """The version that a place belongs to."""
        return int(np.searchsorted(self._first_places, place, side="right")) - 1

    def is_coarse(self, place: int) -> bool:
        """Whether a place is a tile of a coarse lane's grid."""
        version = self.version_of(place)
        return place - self._first_places[version] >= self.versions[version].plan.tiles

    def fingerprint(self, place: int) -> str:
        """A short text that differs when the plan of a place does."""
        return self.versions[self.version_of(place)].plan.fingerprint()

    def copies(self, objects: Objects, back: Ints | None = None) -> Copies:
        """Copies of the rows for places, as (row, place, lane), row by row.

        ``back`` is the least time of any row that each may meet; by default, what time windows say.
        """
        if len(self.versions) == 1:
            rows, tiles, lanes = self.latest.copies(objects)
            return rows, tiles.astype(np.int64), lanes
        back = objects.time - self.span if back is None else back
        parts = []
        for v, version in enumerate(self.versions):
            ends = self.versions[v + 1].since if v + 1 < len(self.versions) else None
            mine = objects.time >= version.since
            if ends is not None:
                mine &= back < ends
            at = np.flatnonzero(mine)
            rows, tiles, lanes = version.plan.copies(objects.take(at))
            parts.append((at[rows], tiles.astype(np.int64) + self._first_places[v], lanes))
        rows, places, lanes = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.argsort(rows, kind="stable")
        return rows[order], places[order], lanes[order]

    def owners(self, objects: Objects) -> Ints:
        """For each row the one place that speaks for it."""
        owners = np.empty(len(objects), np.int64)
        mine = self._versions_at(objects.time)
        for v in np.unique(mine).tolist():
            at = np.flatnonzero(mine == v)
            owners[at] = self.versions[v].plan.owners(objects.take(at)) + self._first_places[v]
        return owners

    def _versions_at(self, times: Ints) -> Ints:
        """The version in force at each time."""
        since = np.array([version.since for version in self.versions], np.int64)
        return np.maximum(np.searchsorted(since, times, side="right") - 1, 0)

    def ownership(self, place: int) -> PlaceOwnership:
        """The pairs that one place reports."""
        return PlaceOwnership(self, place)


@dataclass
class PlaceOwnership:
    """The pairs that one place reports: of its version, with their reference point in one of its cells."""

    tiling: Tiling
    place: int
    _labels: LabelNumbers | None = None
    # Of those labels, by their numbers.
    _group_hashes: Hashes = field(default_factory=lambda: np.zeros(1, np.uint64))

    def owned(self, pairs: CandidatePairs, labels: LabelNumbers) -> Flags:
        """Which of the pairs these are."""
        if self._labels is not labels:
            # A join that forgets labels numbers the others anew.
            self._labels, self._group_hashes = labels, np.zeros(1, np.uint64)
        known = len(self._group_hashes)
        if known < len(labels.values):
            fresh = [label_hash(value) for value in labels.values[known:]]
            self._group_hashes = np.concatenate([self._group_hashes, np.array(fresh, np.uint64)])
        version = self.tiling.version_of(self.place)
        tile = self.place - self.tiling._first_places[version]  # noqa: SLF001 - its other half
        mine = pair_places(self.tiling.versions[version].plan, pairs, self._group_hashes) == tile
        if len(self.tiling.versions) > 1:
            times = [
                store.time.view[rows]
                for store, rows in ((pairs.left_store, pairs.left), (pairs.right_store, pairs.right))
            ]
            mine &= self.tiling._versions_at(np.minimum(*times)) == version  # noqa: SLF001
        owned: Flags = mine
        return owned

    def spoken_for(self, objects: Objects) -> Flags:
        """Which of the rows these are."""
        spoken: Flags = self.tiling.owners(objects) == self.place
        return spoken
