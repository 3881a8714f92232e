"""Folders of files that grow: each file is read once, by its name, when it is there."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from appulse.connect.listing import Listing, relative
from appulse.connect.source import Grows, Taken
from appulse.errors import CheckpointError, warn_grown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from appulse.connect.files import Rows

__all__ = ["Folder", "Named"]

#: Seconds between two looks, and how many times as long as a look takes.
LOOK_EVERY, TIMES = 0.1, 5
#: Seconds between two looks at all names, also where the times of folders say that nothing is new.
WHOLE_EVERY = 5.0
#: Seconds after which the name of a file is forgotten that has gone.
FORGET_AFTER = 7 * 86_400
#: The files that were read last, whose sizes are looked at: who adds to a file mostly adds to a new one.
WATCHED = 100
#: Files so much older than the newest one (nanoseconds) were taken for known by versions that kept whole paths.
_MOST_AGE = 7 * 86_400 * 10**9


class Named(NamedTuple):
    """The path of a source as its job file has it, and the place that is: by its own name, and without links."""

    path: str
    plain: str
    place: str


class Folder:
    """The files at a path, each once.

    All files that are new come together, up to ``most``, in the order of their times, then names. An offset is which
    files have been read: their names in the folder, each with 0, or with the time since when it has gone.
    """

    def __init__(
        self,
        stream: str,
        named: Named,
        read: Callable[[list[str], pa.Schema | None, bool], Rows],
        most: int | None,
        columns: pa.Schema | None = None,
    ) -> None:
        """``read`` takes files, the columns of those before, and whether all are read; ``columns`` are known before."""
        self._stream, self._named, self._read, self._most = stream, named, read, most
        self._columns = columns
        self._listing = Listing(named.place)
        self._there: set[str] = set()  # names of files that were read
        self._gone: dict[str, int] = {}  # those of them whose files have gone, and since when
        self._changes: list[tuple[str, int | None]] | None = None  # that a checkpoint has not; None: it has nothing yet
        self._waiting: deque[tuple[int, str]] = deque()  # files to be read, with their times
        self._sizes: dict[str, int] = {}  # of the files that were read last
        self._older = 0  # older ones were read before
        self._all = False  # whether all columns are read, as for a checkpoint that has them all
        self._schema: pa.Schema | None = None
        self._next = self._whole = 0.0  # when to look again, and when at all names

    @property
    def streams(self) -> Sequence[str]:
        """The name of its stream."""
        return [self._stream]

    @property
    def columns(self) -> pa.Schema | None:
        """The columns of its rows, where they are known before any comes."""
        return self._columns

    @property
    def ended(self) -> bool:
        """A folder may always grow."""
        return False

    @property
    def pending(self) -> bool:
        """Whether files were found that have not been read."""
        return bool(self._waiting)

    def begin(self, offsets: Mapping[str, Any], *, once: bool = False) -> None:  # noqa: ARG002 - others wait
        """Go on behind the files that were read; raises `CheckpointError` where they were others'."""
        given = offsets.get(self._stream)
        if not given:
            return
        if "place" not in given:
            self._begin_with_paths(given)
            return
        if given["path"] != self._named.path and given["place"] != self._named.place:
            raise self._elsewhere(given["path"], given["place"])
        self._gone = {name: since for name, since in given["names"].items() if since}
        self._there = given["names"].keys() - self._gone.keys()
        self._changes, self._all = [], given["all"]

    def take(self, wait: float) -> Sequence[Taken]:
        """The rows of the new files, if there are any."""
        rest = self._next - time.monotonic()
        if rest > 0 and not self._waiting:
            time.sleep(min(rest, wait))
            if rest > wait:
                return ()
        if rest <= 0 or not self._waiting:
            self._look()
        root = Path(self._listing.root)
        new: list[str] = []
        while self._waiting and (self._most is None or len(new) < self._most):
            _, name = self._waiting.popleft()
            with suppress(OSError):  # it comes when it is there again
                self._sizes[name] = (root / name).stat().st_size
                new.append(name)
        if not new:
            return ()
        rows, unreadable = self._read([str(root / name) for name in new], self._schema, self._all)
        self._there.update(new)
        self._changed((name, 0) for name in new)
        if rows is None:  # all of them are empty
            return ()
        self._schema = rows.schema
        about = {"path": self._named.path, "place": self._named.place, "all": self._all}
        return [Taken(self._stream, rows, Grows(about, self._entries), unreadable)]

    def settle(self, offsets: Mapping[str, Any]) -> None:
        """Files stay where they are."""

    def close(self) -> None:
        """There is nothing to close."""

    def _look(self) -> None:
        """Find the files that are new, and those that have gone."""
        begun = time.monotonic()
        if begun >= self._whole or not self._listing.unchanged:
            self._whole = begun + WHOLE_EVERY
            self._found(self._listing.names())
            self._warn_of_growth()
        ended = time.monotonic()
        self._next = ended + max(LOOK_EVERY, TIMES * (ended - begun))

    def _warn_of_growth(self) -> None:
        """Warn of files that have more in them than when they were read, of each once."""
        self._sizes = dict([*self._sizes.items()][-WATCHED:])
        for name, size in [*self._sizes.items()]:
            file = Path(self._listing.root, name)
            with suppress(OSError):  # it has gone
                if file.stat().st_size > size:
                    del self._sizes[name]
                    warn_grown(str(file))

    def _found(self, names: set[str]) -> None:
        now = int(time.time())
        back = self._gone.keys() & names
        lost = self._there - names
        over = [name for name, since in self._gone.items() if now - since > FORGET_AFTER and name not in back]
        self._changed((name, 0) for name in back)
        self._changed((name, now) for name in lost)
        self._changed((name, None) for name in over)
        for name in (*back, *over):
            del self._gone[name]
        self._there |= back
        self._there -= lost
        self._gone |= dict.fromkeys(lost, now)
        self._queue(names - self._there - {name for _, name in self._waiting})

    def _queue(self, names: set[str]) -> None:
        """Have files read in the order of their times."""
        root, fresh = Path(self._listing.root), []
        for name in names:
            try:
                at = (root / name).stat().st_mtime_ns
            except OSError:  # it has gone in the meantime
                continue
            if at < self._older:
                self._there.add(name)
                self._changed([(name, 0)])
            else:
                fresh.append((at, name))
        self._older = 0
        if fresh:
            self._waiting = deque(sorted([*self._waiting, *fresh]))

    def _changed(self, entries: Iterable[tuple[str, int | None]]) -> None:
        if self._changes is not None:
            self._changes += entries

    def _entries(self, whole: bool) -> Sequence[tuple[str, int | None]]:  # noqa: FBT001 - as `Grows` has it
        """The files that were read, or what has changed of them since the last call."""
        changes, self._changes = self._changes, []
        if whole or changes is None:
            return [*((name, 0) for name in self._there), *self._gone.items()]
        return changes

    def _begin_with_paths(self, given: Mapping[str, int]) -> None:
        """Go on where earlier versions ended: they kept all columns, and whole paths of files of seven days."""
        places = (self._named.place, self._named.plain)
        for path in given:
            name = next(filter(None, (relative(path, place) for place in places)), None)
            if name is None:
                folder = str(Path(path).parent)
                raise self._elsewhere(folder, folder)
            self._there.add(name)
        self._older, self._all = max(given.values()) - _MOST_AGE, True

    def _elsewhere(self, path: str, place: str) -> CheckpointError:
        kept = path if path == place else f"{path} ({place})"
        return CheckpointError(
            f"The checkpoint has read the files of source {self._stream!r} at {kept}, and the job file now names "
            f"{self._named.path} ({self._named.place}). To go on, name {path} again: it may be a link to where the "
            "files are now. Or start with a new checkpoint, and new folders for what the job writes: it reads all."
        )
