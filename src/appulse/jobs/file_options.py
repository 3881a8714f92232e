"""Which options of files each engine knows: others would have no effect, in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from appulse.connect.patterns import Pattern
from appulse.engines.appending import not_appended
from appulse.errors import BadArgument, JobError, likely
from appulse.jobs.fields import options_of
from appulse.jobs.problems import Problem
from appulse.jobs.sources import SourceTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from appulse.jobs.checked import Job
    from appulse.jobs.sinks import Sink
    from appulse.jobs.sources import DataTable

__all__ = ["PATTERNS", "problems_with_options"]

#: The options by which times and dates of CSV are written, in small letters.
PATTERNS = {"timestampformat": "timestampFormat", "dateformat": "dateFormat"}
_CSV = ("header", "sep", "delimiter", "quote", "escape", "nullValue", "encoding", "charset", "multiLine", "inferSchema")
#: What is read in process, of a source and of other files.
_HERE: dict[bool, dict[str, Sequence[str]]] = {
    True: {"csv": (*_CSV, *PATTERNS.values()), "json": ("encoding", "charset", "multiLine")},
    False: {"csv": _CSV},
}
# What Spark reads of files of every format, and of some; names with a dot are those of Hadoop.
_EVERY = """
    basePath cleanSource discardCachedInputRatio fileNameOnly ignoreCorruptFiles ignoreInvalidPartitionPaths
    ignoreMissingFiles latestFirst maxBytesPerTrigger maxCachedFiles maxFileAge maxFilesPerTrigger modifiedAfter
    modifiedBefore path pathGlobFilter recursiveFileLookup sourceArchiveDir timeZone
"""
_TEXT = """
    charset columnNameOfCorruptRecord compression dateFormat enableDateTimeParsingFallback encoding lineSep locale mode
    multiLine samplingRatio singleVariantColumn timeFormat timestampFormat timestampNTZFormat wholeText
"""
_SPARK = {
    "csv": f"""{_EVERY} {_TEXT}
        charToEscapeQuoteEscaping codec columnPruning comment delimiter emptyValue enforceSchema escape escapeQuotes
        extension header ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace inferSchema inputBufferSize maxCharsPerColumn
        maxColumns nanValue negativeInf nullValue positiveInf preferDate quote quoteAll sep unescapedQuoteHandling
    """,
    "json": f"""{_EVERY} {_TEXT}
        allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers allowNumericLeadingZeros
        allowSingleQuotes allowUnquotedControlChars allowUnquotedFieldNames dropFieldIfAllNull ignoreNullFields
        inferTimestamp prefersDecimal pretty primitivesAsString sortKeys useUnsafeRow writeNonAsciiCharacterAsCodePoint
    """,
    "parquet": f"{_EVERY} compression datetimeRebaseMode int96RebaseMode mergeSchema",
    "orc": f"{_EVERY} compression mergeSchema",
}


def problems_with_options(job: Job) -> list[Problem]:
    """Options of files that have no effect on the engine of a job, and patterns that it does not read."""
    here, table = job.table.engine == "local", job.table
    wrong = [
        Problem(f"{where}.options", what)
        for where, data in table.data.items()
        for what in (_here if here else _on_spark)(data)
    ]
    written = {"sink": table.sink, "rejects": table.rejects}
    return wrong + [
        Problem(f"{where}.options", what)
        for where, sink in written.items()
        if sink
        for what in (_written if here else _appended)(sink)
    ]


def _appended(sink: Sink) -> Iterator[str]:
    """What of a sink on Spark does not go with batches that are appended."""
    if sink.format not in ("kafka", "jdbc") and (what := not_appended(sink.format, sink.options)):
        yield what


def _written(sink: Sink) -> Iterator[str]:
    """What a sink in process takes no note of."""
    known = ("header",) if sink.format == "csv" else ()
    for name in sink.options:
        if name.lower() not in known:
            wanted = f" Known in process: {', '.join(known)}." if known else " Leave it out."
            yield f"{name} has no effect on files of {sink.format} in process.{wanted} Or set engine = 'spark'."


def _on_spark(data: DataTable) -> Iterator[str]:
    known = _SPARK.get(data.format, "").split()
    names = set(map(str.lower, known))
    for name in data.options if known else ():
        if name.lower() not in names and "." not in name:
            instead = likely(name, known) or f" Known: {', '.join(sorted(known))}."
            yield f"{name} is not an option of files of {data.format} on Spark.{instead}"


def _here(data: DataTable) -> Iterator[str]:
    source = isinstance(data, SourceTable)
    known = _HERE[source].get(data.format, ())
    names = set(map(str.lower, known))
    for name, value in data.options.items():
        if name.lower() not in names:
            wanted = f" Known in process: {', '.join(known)}." if known else " Leave it out."
            elsewhere = set(map(str.lower, _SPARK.get(data.format, "").split()))
            instead = " Or set engine = 'spark'." if name.lower() in elsewhere else ""
            yield f"{name} is not read in process of files of {data.format}.{likely(name, known)}{wanted}{instead}"
        elif name.lower() == "inferschema" and str(value).lower() != "true":
            yield f"{name} is {value!r}, and types are inferred in process where there is no schema. Give a schema."
    yield from _unread_patterns(data)


def _unread_patterns(data: DataTable) -> Iterator[str]:
    try:
        given = {name.lower(): str(value) for name, value in options_of(data.options).items()}
    except JobError:  # that the environment lacks it is reported elsewhere
        return
    patterns = {name: given[small] for small, name in PATTERNS.items() if small in given}
    if patterns and isinstance(data, SourceTable) and data.format == "csv" and data.schema_ is None:
        yield f"{', '.join(patterns)} is for columns whose type a schema says: give the schema of the source."
    for name, text in patterns.items():
        try:
            Pattern.of(name, text)
        except BadArgument as problem:
            yield str(problem)
