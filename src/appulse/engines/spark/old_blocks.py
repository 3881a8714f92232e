"""Blocks as appulse wrote them into checkpoints before all batches had one format (`appulse.model.codec`)."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.errors import StateError
from appulse.kernels.packing import restore
from appulse.model.batch import Ragged
from appulse.model.objects import Objects
from appulse.model.readings import Readings
from appulse.model.strings import Bytes, Labels
from appulse.model.uncertainty import Form
from appulse.operators.presence import ExistenceTable
from appulse.operators.window_starts import WindowStarts

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from appulse.kernels.arrays import Floats

OBJECTS, ARRAYS = b"apbk", b"apar"
_HEADER = struct.Struct("<4sHBHHBBIIqI")  # magic, version, form, flags, stream, lane, d, n, key width, samples, crc
_ARRAYS = struct.Struct("<4sI")  # magic, crc
_VERSION = 2
_SAMPLES, _WEIGHTS, _GROUP, _DIFFER, _FLOAT32, _MASS, _REACH, _EVEN = (1 << i for i in range(8))
_MEASURE, _NUMBER, _FRAME = (1 << i for i in range(8, 11))


def objects_of(block: bytes) -> tuple[int, int, Objects]:
    """Stream, lane and objects of a block; arrays are views of it."""
    _, version, form, flags, stream, lane, d, n, key_width, total, crc = _HEADER.unpack_from(block)
    if version != _VERSION:
        raise StateError(f"A block has format {version}, this appulse reads {_VERSION}. Use the appulse that wrote it.")
    body = memoryview(block)[40:]
    if zlib.crc32(body) != crc:
        raise StateError(
            f"A block of {len(block)} bytes fails its checksum: it is truncated or corrupt. "
            "Restore the checkpoint, or start with a new one."
        )
    reader = _Reader(body)
    time = reader.take(np.int64, n)
    if key_width:
        width = key_width - 1
        key = Bytes(np.arange(n + 1, dtype=np.int64) * width, reader.take(np.uint8, n * width))
    else:
        offsets = reader.take(np.int64, n + 1)
        key = Bytes(offsets, reader.take(np.uint8, int(offsets[-1])))
    mass = reader.take(np.float64, n) if flags & _MASS else np.ones(n)
    centre = reader.take(np.float64, n * d).reshape(n, d)
    spread_width = int(reader.take(np.int64, 1)[0])
    spread = reader.take(np.float64, n * spread_width).reshape(n, spread_width)
    reach = reader.take(np.float64, n) if flags & _REACH else np.zeros(n)
    radius, covariance = np.zeros(n), np.empty((n, 0))
    samples = weights = None
    if flags & _SAMPLES:
        counts = np.repeat(reader.take(np.int64, 1), n) if flags & _EVEN else reader.take(np.int64, n)
        first = np.concatenate([[0], np.cumsum(counts)])
        radius = reader.take(np.float64, n)
        width = d * (d + 1) // 2
        covariance = reader.take(np.float64, n * width).reshape(n, width)
        if flags & _FLOAT32:
            coordinates = restore(first, reader.take(np.float32, total * d), origins(centre, radius))
        else:
            coordinates = reader.take(np.float64, total * d)
        samples = Ragged(first, coordinates.reshape(-1, d))
        if flags & _WEIGHTS:
            weights = Ragged(first, reader.take(np.float64, total))
    group = reader.labels(n) if flags & _GROUP else None
    differ = reader.labels(n) if flags & _DIFFER else None
    measure = reader.take(np.float64, n) if flags & _MEASURE else None
    number = reader.take(np.int64, n) if flags & _NUMBER else None
    frame = None
    if flags & _FRAME:
        width = int(reader.take(np.int64, 1)[0])
        frame = reader.take(np.int64, n * width).reshape(n, width)
    values = (mass, centre, spread, reach, radius, covariance, samples, weights)
    return stream, lane, Objects(Form(form), time, key, *values, group, differ, measure, number, frame)


def floors_of(blob: bytes) -> WindowStarts:
    """Windows that moved on."""
    arrays = arrays_of(blob)
    group = Labels(arrays["codes"], tuple(Bytes(arrays["offsets"], arrays["values"]).to_list()))
    return WindowStarts(group, arrays["stream"], arrays["tick"], arrays["floor"])


def presence_of(blob: bytes) -> ExistenceTable:
    """What may not exist."""
    arrays = arrays_of(blob)
    values = tuple(Bytes(arrays["offsets"], arrays["values"]).to_list())
    group = Labels(arrays["codes"], values) if "codes" in arrays else None
    return ExistenceTable(group, arrays["stream"], arrays["base"], Ragged(arrays["first"], arrays["exist"]))


def readings_of(block: bytes) -> Readings:
    """Readings."""
    arrays = arrays_of(block)
    label = _labels(arrays, "label")
    bits = arrays["bits"] if label is None else label.codes.astype(np.int64)
    n = len(arrays["time"])
    ends = arrays["ends"] if "ends" in arrays else np.arange(n + 1) * arrays["width"]
    return Readings(
        arrays["time"],
        Bytes(ends, arrays["sensors"]),
        bits,
        arrays.get("key"),
        () if label is None else label.values,
        _labels(arrays, "group"),
        arrays.get("length"),
        arrays.get("asks"),
        pa.ipc.open_stream(arrays["carry"]).read_all() if "carry" in arrays else None,
    )


def arrays_of(blob: bytes) -> dict[str, NDArray[Any]]:
    """Named arrays; they are copies."""
    body = blob[_ARRAYS.size :]
    if zlib.crc32(body) != _ARRAYS.unpack_from(blob)[1]:
        raise StateError(
            f"A state of {len(blob)} bytes fails its checksum: it is truncated or corrupt. "
            "Restore the checkpoint, or start with a new one."
        )
    arrays, at = {}, 0
    while at < len(body):
        (size,) = struct.unpack_from("<H", body, at)
        name, dtype, *shape = body[at + 2 : at + 2 + size].decode().split(" ")
        widths = [int(width) for width in shape if width]
        count = int(np.prod(widths))
        at += 2 + size
        arrays[name] = np.frombuffer(body, np.dtype(dtype), count, at).reshape(widths).copy()
        at += arrays[name].nbytes
    return arrays


def origins(centre: Floats, radius: Floats) -> Floats:
    """Centres rounded to 12 bits of their radius, so that offsets of round samples stay round."""
    quantum = np.ldexp(1.0, np.frexp(radius)[1] - 12)[:, None]
    rounded = np.rint(centre / quantum) * quantum
    return np.where((radius > 0.0)[:, None] & np.isfinite(rounded), rounded, centre)


def _labels(arrays: dict[str, NDArray[Any]], name: str) -> Labels | None:
    if name not in arrays:
        return None
    values = Bytes(arrays[f"{name}-ends"], arrays[f"{name}-bytes"])
    return Labels(arrays[name], tuple(values.to_list()))


@dataclass
class _Reader:
    """Arrays one after the other, each padded to 8 bytes."""

    body: memoryview
    at: int = field(default=0)

    def take(self, dtype: DTypeLike, count: int) -> NDArray[Any]:
        array = np.frombuffer(self.body, dtype, count, self.at)
        self.at += -(-array.nbytes // 8) * 8
        return array

    def labels(self, n: int) -> Labels:
        offsets = self.take(np.int64, int(self.take(np.int64, 1)[0]) + 1)
        values = Bytes(offsets, self.take(np.uint8, int(offsets[-1]))).to_list()
        return Labels(self.take(np.int32, n), tuple(values))
