"""Folders and topics of a job that have to be apart: where it writes, what it reads, its checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from appulse.jobs.problems import Problem
from appulse.jobs.sinks import FilesSink, TopicSink
from appulse.jobs.sources import MqttTable, ReplayTable, TopicsTable
from appulse.model.folders import clashes
from appulse.model.topics import Topics, topic_clashes

if TYPE_CHECKING:
    from collections.abc import Callable

    from appulse.jobs.tables import JobTable
    from appulse.model.folders import Clash

__all__ = ["not_apart"]


def not_apart(table: JobTable, place: Callable[[str], str], checkpoint: str | None = None) -> list[Problem]:
    """Folders of a job that are one, or of which one lies in the other, and topics that are one.

    ``checkpoint`` is in place of the job's.
    """
    sinks = {"sink.path": table.sink, "rejects.path": table.rejects}
    written = {name: place(sink.path) for name, sink in sinks.items() if isinstance(sink, FilesSink)}
    others = {f"{where}.path": data.path for where, data in table.data.items()}
    for name, one in table.sources.items():
        if isinstance(one, ReplayTable):
            others[f"sources.{name}.path"] = one.path
        if isinstance(one, MqttTable):
            others[f"sources.{name}.spool"] = one.spool
    if (kept := checkpoint or table.checkpoint) is not None:
        others["checkpoint"] = kept
    found = clashes(written, {name: place(path) for name, path in others.items()})
    return [Problem(*clash) for clash in [*found, *_topics_not_apart(table)]]


def _topics_not_apart(table: JobTable) -> list[Clash]:
    read = [Topics.of(one.servers, one.topics) for one in table.sources.values() if isinstance(one, TopicsTable)]
    alerts = {f"alerts.{i}": one for i, one in enumerate(table.alerts)}
    written, alerting = (
        {
            f"{name}.topic": Topics.of(one.servers, [one.topic])
            for name, one in sinks.items()
            if isinstance(one, TopicSink)
        }
        for sinks in ({"sink": table.sink, "rejects": table.rejects}, alerts)
    )
    return topic_clashes(written, alerting, read)
