"""Buckets that number rows: groups wait for their ticks to be complete, and go on to the tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from appulse.engines.bucket import ROWS, STATE, clock_numbers, set_clock
from appulse.engines.join.call import JoinCall, numbering_of
from appulse.engines.objects import ObjectsBucket
from appulse.engines.spark.blobs import FLOORS, PRESENCE, end_mark
from appulse.engines.spark.codec import pack_arrays, pack_floors, pack_presence, unpack_arrays
from appulse.engines.spark.join.partner_bucket import sent_on
from appulse.engines.spark.routing import tiled
from appulse.engines.spark.stage import GroupBuckets
from appulse.operators.numbering import Released, pushed_out_at_once
from appulse.operators.partners import LEFT, RowNotes, notes_of
from appulse.operators.presence import ExistenceTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from appulse.engines.bucket import Bucket
    from appulse.engines.spark.tiling import Tiling
    from appulse.kernels.arrays import Flags, Ints
    from appulse.model.objects import Objects
    from appulse.operators.window_starts import WindowStarts


@dataclass(frozen=True)
class NumberBuckets(GroupBuckets):
    """Buckets of groups that send on to the tiles of a tiling."""

    tiling: Tiling

    def make(self, key: int) -> Bucket[Any]:
        bucket = super().make(key)
        self.follow(bucket, key)
        return bucket

    def follow(self, bucket: Bucket[Any], key: int) -> None:  # noqa: ARG002 - one is as another
        """Send on to these tiles: there may be a new version since."""
        assert isinstance(bucket, Sends)  # noqa: S101 - made above
        bucket.follow(self.tiling)

    @property
    def onward(self) -> list[int]:
        """The keys of the latest tiles."""
        return self.tiling.versions[-1].keys


@runtime_checkable
class Sends(Protocol):
    """A bucket that sends on to tiles."""

    def follow(self, tiling: Tiling) -> None:
        """Send on to these tiles."""


class NumberBucket(ObjectsBucket):
    """Rows of some groups that wait, their numbers, and how far the streams have come."""

    call: JoinCall
    tiling: Tiling

    def __init__(self, call: JoinCall) -> None:
        super().__init__(call)
        self.numbering = numbering_of(call, tabled=True)
        self._mark = self.numbering.mark()
        self._capped = 0
        self.idle = True

    def __len__(self) -> int:
        return len(self.numbering)

    @property
    def nbytes(self) -> int:
        return self.numbering.nbytes

    @property
    def due(self) -> int | None:
        """The oldest time that waits."""
        return self.numbering.oldest

    def follow(self, tiling: Tiling) -> None:
        """Send on to these tiles."""
        self.tiling = tiling
        self.numbering.places = len(tiling.keys)

    def begin(self, limit: int | None = None) -> None:
        """Begin a step: what it changes goes to the log."""
        super().begin(limit)
        self._mark, self._capped = self.numbering.mark(), self.numbering.capped

    def hold(self, stream: int, rows: Objects) -> None:
        """Let rows wait for their ticks."""
        self.numbering.hold(stream, rows)

    def answer(self, *, ended: bool) -> list[pa.Table]:
        """Send on the rows whose ticks are complete."""
        released, copies = [], []
        ready = self.numbering.release(self.complete)
        # Only while one plan hands over to another does it matter what rows may meet.
        backs = self.numbering.oldest_met(ready) if len(self.tiling.versions) > 1 else [None] * len(ready)
        for (stream, objects), back in zip(ready, backs, strict=True):
            rows, places, lanes = self.tiling.copies(objects, back)
            first = np.searchsorted(rows, np.arange(len(objects) + 1))
            released.append(Released(stream, objects, first, places))
            copies.append((rows, places, lanes))
        self._number(released, copies)
        if ended and any(self.call.plan.followed):  # tiles hold rows that will have no partner
            self.sent += [(key, end_mark(self.newest)) for key in self.tiling.keys]
        self.counts["capped"] += self.numbering.capped - self._capped
        self.idle = not released and not self.came
        return []

    def _number(self, released: Sequence[Released], copies: Sequence[Any]) -> None:
        """Number the rows; they, and what has left, are on their way to tiles."""
        numbered = self.numbering.number(released)
        for part, objects in zip(released, numbered.objects, strict=True):
            self.numbered(part.stream, objects)
        out: list[tuple[int, bytes]] = []
        for part, objects, (rows, places, lanes) in zip(released, numbered.objects, copies, strict=True):
            stays = _in_window(objects, part.stream)[rows]
            kept = (rows[stays], places[stays], lanes[stays]) if not stays.all() else (rows, places, lanes)
            out += [(tile, block) for tile, block, _ in tiled(objects, part.stream, self.tiling, kept)]
        if isinstance(numbered.presence, ExistenceTable):
            # Once per tile and batch, whatever its rows: what they meet may not exist, and neither may they.
            presence = PRESENCE + pack_presence(numbered.presence)
            out += [(tile, presence) for tile in sorted({tile for tile, _ in out})]
        out += [(tile, FLOORS + pack_floors(notes)) for tile, notes in _by_place(numbered.places, numbered.floors)]
        self.sent = [(self.tiling.keys[tile], blob) for tile, blob in out]
        self.sent += self._alone(released, numbered.objects)

    def numbered(self, stream: int, rows: Objects) -> None:
        """These rows have been numbered."""

    def _alone(self, released: Sequence[Released], numbered: Sequence[Objects]) -> list[tuple[int, bytes]]:
        """Rows that their own tick pushed out, which any tile passes on."""
        followed = self.call.plan.followed
        gone = [
            notes_of(part.stream, pushed_out_at_once(objects, part.stream), LEFT)
            for part, objects in zip(released, numbered, strict=True)
            if followed[min(part.stream, 1)]
        ]
        notes = [rows for rows in gone if len(rows)]
        keys = self.tiling.versions[-1].keys
        sent = sent_on(RowNotes.concat(notes), self.tiling) if notes else []
        return [(keys[key % len(keys)], blob) for key, blob in sent]

    # --- the log: what was numbered, and the rows that wait

    def delta(self) -> tuple[list[bytes], int] | None:
        """What this step numbered, and the rows that came and wait."""
        if self.idle:
            return None
        waiting = [(stream, rows.take(np.flatnonzero(rows.time >= self.complete))) for stream, rows in self.came]
        return [self._numbers(self.numbering.since(self._mark), whole=False), *self.blocks(waiting)], 0

    def snapshot(self) -> list[bytes]:
        """All there is."""
        return [self._numbers(self.numbering.since(None), whole=True), *sorted(self.blocks(self.numbering.waiting()))]

    def restore(self, blocks: Sequence[bytes]) -> None:
        arrays = unpack_arrays(next(block for block in blocks if block[:1] == STATE)[1:])
        complete, whole = arrays.pop("settings").tolist()
        set_clock(self.clock, arrays.pop("clock").tolist())
        self.numbering.release(complete)
        self.numbering.restore(arrays, whole=bool(whole))
        for block in blocks:
            if block[:1] == ROWS:
                self.numbering.hold(*self.unpack(block))

    def _numbers(self, arrays: Mapping[str, NDArray[Any]], *, whole: bool) -> bytes:
        return STATE + pack_arrays({**arrays, "clock": self._clock(), "settings": self._settings(whole)})

    def _clock(self) -> Ints:
        return np.array(clock_numbers(self.clock), np.int64)

    def _settings(self, further: int) -> Ints:
        return np.array([self.complete, further], np.int64)


def _in_window(objects: Objects, stream: int) -> Flags:
    assert objects.number is not None and objects.frame is not None  # noqa: S101, PT018 - numbered a moment ago
    mask: Flags = objects.number >= objects.frame[:, stream]
    return mask


def _by_place(places: Ints, floors: WindowStarts) -> Iterator[tuple[int, WindowStarts]]:
    for place in np.unique(places).tolist():
        at = np.flatnonzero(places == place)
        yield place, floors.take(at)
