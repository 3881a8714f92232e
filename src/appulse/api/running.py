"""Streaming queries on Spark: a session, a start, and what their batches tell."""

from __future__ import annotations

from typing import Any


def start(
    result: Any,
    sink: Any,
    rejects: Any = None,
    *,
    checkpoint: str,
    partitions: int | None = None,
    drain: bool = False,
    trigger: dict[str, Any] | None = None,
) -> Any:
    """Run a streaming result as one query that writes answers to ``sink`` and bad rows to ``rejects``.

    A sink is a ``("format", {options})`` pair or a function of (batch frame, batch id). Files and JDBC tables are
    written exactly once, functions at least once with the batch id. ``drain=True`` takes what is available now,
    answers what is held and closes the checkpoint.
    """
    from appulse.engines.spark.start import start as start_query

    return start_query(
        result, sink, rejects, checkpoint=checkpoint, partitions=partitions, drain=drain, trigger=trigger
    )


def listen(spark: Any, on_batch: Any = None, prometheus: int | str | None = None) -> Any:
    """Tell of every micro-batch of the streaming queries of a session, those of `start` and of ``writeStream``.

    ``on_batch`` is a function of a dict: ``query_id, name, batch_id, timestamp`` (ISO 8601, the start of the batch),
    ``input_rows``, ``batch_seconds``, and the figures that docs/semantics.md lists under Metrics, as numbers. It runs
    beside the query: what it raises is logged once and does no harm. ``prometheus`` is a port, open to this machine
    only, or text ``"host:port"``, where the figures are served for Prometheus, per query: sums since this call,
    and the state as of the latest batch; it needs ``appulse[prometheus]``.

    Returns an object with ``stop()``, which first tells what is still on its way, and ``address``, that of the
    figures; it is a context manager too. Raises `BadArgument` if the port is taken or the package is missing.
    """
    from appulse.engines.spark.metrics import listen as start_listening

    return start_listening(spark, on_batch, prometheus)


def session(cores: int | None = None, **settings: Any) -> Any:
    """A local SparkSession with what appulse needs, Java found or brought along."""
    from appulse.engines.spark.session import session as make_session

    return make_session(cores, **settings)
