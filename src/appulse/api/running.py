"""Streaming queries on Spark: a session, a start, and what their batches report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from appulse.api.results import SparkResult
from appulse.arguments import (
    ANYTHING,
    TEXT,
    Count,
    Kind,
    Name,
    Unfit,
    checked,
    either,
    function,
    instance,
    mapping,
    several,
    whole,
)
from appulse.engines.options import Partitions
from appulse.engines.spark.installation import need_spark


def _pair(value: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise Unfit
    return TEXT.take(value[0]), _OPTIONS.take(value[1])


def _session(value: Any) -> Any:
    if not any(kind.__module__.startswith("pyspark.sql") for kind in type(value).__mro__):
        raise Unfit
    return value


_OPTIONS = mapping(TEXT, ANYTHING, "a dict of options")
_FORMAT = Kind("a ('format', {options}) pair such as ('parquet', {'path': 'out/pairs'})", _pair)
_Sink: TypeAlias = Annotated[Any, either(_FORMAT, function("batch frame", "batch id"))]
_Alerts: TypeAlias = Annotated[
    Sequence[Any], several(_FORMAT, "pairs such as ('webhook', {'url': 'https://host/hook'})")
]
_OnBatch: TypeAlias = Annotated[Any, function("the metrics of a batch")]
_Cores: TypeAlias = Annotated[int, whole(1, 1 << 16)]
_Setting: TypeAlias = Annotated[
    str | int | float | bool, instance(str | int | float | bool, "text, a number, True or False")
]
Session: TypeAlias = Annotated[Any, Kind("a SparkSession, such as ap.session()", _session)]
_Port: TypeAlias = Annotated[
    int | str, either(Kind("a port such as 9464", whole(0).take), Kind("'host:port'", TEXT.take))
]


@checked
def start(
    result: SparkResult,
    sink: _Sink,
    rejects: _Sink | None = None,
    *,
    alerts: _Alerts = (),
    checkpoint: Name,
    partitions: Partitions | None = None,
    drain: bool = False,
    trigger: Annotated[dict[str, Any], _OPTIONS] | None = None,
    max_state: Count | None = None,
) -> Any:
    """Run a streaming result as one query that writes results to ``sink`` and bad rows to ``rejects``.

    Arguments:
    * ``result``: what a call over streaming frames returned.
    * ``sink, rejects``: each a ``("format", {options})`` pair or a function of (batch frame, batch id). Files and JDBC
      tables are written exactly once, functions and Kafka at least once. Folders must be separate, none inside another.
    * ``checkpoint``: the folder from which the query continues when it is started again. On Spark Connect the client,
      the server and its executors access it under this name, and the server writes the sinks; see
      docs/spark-connect.md.
    * ``partitions``: the number of tiles or buckets, in place of that of the call; it may change between starts.
    * ``trigger``: when micro-batches begin, as in Spark: ``{"processingTime": "5 seconds"}``; by default continuously.
    * ``drain``: processes the rows that are available, reports answers that wait for later rows, and closes the
      checkpoint.
    * ``max_state``: how many rows the query may hold (``state_rows`` of its metrics). A micro-batch that would hold
      more ends the query with `StateLimit`, before it is written.
    * ``alerts``: pairs such as ``("webhook", {"url": "https://host/hook"})`` and ``("kafka", {...})``: each result also
      goes there, or with ``only={"event": ["enter"]}`` those with these values. At least once, with a stable
      ``message_id``; after failed retries a result goes to a dead letter file. Options may be ``{"env": "NAME"}``. See
      docs/operating.md.

    Returns a query, as ``writeStream.start()`` of Spark does. Raises `BadArgument` for a wrong argument,
    `CheckpointError` for a checkpoint of another job, `StorageError` where it cannot be written or is not shared, and
    `SessionError` for a sink that Spark Connect does not have.

    >>> pairs = ap.similarity_join(left, right, epsilon=50, probability=0.9, window="1 minute")  # doctest: +SKIP
    >>> sinks = ("parquet", {"path": "pairs"}), ("json", {"path": "rejects"})
    >>> query = ap.start(pairs, *sinks, checkpoint="checkpoint", drain=True)  # doctest: +SKIP
    >>> query.awaitTermination()  # doctest: +SKIP
    """
    from appulse.engines.spark.start import Outputs
    from appulse.engines.spark.start import start as start_query

    return start_query(
        result,
        Outputs(sink, rejects, alerts),
        checkpoint=checkpoint,
        partitions=partitions,
        drain=drain,
        trigger=trigger,
        max_state=max_state,
    )


@checked
def listen(spark: Session, on_batch: _OnBatch | None = None, prometheus: _Port | None = None) -> Any:
    """Report every micro-batch of the streaming queries of a session, those of `start` and of ``writeStream``.

    Arguments:
    * ``spark``: the session.
    * ``on_batch``: a function of a dict: ``query_id, name, batch_id, timestamp`` (ISO 8601, the start of the batch),
      ``input_rows``, ``batch_seconds``, ``event_time`` (the newest of the batch) and ``lag_seconds`` (how far that was
      behind), which may be None, and the metrics in docs/semantics/cost.md, as numbers. What the function raises is
      logged once and does not affect the query.
    * ``prometheus``: a port, open to this machine only, or text ``"host:port"``, that serves the metrics to Prometheus,
      per query: sums since this call, and the state after the latest batch. It needs ``appulse[prometheus]``.

    Returns a context manager with ``stop()``, which first reports pending batches, and ``address``, the URL of the
    metrics. Raises `BadArgument` if the port is taken or the package is missing.

    >>> listening = ap.listen(spark, print)  # a dict per micro-batch  # doctest: +SKIP
    >>> listening.stop()  # doctest: +SKIP
    """
    from appulse.engines.spark.metrics import listen as start_listening

    return start_listening(spark, on_batch, prometheus)


@checked
def session(cores: _Cores | None = None, **settings: _Setting) -> Any:
    """A SparkSession with the settings that appulse needs, on this machine or on a cluster. It brings a Java if needed.

    Arguments:
    * ``cores``: the cores of this machine to use, at least 1; None: all.
    * ``settings``: Spark's own, by their full names; they win over the defaults: ``ap.session(**{"spark.driver.memory":
      "8g"})``, or ``ap.session(**{"spark.master": "spark://host:7077", "spark.cores.max": 8})``. On a cluster the
      workers need a Python with appulse (``spark.pyspark.python``).

    Returns a SparkSession. A running session is returned as it is, if it has the settings that are needed and asked
    for.

    Raises `SessionError` where the extra ``appulse[spark]`` is not installed, no Java runs Spark, or a session runs
    with other settings, and `BadArgument` for a wrong argument, such as ``cores`` beside a cluster.

    >>> spark = ap.session(cores=2)  # doctest: +SKIP
    >>> spark.version >= "4.0"  # doctest: +SKIP
    """
    need_spark()
    from appulse.engines.spark.session import session as make_session

    return make_session(cores, **settings)
