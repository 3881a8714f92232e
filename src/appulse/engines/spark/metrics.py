"""What each micro-batch did, reported as it ends: to a function, to Prometheus."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.streaming.listener import StreamingQueryListener

from appulse.engines.measured import LEVELS, WAITING, figures_of, newest_event, rows_read
from appulse.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        SourceProgress,
        StreamingQueryProgress,
    )

    from appulse.engines.spark.prometheus import Page

__all__ = ["Listening", "listen"]

Metrics = dict[str, Any]
Take = Callable[[Metrics], object]

_LAST_WORDS = 10_000  # milliseconds
_LOG = logging.getLogger("appulse")


def listen(
    spark: SparkSession, on_batch: Take | None = None, prometheus: int | str | None = None, name: str = ""
) -> Listening:
    """Report every micro-batch of a session's queries; see `appulse.listen`.

    Prometheus gets those of queries without a name under ``name``.
    """
    if on_batch is None and prometheus is None:
        raise BadArgument("listen() has nobody to report to. Give on_batch, a function, or prometheus, a port.")
    if on_batch is not None and not callable(on_batch):
        raise BadArgument(
            f"on_batch={on_batch!r} is not a function. Give one that takes the metrics of a batch, a dict."
        )
    return Listening(spark, on_batch, None if prometheus is None else _page(prometheus, name))


def _page(place: int | str, name: str) -> Page:
    try:
        from appulse.engines.spark.prometheus import Page
    except ModuleNotFoundError as missing:
        if missing.name != "prometheus_client":
            raise
        raise BadArgument(
            f"prometheus={place!r} needs the package prometheus-client, which is not installed. "
            "Install it: pip install prometheus-client (or appulse with its extra: appulse[prometheus])."
        ) from None
    return Page(place, name)


class Listening:
    """A listener at work, until `stop` or the end of the ``with`` block it opens.

    ``address`` is where Prometheus finds the figures, if it was asked for.
    """

    def __init__(self, spark: SparkSession, on_batch: Take | None, page: Page | None) -> None:
        self.address = None if page is None else page.address
        self._spark, self._page = spark, page
        self._listener: _Listener | None = _Listener(on_batch, None if page is None else page.add)
        spark.streams.addListener(self._listener)

    def stop(self) -> None:
        """Report what has been reported by Spark so far, then stop listening and serving."""
        if self._listener is None:
            return
        if hasattr(self._spark, "_jsc"):  # Connect has no such thing, and may keep the last word
            from py4j.protocol import Py4JJavaError

            try:
                self._spark._jsc.sc().listenerBus().waitUntilEmpty(_LAST_WORDS)  # noqa: SLF001 - there is no public way
            except Py4JJavaError:
                _LOG.warning("Spark had still something to report %s seconds after stop().", _LAST_WORDS // 1000)
        self._spark.streams.removeListener(self._listener)
        self._listener = None
        if self._page is not None:
            self._page.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Listener(StreamingQueryListener):
    """Hands each micro-batch that reports under "appulse" to those who want it."""

    def __init__(self, *takers: Take | None) -> None:
        self._takers = [take for take in takers if take is not None]
        self._levels: dict[str, Metrics] = {}
        self._failed = False

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to report yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Report a batch, if it was one of ours."""
        metrics = _metrics(event.progress)
        if metrics is None:
            return
        # A batch without rows leaves the state as it was, but for what expired.
        known = self._levels.setdefault(metrics["query_id"], dict.fromkeys(LEVELS, 0))
        known.update({name: metrics[name] for name in LEVELS if name in metrics})
        metrics |= known
        for take in self._takers:
            try:
                take(dict(metrics))
            except Exception:  # noqa: BLE001 - whatever it is, the query is not to blame
                if not self._failed:
                    _LOG.exception(
                        "%r, given to appulse.listen, failed. It is still called, and this is reported once.", take
                    )
                self._failed = True

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """The levels of a query that ended are of no more use."""
        self._levels.pop(str(event.id), None)


def _metrics(progress: StreamingQueryProgress) -> Metrics | None:
    """The figures of a micro-batch; None if there was none, or it was no query of ours."""
    found = figures_of(progress)
    if found is None or "addBatch" not in progress.durationMs:
        return None
    figures = {name: _plain(name, value) for name, value in found.items()}
    newest, lag = newest_event(progress)
    return {
        "query_id": str(progress.id),
        "name": progress.name,
        "batch_id": progress.batchId,
        "timestamp": progress.timestamp,
        "input_rows": rows_read(progress),
        "batch_seconds": progress.batchDuration / 1000,
        "event_time": newest,
        "lag_seconds": lag,
        **_waiting(progress.sources),
        **{name: value for name, value in figures.items() if value is not None and name != "newest"},
    }


def _waiting(sources: Iterable[SourceProgress]) -> Metrics:
    """How many messages of Kafka are there that no micro-batch has taken; nothing where no source is of Kafka."""
    behind = [_behind(source.endOffset, source.latestOffset) for source in sources]
    known = [messages for messages in behind if messages is not None]
    return {WAITING: sum(known)} if known else {}


def _behind(taken: str, newest: str) -> int | None:
    """Messages between two offsets of Kafka, by topic and partition in JSON; None of other sources."""
    try:
        there, known = json.loads(newest), json.loads(taken)
        return sum(
            int(offset) - int(known[topic].get(partition, 0))
            for topic, partitions in there.items()
            for partition, offset in partitions.items()
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _plain(name: str, value: float | None) -> float | None:
    """Counts as whole numbers, seconds as they are; what no tile reported is 0, unless it goes on from before."""
    if value is None:
        return None if name in LEVELS else 0
    return value if name.endswith("seconds") else int(value)
