"""Holes that the rows around fill: a stage by group in front of a call. Each row comes once it is filled for good.

Rows come in canonical order within a bucket: one that waits for a later value holds up those behind it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import numpy as np
import pyarrow as pa

from appulse.engines.imputing import (
    FILLED_BY,
    SAMPLES,
    WEIGHTS,
    bound,
    check_filled,
    filled_field,
    filled_values,
    read_holes,
)
from appulse.engines.local import Local
from appulse.engines.options import CallSettings
from appulse.engines.surviving import SurvivingCall, bucket_of, resolve_surviving
from appulse.engines.waiting import TickBucket
from appulse.errors import BadArgument
from appulse.imputation.choosing import AutoImputer
from appulse.model.canonical import canonical_places
from appulse.model.filled import PREFILLED, Fill, Prefilled
from appulse.model.objects import Objects
from appulse.model.uncertainty import Incomplete
from appulse.operators.numbering import END, in_canonical_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.meaning import Meaning
    from appulse.model.stream import Stream


_ADDED = (SAMPLES, WEIGHTS, FILLED_BY)


def refuse_endless(name: str | None, wait: int | None) -> None:
    """Raise `BadArgument` for an imputer that lets rows wait for ever, in a streaming query with a call behind it."""
    if wait is None:
        raise BadArgument(
            f"The imputer of stream {name!r} lets a row wait for any time, and in a streaming query the call behind it "
            "has to know for how long. Give wait= to the imputer, such as wait='1 hour'."
        )


class Around(Fill, Protocol):
    """A fill by the rows around that reports when later rows change nothing."""

    wait: int | None

    def settled(self, values: Floats, time: Ints, group: Ints, complete: int) -> Flags:
        """Which rows are filled for good, given all those before ``complete``."""
        ...


def is_around(fill: Fill | None) -> TypeGuard[Around]:
    """Whether a fill reports when rows are settled."""
    return hasattr(fill, "settled")


def around_of(imputer: Any, names: Sequence[str], streams: Sequence[Stream]) -> dict[str, Around]:
    """Of the streams of a call, by name, those that are filled by the rows around."""
    given = imputer if isinstance(imputer, Mapping) else dict.fromkeys(names, imputer)
    found: dict[str, Around] = {}
    for name, stream in zip(names, streams, strict=True):
        one = given.get(name)
        if one is None or isinstance(one, str | AutoImputer | Prefilled) or not isinstance(stream.value, Incomplete):
            continue
        fill = bound(one, stream.value)
        if is_around(fill):
            if stream.order == "arrival":
                raise BadArgument(
                    f"Stream {name!r} has order='arrival', and its imputer fills a row by those before and after it in "
                    "time. Leave out order=, or take another imputer."
                )
            found[name] = fill
    return found


def with_fills(imputer: Any, names: Sequence[str], fills: Mapping[str, Around]) -> Any:
    """The imputer of a call whose streams were filled beforehand by some fills."""
    if not fills:
        return imputer
    given = imputer if isinstance(imputer, Mapping) else dict.fromkeys(names, imputer)
    return {name: Prefilled(fills[name]) if name in fills else one for name, one in given.items()}


def beforehand_fields() -> list[pa.Field]:
    """The columns that the stage of a call adds to rows."""
    return [pa.field(name, filled_field(kind).type) for name, kind in zip(PREFILLED, _ADDED, strict=True)]


@dataclass(frozen=True)
class FillingCall(SurvivingCall):
    """A checked call without its frame: travels to workers. ``added`` are the names of the columns it adds."""

    stream: Stream = field(kw_only=True)
    fill: Around = field(kw_only=True)
    added: tuple[str, str, str] = field(default=_ADDED, kw_only=True)
    empty_rows: bool = field(default=False, kw_only=True)

    @property
    def grouped(self) -> bool:
        """Partitions are apart."""
        return bool(self.encoding.partition_by)

    @property
    def rejects_for_next(self) -> bool:
        """Those of `impute`, which returns a stream and no answers."""
        return self.added != PREFILLED

    @property
    def lag(self) -> int | None:
        """How long a row waits at most."""
        return self.fill.wait

    @property
    def answer_schema(self) -> pa.Schema:
        """The columns of the frame, and what rows may be."""
        own = zip(self.added, _ADDED, strict=True)
        return pa.schema([*self.row_schema, *(pa.field(name, filled_field(kind).type) for name, kind in own)])

    def meaning(self) -> Meaning:
        return super().meaning() | {"filling": self.fill.meaning(), "empty_rows": self.empty_rows}


def resolve_filling(
    stream: Stream,
    schema: pa.Schema,
    settings: CallSettings,
    *,
    fill: Around,
    added: tuple[str, str, str] = PREFILLED,
    empty_rows: bool = False,
) -> FillingCall:
    """Check a call against the columns there are."""
    base = resolve_surviving(stream, schema, settings)
    given = {one.name: getattr(base, one.name) for one in fields(base)}
    own = replace(stream, frame=None, where=())
    return FillingCall(**given, stream=own, fill=fill, added=added, empty_rows=empty_rows)


class FillingBucket(TickBucket):
    """The rows of some partitions: those that wait, and of each attribute the last value before them."""

    call: FillingCall

    def __init__(self, call: FillingCall) -> None:
        super().__init__(call)
        self._held = call.row_schema.empty_table()  # in canonical order, those that were answered first
        self._answered = 0

    def __len__(self) -> int:
        return super().__len__() + len(self._held)

    @property
    def nbytes(self) -> int:
        return super().nbytes + int(self._held.nbytes)

    def own(self, rows: Objects) -> int:
        """In front of a call, that counts them."""
        return 0 if self.call.added == PREFILLED else len(rows)

    @property
    def due(self) -> int | None:
        """The oldest time that waits for its tick, or until it has waited long enough."""
        known = [super().due]
        if self.call.fill.wait is not None and len(self._held) > self._answered:
            first = read_holes(self._held.slice(self._answered, 1), self.call.stream)[1]
            known.append(int(first[0]) + self.call.fill.wait)
        return min((time for time in known if time is not None), default=None)

    def answer(self, *, ended: bool) -> list[pa.Table]:
        """The rows that are filled for good."""
        call, before = self.call, self._answered
        released = self.waiting[0].release(self.complete_before(ended=ended))
        if released:
            fresh = call.table_of(in_canonical_order(Objects.concat(released)))
            values, time, _ = read_holes(fresh, call.stream)
            order = canonical_places(fresh[call.stream.key], time, np.zeros(len(fresh), np.int64), values)
            self._held = pa.concat_tables([self._held, fresh.take(pa.array(order))]).combine_chunks()
        if len(self._held) == before:
            return []
        values, time, group = read_holes(self._held, call.stream)
        usable = self._usable(values)
        ready = ~usable
        ready[usable] = call.fill.settled(values[usable], time[usable], group[usable], self.complete)
        ready |= self.complete >= END
        ready[:before] = True
        end = len(ready) if ready.all() else int(np.argmin(ready))
        if end == before:
            return []
        found = filled_values(self._held, call.stream, call.fill, empty_rows=call.empty_rows, ordered=True)
        columns = [*self._held.columns, *found]
        answers = pa.Table.from_arrays(columns, schema=call.answer_schema).slice(before, end - before)
        self._forget_but(self._last_values(values[:end], usable[:end], group[:end]), end)
        return [answers]

    def _usable(self, values: Floats) -> Flags:
        """Rows that fill others: not those that are rejects."""
        empty = np.isnan(values).all(axis=1)
        return np.asarray(~np.isinf(values).any(axis=1) & (~empty | self.call.empty_rows))

    @staticmethod
    def _last_values(values: Floats, usable: Flags, group: Ints) -> Ints:
        """The rows that have the last value of an attribute in a partition."""
        found = []
        for column in values.T:
            there = np.flatnonzero(usable & ~np.isnan(column))[::-1]
            found.append(there[np.unique(group[there], return_index=True)[1]])
        return np.unique(np.concatenate(found))

    def _forget_but(self, last: Ints, end: int) -> None:
        """Keep these of the rows before ``end``, which are answered, and all behind it."""
        kept = np.concatenate([last, np.arange(end, len(self._held))])
        self._held, self._answered = self._held.take(pa.array(kept)), len(last)

    def state(self) -> Mapping[str, NDArray[Any]]:
        """The rows that are held, and how many of them were answered."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._held.schema) as writer:
            writer.write_table(self._held)
        held = np.frombuffer(sink.getvalue(), np.uint8)
        return {"held": held, "answered": np.array([self._answered], np.int64)}

    def recall(self, state: Mapping[str, NDArray[Any]]) -> None:
        with pa.ipc.open_stream(pa.py_buffer(state["held"].tobytes())) as reader:
            self._held = reader.read_all()
        self._answered = int(state["answered"][0])


