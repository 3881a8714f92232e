"""Read a job file, check it, and carry it out."""

from __future__ import annotations

import re
import tomllib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

import appulse as ap
from appulse.engines.spark.failures import reading
from appulse.errors import JobError, NotBuilt
from appulse.jobs.apart import not_apart
from appulse.jobs.checked import Job, refusal
from appulse.jobs.checking import problems_with_columns
from appulse.jobs.fields import options_of
from appulse.jobs.file_options import problems_with_options
from appulse.jobs.in_process import only_on_spark
from appulse.jobs.problems import Problem, problems_of
from appulse.jobs.sources import NAMELESS, FilesTable, MqttTable, ReplayTable, SourceTable, TopicsTable
from appulse.jobs.tables import JobTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from appulse.jobs.imputers import RepositoryTable
    from appulse.model.stream import Stream

__all__ = ["Job", "build", "frame_of", "load", "validate"]

#: The formats whose rows are lines.
_OF_LINES = ("csv", "json")
#: How much older than the newest file others may be that Spark reads, and how long it knows what it has read: for ever.
_AGES = {"maxFileAge": "36500d"}
#: The same of files that are ours, each newer than those before.
_OURS = {"maxFileAge": "7d"}


def load(path: str | Path) -> Job:
    """Read and check a job file; all that is wrong with it is in the one `JobError`."""
    job, problems = _read(Path(path))
    if job is None or problems:
        raise refusal(path, problems)
    return job


def validate(path: str | Path, *, here: bool = False) -> list[Problem]:
    """What is wrong with a job file, without running anything; ``here``: also what this environment lacks."""
    job, problems = _read(Path(path))
    return [*problems, *(job.unset() if here and job is not None else ())]


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
    given: list[Any] = streams
    options = table.options()
    if (asked := table.window_aggregate) is not None:
        given, settings = [*streams, asked.aggregates], asked.settings()
    elif table.encounters is not None:
        settings = table.encounters.settings()
    elif (fenced := table.fence_events) is not None:
        given, settings = [*streams, fenced.fences(job.place)], fenced.settings()
    elif table.match_queries is not None:
        settings = table.query_settings() | {"queries": _queries(job, spark, streaming=streaming)}
    else:
        typical = {} if table.sample is None else {name: _sample(job, name, spark) for name in table.sources}
        options = table.options(typical or None)
        association = table.nearest or table.assign or table.outliers
        settings = (association or table.join).settings()
        if association is None:
            settings["imputer"] = job.imputers(partial(_repository, job, spark))
    call: Any = getattr(ap, table.operator)
    answers: DataFrame = call(*given, options=options, **settings)
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
    here = only_on_spark(job) if job.table.engine == "local" else []
    wrong = not_apart(job.table, job.place) or here
    return job, wrong or [*problems_with_options(job), *problems_with_columns(job)]


def _repository(job: Job, spark: SparkSession, table: RepositoryTable) -> DataFrame:
    options = _inferring(table.format, options_of(table.options))
    return spark.read.format(table.format).options(**options).load(job.place(table.path))


def _queries(job: Job, spark: SparkSession, *, streaming: bool) -> Any:
    """The queries of a job: a table, or a frame of changes."""
    asked = job.table.match_queries
    if asked is None or asked.changes is None:
        return None if asked is None else asked.queries(job.place)
    changes, place = asked.changes, job.place(asked.changes.path)
    options = _of_any_age(_options(changes.format, options_of(changes.options)))
    known = spark.read.format(changes.format).options(**_inferring(changes.format, options)).load(place)
    if not streaming:
        return known
    return spark.readStream.format(changes.format).options(**options).schema(known.schema).load(place)


def _sensed(job: Job, readings: Stream, spark: SparkSession) -> DataFrame:
    """The answers of a job over readings."""
    table = job.table
    if (asked := table.sensor_join) is not None:
        typical = None if table.sample is None else _sample_of_readings(job, spark)
        joined: DataFrame = ap.sensor_join(readings, options=table.options(typical), **asked.settings())
        return joined
    if (regions := table.phenomena) is None:  # pragma: no cover - checked when the file was read
        raise JobError(f"{job.file} has neither [sensor_join] nor [phenomena].")
    frames = [
        None if files is None else _frame(job, FilesTable(**files.model_dump()), spark, streaming=False)
        for files in (regions.locations, regions.neighbours)
    ]
    found: DataFrame = ap.phenomena(readings, options=table.options(), **regions.settings_with(*frames))
    return found


def _options(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options by which CSV is read as RFC 4180 has it, where they do not say otherwise: quotes are doubled."""
    known = {name.lower(): value for name, value in given.items()}
    return dict(given) if kind != "csv" or "escape" in known else {"escape": known.get("quote", '"'), **given}


def _of_any_age(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by which a stream reads each file once, however old it is, where they do not say otherwise."""
    return dict(options) if "maxfileage" in {name.lower() for name in options} else {**_AGES, **options}


def _inferring(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with which types are those of the files."""
    return {"inferSchema": True, **_options(kind, options)} if kind == "csv" else dict(options)


def frame_of(
    job: Job, name: str, spark: SparkSession, *, streaming: bool, played: Mapping[str, Path] | None = None
) -> DataFrame:
    """The rows of a source."""
    source: Any = job.table.sources[name]
    if isinstance(source, ReplayTable):
        folder = (played or {}).get(name)
        source = (
            _as_files(job, source) if folder is None else FilesTable(format="parquet", path=str(folder), options=_OURS)
        )
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
        return cast("DataFrame", ap.mqtt_stream(spark, **source.reading(), spool=spool, most=most, schema=columns))
    if isinstance(source, TopicsTable):
        reader = (spark.readStream if streaming else spark.read).format("kafka").options(**source.reading())
        messages: DataFrame = ap.decode_messages(reader.load(), source.schema_, source.message)
        return messages
    from appulse.engines.spark.lines import known_schema, rows_of_lines  # only where Spark is installed

    path, filtered = _in_folder(job.place(source.path))
    options = filtered | _options(source.format, options_of(source.options))
    if source.max_files_per_trigger is not None and streaming:
        options["maxFilesPerTrigger"] = source.max_files_per_trigger
    if source.format == "delta":  # has the schema of its own
        return (spark.readStream if streaming else spark.read).format("delta").options(**options).load(path)
    if streaming:
        options = _of_any_age(options)
    schema: Any = source.schema_
    if schema is None:
        schema = known_schema(spark.read, source.format, _inferring(source.format, options), path)
    reader = spark.readStream if streaming else spark.read
    if isinstance(source, SourceTable) and source.format in _OF_LINES:
        return rows_of_lines(reader, source.format, options, schema, path)
    return reader.format(source.format).options(**options).schema(schema).load(path)


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
    from appulse.engines.spark.inputs import quoted  # only where Spark is installed

    table = job.table
    source, different = table.sources[name], getattr(table.self_join, "different", None)
    frame = frame_of(job, name, spark, streaming=False)
    # A name in a condition may be a dimension's, which is no column.
    filtered = [column for column in source.conditions_columns if column in frame.columns]
    stream = source.stream(None, name)
    columns = stream.columns(different, table.join.window.delta, *stream.carry, *filtered)
    return frame.select(*map(quoted, columns)).limit(table.sample or 0).toArrow()
