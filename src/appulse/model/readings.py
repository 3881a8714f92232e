"""Readings of sensors, as flat arrays: what travels between stages, and the one door they come in by."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.errors import BadArgument, likely
from appulse.kernels.bins import bin_keys
from appulse.model import defects as why
from appulse.model.batch import SHARED, Batch
from appulse.model.columns import chunk, floats, is_numeric, nulls, plain_types
from appulse.model.defects import (
    Defects,
    check_decoded,
    check_partition,
    check_time,
    no_rejects,
    read_columns,
    reject_schema,
    rows_as_json,
    shown_values,
)
from appulse.model.strings import (
    Bytes,
    Labels,
    decode,
    encode,
    from_order_bits,
    is_scalar,
    numbered,
    order_bits,
    renumbered,
)
from appulse.model.times import check_time_type, from_micros

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.encoding import Where


@dataclass(frozen=True)
class ReadingsEncoding:
    """Everything encoding depends on; no frame, so it travels to workers.

    ``width`` is that of bins; without it values match if they are equal. ``lengths`` are windows of sensors, by their
    canonical bytes, or the name of a column of seconds; ``length`` (microseconds) is that of all others, None: none.
    Readings of sensors that are not ``located`` are bad rows. ``numeric``: values have to be numbers. Rows that do not
    satisfy every ``where`` only move time on.
    """

    name: str
    sensor: str
    time: str
    value: str
    unit: str
    partition_by: tuple[str, ...]
    carry: tuple[str, ...]
    key_type: pa.DataType
    time_type: pa.DataType
    value_type: pa.DataType
    width: float | None
    length: int | None
    lengths: tuple[tuple[bytes, int], ...] | str = ()
    located: frozenset[bytes] | None = None
    numeric: bool = False
    where: tuple[Where, ...] = ()

    @property
    def key(self) -> str:
        """The column that identifies a row's origin."""
        return self.sensor

    @property
    def scalar(self) -> bool:
        """Whether values are 64 bits in order; others are labels."""
        return is_scalar(self.value_type)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns without which there is no reading."""
        return self.sensor, self.time, self.value, *self.partition_by

    def columns(self) -> list[str]:
        """Every column that is read."""
        own = [self.lengths] if isinstance(self.lengths, str) else []
        own += [name for where in self.where for name in where.columns]
        return list(dict.fromkeys([self.sensor, self.time, self.value, *own, *self.partition_by, *self.carry]))


@dataclass(frozen=True, slots=True)
class Readings(Batch):
    """``n`` readings. ``bits`` are values as 64 bits in their order; those that have none are labels, and bits codes.

    ``key`` are the bins of values (None: there are none, and values match if they are equal). ``length`` is each
    reading's own window; ``asks`` which of them ask for matches (None: all). ``carry`` are columns to bring along.
    ``counts`` says which rows are readings (None: all); of the others only their times matter.
    """

    time: Ints
    sensor: Bytes
    bits: Ints
    key: Ints | None = None
    label: tuple[bytes, ...] = field(default=(), metadata=SHARED)
    group: Labels | None = None
    length: Ints | None = None
    asks: Flags | None = None
    carry: pa.Table | None = None
    counts: Flags | None = None

    def counting(self) -> Readings:
        """The rows that are readings."""
        return self if self.counts is None else replace(self.filter(self.counts), counts=None)

    @classmethod
    def _aligned(cls, parts: Sequence[Self]) -> Sequence[Self]:
        if any(part.asks is not None for part in parts):
            parts = [replace(p, asks=np.ones(len(p), bool)) if p.asks is None else p for p in parts]
        if any(part.counts is not None for part in parts):
            parts = [replace(p, counts=np.ones(len(p), bool)) if p.counts is None else p for p in parts]
        if not any(part.label for part in parts):
            return parts
        label, codes = renumbered([(part.label, part.bits) for part in parts])
        return [replace(p, bits=own.astype(np.int64), label=label) for p, own in zip(parts, codes, strict=True)]


def check_reading_columns(encoding: ReadingsEncoding, schema: pa.Schema) -> None:
    """Raise `BadArgument` where a column is missing or of a type that cannot serve."""
    for column in encoding.columns():
        if column not in schema.names:
            raise BadArgument(
                f"The readings have no column {column!r}.{likely(column, schema.names)} "
                f"They have: {', '.join(schema.names)}."
            )
        if schema.names.count(column) > 1:
            raise BadArgument(f"The readings have several columns {column!r}. Rename all but one.")
    check_time_type(encoding.time, schema.field(encoding.time).type)
    numeric = [encoding.value] if encoding.numeric or encoding.width is not None else []
    numeric += [encoding.lengths] if isinstance(encoding.lengths, str) else []
    for column in numeric:
        if not is_numeric(schema.field(column).type):
            raise BadArgument(
                f"Column {column!r} is {schema.field(column).type}, not a number. Cast it before the call."
            )
    for where in encoding.where:
        where.check({name: schema.field(name).type for name in where.columns})


def encode_readings(table: pa.Table, encoding: ReadingsEncoding) -> tuple[Readings, pa.Table]:
    """The good readings, in the order of the table, and the bad rows as rejects."""
    table = plain_types(table.select(read_columns(table.column_names, encoding.columns())).combine_chunks())
    defects = Defects(len(table))
    check_decoded(table, defects)
    micros = check_time(table, encoding.time, encoding.unit, defects)
    defects.mark(nulls(table[encoding.sensor]), why.NULL_KEY, f"column {encoding.sensor!r} is null")
    for column in encoding.partition_by:
        check_partition(table, column, defects)
    _check_value(table, encoding, defects)
    length = _lengths(table, encoding, defects)
    _check_located(table, encoding, defects)
    rejects = _rejects(table, encoding, defects)
    if defects.bad.any():
        good = np.flatnonzero(~defects.bad)
        table, micros = table.take(pa.array(good)), micros[good]
        length = None if length is None else length[good]
    bits, key, label = _values(table, encoding)
    readings = Readings(
        time=micros,
        sensor=encode(_sensors(table, encoding)),
        bits=bits,
        key=key,
        label=label,
        group=Labels.of([table[c] for c in encoding.partition_by]) if encoding.partition_by else None,
        length=length,
        carry=table.select(list(encoding.carry)) if encoding.carry else None,
        counts=_counting(table, encoding),
    )
    return readings, rejects


def values_of(bits: Ints, label: tuple[bytes, ...], kind: pa.DataType) -> pa.Array:
    """Values in the type they came in; of labels, no more are decoded than there are values."""
    if is_scalar(kind):
        return from_order_bits(bits.view(np.uint64), kind)
    if len(label) > len(bits):
        used, bits = np.unique(bits, return_inverse=True)
        label = tuple(label[code] for code in used.tolist())
    return decode(Bytes.of(label), kind).take(pa.array(bits))


def numbers_of(bits: Ints, label: tuple[bytes, ...], kind: pa.DataType) -> Floats:
    """Values as float64."""
    return floats(values_of(bits, label, kind))


def refused_readings(bad: Readings, reason: str, details: Sequence[str], encoding: ReadingsEncoding) -> pa.Table:
    """Encoded readings as rejects."""
    values = values_of(bad.bits, bad.label, encoding.value_type)
    return pa.table(
        {
            "stream": [encoding.name] * len(bad),
            "key": decode(bad.sensor, encoding.key_type),
            "time": from_micros(bad.time, encoding.time_type, encoding.unit),
            "reason": [reason] * len(bad),
            "detail": list(details),
            "values": rows_as_json(pa.table({encoding.value: values})),
        },
        schema=reject_schema(encoding.key_type, encoding.time_type),
    )


def _sensors(table: pa.Table, encoding: ReadingsEncoding) -> pa.Array:
    column = chunk(table[encoding.sensor])
    return column if column.type == encoding.key_type else column.cast(encoding.key_type)


def _check_value(table: pa.Table, encoding: ReadingsEncoding, defects: Defects) -> None:
    column = chunk(table[encoding.value])
    defects.mark(nulls(column), why.NON_FINITE, f"column {encoding.value!r} is null")
    if is_numeric(column.type):
        numbers = floats(column)
        defects.mark(~np.isfinite(numbers), why.NON_FINITE, why.of_values(f"column {encoding.value!r} is ", numbers))


def _check_located(table: pa.Table, encoding: ReadingsEncoding, defects: Defects) -> None:
    if encoding.located is None:
        return
    codes, sensors = numbered(_sensors(table, encoding))
    missing = np.array([value not in encoding.located for value in sensors] or [False])
    defects.mark(missing[codes], why.NO_LOCATION, "neither locations= nor neighbours= has this sensor")


def _counting(table: pa.Table, encoding: ReadingsEncoding) -> Flags | None:
    """Which rows satisfy all conditions; None: all do."""
    counts = np.ones(len(table), bool)
    for where in encoding.where:
        counts &= where.holds({name: chunk(table[name]) for name in where.columns}, len(table))
    return None if counts.all() else counts


def _lengths(table: pa.Table, encoding: ReadingsEncoding, defects: Defects) -> Ints | None:
    """Each reading's own window in microseconds; None where all have the same."""
    if isinstance(encoding.lengths, str):
        seconds = floats(table[encoding.lengths])
        bad = ~((seconds >= 0.0) & (seconds < 2.0**40))
        defects.mark(
            bad,
            why.NON_FINITE,
            why.of_values(f"the window in column {encoding.lengths!r} is ", seconds, " seconds"),
        )
        return np.rint(np.where(bad, 0.0, seconds) * 1e6).astype(np.int64)
    if not encoding.lengths:
        return None
    codes, sensors = numbered(_sensors(table, encoding))
    known = dict(encoding.lengths)
    own = [known.get(value, encoding.length) for value in sensors]
    none = np.array([length is None for length in own] or [True])[codes]
    defects.mark(none, why.NO_WINDOW, "the mapping of windows does not name this sensor, nor None for others")
    return np.array([0 if length is None else length for length in own] or [0], np.int64)[codes]


