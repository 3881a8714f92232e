"""Where a resident job writes: folders of files, each of which appears whole, and once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from appulse.connect.as_text import for_csv, json_lines
from appulse.errors import CheckpointError, StorageError
from appulse.model.durable import put_in_place
from appulse.model.stored_times import as_stored

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FORMATS", "FolderSink", "Sink"]

FORMATS = ("parquet", "json", "csv")
_ROWS = 1 << 16  # of JSON at a time


class Sink(Protocol):
    """What takes answers, or rejects.

    `begin` is called once, then `write` with rising numbers. After a crash it may be called again with the last number,
    and the same rows: a sink that knows them by the number writes them once.
    """

    def begin(self, number: int) -> None:
        """Writes from ``number`` on follow.

        Raises `CheckpointError` where the sink has some of them already, `StorageError` where it takes none.
        """
        ...

    def write(self, number: int, rows: pa.Table) -> None:
        """Write rows; they are safe when it returns. Raises `StorageError`."""
        ...

    def close(self) -> None:
        """The job has ended."""
        ...


class FolderSink:
    """A file for each number, ``batch-RUN-NUMBER.parquet``: written under another name, then renamed."""

    def __init__(self, kind: str, path: str, run: str, options: Mapping[str, Any] | None = None) -> None:
        self._kind, self._folder, self._run = kind, Path(path), run
        self._looked = False  # for merged files
        self._header = str((options or {}).get("header", "")).lower() == "true"

    def begin(self, number: int) -> None:
        """Raise where nothing can be written, or files of this number or later are there, of a newer checkpoint."""
        self._check_place()
        self._check_compacted(number)
        names = [file.name for file in self._folder.glob(f"batch-{self._run}-*")]
        later = sorted(name for name in names if self._number(name) >= number)
        if later:
            raise CheckpointError(
                f"The checkpoint goes on from write {number}, and {self._folder} has that and later ones: {len(later)} "
                f"files, from {later[0]} on. It is an older copy, or lacks its newest records, and their rows would be "
                "there twice. Go on from its newest copy. If this is the newest, remove these files: their rows come "
                "again, also for readers who have them."
            )

    def write(self, number: int, rows: pa.Table) -> None:
        """Write the file of this number, in place of one that is there."""
        name = f"batch-{self._run}-{number:010d}.{self._kind}"
        hidden = self._folder / f".{name}"
        if not self._looked:
            self._check_compacted(number)
            self._looked = True
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with hidden.open("wb") as file:
                _WRITERS[self._kind](rows, file, self._header)
                file.flush()
                os.fsync(file.fileno())
            put_in_place(hidden, self._folder / name)
        except (OSError, pa.ArrowException) as error:
            raise StorageError(f"The sink {self._folder} cannot be written: {error}") from error

    def _check_place(self) -> None:
        """Raise where the folder cannot be written, or made: it is made with the first file."""
        try:
            place = next(one for one in (self._folder, *self._folder.absolute().parents) if one.exists())
        except OSError as error:
            raise StorageError(f"The sink {self._folder} cannot be written: {error}") from error
        if not place.is_dir():
            raise StorageError(f"The sink {self._folder} cannot be written: {place} is a file, not a folder.")
        if not os.access(place, os.W_OK | os.X_OK):
            raise StorageError(
                f"The sink {self._folder} cannot be written: this process may not write to {place}, or it is read-only."
            )

    def _check_compacted(self, number: int) -> None:
        """Raise where a merged file has what is to be written again, as after a checkpoint was restored from a copy."""
        for file in self._folder.glob(f"batch-{self._run}-*-compacted-*.{self._kind}"):
            if self._number(file.name) >= number:
                raise StorageError(
                    f"The checkpoint goes on from write {number}, and {file.name} in {self._folder} has that and later "
                    "ones. Go on from the newest copy of the checkpoint, or with a new one in a new folder."
                )

    def _number(self, name: str) -> int:
        """The number of a file of this run, the last one where it has those of several; -1: it is none."""
        digits = name.removeprefix(f"batch-{self._run}-")[:10]
        return int(digits) if digits.isdecimal() else -1

    def close(self) -> None:
        """Each file is closed when it is written."""


def _write_parquet(rows: pa.Table, file: Any, _: bool) -> None:  # noqa: FBT001 - one of three writers
    import pyarrow.parquet as pq

    pq.write_table(rows.cast(as_stored(rows.schema)), file)


def _write_csv(rows: pa.Table, file: Any, header: bool) -> None:  # noqa: FBT001 - one of three writers
    from pyarrow import csv

    csv.write_csv(for_csv(rows), file, csv.WriteOptions(include_header=header))


def _write_json(rows: pa.Table, file: Any, _: bool) -> None:  # noqa: FBT001 - one of three writers
    for batch in rows.to_batches(max_chunksize=_ROWS):
        for line in json_lines(batch):
            file.write(line.encode() + b"\n")


_WRITERS: dict[str, Any] = {"parquet": _write_parquet, "csv": _write_csv, "json": _write_json}