def local_stage(
    stream: Stream, schema: pa.Schema, settings: CallSettings, fill: Around | None, *, signed: bool
) -> Local[Objects]:
    """What withdraws the rows of a stream, and fills them where they have a fill by the rows around."""
    if fill is None:
        return Local(bucket_of(resolve_surviving(stream, schema, settings, signed=signed)))
    return Local(FillingBucket(resolve_filling(stream, schema, settings, fill=fill)))


def filled_around(table: pa.Table, stream: Stream, fill: Around, *, empty_rows: bool) -> pa.Table:
    """The table with the columns of `filled_table`; null there for rows without key, time or partition.

    Of a stream whose rows are withdrawn it is those that are not.
    """
    check_filled(table.schema, stream)
    number = "appulse number"
    needed = table if stream.change is not None else table.select(stream.columns())
    needed = needed.append_column(number, pa.array(np.arange(len(table))))
    call = resolve_filling(
        replace(stream, ahead=math.inf),
        needed.schema,
        CallSettings(),
        fill=fill,
        added=_ADDED,
        empty_rows=empty_rows,
    )
    found = Local(FillingBucket(call)).answers({call.encoding.name: needed})
    if stream.change is not None:
        return found.drop_columns([number])
    at = np.full(len(table), -1)
    at[found[number].to_numpy()] = np.arange(len(found))
    place = pa.array(at, mask=at < 0)
    for name in _ADDED:
        table = table.append_column(name, found[name].combine_chunks().take(place))
    return table
