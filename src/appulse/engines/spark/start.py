"""Run a streaming result: answers to one sink, bad rows to another, each batch once."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module

from appulse.engines.spark.alerting import alerts_of
from appulse.engines.spark.batch_writer import PATIENCE, BatchWriter, observed_figures, observed_newest
from appulse.engines.spark.checkpoint import Checkpoint
from appulse.engines.spark.failures import Query, spark_errors, writing
from appulse.engines.spark.files import default_store
from appulse.engines.spark.lock import CheckpointLock
from appulse.engines.spark.plans import folders_read, refuse_connect, rows_read_now, table_place, topics_read
from appulse.engines.spark.results import SparkResult, own_result
from appulse.engines.spark.settings import check_session, on_connect
from appulse.engines.spark.sinks import check_sink, sink_of
from appulse.engines.spark.tagged import REJECT
from appulse.errors import BadArgument
from appulse.model.folders import clashes
from appulse.model.topics import Topics, topic_clashes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from appulse.engines.spark.tiling import Tiling


_LOG = logging.getLogger("appulse")
_SLOW = "Timed out while waiting for the Python worker to connect back"
_ATTEMPTS = 5


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
    _check_chain(known, outputs.rejects, partitions)
    remote = on_connect(result.sparkSession)
    check_sink(outputs.sink, "sink", known.answers.names, remote=remote)  # before there is a checkpoint
    if outputs.rejects is not None:
        check_sink(outputs.rejects, "rejects", known.rejects.names, remote=remote)
    alerts_of(outputs.alerts, "", checkpoint=checkpoint, answers=known.answers)
    _check_apart(outputs, checkpoint, known.rows)
    if trigger:
        _check_trigger(trigger, known.rows)
    for advice in check_session(result.sparkSession):
        _LOG.warning("The session could be faster: %s", advice)
    with writing(f"the checkpoint {checkpoint}"):
        place = Checkpoint(result.sparkSession, checkpoint)
        place.check_free()
        lock = CheckpointLock(place.folder, wait=PATIENCE if remote else 0)
    try:
        known, writer = _planned(known, place, outputs, partitions, max_state)
        if remote:  # the process of the server that writes batches takes it
            lock.release()
        with writing(f"the checkpoint {checkpoint}"):
            if drain:
                query: Query = DrainingQuery(writer.trigger(availableNow=True), place, known)
            else:
                query = Query(_begun(writer.trigger(**trigger) if trigger else writer), checkpoint)
    except BaseException:
        lock.release()
        raise
    query.close_with(lock.release)
    return query


def _planned(
    known: SparkResult, place: Checkpoint, outputs: Outputs, partitions: int | None, max_state: int | None
) -> tuple[SparkResult, DataStreamWriter]:
    """The result over the tiles that its checkpoint has, and what starts it."""
    sink, rejects, alerts = outputs
    spark: Any = known.rows.sparkSession
    remote = on_connect(spark)
    chained = bool(known.calls or known.judge)
    wanted = known.tiling
    if partitions is not None and partitions != wanted.latest.tiles:
        wanted = wanted.over(partitions)
    with writing(f"the checkpoint {place.path}"):
        moves = {"replanned": known.replanned, "tiled": known.tiled}
        tiling = place.admit(known.call, wanted, partitions, **moves, before=known.calls)
        if remote:
            place.check_seen_by_spark()
    ends = place.end_folder if any(one.call.holds_back for one in (*known.calls, known)) else None
    tilings = {one.name: own for one, (_, own) in zip(known.calls, place.before, strict=True)} | {known.name: tiling}
    if ends is None and all(tilings[one.name] == one.tiling for one in (*known.calls, known)):
        tilings = {}
    earlier = [] if rejects is None else known.earlier
    before = [f"reject{i}" for i in range(len(earlier))]
    known = in_place(known, tilings, ends, before)
    write = BatchWriter(
        place.path,
        place.id,
        sink_of(sink, "sink", place.id, remote=remote),
        None if rejects is None else sink_of(rejects, "rejects", place.id, remote=remote),
        before,
        alerts_of(alerts, place.id, checkpoint=place.path, answers=known.answers),
        max_state,
        time_type=known.call.time_type,
        judge=known.judge,
        first_rejects=[
            (one.first_rejects, one.rejects) for one in (*known.earlier, known) if one.first_rejects is not None
        ],
        observed=None if remote else partial(observed_figures, spark, known.name, [one.name for one in earlier]),
        newest=partial(observed_newest, spark, [one.name for one in known.calls])
        if known.calls and not remote
        else None,
        marked=ends is not None,
        chained=chained,
        read=partial(rows_read_now, spark) if (chained or before) and not remote else None,
        holder=f", for session {spark.session_id} of Spark Connect" if remote else "",
    )
    return known, known.rows.writeStream.foreachBatch(write).option("checkpointLocation", place.path)


def _check_trigger(trigger: dict[str, Any], rows: DataFrame) -> None:
    """Raise `BadArgument` for a trigger that Spark refuses, before there is a checkpoint."""
    refused: tuple[type[Exception], ...] = (TypeError, ValueError, *spark_errors())
    try:
        rows.writeStream.trigger(**trigger)
    except refused as error:
        why = str(error).splitlines()[0].rstrip(".")
        raise BadArgument(
            f"start(trigger={trigger!r}): Spark refuses it: {why}. Give a trigger of Spark's, such as "
            "{'processingTime': '5 seconds'} or {'availableNow': True}."
        ) from None


def _begun(writer: DataStreamWriter) -> StreamingQuery:
    """The query, started. A server of Spark Connect gives its process ten seconds to come up, which may be too few."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return writer.start()
        except spark_errors() as problem:
            if _SLOW not in str(problem):
                raise
            _LOG.warning("The Python process of the server took more than Spark's ten seconds. It is started again.")
    return writer.start()


