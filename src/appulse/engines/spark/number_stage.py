"""The stage that numbers rows, one bucket of groups at a time: the only one that waits for ticks to be complete."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from appulse.engines.call import JoinCall, numbering_of
from appulse.engines.spark.codec import pack_arrays, pack_floors, pack_presence, unpack, unpack_arrays
from appulse.engines.spark.routing import packed, tiled
from appulse.engines.spark.state import NO_TIMER, Cached, TileState, blocks_of, outgrown
from appulse.engines.spark.ticks import admitted, armed, bucket_clock, clock_arrays, complete_before, set_clock
from appulse.engines.spark.tile_join import END as END_MARK
from appulse.engines.spark.tile_join import FLOORS, METRICS, PRESENCE, REJECTS, by_tag, metrics_blob, table_bytes
from appulse.operators.numbering import END, Floors, Numbering, Released

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from appulse.engines.spark.tiling import Tiling
    from appulse.model.objects import Objects
    from appulse.windows.clock import Clock

Out = list[tuple[int, bytes]]
_ROWS = b"a"
_STATE = b"S"
_SLACK = 1 << 18


@dataclass
class Bucket:
    """The state of some groups: rows that wait, numbers, and how far the streams have come."""

    call: JoinCall
    tiling: Tiling
    numbering: Numbering = field(init=False)
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.numbering = numbering_of(self.call, len(self.tiling.keys))
        self.clock = bucket_clock(self.call)

    @property
    def nbytes(self) -> int:
        """Bytes held, roughly."""
        return self.numbering.nbytes

    def follow(self, tiling: Tiling) -> None:
        """Send on to these tiles: there may be a new version since."""
        self.tiling = tiling
        self.numbering.places = len(tiling.keys)

    def state(self, effects: dict[str, NDArray[Any]], complete: int, *, whole: bool) -> bytes:
        """What `apply` needs, apart from the rows that wait."""
        arrays = {**effects, "clock": np.array(clock_arrays(self.clock), np.int64)}
        return _STATE + pack_arrays({**arrays, "settings": np.array([complete, whole], np.int64)})

    def apply(self, payload: bytes) -> None:
        """Take in a delta of the log."""
        self.take(blocks_of(payload))

    def take(self, blocks: list[bytes]) -> None:
        """Take in the blocks of a delta."""
        given = by_tag(blocks)
        arrays = unpack_arrays(given[_STATE][0][1:])
        complete, whole = arrays.pop("settings").tolist()
        set_clock(self.clock, arrays.pop("clock").tolist())
        self.numbering.release(complete)
        self.numbering.restore(arrays, whole=bool(whole))
        for block in given[_ROWS]:
            stream, _, objects = unpack(block)
            self.numbering.hold(stream, objects)

    def release(self, complete: int) -> tuple[list[tuple[int, bytes]], int]:
        """Blocks for tiles, as (tile, block), of the rows whose ticks are complete; how many rows."""
        released, copies = [], []
        ready = self.numbering.release(complete)
        # Only while one plan hands over to another does it matter what rows may meet.
        backs = self.numbering.oldest_met(ready) if len(self.tiling.versions) > 1 else [None] * len(ready)
        for (stream, objects), back in zip(ready, backs, strict=True):
            rows, places, lanes = self.tiling.copies(objects, back)
            first = np.searchsorted(rows, np.arange(len(objects) + 1))
            released.append(Released(stream, objects, first, places))
            copies.append((rows, places, lanes))
        numbered = self.numbering.number(released)
        out: list[tuple[int, bytes]] = []
        for part, objects, (rows, places, lanes) in zip(released, numbered.objects, copies, strict=True):
            stays = _in_window(objects, part.stream)[rows]
            kept = (rows[stays], places[stays], lanes[stays]) if not stays.all() else (rows, places, lanes)
            out += [(tile, block) for tile, block, _ in tiled(objects, part.stream, self.tiling, kept)]
        if numbered.presence is not None:
            # Once per tile and batch, whatever its rows: what they meet may not exist, and neither may they.
            told = PRESENCE + pack_presence(numbered.presence)
            out += [(tile, told) for tile in sorted({tile for tile, _ in out})]
        out += [(tile, FLOORS + pack_floors(notes)) for tile, notes in _by_place(numbered.places, numbered.floors)]
        return out, sum(len(part.objects) for part in released)


def _in_window(objects: Objects, stream: int) -> NDArray[np.bool_]:
    assert objects.number is not None and objects.frame is not None  # noqa: S101, PT018 - numbered a moment ago
    mask: NDArray[np.bool_] = objects.number >= objects.frame[:, stream]
    return mask


def _by_place(places: NDArray[np.int64], floors: Floors) -> Iterator[tuple[int, Floors]]:
    for place in np.unique(places).tolist():
        at = np.flatnonzero(places == place)
        yield place, Floors(floors.group.take(at), floors.stream[at], floors.tick[at], floors.floor[at])


@dataclass(frozen=True)
class NumberStage:
    """What every bucket of a query does; it sends on to the tiles of the tiling."""

    call: JoinCall
    tiling: Tiling

    def answer(
        self, key: int, blobs: list[bytes], limit: int | None, state: TileState, arm: Callable[[int], None]
    ) -> Out:
        """Take in a micro-batch's blocks, and send on what they complete. ``limit`` is Spark's watermark."""
        begun = time.perf_counter()
        given = by_tag(blobs)
        cached, timer = state.load(key, self._fresh, Bucket.apply)
        bucket: Bucket = cached.operator
        bucket.follow(self.tiling)
        capped = bucket.numbering.capped
        batches, late = admitted(given[_ROWS], self.call, bucket.clock, limit)
        mark = bucket.numbering.mark()
        for stream, objects in batches:
            bucket.numbering.hold(stream, objects)
        complete = complete_before(self.call, bucket.clock, limit, ended=bool(given[END_MARK]))
        out = self._spread(given[REJECTS] + given[METRICS] + [table_bytes(REJECTS, table) for table in late])
        released, _ = bucket.release(complete)
        out += [(self.tiling.keys[tile], blob) for tile, blob in released]
        waiting = [(stream, objects.take(np.flatnonzero(objects.time >= complete))) for stream, objects in batches]
        timer = armed(bucket.numbering.oldest, timer, limit, arm)
        written = self._save(key, cached, mark, waiting, complete, timer, state)
        figures = {
            "tile": -1 - key,
            "rows": sum(len(objects) for _, objects in batches),
            "newest": bucket.clock.now or 0,
            "late": sum(len(table) for table in late),
            "capped": bucket.numbering.capped - capped,
            "state_rows": len(bucket.numbering),
            "state_bytes": bucket.nbytes,
            "state_bytes_read": state.bytes_read,
            "state_bytes_written": written,
            "seconds": time.perf_counter() - begun,
        }
        keys = self.tiling.versions[-1].keys
        return [*out, (keys[key % len(keys)], metrics_blob(**figures))]

    def wake(self, key: int, limit: int | None, state: TileState, arm: Callable[[int], None]) -> Out:
        """Without rows: send on what Spark's watermark says is complete."""
        cached, _ = state.load(key, self._fresh, Bucket.apply)
        bucket: Bucket = cached.operator
        bucket.follow(self.tiling)
        mark = bucket.numbering.mark()
        complete = complete_before(self.call, bucket.clock, limit, ended=False)
        released, rows = bucket.release(complete)
        timer = armed(bucket.numbering.oldest, NO_TIMER, limit, arm)
        if rows:
            self._save(key, cached, mark, [], complete, timer, state)
        else:
            state.save(key, cached, [], None, timer)
        return [(self.tiling.keys[tile], blob) for tile, blob in released]

    def at_once(self, blobs: list[bytes]) -> Out:
        """Number all there is: a batch query, in which every tick is complete."""
        given = by_tag(blobs)
        bucket = self._fresh()
        for stream, _, objects in map(unpack, given[_ROWS]):
            bucket.numbering.hold(stream, objects)
        released, _ = bucket.release(END)
        return [(self.tiling.keys[tile], blob) for tile, blob in released]

    def _fresh(self) -> Bucket:
        return Bucket(self.call, self.tiling)

    def _save(
        self,
        key: int,
        cached: Cached,
        mark: tuple[NDArray[np.int64], int],
        waiting: Sequence[tuple[int, Objects]],
        complete: int,
        timer: int,
        state: TileState,
    ) -> int:
        bucket: Bucket = cached.operator
        held = [block for stream, objects in waiting if len(objects) for block, _ in packed(objects, stream, 0)]
        delta = [bucket.state(bucket.numbering.since(mark), complete, whole=False), *held]
        if whole := outgrown(cached, delta, _SLACK):
            waits = bucket.numbering.waiting()
            rows = sorted(block for stream, objects in waits for block, _ in packed(objects, stream, 0))
            delta = [bucket.state(bucket.numbering.since(None), complete, whole=True), *rows]
            # From now on as one who reads it: what is written next must not depend on who lived through what.
            cached.operator = self._fresh()
            cached.operator.take(delta)
            cached.operator.follow(self.tiling)
        return state.save(key, cached, delta, 0, timer, whole=whole)

    def _spread(self, blobs: list[bytes]) -> Out:
        """Blobs that any tile may pass on, under many keys."""
        keys = self.tiling.versions[-1].keys
        return [(keys[crc32(blob) % len(keys)], blob) for blob in blobs]
