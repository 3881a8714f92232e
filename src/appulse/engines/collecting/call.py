"""A call of `collect_samples`, and its bucket: readings wait until their interval has ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.engines.carrying import carried_by, carried_of, refuse_repeated
from appulse.engines.meaning import of_call, of_stream, of_types
from appulse.engines.objects import ThingsCall, own_keys
from appulse.engines.options import CallSettings
from appulse.engines.schemas import column_type, encoding_of, group_columns
from appulse.engines.waiting import TickBucket
from appulse.errors import BadArgument
from appulse.model.meaning import seconds
from appulse.model.strings import decode
from appulse.model.times import duration, from_micros
from appulse.model.uncertainty import Exact
from appulse.operators.collecting import collect

if TYPE_CHECKING:
    from appulse.model.encoding import Encoding
    from appulse.model.meaning import Meaning
    from appulse.model.objects import Objects
    from appulse.model.stream import Stream
    from appulse.model.times import Duration


@dataclass(frozen=True)
class CollectCall(ThingsCall):
    """A checked call without its frame: travels to workers. ``every`` is in microseconds."""

    encoding: Encoding
    every: int
    partitions: tuple[tuple[str, pa.DataType], ...]

    @property
    def lag(self) -> int | None:
        """Readings come out when their interval ends."""
        return self.every

    @cached_property
    def answer_schema(self) -> pa.Schema:
        point = pa.float64() if self.encoding.dimensions == 1 else pa.list_(pa.float64())
        samples = [("samples", pa.list_(point)), ("weights", pa.list_(pa.float64()))]
        own = [("key", self.key_type), ("time", self.time_type), *samples]
        return pa.schema([*own, *self.partitions, *self.encoding.carry])

    def meaning(self) -> Meaning:
        arguments = {
            "stream": of_stream(self.encoding, self.lateness[0], self.idle_after[0]),
            "every": seconds(self.every),
            "types": of_types([("key", self.key_type), ("time", self.time_type)], self.partitions),
        }
        return of_call("collect_samples", arguments, {})


@dataclass(frozen=True, kw_only=True)
class CollectSettings(CallSettings):
    """The arguments of `collect_samples`, beside its stream."""

    every: Duration


def resolve_collect(stream: Stream, schema: pa.Schema, settings: CollectSettings) -> CollectCall:
    """Check a call against the columns there are."""
    name = stream.name or "stream"
    if not isinstance(stream.value, Exact):
        raise BadArgument(
            f"collect_samples() makes samples of readings without error, and got {stream.value!r}. Give "
            "value=ap.Exact('x', 'y'), or the name of a column."
        )
    if stream.order != "time":
        raise BadArgument(f"Intervals go by time, and the stream has order={stream.order!r}. Leave it out.")
    span = duration(settings.every, "every")
    if span <= 0:
        raise BadArgument(f"every={settings.every!r} is not an interval. Give more than 0, such as '10 seconds'.")
    call = CollectCall(
        replace(encoding_of(stream, schema), carry=carried_of(stream, schema, name)),
        span,
        tuple((column, column_type(schema, column, name)) for column in stream.partitions),
    ).over([stream], settings)
    refuse_repeated(call.answer_schema)
    return call


class CollectBucket(TickBucket):
    """The readings of some things."""

    call: CollectCall

    @property
    def due(self) -> int | None:
        """The end of the first interval."""
        first, every = super().due, self.call.every
        return None if first is None else (first // every + 1) * every - 1

    def complete_before(self, *, ended: bool) -> int | None:
        """Intervals that end before this have ended."""
        every = self.call.every
        return None if ended else self.complete // every * every

    def push(self, rows: Objects) -> pa.Table:
        """The samples of readings of whole intervals, in canonical order."""
        call = self.call
        found = collect(rows, own_keys(rows, call.encoding), call.every)
        self.output.add(len(found.last))
        last, first = rows.take(found.last), pa.array(found.first, pa.int32())
        keys, carried = carried_by(last.key, np.zeros(len(last), np.int64), call.encodings, call.encoding.carry)
        points = pa.array(found.points.reshape(-1))
        if call.encoding.dimensions != 1:
            points = pa.FixedSizeListArray.from_arrays(points, found.points.shape[1]).cast(pa.list_(pa.float64()))
        columns = [
            decode(keys, call.key_type),
            from_micros(last.time, call.time_type, call.encoding.unit),
            pa.ListArray.from_arrays(first, points),
            pa.ListArray.from_arrays(first, pa.array(found.weights)),
            *group_columns(last.group, call.partitions),
            *carried,
        ]
        return pa.Table.from_arrays(columns, schema=call.answer_schema)
