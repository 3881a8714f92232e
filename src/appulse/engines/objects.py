"""Calls over streams of uncertain objects, and their rows as blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.engines.base import Call
from appulse.engines.bucket import Bucket
from appulse.engines.spark.codec import pack, unpack
from appulse.model import uncertainty
from appulse.model.carried import split_carried
from appulse.model.changes import additions, encode_changes, newest, parted
from appulse.model.defects import reject_schema, rows_as_json
from appulse.model.encode import encode, infer_dimensions
from appulse.model.encoding import check_columns
from appulse.model.filled import split_ways
from appulse.model.objects import Objects
from appulse.model.positions import EARTHS, degrees_of
from appulse.model.strings import decode
from appulse.model.times import from_micros
from appulse.operators.numbering import canonical_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from appulse.kernels.arrays import Ints
    from appulse.model.encoding import Encoding
    from appulse.model.strings import Bytes

# A block is one value of Spark's, held whole in several places on its way.
_BLOCK_BYTES = 32 << 20


@dataclass(frozen=True)
class ObjectsCall(Call[Objects]):
    """A call over streams of uncertain objects."""

    @property
    def encodings(self) -> Sequence[Encoding]:
        raise NotImplementedError

    @property
    def corrected(self) -> bool:
        """Whether rows may be withdrawn."""
        return any(encoding.change is not None for encoding in self.encodings)

    def encode(self, stream: int, table: pa.Table) -> tuple[Objects, pa.Table]:
        encoding = self.encodings[stream]
        check_columns(encoding, table.schema)
        if encoding.dimensions is None:
            encoding = replace(encoding, dimensions=infer_dimensions(table, encoding.model))
        return encode(table, encoding) if encoding.change is None else encode_changes(table, encoding)

    def timed(self, rows: Objects) -> Objects:
        """The additions: what withdraws rows moves no time on."""
        return additions(rows)

    def keys(self, stream: int, rows: Objects) -> Bytes:
        return own_keys(rows, self.encodings[stream])

    def order(self, stream: int, rows: Objects) -> Ints:
        """The places of rows in canonical order, whatever they carry."""
        return canonical_order(replace(rows, key=self.keys(stream, rows)))

    def refused(self, stream: int, rows: Objects, reason: str, details: Sequence[str]) -> pa.Table:
        encoding = self.encodings[stream]
        names, centres = uncertainty.names(encoding.model, rows.d), rows.centre
        if isinstance(encoding.model, uncertainty.Position):
            centres = degrees_of(centres, EARTHS[encoding.model.earth])
        elif encoding.units is not None:
            centres = centres * encoding.units
        return pa.table(
            {
                "stream": [encoding.name] * len(rows),
                "key": decode(own_keys(rows, encoding), encoding.key_type),
                "time": from_micros(rows.time, encoding.time_type, encoding.unit),
                "reason": [reason] * len(rows),
                "detail": list(details),
                "values": rows_as_json(pa.table(dict(zip(names, np.ascontiguousarray(centres.T), strict=True)))),
            },
            schema=reject_schema(encoding.key_type, encoding.time_type),
        )


class ThingsCall(ObjectsCall):
    """A call over one stream, whose things are apart."""

    encoding: Encoding

    @property
    def encodings(self) -> tuple[Encoding, ...]:
        """The one stream's."""
        return (self.encoding,)

    @property
    def grouped(self) -> bool:
        """Things are apart."""
        return True


class ObjectsBucket(Bucket[Objects]):
    """A bucket of objects."""

    def __init__(self, call: ObjectsCall) -> None:
        super().__init__(call)
        self.asked: list[tuple[int, Objects]] = []  # of the step at hand: rows that withdraw others

    def begin(self, limit: int | None = None) -> None:
        super().begin(limit)
        self.asked = []

    def added(self, stream: int, rows: Objects) -> Objects:
        """The rows without those that withdraw others, which are ``asked``."""
        fresh, asked = parted(rows)
        if asked is not None:
            self.asked.append((stream, asked))
        return fresh

    def pack(self, stream: int, rows: Objects) -> bytes:
        """Rows as a block."""
        return pack(rows, stream, 0)

    def unpack(self, block: bytes) -> tuple[int, Objects]:
        stream, _, objects = unpack(block)
        return stream, objects

    @property
    def logged(self) -> list[tuple[int, Objects]]:
        """The rows that came, and those that withdraw others."""
        return [*self.came, *self.asked]

    def blocks(self, batches: Iterable[tuple[int, Objects]]) -> list[bytes]:
        return [block for stream, rows in batches if len(rows) for block, _ in packed(rows, stream)]


def own_keys(objects: Objects, encoding: Encoding) -> Bytes:
    """The keys of the rows, without what they carry: how holes were filled, and columns."""
    keys = split_ways(objects.key, objects.d)[0] if encoding.carries_fill_source else objects.key
    return split_carried(keys)[0] if encoding.behind else keys


def packed(objects: Objects, stream: int, lane: int = 0) -> Iterator[tuple[bytes, int]]:
    """One block, or as many as keep each below what travels well; with the newest time in each."""
    size = objects.samples.nbytes + objects.weights.nbytes + objects.key.data.nbytes + 100 * len(objects)
    rows = max(1, int(len(objects) * _BLOCK_BYTES / max(1, size)))
    for begin in range(0, len(objects), rows):
        part = objects if rows >= len(objects) else objects.slice(begin, min(begin + rows, len(objects)))
        yield pack(part, stream, lane), newest(part)
