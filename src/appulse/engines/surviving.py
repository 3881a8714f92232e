"""The rows of a stream that are not withdrawn, for calls that keep no rows: each comes when its tick is complete.

Rows are read without their values, which the call behind checks. All columns are carried. Where rows are ``signed``
each comes at once, with a 1, and once more with a -1 if it is withdrawn before its tick is complete.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.engines.carrying import carried_by, carried_of
from appulse.engines.meaning import of_call, of_stream, of_types
from appulse.engines.objects import ThingsCall
from appulse.engines.schemas import column_type, encoding_of
from appulse.engines.waiting import TickBucket
from appulse.errors import BadArgument
from appulse.kernels.strings import hash_rows
from appulse.model.carried import with_carried
from appulse.model.changes import removals, with_left_out
from appulse.model.columns import chunk
from appulse.model.defects import UNDECODED, concat_rejects, rows_as_json
from appulse.model.encode import infer_dimensions
from appulse.model.encoding import refuse_several
from appulse.model.objects import Objects
from appulse.model.strings import Bytes
from appulse.model.uncertainty import Exact, Incomplete
from appulse.operators.numbering import canonical_order, in_canonical_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Self

    from appulse.engines.local import Local
    from appulse.engines.options import CallSettings
    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.encoding import Encoding
    from appulse.model.meaning import Meaning
    from appulse.model.stream import Stream

#: A column beside the user's: a number of a row's values, by which a withdrawal finds the row that has the same ones.
_VALUES = "appulse values"
#: A column behind the user's: whether a row comes or is withdrawn.
SIGN = "change"
_NUMBER = "appulse place"


@dataclass(frozen=True)
class SurvivingCall(ThingsCall):
    """A checked call without its frame: travels to workers.

    ``values`` are the columns that rows are compared by; rows that ``may_lack`` some of them are good. ``behind`` says
    how values are read, for the order of rows.
    """

    encoding: Encoding
    values: tuple[str, ...]
    behind: Encoding
    signed: bool = False
    may_lack: bool = False

    @property
    def answer_schema(self) -> pa.Schema:
        return self.row_schema

    @property
    def emits_changes(self) -> bool:
        return self.signed

    @property
    def row_schema(self) -> pa.Schema:
        """The columns of the frame, but for that of changes."""
        sign = [(SIGN, pa.int32())] if self.signed else []
        return pa.schema([*self.encoding.carry, *sign])

    def columns_of(self, stream: int) -> list[str]:
        """All columns of the frame."""
        return [name for name in super().columns_of(stream) if name != _VALUES]

    def encode(self, stream: int, table: pa.Table) -> tuple[Objects, pa.Table]:
        """The rows that have a key and a time, and the others as rejects."""
        numbers = pa.array(_numbers(table, self.values), mask=self._bare(table))
        return super().encode(stream, table.append_column(_VALUES, numbers))

    def _bare(self, table: pa.Table) -> Flags:
        """Rows that withdraw others and lack a value; of attributes that may be missing, all."""
        if self.encoding.change is None or not self.values:
            return np.zeros(len(table), bool)
        lack = [np.asarray(chunk(table[name]).is_null(nan_is_null=True)) for name in self.values]
        lacking: Flags = (np.logical_and if self.may_lack else np.logical_or).reduce(lack)
        return lacking & removals(table[self.encoding.change])

    def order(self, stream: int, rows: Objects) -> Ints:
        """The places of rows in the canonical order of their values, as any other call has it; first those without."""
        table, behind = self.table_of(rows).append_column(_NUMBER, pa.array(np.arange(len(rows)))), self.behind
        if behind.dimensions is None:
            behind = replace(behind, dimensions=infer_dimensions(table, behind.model))
        good, at, _, _ = with_left_out(table, _NUMBER, behind)
        ordered = super().order(stream, rows)
        return np.concatenate([ordered[~np.isin(ordered, at)], at[canonical_order(good)]])

    def refused(self, stream: int, rows: Objects, reason: str, details: Sequence[str]) -> pa.Table:
        refused = super().refused(stream, rows, reason, details)
        values = rows_as_json(self.table_of(rows).select(list(self.values)))
        return refused.set_column(refused.schema.get_field_index("values"), "values", pa.array(values, pa.string()))

    def table_of(self, rows: Objects, sign: int = 1) -> pa.Table:
        """Rows as they came."""
        carry = self.encoding.carry
        _, carried = carried_by(rows.key, np.zeros(len(rows), np.int64), self.encodings, carry)
        signs = [pa.array(np.full(len(rows), sign, np.int32))] if self.signed else []
        return pa.Table.from_arrays([*carried, *signs], schema=self.row_schema)

    def meaning(self) -> Meaning:
        arguments = {
            "stream": of_stream(self.encoding, self.lateness[0], self.idle_after[0], arrival=self.arrival),
            "types": of_types([("key", self.key_type), ("time", self.time_type)], self.encoding.carry),
            "signed": self.signed,
        }
        return of_call("surviving", arguments, {"signed": False})


def resolve_surviving(
    stream: Stream, schema: pa.Schema, settings: CallSettings, *, signed: bool = False
) -> SurvivingCall:
    """Check a call against the columns there are."""
    if signed and SIGN in schema.names and stream.change != SIGN:
        raise BadArgument(f"emit='changes' would add a column {SIGN!r}, and the rows have one already. Rename it.")
    for name in stream.columns():
        column_type(schema, name, stream.name or "stream")
    columns = tuple(name for name in schema.names if name not in (stream.change, UNDECODED))
    refuse_several(stream.name or "stream", columns, schema.names)
    own = replace(stream, value=Exact(_VALUES), existence=None, where=(), carry=columns, motion=None, margin=0.0)
    value = Exact(*stream.value.columns) if isinstance(stream.value, Incomplete) else stream.value
    read = replace(own, value=value, existence=stream.existence, where=stream.where, change=None, carry=())
    behind = encoding_of(read, schema, bursts=True, margins=True)
    apart = (stream.key, stream.time, stream.change, *stream.partitions)
    return SurvivingCall(
        replace(
            encoding_of(own, schema.append(pa.field(_VALUES, pa.float64()))),
            carry=carried_of(own, schema, stream.name or "stream"),
            shown=behind,
        ),
        tuple(name for name in stream.columns() if name not in apart),
        behind,
        signed,
        isinstance(stream.value, Incomplete),
        arrival=stream.order == "arrival",
    ).over([stream], settings)


def _numbers(table: pa.Table, columns: Sequence[str]) -> Floats:
    """A hash of each row's values in some columns, in the 53 bits that a float holds."""
    n = len(table)
    none = Bytes(np.zeros(n + 1, np.int64), np.empty(0, np.uint8))
    packed = with_carried(none, np.empty((n, 0)), [chunk(table[name]) for name in columns])
    hashed = hash_rows(packed.offsets, packed.data, np.zeros(n, np.int64))
    return (hashed >> np.uint64(11)).astype(np.float64)


