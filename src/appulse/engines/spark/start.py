"""Run a streaming result: answers to one sink, bad rows to another, each batch once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from threading import Thread
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module
from pyspark.sql import types as T  # noqa: N812

from appulse.engines.arriving import FEWEST_ROWS
from appulse.engines.spark.checkpoint import Checkpoint
from appulse.engines.spark.failures import Query, writing
from appulse.engines.spark.files import replace_batch
from appulse.engines.spark.jdbc import replace_rows
from appulse.engines.spark.metrics import tell
from appulse.engines.spark.results import SparkResult, own_result
from appulse.engines.spark.tagged import LEVELS, METRICS, select_tag
from appulse.errors import BadArgument, warn_late
from appulse.model.times import shown_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from appulse.engines.spark.tiling import Tiling

Write = Callable[[DataFrame, int], object]
_FILES = frozenset({"parquet", "orc", "json", "csv", "text", "avro"})


def start(
    result: DataFrame,
    sink: Any,
    rejects: Any = None,
    *,
    checkpoint: str,
    partitions: int | None = None,
    drain: bool = False,
    trigger: dict[str, Any] | None = None,
) -> Query:
    """One streaming query that writes answers and rejects; see `appulse.start`."""
    known = own_result(result)
    if known.bad_rows is not None:
        raise BadArgument(
            "This result is a batch result: write it with result.write, its rejects with ap.rejects(result)."
        )
    if drain and trigger not in (None, {"availableNow": True}):
        raise BadArgument(f"drain=True takes what is available now and ends; it goes with no trigger, not {trigger!r}.")
    _check_chain(known, rejects, drain=drain)
    place = Checkpoint(result.sparkSession, checkpoint)
    wanted = known.tiling
    if partitions is not None and partitions != wanted.latest.tiles:
        wanted = wanted.over(partitions)
    with writing(f"the checkpoint {checkpoint}"):
        tiling = place.admit(known.call, wanted, partitions, replanned=known.replanned, before=known.calls)
    ends = place.end_folder if any(one.call.holds_back for one in (*known.calls, known)) else None
    before: dict[str, T.StructType] = {}
    if ends is not None or tiling != known.tiling:
        tilings = [own for _, own in place.before]
        if rejects is not None:
            before = {f"reject{i}": one.rejects for i, one in enumerate(known.calls)}
        known = in_place(known, tiling, tilings, ends, list(before))
    write = _batch_writer(
        known,
        place,
        _writer(sink, "sink", place.id),
        None if rejects is None else _writer(rejects, "rejects", place.id),
        before,
    )
    writer = known.rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    with writing(f"the checkpoint {checkpoint}"):
        if drain:
            return DrainingQuery(writer.trigger(availableNow=True), place, known)
        return Query((writer.trigger(**trigger) if trigger else writer).start(), checkpoint)


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
            rows = one.rebuild(own, folder, pieces, again=True).rows.where(F.col("tag") == "reject")
            columns = [F.col(f"reject_{f.name}").alias(f"{rejecting[i]}_{f.name}") for f in one.rejects]
            bad.append(rows.select(F.lit(rejecting[i]).alias("tag"), *columns))
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
            self._failure = self._told(error)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802 - as Spark has it
        """Wait for the end; with ``timeout`` (seconds) whether it came."""
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
        self._query.stop()


def _batch_writer(
    result: SparkResult,
    place: Checkpoint,
    answers: Write,
    rejects: Write | None,
    before: Mapping[str, T.StructType],
) -> Callable[[DataFrame, int], None]:
    """What writes a batch. ``before`` are the tags of the rejects of calls before, with their columns."""
    judge = None if result.judge is None else result.judge(place.folder)

    def write(given: DataFrame, number: int) -> None:
        # Two sinks read the batch; without this the join would run for each.
        batch = (given if judge is None else judge(given, number)).persist()
        try:
            metrics = _metrics(batch)
            place.saw(metrics["newest"])
            _warn_late(result, metrics)
            if judge is not None:
                _tell(place.query, number, metrics)
            if metrics["answers"] or metrics["left"] or number == 0:
                answers(select_tag(batch, "answer", result.answers), number)
            further = batch.where(F.col("tag").isin(*before)) if before else None
            if rejects is not None and (
                metrics["rejected"] or number == 0 or (further is not None and not further.isEmpty())
            ):
                bad = [select_tag(batch, tag, schema) for tag, schema in [("reject", result.rejects), *before.items()]]
                if number == 0:  # with what was refused before any row
                    bad += [one.first_rejects for one in (*result.calls, result) if one.first_rejects is not None]
                rejects(_together(bad), number)
        finally:
            batch.unpersist()

    return write


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


def _metrics(batch: DataFrame) -> Counter[str]:
    rows = batch.where(F.col("tag") == "metric").select(*[F.col(f"metric_{name}").alias(name) for name in METRICS])
    totals: Counter[str] = Counter()
    for row in rows.collect():
        figures = {name: int(value or 0) for name, value in row.asDict().items()}
        largest = {name: max(totals[name], figures.pop(name)) for name in ("newest", "queries", "query_version")}
        totals.update(figures)
        totals |= Counter(largest)
    return totals


def _tell(query: str, number: int, metrics: Counter[str]) -> None:
    """Tell those who listen; what stands is known only where a task had rows."""
    told = {name: metrics[name] for name in METRICS if name not in ("tile", "newest")}
    worked = bool(metrics["rows"] or metrics["rejected"])
    tell(query, number, {n: v for n, v in told.items() if worked or n == "query_version" or n not in LEVELS})


def _writer(sink: Any, role: str, query: str) -> Write:
    """A function that writes one batch to the sink; ``query`` names this checkpoint's query among others."""
    if callable(sink):
        return sink  # type: ignore[no-any-return]  # the user's function
    if not (
        isinstance(sink, tuple | list) and len(sink) == 2 and isinstance(sink[0], str) and isinstance(sink[1], dict)
    ):
        raise BadArgument(
            f"{role}={sink!r}: give a ('format', {{options}}) pair such as ('parquet', {{'path': 'out/pairs'}}), "
            "or a function of (batch frame, batch id)."
        )
    kind, options = sink[0].lower(), dict(sink[1])
    if kind in _FILES:
        path = options.pop("path", None)
        if path is None:
            raise BadArgument(f"{role}={sink!r} has no 'path'. Give one: ({kind!r}, {{'path': 'out/pairs'}}).")
        return lambda frame, number: replace_batch(frame, kind, options, str(path), f"{query}-{number:010d}")
    if kind == "jdbc":
        if missing := sorted({"url", "dbtable"} - {name.lower() for name in options}):
            raise BadArgument(
                f"{role}=('jdbc', ...) has no {' and no '.join(map(repr, missing))}. Give both: "
                "('jdbc', {'url': 'jdbc:postgresql://host/base', 'dbtable': 'pairs'})."
            )
        return lambda frame, number: replace_rows(frame, options, query, number)
    if kind == "delta":
        return lambda frame, number: _delta(frame, {"txnAppId": f"appulse-{role}-{query}", **options}, number)
    return lambda frame, number: _append(_with_id(frame, kind, number), kind, options)


def _delta(frame: DataFrame, options: dict[str, Any], number: int) -> None:
    """Delta keeps the last batch of each writer, and skips what it has."""
    frame.write.format("delta").options(**options, txnVersion=str(number)).mode("append").save()


def _with_id(frame: DataFrame, kind: str, number: int) -> DataFrame:
    """Sinks that may see a batch twice are told which it is."""
    if kind == "kafka":
        packed = F.to_json(F.struct("*", F.lit(number).alias("batch_id")))
        return frame.select(packed.alias("value"))
    return frame if kind in ("noop", "console") else frame.withColumn("batch_id", F.lit(number).cast(T.LongType()))


def _append(frame: DataFrame, kind: str, options: dict[str, Any]) -> None:
    frame.write.format(kind).options(**options).mode("append").save()
