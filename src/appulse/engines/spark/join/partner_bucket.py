"""The stage behind the tiles where all that is known of a row meets: whether it has a partner, and the nearest ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.engines.bucket import Bucket
from appulse.engines.join.call import JoinCall, to_table
from appulse.engines.spark.blobs import NOTES, PAIRS, WITHDRAWN
from appulse.engines.spark.codec import pack_notes, pack_pairs, unpack_notes, unpack_pairs
from appulse.engines.spark.stage import Buckets
from appulse.kernels.strings import hash_rows
from appulse.model.codec import pack_columns, unpack_columns
from appulse.model.strings import Bytes
from appulse.operators.answers import Answers
from appulse.operators.held_pairs import HeldPairs
from appulse.operators.partners import LEFT, RowNotes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from appulse.engines.bucket import Blobs
    from appulse.engines.spark.tiling import Tiling
    from appulse.kernels.arrays import Hashes, Ints

_WORD = "partners"


def partner_keys(tiling: Tiling) -> list[int]:
    """The keys of the stage: as many as the first plan has tiles, whatever plans follow."""
    return list(range(tiling.versions[0].plan.tiles))


def sent_on(notes: RowNotes, tiling: Tiling) -> list[tuple[int, bytes]]:
    """Notes as blobs, under the key that all notes of a row have."""
    own = _places(notes.key, notes.time, tiling)
    return [(key, NOTES + pack_notes(notes.take(np.flatnonzero(own == key)))) for key in np.unique(own).tolist()]


def pairs_on(pairs: Answers, tiling: Tiling, tag: bytes = PAIRS) -> list[tuple[int, bytes]]:
    """Pairs as blobs, under the key that notes of their left rows have."""
    own = _places(pairs.left_key, pairs.left_time, tiling)
    return [(key, tag + pack_pairs(pairs.take(np.flatnonzero(own == key)))) for key in np.unique(own).tolist()]


def _places(keys: Bytes, time: Ints, tiling: Tiling) -> Ints:
    known = np.array(partner_keys(tiling))
    hashes: Hashes = hash_rows(keys.offsets, keys.data, time)
    return known[(hashes % np.uint64(len(known))).astype(np.int64)]


@dataclass(frozen=True)
class PartnerBuckets(Buckets):
    """Buckets of rows, by a hash of their keys."""

    def make(self, key: int) -> Bucket[Any]:  # noqa: ARG002 - one is as another
        assert isinstance(self.call, JoinCall)  # noqa: S101 - only joins have partners
        return HeldBucket(self.call) if self.call.plan.held else PartnerBucket(self.call)


class PartnerBucket(Bucket[Any]):
    """Rows that have a partner and have not left yet."""

    call: JoinCall
    rows_tag = b"\0"  # no rows come

    def __init__(self, call: JoinCall) -> None:
        super().__init__(call)
        self._met: set[bytes] = set()
        self._bytes = 0
        self._notes: list[RowNotes] = []
        self._fresh: set[bytes] = set()  # of this step, for the log
        self._gone: set[bytes] = set()

    due = None
    newest = 0

    def __len__(self) -> int:
        return 0  # rows are those of the tiles

    @property
    def nbytes(self) -> int:
        return self._bytes

    def begin(self, limit: int | None = None) -> None:
        super().begin(limit)
        self._notes, self._fresh, self._gone = [], set(), set()

    def receive(self, given: Blobs) -> None:
        """Take in notes."""
        self._notes = [unpack_notes(blob[1:]) for blob in given[NOTES]]

    def answer(self, *, ended: bool) -> list[pa.Table]:  # noqa: ARG002 - the tiles say when rows leave
        """Rows that leave, and of which no note says that they have a partner."""
        if not self._notes:
            return []
        notes = RowNotes.concat(self._notes)
        identity = _identities(notes)
        left = (notes.what == LEFT).tolist()
        fresh = {one for one, gone in zip(identity, left, strict=True) if not gone} - self._met
        known = self._met | fresh
        alone = [i for i, gone in enumerate(left) if gone and identity[i] not in known]
        over = {one for one, gone in zip(identity, left, strict=True) if gone}
        self._fresh, self._gone = fresh - over, self._met & over
        self._change(self._fresh, self._gone)
        found = notes.take(np.array(alone, np.int64)).alone(self.call.plan)
        self.output.add(len(found))
        return [to_table(found, self.call)] if len(found) else []

    def _change(self, fresh: set[bytes], gone: set[bytes]) -> None:
        self._met |= fresh
        self._met -= gone
        self._bytes += sum(map(len, fresh)) - sum(map(len, gone))

    # --- the log

    def delta(self) -> tuple[list[bytes], int] | None:
        """Rows that found their first partner, and rows with one that left."""
        if not self._fresh and not self._gone:
            return None
        return [_packed(self._fresh, self._gone)], 0

    def snapshot(self) -> list[bytes]:
        """All rows that have a partner."""
        return [_packed(self._met, set())]

    def restore(self, blocks: Sequence[bytes]) -> None:
        for block in blocks:
            columns, _ = unpack_columns(_WORD, block, copied=True)
            self._change(*(set(columns[name].to_list()) for name in ("met", "gone")))


class HeldBucket(Bucket[Any]):
    """Pairs of left rows that have not left yet."""

    call: JoinCall
    rows_tag = b"\0"  # no rows come

    def __init__(self, call: JoinCall) -> None:
        super().__init__(call)
        self.rows = HeldPairs.of(call.plan)
        self._given: list[bytes] = []  # of this step, for the log

    due = None
    newest = 0

    def __len__(self) -> int:
        return 0  # rows are those of the tiles

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    def receive(self, given: Blobs) -> None:
        """Take in pairs, those that are withdrawn, and notes of rows that leave."""
        self._given = [*given[PAIRS], *given[WITHDRAWN], *given[NOTES]]

    def answer(self, *, ended: bool) -> list[pa.Table]:  # noqa: ARG002 - the tiles say when rows leave
        """The answers of rows that leave."""
        found = self._take(self._given)
        self.output.add(len(found))
        return [to_table(found, self.call)] if len(found) else []

    def _take(self, blobs: Sequence[bytes]) -> Answers:
        self.rows.cancel(Answers.concat([unpack_pairs(blob[1:]) for blob in blobs if blob[:1] == WITHDRAWN]))
        pairs = [unpack_pairs(blob[1:]) for blob in blobs if blob[:1] == PAIRS]
        return self.rows.take(pairs, [unpack_notes(blob[1:]) for blob in blobs if blob[:1] == NOTES])

    def delta(self) -> tuple[list[bytes], int] | None:
        """What came."""
        return (self._given, 0) if self._given else None

    def snapshot(self) -> list[bytes]:
        """All pairs that wait."""
        return [PAIRS + pack_pairs(self.rows.pairs)] if len(self.rows) else []

    def restore(self, blocks: Sequence[bytes]) -> None:
        self._take(blocks)


def _identities(notes: RowNotes) -> list[bytes]:
    """What tells each row from all others: its stream, time, rank, and key with what it carries."""
    numbers = np.ascontiguousarray(np.column_stack([notes.stream, notes.time, notes.rank])).view(np.uint8)
    heads = numbers.reshape(len(notes), -1)
    return [heads[i].tobytes() + key for i, key in enumerate(notes.key.to_list())]


def _packed(met: set[bytes], gone: set[bytes]) -> bytes:
    return pack_columns(_WORD, {"met": Bytes.of(sorted(met)), "gone": Bytes.of(sorted(gone))})
