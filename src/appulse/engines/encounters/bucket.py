"""The bucket of `encounters`: readings wait for their ticks, and legs, pairs and encounters for what may follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from appulse.engines.encounters.call import EncounterCall, encounter_tables
from appulse.engines.local import Local
from appulse.engines.waiting import HoldingBucket
from appulse.model import defects as why
from appulse.model.batch import Batch, field_names
from appulse.model.codec import from_columns, pack_columns, unpack_columns
from appulse.model.objects import Objects
from appulse.model.workers import Workers, cores
from appulse.operators.encounters import Encounters
from appulse.operators.leg_pairs import Approaches
from appulse.operators.legs import Legs
from appulse.operators.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from appulse.engines.bucket import Blobs

#: A block of what the operator holds.
_HELD = b"h"
_KINDS: dict[str, type[Batch]] = {"legs": Legs, "pending": Pending, "waiting": Approaches, "open": Approaches}
_WORD, _NAME, _ROWS = "encounters", "name", "rows."


class EncounterBucket(HoldingBucket):
    """The state of some groups."""

    call: EncounterCall

    def __init__(self, call: EncounterCall) -> None:
        super().__init__(call)
        self.operator = Encounters(call.plan)
        self._ended = False

    def __len__(self) -> int:
        return super().__len__() + len(self.operator)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.operator.nbytes

    @property
    def due(self) -> int | None:
        """The least time that ticks have to be complete beyond for anything to be answered."""
        return self.operator.due(super().due)

    def answer(self, *, ended: bool) -> list[pa.Table]:
        """The encounters that follow from complete ticks."""
        released = [one.release(self.complete) for one in self.waiting]
        found = self.operator.push(released, self.complete, ended=ended)
        self.rejected += refused_twice(self.call, found.twice)
        tables = encounter_tables(found, self.call)
        self.output.add(sum(map(len, tables)))
        self.counts.update(self.operator.counts)
        self.operator.counts.clear()
        self._ended = ended
        return tables

    def step(self) -> tuple[list[int], Mapping[str, NDArray[Any]]]:
        """All ticks before ``complete`` were there."""
        return [self.complete, self._ended], {}

    def redo(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:  # noqa: ARG002
        """Take the same step; its answers are known."""
        self.complete, ended = numbers
        self.hold_again(given)
        self.answer(ended=bool(ended))

    def whole(self) -> tuple[list[int], Mapping[str, NDArray[Any]], list[bytes]]:
        """Readings that wait, and what the operator holds."""
        held = [_HELD + packed_state(name, batch) for name, batch in self.operator.state().items()]
        return [self.complete], {}, [*self.blocks_held(), *held]

    def resume(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:  # noqa: ARG002
        (self.complete,) = numbers
        self.hold_again(given)
        self.operator.restore(dict(unpacked_state(block[len(_HELD) :]) for block in given[_HELD]))


class LocalEncounters(Local[Objects]):
    """Encounters in process, push by push."""

    def __init__(self, call: EncounterCall) -> None:
        bucket = EncounterBucket(call)
        bucket.workers = bucket.operator.pairs.workers = Workers(call.threads or cores())
        super().__init__(bucket)


def refused_twice(call: EncounterCall, twice: Sequence[tuple[int, Objects]]) -> list[pa.Table]:
    """Readings that have the time of another of their key, as rejects."""
    detail = "another reading of its key has this time"
    return [call.refused(stream, rows, why.SAME_TIME, [detail] * len(rows)) for stream, rows in twice]


def packed_state(name: str, batch: Batch) -> bytes:
    """A batch by name; the columns of its readings are among its own."""
    columns: dict[str, Any] = {_NAME: (name.encode(),)}
    for own in field_names(type(batch)):
        column = getattr(batch, own)
        if isinstance(column, Objects):
            columns |= {f"{_ROWS}{inner}": getattr(column, inner) for inner in field_names(Objects)}
        else:
            columns[own] = column
    return pack_columns(_WORD, columns)


def unpacked_state(blob: bytes | memoryview) -> tuple[str, Batch]:
    """What `packed_state` packed."""
    columns, _ = unpack_columns(_WORD, blob, copied=True)
    name = columns.pop(_NAME)[0].decode()
    rows = {own: columns.pop(own) for own in list(columns) if own.startswith(_ROWS)}
    if rows:
        columns["rows"] = from_columns(Objects, {own.removeprefix(_ROWS): column for own, column in rows.items()})
    return name, from_columns(_KINDS[name.rstrip("0123456789")], columns)
