"""Read a job file, check it, and carry it out."""

from __future__ import annotations

import json
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from appulse import api
from appulse.engines.aggregates.call import resolve_unseen
from appulse.engines.alerts import check_only
from appulse.engines.encounters.call import EncounterSettings, resolve_encounters
from appulse.engines.fences.call import FenceSettings, resolve_fences
from appulse.engines.filling import refuse_endless
from appulse.engines.join.assign import AssignSettings, resolve_assign
from appulse.engines.join.call import JoinSettings, resolve
from appulse.engines.join.nearest import NearestSettings, resolve_nearest
from appulse.engines.join.outliers import OutlierSettings, resolve_outliers
from appulse.engines.multi_queries.call import resolve_window_queries
from appulse.engines.multi_queries.queries import WindowQueries
from appulse.engines.queries.call import LocalQueries, resolve_queries
from appulse.engines.schemas import column_type
from appulse.engines.sensors.call import SensorSettings, resolve_sensors
from appulse.engines.sensors.phenomena import PhenomenaSettings, resolve_phenomena
from appulse.engines.spark.failures import reading
from appulse.errors import BadArgument, JobError, NotBuilt
from appulse.jobs.apart import not_apart
from appulse.jobs.fields import options_of
from appulse.jobs.files import files_at
from appulse.jobs.problems import Problem, problems_of
from appulse.jobs.sources import NAMELESS, DataTable, FilesTable, MqttTable, ReplayTable, TopicsTable
from appulse.jobs.tables import JobTable
from appulse.model.ddl import columns_of
from appulse.model.defects import NEVER_TRUE
from appulse.model.times import duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from appulse.jobs.imputers import RepositoryTable
    from appulse.model.stream import Stream

__all__ = ["Job", "build", "frame_of", "load", "validate"]

_MOST_REPORTED = 10  # conditions that cannot be used


@dataclass(frozen=True)
class Job:
    """A checked job file."""

    file: Path
    table: JobTable

    def place(self, path: str) -> str:
        """A path of the file: as it is if absolute or a URI, else from the file's folder."""
        return path if "://" in path else os.path.realpath(self.file.parent / Path(path).expanduser())

    @property
    def checkpoint(self) -> str | None:
        """The folder from which a rerun goes on, if the file names one."""
        return None if self.table.checkpoint is None else self.place(self.table.checkpoint)

    @property
    def sink(self) -> tuple[str, dict[str, Any]]:
        """Format and options of the answers."""
        return self.table.sink.spark(self.place)

    @property
    def answers(self) -> str:
        """Where answers go, in words."""
        return self.table.sink.shown(self.place)

    @property
    def rejects(self) -> tuple[str, dict[str, Any]] | None:
        """Format and options of the rejects, if they are kept."""
        return None if self.table.rejects is None else self.table.rejects.spark(self.place)

    @property
    def alerts(self) -> list[tuple[str, dict[str, Any]]]:
        """Kinds and options of what sends alerts."""
        return [one.spark(self.place) for one in self.table.alerts]

    def check_folders(self, checkpoint: str | None) -> None:
        """Raise `JobError` where folders are not apart; ``checkpoint`` is in place of the job's."""
        if problems := not_apart(self.table, self.place, checkpoint):
            raise _refusal(self.file, problems)

    def missing(self) -> list[Problem]:
        """The sources that have no files yet, as far as this machine can tell."""
        table = self.table
        paths = {where: data.path for where, data in table.data.items()}
        if (asked := table.match_queries) is not None and asked.path is not None:
            paths["match_queries"] = asked.path
        if table.fence_events is not None and table.fence_events.path is not None:
            paths["fence_events"] = table.fence_events.path
        paths |= {table.filler(name): one.path for name, one in table.filling.items() if one.path is not None}
        return [
            Problem(f"{where}.path", f"there are no files at {self.place(path)}.")
            for where, path in paths.items()
            if "://" not in path and not files_at(self.place(path))
        ]


def load(path: str | Path) -> Job:
    """Read and check a job file; all that is wrong with it is in the one `JobError`."""
    job, problems = _read(Path(path))
    if job is None or problems:
        raise _refusal(path, problems)
    return job


