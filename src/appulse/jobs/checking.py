"""What is wrong with a job, as far as its file, and the files that are there, show it."""

from __future__ import annotations

import json
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from appulse.engines.aggregates.call import resolve_unseen
from appulse.engines.alerts import check_only
from appulse.engines.decoding import check_readable
from appulse.engines.encounters.call import EncounterSettings, resolve_encounters
from appulse.engines.encounters.joining import moves, resolve_moving
from appulse.engines.fences.call import FenceSettings, resolve_fences
from appulse.engines.filling import refuse_endless
from appulse.engines.join.assign import AssignSettings, resolve_assign
from appulse.engines.join.call import JoinSettings, resolve
from appulse.engines.join.nearest import NearestSettings, resolve_nearest
from appulse.engines.join.outliers import OutlierSettings, resolve_outliers
from appulse.engines.multi_queries.call import is_signed, resolve_window_queries
from appulse.engines.multi_queries.queries import WindowQueries
from appulse.engines.queries.call import LocalQueries, resolve_queries
from appulse.engines.schemas import column_type
from appulse.engines.sensors.call import SensorSettings, resolve_sensors
from appulse.engines.sensors.phenomena import PhenomenaSettings, resolve_phenomena
from appulse.errors import BadArgument, JobError, NotBuilt, nearest
from appulse.jobs.files import files_at
from appulse.jobs.named import named_in
from appulse.jobs.problems import Problem
from appulse.jobs.sinks import TopicSink
from appulse.jobs.sources import DataTable, FilesTable, MqttTable, TopicsTable
from appulse.model.ddl import columns_of, is_of_spark
from appulse.model.defects import NEVER_TRUE, reject_schema
from appulse.model.stored_types import miscased, unlike
from appulse.model.times import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from appulse.jobs.checked import Job
    from appulse.jobs.tables import JobTable
    from appulse.model.stream import Stream

__all__ = ["problems_with_columns"]

_MOST_REPORTED = 10  # conditions that cannot be used
_MOST_OPENED = 1_000  # files of a source
_ADDING = frozenset({"basepath", "mergeschema"})


def problems_with_columns(job: Job) -> list[Problem]:
    """What the job asks for and its columns lack, as far as they are known: by ``schema``, or by Parquet files.

    Other files are not opened, and nothing is asked of brokers.
    """
    known, problems = _schemas(job)
    fills: Any = None
    try:
        fills = _unread_imputers(job, known)
    except BadArgument as problem:
        problems.append(Problem("imputer" if job.table.imputer is not None else "imputers", str(problem)))
    problems += _unlike_schemas(job)
    problems += _key_of("rejects", job.table.rejects, reject_schema(pa.string(), pa.string()).names)
    schemas: list[pa.Schema] = []
    whole = True
    for name, source in job.table.sources.items():
        schema, wrong = _given_columns(job, name, source)
        problems += [] if wrong is None else [wrong]
        if schema is None and getattr(source, "schema_", None) is None:
            schema = known.get(f"sources.{name}")
        whole = whole and schema is not None
        schemas += [] if schema is None else [schema]
    if not whole or any(problem.where != "rejects.key" for problem in problems):
        return problems
    streams = job.table.streams()
    try:
        found, call = _check_operator(job, streams, schemas, fills)
        problems += found
        if call is not None:
            problems += [
                *_unwritable(job.table.sink, call.answer_schema),
                *_check_outputs(job.table, call.answer_schema.names),
            ]
    except (BadArgument, NotBuilt) as problem:
        said = dict.fromkeys([str(problem), *_lacking(streams, schemas)])
        problems += [Problem("", text) for text in said]
    return problems


def _lacking(streams: Sequence[Stream], schemas: Sequence[pa.Schema]) -> Iterator[str]:
    """Every column that a stream names and does not have."""
    for stream, schema in zip(streams, schemas, strict=True):
        for column in stream.columns(*stream.carry):
            try:
                column_type(schema, column, stream.name or "stream")
            except BadArgument as problem:
                yield str(problem)


def _given_columns(job: Job, name: str, source: Any) -> tuple[pa.Schema | None, Problem | None]:
    """The columns that a source is said to have, if these are all; what is wrong with the text."""
    text, mqtt = getattr(source, "schema_", None), isinstance(source, MqttTable)
    if text is None or (isinstance(source, TopicsTable) and source.message != "json"):
        return None, None
    try:
        found = columns_of(text)
        if mqtt:
            check_readable(found)
    except BadArgument as problem:
        of_spark = job.table.engine != "local" and not mqtt and is_of_spark(text)
        return None, None if of_spark else Problem(f"sources.{name}.schema", str(problem))
    if isinstance(source, FilesTable) and (
        source.format == "delta" or _has_more(source) or _in_parts(job.place(source.path))
    ):
        return None, None
    return found, None


def _has_more(data: DataTable) -> bool:
    """Whether options of Spark give files further columns: of their folders' names, or of each other."""
    return not _ADDING.isdisjoint(map(str.lower, data.options))


