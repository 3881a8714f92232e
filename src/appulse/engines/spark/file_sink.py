"""Batches as files of a folder, each batch once, at a cost that does not grow with the files that are there."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow.dataset as ds
from pyarrow import fs

from appulse.engines.spark.failures import writing
from appulse.engines.spark.files import Folder
from appulse.engines.spark.settings import MASTER, MICROS, TIME_TYPE, get_setting
from appulse.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from appulse.engines.spark.files import Place

_STAGING = "_appulse_staging"
_COLUMNAR = frozenset({"parquet", "orc"})
_PIECE = 1 << 20


@dataclass
class FileSink:
    """Writes the batches of one query as files ``batch-QUERY-NUMBER-*`` of a folder.

    Files of a batch are staged first. A manifest of their names goes beside the staged files, then they are moved in
    place. So an attempt that follows a crash knows what the one before left, without a look through the folder. The
    folder is listed only where there is no manifest to go by: at the first batch of a query, after a checkpoint was
    restored from a copy, or after a run by a version without manifests.
    """

    kind: str
    options: dict[str, Any]
    path: str
    query: str
    counts_always: ClassVar[bool] = False
    _last: int | None = field(default=None, init=False)  # the batch written before by this run
    _folder: Folder | None = field(default=None, init=False)

    def write(self, frame: DataFrame, number: int, wanted: Callable[[], bool], rows: Callable[[], int]) -> None:
        """Write a batch in place of what earlier attempts left of it, and of later batches.

        ``wanted`` is asked once the files are staged; where it says no they are dropped, and the batch leaves nothing.
        ``rows`` is how many rows the batch has. Raises `StorageError` if the driver finds fewer.
        """
        with writing(f"the sink {self.path}"):
            folder = self._folder = self._folder or Folder(frame.sparkSession, self.path)
            staging = f"{_STAGING}/{self._name(number)}"
            writer = frame.write.format(self.kind).options(**self.options).mode("overwrite")
            staged = partial(writer.save, f"{self.path.rstrip('/')}/{staging}")
            _with_zones(frame.sparkSession, staged) if self.kind == "parquet" else staged()
            written = wanted()
            if written:
                self._check(frame, folder, staging, number, rows)
            for name in self._left_behind(folder, number):
                folder.remove(name)
            if written:
                names = [name for name in folder.names(staging) if not name.startswith(("_", "."))]
                before = self._manifests(folder)
                folder.write(self._manifest(number), "\n".join(f"{self._name(number)}-{name}" for name in names))
                for name in names:
                    folder.move(f"{staging}/{name}", f"{self._name(number)}-{name}")
                for other in before - {number}:
                    folder.remove(self._manifest(other))
            folder.remove(staging)
        self._last = number

    def _name(self, number: int) -> str:
        return f"batch-{self.query}-{number:010d}"

    def _manifest(self, number: int) -> str:
        return f"{_STAGING}/{self._name(number)}.files"

    def _manifests(self, folder: Folder) -> set[int]:
        """The batches of this query that have a manifest: the last one that was written, and one begun after it."""
        names = (re.fullmatch(rf"batch-{self.query}-(\d+)\.files", name) for name in folder.names(_STAGING))
        return {int(name[1]) for name in names if name}

    def _left_behind(self, folder: Folder, number: int) -> list[str]:
        """Files of this batch or a later one, by earlier attempts."""
        if self._last is not None and number == self._last + 1:
            return []
        known = self._manifests(folder)
        if number in known and number == max(known):
            return (folder.read(self._manifest(number)) or "").split("\n")
        if known and max(known) < number:
            return []
        named = [re.match(rf"batch-{self.query}-(\d+)-(compacted-(\d+))?", name) for name in folder.names()]
        later = [name for name in named if name and int(name[1]) >= number]
        for name in later:
            if name[3] and int(name[3]) < number:
                raise StorageError(
                    f"The checkpoint goes on from batch {number}, and {name.string} in {self.path} has batches from "
                    "before and after in one file. Go on from the newest copy of the checkpoint, or with a new one in "
                    "a new folder."
                )
        return [name.string for name in later]

    def _check(self, frame: DataFrame, folder: Folder, staging: str, number: int, rows: Callable[[], int]) -> None:
        """Raise where executors wrote to folders that the driver does not see.

        Spark itself commits what the driver finds, which may be nothing. Hadoop's stores are the same for all; those
        that Arrow reads may not be the ones that Spark wrote.
        """
        alone = folder.local is not None and get_setting(frame.sparkSession, MASTER).startswith("local")
        if folder.arrow is None or (alone and not self.counts_always):
            return
        expected = rows()
        found = _rows_in(folder.arrow, staging, self.kind, expected)
        if found >= expected:
            return
        raise StorageError(
            f"The sink {self.path} has {found:,} of the {expected:,} rows of batch {number}: executors wrote the "
            "others to folders of their own machines. Name a folder that driver and executors share, such as one on "
            "HDFS, an object store or a mounted disk, and start again with the same checkpoint: no row is lost or "
            "doubled."
        )


def _with_zones(spark: SparkSession, write: Callable[[], None]) -> None:
    """Write Parquet files with times in microseconds of UTC. Spark's default is INT96, which names no zone.

    Spark takes the type from the session alone. A micro-batch has a session of its own; on Spark Connect it is that of
    the client, and other queries that share it may set it back while this one writes.
    """
    kept = False
    while not kept:
        if (before := get_setting(spark, TIME_TYPE)) != MICROS:
            spark.conf.set(TIME_TYPE, MICROS)
        try:
            write()
        finally:
            kept = get_setting(spark, TIME_TYPE) == MICROS
            if before != MICROS:
                spark.conf.set(TIME_TYPE, before)


def _rows_in(place: Place, staging: str, kind: str, most: int) -> int:
    """How many rows the files of a folder have; of kinds that are not counted, ``most`` or none."""
    files, root = place
    infos = files.get_file_info(fs.FileSelector(f"{root}/{staging}", allow_not_found=True))
    names = [info.path for info in infos if info.is_file and not info.base_name.startswith((".", "_"))]
    if kind in _COLUMNAR:
        return sum(int(ds.dataset(name, filesystem=files, format=kind).count_rows()) for name in names)
    if kind == "json":
        return sum(_lines(files, name) for name in names)
    return most if names else 0


def _lines(files: fs.FileSystem, name: str) -> int:
    with files.open_input_stream(name) as stream:  # packed or not, by its name
        return sum(piece.count(b"\n") for piece in iter(lambda: stream.read(_PIECE), b""))