def _refusal(path: str | Path, problems: Sequence[Problem]) -> JobError:
    listed = "".join(f"\n  {problem}" for problem in problems)
    return JobError(f"{path} is no job that can run:{listed}")


def validate(path: str | Path) -> list[Problem]:
    """What is wrong with a job file, without running anything."""
    return _read(Path(path))[1]


def build(
    job: Job, spark: SparkSession, *, streaming: bool = True, played: Mapping[str, Path] | None = None
) -> DataFrame:
    """The answers of a job as a Spark frame, streaming or of the files that are there now.

    ``played`` are folders where the rows of replays come, by source.
    """
    table = job.table
    streams = [
        source.stream(frame_of(job, name, spark, streaming=streaming, played=played), name)
        for name, source in table.sources.items()
    ]
    if table.sensor_join is not None or table.phenomena is not None:
        return _sensed(job, streams[0], spark)
    if (asked := table.window_aggregate) is not None:
        aggregated: DataFrame = api.window_aggregate(
            streams[0], asked.aggregates, options=table.options(), **asked.settings()
        )
        return aggregated
    if (moving := table.encounters) is not None:
        met: DataFrame = api.encounters(*streams, options=table.options(), **moving.settings())
        return met
    if (fenced := table.fence_events) is not None:
        events: DataFrame = api.fence_events(
            streams[0], fenced.fences(job.place), options=table.options(), **fenced.settings()
        )
        return events
    if table.match_queries is not None:
        matched: DataFrame = api.match_queries(
            *streams,
            queries=_queries(job, spark, streaming=streaming),
            options=table.options(),
            **table.query_settings(),
        )
        return matched
    typical = {} if table.sample is None else {name: _sample(job, name, spark) for name in table.sources}
    if (asked_of := table.nearest or table.assign or table.outliers) is not None:
        call: Any = getattr(api, table.operator)
        belonging: DataFrame = call(*streams, options=table.options(typical or None), **asked_of.settings())
        return belonging
    arguments: dict[str, Any] = {
        **table.join.measured,
        "probability": table.join.probability,
        "window": table.join.window.build(),
        "emit": table.join.emit,
        "on_reject": table.join.on_reject,
        "options": table.options(typical or None),
        "imputer": _imputers(job, spark),
    }
    if table.self_join is not None:
        answers: DataFrame = api.self_join(streams[0], different=table.self_join.different, **arguments)
    else:
        join: Any = api.similarity_join
        answers = join(*streams, **table.of_two, **arguments)
    return answers


def _read(path: Path) -> tuple[Job | None, list[Problem]]:
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, [Problem("", f"there is no file {path}.")]
    except (OSError, ValueError, RecursionError) as problem:
        return None, [Problem("", f"{path} cannot be read as TOML: {problem}.")]
    try:
        job = Job(path, JobTable.model_validate(given))
    except ValidationError as failure:
        return None, problems_of(failure, given)
    return job, not_apart(job.table, job.place) or _againstfiles_at(job)


def _againstfiles_at(job: Job) -> list[Problem]:
    """Columns the job asks for and its files lack; Parquet files that are there tell, others are not opened."""
    table = job.table
    known, unreadable = _schemas(job)
    if unreadable:
        return unreadable
    try:
        fills = _unread_imputers(job, known)
    except BadArgument as problem:
        return [Problem("imputer" if table.imputer is not None else "imputers", str(problem))]
    schemas = []
    for name, source in table.sources.items():
        schema, wrong = _given_columns(job, name, source)
        if wrong is not None:
            return [wrong]
        if schema is None and getattr(source, "schema_", None) is None:
            schema = known.get(f"sources.{name}")
        if schema is None:
            return []
        schemas.append(schema)
    streams = table.streams()
    try:
        problems, call = _check_operator(job, streams, schemas, fills)
        if call is not None:
            problems += _check_alerts(table, call.answer_schema.names)
    except BadArgument as problem:
        return [Problem("", str(problem))]
    return problems


def _given_columns(job: Job, name: str, source: Any) -> tuple[pa.Schema | None, Problem | None]:
    """The columns that a source is said to have, if these are all; what is wrong where a job in process reads them."""
    text, local = getattr(source, "schema_", None), job.table.engine == "local"
    if text is None or (isinstance(source, TopicsTable) and source.message != "json"):
        return None, None
    try:
        found = columns_of(text)
    except BadArgument as problem:  # Spark knows more types
        return None, Problem(f"sources.{name}.schema", str(problem)) if local else None
    whole = isinstance(source, FilesTable) and source.format != "delta" and not _in_parts(job.place(source.path))
    return found if whole else None, None


