"""The bucket of `fence_events`: readings wait for their ticks, and visits for what ends them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from appulse.engines.encounters.bucket import packed_state, unpacked_state
from appulse.engines.fences.call import FenceCall, fence_table
from appulse.engines.fences.looking import LookingBucket
from appulse.engines.fences.terms import judged
from appulse.model.batch import field_names
from appulse.model.codec import from_columns, pack_columns, unpack_columns
from appulse.model.objects import Objects
from appulse.operators.fences import Fences, Visits, whole_visits
from appulse.operators.numbering import in_canonical_order
from appulse.operators.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from appulse.engines.bucket import Blobs
    from appulse.model.regions import RegionSet

# By this share of the readings that came, what is left is little.
_MUCH = 0.5
#: A block of the visits that have not ended.
_HELD = b"h"
_WORD = "visits"
#: A block of readings that may yet start a leg.
_LEGS, _PENDING = b"l", "pending0"


class FenceBucket(LookingBucket):
    """The state of some things."""

    call: FenceCall

    def __init__(self, call: FenceCall) -> None:
        super().__init__(call)
        held = call.fences.get()
        self.operator = Fences(call.plan, held.regions, None if held.terms is None else held.terms.terms)

    def __len__(self) -> int:
        return super().__len__() + len(self.operator)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.operator.nbytes

    @property
    def regions(self) -> RegionSet:
        """Those of the fences."""
        return self.operator.regions

    @property
    def due(self) -> int | None:
        """The least time that ticks have to be complete beyond for anything to be answered."""
        return min((time for time in (super().due, self.operator.due) if time is not None), default=None)

    def answer(self, *, ended: bool) -> list[pa.Table]:  # noqa: ARG002 - ``_last`` says it
        """The events that follow from complete ticks."""
        released = self.waiting[0].release(self.complete)
        rows, held = None, None
        if released:
            call, whole = self.call, in_canonical_order(Objects.concat(released))
            terms = call.fences.get().terms
            rows, held = judged(whole, call.encoding, call.types, terms, carried=call.plan.carried)
        table = fence_table(self.operator.push(rows, self.complete, self._last, held), self.call)
        self.output.add(len(table))
        return [table] if len(table) else []

    @property
    def brief(self) -> bool:
        """Whether more readings came than readings and visits are left."""
        came = [rows for _, rows in self.came]
        return len(self) < _MUCH * sum(map(len, came)) and sum(rows.nbytes for rows in came) > self.slack

    def whole(self) -> tuple[list[int], Mapping[str, NDArray[Any]], list[bytes]]:
        """Readings that wait, and visits that have not ended."""
        rows = self.blocks_held()
        crossings = self.operator.crossings
        if crossings is not None and crossings.pending is not None:
            rows = [*rows, _LEGS + packed_state(_PENDING, crossings.pending)]
        visits = self.operator.visits
        if visits is None or not len(visits):
            return [self.complete], {}, rows
        columns = {name: getattr(visits, name) for name in field_names(Visits)}
        return [self.complete], {}, [*rows, _HELD + pack_columns(_WORD, columns)]

    def resume(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:
        super().resume(numbers, arrays, given)
        for block in given[_HELD]:
            columns, _ = unpack_columns(_WORD, block[len(_HELD) :], copied=True)
            self.operator.visits = whole_visits(from_columns(Visits, columns))
        for block in given[_LEGS]:
            _, pending = unpacked_state(block[len(_LEGS) :])
            if self.operator.crossings is not None and isinstance(pending, Pending):
                self.operator.crossings.pending = pending
