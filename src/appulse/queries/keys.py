"""Values as whole numbers in the same order, for an index to compare: of rows, and of the bounds of conditions.

Nulls come first, and NaN is null. Numbers and times are exact. Texts are so in their first seven bytes; where that may
not be enough, a bound is marked as unsure.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from appulse.model.columns import decoded_type
from appulse.model.times import to_micros
from appulse.queries.columns import BOOLEAN, NUMBER, TEXT, TIME, Values, kind_of, nearest_double
from appulse.queries.index import LEAST, MOST, NULL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Ints

Range: TypeAlias = "tuple[Ints, Ints]"

# Whole numbers up to here are keys of bounds; beyond, there is no bound.
_FAR = 1 << 62
_PREFIX = 7


#: The least and the greatest sign of a difference that compares with nought as asked.
SIGNS = {"=": (0, 0), "<>": (1, -1), "<": (-1, -1), "<=": (-1, 0), ">": (1, 1), ">=": (0, 1)}
_ORDER = "\0"


def order_axis(left: str, right: str) -> str:
    """The axis along which rows stand by the order of two of their columns: -1, 0 or 1."""
    return f"{left}{_ORDER}{right}"


def ordered_columns(axis: str) -> tuple[str, str] | None:
    """The columns of such an axis."""
    left, mark, right = axis.partition(_ORDER)
    return (left, right) if left and mark else None


def are_ordered(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether the keys of two columns compare as their values do."""
    left, right = map(decoded_type, (left, right))
    kinds = kind_of(left), kind_of(right)
    return (
        kinds[0] == kinds[1]
        and kinds[0] in (NUMBER, TIME)
        and is_axis(left)
        and is_axis(right)
        and pa.types.is_floating(left) == pa.types.is_floating(right)
    )


def order_of(left: Values, right: Values) -> Ints:
    """The order of two columns."""
    sign = (left.data > right.data).astype(np.int64) - (left.data < right.data)
    return np.where(left.valid & right.valid, sign, NULL)


@lru_cache
def is_axis(kind: pa.DataType) -> bool:
    """Whether columns of this type have keys."""
    kind = decoded_type(kind)
    known = kind_of(kind)
    return known in (BOOLEAN, TEXT, TIME) or (
        known == NUMBER and not pa.types.is_decimal(kind) and not pa.types.is_uint64(kind)
    )


