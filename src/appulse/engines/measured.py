"""What a micro-batch of Spark did, read from its report: one reading for those who listen, for files and for pages."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from appulse.engines.results import names_of_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "END",
    "LEVELS",
    "METRICS",
    "WAITING",
    "count_read",
    "figures_of",
    "newest_event",
    "report",
    "rows_read",
    "seconds_of",
]

#: What a tile reports of each micro-batch; a job in process those that it has.
METRICS = (
    "tile",
    "newest",
    "rows",
    "late",
    "rejected",
    "candidates",
    "elsewhere",
    "pruned_reach",
    "pruned_mass",
    "pruned_cantelli",
    "pruned_markov",
    "pruned_square",
    "pruned_sample",
    "pruned_projection",
    "pruned_window",
    "accepted",
    "refined",
    "audited",
    "false_dismissals",
    "answers",
    "left",
    "capped",
    "withdrawn",
    "not_held",
    "swapped",
    "queries",
    "query_version",
    "state_rows",
    "state_bytes",
    "state_bytes_read",
    "state_bytes_written",
    "repository",
    "seconds",
)
#: Figures that stand after a micro-batch; all others happened in it.
LEVELS = frozenset({"state_rows", "state_bytes", "repository", "queries", "query_version"})
#: Messages that a source has and no micro-batch has taken: the lag.
WAITING = "messages_waiting"

#: By a row in a folder of this name, in the checkpoint, a drain says that the streams end.
END = "appulse-end"
# Of micro-batches, by query and number: figures that Spark did not observe, and rows that it counts more than once.
# Nobody may ask for them.
_REPORTED: dict[tuple[str, int], dict[str, Any]] = {}
_READ: dict[tuple[str, int], int] = {}
_MOST_REPORTED = 256


def report(query: str, batch: int, figures: Mapping[str, Any]) -> None:
    """The figures of a micro-batch that is made in `foreachBatch`, where Spark observes nothing; soon asked for."""
    _keep(_REPORTED, (query, batch), dict(figures))


def count_read(query: str, batch: int, rows: int) -> None:
    """How many rows a micro-batch read of its sources, where its plan reads some of them twice."""
    _keep(_READ, (query, batch), rows)


def _keep(into: dict[tuple[str, int], Any], key: tuple[str, int], value: Any) -> None:
    into[key] = value
    while len(into) > _MOST_REPORTED:
        del into[next(iter(into))]


def figures_of(progress: Mapping[str, Any]) -> dict[str, float | None] | None:
    """The figures of a report: those of the last call, with late and rejected rows of all; None of other queries."""
    observed = progress.get("observedMetrics") or {}
    names = names_of_metrics(observed)
    if not names:
        known = _REPORTED.get(_key(progress))
        return None if known is None else dict(known)
    *before, last = [_as_dict(observed[name]) for name in names]
    for figures in before:  # what did not reach the last one
        last |= {what: (last.get(what) or 0) + (figures.get(what) or 0) for what in ("late", "rejected")}
    return last


def rows_read(progress: Mapping[str, Any]) -> int:
    """The rows of the user that came in, those of each source once."""
    if (known := _READ.get(_key(progress))) is not None:
        return known
    ends = [source for source in progress.get("sources") or () if f"/{END}" in source["description"]]
    return int(progress.get("numInputRows") or 0) - sum(int(source["numInputRows"]) for source in ends)


def newest_event(progress: Mapping[str, Any]) -> tuple[str | None, float | None]:
    """The newest event time of a micro-batch, and how many seconds it was behind when the batch began."""
    newest: str | None = (progress.get("eventTime") or {}).get("max")
    # Numbers as times are seconds since 1970 to Spark: no clock on a wall, unless they are of our days.
    known = newest is not None and newest >= "1971"
    return newest, seconds_of(progress["timestamp"]) - seconds_of(newest) if newest and known else None


def seconds_of(time: str) -> float:
    """A time in ISO 8601 as seconds since 1970."""
    return datetime.fromisoformat(time).timestamp()


def _key(progress: Mapping[str, Any]) -> tuple[str, int]:
    return str(progress.get("id")), int(progress["batchId"])


def _as_dict(given: Any) -> dict[str, float | None]:
    return dict(given.asDict() if hasattr(given, "asDict") else given)
