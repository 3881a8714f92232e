"""The figures of all queries on a page that Prometheus can read. Needs ``prometheus_client``."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from appulse.engines.measured import LEVELS, WAITING
from appulse.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

__all__ = ["Page"]

_HOST = "127.0.0.1"
_LABELS = ("query_id", "name")
_GAUGES = LEVELS | {"batch_id", WAITING}


class Page:
    """Serves what was added, per query: totals since this page was opened, levels as of the latest micro-batch.

    ``place`` is a port of this machine, seen only from it, or text ``"host:port"``; port 0 takes one that is free.
    """

    def __init__(self, place: int | str) -> None:
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
        with self._lock:
            figures = self._figures.setdefault((metrics["query_id"], metrics["name"] or ""), {})
            for name, value in {**numbers, "batches": 1}.items():
                figures[name] = value if name in _GAUGES else figures.get(name, 0) + value

    def collect(self) -> Iterator[Metric]:
        """What the page shows now; called by the library at each reading."""
        with self._lock:
            queries = {labels: dict(figures) for labels, figures in self._figures.items()}
        for name in sorted({name for figures in queries.values() for name in figures}):
            said = name.replace("_", " ")
            family: CounterMetricFamily | GaugeMetricFamily = (
                GaugeMetricFamily(f"appulse_{name}", f"{said} as of the latest micro-batch", labels=_LABELS)
                if name in _GAUGES
                else CounterMetricFamily(f"appulse_{name}", f"{said} of all micro-batches so far", labels=_LABELS)
            )
            for labels, figures in queries.items():
                if name in figures:
                    family.add_metric(labels, figures[name])
            yield family

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _host_and_port(place: int | str) -> tuple[str, int]:
    host, _, port = str(place).rpartition(":")
    if isinstance(place, bool) or not port.isdecimal():
        raise BadArgument(f"prometheus={place!r} is no port. Give one such as 9464, or 'host:port'.")
    return host or _HOST, int(port)
