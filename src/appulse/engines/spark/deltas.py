"""Deltas of a tile's log: their format, and the last ones as files for the other workers of the machine.

Spark gives a tile to any worker. One that did not see its last micro-batches has to catch up, and large deltas take far
longer to read from Spark's state than from a file.
"""

from __future__ import annotations

import os
import shutil
import struct
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from appulse.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Sequence

REMEDY = "Restore the checkpoint from a copy, or start with a new one."
#: The digest before the first delta.
NO_DIGEST = bytes(8)
_HEAD = struct.Struct("<4sIqB8s8s")  # magic, parts, newest time, whole, digest of the delta before, and its own
#: Bytes before a delta's payload.
HEAD = _HEAD.size
_SIGNED = HEAD - 8  # all but its own digest
_MAGIC = b"apdl"
# Smaller ones are read from the state as fast. The last few are what a worker has missed that has seen the tile before.
_LARGE, _KEPT = 1 << 16, 8
_FORGET_AFTER = 900.0  # seconds; queries end without a word to their workers


class Delta(NamedTuple):
    """What a micro-batch did, in so many parts of the log; a ``whole`` one is all there is."""

    parts: int
    newest: int
    whole: bool
    before: bytes
    digest: bytes


def signed(payload: bytes, parts: int, newest: int, before: bytes, *, whole: bool) -> tuple[bytes, bytes]:
    """The head of a delta, and the digest in it."""
    head = _HEAD.pack(_MAGIC, parts, newest, whole, before, NO_DIGEST)[:_SIGNED]
    digest = _digest(head, payload)
    return head + digest, digest


def read_head(head: bytes, version: int) -> Delta:
    """What stands at the beginning of a delta. Raises ``StateError`` if it is none."""
    if len(head) < HEAD or head[:4] != _MAGIC:
        raise StateError(f"Delta {version} of a tile begins with {head[:4]!r}: it is not a delta. {REMEDY}")
    _, parts, newest, whole, before, digest = _HEAD.unpack(head)
    return Delta(parts, newest, whole, before, digest)


def is_intact(head: bytes, payload: bytes) -> bool:
    """Whether a delta has the digest that its head says."""
    return _digest(head[:_SIGNED], payload) == head[_SIGNED:]


def _digest(head: bytes, payload: bytes) -> bytes:
    digest = blake2b(head, digest_size=8)
    digest.update(payload)
    return digest.digest()


class RecentDeltas:
    """The last deltas of tiles as files, which are named by version and digest: those of failed attempts are others.

    What cannot be written or read is left to the log.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of_task(cls) -> RecentDeltas | None:
        """Those of a Spark application on this machine, which deletes them at its end; None outside of a task."""
        from pyspark import TaskContext  # here: kernels are compiled without Spark, too

        if TaskContext.get() is None:
            return None
        from pyspark import SparkFiles  # which the client of Spark Connect does not have

        return cls(Path(SparkFiles.getRootDirectory()) / "appulse-deltas")

    def put(self, tile: Sequence[str], version: int, head: bytes, payload: bytes) -> None:
        """Keep a delta, and no longer those that are far behind it."""
        if len(payload) < _LARGE:
            return
        folder = self._of(tile)
        with suppress(OSError, ValueError):  # file systems have files of their own, too
            if not folder.exists():
                self._sweep()
                folder.mkdir(parents=True, exist_ok=True)
            path = folder / _name(version, head[_SIGNED:])
            unfinished = path.with_suffix(f".{os.getpid()}")
            with unfinished.open("wb") as file:
                file.write(head)
                file.write(payload)
            unfinished.replace(path)
            for other in os.scandir(folder):
                if int(other.name.partition("-")[0]) <= version - _KEPT:
                    Path(other.path).unlink(missing_ok=True)

    def chain(self, tile: Sequence[str], version: int, digest: bytes, after: int) -> dict[int, Path]:
        """The files of a version and of those before it, as far back as there are any, by version."""
        folder, found = self._of(tile), {}
        with suppress(OSError, StateError):
            while version > after:
                path = folder / _name(version, digest)
                with path.open("rb") as file:
                    digest = read_head(file.read(HEAD), version).before
                found[version] = path
                version -= 1
        return found

    def _of(self, tile: Sequence[str]) -> Path:
        return self._folder / blake2b("\n".join(tile).encode(), digest_size=16).hexdigest()

    def _sweep(self) -> None:
        """Delete what queries left that seem to have ended."""
        for folder in self._folder.iterdir() if self._folder.exists() else ():
            if time.time() - folder.stat().st_mtime > _FORGET_AFTER:
                shutil.rmtree(folder, ignore_errors=True)


def read_file(path: Path) -> tuple[bytes, bytes] | None:
    """Head and payload of a delta that was kept; None if it is gone, or not as it was written."""
    with suppress(OSError), path.open("rb") as file:
        head, payload = file.read(HEAD), file.read()
        return (head, payload) if is_intact(head, payload) else None
    return None


def _name(version: int, digest: bytes) -> str:
    return f"{version}-{digest.hex()}"