def _in_parts(path: str) -> bool:
    """Whether names of folders may be columns, too, as in ``day=1/``."""
    if "://" in path or "=" in path:
        return True
    folders = [path, *glob(path)]  # noqa: PTH207 - takes ** as Spark does
    try:
        return any(one.is_dir() for place in map(Path, folders) if place.is_dir() for one in place.iterdir())
    except OSError:
        return True


def _check_outputs(table: JobTable, columns: Sequence[str]) -> list[Problem]:
    """Columns that a sink's key and alerts name and answers lack.

    Where rows are withdrawn or filled, answers may have more than these.
    """
    if table.filling or any(source.change is not None for source in table.sources.values()):
        return []
    problems = _key_of("sink", table.sink, columns)
    for i, alert in enumerate(table.alerts):
        problems += _key_of(f"alerts.{i}", alert, columns)
        try:
            check_only(alert.only, columns)
        except BadArgument as problem:
            problems.append(Problem(f"alerts.{i}.only", str(problem)))
    return problems


def _unwritable(sink: Any, columns: pa.Schema) -> Iterator[Problem]:
    """Lists and the like, for which the sink of answers has no form."""
    base = sink.format == "jdbc"
    for field in columns if base or sink.format == "csv" else ():
        kind: Any = field.type
        # Spark writes lists as arrays of PostgreSQL.
        is_array = base and sink.url.startswith("jdbc:postgresql:") and pa.types.is_list(kind)
        if pa.types.is_nested(kind) and not (is_array and not pa.types.is_nested(kind.value_type)):
            what = "a database has no type" if base else "CSV has no form"
            yield Problem(
                "sink.format",
                f"is {sink.format!r}, and the column {field.name!r} of the answers is {kind}, for which {what}. Write "
                "'parquet' or 'json', or leave the column out.",
            )


def _key_of(where: str, sink: Any, columns: Sequence[str]) -> list[Problem]:
    """What is wrong with the key of a sink for messages of these columns."""
    key = sink.key if isinstance(sink, TopicSink) else None
    if key is None or key in columns:
        return []
    return [Problem(f"{where}.key", f"is {key!r}, which is not a column of its rows.{nearest(key, columns)}")]


def _check_operator(
    job: Job, streams: Sequence[Stream], schemas: Sequence[pa.Schema], fills: Any
) -> tuple[list[Problem], Any]:
    """What is wrong with the one operator of a job, over these columns, and its call; raises `BadArgument`, too."""
    table = job.table
    if table.sensor_join is not None or table.phenomena is not None:
        return _check_readings(job, streams[0], schemas[0])
    if table.fence_events is not None:
        return _check_fences(job, streams[0], schemas[0])
    if table.match_queries is not None:
        return _check_queries(job, streams, schemas)
    if (asked := table.window_aggregate) is not None:
        call: Any = resolve_unseen(streams[0], schemas[0], asked.aggregates, **asked.settings())
    elif table.encounters is not None:
        call = resolve_encounters(streams, schemas, EncounterSettings(**table.encounters.settings()))
    elif table.nearest is not None:
        call = resolve_nearest(streams, schemas, NearestSettings(**table.nearest.settings()), whole=False)
    elif table.assign is not None:
        call = resolve_assign(streams, schemas, AssignSettings(**table.assign.settings()))
    elif table.outliers is not None:
        call = resolve_outliers(streams, schemas, OutlierSettings(**table.outliers.settings()))
    else:
        settings = JoinSettings(**table.join.settings(), imputer=fills)
        call = (resolve_moving if moves(streams) else resolve)(streams, schemas, settings)
    return [], call


def _schemas(job: Job) -> tuple[dict[str, pa.Schema], list[Problem]]:
    """The columns of Parquet files that are there, by where the job names them, and those that cannot be read."""
    import pyarrow.parquet as pq

    known, unreadable = {}, []
    for where, data in job.table.data.items():
        files = files_at(job.place(data.path))
        if data.format != "parquet" or not files or _has_more(data) or _in_parts(job.place(data.path)):
            continue
        try:
            known[where] = pq.read_schema(files[0])
        except (OSError, pa.ArrowException) as error:
            unreadable.append(Problem(f"{where}.path", f"{files[0]} cannot be read as Parquet: {error}"))
    return known, unreadable


def _unlike_schemas(job: Job) -> Iterator[Problem]:
    """Parquet files of sources with other types, or names, than the schema has; at most some files are opened."""
    import pyarrow.parquet as pq

    only = named_in(job)
    for name, source in job.table.sources.items():
        text = getattr(source, "schema_", None)
        if text is None or source.format != "parquet":
            continue
        try:
            wanted = columns_of(text)
        except BadArgument:  # reported elsewhere, or known to Spark alone
            continue
        names = [one for one in wanted.names if only is None or only(one)]
        for file in files_at(job.place(source.path))[:_MOST_OPENED]:
            try:
                stored = pq.read_schema(file)
            except (OSError, pa.ArrowException):  # reported elsewhere, or when it is read
                continue
            wrong = unlike(stored, wanted, names)
            if wrong is None and job.table.engine == "local":
                wrong = miscased(stored, wanted, names)
            if wrong:
                yield Problem(f"sources.{name}.path", f"{file} cannot be read: {wrong}")
                break