def keys_of(column: pa.Array) -> Ints:
    """The key of each value."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind, valid = kind_of(column.type), None
    if pa.types.is_null(column.type):
        return np.full(len(column), NULL)
    if column.null_count:
        valid = np.asarray(column.is_valid())
    if kind == TIME:
        keys, _, strange = to_micros(column, "s")
        valid = ~strange if valid is None else valid & ~strange
    elif kind == BOOLEAN:
        keys = np.asarray(column.cast(pa.int64()).fill_null(0))
    elif kind == TEXT:
        keys = _text_keys(column.fill_null("").to_pylist())[0]
    elif pa.types.is_floating(column.type):
        numbers = np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
        keys = double_keys(numbers)
        nan = np.isnan(numbers)
        valid = ~nan if nan.any() else None
    else:
        keys = np.maximum(np.asarray(column.fill_null(0)).astype(np.int64), LEAST)
    return keys if valid is None else np.where(valid, keys, NULL)


def double_keys(numbers: Floats) -> Ints:
    """Keys of doubles, none of them NaN: their bits, those of negative numbers turned round."""
    bits = np.ascontiguousarray(numbers).view(np.int64)
    return np.where(bits < 0, np.int64(NULL) - bits, bits)


def doubles_of(keys: Ints) -> Floats:
    """The doubles of bounds again; infinite where there is none."""
    bits = np.where(keys < 0, np.int64(NULL) - keys, keys)
    return np.where(keys <= LEAST, -np.inf, np.where(keys == MOST, np.inf, bits.view(np.float64)))


def _text_keys(texts: list[str]) -> tuple[Ints, Flags]:
    """Seven bytes and how many there are, up to eight; whether that is all of a text."""
    raw = [text.encode() for text in texts]
    size = np.array([min(len(value), _PREFIX + 1) for value in raw], np.int64)
    head = np.array([int.from_bytes(value[:_PREFIX].ljust(_PREFIX, b"\0"), "big") for value in raw], np.int64)
    return (head - (1 << 55) << 8) + size + 16, size <= _PREFIX


def constant(key: int, n: int) -> Range:
    """This key alone, for n conditions."""
    return np.full(n, key, np.int64), np.full(n, key, np.int64)


def any_value(n: int) -> Range:
    """Any value, but not none."""
    return np.full(n, LEAST), np.full(n, MOST)


def no_value(n: int) -> Range:
    """No value."""
    return constant(NULL, n)


def ranges(kind: pa.DataType, name: str, value: Values) -> tuple[list[Range] | None, Flags]:
    """The keys of a column that compare with a value as asked, one value for each condition, and whether exactly those.

    None where the comparison is no range.
    """
    kind = decoded_type(kind)
    sure = np.ones(len(value.valid), bool)
    column = kind_of(kind)
    if column == BOOLEAN:
        if name not in ("=", "<>") or value.kind != BOOLEAN:
            return None, sure
        key = value.data.astype(np.int64)
        key = 1 - key if name == "<>" else key
        return [(key, key)], sure
    if column == TEXT:
        at, sure = _text_keys(value.data.tolist())
        below, above = at, at
        if not sure.all():
            return _unsure(name, at, sure), sure
    elif column == TIME:
        below = above = value.data
    elif pa.types.is_floating(kind):
        number, sure = _as_doubles(value.data)
        below = above = double_keys(number)
        if not sure.all():
            below, above = np.where(sure, below, below - 1), np.where(sure, above, above + 1)
    else:
        below, above, sure = _whole_around(value.data)
        return _whole(name, below, above, sure), sure
    return _around(name, below, above), sure


def _around(name: str, below: Ints, above: Ints) -> list[Range]:
    """Ranges of keys that compare as asked with a value between two keys."""
    least, most = np.full(len(below), LEAST), np.full(len(below), MOST)
    wide = (above > below).astype(np.int64)
    table: dict[str, list[Range]] = {
        "=": [(below, above)],
        "<>": [(least, above - 1 + wide), (below + 1 - wide, most)],
        "<": [(least, above - 1 + wide)],
        "<=": [(least, above)],
        ">": [(below + 1 - wide, most)],
        ">=": [(below, most)],
    }
    return table[name]


def _unsure(name: str, at: Ints, sure: Flags) -> list[Range]:
    """The same for texts, some of which begin as others do: those with the same key may compare either way."""
    least, most = np.full(len(at), LEAST), np.full(len(at), MOST)
    step = sure.astype(np.int64)
    table: dict[str, list[Range]] = {
        "=": [(at, at)],
        "<>": [(least, np.where(sure, at - 1, most)), (np.where(sure, at + 1, most), np.where(sure, most, LEAST))],
        "<": [(least, at - step)],
        "<=": [(least, at)],
        ">": [(at + step, most)],
        ">=": [(at, most)],
    }
    return table[name]


def _whole(name: str, below: Ints, above: Ints, sure: Flags) -> list[Range]:
    """The same for whole numbers, between the greatest no greater than the value and the least no less."""
    least, most = np.full(len(below), LEAST), np.full(len(below), MOST)
    table: dict[str, list[Range]] = {
        "=": [(above, below)],  # empty if the value lies between
        "<>": [(least, above - 1), (below + 1, most)],
        "<": [(least, above - 1)],
        "<=": [(least, below)],
        ">": [(below + 1, most)],
        ">=": [(above, most)],
    }
    return [(np.where(sure, low, least), np.where(sure, high, most)) for low, high in table[name]]


def _as_doubles(data: NDArray[Any]) -> tuple[Floats, Flags]:
    """Numbers as doubles, and whether comparing with these is comparing with those: whole ones are not rounded."""
    if data.dtype != object:
        return data.astype(np.float64) + 0.0, np.ones(len(data), bool)
    numbers, sure = np.empty(len(data)), np.ones(len(data), bool)
    for i, value in enumerate(data.tolist()):
        numbers[i] = nearest_double(value) + 0.0
        sure[i] = not isinstance(value, int) or float(numbers[i]) == value  # as Python compares, exactly
    return numbers, sure


def _whole_around(data: NDArray[Any]) -> tuple[Ints, Ints, Flags]:
    """The whole numbers next to each number; not sure where it is too far out."""
    if data.dtype == np.int64:
        return data, data, np.ones(len(data), bool)
    if data.dtype == np.float64:
        return np.floor(data).astype(np.int64), np.ceil(data).astype(np.int64), np.ones(len(data), bool)
    # Fractions are compared as the doubles next to them.
    numbers = [value if isinstance(value, int) else nearest_double(value) for value in data.tolist()]
    near = [abs(value) < _FAR for value in numbers]
    below = [int(np.floor(v)) if isinstance(v, float) else v for v, fits in zip(numbers, near, strict=True) if fits]
    above = [int(np.ceil(v)) if isinstance(v, float) else v for v, fits in zip(numbers, near, strict=True) if fits]
    sure = np.array(near, bool)
    low, high = np.zeros(len(sure), np.int64), np.zeros(len(sure), np.int64)
    low[sure], high[sure] = below, above
    return low, high, sure
