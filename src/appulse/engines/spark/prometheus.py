"""The figures of all queries on a page that Prometheus can read. Needs ``prometheus_client``."""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from appulse.engines.measured import LEVELS, WAITING, seconds_of
from appulse.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

__all__ = ["Page"]

_HOST = "127.0.0.1"
_LABELS = ("query_id", "name")
_NEWEST, _LATEST = "newest_event_timestamp_seconds", "last_batch_timestamp_seconds"
_GAUGES = LEVELS | {"batch_id", WAITING, "lag_seconds", _NEWEST, _LATEST}
_BY_BOUND = "Candidate pairs that the bound {} ruled out."
_HELP = {
    "batches": "Micro-batches that ended.",
    "batch_id": "Number of the latest micro-batch.",
    "batch_seconds": "Seconds from start to end of micro-batches.",
    "input_rows": "Rows that the sources gave.",
    WAITING: "Messages of Kafka that no micro-batch had taken when the latest one began.",
    "lag_seconds": "Seconds from the newest event time of the latest micro-batch with rows to the start of that batch.",
    _NEWEST: "Newest event time of the latest micro-batch with rows, in seconds since 1970.",
    _LATEST: "When the latest micro-batch ended, in seconds since 1970.",
    "rows": "Rows that the call took in, each once.",
    "late": "Rows that were rejected because they came late.",
    "rejected": "Rows that were rejected, late ones included.",
    "candidates": "Pairs of rows that the index reached in time and partition.",
    "elsewhere": "Candidate pairs that were left to another tile.",
    "accepted": "Candidate pairs that a bound accepted without their probability.",
    "refined": "Candidate pairs whose probability was computed in full.",
    "audited": "Pairs without an answer that were computed in full as a check.",
    "false_dismissals": "Audited pairs that a bound had ruled out by mistake: 0, or a bound is wrong.",
    "answers": "Rows of the result.",
    "left": "Pairs that left the answer, where changes are asked for.",
    "capped": "Rows that left an uncertain window because it had grown to its max_rows.",
    "withdrawn": "Rows that others withdrew.",
    "not_held": "Withdrawals of rows that were not held.",
    "swapped": "Rows that would lie in a region if latitude and longitude were swapped.",
    "queries": "Standing queries.",
    "query_version": "Version of the standing queries.",
    "state_rows": "Rows held, once for each tile that holds them.",
    "state_bytes": "Bytes of the rows held.",
    "state_bytes_read": "Bytes of state that were read.",
    "state_bytes_written": "Bytes of state that were written.",
    "repository": "Version of the saved imputer that filled the latest rows; 0: none did.",
    "seconds": "Seconds of work inside the tiles, added up.",
}


class Page:
    """Serves what was added, per query: totals since this page was opened, levels as of the latest micro-batch.

    ``place`` is a port of this machine, seen only from it, or text ``"host:port"``; port 0 takes one that is free.
    Queries without a name get ``name``.
    """

    def __init__(self, place: int | str, name: str = "") -> None:
        self._name = name
        host, port = _host_and_port(place)
        self._figures: dict[tuple[str, str], dict[str, float]] = {}
        self._lock = Lock()
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except (OSError, OverflowError) as problem:
            raise BadArgument(
                f"prometheus={place!r} cannot be served: {problem}. Give another port, or 0 for any that is free."
            ) from problem
        self.address = f"http://{host}:{self._server.server_port}/metrics"

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Take in the figures of a micro-batch."""
        numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
        if metrics.get("event_time"):
            with suppress(ValueError):  # a year that is none of Python's
                numbers[_NEWEST] = seconds_of(metrics["event_time"])
        if metrics.get("timestamp"):
            numbers[_LATEST] = seconds_of(metrics["timestamp"]) + metrics["batch_seconds"]
        with self._lock:
            figures = self._figures.setdefault((metrics["query_id"], metrics["name"] or self._name), {})
            for name, value in {**numbers, "batches": 1}.items():
                figures[name] = value if name in _GAUGES else figures.get(name, 0) + value

    def collect(self) -> Iterator[Metric]:
        """What the page shows now; called by the library at each reading."""
        with self._lock:
            queries = {labels: dict(figures) for labels, figures in self._figures.items()}
        for name in sorted({name for figures in queries.values() for name in figures}):
            kind = GaugeMetricFamily if name in _GAUGES else CounterMetricFamily
            family: CounterMetricFamily | GaugeMetricFamily = kind(f"appulse_{name}", _help(name), labels=_LABELS)
            for labels, figures in queries.items():
                if name in figures:
                    family.add_metric(labels, figures[name])
            yield family

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _help(name: str) -> str:
    """What a figure is, with its unit."""
    if name in _HELP:
        return _HELP[name]
    bound = name.removeprefix("pruned_")
    return f"Of all micro-batches: {name.replace('_', ' ')}." if bound == name else _BY_BOUND.format(bound)


def _host_and_port(place: int | str) -> tuple[str, int]:
    host, _, port = str(place).rpartition(":")
    if isinstance(place, bool) or not port.isdecimal():
        raise BadArgument(f"prometheus={place!r} is not a port. Give one such as 9464, or 'host:port'.")
    return host or _HOST, int(port)
