"""Recordings of several streams, played again by one clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from appulse.api.replaying import BETWEEN, Pace, Recording
from appulse.connect.source import Taken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from appulse.connect.source import Unreadable

__all__ = ["Recorded"]

#: Rows at a time where nothing has to wait.
_ROWS = 8_192


class Recorded:
    """Recordings by stream; an offset is how many rows of a stream have come, in order of time."""

    def __init__(
        self,
        recordings: Mapping[str, Recording],
        pace: Pace,
        unreadable: Mapping[str, Sequence[tuple[int, Unreadable]]] | None = None,
        rows: int | None = None,
    ) -> None:
        self._recordings, self.pace, self._rows = dict(recordings), pace, rows or _ROWS
        self._unreadable = dict(unreadable or {})  # with how many rows come before each
        self._at = dict.fromkeys(self._recordings, 0)
        self._last = 0.0

    @property
    def streams(self) -> Sequence[str]:
        return list(self._recordings)

    def schema(self, name: str) -> pa.Schema:
        """The columns of a stream."""
        return self._recordings[name].table.schema

    @property
    def ended(self) -> bool:
        """Whether all rows have come."""
        return all(self._at[name] >= len(one) for name, one in self._recordings.items())

    @property
    def pending(self) -> bool:
        """Rows come when they are due."""
        return not self.ended

    def begin(self, offsets: Mapping[str, Any], *, once: bool = False) -> None:  # noqa: ARG002 - others wait
        """Go on behind these rows: the next one of all streams is due at once."""
        self._at |= {name: int(offset) for name, offset in offsets.items() if name in self._at}
        if not self.ended:
            self.pace.begin(self._next())

    def take(self, wait: float) -> Sequence[Taken]:
        """The rows that are due."""
        if self.ended:
            time.sleep(wait)
            return ()
        rest = max(self.pace.until(self._next()), self._last + BETWEEN - time.monotonic() if self.pace.waits else 0.0)
        if rest > 0:
            time.sleep(min(rest, wait))
        now = min(self.pace.now(), self._furthest())
        found = []
        for name, one in self._recordings.items():
            rows = one.until(self._at[name], now, len(one))
            if len(rows):
                before = self._at[name]
                self._at[name] += len(rows)
                found.append(Taken(name, rows, self._at[name], self._between(name, before, self._at[name])))
        if found:
            self._last = time.monotonic()
        return found

    def settle(self, offsets: Mapping[str, Any]) -> None:
        """A file keeps its rows."""

    def close(self) -> None:
        """There is nothing to close."""

    def _between(self, name: str, before: int, after: int) -> list[Unreadable]:
        """What is no row and comes with some rows: before the first one, or behind one of them."""
        return [bad for at, bad in self._unreadable.get(name, ()) if before < at <= after or at == before == 0]

    def _next(self) -> int:
        """The time of the next row of all."""
        return min(int(one.due[self._at[name]]) for name, one in self._left())

    def _furthest(self) -> int:
        """Up to when at most the streams are read now, so that they go on together."""
        return min(int(one.due[min(self._at[name] + self._rows, len(one)) - 1]) for name, one in self._left())

    def _left(self) -> list[tuple[str, Recording]]:
        return [(name, one) for name, one in self._recordings.items() if self._at[name] < len(one)]
