"""Blocks: a batch of objects as one byte string, a versioned struct of arrays.

    header | time | key | mass | centre | spread | reach | samples | labels | measure | number | frame

Offsets of samples from a rounded centre are float32 where that restores every coordinate exactly; else the
coordinates travel as they are. A block carries its checksum: what does not match is an error, never a wrong answer.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.errors import StateError
from appulse.kernels.packing import offsets_fit, restore
from appulse.model.batch import Ragged
from appulse.model.objects import Objects
from appulse.model.strings import Bytes, Labels
from appulse.model.uncertainty import Form
from appulse.operators.numbering import Floors
from appulse.operators.presence import Presence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import DTypeLike, NDArray

_HEADER = struct.Struct("<4sHBHHBBIIqI")  # magic, version, form, flags, stream, lane, d, n, key width, samples, crc
_MAGIC = b"apbk"
_ARRAYS = struct.Struct("<4sI")  # magic, crc
_ARRAYS_MAGIC = b"apar"
_VERSION = 2
_SAMPLES, _WEIGHTS, _GROUP, _DIFFER, _FLOAT32, _MASS, _REACH, _EVEN = (1 << i for i in range(8))
_MEASURE, _NUMBER, _FRAME = (1 << i for i in range(8, 11))


def pack(objects: Objects, stream: int, lane: int) -> bytes:
    """The objects as a block."""
    n, d = objects.centre.shape
    widths = np.diff(objects.key.offsets)
    key_width = int(widths[0]) + 1 if n and (widths == widths[0]).all() else 0
    flags = 0
    parts: list[NDArray[Any]] = [objects.time]
    parts += [objects.key.data] if key_width else [objects.key.offsets, objects.key.data]
    if n and (objects.mass != 1.0).any():
        flags |= _MASS
        parts.append(objects.mass)
    parts += [objects.centre, np.array([objects.spread.shape[1]], np.int64), objects.spread]
    if n and objects.reach.any():
        flags |= _REACH
        parts.append(objects.reach)
    total = 0
    if len(objects.first):
        flags |= _SAMPLES
        total = int(objects.first[-1])
        counts = np.diff(objects.first)
        even = bool(n and (counts == counts[0]).all())
        flags |= _EVEN if even else 0
        parts += [counts[:1] if even else counts, objects.radius, objects.covariance]
        short = np.empty(len(objects.samples), np.float32)
        if offsets_fit(objects.first, objects.samples, _origins(objects.centre, objects.radius), short):
            flags |= _FLOAT32
            parts.append(short)
        else:
            parts.append(objects.samples)
        if len(objects.weights):
            flags |= _WEIGHTS
            parts.append(objects.weights)
    for labels, flag in ((objects.group, _GROUP), (objects.differ, _DIFFER)):
        if labels is not None:
            flags |= flag
            values = Bytes.of(labels.values)
            parts += [np.array([len(values)], np.int64), values.offsets, values.data, labels.codes]
    for column, flag in ((objects.measure, _MEASURE), (objects.number, _NUMBER)):
        if column is not None:
            flags |= flag
            parts.append(column)
    if objects.frame is not None:
        flags |= _FRAME
        parts += [np.array([objects.frame.shape[1]], np.int64), objects.frame]
    body = b"".join(_padded(part) for part in parts)
    crc = zlib.crc32(body)
    head = (_MAGIC, _VERSION, int(objects.form), flags, stream, lane, d, n, key_width, total, crc)
    return _HEADER.pack(*head).ljust(40, b"\0") + body


def unpack(block: bytes) -> tuple[int, int, Objects]:
    """Stream, lane and objects of a block; arrays are views of it."""
    if len(block) < 40 or block[:4] != _MAGIC:
        raise StateError(
            f"{len(block)} bytes are no block of appulse (they begin with {block[:4]!r}). "
            "The checkpoint is damaged or belongs to another program: restore it, or start with a new one."
        )
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
            coordinates = restore(first, reader.take(np.float32, total * d), _origins(centre, radius))
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


def pack_floors(floors: Floors) -> bytes:
    """Windows that moved on, as bytes."""
    values = Bytes.of(floors.group.values)
    return pack_arrays(
        {
            "offsets": values.offsets,
            "values": values.data,
            "codes": floors.group.codes,
            "stream": floors.stream,
            "tick": floors.tick,
            "floor": floors.floor,
        }
    )


def unpack_floors(blob: bytes) -> Floors:
    """What `pack_floors` packed."""
    arrays = unpack_arrays(blob)
    group = Labels(arrays["codes"], tuple(Bytes(arrays["offsets"], arrays["values"]).to_list()))
    return Floors(group, arrays["stream"], arrays["tick"], arrays["floor"])


def pack_presence(presence: Presence) -> bytes:
    """What may not exist, as bytes."""
    values = Bytes.of(() if presence.group is None else presence.group.values)
    arrays: dict[str, NDArray[Any]] = {
        "offsets": values.offsets,
        "values": values.data,
        "stream": presence.stream,
        "base": presence.base,
        "first": presence.exist.offsets,
        "exist": presence.exist.values,
    }
    return pack_arrays(arrays if presence.group is None else {**arrays, "codes": presence.group.codes})


def unpack_presence(blob: bytes) -> Presence:
    """What `pack_presence` packed."""
    arrays = unpack_arrays(blob)
    values = tuple(Bytes(arrays["offsets"], arrays["values"]).to_list())
    group = Labels(arrays["codes"], values) if "codes" in arrays else None
    return Presence(group, arrays["stream"], arrays["base"], Ragged(arrays["first"], arrays["exist"]))


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Named arrays as bytes, with a checksum."""
    parts = []
    for name, array in arrays.items():
        head = f"{name} {array.dtype.str} {' '.join(map(str, array.shape))}".encode()
        parts += [struct.pack("<H", len(head)), head, np.ascontiguousarray(array).tobytes()]
    body = b"".join(parts)
    return _ARRAYS.pack(_ARRAYS_MAGIC, zlib.crc32(body)) + body


def unpack_arrays(blob: bytes) -> dict[str, NDArray[Any]]:
    """What `pack_arrays` packed; arrays are copies."""
    if len(blob) < _ARRAYS.size or blob[:4] != _ARRAYS_MAGIC:
        raise StateError(
            f"{len(blob)} bytes are no state of appulse (they begin with {blob[:4]!r}). "
            "The checkpoint is damaged or belongs to another program: restore it, or start with a new one."
        )
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


def _padded(array: NDArray[Any]) -> bytes:
    raw = np.ascontiguousarray(array).tobytes()
    return raw + b"\0" * (-len(raw) % 8)


def _origins(centre: NDArray[np.float64], radius: NDArray[np.float64]) -> NDArray[np.float64]:
    """Centres rounded to 12 bits of their radius, so that offsets of round samples stay round."""
    quantum = np.ldexp(1.0, np.frexp(radius)[1] - 12)[:, None]
    rounded = np.rint(centre / quantum) * quantum
    return np.where((radius > 0.0)[:, None] & np.isfinite(rounded), rounded, centre)
