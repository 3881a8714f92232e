"""One binary format for all column batches: between stages, and in the logs of checkpoints.

    header | layout | integers | arrays, each padded to 8 bytes

The layout is a line of text: what is packed, and for each column its name, its kind and the types of its arrays. The
integers are those of the caller, those of the columns, and the length of each array. A checksum covers everything.

Equal batches have equal bytes, however they came about: logs are written by several attempts, and compared. Names and
kinds that were ever written stay readable: they may be added to, but not changed.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from appulse.errors import StateError
from appulse.model.batch import Batch, Ragged, field_names
from appulse.model.strings import Bytes, Labels
from appulse.model.uncertainty import Form

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Ints

B = TypeVar("B", bound=Batch)
MAGIC = b"apcb"
_VERSION = 1
_HEADER = struct.Struct("<4sIHHHH")  # magic, checksum, version, bytes of layout, own and all integers
_CHECKED = 8  # where what the checksum covers begins
_BYTE = "|u1"
_PADDING = [bytes(-n % 8) for n in range(8)]
_REMEDY = "Restore the checkpoint, or start with a new one."


class _Array(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of a row
    row: int  # values in a row


class _Layout(NamedTuple):
    word: str
    columns: tuple[tuple[str, str], ...]  # name and kind
    arrays: tuple[_Array, ...]


def pack_batch(word: str, batch: Batch, numbers: Sequence[int] = ()) -> bytes:
    """A batch as bytes, with some integers; ``word`` states what it is."""
    return pack_columns(word, {name: getattr(batch, name) for name in field_names(type(batch))}, numbers)


def unpack_batch(word: str, kind: type[B], blob: bytes, *, copied: bool = False) -> B:
    """What `pack_batch` packed; arrays are views of the bytes unless ``copied``."""
    return from_columns(kind, unpack_columns(word, blob, copied=copied)[0])


def from_columns(kind: type[B], columns: Mapping[str, Any]) -> B:
    """A batch of these columns; others are missing."""
    return kind(**{**dict.fromkeys(field_names(kind)), **columns})


def pack_columns(
    word: str, columns: Mapping[str, Any], numbers: Sequence[int] = (), *, compression: str | None = None
) -> bytes:
    """Named columns as bytes, with some integers; ``compression`` is that of tables."""
    writer = _Writer(list(numbers), compression)
    kinds = [f"{name}:{writer.put(column)}" for name, column in columns.items() if column is not None]
    layout = "\n".join([word, " ".join(kinds), " ".join(writer.types)]).encode()
    integers = [*writer.integers, *writer.lengths]
    parts: list[bytes | memoryview] = [
        layout.ljust(_padded(len(layout)), b"\0"),
        struct.pack(f"<{len(integers)}q", *integers),
    ]
    for raw in writer.raws:
        parts += [raw, _PADDING[len(raw) % 8]]
    checksum, sizes = 0, struct.pack("<HHHH", _VERSION, len(layout), len(numbers), len(integers))
    for part in (sizes, *parts):
        checksum = zlib.crc32(part, checksum)
    return b"".join([struct.pack("<4sI", MAGIC, checksum), sizes, *parts])  # the one copy of what may be large


def unpack_columns(
    word: str, blob: bytes | memoryview, *, copied: bool = False
) -> tuple[dict[str, Any], tuple[int, ...]]:
    """What `pack_columns` packed."""
    if len(blob) < _HEADER.size or bytes(blob[:4]) != MAGIC:
        raise StateError(
            f"{len(blob)} bytes are not a block of appulse (they begin with {bytes(blob[:4])!r}). The checkpoint is "
            "damaged or belongs to another program: restore it, or start with a new one."
        )
    _, checksum, version, size, own, count = _HEADER.unpack_from(blob)
    if zlib.crc32(memoryview(blob)[_CHECKED:]) != checksum:
        raise StateError(f"A block of {len(blob)} bytes fails its checksum: it is truncated or corrupt. {_REMEDY}")
    if version > _VERSION:
        raise StateError(
            f"A block has format {version}, this appulse reads formats up to {_VERSION}. Use the appulse that wrote it."
        )
    layout = _layout(bytes(blob[_HEADER.size : _HEADER.size + size]))
    if layout.word != word:
        raise StateError(f"A block holds {layout.word} where {word} were expected. {_REMEDY}")
    at = _HEADER.size + _padded(size)
    integers = struct.unpack_from(f"<{count}q", blob, at)
    at += 8 * count
    lengths = integers[count - len(layout.arrays) :]
    arrays = []
    for array, n in zip(layout.arrays, lengths, strict=True):
        arrays.append(_array(array, blob, n, at, copied=copied))
        at += _padded(n * array.row * array.dtype.itemsize)
    reader = _Reader(iter(arrays), iter(integers[own:]))
    return {name: reader.take(kind) for name, kind in layout.columns}, integers[:own]


def _array(array: _Array, blob: bytes | memoryview, n: int, at: int, *, copied: bool) -> NDArray[Any]:
    if n * array.row == 0:
        return np.empty((n, *array.shape), array.dtype)
    found = np.frombuffer(blob, array.dtype, n * array.row, at)
    found = found.reshape(n, *array.shape) if array.shape else found
    return found.copy() if copied else found


@lru_cache(1024)
def _layout(raw: bytes) -> _Layout:
    word, columns, types = raw.decode().split("\n")
    arrays = []
    for one in types.split():
        dtype, *widths = one.split(",")
        shape = tuple(map(int, widths))
        arrays.append(_Array(np.dtype(dtype), shape, int(np.prod(shape, dtype=np.int64))))
    pairs = (one.rpartition(":") for one in columns.split(" ") if one)
    return _Layout(word, tuple((name, kind) for name, _, kind in pairs), tuple(arrays))


class _Writer:
    """Takes columns apart into arrays and integers, in the order in which `_Reader` puts them together."""

    def __init__(self, integers: list[int], compression: str | None) -> None:
        self.integers = integers
        self.types: list[str] = []  # of the arrays, with what follows: their lengths, and their bytes
        self.lengths: list[int] = []
        self.raws: list[bytes | memoryview] = []
        self._compression = compression
        self._offsets = b""  # of the last ragged column

    def put(self, column: Any) -> str:
        """Take in a column; its kind."""
        match column:
            case np.ndarray():
                return self._put_array(column)
            case Labels():
                labels = column.compact()
                return "l" + self._put_array(labels.codes) + self._put_ragged(Bytes.of(labels.values))
            case Bytes():
                return "b" + self._put_ragged(column)
            case Ragged():
                return "r" + self._put_ragged(column)
            case pa.Table():
                raw = _ipc(column, self._compression)
                self._add(_BYTE, len(raw), raw)
                return "t"
            case Form():
                self.integers.append(int(column))
                return "f"
            case tuple():
                return "v" + self._put_ragged(Bytes.of(column))
        raise TypeError(f"A column of {type(column).__name__} cannot be packed: add its type to appulse.model.codec.")

    def _put_array(self, array: NDArray[Any]) -> str:
        """As it is (a), or its first row and the number of rows if all rows are the same (c)."""
        n, raw = len(array), _bytes_of(array)
        if n > 1 and _repeats(raw, len(raw) // n):
            self.integers.append(n)
            self._add(_type_of(array), 1, raw[: len(raw) // n])
            return "c"
        self._add(_type_of(array), n, raw)
        return "a"

    def _put_ragged(self, ragged: Ragged[Any]) -> str:
        """Offsets as those of the last ragged column (s), as one length (e), or as they are (o); then the values."""
        offsets, n = ragged.offsets, len(ragged)
        raw = offsets.tobytes()
        if raw == self._offsets:
            how = "s"
        elif n and _repeats((offsets[1:] - offsets[:-1]).tobytes(), 8):
            self.integers += [n, int(offsets[1])]
            how = "e"
        else:
            self._add("<i8", n + 1, raw)
            how = "o"
        self._offsets = raw
        self._add(_type_of(ragged.values), len(ragged.values), _bytes_of(ragged.values))
        return how

    def _add(self, kind: str, n: int, raw: bytes | memoryview) -> None:
        self.types.append(kind)
        self.lengths.append(n)
        self.raws.append(raw)


class _Reader:
    """Puts columns together again."""

    def __init__(self, arrays: Iterator[NDArray[Any]], integers: Iterator[int]) -> None:
        self._arrays, self._integers = arrays, integers
        self._offsets = np.zeros(1, np.int64)

    def take(self, kind: str) -> Any:
        """The next column, of some kind."""
        match kind[0]:
            case "l":
                return Labels(self._array(kind[1]), tuple(Bytes(*self._ragged(kind[2])).to_list()))
            case "b":
                return Bytes(*self._ragged(kind[1]))
            case "r":
                return Ragged(*self._ragged(kind[1]))
            case "t":
                return pa.ipc.open_stream(pa.py_buffer(next(self._arrays))).read_all()
            case "f":
                return Form(next(self._integers))
            case "v":
                return tuple(Bytes(*self._ragged(kind[1])).to_list())
            case _:
                return self._array(kind)

    def _array(self, kind: str) -> NDArray[Any]:
        array = next(self._arrays)
        return np.repeat(array, next(self._integers), axis=0) if kind == "c" else array

    def _ragged(self, how: str) -> tuple[Ints, NDArray[Any]]:
        if how == "e":
            n, width = next(self._integers), next(self._integers)
            self._offsets = np.arange(n + 1, dtype=np.int64) * width
        elif how == "o":
            self._offsets = next(self._arrays)
        return self._offsets, next(self._arrays)


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """A view of the bytes of an array, row by row."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _repeats(raw: bytes | memoryview, width: int) -> bool:
    """Whether bytes are one row of a width, again and again."""
    return bool(width) and raw[:width] == raw[-width:] and bytes(raw[width:]) == bytes(raw[:-width])


def _type_of(array: NDArray[Any]) -> str:
    """The type of an array, and the shape of its rows."""
    return array.dtype.str if array.ndim == 1 else ",".join(map(str, (array.dtype.str, *array.shape[1:])))


def _ipc(table: pa.Table, compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue().to_pybytes())


def _padded(size: int) -> int:
    return -(-size // 8) * 8