def _values(table: pa.Table, encoding: ReadingsEncoding) -> tuple[Ints, Ints | None, tuple[bytes, ...]]:
    column = chunk(table[encoding.value])
    column = column if pa.types.is_dictionary(column.type) else column.cast(encoding.value_type)
    label: tuple[bytes, ...] = ()
    ordered = order_bits(column)
    if ordered is None:
        bits, values = numbered(column)
        label = tuple(values)
    else:
        bits = ordered.view(np.int64)
    if encoding.width is None:
        return bits, None, label
    key = np.empty(len(bits), np.int64)
    bin_keys(floats(column), encoding.width, key)
    return bits, key, label


def _rejects(table: pa.Table, encoding: ReadingsEncoding, defects: Defects) -> pa.Table:
    if not defects.found:
        return no_rejects(encoding.key_type, encoding.time_type)
    rows, reasons, details = defects.columns()
    values = [c for c in encoding.columns() if c not in (encoding.sensor, encoding.time)]
    return pa.table(
        {
            "stream": [encoding.name] * len(rows),
            "key": chunk(table[encoding.sensor]).take(rows).cast(encoding.key_type),
            "time": chunk(table[encoding.time]).take(rows).cast(encoding.time_type, safe=False),
            "reason": reasons,
            "detail": details,
            "values": shown_values(table, values, rows),
        },
        schema=reject_schema(encoding.key_type, encoding.time_type),
    )
