"""What a checkpoint belongs to: kept beside Spark's own files, checked before a query goes on from it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.errors import PySparkException

from appulse.engines.measured import END
from appulse.engines.spark.files import Folder
from appulse.engines.spark.repartition import repartitioned, respread
from appulse.engines.spark.tiling import BEGINNING, Tiling
from appulse.errors import CheckpointError, StorageError
from appulse.model.meaning import listed_differences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from appulse.engines.base import Call
    from appulse.engines.spark.results import SparkResult
    from appulse.model.meaning import Meaning

_NAME = "appulse.json"
_NEWEST = "appulse-newest"
_PASSED = "appulse-passed"
_MARK = "end-"  # earlier versions gave marks other names, and did not keep whether rows came behind them
# What is kept of a job, and what that is called. A later format reads all from `_OLDEST` on.
_FORMAT, _OLDEST = 4, 3
_NOT_THERE = ("PATH_NOT_FOUND", "FILE_NOT_EXIST")
_UNSHARED = (
    "is not one folder for this client, the server of Spark Connect and its executors. Name one that all of them reach "
    "under the same name: an absolute path on a disk that they share, or an object store."
)
# By name: the package itself stands above all layers.
_OWN: str = import_module("appulse").version


@dataclass(frozen=True)
class _Kept:
    """What appulse.json says."""

    format: int
    id: str
    closed: bool
    call: Meaning
    tiling: Tiling
    before: list[tuple[Meaning, Tiling]]  # the calls whose answers come in, the first first


class Checkpoint:
    """The description of the job that a checkpoint serves: its call, its tile plan, whether it was drained."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        self._spark = spark
        self._folder = Folder(spark, path)
        self._seen = -(1 << 62)
        self.before: list[tuple[Meaning, Tiling]] = []  # calls whose answers come in, and their tilings; once admitted
        self.id = ""  # names what this checkpoint's query writes; known once admitted

    def admit(
        self,
        call: Call[Any],
        tiling: Tiling,
        partitions: int | None,
        *,
        replanned: bool,
        tiled: bool = False,
        before: Sequence[SparkResult] = (),
    ) -> Tiling:
        """The tiling to run with: that of the checkpoint if it has one, else ``tiling``, from now on its own.

        Where the call asks for tiles of its own making (``replanned``) and the checkpoint has others, they become a
        new version, in force after the newest row there was; and where it asks for another number of ``partitions``
        of tiles of space (``tiled``). Buckets of other calls stay, over as many partitions of Spark's as are asked for.
        Raises `CheckpointError` if the checkpoint was drained, or belongs to another call. ``before`` are the calls
        whose answers come in.
        """
        stored = self._read()
        if stored is None:
            self.id = uuid4().hex[:12]
            if "offsets" in self._folder.names():
                raise CheckpointError(
                    f"{self.path} is the checkpoint of a query that ap.start did not start. Give a new folder."
                )
            self.before = [(one.call.meaning(), one.tiling) for one in before]
            self._write(call, tiling, closed=False)
            return tiling
        if stored.closed:
            raise CheckpointError(
                f"The checkpoint {self.path} was closed by a drain: its streams have ended. Start with a new one."
            )
        self.id = stored.id
        own = stored.tiling
        self._refuse_others(stored.call, call)
        if len(stored.before) != len(before):
            raise CheckpointError(
                f"The checkpoint {self.path} belongs to another job: there the answers of {len(stored.before)} calls "
                f"come in, here of {len(before)}. Restore the job, or start with a new checkpoint."
            )
        for (meaning, _), one in zip(stored.before, before, strict=True):
            self._refuse_others(meaning, one.call)
        self.before = stored.before
        self._clear_first_batch()
        if stored.format < _FORMAT:  # from now on it is this version's
            self._write(call, own, closed=False)
        if partitions is not None and not tiled:
            if call.stateful:
                respread(self._spark, self._folder, own, partitions)
        elif partitions is not None and partitions != own.latest.tiles:
            fresh = tiling.latest if replanned else own.latest.over(partitions)
            own = repartitioned(self._spark, self._folder, own, fresh, self.newest)
            self._write(call, own, closed=False)
        elif replanned:
            fresh = replace(tiling.latest, slots=own.latest.slots)
            if fresh != own.latest and fresh.tiles == own.latest.tiles:
                newest = self.newest
                own = own.followed_by(fresh, BEGINNING if newest is None else newest + 1)
                self._write(call, own, closed=False)
        return own

    def _clear_first_batch(self) -> None:
        """Remove what a query left that ended while it wrote its first offsets: Spark would not start on it."""
        names = self._folder.names("offsets")
        if names and not any(name.isdecimal() for name in names):
            self._folder.remove("offsets")

    def check_free(self) -> None:
        """Raise `CheckpointError` where a query of this session runs on it, which Spark would stop in silence."""
        own = self.query
        if own and own in [query.id for query in self._spark.streams.active]:
            raise CheckpointError(
                f"The checkpoint {self.path} is in use by query {own} of this session. Spark would stop that one to "
                "start another. Call stop() on it first (it is in spark.streams.active), or give another checkpoint."
            )

    def check_seen_by_spark(self) -> None:
        """Raise `StorageError` unless Spark finds here what this process wrote; behind Spark Connect it may not."""
        try:
            found = self._spark.read.text(f"{self.path.rstrip('/')}/{_NAME}", wholetext=True).first()
        except PySparkException as problem:
            if not any(word in str(problem) for word in _NOT_THERE):
                raise
            found = None
        if found is None or found[0] != self._folder.read(_NAME):
            raise StorageError(f"The checkpoint {self.path} {_UNSHARED}")

    def check_seen_as(self, name: str) -> None:
        """Raise `StorageError` unless the query of this checkpoint has the name."""
        stored = self._read()
        if stored is None or stored.id != name:
            raise StorageError(f"The checkpoint {self.path} {_UNSHARED}")
        self.id = name

    @property
    def folder(self) -> Folder:
        """The folder, for what an operator keeps of its own."""
        return self._folder

    @property
    def query(self) -> str:
        """Spark's name of the query whose checkpoint this is, known once it has started."""
        return str(json.loads(self._folder.read("metadata") or "{}").get("id", ""))

    @property
    def end_folder(self) -> str:
        """Where the mark of the streams' end is put; a source of the query, so it is there from the first start."""
        self._folder.make(END)
        return f"{self.path.rstrip('/')}/{END}"

    def end(self) -> None:
        """Put the mark of the streams' end, with the newest time there was.

        Each under a name of its own: Spark reads no file twice, and an earlier drain may have failed after its mark.
        """
        self._folder.write(f"{END}/{_MARK}{uuid4().hex[:12]}.json", json.dumps({"newest": self.newest or 0}))

    @property
    def ended(self) -> bool:
        """Whether there is a mark of the streams' end behind which no row came."""
        return bool(self._marks())

    def goes_on(self) -> None:
        """Rows have come: what earlier drains marked as the end was none."""
        for name in self._marks():
            self._folder.touch(f"{_PASSED}/{name}")

    def _marks(self) -> set[str]:
        marks = {name for name in self._folder.names(END) if name.startswith(_MARK)}
        return marks and marks.difference(self._folder.names(_PASSED))

    @property
    def newest(self) -> int | None:
        """The newest time (microseconds) in any batch that may have been committed."""
        return max(map(int, self._folder.names(_NEWEST)), default=None)

    def saw(self, newest: int) -> None:
        """A batch with rows up to this time is about to be committed: a file of that name, empty, says so."""
        if newest > self._seen:
            before = self._folder.names(_NEWEST)
            self._seen = max([newest, *map(int, before)])
            if str(self._seen) not in before:
                self._folder.touch(f"{_NEWEST}/{self._seen}")
            for name in before:
                if int(name) < self._seen:
                    self._folder.remove(f"{_NEWEST}/{name}")

    def close(self, call: Call[Any], tiling: Tiling) -> None:
        """Mark the streams as ended."""
        self._write(call, tiling, closed=True)

    def _refuse_others(self, kept: Meaning, call: Call[Any]) -> None:
        if not (listed := listed_differences(kept, call.meaning())):
            return
        raise CheckpointError(
            f"The checkpoint {self.path} belongs to another job:\n{listed}\n"
            "Restore the job, or start with a new checkpoint."
        )

    def _read(self) -> _Kept | None:
        text = self._folder.read(_NAME)
        if text is None:
            return None
        try:
            stored = json.loads(text)
            number = int(stored["format"])
            if number < _OLDEST:
                raise CheckpointError(
                    f"The checkpoint {self.path} was written by appulse 0.1.0, before later versions could go on from "
                    f"checkpoints (format {number}). Drain it with that version, by ap.start(..., drain=True), and go "
                    "on with a new checkpoint; or start anew with a new one."
                )
            if number > _FORMAT:
                raise CheckpointError(
                    f"The checkpoint {self.path} was written by appulse {stored['appulse']} (format {number}). This is "
                    f"appulse {_OWN}, which reads formats up to {_FORMAT}. Use appulse {stored['appulse']} or "
                    "later."
                )
            tiling = Tiling.kept(stored["tiles"])
            before = [(dict(one["call"]), Tiling.kept(one["tiles"])) for one in stored.get("before", [])]
            return _Kept(number, str(stored["id"]), bool(stored["closed"]), dict(stored["call"]), tiling, before)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CheckpointError(
                f"{self.path}/{_NAME} is damaged. Restore the checkpoint, or start with a new one."
            ) from None

    def _write(self, call: Call[Any], tiling: Tiling, *, closed: bool) -> None:
        stored = {
            "format": _FORMAT,
            "appulse": _OWN,
            "id": self.id,
            "closed": closed,
            "call": call.meaning(),
            "tiles": tiling.meaning(),
        }
        if self.before:
            stored["before"] = [{"call": call, "tiles": tiling.meaning()} for call, tiling in self.before]
        self._folder.write(_NAME, json.dumps(stored, indent=1, sort_keys=True))