def _unread_imputers(job: Job, known: dict[str, pa.Schema]) -> dict[str, Any] | None:
    """In the place of imputers: what they need is checked as far as it can be without reading rows."""
    found = {}
    for name, one in job.table.filling.items():
        schema = known.get(f"{job.table.filler(name)}.repository")
        if job.table.engine == "spark" and one.waits:
            refuse_endless(name, None if one.wait is None else duration(one.wait))
        found[name] = one.unread(job.place, None if schema is None else schema.names)
    return found or None


def _check_queries(job: Job, streams: Sequence[Stream], schemas: Sequence[pa.Schema]) -> tuple[list[Problem], Any]:
    """Conditions that cannot be used, where the columns are known."""
    asked = job.table.match_queries
    if asked is None or asked.changes is not None:
        return [], None
    where = "match_queries.conditions" if asked.path is None else "match_queries.path"
    if asked.path is not None and not files_at(job.place(asked.path)):
        return [], None  # that there is no file is reported elsewhere
    try:
        queries = asked.queries(job.place)
    except JobError as problem:
        return [Problem(where, str(problem))], None
    settings = job.table.query_settings() | {"on_reject": "collect"}
    is_signed(streams, settings.pop("emit"))
    empty = [schema.empty_table() for schema in schemas]
    if len(streams) == 1:
        call: Any = resolve_queries(streams[0], empty[0], queries.schema, **settings)
        one = LocalQueries(call)
        one.change(queries)
        refused = one.rejects()
    else:
        call = resolve_window_queries(streams, empty, queries.schema, **settings)
        refused = WindowQueries(call).change(queries).rejects
    return _refused(where, "query", refused, asked.on_reject), call


def _check_fences(job: Job, stream: Stream, schema: pa.Schema) -> tuple[list[Problem], Any]:
    """Fences that are no regions, where the columns are known."""
    asked = job.table.fence_events
    if asked is None or (asked.path is not None and not files_at(job.place(asked.path))):
        return [], None  # `missing` reports that there is no file
    where = "fence_events.regions" if asked.path is None else "fence_events.path"
    try:
        fences = asked.fences(job.place)
    except JobError as problem:
        return [Problem(where, str(problem))], None
    settings = FenceSettings(**asked.settings() | {"on_reject": "collect"})
    call = resolve_fences(stream, schema, fences, settings)
    refused = call.known_rejects
    problems = _refused(where, "fence", refused, asked.on_reject)
    # One of a file is a row of the rejects, as in a call.
    strict = asked.path is None or asked.on_reject == "fail" or len(refused) == len(fences)
    return problems if strict else [], call


def _refused(where: str, kind: str, refused: pa.Table, on_reject: str) -> list[Problem]:
    """Queries or fences that cannot be used; what can never match does no harm."""
    if on_reject != "fail":
        refused = refused.filter(pc.not_equal(refused["reason"], NEVER_TRUE))
    shown = refused.slice(0, _MOST_REPORTED).to_pylist()
    return [Problem(where, f"{kind} {json.loads(row['values'])['query']!r}: {row['detail']}") for row in shown]


def _check_readings(job: Job, stream: Stream, schema: pa.Schema) -> tuple[list[Problem], Any]:
    """Arguments that do not go with the columns of Parquet files that are there."""
    table = job.table
    call: Any = None
    try:
        if table.sensor_join is not None:
            if (column := table.sensor_join.window_column) is not None:
                column_type(schema, column, stream.name or "readings")
            call = resolve_sensors(stream, schema, SensorSettings(**table.sensor_join.settings()))
        elif table.phenomena is not None:
            given = table.phenomena.locations, table.phenomena.neighbours
            known = [_known_rows(job, files) for files in given]
            settings = table.phenomena.settings_with(*known)
            if any(files is not None and rows is None for files, rows in zip(given, known, strict=True)):
                settings |= {"locations": None, "place": None, "reach": None, "neighbours": None}
            call = resolve_phenomena(stream, schema, PhenomenaSettings(**settings))
    except BadArgument as problem:
        return [Problem(table.operator, str(problem))], None
    return [], call


def _known_rows(job: Job, files: DataTable | None) -> pa.Table | None:
    """The first of the files, if they are Parquet, and there."""
    found = [] if files is None or files.format != "parquet" else files_at(job.place(files.path))
    return _rows_of(found[0]) if found else None


def _rows_of(file: Path) -> pa.Table:
    """A Parquet file that is read before the job runs."""
    import pyarrow.parquet as pq

    try:
        return pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise BadArgument(f"{file} cannot be read as Parquet: {error}") from error