def _in_parts(path: str) -> bool:
    """Whether names of folders may be columns, too, as in ``day=1/``."""
    place = Path(path)
    try:
        return "://" in path or "=" in path or (place.is_dir() and any(one.is_dir() for one in place.iterdir()))
    except OSError:
        return True


def _check_alerts(table: JobTable, columns: Sequence[str]) -> list[Problem]:
    """Columns that alerts name and answers lack; where rows are withdrawn or filled, answers may have more."""
    if table.filling or any(source.change is not None for source in table.sources.values()):
        return []
    problems = []
    for i, alert in enumerate(table.alerts):
        try:
            check_only(alert.only, columns)
        except BadArgument as problem:
            problems.append(Problem(f"alerts.{i}.only", str(problem)))
    return problems


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
        join = table.join
        settings = JoinSettings(
            **join.measured,
            **job.table.of_two,
            probability=join.probability,
            window=join.window.build(),
            emit=join.emit,
            different=None if table.self_join is None else table.self_join.different,
            on_reject=join.on_reject,
            imputer=fills,
        )
        call = resolve(streams, schemas, settings)
    return [], call


def _schemas(job: Job) -> tuple[dict[str, pa.Schema], list[Problem]]:
    """The columns of Parquet files that are there, by where the job names them, and those that cannot be read."""
    import pyarrow.parquet as pq

    known, unreadable = {}, []
    for where, data in job.table.data.items():
        files = files_at(job.place(data.path))
        if data.format != "parquet" or not files:
            continue
        try:
            known[where] = pq.read_schema(files[0])
        except (OSError, pa.ArrowException) as error:
            unreadable.append(Problem(f"{where}.path", f"{files[0]} cannot be read as Parquet: {error}"))
    return known, unreadable


def _imputers(job: Job, spark: SparkSession) -> dict[str, Any] | None:
    """What fills each source; a repository that several share is read once."""

    def read(repository: RepositoryTable) -> Any:
        options: dict[str, Any] = {"inferSchema": True} if repository.format == "csv" else {}
        reader = spark.read.format(repository.format).options(**options | options_of(repository.options))
        return reader.load(job.place(repository.path))

    made = {id(one): one.build(job.place, read) for one in job.table.filling.values()}
    return {name: made[id(one)] for name, one in job.table.filling.items()} or None


def _unread_imputers(job: Job, known: dict[str, pa.Schema]) -> dict[str, Any] | None:
    """In the place of imputers: what they need is checked as far as it can be without reading rows."""
    found = {}
    for name, one in job.table.filling.items():
        schema = known.get(f"{job.table.filler(name)}.repository")
        if job.table.engine == "spark" and one.waits:
            refuse_endless(name, None if one.wait is None else duration(one.wait))
        found[name] = one.unread(job.place, None if schema is None else schema.names)
    return found or None


def _queries(job: Job, spark: SparkSession, *, streaming: bool) -> Any:
    """The queries of a job: a table, or a frame of changes."""
    asked = job.table.match_queries
    if asked is None or asked.changes is None:
        return None if asked is None else asked.queries(job.place)
    changes, place = asked.changes, job.place(asked.changes.path)
    options = options_of(changes.options)
    known = spark.read.format(changes.format).options(**_inferring(changes.format, options)).load(place)
    if not streaming:
        return known
    return spark.readStream.format(changes.format).options(**options).schema(known.schema).load(place)


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
    del settings["emit"]  # about rows, not queries
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


def _sensed(job: Job, readings: Stream, spark: SparkSession) -> DataFrame:
    """The answers of a job over readings."""
    table = job.table
    if (asked := table.sensor_join) is not None:
        typical = None if table.sample is None else _sample_of_readings(job, spark)
        joined: DataFrame = api.sensor_join(readings, options=table.options(typical), **asked.settings())
        return joined
    if (regions := table.phenomena) is None:  # pragma: no cover - checked when the file was read
        raise JobError(f"{job.file} has neither [sensor_join] nor [phenomena].")
    frames = [
        None if files is None else _frame(job, FilesTable(**files.model_dump()), spark, streaming=False)
        for files in (regions.locations, regions.neighbours)
    ]
    found: DataFrame = api.phenomena(readings, options=table.options(), **regions.settings(*frames))
    return found


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
            settings = table.phenomena.settings(*known)
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


