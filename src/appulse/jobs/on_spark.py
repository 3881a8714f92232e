"""A job on Spark: one streaming query, what plays its recordings, and what shows it on a page."""

from __future__ import annotations

import json
from collections import deque
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlparse

from appulse.api.replaying import MAX
from appulse.connect.listing import Listing
from appulse.errors import CheckpointError, JobError, warn_tied
from appulse.jobs.feeding import Feeder
from appulse.jobs.job import build, frame_of
from appulse.jobs.sources import FilesTable, MqttTable, ReplayTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from appulse.jobs.job import Job
    from appulse.jobs.watching import Watcher

__all__ = ["run"]

_AVAILABLE_NOW = {"availableNow": True}


def run(
    job: Job,
    spark: SparkSession,
    *,
    once: bool = False,
    drain: bool = False,
    checkpoint: str | None = None,
    watcher: Watcher | None = None,
) -> StreamingQuery:
    """Start a job as a streaming query; ``once`` takes what is there now, ``drain`` also closes the checkpoint.

    The rows of a replay with a speed come when they are due; with ``once`` or ``drain`` all at once. ``watcher`` shows
    rows and answers as they come.
    """
    from appulse.engines.spark.start import Outputs, start  # only where Spark is installed

    checkpoint = checkpoint or job.checkpoint
    if checkpoint is None:
        raise JobError(f'{job.file} names no checkpoint. Add checkpoint = "folder" to it, or give --checkpoint.')
    job.check_folders(checkpoint)
    check_files(job, checkpoint)
    if not Path(checkpoint, "offsets").exists():
        warn_of_ties(job)
    feeder = _feeder(job, checkpoint)
    played = {} if feeder is None else feeder.folders
    if feeder is not None and (once or drain):
        feeder.all()
    answers = build(job, spark, played=played)
    query: Any = start(
        answers,
        Outputs(job.sink, job.rejects, [*job.alerts, *([] if watcher is None else [watcher.answered])]),
        max_state=None if job.table.limits is None else job.table.limits.state_rows,
        checkpoint=checkpoint,
        partitions=job.table.partitions,
        drain=drain,
        trigger=_AVAILABLE_NOW if once or drain else None,
    )
    if watcher is not None:
        frames = {
            name: frame_of(job, name, spark, streaming=True, played=played)
            for name, source in job.table.sources.items()
            if not isinstance(source, MqttTable)  # whose messages come once
        }
        query.close_with(watcher.follow(frames, checkpoint, None if feeder is None else feeder.clock))
    if feeder is not None:
        feeder.start(query.fail)
        query.close_with(feeder.close)
    return cast("StreamingQuery", query)


def check_files(job: Job, checkpoint: str) -> None:
    """Raise `CheckpointError` where Spark has read files that are not below a path of the job: a job that has moved.

    Spark itself notices that of folders, and not of patterns, whose files it would read again.
    """
    if "://" in checkpoint:
        return
    asked = job.table.match_queries
    changes = None if asked is None or asked.changes is None else asked.changes.path
    given = [changes, *(getattr(source, "path", None) for source in job.table.sources.values())]
    places = [job.place(path) for path in given if path is not None]
    kept = Path(checkpoint).resolve()
    for source in sorted((kept / "sources").glob("[0-9]*")):
        path = _newest_file(source)
        if path is not None and not any(path.is_relative_to(_above(place)) for place in [*places, str(kept)]):
            raise CheckpointError(
                f"The checkpoint {checkpoint} has read {path}, which is not below a path of {job.file}: "
                f"{', '.join(places)}. Spark's checkpoints hold whole paths: move the files back and read them there, "
                "to go on; or start with a new checkpoint, and new folders for what the job writes, which reads all "
                "files again."
            )


def warn_of_ties(job: Job) -> None:
    """Warn of files that Spark reads in several micro-batches, in any order: it sorts them by their dates alone."""
    for name, source in job.table.sources.items():
        if not isinstance(source, FilesTable) or source.format == "delta" or source.max_files_per_trigger is None:
            continue
        most = source.max_files_per_trigger
        listing = Listing(job.place(source.path))
        names, dates = listing.names(), []
        for file in names:
            with suppress(OSError):  # it has gone
                dates.append(Path(listing.root, file).stat().st_mtime_ns // 1_000_000)  # in milliseconds, as Spark's
        dates.sort()
        tied, begin = 0, 0
        for _, same in groupby(dates):
            end = begin + len([*same])
            tied += end - begin if begin // most != (end - 1) // most else 0
            begin = end
        if tied:
            warn_tied(tied, listing.place, name, most)


def _newest_file(source: Path) -> Path | None:
    """A file of this machine that Spark has read last, by the log of a source; None where it reads no files."""
    logs = [log for log in source.iterdir() if log.name.removesuffix(".compact").isdecimal()]
    if not logs:
        return None
    newest = max(logs, key=lambda log: (int(log.name.removesuffix(".compact")), log.name))
    with newest.open(encoding="utf-8", errors="replace") as lines:
        last = next(iter(deque(lines, maxlen=1)), "")
    try:
        entry = json.loads(last)
    except ValueError:
        return None
    path = urlparse(str(entry.get("path"))) if isinstance(entry, dict) else None
    return Path(unquote(path.path)) if path is not None and path.scheme == "file" else None


def _above(place: str) -> Path:
    """A place, or the folder above all that it names as a pattern of Spark's."""
    path = Path(place)
    while set(str(path)) & set("*?[]{}\\"):
        path = path.parent
    return path


def _feeder(job: Job, checkpoint: str) -> Feeder | None:
    """What plays the recordings of a job that Spark cannot read as files at once."""
    tables = {
        name: source
        for name, source in job.table.sources.items()
        if isinstance(source, ReplayTable) and (source.speed != MAX or source.files is None)
    }
    return Feeder(job, tables, checkpoint) if tables else None
