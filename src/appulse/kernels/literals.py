"""The shape of a condition's text: what is left when its literals are taken out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import ByteArray, Floats, Ints

#: Kinds of literals, and what stands for each in a shape: characters that no condition has.
WHOLE, FRACTION, TEXT = ord("#"), ord("%"), ord("$")
_SPACE, _QUOTE, _POINT, _LOW_E, _HIGH_E, _PLUS, _MINUS, _SLASH, _STAR = (ord(c) for c in " '.eE+-/*")
_NAME_QUOTES = (ord('"'), ord("`"))
# A double holds whole numbers up to here, and these powers of ten: one operation on two of them rounds once.
_EXACT = 1 << 53
_MOST_POWER = 22


@exact_kernel
def _is_word(byte: int) -> bool:
    """Whether a byte is part of a name; those of letters beyond ASCII are."""
    return 48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122 or byte == 95 or byte >= 128


@exact_kernel
def _number(data: ByteArray, at: int, end: int) -> tuple[int, float, bool]:
    """Where a number ends, its value, and whether all is well; NaN where it takes more than one operation to round."""
    mantissa, power, exact, point, fine = np.int64(0), 0, True, False, True
    while at < end:
        byte = data[at]
        if 48 <= byte <= 57:
            mantissa = mantissa * 10 + np.int64(byte - 48)
            power -= 1 if point else 0
            if mantissa >= _EXACT:
                exact, mantissa = False, np.int64(0)
        elif byte == _POINT and not point:
            point = True
        else:
            break
        at += 1
    if at < end and (data[at] == _LOW_E or data[at] == _HIGH_E):
        sign, digits, value = 1, at + 1, 0
        if digits < end and (data[digits] == _PLUS or data[digits] == _MINUS):
            sign = -1 if data[digits] == _MINUS else 1
            digits += 1
        if digits < end and 48 <= data[digits] <= 57:
            at, point = digits, True
            while at < end and 48 <= data[at] <= 57:
                value = min(1000, value * 10 + int(data[at] - 48))
                at += 1
            power += sign * value
    if at < end and (_is_word(data[at]) or data[at] == _POINT):
        fine = False
    if not exact or abs(power) > _MOST_POWER:
        return at, np.nan, fine and point
    scale = 1.0
    for _ in range(abs(power)):
        scale *= 10.0
    number = mantissa * scale if power >= 0 else mantissa / scale
    return at, number, fine and bool(number < _EXACT)


class Literals(NamedTuple):
    """Literals of texts: those of text i from ``first[i]`` to ``first[i + 1]``."""

    first: Ints
    kinds: ByteArray
    begins: Ints
    ends: Ints
    values: Floats


@exact_kernel
def shapes(
    data: ByteArray,
    offsets: Ints,
    shape: ByteArray,
    shape_offsets: Ints,
    literals: Literals,
    plain: NDArray[np.bool_],
) -> None:
    """Write the shape of each text, and where its literals are.

    ``begins`` and ``ends`` are from the start of the text, in bytes, quotes included; ``values`` are those of numbers,
    NaN where a number has to be read by other means; it is no whole one, or too large a one, if all is well.
    ``plain`` is False where the text has to be read by itself: comments, whole numbers that no double holds, things
    that end too early. There is room for as many bytes and literals as ``data`` has bytes, and one more.
    """
    first, kinds, begins, ends, values = literals
    out, n = 0, 0
    for i in range(len(offsets) - 1):
        at, end = offsets[i], offsets[i + 1]
        shape_offsets[i], first[i] = out, n
        fine, spaced = True, True
        while at < end and fine:
            byte = data[at]
            if byte == _SPACE or 9 <= byte <= 13:
                at += 1
                if not spaced:
                    shape[out] = _SPACE
                    out += 1
                spaced = True
                continue
            spaced = False
            following = data[at + 1] if at + 1 < end else 0
            begin = at
            if byte == _QUOTE:
                at += 1
                while at < end and not (data[at] == _QUOTE and (at + 1 == end or data[at + 1] != _QUOTE)):
                    at += 2 if data[at] == _QUOTE else 1
                fine = at < end
                at += 1
                kinds[n], begins[n], ends[n], values[n] = TEXT, begin - offsets[i], at - offsets[i], 0.0
                shape[out] = TEXT
                out, n = out + 1, n + 1
            elif 48 <= byte <= 57 or (byte == _POINT and 48 <= following <= 57):
                at, value, fine = _number(data, at, end)
                kind = WHOLE if value == np.floor(value) else FRACTION
                kinds[n], begins[n], ends[n], values[n] = kind, begin - offsets[i], at - offsets[i], value
                shape[out] = kind
                out, n = out + 1, n + 1
            elif byte == _NAME_QUOTES[0] or byte == _NAME_QUOTES[1]:
                at += 1
                while at < end and data[at] != byte:
                    at += 1
                fine = at < end
                at += 1
                for k in range(begin, min(at, end)):
                    shape[out] = data[k]
                    out += 1
            elif _is_word(byte):
                while at < end and _is_word(data[at]):
                    shape[out] = data[at]
                    out, at = out + 1, at + 1
            else:
                comment = (byte == _MINUS and following == _MINUS) or (byte == _SLASH and following == _STAR)
                fine = not comment and byte not in (WHOLE, FRACTION, TEXT)
                shape[out] = byte
                out, at = out + 1, at + 1
        plain[i] = fine
        if not fine:
            out, n = shape_offsets[i], first[i]
    shape_offsets[-1], first[-1] = out, n
