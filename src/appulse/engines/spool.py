"""A spool: messages on disk, numbered in the order they came, in segments that are deleted once nobody needs them."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import time
import uuid
from array import array
from bisect import bisect_right
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from appulse.errors import StateError, StorageError
from appulse.model.durable import put_in_place, sync

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Message", "Record", "Spool"]

_HEAD = struct.Struct(
    "<IIqqHH"
)  # checksum; bytes of the payload, offset, received, id of the packet, bytes of the topic
_NAME = re.compile(r"(\d{20})\.seg")
_SEGMENT = 8 << 20  # bytes
_LOCK_WAIT = 15.0  # seconds, for a process that ends


class Message(NamedTuple):
    """What came: ``received`` in microseconds since 1970, ``packet`` is the broker's id of it, 0 without one."""

    topic: str
    payload: bytes
    received: int
    packet: int


class Record(NamedTuple):
    """A message in a spool."""

    offset: int
    message: Message


class _Segment:
    """A file of records that begins with an offset."""

    def __init__(self, path: Path, first: int) -> None:
        self.path, self.first = path, first
        self.at = array("Q")  # where each record begins
        self.size = 0

    @property
    def end(self) -> int:
        """The offset behind its last record."""
        return self.first + len(self.at)

    def scan(self, *, last: bool) -> None:
        """Learn where records are; what a crash left of one at the end of the ``last`` segment is cut off."""
        data = self.path.read_bytes()
        at = 0
        while at < len(data):
            end = _end_of(data, at, self.end)
            if end is None:
                if not last:
                    raise StateError(f"The spool {self.path} is damaged at byte {at}. Restore it, or begin a new one.")
                os.truncate(self.path, at)
                break
            self.at.append(at)
            at = end
        self.size = at