def _check_chain(known: SparkResult, rejects: Any, partitions: int | None) -> None:
    """Raise `BadArgument` or `SessionError` for what the calls before cannot do in one query with the last."""
    moved = partitions is not None and partitions != known.tiling.latest.tiles
    if known.calls and (moved or any(one.call.holds_back for one in (*known.calls, known))):
        refuse_connect(known.rows)
    if rejects is not None and known.judge is not None and known.earlier:
        raise BadArgument(
            "rejects= cannot have the rows that the calls before refuse, where the queries are a stream. Write the "
            "answers of these calls by a start of their own, and read them as a stream."
        )


def _check_apart(outputs: Outputs, checkpoint: str, rows: DataFrame) -> None:
    """Raise `BadArgument` where the sink, the rejects and the checkpoint, or topics of the query, are not apart."""
    given = {"sink": outputs.sink, "rejects": outputs.rejects}
    options = {name: one[1] for name, one in given.items() if _has_options(one)}
    written = {name: str(value) for name, one in options.items() for key, value in one.items() if key.lower() == "path"}
    tables = {name: table_place(rows, one) for name, one in given.items() if _has_options(one)}
    written |= {name: place for name, place in tables.items() if place is not None}
    found = clashes(written, {"checkpoint": checkpoint})
    if written:
        store = default_store(rows.sparkSession)
        written = {name: _in_store(path, store) for name, path in written.items()}
        for path in folders_read(rows):
            found += clashes(written, {"a source": _in_store(path, store)})
    topics = _topics(given)
    alerts = _topics({f"alerts[{i}]": one for i, one in enumerate(outputs.alerts)})
    if topics or alerts:
        found += topic_clashes(topics, alerts, [t for one in topics_read(rows) if (t := Topics.of_options(one))])
    for name, problem in found:
        raise BadArgument(f"{name}: {problem}")


def _in_store(path: str, store: str) -> str:
    return f"{store}{path}" if path.startswith("/") else path


def _topics(given: Mapping[str, Any]) -> dict[str, Topics]:
    """The topics of Kafka that sinks write to, by their names."""
    options = {name: one[1] for name, one in given.items() if _has_options(one) and one[0] == "kafka"}
    return {name: topics for name, one in options.items() if (topics := Topics.of_options(one)) is not None}


def _has_options(sink: Any) -> bool:
    return isinstance(sink, tuple | list) and len(sink) == 2 and isinstance(sink[1], dict)


def in_place(
    known: SparkResult, tilings: Mapping[str, Tiling], ends: str | None, rejecting: Sequence[str]
) -> SparkResult:
    """A result over the tilings of a checkpoint, by the names of the calls; ``ends`` has marks of the end.

    Calls that are not among them stay as they are.

    The rejects of the calls before, which cannot pass through what users do with answers, come out by the tags of
    ``rejecting``: each of these calls is in the query a second time, and its answers are dropped.
    """
    pieces: dict[str, DataFrame] = {}
    bad: list[DataFrame] = []
    for i, one in enumerate(known.earlier):
        own, folder = tilings.get(one.name, one.tiling), ends if one.call.holds_back else None
        if rejecting:
            rows = one.rebuild(own, folder, pieces, again=True).rows.where(F.col("tag") == REJECT)
            bad.append(rows.select(F.lit(rejecting[i]).alias("tag"), F.col(REJECT).alias(rejecting[i])))
        if one.name in tilings:
            pieces[one.name] = one.rebuild(own, folder, pieces).rows
    if known.name in tilings:
        known = known.rebuild(tilings[known.name], ends if known.call.holds_back else None, pieces)
    rows = known.rows
    for frame in bad:
        rows = rows.unionByName(frame, allowMissingColumns=True)
    return replace(known, rows=rows)


class DrainingQuery(Query):
    """A query that ends when all there is has been answered, and then closes its checkpoint.

    What waits for the streams to go on is answered by a second run, which finds the mark of their end. If a drain was
    interrupted behind its mark, and no row came since, the first run has read that.
    """

    def __init__(self, writer: DataStreamWriter, place: Checkpoint, result: SparkResult) -> None:
        super().__init__(_begun(writer), place.path)
        self._writer, self._place, self._result = writer, place, result
        self._holds_back = any(one.call.holds_back for one in (*result.calls, result))
        self._stopped, self._failure = False, None  # type: bool, Exception | None
        self._before: list[StreamingQueryProgress] = []  # of the first run
        self._thread = Thread(target=self._finish, name="appulse-drain", daemon=True)
        self._thread.start()

    def _finish(self) -> None:
        try:
            self._query.awaitTermination()
            if self._holds_back and not self._stopped and not self._place.ended:
                self._place.end()
                self._before, self._query = self._query.recentProgress, _begun(self._writer)
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
    def recentProgress(self) -> list[StreamingQueryProgress]:  # noqa: N802 - as Spark has it
        """What the last micro-batches did, of both runs."""
        query = self._query
        return [*(one for one in self._before if str(one.runId) != query.runId), *query.recentProgress]

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:  # noqa: N802 - as Spark has it
        """What the last micro-batch did."""
        return self._query.lastProgress or (self._before[-1] if self._before else None)

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
