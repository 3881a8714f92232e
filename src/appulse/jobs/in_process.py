"""What a job asks for that only Spark can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from appulse.connect.sinks import FORMATS
from appulse.jobs.alerts import WebhookTable
from appulse.jobs.files import are_parted, files_at
from appulse.jobs.problems import Problem
from appulse.jobs.sinks import FilesSink
from appulse.jobs.sources import MqttTable, ReplayTable, SourceTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from appulse.jobs.checked import Job

__all__ = ["only_on_spark"]

_READ = ("parquet", "csv", "json", "orc")
_INSTEAD = "Set engine = 'spark' to run the job on Spark."


def only_on_spark(job: Job, checkpoint: str | None = None) -> list[Problem]:
    """Sources, sinks and alerts of a job that are not built in process; ``checkpoint`` is in place of the job's."""
    kept = job.place(checkpoint or job.table.checkpoint or "")
    found = [*_found(job), *([("checkpoint", f"{kept} is not on this machine.")] if "://" in kept else [])]
    return [Problem(where, f"{what} {_INSTEAD}") for where, what in found]


def _found(job: Job) -> Iterator[tuple[str, str]]:
    for name, source in job.table.sources.items():
        where = f"sources.{name}"
        if isinstance(source, SourceTable) and source.format in _READ:
            yield from _elsewhere(job, where, source.path)
            if are_parted(place := job.place(source.path), files_at(place)):
                yield f"{where}.path", f"{place} has files in parts, as in day=1/, whose names are columns."
        elif not isinstance(source, MqttTable | ReplayTable):
            yield f"{where}.format", f"a source of format {source.format} is not built in process."
    sinks: dict[str, Any] = {"sink": job.table.sink, "rejects": job.table.rejects}
    for where, sink in sinks.items():
        if isinstance(sink, FilesSink) and sink.format in FORMATS:
            yield from _elsewhere(job, where, sink.path)
        elif sink is not None:
            yield f"{where}.format", f"a sink of format {sink.format} is not built in process."
    for i, alert in enumerate(job.table.alerts):
        if not isinstance(alert, WebhookTable):
            yield f"alerts.{i}.format", f"alerts to {alert.format} are not built in process."


def _elsewhere(job: Job, where: str, path: str) -> Iterator[tuple[str, str]]:
    if "://" in (place := job.place(path)):
        yield f"{where}.path", f"{place} is not on this machine."
