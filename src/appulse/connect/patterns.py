"""Times and dates written by a pattern of Spark's, such as ``dd/MM/yyyy HH:mm:ss``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from appulse.kernels.arrays import Ints

__all__ = ["Pattern"]

_MONTHS = (
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_ZONES = {
    "X": r"Z|[+-]\d{2}(?:\d{2})?",
    "XX": r"Z|[+-]\d{4}",
    "XXX": r"Z|[+-]\d{2}:\d{2}",
    "Z": r"[+-]\d{4}",
    "ZZ": r"[+-]\d{4}",
    "ZZZ": r"[+-]\d{4}",
    "ZZZZZ": r"Z|[+-]\d{2}:\d{2}",
}
_KNOWN = "y, M, d, H, h, m, s, S, a, X, Z"
_PARTS = re.compile(r"'((?:[^']|'')*)'|(([A-Za-z])\3*)|(.)", re.DOTALL)
#: What stands for each part of a time that a pattern does not have, and the bounds of what may be there.
_USUAL = {"y": 1970, "M": 1, "d": 1, "H": 0, "h": 12, "m": 0, "s": 0}
_BOUNDS = {"y": (0, 9999), "M": (1, 12), "d": (1, 31), "H": (0, 23), "h": (1, 12), "m": (0, 59), "s": (0, 59)}


@dataclass(frozen=True)
class Pattern:
    """A pattern of an option, and the regular expression that takes its texts apart."""

    option: str
    text: str
    regex: str
    letters: dict[str, str]  # each with how it is written

    @staticmethod
    @lru_cache(maxsize=64)
    def of(option: str, text: str) -> Pattern:
        """Read a pattern; raises `BadArgument` where it has what is not known here."""
        letters: dict[str, str] = {}
        regex = "".join(_parts(option, text, letters))
        return Pattern(option, text, rf"^(?i:{regex})$", letters)

    def read(self, texts: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
        """Texts as times or dates; raises `pyarrow.ArrowInvalid` for one that is not so written."""
        whole = pa.concat_arrays([one.cast(pa.string()) for one in texts.chunks] or [pa.array([], pa.string())])
        found = pc.extract_regex(whole, self.regex)
        null = np.asarray(whole.is_null())
        fields = {letter: pc.struct_field(found, letter) for letter in self.letters}
        parts = {letter: self._numbers(letter, fields.get(letter), len(whole)) for letter in _USUAL}
        wrong = np.asarray(found.is_null()) & ~null
        for letter, (low, high) in _BOUNDS.items():
            wrong |= ~null & ((parts[letter] < low) | (parts[letter] > high))
        months = ((parts["y"] - 1970) * 12 + parts["M"] - 1).astype("M8[M]")
        days = months.astype("M8[D]").astype(np.int64) + parts["d"] - 1
        wrong |= ~null & (days >= (months + 1).astype("M8[D]").astype(np.int64))
        if wrong.any():
            first = whole[int(wrong.argmax())].as_py()
            raise pa.ArrowInvalid(f"{first!r} is not as {self.option} = {self.text!r} says")
        if pa.types.is_date(kind):
            return pa.array(days.astype(np.int32), pa.int32(), mask=null).cast(kind)
        hours = parts["H"] if "H" in self.letters else parts["h"] % 12 + 12 * _afternoon(fields.get("a"), len(whole))
        seconds = ((days * 24 + hours) * 60 + parts["m"]) * 60 + parts["s"]
        for sign in "XZ":
            seconds -= _offset(fields.get(sign), len(whole))
        micros = seconds * 1_000_000 + _fraction(fields.get("S"), len(whole))
        return pa.array(micros, pa.int64(), mask=null).cast(pa.timestamp("us")).cast(kind)

    def _numbers(self, letter: str, texts: pa.Array | None, count: int) -> Ints:
        if texts is None:
            return np.full(count, _USUAL[letter], np.int64)
        if letter == "M" and len(self.letters["M"]) > 2:
            short = [name[:3] for name in _MONTHS]
            texts = pc.index_in(pc.utf8_slice_codeunits(pc.utf8_lower(texts), 0, 3), pa.array(short))
            return np.asarray(pc.fill_null(pc.add(texts, 1), _USUAL["M"])).astype(np.int64)
        found = _numbers(texts, _USUAL[letter])
        return found + 2000 if self.letters[letter] == "yy" else found


def _parts(option: str, text: str, letters: dict[str, str]) -> Iterator[str]:
    """The parts of the regular expression of a pattern; its ``letters`` are filled."""
    opened = 0
    for quoted, run, letter, sign in _PARTS.findall(text):
        if run:
            if letter in letters:
                raise _unread(option, text, f"{letter} is in it twice")
            letters[letter] = run
            yield f"(?P<{letter}>{_of_letter(option, text, run)})"
        elif sign == "[":
            opened += 1
            yield "(?:"
        elif sign == "]" and opened:
            opened -= 1
            yield ")?"
        elif sign and sign in "]{}#'":
            raise _unread(option, text, f"{sign} stands alone in it")
        else:
            yield re.escape(sign or quoted.replace("''", "'") or "'")
    if opened:
        raise _unread(option, text, "a [ in it has no ]")


def _of_letter(option: str, text: str, run: str) -> str:
    """What may stand in the place of a letter, or of several of it."""
    letter, count = run[0], len(run)
    if run in _ZONES:
        return _ZONES[run]
    if letter == "y" and count <= 4:
        return (r"\d{1,4}", r"\d{2}", r"\d{3,4}", r"\d{4}")[count - 1]
    if letter == "M" and count in (3, 4):
        return "|".join(name[:3] if count == 3 else name for name in _MONTHS)
    if letter in _BOUNDS and letter != "y" and count <= 2:
        return r"\d{1,2}" if count == 1 else r"\d{2}"
    if letter == "S" and count <= 9:
        return rf"\d{{1,{count}}}"
    if run == "a":
        return "AM|PM"
    raise _unread(option, text, f"{run} is not known")


def _unread(option: str, text: str, why: str) -> BadArgument:
    return BadArgument(
        f"{option} = {text!r} is not read in process: {why}. Give a pattern of Spark's with the letters {_KNOWN}, "
        "other text in '...', and what may be missing in [...]; or set engine = 'spark'."
    )


def _numbers(texts: pa.Array, usual: int) -> Ints:
    """Texts of digits as numbers; what is missing has the ``usual`` one."""
    filled = pc.if_else(pc.equal(pc.fill_null(texts, ""), ""), str(usual), texts)
    found: Ints = np.asarray(filled.cast(pa.int64()))
    return found


def _fraction(texts: pa.Array | None, count: int) -> Ints:
    """Microseconds; what is finer is cut off."""
    if texts is None:
        return np.zeros(count, np.int64)
    return _numbers(pc.utf8_slice_codeunits(pc.utf8_rpad(pc.fill_null(texts, ""), 6, "0"), 0, 6), 0)


def _afternoon(texts: pa.Array | None, count: int) -> Ints:
    """1 for each text that says so."""
    if texts is None:
        return np.zeros(count, np.int64)
    found: Ints = np.asarray(pc.fill_null(pc.equal(pc.utf8_lower(texts), "pm").cast(pa.int64()), 0))
    return found


def _offset(texts: pa.Array | None, count: int) -> Ints:
    """Seconds that a zone is ahead of UTC."""
    if texts is None:
        return np.zeros(count, np.int64)
    plain = pc.replace_substring(pc.fill_null(texts, ""), ":", "")
    hours = _numbers(pc.replace_substring_regex(pc.utf8_slice_codeunits(plain, 1, 3), r"\D", ""), 0)
    minutes = _numbers(pc.utf8_slice_codeunits(plain, 3, 5), 0)
    seconds = hours * 3600 + minutes * 60
    return np.where(np.asarray(pc.starts_with(plain, "-")), -seconds, seconds)