class SurvivingBucket(TickBucket):
    """The rows of some things."""

    call: SurvivingCall

    def push(self, rows: Objects) -> pa.Table:
        """The rows of complete ticks."""
        return self.call.table_of(rows)


class SignedBucket(SurvivingBucket):
    """Rows as they come, and once more those that are withdrawn before their ticks are complete."""

    def __init__(self, call: SurvivingCall) -> None:
        super().__init__(call)
        self._gone: list[Objects] = []
        self._came: list[Objects] = []

    def withdraw(self) -> None:
        """Forget the rows that are withdrawn; what is noted is of the step before, or of steps read from a log."""
        self._gone, self._came = [], []
        super().withdraw()

    def note(self, old: Sequence[Objects], new: Sequence[Objects], stands: Sequence[Flags] | None) -> None:
        """Hold what is to be answered in this step."""
        if stands is None:
            self._came += new
            return
        self._gone += [part.filter(~mask) for part, mask in zip(old, stands, strict=False)]
        self._came += [part.filter(mask) for part, mask in zip(new, stands[len(old) :], strict=True)]

    def answer(self, *, ended: bool) -> list[pa.Table]:
        """What was withdrawn, and what came and stays."""
        self.waiting[0].release(self.complete_before(ended=ended))
        signed = (self._gone, -1), (self._came, 1)
        return [self.call.table_of(in_canonical_order(Objects.concat(rows)), sign) for rows, sign in signed if rows]


def bucket_of(call: SurvivingCall) -> SurvivingBucket:
    """The empty bucket of a call."""
    return SignedBucket(call) if call.signed else SurvivingBucket(call)


class Survivors:
    """The streams of a call that rows are withdrawn from, or that are filled by rows around, by name, push by push."""

    def __init__(self, engines: Mapping[str, Local[Objects]]) -> None:
        self._engines = engines

    def __len__(self) -> int:
        """Rows that wait."""
        return sum(len(engine.bucket) for engine in self._engines.values())

    @property
    def nbytes(self) -> int:
        return sum(engine.bucket.nbytes for engine in self._engines.values())

    def push(self, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """The rows that the call takes in."""
        return {
            name: self._engines[name].push({name: table}) if name in self._engines else table
            for name, table in tables.items()
        }

    def drain(self) -> dict[str, pa.Table]:
        """The rows that waited."""
        return {name: engine.drain() for name, engine in self._engines.items()}

    def with_rejects(self, rejects: pa.Table, *, taken: bool = False) -> pa.Table:
        """These, and the rows that could not be used here."""
        own = [engine.take_rejects() if taken else engine.rejects() for engine in self._engines.values()]
        return concat_rejects([*own, rejects], rejects.schema)

    def __copy__(self) -> Self:
        engines = self._engines.values()
        shared = {id(one): one for engine in engines for one in (engine.call, engine.bucket.output)}
        return type(self)(deepcopy(self._engines, shared))


def survivor(
    stream: Stream, frame: Any = None, *, chained: bool = False, signed: bool = False, filled: bool = False
) -> Stream:
    """The stream of the rows that survive; ``chained``: in a streaming query of Spark's; ``filled``: all of them do."""
    if stream.change is None and not filled:
        return stream
    idle = None if chained else stream.idle_after
    carry = (*stream.carry, SIGN) if signed else stream.carry
    return replace(
        stream, frame=frame, schema=None, change=None, lateness=None, idle_after=idle, ahead=math.inf, carry=carry
    )
