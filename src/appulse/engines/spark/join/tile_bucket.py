"""The tiles of a join: each is a bucket of the rows in some cells of space, and of some groups."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.engines.bucket import LAST, NEVER, Bucket, fail_if_asked
from appulse.engines.join.call import JoinCall, to_table
from appulse.engines.objects import packed
from appulse.engines.spark.blobs import FLOORS, NOTES, PRESENCE, WITHDRAWN, by_tag
from appulse.engines.spark.codec import pack, pack_presence, unpack, unpack_floors, unpack_notes, unpack_presence
from appulse.engines.spark.inputs import watermarks
from appulse.engines.spark.join.partner_bucket import pairs_on, partner_keys, sent_on
from appulse.engines.spark.stage import Buckets
from appulse.engines.spark.tiling import PlaceOwnership, Tiling
from appulse.operators.answers import NO_ANSWERS, Answers
from appulse.operators.output import Output
from appulse.operators.partners import RowNotes
from appulse.operators.similarity_join import SimilarityJoin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from appulse.engines.bucket import Blobs
    from appulse.model.objects import Objects
    from appulse.operators.presence import ExistenceTable


@dataclass(frozen=True)
class Tiles(Buckets):
    """The tiles of a join; Spark knows them by the keys of the tiling."""

    tiling: Tiling

    @property
    def onward(self) -> list[int]:
        """The keys of the stage that knows which rows have a partner, where there is one."""
        assert isinstance(self.call, JoinCall)  # noqa: S101 - only joins have tiles
        return partner_keys(self.tiling) if any(self.call.plan.followed) else []

    def make(self, key: int) -> Bucket[Any]:
        """The empty tile of a key."""
        assert isinstance(self.call, JoinCall)  # noqa: S101 - only joins have tiles
        kind = TimedTile if self.call.plan.rule is None else NumberedTile
        return kind(self.call, self.tiling, self.tiling.place(key))

    def follow(self, bucket: Bucket[Any], key: int) -> None:
        """The pairs that a tile owns are those of the last version of the plan."""
        assert isinstance(bucket, Tile)  # noqa: S101 - made above
        own = bucket.operator.ownership
        if not isinstance(own, PlaceOwnership) or own.tiling != self.tiling:
            bucket.operator.ownership = self.tiling.ownership(self.tiling.place(key))

    def plan(self, key: int) -> str:
        """The plan that a tile belongs to."""
        return self.tiling.fingerprint(self.tiling.place(key))

    def label(self, key: int) -> int:
        """The number of the tile."""
        return self.tiling.place(key)


Laned = tuple[int, int, "Objects"]  # stream, lane, rows
_REPACKED = 0.75  # the share of a block's rows from which on it is kept whole: to pack rows takes time, too


class Tile(Bucket["Objects"]):
    """One tile of a join; coarse tiles keep two lanes."""

    call: JoinCall
    slack = 1 << 16

    def __init__(self, call: JoinCall, tiling: Tiling, place: int) -> None:
        super().__init__(call)
        self.tiling, self.place = tiling, place
        lanes = 2 if tiling.is_coarse(place) else 1
        self.operator = SimilarityJoin(call.plan, lanes=lanes, ownership=tiling.ownership(place))
        self.batches: list[Laned] = []
        self.notes: list[RowNotes] = []  # of rows that met no tile
        self.ended = NO_ANSWERS  # pairs that wait elsewhere, and are withdrawn

    def __len__(self) -> int:
        return len(self.operator)

    @property
    def nbytes(self) -> int:
        return self.operator.nbytes

    def begin(self, limit: int | None = None) -> None:
        super().begin(limit)
        self.operator.counts.clear()
        self.operator.output = self.output
        self.batches, self.notes, self.ended = [], [], NO_ANSWERS

    def admit(self, batches: Iterable[tuple[int, Objects]], limit: int | None = None) -> None:  # noqa: ARG002
        """Begin a step; a tile receives its rows as blocks, by lane."""
        self.begin(limit)

    def advance(self, limit: int | None = None, ended: int | None = None) -> list[pa.Table]:
        """The pairs that the rows make, and those that leave."""
        self.operator.past = max(self.operator.past, self.settled or NEVER)
        answers = Answers.concat([*self.found(limit, ended), *([self.operator.end()] if ended is not None else [])])
        if self.operator.partners is not None:
            notes = [*self.notes, *self.operator.partners.taken()]
            self.sent = sent_on(RowNotes.concat(notes), self.tiling) if notes else []
        if self.call.plan.held:
            self.sent += [*pairs_on(answers, self.tiling), *pairs_on(self.ended, self.tiling, WITHDRAWN)]
            answers = NO_ANSWERS
        self.counts.update(self.operator.counts)
        self.counts["left"] = len(answers) - self.operator.counts["answers"]
        return [to_table(answers, self.call)] if len(answers) else []

    @abstractmethod
    def found(self, limit: int | None, ended: int | None) -> list[Answers]:
        """The answers of a step."""

    @abstractmethod
    def withdraw(self, blobs: Sequence[bytes]) -> Answers:
        """Forget rows; the pairs that this ends."""

    def restore(self, blocks: Sequence[bytes]) -> None:
        """Take in a delta; its answers are known."""
        self.operator.output = Output()
        blobs = by_tag(list(blocks))
        self.withdraw(blobs[WITHDRAWN])
        others = (FLOORS, PRESENCE, WITHDRAWN)
        rows = [unpack(block) for tag, group in blobs.items() if tag not in others for block in group]
        self.operator.apply(rows, _presence(blobs[PRESENCE]))
        for blob in blobs[FLOORS]:
            self.operator.leave(unpack_floors(blob[1:]))
        if self.operator.partners is not None:
            self.operator.partners.taken()  # known by now


class TimedTile(Tile):
    """Under time windows rows are answered as they come, and leave by time."""

    def __init__(self, call: JoinCall, tiling: Tiling, place: int) -> None:
        super().__init__(call, tiling, place)
        self._newest = NEVER
        self._limit: int | None = None
        self._blocks: list[bytes] = []  # of this step, for the log
        self._gone: list[bytes] = []

    @property
    def newest(self) -> int:
        """The newest time of the rows that may be held."""
        return max(0, self._newest)

    @property
    def due(self) -> int | None:
        """When rows have expired, or the next pair leaves."""
        expiry = self._newest + max(self.call.plan.windows)
        if self._newest == NEVER or (self._limit is not None and expiry < self._limit):
            return None
        end = self.operator.standing.next_end if self.call.plan.changes else self.operator.next_expiry
        return expiry if end is None else min(expiry, end)

    def begin(self, limit: int | None = None) -> None:
        """Begin a step: pairs that have left are not reported again."""
        super().begin(limit)
        self._limit, self._blocks, self._gone = limit, [], []
        if self.operator.remembers:
            self.operator.standing.until(self.settled)
        if self.call.plan.changes:
            self.operator.output = Output()
            self.operator.advance(self.settled)
            self.operator.output = self.output

    def receive(self, given: Blobs) -> None:
        """Take in rows, of which those before the limit are late: one tile reports each."""
        if self.call.plan.withdrawn:  # late rows came no farther than the stage before
            self._blocks, self._gone = given[self.rows_tag], given[WITHDRAWN]
            self.batches = [unpack(block) for block in self._blocks]
            return
        before = self.settled if self.call.chained else self._limit
        for block in given[self.rows_tag]:
            stream, lane, objects = unpack(block)
            kept = block
            if before is not None and len(objects) and int(objects.time.min()) < before:
                behind = objects.time < before
                self.rejected.append(self.call.late(stream, objects.filter(behind & self._owned(objects)), before))
                objects = objects.filter(~behind)
                kept = pack(objects, stream, lane)
            if len(objects):
                self._blocks.append(kept)
                self.batches.append((stream, lane, objects))
        fail_if_asked(self.call, self.rejected)
        self.counts["rows"] = sum(int(self._owned(objects).sum()) for _, _, objects in self.batches)
        self.counts["late"] = sum(map(len, self.rejected))

    def found(self, limit: int | None, ended: int | None) -> list[Answers]:
        """Pairs of the rows; then those that time has ended."""
        answers = []
        if self._gone:
            # What time has ended by now, no withdrawal ends.
            answers += [self.operator.advance(limit)] if limit is not None else []
            parted = self.withdraw(self._gone)
            if self.operator.remembers:
                self.ended = replace(parted, change=None, at=None, at_stream=None)
            else:
                answers.append(parted)
        answers.append(self.operator.push(self.batches))
        self._newest = max([self._newest, *(int(objects.time.max()) for _, _, objects in self.batches)])
        for until in (limit, ended):
            if until is not None:
                self.settled = max(self.settled, until)
                answers.append(self.operator.advance(until))
        if ended is not None:  # which leaves no delta: by this alone another attempt knows that rows have left
            self.settled += 1
        return answers

    def forget(self) -> int:
        """Rows that have expired are of no use in the log."""
        # Pairs that stand are made again of both their rows, of which one may have left before.
        span = (1 + self.operator.remembers) * max(self.call.plan.windows)
        return NEVER if self._limit is None else self._limit - span

    def delta(self) -> tuple[list[bytes], int] | None:
        """The rows that came, and those that went."""
        touched = [*self.batches, *(unpack(blob[1:]) for blob in self._gone)]
        if not touched:
            return None
        newest = max(int(objects.time.max()) for _, _, objects in touched)
        return [*self._lasting(), *self._gone], min(newest, LAST)

    def _lasting(self) -> list[bytes]:
        """The blocks of the step, without rows that no row of a later step can meet: batches may outlast windows."""
        ahead = self._ahead()
        if ahead is None:
            return self._blocks
        kept = []
        for block, (stream, lane, objects) in zip(self._blocks, self.batches, strict=True):
            lasts = objects.time >= ahead - max(self.call.plan.windows)
            few = np.count_nonzero(lasts) < _REPACKED * len(objects)
            kept += [pack(objects.filter(lasts), stream, lane) if few else block] if lasts.any() else []
        return kept

    def _ahead(self) -> int | None:
        """A time that the watermark will have passed by the next step, as far as this step's rows say; None: unknown.

        Pairs that stand, and rows without a partner, need their rows until they are reported.
        """
        plan, delays = self.call.plan, watermarks(self.call)
        if self.call.chained or plan.withdrawn or plan.changes or plan.held or self.operator.partners is not None:
            return None
        newest: dict[int, int] = {}
        for stream, _, objects in self.batches:
            newest[stream] = max(newest.get(stream, NEVER), int(objects.time.max()))
        if len(newest) < len(delays):
            return None
        behind = [NEVER if d is None else newest[stream] // 1000 - d for stream, d in enumerate(delays)]
        return min(behind) * 1000 if min(behind) > 0 else None  # Spark's begins at 0, which says nothing

    def withdraw(self, blobs: Sequence[bytes]) -> Answers:
        return self.operator.withdraw([unpack(blob[1:]) for blob in blobs])

    def restore(self, blocks: Sequence[bytes]) -> None:
        """Take in a delta."""
        super().restore(blocks)
        times = [objects.time for _, _, objects in (unpack(b) for b in blocks if b[:1] != WITHDRAWN)]
        self._newest = max([self._newest, *(int(time.max()) for time in times if len(time))])

    def _owned(self, objects: Objects) -> np.ndarray[Any, np.dtype[np.bool_]]:
        owned: np.ndarray[Any, np.dtype[np.bool_]] = self.tiling.owners(objects) == self.place
        return owned


class NumberedTile(Tile):
    """Windows that go by rows: these come numbered, in the order of ticks, and with what has left."""

    def __init__(self, call: JoinCall, tiling: Tiling, place: int) -> None:
        super().__init__(call, tiling, place)
        self._floors: list[bytes] = []
        self._presence: list[bytes] = []
        self._gone: list[bytes] = []

    due = None
    newest = 0

    def receive(self, given: Blobs) -> None:
        """Take in rows, what has left, and what may not exist."""
        self.batches = [unpack(block) for block in given[self.rows_tag]]
        self._floors, self._presence, self._gone = given[FLOORS], given[PRESENCE], given[WITHDRAWN]
        self.notes = [unpack_notes(blob[1:]) for blob in given[NOTES]]

    def found(self, limit: int | None, ended: int | None) -> list[Answers]:  # noqa: ARG002 - time is nothing here
        """Pairs that leave, and pairs of the rows."""
        gone = self.withdraw(self._gone)
        answers = self.operator.push(self.batches, _presence(self._presence))
        left = [self.operator.leave(unpack_floors(blob[1:])) for blob in self._floors]
        return [gone, *left, answers]

    def withdraw(self, blobs: Sequence[bytes]) -> Answers:
        """Forget rows by their numbers, and renumber others; the pairs that this ends."""
        return Answers.concat([self.operator.renumber(unpack_floors(blob[1:])) for blob in blobs])

    def delta(self) -> tuple[list[bytes], int] | None:
        """The rows that stay, and what has left."""
        # Pairs that stand are state: what made them is kept, too.
        reasons = self._presence if self.call.plan.changes else []
        kept = []
        for stream, lane, objects in self.batches:
            stay = self.operator.holds(stream, objects)
            if stay.any():
                keep = objects.take(np.flatnonzero(stay))
                kept.append(pack(keep if reasons else replace(keep, frame=None), stream, lane))
        return ([*self._gone, *kept, *reasons, *self._floors], 0) if kept or self._floors or self._gone else None

    def snapshot(self) -> list[bytes]:
        """All that the tile holds."""
        changes, known = self.call.plan.changes, self.operator.presence
        blocks = [
            block
            for stream, lane, objects in self.operator.live()
            for block, _ in packed(objects if changes else replace(objects, frame=None), stream, lane)
        ]
        presence = [PRESENCE + pack_presence(known)] if changes and known is not None else []
        return [*blocks, *presence, *self._floors]


def _presence(blobs: Iterable[bytes]) -> list[ExistenceTable]:
    return [unpack_presence(blob[1:]) for blob in blobs]
