"""The sources and sinks of a job that runs in this process."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from appulse.api.mqtt import MqttReader
from appulse.api.replaying import MAX, Pace, Recording
from appulse.connect.alerting import Alerting
from appulse.connect.decoders import decode_lines
from appulse.connect.files import Rows, read_files
from appulse.connect.folder import Folder, Named
from appulse.connect.messages import Messages
from appulse.connect.recorded import Recorded
from appulse.connect.sinks import FolderSink
from appulse.engines.alerts import Webhook
from appulse.engines.decoding import check_readable
from appulse.errors import BadArgument, JobError
from appulse.jobs.by_hand import form_of
from appulse.jobs.fields import options_of
from appulse.jobs.named import named_in
from appulse.jobs.sources import MqttTable, ReplayTable, SourceTable, TopicsTable
from appulse.model.ddl import columns_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from appulse.connect.sinks import Sink
    from appulse.connect.source import Source, Unreadable
    from appulse.jobs.job import Job

__all__ = ["no_rows", "recorded", "sinks_of", "sources_of"]


def sources_of(job: Job) -> list[Source]:
    """What the streams of a job read; raises `JobError`."""
    found: list[Source] = []
    replayed: dict[str, ReplayTable] = {}
    for name, table in job.table.sources.items():
        if isinstance(table, ReplayTable):
            replayed[name] = table
        elif isinstance(table, MqttTable):
            schema = _columns(job, name, table.schema_)
            check_readable(schema)
            reader = MqttReader(**table.reading(), spool=job.place(table.spool))
            found.append(Messages(name, reader, schema, table.max_messages_per_trigger))
        elif isinstance(table, SourceTable):
            found.append(_folder(job, name, table))
    return [*found, *([recorded(job, replayed)] if replayed else [])]


def sinks_of(job: Job, run: str) -> tuple[Sink, Sink | None]:
    """Where answers and rejects of a job go; ``run`` is a part of the names of files."""
    rejects = None if job.table.rejects is None else _sink(job, job.table.rejects, run)
    return _alerting(job, _sink(job, job.table.sink, run)), rejects


def _alerting(job: Job, sink: Sink) -> Sink:
    """The sink of a job's answers, which also posts them where the job has alerts."""
    hooks = []
    for _, given in job.alerts:
        options = dict(given)
        only = options.pop("only")
        hooks.append((only, Webhook.of(options, f"{job.checkpoint or job.file.with_suffix('')}.dead.jsonl")))
    return Alerting(sink, job.file.stem, hooks) if hooks else sink


def _folder(job: Job, name: str, table: SourceTable) -> Folder:
    where = f"sources.{name}.path"
    schema = None if table.schema_ is None else _columns(job, name, table.schema_)
    form = replace(form_of(table), only=named_in(job))

    def read(files: Sequence[str], known: pa.Schema | None, whole: bool) -> Rows:  # noqa: FBT001 - as `Folder` has it
        own = replace(form, only=None) if whole else form
        return read_files(files, own, schema if known is None else known, f"{job.file}: {where}")

    only = None if form.of_lines else form.only
    columns = None if schema is None else pa.schema([one for one in schema if only is None or only(one.name)])
    return Folder(name, _named(job, table.path), read, table.max_files_per_trigger, columns)


def _named(job: Job, path: str) -> Named:
    plain = path.removeprefix("file://") if path.startswith("file:///") else path
    unresolved = os.path.abspath(job.file.parent / Path(plain).expanduser())  # noqa: PTH100 - links stay
    return Named(path, unresolved, job.place(path))


def recorded(job: Job, tables: Mapping[str, ReplayTable], rows: int | None = None) -> Recorded:
    """The recordings of a job, by one clock; ``rows`` are read at a time where nothing has to wait."""
    (speed,) = {table.speed for table in tables.values()}
    recordings: dict[str, Recording] = {}
    unreadable: dict[str, list[tuple[int, Unreadable]]] = {}
    for name, table in tables.items():
        place = Path(job.place(table.path))
        if table.decode is None:
            recordings[name] = Recording.of(place, table.time, table.unit)
        else:
            recordings[name], unreadable[name] = _decoded(job, name, table, place)
    return Recorded(recordings, Pace(speed if speed == MAX else float(speed)), unreadable, rows)


def _decoded(job: Job, name: str, table: ReplayTable, place: Path) -> tuple[Recording, list[tuple[int, Unreadable]]]:
    """The rows of a file of lines, and what is none, each with how many rows come before it."""
    where = f"{job.file}: sources.{name}.path"
    try:
        with place.open(encoding="utf-8", errors="replace") as lines:
            decoded = decode_lines(table.decode or "", lines)
    except OSError as error:
        raise JobError(f"{where}: {place} cannot be read: {error}") from error
    if not len(decoded.rows):
        first = f" The first line that is none: {decoded.unreadable[0][1].detail}." if decoded.unreadable else ""
        raise JobError(f"{where}: {place} has no position of {table.decode}.{first}")
    return Recording.of(decoded.rows, table.time, table.unit), decoded.unreadable


def _sink(job: Job, table: Any, run: str) -> Sink:
    return FolderSink(table.format, job.place(table.path), run, options_of(table.options))


def no_rows(job: Job, name: str) -> pa.Table:
    """An empty table with the columns of a source that is no files: as its messages or lines have them."""
    source = job.table.sources[name]
    if isinstance(source, ReplayTable) and source.decode is not None:
        return decode_lines(source.decode, ()).rows
    if isinstance(source, MqttTable) or (isinstance(source, TopicsTable) and source.message == "json"):
        return _columns(job, name, source.schema_).empty_table()
    raise JobError(f"{job.file}: the columns of sources.{name} are not known before it runs.")


def _columns(job: Job, name: str, text: str) -> pa.Schema:
    try:
        return columns_of(text)
    except BadArgument as error:
        raise JobError(f"{job.file}: sources.{name}.schema: {error}") from error
