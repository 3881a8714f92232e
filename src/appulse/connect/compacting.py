"""Many small Parquet files of a sink made into few large ones, also while its job runs.

A merged file is written aside, with a journal of the files that it replaces. Then it is put in place, and they are
removed. A run that broke off in between is finished by the next one. The latest batch of each query is left alone: an
attempt after a crash replaces its files. A job in process writes one file a batch, without a manifest, and after a
crash writes its last one again.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import contextmanager
from itertools import chain, count, groupby
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from appulse.errors import BadArgument, StorageError
from appulse.model.durable import put_in_place, sync
from appulse.model.stored_times import as_stored, with_times

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["Compacted", "compact"]

_STAGING, _ASIDE, _LOCK = "_appulse_staging", "_appulse_compact", "lock"
_MANIFEST = re.compile(r"batch-(?P<query>.+)-(?P<number>\d{10})\.files")
_FILE = re.compile(r"batch-(?P<query>.+?)-(?P<last>\d{10})(?P<rest>-(compacted-(?P<first>\d{10})(-\d+)?|.*))?\.parquet")
_ROWS = 500_000  # of a row group, at least
_UTC = pa.timestamp("us", "UTC")


class Compacted(NamedTuple):
    """What a run made of a folder: files that it merged, files that hold their rows now, and Parquet files that stay.

    Those ``unknown`` are of no sink. Those ``waiting`` have times in 96 bits, as the latest batch, which is left alone.
    """

    files: int
    into: int
    rows: int
    unknown: int = 0
    waiting: int = 0


class _File(NamedTuple):
    query: str
    last: int
    path: Path
    first: int
    size: int


def compact(folder: Path, size: int) -> Compacted:
    """Merge files of a sink's folder into files of at least ``size`` bytes, where there are enough of them."""
    if not folder.is_dir():
        raise BadArgument(f"{folder} is not a folder of this machine. Name the folder of a Parquet sink.")
    try:
        with _alone(folder / _ASIDE) as aside:
            _finish(folder, aside)
            return _merged(folder, aside, size)
    except (OSError, pa.ArrowException) as problem:
        raise StorageError(f"{folder} could not be compacted: {problem}. No row is lost; run it again.") from problem


