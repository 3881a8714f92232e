"""One driver at a time on a checkpoint."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from appulse.errors import CheckpointError

if TYPE_CHECKING:
    from appulse.engines.spark.files import Folder

_NAME = "appulse.lock"
_PAUSE = 0.2  # seconds
# Of this process. `Checkpoint.check_free` refuses a second query of a session, so these may be shared.
_HELD: dict[str, _Held] = {}


class _Held:
    def __init__(self, file: IO[str]) -> None:
        self.file, self.holders = file, 0

    def name(self, holder: str) -> None:
        self.file.truncate(0)
        self.file.write(f"process {os.getpid()} on {socket.gethostname()}{holder}\n")
        self.file.flush()


class CheckpointLock:
    """A lock on a checkpoint on a disk, for as long as a query runs; it goes with the process, however that ends.

    On other stores there is none: there Spark fails the query that is second to write a batch.
    """

    def __init__(self, checkpoint: Folder, *, wait: float = 0, holder: str = "") -> None:
        """Raises `CheckpointError` if another has it for ``wait`` more seconds; ``holder`` says who has it now."""
        self._path = "" if checkpoint.local is None else str(Path(checkpoint.local, _NAME))
        if not self._path:
            return
        if self._path not in _HELD:
            checkpoint.make()
            _HELD[self._path] = _Held(_locked(Path(self._path), checkpoint.path, time.monotonic() + wait))
            _HELD[self._path].name(holder)
        _HELD[self._path].holders += 1

    def release(self) -> None:
        """Let others have the checkpoint; a second call does nothing."""
        if held := _HELD.get(self._path):
            self._path, path = "", self._path
            held.holders -= 1
            if held.holders == 0:
                del _HELD[path]
                Path(path).unlink(missing_ok=True)  # before the lock goes, so that it is this lock's file
                held.file.close()


def _locked(path: Path, checkpoint: str, deadline: float) -> IO[str]:
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            if time.monotonic() < deadline:
                time.sleep(_PAUSE)
                continue
            raise CheckpointError(
                f"The checkpoint {checkpoint} is in use by {holder}. Two queries on one checkpoint would each lose "
                "rows of the other. Stop that one first, or give another checkpoint."
            ) from None
        except OSError:  # a mounted disk without locks
            return file
        if _same(path, file):
            return file
        file.close()  # the last holder removed this file between the two calls above


def _same(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
