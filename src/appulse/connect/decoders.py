"""Lines of receivers as rows: AIS (NMEA 0183) of ships, and SBS-1 (BaseStation) of aircraft."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from appulse.connect.source import Unreadable
from appulse.errors import BadArgument
from appulse.model.defects import NOT_DECODED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["DECODERS", "Decoded", "decode_ais", "decode_lines", "decode_sbs"]

_STAMP = pa.timestamp("us", "UTC")
_LONGEST = 400  # characters of a line that a reject shows


class Decoded(NamedTuple):
    """The rows of some lines, and the lines that are none, each with how many rows came before it."""

    rows: pa.Table
    unreadable: list[tuple[int, Unreadable]]


def decode_lines(kind: str, lines: Iterable[str]) -> Decoded:
    """Rows of lines of a kind: ``"ais"`` or ``"sbs"``."""
    return DECODERS[kind](lines)


def _lines(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in map(str.strip, lines) if line and not line.startswith("#"))


# --- AIS ------------------------------------------------------------------------------------------------------------

AIS = pa.schema(
    {
        "mmsi": pa.int64(),
        "time": _STAMP,
        "lat": pa.float64(),
        "lon": pa.float64(),
        "speed": pa.float64(),
        "course": pa.float64(),
        "heading": pa.float64(),
        "accurate": pa.bool_(),
        "type": pa.int64(),
    }
)
_TAG = re.compile(r"^\\([^\\]*)\\")
_TIME = re.compile(r"(?:^|,)c:([0-9]{1,16})(?=[,*]|$)")
_POSITIONS = frozenset({1, 2, 3, 9, 18, 19, 27})
# What a field holds where a ship does not know.
_NOT_KNOWN = {"lat": 91.0, "lon": 181.0, "speed": 102.3, "course": 360.0, "heading": 511}


def decode_ais(lines: Iterable[str]) -> Decoded:
    r"""Positions of ships: ``mmsi, time, lat, lon, speed`` (knots), ``course, heading, accurate, type``.

    The time is that of the tag block before a sentence, ``\c:1452604327*5A\``, in seconds or milliseconds since 1970;
    null without one. Sentences of several parts are put together. Messages that are no position of a ship or aircraft
    (types other than 1, 2, 3, 9, 18, 19 and 27) are left out. Raises `BadArgument` without the package pyais.
    """
    try:
        from pyais import decode
        from pyais.exceptions import AISBaseException
    except ImportError:
        raise BadArgument("AIS is decoded by pyais, which is not installed: pip install 'appulse[ais]'.") from None
    found: list[dict[str, Any]] = []
    bad: list[tuple[int, Unreadable]] = []
    parts: _Parts = {}
    for line in _lines(lines):
        try:
            whole = _whole(line, parts)
            if whole is None:
                continue
            sentences, first = whole
            message = decode(*sentences, error_if_checksum_invalid=True)
            if message.msg_type in _POSITIONS:
                found.append(_position(message, _TAG.match(first)))
        except (AISBaseException, ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
            bad.append((len(found), _unreadable(line, error)))
    for held, first in parts.values():
        bad.append((len(found), _unreadable(first, f"{len(held)} parts of a message came, and the others did not")))
    return Decoded(pa.Table.from_pylist(found, schema=AIS), bad)


#: Sentences of messages that are not whole, with the first line, by what their parts have in common.
_Parts = dict[tuple[str, ...], tuple[list[str], str]]


def _whole(line: str, parts: _Parts) -> tuple[list[str], str] | None:
    """The sentences of a message and its first line, once it is whole; raises `ValueError` for a part out of order."""
    tag = _TAG.match(line)
    sentence = line[tag.end() :] if tag else line
    fields = sentence.split(",")
    if len(fields) < 5 or not fields[1].isdigit() or fields[1] == "1":
        return [sentence], line
    own = (fields[1], fields[3], fields[4])
    held, first = parts.get(own, ([], line))
    if fields[2] != str(len(held) + 1):
        raise ValueError(f"part {fields[2]} of {fields[1]} does not follow part {len(held)}")
    parts[own] = [*held, sentence], first
    return parts.pop(own) if fields[2] == fields[1] else None


def _position(message: Any, tag: re.Match[str] | None) -> dict[str, Any]:
    if message.lat is None or message.lon is None:
        raise ValueError("the message ends before its position")
    stamp = _TIME.search(tag[1]) if tag else None
    seconds = None if stamp is None else int(stamp[1]) / (1000 if len(stamp[1]) > 11 else 1)
    row = {
        name: None if value is None or round(float(value), 4) == missing else float(value)
        for name, missing in _NOT_KNOWN.items()
        for value in [getattr(message, name, None)]
    }
    return row | {
        "mmsi": int(message.mmsi),
        "time": None if seconds is None else datetime.fromtimestamp(seconds, UTC),
        "accurate": bool(message.accuracy),
        "type": int(message.msg_type),
    }


# --- SBS-1 ----------------------------------------------------------------------------------------------------------

SBS = pa.schema(
    {
        "hex": pa.string(),
        "time": _STAMP,
        "lat": pa.float64(),
        "lon": pa.float64(),
        "altitude": pa.float64(),
        "speed": pa.float64(),
        "track": pa.float64(),
        "ground": pa.bool_(),
    }
)
_KINDS = ("MSG", "SEL", "ID", "AIR", "STA", "CLK")
_FIELDS = 22


def decode_sbs(lines: Iterable[str]) -> Decoded:
    """Positions of aircraft: ``hex, time, lat, lon, altitude`` (feet), ``speed`` (knots), ``track, ground``.

    Speed and track are those that the aircraft said last, in a message of their own. Times are those at which messages
    were made, by the clock of the receiver, taken as UTC. Messages without a position are left out.
    """
    found: list[dict[str, Any]] = []
    bad: list[tuple[int, Unreadable]] = []
    moves: dict[str, tuple[float | None, float | None]] = {}
    for line in _lines(lines):
        try:
            if (fields := _message(line)) is None:
                continue
            own = fields[4].upper()
            speed, track = _number(fields[12]), _number(fields[13])
            if speed is not None or track is not None:
                moves[own] = speed, track
            if fields[14] and fields[15]:
                found.append(_place(own, fields, *moves.get(own, (None, None))))
        except ValueError as error:
            bad.append((len(found), _unreadable(line, error)))
    return Decoded(pa.Table.from_pylist(found, schema=SBS), bad)


def _message(line: str) -> list[str] | None:
    """The fields of a message of an aircraft; None for a line about something else; raises `ValueError`."""
    fields = [field.strip() for field in line.split(",")]
    if fields[0] not in _KINDS:
        raise ValueError(f"the first field is {fields[0][:20]!r}, and {', '.join(_KINDS)} are known")
    if fields[0] != "MSG":
        return None
    if len(fields) != _FIELDS:
        raise ValueError(f"there are {len(fields)} fields of {_FIELDS}")
    int(fields[4], 16)
    return fields


def _place(own: str, fields: list[str], speed: float | None, track: float | None) -> dict[str, Any]:
    return {
        "hex": own,
        "time": datetime.strptime(f"{fields[6]} {fields[7]}", _form(fields[7])).replace(tzinfo=UTC),
        "lat": _number(fields[14]),
        "lon": _number(fields[15]),
        "altitude": _number(fields[11]),
        "speed": speed,
        "track": track,
        "ground": fields[21] not in ("", "0"),
    }


def _form(clock: str) -> str:
    return "%Y/%m/%d %H:%M:%S.%f" if "." in clock else "%Y/%m/%d %H:%M:%S"


def _number(text: str) -> float | None:
    return float(text) if text else None


def _unreadable(line: str, why: object) -> Unreadable:
    detail = str(why) or type(why).__name__
    return Unreadable(NOT_DECODED, detail[:_LONGEST], line[:_LONGEST])


DECODERS: dict[str, Callable[[Iterable[str]], Decoded]] = {"ais": decode_ais, "sbs": decode_sbs}
