"""What a checkpoint keeps of a set that grows, such as the names of files: a file of its own, to which each write adds.

A record of the log says how many bytes of the file count, and their digest. So what a crash left behind them is written
over, and what was damaged is an error. Once most lines are out of date, the set is written anew to another file.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from appulse.errors import StateError, StorageError
from appulse.model.durable import sync

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from appulse.connect.source import Grows

__all__ = ["Addition", "Ledger", "numbers_of"]

_FOLDER = "names"
#: Lines after which a set may be written anew: at least so many, and so many times those that it had.
_LEAST, _TIMES = 10_000, 2


def numbers_of(folder: Path, known: Collection[str]) -> Iterator[int]:
    """Numbers for files in a checkpoint, behind those that are there; ones that no record knows are removed."""
    place = folder / _FOLDER
    there = sorted(place.iterdir()) if place.exists() else []
    for file in there:
        if file.name not in known:
            file.unlink()
    return count(max((int(file.name) for file in there), default=-1) + 1)


class Addition(NamedTuple):
    """Bytes of a file from a place on; ``instead`` names the file, if any, that is needless once they are there."""

    file: Path
    at: int
    data: bytes
    instead: str

    def write(self) -> None:
        """Have the bytes on disk."""
        try:
            self.file.parent.mkdir(exist_ok=True)
            with self.file.open("r+b" if self.at else "wb") as opened:
                opened.seek(self.at)
                opened.write(self.data)
                opened.truncate()
                opened.flush()
                os.fsync(opened.fileno())
            if not self.at:
                sync(self.file.parent)
                sync(self.file.parent.parent)
        except OSError as error:
            raise StorageError(f"The checkpoint {self.file.parent.parent} cannot be written: {error}") from error

    def written(self) -> None:
        """A record says that the bytes count."""
        if self.instead:
            self.file.with_name(self.instead).unlink(missing_ok=True)


class Ledger:
    """The file of one set: a name and a value in each line, of which the last one counts; null takes the name out."""

    def __init__(self, folder: Path, numbers: Iterator[int]) -> None:
        """``numbers`` are those of files that are not there yet."""
        self._folder, self._numbers = folder / _FOLDER, numbers
        self._name = ""  # of the file; empty: none yet
        self._hash = blake2b(digest_size=16)
        self._bytes = self._lines = self._whole = 0

    def add(self, grows: Grows) -> tuple[dict[str, Any], Addition | None]:
        """What a record says of the file, once what has come since the last call is in it."""
        before = self._name
        anew = not before or self._lines > max(_LEAST, _TIMES * self._whole)
        entries = grows.entries(anew)
        if anew:
            self._name = f"{next(self._numbers):010d}"
            self._hash, self._bytes, self._lines, self._whole = blake2b(digest_size=16), 0, 0, len(entries)
        at, data = self._bytes, b"".join(json.dumps(one).encode() + b"\n" for one in entries)
        self._count(data, len(entries))
        if not data and not anew:
            return self._mark(), None
        return self._mark(), Addition(self._folder / self._name, at, data, before if anew else "")

    def load(self, mark: Mapping[str, Any], remedy: str) -> dict[str, Any]:
        """The set that a record names; raises `StateError` where it is damaged or missing."""
        self._name = str(mark["file"])
        file = self._folder / self._name
        try:
            with file.open("rb") as opened:
                data = opened.read(int(mark["bytes"]))
        except OSError as error:
            raise StateError(f"{file} cannot be read: {error}. {remedy}") from error
        self._count(data, data.count(b"\n"))
        if self._mark() != dict(mark):
            raise StateError(f"{file} is damaged: what it holds is not what was written. {remedy}")
        held = dict(json.loads(line) for line in data.splitlines())
        held = {name: value for name, value in held.items() if value is not None}
        self._whole = len(held)
        return held

    def _count(self, data: bytes, lines: int) -> None:
        self._hash.update(data)
        self._bytes += len(data)
        self._lines += lines

    def _mark(self) -> dict[str, Any]:
        return {"file": self._name, "bytes": self._bytes, "digest": self._hash.hexdigest()}
