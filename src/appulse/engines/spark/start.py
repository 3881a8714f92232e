"""Run a streaming result: answers to one sink, bad rows to another, each batch once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache, reduce
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module

from appulse.engines.arriving import FEWEST_ROWS
from appulse.engines.spark.alerting import Alert, alerts_of
from appulse.engines.spark.checkpoint import Checkpoint
from appulse.engines.spark.failures import Query, writing
from appulse.engines.spark.lock import CheckpointLock
from appulse.engines.spark.metrics import report
from appulse.engines.spark.plans import observed_now
from appulse.engines.spark.results import SparkResult, own_result
from appulse.engines.spark.sinks import Sink, sink_of
from appulse.engines.spark.tagged import ANSWER, LEVELS, METRIC, METRICS, REJECT
from appulse.errors import BadArgument, StateLimit, warn_late, warn_swapped
from appulse.model.times import shown_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from appulse.engines.spark.tiling import Tiling


_BEFORE = "rejected before"  # by the calls before


class Outputs(NamedTuple):
    """Where a query writes, each as a user gives it: ("format", {options}), or a function of a batch."""

    sink: Any
    rejects: Any = None
    alerts: Sequence[Any] = ()


def start(
    result: DataFrame,
    outputs: Outputs,
    *,
    checkpoint: str,
    partitions: int | None = None,
    drain: bool = False,
    trigger: dict[str, Any] | None = None,
    max_state: int | None = None,
) -> Query:
    """One streaming query that writes answers and rejects; see `appulse.start`."""
    known = own_result(result)
    if known.bad_rows is not None:
        raise BadArgument(
            "This result is a batch result: write it with result.write, its rejects with ap.rejects(result)."
        )
    if drain and trigger not in (None, {"availableNow": True}):
        raise BadArgument(f"drain=True takes what is available now and ends; it goes with no trigger, not {trigger!r}.")
    _check_chain(known, outputs.rejects, drain=drain)
    place = Checkpoint(result.sparkSession, checkpoint)
    with writing(f"the checkpoint {checkpoint}"):
        lock = CheckpointLock(place.folder)
    try:
        query = _started(known, place, outputs, partitions, drain=drain, trigger=trigger, max_state=max_state)
    except BaseException:
        lock.release()
        raise
    query.close_with(lock.release)
    return query


def _started(
    known: SparkResult,
    place: Checkpoint,
    outputs: Outputs,
    partitions: int | None,
    *,
    drain: bool,
    trigger: dict[str, Any] | None,
    max_state: int | None,
) -> Query:
    """The query, over the tiles that its checkpoint has."""
    sink, rejects, alerts = outputs
    wanted = known.tiling
    if partitions is not None and partitions != wanted.latest.tiles:
        wanted = wanted.over(partitions)
    with writing(f"the checkpoint {place.path}"):
        moves = {"replanned": known.replanned, "tiled": known.tiled}
        tiling = place.admit(known.call, wanted, partitions, **moves, before=known.calls)
    ends = place.end_folder if any(one.call.holds_back for one in (*known.calls, known)) else None
    before: list[str] = []
    if ends is not None or tiling != known.tiling:
        tilings = [own for _, own in place.before]
        if rejects is not None:
            before = [f"reject{i}" for i in range(len(known.calls))]
        known = in_place(known, tiling, tilings, ends, before)
    write = _batch_writer(
        known,
        place,
        sink_of(sink, "sink", place.id),
        None if rejects is None else sink_of(rejects, "rejects", place.id),
        before,
        alerts_of(alerts, place.id, checkpoint=place.path, answers=known.answers),
        max_state,
    )
    writer = known.rows.writeStream.foreachBatch(write).option("checkpointLocation", place.path)
    with writing(f"the checkpoint {place.path}"):
        if drain:
            return DrainingQuery(writer.trigger(availableNow=True), place, known)
        return Query((writer.trigger(**trigger) if trigger else writer).start(), place.path)


def _check_chain(known: SparkResult, rejects: Any, *, drain: bool) -> None:
    """Raise `BadArgument` for what the calls before cannot do in one query with the last."""
    if rejects is not None and known.judge is not None and known.calls:
        raise BadArgument(
            "rejects= cannot have the rows that the calls before refuse, where the queries are a stream. Write the "
            "answers of these calls by a start of their own, and read them as a stream."
        )
    if drain and any("change" in one.answers.names for one in known.calls):
        raise BadArgument(
            "drain=True cannot end the changes of a join that another call follows in the same query. Leave out "
            "emit='changes', or write the changes by a start of their own, and read them as a stream."
        )


def in_place(
    known: SparkResult, tiling: Tiling, before: Sequence[Tiling], ends: str | None, rejecting: Sequence[str] = ()
) -> SparkResult:
    """A result over the tilings of a checkpoint, for it and the calls before it; ``ends`` has marks of the end.

    The rejects of the calls before, which cannot pass through what users do with answers, come out by the tags of
    ``rejecting``: each of these calls is in the query a second time, and its answers are dropped.
    """
    pieces: dict[str, DataFrame] = {}
    bad: list[DataFrame] = []
    for i, (one, own) in enumerate(zip(known.calls, before, strict=True)):
        folder = ends if one.call.holds_back else None
        if rejecting:
            rows = one.rebuild(own, folder, pieces, again=True).rows.where(F.col("tag") == REJECT)
            bad.append(rows.select(F.lit(rejecting[i]).alias("tag"), F.col(REJECT).alias(rejecting[i])))
        pieces[one.name] = one.rebuild(own, folder, pieces).rows
    result = known.rebuild(tiling, ends if known.call.holds_back else None, pieces)
    rows = result.rows
    for frame in bad:
        rows = rows.unionByName(frame, allowMissingColumns=True)
    return replace(result, rows=rows)


class DrainingQuery(Query):
    """A query that ends when all there is has been answered, and then closes its checkpoint.

    What waits for the streams to go on is answered by a second run, which finds the mark of their end.
    """

    def __init__(self, writer: DataStreamWriter, place: Checkpoint, result: SparkResult) -> None:
        super().__init__(writer.start(), place.path)
        self._writer, self._place, self._result = writer, place, result
        self._holds_back = any(one.call.holds_back for one in (*result.calls, result))
        self._stopped, self._failure = False, None  # type: bool, Exception | None
        self._thread = Thread(target=self._finish, name="appulse-drain", daemon=True)
        self._thread.start()

    def _finish(self) -> None:
        try:
            self._query.awaitTermination()
            if self._holds_back and not self._stopped:
                self._place.end()
                self._query = self._writer.start()
                self._query.awaitTermination()
            if not self._stopped:
                self._place.close(self._result.call, self._result.tiling)
        except Exception as error:  # noqa: BLE001 - awaitTermination of the user raises it again
            self._failure = self._described(error)

    def _wait(self, timeout: float | None) -> bool | None:
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return None if timeout is None else True

    @property
    def isActive(self) -> bool:  # noqa: N802 - as Spark has it
        """Whether it has not ended yet."""
        return self._thread.is_alive()

    def exception(self) -> Exception | None:
        """What the query failed with, or the end of it."""
        return super().exception() or self._failure

    def stop(self) -> None:
        """Stop before the end; the checkpoint stays open and can be resumed."""
        self._stopped = True
        super().stop()


def _batch_writer(
    result: SparkResult,
    place: Checkpoint,
    answers: Sink,
    rejects: Sink | None,
    before: Sequence[str],
    alerts: Sequence[Alert],
    max_state: int | None,
) -> Callable[[DataFrame, int], None]:
    """What writes a batch. ``before`` are the tags of the rejects of calls before.

    A batch that is read twice would be worked out twice, and leave its state twice. So it is kept, unless the answers
    are all that is written, by a sink that reads them once: then that is the one job of the batch.
    """
    judge = None if result.judge is None else result.judge(place.folder)
    once = answers.once and judge is None
    kept = rejects is not None or bool(alerts) or max_state is not None or not once
    query = cache(lambda: place.query)  # known once it runs
    # Made once: to make a column takes PySpark some twenty calls of the JVM, a few milliseconds.
    own = {tag: F.inline(tag) for tag in (ANSWER, REJECT, *before)}

    def write(given: DataFrame, number: int) -> None:
        batch = given if judge is None else judge(given, number)
        if kept:
            batch = batch.persist()
        metrics = cache(lambda: _observed(result, query()) if once else _collected(batch, before))
        try:
            if max_state is not None:  # known before anything is written
                _check_state(_collected(batch, before)["state_rows"], max_state, number)
            answers.write(
                batch.select(own[ANSWER]),
                number,
                lambda: bool(metrics()["answers"] or metrics()["left"] or number == 0),
                lambda: metrics()["answers"] + metrics()["left"],
            )
            if metrics()["answers"] or metrics()["left"]:
                for alert in alerts:
                    alert(batch.select(own[ANSWER]), number)
            place.saw(metrics()["newest"])
            _warn_late(result, metrics())
            _warn_swapped(metrics())
            if judge is not None:
                _report(query(), number, metrics())
            if rejects is not None and (metrics()["rejected"] or (before and metrics()[_BEFORE]) or number == 0):
                bad = [batch.select(own[tag]) for tag in (REJECT, *before)]
                if number == 0:  # with what was refused before any row
                    bad += [one.first_rejects for one in (*result.calls, result) if one.first_rejects is not None]
                refused = _together(bad)
                rejects.write(refused, number, lambda: True, refused.count)
        finally:
            if kept:
                batch.unpersist()

    return write


def _check_state(rows: int, most: int, number: int) -> None:
    """Raise `StateLimit` where a micro-batch leaves more rows than may be held."""
    if rows > most:
        raise StateLimit(
            f"After batch {number} the query would hold {rows:,} rows, and max_state is {most:,}. Nothing of the batch "
            "was written. Shorten windows or lateness, or raise max_state, and start again with the same checkpoint: "
            "no row is lost or doubled."
        )


def _together(frames: Sequence[DataFrame]) -> DataFrame:
    """Rejects of several calls; keys and times as text where they differ in type."""
    if len({frame.schema.simpleString() for frame in frames}) > 1:
        frames = [frame.withColumns({name: F.col(name).cast("string") for name in ("key", "time")}) for frame in frames]
    return reduce(DataFrame.union, frames)


def _warn_late(result: SparkResult, metrics: Counter[str]) -> None:
    """Warn if most rows of a batch were late."""
    late, rows = metrics["late"], metrics["rows"] + metrics["late"]
    if rows >= FEWEST_ROWS and 2 * late > rows:
        newest = shown_time(metrics["newest"], result.call.time_type, "s")
        warn_late(late, rows, f"Spark's watermark is past them: a row that is held has the time {newest}.")


def _warn_swapped(metrics: Counter[str]) -> None:
    """Warn if latitude and longitude look swapped to some worker, and no other one found a row in a region."""
    if metrics["swapped"] and not metrics["answers"]:
        warn_swapped(metrics["swapped"])


def _observed(result: SparkResult, query: str) -> Counter[str]:
    """The figures that Spark observed while the rows of a batch were read."""
    before = [one.name for one in result.calls]
    found = observed_now(result.rows.sparkSession, query, [result.name, *before])
    totals = Counter({name: max(int(value or 0), 0) for name, value in found[result.name].items()})
    totals[_BEFORE] = sum(int(found[name]["rejected"] or 0) for name in before if name in found)
    return totals


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
