"""Buckets whose rows wait for their ticks. Until its tick is answered, a row may be withdrawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from appulse.engines.objects import ObjectsBucket
from appulse.engines.withdrawing import WAITING, Corrections
from appulse.model.objects import Objects
from appulse.operators.numbering import in_canonical_order
from appulse.operators.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from appulse.engines.bucket import Blobs
    from appulse.engines.objects import ObjectsCall
    from appulse.kernels.arrays import Flags


class HoldingBucket(ObjectsBucket):
    """The bucket of an operator whose rows wait for their ticks."""

    def __init__(self, call: ObjectsCall) -> None:
        super().__init__(call)
        self.waiting: list[Waiting[Objects]] = [Waiting() for _ in call.encodings]

    def __len__(self) -> int:
        return sum(map(len, self.waiting))

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self.waiting)

    @property
    def due(self) -> int | None:
        """The oldest time that waits."""
        return min((one.due for one in self.waiting if one.due is not None), default=None)

    def hold(self, stream: int, rows: Objects) -> None:
        """Let rows wait for their ticks."""
        self.waiting[stream].hold(rows)

    def blocks_held(self) -> list[bytes]:
        """The rows that wait."""
        return self.blocks((i, part) for i, one in enumerate(self.waiting) for part in one.parts)

    def hold_again(self, given: Blobs) -> None:
        """Take in the rows of a snapshot, or of a delta."""
        for block in given[self.rows_tag]:
            self.hold(*self.unpack(block))


class WaitingBucket(HoldingBucket):
    """One whose rows leave for good once they are answered, and may be withdrawn until then."""

    def __init__(self, call: ObjectsCall) -> None:
        super().__init__(call)
        self.corrections = Corrections.of(call, None, self.counts)

    @property
    def due(self) -> int | None:
        """The oldest time that waits, of a row or for one."""
        known = [super().due, None if self.corrections is None else self.corrections.ledger.oldest_waiting]
        return min((time for time in known if time is not None), default=None)

    def waits(self, stream: int) -> Sequence[Waiting[Objects]]:
        """What waits of a stream."""
        return self.waiting[stream : stream + 1]

    def advance(self, limit: int | None = None, ended: int | None = None) -> list[pa.Table]:
        """Withdraw rows; then the answers of ticks that are complete now."""
        self.withdraw()
        answers = super().advance(limit, ended)
        if self.corrections is not None:
            self.rejected += self.corrections.lapse(self.complete)
        return answers

    def withdraw(self) -> None:
        """Forget the rows that are withdrawn. Rows before ``complete`` may have come, and been answered."""
        if self.corrections is None:
            return
        self.corrections.ask(self.asked, self.complete)
        fresh = {id(rows) for _, rows in self.came}
        for stream in range(len(self.call.encodings)):
            parts = [part for one in self.waits(stream) for part in one.parts]
            old = [part for part in parts if id(part) not in fresh]
            new = [part for part in parts if id(part) in fresh]
            stands = self.corrections.stands_of(stream, old, new)
            self.note(old, new, stands)
            if stands is not None:
                masks = {id(part): mask for part, mask in zip([*old, *new], stands, strict=True)}
                for one in self.waits(stream):
                    one.keep([masks[id(part)] for part in one.parts])

    def note(self, old: Sequence[Objects], new: Sequence[Objects], stands: Sequence[Flags] | None) -> None:
        """For subclasses: rows that waited, rows that came, and which of either stand (None: all)."""

    # --- the log

    def blocks_held(self) -> list[bytes]:
        """The rows that wait, and withdrawals that wait for theirs."""
        rows = super().blocks_held()
        return rows if self.corrections is None else [*rows, *self.corrections.blocks()]

    def hold_again(self, given: Blobs) -> None:
        """Take in the rows of a snapshot, or of a delta with those that are withdrawn; before ``complete`` is set."""
        rows = [self.unpack(block) for block in given[self.rows_tag]]
        self.came = [(stream, part) for stream, part in rows if part.change is None]
        self.asked = [(stream, part) for stream, part in rows if part.change is not None]
        for stream, part in self.came:
            self.hold(stream, part)
        if self.corrections is not None:
            self.corrections.recall(given[WAITING])
        self.withdraw()

    def step(self) -> tuple[list[int], Mapping[str, NDArray[Any]]]:
        """All ticks before ``complete`` were there."""
        return [self.complete], {}

    def redo(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:
        """Take the same step; its answers are known."""
        self.hold_again(given)
        self.complete, *own = numbers
        self.again(own, arrays)
        if self.corrections is not None:
            self.corrections.lapse(self.complete)

    def again(self, numbers: Sequence[int], arrays: Mapping[str, NDArray[Any]]) -> None:  # noqa: ARG002
        """Answer the same ticks; ``numbers`` are those of `step` behind ``complete``."""
        self.answer(ended=False)

    def whole(self) -> tuple[list[int], Mapping[str, NDArray[Any]], list[bytes]]:
        """What waits."""
        return [self.complete], {}, self.blocks_held()

    def resume(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:  # noqa: ARG002
        (self.complete,) = numbers
        self.hold_again(given)


class TickBucket(WaitingBucket):
    """The bucket of an operator over one stream that takes whole ticks in canonical order.

    A subclass says what a batch of them makes, by `push`, and what it knows beyond them if anything, by `state` and
    `recall`.
    """

    def push(self, rows: Objects) -> pa.Table:
        """The answers of the rows of complete ticks."""
        raise NotImplementedError

    def state(self) -> Mapping[str, NDArray[Any]]:
        """What the bucket knows beyond rows that wait."""
        return {}

    def recall(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take in what `state` gave."""

    def complete_before(self, *, ended: bool) -> int | None:  # noqa: ARG002 - for subclasses
        """Rows before this are handed on; None: all there are."""
        return self.complete

    def answer(self, *, ended: bool) -> list[pa.Table]:
        """The answers of complete ticks."""
        released = self.waiting[0].release(self.complete_before(ended=ended))
        return [self.push(in_canonical_order(Objects.concat(released)))] if released else []

    def whole(self) -> tuple[list[int], Mapping[str, NDArray[Any]], list[bytes]]:
        """Rows that wait, and what is known beyond them."""
        return [self.complete], self.state(), self.blocks_held()

    def resume(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:
        self.recall(arrays)
        super().resume(numbers, arrays, given)
