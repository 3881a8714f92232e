"""What a query does with each micro-batch: writes its answers and rejects, sends alerts, and keeps count."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache, reduce
from importlib import import_module
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module
from pyspark.sql import types as T  # noqa: N812

from appulse.engines.arriving import FEWEST_ROWS
from appulse.engines.measured import LEVELS, METRICS, count_read, report
from appulse.engines.spark.checkpoint import Checkpoint
from appulse.engines.spark.daemon import ending_with_parent
from appulse.engines.spark.failures import stoppable
from appulse.engines.spark.lock import CheckpointLock
from appulse.engines.spark.plans import observed_now
from appulse.engines.spark.settings import on_connect
from appulse.engines.spark.tagged import ANSWER, METRIC, REJECT, reject_type, rejects_frame, rejects_like
from appulse.errors import SessionError, StateLimit, warn_late, warn_swapped
from appulse.model.times import shown_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, SparkSession

    from appulse.engines.spark.alerting import Alert
    from appulse.engines.spark.files import Folder
    from appulse.engines.spark.sinks import Sink

_BEFORE = "rejected before"  # by the calls before
# By name: the package itself stands above all layers.
_OWN: str = import_module("appulse").version
# How many rejects make a file: one task writes them all where they are few, which they mostly are.
_REJECTS = 100_000
# Seconds until the process of a run before, which a server of Spark Connect ends in its own time, has gone.
PATIENCE = 10.0


@dataclass
class BatchWriter:
    """Writes the micro-batches of a query.

    On Spark Connect it travels to the server and works in a process there, so it has nothing of a session. A batch that
    is read twice would be worked out twice, and leave its state twice. So it is kept, unless the answers are all that
    is written, by a sink that reads them once: then that is the one job of the batch, and Spark observes the figures
    (``observed``, by the name of the query; None where Spark's driver is elsewhere).
    """

    path: str  # of the checkpoint
    id: str  # of its query
    answers: Sink
    rejects: Sink | None
    before: Sequence[str]  # the tags of the rejects of calls before
    alerts: Sequence[Alert]
    max_state: int | None
    time_type: pa.DataType
    judge: Callable[[Folder], Callable[[DataFrame, int], DataFrame]] | None
    first_rejects: Sequence[tuple[pa.Table, T.StructType]]
    observed: Callable[[str], Counter[str] | None] | None
    newest: Callable[[str], int] | None = None  # of the rows of calls before, by the name of the query
    marked: bool = False  # whether a drain marks the end of the streams
    chained: bool = False  # whether rows come in before those that the last stage counts
    read: Callable[[str], int | None] | None = None  # rows of the sources, where these are others; by the same name
    holder: str = ""  # who has the checkpoint, behind the process
    version: str = _OWN
    _run: _Run | None = field(default=None, init=False)

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write a micro-batch."""
        remote = on_connect(batch.sparkSession)
        # PySpark would go on asking a server that was killed, for ten minutes, and so keep the checkpoint's lock.
        with ending_with_parent() if remote else stoppable():
            self._run = self._run or _Run(self, batch.sparkSession)
            self._run.write(batch, number)


class _Run:
    """What a `BatchWriter` has at hand in the process where it works."""

    def __init__(self, job: BatchWriter, spark: SparkSession) -> None:
        if job.version != _OWN:
            raise SessionError(
                f"The server of Spark Connect has appulse {_OWN}, and this client appulse {job.version}. Install the "
                "same version on both."
            )
        self._job = job
        self._place = Checkpoint(spark, job.path)
        if on_connect(spark):
            self._place.check_seen_as(job.id)
            self._lock = CheckpointLock(self._place.folder, wait=PATIENCE, holder=job.holder)
        self._judge = None if job.judge is None else job.judge(self._place.folder)
        self._once = job.observed is not None and job.answers.once and job.judge is None
        self._kept = job.rejects is not None or bool(job.alerts) or job.max_state is not None or not self._once
        self._query = cache(lambda: self._place.query)  # known once it runs
        # Made once: to make a column takes PySpark some twenty calls of the JVM, a few milliseconds.
        self._answers = F.inline(ANSWER)
        self._rejects: list[Column] = []  # made where there are any

    def write(self, given: DataFrame, number: int) -> None:
        """Write a micro-batch."""
        job = self._job
        batch = given if self._judge is None else self._judge(given, number)
        if self._kept:
            batch = batch.persist()
        metrics = cache(lambda: self._figures(batch))
        try:
            if job.max_state is not None:  # known before anything is written
                _check_state(_collected(batch, job.before)["state_rows"], job.max_state, number)
            job.answers.write(
                batch.select(self._answers),
                number,
                lambda: bool(metrics()["answers"] or metrics()["left"] or number == 0),
                lambda: metrics()["answers"] + metrics()["left"],
            )
            if metrics()["answers"] or metrics()["left"]:
                for alert in job.alerts:
                    alert(batch.select(self._answers), number)
            earlier = 0 if job.newest is None else job.newest(self._query())
            self._place.saw(max(metrics()["newest"], earlier))  # the end of the streams is that of the first calls, too
            _warn_late(job.time_type, metrics())
            _warn_swapped(metrics())
            if self._judge is not None:
                _report(self._query(), number, metrics())
            if job.rejects is not None and (
                metrics()["rejected"] or (job.before and metrics()[_BEFORE]) or number == 0
            ):
                known = metrics()["rejected"] + metrics()[_BEFORE]
                refused = self._refused(batch, number).coalesce(1 + known // _REJECTS)
                job.rejects.write(refused, number, lambda: True, refused.count)
            read = cache(lambda: None if job.read is None else job.read(self._query()))
            if job.before and (rows := read()) is not None:
                count_read(self._query(), number, rows)
            if job.marked and self._place.ended and (read() if job.chained else metrics()["rows"]) != 0:
                self._place.goes_on()
        finally:
            if self._kept:
                batch.unpersist()

    def _figures(self, batch: DataFrame) -> Counter[str]:
        observed = self._job.observed if self._once else None
        found = None if observed is None else observed(self._query())
        return _collected(batch, self._job.before) if found is None else found

    def _refused(self, batch: DataFrame, number: int) -> DataFrame:
        self._rejects = self._rejects or _reject_columns(batch, (REJECT, *self._job.before))
        bad = [batch.select(column) for column in self._rejects]
        if number == 0:  # with what was refused before any row
            bad += [rejects_frame(batch.sparkSession, table, schema) for table, schema in self._job.first_rejects]
        return _together(bad)


def _check_state(rows: int, most: int, number: int) -> None:
    """Raise `StateLimit` where a micro-batch leaves more rows than may be held."""
    if rows > most:
        raise StateLimit(
            f"After batch {number} the query would hold {rows:,} rows, and max_state is {most:,}. Nothing of the batch "
            "was written. Shorten windows or lateness, or raise max_state, and start again with the same checkpoint: "
            "no row is lost or doubled."
        )


def _reject_columns(batch: DataFrame, tags: Sequence[str]) -> list[Column]:
    """What selects the rejects of several calls: a row has those of one, so of one type they need one pass."""
    if len({batch.schema[tag].dataType.simpleString() for tag in tags}) == 1:
        return [F.inline(F.coalesce(*tags))]
    return [F.inline(tag) for tag in tags]


def _together(frames: Sequence[DataFrame]) -> DataFrame:
    """Rejects of several calls; keys and times as text where they differ in type."""
    schemas = [frame.schema for frame in frames]
    kinds = [{schema[name].dataType for schema in schemas} for name in ("key", "time")]
    if any(len(own) > 1 for own in kinds):
        wanted = reject_type(*(T.StringType() if len(own) > 1 else own.pop() for own in kinds))
        frames = [rejects_like(frame, own, wanted) for frame, own in zip(frames, schemas, strict=True)]
    return reduce(DataFrame.union, frames)


def _warn_late(time_type: pa.DataType, metrics: Counter[str]) -> None:
    """Warn if most rows of a batch were late."""
    late, rows = metrics["late"], metrics["rows"] + metrics["late"]
    if rows >= FEWEST_ROWS and 2 * late > rows:
        newest = shown_time(metrics["newest"], time_type, "s")
        warn_late(late, rows, f"Spark's watermark is past them: a row that is held has the time {newest}.")


def _warn_swapped(metrics: Counter[str]) -> None:
    """Warn if latitude and longitude look swapped to some worker, and no other one found a row in a region."""
    if metrics["swapped"] and not metrics["answers"]:
        warn_swapped(metrics["swapped"])


def observed_figures(spark: SparkSession, own: str, before: Sequence[str], query: str) -> Counter[str] | None:
    """The figures that Spark observed while the rows of a batch were read; None if of a call before it knows none."""
    found = observed_now(spark, query, [own, *before])
    totals = Counter({name: max(int(value or 0), 0) for name, value in found[own].items()})
    if any(name not in found for name in before):
        return None
    totals[_BEFORE] = sum(int(found[name]["rejected"] or 0) for name in before)
    return totals


def observed_newest(spark: SparkSession, names: Sequence[str], query: str) -> int:
    """The newest time that Spark observed in a batch, or before it, among the rows of the calls with these names."""
    found = observed_now(spark, query, names)
    return max((int(of["newest"] or 0) for of in found.values()), default=0)


def _collected(batch: DataFrame, before: Sequence[str]) -> Counter[str]:
    """The same figures of a batch that is kept."""
    totals: Counter[str] = Counter()
    for row in batch.where(F.col("tag") == METRIC).select(METRIC).collect():
        figures = {name: int(value) for name, value in zip(METRICS, row[0], strict=True)}
        largest = {name: max(totals[name], figures.pop(name)) for name in ("newest", "queries", "query_version")}
        totals.update(figures)
        totals |= Counter(largest)
    totals[_BEFORE] = batch.where(F.col("tag").isin(*before)).count() if before else 0
    return totals


def _report(query: str, number: int, metrics: Counter[str]) -> None:
    """Report to those who listen; what stands is known only where a task had rows."""
    reported = {name: metrics[name] for name in METRICS if name not in ("tile", "newest")}
    worked = bool(metrics["rows"] or metrics["rejected"])
    report(query, number, {n: v for n, v in reported.items() if worked or n == "query_version" or n not in LEVELS})
