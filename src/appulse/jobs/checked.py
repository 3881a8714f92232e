"""A job file that was read: its table, its places, what is not there yet."""

from __future__ import annotations

import os
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appulse.connect.listing import Listing
from appulse.engines.thresholds import swapped_dimensions
from appulse.errors import JobError
from appulse.jobs.apart import not_apart
from appulse.jobs.files import files_at
from appulse.jobs.problems import Problem
from appulse.jobs.sources import SourceTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from appulse.jobs.imputers import RepositoryTable
    from appulse.jobs.tables import JobTable

__all__ = ["Job", "refusal"]

_PAIRING = frozenset({"similarity_join", "nearest", "assign", "outliers", "encounters"})


@dataclass(frozen=True)
class Job:
    """A checked job file."""

    file: Path
    table: JobTable

    def place(self, path: str) -> str:
        """A path of the file: as it is if absolute or a URI, else from the file's folder."""
        path = path.removeprefix("file://") if path.startswith("file:///") else path
        return path if "://" in path else os.path.realpath(self.file.parent / Path(path).expanduser())

    @property
    def checkpoint(self) -> str | None:
        """The folder from which a rerun goes on, if the file names one."""
        return None if self.table.checkpoint is None else self.place(self.table.checkpoint)

    @property
    def sink(self) -> tuple[str, dict[str, Any]]:
        """Format and options of the answers."""
        return self.table.sink.spark(self.place)

    @property
    def answers(self) -> str:
        """Where answers go, in words."""
        return self.table.sink.shown(self.place)

    @property
    def rejects(self) -> tuple[str, dict[str, Any]] | None:
        """Format and options of the rejects, if they are kept."""
        return None if self.table.rejects is None else self.table.rejects.spark(self.place)

    @property
    def alerts(self) -> list[tuple[str, dict[str, Any]]]:
        """Kinds and options of what sends alerts."""
        return [one.spark(self.place) for one in self.table.alerts]

    def imputers(self, read: Callable[[RepositoryTable], Any]) -> dict[str, Any] | None:
        """What fills each source; a repository that several share is ``read`` once."""
        made = {id(one): one.build(self.place, read) for one in self.table.filling.values()}
        return {name: made[id(one)] for name, one in self.table.filling.items()} or None

    def check_folders(self, checkpoint: str | None) -> None:
        """Raise `JobError` where folders are not apart; ``checkpoint`` is in place of the job's."""
        if problems := not_apart(self.table, self.place, checkpoint):
            raise refusal(self.file, problems)

    def unset(self) -> list[Problem]:
        """What the job takes from the environment, which does not have it."""
        given = self.table.model_dump(by_alias=True, exclude={"defaults"})
        return [
            Problem(where, f"the environment has no {name}. Set it and start again.")
            for where, name in _taken(given)
            if name not in os.environ
        ]

    def doubtful(self) -> list[str]:
        """What can run, and is likely not what is meant."""
        swapped = swapped_dimensions(self.table.streams()) if self.table.operator in _PAIRING else ""
        return [swapped] if swapped else []

    def missing(self) -> list[Problem]:
        """The sources that have no files yet, as far as this machine sees."""
        table = self.table
        paths = {where: data.path for where, data in table.data.items()}
        if (asked := table.match_queries) is not None and asked.path is not None:
            paths["match_queries"] = asked.path
        if table.fence_events is not None and table.fence_events.path is not None:
            paths["fence_events"] = table.fence_events.path
        paths |= {table.filler(name): one.path for name, one in table.filling.items() if one.path is not None}
        return [
            Problem(f"{where}.path", f"there are no files at {self.place(path)}.{self._until_then(where)}")
            for where, path in paths.items()
            if "://" not in (place := self.place(path)) and not files_at(place)
        ]

    def waits_for(self, where: str) -> bool:
        """Whether a source without files, by its place in the file, has columns and a folder: files may come."""
        data = self.table.data.get(where)
        return isinstance(data, SourceTable) and data.schema_ is not None and self._may_grow(self.place(data.path))

    def _may_grow(self, place: str) -> bool:
        """Whether a folder is there; of a pattern that above it, of which Spark wants a file."""
        return Path(place).is_dir() or (
            self.table.engine == "local" and has_magic(place) and Path(Listing(place).root).is_dir()
        )

    def _until_then(self, where: str) -> str:
        """What a job does without the files of a source."""
        data = self.table.data.get(where)
        if not isinstance(data, SourceTable) or data.format == "delta":
            return ""
        if self.waits_for(where):
            return " The job waits for them."
        if data.schema_ is not None:
            return " In a folder that is there the job would wait for them."
        return (
            f' With a schema of {where} (schema = "id string, at double, ...") the job would start and wait for them.'
        )


def refusal(path: str | Path, problems: Sequence[Problem]) -> JobError:
    """All that is wrong with a job file, as one error."""
    listed = "".join(f"\n  {problem}" for problem in problems)
    return JobError(f"{path} is not a job that can run:{listed}")


def _taken(given: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """The names of what is taken from the environment, by where that is."""
    items = given.items() if isinstance(given, dict) else enumerate(given) if isinstance(given, list) else ()
    holds = where.endswith((".options", ".headers"))
    for name, value in items:
        place = f"{where}.{name}" if where else str(name)
        if (holds or name in ("password", "url")) and isinstance(value, dict) and list(value) == ["env"]:
            yield place, value["env"]
        else:
            yield from _taken(value, place)
