"""Which columns a job names: of Parquet and ORC no others are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from appulse.jobs.checked import Job

__all__ = ["named_in"]

#: What of a job and of its sources names no column that its call reads.
_ELSEWHERE = {"defaults", "sink", "rejects", "checkpoint", "prepare", "alerts", "engine"}
_OF_FILES = ("path", "format", "options", "schema")


def named_in(job: Job) -> Callable[[str], bool] | None:
    """Whether a column is named anywhere in what a job asks for; None where other files may name it."""
    asked = job.table.match_queries
    if asked is not None and (asked.path is not None or asked.changes is not None):
        return None
    given = job.table.model_dump(by_alias=True, exclude=_ELSEWHERE)
    for source in given["sources"].values():
        for name in _OF_FILES:
            source.pop(name, None)
    text = "\n".join(_texts(given)).casefold()
    return lambda name: name.casefold() in text or "`" in name


def _texts(given: Any) -> Iterator[str]:
    """All texts and names in a table."""
    if isinstance(given, str):
        yield given
    elif isinstance(given, Mapping):
        for name, value in given.items():
            yield str(name)
            yield from _texts(value)
    elif isinstance(given, Sequence):
        for one in given:
            yield from _texts(one)
