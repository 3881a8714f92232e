"""Calls over readings of sensors, and their bucket: readings wait for their ticks, and an operator answers these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from appulse.engines.base import Call, behind_frontier
from appulse.engines.bucket import LAST, NEVER, ROWS, Bucket
from appulse.engines.schemas import column_type, conditions_of
from appulse.engines.spark.readings_codec import pack_readings, unpack_readings
from appulse.engines.thresholds import TOLERANCE
from appulse.errors import BadArgument
from appulse.model import defects as why
from appulse.model.readings import Readings, ReadingsEncoding, check_reading_columns, encode_readings, refused_readings
from appulse.model.uncertainty import columns
from appulse.operators.numbering import END
from appulse.operators.output import Output
from appulse.operators.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from appulse.engines.bucket import Blobs
    from appulse.engines.options import Options
    from appulse.model.stream import Stream
    from appulse.model.strings import Bytes

# A block is one value of Spark's, held whole in several places on its way.
_BLOCK_ROWS = 1 << 20


class Operator(Protocol):
    """An operator over whole ticks of readings; ``output`` counts the rows of the call, push or task at hand."""

    output: Output

    @property
    def span(self) -> int: ...
    @property
    def due(self) -> int | None: ...
    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def push(self, parts: Sequence[Readings], before: int) -> Sequence[Any]: ...
    def apply(self, parts: Sequence[Readings], before: int) -> None: ...
    def forget(self, before: int) -> None: ...
    def standing(self) -> dict[str, NDArray[Any]]: ...
    def restore(self, standing: dict[str, NDArray[Any]]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class ReadingsSettings:
    """The arguments that calls over readings share, beside their stream."""

    resolution: float | None = None
    within: float | None = None
    similar: str = "value"
    over: Any = None
    on_reject: str = "collect"
    options: Options | None = None

    def check(self) -> None:
        """Raise `BadArgument` where it is not said in one way which readings are similar."""
        if self.similar == "summary" and self.within is not None:
            raise BadArgument("within= goes with values and slopes. For summaries give resolution=.")
        if self.resolution is not None and self.within is not None:
            raise BadArgument("resolution= and within= are given both. Bins, or values at most so far apart: give one.")

    @property
    def apart(self) -> float | None:
        """``within``, with its tolerance."""
        return None if self.within is None else self.within + TOLERANCE * max(1.0, self.within)


@dataclass(frozen=True)
class ReadingsCall(Call[Readings]):
    """A call of such an operator: what it finds becomes tables, and these, one by one, answers."""

    encoding: ReadingsEncoding
    partitions: tuple[tuple[str, pa.DataType], ...]

    goes_on = False  # whether times of rows that are no readings may change answers

    @property
    def encodings(self) -> tuple[ReadingsEncoding, ...]:
        """How the columns of the readings are read."""
        return (self.encoding,)

    @property
    def listens(self) -> bool:
        """Whether time alone may change answers."""
        return False

    @property
    def stage_schema(self) -> pa.Schema:
        """Columns of what a bucket puts out."""
        return self.answer_schema

    @property
    def stage_output(self) -> Output:
        """What counts the rows that a bucket puts out."""
        return Output(self.max_output)

    def operator(self) -> Operator:
        """A fresh one."""
        raise NotImplementedError

    def tables(self, found: Sequence[Any]) -> Iterable[pa.Table]:
        """What the operator found, as a bucket puts it out."""
        raise NotImplementedError

    @property
    def finishes(self) -> bool:
        """Whether what buckets put out are not the answers yet."""
        return False

    def encode(self, stream: int, table: pa.Table) -> tuple[Readings, pa.Table]:  # noqa: ARG002 - there is one
        """The good readings, and the bad rows as rejects."""
        check_reading_columns(self.encoding, table.schema)
        return encode_readings(table, self.encoding)

    def keys(self, stream: int, rows: Readings) -> Bytes:  # noqa: ARG002 - there is one
        """The sensor of each reading."""
        return rows.sensor

    def refused(self, stream: int, rows: Readings, reason: str, details: Sequence[str]) -> pa.Table:  # noqa: ARG002
        """Good readings as rejects all the same."""
        return refused_readings(rows, reason, details, self.encoding)

    def late(self, stream: int, rows: Readings, before: int) -> pa.Table:
        """Readings that came too late, as rejects; copies of readings that ask elsewhere are left out."""
        rows = rows.counting()
        rows = rows if rows.asks is None else rows.take(np.flatnonzero(rows.asks))
        return self.refused(stream, rows, why.LATE, behind_frontier(rows.time, before))


class ReadingsBucket(Bucket[Readings]):
    """The state of some values, or groups: what waits, and what windows hold. Readings leave the log by time."""

    call: ReadingsCall

    def __init__(self, call: ReadingsCall) -> None:
        super().__init__(call)
        self.operator = call.operator()
        self.waiting: Waiting[Readings] = Waiting()
        self.before = NEVER  # up to when time has come: as ``complete``, and at the end behind the newest of all rows

    def __len__(self) -> int:
        return len(self.operator) + len(self.waiting)

    @property
    def nbytes(self) -> int:
        return self.operator.nbytes + 64 * len(self.waiting)

    @property
    def due(self) -> int | None:
        """The oldest time that waits."""
        known = [time for time in (self.waiting.due, self.operator.due) if time is not None]
        return min(known, default=None)

    def own(self, rows: Readings) -> int:
        """How many of the readings ask here."""
        rows = rows.counting()
        return len(rows) if rows.asks is None else int(rows.asks.sum())

    def hold(self, stream: int, rows: Readings) -> None:  # noqa: ARG002 - there is one
        """Let readings wait for their ticks."""
        self.waiting.hold(rows if self.call.goes_on else rows.counting())

    def advance(self, limit: int | None = None, ended: int | None = None) -> list[pa.Table]:
        """The answers of ticks that are complete now."""
        self.before = NEVER if ended is None else ended + 1
        return super().advance(limit, ended)

    def answer(self, *, ended: bool) -> list[pa.Table]:
        """What the operator finds in complete ticks."""
        self.operator.output = self.call.stage_output
        if not ended:
            self.before = min(self.complete, LAST)
        return list(self.call.tables(self.operator.push(self._released(), self.before)))

    def forget(self) -> int:
        """Drop readings that are in no window any more."""
        before = min(self.complete, LAST) - self.operator.span
        self.operator.forget(before)
        return before

    def step(self) -> tuple[list[int], Mapping[str, NDArray[Any]]]:
        """What the operator knows beyond the readings."""
        return [self.complete, *([self.before] if self.call.listens else [])], self.operator.standing()

    def redo(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:
        """Take the same step without matching."""
        for block in given[ROWS]:
            self.waiting.hold(unpack_readings(block))
        self.complete, *before = numbers
        self.before = before[0] if before else NEVER
        self.operator.apply(self._released(), self.before)
        self.operator.restore(dict(arrays))

    def blocks(self, batches: Iterable[tuple[int, Readings]]) -> list[bytes]:
        """Readings as blocks."""
        return [block for _, rows in batches for block in blocks_of(rows)]

    def unpack(self, block: bytes) -> tuple[int, Readings]:
        """A block's readings."""
        return 0, unpack_readings(block)

    def _released(self) -> list[Readings]:
        return self.waiting.release(None if self.complete == END else self.complete)


def encoding_of_readings(readings: Stream, schema: pa.Schema, **others: Any) -> ReadingsEncoding:
    """How the columns of a stream of readings are read; the others say what of it."""
    name = readings.name or "readings"
    (value,) = columns(readings.value)
    encoding = ReadingsEncoding(
        name=name,
        sensor=readings.key,
        time=readings.time,
        value=value,
        unit=readings.unit,
        partition_by=readings.partitions,
        where=conditions_of(readings),
        key_type=column_type(schema, readings.key, name),
        time_type=column_type(schema, readings.time, name),
        value_type=column_type(schema, value, name),
        **others,
    )
    check_reading_columns(encoding, schema)
    return encoding


def typed(names: Sequence[str], schema: pa.Schema, readings: Stream) -> tuple[tuple[str, pa.DataType], ...]:
    """Columns of a stream with their types."""
    return tuple((column, column_type(schema, column, readings.name or "readings")) for column in names)


def blocks_of(readings: Readings) -> Iterable[bytes]:
    """Readings as blocks, each of a size that travels well."""
    for begin in range(0, len(readings), _BLOCK_ROWS):
        end = min(begin + _BLOCK_ROWS, len(readings))
        yield pack_readings(readings if end - begin == len(readings) else readings.slice(begin, end))
