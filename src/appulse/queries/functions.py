"""Functions in conditions: ``abs``, ``sqrt``, ``least``, ``greatest`` and ``coalesce``, as Spark SQL has them."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.queries.columns import NULL, NUMBER, Values, comparable, doubles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags

#: How many arguments each takes at least, and at most where there is a limit.
ARGUMENTS: dict[str, tuple[int, int | None]] = {
    "abs": (1, 1),
    "sqrt": (1, 1),
    "least": (2, None),
    "greatest": (2, None),
    "coalesce": (1, None),
}
#: Those of numbers; others take values of one kind, whichever.
OF_NUMBERS = frozenset({"abs", "sqrt"})


def described_arguments(name: str) -> str:
    """How many arguments a function takes."""
    least, most = ARGUMENTS[name]
    count = "1 argument" if least == 1 else f"{least} arguments"
    return count if most == least else f"at least {count}"


def called(name: str, given: Sequence[Values]) -> Values:
    """The value of a function for every row.

    ``least`` and ``greatest`` leave nulls out, and are null where all arguments are; of a number below 0 there is no
    square root.
    """
    if name in OF_NUMBERS:
        return _absolute(given[0]) if name == "abs" else _root(given[0])
    known = [values for values in given if values.kind != NULL]
    if not known:
        return given[0]
    return reduce(_first if name == "coalesce" else _lesser if name == "least" else _greater, known)


def _absolute(value: Values) -> Values:
    if value.kind == NULL:
        return Values(NUMBER, np.zeros(value.valid.shape, np.int64), value.valid)
    data = value.data
    if data.dtype == np.int64 and data.size and int(data.min()) == np.iinfo(np.int64).min:
        data = data.astype(object)  # its absolute value is no int64
    return Values(NUMBER, np.asarray(np.abs(data)), value.valid)


def _root(value: Values) -> Values:
    if value.kind == NULL:
        return Values(NUMBER, np.zeros(value.valid.shape), value.valid)
    numbers = doubles(value.data)
    valid = value.valid & (numbers >= 0.0)
    return Values(NUMBER, np.sqrt(np.where(valid, numbers, 0.0)), valid)


def _first(left: Values, right: Values) -> Values:
    return _chosen(left, right, left.valid)


def _lesser(left: Values, right: Values) -> Values:
    a, b = _same_type(left, right)
    with np.errstate(invalid="ignore"):  # a NaN stands where there is no value
        return _chosen(left, right, left.valid & (~right.valid | np.asarray(a <= b, bool)))


def _greater(left: Values, right: Values) -> Values:
    a, b = _same_type(left, right)
    with np.errstate(invalid="ignore"):
        return _chosen(left, right, left.valid & (~right.valid | np.asarray(a >= b, bool)))


def _chosen(left: Values, right: Values, of_left: Flags) -> Values:
    a, b = _same_type(left, right)
    return Values(left.kind, np.asarray(np.where(of_left, a, b)), left.valid | right.valid)


def _same_type(left: Values, right: Values) -> tuple[NDArray[Any], NDArray[Any]]:
    if left.kind != NUMBER:
        return left.data, right.data
    return comparable(left.data, right.data)
