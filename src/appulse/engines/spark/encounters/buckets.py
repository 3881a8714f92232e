"""The stages of encounters: readings of a key become legs, legs meet in tiles, and pairs of them make encounters.

A stage says with each step how far it has come: no leg, or pair of legs, that it sends later begins before that. It
follows from the watermark, so what one bucket says is true of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.engines.bucket import NEVER, Bucket
from appulse.engines.encounters.bucket import packed_state, refused_twice, unpacked_state
from appulse.engines.encounters.call import EncounterCall, encounter_tables
from appulse.engines.spark.blobs import LEGS, PAIRS, PROGRESS
from appulse.engines.spark.encounters.tiling import LegTiles
from appulse.engines.spark.routing import bucket_keys
from appulse.engines.spark.stage import Buckets
from appulse.engines.spark.tiles import label_hash
from appulse.engines.waiting import HoldingBucket
from appulse.kernels.newest import key_numbers
from appulse.model.objects import Objects
from appulse.operators.encounters import Found, Runs
from appulse.operators.leg_pairs import EVER, Approaches, LegPairs
from appulse.operators.legs import Legs
from appulse.operators.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from appulse.engines.bucket import Blobs
    from appulse.engines.spark.tiling import Tiling
    from appulse.kernels.arrays import Ints

#: A block of what the operator holds.
_HELD = b"h"
_NO_ROWS = b"\0"


@dataclass(frozen=True)
class EncounterBuckets(Buckets):
    """The buckets of a stage of a tiling."""

    call: EncounterCall
    tiling: Tiling

    @property
    def tiles(self) -> LegTiles:
        """Where legs go."""
        return LegTiles(self.call, self.tiling)

    def plan(self, key: int) -> str:  # noqa: ARG002 - one is as another
        """What the state depends on beside the call."""
        return f"{self.tiling.latest.fingerprint()}-{self.tiling.span}"


@dataclass(frozen=True)
class LegBuckets(EncounterBuckets):
    """Readings by key."""

    def make(self, key: int) -> Bucket[Any]:  # noqa: ARG002 - one is as another
        bucket = LegBucket(self.call, self.tiles)
        # A stream that sends nothing here may well do so elsewhere: Spark's watermark knows which one is silent.
        bucket.clock.idle_after = [None] * len(self.call.lateness)
        return bucket

    @property
    def onward(self) -> list[int]:
        """The keys of the tiles."""
        return self.tiling.keys


@dataclass(frozen=True)
class TileBuckets(EncounterBuckets):
    """Legs by tile."""

    def make(self, key: int) -> Bucket[Any]:
        """The empty tile of a key."""
        return LegTile(self.call, self.tiles, self.tiling.place(key))

    def label(self, key: int) -> int:
        """The number of the tile."""
        return self.tiling.place(key)

    @property
    def onward(self) -> list[int]:
        """The keys of the encounters; none where pairs of legs are the answers."""
        return [] if self.call.plan.by_pairs else bucket_keys(self.tiling)


@dataclass(frozen=True)
class RunBuckets(EncounterBuckets):
    """Pairs of legs by the keys of their things."""

    def make(self, key: int) -> Bucket[Any]:  # noqa: ARG002 - one is as another
        return RunBucket(self.call)


class LegBucket(HoldingBucket):
    """Readings of some keys, which wait for their ticks, and for what ends their legs."""

    call: EncounterCall

    def __init__(self, call: EncounterCall, tiles: LegTiles) -> None:
        super().__init__(call)
        plan = call.plan
        self.tiles = tiles
        self.makers = plan.makers
        self._until = NEVER  # when the last leg ends of those sent on, until all stages know that it is over
        self._since = NEVER  # no leg that any bucket sends on after this step begins before
        self._ended = False

    def __len__(self) -> int:
        return super().__len__() + len(self.makers)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.makers.nbytes

    @property
    def due(self) -> int | None:
        """The least time that ticks have to be complete beyond for anything to be sent on."""
        times = [super().due, self.makers.due]
        times += [self._until + self.call.plan.gap + self.makers.delay] if self._until > NEVER else []
        return min((time for time in times if time is not None), default=None)

    def advance(self, limit: int | None = None, ended: int | None = None) -> list[pa.Table]:
        """Send on the legs that are known now."""
        self._since = EVER if ended is not None else NEVER if limit is None else limit - self.makers.delay
        return super().advance(limit, ended)

    def answer(self, *, ended: bool) -> list[pa.Table]:
        """Send on the legs that follow from complete ticks."""
        self._ended = ended
        made, twice = self._made()
        self.rejected += refused_twice(self.call, twice)
        for stream, legs in enumerate(made):
            if legs is not None and len(legs):
                rows, tiles = self.tiles.copies(stream, legs)
                for tile in np.unique(tiles).tolist():
                    blob = packed_state(f"legs{stream}", legs.take(rows[tiles == tile]))
                    self.sent.append((self.tiles.tiling.keys[tile], LEGS + blob))
        if self._since > NEVER:
            self.sent += [(key, _progress(self._since)) for key in self.tiles.tiling.keys]
        return []

    def _made(self) -> tuple[list[Legs | None], list[tuple[int, Objects]]]:
        released = [one.release(self.complete) for one in self.waiting]
        made, twice = self.makers.push(released, self.complete, ended=self._ended)
        ends = [int(legs.over.max()) for legs in made if legs is not None and len(legs)]
        self._until = max([self._until, *ends])
        if self._until + self.call.plan.gap < self._since:
            self._until = NEVER
        return made, twice

    def step(self) -> tuple[list[int], Mapping[str, NDArray[Any]]]:
        """All ticks before ``complete`` were there."""
        return [self.complete, self._ended, self._since], {}

    def redo(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:  # noqa: ARG002
        """Take the same step; what it sent on is known."""
        self.complete, ended, self._since = numbers
        self._ended = bool(ended)
        self.hold_again(given)
        self._made()

    def whole(self) -> tuple[list[int], Mapping[str, NDArray[Any]], list[bytes]]:
        """Readings that wait."""
        held = [_HELD + packed_state(name, batch) for name, batch in self.makers.pending.items()]
        return [self.complete, self._until], {}, [*self.blocks_held(), *held]

    def resume(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:  # noqa: ARG002
        self.complete, self._until = numbers
        self.hold_again(given)
        for name, batch in _held(given[_HELD]):
            assert isinstance(batch, Pending)  # noqa: S101 - all that was kept
            self.makers.restore(name, batch)


class LegTile(Bucket[Objects]):
    """The legs in some cells of space and slots of time, until no leg to come can overlap them."""

    call: EncounterCall
    rows_tag = _NO_ROWS
    due = None
    newest = 0

    def __init__(self, call: EncounterCall, tiles: LegTiles, tile: int) -> None:
        super().__init__(call)
        self.pairs = LegPairs(call.plan, owned=partial(tiles.owned, tile))
        self._runs = [] if call.plan.by_pairs else bucket_keys(tiles.tiling)
        self._given: list[bytes] = []
        self._since = NEVER

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def nbytes(self) -> int:
        return self.pairs.nbytes

    def receive(self, given: Blobs) -> None:
        """Take in legs, and how far the stage before has come."""
        self._given, self._since = given[LEGS], _reached(given)

    def answer(self, *, ended: bool) -> list[pa.Table]:  # noqa: ARG002 - the stage before says how far it has come
        """The pairs of legs that come close; they go on, unless they are the answers."""
        self.pairs.counts.clear()
        met = self.pairs.meet(_by_stream(self._given, self.call))
        self.pairs.forget(self._since)
        self.counts.update(self.pairs.counts)
        if not self._runs:
            tables = encounter_tables(Found(Approaches.none(), met, []), self.call)
            self.output.add(sum(map(len, tables)))
            return tables
        if len(met):
            own = _places(met, len(self._runs))
            self.sent = [
                (self._runs[at], PAIRS + packed_state("waiting", met.take(np.flatnonzero(own == at))))
                for at in np.unique(own).tolist()
            ]
        if self._since > NEVER:
            self.sent += [(key, _progress(self._since)) for key in self._runs]
        return []

    def forget(self) -> int:
        """Legs that have ended before this are of no use in the log."""
        return self._since

    def delta(self) -> tuple[list[bytes], int] | None:
        """The legs that came."""
        if not self._given:
            return None
        fresh = [legs for legs in _by_stream(self._given, self.call) if legs is not None]
        return self._given, max(int(legs.over.max()) for legs in fresh)

    def restore(self, blocks: Sequence[bytes]) -> None:
        """Take in a delta."""
        self.pairs.know(_by_stream(blocks, self.call))


class RunBucket(Bucket[Objects]):
    """Pairs of legs that wait for earlier ones, and the encounters that are open."""

    call: EncounterCall
    rows_tag = _NO_ROWS
    due = None
    newest = 0

    def __init__(self, call: EncounterCall) -> None:
        super().__init__(call)
        self.runs = Runs(call.plan.gap, call.plan.least)
        self._given: list[bytes] = []
        self._since = NEVER
        self._moved = False

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def nbytes(self) -> int:
        return sum(batch.nbytes for batch in self.runs.state().values())

    def receive(self, given: Blobs) -> None:
        """Take in pairs of legs, and how far the tiles have come."""
        self._given = given[PAIRS]
        since = max(self._since, _reached(given))
        # What nothing waits for need not be in the log.
        self._moved = bool(self._given) or (since > self._since and len(self.runs) > 0)
        self._since = since if self._moved else self._since

    def answer(self, *, ended: bool) -> list[pa.Table]:  # noqa: ARG002 - the tiles say how far they have come
        """The encounters that entered, and that are final."""
        if not self._moved:
            return []
        tables = encounter_tables(Found(*self._pushed(self._given), []), self.call)
        self.output.add(sum(map(len, tables)))
        return tables

    def _pushed(self, blobs: Sequence[bytes]) -> tuple[Approaches, Approaches]:
        return self.runs.push(_approaches(blobs), self._since)

    def delta(self) -> tuple[list[bytes], int] | None:
        """What came, and how far the tiles have come."""
        return ([self._state("step", *self.step()), *self._given], 0) if self._moved else None

    def step(self) -> tuple[list[int], Mapping[str, NDArray[Any]]]:
        """How far the tiles have come."""
        return [self._since], {}

    def redo(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:  # noqa: ARG002
        """Take the same step; its answers are known."""
        (self._since,) = numbers
        self._pushed(given[PAIRS])

    def whole(self) -> tuple[list[int], Mapping[str, NDArray[Any]], list[bytes]]:
        """Pairs and encounters."""
        return [self._since], {}, [_HELD + packed_state(*held) for held in self.runs.state().items()]

    def resume(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:  # noqa: ARG002
        (self._since,) = numbers
        for name, batch in _held(given[_HELD]):
            assert isinstance(batch, Approaches)  # noqa: S101 - all that was kept
            self.runs.restore(name, batch)


def _progress(since: int) -> bytes:
    return PROGRESS + str(since).encode()


def _reached(given: Blobs) -> int:
    """How far the stage before has come, as any of its buckets says."""
    return max((int(blob[1:]) for blob in given[PROGRESS]), default=NEVER)


def _held(blobs: Sequence[bytes]) -> list[tuple[str, Any]]:
    return [unpacked_state(memoryview(blob)[1:]) for blob in blobs]


def _by_stream(blobs: Sequence[bytes], call: EncounterCall) -> list[Legs | None]:
    """Legs by stream."""
    parts: list[list[Legs]] = [[] for _ in call.streams]
    for name, legs in _held(blobs):
        parts[int(name.removeprefix("legs"))].append(legs)
    return [Legs.concat(own) if own else None for own in parts]


def _approaches(blobs: Sequence[bytes]) -> Approaches:
    parts = [batch for _, batch in _held(blobs)]
    return Approaches.concat(parts) if parts else Approaches.none()


def _places(met: Approaches, n: int) -> Ints:
    """The bucket of each pair of things."""
    hashes = np.zeros(len(met), np.uint64)
    for keys in (met.left_key, met.right_key):
        numbers = np.empty(len(met), np.int64)
        key_numbers(keys.offsets, keys.data, numbers)
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + numbers.view(np.uint64)
    if met.group is not None:
        hashes += np.array([label_hash(value) for value in met.group.values], np.uint64)[met.group.codes]
    return ((hashes >> np.uint64(8)) % np.uint64(n)).astype(np.int64)