def _inferring(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with which types are those of the files."""
    return {"inferSchema": True, **options} if kind == "csv" else dict(options)


def frame_of(
    job: Job, name: str, spark: SparkSession, *, streaming: bool, played: Mapping[str, Path] | None = None
) -> DataFrame:
    """The rows of a source."""
    source: Any = job.table.sources[name]
    if isinstance(source, ReplayTable):
        folder = (played or {}).get(name)
        source = _as_files(job, source) if folder is None else FilesTable(format="parquet", path=str(folder))
    with reading():
        frame = _frame(job, source, spark, streaming=streaming)
    if getattr(source, "format", None) == "csv" and frame.columns[:1] == ["_c0"] != [job.table.sources[name].key]:
        raise JobError(
            f"{job.file}: the CSV files of source {name!r} have no names of columns that were read. {NAMELESS}"
        )
    return frame


def _frame(
    job: Job, source: FilesTable | TopicsTable | MqttTable, spark: SparkSession, *, streaming: bool
) -> DataFrame:
    if isinstance(source, MqttTable):
        if not streaming:
            raise JobError("Messages of MQTT come once: nothing of them can be read beforehand. Leave out sample.")
        most, spool = source.max_messages_per_trigger, job.place(source.spool)
        columns = source.schema_
        return cast("DataFrame", api.mqtt_stream(spark, **source.reading(), spool=spool, most=most, schema=columns))
    if isinstance(source, TopicsTable):
        reader = (spark.readStream if streaming else spark.read).format("kafka").options(**source.reading())
        messages: DataFrame = api.decode_messages(reader.load(), source.schema_, source.message)
        return messages
    path, filtered = _in_folder(job.place(source.path))
    options = filtered | options_of(source.options)
    if source.max_files_per_trigger is not None and streaming:
        options["maxFilesPerTrigger"] = source.max_files_per_trigger
    if source.format == "delta":  # has the schema of its own
        return (spark.readStream if streaming else spark.read).format("delta").options(**options).load(path)
    schema: Any = source.schema_
    if schema is None:
        schema = spark.read.format(source.format).options(**_inferring(source.format, options)).load(path).schema
    if not streaming:
        return spark.read.format(source.format).options(**options).schema(schema).load(path)
    return spark.readStream.format(source.format).options(**options).schema(schema).load(path)


def _as_files(job: Job, source: ReplayTable) -> FilesTable:
    """A recording as files that are read at once."""
    files = source.files
    if files is None:
        raise NotBuilt(
            f"{job.file}: Spark cannot read {source.path} beforehand: it has no such format. Leave out sample, or give "
            "Parquet, CSV, JSON or ORC, without decode."
        )
    return FilesTable(format=files.format, path=job.place(files.path))


def _in_folder(path: str) -> tuple[str, dict[str, Any]]:
    """A folder, and the options to read one file of it where the path is that file's: Spark streams folders."""
    place = Path(path)
    if not place.is_file():
        return path, {}
    return str(place.parent), {"pathGlobFilter": re.sub(r"([\\*?\[\]{}])", r"\\\1", place.name)}


def _sample_of_readings(job: Job, spark: SparkSession) -> DataFrame:
    """Readings that are there now, from which buckets are planned."""
    (name,) = job.table.sources
    return frame_of(job, name, spark, streaming=False).limit(job.table.sample or 0)


def _sample(job: Job, name: str, spark: SparkSession) -> Any:
    """Rows of a source that are there now, from which tiles are planned."""
    table = job.table
    source, different = table.sources[name], getattr(table.self_join, "different", None)
    frame = frame_of(job, name, spark, streaming=False)
    # A name in a condition may be a dimension's, which is no column.
    filtered = [column for column in source.conditions_columns if column in frame.columns]
    columns = source.stream(None, name).columns(different, table.join.window.delta, *filtered)
    return frame.select(*columns).limit(table.sample or 0).toArrow()
