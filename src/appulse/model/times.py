"""Times and durations: everything becomes int64 microseconds at the door, and goes out as it came in."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import pyarrow as pa

from appulse.arguments import REAL, Kind, Unfit, shown
from appulse.errors import BadArgument, nearest, shown_scalar
from appulse.model.columns import floats, is_text, nulls, without_nulls
from appulse.model.room import room

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Ints

UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_NAMES = {
    "microsecond": "us",
    "millisecond": "ms",
    "second": "s",
    "sec": "s",
    "minute": "min",
    "m": "min",
    "hour": "h",
    "day": "d",
    "week": "w",
    **{unit: unit for unit in UNITS},
}
# Possessive where digits follow upon each other, so that reading is linear.
_PART = re.compile(r"\s*+((?:[0-9]++(?:\.[0-9]++)?|\.[0-9]++)(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z]+)\s*(?:,|and\b)?")
_MOST_SHOWN = 100
_WIDE = Context(prec=76)
#: Microseconds of the units of timestamps, but for nanoseconds.
PER_ARROW_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}
# Times and durations stay below these, so that their sums fit int64 (about 146,000 and 73,000 years).
_MOST_TIME, _MOST_DURATION = 2.0**62, 2.0**61
# The years 2000 to 2100, and the year 5000, in microseconds since 1970.
_CENTURY = (946_684_800_000_000, 4_102_444_800_000_000)
_BEYOND = 95_617_584_000_000_000
#: Before every time there is.
MIN_TIME = -(1 << 62)


def duration(value: object, what: str = "duration") -> int:
    """Microseconds of ``"10 seconds"``, ``"1 minute 30 seconds"``, a number of seconds or a timedelta."""
    micros: int = _DURATION(value, f"{what} ")
    return micros


def as_micros(value: Any) -> int:
    """As `duration`, for a kind of argument."""
    if isinstance(value, np.timedelta64) and np.can_cast(value, "m8[us]", "same_kind"):
        value = value.astype("m8[us]").item()
    if isinstance(value, timedelta):
        micros = _whole(value // timedelta(microseconds=1))
    elif isinstance(value, str):
        micros = _whole(_parse(value))
    else:
        micros = _whole(REAL.take(value) * 1_000_000)
    if micros < 0:
        raise Unfit("it is negative. Give at least 0.")
    return micros


def _parse(text: str) -> float:
    position, micros = 0, 0.0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None:
            raise Unfit("it is not a duration. Write it like '10 seconds' or '1 hour 30 minutes'.")
        number, name = match.groups()
        lowered = name.lower()
        unit = _NAMES.get(lowered) or _NAMES.get(lowered.removesuffix("s"))
        if unit is None:
            raise Unfit(f"it has the unknown unit {shown(name)}.{nearest(lowered, _NAMES)}")
        micros += float(number) * UNITS[unit]
        position = match.end()
    if position == 0:
        raise Unfit("it is empty. Write it like '10 seconds'.")
    return micros


def _whole(micros: float) -> int:
    if abs(micros) >= _MOST_DURATION:
        raise Unfit("it is longer than 73,000 years. Give less.")
    return round(micros)


_DURATION = Kind("a number of seconds, a timedelta, or text such as '10 seconds'", as_micros)
#: A duration that is kept as it was given.
DURATION = Kind(_DURATION.wanted, lambda value: (as_micros(value), value)[1])
Duration: TypeAlias = Annotated[float | str | timedelta, DURATION]


def is_time(kind: pa.DataType) -> bool:
    """Whether a column of this type holds timestamps or dates."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type holds numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def check_time_type(column: str, kind: pa.DataType) -> None:
    """Raise `BadArgument` for a column of a type that has no times."""
    if is_time(kind) or is_number(kind) or pa.types.is_null(kind):
        return
    parse = " Parse text first, as with pandas.to_datetime; of CSV and JSON in a job file by TIMESTAMP in the schema."
    raise BadArgument(
        f"time={column!r} holds {kind}. Give a column of timestamps, dates or numbers.{parse if is_text(kind) else ''}"
    )


def likelier_unit(least: int, most: int, unit: str) -> tuple[str, date] | None:
    """A smaller unit in which times lie in this century, where in their own they lie beyond the year 5000.

    With the day of the least of them in that unit; None where the times may be right. They are in microseconds.
    """
    if least < _BEYOND or unit not in UNITS:  # none is smaller than nanoseconds
        return None
    for other, per in (("s", 1_000_000), ("ms", 1_000), ("us", 1), ("ns", 0.001)):
        factor = UNITS[unit] / per
        if factor > 1 and _CENTURY[0] <= least / factor and most / factor < _CENTURY[1]:
            return other, (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=least / factor)).date()
    return None


