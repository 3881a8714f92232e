"""Columns of values as conditions see them, nulls apart, and what SQL does with two of them.

Numbers are int64 or float64 where that is exact, else Python's own: no whole number is ever rounded, and decimals are
fractions. Doubles stay doubles; a whole number meets one as what it is. NaN is null.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.model.batch import SHARED, Batch
from appulse.model.columns import decoded_type
from appulse.model.times import is_time, to_micros

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats

BOOLEAN, NUMBER, TEXT, TIME, NULL = "truth value", "number", "text", "time", "null"
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CALCULATE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
# Whole numbers up to here are doubles, too.
_EXACT_DOUBLE = 1 << 53
_INT64 = 1 << 63
_FALSE = pa.scalar(value=False)


@dataclass(frozen=True, slots=True)
class Values(Batch):
    """A value per row, or one for all (then the arrays have no dimension); ``valid`` says where there is one."""

    kind: str = field(metadata=SHARED)
    data: NDArray[Any]
    valid: Flags

    @staticmethod
    def constant(kind: str, value: object) -> Values:
        """The same for all rows."""
        data = np.array(value, {BOOLEAN: bool, TIME: np.int64}.get(kind, object))
        return Values(kind, data, np.array(value is not None))

    @staticmethod
    def truth(true: Flags, false: Flags) -> Values:
        """True, false, or neither."""
        return Values(BOOLEAN, true, true | false)

    @property
    def true(self) -> Flags:
        """Where this is true."""
        return np.logical_and(self.valid, self.data if self.kind == BOOLEAN else False)

    @property
    def false(self) -> Flags:
        """Where this is false."""
        return np.logical_and(self.valid, ~self.data if self.kind == BOOLEAN else False)


@lru_cache
def kind_of(kind: pa.DataType) -> str | None:
    """What conditions take a column of this type for; None if they do not know it."""
    kind = decoded_type(kind)
    if pa.types.is_null(kind):
        return NULL
    if pa.types.is_boolean(kind):
        return BOOLEAN
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return NUMBER
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return TEXT
    return TIME if is_time(kind) else None


def values_of(column: pa.Array) -> Values:
    """An Arrow array as values."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind, n = kind_of(column.type), len(column)
    valid = np.asarray(column.is_valid())
    if kind == TIME:
        micros, _, strange = to_micros(column, "s")
        return Values(TIME, micros, valid & ~strange)
    if kind == BOOLEAN:
        return Values(BOOLEAN, np.asarray(column.fill_null(_FALSE)).astype(bool), valid)
    if kind == TEXT:
        return Values(TEXT, objects(column.to_pylist(), ""), valid)
    if kind != NUMBER:
        return Values(NULL, np.zeros(n, object), np.zeros(n, bool))
    if pa.types.is_floating(column.type):
        data = np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
        return Values(NUMBER, data, valid & ~np.isnan(data))
    if pa.types.is_decimal(column.type):
        return Values(NUMBER, objects([None if v is None else Fraction(v) for v in column.to_pylist()], 0), valid)
    whole = np.asarray(column.fill_null(0))
    fits = whole.dtype != np.uint64 or not len(whole) or int(whole.max()) < _INT64
    return Values(NUMBER, whole.astype(np.int64 if fits else object), valid)


def compare(name: str, left: Values, right: Values) -> Values:
    """One of = <> < <= > >=, exactly."""
    valid = left.valid & right.valid
    if NULL in (left.kind, right.kind):
        return Values(BOOLEAN, np.zeros_like(valid), np.zeros_like(valid))
    a, b = comparable(left.data, right.data) if left.kind == NUMBER else (left.data, right.data)
    with np.errstate(invalid="ignore"):  # a NaN stands where there is no value
        return Values(BOOLEAN, np.asarray(_COMPARE[name](a, b), bool), valid)


def calculate(name: str, left: Values, right: Values) -> Values:
    """One of + - * /: exact unless a double is involved; whole numbers divide to doubles, anything by zero to null."""
    valid = left.valid & right.valid
    if NULL in (left.kind, right.kind):
        return Values(NUMBER, np.zeros(valid.shape, np.int64), np.zeros_like(valid))
    a, b = _aligned(left.data, right.data)
    if name == "/":
        divides = np.asarray(b != 0, bool)
        valid, b = valid & divides, np.where(divides, b, np.ones_like(b))
    if np.float64 in (a.dtype, b.dtype) or (name == "/" and not (has_fractions(a) or has_fractions(b))):
        with np.errstate(all="ignore"):
            data = np.asarray(_CALCULATE[name](doubles(a), doubles(b)))
        return Values(NUMBER, data, valid & ~np.isnan(data))
    if name == "/":
        return Values(NUMBER, np.asarray(np.frompyfunc(Fraction, 2, 1)(_python(a), _python(b)), object), valid)
    if object in (a.dtype, b.dtype) or not _fits(name, _most(a), _most(b)):
        a, b = _python(a), _python(b)
    return Values(NUMBER, np.asarray(_CALCULATE[name](a, b)), valid)


def _aligned(a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Constants in the type of what they meet: whole ones as int64, others as doubles, unless they meet decimals."""
    a, b = _whole(a), _whole(b)
    if object in (a.dtype, b.dtype):
        a, b = _beside(a, b), _beside(b, a)
    return a, b


def _beside(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """A constant with a fraction as a double, unless the other is a constant or decimals: whole numbers may be long."""
    if a.ndim or not isinstance(a.item(), Fraction) or (b.dtype == object and (not b.ndim or has_fractions(b))):
        return a
    return doubles(a)


def _whole(a: NDArray[Any]) -> NDArray[Any]:
    if a.ndim == 0 and a.dtype == object and isinstance(a.item(), int) and abs(a.item()) < _INT64:
        return a.astype(np.int64)
    return a


def comparable(a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The two columns in one type, such that comparing them rounds nothing but decimals beside doubles."""
    a, b = _aligned(a, b)
    if a.dtype == b.dtype:
        return a, b
    if np.float64 in (a.dtype, b.dtype):
        other = b if a.dtype == np.float64 else a
        if _most(other) <= _EXACT_DOUBLE if other.dtype == np.int64 else has_fractions(other):
            return doubles(a), doubles(b)
    return _python(a), _python(b)


def has_fractions(a: NDArray[Any]) -> bool:
    """Whether any of Python's own numbers is a fraction."""
    return a.dtype == object and any(isinstance(value, Fraction) for value in a.reshape(-1).tolist())


def _python(a: NDArray[Any]) -> NDArray[Any]:
    return a.astype(object)


def doubles(a: NDArray[Any]) -> Floats:
    """Numbers as the doubles next to them."""
    if a.dtype != object:
        return a.astype(np.float64)
    return np.array([nearest_double(value) for value in a.reshape(-1).tolist()], np.float64).reshape(a.shape)


def nearest_double(value: int | Fraction) -> float:
    """The double next to a number; those beyond all doubles are infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _most(a: NDArray[Any]) -> int:
    """The largest absolute value of an int64 column."""
    return max(-int(a.min()), int(a.max())) if a.size else 0


def _fits(name: str, a: int, b: int) -> bool:
    return (a * b if name == "*" else a + b) < _INT64


def objects(values: list[Any], null: object = None) -> NDArray[Any]:
    """An array of Python's own, as they are: NumPy's own constructors would cut NULs off the ends of texts."""
    out = np.empty(len(values), object)
    out[:] = [null if value is None else value for value in values]
    return out
