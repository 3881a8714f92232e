"""A job in this process: its call by hand, without Spark, and files of its sources as tables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

import appulse as ap
from appulse.connect.files import Form, LineFiles, rows_of
from appulse.connect.patterns import Pattern
from appulse.engines.options import Options
from appulse.errors import JobError
from appulse.jobs.fields import options_of
from appulse.jobs.file_options import PATTERNS
from appulse.jobs.files import are_parted, files_at
from appulse.jobs.sources import NAMELESS, DataTable, SourceTable
from appulse.model.ddl import columns_of

if TYPE_CHECKING:
    from appulse.api.by_hand import ByHand
    from appulse.jobs.job import Job

__all__ = ["by_hand", "dataset_of", "form_of", "is_read_here", "read_files"]

_KINDS = {"parquet": "parquet", "csv": "csv", "json": "json", "orc": "orc"}


def by_hand(job: Job) -> ByHand[Any]:
    """The call of a job by hand, with its queries and fences: rows are pushed by the names of its sources.

    Raises `JobError` for files that cannot be read here.
    """
    table = job.table
    streams = table.streams()
    settings: dict[str, Any] = {"options": Options(max_output=table.max_output)}
    if table.sensor_join is not None:
        return ap.SensorJoin(streams[0], **table.sensor_join.settings(), **settings)
    if (regions := table.phenomena) is not None:
        frames = [
            None if files is None else read_files(job, files, f"phenomena.{name}")
            for name, files in (("locations", regions.locations), ("neighbours", regions.neighbours))
        ]
        return ap.Phenomena(streams[0], **regions.settings_with(*frames), **settings)
    if (asked := table.window_aggregate) is not None:
        return ap.WindowAggregate(streams[0], asked.aggregates, **asked.settings(), **settings)
    if table.encounters is not None:
        return ap.Encounters(*streams, **table.encounters.settings(), **settings)
    if table.fence_events is not None:
        fences = table.fence_events.fences(job.place)
        return ap.FenceEvents(streams[0], fences, **table.fence_events.settings(), **settings)
    if table.match_queries is not None:
        asked_of = table.match_queries
        matching = ap.QueryMatch(*streams, **table.query_settings(), **settings)
        changes = asked_of.changes
        matching.change(
            asked_of.queries(job.place) if changes is None else read_files(job, changes, "match_queries.changes")
        )
        return matching
    if (found := table.nearest or table.assign or table.outliers) is not None:
        kind: Any = {"nearest": ap.Nearest, "assign": ap.Assign, "outliers": ap.Outliers}[table.operator]
        belonging: ByHand[Any] = kind(*streams, **found.settings(), **settings)
        return belonging
    imputers = job.imputers(partial(read_files, job, where="imputer.repository"))
    return ap.SimilarityJoin(*streams, **table.join.settings(), imputer=imputers, **settings)


def is_read_here(job: Job, data: DataTable) -> bool:
    """Whether a table of a job has files of this machine, in a format that is read without Spark."""
    place = job.place(data.path)
    return data.format in _KINDS and "://" not in place and bool(files_at(place))


def dataset_of(job: Job, data: DataTable, where: str) -> ds.Dataset | LineFiles:
    """The files that a table of a job names, unread; raises `JobError`. ``where`` is its place in the job.

    Of a source's files of lines the lines that are no rows are left out, as rejects.
    """
    place = job.place(data.path)
    if data.format not in _KINDS:
        raise JobError(f"{where} is of the format {data.format}, whose files are read by Spark alone.")
    files = [] if "://" in place else files_at(place)
    if not files:
        raise JobError(f"{where}.path: there are no files at {place} on this machine.")
    parted = are_parted(place, files)
    if isinstance(data, SourceTable) and data.format in ("csv", "json") and not parted:
        schema = None if data.schema_ is None else columns_of(data.schema_)
        return LineFiles([str(file) for file in files], form_of(data), schema, f"{job.file}: {where}.path")
    try:
        parts = {"partitioning": "hive", "partition_base_dir": place} if parted else {}
        found = ds.dataset([str(file) for file in files], format=form_of(data).arrow, **parts)
    except (OSError, pa.ArrowException) as error:
        raise JobError(f"{where}.path: {place} cannot be read as {data.format}: {error}") from error
    # An index of pandas is a column of a source, as on Spark.
    return found.replace_schema(found.schema.remove_metadata()) if isinstance(data, SourceTable) else found


def read_files(job: Job, data: DataTable, where: str) -> pa.Table:
    """All rows of a table of a job; raises `JobError`."""
    try:
        return rows_of(dataset_of(job, data, where))
    except (OSError, pa.ArrowException) as error:
        raise JobError(f"{where}.path: {job.place(data.path)} cannot be read as {data.format}: {error}") from error


def form_of(data: DataTable) -> Form:
    """How files are read here, as Spark does with the same options; others have no effect here, see `file_options`."""
    given = {name.lower(): str(value) for name, value in options_of(data.options).items()}
    kind, encoding = _KINDS[data.format], given.get("encoding", given.get("charset", "utf-8"))
    multiline = given.get("multiline", "").lower() == "true"
    if kind != "csv":
        return Form(kind, encoding=encoding, multiline=multiline)
    header, schema = given.get("header", "").lower() == "true", getattr(data, "schema_", None)
    if not header and schema is None:
        raise JobError(f"The CSV files {data.path} have no names of columns that were read. {NAMELESS}")
    separator = given.get("sep", given.get("delimiter", ","))
    separator = "\t" if separator == r"\t" else separator  # as Spark takes it
    if len(separator) != 1 or not separator.isascii():
        raise JobError(
            f"The CSV files {data.path} have the separator {separator!r}. In process it is one ASCII character: give "
            "such a sep, or set engine = 'spark'."
        )
    null = given.get("nullvalue", "")
    return Form(
        kind,
        names=() if schema is None else tuple(columns_of(schema).names),
        header=header,
        separator=separator,
        quote=given.get("quote", '"'),
        escape=given.get("escape", given.get("quote", '"')),
        nulls=("", null) if null or schema is not None else None,
        times=_pattern(given, "timestampformat"),
        dates=_pattern(given, "dateformat"),
        encoding=encoding,
        multiline=multiline,
    )


def _pattern(given: dict[str, str], name: str) -> Pattern | None:
    return Pattern.of(PATTERNS[name], given[name]) if name in given else None
