"""Folders of files that grow: each file is read once, when it is there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from appulse.connect.source import Taken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from appulse.connect.files import Rows

__all__ = ["Folder"]

#: Seconds between two looks.
LOOK_EVERY = 0.1
#: Files so much older than the newest one (nanoseconds) are taken for known, as Spark does.
MOST_AGE = 7 * 86_400 * 10**9


class Folder:
    """The files that ``files`` lists now, each once.

    All files that are new come together, up to ``most``, in the order of their times, then names. An offset is what
    files have been read: their names and times of the last seven days.
    """

    def __init__(
        self,
        stream: str,
        files: Callable[[], Sequence[Path]],
        read: Callable[[list[str], pa.Schema | None], Rows],
        most: int | None,
    ) -> None:
        self._stream, self._files, self._read, self._most = stream, files, read, most
        self._seen: dict[str, int] = {}
        self._schema: pa.Schema | None = None
        self._looked = 0.0

    @property
    def streams(self) -> Sequence[str]:
        """The name of its stream."""
        return [self._stream]

    @property
    def ended(self) -> bool:
        """A folder may always grow."""
        return False

    @property
    def pending(self) -> bool:
        """Files come when somebody puts them there."""
        return False

    def begin(self, offsets: Mapping[str, Any], *, once: bool = False) -> None:  # noqa: ARG002 - others wait
        """Go on behind the files that were read."""
        self._seen = dict(offsets.get(self._stream) or {})

    def take(self, wait: float) -> Sequence[Taken]:
        """The rows of the new files, if there are any."""
        rest = self._looked + LOOK_EVERY - time.monotonic()
        if rest > 0:
            time.sleep(min(rest, wait))
            if rest > wait:
                return ()
        new = self.new()
        if len(new) != self._most:
            self._looked = time.monotonic()
        if not new:
            return ()
        rows, unreadable = self._read([name for name, _ in new], self._schema)
        self._seen |= dict(new)
        horizon = max(self._seen.values()) - MOST_AGE
        self._seen = {name: at for name, at in self._seen.items() if at >= horizon}
        if rows is None:  # all of them are empty
            return ()
        self._schema = rows.schema
        return [Taken(self._stream, rows, dict(self._seen), unreadable)]

    def new(self) -> list[tuple[str, int]]:
        """The files that were not read, with their times; at most as many as come at once."""
        horizon = max(self._seen.values(), default=MOST_AGE) - MOST_AGE
        found = []
        for file in self._files():
            name = str(file)
            try:
                at = file.stat().st_mtime_ns
            except OSError:  # it has gone in the meantime
                continue
            if name not in self._seen and at >= horizon:
                found.append((at, name))
        return [(name, at) for at, name in sorted(found)[: self._most]]

    def settle(self, offsets: Mapping[str, Any]) -> None:
        """Files stay where they are."""

    def close(self) -> None:
        """There is nothing to close."""