def to_micros(array: pa.Array, unit: str) -> tuple[Ints, Flags, Flags]:
    """Microseconds of each value, and which are null, and which are not a time (NaN, or out of int64's range).

    Timestamps and dates count from 1970 in UTC, nanoseconds are floored; plain numbers are in ``unit``.
    """
    null = nulls(array)
    array = array.cast(pa.int64()) if pa.types.is_null(array.type) else array
    kind = array.type
    strange = np.zeros(len(array), bool)
    if pa.types.is_date(kind):
        per, whole = (UNITS["d"], array.view(pa.int32())) if kind.bit_width == 32 else (1_000, array.view(pa.int64()))
        return _scaled(whole, per, null, strange)
    if pa.types.is_timestamp(kind):
        whole = array.view(pa.int64())
        if kind.unit == "ns":
            return without_nulls(whole) // 1_000, null, strange
        return _scaled(whole, PER_ARROW_UNIT[kind.unit], null, strange)
    if pa.types.is_integer(kind) and unit != "ns":
        return _scaled(array, UNITS[unit], null, strange)
    if pa.types.is_integer(kind):
        whole, null, strange = _scaled(array, 1, null, strange, 2.0**63)
        return whole // 1_000, null, strange
    if is_number(kind) and unit == "ns":
        micros = np.floor(floats(array) / 1e3)
        known = np.abs(micros) < _MOST_TIME
        return np.where(known, micros, 0.0).astype(np.int64), null, ~(known | null)
    if is_number(kind):
        from appulse.kernels.times import rounded_times  # Numba takes long to import, and brings SciPy

        out = room(len(array), np.int64)
        many = rounded_times(floats(array), float(UNITS[unit]), _MOST_TIME, out, strange)
        return out, null, strange & ~null if many else strange
    raise BadArgument(f"A time column holds {kind}. Give timestamps, dates or numbers.")


def _scaled(
    array: pa.Array, per: int, null: Flags, strange: Flags, most: float = _MOST_TIME
) -> tuple[Ints, Flags, Flags]:
    whole = without_nulls(array)
    if whole.dtype == np.int64:
        from appulse.kernels.times import scaled_times

        out = room(len(whole), np.int64)
        scaled_times(whole, per, most, out, strange)
        return out, null, strange
    strange = strange | (np.abs(whole.astype(np.float64)) * per >= most)
    whole = np.where(strange, 0, whole) if strange.any() else whole
    return whole.astype(np.int64) * per, null, strange


def from_micros(micros: Ints, kind: pa.DataType, unit: str) -> pa.Array:
    """The times in the type they came in."""
    if pa.types.is_null(kind):
        return pa.nulls(len(micros))
    if pa.types.is_timestamp(kind):
        values = micros * 1_000 if kind.unit == "ns" else micros // PER_ARROW_UNIT[kind.unit]
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
    if pa.types.is_date(kind):
        return pa.array(micros).view(pa.timestamp("us")).cast(kind, safe=False)
    times, per = (1_000, 1) if unit == "ns" else (1, UNITS[unit])
    if pa.types.is_integer(kind):
        whole = micros * times if times > 1 else micros
        return _fitting(kind, pa.array(whole // per if per > 1 else whole))
    if pa.types.is_decimal(kind):  # exact; through a double 0.1 would come out as 0.100000000000000006
        least = Decimal(1).scaleb(-kind.scale)
        exact = [(Decimal(m) * times / per).quantize(least, context=_WIDE) for m in micros.tolist()]
        return _fitting(kind, pa.array(exact, _wide(kind)))
    numbers = pa.array(np.true_divide(micros * times if times > 1 else micros, per, out=room(len(micros))))
    return numbers if numbers.type == kind else numbers.cast(kind, safe=False)


def _fitting(kind: pa.DataType, times: pa.Array) -> pa.Array:
    """The times in a type that may be too small for those that the call made, such as ends of windows."""
    if times.type == kind:
        return times
    try:
        return times.cast(kind)
    except pa.ArrowInvalid as error:
        raise BadArgument(
            f"A time of the answers, such as the end of a window, does not fit {kind}, the type of the times that "
            f"came: {error}. Cast the column of times to "
            f"{'int64' if pa.types.is_integer(kind) else 'more digits'}."
        ) from None


def _wide(kind: pa.DataType) -> pa.DataType:
    """The widest type of numbers like these."""
    if pa.types.is_decimal(kind):
        return pa.decimal256(76, kind.scale)
    return pa.int64() if pa.types.is_integer(kind) else kind


def shown_time(micros: int, kind: pa.DataType, unit: str) -> str:
    """A time as text for messages, also where the type holds no such time."""
    return str(shown_scalar(from_micros(np.array([micros], np.int64), _wide(kind), unit)[0]))
