"""A job on Spark: one streaming query, what plays its recordings, and what shows it on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from appulse.api.replaying import MAX
from appulse.errors import JobError
from appulse.jobs.feeding import Feeder
from appulse.jobs.job import build, frame_of
from appulse.jobs.sources import MqttTable, ReplayTable

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


def _feeder(job: Job, checkpoint: str) -> Feeder | None:
    """What plays the recordings of a job that Spark cannot read as files at once."""
    tables = {
        name: source
        for name, source in job.table.sources.items()
        if isinstance(source, ReplayTable) and (source.speed != MAX or source.files is None)
    }
    return Feeder(job, tables, checkpoint) if tables else None
