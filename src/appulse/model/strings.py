"""Canonical byte strings: keys and labels as bytes that sort the same on every engine, and back again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.kernels.strings import first_of_same, from_words, to_words
from appulse.model.batch import SHARED, Batch, Ragged
from appulse.model.room import full, room, steps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from numpy.typing import NDArray

    from appulse.kernels.arrays import ByteArray, Hashes, Ints, Ints32

_SIGN = np.uint64(1 << 63)
_NO_PART = bytes(4)
_WORD = 8  # bytes
_SPARE = 16  # values of no row that are not worth to be looked for
_MOST_INT32 = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True)
class Bytes(Ragged["ByteArray"]):
    """A column of byte strings: ``data[offsets[i]:offsets[i + 1]]`` is the i-th."""

    @property
    def data(self) -> ByteArray:
        """All bytes, one string after the other."""
        return self.values

    def to_list(self) -> list[bytes]:
        raw = self.data.tobytes()
        return [raw[a:b] for a, b in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True)]

    def to_arrow(self) -> pa.LargeBinaryArray:
        offsets, data = pa.py_buffer(self.offsets), pa.py_buffer(self.data)
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), [None, offsets, data])

    @staticmethod
    def of(values: Sequence[bytes]) -> Bytes:
        offsets = np.zeros(len(values) + 1, np.int64)
        np.cumsum([len(value) for value in values], out=offsets[1:])
        return Bytes(offsets, np.frombuffer(b"".join(values), np.uint8))

    @staticmethod
    def from_arrow(array: pa.Array) -> Bytes:
        if len(array) == 0:
            return Bytes.of([])
        width: type[np.signedinteger[Any]] = np.int32
        if not (pa.types.is_string(array.type) or pa.types.is_binary(array.type)):
            array, width = pc.cast(array, pa.large_binary()), np.int64
        _, offsets, data = array.buffers()
        given = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
        raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        return Bytes(np.subtract(given, given[0], out=room(len(given), np.int64)), raw[given[0] : given[-1]])

    @staticmethod
    def fixed(rows: ByteArray) -> Bytes:
        """From rows of equal width, shape (n, width)."""
        n, width = rows.shape
        return Bytes(np.arange(n + 1, dtype=np.int64) * width, np.ascontiguousarray(rows).reshape(-1))


def distinct(strings: Bytes, most: float) -> tuple[Ints, Ints]:
    """Where distinct strings come first, and which of these each one is; all, if more than ``most`` of them are.

    Some that are the same may count as distinct.
    """
    n = len(strings)
    first, which = room((2, n), np.int64)
    table = full(1 << max(4, (2 * n).bit_length()), -1)
    many = first_of_same(strings.offsets, strings.data, table, first, which, most)
    return (steps(n), steps(n)) if many < 0 else (first[:many], which)


def encode(array: pa.Array, *, signed_zero: bool = False) -> Bytes:
    """Canonical bytes of an Arrow array without nulls: text as UTF-8, numbers big-endian and sign-flipped.

    Structs and lists are their parts one after the other, each with a mark for null and its length. Other types
    travel as Arrow's own message of one row. Values that are equal have equal bytes, so -0.0 has those of 0.0; with
    ``signed_zero`` it comes before 0.0, and out again as it was.
    """
    kind = array.type
    if _is_whole(kind):
        whole, words, ends = _as_int64(array), room(len(array), np.uint64), room(len(array) + 1, np.int64)
        to_words(np.asarray(whole, np.int64), words, ends)
        return Bytes(ends, words.view(np.uint8))
    bits = order_bits(array, signed_zero=signed_zero)
    if bits is not None:
        turned = room(len(bits), ">u8")
        turned[:] = bits
        return Bytes(steps(len(bits) + 1, _WORD), turned.view(np.uint8))
    if pa.types.is_dictionary(kind) or isinstance(array, pa.ExtensionArray):
        plain = array.dictionary_decode() if pa.types.is_dictionary(kind) else array.storage
        return encode(plain, signed_zero=signed_zero)
    if pa.types.is_nested(kind) and not pa.types.is_union(kind):
        return Bytes.of(_nested_rows(array, signed_zero=signed_zero))
    if (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return Bytes.from_arrow(array)
    if pa.types.is_decimal(kind):
        return Bytes.fixed(_decimal_rows(array))
    field = pa.schema([("", kind)])
    # Taken, not sliced: the message of a slice holds bytes of its neighbours.
    rows = [pa.RecordBatch.from_arrays([array.take(pa.array([i]))], schema=field) for i in range(len(array))]
    return Bytes.of([row.serialize().to_pybytes() for row in rows])


def decode(strings: Bytes, kind: pa.DataType) -> pa.Array:
    """The Arrow array of type ``kind`` whose canonical bytes these are."""
    if is_scalar(kind):
        return _scalars(strings, kind)
    if pa.types.is_dictionary(kind):
        return decode(strings, kind.value_type)
    if pa.types.is_string(kind) and strings.offsets[-1] <= _MOST_INT32:
        offsets = strings.offsets.astype(np.int32)
        return pa.StringArray.from_buffers(len(strings), *map(pa.py_buffer, (offsets, strings.data)))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        text = pa.LargeStringArray.from_buffers(len(strings), *map(pa.py_buffer, (strings.offsets, strings.data)))
        return text.cast(kind)
    if (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return strings.to_arrow().cast(kind)
    if pa.types.is_decimal(kind):
        width = max(16, kind.bit_width // 8)
        rows = strings.data.reshape(len(strings), width).copy()
        rows[:, 0] ^= 0x80
        data = pa.py_buffer(np.ascontiguousarray(rows[:, ::-1]))
        wide = pa.decimal256 if width == 32 else pa.decimal128
        return pa.Array.from_buffers(wide(kind.precision, kind.scale), len(strings), [None, data]).cast(kind)
    if len(strings) == 0:
        return pa.array([], kind)
    if isinstance(kind, pa.BaseExtensionType):
        return kind.wrap_array(decode(strings, kind.storage_type))
    if pa.types.is_nested(kind) and not pa.types.is_union(kind):
        return _from_nested_rows(strings.to_list(), kind)
    field = pa.schema([("", kind)])
    return pa.concat_arrays([pa.ipc.read_record_batch(pa.py_buffer(raw), field).column(0) for raw in strings.to_list()])


def _scalars(strings: Bytes, kind: pa.DataType) -> pa.Array:
    if _is_whole(kind):
        values = room(len(strings), np.int64)
        from_words(strings.data.view(np.uint64), values)
        return _from_int64(values, kind)
    bits = room(len(strings), np.uint64)
    bits[:] = strings.data.view(">u8")
    return from_order_bits(bits, kind)


def _nested_rows(array: pa.Array, *, signed_zero: bool) -> list[bytes]:
    """Canonical bytes of structs, lists and maps."""
    if pa.types.is_struct(array.type):
        fields = [_part_rows(part, signed_zero=signed_zero) for part in array.flatten()]
        return [b"".join(parts) for parts in zip(*fields, strict=True)] if fields else [b""] * len(array)
    kind = array.type
    if pa.types.is_map(kind):
        entries = pa.StructArray.from_arrays([array.keys, array.items], fields=[kind.key_field, kind.item_field])
        array = pa.ListArray.from_arrays(array.offsets, entries)
    items = iter(_part_rows(array.flatten(), signed_zero=signed_zero))
    return [b"".join(islice(items, length)) for length in pc.list_value_length(array).to_pylist()]


def _part_rows(array: pa.Array, *, signed_zero: bool) -> list[bytes]:
    """Canonical bytes of a column with nulls, each with its length before it: 0 for null, else one more."""
    present = iter(encode(array.drop_null(), signed_zero=signed_zero).to_list())
    parts = [next(present) if valid else None for valid in array.is_valid().to_pylist()]
    return [_NO_PART if part is None else (len(part) + 1).to_bytes(4, "big") + part for part in parts]


def _from_nested_rows(rows: list[bytes], kind: pa.DataType) -> pa.Array:
    parts = [_split(row) for row in rows]
    if pa.types.is_struct(kind):
        fields = [_from_parts([part[k] for part in parts], kind.field(k).type) for k in range(kind.num_fields)]
        empty = pa.array([{}] * len(rows), kind)
        return pa.StructArray.from_arrays(fields, fields=list(kind)) if fields else empty
    offsets = pa.array(np.cumsum([0] + [len(row) for row in parts]), pa.int32())
    flat = [part for row in parts for part in row]
    if pa.types.is_map(kind):
        entries = _from_parts(flat, pa.struct([kind.key_field, kind.item_field]))
        return pa.MapArray.from_arrays(offsets, entries.field(0), entries.field(1), type=kind)
    return pa.ListArray.from_arrays(offsets, _from_parts(flat, kind.value_type)).cast(kind)


def _from_parts(parts: list[bytes | None], kind: pa.DataType) -> pa.Array:
    known = decode(Bytes.of([part for part in parts if part is not None]), kind)
    known = known.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else known
    index = iter(range(len(known)))
    return known.take(pa.array([None if part is None else next(index) for part in parts], pa.int64()))


def _split(row: bytes) -> list[bytes | None]:
    parts: list[bytes | None] = []
    at = 0
    while at < len(row):
        length = int.from_bytes(row[at : at + 4], "big")
        at += 4
        parts.append(None if length == 0 else row[at : at + length - 1])
        at += max(0, length - 1)
    return parts


def widest(kind: pa.DataType) -> pa.DataType:
    """The type that holds the most values with the canonical bytes of this one, for integers and decimals."""
    if pa.types.is_integer(kind) and _is_whole(kind):
        return pa.int64()
    if pa.types.is_decimal(kind):
        return pa.decimal256(76, kind.scale) if pa.types.is_decimal256(kind) else pa.decimal128(38, kind.scale)
    return kind


def is_scalar(kind: pa.DataType) -> bool:
    """Whether values of this type are 64 bits in order."""
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_temporal(kind)
    ) and not pa.types.is_interval(kind)


def order_bits(array: pa.Array, *, signed_zero: bool = False) -> Hashes | None:
    """64 bits per value whose unsigned order is the order of the values; None for types that have none.

    -0.0 is 0.0, or comes before it where ``signed_zero`` is to be kept.
    """
    kind = array.type
    if not is_scalar(kind):
        return None
    if pa.types.is_floating(kind):
        values = np.asarray(array if pa.types.is_float64(kind) else array.cast(pa.float64()))
        values = values if signed_zero else values + 0.0  # -0.0 becomes 0.0
        nothing = np.isnan(values)
        if nothing.any():  # all that are no number are one: 0.0 / 0.0 has a sign
            values = np.where(nothing, np.nan, values)
        bits = values.view(np.uint64)
        return np.where(bits & _SIGN, ~bits, bits | _SIGN)
    if pa.types.is_uint64(kind):
        return np.asarray(array).astype(np.uint64)
    whole: Ints = np.asarray(_as_int64(array), np.int64)
    return np.bitwise_xor(whole.view(np.uint64), _SIGN)


def _is_whole(kind: pa.DataType) -> bool:
    """Whether values of this type are whole numbers of at most 63 bits and a sign."""
    return is_scalar(kind) and not pa.types.is_floating(kind) and not pa.types.is_uint64(kind)


def _as_int64(array: pa.Array) -> pa.Array:
    """Integers, booleans, dates, times, timestamps and durations as int64 in their own unit."""
    kind = array.type
    if pa.types.is_temporal(kind) and kind.bit_width == 32:
        array = array.view(pa.int32())
    elif pa.types.is_temporal(kind):
        array = array.view(pa.int64())
    return array if array.type == pa.int64() else array.cast(pa.int64())


def from_order_bits(bits: Hashes, kind: pa.DataType) -> pa.Array:
    """The values whose `order_bits` these are."""
    if pa.types.is_floating(kind):
        raw = np.where(bits & _SIGN, bits ^ _SIGN, ~bits)
        values = pa.array(raw.view(np.float64))
        return values if kind == values.type else values.cast(kind)
    if pa.types.is_uint64(kind):
        return pa.array(bits)
    return _from_int64(np.bitwise_xor(bits, _SIGN).view(np.int64), kind)


def _from_int64(values: Ints, kind: pa.DataType) -> pa.Array:
    """What `_as_int64` made whole numbers of."""
    whole = pa.array(values)
    if pa.types.is_temporal(kind):
        return whole.cast(pa.int32()).view(kind) if kind.bit_width == 32 else whole.view(kind)
    return whole if kind == whole.type else whole.cast(kind)


def _decimal_rows(array: pa.Array) -> ByteArray:
    """Big-endian, sign-flipped bytes of a decimal column, shape (n, 16 or 32)."""
    kind = array.type
    if kind.bit_width < 128:
        array = array.cast(pa.decimal128(kind.precision, kind.scale))
    width = array.type.bit_width // 8
    raw = np.frombuffer(array.buffers()[1], np.uint8)
    rows = raw[array.offset * width : (array.offset + len(array)) * width].reshape(len(array), width)[:, ::-1].copy()
    rows[:, 0] ^= 0x80
    return rows


def numbered(array: pa.Array) -> tuple[Ints, list[bytes]]:
    """Numbers of values, equal ones alike and null as 0, and the canonical bytes of each that occurs."""
    if not (pa.types.is_nested(array.type) or isinstance(array, pa.ExtensionArray) or pa.types.is_interval(array.type)):
        encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        return np.asarray(encoded.indices.fill_null(0)).astype(np.int64), encode(encoded.dictionary).to_list()
    own = encode(array.drop_null()).to_list()
    values = sorted(set(own))
    index = {value: i for i, value in enumerate(values)}
    codes = np.zeros(len(array), np.int64)
    codes[np.asarray(array.is_valid())] = [index[value] for value in own]
    return codes, values


@dataclass(frozen=True, slots=True)
class Labels(Batch):
    """A column of labels, most of them repeated: ``values[codes[i]]`` is the i-th; empty bytes stand for null."""

    codes: Ints32
    values: tuple[bytes, ...] = field(metadata=SHARED)

    def compact(self) -> Labels:
        """The same labels, with the values that occur only, in the order of their bytes."""
        used, codes = np.unique(self.codes, return_inverse=True)
        values = [self.values[i] for i in used.tolist()]
        order = sorted(range(len(values)), key=values.__getitem__)
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        return Labels(place[codes], tuple(values[i] for i in order))

    def ranks(self) -> Ints:
        """The number of each label in the order of their bytes, whatever order they came in."""
        place = {value: i for i, value in enumerate(sorted(set(self.values)))}
        return np.array([place[value] for value in self.values], np.int64)[self.codes]

    @staticmethod
    def of(columns: Sequence[pa.Array]) -> Labels:
        """One label per row over several columns of equal length; null if any of them is."""
        codes: Ints | None = None
        parts: list[bytes] = [b""]
        null = np.zeros(len(columns[0]), bool)
        for given in columns:
            column = given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given
            column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            null |= np.asarray(column.is_null())
            mine, values = numbered(column)
            if codes is None:
                codes, parts = mine, [_prefixed(value) for value in values] or [b""]
                continue
            pairs = codes * max(1, len(values)) + mine
            used, codes = np.unique(pairs, return_inverse=True)
            width = max(1, len(values))
            parts = [parts[p // width] + _prefixed(values[p % width]) for p in used.tolist()] if values else parts
        assert codes is not None  # noqa: S101 - there is at least one column
        compact = np.where(null, len(parts), codes).astype(np.int32)
        return Labels(compact, (*parts, b""))

    @classmethod
    def _aligned(cls, parts: Sequence[Self]) -> Sequence[Self]:
        numbers, codes = renumbered([(part.values, part.codes) for part in parts])
        return [replace(part, codes=own, values=numbers) for part, own in zip(parts, codes, strict=True)]


def renumbered(
    parts: Sequence[tuple[tuple[bytes, ...], NDArray[np.integer[Any]]]],
) -> tuple[tuple[bytes, ...], list[Ints32]]:
    """All values of several columns, each once, and the places in them of each column's rows.

    A column is its values, and the place among them of each row's. Where most values are of no row any more, as in what
    is left of rows that came and went, those are left out.
    """
    index: dict[bytes, int] = {}
    found = []
    for values, codes in parts:
        if len(values) > 2 * len(codes) + _SPARE:
            used, rows = np.unique(codes, return_inverse=True)
            some: Sequence[bytes] = [values[code] for code in used.tolist()]
        else:
            some, rows = values, codes
        found.append(np.array([index.setdefault(value, len(index)) for value in some], np.int32)[rows])
    return tuple(index), found


def label_parts(value: bytes) -> list[bytes]:
    """The canonical bytes of each column that went into a label."""
    parts, at = [], 0
    while at < len(value):
        length = int.from_bytes(value[at : at + 4], "big")
        parts.append(value[at + 4 : at + 4 + length])
        at += 4 + length
    return parts


def _prefixed(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value