class Spool:
    """Messages of one receiver in a folder. A message is safe once `append` has returned.

    ``begin`` is the offset of the first record that is kept, ``end`` that of the next. One process writes; raises
    `StorageError` where another one does. ``name`` is made up with the folder: offsets mean messages of one name only.
    """

    def __init__(self, folder: str | Path, segment_bytes: int = _SEGMENT) -> None:
        self.folder = Path(folder)
        self._most = segment_bytes
        self._turn = RLock()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / "lock").open("a+")
        except OSError as error:
            raise StorageError(f"The spool {self.folder} cannot be used: {error.strerror}. Name another.") from error
        try:
            self._own()
            self.name = self._named()
            found = sorted(int(name[1]) for name in map(_NAME.fullmatch, os.listdir(self.folder)) if name)  # noqa: PTH208
            self._segments = [_Segment(self._path(first), first) for first in found]
            for segment in self._segments:
                segment.scan(last=segment is self._segments[-1])
            if not self._segments:
                self._segments.append(self._fresh(0))
            self._file = self._segments[-1].path.open("ab")
        except BaseException:
            self._lock.close()
            raise

    @staticmethod
    def within(folder: str | Path, most_bytes: int) -> Spool:
        """A spool in segments that are small beside the most there may be, so that room is made early."""
        return Spool(folder, max(1, min(_SEGMENT, most_bytes // 8)))

    @property
    def begin(self) -> int:
        """The offset of the first record that is kept."""
        with self._turn:
            return self._segments[0].first

    @property
    def end(self) -> int:
        """The offset of the next record."""
        with self._turn:
            return self._segments[-1].end

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        with self._turn:
            return sum(segment.size for segment in self._segments)

    def append(self, messages: Sequence[Message]) -> None:
        """Write messages; they are on disk when this returns. What raises has written nothing."""
        if not messages:
            return
        with self._turn:
            segment = self._segments[-1]
            if segment.size >= self._most:
                segment = self._next()
            packed, at, size = [], [], segment.size
            for i, message in enumerate(messages):
                record = _packed(segment.end + i, message)
                packed.append(record)
                at.append(size)
                size += len(record)
            try:
                self._file.write(b"".join(packed))
                self._file.flush()
                os.fsync(self._file.fileno())
            except OSError as error:
                self._file.close()
                os.truncate(segment.path, segment.size)
                self._file = segment.path.open("ab")
                raise StorageError(
                    f"The spool {self.folder} cannot be written: {error.strerror}. Make room."
                ) from error
            segment.at.extend(at)
            segment.size = size

    def read(self, start: int, end: int) -> list[Record]:
        """The records from ``start`` up to ``end``, without it; raises `StateError` for those that were forgotten."""
        with self._turn:
            if start < self.begin or end > self.end:
                raise StateError(
                    f"The spool {self.folder} has messages {self.begin} to {self.end}, not {start} to {end}: they were "
                    "deleted, or it is another spool. Begin with a new checkpoint."
                )
            return list(self._between(start, end))

    def check(self, start: int, name: str | None = None) -> None:
        """Raise `StateError` unless messages from ``start`` on are those of the spool that had this ``name``."""
        with self._turn:
            if self.begin <= start <= self.end and name in (None, self.name):
                return
            raise StateError(
                f"The spool {self.folder} has messages {self.begin} to {self.end}, not those from {start} on that the "
                "checkpoint goes on with: they were deleted, or it is another spool. Restore its folder, or begin with "
                "a new checkpoint."
            )

    def forget(self, before: int) -> None:
        """Delete segments all of whose records are before an offset."""
        with self._turn:
            while len(self._segments) > 1 and self._segments[0].end <= before:
                self._segments.pop(0).path.unlink(missing_ok=True)
            last = self._segments[-1]
            if last.size >= self._most and last.end <= before:
                self._next()
                self._segments.pop(0).path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close its files, and let another process have it."""
        with self._turn:
            self._file.close()
            self._lock.close()

    def _between(self, start: int, end: int) -> Iterator[Record]:
        firsts = [segment.first for segment in self._segments]
        while start < end:
            segment = self._segments[bisect_right(firsts, start) - 1]
            stop = min(end, segment.end)
            low = segment.at[start - segment.first]
            high = segment.size if stop == segment.end else segment.at[stop - segment.first]
            with segment.path.open("rb") as file:
                file.seek(low)
                data = file.read(high - low)
            at = 0
            for offset in range(start, stop):
                after = _end_of(data, at, offset)
                if after is None:
                    raise StateError(f"Message {offset} of the spool {self.folder} is damaged. Restore it.")
                yield Record(offset, _unpacked(data, at))
                at = after
            start = stop

    def _next(self) -> _Segment:
        fresh = self._fresh(self._segments[-1].end)
        self._segments.append(fresh)
        self._file.close()
        self._file = fresh.path.open("ab")
        return fresh

    def _fresh(self, first: int) -> _Segment:
        segment = _Segment(self._path(first), first)
        segment.path.touch()
        sync(self.folder)
        return segment

    def _named(self) -> str:
        """The name of the spool; one is made up for a folder that has none."""
        file = self.folder / "id"
        if not file.exists():
            fresh = file.with_suffix(".new")
            with fresh.open("w") as opened:
                opened.write(uuid.uuid4().hex)
                opened.flush()
                os.fsync(opened.fileno())
            put_in_place(fresh, file)
        return file.read_text()

    def _path(self, first: int) -> Path:
        return self.folder / f"{first:020}.seg"

    def _own(self) -> None:
        until = time.monotonic() + _LOCK_WAIT
        while True:
            try:
                return fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise StorageError(
                        f"The spool {self.folder} is in use by another process. Stop it, or name another folder."
                    ) from None
                time.sleep(0.1)


def _packed(offset: int, message: Message) -> bytes:
    topic = message.topic.encode()
    head = _HEAD.pack(0, len(message.payload), offset, message.received, message.packet, len(topic))[4:]
    body = head + topic + message.payload
    return struct.pack("<I", crc32(body)) + body


def _end_of(data: bytes, at: int, offset: int) -> int | None:
    """Where the record with an offset ends that begins here; None if there is no whole one."""
    if at + _HEAD.size > len(data):
        return None
    check, payload, found, _, _, topic = _HEAD.unpack_from(data, at)
    end = at + _HEAD.size + topic + payload
    if end > len(data) or found != offset or crc32(data[at + 4 : end]) != check:
        return None
    return int(end)


def _unpacked(data: bytes, at: int) -> Message:
    _, payload, _, received, packet, topic = _HEAD.unpack_from(data, at)
    at += _HEAD.size
    return Message(data[at : at + topic].decode(), data[at + topic : at + topic + payload], received, packet)
