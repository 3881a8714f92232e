"""A toy operator, the greatest value so far of each key, as "Add an operator" in docs/architecture.md builds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.engines.local import Local, as_table
from appulse.engines.meaning import of_call, of_stream, of_types
from appulse.engines.objects import ObjectsCall
from appulse.engines.options import Options
from appulse.engines.schemas import encoding_of
from appulse.engines.waiting import TickBucket
from appulse.model.strings import Bytes, decode
from appulse.model.times import from_micros

if TYPE_CHECKING:
    from collections.abc import Mapping

    from appulse.model.encoding import Encoding
    from appulse.model.objects import Objects
    from appulse.model.stream import Stream


@dataclass(frozen=True)
class MaxCall(ObjectsCall):
    encoding: Encoding

    @property
    def encodings(self) -> tuple[Encoding, ...]:
        return (self.encoding,)

    @property
    def answer_schema(self) -> pa.Schema:
        return pa.schema([("key", self.key_type), ("time", self.time_type), ("max", pa.float64())])

    def meaning(self) -> dict[str, Any]:
        types = of_types([("key", self.key_type), ("time", self.time_type)])
        return of_call("running_max", {"stream": of_stream(self.encoding, *self.lateness), "types": types}, {})


class MaxBucket(TickBucket):
    def __init__(self, call: MaxCall) -> None:
        super().__init__(call)
        self.greatest: dict[bytes, float] = {}

    def push(self, rows: Objects) -> pa.Table:
        found = []
        for key, value in zip(rows.key.to_list(), rows.centre[:, 0].tolist(), strict=True):
            self.greatest[key] = max(value, self.greatest.get(key, value))
            found.append(self.greatest[key])
        key, time = decode(rows.key, self.call.key_type), from_micros(rows.time, self.call.time_type, "s")
        return pa.Table.from_arrays([key, time, pa.array(found)], schema=self.call.answer_schema)

    def state(self) -> Mapping[str, Any]:
        keys = Bytes.of(tuple(self.greatest))
        return {"ends": keys.offsets, "keys": keys.data, "values": np.array(list(self.greatest.values()))}

    def recall(self, state: Mapping[str, Any]) -> None:
        keys = Bytes(state["ends"], state["keys"]).to_list()
        self.greatest = dict(zip(keys, state["values"].tolist(), strict=True))


def running_max(stream: Stream) -> Any:
    if hasattr(stream.frame, "sparkSession"):
        from appulse.engines.spark.grouped import spark_grouped

        return spark_grouped([stream], lambda own, of: resolve(own[0], of[0]), MaxBucket, "max", Options())
    table = as_table(stream.frame)
    call = resolve(stream, table.schema)
    return Local(MaxBucket(call)).answers({call.encoding.name: table})


def resolve(stream: Stream, schema: pa.Schema) -> MaxCall:
    return MaxCall(encoding_of(stream, schema), lateness=(stream.lateness_micros,), ahead=(stream.ahead_micros,))
