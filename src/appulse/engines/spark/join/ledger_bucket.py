"""Buckets that know which rows of a join stand, in front of tiles that have copies of them.

A withdrawal does not say where its row is: of whatever is withdrawn a bucket of keys finds the row, and the tiles that
have copies of it are sent the row itself or, where rows are numbered, its number.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from appulse.engines.bucket import LAST, NEVER, ROWS, STATE, set_clock
from appulse.engines.objects import ObjectsBucket
from appulse.engines.spark.blobs import WITHDRAWN, end_mark
from appulse.engines.spark.codec import pack_arrays, pack_floors, unpack_arrays
from appulse.engines.spark.join.number_bucket import NumberBucket
from appulse.engines.spark.routing import tiled
from appulse.engines.withdrawing import WAITING, Corrections
from appulse.model.changes import parted
from appulse.operators.numbering import END, in_own_window

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from appulse.engines.bucket import Blobs
    from appulse.engines.join.call import JoinCall
    from appulse.engines.spark.tiling import Tiling
    from appulse.kernels.arrays import Flags
    from appulse.model.objects import Objects

Held: TypeAlias = "Sequence[tuple[int, Objects]]"
#: Of a log: rows that stand.
STANDING = b"l"


class LedgerBucket(ObjectsBucket):
    """Under time windows: the rows of some keys that stand. Those that come, or go, are on their way to tiles."""

    call: JoinCall
    tiling: Tiling

    def __init__(self, call: JoinCall) -> None:
        super().__init__(call)
        self.corrections = Corrections(call, call.plan.windows, self.counts)
        self._limit: int | None = None
        self._behind: int | None = None
        self._newest = NEVER

    def __len__(self) -> int:
        return len(self.corrections.ledger)

    @property
    def nbytes(self) -> int:
        return self.corrections.ledger.nbytes

    @property
    def due(self) -> int | None:
        """When no row can come any more that a withdrawal waits for, or rows have left."""
        known = [self.corrections.ledger.oldest_waiting]
        known += [self._newest + max(self.call.plan.windows)] if len(self) else []
        return min((time for time in known if time is not None), default=None)

    def follow(self, tiling: Tiling) -> None:
        """Send on to these tiles."""
        self.tiling = tiling

    def begin(self, limit: int | None = None) -> None:
        """Begin a step: what lapsed before was reported."""
        super().begin(limit)
        self._limit = limit
        if self.settled > 0:
            self.corrections.ledger.lapse(self.settled)

    def late_before(self, limit: int | None) -> int | None:
        """Rows before this are late."""
        self._behind = self.settled if self.call.chained else limit
        return self._behind

    def advance(self, limit: int | None = None, ended: int | None = None) -> list[pa.Table]:
        """Send rows on, and the end of the streams."""
        answers = super().advance(limit, ended)
        self.settled = max(self.settled, limit or 0)
        if ended is not None:
            # Of no version: that it was reported says how far the key is settled.
            self.settled = max(self.settled, (self.corrections.newest_lapsed or 0) + 1)
            self.sent += [(key, end_mark(ended)) for key in self.tiling.keys]
        return answers

    def answer(self, *, ended: bool) -> list[pa.Table]:
        """Send on the rows that stay, and those that are withdrawn."""
        stay, gone = self._settled(self.came, self.asked)
        self.sent = [(key, block) for key, block in self._tiled(stay)]
        self.sent += [(key, WITHDRAWN + block) for key, block in self._tiled(gone)]
        until = END if ended else self._limit
        self.corrections.newest_lapsed = None
        if until is not None:
            self.rejected += self.corrections.lapse(until)
        return []

    def _settled(self, came: Held, asked: Held) -> tuple[Held, Held]:
        ledger = self.corrections.ledger
        stay, gone = self.corrections.settle(came, asked, self._behind, self._held)
        for stream, rows in stay:
            ledger.stand(stream, rows)
            self._newest = max(self._newest, int(rows.time.max()))
        ledger.forget(self._held)
        return stay, gone

    def _held(self, stream: int, rows: Objects) -> Flags:
        """Which rows may still be in their window."""
        left = NEVER if self._limit is None else self._limit
        held: Flags = rows.time + self.call.plan.windows[stream] >= left
        return held

    def _tiled(self, rows: Held) -> Iterable[tuple[int, bytes]]:
        for stream, part in rows:
            for place, block, _ in tiled(part, stream, self.tiling, self.tiling.copies(part)):
                yield self.tiling.keys[place], block

    # --- the log: rows and withdrawals as they came

    def forget(self) -> int:
        """Rows that have left their windows are of no use in the log."""
        return NEVER if self._limit is None else self._limit - max(self.call.plan.windows)

    def delta(self) -> tuple[list[bytes], int] | None:
        """The rows that came, and what was withdrawn."""
        both = [*self.came, *self.asked]
        if not both:
            return None
        newest = max(int(rows.time.max()) for _, rows in both)
        return [self._state("step", *self.step()), *self.blocks(both)], min(newest, LAST)

    def step(self) -> tuple[list[int], Mapping[str, NDArray[Any]]]:
        """Which rows were late, and which had left."""
        return [NEVER if time is None else time for time in (self._behind, self._limit)], {}

    def redo(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:  # noqa: ARG002
        """Take the same step."""
        self._behind, self._limit = (None if time == NEVER else time for time in numbers)
        self._settled(*_parted(map(self.unpack, given[ROWS])))
        if self._limit is not None:
            self.corrections.ledger.lapse(self._limit)
        self.counts.clear()


class NumberedLedgerBucket(NumberBucket):
    """Where windows go by rows: numbers of rows, and which of them stand."""

    def __init__(self, call: JoinCall) -> None:
        super().__init__(call)
        self.corrections = Corrections(call, None, self.counts)
        self._behind: int | None = None
        self._notes: list[bytes] = []

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.corrections.ledger.nbytes

    @property
    def due(self) -> int | None:
        """The oldest time that waits, of a row or for one."""
        known = (super().due, self.corrections.ledger.oldest_waiting)
        return min((time for time in known if time is not None), default=None)

    def late_before(self, limit: int | None) -> int | None:
        """Rows before this are late."""
        self._behind = super().late_before(limit)
        return self._behind

    def answer(self, *, ended: bool) -> list[pa.Table]:
        """Withdraw rows, then send on those whose ticks are complete."""
        self._withdraw()
        answers = super().answer(ended=ended)
        self.sent = [(key, WITHDRAWN + blob) for blob in self._notes for key in self.tiling.keys] + self.sent
        self.rejected += self.corrections.lapse(self.complete)
        return answers

    def _withdraw(self) -> None:
        """Forget rows that wait or stand; every tile learns the numbers of those that do."""
        numbering, ledger = self.numbering, self.corrections.ledger
        gone = self.corrections.settle_waiting(numbering, self.came, self.asked, self._behind)
        self._notes = []
        if gone:
            notes = numbering.withdraw(gone)
            ledger.renumber(partial(numbering.renumbered, notes))
            self._notes.append(pack_floors(notes))

    def numbered(self, stream: int, rows: Objects) -> None:
        """These rows stand from now on."""
        self.corrections.ledger.stand(stream, in_own_window(rows, stream))
        self.corrections.ledger.forget(self.numbering.holds)

    # --- the log: what came, and all of it taken in again; or what stands

    def delta(self) -> tuple[list[bytes], int] | None:
        """What came in this step, to be taken in again."""
        if self.idle and not self.asked and self.corrections.newest_lapsed is None:
            return None
        behind = NEVER if self._behind is None else self._behind
        state = {"clock": self._clock(), "settings": self._settings(behind), "step": self._settings(0)}
        return [STATE + pack_arrays(state), *self.blocks([*self.came, *self.asked])], 0

    def snapshot(self) -> list[bytes]:
        ledger = self.corrections.ledger
        ledger.forget(self.numbering.holds, now=True)
        standing = [STANDING + block for block in self.blocks(ledger.standing())]
        return [*super().snapshot(), *standing, *self.corrections.blocks()]

    def restore(self, blocks: Sequence[bytes]) -> None:
        arrays = unpack_arrays(next(block for block in blocks if block[:1] == STATE)[1:])
        if "step" not in arrays:
            super().restore([block for block in blocks if block[:1] in (STATE, ROWS)])
            for block in blocks:
                if block[:1] == STANDING:
                    self.corrections.ledger.stand(*self.unpack(block[1:]))
            self.corrections.recall(block for block in blocks if block[:1] == WAITING)
            return
        self.complete, behind = arrays["settings"].tolist()
        self._behind = None if behind == NEVER else behind
        self.came, self.asked = _parted(self.unpack(block) for block in blocks if block[:1] == ROWS)
        for stream, rows in self.came:
            self.hold(stream, rows)
        self.answer(ended=False)
        set_clock(self.clock, arrays["clock"].tolist())
        self.came, self.sent, self.rejected, self.asked = [], [], [], []
        self.counts.clear()


def _parted(batches: Iterable[tuple[int, Objects]]) -> tuple[list[tuple[int, Objects]], list[tuple[int, Objects]]]:
    """Rows that are added, and rows that withdraw others."""
    came, asked = [], []
    for stream, rows in batches:
        fresh, gone = parted(rows)
        if len(fresh):
            came.append((stream, fresh))
        if gone is not None:
            asked.append((stream, gone))
    return came, asked