@contextmanager
def _alone(aside: Path) -> Iterator[Path]:
    aside.mkdir(exist_ok=True)
    with (aside / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as taken:
            raise StorageError(f"Another process compacts {aside.parent}. Wait until it has ended.") from taken
        yield aside


def _finish(folder: Path, aside: Path) -> None:
    """Do what a run that broke off had left to do, or undo what it had begun."""
    for journal in aside.glob("*.files"):
        _swap(folder, journal, place=False)
    for begun in aside.glob("*.parquet"):
        begun.unlink()


def _merged(folder: Path, aside: Path, size: int) -> Compacted:
    files = into = rows = 0
    settled, unknown, waiting = _settled(folder)
    for group in _groups(settled, size):
        name = _name(folder, group)
        rows += _write([file.path for file in group], aside / name)
        journal = aside / f"{name}.files"
        _keep(journal, "\n".join(file.path.name for file in group))
        _swap(folder, journal, place=True)
        files, into = files + len(group), into + 1
    return Compacted(files, into, rows, unknown, waiting)


def _name(folder: Path, group: Sequence[_File]) -> str:
    """Says which batches the rows are from; with a number where there is such a file, for a batch may fill several."""
    first = min(file.first for file in group)
    name = f"batch-{group[0].query}-{group[-1].last:010d}-compacted-{first:010d}"
    names = (f"{name}{more}.parquet" for more in chain([""], (f"-{i}" for i in count(1))))
    return next(free for free in names if not (folder / free).exists())


def _settled(folder: Path) -> tuple[list[_File], int, int]:
    """Files of batches before the latest of their query, in the order of batches, and how many others stay.

    Manifests are those of the latest batch that was written, and of one begun after it. A job in process has none: its
    latest batch is its last file. Times in 96 bits, which earlier versions wrote on Spark, are written anew once no
    latest batch has them: so the files of a query have one type, whenever this runs.
    """
    manifests = [named for path in (folder / _STAGING).glob("*.files") if (named := _MANIFEST.fullmatch(path.name))]
    latest: dict[str, int] = {}
    for named in manifests:
        number = int(named["number"])
        latest[named["query"]] = min(number, latest.get(named["query"], number))
    there = [entry.name for entry in os.scandir(folder) if re.fullmatch(r"[^_.].*\.parquet", entry.name)]
    files = [named for name in there if (named := _FILE.fullmatch(name))]
    for named in files:
        if named["rest"] is None:
            latest[named["query"]] = max(int(named["last"]), latest.get(named["query"], 0))
    found, newest = [], []
    for named in files:
        path, last = folder / named.string, int(named["last"])
        first = last if named["first"] is None else int(named["first"])
        if last < latest.get(named["query"], 0):
            found.append(_File(named["query"], last, path, first, path.stat().st_size))
        elif named["query"] in latest:
            newest.append(path)
    unknown = len(there) - sum(named["query"] in latest for named in files)
    waiting = {file for file in found if _is_old(file.path)} if any(map(_is_old, newest)) else set()
    return sorted(set(found) - waiting), unknown, len(waiting)


def _groups(files: Sequence[_File], size: int) -> Iterator[list[_File]]:
    """Files of one query and one schema that are merged into one; what is large enough already is not read again.

    A file with times in 96 bits is written anew in any case, so that the folder has one type.
    """
    small = [file for file in files if file.size < size or _is_old(file.path)]
    for _, mergeable in groupby(small, key=_kind):
        group: list[_File] = []
        held = 0
        for file in mergeable:
            group.append(file)
            held += file.size
            if held >= size:
                yield group
                group, held = [], 0
        if len(group) > 1 or any(_is_old(file.path) for file in group):
            yield group


def _write(sources: Sequence[Path], out: Path) -> int:
    """The rows of some files in one, batch by batch, safe on the disk; how many there are."""
    schema = _stored(sources[0])
    held: list[pa.Table] = []
    rows = waiting = 0
    with pq.ParquetWriter(out, schema) as writer:
        for source in sources:
            held.append(_read(source).cast(schema))
            waiting += held[-1].num_rows
            if waiting >= _ROWS or source is sources[-1]:
                writer.write_table(pa.concat_tables(held))
                rows, waiting, held = rows + waiting, 0, []
    if (found := pq.read_metadata(out).num_rows) != rows:
        raise StorageError(f"{out} has {found:,} of {rows:,} rows. The files that it was made of are in place.")
    sync(out)
    return rows


def _read(source: Path) -> pa.Table:
    """All rows; times in microseconds, which Spark knows, also where its files have them in 96 bits."""
    return pq.read_table(source, partitioning=None, coerce_int96_timestamp_unit="us")


def _stored(source: Path) -> pa.Schema:
    """The schema of a file as sinks write it now. Times in 96 bits, which Spark wrote before, are in UTC."""
    with pq.ParquetFile(source, coerce_int96_timestamp_unit="s") as file:  # other times of a file are finer
        return as_stored(with_times(file.schema_arrow, lambda kind: _UTC if kind.unit == "s" else kind))


def _is_old(path: Path) -> bool:
    """Whether a file has times in 96 bits."""
    columns = pq.read_metadata(path).schema
    return any(columns.column(i).physical_type == "INT96" for i in range(len(columns)))


def _kind(file: _File) -> tuple[str, pa.Schema]:
    """What files that become one have in common."""
    return file.query, _stored(file.path).remove_metadata()


def _swap(folder: Path, journal: Path, *, place: bool) -> None:
    """Put a merged file in place of those in its journal; without ``place`` only go on where that had begun."""
    name = journal.name.removesuffix(".files")
    if place:
        (journal.parent / name).rename(folder / name)
        sync(folder)
    if (folder / name).exists() and not (journal.parent / name).exists():
        for other in journal.read_text().splitlines():
            (folder / other).unlink(missing_ok=True)
        sync(folder)
    journal.unlink()


def _keep(file: Path, text: str) -> None:
    """Write a file that is there whole, or not at all."""
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    sync(fresh)
    put_in_place(fresh, file)
