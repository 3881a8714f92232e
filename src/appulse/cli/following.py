"""What a run writes of its micro-batches, and how another process follows it: a file by the checkpoint, or a page."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

from appulse.errors import BadArgument, JobError

if TYPE_CHECKING:
    from appulse.cli.progress import Batch

__all__ = ["Endpoint", "ProgressFile", "Run", "Tail", "followed", "progress_file"]

_MOST_BYTES = 16 << 20
_KEPT = 120  # micro-batches that a view looks at
_PREFIX, _TOTAL = "appulse_", "_total"
_NEWEST, _LATEST = "newest_event_timestamp_seconds", "last_batch_timestamp_seconds"
#: Levels that are the greatest of all queries, not their sum.
_GREATEST = {_NEWEST, _LATEST, "lag_seconds", "batch_id"}


def progress_file(checkpoint: str | None) -> Path | None:
    """Where a run notes its micro-batches: beside its checkpoint, if that is on this machine."""
    if checkpoint is None or "://" in checkpoint:
        return None
    folder = Path(checkpoint)
    return folder.with_name(f"{folder.name}.progress.jsonl")


class ProgressFile:
    """A line of JSON for each micro-batch. A large file goes on in a new one, and the one before is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def add(self, batch: Batch) -> None:
        """Note a micro-batch; what cannot be written is left out, for the run is worth more."""
        if self._path is None:
            return
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **batch.as_dict()})
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size > _MOST_BYTES:
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError:
            self._path = None


@dataclass
class Run:
    """What is known of a run: its latest micro-batches, the latest last, and sums over all that were seen."""

    name: str
    batches: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    sums: dict[str, float] = field(default_factory=dict)
    count: int = 0

    def add(self, line: Mapping[str, Any]) -> None:
        """Take in a micro-batch."""
        self.batches.append(dict(line))
        self.count += 1
        self.sums["input_rows"] = self.sums.get("input_rows", 0.0) + (line.get("input_rows") or 0)
        for name, value in (line.get("metrics") or {}).items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    @property
    def age(self) -> float | None:
        """Seconds since the latest micro-batch; None where there is none, or nobody saw when it ended."""
        if not self.batches or self.batches[-1]["at"] is None:
            return None
        return (datetime.now(UTC) - datetime.fromisoformat(self.batches[-1]["at"])).total_seconds()


class Tail:
    """A file of progress as it grows; what came before the latest micro-batch 0 is of a checkpoint that has gone."""

    def __init__(self, file: Path) -> None:
        self._file, self._at, self._inode = file, 0, -1
        self.run = Run(str(file))

    def look(self) -> Run:
        """The run, with what has come since the last look."""
        try:
            inode = self._file.stat().st_ino
            if inode != self._inode:
                self._inode, self._at = inode, 0
            with self._file.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except OSError as error:
            raise JobError(f"{self._file} cannot be read: {error.strerror}.") from error
        whole = data.rfind(b"\n") + 1
        self._at += whole
        for line in data[:whole].splitlines():
            try:
                found = json.loads(line)
                datetime.fromisoformat(found["at"])
            except (ValueError, KeyError, TypeError):
                continue  # cut off by a crash
            if found.get("batch") == 0:  # the first of a checkpoint, which may be a new one under the same name
                self.run = Run(self.run.name)
            self.run.add(found)
        return self.run


class Endpoint:
    """A page of figures for Prometheus; what happened between two looks is a micro-batch."""

    def __init__(self, url: str) -> None:
        try:
            from prometheus_client import parser
        except ModuleNotFoundError:
            raise BadArgument(
                "To read a page of figures install prometheus-client: pip install 'appulse[prometheus]'."
            ) from None
        self._parse = parser.text_string_to_metric_families
        self._url = url
        self._before: dict[str, float] = {}
        self.run = Run(url)

    def look(self) -> Run:
        """The run, with what happened since the last look."""
        try:
            with urlopen(self._url, timeout=5) as page:  # noqa: S310 - the user's own address, http or https
                text = page.read().decode()
        except (OSError, URLError, ValueError) as error:
            raise JobError(f"{self._url} does not answer: {getattr(error, 'reason', error)}.") from error
        levels, sums = figures_of(self._parse(text))
        grown = {name: value - self._before.get(name, 0.0) for name, value in sums.items()}
        seen = bool(self._before)
        self._before = sums
        if grown.get("batches", 0.0) > 0:
            count, seconds = grown.pop("batches"), grown.pop("batch_seconds", 0.0)
            rows = grown.pop("input_rows", 0.0)
            newest, latest, lag = (levels.pop(name, None) for name in (_NEWEST, _LATEST, "lag_seconds"))
            at = datetime.now(UTC).isoformat() if seen else None
            self.run.add(
                {
                    "at": at if latest is None else datetime.fromtimestamp(latest, UTC).isoformat(),
                    "batch": int(levels.pop("batch_id", -1)),
                    "input_rows": rows,
                    "batch_seconds": seconds / count,
                    "busy_seconds": seconds,
                    "rows_per_second": rows / seconds if seconds else None,
                    "event_time": None if newest is None else datetime.fromtimestamp(newest, UTC).isoformat(),
                    "lag_seconds": lag,
                    "metrics": grown | levels,
                }
            )
            self.run.count += int(count) - 1
        return self.run


def figures_of(families: Iterable[Any]) -> tuple[dict[str, float], dict[str, float]]:
    """Levels and sums of all queries of a page, by the names of figures."""
    levels: dict[str, float] = {}
    sums: dict[str, float] = {}
    for family in families:
        for sample in family.samples:
            name = sample.name.removeprefix(_PREFIX)
            if name == sample.name or name.endswith("_created"):
                continue
            into = sums if family.type == "counter" else levels
            name = name.removesuffix(_TOTAL)
            known = into.get(name)
            if name in _GREATEST and known is not None:
                into[name] = max(known, sample.value)
            else:
                into[name] = (known or 0.0) + sample.value
    return levels, sums


def followed(place: str) -> Tail | Endpoint:
    """What follows a run at a checkpoint, a job's folder or an address; raises `JobError` where there is nothing."""
    if place.startswith(("http://", "https://")):
        return Endpoint(place)
    given = Path(place)
    if given.suffix == ".toml":
        from appulse.jobs import load

        job = load(given)
        if job.checkpoint is None:
            raise JobError(f"{given} names no checkpoint. Give the folder, or the address of the figures.")
        given = Path(job.checkpoint)
    file = given if given.name.endswith(".progress.jsonl") else progress_file(str(given))
    if file is None or not file.exists():
        raise JobError(
            f"There is no {file}: no run has written its progress there. appulse run and appulse serve do, beside "
            "their checkpoint; or give the address of the figures, http://host:port/metrics."
        )
    return Tail(file)
