"""What a job will need, estimated on some rows of its own files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from appulse.api.planning import in_order, planned, some_of
from appulse.connect.files import undecoded
from appulse.errors import JobError, nearest
from appulse.jobs.by_hand import by_hand, dataset_of, is_read_here
from appulse.jobs.files import files_at
from appulse.jobs.sources import DataTable, ReplayTable
from appulse.model.times import to_micros

if TYPE_CHECKING:
    from collections.abc import Iterator

    from appulse.connect.files import LineFiles
    from appulse.connect.source import Unreadable
    from appulse.engines.planning import Plan
    from appulse.jobs.job import Job
    from appulse.kernels.arrays import Ints
    from appulse.model.stream import Stream

__all__ = ["plan_job", "untried"]

#: Times that are read of each source, to know how many rows come when.
_MOST_TIMES = 4_000_000
_NEVER = np.iinfo(np.int64).max


def plan_job(
    job: Job,
    *,
    samples: Mapping[str, Path] | None = None,
    rate: float | Mapping[str, float] | None = None,
    memory: float | None = None,
    cores: int | None = None,
    engine: str | None = None,
) -> Plan:
    """The plan of a job, tried in this process on rows of its files; see `appulse.plan`.

    ``samples`` are files in place of those of sources, by name: for topics, and for folders that are empty yet. What is
    not given is taken from the job's ``[limits]`` and ``engine``. Raises `JobError` where a source has no rows to try.
    """
    limits = job.table.limits
    engine = engine or ("process" if job.table.engine == "local" else "spark")
    if limits is not None:
        rate, memory, cores = rate or limits.rate, memory or limits.bytes, cores or limits.cores
    speed = 1.0 if rate else _speed(job)
    files = _Files(job, samples or {})
    plan = planned(by_hand(job), files, rate=rate, memory=memory, cores=cores, engine=engine, speed=speed)
    if limits is not None and limits.state_rows is not None and plan.state_rows > limits.state_rows:
        plan = plan.refused(f"it holds {plan.state_rows:,} rows, and [limits] has state_rows = {limits.state_rows:,}")
    lost = tuple(f"{name}: {undecoded(lines)}" for name, lines in files.unreadable.items())
    return replace(plan.named(job.table.operator), notes=(*plan.notes, *lost))


def untried(job: Job) -> list[str]:
    """The sources that have no rows which a plan could try: topics, empty folders, files that Spark alone reads."""
    return [name for name in job.table.sources if not _has_rows(job, name)]


def _has_rows(job: Job, name: str) -> bool:
    where = f"sources.{name}"
    data = job.table.data.get(where)
    if data is None or not is_read_here(job, data):
        return False
    try:
        return len(dataset_of(job, data, where).head(1)) > 0
    except JobError:  # Spark may read them
        if job.table.engine == "local":
            raise
        return False


def _speed(job: Job) -> float:
    """How much faster than their own times rows are replayed; as fast as possible is not known."""
    speeds = [source.speed for source in job.table.sources.values() if isinstance(source, ReplayTable)]
    return next((float(speed) for speed in speeds if not isinstance(speed, str)), 1.0)


class _Files:
    """Rows of the files of a job's sources."""

    def __init__(self, job: Job, samples: Mapping[str, Path]) -> None:
        sources = job.table.sources
        for name in samples:
            if name not in sources:
                raise JobError(f"--sample names {name!r}, which is not a source.{nearest(name, sources)}")
        self._streams: dict[str, Stream] = dict(zip(sources, job.table.streams(), strict=True))
        self._parts: dict[str, list[_Part]] = {}
        self.times: dict[str, Ints] = {}
        self.unreadable: dict[str, list[Unreadable]] = {}  # lines that are no rows
        for name, stream in self._streams.items():
            data = _dataset(job, name, samples.get(name))
            if stream.time not in data.schema.names:
                raise JobError(
                    f"sources.{name}: its files have no column {stream.time!r}."
                    f"{nearest(stream.time, data.schema.names)}"
                )
            self._parts[name], self.times[name], lost = _times(data, stream)
            if lost:
                self.unreadable[name] = lost
        self.batch = max((one for one in map(self._batch, sources.items()) if one), default=None)

    def _batch(self, source: tuple[str, Any]) -> int | None:
        """How long a time of a source a micro-batch takes in, where the job says how many files it does."""
        name, table = source
        files = getattr(table, "max_files_per_trigger", None)
        if files is None:
            return None
        # Between files there may be nothing, as at night; files of one time come one after the other all the same.
        starts = np.sort([one.first for one in self._parts[name]])
        apart = starts[files:] - starts[:-files] if len(starts) > files else [self.times[name][-1] - starts[0]]
        lasts = [one.last - one.first for one in self._parts[name]]
        return max(1, int(np.median(apart)), int(np.median(lasts)))

    def read(self, begin: int, end: int, keep: Mapping[str, tuple[str, float]]) -> dict[str, pa.Table]:
        """The rows of a stretch of time, in order; only files that have some are read."""
        found = {}
        for name, stream in self._streams.items():
            parts = []
            for part in self._parts[name]:
                if part.first >= end or part.last < begin:
                    continue
                for batch in part.batches():
                    micros = _micros(batch.column(stream.time), stream)
                    inside = pa.array((micros >= begin) & (micros < end))
                    rows = pa.Table.from_batches([batch.filter(inside)])
                    parts.append(some_of(rows, *keep[name]) if name in keep else rows)
            none = next(iter(self._parts[name][0].batches())).slice(0, 0)
            whole = pa.concat_tables(parts or [pa.Table.from_batches([none])], promote_options="permissive")
            found[name] = in_order(whole, stream)[0]
        return found


