"""The checkpoint of a resident job: a log of the rows that came, and now and then all that the call holds.

A record is written before the answers that its rows make. So after a crash the rows of the log are pushed again, and
the answers of the last record are written again, under the same number. Once they are there, `settle` says so, and no
later start writes them again: their files may have been moved on.

Files appear whole, so a crash damages none. Each record has a digest, and a record of the log says what a job needs
that goes on from it: a state, and the first record of the log. So what was damaged or removed is an error.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from appulse.errors import CheckpointError, StateError, StorageError
from appulse.model.durable import put_in_place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["REMEDY", "CheckpointFolder", "Record", "table_blob", "table_of"]

_MAGIC = b"apsv0001"
_ABOUT, _CALL, _LOG, _STATE, _LOCK = "serve.json", "call.json", "log", "state", "lock"
_SETTLED = "written"
_KEPT = "kept"  # in the head of a record: its run, and what is needed with it
_OF_SPARK = ("metadata", "offsets", "commits")
REMEDY = "Restore the checkpoint from its newest copy, or start with a new one and new folders for what the job writes."


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
        self._about: dict[str, Any] = {}
        self._state: int | None = None  # the number of the newest state
        self._first: int | None = None  # of the first record of the log that is needed; None: of the next one

    def close(self) -> None:
        """Let others have the folder."""
        self._lock.close()

    def about(self, fresh: Mapping[str, Any]) -> dict[str, Any]:
        """What was written about the job when its checkpoint was made, or ``fresh``, which is written now.

        It has a ``run``, the name of the run. Raises `StateError` where it is damaged, or missing beside records.
        """
        file = self.path / _ABOUT
        if file.exists():
            self._about = _about(file)
        elif self._numbers(_LOG) or self._numbers(_STATE):
            raise StateError(f"{file} is missing, and there are records beside it. {REMEDY}")
        else:
            self._put(file, json.dumps(fresh).encode())
            self._about = dict(fresh)
        return dict(self._about)

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

    def append(self, record: Record, needless: int | None = None) -> int:
        """Add to the log; it is safe when this returns. Records before ``needless`` are not needed with it.

        Gives the bytes written.
        """
        first = record.number if self._first is None else max(self._first, needless or 0)
        packed = _packed(self._marked(record, {"state": self._state, "first": first}))
        self._put(self._file(_LOG, record.number), packed)
        self._first = first
        if not self._about.get("begun"):  # from now on there is a log, or a state
            self._about["begun"] = True
            self._put(self.path / _ABOUT, json.dumps(self._about).encode())
        return len(packed)

    def save(self, record: Record) -> None:
        """Write all that a call holds after a number; what is older is not needed any more."""
        self._put(self._file(_STATE, record.number), _packed(self._marked(record, {})))
        self._state, self._first = record.number, None
        self._remove(_STATE, record.number)

    def settle(self, number: int) -> None:
        """Keep that the answers of a number are written, and all before them.

        It need not be on disk, or whole: without it they are written again.
        """
        with suppress(OSError):
            (self.path / _SETTLED).write_bytes(_packed(self._marked(Record(number, {}, []), {})))

    def is_settled(self, number: int) -> bool:
        """Whether `settle` was called with this number last."""
        file = self.path / _SETTLED
        known = _read(file) if file.exists() else None
        return known is not None and known.number == number and known.head[_KEPT]["run"] == self._about.get("run")

    def forget(self, before: int) -> None:
        """Remove records of the log before a number."""
        self._remove(_LOG, before)

    def read(self) -> tuple[Record | None, list[Record]]:
        """The newest state, if there is one, and the records of the log that are needed after it, in order.

        Raises `StateError` where one of them is damaged or missing.
        """
        states = self._numbers(_STATE)
        state = self._record(_STATE, states[-1]) if states else None
        numbers = [number for number in self._numbers(_LOG) if state is None or number > state.number]
        if numbers:
            newest = self._record(_LOG, numbers[-1])
            kept = newest.head.get(_KEPT, {})
            self._need(_STATE, [] if kept.get("state") is None else [kept["state"]], states)
            first = kept.get("first", numbers[0] if state is None else state.number + 1)  # early versions wrote none
            self._need(_LOG, range(first, newest.number), numbers)
            log = [*(self._record(_LOG, number) for number in range(first, newest.number)), newest]
        elif state is None and self._about.get("begun"):
            raise StateError(f"The checkpoint {self.path} has lost its log and its state. {REMEDY}")
        else:
            first, log = None, []
        self._state, self._first = None if state is None else state.number, first
        return state, log

    def _need(self, folder: str, wanted: Sequence[int], there: Sequence[int]) -> None:
        """Raise where numbers are missing."""
        if missing := sorted(set(wanted).difference(there)):
            more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise StateError(f"{self._file(folder, missing[0])} is missing{more}. {REMEDY}")

    def _marked(self, record: Record, kept: Mapping[str, Any]) -> Record:
        """A record that says which run it is of, and what is needed with it."""
        return record._replace(head=record.head | {_KEPT: {"run": self._about.get("run"), **kept}})

    def _record(self, folder: str, number: int) -> Record:
        """A record that is there; raises where it is damaged, or of another run."""
        file = self._file(folder, number)
        record = _read(file)
        if record is None or record.number != number:
            raise StateError(f"{file} is damaged: what it holds is not what was written. {REMEDY}")
        run = record.head.get(_KEPT, {}).get("run")
        if run is not None and run != self._about.get("run"):
            raise StateError(
                f"{file} is of the run {run}, and {self.path / _ABOUT} of the run {self._about.get('run')}: one is "
                f"damaged, or of another checkpoint. {REMEDY}"
            )
        return record

    def _remove(self, folder: str, before: int) -> None:
        for number in self._numbers(folder):
            if number < before:
                self._file(folder, number).unlink()

    def _file(self, folder: str, number: int) -> Path:
        return self.path / folder / f"{number:010d}"

    def _numbers(self, folder: str) -> list[int]:
        return sorted(int(file.name) for file in (self.path / folder).iterdir() if file.name.isdigit())

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


def _about(file: Path) -> dict[str, Any]:
    """What a file says about a job."""
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StateError(f"{file} cannot be read: {error}. {REMEDY}") from error
    if not isinstance(known, dict) or not isinstance(known.get("run"), str):
        raise StateError(f"{file} is damaged: it has no name of a run. {REMEDY}")
    return known


def _packed(record: Record) -> bytes:
    parts = [json.dumps([record.number, record.head]).encode(), *record.blobs]
    payload = b"".join(struct.pack("<q", len(part)) + part for part in parts)
    return _MAGIC + blake2b(payload, digest_size=16).digest() + payload


def _read(file: Path) -> Record | None:
    """A record; None where it is damaged."""
    try:
        given = file.read_bytes()
    except OSError as error:
        raise StateError(f"{file} cannot be read: {error}") from error
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
