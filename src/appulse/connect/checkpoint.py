"""The checkpoint of a resident job: a log of the rows that came, and now and then all that the call holds.

A record is written before the answers that its rows make. So after a crash the rows of the log are pushed again, and
the answers of the last record are written again, under the same number. Records carry a digest: one that is cut short
never counted.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from appulse.errors import CheckpointError, StateError, StorageError
from appulse.model.durable import put_in_place

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CheckpointFolder", "Record", "table_blob", "table_of"]

_MAGIC = b"apsv0001"
_ABOUT, _CALL, _LOG, _STATE, _LOCK = "serve.json", "call.json", "log", "state", "lock"
_OF_SPARK = ("metadata", "offsets", "commits")


class Record(NamedTuple):
    """What is saved under a number: plain JSON, and byte strings."""

    number: int
    head: dict[str, Any]
    blobs: list[bytes]


class CheckpointFolder:
    """The folder of a checkpoint, for one process at a time."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        if any((self.path / name).exists() for name in _OF_SPARK):
            raise CheckpointError(
                f"{path} is a checkpoint of Spark. A job in process cannot go on from it: give another folder, and "
                "drain the old one with engine = 'spark' first."
            )
        try:
            for folder in (_LOG, _STATE):
                (self.path / folder).mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / _LOCK).open("w")
        except OSError as error:
            raise StorageError(f"The checkpoint {path} cannot be written: {error}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise CheckpointError(f"Another process runs from the checkpoint {path}. Stop it first.") from error

    def close(self) -> None:
        """Let others have the folder."""
        self._lock.close()

    def about(self, fresh: Mapping[str, Any]) -> dict[str, Any]:
        """What was written about the job when its checkpoint was made, or ``fresh``, which is written now."""
        file = self.path / _ABOUT
        if file.exists():
            try:
                known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            except ValueError as error:
                raise StateError(f"{file} cannot be read: {error}. Start with a new checkpoint.") from error
            return known
        self._put(file, json.dumps(fresh).encode())
        return dict(fresh)

    def describe(self, call: Mapping[str, Any]) -> None:
        """Keep what the call means, in words, for those whose job is refused later."""
        self._put(self.path / _CALL, json.dumps(call, indent=1, sort_keys=True).encode())

    def described(self) -> dict[str, Any] | None:
        """What `describe` kept; None where that was no version that did, or it cannot be read."""
        try:
            known = json.loads((self.path / _CALL).read_text(encoding="utf-8"), parse_constant=_refuse)
        except (OSError, ValueError):
            return None
        return known if isinstance(known, dict) else None

    def append(self, record: Record) -> int:
        """Add to the log; it is safe when this returns. The bytes written."""
        packed = _packed(record)
        self._put(self._file(_LOG, record.number), packed)
        return len(packed)

    def save(self, record: Record) -> None:
        """Write all that a call holds after a number; what is older is not needed any more."""
        self._put(self._file(_STATE, record.number), _packed(record))
        for file in self._files(_STATE):
            if int(file.name) < record.number:
                file.unlink()

    def forget(self, before: int) -> None:
        """Remove records of the log before a number."""
        for file in self._files(_LOG):
            if int(file.name) < before:
                file.unlink()

    def read(self) -> tuple[Record | None, list[Record]]:
        """The newest state, if there is one, and the records of the log after it, in order."""
        states = [record for file in self._files(_STATE) if (record := _read(file)) is not None]
        state = max(states, default=None, key=lambda one: one.number)
        log = [record for file in self._files(_LOG) if (record := _read(file)) is not None]
        log = sorted((one for one in log if state is None or one.number > state.number), key=lambda one: one.number)
        numbers = [one.number for one in log]
        if numbers and numbers != list(range(numbers[0], numbers[-1] + 1)):
            raise StateError(f"The log of the checkpoint {self.path} has gaps. Start with a new checkpoint.")
        if state is not None and numbers and numbers[0] != state.number + 1:
            raise StateError(f"The log of the checkpoint {self.path} lacks what follows {state.number}.")
        return state, log

    def _file(self, folder: str, number: int) -> Path:
        return self.path / folder / f"{number:010d}"

    def _files(self, folder: str) -> list[Path]:
        return [file for file in (self.path / folder).iterdir() if file.name.isdigit()]

    def _put(self, file: Path, payload: bytes) -> None:
        """Write a file that is there whole, or not at all."""
        hidden = file.with_name(f".{file.name}")
        try:
            with hidden.open("wb") as opened:
                opened.write(payload)
                opened.flush()
                os.fsync(opened.fileno())
            put_in_place(hidden, file)
        except OSError as error:
            raise StorageError(f"The checkpoint {self.path} cannot be written: {error}") from error


def _packed(record: Record) -> bytes:
    parts = [json.dumps([record.number, record.head]).encode(), *record.blobs]
    payload = b"".join(struct.pack("<q", len(part)) + part for part in parts)
    return _MAGIC + blake2b(payload, digest_size=16).digest() + payload


def _read(file: Path) -> Record | None:
    """A record; None where it is cut short."""
    given = file.read_bytes()
    payload = given[24:]
    if given[:8] != _MAGIC or blake2b(payload, digest_size=16).digest() != given[8:24]:
        return None
    parts, at = [], 0
    while at < len(payload):
        (size,) = struct.unpack_from("<q", payload, at)
        parts.append(payload[at + 8 : at + 8 + size])
        at += 8 + size
    number, head = json.loads(parts[0])
    return Record(number, head, parts[1:])


def table_blob(table: pa.Table) -> bytes:
    """A table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def table_of(blob: bytes) -> pa.Table:
    """What `table_blob` gave."""
    return pa.ipc.open_stream(blob).read_all()


def _refuse(constant: str) -> None:
    """Take no NaN or infinity, which no version writes."""
    raise ValueError(constant)
