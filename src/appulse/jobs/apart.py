"""Folders of a job that have to be apart: where it writes, what it reads, its checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from appulse.jobs.problems import Problem
from appulse.jobs.sinks import FilesSink
from appulse.jobs.sources import MqttTable, ReplayTable
from appulse.model.folders import clashes

if TYPE_CHECKING:
    from collections.abc import Callable

    from appulse.jobs.tables import JobTable

__all__ = ["not_apart"]


def not_apart(table: JobTable, place: Callable[[str], str], checkpoint: str | None = None) -> list[Problem]:
    """Folders of a job that are one, or of which one lies in the other; ``checkpoint`` is in place of the job's."""
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
    return [Problem(*clash) for clash in clashes(written, {name: place(path) for name, path in others.items()})]
