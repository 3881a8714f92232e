"""What fails below us, reported as an error of appulse: a sentence in place of pages of stack traces.

Spark quotes what a Python worker or a sink raised, in the midst of its own traces; the JVM's files fail on their own.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from appulse import errors
from appulse.errors import AppulseError, BadArgument, BadInput, CheckpointError, SessionError, StateError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql.streaming.query import StreamingQuery

_OURS = re.compile(r"appulse\.errors\.(\w+): (.+)")
_FULL = "No space left on device|Disk quota exceeded|File too large|Read-only file system"
_BARRED = (
    "Permission denied|File exists|Destination exists|Parent path is not a directory|Not a directory|Mkdirs failed to "
    "create|AWS Error \\w+"
)
_STATE = "CANNOT_LOAD_STATE_STORE"
_UNREADABLE = (r"Checksum error: \S+", r"Stream is corrupted", r"\S+ does not exist", _STATE)


class _Cause(NamedTuple):
    """A failure outside of Spark: what Spark says, and our error, with the groups of the pattern put in."""

    pattern: str
    kind: type[AppulseError]
    sentence: str


_OUTSIDE = (
    _Cause(
        r"reading file (\S+?)\.\s+Data type mismatches when reading Parquet column \[(.+?)\]\. "
        r"Expected Spark type (\S+), actual Parquet type (\S+?)\.",
        BadInput,
        "The file {0} has {3} in the column {1}, where the stream expects {2}. Put a file with the columns of the "
        "stream in its place, under the same name, and start again with the same checkpoint.",
    ),
    _Cause(
        r"Illegal Parquet type: INT64 \((TIMESTAMP\(NANOS,\w+\))\)",
        BadInput,
        "A Parquet file has times in nanoseconds ({0}), which Spark does not read. Write them in microseconds "
        "(pandas: to_parquet(..., coerce_timestamps='us')), or read them as whole numbers: appulse run --conf "
        'spark.sql.legacy.parquet.nanosAsLong=true, with unit = "ns".',
    ),
    _Cause(
        r"(\S+) is not a Parquet file",
        BadInput,
        "The file {0} is not a Parquet file. Replace it by a good one of the same name, and start again with the same "
        "checkpoint.",
    ),
    _Cause(
        r"FAILED_READ_FILE\.FILE_NOT_EXIST\] Encountered error while reading file (\S+?)\.",
        BadInput,
        "The file {0} has gone since Spark listed it. Put it back, and start again with the same checkpoint.",
    ),
    _Cause(
        r"No suitable driver",
        SessionError,
        "Spark has no JDBC driver for this database. Start the session with one, by its Maven name: "
        "ap.session(**{{'spark.jars.packages': 'org.postgresql:postgresql:VERSION'}}), or appulse run --packages.",
    ),
    _Cause(
        r"DATA_SOURCE_NOT_FOUND\] Failed to find the data source: (\S+?)\.",
        SessionError,
        "Spark has no data source {0!r}. Check the name. If it is right, start the session with the package that has "
        "it, by its Maven name: ap.session(**{{'spark.jars.packages': '...'}}), or appulse run --packages.",
    ),
    _Cause(
        r"Failed to find data source: (kafka)\.",
        SessionError,
        "Spark has no data source {0!r}. Start the session with the connector of its own version: "
        "ap.session(**{{'spark.jars.packages': 'org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION'}}), or appulse run "
        "--packages.",
    ),
    _Cause(
        r"Failed to find data source: (avro)\.",
        SessionError,
        "Spark has no data source {0!r}. Start the session with the package of its own version: "
        "ap.session(**{{'spark.jars.packages': 'org.apache.spark:spark-avro_2.13:VERSION'}}), or appulse run "
        "--packages.",
    ),
    _Cause(
        r"REQUIRES_SINGLE_PART_NAMESPACE\] \S+ requires a single-part namespace, but got identifier (`([^`]+)`\S*)\.",
        SessionError,
        "Spark has no catalog {1!r}, in which the table {0} would be. Start the session with its settings and package: "
        "spark.sql.catalog.{1}, and what else the catalog needs.",
    ),
    _Cause(
        r"(Timed out waiting for a node assignment|Topic \S+ not present in metadata after \d+ ms"
        r"|Expiring \d+ record\(s\) for \S+|No resolvable bootstrap urls given in bootstrap.servers)",
        StorageError,
        "Kafka did not answer: {0}. Check the addresses of its servers; once they are back, start again with the same "
        "checkpoint: no row is lost.",
    ),
    _Cause(
        r"(UnknownTopicOrPartitionException)",
        BadInput,
        "Kafka has no such topic ({0}). Make it, or name another in topics, and start again with the same checkpoint.",
    ),
    _Cause(
        r"Some data may have been lost because they are not available in Kafka any more",
        CheckpointError,
        "Kafka no longer has the messages that this checkpoint would go on from: they expired, or the topic was made "
        "anew. Start with a new checkpoint; or, if these messages may be lost, give the source failOnDataLoss=false.",
    ),
    _Cause(
        r"(?s)A schema mismatch detected when writing to the Delta table.*?Table schema:\s*root\n(.+?)\n\s*\n"
        r"\s*Data schema:\s*root\n(.+?)\n\s*\n",
        BadArgument,
        "A sink is a Delta table with other columns than its rows have.\nThe table:\n{0}\nThe rows:\n{1}\nName another "
        "table, or add the columns to this one: ('delta', {{..., 'mergeSchema': 'true'}}). Then start again with the "
        "same checkpoint: no row is lost.",
    ),
    _Cause(
        r"(?s)DELTA_SOURCE_(?:TABLE_)?IGNORE_(?:CHANGES|DELETE)\].*? at version (\d+)\."
        r".*? found at path (?:file:)?(\S+?)\.\s",
        BadInput,
        "In version {0} of the Delta table {1} rows were changed or deleted, and a stream of a table has added rows "
        "alone. To have such changes, read its change data feed (the option readChangeFeed, and "
        "Stream(change='_change_type')) with a new checkpoint. To pass over them, set the option skipChangeCommits and "
        "start again with the same checkpoint.",
    ),
    _Cause(
        r"SCHEMA_NOT_FOUND\] The schema (\S+) cannot be found",
        BadArgument,
        "A sink is a table of the schema {0}, which is not in the catalog. Make it, by CREATE SCHEMA, or name another; "
        "then start again with the same checkpoint: no row is lost.",
    ),
    _Cause(
        r"Wrong basePath (.+) for the root path: (.+)",
        CheckpointError,
        "The checkpoint has read {1}, which is not in the folder {0} that the stream reads now. Spark's checkpoints "
        "hold whole paths: move the files back and read them there, to go on; or start with a new checkpoint, and new "
        "folders for what the query writes, which reads all files again.",
    ),
    _Cause(
        r"There are \[(\d+)\] sources in the checkpoint offsets and now there are \[(\d+)\] sources",
        CheckpointError,
        "The query of this checkpoint read {0} sources, and now it reads {1}. Start it over the same frames, and with "
        "rejects= if it was started with rejects=, without if not: in a chain of calls, rejects= reads the frames of "
        "the calls before a second time. No row is lost. Or start with a new checkpoint.",
    ),
)


_INTERRUPTED = re.compile(r"An error occurred while calling \S+\n: (java\.\S*Interrupt\w+)")


@cache
def spark_errors() -> tuple[type[Exception], ...]:
    """What Spark raises, and its JVM where there is one."""
    from pyspark.errors import PySparkException  # calls in process do without Spark, and name failures all the same

    try:
        from py4j.protocol import Py4JJavaError
    except ModuleNotFoundError:
        return (PySparkException,)
    return PySparkException, Py4JJavaError


@contextmanager
def stoppable() -> Iterator[None]:
    """Say in few words that `stop()` has interrupted a batch.

    Spark searches the text of an error for that, by an expression that takes some of the stack for each character: with
    Java's own stack traces in the text it overflows.
    """
    try:
        yield
    except Exception as problem:
        if found := _INTERRUPTED.match(str(problem)):
            said = f"py4j.protocol.Py4JJavaError: An error occurred while calling Spark: {found[1]}"
            raise InterruptedError(said) from None
        raise


@contextmanager
def writing(place: str) -> Iterator[None]:
    """Raise `StorageError` where ``place`` cannot be written."""
    try:
        yield
    except AppulseError:
        raise
    except Exception as problem:
        if known := _quoted(problem) or _unwritable(problem, place, f"{_FULL}|{_BARRED}"):
            raise known from problem
        raise


@contextmanager
def reading() -> Iterator[None]:
    """Raise an error of appulse for a file, database or broker that is not as Spark expects it."""
    try:
        yield
    except AppulseError:
        raise
    except Exception as problem:
        if known := _from_outside(problem):
            raise known from problem
        raise


class Query:
    """Spark's streaming query, which fails with an error of appulse where there is one."""

    def __init__(self, query: StreamingQuery, checkpoint: str) -> None:
        self._query, self._checkpoint = query, checkpoint
        self._closing: list[Thread] = []
        self._ended_by: Exception | None = None

    def fail(self, error: Exception) -> None:
        """End the query; `awaitTermination` raises the error."""
        self._ended_by = error
        self._query.stop()

    def close_with(self, close: Callable[[], None]) -> None:
        """Call ``close`` when the query has ended, before `awaitTermination` or `stop` returns."""
        self._closing.append(Thread(target=self._close, args=(close,), name="appulse-close", daemon=True))
        self._closing[-1].start()

    def _close(self, close: Callable[[], None]) -> None:
        try:
            with suppress(Exception):  # awaitTermination of the user raises it
                self._wait(None)
        finally:
            close()

    def _closed(self) -> None:
        for thread in self._closing:
            thread.join()

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802 - as Spark has it
        """Wait for the end; with ``timeout`` (seconds) whether it came. Raises what the query failed with."""
        ended: bool | None = True
        try:
            ended = self._wait(timeout)
        finally:
            if ended is not False:
                self._closed()
        if ended is not False and self._ended_by is not None:
            raise self._ended_by
        return ended

    def processAllAvailable(self) -> None:  # noqa: N802 - as Spark has it
        """Wait until what is there now is answered. Raises what the query failed with."""
        try:
            self._query.processAllAvailable()
        except Exception as problem:  # noqa: BLE001 - it is raised again
            raise self._described(problem)  # noqa: B904 - it has its cause

    def stop(self) -> None:
        """Stop, and wait until it has."""
        self._query.stop()
        self._closed()

    def _wait(self, timeout: float | None) -> bool | None:
        try:
            return self._query.awaitTermination(timeout)  # type: ignore[arg-type]  # Spark takes fractions
        except Exception as problem:  # noqa: BLE001 - it is raised again
            raise self._described(problem)  # noqa: B904 - it has its cause

    def exception(self) -> Exception | None:
        """What the query failed with."""
        problem = self._query.exception()
        return problem and self._described(problem)

    def _described(self, problem: Exception) -> Exception:
        """The error of appulse behind a problem, or the problem."""
        disks = f"the checkpoint {self._checkpoint}, Spark's scratch files (spark.local.dir) or a sink"
        known = (
            _quoted(problem)
            or _unwritable(problem, disks, _FULL)
            or _unreadable(problem, self._checkpoint)
            or _from_outside(problem)
        )
        if known is None:
            return problem
        known.__cause__ = problem
        return known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)


def _quoted(problem: Exception) -> AppulseError | None:
    """Our error within the text of another."""
    quoted = _OURS.search(str(problem))
    if quoted is None:
        return None
    kind: type[AppulseError] = getattr(errors, quoted[1])
    return kind(quoted[2])


def _unwritable(problem: Exception, place: str, causes: str) -> StorageError | None:
    cause = re.search(causes, str(problem))
    return cause and StorageError(
        f"Could not write {place}: {cause[0]}. Make room there, or mend the path, and start again with the same "
        "checkpoint: no row is lost or doubled."
    )


def _unreadable(problem: Exception, checkpoint: str) -> StateError | None:
    text = str(problem)
    if _STATE not in text:
        return None
    cause = next(found for pattern in _UNREADABLE if (found := re.search(pattern, text)))
    return StateError(
        f"The state below {checkpoint} cannot be read: {cause[0]}. Restore the checkpoint from a copy, or start with "
        "a new one."
    )


def _from_outside(problem: Exception) -> AppulseError | None:
    """The error for a file, database or broker that is not as Spark expects it."""
    text = str(problem)
    for pattern, kind, sentence in _OUTSIDE:
        if found := re.search(pattern, text):
            return kind(sentence.format(*found.groups()))
    return None