class _Part:
    """A file, and the times in it that are known."""

    def __init__(self, fragment: Any, first: int, last: int) -> None:
        self._fragment, self.first, self.last = fragment, first, last

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its rows, with what the names of its folders say."""
        named = ds.get_partition_keys(self._fragment.partition_expression)
        for batch in self._fragment.to_batches():
            for name, value in named.items():
                batch = batch.append_column(name, pa.repeat(value, len(batch)))  # noqa: PLW2901 - with one more
            yield batch.replace_schema_metadata()  # an index of pandas is a column of a source, as on Spark


def _dataset(job: Job, name: str, sample: Path | None) -> ds.Dataset | LineFiles:
    source: Any = job.table.sources[name]
    if sample is None:
        if isinstance(source, ReplayTable) and source.files is not None:
            source = source.files
        if not isinstance(source, DataTable):
            raise JobError(
                f"sources.{name} is no files: nothing can be tried before it runs. Give a file of typical rows: "
                f"--sample {name}=FILE."
            )
        return dataset_of(job, source, f"sources.{name}")
    kind = sample.suffix.lower().lstrip(".") or "parquet"
    files = files_at(str(sample))
    if not files:
        raise JobError(f"--sample {name}: there are no files at {sample}.")
    try:
        return ds.dataset([str(file) for file in files], format={"jsonl": "json", "ndjson": "json"}.get(kind, kind))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise JobError(f"--sample {name}: {sample} cannot be read: {error}") from error


def _times(data: ds.Dataset | LineFiles, stream: Stream) -> tuple[list[_Part], Ints, list[Unreadable]]:
    """The files of a source as far as their times are read, these in order, and lines that are no rows."""
    parts, found, count, rows = [], [], 0, 0
    lost: list[Unreadable] = []
    for fragment in data.get_fragments():
        own = [_micros(batch.column(stream.time), stream) for batch in fragment.to_batches(columns=[stream.time])]
        micros = np.concatenate([np.zeros(0, np.int64), *own])
        lost += getattr(fragment, "unreadable", [])
        rows += len(micros)
        micros = micros[micros < _NEVER]
        if len(micros):
            parts.append(_Part(fragment, int(micros.min()), int(micros.max())))
            found.append(micros)
            count += len(micros)
        if count >= _MOST_TIMES:
            break
    if not parts:
        have = f"{rows:,} rows, none of which has a time in {stream.time!r}" if rows else "no rows"
        why = f" {undecoded(lost)}." if lost else ""
        raise JobError(f"The files of stream {stream.name!r} have {have}: nothing can be tried.{why}")
    return parts, np.sort(np.concatenate(found)), lost


def _micros(column: pa.Array, stream: Stream) -> Ints:
    """Times in microseconds; where there is none, one that is in no stretch."""
    micros, null, strange = to_micros(column, stream.unit)
    return np.where(null | strange, _NEVER, micros) if (null | strange).any() else micros
